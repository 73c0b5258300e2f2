"""What the examples share in which other optimisers search: the task, a first file, and the sealed judge."""

import functools
import json
import os
import time
from pathlib import Path

import numpy as np

import autotts_jax as at
from autotts_jax.discovery import Course, Judge, Measurement, measure, prompt
from autotts_jax.policies import select

DATA, MAX_BRANCHES, ORDERS = os.environ.get("DISCOVER_DATA", "smollm2"), 16, 2
"""What files are measured on: questions, branches of an episode at most, and branch orders."""

BETAS = (0.0, 0.35, 0.7, 1.0)
"""The values of β that files are played at, which are those of `discover`."""

FIRST = """class Votes:
    def __init__(self, config):
        self.branches = 1 + round(3 * config["beta"])

    def solve(self, question):
        answers = [question.get_new_branch_final_answer() for _ in range(self.branches)]
        return max(answers, key=answers.count)


candidate = Votes
"""
"""The file that a search begins with unless another is given: self-consistency with 1 to 4 branches."""

_LOG = "DISCOVER_LOG"


def task() -> str:
    """What a model is told of the files that it is to write."""
    return prompt([], 0, MAX_BRANCHES).messages[0]["content"]


def begin(out: Path, first: Path | None) -> str:
    """Makes a run's folder, and has every process of the run log there what it measures.

    Args:
        out: the folder; it must not be there yet.
        first: the file that the search begins with; None for `FIRST`.

    Returns:
        Its text.
    """
    out.mkdir(parents=True)
    os.environ[_LOG] = str(out.resolve() / "evaluations.jsonl")
    return FIRST if first is None else first.read_text()


def judge(source: str) -> Measurement:
    """Measures a file, and logs what it came to."""
    began = time.monotonic()
    measured = measure(source, _course())
    objective = None if measured.metrics is None else measured.metrics["objective"]
    line = {"objective": objective, "seconds": round(time.monotonic() - began, 2), "source": source}
    with Path(os.environ[_LOG]).open("a") as log:
        log.write(json.dumps(line) + "\n")
    return measured


def end(out: Path, best: str, objective: float) -> None:
    """Keeps the best file, and says what the run came to."""
    lines = [json.loads(line) for line in (out / "evaluations.jsonl").read_text().splitlines()]
    failures = sum(line["objective"] is None for line in lines)
    (out / "best.py").write_text(best)
    print(f"{len(lines)} evaluations, {failures} failures; objective {objective:.4f}: {out / 'best.py'}")


@functools.cache
def _course() -> Course:
    data = at.load(DATA)
    questions = np.arange(len(data))
    return Course.of(Judge.of(data, MAX_BRANCHES, 0), select("cmc"), questions, range(ORDERS), BETAS)
