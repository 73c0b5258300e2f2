"""People's own answers and completions as a probe matrix, whatever the layout of their files."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import re
import statistics
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from autotts_jax.checks import check_bool, check_choice, check_int, check_label
from autotts_jax.collect.answers import Extractor, extractor
from autotts_jax.collect.branching import (
    RAGGED,
    ImportedBranch,
    even_groups,
    find_interval,
    graded,
    in_rounds,
    make_dataset,
    of_completions,
)
from autotts_jax.collect.gathering import Gatherer, TokenCounter
from autotts_jax.collect.grader import Form
from autotts_jax.collect.graders import open_grader
from autotts_jax.collect.known_questions import GatheredQuestion, KnownQuestions
from autotts_jax.collect.layouts import (
    SAMPLE,
    FieldPath,
    Layout,
    failure,
    parse_path,
    recognise,
    sums_up,
    values,
    without_summaries,
)
from autotts_jax.collect.records import FileRecord, OnProgress, find_sources, inner_records, read_records
from autotts_jax.collect.releases import MATRIX_FIELDS
from autotts_jax.errors import DataError, InputError, InputWarning
from autotts_jax.files import destination
from autotts_jax.replay.compact import write_compact
from autotts_jax.replay.dataset import Cell, ProbeDataset
from autotts_jax.replay.spelling import ERROR

GIVEN = "given"
"""The extractor of answers that were extracted already."""

_TRIED = 8
"""Lists inside of an object that may be its records."""
_LONG_GOLD = 200
_LOOKS, _SHOWN = 3, 4
"""Questions, and completions of each, that are shown as they were understood."""

_MARKUP = re.compile(r"\\(?:left|right|[,;:!])|\\?\$|(?<=\d),(?=\d{3})|(?<!\w)\s|\s(?!\w)|\.0*$")
_FRACTION = re.compile(r"(?<!\d)\\[dt]?frac ?(?:\{(\w+)\} ?\{(\w+)\}|(\d)(\d))")


@dataclasses.dataclass(frozen=True)
class QuestionLook:
    """A question as it was understood.

    Attributes:
        question: its text.
        gold: the reference answer as it was extracted.
        completions: how many completions it has.
        answers: what was extracted from the first of them.
        tokens: their lengths.
        right: whether they are right.
    """

    question: str
    gold: str
    completions: int
    answers: tuple[str, ...]
    tokens: tuple[int, ...]
    right: tuple[bool, ...]


@dataclasses.dataclass(frozen=True)
class Imported:
    """What `import_answers` has made of files.

    Attributes:
        dataset: the probe matrix.
        layout: the layout that was recognised, in words.
        looks: the first questions as they were understood.
        errors: share of completions without an answer.
        notes: what a user should know of it.
    """

    dataset: ProbeDataset
    layout: str
    looks: tuple[QuestionLook, ...]
    errors: float
    notes: tuple[str, ...]


def import_answers(
    files: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    *,
    question: str | None = None,
    completions: str | None = None,
    gold: str | None = None,
    tokens: str | None = None,
    questions: str | Path | None = None,
    model: str | None = None,
    benchmark: str | None = None,
    answers: str | Extractor | None = None,
    grader: str | Form | None = None,
    tokenizer: str | None = None,
    interval: int | None = None,
    ragged: str = "cut",
    raw_prompts: bool = False,
    limit: int | None = None,
    on_progress: OnProgress | None = None,
) -> Imported:
    """Makes a probe matrix of answers or completions that exist, whatever the layout of their files.

    The layout is recognised from the content: rows with a completion each, lists of texts, of objects or of
    conversations, answers with lengths, rounds of probes. Field paths as ``doc.question`` or ``resps[*][0]``
    say where something is that is not recognised. All files together are one cell, of one model: where the
    records or the files' names say that they are of several, this is an error unless ``model`` is given.
    Matrices of answers and completions have no probes: controllers that read branches to their ends play on
    them.

    An answer is ``ERR`` where a completion is missing, empty, or was cut off.

    Args:
        files: files, folders and glob patterns; `records.read_records` says what is read.
        out: the compact file to write; by default none.
        question: field path of the questions.
        completions: field path of the completions, or of answers that were extracted from them.
        gold: field path of the reference answers.
        tokens: field path of the tokens of each completion: numbers, or lists of token ids.
        questions: a file with questions and reference answers, where the files lack them. A question is found
            in it by its text or its id; an id may have the number of a sample behind, or all may number them.
        model: name of the model; by default what the files say, or the folder's name.
        benchmark: name of the questions; by default that of the file.
        answers: how answers are extracted, as for `extractor`, or ``given`` where they are answers already;
            by default ``auto`` for texts.
        grader: how answers are brought into canonical forms, as for `open_grader`; by default ``math`` for
            what is extracted from texts, and nothing for given answers.
        tokenizer: a model's folder or Hugging Face id, whose tokenizer counts tokens where the files do not
            say how many there are. Without one, four characters count as a token.
        interval: Δ, the tokens that a controller reads at a time; by default that of the rounds, or 500, or
            less where the mean completion has fewer than 16 such intervals.
        ragged: what to do where questions have more completions than others: ``cut`` uses as many of each,
            ``keep`` makes a cell for each number of completions, ``refuse`` raises.
        raw_prompts: whether prompts are the questions as they are, even if they look templated.
        limit: how many records to read from the start; by default all.
        on_progress: called with what is running, how many bytes are read, and how many there are.

    Returns:
        The dataset, how the files were understood, and what looks wrong, of which there are also warnings.

    Raises:
        InputError: an argument is wrong, a path matches no file, or a package is missing.
        DataError: a file is damaged, or its layout cannot be recognised; the message says what is there and
            which argument helps.

    Example:
        >>> import json, pathlib
        >>> import autotts_jax as at
        >>> row = {"question": "What is 6 times 7?", "answers": ["42", "42", "41"], "tokens": [310, 290, 900]}
        >>> _ = pathlib.Path("answers.jsonl").write_text(json.dumps(row | {"gold": "42"}))
        >>> imported = at.import_answers("answers.jsonl", "answers.npz", model="m")
        >>> imported.layout
        'answers in answers[*]; question question, gold gold, tokens tokens[*]'
        >>> imported.dataset
        ProbeDataset of 1 questions: m/answers (3 branches)
    """
    paths = {"question": question, "completions": completions, "gold": gold, "tokens": tokens}
    told = {name: parse_path(name, path) for name, path in paths.items() if path is not None}
    check_choice("ragged", ragged, RAGGED)
    check_bool("raw_prompts", raw_prompts)
    interval = None if interval is None else check_int("interval", interval, 1)
    limit = None if limit is None else check_int("limit", limit, 1)
    if out is not None and destination(out).suffix != ".npz":
        raise InputError(f"out is {str(out)!r}, but it must be a compact file; let its name end in .npz")
    known = None if questions is None else KnownQuestions.read(questions, told)
    sources = find_sources(files)
    passed_over: list[FileRecord] = []
    every = read_records(sources, on_progress)
    records = itertools.islice(without_summaries(every, told, known is not None, passed_over), limit)
    sample, layout = _recognised(sources[0], records, told, known is not None, passed_over)
    if answers is not None:
        layout = dataclasses.replace(layout, given=answers == GIVEN)
    if not layout.given and layout.probes is None:
        extractor(answers or "auto")  # a bad specification is an error before anything is read
    listed = layout.tokens and any(
        isinstance(one, list) for record in sample for one in values(record.value, layout.tokens)
    )
    counter = TokenCounter(tokenizer, told.get("tokens") if listed else layout.tokens)
    gatherer = Gatherer(layout, answers or "auto", counter, known, raw_prompts, model)
    held = hashlib.sha256()
    for record in itertools.chain(sample, records):
        held.update(gatherer.add(record).encode())
    gathered = gatherer.finished()
    notes = counter.notes()
    estimated = bool(notes)
    notes += gatherer.notes
    if passed_over:
        first, *others = passed_over
        more = f" and {len(others)} more" if others else ""
        why = "a summary, without completions" if sums_up(first) else "it has other fields than the rest"
        notes.append(f"{first.place} of {first.file.name}{more} passed over: {why}")
    of_question = {
        text: in_rounds(one) if one.rounds else of_completions(one) for text, one in gathered.items()
    }
    interval = find_interval(gathered, of_question.values(), interval)
    with_form = grader if grader is not None else (None if layout.given else "math")
    golds = {text: one.gold or "" for text, one in gathered.items()}
    if with_form is not None:
        if on_progress:
            on_progress("grading", 0, 0)
        with open_grader(with_form) as opened:
            golds, of_question = graded(opened, gathered, of_question)
    else:
        notes += _spelled_otherwise(golds, of_question)
    notes += _odd(gathered, golds, of_question, estimated)
    named = files if isinstance(files, str | Path) else files[0]
    place = Path(named) if Path(named).is_dir() else sources[0]
    cell = Cell(
        check_label("model", gatherer.model or place.resolve().parent.name or "model"),
        check_label("benchmark", benchmark or place.name.partition(".")[0] or "benchmark"),
        0,
        str(place),
        held.hexdigest(),
        layout.probes is not None,
    )
    groups, note = even_groups(sources[0], of_question, ragged)
    dataset = make_dataset(place, cell, groups, golds, interval)
    for message in (*notes, *note):
        warnings.warn(f"{place}: {message}", InputWarning, stacklevel=2)
    if out is not None:
        write_compact(dataset, out)
    return Imported(
        dataset,
        f"{layout}{known.joined if known else ''}",
        tuple(_look(text, golds[text], of_question[text]) for text in itertools.islice(of_question, _LOOKS)),
        _share_of_errors(of_question.values()),
        (*notes, *note),
    )


def _recognised(
    source: Path,
    records: Iterator[FileRecord],
    told: Mapping[str, FieldPath],
    gold_elsewhere: bool,
    passed_over: Sequence[FileRecord],
) -> tuple[list[FileRecord], Layout]:
    """The first records, or those inside of a file's only object, and the layout of those that succeeded."""
    sample, good = list[FileRecord](), list[FileRecord]()
    while len(good) < SAMPLE and (record := next(records, None)):
        sample.append(record)
        if failure(record.value) is None:
            good.append(record)
    if not sample and any(map(sums_up, passed_over)):
        raise DataError(
            source,
            "sums up a run and has no completions; name the samples_*.jsonl beside it, which lm_eval writes "
            "with --log_samples",
        )
    if not sample:
        raise DataError(source, "has no records; name files with completions")
    if not MATRIX_FIELDS.isdisjoint(sample[0].value):
        raise DataError(
            source, "is a probe matrix already: name it as --data, or convert it by autotts-jax data convert"
        )
    try:
        return sample, recognise(good or sample, told, gold_elsewhere)
    except DataError:
        lists = inner_records(sample) if len(sample) < SAMPLE else []  # all that there are
        while lists:
            for inner in lists[:_TRIED]:
                with contextlib.suppress(DataError):
                    layout = recognise(inner[:SAMPLE], told, gold_elsewhere)
                    alike = [one for one in lists if one is inner or _reads(layout, one, inner)]
                    return [*itertools.chain.from_iterable(alike)], layout
            lists = inner_records(lists[0])
        if good:
            raise
        raise DataError(
            sample[0].file,
            f"all {len(sample):,} requests failed, the first that of {sample[0].place} "
            f"({failure(sample[0].value):.80}); send them again",
        ) from None


def _reads(layout: Layout, records: Sequence[FileRecord], chosen: Sequence[FileRecord]) -> bool:
    """Whether a layout reads other records than those of which it was recognised, and not the same again."""
    needed = (layout.completions, layout.question or layout.key or ())
    part, other = f"{records[0].part}.", f"{chosen[0].part}."
    apart = not (part.startswith(other) or other.startswith(part))
    return apart and all(values(records[0].value, path) not in ([], [None]) for path in needed)


def _look(text: str, gold: str, branches: Sequence[ImportedBranch]) -> QuestionLook:
    finals = tuple(branch.answers[-1] for branch in branches[:_SHOWN])
    return QuestionLook(
        text,
        gold,
        len(branches),
        finals,
        tuple(branch.tokens for branch in branches[:_SHOWN]),
        tuple(answer == gold for answer in finals),
    )


def _share_of_errors(branches: Iterable[Sequence[ImportedBranch]]) -> float:
    return statistics.fmean(branch.answers[-1] == ERROR for own in branches for branch in own)


def _spelled_otherwise(
    golds: Mapping[str, str], branches: Mapping[str, Sequence[ImportedBranch]]
) -> list[str]:
    """What to do where answers are wrong by their spelling alone."""
    answers = ((branch.answers[-1], golds[text]) for text, own in branches.items() for branch in own)
    pairs = [
        (answer, gold) for answer, gold in answers if answer != gold and _bare(answer) == _bare(gold) != ""
    ]
    if not pairs:
        return []
    answer, gold = pairs[0]
    return [
        f"{len(pairs):,} answers differ from the reference answer by their spelling alone, as {answer!r} "
        f"from {gold!r}, and are wrong; --grader math compares answers as mathematics"
    ]


def _bare(answer: str) -> str:
    """An answer without what is often written differently: spaces, signs, the form of a fraction."""
    return _MARKUP.sub("", _FRACTION.sub(r"\1\3/\2\4", answer))


def _odd(
    gathered: Mapping[str, GatheredQuestion],
    golds: Mapping[str, str],
    branches: Mapping[str, Sequence[ImportedBranch]],
    estimated: bool,
) -> list[str]:
    """What looks wrong; lengths that are estimates say nothing."""
    notes = []
    lengths = Counter(branch.tokens for own in branches.values() for branch in own)
    count = lengths.total()
    if _share_of_errors(branches.values()) == 1:
        notes.append(
            "no completion has an answer; name the completions by --completions, or a rule by --answers"
        )
    elif not any(branch.answers[-1] == golds[text] for text, own in branches.items() for branch in own):
        notes.append("no completion reaches a reference answer; check --gold, --answers and --grader")
    if long := [one.gold for one in gathered.values() if len(one.gold or "") > _LONG_GOLD]:
        notes.append(
            f"{len(long)} reference answers have more than {_LONG_GOLD} characters, as {long[0]!r:.60}; name "
            "the field of the answers by --gold"
        )
    if not estimated and count > 4 and len(lengths) == 1:
        notes.append(
            f"all {count:,} completions have {next(iter(lengths)):,} tokens; check the field of the lengths "
            "(--tokens), and whether all were cut off"
        )
    return notes
