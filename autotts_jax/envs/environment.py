"""The environments' common part: functions of a key, a state, an action and parameters.

They have gymnax 1.0's signatures and return values and are written for one episode; batch them with
``jax.vmap``.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from autotts_jax.checks import check_bool, check_choice, check_float, check_int, nearest
from autotts_jax.core import keys
from autotts_jax.core.costs import EpisodeCost, critical_tokens, spent_in
from autotts_jax.core.forks import refuse_forks
from autotts_jax.core.lanes import choose
from autotts_jax.core.pool import ReplayPool
from autotts_jax.core.rollout import check_budget
from autotts_jax.core.view import Action, StopReason, View
from autotts_jax.core.votes import MOST_BRANCHES, Vote
from autotts_jax.envs import observations
from autotts_jax.envs.aggregates import AGGREGATES, Aggregate, find_aggregate
from autotts_jax.envs.observations import BRANCH_FEATURES, GLOBAL_FEATURES, Before, History, Tracker
from autotts_jax.envs.params import (
    EnvParams,
    EnvState,
    branches_of_cells,
    cost_of_models,
    different_branches,
    draw_orders,
    gamma_range,
    register_with_flax,
    reward_mode,
    with_own_buffers,
)
from autotts_jax.envs.rewards import Reward, reward
from autotts_jax.envs.spaces import Box, Dict
from autotts_jax.envs.targets import majority_target, majority_targets
from autotts_jax.errors import InputError, UnknownSettingError
from autotts_jax.replay import embedded
from autotts_jax.replay.dataset import EXACT, ProbeDataset
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.replay.parts import select_part
from autotts_jax.replay.signals import keep_signals, signal_names
from autotts_jax.terminal import counted_branches
from autotts_jax.typing import Array, Scalar

Observation = Any
"""A dict of arrays, or one array for ``obs="flat"``."""

Data = str | Path | Sequence[str | Path] | ProbeDataset | ProbeMatrix
"""What an environment replays: what `autotts_jax.replay.embedded.load` takes, or a dataset."""

OBSERVATIONS = ("features", "history", "flat")
"""What ``obs`` can be."""


_P = ParamSpec("_P")
_R = TypeVar("_R")


def _in_standard_promotion(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Runs a method with JAX's usual promotion of dtypes, whatever the caller has set."""

    @functools.wraps(method)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with jax.numpy_dtype_promotion("standard"):
            return method(*args, **kwargs)

    return run


class Functional(abc.ABC):
    """An environment as functions with gymnax 1.0's signatures. Instances hold static settings only.

    Equal ones hash alike.

    Attributes:
        reset_options: what an episode can be asked for, instead of drawing it: arguments of `reset_env`.
        max_branches: W, branches that an episode can open of a question.
    """

    reset_options: tuple[str, ...]
    max_branches: int

    def _settings(self) -> tuple[object, ...]:
        return type(self), *vars(self).items()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Functional) and self._settings() == other._settings()

    def __hash__(self) -> int:
        return hash(self._settings())

    def __repr__(self) -> str:
        named = {function: repr(name) for name, function in AGGREGATES.items()}
        settings = [f"{name}={named.get(value, repr(value))}" for name, value in vars(self).items()]
        return f"{self.name}({', '.join(settings)})"

    @classmethod
    def split_settings(cls, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Splits settings into those of the environment and those of its parameters.

        Returns:
            The arguments of the class, and those of `make_params`.

        Raises:
            UnknownSettingError: there is no such setting.
        """
        of_class = list(inspect.signature(cls).parameters)
        of_params = list(inspect.signature(cls.make_params).parameters)[2:]  # after self and the matrix
        known = [*of_class, *of_params]
        for name in settings:
            if name not in known:
                raise UnknownSettingError(
                    f"{cls.__name__} got an unexpected keyword argument {name!r}; {nearest(name, known)}"
                )
        return (
            {name: value for name, value in settings.items() if name in of_class},
            {name: value for name, value in settings.items() if name in of_params},
        )

    @classmethod
    def with_data(
        cls,
        settings: Mapping[str, Any],
        data: Data | None = None,
        encoding: str = EXACT,
        part: str | None = None,
    ) -> tuple[Self, Any, Int[np.ndarray, " Q"]]:
        """Makes the environment and its parameters over data.

        Args:
            settings: settings of the class and of its `make_params`, where ``cost`` is a name or a model.
            data: the questions; the embedded ones of `default_data` when None.
            encoding: when answers in files are equal, ``exact`` or ``equiv``.
            part: the questions of one part alone; all when None.

        Returns:
            Both, and how many branches of each question are recorded.

        Raises:
            InputError: the data or a setting is wrong.
        """
        of_class, of_params = cls.split_settings(settings)
        env = cls(**of_class)
        matrix, recorded, models = _load(env.default_data if data is None else data, encoding, part)
        if "cost" in of_params:
            if models is None:
                raise InputError(
                    "data is a matrix, which does not say of which models it is; give a dataset for a cost"
                )
            of_params["cost"] = cost_of_models(of_params["cost"], models)
        return env, env.make_params(matrix, **of_params), recorded

    @property
    def default_params(self) -> Any:
        """Parameters over the embedded synthetic data; made once."""
        return _default_params(self)

    @property
    @abc.abstractmethod
    def default_data(self) -> str:
        """Name of the embedded data that is played where none is given."""

    @property
    def name(self) -> str:
        """The environment's name."""
        return type(self).__name__

    @property
    @abc.abstractmethod
    def num_actions(self) -> int:
        """Number of actions, or of entries of an action."""

    @abc.abstractmethod
    def make_params(self, *args: Any, **kwargs: Any) -> Any:
        """Makes the parameters that the environment is played with, of a matrix and settings."""

    @abc.abstractmethod
    def action_space(self, params: Any = None) -> Any:
        """Makes the space of actions."""

    @abc.abstractmethod
    def observation_space(self, params: Any) -> spaces.Space[Any]:
        """Makes the space of observations."""

    def reset(
        self, key: PRNGKeyArray, params: Any = None, *args: Any, **kwargs: Any
    ) -> tuple[Observation, Any]:
        """Starts an episode.

        Returns:
            Observation and state.
        """
        return self.reset_env(key, params or self.default_params, *args, **kwargs)

    @_in_standard_promotion
    def step(
        self, key: PRNGKeyArray, state: Any, action: Array, params: Any = None
    ) -> tuple[Observation, Any, Array, Array, Array, dict[str, Any]]:
        """Takes a step; an episode that ends with it is followed by the first state of the next one.

        Returns:
            Observation, state, reward, terminated, truncated and info.
        """
        params = params or self.default_params
        # The keys of a split, one by one: the first one is hardly ever used, and then not made.
        stepping, starting = (keys.fold_in(key, part) for part in range(2))
        final, stepped, reward, terminated, info = self.step_env(stepping, state, action, params)
        truncated = ~terminated & self.is_truncated(stepped, params)
        done = terminated | truncated
        started = self.reset_env(starting, params)[1]
        state = choose(done, started, stepped)
        info |= {"terminated": terminated, "truncated": truncated, "final_observation": final}
        return self.get_obs(state, params), state, reward, terminated, truncated, info

    @abc.abstractmethod
    def reset_env(
        self, key: PRNGKeyArray, params: Any, *options: Any, **named: Any
    ) -> tuple[Observation, Any]:
        """Starts an episode."""

    @abc.abstractmethod
    def step_env(
        self, key: PRNGKeyArray, state: Any, action: Array, params: Any
    ) -> tuple[Observation, Any, Array, Array, dict[str, Any]]:
        """Takes a step without auto-reset."""

    @abc.abstractmethod
    def get_obs(self, state: Any, params: Any) -> Observation:
        """Makes the observation of a state."""

    @abc.abstractmethod
    def first_info(self, state: Any, params: Any) -> dict[str, Any]:
        """Gives the entries of an episode's first ``info`` that are not all 0 or False."""

    def is_terminated(self, state: Any, params: Any) -> Bool[Array, ""]:  # noqa: ARG002
        """Returns False: a step tells whether it has terminated the episode."""
        return jnp.bool_(False)

    @abc.abstractmethod
    def is_truncated(self, state: Any, params: Any) -> Bool[Array, ""]:
        """Decides whether the step limit was reached."""

    def _recorded_branches(self, matrix: Any) -> np.ndarray:
        """How many branches each cell's questions have, if episodes over the matrix can be played."""
        refuse_forks()
        if not isinstance(matrix, ProbeMatrix):
            raise InputError(
                f"matrix is a {type(matrix).__name__}, but it must be a ProbeMatrix, as dataset.matrix is"
            )
        branches = branches_of_cells(matrix)
        if branches.min() < self.max_branches:
            raise InputError(
                f"the matrix has {counted_branches(branches.min())} a question, fewer than the "
                f"{self.max_branches} that an episode can open; give max_branches={branches.min()} or less"
            )
        return branches

    def _check_width(self, params: Any) -> None:
        if params.max_branches != self.max_branches:
            raise InputError(
                f"the parameters were made for max_branches={params.max_branches}, but the environment has "
                f"{self.max_branches}; make them with its make_params"
            )

    def _check(self, params: Any, question: Any = None, order: Any = None, gamma: Any = None) -> None:
        """Checks what is known when a function is traced."""
        self._check_width(params)
        if isinstance(question, int | float | np.generic):
            check_int("question", question, 0, params.matrix.num_questions - 1)
        if isinstance(gamma, int | float | np.generic):
            gamma_range(check_float("gamma", gamma, 0))
        if order is not None:
            self._check_order(order, params.matrix.num_branches)

    def _check_order(self, order: Any, recorded: int) -> None:
        """Checks branches in opening order; which ones they are is known when they are not a JAX array."""
        width, known = self.max_branches, not isinstance(order, jax.Array)
        array = np.asarray(order) if known else order
        if array.shape != (width,) or not jnp.issubdtype(array.dtype, jnp.integer):
            raise InputError(
                f"order has shape {array.shape} and dtype {array.dtype}, but it must name {width} branches, "
                f"integers of shape ({width},)"
            )
        if known and not different_branches(array, recorded):
            raise InputError(f"order must name {width} different branches of 0 … {recorded - 1}")


class Environment(Functional):
    """The common part of all environments. Instances hold static settings only; equal ones hash alike.

    **Reset.** An episode draws a question uniformly, one of the branch orders of its cell, and γ.

    **Step.** An inadmissible action, or an inadmissible part of one, changes nothing; it counts as a step and
    is flagged in ``info["invalid_action"]``.

    **Observation**, by ``obs``:

    - ``features``: ``{"branches": float32 (W, F), "globals": float32 (G,), "action_mask": bool (A,)}``, see
      `observations.BRANCH_FEATURES` and `observations.GLOBAL_FEATURES`;
    - ``history``: the same and ``"history"``: int16 (W, K), everything revealed as relabelled ids;
    - ``flat``: branches and globals as one float32 vector (W·F + G,); the mask is in ``info`` alone, or with
      ``mask_in_obs`` beside the vector: ``{"observations": float32 (W·F + G,), "action_mask": bool (A,)}``.

    With ``signals`` the first two also have ``"signals"``: float32 (W, S), see `observations.branch_signals`,
    and the vector ends with its rows, W·S more entries.

    **Reward**: see `rewards.Reward`.

    **End.** ANSWER terminates; the step limit truncates.

    **Info**: ``invalid_action``; ``tokens``, ``intervals``, ``probes``, ``cost`` (C in intervals, or in
    units of a lone first one) so far;
    ``interval``, Δ in tokens; ``question``; ``answer``, the id that would be answered now, and ``correct``,
    whether it is the gold one (both for measuring, never for a policy); ``action_mask`` of the state it
    belongs to. From `step` also ``terminated``, ``truncated`` and ``final_observation``, which is the
    observation before any auto-reset.

    Args:
        max_branches: W, branches that an episode can open.
        obs: ``features``, ``history`` or ``flat``.
        aggregate: how the final answer is found: a name in `AGGREGATES` or your own function.
        mask_in_obs: the action mask is in every observation, in Gymnasium too.
        signals: names of the S signals that are observed; views show no others.

    Raises:
        InputError: one of them is something else, or out of range.
    """

    reset_options = ("question", "order", "gamma")
    atomic = False
    """Whether a step reveals answers of, or prunes, one branch at most."""

    def __init__(
        self,
        max_branches: int = 64,
        *,
        obs: str = "features",
        aggregate: str | Aggregate = "majority",
        mask_in_obs: bool = False,
        signals: Sequence[str] = (),
    ):
        check_choice("observation", obs, OBSERVATIONS)
        self.max_branches = check_int("max_branches", max_branches, 1, MOST_BRANCHES)
        self.obs = obs
        self.aggregate = find_aggregate(aggregate)
        self.mask_in_obs = check_bool("mask_in_obs", mask_in_obs)
        self.signals = signal_names(signals)

    # --- parameters and spaces ---------------------------------------------------------------------------

    @_in_standard_promotion
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
        cost: EpisodeCost | None = None,
        seed: int = 0,
    ) -> EnvParams:
        """Makes the parameters that the environment is played with.

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
            cost: what an episode costs, made by `cost_of_models`; None for intervals.
            seed: the seed of the branch orders, in 0 … 2³² - 1.

        Raises:
            InputError: a value is out of range, the matrix lacks a signal that is observed or has fewer
                branches than ``max_branches``, or this process is a fork of one that has used JAX.
        """
        branches = self._recorded_branches(matrix)
        low, high = gamma_range(gamma)
        check_float("kappa_probe", kappa_probe, least=0)
        check_float("regret_budget", regret_budget, above=0)
        check_float("progress_weight", progress_weight)
        check_float("invalid_penalty", invalid_penalty)
        if cost is not None and not isinstance(cost, EpisodeCost):
            raise InputError(
                f"cost is {cost!r:.60}, but it must be what autotts_jax.envs.cost_of_models has returned; "
                "autotts_jax.make takes names"
            )
        if cost is not None and kappa_probe:
            raise InputError(
                f"kappa_probe is counted in intervals; leave it out where the cost is {cost.kind}"
            )
        budget = check_budget(budget)
        if max_steps is not None:
            check_int("max_steps", max_steps, 1, np.iinfo(np.int32).max)
        mode, width = reward_mode(reward), self.max_branches
        if mode == Reward.MAJORITY and branches.min() == width:
            raise InputError(
                f"reward 'majority' votes among branches that are not played, but all {width} can be; "
                "give a smaller max_branches"
            )
        matrix = jax.device_put(keep_signals(matrix, self.signals, self.name))
        orders = draw_orders(matrix, branches, seed)
        targets = majority_targets(matrix, orders, width) if mode == Reward.MAJORITY else None
        return EnvParams(
            matrix=matrix,
            orders=orders,
            targets=targets,
            gamma_low=jnp.float32(low),
            gamma_high=jnp.float32(high),
            kappa_probe=jnp.float32(kappa_probe),
            budget=None if budget is None else jnp.int32(budget),
            reward=jnp.int32(mode),
            progress_weight=jnp.float32(progress_weight),
            regret_budget=jnp.float32(regret_budget),
            invalid_penalty=jnp.float32(invalid_penalty),
            max_steps_in_episode=jnp.int32(
                self.default_max_steps(matrix.max_depth) if max_steps is None else max_steps
            ),
            cost=cost,
            max_branches=width,
        )

    @property
    def default_data(self) -> str:
        """Name of the embedded data that is played where none is given."""
        return "synthetic-signals" if self.signals else "synthetic"

    @abc.abstractmethod
    def default_max_steps(self, max_depth: int) -> int:
        """The default step limit.

        Args:
            max_depth: K, the largest readable depth of any branch.
        """

    @abc.abstractmethod
    def action_space(self, params: EnvParams | None = None) -> spaces.Discrete | spaces.MultiDiscrete:
        """Makes the space of actions.

        Args:
            params: not used; all parameters have the same space.
        """

    def observation_space(self, params: EnvParams) -> spaces.Space[Any]:
        """Makes the space of observations.

        Args:
            params: the parameters.
        """
        width = self.max_branches
        branches = np.tile(np.array([feature.high for feature in BRANCH_FEATURES], np.float32), (width, 1))
        whole = np.array([feature.high for feature in GLOBAL_FEATURES], np.float32)
        options = self.action_space(params)
        num_options = int(options.n if isinstance(options, spaces.Discrete) else options.nvec.sum())
        mask = _box(np.ones(num_options, bool))
        most = np.full((width, len(self.signals)), observations.LARGEST_SIGNAL, np.float32)
        if self.obs == "flat":
            high = np.concatenate([branches.reshape(-1), whole, most.reshape(-1)])
            vector = Box(np.where(np.arange(high.size) < high.size - most.size, 0, -high), high)
            return Dict({"observations": vector, "action_mask": mask}) if self.mask_in_obs else vector
        parts: dict[str, spaces.Space[Any]] = {"branches": _box(branches), "globals": _box(whole)}
        if self.signals:
            parts["signals"] = Box(-most, most)
        if self.obs == "history":
            shape = (width, params.matrix.max_depth)
            last = max(params.matrix.vocabulary - 1, 0)
            parts["history"] = Box(observations.REVEALED_NONE, last, shape, np.int16)
        return Dict(parts | {"action_mask": mask})

    # --- the contract of gymnax --------------------------------------------------------------------------

    def reset(
        self,
        key: PRNGKeyArray,
        params: EnvParams | None = None,
        *,
        question: Scalar | None = None,
        order: Int[Array, " W"] | None = None,
        gamma: Scalar | None = None,
    ) -> tuple[Observation, EnvState]:
        """Starts an episode.

        Args:
            key: random key of the episode.
            params: the parameters; `default_params` when None.
            question: index of the question; drawn when None.
            order: branches in opening order; drawn when None.
            gamma: γ; drawn from the range of the parameters when None.

        Returns:
            Observation and state.

        Raises:
            InputError: the parameters are of another width, ``order`` is not W branches, or ``question`` or
                ``gamma`` is out of range (known when it is not an array).
        """
        return self.reset_env(key, params or self.default_params, question, order, gamma)

    @_in_standard_promotion
    def reset_env(
        self,
        key: PRNGKeyArray,
        params: EnvParams,
        question: Scalar | None = None,
        order: Int[Array, " W"] | None = None,
        gamma: Scalar | None = None,
    ) -> tuple[Observation, EnvState]:
        """Starts an episode; as `reset`, but the parameters have no default.

        Args:
            key: random key of the episode.
            params: the parameters.
            question: index of the question; drawn when None.
            order: branches in opening order; drawn when None.
            gamma: γ; drawn from the range of the parameters when None.

        Raises:
            InputError: see `reset`.
        """
        self._check(params, question, order, gamma)
        register_with_flax(EnvState)
        matrix = params.matrix
        # One draw of three words; the bias of a remainder is below 1e-6 for fewer than 4,000 questions.
        word = keys.bits(key, 3)
        if question is None:
            question = (word[0] % matrix.num_questions).astype(jnp.int32)
        question = jnp.asarray(question, jnp.int32)
        if order is None:
            row = word[1] % params.orders.num_rows
            played = params.orders.of(question, row)[: self.max_branches]
            target = matrix.gold[question] if params.targets is None else params.targets[question, row]
        else:
            played = order
            target = matrix.gold[question]
            if params.targets is not None:
                target = majority_target(matrix, question, played)
        if gamma is None:
            share = word[2].astype(jnp.float32) / 2.0**32
            log_low, log_high = jnp.log(params.gamma_low), jnp.log(params.gamma_high)
            drawn = jnp.exp(log_low + share * (log_high - log_low))
            gamma = jnp.where(params.gamma_low < params.gamma_high, drawn, params.gamma_low)
        pool = ReplayPool.begin(
            matrix,
            question,
            jnp.asarray(played, jnp.int32),
            params.budget,
            labels=self._keeps_all,
            revealed=self.obs == "history" or self._keeps_all,
            equivalence=False,
            batches=False,
        )
        state = EnvState(
            pool=pool.without_matrix(),
            tracker=observations.start_tracking(self.max_branches, self.atomic),
            history=observations.start_history(pool.view()) if self.obs == "history" else None,
            question=question,
            target=jnp.asarray(target, jnp.int32),
            answer=jnp.int32(NONE),
            gamma=jnp.asarray(gamma, jnp.float32),
            time=jnp.int32(0),
            critical_path=jnp.int32(0) if params.cost is not None and params.cost.waits else None,
        )
        state = with_own_buffers(state)
        return self._first_observation(state, params), state

    @_in_standard_promotion
    def step_env(
        self,
        key: PRNGKeyArray,  # noqa: ARG002
        state: EnvState,
        action: Array,
        params: EnvParams,
    ) -> tuple[Observation, EnvState, Array, Array, dict[str, Any]]:
        """Takes a step without auto-reset.

        Args:
            key: not used; steps are deterministic.
            state: the state.
            action: the action.
            params: the parameters.

        Returns:
            Observation, state, reward, terminated and info. `is_truncated` tells a truncation.

        Raises:
            InputError: the parameters or the state are of another width, or the aggregation returns no vote.
        """
        self._check(params)
        if state.pool.width != self.max_branches:
            raise InputError(
                f"the state has {state.pool.width} branches, but the environment {self.max_branches}; step "
                "with the environment that reset was called on"
            )
        shape = self.action_space(params).shape or ()
        if not jnp.issubdtype(jnp.result_type(action), jnp.integer) or jnp.shape(action) != shape:
            raise InputError(
                f"an action must be {f'integers of shape {shape}' if shape else 'an integer'}, but it is "
                f"{action!r:.60}"
            )
        before = state.pool.with_matrix(params.matrix)
        looked = before.view(state.time)
        decoded, invalid = self.decode(looked, action)
        answered = jnp.asarray(decoded.stop) != StopReason.RUNNING
        after = before.step(decoded)
        view = after.view(state.time + 1)
        tracker = observations.track(state.tracker, Before.of(looked), view, self.atomic)
        vote = self.aggregate(view, tracker)
        if not isinstance(vote, Vote):
            raise InputError(
                f"aggregate returns a {type(vote).__name__}, but it must return a Vote, as view.vote does"
            )
        answer = view.answer_key(vote.leader)
        critical_path = critical_tokens(state.critical_path, before, after)
        cost = _cost(after, params, state.question, critical_path)
        worth = reward(
            params.reward,
            answered,
            (state.answer == state.target) & (state.answer != NONE),
            (answer == state.target) & (answer != NONE),
            _cost(before, params, state.question, state.critical_path),
            cost,
            state.gamma,
            params.progress_weight,
            params.regret_budget,
        )
        history = state.history and observations.extend_history(state.history, view)
        stepped = dataclasses.replace(
            state,
            pool=after.without_matrix(),
            tracker=tracker,
            history=history,
            answer=answer,
            time=state.time + 1,
            critical_path=critical_path,
        )
        info = {
            "invalid_action": invalid,
            "tokens": after.tokens,
            "intervals": after.intervals,
            "probes": after.probes,
            "cost": cost,
            "interval": after.interval,
            "question": state.question,
            "answer": answer,
            "correct": (answer == params.matrix.gold[state.question]) & (answer != NONE),
            "action_mask": self.action_mask(view),
        }
        worth -= jnp.where(invalid, params.invalid_penalty, 0.0)
        stepped = with_own_buffers(stepped)
        return self.get_obs(stepped, params), stepped, worth, answered, info

    @_in_standard_promotion
    def get_obs(self, state: EnvState, params: EnvParams) -> Observation:
        """Makes the observation of a state.

        Args:
            state: the state.
            params: the parameters.
        """
        view = state.pool.with_matrix(params.matrix).view(state.time)
        return self.observe(
            view, state.tracker, state.history, state.time, params.max_steps_in_episode, state.gamma
        )

    def first_info(self, state: EnvState, params: EnvParams) -> dict[str, Any]:
        """Gives the entries of an episode's first ``info`` that are not all 0 or False.

        Args:
            state: the state.
            params: the parameters.
        """
        return {
            "interval": state.pool.hidden.interval,
            "question": state.question,
            "answer": state.answer,
            "action_mask": self.action_mask(state.pool.unopened(params.matrix).view()),
        }

    def is_truncated(self, state: EnvState, params: EnvParams) -> Bool[Array, ""]:
        """Decides whether the step limit was reached.

        Args:
            state: the state.
            params: the parameters.
        """
        return state.time >= params.max_steps_in_episode

    @property
    def _keeps_all(self) -> bool:
        """Whether pools keep what only a custom aggregate may ask for."""
        return self.aggregate not in AGGREGATES.values()

    # --- what a policy can be played with, outside an environment too ------------------------------------

    @abc.abstractmethod
    def decode(self, view: View, action: Array) -> tuple[Action, Bool[Array, ""]]:
        """Says what an action of this environment does, in an environment or outside.

        Args:
            view: what the episode has revealed.
            action: the action.

        Returns:
            What to do, which for ANSWER is to stop alone; and whether the action or a part of it is
            inadmissible.
        """

    @abc.abstractmethod
    def action_mask(self, view: View) -> Bool[Array, " A"]:
        """Finds the admissible actions, or options of each entry of an action.

        Args:
            view: what the episode has revealed.
        """

    def observe(
        self,
        view: View,
        tracker: Tracker,
        history: History | None,
        time: Scalar,
        max_steps: Scalar,
        gamma: Float[Array, ""],
    ) -> Observation:
        """Makes the observation of an episode, in an environment or outside.

        Args:
            view: what the episode has revealed.
            tracker: what the steps have shown.
            history: all that was revealed; None unless it is observed.
            time: steps taken.
            max_steps: the step limit.
            gamma: γ, the price of an interval.
        """
        counts = observations.vote_counts(view, tracker)
        branches = observations.branch_features(counts, tracker)
        whole = observations.global_features(counts, time, max_steps, gamma)
        shown = {"signals": observations.branch_signals(view, self.signals)} if self.signals else {}
        if self.obs == "flat":
            rows = [values.reshape(-1) for values in shown.values()]
            vector = jnp.concatenate([branches.reshape(-1), whole, *rows])
            if not self.mask_in_obs:
                return vector
            return {"observations": vector, "action_mask": self.action_mask(view)}
        seen = {"branches": branches, "globals": whole, "action_mask": self.action_mask(view)} | shown
        return seen if history is None else seen | {"history": history.shown}

    def _first_observation(self, state: EnvState, params: EnvParams) -> Observation:
        """The observation of a state in which nothing was opened.

        It hardly depends on the episode, so under ``vmap`` almost nothing of it is computed for every lane.
        """
        view = state.pool.unopened(params.matrix).view()
        history = None if state.history is None else observations.start_history(view)
        tracker = observations.start_tracking(view.width, self.atomic)
        return self.observe(view, tracker, history, 0, params.max_steps_in_episode, state.gamma)


@functools.lru_cache(maxsize=8)
def _default_params(env: Functional) -> Any:
    with jax.ensure_compile_time_eval():  # under jit they would be traced, and not for keeping
        return env.make_params(embedded.load(env.default_data).matrix)


def _load(
    data: Data, encoding: str, part: str | None
) -> tuple[ProbeMatrix, Int[np.ndarray, " Q"], list[str] | None]:
    """The probe matrix, how many branches of each question are recorded, and the model of each cell."""
    if isinstance(data, ProbeMatrix):
        if part is not None:
            raise InputError(
                "data is a matrix, whose questions have no texts to deal into parts; give a dataset"
            )
        return data, np.full(data.num_questions, data.num_branches), None
    if not isinstance(data, ProbeDataset):
        data = embedded.load(data, encoding)
    data.warn_without_probes()
    if part is not None:
        data = select_part(data, part)
    branches = np.array([cell.num_branches for cell in data.cells])
    return data.matrix, branches[data.matrix.cell], [cell.model for cell in data.cells]


def _cost(
    pool: ReplayPool, params: EnvParams, question: Int[Array, ""], critical_path: Int[Array, ""] | None
) -> Float[Array, ""]:
    """C = Σ l_i + κ_probe·#Ω, or another cost, in intervals."""
    if params.cost is None:
        return pool.intervals + params.kappa_probe * pool.probes
    cost = params.cost.of_cells(jnp.asarray(params.matrix.cell)[question])
    return cost.in_intervals(spent_in(pool, critical_path))


def _box(high: np.ndarray) -> Box:
    """From 0 to some bounds, in their dtype."""
    return Box(np.zeros_like(high), high, dtype=high.dtype.type)
