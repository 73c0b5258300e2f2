"""What the training examples share: the task, where policies start, the command line and the scores."""

import argparse
import itertools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

import autotts_jax as at
from autotts_jax.envs import Environment, EnvParams
from autotts_jax.envs.registry import TASK_SETTINGS
from autotts_jax.experiments import TASKS
from autotts_jax.experiments.benchmark import FEWEST_SEEDS
from autotts_jax.experiments.files import FILES, check_results_folder
from autotts_jax.policies import NeuralPolicy, save_policy
from autotts_jax.replay.orders import BranchOrders

if (_task := os.environ.get("TASK", "laptop")) not in TASK_SETTINGS:
    raise SystemExit(f"TASK is {_task!r}, but it must be one of {', '.join(TASK_SETTINGS)}")

TASK = TASKS[_task]
"""As in ``TASK=hard python examples/train_sb3_ppo.py``."""

FLAT: dict[str, Any] = TASK.settings("train", obs="flat")
"""For networks that take one vector; the masks of actions are in ``info``."""

ENVS, ROUNDS, EPOCHS, MINIBATCHES = 128, 32, 4, 4
"""An update of PPO takes 32 rounds of 128 environments, four times over, in four minibatches."""

RATE, GAE_LAMBDA = 1e-3, 0.95
"""The learning rate falls to 0."""

DISCOUNT = 0.99
"""Below 1, because putting the answer off costs nothing where nothing is left to read."""

ANSWER_BIAS = -3.0
"""First logit of ANSWER beside 0 of going on: one round in twenty answers, not every other one."""


def first_logits(env: Environment) -> np.ndarray:
    """The biases of a network's last layer at first: 0, but for `ANSWER_BIAS`. Weights are random.

    In the order of the action mask, shape (A,).
    """
    logits = np.zeros(env.action_space().nvec.sum(), np.float32)
    logits[1] = ANSWER_BIAS
    return logits


def train_sb3(algorithm: type, seed: int, steps: int) -> at.Agent:
    """Trains a policy with PPO of Stable-Baselines3, or a class that takes the same arguments.

    Args:
        algorithm: the class.
        seed: the training seed.
        steps: environment steps.

    Returns:
        The policy, in the environment that it was trained in.
    """
    import torch  # here, because other examples share this module

    torch.set_num_threads(1)  # The network is too small to share among threads.
    envs = at.sb3_vec_env(TASK.environment, ENVS, **FLAT)
    model = algorithm(
        "MlpPolicy",
        envs,
        n_steps=ROUNDS,
        batch_size=ROUNDS * ENVS // MINIBATCHES,
        n_epochs=EPOCHS,
        learning_rate=lambda left: RATE * left,
        gamma=DISCOUNT,
        gae_lambda=GAE_LAMBDA,
        seed=seed,
        device="cpu",
        policy_kwargs={"activation_fn": torch.nn.ReLU},
    )
    policy = model.policy
    policy.action_net.bias.data = torch.from_numpy(first_logits(envs.envs.environment))
    model.learn(steps)
    return at.Agent(policy, envs.envs.environment)


def only_gamma() -> float:
    """The γ of the task, for learners whose policies play one."""
    if len(TASK.gammas) > 1:
        raise SystemExit(
            f"the task {TASK.name} has {len(TASK.gammas)} γ, and this learner plays one; try hard"
        )
    return TASK.gammas[0]


def draw_questions(params: EnvParams, most: int, rng: np.random.Generator) -> EnvParams:
    """Draws different questions, with their branch orders.

    Args:
        params: the questions to draw from.
        most: how many to draw; all where there are fewer.
        rng: the generator to draw with.
    """
    num_questions = params.matrix.num_questions
    chosen = rng.choice(num_questions, min(most, num_questions), replace=False)
    orders = BranchOrders(params.orders.table, np.asarray(params.orders.group)[chosen])
    return params.replace(matrix=params.matrix.select(chosen), orders=orders)


def run(description: str, **learners: Callable[[int, int], Any]) -> None:
    """Trains policies of several seeds and lengths on the part ``train``, and scores them on ``test``.

    Args:
        description: for the command line's help.
        **learners: by what the table calls them, functions of a seed and a number of environment steps that
            return a policy.
    """
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument(
        "--steps", type=int, nargs="+", choices=TASK.steps, default=TASK.steps, help="rounds to train on"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=range(5), help="training seeds")
    parser.add_argument("--orders", type=int, default=20, help="branch orders to score on")
    parser.add_argument("--learners", nargs="+", choices=learners, default=list(learners))
    parser.add_argument("--out", type=Path, help="folder for scores.csv, manifest.json and the policies")
    arguments = parser.parse_args()
    # Training takes long, so what cannot be scored is found out before it.
    for name in ("steps", "seeds", "learners"):
        given = list(getattr(arguments, name))
        if len(set(given)) < len(given):
            parser.error(f"argument --{name}: one is given twice, and would count as another training seed")
    if arguments.orders < FEWEST_SEEDS:
        parser.error(f"argument --orders: {arguments.orders} is below {FEWEST_SEEDS}")
    if arguments.out is not None:
        check_results_folder(arguments.out, FILES)
    policies: dict[str, dict[int, list[Any]]] = {}
    for name, steps, seed in itertools.product(arguments.learners, arguments.steps, arguments.seeds):
        began, cpu = time.perf_counter(), time.process_time()
        policy = learners[name](seed, steps)
        took = f"{time.perf_counter() - began:.0f} s, {time.process_time() - cpu:.0f} s of CPU time"
        policies.setdefault(name, {}).setdefault(steps, []).append(policy)
        if arguments.out is not None:
            save(policy, arguments.out / "policies" / f"{name}-{steps}-{seed}")
        print(f"{name}, seed {seed}: {steps} steps took {took}", flush=True)
    result = at.bench(TASK, ["sc", "cmc", policies], seeds=arguments.orders, baseline="sc")
    print(result.table())
    if arguments.out is not None:
        result.save(arguments.out)


def save(policy: Any, path: Path) -> None:
    """Writes a policy: a network of the package as ``.npz``, others as ``.pkl`` with the examples' code."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(policy, NeuralPolicy):
        save_policy(path.with_suffix(".npz"), policy, {"task": TASK.name})
    else:
        for name in {file.stem for file in Path(__file__).parent.glob("*.py")} & sys.modules.keys():
            cloudpickle.register_pickle_by_value(sys.modules[name])
        path.with_suffix(".pkl").write_bytes(cloudpickle.dumps(policy))
