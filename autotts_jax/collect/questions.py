"""The questions of a collection: from files, from Hugging Face datasets, or generated."""

from __future__ import annotations

import itertools
import re

from autotts_jax.collect.arithmetic import arithmetic
from autotts_jax.collect.problem import Problem
from autotts_jax.collect.rows import find_column, gold_value, is_missing, read_rows, text_value, usual_column
from autotts_jax.errors import DataError, InputError

TEXT_COLUMNS = ("question", "problem", "prompt", "input")
GOLD_COLUMNS = ("answer", "gold", "gold_answer", "solution", "target", "expected_answer")
"""Names of the columns of questions and of answers, the preferred first, in upper or lower case."""

_GENERATED = re.compile(r"arithmetic(?::(\d+))?(?::(\d+))?")


def read_questions(
    source: str,
    *,
    text_column: str | None = None,
    gold_column: str | None = None,
    split: str = "test",
    limit: int | None = None,
    needs_gold: bool = True,
    whole_gold: bool = False,
) -> list[Problem]:
    r"""Reads questions with distinct texts, in the order of their source.

    Of an answer that ends in ``#### 42``, as in GSM8K, ``42`` is taken; of one with a ``\boxed{}``, as in
    MATH, the content of the last box. Numbers stay as they are written: ``5.0`` stays ``5.0``.

    Args:
        source: a ``.jsonl``, ``.json``, ``.csv`` or ``.parquet`` file; ``org/name`` or ``org/name:config``, a
            Hugging Face dataset; a folder that the `datasets` library reads; or
            ``arithmetic[:COUNT[:SEED]]``, generated questions.
        text_column: the column of the questions; by default the first of `TEXT_COLUMNS` that exists.
        gold_column: the column of the answers; by default the first of `GOLD_COLUMNS` that exists.
        split: the split of a dataset; files have none.
        limit: number of questions to read from the start; by default all.
        needs_gold: whether each question must have an answer; otherwise that of those without is empty.
        whole_gold: whether an answer is taken as it is, as the tests of code are; a list of texts is one of
            several lines.

    Returns:
        The problems, at least one.

    Raises:
        InputError: the kind of source is unknown, the limit is below 1, or a dataset is not available.
        DataError: the source cannot be read, has no such column, no questions, a question twice, or a row
            without a question or an answer.
    """
    if limit is not None and limit < 1:
        raise InputError(f"the limit is {limit}; read at least one question")
    if generated := _GENERATED.fullmatch(source):
        return arithmetic(*(int(number) for number in generated.groups() if number))[:limit]
    rows = list(itertools.islice(read_rows(source, split, ", or arithmetic:COUNT:SEED"), limit))
    if not rows:
        raise DataError(source, "holds no questions; give it at least one")
    _, first = rows[0]
    text_column = text_column or find_column(source, first, TEXT_COLUMNS, "text_column")
    # A column that somebody names and no row has is a mistake.
    may_lack = not needs_gold and (gold_column is None or any(gold_column in row for _, row in rows))
    if gold_column is None and may_lack:
        gold_column = usual_column(first, GOLD_COLUMNS) or ""
    elif gold_column is None:
        gold_column = find_column(source, first, GOLD_COLUMNS, "gold_column")
    questions: dict[str, Problem] = {}
    places: dict[str, str] = {}
    for place, row in rows:
        text = text_value(source, place, row, text_column)
        if text in places:
            raise DataError(source, f"{place} has the same question as {places[text]}; keep one of them")
        places[text] = place
        if may_lack and is_missing(row.get(gold_column)):
            gold = ""
        else:
            gold = gold_value(source, place, row, gold_column, whole_gold)
        questions[text] = Problem(text, gold)
    return list(questions.values())
