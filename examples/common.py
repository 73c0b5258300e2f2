"""What the training examples share: the task, where policies start, and the table at the end."""

from typing import Any

import numpy as np

import autotts_jax as at
from autotts_jax.envs import WidthDepthRounds
from autotts_jax.experiments import standard_error
from autotts_jax.policies import as_player
from autotts_jax.replay import synthetic

GAMMA = 1e-4
"""γ, the price of an interval: the default, at which SC does best with 8 branches."""

SHAPE: dict[str, Any] = {"max_branches": 8, "max_advance": 4}
"""The policies get as many branches as SC@8."""

SCALE = 10.0
"""The rewards of an episode sum to `SCALE` times the objective; trainers divide them by it."""

REWARD: dict[str, Any] = {"reward": "progress", "progress_weight": SCALE - 1, "gamma": SCALE * GAMMA}
"""Nine tenths of what a right answer is worth are paid when it becomes the majority's, and taken back when it
no longer is; one tenth when it is given. Paid at the end alone, it would drown γ in noise."""

DISCOUNT = 0.99
"""Below 1 because what is truncated counts for what it would have come to: else putting the answer off, with
nothing left to read, would cost nothing."""

BETAS = (0.2, 0.5)
"""β of CMC in the table."""


def first_logits(env: WidthDepthRounds) -> np.ndarray:
    """Where policies start: open all branches, read on, answer now and then, seldom hold or prune a branch.

    Uniform ones would mostly answer before anything was read. In the order of the action mask, shape (A,).
    """
    answer, opening = [0, -3], [0] * env.max_branches + [4]
    hold, prune, advance = -3, -4, 0
    branch = [hold, prune] + [advance] * env.max_advance
    return np.array(answer + opening + branch * env.max_branches, np.float32)


def compare(policies: dict[str, Any], orders: int) -> None:
    """Prints how policies do beside code controllers, on the questions and branch orders of ``repo100``.

    Args:
        policies: an `EnvPolicy` or a `HostPolicy` by the name that the table gives it.
        orders: branch orders that each question is played under.
    """
    # They are shown the γ of their training.
    trained = [as_player(policy, gamma=REWARD["gamma"], name=name) for name, policy in policies.items()]
    players = ["sc@8", *(f"cmc@{beta}" for beta in BETAS), *trained]
    result = at.evaluate(synthetic(), players, seeds=orders)
    first = _worth(result, 0)[0]
    print(f"\n{'':16}{'accuracy, %':>14}{'ktokens':>9}{'objective':>17}{'over sc@8':>18}")
    for index, play in enumerate(result.plays):
        rows = zip(play.player.names, play.correct, play.tokens, _worth(result, index), strict=True)
        for name, correct, tokens, worth in rows:
            print(
                f"{name:16}{_figure(100 * correct.mean(axis=1), 1):>14}{tokens.mean() / 1000:9.1f}"
                f"{_figure(worth, 4):>17}{_figure(worth - first, 4):>18}"
            )
    print(f"objective: mean of 1{{correct}} - {GAMMA:g} · intervals; ±: standard error over branch orders")


def _worth(result: at.Evaluation, play: int) -> np.ndarray:
    """The objective of a play by value and branch order. Shape (V, S)."""
    return at.Objective(GAMMA).of(result.plays[play], result.dataset).mean(axis=2)


def _figure(per_order: np.ndarray, digits: int) -> str:
    return f"{per_order.mean():.{digits}f} ± {standard_error(per_order):.{digits}f}"
