"""Collection on many machines: Ray Data distributes the units over engines on a cluster."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import pickle
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

from autotts_jax.collect.collector import IN_FLIGHT, collect_unit
from autotts_jax.collect.completions import Completions
from autotts_jax.collect.engine import Engine, EngineError
from autotts_jax.collect.plan import Collected, Plan, Unit
from autotts_jax.errors import InputError
from autotts_jax.extras import needs
from autotts_jax.user_code import last_lines

ENVIRONMENT = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}


@dataclasses.dataclass(frozen=True)
class RayWorkers:
    """Engines on a Ray cluster: on the one that ``RAY_ADDRESS`` names, or on this machine alone.

    Units are collected on the workers and written here, so that a collection can be started with Ray and
    resumed without it. The content of a unit does not depend on the worker.

    Attributes:
        make_engine: opens the engine of a worker, on the worker's machine; it is pickled.
        workers: number of workers.
        in_flight: branches that each worker generates at once.
        num_cpus: CPUs that each worker needs.
        num_gpus: GPUs that each worker needs.
        completions: the branches, where the plan is to probe completions that exist already.
    """

    make_engine: Callable[[], Engine]
    workers: int
    in_flight: int = IN_FLIGHT
    num_cpus: float = 1
    num_gpus: float = 0
    completions: Completions | None = None

    def __call__(self, plan: Plan, units: Iterable[Unit]) -> Generator[Collected, None, None]:
        """Collects units, as `Workers` says.

        Args:
            plan: what to collect.
            units: the units to collect.

        Yields:
            The units as they are finished.

        Raises:
            InputError: Ray is not installed, or the cluster is too small.
            EngineError: a worker cannot continue.
        """
        units = list(units)
        if not units:
            return
        ray = _ray()
        with _cluster(ray):
            self._check_room(ray.cluster_resources())
            try:
                for result in self._results(ray, plan, units):
                    if isinstance(result, EngineError):
                        raise result
                    yield result
            except ray.exceptions.RayError as error:
                raise EngineError(
                    f"Ray failed: {str(error).strip().splitlines()[-1]}; what was collected is kept, start "
                    "the same command again to resume"
                ) from error

    def _check_room(self, resources: dict[str, float]) -> None:
        for name, each in {"CPU": self.num_cpus, "GPU": self.num_gpus}.items():
            available = resources.get(name, 0)
            if self.workers * each > available:
                raise InputError(
                    f"{self.workers} workers with {each:g} {name} each do not fit into a cluster with "
                    f"{available:g}; use fewer, or start Ray on more machines"
                )

    def _results(self, ray: Any, plan: Plan, units: list[Unit]) -> Iterator[Collected | EngineError]:
        at_once = max(1, self.in_flight // plan.chunk)
        pool = ray.data.ActorPoolStrategy(
            size=self.workers,
            enable_true_multi_threading=True,
            max_concurrent_calls_per_actor=at_once,
            max_tasks_in_flight_per_actor=at_once,
        )
        # One unit a block, because a block is returned when all of it is done.
        blocks = ray.data.from_items([unit._asdict() for unit in units], override_num_blocks=len(units))
        finished = blocks.map(
            _Worker,
            fn_constructor_args=(self.make_engine, plan, self.completions),
            compute=pool,
            num_cpus=self.num_cpus,
            num_gpus=self.num_gpus,
        )
        # No prefetching, which would hold finished units back here.
        for batch in finished.iter_batches(batch_size=None, prefetch_batches=0):
            yield from map(pickle.loads, batch["result"])


class _Worker:
    """One engine in an actor of its own; its units run side by side in threads.

    Failures are returned as results, because Ray would retry them.
    """

    def __init__(self, make_engine: Callable[[], Engine], plan: Plan, completions: Completions | None):
        import ray

        self._plan, self._completions = plan, completions
        self._engine: Engine | EngineError
        if ray.get_runtime_context().was_current_actor_reconstructed:
            self._engine = EngineError(
                f"the Ray worker on {ray.util.get_node_ip_address()} died, perhaps for lack of memory; what "
                "was collected is kept, start the same command again to resume"
            )
            return
        try:
            self._engine = make_engine()
            if completions is not None:
                completions.check(self._engine.tokenizer)
        except Exception as error:
            self._engine = _failure(error)

    def __call__(self, row: dict[str, int]) -> dict[str, bytes]:
        return {"result": pickle.dumps(self._result(Unit(**row)))}

    def _result(self, unit: Unit) -> Collected | EngineError:
        if isinstance(self._engine, EngineError):
            return self._engine
        try:
            return collect_unit(self._engine, self._plan, unit, completions=self._completions)
        except Exception as error:
            return _failure(error)


def _failure(error: Exception) -> EngineError:
    return EngineError(
        str(error) if isinstance(error, InputError) else f"a worker failed:\n{last_lines(error)}"
    )


def _ray() -> Any:
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with needs("ray", "collection on many machines"):
        import ray
        import ray.data
    return ray


@contextlib.contextmanager
def _cluster(ray: Any) -> Iterator[None]:
    """Uses the running Ray, or starts one and stops it at the end."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    if ray.is_initialized():
        yield
        return
    ray.init(log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()
