"""Evolution strategies (https://arxiv.org/abs/1703.03864) on the objective itself.

Run it as ``python examples/train_evolution.py``. All rounds of all members count as environment steps; a
generation that takes more of them than are left is dropped.
Weights are random at first.
"""

import jax
import numpy as np
from common import TASK, draw_questions, only_gamma, run

import autotts_jax as at
from autotts_jax.policies import NeuralPolicy
from autotts_jax.policies.neural.policy import initial_parameters
from autotts_jax.training import Evolution, EvolutionSettings

POPULATION, QUESTIONS, HIDDEN = 16, 32, 16
"""Every member plays as many questions in a generation, always the same ones."""

_, PARAMS = at.make(TASK.environment, **TASK.settings("train") | {"gamma": only_gamma()})


def train(seed: int, steps: int) -> NeuralPolicy:
    questions = draw_questions(PARAMS, QUESTIONS, np.random.default_rng(seed))
    settings = EvolutionSettings(population=POPULATION, num_gammas=1, max_branches=TASK.max_branches)
    start, key = jax.random.split(jax.random.key(seed))
    evolution = Evolution(settings, questions, initial_parameters(HIDDEN, start))
    state, used = evolution.init(key), 0
    while True:
        following, metrics = evolution.update(state)
        used += int(metrics["steps"])
        if used > steps:
            return evolution.policy(state)
        state = following


if __name__ == "__main__":
    run(__doc__, evolution=train)
