"""The candidates of a run as a table of typed columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from autotts_jax.discovery.archive.archive import Record
from autotts_jax.discovery.archive.records import WRITTEN
from autotts_jax.discovery.population import member_of, written_of
from autotts_jax.discovery.programs.rules import Program
from autotts_jax.discovery.rounds.programs import LENGTH_PRICE

SCHEMA = pa.schema(
    {
        "number": pa.int64(),
        "round": pa.int64(),
        "kind": pa.string(),
        "proposer": pa.string(),
        "parents": pa.list_(pa.int64()),
        "fold": pa.int64(),
        "program": pa.string(),
        "parts": pa.int64(),
        "source": pa.string(),
        "scores": pa.list_(pa.float64()),
        "score": pa.float64(),
        "objective": pa.float64(),
        "cost": pa.float64(),
        "width": pa.float64(),
        "metrics": pa.string(),
        "untuned": pa.string(),
        "feedback": pa.string(),
        "level": pa.string(),
        "transcript": pa.string(),
        "tokens": pa.int64(),
        "dollars": pa.float64(),
        "critic": pa.string(),
        "gated": pa.bool_(),
    }
)
"""The columns; `docs/how-to/discovery.md` explains them."""


def candidates_table(candidates: Sequence[Record]) -> pa.Table:
    """Gives candidates as an Arrow table, a row each, with the columns of `SCHEMA`."""
    return pa.Table.from_pylist([_row(record) for record in candidates], SCHEMA)


def _row(record: Record) -> dict[str, Any]:
    if "critic" in record:
        record = record | {"critic": json.dumps(record["critic"]), "gated": "gated" in record}
    if record["kind"] == WRITTEN:
        row = dict(record)
        for name in ("metrics", "untuned"):
            row[name] = None if record.get(name) is None else json.dumps(record[name])
        if record["metrics"] is not None:
            written = written_of(record)
            row |= {"score": written.score, "objective": written.score}
            row |= {"cost": written.cost, "width": written.width}
        return row
    parts = Program.from_tree(record["program"]).length
    row = record | {"program": json.dumps(record["program"]), "parts": parts, "tokens": 0, "dollars": 0.0}
    if (member := member_of(record)) is not None:
        row |= {"score": member.score, "objective": round(member.score + LENGTH_PRICE * parts, 6)}
    return row
