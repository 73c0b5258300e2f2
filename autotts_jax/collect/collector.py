"""Collection: samples and probes the missing units of a plan, many at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from autotts_jax.checks import check_callback
from autotts_jax.collect.answers import extractor
from autotts_jax.collect.completions import Completions
from autotts_jax.collect.engine import Engine, writes_whole
from autotts_jax.collect.plan import Branch, Collected, Plan, Unit
from autotts_jax.collect.side_by_side import side_by_side
from autotts_jax.collect.store import Store
from autotts_jax.collect.trajectories import Trajectories, Usage, last_depth
from autotts_jax.errors import InputError
from autotts_jax.replay.dataset import ProbeDataset

IN_FLIGHT = 256
"""Branches that are generated at once, about as many as keep one large GPU busy."""


class Workers(Protocol):
    """What collects units: engines in this process or on other machines."""

    def __call__(self, plan: Plan, units: Iterable[Unit]) -> Generator[Collected, None, None]:
        """Collects units. Closing the generator drops the work that is not finished.

        Args:
            plan: what to collect.
            units: the units to collect.

        Yields:
            The units as they are finished, in any order.

        Raises:
            EngineError: an engine cannot continue.
            InputError: a question does not fit into the model's context.
        """


@dataclasses.dataclass(frozen=True)
class CollectionProgress:
    """How far a collection is.

    Attributes:
        branches: branches collected so far, including earlier sessions.
        of: branches of the whole collection.
        usage: what the engine did in this session.
        seconds: duration of this session.
        session: branches collected in this session.
    """

    branches: int
    of: int
    usage: Usage
    seconds: float
    session: int

    @property
    def seconds_left(self) -> float:
        """Estimated time for the rest, at the pace of this session."""
        return (self.of - self.branches) * self.seconds / max(self.session, 1)

    @property
    def tokens_in_all(self) -> int:
        """Estimated tokens of the whole collection with its probes, from the branches of this session."""
        return round(self.of * (self.usage.generated + self.usage.forced) / max(self.session, 1))


def collect(
    plan: Plan,
    folder: str | Path,
    workers: Workers,
    *,
    on_unit: Callable[[CollectionProgress], None] | None = None,
    made_with: Mapping[str, Any] | None = None,
) -> ProbeDataset:
    """Collects a probe matrix into a folder; a collection that was interrupted is resumed.

    Args:
        plan: what to collect.
        folder: an absent or empty folder, or that of an unfinished collection with the same plan.
        workers: what collects the units, such as `LocalWorkers`; not called if nothing is missing.
        on_unit: called after each unit.
        made_with: what else to record about how the collection was started, as `made_with` returns it.

    Returns:
        The finished matrix, which is also written to the folder.

    Raises:
        EngineError: an engine cannot continue.
        InputError: a question does not fit into the model's context, the folder holds something else, or a
            file cannot be written.

    Example:
        >>> import tempfile
        >>> from autotts_jax.collect import LocalWorkers, Plan, Problem, Sampling, SimulatedEngine, collect
        >>> plan = Plan("simulated", "sums", (Problem("What is 2 + 2?", "4"),), num_branches=4,
        ...             sampling=Sampling(interval=20, max_tokens=100))
        >>> data = collect(plan, tempfile.mkdtemp(), LocalWorkers(SimulatedEngine()))
        >>> data.matrix.num_branches
        4
    """
    check_callback("on_unit", on_unit, "the `CollectionProgress`")
    with Store.writing(folder, plan, dict(made_with or {})) as store:
        collect_missing(store, workers, on_unit)
        return store.export()


def collect_missing(
    store: Store, workers: Workers, on_unit: Callable[[CollectionProgress], None] | None = None
) -> None:
    """Collects the missing units of a collection; each is written as soon as it is finished.

    Args:
        store: the collection, opened by `Store.writing`.
        workers: what collects the units, such as `LocalWorkers`.
        on_unit: called after each unit.

    Raises:
        EngineError: an engine cannot continue.
        InputError: a question does not fit into the model's context, or a unit cannot be written.
    """
    missing = store.missing()
    if not missing:
        return
    total = len(store.plan.questions) * store.plan.num_branches
    before = total - sum(unit.size for unit in missing)
    usage, session, start = Usage(), 0, time.monotonic()
    with contextlib.closing(workers(store.plan, missing)) as finished:
        for collected in finished:
            store.write(collected)
            usage += collected.usage
            session += collected.unit.size
            if on_unit is not None:
                seconds = time.monotonic() - start
                on_unit(CollectionProgress(before + session, total, usage, seconds, session))


def collect_unit(
    engine: Engine,
    plan: Plan,
    unit: Unit,
    cancel: threading.Event | None = None,
    completions: Completions | None = None,
) -> Collected:
    """Generates the branches of a unit to their ends and probes each at every multiple of Δ.

    Args:
        engine: the model.
        plan: what to collect.
        unit: the unit.
        cancel: once this is set, the work is dropped.
        completions: the branches, where the plan is to probe completions that exist already.

    Returns:
        The unit.

    Raises:
        Cancelled: ``cancel`` was set.
        EngineError: the engine cannot continue.
        InputError: the question does not fit into the model's context, or the completions are not those of
            the plan.
    """
    question = plan.questions[unit.question].text
    if plan.completions_sha256 != (completions.sha256 if completions else None):
        raise InputError(
            "the plan and the workers do not have the same completions; give the plan their sha256 as "
            "completions_sha256, and the workers the completions"
        )
    given = completions.tokens(question, unit.branches, engine.tokenizer) if completions else None
    found = extractor(plan.answers, question)
    if writes_whole(engine):
        raise InputError(
            f"the engine of {engine.model} writes whole branches by chat completions, and a collection needs "
            "probes on the way; use the engine vllm or server"
        )
    trajectories = Trajectories(engine, question, plan.sampling, found, cancel, given)
    trajectories.read(dict.fromkeys(unit.branches, plan.sampling.max_depth))
    return Collected(unit, [_branch(trajectories, plan, b) for b in unit.branches], trajectories.usage)


def _branch(trajectories: Trajectories, plan: Plan, branch: int) -> Branch:
    trajectory = trajectories[branch]
    last = last_depth(len(trajectory.tokens), plan.sampling.interval)
    shown = [probe for depth in range(1, last + 1) if (probe := trajectories.at(branch, depth))]
    assert trajectory.ended is not None  # it was read to its end
    return Branch(
        probes=[probe.answer for probe in shown[:-1]],
        tokens=max(len(trajectory.tokens), 1),
        final=shown[-1].answer,
        finish=trajectory.ended,
        probe_tokens=[probe.tokens for probe in shown],
        draws=[list(probe.answers) for probe in shown] if plan.sampling.probes_per_prefix > 1 else None,
        signals=_signals(trajectories, plan, branch, last) if plan.sampling.signals else None,
        text=trajectories.text(branch) if plan.keep_text else None,
    )


def _signals(trajectories: Trajectories, plan: Plan, branch: int, last: int) -> dict[str, list[float]]:
    """The signals of a branch at each depth that can be read, but for those not told throughout."""
    signals = {}
    for name in plan.sampling.signals:
        told = [trajectories.signal(branch, name, depth) for depth in range(1, last + 1)]
        values = [value for value in told if value is not None]
        if len(values) == last:
            signals[name] = values
    return signals


@dataclasses.dataclass(frozen=True)
class LocalWorkers:
    """One engine in this process; units run side by side in threads, and the engine batches their requests.

    Attributes:
        engine: the model.
        in_flight: branches to generate at once.
        completions: the branches, where the plan is to probe completions that exist already.
    """

    engine: Engine
    in_flight: int = IN_FLIGHT
    completions: Completions | None = None

    def __call__(self, plan: Plan, units: Iterable[Unit]) -> Generator[Collected, None, None]:
        """Collects units, as `Workers` says.

        Args:
            plan: what to collect.
            units: the units to collect.

        Yields:
            The units as they are finished.

        Raises:
            DataError: a completion has a token that the model does not have.
        """
        if self.completions is not None:
            self.completions.check(self.engine.tokenizer)
        collect_one = functools.partial(collect_unit, self.engine, plan, completions=self.completions)
        yield from side_by_side(collect_one, units, max(1, self.in_flight // plan.chunk))
