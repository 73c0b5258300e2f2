"""DAgger (https://arxiv.org/abs/1011.0686): a network learns what CMC would decide in its place.

Run it as ``python examples/train_dagger.py``. CMC plays first, and then the network. All rounds count as
environment steps, whoever plays, but not CMC's looks at where the network goes. Weights are random at first.
"""

import jax
import numpy as np
from common import TASK, draw_questions, only_gamma, run

import autotts_jax as at
from autotts_jax.policies import CMC, NeuralPolicy
from autotts_jax.policies.neural.policy import initial_parameters
from autotts_jax.training import clone, demonstrate
from autotts_jax.training.imitation import ROUNDS

BETA = 0.7 if TASK.name == "laptop" else 0.0
"""Of the teacher: what the protocol chooses on ``train`` and ``validation`` of `laptop` and `hard`."""

ITERATIONS, UPDATES, HIDDEN = 5, 500, 16

GAMMA = only_gamma()
_, PARAMS = at.make(TASK.environment, **TASK.settings("train") | {"gamma": GAMMA})


def train(seed: int, steps: int) -> NeuralPolicy:
    rng = np.random.default_rng(seed)
    start, *draws = jax.random.split(jax.random.key(seed), 1 + ITERATIONS)
    network, player = initial_parameters(HIDDEN, start), None
    seen, used, episodes = [], 0, min(PARAMS.matrix.num_questions, max(1, steps // 1000))
    for iteration, draw in enumerate(draws, 1):
        while used + episodes * ROUNDS <= steps * iteration / ITERATIONS:
            drawn = draw_questions(PARAMS, episodes, rng)
            orders = drawn.orders.first(TASK.max_branches)
            rows = rng.integers(orders.num_rows, size=episodes)
            seen.append(demonstrate(CMC.of_beta(BETA), GAMMA, drawn.matrix, orders, rows, player=player))
            used += len(seen[-1].action.answer)
        joined = jax.tree.map(lambda *parts: np.concatenate(parts), *seen)
        network, _ = clone(network, joined, draw, updates=UPDATES)
        player = network
    return NeuralPolicy(network, GAMMA)


if __name__ == "__main__":
    run(__doc__, dagger=train)
