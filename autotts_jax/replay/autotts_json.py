"""AutoTTS JSON and raw Parallel-Probe JSONL: one cell, its questions as JSON objects.

Both have ``question``, ``gold_answer``, ``probe_freq`` (tokens between two probes) and
``final_answers_trace`` (the final answer of each branch). They differ in how they record the branches:

- AutoTTS: ``each_branch``, triples of the probes' answers, the tokens and the final answer;
- Parallel-Probe: ``probe_matrix_mxn``, rows of answers that end in nulls, and ``branch_tokens``.

Both may have ``signals``: by name, for each branch a list with a number for each probe and the final answer.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from autotts_jax.errors import DataError, InputError, TooLargeError
from autotts_jax.files import read_bytes, write_atomically
from autotts_jax.parsing import check_size
from autotts_jax.replay.dataset import EQUIV, EXACT, Cell, ProbeDataset, Question, check_encoding
from autotts_jax.replay.encoding import encode_exact, merge_equivalent
from autotts_jax.replay.fields import check_fields, check_type, check_types
from autotts_jax.replay.flat import FlatMatrix, flatten, pad, to_dataset
from autotts_jax.replay.json_values import parse_values
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.replay.signals import DTYPE
from autotts_jax.terminal import counted_branches

_FIELDS = {"question": str, "gold_answer": object, "probe_freq": int, "final_answers_trace": list}
_AUTOTTS_FIELDS = _FIELDS | {"each_branch": list}
_PARALLEL_PROBE_FIELDS = _FIELDS | {"probe_matrix_mxn": list, "branch_tokens": list}
_MAX_INT32 = np.iinfo(np.int32).max

Triple = tuple[Sequence[str], int, str]
"""A branch: the answers of its probes, its tokens, and its final answer."""


def read_json(
    path: str | Path, encoding: str = EXACT, model: str | None = None, benchmark: str | None = None
) -> ProbeDataset:
    """Reads one cell from AutoTTS JSON or from Parallel-Probe JSONL; the content tells which it is.

    Args:
        path: a JSON list of questions, or one JSON object a line; either kind of question in either.
        encoding: `EXACT` or `EQUIV`.
        model: name of the model; by default the name of the file's folder.
        benchmark: name of the benchmark; by default the file's name without its suffix.

    Returns:
        A dataset of one cell.

    Raises:
        DataError: the file cannot be read, or is not a complete, consistent probe matrix.
        InputError: the encoding is unknown, or is `EQUIV` and latex2sympy2_extended is not installed.
    """
    check_encoding(encoding)
    content = read_bytes(path)
    # Not resolved: download caches link telling names to files without.
    absolute = Path(os.path.abspath(path))  # noqa: PTH100
    records = [record for _, record in parse_values(path, content)]
    dataset = from_records(
        records,
        source=os.fsencode(path).decode(errors="replace"),
        sha256=hashlib.sha256(content).hexdigest(),
        model=model or absolute.parent.name,
        benchmark=benchmark or absolute.stem,
    )
    return merge_equivalent(dataset) if encoding == EQUIV else dataset


def from_records(
    records: Sequence[Any], *, source: str, sha256: str, model: str, benchmark: str
) -> ProbeDataset:
    """Makes a dataset of one cell from the JSON objects of its questions.

    Args:
        records: the questions, as `json.loads` returns them.
        source: where they come from; also named in messages.
        sha256: hash of the source.
        model: name of the model.
        benchmark: name of the benchmark.

    Returns:
        The dataset, in encoding `EXACT`.

    Raises:
        DataError: the records are not a complete, consistent probe matrix.
    """
    if not records:
        raise DataError(source, "holds no questions; give it at least one")
    questions = [_check_record(source, q, item) for q, item in enumerate(records)]
    _check_alike(source, questions)
    return _encode(source, questions, Cell(model, benchmark, len(questions[0].tokens), source, sha256))


def to_record(
    question: str,
    gold: str,
    interval: int,
    branches: Iterable[Triple],
    signals: Mapping[str, Sequence[Sequence[float]]] = MappingProxyType({}),
) -> dict[str, Any]:
    """Makes the JSON object of one question, with the fields and the order of the released files.

    Args:
        question: the question's text.
        gold: the reference answer.
        interval: tokens between two probes.
        branches: the branches.
        signals: the signals by name: of each branch, a number for each probe and the final answer.

    Returns:
        An object for `json.dumps`.
    """
    triples = [[list(probes), tokens, final] for probes, tokens, final in branches]
    record = {
        "question": question,
        "final_answers_trace": [final for _, _, final in triples],
        "each_branch": triples,
        "gold_answer": gold,
        "probe_freq": interval,
    }
    return record | {"signals": dict(signals)} if signals else record


def write_json(dataset: ProbeDataset, path: str | Path) -> None:
    """Writes a dataset of one cell as AutoTTS JSON, completely or not at all.

    Args:
        dataset: a dataset of one cell, in encoding `EXACT`.
        path: the file to write.

    Raises:
        TooLargeError: the file would be larger than `read_json` reads.
        InputError: the dataset has several cells, another encoding, or an answer `NONE`; or the file cannot
            be written.
    """
    if len(dataset.cells) != 1 or dataset.encoding != EXACT:
        raise InputError(
            f"{path}: AutoTTS JSON holds one cell in encoding {EXACT!r}, and the dataset has "
            f"{len(dataset.cells)} in {dataset.encoding!r}; write .npz instead"
        )
    flat = flatten(dataset)
    if NONE in flat.answers:
        raise InputError(f"{path}: AutoTTS JSON cannot hold an answer without text; write .npz instead")
    matrix = pad(flat, dataset.cells, dataset.questions)
    records = [
        to_record(
            question.text,
            question.gold,
            int(matrix.interval[q]),
            _triples(matrix, q, question),
            _signals(matrix, q),
        )
        for q, question in enumerate(dataset.questions)
    ]
    content = json.dumps(records, indent=2, ensure_ascii=False).encode()
    try:
        check_size(content)
    except ValueError as error:
        raise TooLargeError(f"{path}: {error}, or write .npz instead") from error
    write_atomically(path, content)


def _triples(matrix: ProbeMatrix, q: int, question: Question) -> Iterable[Triple]:
    """The branches of a question, from a matrix without padded branches."""
    rows = zip(matrix.answers[q].tolist(), matrix.lengths[q].tolist(), matrix.tokens[q].tolist(), strict=True)
    for ids, length, tokens in rows:
        *probes, final = [question.vocabulary[i] for i in ids[: length + 1]]
        yield probes, tokens, final


def _signals(matrix: ProbeMatrix, q: int) -> dict[str, list[list[float]]]:
    """The signals of a question, each number with the few digits that tell it from float16's others."""
    return {
        name: [
            [float(str(value)) for value in row[: length + 1]]
            for row, length in zip(np.asarray(values)[q], matrix.lengths[q], strict=True)
        ]
        for name, values in matrix.signals.items()
    }


# --- checking records


@dataclasses.dataclass(frozen=True)
class _Question:
    """One question of a file; entry b of each sequence belongs to branch b."""

    text: str
    gold: str
    interval: int
    probes: Sequence[list[str]]
    tokens: Sequence[int]
    finals: Sequence[str]
    signals: Mapping[str, np.ndarray]


def _check_record(file: object, q: int, item: Any) -> _Question:
    raw = type(item) is dict and "probe_matrix_mxn" in item
    check_fields(file, "the question", item, _PARALLEL_PROBE_FIELDS if raw else _AUTOTTS_FIELDS, q)
    probes, tokens, finals = (_parallel_probe_branches if raw else _autotts_branches)(file, q, item)
    _check_branches(file, q, probes, tokens, finals)
    if not 1 <= item["probe_freq"] <= _MAX_INT32:
        raise DataError(file, f"probe_freq is {item['probe_freq']}; give the tokens between two probes", q)
    signals = _read_signals(file, q, item.get("signals", {}), [len(row) + 1 for row in probes])
    gold = _gold(file, q, item)
    return _Question(item["question"], gold, item["probe_freq"], probes, tokens, finals, signals)


def _gold(file: object, q: int, item: dict[str, Any]) -> str:
    gold = item["gold_answer"]
    if type(gold) is not str or not gold.strip():
        raise DataError(
            file,
            f"unknown gold: gold_answer is {reprlib.repr(gold)}; give the reference answer as a string, "
            "or leave the question out",
            q,
        )
    return gold


def _autotts_branches(file: object, q: int, item: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Probes, tokens and finals from the triples of ``each_branch``."""
    triples, trace = item["each_branch"], item["final_answers_trace"]
    check_types(file, "the branch", triples, list, q)
    for branch, triple in enumerate(triples):
        if len(triple) != 3:
            raise DataError(
                file, f"{len(triple)} entries; a branch is [probe answers, tokens, final answer]", q, branch
            )
    _check_count(file, q, "final_answers_trace", trace, len(triples), "each_branch")
    probes, tokens, finals = zip(*triples, strict=True) if triples else ((), (), ())
    if list(finals) != trace:
        branch = next(b for b, final in enumerate(finals) if final != trace[b])
        raise DataError(
            file,
            f"the final answer is {reprlib.repr(finals[branch])} in each_branch and "
            f"{reprlib.repr(trace[branch])} in final_answers_trace; make them agree",
            q,
            branch,
        )
    return probes, tokens, finals


def _parallel_probe_branches(file: object, q: int, item: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Probes, tokens and finals from a matrix whose rows end in nulls."""
    rows = item["probe_matrix_mxn"]
    check_types(file, "the row of probe_matrix_mxn", rows, list, q)
    for name in ("branch_tokens", "final_answers_trace"):
        _check_count(file, q, name, item[name], len(rows), "probe_matrix_mxn")
    probes = []
    for row in rows:
        length = len(row)
        while length and row[length - 1] is None:
            length -= 1
        probes.append(row[:length])
    return probes, item["branch_tokens"], item["final_answers_trace"]


def _check_count(file: object, q: int, name: str, values: list[Any], branches: int, other: str) -> None:
    if len(values) != branches:
        raise DataError(
            file,
            f"{name} has {len(values)} entries and {other} {branches}; give one of each for every branch",
            q,
        )


def _check_branches(file: object, q: int, probes: Any, tokens: Any, finals: Any) -> None:
    if not probes:
        raise DataError(file, "no branches; record some, or leave the question out", q)
    check_types(file, "the list of probes", probes, list, q)
    check_types(file, "the number of tokens", tokens, int, q)
    check_types(file, "the final answer", finals, str, q)
    if not all(probes):
        raise DataError(file, "no probes; leave the branch out", q, list(map(bool, probes)).index(False))
    if set(map(type, itertools.chain.from_iterable(probes))) != {str}:
        for branch, row in enumerate(probes):
            for k, answer in enumerate(row):
                check_type(file, f"probe {k}", answer, str, q, branch)
    if min(tokens) < 1 or max(tokens) > _MAX_INT32:
        branch = next(b for b, count in enumerate(tokens) if not 1 <= count <= _MAX_INT32)
        raise DataError(file, f"{tokens[branch]} tokens; give a number from 1 to {_MAX_INT32}", q, branch)


def _read_signals(file: object, q: int, signals: Any, depths: Sequence[int]) -> dict[str, np.ndarray]:
    """The signals of a question by name, branch after branch."""
    check_type(file, "signals", signals, dict, q)
    flat = {}
    for name, rows in signals.items():
        signal = f"the signal {name!r:.60}"
        check_type(file, signal, rows, list, q)
        _check_count(file, q, signal, rows, len(depths), "final_answers_trace")
        check_types(file, signal, rows, list, q)
        for branch, (row, count) in enumerate(zip(rows, depths, strict=True)):
            if len(row) != count:
                raise DataError(
                    file,
                    f"{signal} has {len(row)} values, and the branch {count - 1} probes and a final answer; "
                    "give one for each",
                    q,
                    branch,
                )
            if others := [value for value in row if type(value) not in (int, float)]:
                raise DataError(file, f"{signal} has {others[0]!r:.60}; make it a number", q, branch)
        # Integers may be too large for any float; all numbers that are too large for float16 become infinite.
        values = [max(min(value, _MAX_INT32), -_MAX_INT32) for row in rows for value in row]
        with np.errstate(over="ignore"):
            flat[name] = np.array(values, DTYPE)
    return flat


def _check_alike(file: object, questions: Sequence[_Question]) -> None:
    """Checks what all questions of a cell must share."""
    first = questions[0]
    for q, question in enumerate(questions):
        if len(question.tokens) != len(first.tokens):
            raise DataError(
                file,
                f"{counted_branches(len(question.tokens))}, and {len(first.tokens)} in question 0; "
                "give every question as many",
                q,
            )
        if question.interval != first.interval:
            raise DataError(
                file,
                f"probe_freq is {question.interval}, and {first.interval} in question 0; split the file",
                q,
            )
        if question.signals.keys() != first.signals.keys():
            have, had = (", ".join(sorted(one.signals)) or "none" for one in (question, first))
            raise DataError(
                file, f"its signals are {have}, and {had} in question 0; give every question the same", q
            )


def _encode(file: object, questions: Sequence[_Question], cell: Cell) -> ProbeDataset:
    """Checked questions of one cell as a dataset in `EXACT`."""
    encoded = []
    for q, question in enumerate(questions):
        answers = [
            answer
            for row, final in zip(question.probes, question.finals, strict=True)
            for answer in (*row, final)
        ]
        encoded.append(encode_exact(answers, question.gold, file, q))
    texts = tuple(
        Question(q, question.text, question.gold, codes.vocabulary)
        for q, (question, codes) in enumerate(zip(questions, encoded, strict=True))
    )
    flat = FlatMatrix(
        answers=np.concatenate([codes.ids for codes in encoded]),
        lengths=np.array([len(row) for question in questions for row in question.probes], np.int32),
        tokens=np.array([question.tokens for question in questions], np.int32).reshape(-1),
        gold=np.array([codes.gold for codes in encoded], np.int16),
        interval=np.array([question.interval for question in questions], np.int32),
        cell=np.zeros(len(questions), np.int32),
        signals={
            name: np.concatenate([question.signals[name] for question in questions])
            for name in questions[0].signals
        },
    )
    return to_dataset(file, flat, (cell,), texts, EXACT)
