"""Times the environments: steps a second against the number of environments.

    python benchmarks/env_speed.py

Four ways under a random admissible policy: `WidthDepth` with and without its features and `WidthDepthRounds`
with them, as functional environments inside ``scan``, sharing all devices; and ``make_vec`` driven from the
host. In the same run, as yardsticks: CartPole of gymnax (functional, inside ``scan``), as it comes and with
our settings of XLA, and Gymnasium's own vector CartPole. gymnax asks for other versions than we do, so it is
installed in a throw-away environment.
Times are medians of repeats; compilation is timed apart. What runs inside ``scan`` is compiled with
`autotts_jax.core.compiling.COMPILER_OPTIONS`. The data are the embedded synthetic ones.
"""

from __future__ import annotations

import csv
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Annotated

import jax
import numpy as np
import typer
from rich import box
from rich.console import Console
from rich.table import Table

COUNTS = tuple(16**n for n in range(5))
GYMNAX = ("gymnax==1.0.1", "six")  # it imports six and does not say so
app = typer.Typer(add_completion=False)


@app.command()
def measure(
    steps: Annotated[int, typer.Option(help="Steps of each environment in a timed run.")] = 64,
    repeats: Annotated[int, typer.Option(help="Timed runs.")] = 5,
    most: Annotated[int, typer.Option(help="The largest number of environments.")] = COUNTS[-1],
    out: Annotated[Path | None, typer.Option(help="Where to save the rates, as CSV.")] = None,
) -> None:
    from autotts_jax.core import devices

    devices.configure()
    devices.pin_devices()
    counts = [count for count in COUNTS if count <= most]
    ways = {**ours(counts, steps, repeats), **yardsticks(counts, steps, repeats)}
    found = jax.devices()
    console = Console()
    console.print(
        f"{devices.usable_cores()} cores, JAX {jax.__version__} on {len(found)} x {found[0].device_kind}"
    )
    console.print(table("steps a second by number of environments", counts, ways))
    console.print(table("the same, as ratios to gymnax with default settings", counts, relative(ways)))
    if out:
        with out.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(("way", "environments", "steps_per_second"))
            for name, (_, rates) in ways.items():
                writer.writerows((name, *pair) for pair in zip(counts, map(round, rates), strict=False))


def table(caption: str, counts, ways) -> Table:
    """A table of ways by number of environments, which fits a terminal of 80 columns."""
    shown = Table(box=box.SIMPLE_HEAD, caption=caption, padding=(0, 1, 0, 0))
    shown.add_column("")
    for heading in ("compile, s", *(f"{count:,}" for count in counts)):
        shown.add_column(heading, justify="right", no_wrap=heading != "compile, s")
    for name, (compiling, rates) in ways.items():
        shown.add_row(name, f"{compiling:.1f}" if compiling else "", *map(cell, rates))
    return shown


def relative(ways) -> dict:
    """Rates as ratios to those of gymnax."""
    _, of_gymnax = ways["gymnax CartPole-v1"]
    return {
        name: (0.0, [rate / other for rate, other in zip(rates, of_gymnax, strict=False)])
        for name, (_, rates) in ways.items()
    }


def cell(rate: float) -> str:
    """Writes a rate, or a ratio, as the tables have it."""
    if rate < 1e3:
        return f"{rate:.2f}"
    return f"{rate / 1e6:.3g} M" if rate >= 1e5 else f"{rate / 1e3:.3g} k"


@app.command()
def cartpole(options: str, steps: int, repeats: int, counts: list[int]) -> None:
    """What runs in the throw-away environment: gymnax's CartPole, its figures as JSON on the last line."""
    import gymnax

    env, params = gymnax.make("CartPole-v1")

    def act(key, obs):  # noqa: ARG001
        return jax.random.bits(key, (), np.uint32) % 2

    every = lambda obs: obs  # noqa: E731
    print(json.dumps(rates(env, params, act, counts, steps, repeats, every, json.loads(options))))


def ours(counts, steps, repeats) -> dict:
    from autotts_jax.core.compiling import COMPILER_OPTIONS
    from autotts_jax.envs import WidthDepth, WidthDepthRounds
    from autotts_jax.replay import synthetic

    matrix = synthetic().matrix
    atomic, rounds = WidthDepth(), WidthDepthRounds()
    params = atomic.make_params(matrix)
    round_params = rounds.make_params(matrix)
    mask = lambda obs: {"action_mask": obs["action_mask"]}  # noqa: E731
    every = lambda obs: obs  # noqa: E731
    how = counts, steps, repeats
    return {
        "WidthDepth, no observation": rates(atomic, params, atomic_act, *how, mask, COMPILER_OPTIONS),
        "WidthDepth, features": rates(atomic, params, atomic_act, *how, every, COMPILER_OPTIONS),
        "WidthDepthRounds, features": rates(
            rounds, round_params, rounds_act(rounds), *how, every, COMPILER_OPTIONS
        ),
        "make_vec WidthDepth-v0": host_rates("WidthDepth-v0", counts, steps, repeats),
    }


def atomic_act(key, obs):
    """A random admissible action: the first one from a random place on."""
    return first_from(jax.random.bits(key, (), np.uint32), obs["action_mask"])


def first_from(word, mask):
    size = mask.shape[-1]
    begin = (word % size).astype(np.int32)
    distance = jax.numpy.arange(size, dtype=np.int32) - begin
    distance = jax.numpy.where(distance < 0, distance + size, distance)
    found = jax.numpy.min(jax.numpy.where(mask, distance, size - 1)) + begin
    return jax.numpy.where(found >= size, found - size, found)


def rounds_act(env):
    """A random admissible option for each entry; ANSWER in one round of 32."""

    def act(key, obs):
        width, mask = env.max_branches, obs["action_mask"]
        words = jax.random.bits(key, (2 + width,), np.uint32)
        opening = first_from(words[1], mask[2 : 3 + width])
        choice = jax.vmap(first_from)(words[2:], mask[3 + width :].reshape(width, -1))
        answer = (words[0] % 32 == 0).astype(np.int32)
        return jax.numpy.concatenate([jax.numpy.stack([answer, opening]), choice])

    return act


def rates(env, params, act, counts, steps, repeats, keep, options) -> tuple[float, list[float]]:
    """Compile time at the largest count, and steps a second at each; ``keep``: what of obs is looked at."""
    found = [rate(env, params, act, count, steps, repeats, keep, options) for count in counts]
    return found[-1][0], [steps_per_second for _, steps_per_second in found]


def rate(env, params, act, count, steps, repeats, keep, options) -> tuple[float, float]:
    shards = math.gcd(count, len(jax.devices()))
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:shards]), ("device",))
    spec = jax.sharding.PartitionSpec("device")

    def roll(carry, key, params):
        def step(carry, key):
            obs, state = carry
            acting, stepping = jax.random.split(key)
            actions = jax.vmap(act)(jax.random.split(acting, local), obs)
            keys = jax.random.split(stepping, local)
            obs, state, reward, *_ = jax.vmap(env.step, in_axes=(0, 0, 0, None))(keys, state, actions, params)
            return (keep(obs), state), reward.sum()

        local = count // shards
        carry, rewards = jax.lax.scan(step, carry, jax.random.split(key[0], steps))
        return carry, rewards.sum()[None]

    @jax.jit
    def start(key, params):
        obs, state = jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(key, count), params)
        return keep(obs), state

    carry = jax.device_put(start(jax.random.key(0), params), jax.sharding.NamedSharding(mesh, spec))
    keys = jax.random.split(jax.random.key(1), shards)
    whole = jax.sharding.PartitionSpec()
    params = jax.device_put(params, jax.sharding.NamedSharding(mesh, whole))
    run = jax.shard_map(
        roll, mesh=mesh, in_specs=(spec, spec, whole), out_specs=(spec, spec), check_vma=False
    )
    began = time.perf_counter()
    run = jax.jit(run, donate_argnums=0).lower(carry, keys, params).compile(options)
    compiling = time.perf_counter() - began
    carry, _ = jax.block_until_ready(run(carry, keys, params))
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        carry, _ = jax.block_until_ready(run(carry, keys, params))
        seconds.append(time.perf_counter() - began)
    return compiling, count * steps / statistics.median(seconds)


def host_rates(name, counts, steps, repeats) -> tuple[float, list[float]]:
    """As `rates`, for a vector environment that is stepped from the host."""
    import gymnasium

    import autotts_jax  # noqa: F401  (registers the environments)

    found, compiling = [], 0.0
    for count in counts:
        envs = gymnasium.make_vec(name, num_envs=count, vectorization_mode="vector_entry_point")
        rng = np.random.default_rng(0)
        began = time.perf_counter()
        _, info = envs.reset(seed=0)
        actions = host_actions(envs, rng, info)
        envs.step(actions)
        compiling = time.perf_counter() - began
        seconds = []
        for _ in range(repeats):
            began = time.perf_counter()
            for _ in range(max(1, steps // 4)):
                *_, info = envs.step(host_actions(envs, rng, info))
            seconds.append(time.perf_counter() - began)
        envs.close()
        found.append(count * max(1, steps // 4) / statistics.median(seconds))
    return (compiling if "WidthDepth" in name else 0.0), found


def host_actions(envs, rng, info) -> np.ndarray:
    """Random actions, admissible where the environment says which are."""
    if "action_mask" not in info:
        return rng.integers(0, envs.single_action_space.n, envs.num_envs)
    mask = info["action_mask"]
    begin = rng.integers(0, mask.shape[1])
    return (np.argmax(np.roll(mask, -begin, axis=1), axis=1) + begin) % mask.shape[1]


def yardsticks(counts, steps, repeats) -> dict:
    from autotts_jax.core.compiling import COMPILER_OPTIONS

    plain = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "PJRT_NPROC")}
    ways = {
        "gymnax CartPole-v1": ({}, plain),
        "gymnax CartPole-v1, our settings": (COMPILER_OPTIONS, os.environ),  # as devices.configure left it
    }
    gymnax = {}
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        subprocess.run(
            [python, "-m", "pip", "install", "-q", *GYMNAX, "typer"], check=True, capture_output=True
        )
        for name, (options, environment) in ways.items():
            arguments = ["cartpole", json.dumps(options), str(steps), str(repeats), *map(str, counts)]
            done = subprocess.run(
                [python, __file__, *arguments], check=True, capture_output=True, text=True, env=environment
            )
            gymnax[name] = tuple(json.loads(done.stdout.splitlines()[-1]))
    counts = [count for count in counts if count <= 4096]  # one Python object an environment beyond it
    _, found = host_rates("CartPole-v1", counts, steps, repeats)
    return {**gymnax, "Gymnasium CartPole-v1, vector": (0.0, found)}


def draw(rates: Path, picture: Path) -> None:
    """Draws rates that `measure` has saved."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    panel = figure.subplots()
    with rates.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    for name in dict.fromkeys(row["way"] for row in rows):
        here = [row for row in rows if row["way"] == name]
        columns = ([float(row[key]) for row in here] for key in ("environments", "steps_per_second"))
        style = "--" if "CartPole" in name else "-"
        panel.loglog(*columns, style, marker="o", markersize=4, label=name)
    panel.set_xlabel("environments")
    panel.set_ylabel("steps a second")
    panel.grid(alpha=0.25)
    panel.legend(fontsize=8, frameon=False)
    figure.savefig(picture, dpi=150)


if __name__ == "__main__":
    app(sys.argv[1:] or ["measure"])
