"""Measures what it costs to record signals: the time of a collection with them, by that of one without.

    pip install 'autotts-jax[collect-cpu]' accelerate gguf
    python examples/smollm2_model.py SmolLM2-135M-Instruct
    python benchmarks/signals_cost.py SmolLM2-135M-Instruct

One engine collects the same branches without signals, with those that need no tail, and with all of them, by
turns and with another seed in each repeat. The model is loaded before the first turn.
"""

from __future__ import annotations

import dataclasses
import statistics
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from autotts_jax.collect import Engine, LocalWorkers, Plan, Problem, Sampling, collect, open_engine
from autotts_jax.replay import SIGNALS

TEXT = "Write every number from 1 to 1000 in words, one in each line."
WITHOUT = "without"


def main(
    model: Annotated[str, typer.Argument(help="The model's folder, or its id on the Hugging Face Hub.")],
    interval: Annotated[int, typer.Option(help="Δ, tokens between two probes.")] = 500,
    max_tokens: Annotated[int, typer.Option(help="Tokens of a branch at most.")] = 1000,
    branches: Annotated[int, typer.Option(help="Branches of a collection.")] = 4,
    repeats: Annotated[int, typer.Option(help="Times that each kind is collected.")] = 3,
    tail: Annotated[int, typer.Option(help="Tokens after a forced answer, for probe_hedge.")] = 16,
) -> None:
    plain = Sampling(interval=interval, max_tokens=max_tokens)
    untailed = tuple(name for name in SIGNALS if name != "probe_hedge")
    kinds = {
        WITHOUT: plain,
        "signals": dataclasses.replace(plain, signals=untailed),
        f"with a tail of {tail}": dataclasses.replace(plain, signals=SIGNALS, probe_tail=tail),
    }
    engine = open_engine("vllm", model=model, options={"max_model_len": max_tokens + 200})
    collect_once(engine, plain, branches=2, seed=0)  # compiles
    ratios: dict[str, list[float]] = {kind: [] for kind in kinds}
    for repeat in range(repeats):
        names = list(kinds)
        turn = names[repeat % len(names) :] + names[: repeat % len(names)]
        seconds = {}
        for kind in turn:
            seconds[kind] = collect_once(engine, kinds[kind], branches, seed=repeat + 1)
            print(f"repeat {repeat}  {kind:18}  {seconds[kind]:6.1f} s", flush=True)
        for kind in kinds:
            ratios[kind].append(seconds[kind] / seconds[WITHOUT])
    for kind, values in ratios.items():
        print(f"{kind:18}  {statistics.median(values):.2f}  ({min(values):.2f} to {max(values):.2f})")


def collect_once(engine: Engine, sampling: Sampling, branches: int, seed: int) -> float:
    """Collects branches of one question, and returns the seconds that it took."""
    plan = Plan(
        model="model",
        benchmark="numbers",
        questions=(Problem(TEXT, "1000"),),
        num_branches=branches,
        sampling=dataclasses.replace(sampling, seed=seed),
    )
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        collect(plan, Path(folder) / "collected", LocalWorkers(engine))
        return time.perf_counter() - began


if __name__ == "__main__":
    typer.run(main)
