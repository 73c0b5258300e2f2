"""Compares other optimisers with our loop, where all measure as many files, which one scripted model writes.

    python benchmarks/discovery_outside.py --files 16 --seeds 3 --out runs/outside

The model needs no weights: it changes the numbers of one of the files that its prompt shows, drawn at random,
and now and then replies with no file. So what differs is which files an optimiser shows, and which it keeps.
All measure on the embedded synthetic data, and the best file of each is judged on synthetic questions that
none has seen. Besides there are a control, which keeps the best of changes of the first file, and our loop
without a model for a CPU minute. What ``--out`` has is not run again, so that the same command in an
environment with ShinkaEvolve adds its row.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

if TYPE_CHECKING:
    from autotts_jax.discovery import OpenAIProposer
    from autotts_jax.discovery.search import DiscoveryRun

ROOT = Path(__file__).resolve().parents[1]
OTHERS = {"GEPA": "gepa", "OpenEvolve": "openevolve", "ShinkaEvolve": "shinka"}
OURS, CONTROL, RULES = "discover, openai", "control", "discover, rules"
COST = "cpu_seconds"
CPU_MINUTES = 1.0
DATA = "synthetic"
FRESH_SEED, FRESH_QUESTIONS, FRESH_ORDERS = 7001, 100, 2

FILE = '''NUMBERS = ({numbers})


class Leader:
    """Asks branches until one answer has a share of all that it may ask for, or all are asked."""

    def __init__(self, config):
        low, high, first, last = NUMBERS
        beta = config["beta"]
        self.most = round(low + (high - low) * beta)
        self.share = first + (last - first) * beta

    def solve(self, question):
        answers = []
        for _ in range(self.most):
            answers.append(question.get_new_branch_final_answer())
            leader = max(answers, key=answers.count)
            if answers.count(leader) > self.share * self.most:
                break
        return leader


candidate = Leader
'''
FIRST = "4.0, 8.0, 0.9, 0.9"
NUMBERS = re.compile(r"NUMBERS = \(([-\d., ]+)\)")
"""What the model changes. A file that asks for more branches than there are fails."""

CHANGE, NO_FILE = 0.4, 0.1
"""Standard deviation of a change in nats, and how often the reply holds no file."""


class Model:
    """Replies by the request, and by how often it was made."""

    def __init__(self, seed: int):
        self.seed, self.made, self.lock = seed, Counter[str](), threading.Lock()

    def __call__(self, request: dict) -> str:
        text = json.dumps(request["messages"])
        with self.lock:
            self.made[text] += 1
            drawn = self.made[text]
        return self.reply(NUMBERS.findall(text) or [FIRST], text, drawn)

    def reply(self, shown: list[str], text: str, drawn: int) -> str:
        number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])
        rng = np.random.default_rng([self.seed, number, drawn])
        if rng.random() < NO_FILE:
            return "I cannot think of any."
        of = [float(one) for one in shown[rng.integers(len(shown))].split(",")]
        changed = ", ".join(f"{one:.3g}" for one in of * np.exp(rng.normal(0, CHANGE, len(of))))
        file = FILE.format(numbers=changed)
        return (
            f"<NAME>\nnumbers\n</NAME>\n<DESCRIPTION>\n</DESCRIPTION>\n<CODE>\n```python\n{file}```\n</CODE>"
        )


def other(name: str, out: Path, files: int, model: Model) -> None:
    """Runs another optimiser's example."""
    from scripted_model import serving

    first = out.with_suffix(".first.py")
    first.write_text(FILE.format(numbers=FIRST))
    script = ROOT / "examples" / f"discover_{OTHERS[name]}.py"
    command = [sys.executable, str(script), "scripted", "--evaluations", str(files)]
    with serving(model) as server, out.with_suffix(".log").open("w") as log:
        environment = os.environ | {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "none"}
        options = ["--first", str(first), "--out", str(out)]
        subprocess.run([*command, *options], env=environment, stdout=log, stderr=log, check=True)


def ours(out: Path, files: int, model: Model) -> None:
    """Runs our loop with the model as the proposer `openai`."""
    from scripted_model import serving

    from autotts_jax.discovery import OpenAIProposer

    with serving(model) as server:
        run = run_of(out, OpenAIProposer("scripted", server.url, count=2))
        run.search(files, None)
    records = [record for record in run.archive.records() if record["kind"] == "code"]
    write_log(out, [record["metrics"] and record["metrics"]["objective"] for record in records])
    # That of the search that uses all questions, if it has had a turn.
    best = max(
        (record for record in records if record["metrics"]),
        key=lambda record: (record["fold"] is None, record["metrics"]["objective"]),
    )
    (out / "best.py").write_text(best["source"])


def control(out: Path, files: int, model: Model) -> None:
    """Keeps the best of as many changes of the first file."""
    import judged

    from autotts_jax.discovery.proposers.prompts import code_of

    best, most = judged.begin(out, None), -np.inf
    for drawn in range(files):
        source = code_of(model.reply([FIRST], "control", drawn)) if drawn else FILE.format(numbers=FIRST)
        measured = judged.judge(source or "")
        if measured.metrics and measured.metrics["objective"] > most:
            best, most = source, measured.metrics["objective"]
    (out / "best.py").write_text(best)


def rules(out: Path, seed: int) -> None:
    """Runs our loop without a model."""
    run = run_of(out, "rules", seed)
    run.search(None, 60 * CPU_MINUTES)
    records = [record for record in run.archive.records() if record["kind"] == "candidate"]
    write_log(out, [record["scores"][-1] for record in records])
    best = max(
        (record for record in records if "cost" in record),
        key=lambda record: (record["fold"] is None, record["scores"][-1]),
    )
    (out / "best.json").write_text(json.dumps(best["program"]))


def write_log(out: Path, objectives: list[float | None]) -> None:
    lines = [json.dumps({"objective": objective}) for objective in objectives]
    (out / "evaluations.jsonl").write_text("\n".join(lines) + "\n")


def run_of(out: Path, proposer: str | OpenAIProposer, seed: int = 0) -> DiscoveryRun:
    """A run of our loop on what the examples measure on."""
    import judged

    import autotts_jax as at
    from autotts_jax.discovery.search import DiscoveryRun
    from autotts_jax.policies import select

    rungs = (128, 1), (32, 4), (12, judged.ORDERS)
    return DiscoveryRun(
        at.load(judged.DATA), out, [proposer], select("cmc"), seed, judged.MAX_BRANCHES, rungs
    )


def objectives(folders: list[Path]) -> np.ndarray:
    """Objectives of the best of each run on fresh questions. Shape (runs, questions)."""
    import judged

    from autotts_jax.discovery import Judge
    from autotts_jax.discovery.judging.judge import price
    from autotts_jax.discovery.judging.measuring import outcome_of, play_sealed
    from autotts_jax.discovery.programs.interpreter import decision_list
    from autotts_jax.discovery.programs.rules import Program
    from autotts_jax.replay import synthetic

    fresh = synthetic(seed=FRESH_SEED, questions=FRESH_QUESTIONS)
    judge = Judge.of(fresh, judged.MAX_BRANCHES, 0, FRESH_ORDERS)
    data, orders = judge.part(np.arange(len(fresh)), judge.test, range(FRESH_ORDERS))
    found = []
    for folder in folders:
        if (folder / "best.json").exists():
            program = Program.from_json((folder / "best.json").read_text())
            outcome = judge.play_test([decision_list(program, beta) for beta in judged.BETAS])
        else:
            source = (folder / "best.py").read_text()
            outcome = outcome_of(play_sealed(source, data, orders, judged.BETAS), judge.unit)
        found.append((outcome.accuracy[0] - price(judged.BETAS)[:, None] * outcome.cost[0]).mean(axis=0))
    return np.stack(found)


def main(
    files: Annotated[int, typer.Option(help="Files that each measures in a run.")] = 16,
    seeds: Annotated[int, typer.Option(help="Runs of each.")] = 3,
    out: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs/outside"),
) -> None:
    sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "tests")]
    os.environ |= {"DISCOVER_DATA": DATA, "JAX_COMPILATION_CACHE_DIR": str(out.resolve() / "compiled")}

    arms = {
        name: functools.partial(other, name)
        for name, package in OTHERS.items()
        if importlib.util.find_spec(package) or (out / name).exists()
    }
    arms = {OURS: ours, **arms, CONTROL: control}
    (out / "first").mkdir(parents=True, exist_ok=True)
    (out / "first" / "best.py").write_text(FILE.format(numbers=FIRST))
    for seed in range(seeds):
        for name, play in arms.items():
            with costing(out / name / str(seed)) as folder:
                if folder:
                    play(folder, files, Model(seed))
        with costing(out / RULES / str(seed)) as folder:
            if folder:
                rules(folder, seed)
    first = objectives([out / "first"])
    gains = {
        name: objectives([out / name / str(seed) for seed in range(seeds)]) - first for name in [*arms, RULES]
    }
    group = np.arange(first.shape[1])
    print(f"{len(group)} fresh questions, {seeds} runs of each; first file {100 * first.mean():.2f} points")
    print("| | measured | failed | gain on the first file, points | less our loop's | CPU s |")
    print("|---|---|---|---|---|---|")
    for name, gain in gains.items():
        folders = [out / name / str(seed) for seed in range(seeds)]
        lines = [
            line for folder in folders for line in (folder / "evaluations.jsonl").read_text().splitlines()
        ]
        failed = sum(json.loads(line)["objective"] is None for line in lines)
        less = "" if name == OURS else points(gain - gains[OURS], group)
        seconds = np.mean([float((folder / COST).read_text()) for folder in folders])
        print(
            f"| {name} | {len(lines) / seeds:,.0f} | {failed / seeds:.0f} | {points(gain, group)} | {less} "
            f"| {seconds:.0f} |"
        )


def points(values: np.ndarray, group: np.ndarray) -> str:
    from autotts_jax.discovery.ablation import interval

    low, high = interval(values, group)
    return f"{100 * values.mean():+.2f} [{100 * low:+.2f}, {100 * high:+.2f}]"


@contextlib.contextmanager
def costing(folder: Path) -> Iterator[Path | None]:
    """Notes the CPU time that the block takes; gives None where a run is there already."""
    if (folder / COST).exists():
        yield None
        return
    shutil.rmtree(folder, ignore_errors=True)  # of a run that did not come to its end
    folder.parent.mkdir(parents=True, exist_ok=True)
    before = sum(os.times()[:4])
    yield folder
    (folder / COST).write_text(f"{sum(os.times()[:4]) - before:.1f}\n")


if __name__ == "__main__":
    typer.run(main)
