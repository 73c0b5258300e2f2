"""Traces: one episode, decision by decision, is the episode that an evaluation plays."""

import dataclasses
import functools
import json
import sys

import numpy as np
import pytest

import autotts_jax as at
from autotts_jax.core import Decision, stepping
from autotts_jax.core.votes import confidence_table
from autotts_jax.errors import InputError
from autotts_jax.experiments.evaluation import branch_orders
from autotts_jax.experiments.tracing import TraceStep, describe_branches, describe_votes
from autotts_jax.policies import select
from autotts_jax.replay import SYNTHETIC_MODELS, recorded_orders, synthetic

SEEDS, WIDTH = 3, 8
EACH = pytest.mark.parametrize(
    "name",
    [
        "sc@8",
        "parallel-probe@8",
        "cmc@0.5",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("asc@8", "esc@8")),
    ],
)
EPISODES = ((0, 0, 1), (1, 2, 2))
"""Cell, question and seed of what is traced."""


@pytest.fixture(scope="module")
def dataset():
    return synthetic(models=SYNTHETIC_MODELS[1:3], questions=3, branches=10)


@pytest.fixture(scope="module")
def traces(dataset):
    """Traces of `EPISODES`, by controller."""

    @functools.cache
    def of(name):
        return [
            at.trace(
                dataset,
                name,
                cell=dataset.cells[cell].name,
                question=question,
                seed=seed,
                max_branches=WIDTH,
            )
            for cell, question, seed in EPISODES
        ]

    return of


def decision(**changes):
    given = {
        "round": 1,
        "action": "advance",
        "branches": [0],
        "intervals": [1],
        "answers": ["7"],
        "tokens": 500,
    }
    return Decision(**(given | changes))


def step(votes=None, final=True, **changes):
    return TraceStep(decision(**changes), votes or {"7": 1}, final, 0.5)


@EACH
def test_a_trace_is_the_episode_that_an_evaluation_plays(dataset, traces, name):
    (play,) = at.evaluate(dataset, name, seeds=SEEDS, max_branches=WIDTH).plays
    for trace, (cell, question, seed) in zip(traces(name), EPISODES, strict=True):
        index = 0, seed, dataset.cell_questions(cell)[question]
        assert trace.answer == play.answer[index]
        assert trace.tokens == trace.steps[-1].tokens == play.tokens[index]
        assert trace.rounds == trace.steps[-1].round == play.rounds[index]
        assert len(trace.finished) == play.branches[index]
        assert sum(sum(step.decision.intervals) for step in trace.steps) == play.intervals[index]
        assert sum(text is not None for branch in trace.shown for text in branch) == play.probes[index]
        assert trace.stop_reason == play.stop_reason[index]


@pytest.mark.parametrize("name", ["cmc", pytest.param("parallel-probe", marks=pytest.mark.slow)])
def test_a_trace_compiles_looking_deciding_and_acting_once(dataset, name):
    def compiled():
        programs = (stepping._init, stepping._act, stepping._answer, stepping._view, stepping._apply)  # noqa: SLF001
        return [program._cache_size() for program in programs]  # noqa: SLF001

    values = {"cmc": (0.5, 0.2), "parallel-probe": (3, 1)}[name]
    counts = [compiled()]
    for value in values:
        at.trace(dataset, f"{name}@{value}", max_branches=3)
        counts.append(compiled())
    first, again = np.diff(counts, axis=0).tolist()
    assert first[:3] == [1, 1, 1]
    assert max(first[3:]) <= 1  # other controllers share them
    assert again == [0] * 5


def test_the_recorded_order_is_that_of_the_data(dataset):
    play = select("sc@8").play(dataset, recorded_orders(len(dataset), WIDTH))
    trace = at.trace(dataset, "sc@8", question=1, max_branches=WIDTH, recorded=True)
    assert (trace.answer, trace.tokens) == (play.answer[0, 0, 1], play.tokens[0, 0, 1])
    finals = [dataset.questions[1].answer(int(final)) for final in dataset.matrix.finals()[1, :WIDTH]]
    assert [branch[-1] for branch in trace.shown] == finals
    assert trace.title.endswith("question 1, recorded order")
    for drawn in ({"seed": 1}, {"protocol": "paper64"}):
        with pytest.raises(InputError, match="recorded order is not drawn; leave the seed and the protocol"):
            at.trace(dataset, "sc@8", max_branches=WIDTH, recorded=True, **drawn)


@EACH
def test_decisions_follow_one_another(traces, name):
    for trace in traces(name):
        decisions = [step.decision for step in trace.steps]
        assert decisions[-1].action == "answer"
        assert [d.action for d in decisions].count("answer") == 1
        assert [d.round for d in decisions] == sorted(d.round for d in decisions)
        assert [d.tokens for d in decisions] == sorted(d.tokens for d in decisions)
        opened = [b for d in decisions if d.action in ("open", "read") for b in d.branches]
        assert opened == list(range(len(trace.finished)))
        given_up = [b for d in decisions if d.action == "prune" for b in d.branches]
        assert sorted(given_up) == np.flatnonzero(trace.pruned).tolist()
        for step in trace.steps:
            assert list(step.votes.values()) == sorted(step.votes.values(), reverse=True)
            top1, top2 = [*step.votes.values(), 0, 0][:2]
            assert step.confidence == pytest.approx(confidence_table(WIDTH)[top1, top2])


@EACH
def test_the_answer_is_what_the_last_vote_says(traces, name):
    for trace in traces(name):
        assert next(iter(trace.steps[-1].votes)) == trace.answer


def test_parallel_probe_votes_with_latest_answers(traces):
    assert not any(step.final for trace in traces("parallel-probe@8") for step in trace.steps)
    assert all(trace.steps[-1].final for trace in traces("sc@8"))


@pytest.mark.slow
def test_a_users_own_controller_can_be_traced(dataset, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(OWN_CONTROLLER)
    trace = at.trace(dataset, f"{file}:Mine", question=1, max_branches=WIDTH)
    assert trace.title == "Mine on synthetic-M/synthetic, question 1, seed 0"
    assert [step.decision.action for step in trace.steps] == ["open", "advance", "probe", "answer"]
    assert [text is None for text in trace.shown[0]] == [True, False]


OWN_CONTROLLER = """
import dataclasses
import jax
import autotts_jax as at

@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Mine(at.Controller):
    branches: int = 3

    def init(self, view):
        return None, at.Action(open=self.branches, probe=view.active)

    def act(self, memory, view):
        stop = at.first_of((view.rounds > 0, at.StopReason.DECIDED))
        return memory, at.Action(stop, advance=view.live.astype("int32"), probe=view.active)

    def answer(self, memory, view):
        return view.vote(view.active)
"""


def test_a_budget_ends_the_traced_episode(dataset):
    trace = at.trace(dataset, "cmc@0.5", budget=4_000, max_branches=WIDTH)
    assert trace.steps[-1].decision.tokens <= 4_000
    assert trace.stop_reason.name == "BUDGET"


def test_files_are_complete(traces, tmp_path):
    trace = traces("cmc@0.5")[0]
    assert [file.name for file in trace.save(tmp_path)] == [
        "trace.jsonl",
        "trace.pdf",
        "trace.png",
        "trace.svg",
    ]
    head, *lines = map(json.loads, (tmp_path / "trace.jsonl").read_text().splitlines())
    assert head["answer"] == trace.answer
    assert head["correct"] == (trace.answer == trace.gold)
    assert head["tokens"] == lines[-1]["tokens"]
    for line, step in zip(lines, trace.steps, strict=True):
        assert line.pop("votes") == step.votes
        assert (line.pop("final"), line.pop("confidence")) == (step.final, step.confidence)
        assert Decision(**line) == step.decision


def test_without_matplotlib_the_decisions_are_written(traces, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert [file.name for file in traces("sc@8")[0].save(tmp_path)] == ["trace.jsonl"]


@EACH
def test_the_table_fits_80_columns(traces, name):
    for trace in traces(name):
        lines = str(trace.table()).splitlines()
        assert max(map(len, lines)) <= 80
        assert lines[0].startswith(f"{name} on synthetic-")
        assert lines[-1].startswith(f"answer {trace.answer} (")


def test_answers_that_look_like_markup_are_shown_as_they_are(traces):
    trace = traces("sc@8")[0]
    odd = dataclasses.replace(trace.steps[-1], votes={"[/a]": 2, ":x:[b]$": 1})
    shown = str(dataclasses.replace(trace, steps=[odd], answer="[/a]").table())
    assert "[/a]:2 :x:[b]$:1" in shown
    assert "answer [/a] (" in shown


def test_rounds_that_do_the_same_share_a_line(traces):
    steps = [step(round=n, tokens=500 * n) for n in range(1, 6)]
    steps += [step(round=6), step(round=6, action="prune"), step(votes={"7": 2}, round=7)]
    view = str(dataclasses.replace(traces("sc@8")[0], steps=steps).table())
    rounds = [line.split()[0] for line in view.splitlines()[3:] if line[:1].isdigit()]
    assert rounds == ["1-5", "6", "6", "7"]
    assert "2.5" in view


def test_descriptions():
    assert describe_branches(decision(branches=[0, 1, 2, 7], intervals=[1, 1, 1, 2])) == "+1: 0-2; +2: 7"
    assert describe_branches(decision(action="prune", branches=[3, 5])) == "3, 5"
    assert describe_branches(decision(branches=[], intervals=[])) == ""
    many = {"204": 5, "a very long answer": 2, "3": 1, "4": 1}
    assert describe_votes(step(votes=many)) == "204:5 a very long :2 3:1 …"
    assert describe_votes(step(final=False)) == "(7:1)"


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param([], marks=pytest.mark.slow),
        pytest.param([["答え", None, "$x$"]], marks=pytest.mark.slow),
        [["\\frac{1}{2}\n", "a" * 50]] * 64,
        pytest.param([[str(n) for n in range(30)]], marks=pytest.mark.slow),
    ],
)
def test_any_episode_can_be_drawn(traces, shown, tmp_path):
    ends = [True] * len(shown)
    episode = {"shown": shown, "finished": ends, "pruned": ends, "answer": "$x$", "gold": "答え"}
    dataclasses.replace(traces("sc@8")[0], title="sc@8 on $\\frac$/b", **episode).save(tmp_path)
    assert (tmp_path / "trace.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("spec", "arguments", "message"),
    [
        ("cmc", {}, "cmc has 11 settings, but this takes one controller at one value"),
        ("sc@1", {"cell": "model/bench"}, "unknown cell .model/bench.; there are synthetic-M/synthetic, "),
        ("sc@1", {"question": 3}, "no question 3; it has 0 … 2"),
        ("sc@1", {"question": -1}, "no question -1"),
        ("sc@1", {"protocol": "none"}, "unknown protocol"),
        pytest.param("sc@9", {}, "reads more branches", marks=pytest.mark.slow),
    ],
)
def test_bad_arguments(dataset, spec, arguments, message):
    with pytest.raises(InputError, match=message):
        at.trace(dataset, spec, **({"max_branches": WIDTH} | arguments))


@pytest.mark.slow
def test_signals_that_a_controller_reads_are_shown(tmp_path):
    trace = at.trace("synthetic-signals", "deepconf@24", question=1, max_branches=24)
    recorded = at.load("synthetic-signals").matrix.signals["conf_low"][1].astype(np.float32)
    step = trace.steps[0]
    values = step.signals["conf_low"]
    assert len(values) == len(step.decision.branches) > 0
    assert np.isin(values, recorded).all()
    assert "conf_low" in str(trace.table())
    assert "conf_low" not in str(at.trace("synthetic-signals", "sc@4", question=1, max_branches=4).table())
    trace.save(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert values in [line["signals"]["conf_low"] for line in lines[1:]]
    assert list(trace.signals) == ["conf_low"]
    branches = branch_orders(at.load("synthetic-signals"), "repo100", [0], 24).of(1, 0)
    shown = zip(branches, trace.shown, trace.signals["conf_low"], strict=True)
    for branch, texts, numbers in shown:
        told = zip(texts, recorded[branch], strict=False)
        assert numbers == [None if text is None else value for text, value in told]
    assert [panel.get_title() for panel in trace.figure().axes] == [
        "",
        "conf_low",
        "",
    ]  # the last is its scale
    assert trace._repr_html_().count("<figure") == 2


@pytest.mark.parametrize(
    "values",
    [
        [0.25, -3.0],
        *(pytest.param(of, marks=pytest.mark.slow) for of in ([1.0, 1.0], [None, 7.0], [None, None])),
    ],
)
def test_any_signal_can_be_drawn(traces, values, tmp_path):
    episode = {"shown": [["7"] * len(values)], "finished": [True], "pruned": [False]}
    trace = dataclasses.replace(traces("sc@8")[0], **episode, signals={"mine": [values]})
    trace.save(tmp_path)
    assert (tmp_path / "trace.png").stat().st_size > 1000
    known = [value for value in values if value is not None]
    told = [f"</span> {value:.3g} " for value in (min(known), max(known))] if known else []
    drawn = trace._repr_html_().split("<figcaption>mine</figcaption>")[1]
    assert all(text in drawn for text in told)
    assert drawn.count("</span>") == len(set(told))
