"""JAX waits for ever in a fork of a process that has used it; whatever would use it there is refused."""

import os
import subprocess
import sys

import pytest

import autotts_jax as at
from autotts_jax.collect import SimulatedEngine

CALLS = {
    "answer": lambda _: at.answer(SimulatedEngine(), "What is 17 + 25?", "sc@2"),
    "discover": lambda folder: at.discover("smollm2", out=folder, candidates=1),
    "evaluate": lambda _: at.evaluate("smollm2", "sc@1", seeds=1, max_branches=1),
    "make": lambda _: at.make("WidthDepth-v0", "smollm2", max_branches=2),
    "trace": lambda _: at.trace("smollm2", "sc@2"),
    "train": lambda folder: at.train("examples/train.toml", out=folder),
}
FORKING = """
import os
import autotts_jax as at

def play():
    at.evaluate("smollm2", "sc@1", seeds=1, max_branches=1)

play()
child = os.fork()
if child:
    os.waitpid(child, 0)
    os._exit(0)
try:
    play()
    print("played", flush=True)
except at.InputError as error:
    print(error, flush=True)
os._exit(0)  # without what JAX does at exit, which may wait for threads that did not go along
"""


@pytest.mark.parametrize("name", CALLS)
def test_what_would_use_jax_is_refused_in_a_fork(name, tmp_path, monkeypatch):
    at.make("WidthDepth-v0", "smollm2", max_branches=2)
    monkeypatch.setattr(os, "getpid", lambda: 0)  # what a fork is told
    with pytest.raises(at.InputError, match="play in a spawned process"):
        CALLS[name](tmp_path)


@pytest.mark.slow
def test_a_fork_does_not_wait_for_ever():
    command = [sys.executable, "-W", "ignore", "-c", FORKING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.startswith("JAX does not run in a process that was forked after JAX had started")


@pytest.mark.slow
def test_a_fork_plays_where_its_parent_has_only_imported():
    imported = "import autotts_jax.discovery, autotts_jax.training.config, autotts_jax.training.entry"
    code = FORKING.replace("\nplay()\nchild", f"\n{imported}\nchild")
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "played\n"
