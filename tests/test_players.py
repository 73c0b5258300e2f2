"""Players: texts and objects that can play, and the same episodes in batches and step by step."""

import functools
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from progress import without_progress

import autotts_jax as at
from autotts_jax.policies import (
    CMC,
    ControllerPlayer,
    HostPlayer,
    ProgramPlayer,
    Sealing,
    SelfConsistency,
    as_player,
    select,
)
from autotts_jax.replay import SYNTHETIC_MODELS, synthetic, write_json
from autotts_jax.sandbox import Sandbox

EXAMPLES = Path(__file__).parents[1] / "examples"
WIDTH = 4
GAMMA = 1e-3
TRUSTED = Sealing(sandbox=Sandbox("none"))
POLICIES = """
import jax.numpy as jnp
import numpy as np
from autotts_jax.envs import WidthDepth, WidthDepthRounds

class Good:
    \"\"\"Opens one branch, reads it to its end and answers.\"\"\"
    env = WidthDepth(4)
    def act(self, observation, memory):
        branch = observation["branches"][0]
        done = jnp.where(branch[2] == 1, jnp.where(branch[3] == 1, 1, 2 + 4), 2)
        return jnp.where(branch[0] == 0, 0, done), memory

class Host:
    env = Good.env
    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        branch = observation["branches"][:, 0].T
        done = np.where(branch[2] == 1, np.where(branch[3] == 1, 1, 2 + 4), 2)
        return np.where(branch[0] == 0, 0, done), None

made = Good()
def make(): return Good()
class Init(Good):
    def __init__(self, path): pass
class NoEnv(Good):
    env = None
class NoAct:
    env = Good.env
class Wide(Good):
    env = WidthDepth(99)
class Raises(Good):
    def act(self, observation, memory): return observation["no such"], memory
class Shape(Good):
    def act(self, observation, memory): return jnp.zeros(2, int), memory
class Kind(Good):
    def act(self, observation, memory): return 1.0, memory
class Forgets(Good):
    def start(self): return jnp.zeros(3)
    def act(self, observation, memory): return 1, memory[:2]
class HostRaises(Host):
    def predict(self, observation, state): return observation
class HostShape(Host):
    def predict(self, observation, **_): return np.zeros(5), None
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working directory with ``data/<model>/synthetic.json`` and ``p.py``, which has `POLICIES`."""
    folder = tmp_path_factory.mktemp("work")
    for model in SYNTHETIC_MODELS[1:2]:
        (folder / "data" / model.name).mkdir(parents=True)
        write_json(synthetic(0, [model], 3, 32), folder / "data" / model.name / "synthetic.json")
    (folder / "p.py").write_text(POLICIES)
    return folder


@pytest.fixture(scope="module")
def dataset(folder):
    return at.load(folder / "data")


@pytest.fixture
def play(run, monkeypatch, folder):
    """Runs ``evaluate``; gives exit status, stdout and stderr."""
    monkeypatch.chdir(folder)

    def play(*arguments):
        command = "evaluate --sandbox none --data data --seeds 2 --max-branches 2"
        status, out, err = run(*command.split(), *arguments)
        return status, out, without_progress(err)

    return play


# --- texts and objects ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Good", "made", "make"])
def test_a_policy_may_be_a_class_an_object_or_a_function(folder, name):
    player = select(f"{folder / 'p.py'}:{name}@0.5", sealing=TRUSTED)
    (controller,) = player.controllers
    assert (player.names, player.width) == ((f"{name}@0.5",), WIDTH)
    assert (type(controller.policy.policy).__name__, controller.gamma) == ("Good", 0.5)
    assert select(f"{folder / 'p.py'}:{name}", GAMMA, TRUSTED).controllers[0].gamma == GAMMA


def test_a_family_has_a_setting_for_each_value():
    family = at.Family("mine", (1, 2), SelfConsistency, "branches")
    player = as_player(family)
    assert isinstance(player, ControllerPlayer)
    assert player.names == ("mine@1", "mine@2")
    assert [setting.names for setting in player.settings()] == [("mine@1",), ("mine@2",)]
    assert as_player(player) is player


@pytest.mark.slow
def test_objects_are_named_by_what_they_are(folder):
    assert as_player(SelfConsistency(4)).names == ("SelfConsistency(4)",)
    assert as_player(SelfConsistency(4), name="mine").names == ("mine",)
    player = as_player(f"{folder / 'p.py'}:Host", sealing=TRUSTED)
    assert isinstance(player, HostPlayer)
    assert as_player(player.policy, gamma=GAMMA).names == ("Host",)
    programs = select(f"{EXAMPLES}/released_programs.py:OptimalController@0.5")
    assert isinstance(programs, ProgramPlayer)
    assert programs.names == ("OptimalController@0.5",)


def test_a_mapping_names_players(dataset):
    def answer(observation):
        return [1] * len(observation["globals"])

    agent = at.Agent(answer, at.make("WidthDepth-v0", dataset, max_branches=2)[0])
    players = ["sc@1", {"mine": agent, "his": agent, "sc@2": "sc@2", "few": "sc@1"}]
    with pytest.warns(at.errors.InputWarning, match="opened no branch"):
        found = at.evaluate(dataset, players, seeds=1, max_branches=2)
    names = [name for play in found.plays for name in play.player.names]
    assert names == ["sc@1", "mine", "his", "sc@2", "few@1"]
    with pytest.raises(at.InputError, match=r"Agent: given more than once; .* in Python as {'mine': policy}"):
        at.evaluate(dataset, [agent, agent], seeds=1)
    with pytest.raises(at.InputError, match="sc: the name of two different controllers"):
        at.evaluate(dataset, ["sc@1", {"sc": agent}], seeds=1)
    with pytest.raises(at.InputError, match="the name of a player is '', but"):
        at.evaluate(dataset, {"": agent}, seeds=1)


@pytest.mark.parametrize(
    ("player", "message"),
    [
        (object(), "object is neither a Controller nor a released program"),
        ([], "there are no players"),
        (
            SelfConsistency,
            "SelfConsistency needs branches; name an instance, as mine = SelfConsistency",
        ),
        (CMC.of_beta, "of_beta needs beta; name an instance, as mine = "),
        (at.Family("mine", (), SelfConsistency), "mine has no values to sweep"),
    ],
)
def test_what_is_no_player_is_refused(dataset, player, message):
    with pytest.raises(at.InputError, match=message):
        at.evaluate(dataset, player)


def test_what_can_be_called_is_called_whatever_it_wraps(dataset):
    def calling(function):
        @functools.wraps(function)
        def call():
            return function(2)

        return call

    @calling
    def mine(branches):
        return SelfConsistency(branches)

    (play,) = at.evaluate(dataset, mine, seeds=1, max_branches=WIDTH).plays
    assert set(play.branches.reshape(-1).tolist()) == {2}


# --- the same episodes ----------------------------------------------------------------------------------

SPECS = {
    "controller": "cmc@0.1",
    "family": "{examples}/my_controller.py:first_finishers@0",
    "network": "neural@2e-4",
    "program": "{examples}/released_programs.py:OptimalController@0.1",
    "policy": "{folder}/p.py:Good@1e-3",
    "host policy": "{folder}/p.py:Host@1e-3",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SPECS)
def test_an_episode_step_by_step_is_that_of_the_batch(dataset, folder, kind):
    # Sealed, files start a process for each episode; sealing and sealed traces have tests of their own.
    player = select(SPECS[kind].format(examples=EXAMPLES, folder=folder), sealing=TRUSTED)
    (play,) = at.evaluate(dataset, player, seeds=2, max_branches=16).plays
    for question in range(len(dataset)):
        trace = at.trace(dataset, player, question=question, seed=1, max_branches=16)
        assert trace.title.startswith(player.names[0])
        assert trace.answer == play.answer[0, 1, question]
        assert trace.steps[-1].decision.tokens == play.tokens[0, 1, question]
        assert len(trace.finished) == play.branches[0, 1, question]
        intervals = sum(sum(step.decision.intervals) for step in trace.steps)
        assert intervals == play.intervals[0, 1, question]
        if play.rounds is not None:
            assert trace.steps[-1].decision.round == play.rounds[0, 1, question]
            assert trace.stop_reason == play.stop_reason[0, 1, question]


@pytest.mark.slow
def test_policies_stand_in_the_table_of_the_controllers(play, tmp_path):
    players = f"sc@1,{EXAMPLES}/my_policy.py:MyPolicy,p.py:Good@1e-6,p.py:Host"
    status, out, err = play("--controllers", players, "--out", tmp_path)
    assert (status, err) == (0, "")
    assert max(len(line) for line in out.splitlines() if not line.startswith("wrote ")) <= 80
    results = [line.split() for line in out.splitlines() if re.match(r"\S+ +[\d.]+ \[", line)]
    figures = {name: numbers for name, *numbers in results}
    assert list(figures)[:4] == ["sc@1", "MyPolicy", "Good@1e-06", "Host"]
    assert figures["Good@1e-06"] == figures["Host"]

    rows = pq.read_table(tmp_path / "episodes.parquet").to_pylist()
    by_name = {row["controller"]: [r for r in rows if r["controller"] == row["controller"]] for row in rows}
    for ours, theirs in zip(by_name["Good"], by_name["sc"], strict=True):
        assert (ours["answer"], ours["intervals"]) == (theirs["answer"], theirs["intervals"])
        assert ours["tokens"] >= theirs["tokens"]  # read step by step
    assert by_name["Good"] == [row | {"controller": "Good", "value": 1e-6} for row in by_name["Host"]]
    assert {row["stop_reason"] for row in by_name["Good"]} == {"decided"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("missing.py:P", "player 'missing.py:P': there is no file missing.py"),
        ("p.py", "player 'p.py' names a file alone; say what of it plays, as p.py:NAME"),
        ("p.py:Other", "p.py has no player Other; it has WidthDepth, WidthDepthRounds, Good"),
        (
            "p.py:Init",
            "Init needs path; name an instance, as mine = Init",
        ),
        ("p.py:NoEnv", "policy NoEnv has no env; wrap it, as autotts_jax.Agent(policy, env)"),
        ("p.py:NoAct", "policy NoAct has no method act"),
        ("p.py:Good@x", "'x' after the @ is not a number"),
        ("p.py:Good@-1", "γ is -1"),
        ("p.py:Host@nan", "γ is nan"),
        ("p.py:Wide", "has 32 branches a question, fewer than the 99 that Wide opens in its environment"),
        ("p.py:Raises", "policy Raises: act failed:"),
        (
            "p.py:Shape",
            "policy Shape: its action is int32[2], but it must be int of shape () for Discrete(14)",
        ),
        ("p.py:Kind", "policy Kind: its action is float64[]"),
        ("p.py:Forgets", "was given the memory float32[3] and returned float32[2]"),
        pytest.param("p.py:HostRaises", "policy HostRaises: predict failed:", marks=pytest.mark.slow),
        ("p.py:HostShape", "but it must be int of shape (6,)"),
        ("p.py:Good,p.py:Good", "Good: given more than once"),
        ("p.py:Good --cost tokens", "give the policy its own, as Good@1e-4"),
    ],
)
def test_what_is_wrong_with_a_policy_is_said(play, arguments, message):
    status, out, err = play("--controllers", *arguments.split())
    assert (status, out) == (2, "")
    assert err.startswith("autotts-jax: error: ")
    assert message in err
