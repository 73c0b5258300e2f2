"""Runs in which a scripted language model proposes files."""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from asking import ASKS
from scripted_model import serving
from searches import made_up

import autotts_jax as at
from autotts_jax.discovery import Judge, Lift, Measurement, OpenAIProposer, read_run
from autotts_jax.discovery.critics import critic
from autotts_jax.discovery.judging.judge import TEST_ORDERS
from autotts_jax.discovery.judging.measuring import LIMITS
from autotts_jax.discovery.rounds import files as file_rounds
from autotts_jax.discovery.search import DiscoveryRun
from autotts_jax.errors import InputError
from autotts_jax.files import locked
from autotts_jax.policies import select
from autotts_jax.sandbox import Sandbox

pytest.importorskip("openai")

CANDIDATE = f"{ASKS}\n\ncandidate = Program\n"
CHEATS = Path(__file__).parent / "cheats"
RUNGS = ((16, 1), (8, 2), (4, 2))
VOTES = """
class Votes:
    def __init__(self, config):
        self.branches = 1 + round({slope} * config["beta"])

    def solve(self, question):
        shown = [question.get_new_branch_final_answer() for _ in range(self.branches)]
        return max(shown, key=shown.count)


candidate = Votes
"""
PRICES = {"wise": (1.0, 2.0)}


def file_of(source):
    return f"```python\n{source}```"


def by_request(request):
    """Replies that depend on the request alone; the first to a search, and some others, are no good."""
    asked = request["messages"][1]["content"]
    if "Candidate" not in asked:
        return "I cannot."
    number = int(hashlib.sha256(asked.encode()).hexdigest(), 16)
    return file_of("broken (" if number % 5 == 0 else f"# {number % 1000}\n")


def run_data():
    return at.load("smollm2").select(range(0, 40, 4))


def run_of(folder, server, *, proposers=None, count=2, test_orders=TEST_ORDERS, sandbox=LIMITS, **fields):
    writer = OpenAIProposer("wise", server.url, count=count, reply_tokens=500, pause=0.01, **fields)
    return DiscoveryRun(
        run_data(),
        folder,
        proposers or [writer],
        select("cmc"),
        0,
        8,
        RUNGS,
        test_orders=test_orders,
        sandbox=sandbox,
    )


def records_of(folder):
    return [json.loads(line) for line in (folder / "archive.jsonl").read_text().splitlines()]


@pytest.fixture
def measured(monkeypatch):
    """Measures files by a hash and makes other outcomes up, so that nothing is played; lists the files."""
    sources = []

    def measure(source, course):
        assert course is None
        sources.append(source)
        if "broken" in source:
            return Measurement(None, "SyntaxError")
        score = int(hashlib.sha256(source.encode()).hexdigest()[:4], 16) / 65536
        return Measurement({"objective": score, "cost": 2.0, "width": 4.0}, f"scored {score:.3f}", "kernel")

    monkeypatch.setattr(file_rounds, "measure", measure)
    monkeypatch.setattr(file_rounds.Course, "of", lambda *_, **__: None)
    monkeypatch.setattr(Judge, "play", made_up)
    return sources


@pytest.mark.usefixtures("measured")
def test_files_are_measured_within_the_limits_of_the_run(tmp_path, monkeypatch):
    limits, played = Sandbox("process", wall_seconds=7, cpu_seconds=9), []
    monkeypatch.setattr(file_rounds.Course, "of", lambda *given, **_: played.append(given[5]))

    def play(source, data, orders, betas, sandbox):  # noqa: ARG001
        played.append(sandbox)
        raise InputError("it failed")

    monkeypatch.setattr(file_rounds, "play_sealed", play)
    with serving(by_request) as server:
        run = run_of(tmp_path, server, sandbox=limits)
        run.search(16, None)
        with contextlib.suppress(InputError):
            run.test()
    searched = {limits, dataclasses.replace(limits, wall_seconds=35, cpu_seconds=45)}
    assert searched == set(played)


@pytest.mark.usefixtures("measured")
def test_files_are_candidates_of_the_archive(tmp_path):
    with serving(by_request) as server:
        run = run_of(tmp_path, server, prices=PRICES)
        run.search(16, None)
    records = records_of(tmp_path)
    files = [record for record in records if record["kind"] == "code"]
    assert [record["number"] for record in files] == list(range(len(files)))
    assert {record["fold"] for record in files} == {0, 1, 2, None}
    for record in files:
        if record["proposer"] == "start":
            assert record["tokens"] == 0
            parent = files[record["parents"][0]]
            assert (record["source"], record["fold"], parent["fold"] is None) == (
                parent["source"],
                None,
                False,
            )
        else:
            assert record["proposer"] == "openai:wise"
            assert (record["tokens"], record["dollars"]) == (1500, 0.002)
            assert (tmp_path / "transcripts" / record["transcript"]).exists()
            assert all(files[parent]["fold"] == record["fold"] for parent in record["parents"])
        assert (record["metrics"] is None) == (record["level"] is None)
        assert record["feedback"]
    assert any(record["parents"] for record in files)
    found = read_run(tmp_path)
    assert len(found.candidates) == len(files)
    best = max(
        (record for record in files if record["metrics"]), key=lambda record: record["metrics"]["objective"]
    )
    assert best["source"].rstrip() in found.source("mine", best["number"])
    with pytest.raises(InputError, match="is a file and no program"):
        found.program(best["number"])
    failed = next(record for record in files if record["source"] is None)
    with pytest.raises(InputError, match="has no source: the reply holds no code block"):
        found.source("mine", failed["number"])
    with pytest.raises(InputError, match="'cmc' is the name of a player of this package"):
        found.source("cmc", best["number"])
    assert "a file" in str(found.table())
    found.to_parquet(tmp_path / "candidates.parquet")
    table = pq.read_table(tmp_path / "candidates.parquet")
    assert set(table.column_names) >= {name for record in files for name in record}
    for name in ("source", "feedback", "level", "transcript", "tokens", "dollars"):
        assert table[name].to_pylist() == [record[name] for record in files]
    metrics = [text and json.loads(text) for text in table["metrics"].to_pylist()]
    assert metrics == [record["metrics"] for record in files]
    assert table["objective"].to_pylist() == [of and of["objective"] for of in metrics]
    assert found.plot_lineage(best["number"])


@pytest.mark.slow
def test_an_interrupted_run_pays_for_no_call_twice_and_comes_to_the_same(tmp_path, measured, monkeypatch):
    with serving(by_request) as server:
        run_of(tmp_path / "whole", server).search(16, None)
        asked, whole = len(server.requests), len(measured)
        interrupted = 0
        measure = file_rounds.measure
        for stop in range(0, whole, 5):
            left = [stop]

            def measure_some(source, course, left=left):
                left[0] -= 1
                if left[0] < 0:
                    raise KeyboardInterrupt
                return measure(source, course)

            monkeypatch.setattr(file_rounds, "measure", measure_some)
            try:
                run_of(tmp_path / "parts", server).search(16, None)
            except KeyboardInterrupt:
                interrupted += 1
        monkeypatch.setattr(file_rounds, "measure", measure)
        run_of(tmp_path / "parts", server).search(16, None)
        assert interrupted > 1
        assert len(server.requests) == 2 * asked

    def without_times(folder):
        return [record | {"cpu_seconds": 0} for record in records_of(folder)]

    assert without_times(tmp_path / "parts") == without_times(tmp_path / "whole")


def judging():
    """Writes as `by_request` does, and thinks well of every second file."""
    scores = itertools.cycle(("score: 8", "score: 2.5"))

    def script(request):
        if "The file to judge" in request["messages"][1]["content"]:
            return next(scores)
        return by_request(request)

    return script


@pytest.mark.slow
def test_files_are_judged_before_they_are_run(tmp_path, measured, monkeypatch):
    with serving(judging()) as server:
        # Less than the short prompts of the critic can have.
        server.used = {"prompt_tokens": 400, "completion_tokens": 500, "total_tokens": 900}
        writer = OpenAIProposer("wise", server.url, count=4, reply_tokens=500, prices=PRICES, max_dollars=1.0)
        DiscoveryRun(run_data(), tmp_path, [writer], select("cmc"), 0, 8, RUNGS)
        with pytest.raises(InputError, match="critic = None"):
            DiscoveryRun(run_data(), tmp_path, [writer], select("cmc"), 0, 8, RUNGS, critic="openai:wise")
        folder = tmp_path / "judged"
        run = DiscoveryRun(run_data(), folder, [writer], select("cmc"), 0, 8, RUNGS, critic="openai:wise")
        run.search(32, None)
        shadow = records_of(folder)
        judged = [record for record in shadow if "critic" in record]
        assert {record["critic"]["score"] for record in judged} == {8.0, 2.5}
        assert all(record["source"] is not None for record in judged)
        assert not any("gated" in record for record in shadow)
        said = read_run(folder).critic()
        assert said.lift.executed == len(judged)
        assert said.tokens == 900 * len(judged)
        assert said.dollars == pytest.approx(0.0014 * len(judged))
        # Once it has proven itself it decides.
        monkeypatch.setattr(Lift, "gates", True)
        monkeypatch.setattr(critic, "AUDITED", 0.0)
        before = len(measured)
        run.search(64, None)
    after = [record for record in records_of(folder)[len(shadow) :] if record["kind"] == "code"]
    gated = [record for record in after if "gated" in record]
    assert gated
    assert all((record["metrics"], record["critic"]["accepts"]) == (None, False) for record in gated)
    assert all(record["feedback"] == "the critic gives it 2.5 and it was not run" for record in gated)
    executed = [record for record in after if "gated" not in record and record["source"] is not None]
    assert len(measured) - before == len(executed)


@pytest.mark.usefixtures("measured")
def test_a_run_ends_when_nobody_can_pay(tmp_path):
    with serving(by_request) as server:
        run = run_of(tmp_path, server, prices=PRICES, max_dollars=0.05)
        run.search(1000, None)
        dollars = sum(record.get("dollars", 0) for record in records_of(tmp_path))
        assert 0 < dollars <= 0.05
        # More than half of it was spent before the search that uses all questions began.
        assert None in {record["fold"] for record in records_of(tmp_path) if record["kind"] == "code"}
        asked = len(server.requests)
        assert run.search(1000, None) == 0
        assert len(server.requests) == asked


def test_a_folder_has_one_run_at_a_time(tmp_path):
    """Two would each count on money that the other spends."""
    folder = tmp_path / "run"
    holding = "import sys; from pathlib import Path; from autotts_jax.files import locked\n"
    holding += "with locked(Path(sys.argv[1])): print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", holding, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        other.stdout.readline()
        with pytest.raises(InputError, match="is in use by another run"):
            at.discover("smollm2", out=folder, max_branches=8)
        assert [path.name for path in folder.iterdir()] == [".lock"]
        other.kill()
    with locked(folder):
        pass


@pytest.mark.usefixtures("measured")
def test_other_proposers_take_the_turns_of_one_that_cannot_pay(tmp_path):
    with serving(by_request) as server:
        writer = OpenAIProposer("wise", server.url, count=1, max_tokens=100)
        run = run_of(tmp_path, server, proposers=[writer, "random"])
        run.search(16, None)
        assert server.requests == []
    assert {record["proposer"] for record in records_of(tmp_path) if record["kind"] == "candidate"} == {
        "start",
        "random",
    }


@pytest.mark.usefixtures("measured")
def test_files_leave_the_candidates_of_rules_as_they_are(tmp_path):
    """Rounds of rules draw from the seed and the number of the round, and have no files for parents."""
    with serving(by_request) as server:
        writer = OpenAIProposer("wise", server.url, count=3)
        run = run_of(tmp_path / "both", server, proposers=["random", writer])
        run.search(38, None)
    alone = run_of(tmp_path / "alone", server, proposers=["random", "random"])
    alone.search(16, None)
    first = [record for record in records_of(tmp_path / "both") if record["kind"] == "candidate"][:16]
    assert (
        first == [record for record in records_of(tmp_path / "alone") if record["kind"] == "candidate"][:16]
    )


@pytest.mark.nightly
def test_good_files_climb_and_the_best_is_tested(tmp_path, monkeypatch):
    """The model raises the votes from round to round, and now and then writes something else."""
    monkeypatch.setattr(Judge, "final_orders", range(12, 14))
    lock, slopes = threading.Lock(), iter([0, "(", 2, 0, 4, "/", 6, 1])

    def better(_):
        with lock:
            return file_of(VOTES.format(slope=next(slopes, 7)))

    with serving(better) as server:
        run = run_of(tmp_path, server, test_orders=4)
        run.search(7, None)
        run.test()
    records = records_of(tmp_path)
    files = [record for record in records if record["kind"] == "code"]
    failures = [record for record in files if record["metrics"] is None]
    assert len(failures) == 2
    assert all("SyntaxError" in record["feedback"] for record in failures)
    (test,) = [record for record in records if record["kind"] == "test"]
    tested = files[test["number"]]
    assert tested["fold"] is None
    last = [
        record["metrics"]["objective"] for record in files if record["fold"] is None and record["metrics"]
    ]
    assert tested["metrics"]["objective"] in sorted(last)[-file_rounds.FINALISTS :]
    found = read_run(tmp_path)
    exported = tmp_path / "found.py"
    exported.write_text(found.source("mine"))
    report = at.evaluate(run_data(), f"{exported}:FAMILY@1", seeds=1, max_branches=8)
    assert report is not None


HOSTILE = {
    cheat: file
    for file, cheats in {
        "inside": ("frames", "frames_of_threads", "collector", "closures", "modules", "equal_to_all"),
        "outside": ("open_files", "memory_of_the_judge", "environment", "fork"),
        "knowing": ("table_of_answers", "memory_between_episodes"),
    }.items()
    for cheat in cheats
}
"""Cheats, and the files that they stand in."""


@pytest.mark.nightly
def test_hostile_files_change_nothing_but_the_count_of_failures(tmp_path):
    """Each of four rounds an honest file and some of the cheats, which vote as the honest one does."""
    honest = CANDIDATE.format(cheat="(lambda *_: None)")
    hostile = [
        (CHEATS / f"{file}.py").read_text() + CANDIDATE.format(cheat=cheat) for cheat, file in HOSTILE.items()
    ]
    lock, count = threading.Lock(), len(hostile) // 4
    files = [file for at in range(0, len(hostile), count) for file in (honest, *hostile[at : at + count])]
    left = list(reversed(files))

    def write(_):
        with lock:
            return file_of(left.pop())

    with serving(write) as server:
        run_of(tmp_path, server, count=1 + count).search(len(files), None)
    records = [record for record in records_of(tmp_path) if record["kind"] == "code"]
    written = [record for record in records if record["proposer"] != "start"]
    assert sorted(record["source"] for record in written) == sorted(files)
    found = {
        record["fold"]: record["metrics"] for record in written if record["source"].strip() == honest.strip()
    }
    for record in written:
        if record["metrics"] is not None:
            assert record["metrics"]["objective"] <= found[record["fold"]]["objective"]
    assert any("plays another episode" in record["feedback"] for record in written)
