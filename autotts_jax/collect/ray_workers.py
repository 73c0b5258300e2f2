"""Collection on many machines: Ray Data hands the units to engines wherever there is room for one."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import pickle
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

from autotts_jax.collect.collector import IN_FLIGHT, collect_unit
from autotts_jax.collect.engine import Engine, EngineError
from autotts_jax.collect.store import Collected, Plan, Unit
from autotts_jax.errors import InputError
from autotts_jax.user_code import last_lines

ENVIRONMENT = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}


@dataclasses.dataclass(frozen=True)
class RayWorkers:
    """Engines of a Ray cluster: of the one that ``RAY_ADDRESS`` names, or of this machine alone.

    Units are finished on the workers and written here, so that a collection can be begun with Ray and gone on
    with without it. What a unit holds does not depend on the worker.

    Attributes:
        make_engine: opens a worker's engine, on its machine; it is pickled.
        workers: how many.
        in_flight: branches that each writes at once.
        num_cpus: CPUs that each takes.
        num_gpus: GPUs that each takes.
    """

    make_engine: Callable[[], Engine]
    workers: int
    in_flight: int = IN_FLIGHT
    num_cpus: float = 1
    num_gpus: float = 0

    def __call__(self, plan: Plan, units: Iterable[Unit]) -> Generator[Collected, None, None]:
        """Units as they are finished.

        Raises:
            InputError: Ray is not installed, or the cluster is too small.
            EngineError: a worker cannot go on.
        """
        todo = list(units)
        if not todo:
            return
        ray = _ray()
        with _cluster(ray):
            self._check_room(ray.cluster_resources())
            try:
                for result in self._results(ray, plan, todo):
                    if isinstance(result, EngineError):
                        raise result
                    yield result
            except ray.exceptions.RayError as error:
                raise EngineError(
                    f"Ray failed: {str(error).strip().splitlines()[-1]}; what was collected is kept, start "
                    "the same command again to go on"
                ) from error

    def _check_room(self, there: dict[str, float]) -> None:
        for name, each in {"CPU": self.num_cpus, "GPU": self.num_gpus}.items():
            if self.workers * each > there.get(name, 0):
                raise InputError(
                    f"{self.workers} workers with {each:g} {name} each do not fit into a cluster with "
                    f"{there.get(name, 0):g}; take fewer, or start Ray on more machines"
                )

    def _results(self, ray: Any, plan: Plan, units: list[Unit]) -> Iterator[Collected | EngineError]:
        at_once = max(1, self.in_flight // plan.chunk)
        pool = ray.data.ActorPoolStrategy(
            size=self.workers,
            enable_true_multi_threading=True,
            max_concurrent_calls_per_actor=at_once,
            max_tasks_in_flight_per_actor=at_once,
        )
        # One unit a block, as a block is given back when all of it is done.
        todo = ray.data.from_items([unit._asdict() for unit in units], override_num_blocks=len(units))
        finished = todo.map(
            _Worker,
            fn_constructor_args=(self.make_engine, plan),
            compute=pool,
            num_cpus=self.num_cpus,
            num_gpus=self.num_gpus,
        )
        # Nothing is fetched ahead, as it would be kept back here.
        for batch in finished.iter_batches(batch_size=None, prefetch_batches=0):
            yield from map(pickle.loads, batch["result"])


class _Worker:
    """One engine in an actor of its own; its units run side by side as threads.

    Failures are results, as Ray would try again what fails.
    """

    def __init__(self, make_engine: Callable[[], Engine], plan: Plan):
        import ray

        self._plan = plan
        self._engine: Engine | EngineError
        if ray.get_runtime_context().was_current_actor_reconstructed:
            self._engine = EngineError(
                f"the Ray worker on {ray.util.get_node_ip_address()} died, perhaps for want of memory; what "
                "was collected is kept, start the same command again to go on"
            )
            return
        try:
            self._engine = make_engine()
        except Exception as error:
            self._engine = _failure(error)

    def __call__(self, row: dict[str, int]) -> dict[str, bytes]:
        return {"result": pickle.dumps(self._result(Unit(**row)))}

    def _result(self, unit: Unit) -> Collected | EngineError:
        if isinstance(self._engine, EngineError):
            return self._engine
        try:
            return collect_unit(self._engine, self._plan, unit)
        except Exception as error:
            return _failure(error)


def _failure(error: Exception) -> EngineError:
    return EngineError(
        str(error) if isinstance(error, InputError) else f"a worker failed:\n{last_lines(error)}"
    )


def _ray() -> Any:
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise InputError("collection on many machines needs Ray: pip install 'autotts-jax[ray]'") from error
    return ray


@contextlib.contextmanager
def _cluster(ray: Any) -> Iterator[None]:
    """Ray as it runs already, or else for as long as this lasts."""
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
