"""Training runs that take seconds: noisy gradient descent in place of a policy."""

import contextlib
import functools
import os
import socket
import subprocess
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from autotts_jax.training import Checkpoints, RunSettings, run

SETTINGS = RunSettings(updates=30, validate_every=3, checkpoint_every=4, seed=5)
MANIFEST = {"config": {"trainer": {"rate": 0.1}, "run": {"updates": 30}}, "data": {"model/bench": "ab"}}


class ToyState(NamedTuple):
    params: dict
    optimiser: tuple
    key: jax.Array
    half: jax.Array
    empty: jax.Array


class Toy:
    """Noisy gradient descent to a target, with all kinds of arrays in its state."""

    optimiser = optax.adam(optax.linear_schedule(0.3, 0.0, 30))

    def init(self, key):
        params = {"w": jax.random.normal(key, (3, 2)), "b": jnp.zeros(2)}
        key_data = jax.random.key_data(jax.random.fold_in(key, 1))
        return ToyState(
            params, self.optimiser.init(params), key_data, jnp.ones(3, jnp.bfloat16), jnp.zeros((0, 4))
        )

    def update(self, state):
        return _toy_update(state)

    def policy(self, state):
        return state.params


def loss_of(params, noise=0.0):
    return jnp.sum((params["w"] - 1.5 + noise) ** 2) + jnp.sum((params["b"] + 0.5) ** 2)


@functools.partial(jax.jit, donate_argnums=0)  # as trainers may do that have large states
def _toy_update(state):
    key, noise_key = jax.random.split(jax.random.wrap_key_data(state.key))
    noise = jax.random.normal(noise_key, (3, 2))
    loss, gradient = jax.value_and_grad(loss_of)(state.params, noise)
    change, optimiser = Toy.optimiser.update(gradient, state.optimiser)
    params = optax.apply_updates(state.params, change)
    half = state.half * jnp.bfloat16(1.01)
    metrics = {"loss": loss, "explained_variance": jnp.nan}
    return ToyState(params, optimiser, jax.random.key_data(key), half, state.empty), metrics


def validate(policy):
    """Noisy, so that the best policy is not the last one, but always the same for the same policy."""
    return {"objective": jnp.sin(1e3 * policy["w"]).sum() - 0.1 * loss_of(policy), "tokens": 3}


def save_policy(path, policy):
    np.savez(path, **policy)


def load_policy(folder):
    with np.load(folder / "best.npz") as policy:
        return dict(policy)


def train(folder, trainer=None, settings=SETTINGS, **options):
    options = {"validate": validate, "save_policy": save_policy, "manifest": MANIFEST} | options
    return run(trainer or Toy(), settings, folder, **options)


def end_of(folder):
    """All that a run leaves of its training: parameters and the rest of the state, metrics, best policy."""
    toy = Toy()
    state = toy.init(jax.random.key(0))
    with Checkpoints(folder, writes=False) as stored:
        run_state, tree = stored.load((state, jax.device_get(state.params)))
    leaves = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
    leaves |= {f"best {name}": array for name, array in load_policy(folder).items()}
    contents = {name: (leaf.dtype, leaf.shape, np.asarray(leaf).tobytes()) for name, leaf in leaves.items()}
    return contents, run_state.best_update, (folder / "metrics.jsonl").read_text()


@contextlib.contextmanager
def two_processes(code, *arguments, **options):
    """Starts two that run this code, with the options of ``train`` that join them as its last arguments."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        joined = ["--coordinator", f"localhost:{free.getsockname()[1]}", "--processes", "2", "--process"]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
    options["env"] = options.get("env", os.environ) | {"JAX_NUM_CPU_DEVICES": "1"}
    command = [sys.executable, "-c", code, *arguments, *joined]
    processes = [subprocess.Popen([*command, str(number)], **options) for number in range(2)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()
