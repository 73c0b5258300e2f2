"""Collection with Ray: the same matrix as in this process, and a clear end where a worker ends."""

import functools
import os
import signal
import sys

import pytest

from autotts_jax.collect import (
    EngineError,
    LocalWorkers,
    Plan,
    Problem,
    RayWorkers,
    Sampling,
    SimulatedEngine,
    Store,
    collect_missing,
    open_engine,
)
from autotts_jax.errors import InputError
from autotts_jax.replay import SIGNALS

psutil = pytest.importorskip("psutil")
ray = pytest.importorskip("ray")
pytest.importorskip("vllm")

pytestmark = pytest.mark.filterwarnings("ignore")  # of vLLM and Ray

PLAN = Plan(
    model="tiny",
    benchmark="sums",
    questions=tuple(Problem(f"What is {i} + 5?", str(i + 5)) for i in range(4)),
    num_branches=8,
    chunk=4,
    sampling=Sampling(interval=16, max_tokens=160, probe_tokens=16, probe_tail=8, signals=SIGNALS),
    keep_text=True,
)


ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests


class MortalEngine(SimulatedEngine):
    """Its process dies over the third question, as if the machine had no memory left for it."""

    def generate(self, requests, cancel=None):
        if any(b"2 + 5" in bytes(request.prompt) for request in requests):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().generate(requests, cancel)


def branches(store):
    return {collected.unit: collected.branches for collected in store.done()}


def test_two_workers_collect_the_matrix_that_one_process_collects(tmp_path, model, engine):
    make_engine = functools.partial(open_engine, "vllm", str(model), {"max_model_len": 1024})
    with Store.writing(tmp_path / "ray", PLAN, {}) as with_ray:
        collect_missing(with_ray, RayWorkers(make_engine, workers=2))
    with Store.writing(tmp_path / "local", PLAN, {}) as local:
        collect_missing(local, LocalWorkers(engine))
    assert not local.missing()
    assert branches(with_ray) == branches(local)


def test_what_was_collected_before_a_worker_died_is_gone_on_with_elsewhere(tmp_path):
    with Store.writing(tmp_path / "whole", PLAN, {}) as whole:
        collect_missing(whole, LocalWorkers(SimulatedEngine()))
    with Store.writing(tmp_path / "broken", PLAN, {}) as broken:
        with pytest.raises(EngineError, match=r"Ray worker on .* died, .* start the same command again"):
            collect_missing(broken, RayWorkers(MortalEngine, workers=1, in_flight=4))
        assert not psutil.Process().children(recursive=True), "nothing of Ray is left"
        assert {unit.question for unit in branches(broken)} == {0, 1}
        collect_missing(broken, LocalWorkers(SimulatedEngine()))
    assert branches(broken) == branches(whole)


@pytest.fixture(scope="module")
def cluster():
    ray.init(num_cpus=2, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("workers", "message"),
    [
        (RayWorkers(functools.partial(open_engine, "simulated", None, {"no": 1}), 1), "not know an option"),
        (RayWorkers(SimulatedEngine, workers=1000), "1000 workers with 1 CPU each do not fit"),
        (RayWorkers(SimulatedEngine, 1, num_gpus=99), "1 workers with 99 GPU each do not fit"),
    ],
)
def test_what_keeps_workers_from_starting_is_told(workers, message):
    with pytest.raises(InputError, match=message):
        next(workers(PLAN, PLAN.units()))
    assert ray.is_initialized(), "a cluster that was there stays"
