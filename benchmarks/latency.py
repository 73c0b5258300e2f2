"""Compares the seconds that a cost model predicts from a replay with those that answering live takes.

    pip install 'autotts-jax[collect-cpu]' accelerate gguf
    python examples/smollm2_model.py SmolLM2-135M-Instruct
    python benchmarks/latency.py SmolLM2-135M-Instruct

First the engine alone is timed while it writes one sequence and several, which gives the rates of the
machine. Then controllers answer some of the questions of the embedded data, by turns, with the settings of
that data. What is predicted for each is compared with what it took: from what these answers have spent, which
shows how far the formula is off; and from a replay of other branches of these questions.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import statistics
import time
from typing import Annotated

import numpy as np
import typer
from rich import box
from rich.console import Console
from rich.table import Table

import autotts_jax as at
from autotts_jax.collect import ChatMessage, Engine, Request, Sampling, open_engine
from autotts_jax.core import CostModel, Hardware, ModelSize
from autotts_jax.core.costs import Spent
from autotts_jax.core.profiles import model_named
from autotts_jax.live import Answer

PLAYERS = ("sc@1", "sc@4", "sc@16", "parallel-probe@16", "cmc@0", "cmc@0.5")
SAMPLING = Sampling(
    interval=8,
    max_tokens=128,
    probe_tokens=8,
    suffix="\nAnswer: \\boxed{",
    system="You are a calculator. Say how you calculate, then give the answer as a number.",
)
"""How the embedded data was recorded; replay/smollm2.md has the same as a command."""

BATCHES = (1, 4, 8, 16)
"""Sequences that are written side by side while the engine is timed."""

WIDTH = 64
"""W, branches that an episode can open."""


def step_seconds(engine: Engine, sequences: int, tokens: int = 48, repeats: int = 5) -> float:
    """Times a step in which so many sequences get a token: the median of some runs."""
    prompt = engine.tokenizer.chat([ChatMessage("user", "Count from 1 to 1000, in words.")])

    def timed(seed: int) -> float:
        requests = [
            Request(prompt, tokens, temperature=0.7, seed=1000 * seed + number) for number in range(sequences)
        ]
        began = time.perf_counter()
        written = engine.generate(requests)
        return (time.perf_counter() - began) / max(len(one.tokens) for one in written)

    timed(0)
    return statistics.median(timed(1 + repeat) for repeat in range(repeats))


def fitted(steps: dict[int, float], size: ModelSize, context: float) -> Hardware:
    """The machine whose steps take so long: a line over the number of sequences.

    Its slope is the FLOP of a sequence, and where it begins the rest of a step. The weights are taken to be
    read in the time of one sequence's FLOP, so that they never bound a step.
    """
    slope, rest = np.polyfit(list(steps), list(steps.values()), 1)
    of_sequence = 2 * size.parameters + size.attention_flops * context
    return Hardware(
        flops=of_sequence / slope,
        bandwidth=size.weights / slope,
        memory=16e9,
        step_seconds=max(0.0, float(rest)),
    )


def main(
    model: Annotated[str, typer.Argument(help="folder of the model, as examples/smollm2_model.py writes it")],
    questions: Annotated[int, typer.Option(help="questions that are answered")] = 5,
) -> None:
    name = "SmolLM2-135M-Instruct"
    size = model_named(name)
    data = at.load("smollm2").select(range(questions))
    engine = open_engine("vllm", model, {"max_model_len": 512})
    try:
        lengths = [
            len(engine.tokenizer.chat([ChatMessage("system", SAMPLING.system), ChatMessage("user", q.text)]))
            for q in data.questions
        ]
        steps = {batch: step_seconds(engine, batch) for batch in BATCHES}
        print("a step takes", ", ".join(f"{1000 * s:.1f} ms for {n}" for n, s in steps.items()), flush=True)
        machine = fitted(steps, size, statistics.mean(lengths))
        print(machine, flush=True)
        cost = CostModel(
            "latency",
            machine,
            name,
            prompt_tokens=round(statistics.mean(lengths)),
            suffix_tokens=len(engine.tokenizer.encode(SAMPLING.suffix)),
            answer_tokens=4,
        )
        of_model = cost.of_models([name]).of_cells(0)
        rows = []
        for question, (seed, player) in itertools.product(data.questions, enumerate(PLAYERS)):
            if question.index == 0:  # compiles what the controller runs
                answer(engine, question.text, player, 99 - seed)
            began = time.perf_counter()
            given = answer(engine, question.text, player, 100 + seed)
            taken = time.perf_counter() - began
            rows.append((player, given.tokens, float(of_model.of(spent(given))), taken))
            print(f"question {question.index}, {player}: {taken:.2f} s", flush=True)
    finally:
        engine.close()
    replayed = at.evaluate(data, list(PLAYERS), seeds=20, max_branches=WIDTH, cost=cost).summary().to_pylist()
    live = np.array([[row[1:] for row in rows if row[0] == player] for player in PLAYERS]).mean(axis=1)
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("controller", "tokens", "replay", "seconds", "predicted", "by replay"):
        table.add_column(heading, justify="left" if heading == "controller" else "right", no_wrap=True)
    of_replay = np.array([row["cost"] for row in replayed])
    for player, (tokens, known, measured), row in zip(PLAYERS, live, replayed, strict=True):
        texts = [f"{tokens:.0f}", f"{row['tokens']:.0f}", f"{measured:.1f}"]
        texts += [f"{seconds:.1f} ({seconds / measured:.2f})" for seconds in (known, row["cost"])]
        table.add_row(player, *texts)
    Console(width=80).print(table)
    for what, predicted in (("what was spent", live[:, 1]), ("replay", of_replay)):
        error = math.exp(np.abs(np.log(predicted / live[:, 2])).mean())
        order = ", ".join(PLAYERS[number] for number in np.argsort(predicted))
        print(f"from {what}: typical error a factor of {error:.2f}; the quickest first: {order}")
    print(f"measured, the quickest first: {', '.join(PLAYERS[number] for number in np.argsort(live[:, 2]))}")


def answer(engine: Engine, question: str, player: str, seed: int) -> Answer:
    """Answers a question with branches that no other controller has had."""
    sampling = dataclasses.replace(SAMPLING, seed=seed)
    return at.answer(engine, question, player, sampling=sampling, answers="number", max_branches=WIDTH)


def spent(given: Answer) -> Spent:
    """What an answer has spent, from its decisions."""
    intervals = waited = probes = 0
    for _, decisions in itertools.groupby(given.decisions, key=lambda decision: decision.round):
        read: collections.Counter[int] = collections.Counter()
        for decision in decisions:
            read.update(dict(zip(decision.branches, decision.intervals, strict=True)))
            shown = [answer for answer in decision.answers if answer is not None]
            probes += len(shown) if decision.action in ("open", "advance", "probe") else 0
        intervals += read.total()
        waited += max(read.values(), default=0)
    return Spent(
        tokens=given.tokens,
        sequential_tokens=given.sequential_tokens,
        intervals=intervals,
        probes=probes,
        branches=len(given.texts),
        interval=SAMPLING.interval,
        longest=SAMPLING.max_tokens,
        critical_path=waited * SAMPLING.interval,
    )


if __name__ == "__main__":
    typer.run(main)
