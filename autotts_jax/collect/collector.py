"""Collection: every missing unit of a plan is sampled, probed and kept, many at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import threading
import time
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Protocol

from autotts_jax.collect.answers import extractor
from autotts_jax.collect.engine import Engine
from autotts_jax.collect.store import Branch, Collected, Plan, Store, Unit
from autotts_jax.collect.trajectories import Trajectories, Usage, last_depth

IN_FLIGHT = 256
"""Branches that are written at once, about as many as keep one large GPU busy."""


class Workers(Protocol):
    """What does the units: engines in this process or on other machines."""

    def __call__(self, plan: Plan, units: Iterable[Unit]) -> Generator[Collected, None, None]:
        """Units as they are finished, in any order; when it is closed, work under way is dropped."""


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a collection is.

    Attributes:
        branches: branches that are kept.
        of: branches that there will be.
        usage: what the engine did for those of this session.
        seconds: duration of this session.
        session: branches of this session.
    """

    branches: int
    of: int
    usage: Usage
    seconds: float
    session: int

    @property
    def seconds_left(self) -> float:
        """Time that the rest takes at the pace of this session."""
        return (self.of - self.branches) * self.seconds / max(self.session, 1)

    @property
    def tokens_in_all(self) -> int:
        """Tokens that the whole collection takes, probes included, by the branches of this session."""
        return round(self.of * (self.usage.generated + self.usage.forced) / max(self.session, 1))


def collect(store: Store, workers: Workers, on_progress: Callable[[Progress], None] | None = None) -> None:
    """Does what is missing of a collection; each unit is kept as soon as it is finished.

    Raises:
        EngineError: an engine cannot go on.
        InputError: a question does not fit into the model's context, or a unit cannot be written.
    """
    missing = store.missing()
    total = len(store.plan.questions) * store.plan.num_branches
    before = total - sum(unit.size for unit in missing)
    usage, session, start = Usage(), 0, time.monotonic()
    with contextlib.closing(workers(store.plan, missing)) as finished:
        for collected in finished:
            store.write(collected)
            usage += collected.usage
            session += collected.unit.size
            if on_progress is not None:
                on_progress(Progress(before + session, total, usage, time.monotonic() - start, session))


def collect_unit(engine: Engine, plan: Plan, unit: Unit, cancel: threading.Event | None = None) -> Collected:
    """Writes the branches of a unit to their ends, and probes each at every multiple of Δ."""
    question = plan.questions[unit.question].text
    trajectories = Trajectories(engine, question, plan.sampling, extractor(plan.answers), cancel)
    trajectories.read(dict.fromkeys(unit.branches, plan.sampling.max_depth))
    return Collected(unit, [_branch(trajectories, plan, b) for b in unit.branches], trajectories.usage)


def _branch(trajectories: Trajectories, plan: Plan, branch: int) -> Branch:
    written = trajectories[branch]
    last = last_depth(len(written.tokens), plan.sampling.interval)
    shown = [probe for depth in range(1, last + 1) if (probe := trajectories.at(branch, depth))]
    assert written.ended is not None
    assert len(shown) == last
    return Branch(
        probes=[probe.answer for probe in shown[:-1]],
        tokens=max(len(written.tokens), 1),
        final=shown[-1].answer,
        finish=written.ended.value,
        probe_tokens=[probe.tokens for probe in shown],
        draws=[list(probe.answers) for probe in shown] if plan.sampling.probes_per_prefix > 1 else None,
        logprobs=[x for x in written.logprobs if x is not None] if plan.sampling.logprobs else None,
        text=trajectories.text(branch) if plan.keep_text else None,
    )


@dataclasses.dataclass(frozen=True)
class LocalWorkers:
    """One engine in this process; units run side by side as threads, and the engine joins their requests.

    Attributes:
        engine: the model.
        in_flight: branches to write at once.
    """

    engine: Engine
    in_flight: int = IN_FLIGHT

    def __call__(self, plan: Plan, units: Iterable[Unit]) -> Generator[Collected, None, None]:
        """Units as they are finished."""
        waiting = iter(units)
        cancel = threading.Event()
        threads = max(1, self.in_flight // plan.chunk)
        with ThreadPoolExecutor(threads) as pool:

            def begin(count: int) -> set[Future[Collected]]:
                units = itertools.islice(waiting, count)
                return {pool.submit(collect_unit, self.engine, plan, unit, cancel) for unit in units}

            try:
                running = begin(threads)
                while running:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    running |= begin(len(done))
                    for future in done:
                        yield future.result()
            finally:
                cancel.set()
