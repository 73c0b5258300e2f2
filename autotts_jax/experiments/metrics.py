"""Metrics that come from probe matrices alone: what the branches know, whoever reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from jaxtyping import Bool, Float, Int

from autotts_jax.core import votes
from autotts_jax.errors import InputError
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.typing import Array


class Anytime(NamedTuple):
    """What the branches of a cell would answer after so many tokens, mean over branches and questions.

    A branch that has ended keeps its final answer.

    Attributes:
        tokens: of one branch, 0, Δ, 2Δ …; shape (K + 1,).
        accuracy: share of right answers, 0 before the first probe; shape (K + 1,).
        running: share of branches that read a probe or their end there; shape (K + 1,).
        gained: share of branches whose answer becomes right there; shape (K + 1,).
        lost: share of branches whose answer ceases to be right there; shape (K + 1,).
    """

    tokens: np.ndarray
    accuracy: np.ndarray
    running: np.ndarray
    gained: np.ndarray
    lost: np.ndarray


def anytime(dataset: ProbeDataset, cell: int) -> Anytime:
    """Follows the answers of single branches, interval by interval.

    Args:
        dataset: a dataset of any cells and either encoding.
        cell: index into ``dataset.cells``.

    Returns:
        Accuracy and its changes at every depth; K is the largest readable depth of the cell.
    """
    index = dataset.cell_questions(cell)
    branches = dataset.cells[cell].num_branches
    lengths = np.asarray(dataset.matrix.lengths)[index, :branches]
    depths = np.arange(int(lengths.max()) + 1)
    answers = np.asarray(dataset.matrix.answers)[index, :branches]
    read = np.take_along_axis(answers, np.minimum(depths, lengths[..., None]), axis=2)
    right = read == np.asarray(dataset.matrix.gold)[index, None, None]
    right = np.concatenate([np.zeros_like(right[..., :1]), right], axis=2)
    before, after = right[..., :-1], right[..., 1:]

    def from_nothing(changes: np.ndarray) -> np.ndarray:
        return np.append(0.0, changes.mean(axis=(0, 1)))

    return Anytime(
        int(dataset.matrix.interval[index[0]]) * np.arange(len(depths) + 1),
        right.mean(axis=(0, 1)),
        from_nothing(depths <= lengths[..., None]),
        from_nothing(~before & after),
        from_nothing(before & ~after),
    )


def normalised_regret(curve: Anytime, budget: float) -> float:
    """1 - (area under the anytime accuracy up to a budget) / budget: MRT's regret against an oracle.

    The oracle is right from the first token. The curve is linear between probes, and flat beyond its end.

    Args:
        curve: the anytime accuracy.
        budget: C0, in tokens.

    Returns:
        The regret, in 0 … 1.

    Raises:
        InputError: the budget is not a finite number above 0.
    """
    if not 0 < budget < np.inf:
        raise InputError(f"the budget is {budget}, but it must be a finite number above 0")
    tokens = np.append(curve.tokens[curve.tokens < budget], budget)
    accuracy = np.interp(tokens, curve.tokens, curve.accuracy)
    return float(1 - np.trapezoid(accuracy, tokens) / budget)


def pass_at(right: Bool[np.ndarray, "Q N"], drawn: int) -> float:
    """Pass@n: the chance that of n branches, drawn without repetition, one at least is right.

    Args:
        right: whether the final answer of each branch is right.
        drawn: n, at most N.

    Returns:
        The mean over questions of 1 - C(N - c, n) / C(N, n), with c right ones of N.

    Raises:
        InputError: n is not among 1 … N.
    """
    branches = right.shape[1]
    if not 1 <= drawn <= branches:
        raise InputError(f"pass@{drawn} needs as many branches, but a question has {branches}")
    none_right = scipy.stats.hypergeom.pmf(0, branches, right.sum(axis=1), drawn)
    return float(np.mean(1 - none_right))


def vote_accuracy(
    dataset: ProbeDataset, orders: BranchOrders, widths: Sequence[int], depths: Sequence[int]
) -> Float[np.ndarray, "P J Q"]:
    """xmaj@p_j: how often the vote among p branches is right that have all been read to depth j.

    Finished branches vote with their final answer. This votes among different branches; MRT's maj@p_j votes
    among several answers forced from one prefix.

    Args:
        dataset: Q questions.
        orders: branch orders of each question; the first p branches of each vote.
        widths: P numbers of branches, p.
        depths: J depths, j, from 1 on.

    Returns:
        The share of orders in which the vote's answer is right.
    """
    question, row = (axis.reshape(-1) for axis in np.indices((len(dataset), orders.num_rows)))
    branch = np.asarray(orders.of(question, row))
    lengths = np.asarray(dataset.matrix.lengths)[question[:, None], branch]
    gold = np.asarray(dataset.matrix.gold)[question]
    answers = np.asarray(dataset.matrix.answers)
    found = np.empty((len(widths), len(depths), len(dataset)))
    for j, depth in enumerate(depths):
        latest = answers[question[:, None], branch, np.minimum(depth - 1, lengths)]
        for p, width in enumerate(widths):
            winner = np.asarray(_winners(latest, np.arange(orders.width) < width))
            found[p, j] = (winner == gold).reshape(len(dataset), -1).mean(axis=1)
    return found


@jax.jit
def _winners(answers: Int[Array, "E W"], voters: Bool[Array, " W"]) -> Int[Array, " E"]:
    """Elects an answer in each of E episodes."""
    return jax.vmap(lambda of: votes.vote(of, voters).winner(of))(jnp.asarray(answers))
