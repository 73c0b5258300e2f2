"""What an episode costs: tokens, seconds, FLOP, byte-seconds of keys and values, or US dollars.

Every cost is a function of what an episode records (`Spent`), the same for NumPy arrays of finished episodes
and for traced values inside an environment. docs/how-to/costs.md explains the formulas and their limits.

The time of a step is a roofline (Williams et al., doi 10.1145/1498765.1498785): the larger of the time that
its FLOP and that its bytes take. A forward pass has 2·N FLOP a token, and attention on top (Kaplan et al.,
arXiv 2001.08361, table 1); a decoding step reads the weights once and the keys and values of every sequence
(Pope et al., arXiv 2211.05102, section 2).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from autotts_jax.checks import check_bool, check_choice, check_int
from autotts_jax.core.pool import ReplayPool
from autotts_jax.core.profiles import (
    Hardware,
    ModelSize,
    Number,
    Price,
    hardware_named,
    model_named,
    price_named,
)
from autotts_jax.core.votes import largest
from autotts_jax.errors import InputError
from autotts_jax.typing import Array

CostName = Literal["intervals", "tokens", "latency", "flops", "kv", "usd"]

MOST_GAMMA = 1e12
"""The largest γ, the price of a unit of cost, with which float32 holds what an episode is worth."""

UNITS: dict[CostName, str] = {
    "intervals": "intervals",
    "tokens": "tokens",
    "latency": "s",
    "flops": "FLOP",
    "kv": "byte·s",
    "usd": "US$",
}
"""Units of the costs by name."""


class Spent(NamedTuple):
    """What an episode spent; arrays of one shape, or of shapes that broadcast.

    Attributes:
        tokens: tokens of all branches.
        sequential_tokens: those that had to be generated one after another.
        intervals: Σ l_i.
        probes: number of revealed answers, #Ω.
        branches: branches opened.
        interval: Δ, tokens of an interval.
        longest: Δ·K, tokens of the longest branch that there can be.
        critical_path: tokens on the critical path, see `critical_tokens`; None where rounds are not known,
            and the sequential tokens are taken for them.
    """

    tokens: Any
    sequential_tokens: Any
    intervals: Any
    probes: Any
    branches: Any
    interval: Any
    longest: Any
    critical_path: Any = None

    @property
    def waited(self) -> Any:
        """Tokens that had to be waited for."""
        return self.sequential_tokens if self.critical_path is None else self.critical_path


def critical_tokens(
    so_far: Int[Array, ""] | None, before: ReplayPool, after: ReplayPool
) -> Int[Array, ""] | None:
    """Counts the tokens on the critical path, to which a round adds the most that it reads of one branch.

    What a round reads it reads side by side, so that a branch that is opened later is waited for from then
    on, and branches read one after another all in turn. None where ``so_far`` is None.
    """
    return None if so_far is None else so_far + largest(after.branch_tokens - before.branch_tokens)


def spent_in(pool: ReplayPool, critical_path: Int[Array, ""] | None = None) -> Spent:
    """Reads what an episode has spent from its pool; the tokens of its longest branch are sequential."""
    return Spent(
        tokens=pool.tokens,
        sequential_tokens=jnp.max(pool.branch_tokens),
        intervals=pool.intervals,
        probes=pool.probes,
        branches=pool.opened,
        interval=pool.interval,
        longest=pool.interval * pool.max_depth,
        critical_path=critical_path,
    )


def spent_by(played: Any, interval: Int[Array, "..."], max_depth: int) -> Spent:
    """Reads what episodes that have ended have spent.

    Args:
        played: their results, with columns of the names of `Spent`, as `Results` has them.
        interval: Δ of each, of a shape that broadcasts to theirs.
        max_depth: K, the largest readable depth.
    """
    return Spent(
        played.tokens,
        played.sequential_tokens,
        played.intervals,
        played.probes,
        played.branches,
        interval=interval,
        longest=interval * max_depth,
        critical_path=played.critical_path,
    )


class _OfKind:
    """What every cost says of its kind."""

    kind: CostName

    @property
    def waits(self) -> bool:
        """Whether it depends on what has to be waited for, the critical path."""
        return self.kind in ("latency", "kv")


@dataclasses.dataclass(frozen=True)
class CostModel(_OfKind):
    """What the cost of an episode is, and on which model and machine.

    Attributes:
        kind: ``intervals``, ``tokens``, ``latency`` in seconds, ``flops``, ``kv`` in byte-seconds of keys and
            values, or ``usd``.
        hardware: the machine: a name in ``profiles.toml``, or a `Hardware`.
        model: the model whose size counts: a name in ``profiles.toml`` or a `ModelSize`, and for ``usd`` one
            that has a price, as ``openrouter:qwen/qwen3-8b``. None for the model that each cell is of.
        batch: sequences that the machine decodes at once, those of other questions included; None where it
            serves one question at a time.
        prefix_cached: whether what was read or written of a branch is kept. If not, as with a provider that
            shows nothing but texts, a probe reads its prefix again, and so does whatever goes on after it.
        prompt_tokens: tokens of a question.
        suffix_tokens: tokens that a probe reads after its prefix to force an answer.
        answer_tokens: tokens that a probe writes.

    Raises:
        InputError: a name is unknown, or a number is out of range.
    """

    kind: CostName = "latency"
    hardware: str | Hardware = "h100-sxm"
    model: str | ModelSize | None = None
    batch: int | None = None
    prefix_cached: bool = True
    prompt_tokens: int = 200
    suffix_tokens: int = 16
    answer_tokens: int = 16

    def __post_init__(self) -> None:
        check_choice("cost", self.kind, UNITS)
        if self.batch is not None:
            check_int("batch", self.batch, 1)
        check_bool("prefix_cached", self.prefix_cached)
        for name in ("prompt_tokens", "suffix_tokens", "answer_tokens"):
            check_int(name, getattr(self, name), 0, int(np.iinfo(np.int32).max))
        hardware_named(self.hardware)
        if self.model is not None and self.kind != "usd":
            model_named(self.model)

    @property
    def unit(self) -> str:
        """The unit, as ``s``."""
        return UNITS[self.kind]

    def of_models(self, names: Sequence[str]) -> EpisodeCost:
        """Fills in the profiles of models.

        Args:
            names: the model of each cell, by which profiles are found where ``model`` is None.

        Returns:
            The cost of episodes of these cells.

        Raises:
            InputError: there are no names, or a model has no profile, is unpriced, or does not fit into the
                machine's memory.
        """
        if isinstance(names, str) or not isinstance(names, Sequence) or not names:
            raise InputError(f"names is {names!r:.60}, but it must be a list of models, as ['Qwen3-8B']")
        hardware = hardware_named(self.hardware)
        sizes, prices = None, None
        if self.kind == "usd":
            if isinstance(self.model, ModelSize):
                raise InputError("model is a size, which has no price; name a model that a provider sells")
            prices = _by_cell([price_named(self.model or name) for name in names])
        elif self.kind in ("latency", "flops", "kv"):
            found = [model_named(self.model or name) for name in names]
            for size, name in zip(found, names, strict=True):
                if self.kind != "flops" and size.weights >= hardware.memory:
                    raise InputError(
                        f"the weights of {self.model or name} take {size.weights:.3g} bytes, but the "
                        f"hardware has {hardware.memory:.3g}; choose a larger one"
                    )
            sizes = _by_cell(found)
        return EpisodeCost(
            model=sizes,
            hardware=hardware,
            price=prices,
            batch=self.batch,
            prompt_tokens=self.prompt_tokens,
            suffix_tokens=self.suffix_tokens,
            answer_tokens=self.answer_tokens,
            kind=self.kind,
            prefix_cached=self.prefix_cached,
        )


def _by_cell(profiles: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.array(leaves, float), *profiles)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class EpisodeCost(_OfKind):
    """A cost model with its profiles filled in: a pure function of what an episode spent.

    Its leaves are traced. Those of ``model`` and ``price`` have an entry for each cell; `of_cells` selects.

    Attributes:
        model: the size of the model; None where the cost has nothing to do with it.
        hardware: the machine.
        price: dollars of a token; None likewise.
        batch: see `CostModel`, as are the following.
        prompt_tokens: tokens of a question.
        suffix_tokens: tokens that a probe reads after its prefix.
        answer_tokens: tokens that a probe writes.
        kind: a key of `UNITS` (static).
        prefix_cached: whether the engine keeps the prefixes of branches (static).
    """

    model: ModelSize | None
    hardware: Hardware
    price: Price | None
    batch: Number | None
    prompt_tokens: Number
    suffix_tokens: Number
    answer_tokens: Number
    kind: CostName = dataclasses.field(metadata={"static": True})
    prefix_cached: bool = dataclasses.field(metadata={"static": True})

    def of_cells(self, cell: Int[Array, "..."]) -> Self:
        """Selects the profiles of cells."""
        model, price = jax.tree.map(lambda leaf: leaf[cell], (self.model, self.price))
        return dataclasses.replace(self, model=model, price=price)

    def of(self, spent: Spent) -> Float[Array, "..."]:
        """Computes the cost of episodes, in the unit that `UNITS` has for its kind."""
        functions = {
            "intervals": lambda spent: spent.intervals,
            "tokens": lambda spent: spent.tokens,
            "latency": self._latency,
            "flops": self._flops,
            "kv": self._kv_byte_seconds,
            "usd": self._dollars,
        }
        return functions[self.kind](spent)

    def in_intervals(self, spent: Spent) -> Float[Array, "..."]:
        """Computes the cost of episodes in units of that of a first interval, alone and probed.

        So γ keeps its meaning: it is the price of an interval that is read while nothing else is.
        """
        once = spent.interval
        first = Spent(once, once, 1, 1, 1, interval=once, longest=spent.longest, critical_path=once)
        return self.of(spent) / self.of(first)

    # --- time -------------------------------------------------------------------------------------------

    def _latency(self, spent: Spent) -> Any:
        """Seconds from a question to its answer.

        S·step(R, c) for S tokens on the critical path, with R = tokens / S branches at once, or ``batch``
        sequences if that is more, and for each round of probes a pass over what they read and a step for each
        token that they write. Where the keys and values of all sequences do not fit in memory, steps are
        taken in turns.
        """
        _, context = self._contexts(spent)
        sharing = self._sharing(_at_once(spent))
        turns = self._turns(sharing, context)
        writing = spent.waited * turns * self._step(sharing / turns, context)
        rounds, probed = self._probe_rounds(spent)
        probe = self.answer_tokens * self._step(self._sharing(probed), context)
        probe = probe + self._read(probed * self.suffix_tokens, context)
        if not self.prefix_cached:
            probe = probe + self._read(2 * probed * context, context / 2)
        prompts = 1 if self.prefix_cached else spent.branches
        asking = _smaller(spent.branches, 1) * self._read(
            prompts * self.prompt_tokens, self.prompt_tokens / 2
        )
        return asking + writing + rounds * probe

    def device_seconds(self, spent: Spent) -> Float[Array, "..."]:
        """Computes the seconds of the machine that episodes take up; their inverse is its throughput.

        Alone an episode has the machine for as long as it lasts. In a shared batch it has its share of each
        step that writes one of its tokens, and what it reads takes the time of its FLOP.
        """
        if self.batch is None:
            return self._latency(spent)
        _, context = self._contexts(spent)
        turns = self._turns(self.batch, context)
        step = turns * self._step(self.batch / turns, context) / self.batch
        read = sum(self._forward(tokens, at) for tokens, at in self._read_tokens(spent))
        return self._written(spent) * step + read / self.hardware.flops

    def _forward(self, tokens: Any, context: Any) -> Any:
        """FLOP of the forward passes of tokens, each after so many others on average."""
        assert self.model is not None
        return tokens * (2 * self.model.parameters + self.model.attention_flops * context)

    def _step(self, sequences: Any, context: Any) -> Any:
        """Seconds of a step in which so many sequences get one token each: the roofline of decoding."""
        assert self.model is not None
        moved = self.model.weights + sequences * context * self.model.kv_of_token
        return self._roofline(self._forward(sequences, context), moved)

    def _read(self, tokens: Any, context: Any) -> Any:
        """Seconds of a pass that reads tokens: that of prefill."""
        assert self.model is not None
        return self._roofline(self._forward(tokens, context), self.model.weights)

    def _roofline(self, flops: Any, moved: Any) -> Any:
        hardware = self.hardware
        return _larger(flops / hardware.flops, moved / hardware.bandwidth) + hardware.step_seconds

    def _turns(self, sequences: Any, context: Any) -> Any:
        """Groups in which sequences are decoded one after another, as memory holds the tokens of one."""
        assert self.model is not None
        room = self.hardware.memory - self.model.weights
        return _larger(sequences * context * self.model.kv_of_token / room, 1)

    def _sharing(self, sequences: Any) -> Any:
        """Sequences that get a token in a step: those of the episode, or the batch if that is more."""
        return sequences if self.batch is None else _larger(sequences, self.batch)

    # --- the other costs --------------------------------------------------------------------------------

    def _flops(self, spent: Spent) -> Any:
        """FLOP of all that was written and read."""
        _, context = self._contexts(spent)
        passed = [(self._written(spent), context), *self._read_tokens(spent)]
        return sum(self._forward(tokens, at) for tokens, at in passed)

    def _kv_byte_seconds(self, spent: Spent) -> Any:
        """Bytes of keys and values that were held, times the seconds for which they were."""
        assert self.model is not None
        generated, context = self._contexts(spent)
        held = _at_once(spent) / self._turns(_at_once(spent), context)
        prompts = 1 if self.prefix_cached else held
        tokens = prompts * self.prompt_tokens + held * generated
        return tokens * self.model.kv_of_token * self._latency(spent)

    def _dollars(self, spent: Spent) -> Any:
        """US dollars of the tokens written and of those read.

        With cached prefixes, the price of cached tokens is asked for prompts after the first and for what
        probes read again.
        """
        assert self.price is not None
        (prompts, _), (suffixes, _), *_ = self._read_tokens(spent)
        _, context = self._contexts(spent)
        again = 2 * _forced(spent) * context
        if self.prefix_cached:
            again = again + _larger(spent.branches - 1, 0) * self.prompt_tokens
        price = self.price.cached if self.prefix_cached else self.price.read
        read = (prompts + suffixes) * self.price.read + again * price
        return self._written(spent) * self.price.written + read

    # --- what is derived from what was spent --------------------------------------------------------------

    def _contexts(self, spent: Spent) -> tuple[Any, Any]:
        """Tokens before the one that is written, on average: generated ones of the branch, and all.

        Branches are taken to be read side by side as deep as the longest, half of which is behind a token.
        """
        generated = _smaller(spent.sequential_tokens, spent.longest) / 2
        return generated, self.prompt_tokens + generated

    def _probe_rounds(self, spent: Spent) -> tuple[Any, Any]:
        """Rounds of probes, at most one for an interval that had to be waited for, and probes in each."""
        forced = _forced(spent)
        rounds = _smaller(forced, spent.waited / spent.interval)
        return rounds, forced / _larger(rounds, 1e-9)

    def _written(self, spent: Spent) -> Any:
        """Tokens written, those of probes included."""
        return spent.tokens + _forced(spent) * self.answer_tokens

    def _read_tokens(self, spent: Spent) -> list[tuple[Any, Any]]:
        """Tokens read and the mean context of each: prompts, suffixes of probes, and what is read again."""
        _, context = self._contexts(spent)
        forced = _forced(spent)
        prompts = _smaller(spent.branches, 1) if self.prefix_cached else spent.branches
        read = [
            (prompts * self.prompt_tokens, self.prompt_tokens / 2),
            (forced * self.suffix_tokens, context),
        ]
        return read if self.prefix_cached else [*read, (2 * forced * context, context / 2)]


def _at_once(spent: Spent) -> Any:
    """Branches that were written at once, on average."""
    return spent.tokens / _larger(spent.waited, 1)


def _forced(spent: Spent) -> Any:
    """Answers that had to be forced: probes, without those of branches that ended and so gave theirs.

    A branch ends in the middle of an interval on average: the tokens missing to whole intervals count ends.
    """
    ended = 2 * _larger(spent.intervals - spent.tokens / spent.interval, 0)
    return _larger(spent.probes - ended, 0)


def _larger(one: Any, other: Any) -> Any:
    traced = isinstance(one, jax.Array) or isinstance(other, jax.Array)
    return jnp.maximum(one, other) if traced else np.maximum(one, other)


def _smaller(one: Any, other: Any) -> Any:
    traced = isinstance(one, jax.Array) or isinstance(other, jax.Array)
    return jnp.minimum(one, other) if traced else np.minimum(one, other)


def as_cost(cost: str | CostModel) -> CostModel:
    """Makes a cost model of its name.

    Raises:
        InputError: it is neither.
    """
    if isinstance(cost, CostModel):
        return cost
    return CostModel(cost)  # type: ignore[arg-type]
