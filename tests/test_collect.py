"""Collection: what is sampled and probed, what is kept, and that nothing kept is lost."""

from __future__ import annotations

import dataclasses
import doctest
import errno
import hashlib
import json
import math
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import autotts_jax as at
from autotts_jax.collect import (
    Cancelled,
    Collected,
    Completion,
    EngineError,
    EngineSpec,
    Finish,
    LocalWorkers,
    MathGrader,
    Plan,
    Problem,
    Sampling,
    SimulatedEngine,
    Store,
    Trajectories,
    Unit,
    collect,
    collect_missing,
    collect_unit,
    collector,
    engine_spec,
    extractor,
    last_depth,
)
from autotts_jax.collect.answers import source_sha256
from autotts_jax.collect.simulated import END
from autotts_jax.collect.store import MATRIX
from autotts_jax.collect.thinking import TAGS
from autotts_jax.errors import DataError, InputError, InputWarning, TooLargeError
from autotts_jax.replay import autotts_json, load, read_files, read_json
from autotts_jax.replay.reading import COLLECTION

SAMPLING = Sampling(interval=20, max_tokens=200, seed=1)
PLAN = Plan(
    "simulated",
    "sums",
    tuple(Problem(f"What is {n} + {n}?", str(2 * n)) for n in range(1, 4)),
    num_branches=10,
    chunk=4,
    sampling=SAMPLING,
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished collection."""
    folder = tmp_path_factory.mktemp("collect") / "run"
    with Store.writing(folder, PLAN, {}) as run:
        collect_missing(run, LocalWorkers(SimulatedEngine()))
        run.export()
    return folder


def records(folder: Path) -> list[dict]:
    return json.loads((folder / "matrix.json").read_text())


# --- trajectories ---------------------------------------------------------------------------------------


class Scripted(SimulatedEngine):
    """Continues a text as it is told to, by what was asked for."""

    def __init__(self, script, thinking=None):
        super().__init__()
        self.tokenizer.thinking = thinking
        self.asked, self._script = [], script

    def complete(self, request):
        self.asked.append(request)
        text, finish = self._script(self.tokenizer.decode(request.prompt), request)
        tokens = self.tokenizer.encode(text) + ((END,) if finish == "stop" and not request.stop else ())
        return Completion(tokens[: request.max_tokens], text, Finish(finish))


def trajectories(engine, rule="auto", **settings):
    sampling = dataclasses.replace(SAMPLING, **settings)
    return Trajectories(engine, "Q?", sampling, extractor(rule))


def test_a_branch_is_probed_at_each_interval_before_its_end(finished):
    for record in records(finished):
        for probes, tokens, _ in record["each_branch"]:
            assert len(probes) == last_depth(tokens, 20) - 1
    assert [last_depth(tokens, 20) for tokens in (1, 20, 21, 40, 41, 200)] == [2, 2, 2, 2, 3, 10]


def test_probes_are_forced_from_the_prefix_and_change_nothing_that_follows():
    engine = SimulatedEngine()
    probed, bare = trajectories(engine), trajectories(engine)
    probed.read({0: 10})
    bare.read({0: 10}, probe=False)
    assert probed[0].tokens == bare[0].tokens
    assert not bare[0].probes
    assert probed[0].final == bare[0].final
    asked = Scripted(lambda prompt, _: ("7}", "stop") if prompt.endswith("{") else ("x" * 20, "length"))
    written = trajectories(asked)
    written.read({0: 2})
    prefixes = [asked.tokenizer.decode(request.prompt) for request in asked.asked if request.stop]
    assert prefixes == ["\nQ?\n" + "x" * n + "\n\nThe final answer is \\boxed{" for n in (20, 40)]
    assert [written.at(0, depth).answer for depth in (1, 2)] == ["7", "7"]


def test_a_thinking_model_is_forced_to_stop_thinking_unless_it_has():
    def script(prompt, request):
        if request.stop:
            return "1}", "stop"
        return ("</think> so it is  " if len(prompt) > 20 else "hm " * 6 + "..", "length")

    engine = Scripted(script, thinking=TAGS)
    trajectories(engine).read({0: 2})
    ends = [engine.tokenizer.decode(request.prompt)[-50:] for request in engine.asked if request.stop]
    assert ends[0].count("</think>") == 1
    assert ends[0].endswith("..\n</think>\n\nThe final answer is \\boxed{")
    assert ends[1].count("</think>") == 1
    assert ends[1].endswith("it is  \n\nThe final answer is \\boxed{")


@pytest.mark.parametrize("inside", range(9))
def test_a_tag_that_an_interval_cuts_ends_the_thinking(inside):
    text = "x" * (20 - inside) + "</think>" + "y" * (12 + inside)

    def script(prompt, request):
        written = len(prompt) - len("\nQ?\n")
        return ("1}", "stop") if request.stop else (text[written : written + 20], "length")

    engine = Scripted(script, thinking=TAGS)
    trajectories(engine).read({0: 2})
    prefixes = [engine.tokenizer.decode(request.prompt) for request in engine.asked if request.stop]
    forced = [prefix.removesuffix("\n\nThe final answer is \\boxed{") for prefix in prefixes]
    assert forced[0] == "\nQ?\n" + text[:20] + ("" if inside == 8 else "\n</think>")
    assert forced[1] == "\nQ?\n" + text


def test_a_box_is_written_until_it_closes():
    pieces = iter([(r"\frac{1}", "stop"), (r"{2}", "stop"), (r"}", "stop")])
    engine = Scripted(lambda _, r: next(pieces) if r.stop else ("x" * 20, "length"))
    written = trajectories(engine)
    written.read({0: 1})
    assert written.at(0, 1).answer == r"\frac{1}{2}"
    assert written.at(0, 1).tokens == len(r"\frac{1}{2}}")
    cut = Scripted(lambda _, r: ("{" + "}" * 5, "length") if r.stop else ("x" * 20, "length"))
    trajectories(cut, probe_tokens=6).read({0: 1})
    assert sum(1 for request in cut.asked if request.stop) == 1


@pytest.mark.parametrize(
    ("text", "finish", "final", "forced"),
    [
        ("It is 12.", "stop", "12", 0),
        ("I do not know.", "stop", "ERR", 0),
        ("2, 3, 5, 8, 13 so th", "length", "9", 1),
        ("<think>5</think> 6", "stop", "6", 0),
    ],
)
def test_the_final_answer_is_found_after_the_thinking_or_forced(text, finish, final, forced):
    engine = Scripted(lambda _, r: ("9}", "stop") if r.stop else (text, finish))
    written = trajectories(engine, max_tokens=20)
    written.read({0: 2})
    assert written.at(0, 1) == written.at(0, 2)
    assert written.at(0, 2).answer == final
    assert sum(1 for request in engine.asked if request.stop) == forced


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _, completions: completions[1:], "3 completions for 4 requests"),
        (lambda _, c: [Completion((), "", Finish.length)] * len(c), "gave 0 tokens"),
        (lambda _, c: [Completion((49,) * 21, "1" * 21, Finish.stop)] * len(c), "gave 21 tokens"),
        (
            lambda _, c: [dataclasses.replace(one, logprobs=(float("nan"),)) for one in c],
            "a log-probability, confidence or entropy of nan",
        ),
        (lambda _, c: [dataclasses.replace(one, cached=10**400) for one in c], "cached tokens of a prompt"),
    ],
)
def test_engines_that_break_their_contract_are_errors(change, message):
    class Broken(SimulatedEngine):
        def generate(self, requests, cancel=None):
            return change(requests, super().generate(requests, cancel))

    with pytest.raises(EngineError, match=f"the engine of simulated .*{message}.*check_engine"):
        collect_unit(Broken(), PLAN, PLAN.units()[0])


def test_a_box_that_stays_silent_is_not_asked_again():
    pieces = iter([Completion(tuple(b"{1}"), "{1}", Finish.stop), Completion((), "", Finish.stop)])

    class Silent(Scripted):
        def complete(self, request):
            return next(pieces) if request.stop else super().complete(request)

    written = trajectories(Silent(lambda *_: ("x" * 20, "length")))
    written.read({0: 1})
    assert written.at(0, 1).tokens == 3


def test_branches_of_which_an_engine_writes_less_than_asked_for_are_read_to_their_ends():
    class Short(SimulatedEngine):
        def complete(self, request):
            if request.stop:
                return super().complete(request)
            return Completion((49,) * max(1, request.max_tokens - 1), "1", Finish.length)

    unit = collect_unit(Short(), PLAN, PLAN.units()[0])
    assert {(branch.tokens, branch.finish) for branch in unit.branches} == {(200, Finish.length)}
    assert {len(branch.probes) for branch in unit.branches} == {9}


def test_of_several_answers_at_a_prefix_the_majority_is_the_probe():
    drawn = iter(["4}", "5}", "5}"])
    engine = Scripted(lambda _, r: (next(drawn), "stop") if r.stop else ("x" * 20, "length"))
    written = trajectories(engine, probes_per_prefix=3)
    written.read({0: 1})
    probe = written.at(0, 1)
    assert (probe.answer, probe.answers, probe.tokens) == ("5", ("4", "5", "5"), 6)
    forced = [request for request in engine.asked if request.stop]
    assert len({request.seed for request in forced}) == 3
    assert {request.temperature for request in forced} == {SAMPLING.temperature}


def test_branches_depend_on_seed_question_and_number_alone():
    engine = SimulatedEngine()
    alone, together, other = (trajectories(engine) for _ in range(3))
    alone.read({3: 10})
    together.read(dict.fromkeys(range(6), 10))
    assert alone[3].tokens == together[3].tokens
    assert len({together[b].tokens for b in range(6)}) == 6
    other = trajectories(engine, seed=2)
    other.read({3: 10})
    assert other[3].tokens != alone[3].tokens


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"interval": 0}, "interval is 0"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"probe_tokens": -1}, "probe_tokens is -1"),
        ({"probes_per_prefix": 0}, "probes_per_prefix is 0"),
        ({"temperature": 0.0}, "temperature is 0; it must be above 0"),
        ({"temperature": -0.5}, "temperature is -0.5"),
        ({"temperature": 3.0}, "temperature is 3"),
        ({"top_p": 0.0}, "top_p is 0"),
        ({"top_k": -1}, "top_k is -1; it must be at least 0"),
        ({"min_p": 1.5}, "min_p is 1.5; it must be at least 0 and at most 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(PLAN, sampling=dataclasses.replace(SAMPLING, **settings))


# --- what is kept ---------------------------------------------------------------------------------------


def test_a_finished_collection_is_a_probe_matrix(finished):
    dataset = read_files(str(finished))
    assert [cell.name for cell in dataset.cells] == ["simulated/sums"]
    assert [question.gold for question in dataset.questions] == ["2", "4", "6"]
    assert dataset.matrix.num_branches == 10
    again = read_json(finished / "matrix.json", model="simulated", benchmark="sums")
    assert again.questions == dataset.questions
    for name in ("answers", "lengths", "tokens", "gold", "interval"):
        assert (getattr(again.matrix, name) == getattr(dataset.matrix, name)).all()


def test_the_json_has_exactly_the_released_schema(finished, replay_dir):
    released = json.loads(sorted(replay_dir.rglob("*.json"))[0].read_text())

    def schema(value):
        if isinstance(value, dict):
            return {name: schema(item) for name, item in value.items()}
        if isinstance(value, list):
            shapes = [schema(item) for item in value]
            alike = all(shape == shapes[0] for shape in shapes)
            return ["of each", shapes[0]] if alike else shapes
        return type(value)

    assert schema(records(finished)[0]) == schema(released[0])
    assert list(records(finished)[0]) == list(released[0])


def test_what_was_collected_is_what_trajectories_write(finished):
    run = Store(finished)
    written = trajectories_of(1)
    for unit in PLAN.units():
        if unit.question == 1:
            for b, branch in zip(unit.branches, run.read(unit).branches, strict=True):
                assert branch.tokens == len(written[b].tokens)
                assert branch.final == written[b].final.answer
                assert branch.finish == written[b].ended
                assert len(branch.probe_tokens) == len(branch.probes) + 1


def trajectories_of(question):
    written = Trajectories(SimulatedEngine(), PLAN.questions[question].text, SAMPLING, extractor("auto"))
    written.read(dict.fromkeys(range(PLAN.num_branches), SAMPLING.max_depth))
    return written


def test_optional_things_are_kept_where_they_are_asked_for(tmp_path):
    sampling = dataclasses.replace(SAMPLING, probes_per_prefix=2)
    plan = dataclasses.replace(PLAN, keep_text=True, sampling=sampling)
    with Store.writing(tmp_path / "run", plan, {}) as run:
        unit = run.missing()[0]
        run.write(collect_unit(SimulatedEngine(), plan, unit))
        (branch, *_) = run.read(unit).branches
    assert len(branch.text) + 1 >= branch.tokens  # bytes are tokens; one may end the text
    assert [len(draws) for draws in branch.draws[:-1]] == [2] * len(branch.probes)
    assert branch.signals is None


def test_equal_answers_are_spelled_alike_and_right_ones_as_the_reference(tmp_path):
    given = iter(["1/2}", "0.5}", r"\frac{1}{2}}", "2}"])
    engine = Scripted(lambda _, r: (next(given), "stop") if r.stop else ("x" * 20, "length"))
    plan = dataclasses.replace(
        PLAN,
        questions=(Problem("Half of one?", "0.5"),),
        num_branches=4,
        sampling=dataclasses.replace(SAMPLING, max_tokens=20),
    )
    with Store.writing(tmp_path / "run", plan, {}) as run:
        collect_missing(run, LocalWorkers(engine))
        dataset = run.export()
    assert dataset.questions[0].vocabulary == ("0.5", "2")


def test_the_example_works():
    outcome = doctest.testmod(collector)
    assert outcome.attempted
    assert not outcome.failed


def test_a_plan_becomes_a_dataset_in_one_call(tmp_path, finished):
    dataset = collect(PLAN, tmp_path / "run", LocalWorkers(SimulatedEngine()))
    assert len(dataset) == 3
    assert (tmp_path / "run" / "matrix.npz").read_bytes() == (finished / "matrix.npz").read_bytes()
    plan = dataclasses.replace(PLAN, questions=list(PLAN.questions))  # the same one
    again = collect(plan, str(tmp_path / "run"), lambda *_: pytest.fail("nothing is missing"))
    assert again.questions == dataset.questions


def test_a_collection_can_be_looked_into_while_it_grows(main, tmp_path):
    with Store.writing(tmp_path / "run", PLAN, {}) as run:
        for unit in run.missing()[:4]:
            run.write(collect_unit(SimulatedEngine(), PLAN, unit))
        assert len(Store(tmp_path / "run").dataset()) == 1
        shown = main("data", "info", tmp_path / "run")
    assert "14 of 30" in shown
    assert "label_accuracy" in shown
    with pytest.raises(InputError, match="nothing found"):
        read_files(str(tmp_path / "run"))


@pytest.fixture
def main(run):
    """Runs a command that succeeds; gives stdout."""

    def main(*arguments):
        status, out, err = run(*arguments)
        assert status == 0, err
        return out

    return main


# --- going on -------------------------------------------------------------------------------------------


def test_a_collection_goes_on_where_it_was(tmp_path, finished):
    units = []

    class Counting(LocalWorkers):
        def __call__(self, plan, missing):
            units.extend(missing)
            return super().__call__(plan, units[-len(missing) :])

    with Store.writing(tmp_path / "run", PLAN, {}) as run:
        for unit in random.Random(0).sample(PLAN.units(), 5):
            run.write(collect_unit(SimulatedEngine(), PLAN, unit))
    with Store.writing(tmp_path / "run", PLAN, {}) as run:
        collect_missing(run, Counting(SimulatedEngine()))
        run.export()
    assert len(units) == len(PLAN.units()) - 5
    for name in ("matrix.json", "matrix.npz"):
        assert (tmp_path / "run" / name).read_bytes() == (finished / name).read_bytes()


FILES = ("matrix.json", "matrix.npz")


@pytest.mark.parametrize("chunk", [16, *(pytest.param(chunk, marks=pytest.mark.slow) for chunk in (3, 4, 8))])
def test_a_collection_that_has_grown_equals_one_made_at_once(tmp_path, chunk):
    questions = (*PLAN.questions, Problem("What is 4 + 4?", "8"), Problem("What is 5 + 5?", "10"))
    large = dataclasses.replace(PLAN, questions=questions, num_branches=16, chunk=chunk)
    small = dataclasses.replace(PLAN, num_branches=8)
    workers = LocalWorkers(SimulatedEngine())
    collect(large, tmp_path / "at once", workers)
    grown = tmp_path / "grown"
    with Store.writing(grown, small, {"engine": "simulated"}) as run:
        collect_missing(run, workers)
    kept = {path: path.read_bytes() for path in (grown / "units").iterdir()}
    with Store.writing(grown, dataclasses.replace(small, questions=questions), {}) as run:
        collect_missing(run, workers)
    collect(large, grown, workers, made_with={"engine": "another"})
    for name in FILES:
        assert (grown / name).read_bytes() == (tmp_path / "at once" / name).read_bytes()
    assert {path: path.read_bytes() for path in kept} == kept
    manifest = json.loads((grown / COLLECTION).read_text())
    assert manifest["plan"]["num_branches"] == 16
    assert manifest["runs"] == [{"engine": "simulated"}, {}, {"engine": "another"}]


def test_another_chunk_does_for_what_is_missing(tmp_path, finished):
    with Store.writing(tmp_path / "run", PLAN, {}) as run:
        for unit in PLAN.units()[1:4:2]:
            run.write(collect_unit(SimulatedEngine(), PLAN, unit))
    plan = dataclasses.replace(PLAN, chunk=3)
    with Store.writing(tmp_path / "run", plan, {}) as run:
        assert [tuple(unit) for unit in run.missing()[:6]] == [
            *((0, 0, 3), (0, 3, 1), (0, 8, 1), (0, 9, 1)),
            *((1, 4, 2), (1, 6, 3)),
        ]
        collect_missing(run, LocalWorkers(SimulatedEngine()))
        assert records_of(run) == records_of(Store(finished))


def test_growing_deletes_the_matrix_until_it_is_made_again(tmp_path, finished):
    grown = Path(shutil.copytree(finished, tmp_path / "run"))
    with Store.writing(grown, dataclasses.replace(PLAN, num_branches=99), {}):  # by mistake
        assert not any((grown / name).exists() for name in FILES)
    with Store.writing(grown, PLAN, {}) as run:
        assert not run.missing()
        assert records_of(run) == records_of(Store(finished))


def records_of(store: Store) -> list[str]:
    """The hashes of what the cells of a collection were made from, without grading it."""
    return [cell.sha256 for cell in store.dataset().cells]


@pytest.mark.slow
def test_of_an_unfinished_collection_the_complete_questions_are_played(tmp_path, finished):
    with Store.writing(tmp_path / "run", PLAN, {}) as run:
        with pytest.raises(InputError, match="none of its 3 questions has all its 10 branches"):
            at.evaluate(tmp_path / "run", "sc@8", seeds=2, max_branches=8)
        for unit in PLAN.units()[:7]:
            run.write(collect_unit(SimulatedEngine(), PLAN, unit))
    with pytest.warns(InputWarning, match="run is unfinished: only its 2 complete questions of 3 are used"):
        partly = at.evaluate(tmp_path / "run", "sc@8", seeds=2, max_branches=8)
    whole = at.evaluate(finished, "sc@8", seeds=2, max_branches=8)
    shown, rows = partly.episodes().to_pylist(), whole.episodes().to_pylist()
    assert len(partly.dataset) == 2
    assert [row["tokens"] for row in shown] == [row["tokens"] for row in rows if row["question"] < 2]


def test_the_command_says_that_a_collection_is_unfinished(run, tmp_path):
    with Store.writing(tmp_path / "run", PLAN, {}) as begun:
        for unit in PLAN.units()[:4]:
            begun.write(collect_unit(SimulatedEngine(), PLAN, unit))
    both = ["smollm2", str(tmp_path / "run")]
    status, out, err = run("data", "convert", *both, "--out", tmp_path / "both.npz")
    assert status == 0
    assert err.startswith(f"autotts-jax: warning: {both[1]} is unfinished: only its 1 complete ")
    assert "2 cells, 41 questions" in out


def command(folder: Path) -> list[str]:
    return [
        *(sys.executable, "-c", SLOW, "collect", "--engine", "simulated", "--out", str(folder)),
        *("--questions", "arithmetic:12", "--branches", "16", "--chunk", "2", "--in-flight", "8"),
        *("--interval", "20", "--max-tokens", "200"),
    ]


SLOW = """
import time
from autotts_jax.collect import SimulatedEngine
from autotts_jax.cli.main import main
fast = SimulatedEngine.generate
def generate(self, requests, cancel=None):
    time.sleep(0.02)
    return fast(self, requests, cancel)
SimulatedEngine.generate = generate
main()
"""


@pytest.mark.slow
def test_killed_again_and_again_it_ends_with_the_same_files(tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    subprocess.run(command(whole), check=True, capture_output=True, timeout=120)
    draw = random.Random(0)
    kills, seen = 0, set()
    while kills < 4:
        process = subprocess.Popen(command(broken), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        wanted = len(seen) + draw.randint(0, 2)
        deadline = time.monotonic() + 60
        while len(list(broken.glob("units/[0-9]*"))) < wanted and time.monotonic() < deadline:
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.001)
        time.sleep(draw.random() * 0.05)
        assert process.poll() is None, process.stdout.read()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        kills += 1
        kept = {path.name: path.read_bytes() for path in broken.glob("units/[0-9]*")}
        assert seen <= kept.keys(), "a unit was lost"
        seen = set(kept)
    assert len(seen) < 96, "it was never killed in the middle of the work"
    subprocess.run(command(broken), check=True, capture_output=True, timeout=120)
    for name in ("matrix.json", "matrix.npz"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes()
    assert not list(broken.glob("units/.*"))


def test_a_full_disk_ends_it_with_one_message_and_loses_nothing(tmp_path, monkeypatch):
    with Store.writing(tmp_path / "run", PLAN, {}) as run:
        real, left = os.fsync, iter(range(3))

        def full(descriptor):
            if next(left, None) is None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(descriptor)

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            with pytest.raises(InputError, match="No space left on device"):
                collect_missing(run, LocalWorkers(SimulatedEngine()))
        assert len(run.done()) == 3
        collect_missing(run, LocalWorkers(SimulatedEngine()))
        assert not run.missing()


def test_an_engine_that_fails_ends_it_and_loses_nothing(tmp_path):
    class Failing(SimulatedEngine):
        calls = 0

        def generate(self, requests, cancel=None):
            self.calls += 1
            if self.calls > 40:
                raise EngineError("the server is gone")
            return super().generate(requests, cancel)

    with Store.writing(tmp_path / "run", PLAN, {}) as run:
        with pytest.raises(EngineError, match="gone"):
            collect_missing(run, LocalWorkers(Failing(), in_flight=8))
        assert 0 < len(run.done()) < len(PLAN.units())


def test_what_is_under_way_is_dropped_when_nobody_waits_for_it():
    class Waiting(SimulatedEngine):
        dropped = 0

        def generate(self, requests, cancel=None):
            if b"1 + 1" not in bytes(requests[0].prompt) and cancel.wait(30):
                self.dropped += 1
                raise Cancelled
            return super().generate(requests, cancel)

    engine = Waiting()
    finished = LocalWorkers(engine, in_flight=16)(PLAN, PLAN.units())
    next(finished)
    finished.close()
    assert engine.dropped > 0


def test_progress_is_told(tmp_path):
    told = []
    with Store.writing(tmp_path / "run", PLAN, {}) as run:
        run.write(collect_unit(SimulatedEngine(), PLAN, run.missing()[0]))
        collect_missing(run, LocalWorkers(SimulatedEngine()), told.append)
    assert told[-1].branches == told[-1].of == 30
    assert told[-1].session == 26
    assert told[-1].seconds_left == 0
    assert told[-1].tokens_in_all > told[-1].usage.generated


# --- bad input ------------------------------------------------------------------------------------------


def test_another_plan_is_refused(finished):
    other = dataclasses.replace(PLAN, num_branches=12, sampling=dataclasses.replace(SAMPLING, seed=9))
    with pytest.raises(InputError, match="another collection: seed was 1 and is 9"):  # noqa: SIM117
        with Store.writing(finished, other, {}):
            pass
    restricted = dataclasses.replace(PLAN, sampling=dataclasses.replace(SAMPLING, top_k=20, min_p=0.1))
    with pytest.raises(InputError, match=r"top_k was 0 and is 20; min_p was 0\.0 and is 0\.1"):  # noqa: SIM117
        with Store.writing(finished, restricted, {}):
            pass
    smaller = dataclasses.replace(PLAN, num_branches=9, questions=PLAN.questions[:2])
    with pytest.raises(InputError, match=r"num_branches was 10 and is 9; questions was '3.* and is '2"):  # noqa: SIM117
        with Store.writing(finished, smaller, {}):
            pass
    questions = (*PLAN.questions[:2], Problem("What is 3 + 3?", "7"))
    with (
        pytest.raises(InputError, match="questions was"),
        Store.writing(finished, dataclasses.replace(PLAN, questions=questions), {}),
    ):
        pass


def test_a_plan_by_which_nothing_was_collected_is_replaced(tmp_path):
    with Store.writing(tmp_path / "run", PLAN, {}):
        pass
    other = dataclasses.replace(PLAN, model="another")
    with Store.writing(tmp_path / "run", other, {}) as run:
        assert run.plan == other


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("")
    with pytest.raises(InputError, match="not empty"), Store.writing(tmp_path, PLAN, {}):
        pass
    with pytest.raises(InputError, match="holds no collection"):
        Store(tmp_path)


def test_two_collectors_of_one_folder_are_refused(tmp_path):
    with Store.writing(tmp_path / "run", PLAN, {}), pytest.raises(InputError, match="in use by another run"):  # noqa: SIM117
        with Store.writing(tmp_path / "run", PLAN, {}):
            pass


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[: len(text) // 2], "damaged: not JSON: "),
        (lambda text: text.replace('"version": 3', '"version": 9'), "not autotts_jax collection version 3"),
        (lambda text: text.replace('"num_branches"', '"branches"'), "plan.branches: Unexpected"),
        (
            lambda text: text.replace('"seed": 1', '"seed": "1"'),
            "plan.sampling.seed: Input should be",
        ),
        (lambda text: text.replace('"interval": 20', '"interval": 0'), "plan.sampling: .*interval is 0"),
        (lambda _: "[]", "damaged: Input should be"),
    ],
)
def test_a_damaged_plan_is_named(tmp_path, damage, message):
    with Store.writing(tmp_path / "run", PLAN, {}):
        pass
    manifest = tmp_path / "run" / COLLECTION
    manifest.write_text(damage(manifest.read_text()))
    with pytest.raises(DataError, match=message):
        Store(tmp_path / "run")


BRANCH = '{"probes": ["1"], "tokens": 2, "final": "1", "finish": "stop", "probe_tokens": [3, 0]}'
BRANCHES = f'{{"branches": [{BRANCH}], "usage": '


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "not JSON: Expecting value"),
        ("{", "not JSON: Expecting property name"),
        ("{}", "branches: Field required"),
        ('{"branches": [], "usage": {}}', "it has no branches"),
        (
            '{"branches": [{"probes": ["1"], "tokens": 2.5}], "usage": {}}',
            "branches.0.tokens: Input",
        ),
        ("[1]", "Input should be"),
        (f'{{"branches": [], "usage": {{}}, "{"x" * 10**6}": 1}}', "x{20,150}….{20,200}"),
        (
            BRANCHES.replace("}]", ', "signals": {"eat": [NaN]}}]') + "{}}",
            "branch 0: the signal 'eat' was not asked for",
        ),
        (
            BRANCHES + '{"prompted": 2, "cached": 3}}',
            "its usage counts .* more cached tokens than there were",
        ),
        (
            BRANCHES + '{"prompted": 2, "cached": -3}}',
            "its usage counts less than nothing",
        ),
    ],
)
def test_a_damaged_unit_is_named(tmp_path, content, problem):
    with Store.writing(tmp_path / "run", PLAN, {}) as run:
        unit = run.missing()[0]
        run.write(collect_unit(SimulatedEngine(), PLAN, unit))
        path = run.folder / "units" / "00000-00000.json"
        path.write_text(content)
        with pytest.raises(DataError, match=rf"00000-00000.json: damaged: {problem}.*delete it"):
            run.read(unit)


def test_a_unit_and_a_matrix_that_would_not_be_read_are_not_written(tmp_path, monkeypatch):
    with Store.writing(tmp_path / "run", DETAILED, {}) as run:
        collected = collect_unit(SimulatedEngine(), DETAILED, run.missing()[0])
        run.write(collected)
        size = (run.folder / "units" / "00000-00000.json").stat().st_size
        monkeypatch.setattr("autotts_jax.parsing.MAX_JSON", size // 2)
        with pytest.raises(TooLargeError, match=r"00000-00000\.json: .* with a smaller chunk"):
            run.write(collected)
        monkeypatch.setattr("autotts_jax.parsing.MAX_JSON", size)
        collect_missing(run, LocalWorkers(SimulatedEngine()))
        run.export()
        assert (run.folder / MATRIX).exists()
        (run.folder / MATRIX).unlink()
        monkeypatch.setattr(autotts_json, "check_size", too_large)
        assert len(run.export()) == 1
        assert len(load(run.folder)) == 1
        assert not (run.folder / MATRIX).exists()


def too_large(_content):
    raise ValueError("it is too large")


def test_units_that_would_not_be_read_are_not_planned():
    sampling = dataclasses.replace(
        SAMPLING, interval=1, max_tokens=2**11, probes_per_prefix=3, signals=("logprob_mean",)
    )
    plan = dataclasses.replace(PLAN, sampling=sampling, num_branches=2**11, chunk=1365)
    with pytest.raises(InputError, match=r"a unit of 1,366 branches .* choose a smaller chunk"):
        dataclasses.replace(plan, chunk=1366)


def test_an_unfinished_collection_is_not_exported(tmp_path):
    with Store.writing(tmp_path / "run", PLAN, {}) as run, pytest.raises(InputError, match="9 units"):
        run.export()


def test_a_plan_without_questions_is_refused():
    with pytest.raises(InputError, match="no question"):
        dataclasses.replace(PLAN, questions=())
    with pytest.raises(InputError, match="chunk is 0, but it must be at least 1"):
        dataclasses.replace(PLAN, chunk=0)


def test_the_command_says_what_is_wrong(run, tmp_path):
    for arguments, message in {
        ("--questions", "none.jsonl"): "none.jsonl",
        ("--questions", "arithmetic:2", "--answers", "nonsense"): "nonsense",
        ("--questions", "arithmetic:2", "--engine", "server", "--model", "m"): "--base-url",
        ("--questions", "arithmetic:2", "--engine", "vllm"): "--model",
        ("--questions", "arithmetic:2", "--engine-option", "speed"): "NAME=VALUE",
        ("--questions", "arithmetic:2", "--engine-option", "speed=9"): "does not know",
    }.items():
        engine = () if "--engine" in arguments else ("--engine", "simulated")
        status, _, err = run("collect", *arguments, *engine, "--out", tmp_path / "run")
        assert status == 2
        assert message in err


def test_the_command_makes_data_that_evaluate_takes(main, tmp_path):
    folder = tmp_path / "run"
    line = ["collect", "--engine", "simulated", "--questions", "arithmetic:2", "--out", str(folder)]
    settings = ["--branches", "8", "--interval", "20", "--max-tokens", "100"]
    said = main(*line, *settings)
    assert "2 questions of 8 branches" in said
    _, told = said.splitlines()[-1].split("evaluate it: autotts-jax ")
    assert "cmc@0.5" in main(*shlex.split(told), "--seeds", 1)
    assert "simulated/arithmetic" in main("data", "info", folder)
    manifest = json.loads((folder / COLLECTION).read_text())
    assert [run["engine"] for run in manifest["runs"]] == ["simulated"]
    engine = {"kind": "simulated", "model": None, "options": {}, "files_sha256": None}
    assert manifest["plan"]["engine"] == engine
    assert Store(folder).plan.questions[0].topic


def test_the_grader_is_not_needed_to_look(finished):
    with MathGrader(1) as grader:
        graded = Store(finished).dataset(grader)
    assert len(Store(finished).dataset()) == len(graded) == 3


# --- what was collected is what is read


def collected_unit(folder: Path) -> Path:
    """Collects the first unit of the plan, and returns its file."""
    with Store.writing(folder, PLAN, {}) as run:
        run.write(collect_unit(SimulatedEngine(), PLAN, run.missing()[0]))
    return folder / "units" / "00000-00000.json"


def set_in(*place):
    *path, key, value = place

    def change(content):
        for step in path:
            content = content[step]
        content[key] = value

    return change


def swap_branches(content):
    content["branches"].reverse()


@pytest.mark.parametrize(
    "change",
    [
        set_in("branches", 0, "final", "42"),
        set_in("branches", 1, "probes", 0, "42"),
        set_in("branches", 0, "tokens", 77),
        set_in("usage", "generated", 1),
        set_in("digest", "0" * 64),
        set_in("digest", None),
        swap_branches,
        lambda content: content["branches"].pop(),
        lambda content: content.pop("digest"),
        set_in("branches", 0, "final", None),
        set_in("branches", []),
        set_in("usage", "x"),
        set_in("usage", "generated", 10**30),
    ],
)
def test_a_unit_that_was_changed_is_named(tmp_path, change):
    path = collected_unit(tmp_path / "run")
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    store = Store(tmp_path / "run")
    for read in (store.collected, store.missing, store.done, store.dataset):
        with pytest.raises(DataError, match=r"00000-00000\.json: damaged: .*; delete it and collect again"):
            read()


DETAILED = dataclasses.replace(
    PLAN,
    questions=PLAN.questions[:1],
    num_branches=4,
    keep_text=True,
    sampling=dataclasses.replace(SAMPLING, max_tokens=60, probes_per_prefix=3, signals=("logprob_mean",)),
)


@pytest.fixture(scope="module")
def forged(tmp_path_factory):
    """Writes changed branches of `DETAILED`, with the digest that they then have, and reads them."""
    unit = Unit(0, 0, 4)
    whole = collect_unit(SimulatedEngine(), DETAILED, unit)
    with Store.writing(tmp_path_factory.mktemp("forged") / "run", DETAILED, {}) as run:

        def read(number: int | None, **changes):
            """With changes of a branch, or of the usage."""
            branches, usage = list(whole.branches), whole.usage
            if number is None:
                usage = dataclasses.replace(usage, **changes)
            else:
                branches[number] = dataclasses.replace(branches[number], **changes)
            run.write(Collected(unit, branches, usage))
            return run.read(unit).branches

        yield read


LONG, SHORT = 1, 0
"""Branches of `DETAILED` that were cut off, and that ended."""


@pytest.mark.parametrize(
    ("number", "changes", "problem"),
    [
        (SHORT, {"tokens": 0}, r"0 tokens are not in 1 … 60"),
        (LONG, {"tokens": 61}, r"61 tokens are not in 1 … 60"),
        (LONG, {"tokens": 10**30}, r"tokens are not in 1 … 60"),
        (LONG, {"tokens": 20}, r"2 probes are not those of 20 tokens, each 20"),
        (LONG, {"probes": []}, r"0 probes are not those of 60 tokens"),
        (LONG, {"probes": ["1"] * 9}, r"9 probes are not those of 60 tokens"),
        (LONG, {"tokens": 59}, r"it was cut off after 59 tokens, before 60"),
        (LONG, {"final": ""}, r"an answer is not a line of 1 to 200"),
        (LONG, {"probes": ["1\n2", "3"]}, r"an answer is not a line of 1 to 200"),
        (LONG, {"final": "x" * 201}, r"an answer is not a line of 1 to 200"),
        (LONG, {"probe_tokens": [1]}, r"1 probe_tokens are not those of 3 answers"),
        (LONG, {"probe_tokens": [1, -1, 1]}, r"an entry of probe_tokens is not in 0 … 96"),
        (LONG, {"probe_tokens": [1, 97, 1]}, r"an entry of probe_tokens is not in 0 … 96"),
        (LONG, {"draws": None}, "draws is missing"),
        (LONG, {"signals": None}, "signals is missing"),
        (LONG, {"text": None}, "text is missing"),
        (LONG, {"signals": {"logprob_mean": [-1.0, math.inf, -1.0]}}, "logprob_mean is not 3 finite numbers"),
        (LONG, {"signals": {"logprob_mean": [-1.0]}}, "logprob_mean is not 3 finite numbers"),
        (LONG, {"signals": {"eat": [1.0] * 3}}, "the signal 'eat' was not asked for"),
        (LONG, {"draws": [["1"] * 3] * 2}, "draws are not those"),
        (LONG, {"draws": [["1"] * 3, ["1"] * 3, ["1"]]}, "draws are not those"),
        (LONG, {"draws": [["no", "no", "1"]] * 3}, "draws are not those"),
        (SHORT, {"finish": Finish.length}, "it was cut off after"),
    ],
)
def test_a_unit_that_cannot_be_is_named_even_if_its_digest_is_right(forged, number, changes, problem):
    assert len(forged(number)) == 4
    with pytest.raises(
        DataError, match=rf"00000-00000\.json: damaged: branch {number}: .*{problem}.*; delete"
    ):
        forged(number, **changes)


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("generated", "generated tokens"),
        ("forced", "tokens of forced answers"),
        ("probes", "forced answers"),
    ],
)
@pytest.mark.parametrize("change", [0, 10**9])
def test_usage_that_is_not_that_of_the_branches_is_named(forged, field, other, change):
    assert len(forged(None)) == 4
    with pytest.raises(DataError, match=rf"its usage counts {change} {other}, and its branches have \d"):
        forged(None, **{field: change})


def test_an_unwanted_detail_of_a_unit_is_named(tmp_path):
    path = collected_unit(tmp_path / "run")
    content = json.loads(path.read_text())
    content["branches"][0]["text"] = "x"
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match="branch 0: text was not asked for"):
        Store(tmp_path / "run").done()


@pytest.mark.parametrize("name", ["seed", "model", "answers"])
def test_a_unit_of_another_plan_is_named(tmp_path, name):
    changed = {
        "seed": {"sampling": dataclasses.replace(SAMPLING, seed=2)},
        "model": {"model": "another"},
        "answers": {"answers": "number"},
    }
    path = collected_unit(tmp_path / "run")
    plan = dataclasses.replace(PLAN, **changed[name])
    with Store.writing(tmp_path / "other", plan, {}) as run:
        run.write(collect_unit(SimulatedEngine(), plan, run.missing()[0]))
    shutil.copy(tmp_path / "other" / "units" / path.name, path)
    with (
        pytest.raises(DataError, match="is not that of its content, place and plan"),
        Store.writing(tmp_path / "run", PLAN, {}),
    ):
        pass


def test_a_collection_goes_on_with_the_same_file_of_answers(tmp_path):
    rule, folder = tmp_path / "rule.py", tmp_path / "run"
    rule.write_text("def f(text):\n    return '1'\n")
    plan = dataclasses.replace(PLAN, answers=f"{rule}:f")
    with Store.writing(folder, plan, {}) as run:
        run.write(collect_unit(SimulatedEngine(), plan, run.missing()[0]))
    with Store.writing(folder, plan, {}) as run:
        assert len(run.collected()) == 1
    content = json.loads((folder / COLLECTION).read_text())
    rule.write_text("def f(text):\n    return '2'\n")
    with (
        pytest.raises(InputError, match="another collection: answers_sha256 was"),
        Store.writing(folder, plan, {}),
    ):
        pass
    del content["plan"]["answers_sha256"]  # as before there was one
    (folder / COLLECTION).write_text(json.dumps(content))
    with Store.writing(folder, plan, {}) as run:
        assert len(run.collected()) == 1
        assert run.plan.answers_sha256 == hashlib.sha256(rule.read_bytes()).hexdigest()


def test_a_collection_goes_on_with_the_same_module_of_answers_which_is_not_run(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "rules_of_mine"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit")
    rule = package / "answers.py"
    rule.write_text("raise SystemExit")
    assert source_sha256("rules_of_mine.answers:f") == hashlib.sha256(rule.read_bytes()).hexdigest()
    for spec in ("rules_of_mine.absent:f", "no_rules_of_mine.answers:f", "sys:f", "auto", "regex:a:b"):
        assert source_sha256(spec) is None
    plan = dataclasses.replace(PLAN, answers="rules_of_mine.answers:f")
    with Store.writing(tmp_path / "run", plan, {}) as run:
        run.write(collect_unit(SimulatedEngine(), PLAN, run.missing()[0]))
    rule.write_text("raise SystemExit  # changed")
    with (
        pytest.raises(InputError, match="another collection: answers_sha256 was"),
        Store.writing(tmp_path / "run", plan, {}),
    ):
        pass


@pytest.mark.parametrize("engine", ["vllm", "server"])
@pytest.mark.parametrize(
    ("name", "content"),
    [("tokenizer.json", "[2]"), ("chat_template.jinja", "x"), ("model.safetensors", "1"), ("added.bin", "")],
)
def test_a_collection_goes_on_with_what_was_in_the_folder_of_its_model(tmp_path, engine, name, content):
    model, folder = tmp_path / "model", tmp_path / "run"
    model.mkdir()
    (model / "tokenizer.json").write_text("[1]")
    (model / "model.safetensors").write_bytes(bytes(1000))

    def plan():
        options = {} if engine == "vllm" else {"tokenizer": str(model)}
        spec = engine_spec(engine, str(model) if engine == "vllm" else "m", options)
        return dataclasses.replace(PLAN, engine=spec)

    with Store.writing(folder, plan(), {}) as run:
        run.write(collect_unit(SimulatedEngine(), PLAN, run.missing()[0]))
    with Store.writing(folder, plan(), {}) as run:
        assert len(run.collected()) == 1
    stored = json.loads((folder / COLLECTION).read_text())
    (model / name).write_text(content)
    with (
        pytest.raises(InputError, match=r"another collection: engine\.files_sha256 was"),
        Store.writing(folder, plan(), {}),
    ):
        pass
    del stored["plan"]["engine"]["files_sha256"]  # as before there was one
    (folder / COLLECTION).write_text(json.dumps(stored))
    with Store.writing(folder, plan(), {}) as run:
        assert len(run.collected()) == 1
        assert run.plan.engine.files_sha256 == plan().engine.files_sha256


def test_a_collection_from_before_a_setting_goes_on_without_it(tmp_path):
    """Its plan does not have the setting, and its digests do not depend on it."""
    unit = collected_unit(tmp_path / "run")
    manifest = tmp_path / "run" / COLLECTION
    content = json.loads(manifest.read_text())
    for name in ("top_k", "min_p", "prompt_template", "probe_tail", "signals"):
        del content["plan"]["sampling"][name]
    content["plan"]["sampling"]["logprobs"] = False
    manifest.write_text(json.dumps(content))
    problem, held = PLAN.questions[0], json.loads(unit.read_text())
    settings = {name: content["plan"][name] for name in ("model", "benchmark", "answers", "keep_text")}
    settings |= content["plan"]["sampling"]
    whole = [problem.text, problem.gold, 0, 0, held["branches"], held["usage"], settings]
    held["digest"] = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
    unit.write_text(json.dumps(held))
    with Store.writing(tmp_path / "run", PLAN, {}) as run:
        assert len(run.collected()) == 1
    content["plan"]["sampling"]["logprobs"] = True
    manifest.write_text(json.dumps(content))
    with pytest.raises(DataError, match="collected with logprobs, which is read no longer; collect it anew"):
        Store(tmp_path / "run")


def as_version_2(folder: Path) -> None:
    """Makes a collection what it was before digests depended on the plan."""
    manifest = folder / COLLECTION
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"version": 2}))
    for path in (folder / "units").iterdir():
        unit = json.loads(path.read_text())
        question, first = map(int, path.stem.split("-"))
        problem = PLAN.questions[question]
        held = [problem.text, problem.gold, question, first, unit["branches"], unit["usage"]]
        unit["digest"] = hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()
        path.write_text(json.dumps(unit))


def test_a_collection_of_version_2_is_read_and_goes_on(tmp_path, finished):
    folder = tmp_path / "run"
    with Store.writing(folder, PLAN, {}) as run:
        for unit in PLAN.units()[:3]:
            run.write(collect_unit(SimulatedEngine(), PLAN, unit))
    written = {path: path.read_bytes() for path in sorted((folder / "units").iterdir())}
    as_version_2(folder)
    new = next(iter(written))
    new.write_bytes(written[new])  # as an upgrade leaves it that was interrupted
    assert len(Store(folder).done()) == 3
    collect(PLAN, folder, LocalWorkers(SimulatedEngine()))
    assert (folder / "matrix.json").read_bytes() == (finished / "matrix.json").read_bytes()
    assert json.loads((folder / COLLECTION).read_text())["version"] == 3
    assert all(path.read_bytes() == content for path, content in written.items())


@pytest.mark.parametrize("name", ["00001-00000", "00000-00004", "00000-00002", "00009-00000", "00000-00099"])
def test_a_unit_in_another_place_is_named(tmp_path, name):
    path = collected_unit(tmp_path / "run")
    shutil.copy(path, path.with_stem(name))
    with pytest.raises(DataError, match=rf"{name}\.json: damaged"):
        Store(tmp_path / "run").collected()


def test_a_file_that_is_none_of_a_unit_is_named(tmp_path):
    path = collected_unit(tmp_path / "run")
    for name in ("0-0x", "00000-0²", "1" * 50 + "-00000"):
        other = path.with_stem(name)
        shutil.copy(path, other)
        with pytest.raises(DataError, match="its name is none of a unit"):
            Store(tmp_path / "run").collected()
        other.unlink()


def test_units_that_overlap_are_named(tmp_path):
    path = collected_unit(tmp_path / "run")
    shutil.move(path, tmp_path / "kept")
    with Store.writing(tmp_path / "run", dataclasses.replace(PLAN, chunk=2), {}) as run:
        run.write(collect_unit(SimulatedEngine(), PLAN, Unit(0, 2, 2)))
    shutil.move(tmp_path / "kept", path)
    with pytest.raises(DataError, match=r"00002\.json: damaged: 00000-00000\.json has some of its branches"):
        Store(tmp_path / "run").collected()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (set_in("plan", "num_branches", 10**9), "num_branches is 1000000000"),
        (set_in("plan", "sampling", "interval", 10**30), "more than the 2,147,483,647 that can be counted"),
        (set_in("plan", "questions", 1, "text", "What is 1 + 1?"), "a question twice"),
        (set_in("plan", "questions", 1, "gold", " "), "has no reference answer"),
        (set_in("plan", "engine", "vllm"), "plan.engine"),
        (set_in("runs", {}), "runs"),
    ],
)
def test_a_plan_that_cannot_become_data_is_refused(tmp_path, change, problem):
    with Store.writing(tmp_path / "run", PLAN, {}):
        pass
    manifest = tmp_path / "run" / COLLECTION
    content = json.loads(manifest.read_text())
    change(content)
    manifest.write_text(json.dumps(content))
    with pytest.raises(DataError, match=problem):
        Store(tmp_path / "run")


def as_version_1(folder: Path) -> None:
    """Makes a collection what it was before units had digests."""
    manifest = folder / COLLECTION
    content = json.loads(manifest.read_text())
    del content["plan"]["engine"]
    first, *rest = content.pop("runs")
    manifest.write_text(json.dumps(content | {"version": 1, "made_with": first, "grown_with": rest}))
    for path in (folder / "units").iterdir():
        unit = json.loads(path.read_text())
        del unit["digest"]
        path.write_text(json.dumps(unit))


def test_a_collection_of_version_1_is_read_and_goes_on(tmp_path, finished):
    folder = tmp_path / "run"
    with Store.writing(folder, PLAN, {"engine": "simulated", "versions": {"autotts-jax": "0.0.9"}}) as run:
        for unit in PLAN.units()[:5]:
            run.write(collect_unit(SimulatedEngine(), PLAN, unit))
    as_version_1(folder)
    assert len(Store(folder).done()) == 5
    said = dataclasses.replace(PLAN, engine=EngineSpec("simulated"))
    with (
        pytest.raises(InputError, match=r"engine\.kind was 'simulated' and is 'vllm'"),
        Store.writing(folder, dataclasses.replace(PLAN, engine=EngineSpec("vllm", "m")), {}),
    ):
        pass
    collect(said, folder, LocalWorkers(SimulatedEngine()), made_with={"engine": "simulated"})
    assert (folder / "matrix.json").read_bytes() == (finished / "matrix.json").read_bytes()
    manifest = json.loads((folder / COLLECTION).read_text())
    assert manifest["version"] == 3
    assert manifest["plan"]["engine"]["kind"] == "simulated"
    assert [run.get("versions") for run in manifest["runs"]] == [{"autotts-jax": "0.0.9"}, None]
    assert all("digest" in json.loads(path.read_text()) for path in (folder / "units").iterdir())


@pytest.mark.parametrize(
    ("engine", "difference"),
    [
        (
            EngineSpec("server", "/a/Qwen3-4B", {"max_model_len": 9}),
            r"engine\.kind was 'vllm' and is 'server'",
        ),
        (EngineSpec("vllm", "/b/Qwen3-4B", {"max_model_len": 9}), r"engine\.model was '/a/Qwen3-4B' and is"),
        (EngineSpec("vllm", "/a/Qwen3-4B", {"dtype": "half"}), r"engine\.options was .*'max_model_len': 9"),
        (None, r"engine\.kind was 'vllm' and is None"),
    ],
)
def test_a_collection_goes_on_with_its_engine_alone(tmp_path, engine, difference):
    plan = dataclasses.replace(PLAN, engine=EngineSpec("vllm", "/a/Qwen3-4B", {"max_model_len": 9}))
    with Store.writing(tmp_path / "run", plan, {}) as run:
        run.write(collect_unit(SimulatedEngine(), plan, run.missing()[0]))
    with pytest.raises(InputError, match=difference):  # noqa: SIM117
        with Store.writing(tmp_path / "run", dataclasses.replace(PLAN, engine=engine), {}):
            pass
    with Store.writing(tmp_path / "run", plan, {}) as run:
        assert len(run.collected()) == 1


def test_engines_are_described_by_what_completions_depend_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {"seed": 3, "timeout": 5, "gpu_memory_utilization": 0.5, "hf_token": "secret", "dtype": "half"}
    kept = {"dtype": "half", "seed": 3}
    assert engine_spec("vllm", "model", options) == EngineSpec("vllm", "model", kept)
    (tmp_path / "model").mkdir()
    described = engine_spec("vllm", "model", options)
    assert described == EngineSpec("vllm", str(tmp_path / "model"), kept, described.files_sha256)
    (tmp_path / "model").rmdir()
    assert engine_spec("server", "model", {}) == EngineSpec("server", "model")
    nested = {"eos_token": 5, "api_keys": ["secret"], "headers": {"Authorization": "secret", "X": "y"}}
    kept = {"eos_token": 5, "headers": {"Authorization": "[hidden]", "X": "y"}}
    assert engine_spec("server", "model", nested) == EngineSpec("server", "model", kept)
    chat = {"tokenizer": "Qwen/Qwen3-8B", "chat_kwargs": {"enable_thinking": False}, "think_end": "</think>"}
    assert engine_spec("server", "model", chat) == EngineSpec("server", "model", chat)


@pytest.mark.parametrize("version", [1, 2])
def test_resuming_hides_the_secrets_that_a_collection_was_made_with(tmp_path, version):
    options = {"headers": {"Authorization": "sk-OLD"}, "api_keys": ["sk-OLD"], "dtype": "half"}
    plan = dataclasses.replace(PLAN, engine=EngineSpec("vllm", "m", options))
    with Store.writing(tmp_path / "run", plan, {"engine": "vllm", "command": ["--chunk", "4"]}) as run:
        run.write(collect_unit(SimulatedEngine(), plan, run.missing()[0]))
    path = tmp_path / "run" / COLLECTION
    assert "sk-OLD" not in path.read_text()
    content = json.loads(path.read_text())
    content["runs"][0]["command"] += ["--api-key", "sk-OLD", "http://me:sk-OLD@host/v1"]
    content["plan"]["engine"]["options"] = options
    path.write_text(json.dumps(content))
    if version == 1:
        as_version_1(tmp_path / "run")
    with Store.writing(tmp_path / "run", plan, {}) as run:
        assert len(run.collected()) == 1
    assert "sk-OLD" not in path.read_text()
    shown = ["--chunk", "4", "--api-key", "[hidden]", "http://[hidden]@host/v1"]
    assert Store(tmp_path / "run").runs[0]["command"] == shown


def test_each_run_that_worked_on_a_collection_is_kept_and_shown(main, tmp_path):
    runs = [
        {"engine": "simulated", "versions": {"autotts-jax": version}} for version in ("0.1", "0.1", "0.2")
    ]
    for unit, made_with in zip(PLAN.units(), runs, strict=False):
        with Store.writing(tmp_path / "run", PLAN, made_with) as run:
            run.write(collect_unit(SimulatedEngine(), PLAN, unit))
    assert Store(tmp_path / "run").runs == runs[1:]
    shown = main("data", "info", tmp_path / "run")
    assert "made with autotts-jax 0.1\nmade with autotts-jax 0.2\n" in shown


def test_the_command_refuses_to_go_on_with_other_options(run, main, tmp_path):
    line = ["collect", "--engine", "simulated", "--questions", "arithmetic:2", "--out", str(tmp_path / "run")]
    line += ["--branches", "8", "--interval", "20", "--max-tokens", "100"]
    main(*line)
    status, _, err = run(*line, "--engine-option", "mean_tokens=50")
    assert status == 2
    assert "engine.options was {} and is {'mean_tokens': 50}" in err
    _, _, err = run(*line, "--prompt-template", r"{question}\nBe brief.")
    assert r"--prompt-template was None and is '{question}\nBe brief.'" in err
