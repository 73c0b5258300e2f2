"""Distillation: rules fitted to examples, what a policy is asked, and what comes of both."""

import ast
import dataclasses
import functools
import inspect
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autotts_jax as at
from autotts_jax.core import Episodes, Hooks, recording, rollout
from autotts_jax.discovery import (
    Clause,
    Condition,
    Distilled,
    Line,
    Program,
    VoteWeights,
    cmc,
    decision_list,
    distill,
    random_program,
)
from autotts_jax.discovery.distillation import decisions
from autotts_jax.discovery.distillation import distill as distilling
from autotts_jax.discovery.distillation.decisions import watch
from autotts_jax.discovery.distillation.fitting import Examples, fit
from autotts_jax.discovery.programs.rules import BRANCH_FEATURES, POOL_FEATURES, SLOT_FEATURES
from autotts_jax.envs.difficulty import varied_orders
from autotts_jax.errors import InputError
from autotts_jax.policies import DistilledRules, RuleController, Seen
from autotts_jax.policies.neural.policy_file import SHIPPED, load_policy, save_policy

W = 4
VOTERS = 8


@pytest.fixture(scope="module")
def data():
    return at.load("smollm2")


@pytest.fixture(scope="module")
def policy():
    return load_policy(SHIPPED)[0]


@pytest.fixture(scope="module", autouse=True)
def short_fits():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distilling, "GENERATIONS", 20)
        patch.setattr(distilling, "EXAMPLES", 4_000)
        yield


def each_once(data):
    """As many branch orders as `distill` plays, so that compiled functions are shared, but other ones; and
    an episode of each question."""
    questions = np.arange(len(data))
    episodes = Episodes(questions, np.zeros_like(questions), np.zeros_like(questions))
    return varied_orders(data.matrix, distilling.SEARCH_ORDERS, 0.0, 1).first(W), episodes


def watched(data, rules, policy, by_policy):
    """What a policy decides at β = 0.5, in an episode of each question."""
    orders, episodes = each_once(data)
    return watch(rules, policy, 0.5, data.matrix, orders, episodes.row, by_policy)


def draw_features(rng, count):
    """Features of pools with one branch each, and β."""
    drawn = {}
    for name, within in {**POOL_FEATURES, **BRANCH_FEATURES}.items():
        low, high = within.low, min(within.high, 20)
        drawn[name] = (
            rng.integers(low, high + 1, count) if within.whole else rng.uniform(low, high, count)
        ).astype(np.float32)
    return drawn, rng.uniform(size=count).astype(np.float32)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_examples_say_what_the_interpreter_says(seed):
    rng = np.random.default_rng(seed)
    program = random_program(rng)
    features, beta = draw_features(rng, 4)
    for slot in distilling.FITTED:
        asked = {name: features[name] for name in SLOT_FEATURES[slot]}
        said = Examples(slot, asked, beta, beta, beta).said(program.slot(slot))
        for place, at_beta in enumerate(beta):
            shaped = {
                name: column[place] if name in POOL_FEATURES else column[place : place + 1]
                for name, column in features.items()
            }
            expected = getattr(decision_list(program, float(at_beta)), slot)(Seen(**shaped))
            assert float(np.ravel(expected)[0]) == said[place], (slot, program.slot(slot))


def test_rules_are_found_again():
    rng = np.random.default_rng(0)
    features, beta = draw_features(rng, 4_000)
    rule = (Clause((Condition("ema", ">=", Line(0.3, 0.5)), Condition("top1", ">", Line(4))), Line(1)),)
    asked = {name: features[name] for name in POOL_FEATURES}
    examples = Examples("stop", asked, beta, beta, np.ones_like(beta))
    examples = dataclasses.replace(examples, value=examples.said(rule))
    assert examples.error(rule) == 0 < examples.error(())
    found = fit(examples, [()], 120, rng)
    assert examples.error(found[0]) < 0.1 * examples.error(())
    assert fit(examples, [()], 5, np.random.default_rng(1)) == fit(
        examples, [()], 5, np.random.default_rng(1)
    )


def test_what_matters_more_is_fitted_first():
    value = np.array([0, 1], np.float32)
    examples = functools.partial(Examples, "stop", {"round": value}, value, value)
    late = (Clause((Condition("round", ">=", Line(1)),), Line(1)),)
    assert examples(np.array([1, 1])).error(()) == 0.5
    assert examples(np.array([1, 3])).error(()) == pytest.approx(0.75, abs=1e-3)
    assert examples(np.array([1, 3])).error(late) == 0


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Accounted:
    """What is watched, and what its episodes have come to after each round."""

    watched: decisions.LabelledPlay
    signals = ()

    def begin(self, pool):
        return self.watched.begin(pool)

    def round(self, memory, pool):
        memory, pool, decided, ends = self.watched.round(memory, pool)
        view = pool.view()
        answer = view.answer_key(self.watched.rules.answer(memory.rules, view).leader)
        came_to = {"answer": answer, "tokens": view.tokens, "branches": view.opened}
        return memory, pool, (decided, came_to), ends


@pytest.fixture
def plays(monkeypatch):
    """What the episodes that `watch` plays come to, and their rounds."""
    seen = []

    def noted(watched, *given):
        (decided, came_to), running = recording.record(Accounted(watched), *given)
        rounds = np.asarray(running).sum(axis=1)
        ends = {
            name: np.asarray(column)[np.arange(len(rounds)), rounds - 1] for name, column in came_to.items()
        }
        seen.append(ends | {"rounds": rounds})
        return decided, running

    monkeypatch.setattr(decisions, "record", noted)
    return seen


def rounds_of_rules(_controller, memory, _pool):
    return memory.round


@pytest.mark.slow
def test_a_watched_program_plays_its_own_episodes(data, policy, plays):
    orders, episodes = each_once(data)
    for beta in (0.0, 0.6):
        rules = decision_list(cmc(), beta)
        alone = rollout([rules], data.matrix, orders, episodes, hooks=Hooks(at_end=rounds_of_rules))
        watch(rules, policy, beta, data.matrix, orders, episodes.row, by_policy=False)
        np.testing.assert_array_equal(alone.ends + 1, plays[-1]["rounds"])  # the first one opens
        for column in ("answer", "tokens", "branches"):
            np.testing.assert_array_equal(getattr(alone, column), plays[-1][column])


@pytest.mark.slow
def test_a_watched_policy_plays_its_own_episodes(data, policy, plays):
    orders, episodes = each_once(data)
    alone = rollout([policy], data.matrix, orders, episodes)
    watched(data, decision_list(cmc(), 0.5), policy, by_policy=True)
    np.testing.assert_array_equal(alone.tokens, plays[-1]["tokens"])
    np.testing.assert_array_equal(alone.rounds + 1, plays[-1]["rounds"])  # the last one answers


def test_what_the_policy_decides_is_recorded(data, policy):
    seen = watched(data, decision_list(cmc(), 0.5), policy, by_policy=True)
    assert seen.answers.sum() == len(data)  # it plays, and answers once in an episode
    first = seen.at_end[:, list(POOL_FEATURES).index("opened")] == 0
    assert first.sum() == len(data)
    assert (seen.opening[first] > 0).all()
    examples = distilling.examples_of(seen, np.random.default_rng(0))
    assert set(examples) == set(distilling.FITTED)
    assert set(np.unique(examples["stop"].value)) == {0, 1}
    assert examples["read"].value.min() >= 1


@pytest.fixture(scope="module")
def distilled(data):
    return distill("neural", data, max_branches=W, iterations=2)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_program(data, distilled):
    assert distill(SHIPPED, data, max_branches=W, iterations=2).program == distilled.program


@pytest.mark.slow
def test_the_source_plays_the_same_episodes(data, distilled, tmp_path):
    (tmp_path / "mine.py").write_text(distilled.source("Mine"))
    families = [distilled.family("member"), f"{tmp_path / 'mine.py'}:FAMILY"]
    found = (
        at.evaluate(data, families, max_branches=W, seeds=1, sealing=at.Sealing(sandbox=at.Sandbox("none")))
        .episodes()
        .to_pandas()
    )
    member, source = (found[found.controller == name] for name in ("member", "mine"))
    assert len(member) == len(source) == 11 * len(data)
    for column in ("answer", "tokens", "rounds", "stop_reason"):
        np.testing.assert_array_equal(member[column], source[column])
    assert source.tokens.nunique() > 10


@pytest.mark.slow
def test_the_source_says_where_it_comes_from(distilled):
    head = distilled.source().split('"""')[0]
    assert "from neural, seed 0, at most 4 branches" in head
    assert "SmolLM2-135M-Instruct/arithmetic" in head
    least, largest = distilled.gamma
    assert largest == pytest.approx(2e-4)
    assert 4e-6 < least < 2e-4  # where branches are few it spends no more at smaller ones
    assert f"β = 0 stands for γ = {largest:g}, β = 1 for γ = {least:g}" in head


@pytest.mark.slow
def test_names_of_what_comes_with_the_package_are_taken(distilled):
    assert "class Rules(RuleController)" in distilled.source()
    assert distilled.family().name == "rules"
    with pytest.raises(InputError, match="'Distilled' is the name of a player of this package"):
        distilled.source("Distilled")


@pytest.mark.slow
def test_gamma_is_what_the_policy_was_trained_for(data, policy, tmp_path, monkeypatch):
    monkeypatch.setattr(distilling, "GENERATIONS", 1)

    def made(card):
        save_policy(tmp_path / "p.npz", policy, card)
        return distill(tmp_path / "p.npz", data, max_branches=W, iterations=1).gamma

    assert made({"config": {"objective": {"gamma": [1e-5, 1e-4]}}})[1] == pytest.approx(1e-4)
    assert made({"config": 3})[1] == pytest.approx(2e-4)
    with pytest.raises(InputError, match="must be two numbers"):
        made({"config": {"objective": {"gamma": 1e-4}}})


@pytest.mark.slow
def test_it_decides_as_the_policy_does(data, distilled, policy):
    """On branch orders that it was not fitted to."""
    orders, _ = each_once(data)
    rng, seen = np.random.default_rng(0), []
    for beta, gamma in ((0.0, 2e-4), (1.0, 4e-6)):
        rows = rng.integers(orders.num_rows, size=len(data))
        at_gamma = dataclasses.replace(policy, gamma=gamma)
        rules = decision_list(distilled.program, beta)
        seen += [watch(rules, at_gamma, beta, data.matrix, orders, rows, player) for player in (True, False)]
    examples = distilling.examples_of(jax.tree.map(lambda *part: np.concatenate(part), *seen), rng)
    ours = {slot: of.error(distilled.program.slot(slot)) for slot, of in examples.items()}
    cmcs = {slot: of.error(cmc().slot(slot)) for slot, of in examples.items()}
    assert sum(ours.values()) < 0.5 * sum(cmcs.values()), (ours, cmcs)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Plain(RuleController):
    """Reads all branches; the majority of those that were read to their end is the answer."""

    def weigh(self, seen):
        return seen.ended


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Weighing(Plain):
    """Weighs the votes in its answer."""

    of_depth: float

    def weigh_answer(self, seen):
        return jnp.where(seen.ended, jnp.exp(self.of_depth * seen.depth), 0)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Odd(Plain):
    """All votes have one odd weight."""

    weight: float

    def weigh_answer(self, seen):
        return jnp.where(seen.ended, self.weight, 0.0)


@pytest.mark.parametrize(
    ("field", "value", "most"),
    [("window", 9, 8), ("spare", 3, 2), ("alpha", 1.5, 1)],
)
def test_a_field_out_of_range_is_refused_before_playing(data, field, value, most):
    family = at.Family("mine", (1.0,), lambda _: Plain(initial=2, max_branches=2, **{field: value}), "β")
    with pytest.raises(at.InputError, match=rf"Plain.{field} is {value}, but .* at most {most}"):
        at.evaluate(data, [family], max_branches=W, seeds=1)


def played(data, controller):
    family = at.Family("mine", (1.0,), lambda _: controller, "β")
    return at.evaluate(data, [family], max_branches=VOTERS, seeds=1).episodes().to_pandas()


@pytest.mark.slow
def test_flags_may_be_truth_values(data):
    true, one = (
        played(data, Plain(initial=2, max_branches=2, in_full=flag, by_completion=not flag))
        for flag in (True, 1)
    )
    pd.testing.assert_frame_equal(true, one)


@pytest.mark.slow
def test_votes_that_weigh_the_same_are_a_majority(data):
    plain = played(data, Plain(initial=VOTERS, max_branches=VOTERS))
    same = played(data, Weighing(initial=VOTERS, max_branches=VOTERS, of_depth=0.0))
    pd.testing.assert_frame_equal(same, plain)
    # A vote of a shorter branch outweighs all votes of longer ones.
    shortest = played(data, Weighing(initial=VOTERS, max_branches=VOTERS, of_depth=-5.0))
    assert (shortest.answer != plain.answer).mean() > 0.1
    pd.testing.assert_series_equal(shortest.tokens, plain.tokens)


@pytest.mark.slow
def test_no_vote_weights_lose_the_answer(data, distilled):
    """However steep, they rank the answers."""
    steep = [VoteWeights(coefficient, 0.0, 0.0) for coefficient in (60.0, -60.0, 0.0)]
    controllers = [
        dataclasses.replace(distilled, votes=votes).controller(beta) for votes in steep for beta in (0.2, 0.9)
    ]
    orders, _ = each_once(data)
    setting, question = (axis.reshape(-1) for axis in np.indices((len(controllers), len(data))))
    played = rollout(controllers, data.matrix, orders, Episodes(question, np.zeros_like(question), setting))
    assert ((played.answer >= 0).reshape(3, -1).mean(axis=1) > 0.95).all()


@pytest.mark.slow
def test_odd_weights_leave_an_answer(data):
    plain = played(data, Plain(initial=VOTERS, max_branches=VOTERS))
    for weight in (np.inf, -1.0, 3e38, 1e-45):
        odd = played(data, Odd(initial=VOTERS, max_branches=VOTERS, weight=weight))
        assert odd.answer.equals(plain.answer), weight


def biased(policy, layer, bias):
    """A policy that a bias has made to do one thing always."""
    parameters = {**policy.parameters, layer: {**policy.parameters[layer]}}
    parameters[layer]["bias"] = np.asarray(policy.parameters[layer]["bias"] + np.array(bias), np.float32)
    return dataclasses.replace(policy, parameters=parameters)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "bias"),
    [
        ("of_episode", [1e4, 0]),
        ("of_branch", [0, 1e4, 0, 0]),
        ("of_branch", [0, 0, 0, 1e4]),
    ],
)
def test_a_policy_that_does_one_thing_always(data, policy, layer, bias, monkeypatch):
    monkeypatch.setattr(distilling, "GENERATIONS", 3)
    found = distill(biased(policy, layer, bias), data, max_branches=W, iterations=2)
    assert found.program.length < 60
    with pytest.raises(InputError, match="not all finite"):
        distill(biased(policy, layer, [np.nan] * len(bias)), data)


@pytest.mark.slow
def test_the_clock_of_the_policy_is_that_of_the_program(data, policy):
    """While no branch has ended, one that was opened first has a depth of t + 1 at the start of round t."""
    plain = decision_list(dataclasses.replace(cmc(), read=(), open=(), prune=(), stop=()), 0.5)
    slow = biased(policy, "of_branch", [0, 0, 1e4, 0])
    for by_policy in (True, False):
        seen = watched(data, plain, slow, by_policy)
        shown = seen.at_start[:, list(POOL_FEATURES).index("round")]
        depth = seen.branches[:, list(BRANCH_FEATURES).index("depth")].max(axis=1)
        kept = seen.live.any(axis=1) & (seen.at_start[:, list(POOL_FEATURES).index("finished")] == 0)
        assert kept.sum() > len(data)
        np.testing.assert_array_equal(depth[kept], shown[kept] + 1)
        opened = seen.at_start[:, list(POOL_FEATURES).index("opened")]
        if by_policy:  # it opens what the policy has opened when the round ends
            before = seen.at_end[:, list(POOL_FEATURES).index("opened")]
            goes_on = kept & ~seen.answers
            np.testing.assert_array_equal((opened - before)[goes_on], seen.opening[goes_on])


def test_a_streak_begins_when_a_branch_is_read_on(data, policy):
    """A program has not polled the branches that it opens, so their first interval begins no streak."""
    slow = biased(policy, "of_branch", [0, 0, 1e4, 0])
    for by_policy in (True, False):
        seen = watched(data, decision_list(cmc(), 0.5), slow, by_policy)
        depth, streak = (seen.branches[:, list(BRANCH_FEATURES).index(name)] for name in ("depth", "streak"))
        longest = np.maximum(depth - 2, 0)
        assert (streak[seen.live] <= longest[seen.live]).all()
        assert ((streak == longest) & (depth > 2) & seen.live).sum() > len(data)


def test_where_no_branch_is_live_the_policy_answers(data, policy):
    never = biased(policy, "of_episode", [-1e4, 0])
    seen = watched(data, decision_list(cmc(), 0.5), never, by_policy=True)
    stop = distilling.examples_of(seen, np.random.default_rng(0))["stop"]
    assert stop.value.sum() == len(data)
    assert (stop.features["live"][stop.value > 0] == 0).all()
    assert (stop.weight[stop.value > 0] == distilling.SURE).all()


def test_how_far_to_read_is_another_question_than_whether_to_prune(data, policy):
    keeping = biased(policy, "of_branch", [0, 0, 1e4, 1e4])
    rules = decision_list(cmc(), 0.5)
    plain, kept = (
        distilling.examples_of(watched(data, rules, of, by_policy=False), np.random.default_rng(0))
        for of in (policy, keeping)
    )
    assert (kept["prune"].weight == distilling.SURE).all()
    assert kept["read"].weight.mean() < distilling.SURE
    assert kept["read"].weight.mean() == pytest.approx(plain["read"].weight.mean(), rel=0.2)


def test_tokens_grow_evenly_with_beta(data, policy):
    orders, _ = each_once(data)
    gamma_of = distilling.even_spending(policy, data.matrix, orders, (4e-6, 2e-4))
    gammas = [gamma_of(beta) for beta in np.linspace(0, 1, 21)]
    assert gammas[0] == pytest.approx(2e-4)
    assert 4e-6 * (1 - 1e-9) < gammas[-1] < 2e-4
    assert (np.diff(gammas) <= 0).all()
    policies = {
        beta: dataclasses.replace(policy, gamma=gamma_of(beta), trained_on=None) for beta in (0, 0.5, 1)
    }
    family = at.Family("policy", tuple(policies), policies.get, "β")
    found = at.evaluate(data, [family], max_branches=W, seeds=1).episodes().to_pandas()
    least, middle, most = found.groupby("value").tokens.mean()
    assert abs((middle - least) / (most - least) - 0.5) < 0.25


def test_the_shipped_controller_is_an_export():
    """Its class is what a program exports; that is the one that the command of its page gave."""
    program = Program.from_json((Path(__file__).parent / "fixtures/distilled.json").read_text())
    votes = VoteWeights.of(load_policy(SHIPPED)[0])
    source = Distilled(program, votes, (4e-6, 2e-4), ()).source("Expected")
    expected, shipped = (
        re.sub(r"\b(\d+)\.0\b", r"\1", ast.unparse(statement))  # JSON does not tell 5 from 5.0
        for text in (source.replace("Expected", "DistilledRules"), inspect.getsource(DistilledRules))
        for statement in ast.parse(text).body
        if isinstance(statement, ast.ClassDef)
    )
    assert shipped == expected


def test_bad_input(data, policy, tmp_path):
    with pytest.raises(InputError, match="the first γ must be below the second"):
        distill(policy, data, gamma=(2e-4, 4e-6))
    with pytest.raises(InputError, match="must be two numbers"):
        distill(policy, data, gamma=3e-5)
    with pytest.raises(InputError, match="the least γ"):
        distill(policy, data, gamma=(0, 1e-4))
    with pytest.raises(InputError, match="there is no such file"):
        distill(tmp_path / "none.npz", data)
    with pytest.raises(InputError, match="iterations"):
        distill(policy, data, iterations=0)
    with pytest.raises(InputError, match="max_branches"):
        distill(policy, data, max_branches=0)
    signals = dataclasses.replace(
        policy, signal_inputs=(at.policies.neural.network.SignalInput("eat", 0, 1),)
    )
    with pytest.raises(InputError, match="reads the signals eat"):
        distill(signals, data)
