"""What the public functions refuse: one clear error for each wrong argument."""

import dataclasses
import re

import jax
import pytest

import autotts_jax as at
from autotts_jax.checks import callback
from autotts_jax.collect import LocalWorkers, Plan, Problem, SimulatedEngine, collect


@pytest.fixture(scope="module")
def data():
    return at.load("smollm2")


@pytest.mark.parametrize("wrong", [None, 3, float("nan"), [None], b"smollm2"])
def test_data_is_named_by_text_or_paths(wrong):
    with pytest.raises(at.InputError, match="must be a name, a path, or several of them"):
        at.load(wrong)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seeds": 0}, "the number of seeds is 0, but it must be between 1"),
        ({"seeds": True}, "the number of seeds is True, but it must be a whole number"),
        ({"seeds": "2"}, "must be a whole number"),
        ({"max_branches": 0}, "max_branches is 0, but it must be at least 1"),
        ({"max_branches": None}, "max_branches is None, but it must be a whole number"),
        ({"max_branches": 129}, "128 branches a question, fewer than the 129"),
        ({"budget": 1.5}, "the token budget is 1.5, but it must be a whole number; leave it out"),
        ({"processes": 0}, "processes is 0, but it must be at least 1"),
        ({"data": None}, "data is None"),
        ({"on_progress": divmod}, "on_progress takes .*, but it must be a function of 3 arguments"),
        ({"on_progress": 3}, "on_progress is 3, but it must be a function of 3 arguments: what is running, "),
    ],
)
def test_evaluate_refuses_what_it_cannot_play(data, arguments, message):
    with pytest.raises(at.InputError, match=message):
        at.evaluate(**{"data": data, "players": "sc@2", "seeds": 1} | arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": None}, "seed is None"),
        ({"seed": -1}, "seed is -1, but it must be between 0"),
        ({"question": 1.5}, "question is 1.5"),
        ({"question": 40}, "has no question 40"),
        ({"max_branches": 0}, "max_branches is 0"),
        ({"data": 3}, "data is 3"),
    ],
)
def test_trace_refuses_what_it_cannot_play(data, arguments, message):
    with pytest.raises(at.InputError, match=message):
        at.trace(**{"data": data, "player": "sc@2"} | arguments)


@pytest.mark.parametrize("settings", [{"unit": "x"}, {"gamma": "x"}, {"gamma": None}, {"gamma": -1}])
def test_an_objective_that_is_none(settings):
    with pytest.raises(at.InputError, match="but it must be"):
        at.Objective(**settings)


def test_data_may_be_named_wherever_it_is_taken():
    assert len(at.evaluate("smollm2", "sc@2", seeds=1).episodes()) == 40
    assert at.trace("smollm2", "sc@2").gold == "33"
    env, params = at.make("WidthDepthRounds-v0", "smollm2", max_branches=2)
    assert params.matrix.num_questions == 40
    assert env.max_branches == 2


def controller(start=lambda _, pool: (None, pool.open(1)), round_=None):
    """A controller with these methods."""

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class Wrong(at.Controller):
        weight: float = 1.0

        def vote(self, memory, pool):  # noqa: ARG002
            return pool.vote_finals()

    Wrong.start = start
    Wrong.round = round_ or (lambda _, memory, pool: (memory, pool, at.StopReason.DECIDED))
    Wrong.__abstractmethods__ = frozenset()
    return Wrong()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"start": lambda *_: None}, r"Wrong.start must return \(memory, pool\)"),
        ({"start": lambda _, pool: (pool, None)}, r"Wrong.start must return \(memory, pool\)"),
        ({"round_": lambda *_: None}, r"Wrong.round must return \(memory, pool, stop\)"),
        ({"round_": lambda _, memory, pool: (memory, pool, 99)}, "stop reason 99; return a StopReason"),
        ({"round_": lambda _, memory, pool: (memory, pool, True)}, "stop reason True"),
        ({"round_": lambda _, memory, pool: (memory, pool, 1.0)}, "stop reason 1.0"),
        ({"round_": lambda *given: (given[2].depth, given[2], 1)}, "shapes must stay as start made them"),
    ],
)
@pytest.mark.parametrize("play", [at.evaluate, at.trace])
def test_a_controller_that_returns_something_else(data, play, wrong, message):
    with pytest.raises(at.InputError, match=message):
        play(data, controller(**wrong), max_branches=2)


@pytest.mark.parametrize("seed", [-1, 2**32, True, 1.5, "1", None])
def test_environments_refuse_a_seed_that_is_none(data, seed):
    with pytest.raises(at.InputError, match=r"seed is .*, but it must be"):
        at.make("WidthDepth-v0", data, max_branches=2, seed=seed)


def nothing():
    """Takes nothing."""


def test_functions_to_call_are_checked_before_anything_is_done(data, tmp_path):
    engine = SimulatedEngine()
    with pytest.raises(
        at.InputError, match=re.escape("on_decision takes (), but it must be a function of 1")
    ):
        at.answer(engine, "What is 1 + 1?", "sc@2", on_decision=nothing)
    plan = Plan("simulated", "sums", (Problem("What is 1 + 1?", "2"),), num_branches=2)
    with pytest.raises(at.InputError, match="must be a function of 1 argument: the `CollectionProgress`"):
        collect(plan, tmp_path / "collected", LocalWorkers(engine), on_progress=nothing)
    with pytest.raises(
        at.InputError, match="must be a function of 2 arguments: the number of the update, its"
    ):
        at.train("missing.toml", data, out=tmp_path / "trained", on_progress=nothing)
    assert not list(tmp_path.iterdir())


def test_functions_that_do_not_tell_what_they_take_pass():
    callback("on_progress", max, "one")
    callback("on_progress", print, "one", "two")
