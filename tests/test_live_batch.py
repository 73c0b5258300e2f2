"""Many questions live under one budget: equal to replay, resumed without paying twice."""

import dataclasses
import json
import signal
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

import autotts_jax as at
from autotts_jax.collect import (
    EngineError,
    LocalWorkers,
    Plan,
    Problem,
    Sampling,
    SimulatedEngine,
    collect,
)
from autotts_jax.core import Allocator
from autotts_jax.errors import DataError, InputError

WIDTH, BUDGET = 6, 3000
SAMPLING = Sampling(interval=20, max_tokens=200, seed=3)


def sums(count):
    return tuple(Problem(f"What is {n} + {n}?", str(2 * n)) for n in range(1, count + 1))


PROBLEMS = sums(8)


class Recording(SimulatedEngine):
    """Notes what it is asked for, and fails after so many completions."""

    def __init__(self, fails_after=None):
        super().__init__()
        self.requests, self._fails_after = [], fails_after

    def generate(self, requests, cancel=None):
        if self._fails_after is not None and len(self.requests) >= self._fails_after:
            raise EngineError("the engine is gone")
        self.requests += [(request.prompt, request.seed, request.max_tokens) for request in requests]
        return super().generate(requests, cancel)


def play(out, engine=None, problems=PROBLEMS, allocator="dirichlet", **settings):
    settings = {"sampling": SAMPLING, "max_branches": WIDTH, "budget": BUDGET} | settings
    return at.answer_batch(engine or SimulatedEngine(), problems, allocator, out=out, **settings)


def timeless(answered):
    return [dataclasses.replace(row, seconds=0.0) for row in answered]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a run, the run, and what its engine was asked for."""
    folder, engine = tmp_path_factory.mktemp("whole") / "run", Recording()
    return folder, play(folder, engine), engine.requests


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    """A collection of the questions in another order, with more branches than are read."""
    plan = Plan("sim", "sums", PROBLEMS[::-1], num_branches=WIDTH + 1, sampling=SAMPLING)
    folder = tmp_path_factory.mktemp("collection") / "run"
    collect(plan, folder, LocalWorkers(SimulatedEngine()))
    return folder


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Few(Allocator):
    """Reads a few branches of each question, the longest ones first."""

    most: int

    def index(self, view):
        return jnp.where(view.opened < self.most, view.tokens.astype(float), -jnp.inf)


@pytest.mark.parametrize(
    ("allocator", "budget", "at_once"),
    [
        ("dirichlet", 3000, 1),
        pytest.param("naive", 5000, 4, marks=pytest.mark.slow),
        pytest.param("shadow-price", 1234, 3, marks=pytest.mark.slow),
        pytest.param("uniform", 20_000, 9, marks=pytest.mark.slow),
        pytest.param("asc", 1, 1, marks=pytest.mark.slow),
        (Few(2), 9000, 2),
        (Few(WIDTH), 20_000, 9),
    ],
)
def test_it_is_equal_to_its_replay(collection, tmp_path, allocator, budget, at_once):
    found = play(tmp_path / "run", allocator=allocator, budget=budget, at_once=at_once, collection=collection)
    replay = found.summary()["replay"]
    assert (replay["same_answer"], replay["same_tokens"], replay["same_stop_reason"]) == (8, 8, 8)
    assert (replay["accuracy_gain"], replay["tokens_gain"]) == (0, 0)
    for live, replayed in zip(found.answered, found.compared, strict=True):
        assert (live.correct, live.stop_reason) == (replayed.correct, replayed.stop_reason)
    # What was written of a branch that the budget could not pay is within the budget as well.
    assert sum(row.tokens for row in found.answered) <= sum(row.generated for row in found.answered) <= budget
    if budget == 20_000:
        assert {row.stop_reason for row in found.answered} == {"exhausted"}
    elif isinstance(allocator, Few):
        assert {(row.stop_reason, row.branches) for row in found.answered} == {("decided", 2)}
    else:
        assert {row.stop_reason for row in found.answered} <= {"budget", "exhausted"}


def test_rows_are_what_the_branches_came_to(whole):
    folder, found, _ = whole
    reads = [json.loads(line) for line in (folder / "reads.jsonl").read_text().splitlines()]
    for row, problem in zip(found.answered, PROBLEMS, strict=True):
        mine = [read for read in reads if read["question"] == row.question and read["whole"]]
        assert sorted(read["branch"] for read in mine) == list(range(row.branches))
        assert row.tokens == sum(read["tokens"] for read in mine)
        assert (row.text, row.gold) == (problem.text, problem.gold)
        assert row.correct == (row.answer == problem.gold)
        votes = [read["answer"] for read in mine]
        assert row.answer is None or votes.count(row.answer) == max(map(votes.count, votes))
    assert sum(not read["whole"] for read in reads) <= 1
    lines = [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]
    assert lines == [dataclasses.asdict(row) for row in found.answered]


@pytest.mark.parametrize(
    ("fails_after", "at_once"),
    [
        (0, 1),
        (35, 1),
        pytest.param(70, 1, marks=pytest.mark.slow),
        pytest.param(0, 3, marks=pytest.mark.slow),
        pytest.param(35, 3, marks=pytest.mark.slow),
        (70, 3),
    ],
)
def test_a_run_that_failed_goes_on_and_asks_for_nothing_again(whole, tmp_path, fails_after, at_once):
    out, failing, engine = tmp_path / "run", Recording(fails_after), Recording()
    undisturbed = whole if at_once == 1 else (..., play(tmp_path / "other", at_once=at_once))
    with pytest.raises(EngineError, match="gone"):
        play(out, failing, at_once=at_once)
    path = out / "reads.jsonl"
    kept = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    assert bool(kept) == bool(fails_after)
    if kept:  # as where the machine went down while a line was written
        path.write_bytes(path.read_bytes() + b'{"question": 1, "bra')
    found = play(out, lambda: engine, at_once=at_once)
    assert timeless(found.answered) == timeless(undisturbed[1].answered)
    reads = [json.loads(line) for line in path.read_text().splitlines()]
    assert reads[: len(kept)] == kept
    written = sum(read["tokens"] for read in reads[len(kept) :])
    assert written == sum(row.generated for row in found.answered) - sum(read["tokens"] for read in kept)
    if at_once == 1:
        # Only the branch that was under way is begun again.
        again = set(failing.requests) & set(engine.requests)
        assert len(engine.requests) + len(failing.requests) - len(again) == len(whole[2])
        assert len(again) <= 10
    assert play(out, lambda: pytest.fail("opened for nothing"), at_once=at_once).answered == found.answered


KILLED = """
import os, signal, sys
import autotts_jax as at
from autotts_jax.collect import Sampling, SimulatedEngine, read_questions

class Killed(SimulatedEngine):
    asked = 0
    def generate(self, requests, cancel=None):
        Killed.asked += 1
        if Killed.asked > int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().generate(requests, cancel)

at.answer_batch(Killed(), read_questions("arithmetic:200"), "dirichlet", budget=150_000, out=sys.argv[1],
                sampling=Sampling(interval=50, max_tokens=400), max_branches=16, at_once=8)
"""


@pytest.mark.slow
def test_two_hundred_questions_killed_twice_come_to_the_same(tmp_path):
    from autotts_jax.collect import read_questions

    problems, sampling = read_questions("arithmetic:200"), Sampling(interval=50, max_tokens=400)
    settings = {"budget": 150_000, "sampling": sampling, "max_branches": 16, "at_once": 8}
    for after in (900, 700):
        ended = subprocess.run(
            [sys.executable, "-c", KILLED, tmp_path / "run", str(after)], capture_output=True, check=False
        )
        assert ended.returncode == -signal.SIGKILL, ended.stderr
    path = tmp_path / "run" / "reads.jsonl"
    kept = path.read_bytes()
    assert kept.count(b"\n") > 200
    found = play(tmp_path / "run", problems=problems, **settings)
    assert path.read_bytes().startswith(kept[: kept.rfind(b"\n") + 1])
    undisturbed = play(tmp_path / "other", problems=problems, **settings)
    assert timeless(found.answered) == timeless(undisturbed.answered)
    reads = [json.loads(line) for line in path.read_text().splitlines()]
    assert len({(read["question"], read["branch"]) for read in reads}) == len(reads)
    assert sum(read["tokens"] for read in reads) == sum(row.generated for row in undisturbed.answered)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"budget": 3001}, "other settings: budget was 3000 and is 3001"),
        ({"allocator": "asc"}, "player was 'dirichlet' and is 'asc'"),
        ({"at_once": 2}, "at_once was 1 and is 2"),
        ({"problems": PROBLEMS[:5]}, "questions_sha256 was"),
        ({"problems": PROBLEMS[::-1]}, "questions_sha256 was"),
        ({"problems": [*PROBLEMS, PROBLEMS[0]]}, "a question is there twice"),
        ({"problems": []}, "at least one"),
        ({"problems": 3}, "must be a list of Problems"),
        ({"budget": 0}, "budget is 0, but it must be between 1"),
        ({"budget": 10.5}, "budget is 10.5"),
        ({"budget": 2**31}, "budget is 2147483648"),
        ({"allocator": "oracle"}, "unknown allocator 'oracle'; known are uniform"),
        ({"allocator": "sc@4"}, "unknown allocator 'sc@4'"),
        ({"max_branches": 0}, "max_branches is 0"),
        ({"answers": "colour"}, "there is no extractor of this name"),
        ({"on_read": 3}, "on_read"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(whole, changed, message):
    before = {path.name: path.read_bytes() for path in whole[0].iterdir()}
    with pytest.raises(InputError, match=message):
        play(whole[0], lambda: pytest.fail("opened for nothing"), **changed)
    assert {path.name: path.read_bytes() for path in whole[0].iterdir()} == before


def test_runs_of_single_questions_and_batches_are_not_mixed(whole, tmp_path):
    settings = {"sampling": SAMPLING, "max_branches": WIDTH}
    with pytest.raises(InputError, match="player was 'dirichlet' and is 'sc@2'"):
        at.answer_questions(SimulatedEngine(), PROBLEMS, "sc@2", out=whole[0], **settings)
    at.answer_questions(SimulatedEngine(), PROBLEMS, "sc@2", out=tmp_path / "run", **settings)
    with pytest.raises(InputError, match="player was 'sc@2' and is 'dirichlet'"):
        play(tmp_path / "run")


def test_damaged_files_are_refused(whole, tmp_path):
    row, _, rest = (whole[0] / "reads.jsonl").read_bytes().partition(b"\n")
    long = json.dumps(json.loads(row) | {"tokens": 10**12}).encode() + b"\n" + rest
    for damaged, message in (
        (long, "line 1 is damaged: more than"),
        (b'{"question": 0}\n', "line 1 is damaged"),
        (2 * (whole[0] / "reads.jsonl").read_bytes(), "twice"),
        (b"\xff\xfe\n", "line 1 is damaged"),
    ):
        folder = tmp_path / "run"
        folder.mkdir(exist_ok=True)
        for path in whole[0].iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
        (folder / "reads.jsonl").write_bytes(damaged)
        with pytest.raises(DataError, match=message):
            play(folder)
        assert (folder / "reads.jsonl").read_bytes() == damaged


def test_a_collection_that_says_nothing_is_refused(collection, tmp_path):
    for changed, message in (
        ({"problems": sums(9)}, r"lacks the question 'What is 9 \+ 9\?'"),
        ({"max_branches": 8}, "has 7 branches a question, fewer than the 8"),
        ({"sampling": dataclasses.replace(SAMPLING, seed=4)}, "seed was 3 and is 4"),
    ):
        with pytest.raises(InputError, match=message):
            play(tmp_path / "run", lambda: pytest.fail("opened"), collection=collection, **changed)
    assert not (tmp_path / "run").exists()


@pytest.fixture
def command(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = "answer --engine simulated --interval 20 --max-tokens 200 --max-branches 4"
    return lambda more: run(*line.split(), *more.split())


def test_the_command_answers_a_batch(command):
    line = "--questions arithmetic:3 --out out --allocator asc --budget 900 --at-once 2"
    status, out, err = command(line)
    assert (status, err) == (0, "")
    assert "asc, 3 questions" in out
    assert out.endswith("wrote answers.jsonl, reads.jsonl to out\n")
    status, out, err = command(f"{line} --json")
    assert (status, err, json.loads(out)["controller"]) == (0, "", "asc")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x --allocator asc", "--allocator go with --questions"),
        ("--questions arithmetic:2 --out out --allocator asc", "give --budget TOKENS, for all questions"),
        (
            "--questions a:2 --out out --allocator asc --budget 9 --controller sc@2",
            "leave --controller out",
        ),
        ("--questions arithmetic:2 --out out --allocator best --budget 9", "unknown allocator 'best'"),
        ("--questions arithmetic:2 --out out --allocator asc --budget 0", "budget is 0"),
    ],
)
def test_options_that_do_not_fit_are_refused(command, line, message, tmp_path):
    status, out, err = command(line)
    assert (status, out) == (2, "")
    assert message in err
    assert not list(tmp_path.iterdir())
