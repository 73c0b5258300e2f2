"""The public check of controllers: the package's own pass, and each kind of mistake is caught."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matrices import matrix_behind

from autotts_jax.core import Controller, Family, ReplayPool, StopReason
from autotts_jax.errors import InputError
from autotts_jax.policies import CONTROLLERS, as_player, neural_family
from autotts_jax.replay import SYNTHETIC_MODELS, synthetic
from autotts_jax.testing import check_controller

BRANCHES, WIDTH = 32, 8
QUESTIONS = 6


@pytest.fixture(scope="module")
def data():
    models = SYNTHETIC_MODELS[1:2]
    return synthetic(seed=1, models=models, questions=QUESTIONS, branches=BRANCHES, signals=True)


FAMILIES = [*CONTROLLERS.values(), neural_family(as_player("neural").controllers[0])]


QUICK = ("sc",)
"""Families that are checked in a second."""

SLOW = ("asc", "cmc", "deepconf", "neural", "parallel-probe")
"""Families that do what others do not; those are checked nightly."""


def marks(name):
    return [] if name in QUICK else [pytest.mark.slow if name in SLOW else pytest.mark.nightly]


@pytest.mark.parametrize(
    "family", [pytest.param(family, marks=marks(family.name), id=family.name) for family in FAMILIES]
)
def test_shipped_families_pass(family, data):
    # DeepConf reads 16 branches before it looks at others.
    check_controller(family, data, max_branches=20 if family.name == "deepconf" else WIDTH)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Opens(Controller):
    """Opens four branches, and in its only round as many as `more` says; the base of what is tested."""

    branches: int = 4

    def more(self, pool):  # noqa: ARG002
        return 0

    def start(self, pool):
        return None, pool.open(self.branches)

    def round(self, memory, pool):
        return memory, pool.open(self.more(pool)), StopReason.DECIDED

    def vote(self, memory, pool):  # noqa: ARG002
        return pool.vote(pool.active)


def opens(name, more, base=Opens):
    """A controller that opens as many branches as a function of the pool says."""
    kind = dataclasses.dataclass(frozen=True)(type(name, (base,), {"more": lambda _, pool: more(pool)}))
    return jax.tree_util.register_dataclass(kind)()


def two_if_even(peek):
    return lambda pool: jnp.where(peek(pool) % 2 == 0, 2, 0)


def failure(controller, data=None, **settings) -> str:
    """What the check says of a controller that it does not accept."""
    with pytest.raises(AssertionError) as failed:
        check_controller(controller, data, **{"max_branches": WIDTH} | settings)
    return str(failed.value)


# --- scramble -------------------------------------------------------------------------------------------


CHEATS = {
    "Gold": lambda pool: matrix_behind(pool).gold[pool.hidden.question],
    "Length": lambda pool: pool.hidden.length[0],
    "Tokens": lambda pool: pool.hidden.tokens[0],
    "Deeper": lambda pool: matrix_behind(pool).answers.reshape(-1)[pool.hidden.start[0] + 3],
    "Unopened": lambda pool: matrix_behind(pool).answers.reshape(-1)[pool.hidden.start[-1]],
    "AnswerId": lambda pool: pool.answer_keys[0],
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name not in ("Gold", "Length"))) for name in CHEATS],
)
def test_a_controller_that_sees_what_was_not_revealed_is_caught(name, data):
    message = failure(opens(name, two_if_even(CHEATS[name])), data)
    assert message.startswith(f"{name} on question ")
    assert "fails the scramble check: the episode changes with what it did not reveal\n" in message
    before, after = message.splitlines()[3:5]
    more = "round 1: open, branches [4, 5], intervals [1, 1], answers ["
    none = "none, the episode is over"
    assert {before.startswith(f"  before: {more}"), after.startswith(f"  after:  {more}")} == {True, False}
    assert none in before or none in after
    assert "Use only the public properties and methods of the pool" in message


@pytest.mark.slow
def test_an_honest_controller_of_the_same_make_passes(data):
    honest = opens("Honest", two_if_even(lambda pool: pool.labels[0] + pool.depth[1]))
    check_controller(honest, data, max_branches=WIDTH)
    check_controller(honest, data.matrix, max_branches=WIDTH)


class AnswersGold(Opens):
    def vote(self, memory, pool):  # noqa: ARG002
        right = pool.answer_keys == matrix_behind(pool).gold[pool.hidden.question]
        return pool.vote(pool.active & right)


def test_an_answer_that_changes_without_a_decision_is_shown(data):
    message = failure(opens("AnswersGold", lambda _: 0, AnswersGold), data)
    assert "scramble check" in message
    assert "\n  answer " in message
    assert "it makes the same decisions both times" in message


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Miscounts(Opens):
    """Takes the rounds that are played at once for one, and opens a branch in the third."""

    def start(self, pool):
        return jnp.int32(0), pool.open(self.branches)

    def round(self, memory, pool):
        pool, _ = pool.advance_rounds(jnp.ones(pool.width, jnp.int32), 9)
        pool = pool.open(jnp.where(memory == 2, 1, 0))
        return memory + 1, pool, jnp.where(jnp.all(~pool.live), StopReason.EXHAUSTED, StopReason.RUNNING)


@pytest.mark.slow
def test_a_controller_that_does_not_count_rounds_played_at_once_is_caught(data):
    assert "fails the equality check" in failure(Miscounts(), data)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class CountsReads(Miscounts):
    """Takes the branches that are read at once for one."""

    def start(self, pool):
        return jnp.int32(0), pool

    def round(self, memory, pool):
        pool, sure = pool.read_until(lambda vote, _: vote.top1 > 3, 9)
        return memory + 1, pool, jnp.where(sure | (memory == 1), StopReason.DECIDED, StopReason.RUNNING)


@pytest.mark.slow
def test_a_controller_that_counts_reads_at_once_for_one_is_caught(data):
    message = failure(CountsReads(), data)
    assert "fails the equality check" in message
    assert "do nothing else in a round that calls read_until" in message


# --- purity ---------------------------------------------------------------------------------------------


def on_host(function):
    """Asks the host, in the middle of an episode."""

    def ask(pool):
        shape = jax.ShapeDtypeStruct((), np.int32)
        return jax.pure_callback(function, shape, pool.opened, vmap_method="sequential")

    return ask


def test_a_counter_in_a_callback_is_caught(data):
    counter = itertools.count()
    message = failure(opens("Counts", on_host(lambda _: np.int32(next(counter) % 7))), data)
    assert "fails the purity check: the episode changes when it is played again\n" in message
    assert "First decision that differs:\n  before: round 1: open, branches [4" in message
    assert "Keep everything that the controller remembers in its memory" in message


def test_randomness_in_a_callback_is_caught(data):
    rng = np.random.default_rng(0)
    message = failure(opens("Random", on_host(lambda _: rng.integers(20, dtype=np.int32))), data)
    assert "fails the purity check: the episode changes when it is played again\n" in message


def test_a_counter_that_compiling_advances_is_caught(data):
    counter = itertools.count()
    message = failure(opens("CountsTraces", lambda _: next(counter) % 17), data)
    assert "fails the purity check: the episode changes when it is played alone" in message


# --- compilation ----------------------------------------------------------------------------------------


class Branches(Opens):
    def more(self, pool):  # noqa: ARG002
        return 2 if self.branches > 3 else 1


def test_an_if_on_a_field_is_caught_and_shown(data):
    kind = jax.tree_util.register_dataclass(dataclasses.dataclass(frozen=True)(Branches))
    message = failure(kind(), data)
    assert message.startswith("Branches fails the compilation check: it cannot be compiled")
    assert "test_leaks.py, line " in message
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


def test_a_member_of_a_family_is_named(data):
    cheat = opens("OnlyMany", lambda pool: jnp.where(pool.opened > 4, pool.hidden.length[0] % 2, 0))
    family = Family("opens", (2.0, 6.0), lambda value: dataclasses.replace(cheat, branches=int(value)))
    assert failure(family, data).startswith("opens@6 on question ")


def test_what_is_no_pytree_or_no_family_is_refused(data):
    plain = dataclasses.dataclass(frozen=True)(type("Plain", (Opens,), {}))
    assert "class Plain is no pytree" in failure(plain(), data)
    assert "has no values" in failure(Family("none", (), Opens), data)
    with pytest.raises(InputError, match="episodes is 0"):
        check_controller(Opens(), data, episodes=0)


# --- equality -------------------------------------------------------------------------------------------


def test_a_controller_that_behaves_differently_when_stepped_is_caught(data):
    message = failure(opens("Replays", lambda pool: 3 if isinstance(pool, ReplayPool) else 1), data)
    assert (
        "fails the equality check: the episode changes when it is played one operation at a time" in message
    )
    assert "branches 7 → 5" in message
    assert (
        "before: round 1: round, branches [0, 1, 2, 3, 4, 5, 6], intervals [1, 1, 1, 1, 1, 1, 1]" in message
    )
    assert "after:  round 1: round, branches [0, 1, 2, 3, 4], intervals [1, 1, 1, 1, 1]" in message
    assert "call each operation on the pool that the one before returned" in message


class ControlFlow(Opens):
    def round(self, memory, pool):
        pool = jax.lax.cond(pool.labels[0] > 0, lambda pool: pool.open(1), lambda pool: pool, pool)
        return memory, pool, StopReason.DECIDED


@pytest.mark.slow
def test_control_flow_over_the_pool_is_caught(data):
    message = failure(opens("ControlFlow", lambda _: 0, ControlFlow), data)
    assert "fails the equality check: it cannot be played one operation at a time" in message
    assert "UnexpectedTracerError" in message
    assert "keep the pool out of jax.lax control flow" in message


class KnowsTheEnd(Opens):
    """Opens more where its matrix holds something that live episodes do not know yet."""

    def round(self, memory, pool):
        unwritten = jnp.all(matrix_behind(pool).gold == -1)
        return memory, pool.open(jnp.where(unwritten, 2, 0)), StopReason.DECIDED


def test_a_controller_that_behaves_differently_live_is_caught(data):
    message = failure(opens("KnowsTheEnd", lambda _: 0, KnowsTheEnd), data)
    assert "fails the equality check: the episode changes when it is played live\n" in message
    assert "before: none, the episode is over\n  after:  round 1: open, branches [4, 5]" in message
