"""What the public functions refuse: one clear error for each wrong argument."""

import dataclasses
import io
import json
import pickle
import re
import sys
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import autotts_jax as at
from autotts_jax.checks import check_callback
from autotts_jax.collect import LocalWorkers, Plan, Problem, SimulatedEngine, collect
from autotts_jax.core.rollout import Episodes
from autotts_jax.envs import WidthDepth
from autotts_jax.errors import InputWarning
from autotts_jax.experiments.evaluation import Frontiers, branch_orders
from autotts_jax.experiments.files import FILES, check_results_folder, results_folder
from autotts_jax.experiments.summary import Row
from autotts_jax.experiments.tables import statistics_table, summary_table
from autotts_jax.policies import CMC, SelfConsistency, load_policy
from autotts_jax.policies.neural.policy_file import SHIPPED
from autotts_jax.replay import BranchOrders
from autotts_jax.user_code import last_lines


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
        ({"max_branches": "8"}, "max_branches is '8', but it must be a whole number"),
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
    with pytest.raises(at.InputError, match=r"but it must be|unknown cost 'x'"):
        at.Objective(**settings)


@pytest.mark.slow
def test_data_may_be_named_wherever_it_is_taken():
    assert len(at.evaluate("smollm2", "sc@2", seeds=1).episodes()) == 40
    assert at.trace("smollm2", "sc@2").gold == "33"
    env, params = at.make("WidthDepthRounds-v0", "smollm2", max_branches=2)
    assert params.matrix.num_questions == 40
    assert env.max_branches == 2


def controller(weight=1.0, **methods):
    """A controller with these methods."""
    methods = {
        "init": lambda _, view: (None, at.Action(open=1)),  # noqa: ARG005
        "act": lambda _, memory, view: (memory, at.Action(at.StopReason.DECIDED)),  # noqa: ARG005
        "answer": lambda _, memory, view: view.vote_finals(),  # noqa: ARG005
    } | methods
    kind = dataclasses.make_dataclass(
        "Wrong", [("weight", float)], bases=(at.Controller,), namespace=methods, frozen=True
    )
    return jax.tree_util.register_dataclass(kind)(weight)


def starts(memory):
    return {"init": lambda _, view: (memory, at.Action(open=1))}  # noqa: ARG005


def stops(reason):
    return {"act": lambda _, memory, view: (memory, at.Action(reason(view)))}


def acts(**parts):
    """Acts by functions of the view, one a part of the action."""
    return {
        "act": lambda _, memory, view: (
            memory,
            at.Action(at.StopReason.DECIDED, **{name: part(view) for name, part in parts.items()}),
        )
    }


def votes(vote):
    return {"answer": lambda _, memory, view: vote(view)}  # noqa: ARG005


def branches_in_python(_, memory, view):
    return memory, at.Action(at.StopReason.DECIDED if view.opened > 0 else at.StopReason.RUNNING)


@pytest.mark.parametrize("play", [at.evaluate, at.trace])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (starts("x"), "Wrong.init returned a memory that holds 'x'; a memory is a pytree of arrays"),
        (
            {"init": lambda _, view: (None, at.Action(open=view.depth))},
            r"Wrong.init: Action.open takes an integer, shape \(\), not int32\[2\]",
        ),
        (
            {"init": lambda *_: at.Action(open=1)},
            r"Wrong.init must return \(memory, Action\), with None where nothing is remembered",
        ),
        (
            {"init": lambda *_: (None, at.Action(at.StopReason.DECIDED))},
            "Wrong.init returned an Action that stops, but only act can",
        ),
        ({"init": lambda _, view: (view, 0)}, "Wrong.init returned a memory that holds a View"),
        ({"init": lambda *_: jax.random.key(0)}, "Wrong.init returned a memory that holds a random key"),
        ({"act": lambda *_: None}, r"Wrong.act must return \(memory, Action\), not None"),
        ({"act": lambda *_: at.Action(1)}, r"Wrong.act must return \(memory, Action\), not an Action alone$"),
        ({"act": lambda *given: (given[1], 1)}, r"Wrong.act must return \(memory, Action\), not 1 as the"),
        (
            {"act": branches_in_python},
            r"Wrong.act needs a value in Python that is traced, as a condition or a number in test_che",
        ),
        *(
            (acts(open=call), r"Wrong.act calls NumPy on a value .* test_checks.py, line \d+: .*\n.*jnp.wher")
            for call in (
                lambda view: np.where(view.live, 1, 0)[0],
                lambda view: np.maximum(view.opened, 1),
                lambda view: np.sum(np.abs(view.depth)),
            )
        ),
        (
            {"init": lambda self, _: (jnp.zeros(self.weight), at.Action(open=1))},
            r"Wrong.init makes an array of a traced shape.* test_checks.py, .*\n.*view.width, .* 2 and",
        ),
        (
            starts(jnp.zeros(3, jnp.int32))
            | {"act": lambda *given: (given[1] + given[2].depth, at.Action(1))},
            r"Wrong.act makes an array of .* that does not fit in test_checks.py, line \d+.*\n.*view.width",
        ),
        (stops(lambda _: 99), "Wrong.act returned the stop reason 99; return a StopReason"),
        (stops(lambda _: True), "Wrong.act returned the stop reason True"),
        (stops(lambda _: 1.0), "Wrong.act returned the stop reason 1.0"),
        (stops(lambda _: "decided"), "Wrong.act returned the stop reason 'decided'"),
        (stops(lambda view: view.depth), r"Wrong.act returned the stop reason int32\[2\]"),
        (stops(lambda view: view.opened > 0), r"Wrong.act returned the stop reason bool\[\]; return a Stop"),
        (stops(lambda _: at.first_of(True)), r"Wrong.act: first_of takes pairs \(condition, StopReason\)"),
        (
            stops(lambda view: at.first_of((view.live, at.StopReason.DECIDED))),
            r"first_of takes conditions that are True or False, shape \(\), not bool\[2\]; jnp.any and",
        ),
        (
            {"act": lambda *given: (given[2].depth, at.Action(1))},
            r"Wrong.act was given the memory None and returned int32\[2\]; structure, shapes and dtypes",
        ),
        (
            starts(0) | {"act": lambda *given: (given[1] + 0.5, at.Action(1))},
            r"the memory int32\[\] and returned float32\[\]",
        ),
        (
            starts((0,)) | {"act": lambda *given: (list(given[1]), at.Action(1))},
            r"the memory \(int32\[\],\) and returned \[int32\[\]\]",
        ),
        (votes(lambda _: None), "Wrong.answer must return a Vote, as view.vote does, not None"),
        (votes(lambda view: view.depth), r"Wrong.answer must return a Vote, .*, not int32\[2\]"),
        (
            votes(lambda view: dataclasses.replace(view.vote_finals(), leader=0.5)),
            "Wrong.answer returned a Vote whose leader is 0.5; it must be an integer",
        ),
        ({"weight": "x"}, "Wrong.weight is 'x', but fields are traced and must be numbers or arrays"),
        (acts(open=lambda _: 2.5), r"Wrong.act: Action.open takes an integer, shape \(\), not 2.5"),
        (acts(open=lambda _: None), r"Action.open takes an integer, shape \(\), not None"),
        (acts(read=lambda _: np.int64(2**33)), "not .*8589934592.*, which is more than int32"),
        (acts(read=lambda view: view.depth), r"Action.read takes an integer, .*, not int32\[2\]"),
        (acts(repeat=lambda _: 0.5), r"Action.repeat takes an integer, shape \(\), not 0.5"),
        (acts(advance=lambda _: 1), r"Action.advance takes an integer for each of the 2 .*, not 1$"),
        (acts(advance=lambda view: view.live), r"Action.advance takes an integer .*, not bool\[2\]"),
        (acts(advance=lambda view: view.depth[:1]), r"Action.advance takes .*, not int32\[1\]"),
        (acts(prune=lambda view: view.depth), r"Action.prune takes True or False .*, not int32\[2\]"),
        (acts(probe=lambda _: True), "Action.probe takes True or False for each .*, not True"),
        (acts(prune=lambda view: view.agrees(view.depth)), r"view.agrees\(branch\) takes an integer"),
        (acts(open=lambda view: view.answer_key(None)), r"view.answer_key\(branch\) takes an integer"),
        (votes(lambda view: view.vote([0])), r"Wrong.answer: view.vote\(voters\) takes True or False"),
        (votes(lambda view: view.vote(view.live, view.live)), r"view.vote\(rank\) takes an integer"),
        (
            votes(lambda view: view.vote_finals(weights=view.depth)),
            r"view.vote_finals\(weights\) takes a float for each of the 2 branches",
        ),
        (votes(lambda view: view.vote_finals(view.depth)), r"view.vote_finals\(voters\) takes True or F"),
    ],
)
def test_a_controller_that_is_none(data, play, wrong, message):
    with pytest.raises(at.InputError) as refused:
        play(data, controller(**wrong), max_branches=2)
    assert re.search(message, str(refused.value))


def test_what_tracing_cannot_tell_is_checked_when_an_episode_has_ended(data):
    stop = controller(**stops(lambda _: jnp.int32(99)))
    for play in (at.evaluate, at.trace):
        with pytest.raises(at.InputError, match=r"Wrong.act returned the stop reason 99"):
            play(data, stop, max_branches=2)


@pytest.mark.parametrize("leader", [1, pytest.param(-2, marks=pytest.mark.slow)])
def test_a_leader_that_is_no_opened_branch_is_refused(data, leader):
    wrong = controller(
        **votes(lambda view: dataclasses.replace(view.vote_finals(), leader=jnp.int32(leader)))
    )
    with pytest.raises(
        at.InputError, match=r"Wrong.answer returned a Vote whose leader is none of the 1 opened"
    ):
        at.evaluate(data, wrong, max_branches=2)
    with pytest.raises(
        at.InputError, match=rf"Wrong.answer returned a Vote whose leader is {leader}; .* 1 opened"
    ):
        at.trace(data, wrong, max_branches=2)


def test_the_contract_fits_on_a_page():
    view = {field.name for field in dataclasses.fields(at.View)} | {
        name for name, member in vars(at.View).items() if isinstance(member, property) or callable(member)
    }
    controller = {*vars(at.Controller)}
    names = [*view, *at.Action._fields, *controller]
    assert len([name for name in names if not name.startswith("_")]) <= 40


@pytest.mark.slow
def test_a_memory_may_hold_numbers(data):
    """Evaluations, traces and the check agree about them."""
    counting = controller(
        init=lambda _, view: ((0, 0.0, True), at.Action(open=1)),  # noqa: ARG005
        act=lambda _, memory, view: (  # noqa: ARG005
            (memory[0] + 1, 0.5, memory[2]),
            at.Action(at.first_of((memory[0] > 2, at.StopReason.DECIDED))),
        ),
    )
    played = at.evaluate(data, counting, seeds=1, max_branches=2).episodes()
    assert played["rounds"].unique().to_pylist() == [3]
    assert at.trace(data, counting, max_branches=2).steps[-1].decision.round == 3
    at.testing.check_controller(counting, episodes=2)


EPISODES = Episodes([0], [0], [0])
ORDERS = BranchOrders(np.zeros((1, 1, 2), np.int32), np.zeros(40, np.int32))


def answered(**arguments):
    return at.answer(SimulatedEngine(), "What is 1 + 1?", "cmc@0.5", **arguments)


def roll(data, **arguments):
    arguments = {"controllers": [CMC.of_beta(0)], "matrix": data.matrix, "orders": ORDERS} | arguments
    return at.rollout(**{"episodes": EPISODES} | arguments)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (at.load, "data is ProbeDataset of 40 questions: .*; a dataset is loaded already"),
        (lambda data: at.load([data, data]), r"data is \[ProbeDataset of 40 questions: "),
        (lambda data: at.evaluate(data.matrix, "sc@2"), "data is ProbeMatrix"),
        (
            lambda _: at.load("smolm2"),
            "nothing found at 'smolm2'; did you mean 'smollm2'. There are synthetic, ",
        ),
        (
            lambda _: at.load("nope"),
            "nothing found at 'nope'; there are synthetic, synthetic-signals, synthetic-easy, "
            "synthetic-medium, synthetic-hard, smollm2, smollm2-signals, autotts, files and",
        ),
        (lambda data: at.evaluate(data, "sc@2", sealing=None), "sealing is None, but it must be"),
        (lambda data: at.trace(data, "sc@2", sealing=True), "sealing is True, but it must be"),
        (lambda data: at.evaluate(data, "sc@2", protocol=["repo100"]), r"unknown protocol \['repo100'\]"),
        (lambda _: answered(max_branches=2000), "max_branches is 2000, but it must be between 1 and 1290"),
        (lambda _: answered(sampling=3), "sampling is 3, but it must be an autotts_jax.collect.Sampling"),
        (lambda _: answered(answers=None), "answers is None, but it must be a rule's name or a function"),
        (lambda data: at.evaluate(data, print), "print is neither a Controller nor"),
        (lambda data: at.evaluate(data, b"sc@8"), "bytes is neither a Controller nor"),
        (lambda data: at.discover(data, proposers="rules"), r"proposers is 'rules', .* write \['rules'\]"),
        (
            lambda data: at.discover(data, cpu_minutes="x"),
            "cpu_minutes is 'x', but it must be a finite number",
        ),
        (lambda data: at.make([], data), r"unknown environment \[\]; there are WidthDepth-v0, "),
        (lambda data: at.make("WidthDepth-v0", data, gamma=-1), "gamma is -1, but"),
        (
            lambda data: roll(data, controllers=CMC.of_beta(0)),
            "controllers is CMC.* a sequence of controllers",
        ),
        (lambda data: roll(data, matrix=data), "matrix is ProbeDataset .* must be a ProbeMatrix"),
        (lambda data: roll(data, orders=ORDERS.table), "orders is array.* must be a BranchOrders"),
        (
            lambda data: roll(data, episodes=Episodes([0, 1], [0], [0])),
            "columns of episodes must be of one len",
        ),
        (lambda data: roll(data, episodes=Episodes(["x"], [0], [0])), "no three columns of whole numbers"),
        (lambda data: roll(data, refill=float("nan")), "refill is nan, but it must be a finite number"),
        (lambda data: roll(data, refill=-5), "refill is -5, but it must be a finite number of at least 0"),
        (
            lambda _: at.Family("f", ("a",), CMC.of_beta),
            "a value of f is 'a', but it must be a finite number",
        ),
        (lambda _: at.Family("f", (float("nan"),), CMC.of_beta), "a value of f is nan"),
        (
            lambda _: at.Family("f", (10**400,), CMC.of_beta),
            "a value of f is 10+, but it must be a finite num",
        ),
        (lambda _: at.Family("f", 0.5, CMC.of_beta), "the values of f are 0.5; give a tuple of numbers"),
        (
            lambda _: at.Family("f@1", (1,), CMC.of_beta),
            "a family's name is 'f@1', but it must be a text with",
        ),
        (lambda _: at.Family(None, (1,), CMC.of_beta), "a family's name is None"),
        (lambda _: at.Family("f\0", (1,), CMC.of_beta), r"a family's name is 'f\\x00', .* printable"),
        (lambda _: at.Family("f" * 5000, (1,), CMC.of_beta), "a family's name is 'f+, .* 1 to 1000"),
        (lambda _: at.Family("f", (1,), CMC.of_beta, 3), "the value_name of f is 3, but it must be text"),
        (lambda _: at.Family("f", (n for n in (1, 2)), CMC.of_beta), "the values of f are <generator"),
        (lambda _: at.Family("f", {1, 2}, CMC.of_beta), "the values of f are {1, 2}; give a tuple"),
        (lambda _: at.Family("f", b"12", CMC.of_beta), "the values of f are b'12'; give a tuple"),
        (lambda _: at.Objective(gamma=True), "gamma is True, but it must be a finite number of at least 0"),
        (lambda _: at.Objective(gamma=1e308), r"gamma is 1e\+308, .* at most 1e\+12"),
        (lambda data: at.evaluate(data, "neural@1e13", seeds=1), r"γ is .*, .* at most 1e\+12"),
        (lambda _: at.Objective(gamma="x" * 5000), "gamma is 'x+, but it must be a finite number"),
        (
            lambda data: at.make("WidthDepth-v0", data, mask_in_obs=[]),
            r"mask_in_obs is \[\], but it must be",
        ),
        (lambda data: at.make("WidthDepth-v0", data, fused="no"), "fused is 'no', but it must be True or F"),
        (lambda data: at.trace(data, "sc@1", recorded="no"), "recorded is 'no', but it must be True or Fal"),
        (lambda data: at.trace(data, "sc@1", cell=np.array(["a", "b"])), "unknown cell array"),
        (lambda data: at.discover(data, candidates=1, beta="no"), "beta is 'no', but it must be True or F"),
        (lambda data: at.train("missing.toml", data, resume="no"), "resume is 'no', but it must be True"),
        (lambda data: at.discover(data, proposers=None), "proposers is None, but it must be a list of prop"),
        (
            lambda data: at.discover(data, proposers=[3]),
            "a proposer is 3, but it must be a name, or an obj",
        ),
        (
            lambda data: at.discover(data, critic=3),
            "critic is 3, but it must be a name, or have a name and j",
        ),
        (lambda _: at.sb3_vec_env("WidthDeth-v0"), "unknown environment 'WidthDeth-v0'; did you mean"),
        (lambda _: live(cancel=3), "cancel is 3, but it must be a threading.Event"),
        (lambda _: live(fall_back=[]), r"fall_back is \[\], but it must be True or False"),
        (lambda _: live(gold=42), "gold is 42, but it must be text"),
        (lambda _: live(grader=np.array(["math", "code"])), "grader is array.*, but it must be a grader"),
        (lambda _: at.testing.check_engine(None), "engine is None, but it must be an engine"),
        (
            lambda data: at.testing.check_functional_env(None, data.matrix),
            "env is None, but it must be an autotts_jax.envs.Environment",
        ),
        (lambda data: at.evaluate(data, np.array(3)), "ndarray is neither a Controller nor"),
        (lambda data: at.evaluate(data, "x" * 5000), "unknown player 'x+; known are sc"),
        (lambda data: data.cell_questions([]), r"cell is \[\], but it must be a whole number"),
        (lambda data: data.cell_questions(1), "cell is 1, but it must be between 0 and 0"),
        (lambda _: at.read_run("a\0b"), r"'a\\x00b': no path has a NUL in it"),
        (lambda _: at.discover(sandbox="kernel"), "sandbox is 'kernel', but it must be an autotts_jax.Sandb"),
        (lambda _: at.Sealing(spellings=1), "spellings is 1, but it must be True or False"),
        (lambda _: at.Sealing(sandbox="kernel"), "sandbox is 'kernel', but it must be an autotts_jax.Sandb"),
        (lambda _: at.Sandbox(level=np.array(["kernel"])), "unknown sandbox level array"),
        (lambda _: at.Sandbox(seconds="x"), "a sandbox's seconds is 'x', but it must be a finite number"),
        (lambda _: at.Sandbox(wall_seconds="x"), "a sandbox's wall_seconds is 'x', but it must be a fin"),
        (lambda _: at.read_run(None), "folder is None, but it must be a path"),
        (lambda _: load_policy(3), "the policy's path is 3, but it must be a path"),
        (lambda _: load_policy("."), "best.npz: there is no such file"),
        (lambda _: at.load("smollm2", encoding=np.array(["exact", "equiv"])), "unknown encoding array"),
        (lambda _: at.load("synthetic", encoding=[]), r"unknown encoding \[\]; there are exact, equiv"),
        (lambda data: at.evaluate(data, "sc@1", protocol=[]), r"unknown protocol \[\]; there are repo100"),
        (lambda data: at.make("WidthDepth-v0", data, obs=[]), r"unknown observation \[\]; there are"),
        (lambda data: at.make("WidthDepth-v0", data, reward=[]), r"unknown reward \[\]; there are outcome"),
        (lambda data: at.make("WidthDepth-v0", data, gamma=([1], 2)), "gamma is .*, but it must be a numb"),
        (lambda _: task(name=""), "a task's name is '', but it must be 1 to 1000 printable"),
        (lambda _: task(data=3), "the data of task 't' is 3, but it must be text"),
        (lambda _: task(max_branches="8"), "max_branches is '8', but it must be a whole number"),
        (lambda _: task(gamma=1e-4), "gamma is 0.0001, but it must be the least and the largest γ"),
        (lambda _: task(gamma=(2.0, 1.0)), r"gamma is \(2.0, 1.0\), but it must be"),
        (lambda _: task(environment="WidthDeth-v0"), "unknown environment 'WidthDeth-v0'; did you mean"),
        (lambda _: task(steps=10), "steps is 10, but it must be a tuple of whole numbers"),
        (lambda _: task(steps=("10",)), "an entry of steps is '10', but it must be a whole number"),
        (lambda _: at.Agent(3, WidthDepth(2)), "act is 3, but it must be a function of 1 argument: observ"),
        (lambda _: at.Agent(None, WidthDepth(2)), "act is None, but it must be a function of observations"),
        (lambda _: at.Agent(max, "WidthDepth-v0"), "env is 'WidthDepth-v0', but it must be an environment"),
        (
            lambda _: at.Family("f", (1,), None),
            "f makes its controllers by None, which is not callable; give a",
        ),
        (
            lambda _: at.testing.check_controller("cmc@0"),
            "controller is 'cmc@0', but it must be a Controller",
        ),
        (
            lambda _: at.testing.check_controller(CMC),
            "controller is <class .*, but it must be a Controller or",
        ),
    ],
)
def test_arguments_that_cannot_be_meant(data, call, message):
    with pytest.raises(at.InputError) as refused:
        call(data)
    assert re.search(message, str(refused.value))
    assert len(str(refused.value)) < 500


def live(**changed):
    """Answers a question live, with some arguments changed."""
    return at.answer(SimulatedEngine(), "What is 1 + 1?", "sc@1", **changed)


def task(**changed):
    """A task, with some fields changed."""
    fields = {"data": None, "max_branches": 8, "gamma": (1e-4, 1e-3), "steps": (10,)}
    return at.Task(**{"name": "t", "environment": "WidthDepth-v0"} | fields | changed)


@pytest.mark.slow
def test_numbers_of_numpy_are_values_of_a_family(data, tmp_path):
    family = at.Family("mine", np.arange(1, 3), SelfConsistency, "branches")
    assert family == at.Family("mine", [1, np.int64(2)], SelfConsistency, "branches")
    at.evaluate(data, family, seeds=1, max_branches=2).save(tmp_path)


def test_another_objective_is_checked(data):
    result = at.evaluate(data, "sc@1", seeds=1, max_branches=2)
    with pytest.raises(at.InputError, match=r"objective is 0.1, but it must be an autotts_jax.Objective"):
        dataclasses.replace(result, objective=0.1)


def test_an_agent_shows_itself_in_a_line():
    assert repr(at.Agent(nothing_of, WidthDepth(2))) == "Agent(nothing_of) in WidthDepth with 2 branches"


def nothing_of(observations):
    """Takes observations."""


def test_a_dataset_shows_itself_in_a_line(data):
    assert repr(data) == "ProbeDataset of 40 questions: SmolLM2-135M-Instruct/arithmetic (128 branches)"
    assert {data: "a key"}[data] == "a key"
    assert data != at.load("smollm2")


def test_environments_and_policies_show_their_settings_and_no_arrays(data):
    env, params = at.make("WidthDepth-v0", data, max_branches=2)
    settings = "max_branches=2, obs='features', aggregate='majority', mask_in_obs=False, signals=()"
    assert repr(env) == f"WidthDepth({settings}, fused=False)"
    own = WidthDepth(2, aggregate=nothing_of_either)
    assert repr(nothing_of_either) in repr(own)
    assert "answers=int16[40,128,16]" in repr(params)
    assert max(map(len, (repr(params), repr(jax.tree.map(jnp.shape, params))))) < 800
    policy = dataclasses.replace(load_policy(SHIPPED)[0], gamma=1e-4)
    assert repr(policy).startswith("NeuralPolicy(<1,225 parameters>, gamma=0.0001, trained_on=")


def nothing_of_either(view, tracker):
    """Takes what an aggregate is given."""


def test_what_is_hidden_in_a_folder_is_no_data(tmp_path):
    hidden = tmp_path / ".cache" / "layers.json"
    hidden.parent.mkdir()
    hidden.write_text("{}", encoding="utf-8")
    with pytest.raises(at.InputError, match="nothing found at"):
        at.load(tmp_path)


@pytest.mark.parametrize(
    ("folder", "message"), [(None, "folder is None"), ("", "an empty path names nothing")]
)
def test_results_need_a_folder(tmp_path, monkeypatch, folder, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(at.InputError, match=message), results_folder(folder, ()):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("manifest", ['{"config": {}, "data": {}, "versions": {}}', "[]", "of a project"])
@pytest.mark.parametrize("names", [(), FILES])
def test_no_manifest_but_an_evaluations_is_replaced(tmp_path, manifest, names):
    (tmp_path / "manifest.json").write_text(manifest, encoding="utf-8")
    message = "manifest.json is not an evaluation's, as that of a training run; give another folder"
    with pytest.raises(at.InputError, match=message), results_folder(tmp_path, names):
        pass
    assert [file.name for file in tmp_path.iterdir()] == ["manifest.json"]
    assert (tmp_path / "manifest.json").read_text(encoding="utf-8") == manifest


def test_files_of_others_are_neither_replaced_nor_removed(data, tmp_path):
    played = at.evaluate(data, "sc@1", seeds=1, max_branches=2)
    (tmp_path / "frontier.csv").write_text("mine")
    message = "holds frontier.csv and no manifest.json, so that no evaluation has written this; move it, or"
    with pytest.raises(at.InputError, match=message):
        check_results_folder(tmp_path, FILES)
    with pytest.raises(at.InputError, match=message):
        played.save(tmp_path)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("frontier.csv", "mine")]
    with results_folder(tmp_path, ("trace.png",)):
        pass  # It is in nobody's way here.


def write_results(folder, *names):
    with results_folder(folder, FILES) as partial:
        for name in names:
            (partial / name).write_text("whole")


def test_what_an_evaluation_that_was_cut_short_left_is_replaced(tmp_path, monkeypatch):
    replace, moved = Path.replace, []

    def replace_one(file, target):
        if moved:
            raise KeyboardInterrupt
        moved.append(target.name)
        return replace(file, target)

    monkeypatch.setattr(Path, "replace", replace_one)
    with pytest.raises(KeyboardInterrupt):
        write_results(tmp_path, "summary.csv", "manifest.json")
    monkeypatch.undo()
    assert moved == ["summary.csv"]
    with results_folder(tmp_path, ("trace.png",)):
        pass
    with pytest.raises(KeyboardInterrupt), results_folder(tmp_path, FILES):
        raise KeyboardInterrupt
    assert sorted(file.name for file in tmp_path.iterdir()) == [".autotts-jax-unfinished", "summary.csv"]
    check_results_folder(tmp_path, FILES)
    write_results(tmp_path, "manifest.json")
    assert [file.name for file in tmp_path.iterdir()] == ["manifest.json"]


def test_the_manifest_of_an_evaluation_is_no_search(tmp_path):
    (tmp_path / "manifest.json").write_text('{"seeds": 1}', encoding="utf-8")
    with pytest.raises(at.InputError, match="it is damaged, or no search's"):
        at.read_run(tmp_path)


@pytest.mark.parametrize("width", [79, 60, 40, 24])
def test_a_narrow_terminal_cuts_nothing_inside_a_word(data, width):
    play = dataclasses.make_dataclass("Play", ["seal"])(None)
    numbers = {field.name: 0.125 for field in dataclasses.fields(Row)}
    rows = [
        Row(**numbers | {"controller": name, "value": None, "model": "SmolLM2-135M", "benchmark": "sums"})
        for name in ("sc@8", "first-finishers@0.5")
    ]
    for table in (summary_table(rows, [play]), statistics_table(data)):
        screen = Console(file=io.StringIO(), width=width)
        screen.print(table)
        narrow = screen.file.getvalue()
        assert max(map(len, narrow.splitlines())) <= width
        whole = {word.rstrip(":") for word in str(table).split() if "─" not in word}
        assert whole <= {word.rstrip(":") for word in narrow.split()}


def test_names_that_do_not_fit_a_table_are_shown_whole():
    numbers = {field.name: 0.125 for field in dataclasses.fields(Row)}
    names = ("sc@8", "quorum_of_the_first_finishers_with_patience@0.5")
    figures = numbers | {
        "value": None,
        "model": "a-model-with-a-name-of-40-characters-1.5B",
        "benchmark": "sums",
    }
    shown = str(summary_table([Row(**figures | {"controller": name}) for name in names]))
    assert max(map(len, shown.splitlines())) <= 80
    assert {*names, "a-model-with-a-name-of-40-characters-1.5B"} <= set(shown.split())


def test_frontiers_without_a_sweep_say_so():
    table = Frontiers((), ()).table()
    assert str(table).startswith("no frontiers: fewer than two controllers were swept")
    assert str(pickle.loads(pickle.dumps(table))) == str(table)


@pytest.mark.parametrize("play", [at.evaluate, pytest.param(at.trace, marks=pytest.mark.slow)])
def test_a_budget_that_admits_no_branch_brings_a_warning(data, play):
    with pytest.warns(
        InputWarning, match="opened no branch: a budget of 1 tokens may be less than the first"
    ):
        play(data, controller(), budget=1, max_branches=2)


def test_tracebacks_are_cut_between_two_calls():
    def deep(left):
        return deep(left - 1) if left else int("no number")

    with pytest.raises(ValueError, match="no number") as failed:
        deep(5)
    first, *_, last = last_lines(failed.value).splitlines()
    assert first.startswith('  File "')
    assert last.startswith("ValueError: invalid literal")
    assert last_lines(ValueError("bare")) == "ValueError: bare"
    with pytest.raises(TypeError, match="bytes") as inside:
        jax.jit(lambda _: jnp.sin(b""))(1)
    assert any("JAX has removed" in note for note in inside.value.__notes__)
    assert "JAX has removed" not in last_lines(inside.value)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Idle(SelfConsistency):
    def init(self, view):  # noqa: ARG002
        return None


@pytest.mark.parametrize("play", [at.evaluate, at.trace])
def test_a_controller_that_opens_no_branch_brings_a_warning(data, play):
    with pytest.warns(InputWarning, match="opened no branch: it read nothing, and so has no answer; have it"):
        play(data, Idle(4), max_branches=8)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Endless(at.Controller):
    """Never stops."""

    def act(self, memory, view):  # noqa: ARG002
        return memory, at.Action(open=1)


def test_a_controller_that_does_not_stop_brings_a_warning(data, monkeypatch):
    monkeypatch.setattr(sys.modules["autotts_jax.core.rollout"], "ROUND_LIMIT", 20)
    episodes = len(data)
    with pytest.warns(InputWarning, match=rf"Endless did not stop in {episodes} of {episodes} episodes"):
        at.evaluate(data, Endless, max_branches=2, seeds=1)


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
        collect(plan, tmp_path / "collected", LocalWorkers(engine), on_unit=nothing)
    with pytest.raises(
        at.InputError, match="must be a function of 2 arguments: the number of the update, its"
    ):
        at.train("missing.toml", data, out=tmp_path / "trained", on_update=nothing)
    assert not list(tmp_path.iterdir())


def test_functions_that_do_not_tell_what_they_take_pass():
    check_callback("on_progress", max, "one")
    check_callback("on_progress", print, "one", "two")


# --- what looks right --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_numbers_of_numpy_can_be_saved(data, tmp_path):
    objective = at.Objective(gamma=np.float32(1e-3), kappa_probe=np.int64(1))
    result = at.evaluate(
        data.select([0]), "sc@2", seeds=1, max_branches=8, budget=np.int64(500), objective=objective
    )
    manifest = json.loads((result.save(tmp_path / "out")[0].parent / "manifest.json").read_text())
    assert manifest["budget"] == 500
    plan = Plan("m", "b", (Problem("1 + 1", "2"),), num_branches=np.int64(2), chunk=np.int64(1))
    assert [type(plan.num_branches), type(plan.chunk)] == [int, int]


def test_a_long_integer_is_no_finite_number():
    with pytest.raises(at.InputError, match=r"gamma is 1000.*, but it must be a finite number"):
        at.Objective(gamma=10**400)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Layered(SelfConsistency):
    layers: tuple = ((np.ones((4, 8)), np.ones(8)), (np.ones((8, 1)), np.ones(1)))
    key: jax.Array = dataclasses.field(default_factory=lambda: jax.random.key(0))
    sizes: tuple = dataclasses.field(default=((1, 2), (3,)), metadata={"static": True})


def test_fields_may_be_trees_keys_and_static(data):
    at.evaluate(data, Layered(2), seeds=1, max_branches=4)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (np.array([1, 2**40]), r"branches is \[.*1099511627776\], which is more than int32 holds"),
        (2**31, "branches is 2147483648, which is more than int32 holds"),
        (np.array([1, 2], ">i4"), "fields are traced and must be numbers or arrays"),
        (np.timedelta64(3, "D"), "fields are traced and must be numbers or arrays"),
    ],
)
def test_fields_that_cannot_be_traced(data, value, problem):
    with pytest.raises(at.InputError, match=problem):
        at.trace(data, SelfConsistency(value))


@pytest.mark.parametrize(
    ("branches", "problem"),
    [
        (100, "but an episode opens 1 to"),
        (0, "but it must be a finite number of at least 1"),
        (-3, "but it must be a finite number of at least 1"),
    ],
)
def test_controllers_read_as_many_branches_as_there_can_be(data, branches, problem):
    with pytest.raises(at.InputError, match=f"SelfConsistency.branches is {branches}, {problem}"):
        at.evaluate(data, SelfConsistency(branches), seeds=1)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_no_family_has_a_value_that_is_not_finite(value):
    family = at.Family("mine", (1,), lambda branches: SelfConsistency(int(branches)))
    with pytest.raises(at.InputError, match=f"mine's value is {value}, but it must be a finite number"):
        family.member(value)


@pytest.mark.parametrize("made", [None, 5, [SelfConsistency(2)], SelfConsistency])
def test_a_family_makes_controllers(data, made):
    family = at.Family("mine", (1.0,), lambda _: made)
    with pytest.raises(at.InputError, match=r"mine.make\(1\) returned .*, but it must return a Controller"):
        at.evaluate(data, family, seeds=1)


@pytest.mark.parametrize("questions", [[0.9], [True], ["0"]])
def test_episodes_are_of_whole_numbers(data, questions):
    orders = branch_orders(data, "repo100", [0], 8)
    with pytest.raises(at.InputError, match="episodes hold no three columns of whole numbers"):
        at.rollout([SelfConsistency(2)], data.matrix, orders, Episodes(questions, [0], [0]))


@pytest.mark.parametrize(
    ("seeds", "width", "wrong"),
    [([1.5], 8, "a seed"), ([-1], 8, "a seed"), ([], 8, "seeds"), (5, 8, "seeds"), ([0], 129, "width")],
)
def test_branch_orders_are_drawn_by_seeds(data, seeds, width, wrong):
    with pytest.raises(at.InputError, match=f"^{wrong} is "):
        branch_orders(data, "repo100", seeds, width)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"order": [0, 0, 1, 2]}, "order must name 4 different branches of 0 … 127"),
        ({"order": [0, 1, 2, 500]}, "order must name 4 different branches of 0 … 127"),
        ({"order": np.array([-1, 0, 1, 2])}, "order must name 4 different branches of 0 … 127"),
        ({"order": [0.5, 1, 2, 3]}, r"order has shape \(4,\) and dtype float"),
        ({"question": 1.7}, "question is 1.7, but it must be a whole number"),
        ({"question": True}, "question is True, but it must be a whole number"),
        ({"gamma": 1e39}, r"gamma is 1e\+39, .* that float32 can hold"),
    ],
)
def test_an_environment_starts_what_there_is(data, wrong, message):
    env, params = at.make("WidthDepth-v0", data, max_branches=4)
    with pytest.raises(at.InputError, match=message):
        env.reset(jax.random.key(0), params, **wrong)


def test_an_environment_takes_keys_and_actions_for_what_they_are(data):
    env, params = at.make("WidthDepth-v0", data, max_branches=4)
    with pytest.raises(at.InputError, match="the key is 0, but it must be a random key"):
        env.reset(0, params)
    key = jax.random.key(0)
    _, state = env.reset(key, params)
    for action in (0.5, True):
        with pytest.raises(at.InputError, match=f"an action must be an integer, but it is {action}"):
            env.step(key, state, action, params)


@pytest.mark.parametrize("gamma", [1e39, (1e-50, 1e-3), (1e-3, 1e39)])
def test_float32_holds_every_gamma(data, gamma):
    with pytest.raises(at.InputError, match="that float32 can hold"):
        at.make("WidthDepth-v0", data, max_branches=4, gamma=gamma)


def test_data_and_parameters_can_be_compared(data):
    env, params = at.make("WidthDepth-v0", data, max_branches=4)
    assert (data.matrix == data.matrix, data.matrix == at.load("smollm2").matrix) == (True, False)
    assert params != env.make_params(data.matrix)


@pytest.mark.parametrize(
    ("player", "message"),
    [
        (["cmc@0"], "but it must be a single one, not several"),
        ("mine.py", "names a file alone; say what of it plays, as mine.py:NAME"),
        ("cmc@0@0.5", "after the @ is not a number; give one, and only once"),
    ],
)
def test_one_player_is_traced(data, player, message):
    with pytest.raises(at.InputError, match=message):
        at.trace(data, player)


def test_a_path_names_no_data_of_the_package(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(at.InputError, match="the data of this name is 'smollm2', as text"):
        at.load(Path("smollm2"))


def test_a_name_with_its_module_is_an_environment(data):
    env, _ = at.make("autotts_jax:WidthDepth-v0", data, max_branches=4)
    assert env.max_branches == 4


@pytest.mark.parametrize("make", [gymnasium.make, gymnasium.make_vec])
def test_options_have_names(make):
    env = make("WidthDepth-v0", data="smollm2", max_branches=4)
    with pytest.raises(at.InputError, match=r"options is \[1\], but it must be a dict"):
        env.unwrapped.reset(options=[1])


def test_a_single_question_is_no_list(tmp_path):
    with pytest.raises(at.InputError, match="but it must be a list of Problems"):
        at.answer_questions(SimulatedEngine(), Problem("1 + 1", "2"), "sc@2", out=tmp_path / "out")
