"""WidthDepth, the environment: the decision process as functions of a key, a state, an action and parameters.

`WidthDepth` takes the paper's atomic actions, `WidthDepthRounds` one decision a round for all branches. Both
have gymnax 1.0's signature and return values, so that trainers written for it run unchanged, and both are
written for one episode: batch them with ``jax.vmap``.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Float, Int, Int16, Int32, PRNGKeyArray

from autotts_jax.core import mdp, votes
from autotts_jax.core import pool as branch_pool
from autotts_jax.core.mdp import Scalar
from autotts_jax.core.pool import ReplayPool
from autotts_jax.core.votes import Vote
from autotts_jax.envs import observations
from autotts_jax.envs.observations import BRANCH_FEATURES, GLOBAL_FEATURES, History, Tracker
from autotts_jax.envs.rewards import Reward, reward
from autotts_jax.errors import InputError
from autotts_jax.replay import embedded
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.typing import Array

Observation = Any
"""A dict of arrays, or one array for ``obs="flat"``."""

Aggregate = Callable[[ReplayPool, Tracker], Vote]
"""Agg: the vote whose winner is the final answer."""

OBSERVATIONS = ("features", "history", "flat")
ORDERS = 1024
"""Branch orders that episodes draw from."""


def majority(pool: ReplayPool, tracker: Tracker) -> Vote:
    """The majority of the active branches' finals; while there is none, of their latest answers.

    Ties go to the final that was revealed first, and among latest answers to the branch opened first.
    """
    stand = observations.standing(pool, tracker)
    return stand.finals.or_else(stand.latest)


def latest(pool: ReplayPool, tracker: Tracker) -> Vote:  # noqa: ARG001
    """The majority of the active branches' latest answers, finals or not."""
    return pool.vote(pool.active)


AGGREGATES: dict[str, Aggregate] = {"majority": majority, "latest": latest}
"""Aggregations of the final answer by name."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class EnvParams:
    """What an environment is played with. Every leaf is traced, and all but the data can be batched.

    Attributes:
        matrix: the probe matrix.
        orders: branch orders of each cell that episodes draw from. Shape (C, R, N).
        labels: for `Reward.MAJORITY`, the answer id that counts as right for each question and order, by
            vote of the branches that the order does not play; None for the other modes. Shape (Q, R).
        gamma_low: least γ; an episode draws its γ log-uniformly between the two.
        gamma_high: largest γ.
        kappa_probe: κ_probe, intervals charged for a probe.
        budget: token budget B; None for no limit.
        reward: a `Reward`.
        progress_weight: α of `Reward.PROGRESS`.
        regret_budget: C0 of `Reward.REGRET`, in intervals.
        invalid_penalty: taken off the reward of a step with an inadmissible action.
        max_steps_in_episode: steps after which an episode is truncated.
    """

    matrix: ProbeMatrix
    orders: Int16[Array, "C R N"]
    labels: Int16[Array, "Q R"] | None
    gamma_low: Float[Array, ""]
    gamma_high: Float[Array, ""]
    kappa_probe: Float[Array, ""]
    budget: Int32[Array, ""] | None
    reward: Int32[Array, ""]
    progress_weight: Float[Array, ""]
    regret_budget: Float[Array, ""]
    invalid_penalty: Float[Array, ""]
    max_steps_in_episode: Int32[Array, ""]

    def replace(self, **changes: Any) -> Self:
        """The same parameters but for ``changes``."""
        return dataclasses.replace(self, **changes)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class EnvState:
    """An episode under way.

    Attributes:
        pool: its branch pool, without the matrix.
        tracker: what its steps have shown.
        history: everything revealed; None unless it is observed.
        question: index of the question in the matrix. Shape ().
        label: the answer id that counts as right for the reward. Shape ().
        answer: the answer id that would be answered now. Shape ().
        gamma: γ. Shape ().
        time: steps taken. Shape ().
    """

    pool: ReplayPool
    tracker: Tracker
    history: History | None
    question: Int32[Array, ""]
    label: Int32[Array, ""]
    answer: Int32[Array, ""]
    gamma: Float[Array, ""]
    time: Int32[Array, ""]


class Environment(abc.ABC):
    """What both granularities share. Instances hold only static settings, and equal ones hash alike.

    **Reset.** An episode draws a question uniformly, one of the branch orders of its cell, and γ.

    **Step.** An inadmissible action, or an inadmissible part of one, changes nothing; it counts as a step and
    is flagged in ``info["invalid_action"]``.

    **Observation**, by ``obs``:

    - ``features``: ``{"branches": float32 (W, F), "globals": float32 (G,), "action_mask": bool (A,)}``, see
      `observations.BRANCH_FEATURES` and `observations.GLOBAL_FEATURES`;
    - ``history``: the same and ``"history"``: int16 (W, K), everything revealed as relabelled ids;
    - ``flat``: branches and globals as one float32 vector (W·F + G,); the mask is in ``info`` alone.

    **Reward**: see `rewards.Reward`.

    **End.** ANSWER terminates; the step limit truncates.

    **Info**: ``invalid_action``; ``tokens``, ``intervals``, ``probes``, ``cost`` (C in intervals) so far;
    ``question``; ``answer``, the id that would be answered now, and ``correct``, whether it is the gold one
    (both for measuring, never for a policy); ``action_mask`` of the state it belongs to. From `step` also
    ``terminated``, ``truncated`` and ``final_observation``, which is the observation before any auto-reset.

    Args:
        max_branches: W, branches that an episode can open.
        obs: ``features``, ``history`` or ``flat``.
        aggregate: how the final answer is found: a name in `AGGREGATES` or a function of one's own.
    """

    atomic = False
    """Whether a step reveals answers of one branch at most."""

    def __init__(
        self, max_branches: int = 64, *, obs: str = "features", aggregate: str | Aggregate = "majority"
    ):
        if max_branches < 1:
            raise InputError(f"max_branches is {max_branches}, but it must be at least 1")
        if obs not in OBSERVATIONS:
            raise InputError(f"unknown observation {obs!r}; choose one of {', '.join(OBSERVATIONS)}")
        if isinstance(aggregate, str) and aggregate not in AGGREGATES:
            raise InputError(f"unknown aggregation {aggregate!r}; choose one of {', '.join(AGGREGATES)}")
        self.max_branches = max_branches
        self.obs = obs
        self.aggregate = AGGREGATES[aggregate] if isinstance(aggregate, str) else aggregate

    def _settings(self) -> tuple:
        return type(self), *vars(self).items()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Environment) and self._settings() == other._settings()

    def __hash__(self) -> int:
        return hash(self._settings())

    # --- parameters and spaces ---------------------------------------------------------------------------

    def make_params(
        self,
        matrix: ProbeMatrix,
        *,
        gamma: float | Sequence[float] = 1e-4,
        kappa_probe: float = 0.0,
        budget: int | None = None,
        reward: str | Reward = "outcome",
        progress_weight: float = 1.0,
        regret_budget: float = 1000.0,
        invalid_penalty: float = 0.0,
        max_steps: int | None = None,
        seed: int = 0,
    ) -> EnvParams:
        """Parameters over a probe matrix.

        Args:
            matrix: the probe matrix; it goes to the default device.
            gamma: γ, or the range (low, high) from which each episode draws one.
            kappa_probe: κ_probe, intervals charged for a probe.
            budget: token budget B; None for no limit.
            reward: ``outcome``, ``progress``, ``regret`` or ``majority``.
            progress_weight: α of ``progress``.
            regret_budget: C0 of ``regret``, in intervals.
            invalid_penalty: taken off the reward of a step with an inadmissible action.
            max_steps: steps after which an episode is truncated; by granularity when None.
            seed: the seed of the branch orders.

        Raises:
            InputError: a value is out of range, or the matrix has fewer branches than ``max_branches``.
        """
        low, high = _gamma_range(gamma)
        _check_params(low, high, kappa_probe, budget, regret_budget, max_steps)
        for name, weight in (("progress_weight", progress_weight), ("invalid_penalty", invalid_penalty)):
            if not np.isfinite(weight):
                raise InputError(f"{name} is {weight}, but it must be a finite number")
        mode = _reward_mode(reward)
        branches = _branches_of_cells(matrix)
        width = self.max_branches
        if branches.min() < width:
            raise InputError(
                f"the matrix has {branches.min()} branches a question, fewer than the {width} that an "
                f"episode can open; give max_branches={branches.min()} or less"
            )
        if mode == Reward.MAJORITY and branches.min() == width:
            raise InputError(
                f"reward 'majority' votes among branches that are not played, but all {width} can be; "
                "give a smaller max_branches"
            )
        matrix = jax.device_put(matrix)
        orders = _draw_orders(jax.random.key(seed), jnp.asarray(branches), matrix.num_branches)
        labels = _majority_labels(matrix, orders, width) if mode == Reward.MAJORITY else None
        return EnvParams(
            matrix=matrix,
            orders=orders,
            labels=labels,
            gamma_low=jnp.float32(low),
            gamma_high=jnp.float32(high),
            kappa_probe=jnp.float32(kappa_probe),
            budget=None if budget is None else jnp.int32(budget),
            reward=jnp.int32(mode),
            progress_weight=jnp.float32(progress_weight),
            regret_budget=jnp.float32(regret_budget),
            invalid_penalty=jnp.float32(invalid_penalty),
            max_steps_in_episode=jnp.int32(
                self.default_max_steps(matrix) if max_steps is None else max_steps
            ),
        )

    @property
    def default_params(self) -> EnvParams:
        """Parameters over the embedded synthetic data."""
        return self.make_params(embedded.load("synthetic").matrix)

    @property
    def name(self) -> str:
        """The environment's name."""
        return type(self).__name__

    @abc.abstractmethod
    def default_max_steps(self, matrix: ProbeMatrix) -> int:
        """Steps after which an episode is truncated unless said otherwise."""

    @abc.abstractmethod
    def action_space(self, params: EnvParams | None = None) -> spaces.Space:
        """The space of actions."""

    def observation_space(self, params: EnvParams) -> spaces.Space:
        """The space of observations, the action mask not among them."""
        width = self.max_branches
        branch_high = np.array([feature.high for feature in BRANCH_FEATURES], np.float32)
        global_high = np.array([feature.high for feature in GLOBAL_FEATURES], np.float32)
        branch_high = np.broadcast_to(branch_high, (width, len(branch_high)))
        if self.obs == "flat":
            return _box(np.concatenate([branch_high.reshape(-1), global_high]))
        boxes: dict[str, spaces.Space] = {"branches": _box(branch_high), "globals": _box(global_high)}
        if self.obs == "history":
            shape = (width, params.matrix.max_depth)
            most = max(params.matrix.vocabulary - 1, 0)
            boxes["history"] = spaces.Box(observations.REVEALED_NONE, most, shape, np.int16)
        return spaces.Dict(boxes)

    # --- the contract of gymnax --------------------------------------------------------------------------

    def reset(
        self,
        key: PRNGKeyArray,
        params: EnvParams | None = None,
        *,
        question: Scalar | None = None,
        order: Int[Array, " W"] | None = None,
    ) -> tuple[Observation, EnvState]:
        """Starts an episode.

        Args:
            key: what the episode is drawn with.
            params: the parameters; `default_params` when None.
            question: a question of one's own choice; drawn when None.
            order: branches in opening order; drawn when None.
        """
        return self.reset_env(key, params or self.default_params, question, order)

    def step(
        self, key: PRNGKeyArray, state: EnvState, action: Array, params: EnvParams | None = None
    ) -> tuple[Observation, EnvState, Array, Array, Array, dict[str, Any]]:
        """One step; an episode that ends with it is followed by the first state of the next.

        Returns:
            Observation, state, reward, terminated, truncated and info.
        """
        params = params or self.default_params
        final, stepped, reward, terminated, info = self.step_env(key, state, action, params)
        truncated = ~terminated & self.is_truncated(stepped, params)
        done = terminated | truncated
        first, started = self.reset_env(key, params)

        def select(new, old):
            return jax.tree.map(lambda a, b: jnp.where(done, a, b), new, old)

        info |= {"terminated": terminated, "truncated": truncated, "final_observation": final}
        return select(first, final), select(started, stepped), reward, terminated, truncated, info

    def reset_env(
        self,
        key: PRNGKeyArray,
        params: EnvParams,
        question: Scalar | None = None,
        order: Int[Array, " W"] | None = None,
    ) -> tuple[Observation, EnvState]:
        """As `reset`."""
        matrix = params.matrix
        # One draw of three words; the bias of a remainder is below 1e-6 for fewer than 4,000 questions.
        word = jax.random.bits(key, (3,), jnp.uint32)
        if question is None:
            question = (word[0] % matrix.num_questions).astype(jnp.int32)
        question = jnp.asarray(question, jnp.int32)
        if order is None:
            row = word[1] % params.orders.shape[1]
            played = params.orders[matrix.cell[question], row, : self.max_branches]
            label = matrix.gold[question] if params.labels is None else params.labels[question, row]
        else:
            played = order
            label = matrix.gold[question]
            if params.labels is not None:
                label = _majority_label(matrix, question, played)
        share = word[2].astype(jnp.float32) / 2.0**32
        log_low, log_high = jnp.log(params.gamma_low), jnp.log(params.gamma_high)
        drawn = jnp.exp(log_low + share * (log_high - log_low))
        pool = ReplayPool.begin(
            matrix,
            question,
            played.astype(jnp.int32),
            params.budget,
            labels=False,
            history=self.obs == "history",
            twins=False,
        )
        state = EnvState(
            pool=branch_pool.detach(pool),
            tracker=observations.start_tracking(self.max_branches),
            history=observations.start_history(matrix, self.max_branches) if self.obs == "history" else None,
            question=question,
            label=jnp.asarray(label, jnp.int32),
            answer=jnp.int32(NONE),
            gamma=jnp.where(params.gamma_low < params.gamma_high, drawn, params.gamma_low),
            time=jnp.int32(0),
        )
        return self._first_observation(state, params), state

    def step_env(
        self,
        key: PRNGKeyArray,  # noqa: ARG002
        state: EnvState,
        action: Array,
        params: EnvParams,
    ) -> tuple[Observation, EnvState, Array, Array, dict[str, Any]]:
        """One step without auto-reset.

        Returns:
            Observation, state, reward, terminated and info. Whether it truncates is `is_truncated`'s to say.
        """
        before = branch_pool.attach(state.pool, params.matrix)
        after, answered, invalid = self.act(before, action)
        tracker = observations.track(state.tracker, before, after, self.atomic)
        answer = branch_pool.leader_answer(after, self.aggregate(after, tracker))
        cost = mdp.cost(branch_pool.state_of(after), params.kappa_probe)
        worth = reward(
            params.reward,
            answered,
            (state.answer == state.label) & (state.answer != NONE),
            (answer == state.label) & (answer != NONE),
            mdp.cost(branch_pool.state_of(before), params.kappa_probe),
            cost,
            state.gamma,
            params.progress_weight,
            params.regret_budget,
        )
        history = state.history and observations.extend_history(state.history, before, after)
        stepped = dataclasses.replace(
            state,
            pool=branch_pool.detach(after),
            tracker=tracker,
            history=history,
            answer=answer,
            time=state.time + 1,
        )
        info = {
            "invalid_action": invalid,
            "tokens": after.tokens,
            "intervals": mdp.intervals(branch_pool.state_of(after)),
            "probes": mdp.probes(branch_pool.state_of(after)),
            "cost": cost,
            "question": state.question,
            "answer": answer,
            "correct": (answer == params.matrix.gold[state.question]) & (answer != NONE),
            "action_mask": self.action_mask(after),
        }
        worth -= jnp.where(invalid, params.invalid_penalty, 0.0)
        return self.get_obs(stepped, params), stepped, worth, answered, info

    def get_obs(self, state: EnvState, params: EnvParams) -> Observation:
        """The observation of a state."""
        pool = branch_pool.attach(state.pool, params.matrix)
        return self.observe(
            pool, state.tracker, state.history, state.time, params.max_steps_in_episode, state.gamma
        )

    def is_terminated(self, state: EnvState, params: EnvParams) -> Bool[Array, ""]:  # noqa: ARG002
        """Never by the state alone: only ANSWER terminates."""
        return jnp.bool_(False)

    def is_truncated(self, state: EnvState, params: EnvParams) -> Bool[Array, ""]:
        """Whether the step limit was reached."""
        return state.time >= params.max_steps_in_episode

    # --- what a policy can be played with, outside an environment too ------------------------------------

    @abc.abstractmethod
    def act(self, pool: ReplayPool, action: Array) -> tuple[ReplayPool, Bool[Array, ""], Bool[Array, ""]]:
        """Plays an action.

        Returns:
            The pool after it, whether it was ANSWER, and whether it or a part of it was inadmissible.
        """

    @abc.abstractmethod
    def action_mask(self, pool: ReplayPool) -> Bool[Array, " A"]:
        """Which actions, or options of each part of an action, are admissible."""

    def observe(
        self,
        pool: ReplayPool,
        tracker: Tracker,
        history: History | None,
        time: Scalar,
        max_steps: Scalar,
        gamma: Float[Array, ""],
    ) -> Observation:
        """What a policy sees."""
        stand = observations.standing(pool, tracker)
        branches = observations.branch_features(stand, tracker)
        whole = observations.global_features(stand, time, max_steps, gamma)
        if self.obs == "flat":
            return jnp.concatenate([branches.reshape(-1), whole])
        seen = {"branches": branches, "globals": whole, "action_mask": self.action_mask(pool)}
        return seen if history is None else seen | {"history": history.shown}

    def _first_observation(self, state: EnvState, params: EnvParams) -> Observation:
        """The observation of a state in which nothing was opened.

        It hardly depends on the episode, so under ``vmap`` almost nothing of it is computed for every lane.
        """
        blank = branch_pool.blank(state.pool, params.matrix)
        history = None if state.history is None else observations.start_history(params.matrix, blank.width)
        tracker = observations.start_tracking(blank.width)
        return self.observe(blank, tracker, history, 0, params.max_steps_in_episode, state.gamma)


class WidthDepth(Environment):
    """The paper's atomic actions, one branch at a time (AutoTTS, arXiv 2605.08083, section 2).

    **Action**: an integer below ``num_actions``; i counts branches in opening order.

    ======================  ==============  =========================================
    action                  number          effect
    ======================  ==============  =========================================
    BRANCH                  0               opens the next branch, at depth 1
    ANSWER                  1               ends the episode with the aggregated answer
    CONTINUE(i)             2 + i           reads one more interval of branch i
    PROBE(i)                2 + W + i       reveals branch i's answer at its depth
    PRUNE(i)                2 + 2 W + i     gives branch i up
    ======================  ==============  =========================================

    With ``fused`` BRANCH and CONTINUE reveal as they go, there is no PROBE, and PRUNE(i) is 2 + W + i.

    Args:
        max_branches: W.
        fused: read and reveal in one step, as the released interface does.
        obs: see `Environment`.
        aggregate: see `Environment`.
    """

    atomic = True

    def __init__(
        self,
        max_branches: int = 64,
        *,
        fused: bool = False,
        obs: str = "features",
        aggregate: str | Aggregate = "majority",
    ):
        super().__init__(max_branches, obs=obs, aggregate=aggregate)
        self.fused = fused

    @property
    def num_actions(self) -> int:
        """2 + 3 W, or 2 + 2 W when fused."""
        return 2 + (2 if self.fused else 3) * self.max_branches

    def default_max_steps(self, matrix: ProbeMatrix) -> int:
        """As many steps as can change anything, and one to answer."""
        per_interval = 1 if self.fused else 2
        return self.max_branches * (per_interval * matrix.max_depth + 1) + 1

    def action_space(self, params: EnvParams | None = None) -> spaces.Discrete:  # noqa: ARG002
        """``Discrete(num_actions)``."""
        return spaces.Discrete(self.num_actions)

    def act(
        self, pool: ReplayPool, action: Int[Array, ""]
    ) -> tuple[ReplayPool, Bool[Array, ""], Bool[Array, ""]]:
        """Plays an atomic action."""
        width, fused = pool.width, self.fused
        action = jnp.asarray(action, jnp.int32)
        branch = jnp.arange(width, dtype=jnp.int32)
        before = branch_pool.state_of(pool)
        answered = action == 1
        probe, prune = 2 + width, 2 + (1 if fused else 2) * width
        pool = pool.open((action == 0).astype(jnp.int32), probe=fused)
        pool = pool.advance((action == 2 + branch).astype(jnp.int32), probe=fused)
        if not fused:
            pool = pool.probe(action == probe + branch)
        pool = pool.prune(action == prune + branch)
        after = branch_pool.state_of(pool)
        # Every admissible action but ANSWER changes one of these.
        changed = (
            (after.opened != before.opened)
            | (mdp.intervals(after) != mdp.intervals(before))
            | (mdp.probes(after) != mdp.probes(before))
            | jnp.any(after.active != before.active)
        )
        return pool, answered, ~answered & ~changed

    def action_mask(self, pool: ReplayPool) -> Bool[Array, " A"]:
        """Which actions are admissible."""
        allowed = branch_pool.admissible(pool)
        first = jnp.stack([allowed.branch, jnp.bool_(True)])
        middle = () if self.fused else (allowed.probe,)
        return jnp.concatenate([first, allowed.advance, *middle, allowed.prune])


class WidthDepthRounds(Environment):
    """One decision a round for all branches: what code controllers do, in about 100 steps instead of 2,000.

    **Action**: ``int (2 + W,)``, in Gymnasium ``MultiDiscrete([2, W + 1] + [2 + max_advance] * W)``.

    ========  ==========================================================================================
    entry     meaning
    ========  ==========================================================================================
    0         1 to answer; the rest is then not looked at
    1         branches to open, at depth 1 and probed
    2 + i     branch i: 0 holds it, 1 prunes it, 1 + k reads k more intervals, each probed, to its end at most
    ========  ==========================================================================================

    Pruning comes first, then reading, then opening. An inadmissible entry does nothing and leaves the others
    alone. Entries are masked one by one; under a token budget branches are served in opening order until it
    is spent.

    Args:
        max_branches: W.
        max_advance: the most intervals that a round reads of a branch.
        obs: see `Environment`.
        aggregate: see `Environment`.
    """

    def __init__(
        self,
        max_branches: int = 64,
        *,
        max_advance: int = 4,
        obs: str = "features",
        aggregate: str | Aggregate = "majority",
    ):
        super().__init__(max_branches, obs=obs, aggregate=aggregate)
        if max_advance < 1:
            raise InputError(f"max_advance is {max_advance}, but it must be at least 1")
        self.max_advance = max_advance

    @property
    def num_actions(self) -> int:
        """Entries of an action, 2 + W."""
        return 2 + self.max_branches

    def default_max_steps(self, matrix: ProbeMatrix) -> int:
        """As many rounds as reading one branch and opening all takes, one after the other, and some slack."""
        return max(matrix.max_depth + 16, 100)

    def action_space(self, params: EnvParams | None = None) -> spaces.MultiDiscrete:  # noqa: ARG002
        """``MultiDiscrete([2, W + 1] + [2 + max_advance] * W)``."""
        width = self.max_branches
        return spaces.MultiDiscrete(np.array([2, width + 1] + [2 + self.max_advance] * width))

    def act(
        self, pool: ReplayPool, action: Int[Array, " 2+W"]
    ) -> tuple[ReplayPool, Bool[Array, ""], Bool[Array, ""]]:
        """Plays a round."""
        answered = action[0] == 1
        allowed = branch_pool.admissible(pool)
        room = self._room(pool)
        opening, choice = action[1], action[2:]
        advance = choice - 1
        wants_prune, wants_advance = choice == 1, choice > 1
        opens = (opening >= 0) & (opening <= room)
        reads = wants_advance & allowed.advance & (advance <= self.max_advance)
        prunes = wants_prune & allowed.prune
        invalid = (
            ~opens
            | jnp.any(wants_advance & ~reads)
            | jnp.any(wants_prune & ~prunes)
            | jnp.any(choice < 0)
            | ((action[0] != 0) & ~answered)
        )
        goes_on = ~answered
        pool = pool.prune(prunes & goes_on)
        pool = pool.advance(jnp.where(reads & goes_on, advance, 0).astype(jnp.int32))
        pool = pool.open(jnp.where(opens & goes_on, opening, 0).astype(jnp.int32))
        return pool, answered, goes_on & invalid

    def action_mask(self, pool: ReplayPool) -> Bool[Array, " A"]:
        """Which options of each entry are admissible, entry after entry."""
        allowed = branch_pool.admissible(pool)
        opening = jnp.arange(pool.width + 1) <= self._room(pool)
        one = jnp.ones(pool.width, bool)
        choice = jnp.stack([one, allowed.prune] + [allowed.advance] * self.max_advance, axis=1)
        return jnp.concatenate([jnp.ones(2, bool), opening, choice.reshape(-1)])

    def _room(self, pool: ReplayPool) -> Int32[Array, ""]:
        """Branches that could be opened now."""
        room = pool.width - pool.opened
        budget = branch_pool.budget_of(pool)
        if budget is None:
            return room
        affordable = (budget - pool.tokens) // branch_pool.episode_of(pool).interval
        return jnp.clip(affordable, 0, room).astype(jnp.int32)


def _box(high: np.ndarray) -> spaces.Box:
    return spaces.Box(np.zeros_like(high), high, dtype=np.float32)


def _gamma_range(gamma: float | Sequence[float]) -> tuple[float, float]:
    """The least and the largest γ."""
    given = np.asarray(gamma)
    if given.shape not in ((), (2,)) or given.dtype.kind not in "iuf":
        raise InputError(f"gamma is {gamma!r}, but it must be a number or a range (low, high) of two")
    low, high = np.broadcast_to(given, 2).tolist()
    return low, high


def _check_params(low, high, kappa_probe, budget, regret_budget, max_steps) -> None:
    if not (0 <= low <= high < np.inf) or (low == 0 and high > 0):
        raise InputError(
            f"gamma is {(low, high)}, but it must be a number of at least 0, or a range of positive numbers"
        )
    if not 0 <= kappa_probe < np.inf:
        raise InputError(f"kappa_probe is {kappa_probe}, but it must be a finite number of at least 0")
    if budget is not None and not 0 <= budget <= np.iinfo(np.int32).max:
        raise InputError(
            f"the token budget is {budget}, but it must be at least 0; leave it out for no limit"
        )
    if not 0 < regret_budget < np.inf:
        raise InputError(f"regret_budget is {regret_budget}, but it must be positive")
    if max_steps is not None and max_steps < 1:
        raise InputError(f"max_steps is {max_steps}, but it must be at least 1")


def _reward_mode(name: str | Reward) -> Reward:
    if isinstance(name, Reward):
        return name
    names = [mode.name.lower() for mode in Reward]
    if name not in names:
        raise InputError(f"unknown reward {name!r}; choose one of {', '.join(names)}")
    return Reward[name.upper()]


def _branches_of_cells(matrix: ProbeMatrix) -> np.ndarray:
    """Recorded branches of each cell's questions; what is beyond is padding. Shape (C,)."""
    recorded = np.sum(np.asarray(matrix.lengths) > 0, axis=1)
    cell = np.asarray(matrix.cell)
    return np.array(
        [recorded[cell == index].min(initial=matrix.num_branches) for index in range(cell.max() + 1)]
    )


@jax.jit(static_argnums=2)
def _draw_orders(key: PRNGKeyArray, branches: Int[Array, " C"], most: int) -> Int16[Array, "C R N"]:
    """Random orders of each cell's branches; the padding comes last."""
    rank = jax.random.uniform(key, (branches.shape[0], ORDERS, most))
    rank = jnp.where(jnp.arange(most) < branches[:, None, None], rank, jnp.inf)
    return jnp.argsort(rank, axis=-1).astype(jnp.int16)


def _majority_label(matrix: ProbeMatrix, question: Scalar, played: Int[Array, " W"]) -> Int32[Array, ""]:
    """The majority of the finals of the branches of a question that are not played."""
    at = (
        question * matrix.num_branches * matrix.max_depth + jnp.arange(matrix.num_branches) * matrix.max_depth
    )
    lengths = matrix.lengths[question]
    finals = jnp.asarray(matrix.answers).reshape(-1)[at + lengths].astype(jnp.int32)
    voters = jnp.asarray(lengths > 0).at[played].set(False)
    return votes.vote(finals, voters).winner(finals)


@jax.jit(static_argnums=2)
def _majority_labels(matrix: ProbeMatrix, orders: Int16[Array, "C R N"], width: int) -> Int16[Array, "Q R"]:
    def of_question(question):
        played = orders[matrix.cell[question], :, :width]
        return jax.vmap(lambda row: _majority_label(matrix, question, row))(played)

    return jax.lax.map(of_question, jnp.arange(matrix.num_questions)).astype(jnp.int16)
