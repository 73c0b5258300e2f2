"""How a file holds questions and their completions: recognised by its structure, or told by field paths.

A field path names what stands in a record: ``doc.question``, ``resps[*][0]``, ``outputs[*].text``. ``[*]`` is
every entry of a list, or of an object whose keys are numbers.

Names of fields only choose among those whose structure fits: completions are the longest texts of a list, of
a list of objects, of the last message of a conversation, or of a row; answers with lengths are pairs.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from autotts_jax.checks import check_text
from autotts_jax.collect.records import FileRecord, Numeral
from autotts_jax.collect.rows import is_missing
from autotts_jax.errors import DataError, InputError

EVERY = "*"
FieldPath = tuple[str, ...]
"""The keys and indices that lead to a value. `EVERY` is each entry; ``name_*`` is name_0, name_1, …"""

SAMPLE = 32
"""Records that a layout is recognised by."""

_STEP = re.compile(r"(?:^|\.)([^.\[\]]+)|\[(\*|\d+)\]")
_LAST_NUMBER = re.compile(r"\d+(?=\D*\Z)", re.ASCII)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_LABEL = 100
"""Characters that a name or a date in a summary has at most."""
_SHOWN = 12
"""Fields that a message names."""

# Words in names of fields, the more telling first. They choose among fields that could be it by structure.
_QUESTION = ("question", "problem", "query", "instruction", "exercise", "task", "prompt", "input", "q")
_GOLD = (
    *("gold", "gt", "truth", "groundtruth", "target", "reference", "ref", "expected", "correct", "true"),
    *("label", "answer", "ans", "solution"),
)
_COMPLETION = (
    *("completion", "response", "resp", "generation", "generated", "output", "sample", "choice", "rollout"),
    *("trace", "candidate", "reply", "attempt", "trajectory", "prediction", "pred", "message", "assistant"),
    *("continuation", "outcome"),
)
_WORKED = ("cot", "rationale", "reasoning", "explanation", "step", "work")
_DERIVED = (
    *("extracted", "filtered", "majority", "count", "total", "parsed", "score", "hash", "uuid", "reason"),
    *("reward", "type", "level", "source", "split", "metric", "error", "refusal", "argument", "arg"),
    *("id", "idx", "role", "object", "probe", "finish"),
)
_THEIRS = ("predicted", "pred", "prediction", "model", "final", "response", "output")
"""Whose answer it is: not the reference."""
_NUMBERED = ("id", "idx", "index", "num", "number", "key", "no", "abbr", "qid")
_OWNERS = ("custom", "question", "problem", "doc", "task", "prompt", "example", "qid")
_OF_SAMPLES = (
    *("rollout", "trial", "attempt", "repeat", "rep", "run", "try", "seed", "draw", "branch", "epoch"),
    *("completion", "response", "generation", "gen", "candidate", "choice", "iteration", "iter"),
)
"""What is numbered within a question."""
_COUNTED = ("char", "word", "step", "turn")
_ASKING = ("user", "system", "human")
_SAYING = ("content", "value", "text", "prompt")
_THINKING = ("reasoning", "thinking", "thought")
_FAILURE = ("error", "errors")
_FINISH = re.compile(r"(?:finish|stop|end|done)_?(?:reasons?|type)", re.IGNORECASE)
_LENGTH = ("token", "length", "len", "tok")
_NO_LENGTH = (
    *("prompt", "input", "max", "total", "id", "prob", "logprob", "cached", "question", "per", "min"),
    *_THINKING,
)


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where a record holds what is needed.

    Attributes:
        completions: its completions, or its answers.
        question: the question's text; None where it has only a number.
        gold: the reference answer; None where it is in a file of its own.
        key: what numbers the question, where it has no text.
        tokens: the number of tokens of each completion, or its token ids; None where nothing tells it.
        finish: why each completion ended.
        thinking: the thinking that stands before each completion.
        confidences: a confidence for each token.
        given: whether the completions are answers already.
        probes: the answers that were forced at the end of a round; then a record is a round.
        budget: the tokens that a branch may have had at the end of the round.
        model: the name of the model.
    """

    completions: FieldPath
    question: FieldPath | None = None
    gold: FieldPath | None = None
    key: FieldPath | None = None
    tokens: FieldPath | None = None
    finish: FieldPath | None = None
    thinking: FieldPath | None = None
    confidences: FieldPath | None = None
    given: bool = False
    probes: FieldPath | None = None
    budget: FieldPath | None = None
    model: FieldPath | None = None

    def __str__(self) -> str:
        kind = "rounds of probes" if self.probes else "answers" if self.given else "completions"
        told = [
            f"{name} {spelled(path)}"
            for name in ("question", "key", "gold", "tokens", "finish", "thinking", "confidences", "probes")
            if (path := getattr(self, name)) is not None
        ]
        return f"{kind} in {spelled(self.completions)}; {', '.join(told)}"


def parse_path(name: str, path: str) -> FieldPath:
    """Parses a field path.

    Args:
        name: what the argument is called, for the message.
        path: the path.

    Returns:
        Its steps.

    Raises:
        InputError: it is no such path.
    """
    steps, end = [], 0
    for match in _STEP.finditer(check_text(name, path)):
        if match.start() != end:
            break
        steps.append(match[1] or match[2])
        end = match.end()
    if not steps or end != len(path):
        raise InputError(
            f"{name} is {path!r:.60}, which is not a field path; write one as doc.question or resps[*][0]"
        )
    return tuple(steps)


def spelled(path: FieldPath) -> str:
    """Writes a field path as users write it."""
    written = "".join(f"[{step}]" if step == EVERY or step.isdecimal() else f".{step}" for step in path)
    return written.removeprefix(".")


def many_in(path: FieldPath) -> int:
    """How many steps of a path lead to any number of values."""
    return sum(EVERY in step for step in path)


def values(record: Any, path: FieldPath) -> list[Any]:
    """Looks up what a path leads to.

    Args:
        record: the record.
        path: the path.

    Returns:
        The values, None for what is missing: one, or where the path has `EVERY` any number.
    """
    if not path:
        return [record]
    step, rest = path[0], path[1:]
    if step == EVERY and (inside := entries(record)) is not None:
        return [value for one in inside for value in values(one, rest)]
    if isinstance(record, dict) and EVERY in step:
        return [value for name in _numbered(record).get(step, ()) for value in values(record[name], rest)]
    if step == EVERY:
        return []
    if isinstance(record, dict):
        return values(record.get(step), rest)
    if isinstance(record, list) and step.isdecimal() and int(step) < len(record):
        return values(record[int(step)], rest)
    return [None]


def _numbered(record: Mapping[str, Any]) -> dict[str, list[str]]:
    """The names that differ in their last number alone, as answer_0 and answer_1, in the order of it."""
    families: dict[str, list[str]] = {}
    for name in record:
        stem = _LAST_NUMBER.sub(EVERY, str(name))
        if stem != name and stem.count(EVERY) == 1:
            families.setdefault(stem, []).append(name)
    return {
        stem: sorted(names, key=lambda name: int(_LAST_NUMBER.findall(name)[0]))
        for stem, names in families.items()
        if len(names) > 1
    }


def entries(value: Any) -> list[Any] | None:
    """The entries of a list, or of an object whose keys are numbers; None of anything else."""
    if isinstance(value, list):  # what a server has thought stands beside its messages
        return [one for one in value if not (isinstance(one, dict) and one.get("type") == "reasoning")]
    if isinstance(value, dict) and value and all(str(key).isdecimal() for key in value):
        return [value[key] for key in sorted(value, key=int)]
    return None


# --- conversations and pairs


def conversation(value: Any) -> bool:
    """Tells whether a value is a list of messages, each with its role."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(one, dict) and _role(one) is not None and len(one) > 1 for one in value)
    )


def _role(message: Mapping[str, Any]) -> str | None:
    role = next((message[name] for name in ("role", "from", "speaker") if name in message), None)
    if not isinstance(role, str):
        return None
    return {"human": "user", "gpt": "assistant", "model": "assistant", "bot": "assistant"}.get(
        role.lower(), role.lower()
    )


def spoken(value: Any, role: str) -> tuple[str | None, str]:
    """Finds what somebody said last.

    Args:
        value: a text, or a conversation.
        role: whose part of a conversation is meant, ``user`` or ``assistant``.

    Returns:
        The text, None if there is none, and the thinking before it.
    """
    if isinstance(value, list) and all(isinstance(part, dict) for part in value):
        if conversation(value):
            turns = [message for message in value if _role(message) == role]
            return spoken(turns[-1], role) if turns else (None, "")
        # Parts of a message, each of a kind.
        parts = {
            kind: "".join(part[kind] for part in value if isinstance(part.get(kind), str))
            for kind in ("text", "thinking")
        }
        return parts["text"] or None, parts["thinking"]
    if isinstance(value, dict):
        content = next((value[name] for name in _SAYING if name in value), None)
        said, thought = spoken(content, role)
        for name, part in value.items():
            if isinstance(part, str) and words((name,))[-1] in (*_THINKING, "content") and name != "content":
                thought = thought or part
        return said, thought
    return (None if value is None else str(value)), ""


def is_pair(value: Any) -> bool:
    """Tells whether a value is an answer and its number of tokens."""
    return (
        isinstance(value, list)
        and len(value) == 2
        and (value[0] is None or _is_text(value[0]))
        and is_number(value[1])
    )


def filtered(record: Mapping[str, Any]) -> str | None:
    """Tells by which of several filters an answer was found in the completions of a record.

    lm-evaluation-harness writes the completions of a question once for each filter.

    Args:
        record: the record.
    """
    name = record.get("filter")
    return name if isinstance(name, str) else None


def failure(value: Any) -> str | None:
    """Finds why a request failed, as servers and batches say it beside, or in place of, their reply.

    Args:
        value: a record, or an object in it.

    Returns:
        The reason; None where nothing says that it failed.
    """
    if not isinstance(value, Mapping):
        return None
    for told in map(value.get, _FAILURE):
        if isinstance(told, dict) and told:
            return str(told.get("message") or told.get("code") or told)
        if _is_text(told) and not is_missing(told):
            return str(told)
    status, kind = value.get("status_code"), value.get("type")
    if is_number(status) and float(str(status)) >= 400:
        return f"status {status}"
    if kind in ("errored", "expired", "canceled"):
        return str(kind)
    return next(filter(None, map(failure, value.values())), None)


def is_said(value: Any) -> bool:
    """Tells whether a value is a text, a number, a message or several, or nothing."""
    if isinstance(value, list):
        return all(isinstance(part, dict) for part in value)
    if isinstance(value, dict):
        return not {*_SAYING, *_THINKING, "role"}.isdisjoint(words([*value]))
    return value is None or isinstance(value, str) or is_number(value)


def is_number(value: Any) -> bool:
    """Tells whether a value is a number; one of YAML, JSON or Parquet, not text."""
    return isinstance(value, int | float | Numeral) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, Numeral)


def words(path: Sequence[str]) -> list[str]:
    """The words of the names in a path, in lower case and the singular."""
    found = [word.lower() for name in path if name != EVERY for word in _WORD.findall(name)]
    return [
        word[:-1] if len(word) > 2 and word.endswith("s") and word[-2] != "s" else word for word in found
    ] or [""]


# --- recognising


@dataclasses.dataclass
class _Column:
    """What the sampled records have at a path."""

    path: FieldPath
    kind: str  # text, number, numbers, flag, conversation, pair
    found: list[Any]
    records: int

    @property
    def many(self) -> int:
        return many_in(self.path)

    @property
    def mean(self) -> float:
        """Mean length of its texts."""
        said = [spoken(value, "assistant")[0] or "" for value in self.found]
        return sum(map(len, said)) / max(1, len(said))

    @property
    def last_name(self) -> list[str]:
        """The last name in its path, if there is one."""
        return [name for name in self.path if name != EVERY][-1:]

    def named(self, known: Sequence[str]) -> int | None:
        """How telling the last name in its path is that has a known word: 0 is the most; None without one."""
        for name in reversed(self.path):
            own = words((name,))
            if found := [known.index(word) for word in (*own, "".join(own)) if word in known]:
                return min(found)
        return None

    def last(self, known: Sequence[str]) -> bool:
        """Whether the last name in its path has one of some words."""
        return not set(words(self.last_name)).isdisjoint(known)


def without_summaries(
    records: Iterable[FileRecord],
    told: Mapping[str, FieldPath],
    gold_elsewhere: bool,
    passed_over: list[FileRecord],
) -> Iterator[FileRecord]:
    """Passes over what sums up the other records of a file, as its first or its last, or a run's files.

    Args:
        records: the records.
        told: as for `recognise`.
        gold_elsewhere: as for `recognise`.
        passed_over: the records to which those are added that are passed over.

    Yields:
        The others.
    """
    before: FileRecord | None = None
    for record, after in itertools.pairwise(itertools.chain(records, [None])):
        assert record is not None
        beside = [one for one in (before, after) if one is not None and one.file == record.file]
        before = record
        if sums_up(record) or (len(beside) == 1 and _is_apart(record, beside[0], told, gold_elsewhere)):
            passed_over.append(record)
        else:
            yield record


def sums_up(record: FileRecord) -> bool:
    """Tells whether a record is the results of a whole run, as lm-evaluation-harness writes them."""
    return all(isinstance(record.value.get(name), dict) for name in ("results", "configs", "versions"))


def _is_apart(
    record: FileRecord, beside: FileRecord, told: Mapping[str, FieldPath], gold_elsewhere: bool
) -> bool:
    """Whether a record has other names than the one beside it, no id or text, and is not recognised."""
    shared = record.value.keys() & beside.value.keys()
    numbered = any(
        not {*_NUMBERED}.isdisjoint(own) and {"run", "model"}.isdisjoint(own)
        for own in (words((name,)) for name in shared)
    )
    if numbered or any(_is_text(one) and len(one) > _LABEL for one in record.value.values()):
        return False
    if 2 * len(shared) >= min(len(record.value), len(beside.value)) or failure(record.value):
        return False
    try:
        recognise([record], told, gold_elsewhere)
    except DataError:
        return True
    return False


def recognise(
    records: Sequence[FileRecord], told: Mapping[str, FieldPath], gold_elsewhere: bool = False
) -> Layout:
    """Recognises how records hold questions and completions.

    Args:
        records: the first records of the files, at least one.
        told: paths that the user has given, by the attribute of `Layout`.
        gold_elsewhere: whether questions and reference answers are in a file of their own.

    Returns:
        The layout.

    Raises:
        DataError: a path leads nowhere, or the completions, the questions or their reference answers cannot
            be told from other fields.
    """
    columns = _columns(records)
    first = records[0]
    for name, path in told.items():
        if all(value is None for record in records for value in values(record.value, path) or [None]):
            raise DataError(
                first.file,
                f"{first.place} has nothing at {spelled(path)}, which --{name} names; it has "
                f"{_listed(columns)}",
            )
    if rounds := _rounds(records, columns, told):
        return rounds
    most = max((column.records for column in columns), default=0)
    common = [column for column in columns if 2 * column.records > most]
    question = told.get("question") or _question(common) or _question(columns)
    completions = told.get("completions") or _completions(common, question) or _completions(columns, question)
    if completions is None:
        raise DataError(
            first.file,
            f"no field of {first.place} can be recognised as completions or answers; it has "
            f"{_listed(columns)}; name one by --completions, as --completions 'outputs[*].text'",
        )
    beside = [column for column in columns if column.path != completions]
    gold = told.get("gold") or _gold([column for column in beside if column.path != question])
    key = None if question else _key(beside, records, gold, not many_in(completions))
    if question is None and key is None:
        raise DataError(
            first.file,
            f"no field of {first.place} can be recognised as the question or its number; it has "
            f"{_listed(columns)}; name one by --question, as --question doc.question",
        )
    if gold is None and not gold_elsewhere:
        raise DataError(
            first.file,
            f"no field of {first.place} can be recognised as the reference answer; it has {_listed(columns)}"
            "; name one by --gold, or a file with questions and answers by --questions",
        )
    twin = (completions[0], *(question or ())[1:])
    if twin[1:] and twin != question and any(column.path == twin for column in columns):
        raise DataError(
            first.file,
            f"{first.place} has a question in {spelled(question or ())} and in {spelled(twin)}; if these are "
            "several models or runs, give each a file of its own, or name fields by --question, "
            "--completions and --gold",
        )
    of_each = [column for column in beside if column.path not in (question, gold)]
    many = many_in(completions)
    own = _own(of_each, completions)
    found = [value for record in records for value in values(record.value, completions)]
    pairs = bool(found) and all(map(is_pair, found))
    return Layout(
        completions,
        question,
        gold,
        key,
        tokens=told.get("tokens")
        or (None if pairs else _tokens(own, many, len(found) == len(records)) or _pieces(of_each, many)),
        finish=_first(own, _is_finish, True) or _first(own, _is_cut, True),
        thinking=_first(own, lambda column: column.kind == "text" and column.last(_THINKING)),
        confidences=_confidences(own),
        given=bool(found) and _are_answers([value[0] for value in found] if pairs else found, pairs),
        model=_model(columns, completions),
    )


def recognise_questions(
    records: Sequence[FileRecord], told: Mapping[str, FieldPath]
) -> tuple[FieldPath, FieldPath, FieldPath | None]:
    """Recognises how records hold questions and reference answers alone.

    Args:
        records: the first records, at least one.
        told: paths that the user has given, used where they lead somewhere.

    Returns:
        The paths of the question, of the reference answer, and of its number or id if there is one.

    Raises:
        DataError: they cannot be told from other fields.
    """
    columns = _columns(records)

    def given(name: str) -> FieldPath | None:
        path = told.get(name)
        return path if path and any(values(record.value, path) != [None] for record in records) else None

    question = given("question") or _question(columns)
    gold = given("gold") or _gold([column for column in columns if column.path != question])
    if question is None or gold is None:
        missing = "question" if question is None else "reference answer"
        raise DataError(
            records[0].file,
            f"no field of {records[0].place} can be recognised as the {missing}; it has {_listed(columns)}; "
            "call them question and answer",
        )
    return question, gold, _key(columns, records, gold, False)


def _columns(records: Sequence[FileRecord]) -> list[_Column]:
    columns: dict[tuple[FieldPath, str], _Column] = {}
    for record in records:
        seen = set()
        for path, kind, value in _leaves(record.value, ()):
            column = columns.setdefault((path, kind), _Column(path, kind, [], 0))
            column.found.append(value)
            column.records += (path, kind) not in seen
            seen.add((path, kind))
    most = {path: max(c.records for c in columns.values() if c.path == path) for path, _ in columns}
    return [
        column  # and not a text among lists, or a list among texts
        for column in columns.values()
        if most[column.path] >= max(most.get((*column.path, EVERY), 0), most.get(column.path[:-1], 0))
    ]


def _leaves(value: Any, path: FieldPath) -> Iterator[tuple[FieldPath, str, Any]]:
    inside = entries(value)
    of_objects = isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)
    if conversation(value) or (of_objects and (all(map(_is_part, value)) or path[-1:] == ("parts",))):
        yield path, "conversation", value
    elif is_pair(value):
        yield path, "pair", value
    elif inside and all(map(is_number, inside)):
        yield path, "numbers", inside
    elif inside is not None:
        for one in inside:
            yield from _leaves(one, (*path, EVERY))
    elif isinstance(value, dict):
        families = {
            stem: names
            for stem, names in _numbered(value).items()
            if _are_alike([value[name] for name in names])
        }
        alone = value.keys() - {name for names in families.values() for name in names}
        for name, one in value.items():
            if name in alone and str(name).lower() not in _FAILURE:
                yield from _leaves(one, (*path, str(name)))
        for stem, names in families.items():
            for name in names:
                yield from _leaves(value[name], (*path, stem))
    elif is_number(value):
        yield path, "number", value
    elif isinstance(value, str):
        yield path, "text", value
    elif isinstance(value, bool):
        yield path, "flag", value


def _are_alike(found: Sequence[Any]) -> bool:
    """Whether values are all texts or numbers, or all objects that share a name."""
    if all(isinstance(one, dict) for one in found):
        return bool(set.intersection(*map(set, found)))
    return all(one is None or isinstance(one, str) or is_number(one) for one in found)


def _is_part(value: Mapping[str, Any]) -> bool:
    """Whether a value is a part of a message, as {"type": "text", "text": "…"}."""
    kind = value.get("type")
    return isinstance(kind, str) and any(isinstance(value.get(name), str) for name in (kind, "text"))


def _listed(columns: Sequence[_Column]) -> str:
    """Names fields in a message, and what stands there."""
    shown = [f"{spelled(column.path)} ({column.found[0]!r:.30})" for column in columns[:_SHOWN]]
    return ", ".join(shown) + (", …" if len(columns) > _SHOWN else "") or "no field with a text or a number"


def _question(columns: Sequence[_Column]) -> FieldPath | None:
    """The question: a text or a conversation of its own, by its name."""
    fitting = [
        (rank, len(column.path), column.path)
        for column in columns
        if column.kind in ("text", "conversation") and not column.many and not column.last(_NUMBERED)
        if not column.last((*_DERIVED, *_WORKED)) and not column.last(_GOLD)
        if (rank := column.named(_QUESTION)) is not None
    ]
    if fitting:
        return min(fitting)[-1]
    # A conversation from the question to the completion, whatever it is called.
    whole = [
        column.path
        for column in columns
        if column.kind == "conversation" and not column.many and all(map(conversation, column.found))
    ]
    return whole[0] if whole else None


def _completions(columns: Sequence[_Column], question: FieldPath | None) -> FieldPath | None:
    """The completions: pairs, or else the longest texts that could be some."""
    fitting: list[tuple[int, int, float, FieldPath]] = []
    answers: dict[FieldPath, int] = {}
    for column in columns:
        replies = column.kind == "conversation" and any(
            spoken(value, "assistant")[0] or spoken(value, "assistant")[1] for value in column.found
        )
        if column.kind == "pair":
            fitting.append((4, column.many, 0, column.path))
        elif column.kind == "conversation" and column.path == question and replies:
            fitting.append((2, 0, column.mean, column.path))
        elif (replies or (column.kind == "text" and column.path != question)) and (
            rank := _as_completion(column)
        ):
            fitting.append((rank, column.many, column.mean, column.path))
            if all(map(_answer_like, column.found)):
                answers[column.path] = len(column.found)
    if not fitting:
        return _answers(columns, question)
    best = max(fitting)[3]
    if best in answers:  # of the texts that they were extracted from, if these are there
        texts = [
            (rank, mean, column.path)
            for rank, many, mean, path in fitting
            for column in columns
            if column.path == path and many == many_in(best) and path not in answers
            if rank > 1 and len(column.found) == answers[best]
        ]
        best = max(texts, default=(0, 0.0, best))[2]
    if not many_in(best):  # one that was chosen among several
        chosen = next(set(map(str, column.found)) for column in columns if column.path == best)
        listed = [column for column in columns if column.kind == "text" and column.many == 1]
        best = next((column.path for column in listed if chosen <= {*column.found}), best)
    return best


def _answers(columns: Sequence[_Column], question: FieldPath | None) -> FieldPath | None:
    """Answers that are short or numbers: in a list, or beside a reference answer that is another field."""
    named = [column for column in columns if column.path != question and not column.last(_NUMBERED)]
    named = [column for column in named if column.last((*_GOLD, *_COMPLETION)) and not column.last(_LENGTH)]
    for column in named:
        if column.kind == "numbers" and column.last((*_GOLD, *_THEIRS)):
            return (*column.path, EVERY)
        if column.kind == "number" and column.many:
            return column.path
    gold = _gold(named)
    single = [column for column in named if column.kind in ("text", "number") and not column.many]
    theirs = [column.path for column in single if column.last((*_THEIRS, *_COMPLETION))]
    others = [column.path for column in single if column.path != gold]
    return next(iter([*theirs, *others]), None) if gold else None


def _as_completion(column: _Column) -> int:
    """How likely texts are to be completions by their name; 0 if they are not."""
    if column.last((*_DERIVED, *_THINKING, *_ASKING)) or {*words(column.last_name)} <= {"model", "name"}:
        return 0
    lists = [name for name, step in itertools.pairwise(column.path) if step == EVERY]
    if "token" in words(lists) or "logprob" in words(column.path):  # its pieces
        return 0
    gold, question = column.named(_GOLD), column.named(_QUESTION)
    if column.named(_COMPLETION) is not None:
        return 3
    if gold is not None or question is not None:
        return 1 if gold is not None and (column.many or column.mean > 60) else 0
    return 2 if column.many or column.mean >= 20 else 0


def _key(
    columns: Sequence[_Column], records: Sequence[FileRecord], gold: FieldPath | None, single: bool
) -> FieldPath | None:
    """What numbers the question, of which each has one reference answer, rather than its completions.

    ``single`` says whether a record has one completion of several.
    """
    fitting = [
        (
            _contradictions(records, column.path, gold) > 1,
            _unlike_key(column, single),
            len(column.path),
            column.path,
        )
        for column in columns
        if column.kind in ("text", "number") and not column.many and column.last(_NUMBERED)
        if not column.last((*_LENGTH, *_COUNTED))
    ]
    return min(fitting)[-1] if fitting else None


def _contradictions(records: Sequence[FileRecord], key: FieldPath, gold: FieldPath | None) -> int:
    """How many records have another reference answer than the first of their key."""
    known: dict[str, Any] = {}
    pairs = [(values(record.value, key)[0], values(record.value, gold)[:1]) for record in records if gold]
    return sum(
        known.setdefault(str(one), told) != told for one, told in pairs if told and not is_missing(*told)
    )


def _unlike_key(column: _Column, single: bool) -> int:
    """How unlikely a numbered field is to number questions, by its name and by whether its values repeat."""
    own = words(column.path)
    place = own[-1] in ("idx", "index", "num", "number")
    if not {*own}.isdisjoint(_OWNERS):
        return place
    if not {*own}.isdisjoint(_OF_SAMPLES) or (place and "sample" in own):
        return 6
    if single and len({*map(str, column.found)}) == len(column.found) > 1:
        return 5
    if "sample" in own:
        return 3
    return 4 if place else 2


def _gold(columns: Sequence[_Column]) -> FieldPath | None:
    """The reference answer: a text or a number of its own, by its name."""
    fitting = [
        (column.last(_WORKED), len({*column.found}) == 1, rank, len(column.path), column.path)
        for column in columns
        if column.kind in ("text", "number") and not column.many
        if not column.last((*_DERIVED, *_THEIRS, *_NUMBERED))
        if column.kind == "text" or words(column.last_name) != ["correct"]  # or whether it is
        if (rank := column.named(_GOLD)) is not None
    ]
    if not fitting:  # a list of one
        fitting = [
            (False, False, rank, len(column.path), column.path)
            for column in columns
            if column.kind in ("text", "numbers") and column.many <= 1
            if not column.last((*_DERIVED, *_NUMBERED))
            if len(column.found) == column.records
            if (rank := len(_GOLD) if column.last(("choice",)) else column.named(_GOLD)) is not None
        ]
    return min(fitting)[-1] if fitting else None


def _own(columns: Sequence[_Column], completions: FieldPath) -> list[_Column]:
    """Fields that say something of each completion, beside it or in lists of their own; the nearest first."""
    many = many_in(completions)

    def shared(path: FieldPath) -> int:
        return next((n for n, (a, b) in enumerate(zip(path, completions, strict=False)) if a != b), len(path))

    fitting = [column for column in columns if column.many in (many, 0) or column.kind == "numbers"]
    return sorted(fitting, key=lambda column: -shared(column.path))


def _first(columns: Sequence[_Column], fits: Any, listed: bool = False) -> FieldPath | None:
    for column in columns:
        path = column.path
        if listed and path[-1] == EVERY and len(path) > 1:
            plain = _Column(path[:-1], column.kind, column.found, column.records)
            if fits(plain):
                return path
        elif fits(column):
            return path
    return None


def _is_finish(column: _Column) -> bool:
    """Whether it says why a completion ended: a text, or the type of an object."""
    *_, above, name = ("", *column.path)
    return column.kind == "text" and any(
        _FINISH.fullmatch(one) for one in ((name, above) if name in ("type", "reason") else (name,))
    )


def _is_cut(column: _Column) -> bool:
    """Whether it says that a completion was cut off."""
    said = {str(value).lower() for value in column.found}
    return column.last(("truncated", "cut")) and said <= {"true", "false"}


def _tokens(columns: Sequence[_Column], many: int, single: bool) -> FieldPath | None:
    """The number of tokens of each completion, or their ids; a total of several says nothing of each."""

    def of_length(column: _Column) -> bool:
        own = words(column.last_name)
        if any(map(_FINISH.fullmatch, column.path)) or not set(own).isdisjoint(_NO_LENGTH):
            return False
        if not set(own).isdisjoint(_LENGTH) or own == ["eval", "count"]:
            return True
        used = {"usage", "token"}.intersection(words(column.path[:-1]))
        return bool(used) and not set(own).isdisjoint(_COMPLETION)

    for column in columns:
        if column.kind == "number" and of_length(column) and (single or column.many == many):
            return column.path
    for column in columns:
        if column.kind == "numbers" and of_length(column) and column.many < many:
            return (*column.path, EVERY)
    for column in columns:
        own = set(words(column.last_name))
        ids = not own.isdisjoint(_LENGTH) and own.isdisjoint({*_NO_LENGTH} - {"id"})
        if column.kind == "numbers" and column.many == many and ids:
            return column.path
    return None


def _pieces(columns: Sequence[_Column], many: int) -> FieldPath | None:
    """A list of the tokens of each completion, as texts or objects."""
    lists = [column.path[:n] for column in columns for n, step in enumerate(column.path) if step == EVERY]
    return next(
        (
            path
            for path in lists
            if many_in(path) == many
            if words(path[-1:]) == ["token"] or path[-2:] == ("logprobs", "content")
        ),
        None,
    )


def _confidences(columns: Sequence[_Column]) -> FieldPath | None:
    """A confidence for each token: the longest list of numbers that is called so."""
    fitting = [
        (sum(map(len, column.found)), column.path)
        for column in columns
        if column.kind == "numbers" and any(word.startswith("conf") for word in words(column.last_name))
    ]
    return max(fitting)[1] if fitting else None


def _are_answers(found: Sequence[Any], pairs: bool) -> bool:
    """Whether values are answers: all of them, or most of those that stand beside their lengths."""
    like = [*map(_answer_like, found)]
    return 2 * sum(like) >= len(like) if pairs else all(like)


def _answer_like(value: Any) -> bool:
    """Whether a value is an answer rather than a text with one in it."""
    said = "" if value is None else value
    if is_number(said):
        return True
    if not isinstance(said, str) or any(mark in said for mark in ("\n", "boxed", "####", "<", "nswer", ". ")):
        return False
    return (
        len(said) <= 60
        and not said.endswith(".")
        and len(re.findall(r"[A-Za-z]{2,}", re.sub(r"\\[A-Za-z]+", "", said))) <= 3
    )


def _rounds(
    records: Sequence[FileRecord], columns: Sequence[_Column], told: Mapping[str, FieldPath]
) -> Layout | None:
    """Rounds: a record has for each branch a forced answer, and how many tokens a branch may have had."""
    forced = [
        column
        for column in columns
        if column.kind == "text" and column.many and "probe" in words(column.path)
        if not column.last(_QUESTION)
    ]
    budgets = [
        column
        for column in columns
        if column.kind == "number"
        and not column.many
        and not {"max", "budget"}.isdisjoint(words(column.path))
    ]
    if not forced or not budgets:
        return None
    probes, plain = forced[0].path, [column for column in columns if "probe" not in words(column.path)]
    listed = [column for column in plain if column.path[-1] == EVERY and column.kind == "text"]
    prompts = [column.path for column in listed if column.named(_QUESTION) is not None]
    written = [
        column
        for column in listed
        if column.path not in prompts and not _FINISH.fullmatch(column.path[-2]) and not column.last(_DERIVED)
    ]
    question = told.get("question") or _question(plain) or next(iter(prompts), None)
    gold = told.get("gold") or _gold(plain)
    if question is None or gold is None:
        return None
    if not written:
        raise DataError(
            records[0].file,
            f"{records[0].place} has probes in {spelled(probes)}, but not what the branches wrote; give "
            "completions as well, and finish_reasons, which say whether a branch has ended",
        )
    completions = told.get("completions") or max(written, key=lambda column: column.mean).path
    return Layout(
        completions,
        question,
        gold,
        _key(plain, records, gold, False),
        finish=next((c.path for c in listed if _FINISH.fullmatch(c.path[-2])), None),
        probes=probes,
        budget=budgets[0].path,
        model=_model(columns, completions),
    )


def _model(columns: Sequence[_Column], completions: FieldPath) -> FieldPath | None:
    """The name of the model in what holds the completions, rather one that is the same in all records."""
    names = [
        (len(set(column.found)), len(column.path), column.path)
        for column in columns
        if column.kind == "text"
        and not column.many
        and column.path[-1] in ("model", "model_name", "model_id")
        and column.path[:-1] == completions[: len(column.path) - 1]
    ]
    return min(names, default=(0, 0, None))[2]
