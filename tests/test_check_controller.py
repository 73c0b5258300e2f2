"""The public check of controllers: the package's own pass, and each kind of mistake is caught."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import mark_for

from autotts_jax.core import Action, Controller, Family, StopReason, first_of
from autotts_jax.errors import InputError
from autotts_jax.policies import CONTROLLERS, as_player, neural_family
from autotts_jax.replay import SYNTHETIC_MODELS, synthetic
from autotts_jax.testing import check_controller

BRANCHES, WIDTH = 32, 8
QUESTIONS = 6


@pytest.fixture(scope="module")
def data():
    models = SYNTHETIC_MODELS[1:2]
    data = synthetic(seed=1, models=models, questions=QUESTIONS, branches=BRANCHES, signals=True)
    signals = {name: np.asarray(signal) for name, signal in data.matrix.signals.items()}
    return data.with_signals(signals | {"score": np.exp(signals["logprob_mean"])})


FAMILIES = [*CONTROLLERS.values(), neural_family(as_player("neural").controllers[0])]


QUICK = ("sc",)
"""Families that are checked in a second."""

SLOW = ("asc", "cmc", "deepconf", "neural", "parallel-probe")
"""Families that do what others do not; the others are checked nightly."""


@pytest.mark.parametrize(
    "family",
    [pytest.param(family, marks=mark_for(family.name, SLOW, QUICK), id=family.name) for family in FAMILIES],
)
def test_shipped_families_pass(family, data):
    # DeepConf reads 16 branches before it looks at others.
    check_controller(family, data, max_branches=20 if family.name == "deepconf" else WIDTH)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Opens(Controller):
    """Opens four branches, and then as many as `more` says; the base of what is tested."""

    branches: int = 4

    def more(self, view):  # noqa: ARG002
        return 0

    def init(self, view):  # noqa: ARG002
        return None, Action(open=self.branches)

    def act(self, memory, view):
        stop = first_of((view.rounds > 0, StopReason.DECIDED))
        return memory, Action(stop, open=jnp.asarray(self.more(view), jnp.int32))

    def answer(self, memory, view):  # noqa: ARG002
        return view.vote(view.active)


def opens(name, more, base=Opens):
    """A controller that opens as many branches as a function of the view says."""
    kind = dataclasses.dataclass(frozen=True)(type(name, (base,), {"more": lambda _, view: more(view)}))
    return jax.tree_util.register_dataclass(kind)()


def failure(controller, data=None, **settings) -> str:
    """What the check says of a controller that it does not accept."""
    with pytest.raises(AssertionError) as failed:
        check_controller(controller, data, **{"max_branches": WIDTH} | settings)
    return str(failed.value)


# --- keys -----------------------------------------------------------------------------------------------


def test_a_controller_that_counts_with_keys_is_caught(data):
    message = failure(opens("ByKey", lambda view: jnp.where(view.answer_keys[0] % 2 == 0, 2, 0)), data)
    assert message.startswith("ByKey on question ")
    assert "fails the keys check: the episode changes with the keys of answers\n" in message
    before, after = message.splitlines()[3:5]
    more = "round 1: open, branches [4, 5], intervals [1, 1], answers ["
    assert {before.startswith(f"  before: {more}"), after.startswith(f"  after:  {more}")} == {True, False}
    assert "none, the episode is over" in message
    assert "Compare the keys of answers for equality only" in message


@pytest.mark.slow
def test_a_controller_that_counts_with_labels_passes(data):
    honest = opens("Honest", lambda view: jnp.where((view.labels[0] + view.depth[1]) % 2 == 0, 2, 0))
    check_controller(honest, data.matrix, max_branches=WIDTH)


class FirstKey(Opens):
    def answer(self, memory, view):  # noqa: ARG002
        return view.vote(view.active & (view.answer_keys == jnp.max(view.answer_keys)))


@pytest.mark.slow
def test_an_answer_that_changes_without_a_decision_is_shown(data):
    message = failure(opens("FirstKey", lambda _: 0, FirstKey), data)
    assert "keys check" in message
    assert "\n  answer " in message
    assert "it makes the same decisions both times" in message


# --- purity ---------------------------------------------------------------------------------------------


def on_host(function):
    """Asks the host, in the middle of an episode."""

    def ask(view):
        shape = jax.ShapeDtypeStruct((), np.int32)
        return jax.pure_callback(function, shape, view.opened, vmap_method="sequential")

    return ask


def test_a_counter_in_a_callback_is_caught(data):
    counter = itertools.count()
    message = failure(opens("Counts", on_host(lambda _: np.int32(next(counter) % 7))), data)
    assert "fails the purity check: the episode changes when it is played again\n" in message
    assert "First decision that differs:\n  before: round 1: open, branches [4" in message
    assert "Keep everything that the controller remembers in its memory" in message


@pytest.mark.slow
def test_a_counter_that_compiling_advances_is_caught(data):
    counter = itertools.count()
    message = failure(opens("CountsTraces", lambda _: next(counter) % 17), data)
    assert "fails the purity check: the episode changes when it is played alone" in message


# --- equality -------------------------------------------------------------------------------------------


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Miscounts(Opens):
    """Takes the rounds that are played at once for one, and opens a branch after the third."""

    def init(self, view):  # noqa: ARG002
        return jnp.int32(0), Action(open=self.branches)

    def act(self, memory, view):
        stop = first_of((~jnp.any(view.live), StopReason.EXHAUSTED))
        advance = jnp.where(view.live, 1, 0)
        return memory + 1, Action(stop, open=jnp.where(memory == 3, 1, 0), advance=advance, repeat=9)


def test_a_controller_that_does_not_count_rounds_played_at_once_is_caught(data):
    message = failure(Miscounts(), data)
    assert "fails the equality check: the episode changes when it is played one look at a time\n" in message
    assert "Its last decisions, one look at a time:\n  round " in message
    assert "count the rounds by view.rounds" in message


# --- compilation ----------------------------------------------------------------------------------------


class Branches(Opens):
    def more(self, view):  # noqa: ARG002
        return 2 if self.branches > 3 else 1


def test_an_if_on_a_field_is_caught_and_shown(data):
    kind = jax.tree_util.register_dataclass(dataclasses.dataclass(frozen=True)(Branches))
    message = failure(kind(), data)
    assert message.startswith("Branches fails the compilation check: it cannot be compiled")
    assert "test_check_controller.py, line " in message
    assert "return 2 if self.branches > 3 else 1" in message
    assert "use jnp.where" in message


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Static(Opens):
    branches: int = dataclasses.field(default=4, metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class OtherClass(Opens):
    pass


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda value: Static(int(value)), "field branches is static, and 2 in one but 4 in the other"),
        (lambda value: Opens(value if value > 2 else int(value)), "field branches is ~int32[] in one and"),
        (lambda value: (Opens if value > 2 else OtherClass)(4), "one is a OtherClass, the other a Opens"),
    ],
    ids=["static", "type", "class"],
)
def test_a_family_that_compiles_for_each_value_is_caught(make, problem, data):
    message = failure(Family("opens", (2.0, 4.0), make), data)
    assert message.startswith("opens@2 and opens@4 fail the compilation check: ")
    assert problem in message


@pytest.mark.slow
def test_a_member_of_a_family_is_named(data):
    by_key = opens("OnlyMany", lambda view: jnp.where(view.opened > 4, view.answer_keys[0] % 2, 0))
    family = Family("opens", (2.0, 6.0), lambda value: dataclasses.replace(by_key, branches=int(value)))
    assert failure(family, data).startswith("opens@6 on question ")


def test_what_is_no_pytree_or_no_family_is_refused(data):
    plain = dataclasses.dataclass(frozen=True)(type("Plain", (Opens,), {}))
    assert "class Plain is not a pytree" in failure(plain(), data)
    assert "has no values" in failure(Family("none", (), Opens), data)
    with pytest.raises(InputError, match="episodes is 0"):
        check_controller(Opens(), data, episodes=0)
