"""What papers have published, as far as it is known here, with its sources."""

from __future__ import annotations

import csv
from importlib import resources
from typing import NamedTuple


class Published(NamedTuple):
    """A published figure of a controller on a model and benchmark.

    Attributes:
        model: the model.
        benchmark: the benchmark.
        controller: the controller's name.
        value: β or number of branches.
        accuracy: in percent, with one digit.
        ktokens: thousands of tokens per episode, with one digit.
        source: who has published it: the paper, or the evaluator that was released with it.
        in_paper: whether the paper prints the same; it prints another figure in six cells, see `DIFFERENT`.
    """

    model: str
    benchmark: str
    controller: str
    value: float
    accuracy: float
    ktokens: float
    source: str
    in_paper: bool


def _read() -> tuple[Published, ...]:
    text = resources.files(__package__).joinpath("autotts.csv").read_text(encoding="utf-8")
    return tuple(
        Published(
            row["model"],
            row["benchmark"],
            row["controller"],
            float(row["value"]),
            float(row["accuracy_percent"]),
            float(row["ktokens"]),
            row["source"],
            row["paper"] == "same",
        )
        for row in csv.DictReader(text.splitlines())
    )


PUBLISHED = _read()
"""Table 1 of AutoTTS: SC by the paper, the others by its released evaluator."""

DIFFERENT = tuple(one for one in PUBLISHED if not one.in_paper)
"""The six cells of Table 1 in which the paper prints other figures than its released evaluator gives."""


class Claim(NamedTuple):
    """A figure that a paper's summary states, for all of its experiments together.

    Attributes:
        text: what it is a figure of.
        percent: the figure.
        source: where it is stated.
    """

    text: str
    percent: float
    source: str


TOKENS_SAVED = Claim(
    "Published of the paper's data: tokens saved against SC@64 at about its accuracy, at most",
    69.5,
    "reports on arXiv 2605.08083, as https://firethering.com/autotts-ai-inference-test-time-scaling/",
)
SEQUENTIAL_SAVED = Claim(
    "Sequential tokens saved against majority voting, at most", 35.8, "abstract of arXiv 2602.03845"
)
TOTAL_SAVED = Claim("Tokens saved against majority voting, more than", 25.8, "abstract of arXiv 2602.03845")
