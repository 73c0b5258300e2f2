"""Times what the package plays and trains on a GPU, and on the CPU of the same machine.

    python benchmarks/gpu.py --data '../shared/replay/*/*.json' --out research/gpu.md

Lanes of the compiled rollout, discovery's interpreter, environments, a whole table and training, at sizes
that suit the platform. Each benchmark runs in a process of its own on each platform, one after another, so
that all rates come from one machine and no program is compiled beforehand. Rates are medians of repeats after
compilation, but for the table, whose first evaluation compiles. It checks that all platforms played the same
episodes.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import jax
import numpy as np
import typer

PLATFORMS = ("cpu", "cuda")
app = typer.Typer(add_completion=False)


class Sizes(NamedTuple):
    """How much is timed."""

    branches: int
    seeds: int
    lanes: int
    environments: int
    steps: int
    candidates: int
    agents: int
    population: int
    repeats: int


FULL = {
    "cpu": Sizes(64, 100, 64, 4096, 64, 256, 1024, 32, 3),
    "gpu": Sizes(64, 100, 8192, 65536, 64, 2048, 8192, 256, 3),
}
SMALL = Sizes(8, 2, 4, 2, 4, 2, 8, 2, 1)


class Rate(NamedTuple):
    """How many a second, at which size: lanes, environments and so on."""

    what: str
    unit: str
    a_second: float
    size: int
    of: str
    played: int = 0
    """A checksum of what was played, where platforms play the same."""


def families(sizes: Sizes) -> list[str]:
    return [f"{name}@{sizes.branches}" for name in ("sc", "asc", "esc", "parallel-probe")]


def lanes(data, sizes: Sizes) -> Iterator[Rate]:
    """The compiled rollout."""
    from evaluate_speed import compiled

    from autotts_jax.experiments.evaluation import branch_orders

    orders = branch_orders(data, "repo100", range(sizes.seeds), sizes.branches)
    for names in (*families(sizes), "cmc@0.5,cmc@1"):
        results, seconds = compiled(names, data, orders, sizes.repeats, sizes.lanes)
        played = zlib.crc32(np.stack([results.answer, results.tokens, results.rounds]).astype(np.int32))
        yield Rate(names, "episodes", len(results.tokens) / seconds, sizes.lanes, "lanes", played)


def interpreter(data, sizes: Sizes) -> Iterator[Rate]:
    """Candidates of discovery, each on every question at three β."""
    from discovery_speed import children, decision_lists, screened_per_minute

    from autotts_jax.discovery import Judge

    programs = children(sizes.candidates)
    judge = Judge.of(data, sizes.branches, 0)
    per_minute, _ = screened_per_minute(judge, lambda: decision_lists(programs), sizes.repeats)
    yield Rate("discovery", "candidates", per_minute / 60, sizes.candidates, "candidates")


def environments(_data, sizes: Sizes) -> Iterator[Rate]:
    """The environments under random actions, on synthetic data."""
    from env_speed import ours

    for name, (_, rates) in ours([sizes.environments], sizes.steps, sizes.repeats).items():
        yield Rate(name, "steps", *rates, sizes.environments, "environments")


def evolution(data, sizes: Sizes) -> Iterator[Rate]:
    """Generations of an evolution strategy."""
    from autotts_jax.training import Evolution, EvolutionSettings

    settings = EvolutionSettings(max_branches=sizes.branches, population=sizes.population)
    episodes = sizes.population * settings.num_gammas * len(data)
    seconds = update_seconds(Evolution, settings, data, sizes.repeats)
    yield Rate("evolution", "episodes", episodes / seconds, sizes.population, "members")


def table(data, sizes: Sizes) -> Iterator[Rate]:
    """SC, ASC, ESC, Parallel-Probe and CMC at every β: what `evaluate` prints, files apart."""
    import autotts_jax as at

    for when in ("compilation included", "again"):
        began = time.perf_counter()
        result = at.evaluate(data, [*families(sizes), "cmc"], seeds=sizes.seeds)
        result.table()
        seconds = time.perf_counter() - began
        episodes = sum(play.tokens.size for play in result.plays)
        yield Rate(f"whole table, {when}", "episodes", episodes / seconds, episodes, "episodes")


def ppo(data, sizes: Sizes) -> Iterator[Rate]:
    """Updates of PPO."""
    from autotts_jax.training import PPO, PPOSettings

    number = -(-sizes.agents // jax.device_count()) * jax.device_count()  # which the devices share evenly
    settings = PPOSettings(max_branches=sizes.branches, num_envs=number)
    seconds = update_seconds(PPO, settings, data, sizes.repeats)
    steps = settings.num_envs * settings.num_steps
    yield Rate("PPO, updates included", "steps", steps / seconds, number, "environments")


def update_seconds(kind, settings, data, repeats: int) -> float:
    """The median time of a trainer's update."""
    from autotts_jax.policies.neural.policy import initial_parameters
    from autotts_jax.training import Config, RunSettings
    from autotts_jax.training.data import make_params

    params = make_params(Config(trainer=settings, run=RunSettings(updates=1)), data, 0)
    trainer = kind(settings, params, initial_parameters(16, jax.random.key(1), "rounds"))
    state, seconds = trainer.init(jax.random.key(0)), []
    for _ in range(1 + repeats):
        began = time.perf_counter()
        state, _ = jax.block_until_ready(trainer.update(state))
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:])


SECTIONS = {run.__name__: run for run in (lanes, interpreter, environments, evolution, table, ppo)}


@app.command()
def compare(
    data: Annotated[str, typer.Option(help="The questions.")] = "synthetic",
    out: Annotated[Path | None, typer.Option(help="The page, in Markdown; printed when left out.")] = None,
    platform: Annotated[list[str], typer.Option(help="Platforms, that of the ratios first.")] = PLATFORMS,
    small: Annotated[bool, typer.Option(help="Sizes that are quick to play; the rates mean little.")] = False,
) -> None:
    """Runs every benchmark on every platform and writes the page."""
    results = {}
    for name in platform:
        for section in SECTIONS:
            arguments = ["measure", section, "--data", data, *(["--small"] if small else [])]
            settings = {**os.environ, "JAX_PLATFORMS": ",".join(dict.fromkeys((name, "cpu")))}
            done = subprocess.run(
                [sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True, env=settings
            )
            if done.returncode:  # it has said on stderr why
                raise typer.Exit(done.returncode)
            results[name, section] = json.loads(done.stdout.splitlines()[-1])
    text = page(results)
    if out:
        out.write_text(text, encoding="utf-8")
    else:
        print(text)


@app.command()
def measure(section: str, data: str = "synthetic", small: bool = False) -> None:
    """Runs one benchmark on the platform that JAX is set to; the last line printed has its rates as JSON."""
    from autotts_jax.core import devices

    devices.configure(compilation_cache=False)
    devices.pin_devices()
    from evaluate_speed import cpu_model

    import autotts_jax as at

    first, *_ = local = jax.local_devices()
    kind = f"{len(local)} cores, {cpu_model()}" if first.platform == "cpu" else first.device_kind
    rates = list(SECTIONS[section](at.load(data), SMALL if small else FULL[first.platform]))
    print(json.dumps({"device": kind, "jax": jax.__version__, "rates": rates}))


def page(results: dict[tuple[str, str], dict]) -> str:
    """Writes what was measured: ``results`` by platform and benchmark, as `measure` printed them."""
    platforms = list(dict.fromkeys(platform for platform, _ in results))
    reference, *others = platforms
    devices = {platform: result["device"] for (platform, _), result in results.items()}
    (version,) = {result["jax"] for result in results.values()}
    rates = {platform: [] for platform in platforms}
    for (platform, _), result in results.items():
        rates[platform] += [Rate(*rate) for rate in result["rates"]]
    head = ["", "per second", *platforms, *(f"{other} / {reference}" for other in others), "sizes"]
    rows = [head, ["---", "---", *["--:"] * (len(head) - 3), "---"]]
    for same in zip(*rates.values(), strict=True):
        first, *rest = same
        assert all(rate.played == first.played for rate in rest), f"{first.what} differs between platforms"
        ratios = [readable(rate.a_second / first.a_second) for rate in rest]
        sizes = " and ".join(dict.fromkeys(f"{rate.size:,}" for rate in same))
        cells = [readable(rate.a_second) for rate in same]
        rows.append([first.what, first.unit, *cells, *ratios, f"{sizes} {first.of}"])
    machine = "\n".join(f"- `{platform}`: {device}" for platform, device in devices.items())
    lines = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return f"""# GPU and CPU

`make bench-gpu` wrote this page, on one machine with JAX {version}:

{machine}

{lines}

The whole table includes statistics, and no files. [Performance](../docs/explanation/performance.md) says why.
"""


def readable(rate: float) -> str:
    """Three digits, in thousands or millions where there are that many."""
    for unit, name in ((1e6, " M"), (1e3, " k")):
        if rate >= unit:
            return f"{rate / unit:.3g}{name}"
    return f"{rate:.3g}"


if __name__ == "__main__":
    arguments = sys.argv[1:]
    app(arguments if arguments[:1] in (["compare"], ["measure"]) else ["compare", *arguments])
