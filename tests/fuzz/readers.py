"""All that reads what others wrote, with valid examples of it and how these are changed."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import mutations
import numpy as np

from autotts_jax import replay
from autotts_jax.collect import (
    LocalWorkers,
    Plan,
    Problem,
    Request,
    Sampling,
    SimulatedEngine,
    Store,
    collect_missing,
    import_answers,
    import_release,
    read_completions,
    read_questions,
)
from autotts_jax.collect.limits import read_models
from autotts_jax.collect.schema import SchemaError
from autotts_jax.collect.server_engine import read_completion
from autotts_jax.collect.simulated import ByteTokenizer
from autotts_jax.collect.upstream import read_problem
from autotts_jax.discovery import cmc, read_run
from autotts_jax.discovery.archive.transcripts import Transcript
from autotts_jax.discovery.critics.report import read_report
from autotts_jax.errors import InputError
from autotts_jax.experiments import Answered, LiveSettings, answer_questions
from autotts_jax.experiments.tables import collection_table
from autotts_jax.live.chat import Chat, RequestError
from autotts_jax.policies import SignalInput, load_policy, save_policy
from autotts_jax.policies.neural.policy import NeuralPolicy, initial_parameters
from autotts_jax.training.checkpoints import CHECKSUM, Checkpoints, checksum
from autotts_jax.training.config import read_config
from autotts_jax.training.run_state import RunState

Change = Callable[[bytes, Random], bytes]


@dataclasses.dataclass(frozen=True)
class Reader:
    """A reader.

    Attributes:
        examples: valid files.
        change: changes one.
        read: reads a changed file, and uses what it holds as a command would.
        share: inputs of it in 100 of all.
    """

    examples: list[bytes]
    change: Change
    read: Callable[[bytes], None]
    share: int


def refused(error: BaseException) -> bool:
    """Whether an error is the one that bad input should raise."""
    if isinstance(error, RequestError):
        return 400 <= error.status < 500
    return isinstance(error, InputError | SchemaError)


def readers(folder: Path) -> Iterator[tuple[str, Reader]]:
    """Makes the readers one by one, each with a folder of its own in this one."""
    for name, make in _MAKERS.items():
        place = folder / name
        place.mkdir(parents=True)
        yield name, make(place)


# --- data -----------------------------------------------------------------------------------------------


def _question(text: str, gold: str, *branches: Any) -> dict[str, Any]:
    return {
        "question": text,
        "final_answers_trace": [final for *_, final in branches],
        "each_branch": [list(branch) for branch in branches],
        "gold_answer": gold,
        "probe_freq": 50,
    }


_QUESTIONS = [
    _question("How many?", "7", [["1", "7"], 90, "7"], [["ERR"], 70, "1"]),
    _question("Which π?", "9", [["2"], 40, "2"], [["3", "2", "2"], 140, "4"]),
]
_QUESTIONS[0]["signals"] = {"eat": [[0.5, -1e-3, 65504], [2, 1]]}
_QUESTIONS[1]["signals"] = {"eat": [[0, 1], [3, 2, 1, 0.25]]}
_RAW = [
    {key: value for key, value in item.items() if key != "each_branch"}
    | {
        "probe_matrix_mxn": [[*probes, None] for probes, _, _ in item["each_branch"]],
        "branch_tokens": [tokens for _, tokens, _ in item["each_branch"]],
    }
    for item in _QUESTIONS
]


def _use(dataset: replay.ProbeDataset, folder: Path) -> None:
    """What passes is data for every command, and survives its own format."""
    for cell in range(len(dataset.cells)):
        replay.cell_statistics(dataset, cell)
    replay.write_compact(dataset, folder / "again.npz")
    again = replay.read_compact(folder / "again.npz")
    assert again.questions == dataset.questions
    np.testing.assert_array_equal(again.matrix.answers, dataset.matrix.answers)
    for name, values in dataset.matrix.signals.items():
        np.testing.assert_array_equal(again.matrix.signals[name], values)
    assert dataset.matrix.num_branches * int(np.max(dataset.matrix.tokens)) < 2**31


_CHANGES = {
    ".json": mutations.changed_json,
    ".npz": mutations.changed_npz,
    ".parquet": mutations.changed_parquet,
}


def _data(name: str) -> Callable[[Path], Reader]:
    def make(folder: Path) -> Reader:
        path = folder / "model" / name
        path.parent.mkdir()
        lines = b"\n".join(json.dumps(item).encode() for item in _RAW)
        examples = [json.dumps(_QUESTIONS).encode(), lines]
        if path.suffix != ".json":
            for number, example in enumerate(examples):
                (folder / f"{number}.json").write_bytes(example)
            cells = [replay.read_json(folder / f"{number}.json", model=str(number)) for number in (0, 1)]
            if path.suffix == ".npz":
                replay.write_compact(replay.stack(cells), path)
                examples = [path.read_bytes()]
            else:
                replay.write_parquet(replay.stack(cells), folder / "hub")
                examples = [file.read_bytes() for file in (folder / "hub").rglob("*.parquet")]

        def read(content: bytes) -> None:
            path.write_bytes(content)
            _use(replay.read_files(path), folder)

        return Reader(examples, _CHANGES[path.suffix], read, 17)

    return make


def _release(folder: Path) -> Reader:
    """A checkout whose files have changed names and contents."""
    checkout, out = folder / "checkout", folder / "out"

    def read(content: bytes) -> None:
        shutil.rmtree(checkout, ignore_errors=True)
        shutil.rmtree(out, ignore_errors=True)
        name, _, text = content.partition(b"\n")
        path = checkout / name.decode("utf-8", "surrogateescape").replace("\0", "").strip("/")
        try:
            if ".." in path.parts or not path.is_relative_to(checkout):
                return
            path.parent.mkdir(parents=True)
            path.write_bytes(text)
        except (OSError, ValueError):
            return  # no file can have the name
        import_release(str(checkout), out)

    text = json.dumps(_QUESTIONS).encode()
    names = (b"model/bench.json", b"x__y__br128__z.jsonl", b"..__..__br1__z.jsonl", b"m/..__x__br1__.json")
    return Reader([name + b"\n" + text for name in names], mutations.damaged, read, 3)


def _questions(folder: Path) -> Reader:
    lines = [{"question": "What is 1 + 1?", "answer": "2"}, {"question": "And 2?", "answer": "x #### 1,000"}]
    table = b'problem,solution\nWhat is 1?,1\n"a, b",\\boxed{2}\n'

    def read(content: bytes) -> None:
        suffix = ".csv" if content[:1] not in b"[{" else ".jsonl"
        path = folder / f"questions{suffix}"
        path.write_bytes(content)
        assert read_questions(str(path))

    def change(content: bytes, draw: Random) -> bytes:
        return (mutations.damaged if content == table else mutations.changed_json)(content, draw)

    text = b"\n".join(json.dumps(line).encode() for line in lines)
    return Reader([text, json.dumps(lines).encode(), table], change, read, 4)


def _completions(folder: Path) -> Reader:
    row = {"question": "What is 1 + 1?", "completion": "It is 2.", "answer": "2", "question_id": 7}
    rows = [row, row | {"completion": [49, 32, 256], "answer": None}]
    tokenizer = ByteTokenizer()

    def read(content: bytes) -> None:
        path = folder / "completions.jsonl"
        path.write_bytes(content)
        found = read_completions(str(path))
        found.check(tokenizer)
        for question in found.questions:
            assert all(found.tokens(question.text, range(found.num_branches()), tokenizer).values())

    text = b"\n".join(json.dumps(row).encode() for row in rows)
    return Reader([text, json.dumps(rows).encode()], mutations.changed_json, read, 4)


def _answers(folder: Path) -> Reader:
    """Completions, answers and rounds of probes as others store them."""
    texts = {
        "question": "1 + 1?",
        "gold": "2",
        "outputs": [{"text": "It is \\boxed{2}.", "num_tokens": 9}] * 2,
    }
    said = [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "So it is 2."}]
    rounds = {"max_tokens": 8, "prompts": ["1?"] * 2, "new_tokens": ["a b c"] * 2, "target": "2"}
    records: list[Any] = [
        [texts, texts | {"question": "2 + 2?"}],
        {"problem_num": 0, "gold_answer": "2", "all_answers": [["2", 700], [None, 0]]},
        [{"messages": said, "answer": 2, "usage": {"completion_tokens": 5}}],
        {"a": rounds | {"probe_responses": ["2} \\]", "3"]}},
        {
            "question": ["1 + 1?"],
            "answer": ["2"],
            "response_0": ["it is 2, yes"],
            "response_1": ["it is 3, no"],
        },
    ]

    def read(content: bytes) -> None:
        path = folder / "answers.json"
        path.write_bytes(content)
        imported = import_answers(path, folder / "answers.npz", grader=str.strip)
        assert len(replay.read_compact(folder / "answers.npz")) == len(imported.dataset)

    return Reader([json.dumps(record).encode() for record in records], mutations.changed_json, read, 4)


# --- collections ----------------------------------------------------------------------------------------

_PLAN = Plan(
    "simulated",
    "sums",
    tuple(Problem(f"What is {n} + {n}?", str(2 * n)) for n in (1, 2)),
    num_branches=4,
    chunk=2,
    sampling=Sampling(interval=20, max_tokens=60),
)


def _collection(folder: Path) -> list[Path]:
    with Store.writing(folder, _PLAN, {"engine": "simulated", "versions": {"autotts-jax": "0.1"}}) as store:
        collect_missing(store, LocalWorkers(SimulatedEngine(mean_tokens=20)))
    return sorted((folder / "units").glob("*.json"))


def _use_collection(folder: Path) -> None:
    store = Store(folder)
    collection_table(store)
    store.missing()
    if dataset := store.dataset():
        replay.cell_statistics(dataset, 0)


def _units(folder: Path) -> Reader:
    """Units of version 1, which no digest protects, and of this version."""
    first, *_ = _collection(folder / "new")
    old = Path(shutil.copytree(folder / "new", folder / "old"))
    manifest = json.loads((old / "collection.json").read_text())
    runs = {"version": 1, "made_with": manifest.pop("runs")[0]}
    (old / "collection.json").write_text(json.dumps(manifest | runs))
    unit = json.loads(first.read_text())
    del unit["digest"]

    def read(content: bytes) -> None:
        (old / "units" / first.name).write_bytes(content)
        first.write_bytes(content)
        try:
            _use_collection(folder / "new")
        except InputError:
            _use_collection(old)

    return Reader([first.read_bytes(), json.dumps(unit).encode()], mutations.changed_json, read, 10)


def _plans(folder: Path) -> Reader:
    _collection(folder / "run")
    manifest = folder / "run" / "collection.json"

    def read(content: bytes) -> None:
        manifest.write_bytes(content)
        _use_collection(folder / "run")

    return Reader([manifest.read_bytes()], mutations.changed_json, read, 8)


def _live_runs(folder: Path) -> Reader:
    problem = Problem("What is 1 + 1?", "2")
    settings = LiveSettings("sc@2", 4, None, Sampling(), "auto", "math", None)
    row = Answered(0, problem.text, "2", "2", True, 60, 30, 0.5, 2, 1, "decided", False, 0.5, 60, 4, 2)
    manifest = {"format": "autotts_jax live run", "version": 1, "settings": settings, "runs": [{}]}
    files = {
        "run.json": json.dumps(manifest, default=dataclasses.asdict),
        "answers.jsonl": json.dumps(dataclasses.asdict(row)),
    }

    def opened() -> NoReturn:
        raise InputError("a question is to be answered")

    def read(content: bytes) -> None:
        name, _, text = content.partition(b"\n")
        for kept, valid in files.items():
            (folder / kept).write_text(valid)
        (folder / name.decode()).write_bytes(text)
        run = answer_questions(opened, [problem], "sc@2", out=folder, max_branches=4)
        assert str(run.table())
        assert len(run.episodes()) == 1

    def change(content: bytes, draw: Random) -> bytes:
        name, _, text = content.partition(b"\n")
        return name + b"\n" + mutations.changed_json(text, draw)

    return Reader([f"{name}\n{text}".encode() for name, text in files.items()], change, read, 4)


# --- policies, training ---------------------------------------------------------------------------------


def _policies(folder: Path) -> Reader:
    import jax

    path, examples = folder / "policy.npz", []
    for kind, signals in (("rounds", ()), ("atomic", (SignalInput("eat", 1.5, 0.5),))):
        parameters = jax.tree.map(np.asarray, initial_parameters(2, jax.random.key(0), kind, len(signals)))
        save_policy(path, NeuralPolicy(parameters, 1e-4, signal_inputs=signals), {"data": "x"})
        examples.append(path.read_bytes())

    def read(content: bytes) -> None:
        path.write_bytes(content)
        policy, card = load_policy(path)
        assert isinstance(card, dict)
        leaves = jax.tree.leaves(policy.parameters)
        assert all(leaf.dtype == np.float32 and np.isfinite(leaf).all() for leaf in leaves)
        assert np.isfinite(policy.gamma)
        assert all(np.isfinite(signal.mean) and signal.std > 0 for signal in policy.signal_inputs)

    return Reader(examples, mutations.changed_npz, read, 12)


def _configs(folder: Path) -> Reader:
    path = folder / "train.toml"
    example = (Path(__file__).parents[2] / "examples" / "train.toml").read_bytes()
    small = b'[run]\nupdates = 3\n\n[trainer]\nkind = "ppo"\n\n[data]\npaths = ["x"]\nfold = 1\n'

    def read(content: bytes) -> None:
        path.write_bytes(content)
        json.dumps(dataclasses.asdict(read_config(path)))

    return Reader([example, small], mutations.changed_toml, read, 10)


def _checkpoints(folder: Path) -> Reader:
    """A file of a checkpoint, named in the first line; most inputs have the checksum put right."""
    tree = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "k": np.arange(2)}
    (folder / "checkpoints").mkdir()
    with Checkpoints(folder) as kept:
        kept.save(RunState(update=1), tree)
    part = folder / "checkpoints" / "00000001"
    files = {str(path.relative_to(part)): path.read_bytes() for path in part.rglob("*") if path.is_file()}
    whole = shutil.copytree(part, folder / "whole")

    def read(content: bytes) -> None:
        name, _, text = content.partition(b"\n")
        (part / name.decode()).write_bytes(text)
        if len(text) % 4:
            (part / "default" / CHECKSUM).write_text(checksum(part / "default"))
        try:
            with Checkpoints(folder) as kept:
                _, found = kept.load(tree)
            assert found["w"].shape == (2, 3)
        finally:
            shutil.rmtree(part)
            shutil.copytree(whole, part)

    def change(content: bytes, draw: Random) -> bytes:
        name, _, text = content.partition(b"\n")
        changed = (mutations.changed_json if text[:1] == b"{" else mutations.damaged)(text, draw)
        return name + b"\n" + changed

    return Reader([name.encode() + b"\n" + text for name, text in files.items()], change, read, 1)


def _searches(folder: Path) -> Reader:
    """A file of a search's folder, named in the first line."""
    tried = {"proposer": "rules", "parents": [], "fold": None}
    program = {"program": cmc().to_tree(), "scores": [0.1, 0.2], "cost": 1.0, "width": 2.0}
    opinion = {"critic": {"score": 1.0, "accepts": True, "tokens": 5, "dollars": 0.1}}
    metrics = {"objective": 0.1, "cost": 1.0, "width": 2.0}
    written = {"source": "x = 1\n", "metrics": metrics, "feedback": "", "tokens": 5, "dollars": 0.1}
    measured = {"gain": 0.1, "low": 0.1, "level": 0.025, "objective": 0.2, "baselines": {"sc@8": 0.1}}
    settings = {"matched_tokens": [None], "matched_accuracy": [0.1], "falls": [0.5], "tokens": [1.0]}
    records = [
        {"kind": "candidate", "number": 0} | tried | program,
        {"kind": "code", "number": 1} | tried | written | opinion,
        {"kind": "round", "round": 0, "cpu_seconds": 1.0},
        {"kind": "test", "number": 0, "promotes": True} | measured | settings,
        {"kind": "round", "round": 1, "cpu_seconds": 2.0},
    ]
    manifest = {"incumbent": ["cmc@0.5"], "critic": "nearest", "rungs": [[8, 2], [4, 4]]}
    reply = {"text": "x", "failure": "", "finish": "stop", "used": [1, 2]}
    transcript = {"request": {"model": "m"}, "most": [10, 20], "lost": 1, "response": reply}
    files = {
        "manifest.json": json.dumps(manifest).encode(),
        "archive.jsonl": b"".join(json.dumps(record).encode() + b"\n" for record in records),
        "transcript.json": json.dumps(transcript).encode(),
    }

    def read(content: bytes) -> None:
        name, _, text = content.partition(b"\n")
        for other, whole in files.items():
            (folder / other).write_bytes(text if other == name.decode() else whole)
        min(Transcript.read(folder / "transcript.json").cost)
        found = read_run(folder)
        str(found.table())
        found.lineage()
        str(read_report(folder))
        for candidate in found.candidates:
            if candidate["kind"] == "candidate":
                found.program(candidate["number"])

    def change(content: bytes, draw: Random) -> bytes:
        name, _, text = content.partition(b"\n")
        return name + b"\n" + mutations.changed_json(text, draw)

    return Reader([name.encode() + b"\n" + text for name, text in files.items()], change, read, 6)


# --- servers and clients --------------------------------------------------------------------------------


def _replies(_: Path) -> Reader:
    tokenizer = ByteTokenizer()
    request = Request((1, 2), 3, stop=("}",), logprobs=True)
    choice = {"text": "12}", "finish_reason": "stop", "token_ids": [49, 50, 125], "stop_reason": "}"}
    told = {"logprobs": {"token_logprobs": [-0.5, -1.5]}}
    replies = [
        {"choices": [choice | told], "usage": {"prompt_tokens_details": {"cached_tokens": 1}}},
        {"choices": [{"text": "123", "finish_reason": "length"}]},
        {"object": "list", "data": [{"id": "m", "max_model_len": 4096}, {"id": "n"}]},
        {"error": {"message": "too long", "code": 400}},
    ]

    def read(content: bytes) -> None:
        assert isinstance(read_problem(content), str)
        failed: SchemaError | None = None
        for parse in (read_models, lambda content: read_completion(request, content, tokenizer)):
            try:
                parse(content)
            except SchemaError as error:
                failed = error
        if failed:
            raise failed

    return Reader([json.dumps(reply).encode() for reply in replies], mutations.changed_json, read, 5)


def _chats(_: Path) -> Reader:
    asked = {"role": "user", "content": [{"type": "text", "text": "What is 1 + 1?"}]}
    chats = [
        {"model": "sc@8", "messages": [{"role": "system", "content": "Be brief."}, asked]},
        {
            "model": "cmc@0.5",
            "messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}, asked],
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": 100,
            "temperature": 0.7,
            "seed": 3,
            "n": 1,
            "stop": ["x"],
            "logit_bias": {},
            "metadata": {"a": [1]},
        },
    ]

    def read(content: bytes) -> None:
        chat = Chat.read(content, "ask for plain")
        repr((chat.question, chat.system, chat.stops, chat.greedy))

    return Reader([json.dumps(chat).encode() for chat in chats], mutations.changed_json, read, 5)


_MAKERS: dict[str, Callable[[Path], Reader]] = {
    "data as JSON": _data("bench.json"),
    "data as npz": _data("bench.npz"),
    "data as Parquet": _data("bench.parquet"),
    "releases": _release,
    "questions": _questions,
    "completions": _completions,
    "answers": _answers,
    "units": _units,
    "plans": _plans,
    "live runs": _live_runs,
    "policies": _policies,
    "configurations": _configs,
    "checkpoints": _checkpoints,
    "searches": _searches,
    "replies": _replies,
    "requests": _chats,
}
