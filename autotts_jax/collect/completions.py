"""Completions that exist already, to be probed as the branches of a collection."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
import reprlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from autotts_jax.collect.engine import Tokenizer, Tokens
from autotts_jax.collect.problem import Problem
from autotts_jax.collect.questions import GOLD_COLUMNS, TEXT_COLUMNS
from autotts_jax.collect.rows import find_column, gold_value, is_missing, read_rows, text_value, usual_column
from autotts_jax.collect.usual_rows import usual_rows
from autotts_jax.errors import DataError, InputError, InputWarning

_TOKENS = "token_ids"
COMPLETION_COLUMNS = (_TOKENS, "completion", "response", "generation", "output")
"""Names of the column of completions, the preferred first, in upper or lower case."""
ID_COLUMN = "question_id"
"""The column that tells which rows have the same question, besides its text."""

_TOKEN = re.compile(r"[0-9]{1,18}")
_LIST = re.compile(r"\s*\[([^\[\]]*)\]\s*")
_NAMED = 3
"""Questions that a message names."""


class Given(NamedTuple):
    """A completion that exists already.

    Attributes:
        place: where its row stands in the source, as "line 3".
        completion: its text or its tokens.
    """

    place: str
    completion: str | Tokens


@dataclasses.dataclass(frozen=True)
class Completions:
    """Completions of some questions; `read_completions` reads them.

    Attributes:
        source: where they come from, for messages.
        questions: the questions, in the order in which the source has them first.
        given: the completions of each question, by its text, in the order of the source.
        sha256: hash of all questions and completions of the source.
    """

    source: str
    questions: tuple[Problem, ...]
    given: Mapping[str, Sequence[Given]]
    sha256: str

    def num_branches(self, wanted: int | None = None) -> int:
        """Finds N, for a matrix has as many branches of each question.

        Args:
            wanted: completions of each question to use; None for as many as each has. If the others have
                more, an `InputWarning` says how many are left out.

        Returns:
            The number.

        Raises:
            InputError: a question has fewer than are wanted.
        """
        counts = {question.text: len(self.given[question.text]) for question in self.questions}
        least, most, total = min(counts.values()), max(counts.values()), sum(counts.values())
        number = least if wanted is None else wanted
        fewest = [text for text, count in counts.items() if count < max(number, least + 1)]
        named = ", ".join(f"{text!r:.60}" for text in fewest[:_NAMED]) + (", …" * (len(fewest) > _NAMED))
        if number > least:
            raise InputError(
                f"{self.source}: {number} branches of each question are asked for, and some have fewer "
                f"completions, the fewest {least}: {named}; ask for {least}, or leave these questions out"
            )
        if wanted is None and least < most:
            left = total - least * len(counts)
            warnings.warn(
                f"{self.source}: its questions have {least} to {most} completions; the first {least} of each "
                f"are used and {left:,} of {total:,} are left out, because a matrix has as many branches of "
                f"each question. The fewest are those of {named}",
                InputWarning,
                stacklevel=2,
            )
        return number

    def check(self, tokenizer: Tokenizer) -> None:
        """Checks that all completions that are given as tokens are a model's.

        Args:
            tokenizer: the tokenizer of the model.

        Raises:
            DataError: one has a token that the model does not have.
        """
        size = tokenizer.vocab_size
        for place, completion in itertools.chain.from_iterable(self.given.values()):
            if not isinstance(completion, str) and max(completion) >= size:
                raise DataError(
                    self.source,
                    f"{place} has the token {max(completion)}, and the model's tokens are 0 to {size - 1}; "
                    "name the model that wrote the completions, or give their text",
                )

    def tokens(self, question: str, branches: Sequence[int], tokenizer: Tokenizer) -> dict[int, Tokens]:
        """Returns completions of a question as a model writes them.

        Args:
            question: the question's text.
            branches: which of its completions.
            tokenizer: the tokenizer of the model.

        Returns:
            The tokens of each, with the one that ends a text, which is added where it is missing.

        Raises:
            InputError: the question has no such completions.
        """
        rows = self.given.get(question, ())
        if missing := [b for b in branches if b >= len(rows)]:
            raise InputError(
                f"{self.source} has {len(rows)} completions of {question!r:.60}, and number {missing[0] + 1} "
                "is asked for; ask for fewer branches"
            )
        return {b: _to_the_end(rows[b].completion, tokenizer) for b in branches}


def read_completions(
    source: str,
    *,
    text_column: str | None = None,
    gold_column: str | None = None,
    completion_column: str | None = None,
    split: str = "test",
    limit: int | None = None,
    whole_gold: bool = False,
) -> Completions:
    """Reads completions, one a row, or in another layout that `import_answers` recognises.

    A row has a question, a completion as text or as a list of token ids, and the reference answer, which may
    be missing in all rows of a question but one. In a column ``token_ids`` a list may be written as text, as
    in CSV. Rows with the same question are its completions. If the column `ID_COLUMN` exists, it must agree
    with that.

    Args:
        source: a file or a dataset that `read_questions` takes, or without named columns files that
            `import_answers` takes.
        text_column: the column of the questions; by default the first of `TEXT_COLUMNS` that exists.
        gold_column: the column of the answers; by default the first of `GOLD_COLUMNS` that exists.
        completion_column: the column of the completions; by default the first of `COMPLETION_COLUMNS` that
            exists.
        split: the split of a dataset; files have none.
        limit: number of questions to take from the start; by default all.
        whole_gold: whether an answer is taken as it is, as for `read_questions`.

    Returns:
        The completions, at least one.

    Raises:
        InputError: the kind of source is unknown, the limit is below 1, or a dataset is not available.
        DataError: the source cannot be read, has no such column or no rows; a row has no question or no
            completion, or one that is neither text nor token ids; or a question has two reference answers,
            none, or two ids.
    """
    if limit is not None and limit < 1:
        raise InputError(f"the limit is {limit}; read at least one question")
    named = text_column or gold_column or completion_column or whole_gold
    rows = (None if named else usual_rows(source)) or iter(read_rows(source, split))
    first = next(rows, None)
    if first is None:
        raise DataError(source, "holds no completions; give it at least one")
    text_column = text_column or find_column(source, first[1], TEXT_COLUMNS, "text_column")
    completion_column = completion_column or find_column(
        source, first[1], COMPLETION_COLUMNS, "completion_column"
    )
    given: dict[str, list[Given]] = {}
    golds: _Said = {}
    ids: _Said = {}
    texts: _Said = {}  # by id
    held = hashlib.sha256()
    for place, row in itertools.chain([first], rows):
        text = text_value(source, place, row, text_column)
        completion = _completion(source, place, row, completion_column)
        given.setdefault(text, []).append(Given(place, completion))
        held.update(json.dumps([text, completion]).encode())
        column = gold_column or usual_column(row, GOLD_COLUMNS)
        if column is not None and not is_missing(row.get(column)):
            gold = gold_value(source, place, row, column, whole_gold)
            _note(source, place, golds, "question", text, "answer", gold)
        if not is_missing(row.get(ID_COLUMN)):
            name = str(row[ID_COLUMN])
            _note(source, place, ids, "question", text, ID_COLUMN, name)
            _note(source, place, texts, ID_COLUMN, name, "question", text)
    kept = dict(itertools.islice(given.items(), limit))
    for text, completions in kept.items():
        if text not in golds:
            raise DataError(
                source,
                f"the question of {completions[0].place} has no answer in any of its rows; give one of them "
                f"its reference answer, in a column {gold_column or ' or '.join(GOLD_COLUMNS)}, or leave the "
                "question out",
            )
    questions = tuple(Problem(text, golds[text][1]) for text in kept)
    return Completions(source, questions, kept, held.hexdigest())


_Said = dict[str, tuple[str, str]]
"""What rows say of something: the place of the first that does, and what it says."""


def _note(source: str, place: str, said: _Said, kind: str, key: str, what: str, value: str) -> None:
    """Notes what a row says of something; no other row may say otherwise."""
    before, first = said.setdefault(key, (place, value))
    if value != first:
        raise DataError(
            source,
            f"{place} has the {what} {value!r:.60}, and {before} of the same {kind} has {first!r:.60}; make "
            "them agree",
        )


def _completion(source: str, place: str, row: Mapping[str, Any], column: str) -> str | Tokens:
    value, of_tokens = row.get(column), column.lower() == _TOKENS
    if of_tokens and not is_missing(value) and type(value) is not list:
        # CSV, for one, has lists as text. To take it for the completion would count other tokens.
        listed = _LIST.fullmatch(str(value))
        if listed is None:
            raise DataError(
                source,
                f"{place} has the {column} {reprlib.repr(value)}; make it a list of token ids, as [1, 2], or "
                "call the column completion if it is text",
            )
        value = [token.strip() for token in listed[1].split(",") if listed[1].strip()]
    if type(value) is not list:
        return text_value(source, place, row, column)
    if not value:
        raise DataError(source, f"{place} has an empty {column}; fill it, or leave the row out")
    # Numbers of JSON are texts here, as they are written.
    if others := [token for token in value if not _TOKEN.fullmatch(str(token))]:
        other = "" if of_tokens else "text, or "
        raise DataError(
            source,
            f"{place} has {reprlib.repr(others[0])} in its {column}; make it {other}a list of token ids, "
            "which are whole numbers from 0, as [1, 2]",
        )
    return tuple(int(token) for token in value)


def _to_the_end(completion: str | Tokens, tokenizer: Tokenizer) -> Tokens:
    """The tokens of a completion, up to the first that ends a text: others may be padding."""
    tokens = tokenizer.encode(completion) if isinstance(completion, str) else completion
    if tokenizer.end in tokens:
        return tokens[: tokens.index(tokenizer.end) + 1]
    ended = not tokenizer.decode(tokens[-1:])
    return tokens if ended or tokenizer.end is None else (*tokens, tokenizer.end)
