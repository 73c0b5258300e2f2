"""What the command line sets for its process: tried in processes of their own."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotts_jax.core import devices

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/task").is_dir(), reason="threads are told apart on Linux only"
)

CONFIGURED = """
import json, os
import jax
from autotts_jax.core import devices
devices.configure(compilation_cache=False)
devices.pin_devices()
tasks = os.listdir("/proc/self/task")
waves = jax.jit(lambda x: (jax.numpy.sin(x), jax.numpy.cos(x))).lower(jax.numpy.ones(64)).compile()
print(json.dumps({
    "passes": waves.as_text().partition("ENTRY")[2].count(" fusion("),
    "devices": jax.local_device_count(),
    "cores": {task: sorted(os.sched_getaffinity(int(task))) for task in tasks},
    "names": {task: open(f"/proc/self/task/{task}/comm").read().strip() for task in tasks},
    "main": str(os.getpid()),
}))
"""


@functools.cache
def configured(**environment: str) -> dict:
    own = ("JAX_NUM_CPU_DEVICES", "XLA_FLAGS")
    kept = {name: value for name, value in os.environ.items() if name not in own}
    done = subprocess.run(
        [sys.executable, "-c", CONFIGURED],
        env=kept | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_every_core_is_a_device_with_a_thread_of_its_own():
    process = configured(JAX_PLATFORMS="cpu")
    cores = sorted(os.sched_getaffinity(0))
    workers = [task for task, name in process["names"].items() if name == devices.XLA_THREAD]
    assert process["devices"] == len(cores) == devices.usable_cores()
    assert sorted(process["cores"][task] for task in workers) == [[core] for core in cores]
    others = process["cores"].keys() - set(workers)
    assert process["main"] in others
    assert all(process["cores"][task] == cores for task in others)


@pytest.mark.parametrize(
    ("flags", "passes"),
    [
        ({}, 1),
        pytest.param({"XLA_FLAGS": "--xla_backend_extra_options=xla_cpu_other"}, 2, marks=pytest.mark.slow),
    ],
)
def test_results_of_the_same_array_come_from_one_pass(flags, passes):
    assert configured(JAX_PLATFORMS="cpu", **flags)["passes"] == passes


def test_what_the_environment_says_of_devices_stays():
    cores = sorted(os.sched_getaffinity(0))
    more = len(cores) + 1
    process = configured(JAX_PLATFORMS="cpu", JAX_NUM_CPU_DEVICES=str(more))
    assert process["devices"] == more
    assert all(own == cores for own in process["cores"].values())
