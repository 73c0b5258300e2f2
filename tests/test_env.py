"""The functional environments against a plain reference, closed forms, and their contract."""

import dataclasses
import functools
import itertools
import math
from collections import Counter

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matrices import BRANCHES, QUESTIONS, as_dataset, orders, random_matrix
from matrices import WIDTH as W
from scipy.special import betainc

import autotts_jax as at
from autotts_jax.core import COMPILER_OPTIONS, Action, CostModel, ReplayPool, keys, votes
from autotts_jax.core.stepping import view_of
from autotts_jax.envs import (
    BRANCH_FEATURES,
    GLOBAL_FEATURES,
    Reward,
    WidthDepth,
    WidthDepthMacro,
    WidthDepthRounds,
    cost_of_models,
    observations,
)
from autotts_jax.errors import InputError
from autotts_jax.replay import synthetic
from autotts_jax.replay.dataset import stack
from autotts_jax.replay.matrix import NONE
from autotts_jax.testing import check_functional_env

KEY = jax.random.key(0)
KAPPA, GAMMA = 0.25, 1e-3
BIG = 10**6
MAX_ADVANCE = 3

ATOMIC = WidthDepth(W, obs="history")
FUSED = WidthDepth(W, fused=True, obs="history")
ROUNDS = WidthDepthRounds(W, max_advance=MAX_ADVANCE, obs="history")

reset = jax.jit(lambda env, *args: env.reset_env(*args), static_argnums=0)
step_env = jax.jit(lambda env, *args: env.step_env(*args), static_argnums=0)
step = jax.jit(lambda env, *args: env.step(*args), static_argnums=0)


@functools.cache
def parameters(env, seed=0, **settings):
    return env.make_params(
        random_matrix(seed, abstain=0.2), **{"gamma": GAMMA, "kappa_probe": KAPPA} | settings
    )


def over(env, matrix, budget=BIG):
    """Parameters over another matrix and budget; a change of values only, so nothing is compiled again."""
    return parameters(env, budget=BIG).replace(matrix=jax.device_put(matrix), budget=jnp.int32(budget))


def play(env, params, question, order, actions):
    """Observation, state and, from the first action on, reward, terminated and info after each action."""
    obs, state = reset(env, KEY, params, jnp.int32(question), jnp.asarray(order))
    yield obs, state, None, None, None
    for action in actions:
        obs, state, *rest = step_env(env, KEY, state, jnp.asarray(action, jnp.int32), params)
        yield obs, state, *rest


# --- a reference in plain Python ------------------------------------------------------------------------


class Game:
    """The decision process and all that is observed of it, written down from the documents."""

    def __init__(self, matrix, question, order, budget=BIG):
        self.answers = matrix.answers[question][order].tolist()
        self.lengths = matrix.lengths[question][order].tolist()
        self.finished_tokens = [
            max(matrix.interval[question] * length, tokens)
            for length, tokens in zip(self.lengths, matrix.tokens[question][order].tolist(), strict=True)
        ]
        self.interval, self.gold = int(matrix.interval[question]), int(matrix.gold[question])
        self.budget = budget
        self.depth, self.active = [0] * W, [False] * W
        self.shown = [{} for _ in range(W)]
        self.completed, self.numbers = [], {}
        self.streak, self.time = [0] * W, 0

    # What is known.

    def finished(self, i):
        return self.depth[i] == self.lengths[i] + 1

    def last(self, i):
        """The latest revealed answer; None where there is none that may vote."""
        answer = self.shown[i][max(self.shown[i])] if self.shown[i] else NONE
        return None if answer == NONE else answer

    def branch_tokens(self, i):
        return self.finished_tokens[i] if self.finished(i) else self.interval * self.depth[i]

    @property
    def tokens(self):
        return sum(map(self.branch_tokens, range(W)))

    @property
    def probes(self):
        return sum(map(len, self.shown))

    @property
    def cost(self):
        return sum(self.depth) + KAPPA * self.probes

    def voters(self, finals):
        """Answers of those who vote, in the order in which they do."""
        who = self.completed if finals else range(W)
        return [self.last(i) for i in who if self.active[i] and self.last(i) is not None]

    def winner(self, finals):
        votes = Counter(self.voters(finals)).most_common(1)
        return votes[0][0] if votes else None

    def answer(self):
        winner = self.winner(finals=True)
        winner = self.winner(finals=False) if winner is None else winner
        return NONE if winner is None else winner

    # What can be done.

    @property
    def opened(self):
        return sum(depth > 0 for depth in self.depth)

    def room(self):
        return min(W - self.opened, max(self.budget - self.tokens, 0) // self.interval)

    def can_advance(self, i):
        if not self.active[i] or self.finished(i):
            return False
        rest = self.finished_tokens[i] - self.branch_tokens(i)
        return self.tokens + (rest if self.depth[i] == self.lengths[i] else self.interval) <= self.budget

    def can_probe(self, i):
        return self.active[i] and self.depth[i] not in self.shown[i]

    def open(self):
        i = self.opened
        self.depth[i], self.active[i] = 1, True
        return i

    def probe(self, i):
        self.shown[i][self.depth[i]] = self.answers[i][self.depth[i] - 1]
        if self.finished(i):
            self.completed.append(i)

    def prune(self, i):
        self.active[i] = False

    # Steps.

    def act(self, env, action):
        """Plays an action of an environment; returns whether it or a part of it was inadmissible."""
        before = [(dict(shown), self.last(i)) for i, shown in enumerate(self.shown)]
        invalid = self.round(action) if env is ROUNDS else self.atom(action, env.fused)
        self.time += 1
        for i in range(W):
            was, last = before[i]
            if self.shown[i] == was:
                continue
            self.streak[i] = self.streak[i] + 1 if was and self.last(i) == last else 1
            for depth in sorted(set(self.shown[i]) - set(was)):
                if self.shown[i][depth] != NONE:
                    self.numbers.setdefault(self.shown[i][depth], len(self.numbers))
        return invalid

    def atom(self, action, fused):
        kinds = ("continue", "prune") if fused else ("continue", "probe", "prune")
        if action == 1:
            return False
        if action == 0:
            if not self.room():
                return True
            i = self.open()
            if fused:
                self.probe(i)
            return False
        if not 0 <= action < 2 + len(kinds) * W:
            return True
        kind, i = kinds[(action - 2) // W], (action - 2) % W
        allowed = {"continue": self.can_advance, "probe": self.can_probe, "prune": lambda i: self.active[i]}
        if not allowed[kind](i):
            return True
        if kind == "continue":
            self.depth[i] += 1
            if fused:
                self.probe(i)
        else:
            getattr(self, kind)(i)
        return False

    def round(self, action):
        answers, opening, *choices = action
        if answers == 1:
            return False
        admitted = [
            choice == 0
            or (choice == 1 and self.active[i])
            or (2 <= choice <= MAX_ADVANCE + 1 and self.can_advance(i))
            for i, choice in enumerate(choices)
        ]
        opens = 0 <= opening <= self.room()
        for i, choice in enumerate(choices):
            if admitted[i] and choice == 1:
                self.prune(i)
        for _ in range(opening if opens else 0):
            self.probe(self.open())
        for i, choice in enumerate(choices):
            for _ in range(choice - 1 if admitted[i] and choice > 1 else 0):
                if self.can_advance(i):
                    self.depth[i] += 1
                    self.probe(i)
        return answers != 0 or not opens or not all(admitted)

    # What is observed.

    def mask(self, env):
        every = range(W)
        advance = [self.can_advance(i) for i in every]
        if env is ROUNDS:
            opening = [count <= self.room() for count in range(W + 1)]
            choices = [[True, self.active[i]] + [advance[i]] * MAX_ADVANCE for i in every]
            return [True, True, *opening, *itertools.chain(*choices)]
        probe = [] if env.fused else [self.can_probe(i) for i in every]
        return [self.room() > 0, True, *advance, *probe, *self.active]

    def branch_features(self, i):
        last, finals, latest = self.last(i), self.voters(True), self.voters(False)
        speaks = last is not None
        ranks = [answer for answer, _ in Counter(latest).most_common()]
        return {
            "opened": self.depth[i] > 0,
            "active": self.active[i],
            "finished": self.finished(i),
            "revealed": self.depth[i] in self.shown[i],
            "answered": speaks,
            "depth": min(self.depth[i] / 64, 4),
            "streak": min(self.streak[i] / 16, 4),
            "finals_share": finals.count(last) / max(len(finals), 1),
            "latest_share": latest.count(last) / max(len(latest), 1),
            "with_finals": speaks and last == self.winner(True),
            "with_latest": speaks and last == self.winner(False),
            "rank": ranks.index(last) / W if speaks and self.active[i] else 1,
        }

    def global_features(self, max_steps):
        live = sum(self.active[i] and not self.finished(i) for i in range(W))
        finished = sum(self.active[i] and self.finished(i) for i in range(W))
        return {
            "time": min(self.time / max_steps, 1),
            "opened": self.opened / W,
            "live": live / W,
            "finished": finished / W,
            "pruned": (self.opened - live - finished) / W,
            "cost": min(sum(self.depth) / (64 * W), 4),
            "budget_left": max(1 - self.tokens / max(self.budget, 1), 0),
            **self.vote_features("finals", self.voters(True)),
            **self.vote_features("latest", self.voters(False)),
            "gamma": -math.log10(GAMMA) / 8,
        }

    @staticmethod
    def vote_features(name, voters):
        counts = sorted(Counter(voters).values(), reverse=True)
        top1, top2 = [*counts, 0, 0][:2]
        shares = [count / len(voters) for count in counts]
        return {
            f"{name}_voters": len(voters) / W,
            f"{name}_top1": top1 / W,
            f"{name}_top2": top2 / W,
            f"{name}_confidence": 1 - betainc(top1 + 1, top2 + 1, 0.5) if voters else 0,
            f"{name}_entropy": -sum(share * math.log(share) for share in shares) / math.log(W),
        }

    def history(self, depths):
        table = np.full((W, depths), -1)
        for i, shown in enumerate(self.shown):
            for depth, answer in shown.items():
                table[i, depth - 1] = -2 if answer == NONE else self.numbers[answer]
        return table


def answers(env, action):
    return (action[0] if env is ROUNDS else action) == 1


def named(features, row):
    return {feature.name: float(value) for feature, value in zip(features, row, strict=True)}


def near(features, values):
    return pytest.approx({feature.name: float(values[feature.name]) for feature in features}, abs=1e-5)


def atoms(fused):
    """Atomic actions, mostly those that lead somewhere, with some out of range."""
    last = 2 + (2 if fused else 3) * W
    return (
        st.integers(2, last - W - 1) | st.sampled_from([0, 0, 1, -1, last, 10**9]) | st.integers(0, last - 1)
    )


def rounds(ends=(0, 0, 0, 0, 1, 2, -1)):
    choice = st.sampled_from([0, 1, 2, 2, 3, 4, 4, MAX_ADVANCE + 2, -1])
    head = st.tuples(st.sampled_from(ends), st.integers(-1, W + 1))
    return st.builds(lambda head, choices: (*head, *choices), head, st.tuples(*[choice] * W))


MATRICES = st.integers(0, 2**32 - 1).map(lambda seed: random_matrix(seed, abstain=0.2))
QUESTION = st.integers(0, QUESTIONS - 1)
BUDGETS = st.just(BIG) | st.integers(0, 300)
EPISODES = {
    "atomic": (ATOMIC, st.lists(atoms(fused=False), max_size=50)),
    "fused": (FUSED, st.lists(atoms(fused=True), max_size=50)),
    "rounds": (ROUNDS, st.lists(rounds(), max_size=25)),
}


@pytest.mark.parametrize("name", EPISODES)
@given(MATRICES, orders, QUESTION, BUDGETS, st.data())
def test_episodes_equal_the_reference(name, matrix, order, question, budget, data):
    env, actions = EPISODES[name]
    actions = data.draw(actions)
    params = over(env, matrix, budget)
    game = Game(matrix, question, order, budget)
    moments = play(env, params, question, order, actions)
    for action, (obs, state, _, terminated, info) in zip([None, *actions], moments, strict=True):
        invalid = None if action is None else game.act(env, action)
        obs = jax.device_get(obs)
        branches = [named(BRANCH_FEATURES, row) for row in obs["branches"]]
        assert branches == [near(BRANCH_FEATURES, game.branch_features(i)) for i in range(W)]
        whole = near(GLOBAL_FEATURES, game.global_features(int(params.max_steps_in_episode)))
        assert named(GLOBAL_FEATURES, obs["globals"]) == whole
        assert obs["action_mask"].tolist() == game.mask(env)
        assert np.array_equal(obs["history"], game.history(matrix.max_depth))
        assert env.observation_space(params).contains(obs)
        assert state.pool.depth.tolist() == game.depth
        assert int(state.time) == game.time
        assert game.tokens <= budget
        if info is None:
            continue
        info = jax.device_get(info)
        assert bool(terminated) == answers(env, action)
        assert bool(info["invalid_action"]) == invalid
        assert info["tokens"] == game.tokens
        assert info["intervals"] == sum(game.depth)
        assert info["probes"] == game.probes
        assert info["cost"] == pytest.approx(game.cost)
        assert info["interval"] == game.interval
        assert info["question"] == question
        assert info["answer"] == game.answer()
        assert info["correct"] == (game.answer() == game.gold)
        assert info["action_mask"].tolist() == game.mask(env)
        if terminated:
            break


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True))


def end(env, params, question, order, actions):
    """State of the branch pool, its votes and the answer after some actions."""
    *_, (_, state, _, _, info) = play(env, params, question, order, actions)
    votes = state.tracker.keys, state.tracker.counts, state.tracker.finals, state.tracker.latest
    return state.pool.state, state.pool.tokens, votes, info["answer"]


PROBE, PRUNE = 2 + W, 2 + 2 * W


@given(
    MATRICES, orders, QUESTION, st.lists(atoms(fused=True).filter(lambda a: a != 1), min_size=1, max_size=25)
)
def test_a_fused_step_is_its_two_atomic_steps(matrix, order, question, actions):
    game, atomic = Game(matrix, question, order), []
    for action in actions:
        if action == 0:
            atomic += [0, PROBE + min(game.opened, W - 1)]
        elif 2 <= action < 2 + W:
            atomic += [action, W + action]
        else:
            atomic += [W + action] if 2 + W <= action < 2 + 2 * W else [-1]
        game.act(FUSED, action)
    fused = end(FUSED, over(FUSED, matrix), question, order, actions)
    assert same(fused, end(ATOMIC, over(ATOMIC, matrix), question, order, atomic))


@given(MATRICES, orders, QUESTION, st.lists(rounds(ends=(0,)), min_size=1, max_size=8))
def test_a_round_is_its_atomic_steps(matrix, order, question, actions):
    game, atomic = Game(matrix, question, order), []
    for _, opening, *choices in (action := np.array(actions)).tolist():
        atomic += [PRUNE + i for i, choice in enumerate(choices) if choice == 1]
        opened = game.opened
        if 0 <= opening <= game.room():
            atomic += [step for i in range(opened, opened + opening) for step in (0, PROBE + i)]
        for i, choice in enumerate(choices[:opened]):
            atomic += [2 + i, PROBE + i] * (choice - 1 if 2 <= choice <= MAX_ADVANCE + 1 else 0)
        game.act(ROUNDS, (0, opening, *choices))
    together = end(ROUNDS, over(ROUNDS, matrix), question, order, action)
    assert same(together, end(ATOMIC, over(ATOMIC, matrix), question, order, [*atomic, -1]))


def test_features_and_flat_are_parts_of_history():
    params = over(ATOMIC, SHORT)
    *_, (obs, state, *_) = play(ATOMIC, params, 0, ORDER, THREE)
    features = jax.jit(WidthDepth(W).get_obs)(dataclasses.replace(state, history=None), params)
    assert same(features, {name: obs[name] for name in ("branches", "globals", "action_mask")})
    flat = jax.jit(WidthDepth(W, obs="flat").get_obs)(state, params)
    assert np.array_equal(flat, np.concatenate([obs["branches"].reshape(-1), obs["globals"]]))
    assert WidthDepth(W, obs="flat").observation_space(params).contains(np.asarray(flat))


# --- rewards --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["atomic", "rounds"])
@settings(max_examples=25, deadline=None)
@given(MATRICES, orders, QUESTION, st.data())
def test_rewards_sum_to_their_closed_forms(name, matrix, order, question, data):
    env, actions = EPISODES[name]
    actions = [action for action in data.draw(actions) if not answers(env, action)]
    actions += [(1, *[0] * (W + 1)) if env is ROUNDS else 1]
    limit = data.draw(st.sampled_from([4, 20, 500]))
    params = over(env, matrix).replace(regret_budget=jnp.float32(limit), progress_weight=jnp.float32(0.7))

    def total(mode):
        moments = play(env, params.replace(reward=jnp.int32(mode)), question, order, actions)
        return sum(float(reward) for _, _, reward, *_ in moments if reward is not None)

    game = Game(matrix, question, order)
    costs, right = [0.0], [False]
    for action in actions:
        game.act(env, action)
        costs.append(game.cost)
        right.append(game.answer() == game.gold)

    outcome = right[-1] - GAMMA * costs[-1]
    assert total(Reward.OUTCOME) == pytest.approx(outcome, abs=1e-6)
    assert total(Reward.PROGRESS) == pytest.approx(outcome + 0.7 * right[-1], abs=1e-6)
    # Every cost is a multiple of κ, so that J is constant between two of these points.
    spent = np.arange(0, limit, KAPPA)
    in_hand = np.array(right)[np.searchsorted(costs, spent, side="right") - 1]
    assert total(Reward.REGRET) == pytest.approx(-np.mean(~in_hand), abs=1e-5)


def test_majority_pays_for_the_majority_of_branches_not_played():
    matrix = random_matrix(7)
    env = WidthDepth(3)
    params = env.make_params(matrix, gamma=GAMMA, reward="majority")
    finals = np.asarray(matrix.finals())

    def majority(question, order):
        held_out = [finals[question, i] for i in range(BRANCHES) if i not in order]
        return Counter(held_out).most_common(1)[0][0]

    differs = False
    for seed in range(12):
        question, order = seed % QUESTIONS, np.random.default_rng(seed).permutation(BRANCHES)[:3]
        length = matrix.lengths[question, order[0]]
        actions = [0, *[2] * length, 2 + 3, 1]
        *_, last = play(env, params, question, order, actions)
        _, state, reward, _, info = last
        assert int(state.target) == majority(question, order)
        assert float(reward) == (finals[question, order[0]] == majority(question, order))
        differs |= bool(info["correct"]) != bool(reward)
    assert differs, "gold and majority agree everywhere: nothing was tested"

    _, drawn = jax.jit(jax.vmap(env.reset, (0, None)))(jax.random.split(KEY, 32), params)
    for question, target, start in zip(drawn.question, drawn.target, drawn.pool.hidden.start, strict=True):
        order = np.asarray(start) // matrix.max_depth - BRANCHES * int(question)
        assert int(target) == majority(int(question), order)


@pytest.mark.parametrize("first", [0, 1])
def test_a_tie_of_finals_goes_to_the_one_revealed_first(first):
    finals = SHORT.finals()[0, ORDER[:2]].tolist()
    assert NONE not in finals
    assert finals[0] != finals[1], "without a tie nothing is tested"
    reads = [[2 + i] * int(SHORT.lengths[0, ORDER[i]]) + [PROBE + i] for i in (0, 1)]
    actions = [0, 0, *reads[first], *reads[1 - first]]
    *_, (*_, info) = play(ATOMIC, over(ATOMIC, SHORT), 0, ORDER, actions)
    assert int(info["answer"]) == finals[first]


@pytest.mark.slow
@pytest.mark.parametrize("width", [64, 200, 300])
def test_votes_and_ranks_are_right_at_any_width(width):
    """Counts and scores of many branches do not fit in the words that hold those of few."""
    rng = np.random.default_rng(width)
    matrix = synthetic().matrix
    matrix = dataclasses.replace(matrix, answers=np.where(matrix.answers > 3, 0, matrix.answers))
    further = np.where(rng.random(width) < 0.3, matrix.max_depth, rng.integers(0, 30, width))

    @jax.jit
    def count(matrix, further, pruned):
        begun = ReplayPool.begin(matrix, 3, jnp.arange(width) % matrix.num_branches)
        pool = begun.step(Action(open=width, advance=further))
        view = view_of(pool.step(Action(prune=pruned)))
        before = observations.Before.of(begun.view())
        tracker = observations.track(observations.start_tracking(width), before, view)
        counts = observations.vote_counts(view, tracker)
        return counts, observations.branch_columns(counts, tracker)["rank"]

    counts, rank = count(matrix, jnp.asarray(further), jnp.asarray(rng.random(width) < 0.1))
    ids, voting, final = (np.asarray(part) for part in (counts.keys, counts.voting, counts.final))
    assert 0 < final.sum() < voting.sum() < width
    votes, finals = Counter(ids[voting].tolist()), Counter(ids[final].tolist())
    answered = ids != NONE
    assert np.asarray(counts.support)[answered].tolist() == [votes[i] for i in ids[answered].tolist()]
    assert np.asarray(counts.final_support)[answered].tolist() == [finals[i] for i in ids[answered].tolist()]
    ranked = [answer for answer, _ in votes.most_common()]  # among equals, the one that was met first
    wanted = [ranked.index(i) / width if vote else 1 for i, vote in zip(ids.tolist(), voting, strict=True)]
    assert rank.tolist() == pytest.approx(wanted, abs=1e-6)


# --- inadmissible actions -------------------------------------------------------------------------------

SHORT = random_matrix(0)
ORDER = np.argsort(SHORT.lengths[0], kind="stable")[:W]
FINISH = int(SHORT.lengths[0, ORDER[0]])
THREE = [0, 0, 0, PRUNE + 1, *[2] * FINISH, PROBE]
"""Branch 0 is finished and revealed, 1 pruned, 2 at depth 1, 3 not opened."""


def hold(**entries):
    """A round in which nothing is done but some entries."""
    action = np.zeros(2 + W, int)
    for name, value in entries.items():
        action[{"answer": 0, "open": 1}.get(name, 2 + int(name[-1]) if name[-1].isdigit() else 0)] = value
    return action


@pytest.mark.parametrize(
    ("env", "before", "action"),
    [
        *[(ATOMIC, THREE, action) for action in (-1, 2 + 3 * W, 10**9, -(2**31))],
        *[(ATOMIC, THREE, 2 + i) for i in (0, 1, 3)],
        *[(ATOMIC, THREE, PROBE + i) for i in (0, 1, 3)],
        *[(ATOMIC, THREE, PRUNE + i) for i in (1, 3)],
        (ATOMIC, [0] * W, 0),
        (FUSED, [0], 2 + 2 * W),
        (ROUNDS, [hold(open=2), hold(branch_1=1)], hold(branch_1=2)),
        (ROUNDS, [hold(open=2), hold(branch_1=1)], hold(branch_1=1)),
        (ROUNDS, [hold(open=2)], hold(branch_3=2)),
        (ROUNDS, [hold(open=2)], hold(branch_0=MAX_ADVANCE + 2)),
        (ROUNDS, [hold(open=2)], hold(branch_0=-1)),
        (ROUNDS, [hold(open=2)], hold(open=W - 1)),
        (ROUNDS, [hold(open=2)], hold(open=-1)),
        (ROUNDS, [hold(open=2)], hold(answer=2)),
    ],
)
def test_an_inadmissible_action_is_a_flagged_step_that_changes_nothing(env, before, action):
    params = over(env, SHORT).replace(invalid_penalty=jnp.float32(0.25))
    *_, (_, state, *_), (_, after, reward, terminated, info) = play(env, params, 0, ORDER, [*before, action])

    assert int(after.time) == len(before) + 1
    assert same(dataclasses.replace(after, time=state.time), state)
    assert bool(info["invalid_action"])
    assert not terminated
    assert float(reward) == -0.25


def test_an_inadmissible_entry_leaves_the_others_of_its_round_alone():
    params = over(ROUNDS, SHORT)
    *_, (_, both, *_, info) = play(ROUNDS, params, 0, ORDER, [hold(open=2), hold(open=1, branch_3=2)])
    *_, (_, one, *_) = play(ROUNDS, params, 0, ORDER, [hold(open=2), hold(open=1)])
    assert bool(info["invalid_action"])
    assert same(both, one)


# --- costs ----------------------------------------------------------------------------------------------


def test_branches_read_one_after_another_are_waited_for():
    matrix = dataclasses.replace(SHORT, lengths=np.full_like(SHORT.lengths, 30))
    cost = cost_of_models(CostModel("latency", prompt_tokens=0), ["Qwen3-8B"])
    params = ROUNDS.make_params(matrix, gamma=GAMMA, cost=cost)
    both, single = hold(branch_0=4, branch_1=4), [hold(branch_0=4), hold(open=1), hold(branch_1=4)]

    def spent(actions):
        *_, (_, state, *_, info) = play(ROUNDS, params, 0, ORDER, actions)
        return float(info["cost"]), int(info["tokens"]), int(state.critical_path)

    interval = int(matrix.interval[0])
    alone, _, _ = spent([hold(open=1)])
    assert alone == 1
    at_once, tokens, critical_path = spent([hold(open=2), both])
    assert critical_path == 4 * interval
    later, same_tokens, critical_path = spent([hold(open=1), *single])
    assert (same_tokens, critical_path) == (tokens, 8 * interval)
    assert later > 1.9 * at_once
    assert parameters(ROUNDS).cost is None


@pytest.mark.nightly
def test_an_environment_with_a_cost_passes_the_check():
    cost = cost_of_models("latency", ["Qwen3-8B"])
    check_functional_env(WidthDepthRounds(W), SHORT, cost=cost, gamma=GAMMA, steps=40)


def test_costs_of_data_that_says_of_which_models_it_is():
    _, params = at.make("WidthDepth-v0", as_dataset(SHORT, "Qwen3-4B"), max_branches=W, cost="flops")
    assert params.cost.kind == "flops"
    assert params.cost.model.layers == 36
    cost = CostModel("latency", model="Qwen3-8B", batch=8)
    _, params = at.make("WidthDepth-v0", as_dataset(SHORT), max_branches=W, cost=cost)
    assert params.cost.batch == 8
    _, params = at.make("WidthDepth-v0", as_dataset(SHORT), max_branches=W, cost="intervals")
    assert params.cost is None
    with pytest.raises(InputError, match="the model 'model' has no profile"):
        at.make("WidthDepth-v0", as_dataset(SHORT), max_branches=W, cost="latency")
    with pytest.raises(InputError, match="unknown cost 'latencies'; did you mean 'latency'"):
        at.make("WidthDepth-v0", as_dataset(SHORT), max_branches=W, cost="latencies")


# --- episodes: how they begin and end -------------------------------------------------------------------


def test_gamma_is_drawn_log_uniformly_from_its_range_and_shown():
    low, high = 1e-5, 1e-1
    params = parameters(ATOMIC, gamma=(low, high))
    obs, state = jax.jit(jax.vmap(ATOMIC.reset, (0, None)))(jax.random.split(KEY, 2000), params)
    gamma = np.asarray(state.gamma, float)
    assert gamma.min() >= low * (1 - 1e-5)
    assert gamma.max() <= high * (1 + 1e-5)
    share = np.sort(np.log(gamma / low) / np.log(high / low))
    assert np.abs(share - np.linspace(0, 1, len(share))).max() < 0.04  # Kolmogorov-Smirnov, p > 0.001
    column = [feature.name for feature in GLOBAL_FEATURES].index("gamma")
    assert obs["globals"][:, column] == pytest.approx(-np.log10(gamma) / 8, abs=1e-5)
    # Question and order are drawn too.
    assert set(state.question.tolist()) == set(range(QUESTIONS))
    assert len(np.unique(state.pool.hidden.start, axis=0)) > QUESTIONS * 100


def test_the_step_limit_truncates_and_an_answer_terminates():
    params = over(ATOMIC, SHORT).replace(max_steps_in_episode=jnp.int32(3))
    for last, ends in ((0, (False, True)), (-1, (False, True)), (1, (True, False))):
        obs, state = reset(ATOMIC, KEY, params, jnp.int32(0), jnp.asarray(ORDER))
        for time, action in enumerate([0, PROBE, last], start=1):
            before = state
            key = jax.random.key(time)
            obs, state, reward, *done, info = step(ATOMIC, key, state, jnp.int32(action), params)
            assert tuple(map(bool, done)) == (ends if time == 3 else (False, False))
            assert done == [info["terminated"], info["truncated"]]
            final, stepped, paid, *_ = step_env(ATOMIC, key, before, jnp.int32(action), params)
            assert same(info["final_observation"], final)
            assert float(reward) == float(paid)
            if time < 3:
                assert same((obs, state), (final, stepped))
        # The next episode has begun.
        assert int(state.time) == 0
        assert not np.any(state.pool.depth)
        assert same(obs, jax.jit(ATOMIC.get_obs)(state, params))
        assert not same(obs, info["final_observation"])


def test_orders_hold_no_padding():
    narrow = random_matrix(1)
    narrow = dataclasses.replace(
        narrow,
        **{name: getattr(narrow, name)[:, :W] for name in ("answers", "lengths", "tokens")},
    )
    matrix = stack([as_dataset(random_matrix(0), "wide"), as_dataset(narrow, "narrow")]).matrix
    env = WidthDepth(W)
    played = np.asarray(env.make_params(matrix).orders.table)[..., :W]
    assert played[0].max() == BRANCHES - 1
    assert np.array_equal(np.sort(played[1], axis=-1), np.broadcast_to(np.arange(W), played[1].shape))
    with pytest.raises(InputError, match=f"{W} branches a question"):
        WidthDepth(W + 1).make_params(matrix)


# --- settings -------------------------------------------------------------------------------------------


def first_opened(view, _):
    """The answer of the branch that was opened first, whatever the votes."""
    return dataclasses.replace(view.vote(view.active), leader=jnp.int32(0))


def first_shown(view, _):
    """The answer that was revealed first: of what views show, all that may be left out is asked for."""
    shown = jnp.any(view.revealed_keys >= 0, axis=1) & (view.labels == 0)
    return view.vote(shown & view.finished).or_else(view.vote(shown))


@pytest.mark.parametrize(
    "aggregate",
    [
        pytest.param("majority", marks=pytest.mark.slow),
        pytest.param("latest", marks=pytest.mark.slow),
        pytest.param(first_opened, marks=pytest.mark.slow),
        first_shown,
    ],
)
def test_the_answer_is_the_aggregate_of_choice(aggregate):
    answers = np.full((1, 3, 4), NONE, np.int16)
    answers[0, 0, :3] = 0, 0, 0
    answers[0, 1, :3] = 1, 1, 1
    answers[0, 2, :2] = 2, 2
    matrix = dataclasses.replace(
        random_matrix(0).select(np.array([0])),
        answers=answers,
        lengths=np.array([[2, 2, 1]], np.int32),
        tokens=np.array([[2, 2, 1]], np.int32),
    )
    env = WidthDepthRounds(3, aggregate=aggregate)
    # Branch 2 is finished, and branches 0 and 1 are not.
    actions = [[0, 3, 0, 0, 0], [0, 0, 0, 0, 2]]
    *_, last = play(env, env.make_params(matrix), 0, np.arange(3), actions)
    assert int(last[-1]["answer"]) == {"majority": 2, "latest": 0, first_opened: 0, first_shown: 0}[aggregate]


@pytest.mark.slow
def test_parameters_can_be_batched():
    changes = {
        "gamma_low": jnp.float32([1e-4, 1e-2, 1e-2]),
        "gamma_high": jnp.float32([1e-4, 1e-2, 1e-1]),
        "kappa_probe": jnp.float32([0, 0.5, 1]),
        "budget": jnp.int32([BIG, 20, 60]),
        "reward": jnp.int32([Reward.OUTCOME, Reward.PROGRESS, Reward.REGRET]),
        "progress_weight": jnp.float32([1, 2, 3]),
        "regret_budget": jnp.float32([1, 20, 30]),
        "invalid_penalty": jnp.float32([0, 0.5, 1]),
        "max_steps_in_episode": jnp.int32([30, 4, 9]),
    }
    params = over(ATOMIC, SHORT)
    batch = params.replace(**changes)
    axes = jax.tree.map(lambda _: None, params).replace(**dict.fromkeys(changes, 0))
    begin = jax.jit(jax.vmap(ATOMIC.reset_env, (None, axes)))
    go = jax.jit(jax.vmap(ATOMIC.step, (None, 0, None, axes)))
    keys = jax.random.split(KEY, 21)
    rng = np.random.default_rng(0)
    actions = rng.choice([0, 2, 3, PROBE, PROBE + 1, PRUNE, 1, -1], 20)

    def of_lane(lane, tree):
        return jax.tree.map(lambda leaf: leaf[lane], tree)

    together = [begin(keys[0], batch)]
    for key, action in zip(keys[1:], actions, strict=True):
        together.append(go(key, together[-1][1], jnp.int32(action), batch))
    for lane in range(3):
        alone = params.replace(**of_lane(lane, changes))
        moment = reset(ATOMIC, keys[0], alone)
        chex.assert_trees_all_close(moment, of_lane(lane, together[0]), rtol=1e-5)
        for key, action, other in zip(keys[1:], actions, together[1:], strict=True):
            moment = step(ATOMIC, key, moment[1], jnp.int32(action), alone)
            chex.assert_trees_all_close(moment, of_lane(lane, other), rtol=1e-5)


@pytest.mark.slow
def test_one_compilation_serves_all_episodes_and_values_of_parameters():
    go = jax.jit(chex.assert_max_traces(FUSED.step, n=1))
    for seed, budget in ((0, BIG), (1, 100)):
        params = over(FUSED, random_matrix(seed), budget).replace(kappa_probe=jnp.float32(seed))
        _, state = reset(FUSED, jax.random.key(seed), params)
        for time, action in enumerate([0, 2, 1, 0, 5, 1]):
            _, state, *_ = go(jax.random.key(time), state, jnp.int32(action), params)


@pytest.mark.slow
@pytest.mark.shipped
def test_the_options_for_compiling_change_no_result():
    # More than 32 branches, as many as XLA reduces in one window unless told otherwise.
    env = WidthDepthRounds(40, obs="flat")
    params = env.make_params(synthetic().matrix)

    def rollout(key):
        def step(carry, key):
            obs, state = carry
            actions = jax.random.randint(key, (env.num_actions,), 0, 3).at[0].set(0)
            obs, state, reward, *_, info = env.step(key, state, actions, params)
            return (obs, state), (obs, reward, info["tokens"], info["answer"])

        return jax.lax.scan(step, env.reset(key, params), jax.random.split(key, 12))[1]

    plain, optioned = jax.jit(rollout), jax.jit(rollout, compiler_options=COMPILER_OPTIONS)
    expected, found = plain(jax.random.key(0)), optioned(jax.random.key(0))
    assert len(np.unique(expected[2])) > 6
    chex.assert_trees_all_close(found, expected, rtol=1e-6)


@pytest.mark.slow
def test_a_trainer_written_for_gymnax_runs():
    """The loop of PureJaxRL: keys and states of many environments through one scan."""
    env, lanes, steps = WidthDepth(3, fused=True, obs="flat"), 16, 64
    params = env.make_params(random_matrix(0), gamma=GAMMA)

    def loop(key, params):
        key, reset_key = jax.random.split(key)
        obs, state = jax.vmap(env.reset, (0, None))(jax.random.split(reset_key, lanes), params)

        def one(carry, _):
            key, obs, state, total = carry
            key, action_key, step_key = jax.random.split(key, 3)
            action = jax.random.randint(action_key, (lanes,), 0, env.num_actions)
            step_keys = jax.random.split(step_key, lanes)
            obs, state, reward, terminated, truncated, info = jax.vmap(env.step, (0, 0, 0, None))(
                step_keys, state, action, params
            )
            total = jnp.where(state.time == 1, 0, total) + reward
            done = terminated | truncated
            expected = (terminated & info["correct"]) - GAMMA * info["cost"]
            wrong = done & (jnp.abs(total - expected) > 1e-5)
            return (key, obs, state, jnp.where(done, 0, total)), (done, wrong, obs)

        carry = key, obs, state, jnp.zeros(lanes)
        return jax.lax.scan(one, carry, None, steps)[1]

    done, wrong, obs = jax.jit(loop)(KEY, params)
    assert done.sum() > lanes
    assert not wrong.any()
    assert obs.shape == (steps, lanes, 3 * len(BRANCH_FEATURES) + len(GLOBAL_FEATURES))


def test_a_step_and_the_next_episode_have_keys_of_their_own():
    class Noisy(WidthDepth):
        def step_env(self, key, *given):
            *rest, info = super().step_env(key, *given)
            return *rest, info | {"noise": jax.random.bits(key, (3,))}

        def reset_env(self, key, *given):
            obs, state = super().reset_env(key, *given)
            return obs, dataclasses.replace(state, time=jax.random.bits(key, (3,))[0].astype(jnp.int32))

    env = Noisy(W)
    params = parameters(env)
    _, state = reset(env, KEY, params)
    _, ended, *_, info = step(env, KEY, state, jnp.int32(1), params)
    words = {*np.asarray(info["noise"]).tolist(), int(ended.time.astype(jnp.uint32))}
    assert len(words) == 4
    assert words.isdisjoint(np.asarray(jax.random.bits(KEY, (3,))).tolist())


@pytest.mark.parametrize("key", [jax.random.key(5), jax.random.key(5, impl="rbg"), jax.random.PRNGKey(5)])
def test_random_words_are_those_of_jax(key):
    for part, child in enumerate(jax.random.split(key)):
        assert same(*map(jax.random.key_data, (keys.fold_in(key, part), jax.random.fold_in(key, part))))
        if key.dtype != KEY.dtype or jax.random.key_impl(key) == jax.random.key_impl(KEY):
            assert same(*map(jax.random.key_data, (keys.fold_in(key, part), child)))
    assert np.array_equal(keys.bits(key, 3), jax.random.bits(key, (3,)))


@pytest.fixture(
    scope="module",
    params=[
        "WidthDepthRounds-v0",
        pytest.param("WidthDepth-v0", marks=pytest.mark.nightly),
        pytest.param("WidthDepthMacro-v0", marks=pytest.mark.nightly),
        "WidthDepthBatch-v0",
    ],
)
def begun(request):
    """An environment with an episode under way, and an action."""
    data = synthetic(questions=4, branches=8)
    more = {} if "Batch" in request.param else {"obs": "history"}
    env, params = at.make(request.param, data, max_branches=4, budget=30_000, **more)
    _, state = jax.jit(env.reset)(jax.random.key(0), params)
    return env, params, state, jnp.zeros(env.action_space(params).shape, jnp.int32)


@pytest.mark.slow
def test_states_can_be_donated(begun):
    """Without ``jit``, too, every leaf is an array of its own, and none belongs to the parameters."""
    env, params, _, action = begun
    _, state = env.reset(jax.random.key(0), params)
    after = env.step(jax.random.key(0), state, action, params)[1]
    others = {leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(params)}
    for one in (state, after):
        leaves = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(one)]
        assert len(set(leaves)) == len(leaves)
        assert others.isdisjoint(leaves)
    _, donated = env.reset(jax.random.key(0), params)
    step = jax.jit(env.step, donate_argnums=1)
    assert jax.tree.all(
        jax.tree.map(jnp.array_equal, step(jax.random.key(0), donated, action, params)[1], after)
    )
    env.reset(jax.random.key(0), params)


def test_flax_writes_and_reads_states(begun):
    serialization = pytest.importorskip("flax.serialization")
    env, params, state, action = begun
    after = step(env, jax.random.key(0), state, action, params)[1]
    again = serialization.from_bytes(state, serialization.to_bytes(after))
    assert jax.tree.all(jax.tree.map(np.array_equal, again, after))
    with pytest.raises(InputError, match="not a state of the same environment"):
        serialization.from_state_dict(state, {"time": 0})


def test_states_have_replace(begun):
    _, _, state, _ = begun
    assert state.replace(time=jnp.int32(3)).time == 3


def test_dtypes_are_promoted_as_ever_where_the_caller_is_strict(begun):
    env, params, state, action = begun
    expected = step(env, jax.random.key(0), state, action, params)
    with jax.numpy_dtype_promotion("strict"):
        _, strict = jax.jit(env.reset)(jax.random.key(0), params)
        found = jax.jit(env.step)(jax.random.key(0), strict, action, params)
    assert jax.tree.map(jnp.result_type, found) == jax.tree.map(jnp.result_type, expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_actions_of_another_shape_are_refused(begun):
    env, params, state, action = begun
    wrong = action[None] if action.shape == () else action[:1]
    with pytest.raises(InputError, match="an action must be "):
        env.step(jax.random.key(0), state, wrong, params)
    with pytest.raises(InputError, match="an action must be "):
        jax.jit(env.step)(jax.random.key(0), state, wrong, params)


def test_default_parameters_are_made_once_also_under_jit():
    env = WidthDepth(3, fused=True)
    shapes = jax.eval_shape(env.reset, KEY)
    assert env.default_params is WidthDepth(3, fused=True).default_params
    chex.assert_trees_all_equal_shapes_and_dtypes(shapes, reset(env, KEY, env.default_params))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"order": np.arange(W - 1)},
            rf"order has shape \({W - 1},\) and dtype int64, but it must name {W} branches",
        ),
        ({"order": 3}, r"order has shape \(\) and dtype int64, but it must name"),
        ({"question": QUESTIONS}, f"question is {QUESTIONS}, but it must be between 0 and {QUESTIONS - 1}"),
        ({"question": np.int64(-1)}, "question is -1"),
        ({"gamma": -1e-3}, "gamma is -0.001, but it must be a finite number of at least 0"),
    ],
)
def test_functional_inputs_are_checked_when_they_are_traced(changes, message):
    given = {"params": parameters(ATOMIC)} | changes
    with pytest.raises(InputError, match=message):
        ATOMIC.reset(KEY, **given)
    with pytest.raises(InputError, match=message):
        jax.eval_shape(lambda key: ATOMIC.reset(key, **given), KEY)


def test_parameters_and_states_of_another_width_are_refused():
    others = parameters(WidthDepth(W - 1))
    with pytest.raises(InputError, match=f"made for max_branches={W - 1}, but the environment has {W}"):
        ATOMIC.reset(KEY, others)
    _, state = reset(WidthDepth(W - 1), KEY, others)
    with pytest.raises(InputError, match=f"state has {W - 1} branches, but the environment {W}"):
        ATOMIC.step(KEY, state, 0, parameters(ATOMIC))


@pytest.mark.parametrize("width", [1024, votes.MOST_BRANCHES])
def test_votes_are_counted_right_among_as_many_branches_as_are_admitted(width):
    answers = np.random.default_rng(0).integers(0, 2, width)
    answers[:] = np.where(np.arange(width) < 3, 1, answers)
    for split in (answers, np.zeros(width, int)):
        count = np.bincount(split)[split]
        rank = jnp.arange(width, dtype=jnp.int32)[::-1]
        found = votes.elect(jnp.asarray(split), jnp.asarray(count, jnp.int32), jnp.ones(width, bool), rank)
        winner, top1 = Counter(split[::-1].tolist()).most_common(1)[0]
        assert (int(split[found.leader]), int(found.top1)) == (winner, top1)
        assert int(found.leader) == np.flatnonzero(split == winner)[-1]


def test_more_branches_than_votes_can_be_counted_among_are_refused():
    most = votes.MOST_BRANCHES
    assert WidthDepth(most).action_space().n == 2 + 3 * most
    with pytest.raises(InputError, match=f"max_branches is {most + 1}, but it must be between 1 and {most}"):
        WidthDepth(most + 1)
    column = jnp.zeros(most + 1, jnp.int32)
    with pytest.raises(InputError, match=f"{most} branches at most, but there are {most + 1}"):
        votes.elect(column, column, column == 0)


@pytest.mark.parametrize(
    "key", [KEY, pytest.param(jax.random.PRNGKey(0), marks=pytest.mark.slow)], ids=["typed", "words"]
)
@pytest.mark.parametrize(
    "obs", ["features", *(pytest.param(obs, marks=pytest.mark.slow) for obs in ("history", "flat"))]
)
def test_spaces_sample_by_keys(obs, key):
    for env in (WidthDepth(W, obs=obs), WidthDepthRounds(W, obs=obs, mask_in_obs=True)):
        params = parameters(env)
        seen, _ = jax.eval_shape(env.reset, key, params)
        for space in (env.action_space(params), env.observation_space(params)):
            drawn = jax.jit(space.sample)(key)
            assert drawn in space
            assert same(drawn, space.sample(key))
        assert not same(drawn, space.sample(jax.random.split(key)[0]))
        chex.assert_trees_all_equal_shapes_and_dtypes(dict(drawn) if isinstance(seen, dict) else drawn, seen)


def test_spaces_still_sample_as_those_of_gymnasium():
    space = WidthDepth(W).action_space()
    mask = np.zeros(2 + 3 * W, np.int8)
    mask[3] = 1
    assert space.sample(mask) == 3
    assert space.sample() in space


@pytest.mark.parametrize("kind", [WidthDepth, WidthDepthRounds, WidthDepthMacro])
@pytest.mark.parametrize("obs", ["features", "history", "flat"])
def test_spaces_are_shown_in_one_line(kind, obs):
    env = kind(64, obs=obs, mask_in_obs=True)
    shown = repr(env.action_space()), repr(env.observation_space(env.default_params))
    assert all("\n" not in text and len(text) < 250 for text in shown), shown


def test_names_spaces_and_equality():
    assert WidthDepth(5).num_actions == WidthDepth(5).action_space().n == 2 + 3 * 5
    assert WidthDepth(5, fused=True).action_space().n == 2 + 2 * 5
    assert WidthDepthRounds(5, max_advance=2).action_space().nvec.tolist() == [2, 6, *[4] * 5]
    assert (WidthDepth().name, WidthDepth().max_branches) == ("WidthDepth", 64)
    assert WidthDepth(5) == WidthDepth(5) != WidthDepth(5, fused=True)
    assert hash(WidthDepth(5)) == hash(WidthDepth(5))
    assert WidthDepth(5) != WidthDepthRounds(5)
    assert WidthDepth(2).default_params.matrix.num_questions > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_branches": 0}, "max_branches is 0"),
        ({"obs": "pixels"}, "unknown observation 'pixels'"),
        ({"aggregate": "mean"}, "unknown aggregation 'mean'"),
        ({"aggregate": None}, "unknown aggregation None"),
        ({"aggregate": lambda view: view}, "aggregate takes .* 2 arguments: the view, the tracker"),
        ({"max_advance": 0}, "max_advance is 0"),
        ({"max_advance": "4"}, "max_advance is '4', but it must be a whole number"),
        ({"max_branches": 4.0}, "max_branches is 4.0, but it must be a whole number"),
    ],
)
def test_bad_settings_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        WidthDepthRounds(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gamma": -1.0}, "gamma is"),
        ({"gamma": float("nan")}, "gamma is"),
        ({"gamma": (1e-2, 1e-3)}, "gamma is"),
        ({"gamma": (0.0, 1e-3)}, "range of positive numbers"),
        ({"kappa_probe": -0.5}, "kappa_probe is -0.5"),
        ({"kappa_probe": float("inf")}, "kappa_probe is inf"),
        ({"budget": -1}, "token budget is -1"),
        ({"budget": 2**31}, "token budget is"),
        ({"reward": "profit"}, "unknown reward 'profit'"),
        ({"progress_weight": float("nan")}, "progress_weight"),
        ({"regret_budget": 0.0}, "regret_budget is 0"),
        ({"invalid_penalty": float("nan")}, "invalid_penalty"),
        ({"max_steps": 0}, "max_steps is 0"),
        ({"max_steps": 9.5}, "max_steps is 9.5"),
        ({"gamma": "1e-4"}, "gamma is '1e-4'"),
        ({"kappa_probe": "x"}, "kappa_probe is 'x', but it must be a finite number of at least 0"),
        ({"seed": "a"}, "seed is 'a', but it must be a whole number"),
        ({"cost": "latency"}, "cost is 'latency', but it must be what autotts_jax.envs.cost_of_models"),
        (
            {"cost": cost_of_models("flops", ["Qwen3-8B"]), "kappa_probe": 0.5},
            "kappa_probe is counted in intervals; leave it out where the cost is flops",
        ),
        (
            {"matrix": as_dataset(SHORT)},
            "matrix is a ProbeDataset, but it must be a ProbeMatrix, as dataset.matrix",
        ),
    ],
)
def test_bad_parameters_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        ATOMIC.make_params(**({"matrix": SHORT} | arguments))


def test_an_aggregation_that_returns_no_vote_is_refused():
    env = WidthDepth(W, aggregate=lambda view, _: view.opened)
    with pytest.raises(InputError, match="but it must return a Vote"):
        step(env, KEY, reset(env, KEY, parameters(env))[1], jnp.int32(0), parameters(env))


def test_a_matrix_with_too_few_branches_is_refused():
    with pytest.raises(InputError, match="fewer than the 7"):
        WidthDepth(BRANCHES + 1).make_params(SHORT)
    with pytest.raises(InputError, match="not played"):
        WidthDepth(BRANCHES).make_params(SHORT, reward="majority")
