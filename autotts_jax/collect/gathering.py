"""Gathers answers and lengths from records, one by one, and keeps no texts."""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autotts_jax.collect.answers import Extractor, extract, extractor
from autotts_jax.collect.known_questions import GatheredQuestion, KnownQuestions, ProbedRound, join_samples
from autotts_jax.collect.layouts import (
    EVERY,
    FieldPath,
    Layout,
    entries,
    failure,
    filtered,
    is_number,
    is_pair,
    is_said,
    spelled,
    spoken,
    values,
    words,
)
from autotts_jax.collect.prompts import question_in
from autotts_jax.collect.records import FileRecord
from autotts_jax.collect.rows import gold_value, is_missing
from autotts_jax.collect.thinking import TAGS
from autotts_jax.collect.tokenizer import load_tokenizer
from autotts_jax.errors import DataError
from autotts_jax.replay.spelling import ERROR

_CUT_OFF = {
    *("length", "max", "limit", "truncated", "incomplete", "filter", "safety"),
    *("abort", "aborted", "cancelled", "error", "timeout"),
}
"""Words in reasons for which a completion ends without being complete."""

_CHARACTERS = 4
"""Characters of a token where nothing counts tokens."""

_NOTHING = {"none", "null", "nan", "n/a", "<na>"}
"""What programs write for a value that is missing."""

_LONG = 100
"""Characters of a completion from which on it is not sampled twice by chance."""

_UNCLOSED = re.compile(r"[{}]")

_OF_A_RUN = re.compile(
    r"(?:(?<![a-z])(?:seed|run|row|line|samples?|parts?|shard|rep|rollouts?|trial|epoch|tokens|temp(?:erature)?)"
    r"[=_ -]?\d+(?:\.\d+)?"
    r"|\d+(?=-of-\d)"
    r"|(?:(?<![^/])[\d_-]+|_\d{1,3})(?=/|\.[a-z]|\Z)"  # a whole name, or out_1 and out_2
    r"|\d{4}-?\d\d-?\d\d[t_-]\d\d[-:]?\d\d[-:]?\d\d[.\d]*|\d{10,}"  # times: a date is one of a model
    r"|(?<![^\W_])(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,})(?![^\W_])"
)
"""What tells files of one model apart: numbers of runs, times and hashes, but not versions as in gpt-4.1."""


class Gatherer:
    """Takes records one by one, and keeps answers and lengths of them, but no texts."""

    def __init__(
        self,
        layout: Layout,
        answers: str | Extractor,
        counter: TokenCounter,
        known: KnownQuestions | None,
        raw_prompts: bool,
        model: str | None,
    ):
        self._layout, self._answers, self._count = layout, answers, counter.count
        self._known, self._raw = known, raw_prompts
        self._questions: dict[str, GatheredQuestion] = {}
        self._failed: list[tuple[GatheredQuestion, FileRecord, str]] = []
        self._sizes: set[int] = set()
        self._texts: set[int] = set()
        self._repeated = 0
        self._one_model = model is not None
        self.model = model or ""
        self.notes: list[str] = []

    def add(self, record: FileRecord) -> str:
        """Takes a record; what it returns tells it from others."""
        layout = self._layout
        text = self._question(record)
        question = self._questions.setdefault(text, GatheredQuestion(record._replace(value={})))
        self._note_model(question, record)
        self._note_gold(text, question, record)
        if layout.probes is not None:
            return text + self._add_round(question, record)
        filter_ = filtered(record.value)
        if question.filter_ is None:
            question.filter_ = filter_
        elif filter_ != question.filter_:
            return text
        found = self._completions(record)
        if all(map(is_missing, found)) and (reason := failure(record.value)):
            self._failed.append((question, record._replace(value={}), reason))
            return text
        self._sizes.add(len(found))
        of_each = {
            name: self._of_each(record, found, name)
            for name in ("tokens", "finish", "thinking", "confidences")
        }
        find = None if layout.given else extractor(self._answers, text)
        for value, count, finish, thinking, confidences in zip(found, *of_each.values(), strict=True):
            self._note_repeated(text, value)
            answer, size = self._answer(record, find, value, count, finish, thinking)
            known = (
                np.array(confidences, np.float32) if isinstance(confidences, list) and confidences else None
            )
            question.answers.append(answer)
            question.tokens.append(max(1, size if known is None else len(known)))
            question.confidences.append(known)
        return json.dumps([text, question.answers[-len(found) :]]) if found else text

    def finished(self) -> dict[str, GatheredQuestion]:
        """The questions by their texts, each with its reference answer."""
        self._answer_failed()
        gathered = self._questions
        for text, one in gathered.items():
            if not one.answers and not one.rounds:
                raise DataError(
                    one.record.file,
                    f"the question {text!r:.60} of {one.record.place} has no completion in "
                    f"{spelled(self._layout.completions)}; leave it out, or name the completions "
                    "by --completions",
                )
        key = None if self._layout.question else f"{spelled(self._layout.key or ())} "
        if self._known is not None:
            gathered = self._known.answered(gathered, key)
        elif key:
            gathered = join_samples(gathered)
        for text, one in gathered.items():
            if one.gold is None:
                raise DataError(
                    one.record.file,
                    f"the question {text!r:.60} of {one.record.place} has no reference answer"
                    f"{self._gold_field}; give it one, or name a file with questions and answers by "
                    "--questions",
                )
        self._drop_nothing(gathered)
        if self._repeated:
            self.notes.append(
                f"{self._repeated:,} completions are word for word another one of their question; if a file "
                "is there twice, leave one out"
            )
        return gathered

    def _answer_failed(self) -> None:
        """Gives each request that failed as many answers as the others have, all `ERROR`."""
        if not self._failed:
            return
        (_, record, reason) = self._failed[0]
        told = f"{len(self._failed):,} requests failed, the first that of {record.place} ({reason:.80})"
        if len(self._sizes) != 1:
            others = (
                f"the others have {min(self._sizes)} to {max(self._sizes)}" if self._sizes else "all of them"
            )
            raise DataError(
                record.file,
                f"{told}, and nothing tells how many completions each was to have: {others}; send them "
                "again, or remove them",
            )
        (size,) = self._sizes
        for question, _, _ in self._failed:
            question.answers += [ERROR] * size
            question.tokens += [1] * size
            question.confidences += [None] * size
        self.notes.append(f"{told}; each counts as {ERROR}, of one token. Send them again for answers")

    def _drop_nothing(self, gathered: Mapping[str, GatheredQuestion]) -> None:
        """Makes answers that say that there is none `ERROR`, where the reference does not say so, too."""
        empty = [one for one in gathered.values() if (one.gold or "").lower() in _NOTHING]
        if empty and len(empty) == len(gathered):
            raise DataError(
                empty[0].record.file,
                f"every reference answer{self._gold_field} is {empty[0].gold!r}, which is none; name their "
                "field by --gold, or a file with questions and answers by --questions",
            )
        if empty:
            self.notes.append(
                f"{len(empty):,} reference answers are {empty[0].gold!r}; if that means that there is none, "
                "leave these questions out"
            )
        dropped = 0
        for one in gathered.values():
            if (one.gold or "").lower() not in _NOTHING:
                nothing = [answer.lower() in _NOTHING for answer in one.answers]
                dropped += sum(nothing)
                one.answers[:] = [
                    ERROR if drop else answer for answer, drop in zip(one.answers, nothing, strict=True)
                ]
        if dropped:
            self.notes.append(f"{dropped:,} answers are None, null or nan, and count as {ERROR}")

    @property
    def _gold_field(self) -> str:
        return f" in {spelled(self._layout.gold)}" if self._layout.gold else ""

    def _question(self, record: FileRecord) -> str:
        layout = self._layout
        if layout.question is None:
            assert layout.key is not None
            (key,) = values(record.value, layout.key)[:1] or [None]
            if is_missing(key):
                raise DataError(
                    record.file, f"{record.place} has no {spelled(layout.key)}; number each question"
                )
            return f"{spelled(layout.key)} {key}"
        asked = values(record.value, layout.question)
        found = [spoken(value, "user")[0] for value in asked if is_said(value) and not is_number(value)]
        if not found or is_missing(found[0]):
            what = "no" if not asked or is_missing(asked[0]) else f"{reprlib.repr(asked[0])}, which is no"
            raise DataError(
                record.file,
                f"{record.place} has {what} question in {spelled(layout.question)}; give it one, "
                "or name another field by --question",
            )
        said = str(found[0])
        try:
            said.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                record.file, f"{record.place} has half of a surrogate pair in its question; remove it"
            ) from error
        return said if self._raw else question_in(said)

    def _completions(self, record: FileRecord) -> list[Any]:
        """The completions of a record, each a text, a message or an answer with its length."""
        path = self._layout.completions
        found = values(record.value, path)
        lists = values(record.value, path[: path.index(EVERY)]) if EVERY in path else []
        odd = [one for one in lists if one is not None and entries(one) is None and not values(one, (EVERY,))]
        odd += [value for value in found if not (is_said(value) or is_pair(value))]
        if odd:
            raise DataError(
                record.file,
                f"{record.place} has {reprlib.repr(odd[0])} in {spelled(path)}, where others have "
                f"{'a list' if not found else 'a text'}; make it one, or name another field by --completions",
            )
        return found

    def _note_model(self, question: GatheredQuestion, record: FileRecord) -> None:
        """Checks that records and files are of one model, unless the user says so."""
        if self._one_model:
            return
        first = question.record
        apart = (record.file, record.part) != (first.file, first.part)
        told = values(record.value, self._layout.model) if self._layout.model else []
        name = next((str(one) for one in told if one), "")
        self.model = self.model or name
        if name and name != self.model:
            what = f"is of the model {name!r:.60}, and others are of {self.model!r:.60}"
        elif apart and _without_run(record) != _without_run(first):
            what = f"has a question that {first.place} of {first.file} has, too"
        else:
            return
        raise DataError(
            record.file,
            f"{record.place} {what}; import the files of each model by themselves, or name the model by "
            "--model if it is one",
        )

    def _note_repeated(self, question: str, value: Any) -> None:
        """Counts completions that are another one of their question, word for word."""
        if len(written := str(value)) >= _LONG:
            before = len(self._texts)
            self._texts.add(hash((question, written)))
            self._repeated += before == len(self._texts)

    def _note_gold(self, text: str, question: GatheredQuestion, record: FileRecord) -> None:
        path = self._layout.gold
        if path is None:
            return
        for value in values(record.value, path):
            if value == question.told_gold or is_missing(value):
                continue
            gold = gold_value(str(record.file), record.place, {spelled(path): value}, spelled(path), False)
            if question.gold is not None and gold != question.gold:
                raise DataError(
                    record.file,
                    f"{record.place} has the reference answer {gold!r:.60}, and {question.record.place} of "
                    f"{question.record.file.name} has {question.gold!r:.60} for the same question, "
                    f"{text!r:.60}; make them agree, or name the question's field by --question",
                )
            question.gold, question.told_gold = gold, value

    def _of_each(self, record: FileRecord, found: Sequence[Any], name: str) -> Sequence[Any]:
        """What a record says of each of its completions."""
        path: FieldPath | None = getattr(self._layout, name)
        told = values(record.value, path) if path else [None] * len(found)
        if len(told) != len(found):
            if len(told) == 1 and name != "tokens":
                return told * len(found)
            assert path is not None
            raise DataError(
                record.file,
                f"{record.place} has {len(found)} completions and {len(told)} of {spelled(path)}; give one "
                "for each" + (", or name another field by --tokens" if name == "tokens" else ""),
            )
        return told

    def _answer(
        self, record: FileRecord, find: Extractor | None, value: Any, count: Any, finish: Any, thinking: Any
    ) -> tuple[str, int]:
        """The answer of a completion, and its length."""
        if is_pair(value):
            value, count = value
        text, thought = spoken(value, "assistant")
        thought = thought or (thinking if isinstance(thinking, str) else "")
        size = self._count(record, count, f"{thought}{text or ''}")
        if is_missing(text) or _is_cut_off(finish):
            return ERROR, size
        assert text is not None
        if find is None:
            answer = " ".join(text.split())
            try:
                answer.encode()
            except UnicodeEncodeError:
                return ERROR, size
            return answer, size
        return _extracted(text, find), size

    def _add_round(self, question: GatheredQuestion, record: FileRecord) -> str:
        layout = self._layout
        assert layout.probes is not None
        assert layout.budget is not None
        (budget,) = values(record.value, layout.budget)
        try:
            reached = int(budget)
        except (TypeError, ValueError, OverflowError):
            reached = 0
        if not 1 <= reached < 2**31:
            raise DataError(
                record.file,
                f"{record.place} has {budget!r:.40} in {spelled(layout.budget)}; give the tokens that a "
                "branch may have had at the end of the round",
            )
        if reached in question.rounds:
            raise DataError(record.file, f"{record.place} is a second round of {reached} tokens; keep one")
        probes, texts = (values(record.value, path) for path in (layout.probes, layout.completions))
        ends = values(record.value, layout.finish) if layout.finish else [None] * len(probes)
        if not len(probes) == len(texts) == len(ends):
            raise DataError(
                record.file,
                f"{record.place} has {len(probes)} of {spelled(layout.probes)} and {len(texts)} of "
                f"{spelled(layout.completions)}; give one of each for every branch",
            )
        box = extractor("boxed")
        question.rounds[reached] = [
            ProbedRound(
                _forced(probe),
                extract(str(text or ""), box),
                self._count(record, None, str(text or "")),
                not is_missing(end) and not _is_cut_off(end),
            )
            for probe, text, end in zip(probes, texts, ends, strict=True)
        ]
        return f"{reached}{probes}"


def _is_cut_off(finish: Any) -> bool:
    """Whether a reason, or a flag, says that a completion did not end by itself."""
    return str(finish).lower() == "true" or not _CUT_OFF.isdisjoint(words((str(finish),)))


def _without_run(record: FileRecord) -> str:
    """Where a record stands without what tells the files of one model apart, and their parts."""
    return _OF_A_RUN.sub("", f"{record.file.as_posix()}/{record.part}".casefold())


def _extracted(text: str, find: Extractor) -> str:
    thinking, said = TAGS.split(text)
    if not thinking and TAGS.start in text and TAGS.end not in text:
        find = extractor("boxed")  # the thinking has no end: its numbers are not answers
    answer = extract(said, find)
    return answer if answer != ERROR or said == text else extract(text, extractor("boxed"))


def _forced(probe: Any) -> str:
    """The answer of a probe, whose prompt may have opened a box."""
    text = str(probe or "")
    depth = 0
    for brace in _UNCLOSED.finditer(text):
        depth += 1 if brace[0] == "{" else -1
        if depth < 0:
            return extract(text[: brace.start()], str.strip)
    return extract(text, extractor("auto"))


class TokenCounter:
    """Counts tokens: as files say in a field, by a tokenizer, or by characters where there is none."""

    def __init__(self, tokenizer: str | None, field: FieldPath | None):
        self._field = field
        self._encode: Callable[[str], Sequence[int]] | None = None
        if tokenizer is not None:
            found = load_tokenizer(tokenizer)
            self._encode = lambda text: found.encode(text, add_special_tokens=False)
        self._estimated = 0

    def count(self, record: FileRecord, told: Any, text: str) -> int:
        """Counts the tokens of a text.

        Args:
            record: where it stands, for messages.
            told: their number or the tokens, where the file says so.
            text: the text.
        """
        if isinstance(told, list):
            return len(told)
        if not is_missing(told):
            try:
                count = int(float(told))
                if count == float(told) and 0 <= count < 2**31 and not isinstance(told, bool):
                    return count
            except (TypeError, ValueError, OverflowError):
                pass
            raise DataError(
                record.file,
                f"{record.place} has {told!r:.40} as a number of tokens; make it a whole number from 0, or "
                "name another field by --tokens",
            )
        if not text:
            return 0
        if self._encode:
            return len(self._encode(text))
        if self._field is not None:
            raise DataError(
                record.file,
                f"{record.place} has no number of tokens in {spelled(self._field)}; give it one, or "
                "name --tokenizer MODEL to count them",
            )
        self._estimated += 1
        return -(-len(text) // _CHARACTERS)

    def notes(self) -> list[str]:
        """What a user should know of the lengths."""
        if not self._estimated:
            return []
        return [
            f"nothing says how many tokens {self._estimated:,} completions have, so {_CHARACTERS} characters "
            "count as one; give --tokenizer MODEL to count them, or --tokens PATH where a field has them"
        ]
