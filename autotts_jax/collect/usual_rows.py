"""Completions in any layout that is recognised, as rows with the usual columns."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

from autotts_jax.collect.layouts import (
    SAMPLE,
    Layout,
    filtered,
    recognise,
    spelled,
    spoken,
    values,
    without_summaries,
)
from autotts_jax.collect.prompts import question_in
from autotts_jax.collect.records import FileRecord, find_sources, is_record_file, read_records
from autotts_jax.collect.rows import Row, is_missing
from autotts_jax.collect.thinking import TAGS
from autotts_jax.errors import DataError

QUESTION, COMPLETION, GOLD = "question", "completion", "answer"
"""The columns of the rows."""


def usual_rows(source: str) -> Iterator[Row] | None:
    """Reads completions in another layout than a row for each, as they are recognised by `recognise`.

    Args:
        source: files of any kind that `read_records` reads: one, a folder, or a glob pattern.

    Returns:
        A row for each completion; None where the source is no such file, or holds such rows already, or what
        is wrong is said where its rows are read.

    Raises:
        DataError: a file is damaged, or its layout is not recognised.
    """
    plain = is_record_file(Path(source))
    try:
        records = without_summaries(read_records(find_sources(source)), {}, False, [])
        sample = list(itertools.islice(records, SAMPLE))
        layout = recognise(sample, {}) if sample else None
    except ValueError:
        return None
    if layout is None or layout.probes or layout.given or (plain and _has_usual_values(sample[0], layout)):
        return None
    return _rows(layout, itertools.chain(sample, records))


def _has_usual_values(record: FileRecord, layout: Layout) -> bool:
    """Whether the question and the completion are texts in columns of their own."""
    paths = (layout.question or (), layout.completions)
    return all(len(path) == 1 and isinstance(record.value.get(path[0]), str) for path in paths)


def _rows(layout: Layout, records: Iterable[FileRecord]) -> Iterator[Row]:
    filters: dict[str, str | None] = {}
    for record in records:
        asked = [spoken(value, "user")[0] for value in values(record.value, layout.question or ("",))]
        question = question_in(asked[0] or "") if asked else ""
        if filters.setdefault(question, filtered(record.value)) != filtered(record.value):
            continue
        golds = [value for value in values(record.value, layout.gold or ("",)) if not is_missing(value)]
        found = values(record.value, layout.completions)
        thoughts = values(record.value, layout.thinking) if layout.thinking else [None] * len(found)
        for value, beside in zip(found, thoughts, strict=True):
            said, thought = spoken(value, "assistant")
            if thought := thought or beside or "":
                said = f"{TAGS.start}{thought}{TAGS.close}{said or ''}"
            if is_missing(said):
                raise DataError(
                    record.file,
                    f"{record.place} has an empty completion in {spelled(layout.completions)}, which cannot "
                    "be probed; leave it out, or import answers and lengths: autotts-jax data import",
                )
            yield record.place, {QUESTION: question, COMPLETION: said, GOLD: golds[0] if golds else None}
