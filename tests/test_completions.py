"""Completions that exist already: they make the matrix that sampling them made, and bad ones are refused."""

import dataclasses
import json
import sys
import warnings
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from autotts_jax.cli import main as cli
from autotts_jax.collect import (
    EngineError,
    Finish,
    LocalWorkers,
    Plan,
    Problem,
    Sampling,
    SimulatedEngine,
    Store,
    Trajectories,
    Usage,
    collect,
    collect_unit,
    estimate,
    extractor,
    read_completions,
)
from autotts_jax.collect.simulated import END
from autotts_jax.collect.store import MATRIX
from autotts_jax.collect.thinking import TAGS
from autotts_jax.errors import DataError, InputError, InputWarning
from autotts_jax.replay.reading import COLLECTED, COLLECTION

FORCED = ("probe_p_mean", "probe_p_geo", "probe_hedge", "eat")
PLAN = Plan(
    "simulated",
    "sums",
    tuple(Problem(f"What is {n} + {n}?", str(2 * n)) for n in range(1, 4)),
    num_branches=6,
    chunk=4,
    sampling=Sampling(interval=20, max_tokens=200, seed=1),
)
TOLD = dataclasses.replace(PLAN.sampling, signals=FORCED, probe_tail=4)


class Plain(SimulatedEngine):
    """Counts the requests that sample."""

    sampled = 0

    def complete(self, request):
        self.sampled += request.temperature > 0
        return super().complete(request)


MARKS = {40: (slice(-4, None), b"</th"), 60: (slice(4), b"ink>")}


class Thinking(Plain):
    """Ends its thinking after 64 tokens; two intervals share the mark."""

    def __init__(self):
        super().__init__()
        self.tokenizer.thinking = TAGS

    def complete(self, request):
        completion = super().complete(request)
        written = len(self.tokenizer.decode(request.prompt).split("\n", 2)[2])
        if not request.temperature or written not in MARKS or completion.finish is Finish.stop:
            return completion
        place, mark = MARKS[written]
        tokens = list(completion.tokens)
        tokens[place] = mark
        return dataclasses.replace(completion, tokens=tuple(tokens), text=self.tokenizer.decode(tokens))


def sampled_rows(plan, engine, as_text):
    """Rows of the completions that a collection samples, those of each question far from each other."""
    rows = []
    for q, problem in enumerate(plan.questions):
        written = Trajectories(engine, problem.text, plan.sampling, extractor("auto"))
        written.read(dict.fromkeys(range(plan.num_branches), plan.sampling.max_depth), probe=False)
        rows += [
            {
                "question": problem.text,
                "completion": written.text(b) if as_text else list(written[b].tokens),
                "answer": problem.gold,
                "question_id": q,
            }
            for b in range(plan.num_branches)
        ]
    return [row for b in range(plan.num_branches) for row in rows[b :: plan.num_branches]]


def write_rows(path, rows):
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def of_completions(plan, completions):
    return dataclasses.replace(plan, questions=completions.questions, completions_sha256=completions.sha256)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A file of the completions that `PLAN` samples."""
    path = tmp_path_factory.mktemp("completions") / "texts.jsonl"
    return write_rows(path, sampled_rows(PLAN, SimulatedEngine(), as_text=True))


@pytest.fixture(scope="module")
def finished(source, tmp_path_factory):
    """The folder of the finished collection of them."""
    folder, found = tmp_path_factory.mktemp("finished") / "run", read_completions(source)
    collect(of_completions(PLAN, found), folder, LocalWorkers(SimulatedEngine(), completions=found))
    return folder


# --- the same matrix


@pytest.mark.parametrize(("as_text", "suffix"), [(True, ".jsonl"), (False, ".parquet")])
@pytest.mark.parametrize("sampling", [PLAN.sampling, TOLD], ids=["plain", "signals"])
@pytest.mark.parametrize("engine", [Plain, Thinking])
def test_what_was_sampled_makes_the_same_matrix_when_it_is_given(tmp_path, engine, sampling, as_text, suffix):
    plan = dataclasses.replace(PLAN, sampling=sampling, keep_text=True)
    collect(plan, tmp_path / "sampled", LocalWorkers(engine()))
    rows = sampled_rows(plan, engine(), as_text)
    found, opened = read_completions(write_rows(tmp_path / f"x{suffix}", rows)), engine()
    assert found.num_branches() == 6
    collect(of_completions(plan, found), tmp_path / "given", LocalWorkers(opened, completions=found))
    for name in (COLLECTED, MATRIX):
        assert (tmp_path / "given" / name).read_bytes() == (tmp_path / "sampled" / name).read_bytes()
    sampled, given = (Store(tmp_path / name).done() for name in ("sampled", "given"))
    assert [unit.branches for unit in given] == [unit.branches for unit in sampled]
    branches = [branch for unit in given for branch in unit.branches]
    assert {branch.finish for branch in branches} == {Finish.stop, Finish.length}
    assert len({"</think>" in branch.text for branch in branches}) == (2 if engine is Thinking else 1)
    assert all(set(branch.signals or ()) == set(sampling.signals) for branch in branches)
    assert opened.sampled == 0
    usages = [sum((unit.usage for unit in units), Usage()) for units in (given, sampled)]
    assert (usages[0].generated, usages[0].probes) == (0, usages[1].probes)


def test_several_forced_answers_are_the_same_as_well(tmp_path):
    plan = dataclasses.replace(PLAN, sampling=dataclasses.replace(PLAN.sampling, probes_per_prefix=2))
    rows = sampled_rows(plan, SimulatedEngine(), as_text=False)
    found = read_completions(write_rows(tmp_path / "x.jsonl", rows))
    for unit in plan.units():
        sampled = collect_unit(SimulatedEngine(), plan, unit)
        given = collect_unit(SimulatedEngine(), of_completions(plan, found), unit, completions=found)
        assert given.branches == sampled.branches


def test_a_longer_completion_is_cut_off_and_its_answer_forced(tmp_path):
    rows = [{"question": "Q?", "completion": "7 8 " * 20 + "so it is 5", "gold": "5"}]
    found = read_completions(write_rows(tmp_path / "x.jsonl", rows))
    for longest, final, finish in (
        (80, "7", Finish.length),
        (90, "7", Finish.length),
        (91, "5", Finish.stop),
    ):
        sampling = Sampling(interval=20, max_tokens=longest)
        plan = of_completions(dataclasses.replace(PLAN, num_branches=1, sampling=sampling), found)
        (branch,) = collect_unit(SimulatedEngine(), plan, plan.units()[0], completions=found).branches
        assert (branch.tokens, branch.final, branch.finish) == (longest, final, finish)
        assert len(branch.probes) == -(-longest // 20) - 1


def test_what_follows_the_end_of_a_text_is_padding(tmp_path):
    engine = SimulatedEngine()
    tokenizer = engine.tokenizer
    body = [*tokenizer.encode("so it is \\boxed{5}"), tokenizer.end]
    padding = [tokenizer.end] * 3, [*tokenizer.encode("junk \\boxed{4}"), tokenizer.end]
    rows = [{"question": "Q?", "token_ids": body + more, "gold": "5"} for more in ([], *padding)]
    found = read_completions(write_rows(tmp_path / "x.jsonl", rows))
    plan = of_completions(dataclasses.replace(PLAN, num_branches=3), found)
    first, *others = collect_unit(engine, plan, plan.units()[0], completions=found).branches
    assert (first.tokens, first.final, first.finish) == (len(body), "5", Finish.stop)
    assert others == [first, first]


# --- the file


def row(**fields):
    return {"question": "A?", "completion": "It is 2.", "answer": "2"} | fields


def test_a_completion_of_just_the_limit_is_not_cut_off(tmp_path, monkeypatch, capsys):
    source = write_rows(tmp_path / "x.jsonl", [row(completion="7 8 " * 49 + "2")])
    tokens = len(SimulatedEngine().tokenizer.encode("7 8 " * 49 + "2")) + 1
    line = ["collect", "--engine", "simulated", "--interval", "20", "--from-texts", source]
    for number, said in ((tokens, False), (tokens - 1, True)):
        more = ["--max-tokens", str(number), "--out", str(tmp_path / str(number))]
        assert (
            "1 of 1 completions have not ended after" in main([*line, *more], monkeypatch, capsys)
        ) is said


@pytest.mark.parametrize("listed", ["[50, 51]", " [50,51] "])
def test_tokens_may_be_listed_as_text(tmp_path, listed):
    path = write_rows(tmp_path / "x.jsonl", [{"question": "A?", "token_ids": listed, "answer": "2"}])
    (one,) = read_completions(path).given["A?"]
    assert one.completion == (50, 51)


def test_columns_have_usual_names_or_are_given(tmp_path):
    given = {"Problem": "A?", "Response": "2", "q": "B?", "text": "3", "token_ids": [50], "a": "5", "gold": 6}
    path = write_rows(tmp_path / "x.jsonl", [given])
    usual = read_completions(path)
    assert usual.questions == (Problem("A?", "6"),)
    assert [one.completion for one in usual.given["A?"]] == [(50,)]
    named = read_completions(path, text_column="q", gold_column="a", completion_column="text")
    assert named.questions == (Problem("B?", "5"),)
    assert [one.completion for one in named.given["B?"]] == ["3"]
    assert named.sha256 != usual.sha256


def test_one_row_of_a_question_with_the_answer_is_enough(tmp_path):
    rows = [row(answer=None), {"question": "A?", "completion": "4"}, row(answer="so \\boxed{3}")]
    found = read_completions(write_rows(tmp_path / "x.jsonl", rows))
    assert found.questions == (Problem("A?", "3"),)


def test_behind_the_limit_a_question_needs_no_answer_and_the_hash_is_the_same(tmp_path):
    path = write_rows(tmp_path / "x.jsonl", [row(), row(question="B?", answer=None)])
    first = read_completions(path, limit=1)
    assert first.questions == (Problem("A?", "2"),)
    same = write_rows(tmp_path / "y.parquet", [row(), row(question="B?", answer="7")])
    assert read_completions(same).sha256 == first.sha256


def test_of_different_numbers_the_least_is_used_and_that_is_said(tmp_path):
    rows = [row(), row(), row(question="B?"), row(question="C?"), row(question="C?"), row()]
    found = read_completions(write_rows(tmp_path / "x.jsonl", rows))
    with pytest.warns(InputWarning, match=r"1 to 3 completions; the first 1 .* 3 of 6 are left out.* 'B\?'$"):
        assert found.num_branches() == 1
    with pytest.raises(InputError, match=r"2 branches .* the fewest 1: 'B\?'; ask for 1, or leave"):
        found.num_branches(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert found.num_branches(1) == 1


BAD = {
    "no rows": ([], "is empty; name a file with rows"),
    "no question": ([{"completion": "1"}], "has the columns completion, and none of question, .*text_column"),
    "no completion": (
        [{"question": "A?", "answer": "2"}],
        r"has the columns question, answer, and none of .* as completion_column \(--completion-column\)",
    ),
    "a row without one": ([row(), {"question": "A?"}], "line 2 has no completion; it has question"),
    "an empty text": ([row(), row(completion=" \n")], "line 2 has an empty completion; fill it, or leave"),
    "null": ([row(completion=None)], "line 1 has an empty completion"),
    "no tokens": ([row(completion=[])], "line 1 has an empty completion"),
    "a bool": ([row(completion=True)], "line 1 has the completion True; make it text"),
    "an object": ([row(completion={"a": 1})], r"line 1 has the completion \{'a': '1'\}; make it text"),
    "messages": (
        [row(completion=[{"a": 1}])],
        r"line 1 has \{'a': '1'\} in its completion; make it text, or",
    ),
    "a negative id": (
        [row(completion=[5, -3])],
        "line 1 has '-3' in its completion; .* whole numbers from 0",
    ),
    "half an id": ([row(completion=[5, 0.5])], "line 1 has '0.5' in its completion"),
    "text as tokens": (
        [row(token_ids="so 2")],
        "line 1 has the token_ids 'so 2'; make it a list of token ids",
    ),
    "a list of half a token": ([row(token_ids="[5, 0.5]")], "line 1 has '0.5' in its token_ids"),
    "a list of no tokens": ([row(token_ids="[ ]")], "line 1 has an empty token_ids"),
    "lists of tokens": ([row(token_ids="[[5], [6]]")], "line 1 has the token_ids '.*; make it a list of tok"),
    "a number as tokens": ([row(token_ids=5)], "line 1 has the token_ids '5'; make it a list of token ids"),
    "half of a surrogate pair": ([row(completion="\ud800")], "line 1 has half of a surrogate pair"),
    "no answer": (
        [row(), row(question="B?", answer=None)],
        "the question of line 2 has no answer in any of its rows; .* a column answer or gold or",
    ),
    "two answers": (
        [row(), row(question="B?"), row(answer="3")],
        "line 3 has the answer '3', and line 1 of the same question has '2'; make them agree",
    ),
    "two ids": (
        [row(question_id=1), row(question_id=2)],
        "line 2 has the question_id '2', and line 1 of the same question has '1'",
    ),
    "two questions of an id": (
        [row(question_id=1), row(question="B?", question_id=1)],
        r"line 2 has the question 'B\?', and line 1 of the same question_id has 'A\?'",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_and_says_where(tmp_path, case):
    rows, message = BAD[case]
    path = write_rows(tmp_path / "x.jsonl", rows)
    with pytest.raises(DataError, match=message) as error:
        read_completions(path)
    assert str(error.value).startswith(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.jsonl", b"PAR1\0", "not a complete Parquet file"),
        ("x.parquet", b"A?", "line 1, column 1 is not JSON"),
        ("x.txt", b"A?", "its ending is unknown; name a file that ends in .jsonl, .* org/name:config$"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_completions(str(tmp_path / name))
    with pytest.raises(InputError, match="the limit is 0; read at least one"):
        read_completions(str(tmp_path / name), limit=0)


def test_lists_that_unpack_to_too_much_are_refused(tmp_path, monkeypatch):
    path = write_rows(tmp_path / "x.parquet", [row(completion=[5] * 1000)])
    assert len(read_completions(path).given["A?"][0].completion) == 1000
    monkeypatch.setattr("autotts_jax.collect.records.MAX_VALUES", 1001)
    with pytest.raises(DataError, match="has 1,002 values, more than 1,001; split it"):
        read_completions(path)


def test_tokens_that_the_model_does_not_have_are_refused_before_anything_is_probed(tmp_path):
    rows = [row(), row(question="B?", completion=[5, END]), row(question="C?", completion=[5, END + 1])]
    found = read_completions(write_rows(tmp_path / "x.jsonl", rows))
    plan = of_completions(dataclasses.replace(PLAN, num_branches=1), found)
    with pytest.raises(DataError, match="line 3 has the token 257, and the model's tokens are 0 to 256"):
        collect(plan, tmp_path / "run", LocalWorkers(SimulatedEngine(), completions=found))
    assert not list((tmp_path / "run" / "units").iterdir())


# --- the plan, and going on


def test_completions_and_plan_belong_together(source):
    found = read_completions(source)
    plan = of_completions(PLAN, found)
    for planned, given in (
        (plan, None),
        (PLAN, found),
        (dataclasses.replace(plan, completions_sha256="0"), found),
    ):
        with pytest.raises(InputError, match="do not have the same completions; give the plan their sha256"):
            collect_unit(SimulatedEngine(), planned, plan.units()[0], completions=given)
    more = dataclasses.replace(plan, num_branches=8)
    with pytest.raises(
        InputError, match=r"has 6 completions of 'What is 1 \+ 1\?', and number 7 is asked for"
    ):
        collect_unit(SimulatedEngine(), more, more.units()[1], completions=found)
    sampling = dataclasses.replace(PLAN.sampling, signals=("eat", "conf_mean"))
    with pytest.raises(InputError, match=r"^conf_mean: signals of tokens that are sampled"):
        dataclasses.replace(plan, sampling=sampling)


def test_it_goes_on_with_the_same_completions_alone(tmp_path, source, finished):
    class Failing(SimulatedEngine):
        calls = 0

        def generate(self, requests, cancel=None):
            self.calls += 1
            if self.calls > 20:
                raise EngineError("the server is gone")
            return super().generate(requests, cancel)

    found, folder = read_completions(source, limit=2), tmp_path / "run"
    with pytest.raises(EngineError, match="gone"):
        collect(of_completions(PLAN, found), folder, LocalWorkers(Failing(), 1, found))
    kept = {path.name: path.read_bytes() for path in (folder / "units").iterdir()}
    assert 0 < len(kept) < 4
    rows = [json.loads(line) for line in Path(source).read_text().splitlines()]
    other = read_completions(write_rows(tmp_path / "x.jsonl", [*rows[:-1], rows[-1] | {"completion": "5"}]))
    with pytest.raises(InputError, match="holds another collection: completions_sha256 was"):
        collect(of_completions(PLAN, other), folder, LocalWorkers(SimulatedEngine(), completions=other))
    with pytest.raises(
        InputError, match=r"holds another collection: completions_sha256 was '.*' and is None"
    ):
        collect(PLAN, folder, LocalWorkers(SimulatedEngine()))
    whole = read_completions(source)
    collect(of_completions(PLAN, whole), folder, LocalWorkers(SimulatedEngine(), completions=whole))
    for name in (COLLECTED, MATRIX):
        assert (folder / name).read_bytes() == (finished / name).read_bytes()
    assert {name: (folder / "units" / name).read_bytes() for name in kept} == kept
    manifest = json.loads((folder / COLLECTION).read_text())
    assert manifest["plan"]["completions_sha256"] == whole.sha256


def test_a_unit_that_says_that_something_was_generated_is_damaged(tmp_path, source):
    found = read_completions(source)
    plan = of_completions(PLAN, found)
    unit = collect_unit(SimulatedEngine(), plan, plan.units()[0], completions=found)
    unit.usage.generated = sum(branch.tokens for branch in unit.branches)
    with Store.writing(tmp_path / "run", plan, {}) as store:
        store.write(unit)
        with pytest.raises(DataError, match="generated tokens, and its branches have 0"):
            store.read(unit.unit)


# --- the command


def main(line, monkeypatch, capsys, status=0):
    monkeypatch.setattr(sys, "argv", ["autotts-jax", *line])
    with pytest.raises(SystemExit) as end:
        cli.main()
    shown = capsys.readouterr()
    assert (end.value.code or 0) == status, shown.err
    return shown.err if status else shown.out


SETTINGS = ("--engine", "simulated", "--interval", "20", "--max-tokens", "200")


def test_the_command_makes_the_matrix_and_says_what_is_not_in_it(
    tmp_path, source, finished, monkeypatch, capsys
):
    line = [
        "collect",
        *SETTINGS,
        "--from-texts",
        source,
        "--benchmark",
        "sums",
        "--out",
        str(tmp_path / "run"),
    ]
    assert "tokens of branches 0" in " ".join(main([*line, "--dry-run"], monkeypatch, capsys).split())
    assert not (tmp_path / "run").exists()
    said = " ".join(main(line, monkeypatch, capsys).split())
    assert (tmp_path / "run" / COLLECTED).read_bytes() == (finished / COLLECTED).read_bytes()
    assert "3 questions of 6 branches" in said
    branches = [b for unit in Store(finished).done() for b in unit.branches]
    tokens, cut = [b.tokens for b in branches], [b.finish for b in branches].count(Finish.length)
    assert f"{cut} of 18 completions have not ended after 200 tokens" in said
    assert "without" not in said
    few = [*line[:-1], str(tmp_path / "few"), "--branches", "2", "--limit", "1", "--signals"]
    said = " ".join(main(few, monkeypatch, capsys).split())
    assert "1 question of 2 branches" in said
    assert "without conf_mean, conf_low, conf_tail, logprob_mean: " in said
    assert set(Store(tmp_path / "few").dataset().matrix.signals) == {"probe_p_mean", "probe_p_geo", "eat"}
    info = " ".join(main(["data", "info", str(tmp_path / "run")], monkeypatch, capsys).split())
    assert f"tokens written 0 tokens a branch {sum(tokens) / 18:,.0f}" in info


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--temperature", "0.9"), "--temperature: with --from-texts nothing is sampled, unless"),
        (("--top-p", "0.9", "--seed", "3"), "--top-p, --seed: with --from-texts nothing"),
        (("--questions", "arithmetic:2"), "give either --questions or --from-texts"),
        (("--branches", "7"), "7 branches of each question are asked for, and some have fewer"),
        (("--completion-column", "text"), "line 1 has no text; it has question"),
    ],
)
def test_the_command_refuses_what_makes_no_sense(tmp_path, source, monkeypatch, capsys, options, message):
    line = ["collect", *SETTINGS, "--from-texts", source, *options, "--out", str(tmp_path / "run")]
    assert message in main(line, monkeypatch, capsys, status=2)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "give either --questions or --from-texts"),
        (
            ("--questions", "arithmetic:2", "--completion-column", "a"),
            "--completion-column belongs to --from-te",
        ),
    ],
)
def test_without_completions_there_must_be_questions(tmp_path, monkeypatch, capsys, options, message):
    line = ["collect", *SETTINGS, *options, "--out", str(tmp_path / "run")]
    assert message in main(line, monkeypatch, capsys, status=2)


def test_where_answers_are_drawn_they_may_be_sampled_otherwise(tmp_path, source, monkeypatch, capsys):
    drawn = ("--probes-per-prefix", "2", "--temperature", "0.9", "--limit", "1")
    main(
        ["collect", *SETTINGS, "--from-texts", source, *drawn, "--out", str(tmp_path / "run")],
        monkeypatch,
        capsys,
    )
    assert Store(tmp_path / "run").plan.sampling.temperature == 0.9


def test_nothing_of_given_branches_is_generated(tmp_path, source):
    found = estimate(of_completions(PLAN, read_completions(source)), tmp_path / "run")
    assert (found.branches, found.most.generated) == (18, 0)
    assert found.most.forced == 18 * 10 * 32
