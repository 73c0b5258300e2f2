"""Many questions answered live: what is kept, what goes on, and how replay compares."""

import dataclasses
import json

import pyarrow as pa
import pytest

import autotts_jax as at
from autotts_jax.collect import (
    EngineError,
    EngineSpec,
    LocalWorkers,
    Plan,
    Problem,
    Sampling,
    SimulatedEngine,
    collect,
)
from autotts_jax.errors import DataError, InputError

WIDTH = 8
SAMPLING = Sampling(interval=20, max_tokens=200, seed=3)
PROBLEMS = tuple(Problem(f"What is {n} + {n}?", str(2 * n)) for n in range(1, 6))


class Counting(SimulatedEngine):
    """Counts the questions that it is asked, and fails at one of them."""

    def __init__(self, fails_at=None, **options):
        super().__init__(**options)
        self.questions, self.closed, self._fails_at = [], 0, fails_at

    def generate(self, requests, cancel=None):
        for request in requests:
            text = self.tokenizer.decode(request.prompt).split("\n")[1]
            if text not in self.questions:
                self.questions.append(text)
            if text == self._fails_at:
                raise EngineError("the engine is gone")
        return super().generate(requests, cancel)

    def close(self):
        self.closed += 1


def run(out, engine=None, problems=PROBLEMS, player="cmc@0.2", **settings):
    settings = {"sampling": SAMPLING, "max_branches": WIDTH} | settings
    return at.answer_questions(engine or SimulatedEngine(), problems, player, out=out, **settings)


def timeless(answered):
    return [dataclasses.replace(row, seconds=0.0) for row in answered]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a run, and the run."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    return folder, run(folder)


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    """A collection of the questions but the last one, the others in another order."""
    plan = Plan("sim", "sums", PROBLEMS[3::-1], num_branches=WIDTH, sampling=SAMPLING)
    folder = tmp_path_factory.mktemp("collection") / "run"
    collect(plan, folder, LocalWorkers(SimulatedEngine()))
    return folder


def test_a_row_is_what_an_answer_came_to(whole):
    folder, found = whole
    assert [row.question for row in found.answered] == list(range(5))
    for row, asked in zip(found.answered, PROBLEMS, strict=True):
        alone = at.answer(SimulatedEngine(), asked.text, "cmc@0.2", sampling=SAMPLING, max_branches=WIDTH)
        assert (row.answer, row.tokens, row.rounds) == (alone.answer, alone.tokens, alone.rounds)
        assert (row.branches, row.confidence) == (len(alone.texts), alone.confidence)
        assert row.stop_reason == alone.stop_reason.name.lower()
        assert (row.generated, row.probes) == (alone.usage.generated, alone.usage.probes)
        assert row.correct == (row.answer == asked.gold)
        assert row.seconds > 0
    assert {row.correct for row in found.answered} == {True, False}
    lines = [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]
    assert lines == [dataclasses.asdict(row) for row in found.answered]
    means = found.summary()
    assert means["accuracy"] == sum(row.correct for row in found.answered) / 5
    assert means["tokens"] == sum(row.tokens for row in found.answered) / 5
    assert means["replay"] is None
    assert found.episodes().to_pylist() == lines
    assert found.episodes().schema.field("correct").type == pa.bool_()


def test_what_is_answered_stays_and_the_same_call_goes_on(whole, tmp_path):
    failing = Counting(fails_at=PROBLEMS[2].text)
    with pytest.raises(EngineError, match="gone"):
        run(tmp_path / "run", failing)
    assert failing.closed == 0  # it is the caller's
    assert len((tmp_path / "run" / "answers.jsonl").read_text().splitlines()) == 2
    engine = Counting()
    told = []
    found = run(tmp_path / "run", lambda: engine, on_answer=lambda rows, of: told.append((len(rows), of)))
    assert timeless(found.answered) == timeless(whole[1].answered)
    assert engine.questions == [asked.text for asked in PROBLEMS[2:]]
    assert (engine.closed, told) == (1, [(3, 5), (4, 5), (5, 5)])
    assert run(tmp_path / "run", lambda: pytest.fail("opened for nothing")).answered == found.answered
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"run.json", "answers.jsonl"}


def test_several_at_once_give_the_same_rows_and_a_run_grows(whole, tmp_path):
    few = run(tmp_path / "run", problems=PROBLEMS[:2], at_once=2)
    grown = run(tmp_path / "run", at_once=3)
    assert grown.answered[:2] == few.answered
    assert timeless(grown.answered) == timeless(whole[1].answered)


def test_without_a_sampling_branches_are_no_longer_than_the_context_holds(tmp_path):
    engine = Counting()
    engine.max_model_len = 5000
    found = run(tmp_path / "run", lambda: engine, PROBLEMS[:1], "sc@2", sampling=None)
    assert [row.limited for row in found.answered] == [False]
    settings = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    assert settings["sampling"]["max_tokens"] == 4000
    assert engine.closed == 1


def test_questions_without_a_reference_answer_are_not_graded(tmp_path):
    found = run(tmp_path / "run", problems=[PROBLEMS[0], Problem("What is 9 + 9?", "")], player="sc@2")
    assert [row.correct is None for row in found.answered] == [False, True]
    assert found.answered[1].gold is None
    assert (found.summary()["graded"], found.summary()["questions"]) == (1, 2)
    assert "1 questions have a reference answer" in str(found.table())
    again = run(tmp_path / "run", problems=[PROBLEMS[0], Problem("What is 9 + 9?", "")], player="sc@2")
    assert again.answered == found.answered


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"player": "cmc@0.3"}, r"other settings: player was 'cmc@0\.2' and is 'cmc@0\.3'\. Use the same"),
        ({"budget": 500}, "budget was None and is 500"),
        ({"sampling": dataclasses.replace(SAMPLING, seed=4)}, "seed was 3 and is 4"),
        ({"answers": "number"}, "answers was 'auto' and is 'number'"),
        ({"problems": PROBLEMS[:3]}, r"an answer to question 3, 'What is 4 \+ 4\?', which is not that"),
        ({"problems": PROBLEMS[::-1]}, r"an answer to question 0, 'What is 1 \+ 1\?', which is not that"),
        ({"problems": [*PROBLEMS, PROBLEMS[0]]}, "a question is there twice; keep one of them"),
        ({"problems": []}, "must be autotts_jax.collect.Problems, at least one"),
        ({"player": "cmc"}, "settings, but this takes one controller"),
        ({"at_once": 0}, "at_once is 0, but it must be at least 1"),
        ({"answers": "colour"}, "there is no extractor of this name"),
    ],
)
def test_answers_of_another_run_are_not_mixed_in(whole, changed, message):
    before = {path.name: path.read_bytes() for path in whole[0].iterdir()}
    with pytest.raises(InputError, match=message):
        run(whole[0], lambda: pytest.fail("opened for nothing"), **changed)
    assert {path.name: path.read_bytes() for path in whole[0].iterdir()} == before


def test_folders_of_others_and_damaged_files_are_refused(whole, tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(InputError, match="is not empty and holds no live run"):
        run(tmp_path)
    for name, damaged, message in (
        ("run.json", b"{", "damaged: not JSON"),
        ("run.json", b'{"format": "x"}', "damaged"),
        ("answers.jsonl", b'{"question": 0}\n', "line 1 is damaged: text: Field required; delete it"),
        ("answers.jsonl", 2 * (whole[0] / "answers.jsonl").read_bytes(), "has a question twice"),
    ):
        folder = tmp_path / "run"
        folder.mkdir(exist_ok=True)
        for path in whole[0].iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
        (folder / name).write_bytes(damaged)
        with pytest.raises(DataError, match=message) as caught:
            run(folder)
        assert str(folder / name) in str(caught.value)
        assert (folder / name).read_bytes() == damaged


# --- replay ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("player", ["cmc@0.2", "sc@4", "single@2"])
def test_replay_comes_to_the_same(whole, collection, tmp_path, player):
    out = whole[0] if player == "cmc@0.2" else tmp_path / "run"
    found = run(out, player=player, collection=collection)
    assert [row.question for row in found.compared] == [0, 1, 2, 3]
    for row, live in zip(found.compared, found.answered, strict=False):
        assert (row.same_answer, row.same_tokens, row.same_stop_reason) == (True, True, True)
        assert (row.answer, row.tokens, row.stop_reason) == (live.answer, live.tokens, live.stop_reason)
        assert row.sequential_tokens == live.sequential_tokens
        assert row.correct == row.live_correct == live.correct
    replay = found.summary()["replay"]
    assert (replay["same_answer"], replay["same_tokens"], replay["same_stop_reason"]) == (4, 4, 4)
    assert (replay["accuracy_gain"], replay["tokens_gain"], replay["tokens_high"]) == (0, 0, None)
    lines = (out / "replay.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [dataclasses.asdict(row) for row in found.compared]
    assert "of 4 questions: 4 answers, 4 token counts, 4 stop reasons" in str(found.table())
    assert found.summary()["replay"]["differing"] == 0
    other = dataclasses.replace(found.compared[0], same_tokens=False)
    changed = dataclasses.replace(found, compared=(other, *found.compared[1:]))
    assert "1 of 4 differ: the engine did not repeat" in " ".join(str(changed.table()).split())
    (out / "replay.jsonl").unlink()


def test_what_differs_in_replay_is_counted(collection, tmp_path):
    """As where a server has another model than it says."""
    found = run(
        tmp_path / "run", SimulatedEngine(mean_tokens=60), PROBLEMS[:4], "sc@4", collection=collection
    )
    live, replay = found.answered, found.summary()["replay"]
    assert replay["same_tokens"] == sum(row.tokens == row.live_tokens for row in found.compared) < 4
    difference = [row.live_tokens - row.tokens for row in found.compared]
    assert [row.live_tokens for row in found.compared] == [row.tokens for row in live]
    assert replay["tokens_gain"] == sum(difference) / 4 < 0
    assert replay["tokens_low"] is replay["tokens_high"] is None, "four questions are too few for an interval"
    assert replay["differing"] > 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"sampling": dataclasses.replace(SAMPLING, seed=4)},
            "cannot be compared with, because it was collected with other settings: seed was 3 and is 4",
        ),
        ({"answers": "number"}, "answers was 'auto' and is 'number'"),
        ({"max_branches": 9}, "has 8 branches a question, fewer than the 9 that an episode can open"),
        ({"problems": PROBLEMS[4:]}, "has none of these questions"),
    ],
)
def test_a_collection_that_says_nothing_is_refused(collection, tmp_path, changed, message):
    with pytest.raises(InputError, match=message):
        run(tmp_path / "run", lambda: pytest.fail("opened"), collection=collection, **changed)
    assert not (tmp_path / "run").exists()


def test_a_collection_with_another_engine_is_refused(tmp_path):
    spec = EngineSpec("server", "small", {"seed": 1})
    plan = Plan("sim", "sums", PROBLEMS[:1], num_branches=WIDTH, sampling=SAMPLING, engine=spec)
    collect(plan, tmp_path / "collection", LocalWorkers(SimulatedEngine()))
    other = dataclasses.replace(spec, model="large")
    with pytest.raises(InputError, match=r"settings: engine\.model was 'small' and is 'large'"):
        run(tmp_path / "run", collection=tmp_path / "collection", spec=other)


# --- the command ----------------------------------------------------------------------------------------

SIMULATED = "--engine simulated --interval 20 --max-tokens 200 --controller sc@2 --max-branches 4"


@pytest.fixture
def command(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda line: run("answer", *line.split())


def test_the_command_answers_a_file(command, tmp_path):
    rows = [{"question": "2 + 2", "answer": "4"}, {"question": "2 + 3"}]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    status, out, err = command(f"{SIMULATED} --questions q.jsonl --out out")
    assert (status, err) == (0, "")
    assert "sc@2, 2 questions" in out
    assert "1 questions have a reference answer" in out
    assert out.endswith("wrote answers.jsonl to out\n")
    status, out, err = command(f"{SIMULATED} --questions q.jsonl --out out --json")
    assert (status, err, json.loads(out)["questions"]) == (0, "", 2)
    assert (
        json.loads((tmp_path / "out" / "run.json").read_text())["settings"]["engine"]["kind"] == "simulated"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "give a question, or --questions with --out"),
        ("x --out out", "--out, --data and --allocator go with --questions"),
        ("--questions arithmetic:2", "--questions needs a folder to write to; give --out FOLDER"),
        ("x --questions arithmetic:2 --out out", "do not go with --questions"),
        ("--trace --questions arithmetic:2 --out out", "do not go with --questions"),
        ("--questions arithmetic:2 --out out --data none", "none holds no collection"),
    ],
)
def test_options_that_do_not_fit_are_refused(command, line, message, tmp_path):
    status, out, err = command(f"{SIMULATED} {line}")
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())
