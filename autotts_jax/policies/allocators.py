"""Allocators: which of many questions reads its next branch, when one token budget is for all of them.

Each is an index of what one question has revealed; `autotts_jax.core.Allocator` is the contract.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jax.scipy.stats import norm
from jaxtyping import Float, Float32

from autotts_jax.checks import check_float
from autotts_jax.core.batch import Allocator
from autotts_jax.core.controller import check_fields, within
from autotts_jax.core.view import View
from autotts_jax.core.votes import confidence_table
from autotts_jax.errors import DataError, InputError
from autotts_jax.files import read_bytes, write_atomically
from autotts_jax.parsing import parse_json
from autotts_jax.typing import Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Uniform(Allocator):
    """The same number of branches for all questions."""

    def index(self, view: View) -> Float[Array, ""]:
        return -view.opened.astype(jnp.float32)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LeastSure(Allocator):
    """ASC under a common price: always the question that the confidence of ASC is lowest for.

    This is ASC on every question with one threshold, which is raised until the budget is spent.
    """

    def index(self, view: View) -> Float[Array, ""]:
        return after_two(view, doubt(view))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SmallestLead(Allocator):
    """SPRT under a common price: always the question whose leader leads by the fewest votes."""

    def index(self, view: View) -> Float[Array, ""]:
        vote = view.vote_finals()
        return after_two(view, (vote.top2 - vote.top1).astype(jnp.float32))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class NaiveIndex(Allocator):
    """The probability that the runner-up leads in truth, over the tokens of a branch and the root of n."""

    def index(self, view: View) -> Float[Array, ""]:
        return after_two(view, doubt(view) / (mean_tokens(view) * jnp.sqrt(view.opened)))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class BlendASC(Allocator):
    """The doubt of ASC blended with that of the test PPR-1v1, after Blend-ASC (arXiv 2511.12309).

    PPR-1v1 compares the prior with the posterior density of a tie between the two leading answers. The paper
    blends the ranks of the two numbers among all questions. An index is of one question, so here their
    logarithms are averaged instead.
    """

    def index(self, view: View) -> Float[Array, ""]:
        vote = view.vote_finals()
        votes = vote.top1 + vote.top2
        tie = gammaln(votes + 2.0) - gammaln(vote.top1 + 1.0) - gammaln(vote.top2 + 1.0) - votes * np.log(2)
        return after_two(view, (jnp.log(doubt(view)) + tie) / 2)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DirichletGain(Allocator):
    """What reading on adds to the share of the answer that is given, at the best number of branches a token.

    The shares of leader, runner-up and all other answers have the uniform Dirichlet distribution as prior, as
    in Best-of-∞ (arXiv 2509.21091), and an answer is taken to be right as often as it is given. h more
    branches move the difference of the two shares by a nearly normal amount, and the runner-up is answered
    where that makes it the leader: the knowledge gradient.
    """

    def index(self, view: View) -> Float[Array, ""]:
        return after_two(view, dirichlet_gain(view) / mean_tokens(view))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LongFirst(Allocator):
    """The gain of `DirichletGain` from the first branch on, not divided by tokens; of equals the longest.

    A second branch alone never changes a majority, so where few branches can be paid for, it is read where a
    third is likely to be needed. All that one branch tells is its length, and branches disagree most on
    questions where they are long. The exponent is so small that it decides between equal gains only.
    """

    def index(self, view: View) -> Float[Array, ""]:
        return jnp.where(view.opened == 0, jnp.inf, dirichlet_gain(view) * mean_tokens(view) ** 0.01)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ShadowPrice(Allocator):
    """`DirichletGain` that gives up questions on which no two branches agree, after CLEAR (arXiv 2606.03092).

    The price of a token is what the question served last has for it. CLEAR predicts from a question's text
    what reading on is worth; here its branches tell.

    Attributes:
        patience: branches after which a question can be given up.
    """

    patience: int = within(1, default=8)

    def index(self, view: View) -> Float[Array, ""]:
        hopeless = (view.opened >= self.patience) & (view.vote_finals().top1 < 2)
        return jnp.where(hopeless, -jnp.inf, DirichletGain().index(view))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LinearIndex(Allocator):
    """A weighted sum of what a question has revealed, from the first branch on; the weights are learned.

    `autotts_jax.training.train_allocator` learns them. As the index is linear in logarithms, the unit of
    tokens makes no difference.

    Attributes:
        gain: weight of the logarithm of the gain of `DirichletGain`, a branch.
        doubt: weight of the logarithm of the probability that the runner-up leads in truth.
        tokens: weight of the logarithm of the mean tokens of a branch.
        branches: weight of the logarithm of the branches read.
        others: weight of the logarithm of one more than the votes for neither of the two leading answers.
        second: what is added where one branch is read.
    """

    gain: float = 1.0
    doubt: float = 0.0
    tokens: float = 0.0
    branches: float = 0.0
    others: float = 0.0
    second: float = 0.0

    def index(self, view: View) -> Float[Array, ""]:
        vote = view.vote_finals()
        index = (
            self.gain * _log(dirichlet_gain(view))
            + self.doubt * _log(doubt(view))
            + self.tokens * _log(mean_tokens(view))
            + self.branches * _log(view.opened)
            + self.others * _log(vote.voters - vote.top1 - vote.top2 + 1)
            + self.second * (view.opened == 1)
        )
        return jnp.where(view.opened == 0, jnp.inf, index)


def _log(value: Array) -> Array:
    """The logarithm of a number from 0 on; of one that is too small for float32, that of 1e-30."""
    return jnp.log(jnp.maximum(value, 1e-30))


def after_two(view: View, index: Float[Array, ""]) -> Float[Array, ""]:
    """Has every question read one branch first, then a second: without them there is nothing to compare."""
    return jnp.select([view.opened == 0, view.opened == 1], [jnp.inf, jnp.finfo(jnp.float32).max], index)


def doubt(view: View) -> Float32[Array, ""]:
    """Computes the probability that the runner-up is given more often than the leader, a uniform prior given.

    It is one less ASC's confidence, in full precision where it is small.
    """
    vote = view.vote_finals()
    # As probable as the other way round if the votes were swapped; even chances without any.
    swapped = jnp.asarray(confidence_table(view.width), jnp.float32)[vote.top2, vote.top1]
    return jnp.where(vote.top1 == 0, 0.5, swapped)


def mean_tokens(view: View) -> Float32[Array, ""]:
    """Computes the mean tokens of the branches that a question has read; 0 before the first."""
    return view.tokens / jnp.maximum(view.opened, 1).astype(jnp.float32)


def dirichlet_gain(view: View) -> Float32[Array, ""]:
    """Computes what h more branches add to the share of the answer, divided by h, at the best h."""
    vote = view.vote_finals()
    more = 2.0 ** np.arange(view.width.bit_length())  # up to W
    first, second, total = vote.top1 + 1.0, vote.top2 + 1.0, vote.voters + 3.0
    lead = (first - second) / total
    variance = ((first + second) / total - lead**2) / (total + 1)
    deviation = jnp.sqrt(variance * more / (total + more))
    z = lead / deviation
    return jnp.max(deviation * (norm.pdf(z) - z * norm.cdf(-z)) / more)


ALLOCATORS: dict[str, Allocator] = {
    "uniform": Uniform(),
    "asc": LeastSure(),
    "sprt": SmallestLead(),
    "naive": NaiveIndex(),
    "blend-asc": BlendASC(),
    "dirichlet": DirichletGain(),
    "long-first": LongFirst(),
    "shadow-price": ShadowPrice(),
    "learned": LinearIndex(gain=1.61, doubt=0.52, tokens=-0.66, branches=-0.34, others=-0.38, second=0.01),
}
"""The allocators of this package by their names."""


def save_weights(path: str | Path, allocator: LinearIndex) -> None:
    """Writes the weights of an index to a file, which `as_allocator` reads.

    Args:
        path: the file, ``.json``.
        allocator: the index.

    Raises:
        InputError: the name does not end in ``.json``, or the file cannot be written.
    """
    if Path(path).suffix != ".json":
        raise InputError(f"{path} does not end in .json; weights are read from such files")
    weights = {name: float(weight) for name, weight in dataclasses.asdict(allocator).items()}
    write_atomically(path, json.dumps(weights, indent=2, allow_nan=False).encode())


def _read_weights(path: Path) -> LinearIndex:
    names = [field.name for field in dataclasses.fields(LinearIndex)]
    content = read_bytes(path)
    try:
        weights = parse_json(content)
        if not isinstance(weights, dict) or weights.keys() != set(names):
            raise ValueError("it has to be an object of exactly these")
        # Their sum with the logarithms fits into float32.
        return LinearIndex(**{name: check_float(name, weights[name], -1e30, most=1e30) for name in names})
    except ValueError as error:
        raise DataError(
            path, f"does not hold the weights of an allocator, {', '.join(names)}: {error}"
        ) from error


def as_allocator(allocator: Any, also: Sequence[str] = ()) -> tuple[str, Allocator]:
    """Finds an allocator.

    Args:
        allocator: its name, a file of `save_weights`, which ends in ``.json``, or the allocator itself.
        also: names to list besides, where there is none of this name.

    Returns:
        What it is called, and the allocator.

    Raises:
        InputError: there is none of this name, the file holds no weights, or a field cannot be traced.
    """
    if isinstance(allocator, Allocator):
        check_fields(allocator)  # type: ignore[arg-type]  # it has all that this looks at
        return type(allocator).__name__, allocator
    if isinstance(allocator, str) and allocator in ALLOCATORS:
        return allocator, ALLOCATORS[allocator]
    if isinstance(allocator, str) and allocator.endswith(".json"):
        return Path(allocator).stem, _read_weights(Path(allocator))
    raise InputError(
        f"unknown allocator {allocator!r:.80}; known are {', '.join([*ALLOCATORS, *also])}, files of "
        "weights that end in .json, and your own as an object of a subclass of autotts_jax.core.Allocator"
    )
