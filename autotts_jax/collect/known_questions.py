"""Questions with reference answers in a file of their own, for files of completions that lack them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from autotts_jax.collect.layouts import SAMPLE, FieldPath, recognise_questions, spelled, spoken, values
from autotts_jax.collect.records import FileRecord, find_sources, read_records
from autotts_jax.collect.rows import gold_value, is_missing
from autotts_jax.errors import DataError

_SAMPLE_NUMBER = re.compile(r"\D*\d+\Z")


@dataclasses.dataclass
class GatheredQuestion:
    """What the files have of one question so far."""

    record: FileRecord
    gold: str | None = None
    told_gold: object = None
    answers: list[str] = dataclasses.field(default_factory=list)
    tokens: list[int] = dataclasses.field(default_factory=list)
    confidences: list[np.ndarray | None] = dataclasses.field(default_factory=list)
    filter_: str | None = None
    rounds: dict[int, list[ProbedRound]] = dataclasses.field(default_factory=dict)

    def extend(self, other: GatheredQuestion) -> None:
        """Takes what belongs to the same question."""
        self.answers += other.answers
        self.tokens += other.tokens
        self.confidences += other.confidences


@dataclasses.dataclass(frozen=True)
class ProbedRound:
    """What one branch did in one round."""

    probe: str
    final: str
    tokens: int
    ended: bool


class KnownQuestions:
    """Questions with reference answers, to be found by text, id or number."""

    def __init__(self, source: Path, questions: Sequence[tuple[str, str, str]]):
        self._source = source
        self._all = questions
        self._by_text = {" ".join(text.split()): n for n, (_, text, _) in enumerate(questions)}
        self._by_id = {key: n for n, (key, _, _) in enumerate(questions) if key}

    @classmethod
    def read(cls, source: str | Path, told: Mapping[str, FieldPath]) -> KnownQuestions:
        """Reads the questions of a file."""
        (path, *_) = files = find_sources(source)
        records = list(read_records(files))
        if not records:
            raise DataError(path, "has no questions; name a file with questions and answers")
        text, gold, key = recognise_questions(records[:SAMPLE], told)
        found = []
        for record in records:
            row = {
                "question": spoken(values(record.value, text)[0], "user")[0],
                "gold": values(record.value, gold)[0],
            }
            if is_missing(row["question"]):
                raise DataError(path, f"{record.place} has no question in {spelled(text)}; give it one")
            named = str(values(record.value, key)[0]) if key else ""
            answer = gold_value(str(path), record.place, row, "gold", False)
            found.append((named, str(row["question"]), answer))
        return cls(path, found)

    def answered(self, gathered: Mapping[str, GatheredQuestion]) -> dict[str, GatheredQuestion]:
        """Gives questions their texts and reference answers."""
        numbers = {key: number for key in gathered if (number := _number(key)) is not None}
        told = set(numbers.values())
        if len(told) < len(numbers):  # they do not number questions: q0-sample-3 and q1-sample-3
            numbers.clear()
        first = 1 if numbers and min(told) == 1 and max(told) == len(self._all) else 0
        found: dict[str, GatheredQuestion] = {}
        for key, one in gathered.items():
            n = self._by_text.get(" ".join(key.split()), self._by_id.get(key.rpartition(" ")[2]))
            if n is None and 0 <= numbers.get(key, -1) - first < len(self._all):
                n = numbers[key] - first
            if n is None:
                raise DataError(
                    one.record.file,
                    f"{one.record.place}: the question {key!r:.60} is not among the {len(self._all)} of "
                    f"{self._source}, by its text, its id or its number; add it there",
                )
            _, text, gold = self._all[n]
            if text in found:
                found[text].extend(one)
            else:
                found[text] = dataclasses.replace(one, gold=gold)
        return found


def _number(key: str) -> int | None:
    """The number that an id ends with; of a text, none."""
    found = re.search(r"(\d{1,9})\Z", key)
    return int(found[1]) if found and len(key.split()) == 2 else None


def join_samples(gathered: dict[str, GatheredQuestion]) -> dict[str, GatheredQuestion]:
    """Joins the samples of questions whose ids number them, as q0-s0 and q0-s1; failed ones are empty."""
    if any(len(one.answers) > 1 for one in gathered.values()) or len(gathered) < 2:
        return gathered
    joined: dict[str, GatheredQuestion] = {}
    for key, one in gathered.items():
        name = _SAMPLE_NUMBER.sub("", key)
        if name in joined:
            joined[name].extend(one)
        else:
            joined[name] = one
    if not all(re.search(r"\d\Z", name) for name in joined) or len(joined) == len(gathered):
        raise DataError(
            next(iter(gathered.values())).record.file,
            f"every id, as {next(iter(gathered))!r:.60}, has one completion, so nothing tells which belong "
            "to the same question; name the question by --question",
        )
    return joined
