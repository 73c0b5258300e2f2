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
_NUMBERED = re.compile(r"(.*?)(\d{1,9})", re.DOTALL)


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
        self.joined = ""
        """Which question the first id was found to be, in words."""

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

    def answered(
        self, gathered: Mapping[str, GatheredQuestion], before: str | None = None
    ) -> dict[str, GatheredQuestion]:
        """Gives questions their texts and reference answers.

        Args:
            gathered: the questions by their texts, or by ids.
            before: what stands before each id; None where they are texts.
        """
        keys = [key.removeprefix(before or "") for key in gathered]
        exact = [self._by_text.get(" ".join(key.split()), self._by_id.get(key)) for key in keys]
        places = exact if before is None or None not in exact else self._by_rule(gathered, keys) or exact
        found: dict[str, GatheredQuestion] = {}
        for key, n, one in zip(keys, places, gathered.values(), strict=True):
            if n is None:
                rule = (
                    "by its text"
                    if before is None
                    else "and ids have to be those there, with or without the number of a sample behind, or "
                    "number all questions there from 0 or 1"
                )
                raise DataError(
                    one.record.file,
                    f"{one.record.place}: the question {key!r:.60} is not among the {len(self._all)} of "
                    f"{self._source} (--questions), {rule}; give the question there this text or id",
                )
            _, text, gold = self._all[n]
            if before is not None and not found:
                self.joined = f"; {key!r:.60} is the question {text!r:.60}"
            if text in found:
                found[text].extend(one)
            else:
                found[text] = dataclasses.replace(one, gold=gold)
        return found

    def _by_rule(
        self, gathered: Mapping[str, GatheredQuestion], keys: Sequence[str]
    ) -> Sequence[int | None] | None:
        """The questions of ids that are not all known themselves, by the one rule that all of them fit."""
        stems = [_SAMPLE_NUMBER.sub("", key) for key in keys]
        if all(stem in self._by_id for stem in stems):
            return [self._by_id[stem] for stem in stems]
        whole, samples = self._numbers(keys), self._numbers(stems)
        if whole and samples:
            one = next(iter(gathered.values()))
            raise DataError(
                one.record.file,
                f"{one.record.place}: the last number of {keys[0]!r:.60} may be that of a question or of its "
                f"sample; give the questions of {self._source} (--questions) ids",
            )
        return whole or samples

    def _numbers(self, ids: Sequence[str]) -> list[int] | None:
        """The places of numbers, all behind one text, that run from 0, or from 1 to the last question."""
        found = [_NUMBERED.fullmatch(one) for one in ids]
        numbers = [int(one[2]) for one in found if one]
        if len(numbers) < len(ids) or len({one[1] for one in found if one}) > 1:
            return None
        first = min(numbers, default=0)
        ends = max(numbers, default=0) - first
        fits = ends < len(self._all) if first == 0 else first == 1 and ends == len(self._all) - 1
        return [number - first for number in numbers] if fits else None


def join_samples(gathered: dict[str, GatheredQuestion]) -> dict[str, GatheredQuestion]:
    """Joins the samples of a question whose ids also number the samples, as q0-s0 and q0-s1."""
    if any(len(one.answers) != 1 for one in gathered.values()) or len(gathered) < 2:
        return gathered
    joined: dict[str, GatheredQuestion] = {}
    agree = True
    for key, one in gathered.items():
        name = _SAMPLE_NUMBER.sub("", key)
        if name not in joined:
            joined[name] = one
        else:
            agree &= joined[name].gold == one.gold
            joined[name].extend(one)
    if not agree or not all(re.search(r"\d\Z", name) for name in joined) or len(joined) == len(gathered):
        raise DataError(
            next(iter(gathered.values())).record.file,
            f"every id, as {next(iter(gathered))!r:.60}, has one completion, so nothing tells which belong "
            "to the same question; name the question by --question",
        )
    return joined
