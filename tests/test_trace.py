"""Traces: one episode, decision by decision, is the episode that an evaluation plays."""

import dataclasses
import io
import json

import numpy as np
import pytest
from rich.console import Console

from autotts_jax.core.votes import confidence_table
from autotts_jax.errors import InputError
from autotts_jax.experiments.evaluation import evaluate
from autotts_jax.experiments.plots import save_figure
from autotts_jax.experiments.trace import (
    Decision,
    describe_branches,
    describe_votes,
    print_trace,
    trace_episode,
    trace_figure,
    write_trace,
)
from autotts_jax.policies.players import select
from autotts_jax.replay import SYNTHETIC_MODELS, synthetic

SEEDS, WIDTH = 3, 8
CONTROLLERS = ("sc@8", "asc@8", "esc@8", "parallel-probe@8", "cmc@0.5")
EPISODES = ((0, 0, 1), (1, 2, 2))
"""Cell, question and seed of what is traced."""


@pytest.fixture(scope="module")
def dataset():
    return synthetic(models=SYNTHETIC_MODELS[1:3], questions=3, branches=10)


@pytest.fixture(scope="module")
def traces(dataset):
    """Traces of `EPISODES`, by controller."""
    return {
        name: [
            trace_episode(
                dataset,
                select(name),
                cell=dataset.cells[cell].name,
                question=question,
                seed=seed,
                max_branches=WIDTH,
            )
            for cell, question, seed in EPISODES
        ]
        for name in CONTROLLERS
    }


def decision(**changes):
    given = {
        "round": 1,
        "action": "advance",
        "branches": [0],
        "intervals": [1],
        "votes": {"7": 1},
        "final": True,
        "confidence": 0.5,
        "tokens": 500,
    }
    return Decision(**(given | changes))


def printed(trace):
    text = io.StringIO()
    print_trace(trace, Console(file=text, width=80, markup=False, emoji=False, highlight=False))
    return text.getvalue()


def test_a_trace_is_the_episode_that_an_evaluation_plays(dataset, traces):
    evaluation = evaluate(dataset, [select(name) for name in CONTROLLERS], seeds=SEEDS, max_branches=WIDTH)
    for play, of_controller in zip(evaluation.plays, traces.values(), strict=True):
        for trace, (cell, question, seed) in zip(of_controller, EPISODES, strict=True):
            at = 0, seed, dataset.cell_questions(cell)[question]
            assert trace.answer == play.answer[at]
            assert trace.decisions[-1].tokens == play.tokens[at]
            assert trace.decisions[-1].round == play.rounds[at]
            assert len(trace.finished) == play.branches[at]
            assert sum(sum(d.intervals) for d in trace.decisions) == play.intervals[at]
            assert sum(text is not None for branch in trace.shown for text in branch) == play.probes[at]
            assert trace.stop_reason == play.stop_reason[at]


@pytest.mark.parametrize("name", CONTROLLERS)
def test_decisions_follow_one_another(traces, name):
    for trace in traces[name]:
        decisions = trace.decisions
        assert decisions[-1].action == "answer"
        assert [d.action for d in decisions].count("answer") == 1
        assert [d.round for d in decisions] == sorted(d.round for d in decisions)
        assert [d.tokens for d in decisions] == sorted(d.tokens for d in decisions)
        opened = [b for d in decisions if d.action in ("open", "read") for b in d.branches]
        assert opened == list(range(len(trace.finished)))
        given_up = [b for d in decisions if d.action == "prune" for b in d.branches]
        assert sorted(given_up) == np.flatnonzero(trace.pruned).tolist()
        for d in decisions:
            assert list(d.votes.values()) == sorted(d.votes.values(), reverse=True)
            top1, top2 = [*d.votes.values(), 0, 0][:2]
            assert d.confidence == pytest.approx(confidence_table(WIDTH)[top1, top2])


@pytest.mark.parametrize("name", CONTROLLERS)
def test_the_answer_is_what_the_last_vote_says(traces, name):
    for trace in traces[name]:
        assert next(iter(trace.decisions[-1].votes)) == trace.answer


def test_parallel_probe_votes_with_latest_answers(traces):
    assert not any(d.final for trace in traces["parallel-probe@8"] for d in trace.decisions)
    assert all(trace.decisions[-1].final for trace in traces["sc@8"])


def test_a_users_own_controller_can_be_traced(dataset, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(OWN_CONTROLLER)
    trace = trace_episode(dataset, select(f"{file}:Mine@3"), question=1, max_branches=WIDTH)
    assert trace.title == "Mine@3 on synthetic-M/synthetic, question 1, seed 0"
    assert [d.action for d in trace.decisions] == ["open", "advance", "probe", "answer"]
    assert [text is None for text in trace.shown[0]] == [True, False]


OWN_CONTROLLER = """
import dataclasses
import jax
from autotts_jax.core.controller import Controller
from autotts_jax.core.pool import StopReason

@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Mine(Controller):
    branches: int

    @classmethod
    def at(cls, value):
        return cls(int(value))

    def start(self, pool):
        return None, pool.open(self.branches, probe=False)

    def round(self, memory, pool):
        pool = pool.advance(pool.live.astype("int32"), probe=False).probe(pool.active)
        return memory, pool, StopReason.DECIDED

    def vote(self, memory, pool):
        return pool.vote(pool.active)
"""


def test_a_budget_ends_the_traced_episode(dataset):
    trace = trace_episode(dataset, select("cmc@0.5"), budget=4_000, max_branches=WIDTH)
    assert trace.decisions[-1].tokens <= 4_000
    assert trace.stop_reason.name == "BUDGET"


def test_files_are_complete(traces, tmp_path):
    trace = traces["cmc@0.5"][0]
    files = write_trace(tmp_path, trace)
    assert [file.name for file in files] == ["trace.jsonl", "trace.png", "trace.svg"]
    head, *decisions = map(json.loads, (tmp_path / "trace.jsonl").read_text().splitlines())
    assert head["answer"] == trace.answer
    assert head["correct"] == (trace.answer == trace.gold)
    assert head["tokens"] == decisions[-1]["tokens"]
    assert [Decision(**line) for line in decisions] == trace.decisions


@pytest.mark.parametrize("name", CONTROLLERS)
def test_the_view_fits_80_columns(traces, name):
    for trace in traces[name]:
        lines = printed(trace).splitlines()
        assert max(map(len, lines)) <= 80
        assert lines[0].startswith(f"{name} on synthetic-")
        assert lines[-1].startswith(f"answer {trace.answer} (")


def test_answers_that_look_like_markup_are_shown_as_they_are(traces):
    trace = traces["sc@8"][0]
    odd = Decision(**(vars(trace.decisions[-1]) | {"votes": {"[/a]": 2, ":x:[b]$": 1}}))
    shown = printed(type(trace)(**(vars(trace) | {"decisions": [odd], "answer": "[/a]"})))
    assert "[/a]:2 :x:[b]$:1" in shown
    assert "answer [/a] (" in shown


def test_rounds_that_do_the_same_share_a_line(traces):
    trace = traces["sc@8"][0]
    decisions = [decision(round=n, tokens=500 * n) for n in range(1, 6)]
    decisions += [decision(round=6), decision(round=6, action="prune"), decision(round=7, votes={"7": 2})]
    view = printed(type(trace)(**(vars(trace) | {"decisions": decisions})))
    rounds = [line.split()[0] for line in view.splitlines()[3:] if line[:1].isdigit()]
    assert rounds == ["1-5", "6", "6", "7"]
    assert "2.5" in view


def test_descriptions():
    assert describe_branches(decision(branches=[0, 1, 2, 7], intervals=[1, 1, 1, 2])) == "+1: 0-2; +2: 7"
    assert describe_branches(decision(action="prune", branches=[3, 5])) == "3, 5"
    assert describe_branches(decision(branches=[], intervals=[])) == ""
    many = {"204": 5, "a very long answer": 2, "3": 1, "4": 1}
    assert describe_votes(decision(votes=many)) == "204:5 a very long :2 3:1 …"
    assert describe_votes(decision(final=False)) == "(7:1)"


@pytest.mark.parametrize(
    "shown", [[], [["答え", None, "$x$"]], [["\\frac{1}{2}\n", "a" * 50]] * 64, [[str(n) for n in range(30)]]]
)
def test_any_episode_can_be_drawn(traces, shown, tmp_path):
    ends = [True] * len(shown)
    episode = {"shown": shown, "finished": ends, "pruned": ends, "answer": "$x$", "gold": "答え"}
    figure = trace_figure(dataclasses.replace(traces["sc@8"][0], **episode))
    save_figure(figure, [tmp_path / "trace.png", tmp_path / "trace.svg"])
    assert (tmp_path / "trace.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("spec", "arguments", "message"),
    [
        ("cmc", {}, "one controller at one value"),
        ("examples/released_programs.py:OptimalController@0.5", {}, "cannot be traced"),
        ("sc@1", {"cell": "model/bench"}, "no cell model/bench; there are synthetic-M/synthetic, "),
        ("sc@1", {"question": 3}, "no question 3; it has 0 … 2"),
        ("sc@1", {"question": -1}, "no question -1"),
        ("sc@1", {"protocol": "none"}, "unknown protocol"),
        ("sc@9", {}, "reads more branches"),
    ],
)
def test_bad_arguments(dataset, spec, arguments, message):
    with pytest.raises(InputError, match=message):
        trace_episode(dataset, select(spec), **({"max_branches": WIDTH} | arguments))
