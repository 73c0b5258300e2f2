"""Controllers in an environment: through the observations and actions of ``WidthDepth-v0`` alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from autotts_jax.core import stepping
from autotts_jax.core import view as views
from autotts_jax.core.controller import Controller
from autotts_jax.core.mdp import Admissible
from autotts_jax.core.stepping import Decision, Ended, Executor
from autotts_jax.core.view import Action, View
from autotts_jax.envs.observations import BRANCH_FEATURES, REVEALED_NONE, UNREVEALED
from autotts_jax.errors import InputError
from autotts_jax.replay.matrix import NONE

_COLUMN = {feature.name: column for column, feature in enumerate(BRANCH_FEATURES)}
_BRANCH, _ANSWER = 0, 1
_KINDS = ("advance", "probe", "prune")
"""Actions by branch, in the order in which `WidthDepth` numbers them."""


def play_in_environment(
    controller: Controller,
    env: gymnasium.Env,
    *,
    seed: int | None = None,
    options: dict[str, Any] | None = None,
    budget: int | None = None,
    on_decision: Callable[[Decision], None] | None = None,
) -> tuple[Ended, float]:
    """Plays one episode of an environment as a controller would.

    Before it answers it prunes the branches that disagree with the controller's own vote, so that the
    environment's answer is the controller's if an active branch gives that. Where the controller answers with
    a branch that is not finished, that takes ``aggregate="latest"``.

    Args:
        controller: any controller.
        env: ``WidthDepth-v0`` with ``obs="history"``, not fused.
        seed: seed of the episode, for ``env.reset``.
        options: question and order of the episode, for ``env.reset``.
        budget: the token budget that the environment was made with.
        on_decision: called after every part of an action that changed something.

    Returns:
        How the episode ended for the controller, and the sum of the environment's rewards.

    Raises:
        InputError: the environment is another one, or its step limit ends the episode before the controller
            answers.
    """
    executor = EnvironmentExecutor(env, seed=seed, options=options, budget=budget)
    ended = stepping.play(controller, executor, on_decision)
    executor.answer_with(ended.leader)
    return ended, executor.total_reward


class EnvironmentExecutor(Executor):
    """Carries out actions as atomic actions of an environment.

    A full read is a branch that is opened, continued to its end and probed there; the environment charges it
    as stepwise reading, and under a token budget one that does not fit is read in part.

    Args:
        env: ``WidthDepth-v0`` with ``obs="history"``, not fused.
        seed: seed of the episode, for ``env.reset``.
        options: question and order of the episode, for ``env.reset``.
        budget: the token budget that the environment was made with.

    Attributes:
        total_reward: sum of the rewards so far.

    Raises:
        InputError: the environment is another one.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,
        budget: int | None = None,
    ):
        self._env = env
        self._budget = None if budget is None else np.asarray(budget, np.int32)
        observation, info = env.reset(seed=seed, options=options)
        if not isinstance(observation, Mapping) or "history" not in observation:
            raise InputError("the observation has no history; make the environment with obs='history'")
        width = len(observation["history"])
        if len(info["action_mask"]) != 2 + 3 * width:
            raise InputError(
                "the environment has other actions than WidthDepth-v0's, or is fused; make it anew"
            )
        self._view: View
        self.total_reward = 0.0
        self._width = width
        shown = "signals" in observation
        self._signals: tuple[str, ...] = env.get_wrapper_attr("environment").signals if shown else ()
        self._depth = np.zeros(width, np.int32)
        self._charged = np.zeros(width, np.int32)
        self._labels: dict[int, int] = {}
        self._look(observation, info)

    def view(self, rounds: int = 0) -> View:
        """Shows what the observation shows."""
        return dataclasses.replace(self._view, rounds=np.asarray(rounds, np.int32))

    def carry_out(self, name: str, action: Action) -> None:
        """Carries out a part of an action by atomic actions."""
        probes = action.probe is None
        if name in ("probe", "prune"):
            for branch in np.flatnonzero(getattr(action, name)).tolist():
                self._act(name, branch)
        elif name == "advance":
            for branch, count in enumerate(np.asarray(action.advance).tolist()):
                self._advance(branch, count, probes)
        else:
            for _ in range(int(getattr(action, name))):
                branch = int(self._view.opened)
                if not self._act("open", branch):
                    return
                if name == "read":
                    self._advance(branch, self._view.max_depth, probe=False)
                if probes or name == "read":
                    self._act("probe", branch)

    def settle(self) -> None:
        """Labels what an action has revealed."""
        keys = np.asarray(self._view.revealed_keys)
        for key in dict.fromkeys(keys[keys >= 0].tolist()):
            self._labels.setdefault(key, len(self._labels))
        labels = [self._labels.get(key, NONE) for key in np.asarray(self._view.answer_keys).tolist()]
        self._view = dataclasses.replace(self._view, _labels=np.array(labels, np.int32))

    def answers(self, branches: Sequence[int]) -> list[str | None]:
        """Names the latest answers by their numbers in the history, as the environment shows no text."""
        keys = np.asarray(self._view.answer_keys)[list(branches)]
        return [None if key == NONE else str(key) for key in keys.tolist()]

    def answer_with(self, leader: int) -> None:
        """Ends the episode with the answer of a branch.

        Args:
            leader: the branch; ``NONE`` for no answer.
        """
        disagrees = np.asarray(self._view.active) & ~np.asarray(self._view.agrees(leader))
        self.carry_out("prune", Action(prune=disagrees))
        self._take(_ANSWER)

    def _advance(self, branch: int, count: int, probe: bool) -> None:
        for _ in range(count):
            if not self._act("advance", branch):
                return
            if probe:
                self._act("probe", branch)

    def _act(self, action: str, branch: int) -> bool:
        """Takes an action if it is admissible, and says whether it was."""
        number = _BRANCH if action == "open" else _ANSWER + 1 + _KINDS.index(action) * self._width + branch
        if not self._mask[number]:
            return False
        self._depth[branch] += action in ("open", "advance")
        self._take(number, branch)
        return True

    def _take(self, action: int, branch: int = 0) -> None:
        observation, reward, _, truncated, info = self._env.step(action)
        if truncated:
            raise InputError(
                "the environment's step limit ended the episode before the controller answered; make it with "
                "a larger max_steps"
            )
        self.total_reward += float(reward)
        self._charged[branch] += info["tokens"] - int(self._view.tokens)
        self._look(observation, info)

    def _look(self, observation: Mapping[str, Any], info: Mapping[str, Any]) -> None:
        history, branches = np.asarray(observation["history"], np.int32), np.asarray(observation["branches"])
        # Networks read 0 where nothing is revealed, controllers NaN.
        revealed = (history != UNREVEALED).any(axis=1, keepdims=True)
        signals = np.where(revealed, observation["signals"], np.nan) if self._signals else np.empty((0, 0))
        self._mask = np.asarray(info["action_mask"]).astype(bool)
        advance, probe, prune = self._mask[_ANSWER + 1 :].reshape(3, self._width)
        # The environment's numbers of answers are labels; it marks the rest the other way round.
        keys = np.select([history == UNREVEALED, history == REVEALED_NONE], [views.UNREVEALED, NONE], history)
        keys = keys.astype(np.int32)
        depth = np.max(np.where(keys == views.UNREVEALED, 0, np.arange(1, keys.shape[1] + 1)), axis=1)
        latest = np.take_along_axis(keys, np.maximum(depth - 1, 0)[:, None], axis=1)[:, 0]
        latest = np.where(depth > 0, latest, NONE).astype(np.int32)
        active, finished = (branches[:, _COLUMN[name]] == 1 for name in ("active", "finished"))
        opened = self._depth > 0
        can_go_on = not opened.all() or bool((active & ~finished).any())
        self._view = View(
            rounds=np.asarray(0, np.int32),
            interval=np.asarray(info["interval"], np.int32),
            budget=self._budget,
            opened=np.asarray(np.sum(opened), np.int32),
            depth=self._depth.copy(),
            active=active,
            finished=finished,
            revealed_depth=depth.astype(np.int32),
            answer_keys=latest,
            probes=np.asarray(info["probes"], np.int32),
            branch_tokens=self._charged.copy(),
            admissible=Admissible(self._mask[_BRANCH], advance, probe, prune),
            budget_spent=np.asarray(can_go_on and not (self._mask[_BRANCH] or advance.any())),
            _labels=latest,
            _revealed_keys=keys,
            _signals=dict(zip(self._signals, np.asarray(signals, np.float32).T, strict=True)),
            max_depth=keys.shape[1],
            num_keys=keys.size,
        )
