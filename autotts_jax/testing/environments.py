"""A conformance check for environments: what trainers and policies rely on, tried in random play.

For whoever changes `WidthDepth` or `WidthDepthRounds` or derives an environment from them; in the spirit of
``pgx.api_test``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from autotts_jax.core.scrambling import Revealed, scramble
from autotts_jax.envs.environment import Environment
from autotts_jax.envs.params import EnvParams, EnvState
from autotts_jax.envs.rewards import Reward
from autotts_jax.errors import InputError
from autotts_jax.replay.matrix import NONE, ProbeMatrix

INFO = (
    "invalid_action",
    "tokens",
    "intervals",
    "probes",
    "cost",
    "interval",
    "question",
    "answer",
    "correct",
    "action_mask",
    "terminated",
    "truncated",
    "final_observation",
)
"""What ``info`` holds after a step."""

ANSWER = 1
"""ANSWER is this option of the first entry of an action, the only one of an atomic action."""

EXTREMES = (-1, np.iinfo(np.int32).min, np.iinfo(np.int32).max)
SHORT_EPISODE = 5


def check_functional_env(
    env: Environment,
    matrix: ProbeMatrix,
    *,
    episodes: int = 8,
    steps: int = 64,
    seed: int = 0,
    check_rewards: bool = True,
    **settings: Any,
) -> None:
    """Plays random episodes in an environment and checks what is expected of all.

    Half of the episodes are played by a random admissible policy, the other half with arbitrary actions, ones
    out of range included. Checked are: the signatures and return values of gymnax 1.0; shapes and dtypes;
    observations against the observation space; masks, and that an inadmissible action changes nothing and is
    flagged; cost and tokens; that rewards are finite, and for ``outcome`` and ``majority`` their sum; ends,
    auto-reset and final observation; ``jit`` and ``vmap`` against plain calls; compilations; determinism; and
    that nothing unrevealed is seen.

    An environment must keep the base class's state, parameters and conventions: its action space is
    ``Discrete`` with ANSWER as action 1, or ``MultiDiscrete`` with ANSWER as option 1 of the first entry and
    0 as the option of each entry that does nothing.

    Args:
        env: the environment.
        matrix: what it is played on; a small one is enough.
        episodes: episodes played side by side, at least 2.
        steps: steps played in each.
        seed: what questions, orders and actions are drawn with.
        check_rewards: rewards must sum to the objective; False for an environment with rewards of its own.
        settings: what else `Environment.make_params` takes.

    Raises:
        AssertionError: something does not hold; the message says what, and what to look at.
        InputError: ``env`` is not an environment, or a setting is wrong.
    """
    if not isinstance(env, Environment):
        raise InputError(f"env is {env!r:.60}, but it must be an autotts_jax.envs.Environment")
    params = env.make_params(matrix, **{"seed": seed} | settings)
    rng = np.random.default_rng(seed)
    play = _Play(env, params, episodes, steps)
    _check_contract(play, params)
    limits = (params, params.replace(max_steps_in_episode=jnp.int32(SHORT_EPISODE)))
    tapes = [play.at_random(rng, limited) for limited in limits]
    _require(
        play.compilations == 1,
        f"step was compiled {play.compilations} times for one shape of arguments: keep static fields, dtypes "
        "and weak types of the state as they are at reset",
    )
    for limited, tape in zip(limits, tapes, strict=True):
        _check_observations(env, limited, tape)
        _check_masks(tape)
        _check_inadmissible(play, limited, tape)
        _check_accounts(limited, tape)
        _check_ends(limited, tape)
        _check_answers(limited, tape)
        _nowhere(~np.isfinite(tape.reward), "a reward is not finite", tape)
        if check_rewards:
            _check_rewards(limited, tape)
    _check_plain_calls(play, params, tapes[0])
    _check_draws(play, params)
    # Near a token budget the mask itself says whether the next interval fits.
    unlimited = params.replace(budget=None, max_steps_in_episode=jnp.int32(steps + 1))
    hiding = play if params.budget is None else _Play(env, unlimited, episodes, steps)
    _check_leaks(hiding, rng, unlimited)


class _Tape(NamedTuple):
    """What was played. Leading axes: step (T), episode (E)."""

    before: EnvState
    obs: Any
    """The observation that belongs to ``before``, from `reset` or the step before."""
    obs_again: Any
    """The same from `Environment.get_obs`."""
    mask: np.ndarray
    """The mask of ``before``. Shape (T, E, A)."""
    options: np.ndarray
    """The same by entry and option. Shape (T, E, entries, options)."""
    action: np.ndarray
    """Shape (T, E, entries)."""
    next_obs: Any
    after: EnvState
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    info: dict[str, Any]

    @property
    def done(self) -> np.ndarray:
        return self.terminated | self.truncated

    @property
    def admissible(self) -> np.ndarray:
        """Whether each entry of each action is. Shape (T, E, entries)."""
        most = self.options.shape[-1]
        inside = (self.action >= 0) & (self.action < most)
        option = np.clip(self.action, 0, most - 1)[..., None]
        return inside & np.take_along_axis(self.options, option, axis=-1)[..., 0]

    @property
    def answered(self) -> np.ndarray:
        return self.action[..., 0] == ANSWER


class _Play:
    """An environment compiled once, for several episodes side by side."""

    def __init__(self, env: Environment, params: EnvParams, episodes: int, steps: int):
        self.env, self.episodes, self.steps = env, episodes, steps
        self.compilations = 0
        space = env.action_space(params)
        if not isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
            raise AssertionError(
                f"the action space is {space}; only Discrete and MultiDiscrete can be checked"
            )
        self.entries = np.array(space.n if isinstance(space, spaces.Discrete) else space.nvec).reshape(-1)
        self.shape = () if isinstance(space, spaces.Discrete) else space.shape
        self.exists = np.arange(self.entries.max()) < self.entries[:, None]
        self.reset = jax.jit(jax.vmap(env.reset, (0, None)))
        self.begin = jax.jit(jax.vmap(self._begin, (0, None, 0, 0)))
        self.step = jax.jit(jax.vmap(self._step, (0, 0, 0, None)))
        self.look = jax.jit(jax.vmap(self._look, (0, None)))

    def _begin(self, key: jax.Array, params: EnvParams, question: jax.Array, order: jax.Array) -> Any:
        return self.env.reset(key, params, question=question, order=order)

    def _step(self, key: jax.Array, state: EnvState, action: jax.Array, params: EnvParams) -> Any:
        self.compilations += 1  # Python runs this while tracing only.
        return self.env.step(key, state, action, params)

    def _look(self, state: EnvState, params: EnvParams) -> Any:
        pool = state.pool.with_matrix(params.matrix)
        return self.env.get_obs(state, params), self.env.action_mask(pool.view(state.time))

    def keys(self, step: int) -> jax.Array:
        return jax.random.split(jax.random.key(step), self.episodes)

    def encode(self, entries: np.ndarray) -> jax.Array:
        """Actions as the environment takes them. Shape (E, *action shape)."""
        return jnp.asarray(entries.reshape(self.episodes, *self.shape), jnp.int32)

    def options(self, mask: Any) -> np.ndarray:
        """The options of each entry, from flat masks. Shape (E, entries, options)."""
        _require(
            mask.shape == (self.episodes, self.entries.sum()),
            f"action masks have shape {mask.shape[1:]}, but the action space has {self.exists.sum()} options",
        )
        options = np.zeros((self.episodes, *self.exists.shape), bool)
        options[:, self.exists] = mask
        return options

    def along(
        self, params: EnvParams, first: tuple[Any, EnvState], choose: Callable[[int, np.ndarray], np.ndarray]
    ) -> _Tape:
        """Plays from a first observation and state; ``choose`` makes actions of the step and the options."""
        obs, state = first
        rows = []
        for step in range(self.steps):
            again, mask = self.look(state, params)
            options = self.options(mask)
            action = choose(step, options)
            done = self.step(self.keys(step + 1), state, self.encode(action), params)
            rows.append(jax.device_get((state, obs, again, mask, options, action, *done)))
            obs, state = done[:2]
        return _Tape(*jax.tree.map(lambda *leaves: np.stack(leaves), *rows))

    def at_random(self, rng: np.random.Generator, params: EnvParams) -> _Tape:
        """Random episodes, half of them with admissible actions only."""
        choose = self.chooser(rng)

        def answering(step: int, options: np.ndarray) -> np.ndarray:
            action = choose(step, options)
            stuck = ~options.any(-1).all(-1)
            ends = (rng.random(self.episodes) < 0.05) | stuck
            action[ends] = 0
            action[ends, 0] = ANSWER
            return action

        return self.along(params, self.reset(self.keys(0), params), answering)

    def chooser(self, rng: np.random.Generator) -> Callable[[int, np.ndarray], np.ndarray]:
        """A random policy that does not answer; every second episode's is wild half of the time.

        Each episode has preferences of its own, so that some read deep and others open many branches.
        """
        taste = rng.gamma(0.3, size=(self.episodes, *self.exists.shape)) + 1e-3
        pruning = taste[:, 2:, 1] if self.shape else taste[..., -self.env.max_branches :]
        pruning *= 0.02  # where much is pruned, little is left to be read
        wild_episode = np.arange(self.episodes)[:, None] % 2 == 1

        def choose(_: int, options: np.ndarray) -> np.ndarray:
            options = options.copy()
            options[:, 0, ANSWER] = False
            race = np.where(options, rng.exponential(size=options.shape) / taste, np.inf)
            action = race.argmin(-1)
            shape = action.shape
            anything = rng.integers(-2, self.entries + 3, size=shape)
            anything = np.where(rng.random(shape) < 0.1, rng.choice(EXTREMES, size=shape), anything)
            action = np.where(wild_episode & (rng.random(shape) < 0.5), anything, action)
            action[:, 0] = np.where(action[:, 0] == ANSWER, 0, action[:, 0])
            return action

        return choose


# --- the checks, in the order in which they are made -----------------------------------------------------


def _check_contract(play: _Play, params: EnvParams) -> None:
    """Signatures, return values, shapes and dtypes."""
    begun = _call("reset", play.reset, play.keys(0), params)
    _require(isinstance(begun, tuple) and len(begun) == 2, "reset must return a pair: observation and state")
    obs, state = begun
    action = play.encode(np.zeros((play.episodes, len(play.entries)), int))
    done = _call("step", play.step, play.keys(1), state, action, params)
    _require(
        isinstance(done, tuple) and len(done) == 6,
        "step must return six values: observation, state, reward, terminated, truncated and info",
    )
    next_obs, next_state, reward, terminated, truncated, info = done
    for name, first, other in (("observation", obs, next_obs), ("state", state, next_state)):
        changed = _difference(_types(first), _types(other))
        _require(
            changed is None,
            f"the {name} of step differs from that of reset in the shape, dtype or weak type of {changed}",
        )
    scalars = (
        ("reward", reward, np.float32),
        ("terminated", terminated, bool),
        ("truncated", truncated, bool),
    )
    for name, value, dtype in scalars:
        _require(
            value.shape == (play.episodes,) and value.dtype == dtype,
            f"{name} must be a scalar of {np.dtype(dtype)}, not {value.dtype} {value.shape[1:]}",
        )
    missing = [name for name in INFO if name not in info]
    _require(
        not missing, f"info lacks {', '.join(missing)}; start from the info of the base class's step_env"
    )


def _check_observations(env: Environment, params: EnvParams, tape: _Tape) -> None:
    """Observations belong to their state and lie in the declared space."""
    space = env.observation_space(params)
    parts = space.spaces if isinstance(space, spaces.Dict) else {None: space}
    for obs in (tape.obs, tape.info["final_observation"]):
        extra = set(obs) - set(parts) if isinstance(obs, dict) else set()
        _require(not extra, f"observations have {', '.join(extra)}, of which observation_space knows nothing")
        for name, part in parts.items():
            values = obs if name is None else obs.get(name)
            _require(values is not None, f"observations lack {name!r} of observation_space")
            label = "observations" if name is None else f"observations[{name!r}]"
            _require(
                values.dtype == part.dtype,
                f"{label} are {values.dtype}, but observation_space says {part.dtype}",
            )
            outside = [[not part.contains(np.asarray(value)) for value in row] for row in values]
            _nowhere(outside, f"{label} lie outside observation_space {part}: scale or clip them", tape)
    _nowhere(
        _differ(tape.obs, tape.obs_again),
        "the observation is not that of get_obs for the state that comes with it: reset, step and auto-reset "
        "must give both of the same episode",
        tape,
    )
    _nowhere(
        _differ(tape.next_obs, tape.info["final_observation"]) & ~tape.done,
        "final_observation is not the observation although the episode goes on",
        tape,
    )


def _check_masks(tape: _Tape) -> None:
    _nowhere(~tape.options.any(-1).all(-1), "an action mask leaves nothing to choose", tape)
    _nowhere(~tape.options[..., 0, ANSWER], "the mask forbids ANSWER, which is always admissible", tape)
    told = tape.info["action_mask"][:-1]
    _nowhere(
        np.any(tape.mask[1:] != told, axis=-1) & ~tape.done[:-1],
        "info['action_mask'] is not that of action_mask for the state after the step",
        tape,
    )
    if isinstance(tape.obs, dict) and "action_mask" in tape.obs:
        differs = np.any(tape.mask != tape.obs["action_mask"], axis=-1)
        _nowhere(differs, "obs['action_mask'] is not that of action_mask for the same state", tape)


def _check_inadmissible(play: _Play, params: EnvParams, tape: _Tape) -> None:
    """What is masked out does nothing and is flagged; what is not is not."""
    expected = ~tape.admissible.all(-1) & ~tape.answered
    flagged = tape.info["invalid_action"]
    _nowhere(
        expected & ~flagged,
        "an action that the mask forbids is not flagged: set info['invalid_action'], or mend the mask",
        tape,
    )
    _nowhere(
        flagged & ~expected,
        "an action that the mask admits is flagged in info['invalid_action']: mend decode or the mask",
        tape,
    )
    _nowhere(
        expected & ~tape.done & _differ(_still(tape.before), _still(tape.after)) & _idle(tape),
        "an action that the mask forbids changes more of the state than its time",
        tape,
    )
    if play.shape == ():
        return
    for step in range(0, play.steps, max(play.steps // 16, 1)):
        row = _at(tape, step)
        cleaned = np.where(row.admissible, row.action, 0)
        state = play.step(play.keys(step + 1), row.before, play.encode(cleaned), params)[1]
        other = _differ(row.after, jax.device_get(state), axes=1)
        _require(
            not other.any(),
            f"an entry that the mask forbids has an effect: actions {row.action[other].tolist()} and "
            f"{cleaned[other].tolist()} lead to different states",
        )


def _check_accounts(params: EnvParams, tape: _Tape) -> None:
    """Cost and tokens."""
    info = tape.info
    # Other costs are estimates, which can fall a little where a branch ends.
    for name in ("tokens", "intervals", "probes", *["cost"] * (params.cost is None)):
        _nowhere(
            (info[name][1:] < info[name][:-1]) & ~tape.done[:-1],
            f"info[{name!r}] falls within an episode",
            tape,
        )
    if params.cost is not None:
        return
    cost = info["intervals"] + float(params.kappa_probe) * info["probes"]
    _nowhere(~np.isclose(info["cost"], cost), "info['cost'] is not intervals + kappa_probe * probes", tape)


def _check_ends(params: EnvParams, tape: _Tape) -> None:
    """Termination, truncation and auto-reset."""
    limit = int(params.max_steps_in_episode)
    _nowhere(tape.terminated & tape.truncated, "an episode is both terminated and truncated", tape)
    for name in ("terminated", "truncated"):
        _nowhere(getattr(tape, name) != tape.info[name], f"info[{name!r}] is not what step returns", tape)
    _nowhere(tape.answered != tape.terminated, "ANSWER, and nothing else, must terminate an episode", tape)
    _nowhere(
        (tape.before.time + 1 >= limit) & ~tape.answered & ~tape.truncated,
        f"an episode goes on after max_steps_in_episode = {limit} steps: is_truncated must say so",
        tape,
    )
    time = np.where(tape.done, 0, tape.before.time + 1)
    _nowhere(
        tape.after.time != time, "state.time must grow by 1 a step, and be 0 after an episode's end", tape
    )
    fresh = jax.tree.map(lambda leaf: np.broadcast_to(leaf[:1, :1], leaf.shape), _progress(tape.before))
    _nowhere(
        tape.done & _differ(_progress(tape.after), fresh),
        "the state after an episode's end is not that of a new episode with nothing opened",
        tape,
    )
    _nowhere(
        (tape.before.time == 0) & np.any(tape.before.pool.state.depth > 0, axis=-1),
        "an episode starts with opened branches",
        tape,
    )


def _check_answers(params: EnvParams, tape: _Tape) -> None:
    answer = tape.info["answer"]
    right = (answer == np.asarray(params.matrix.gold)[tape.before.question]) & (answer != NONE)
    message = "info['correct'] is not whether info['answer'] is the gold answer of the question"
    _nowhere(tape.info["correct"] != right, message, tape)


def _check_rewards(params: EnvParams, tape: _Tape) -> None:
    """The sum of rewards, for modes in which it is that of the objective."""
    if int(params.reward) not in (Reward.OUTCOME, Reward.MAJORITY):
        return
    right = (tape.info["answer"] == tape.before.target) & (tape.info["answer"] != NONE)
    penalty = float(params.invalid_penalty) * tape.info["invalid_action"]
    total = np.zeros(tape.reward.shape)
    for step, gained in enumerate((tape.reward + penalty).astype(float)):
        total[step] = gained if step == 0 else gained + np.where(tape.done[step - 1], 0, total[step - 1])
    spent = tape.before.gamma * tape.info["cost"]
    _nowhere(
        ~np.isclose(total, (tape.terminated & right) - spent, rtol=1e-5, atol=1e-5),
        "the rewards of an episode, penalties aside, do not sum to 1{correct} - γ·C; give "
        "check_rewards=False if they are not meant to",
        tape,
    )


def _check_plain_calls(play: _Play, params: EnvParams, tape: _Tape) -> None:
    """``jit`` and ``vmap`` give what plain calls give, the final observation included."""
    row = _at(tape, -1)
    action = row.action.copy()
    action[0] = 0
    action[0, 0] = ANSWER
    keys, actions = play.keys(0), play.encode(action)
    batched = jax.device_get(play.step(keys, row.before, actions, params))
    for episode in range(2):
        state = jax.device_put(_at(row.before, episode))
        plain = jax.device_get(play.env.step(keys[episode], state, actions[episode], params))
        changed = _difference(_named(_at(batched, episode)), _named(plain))
        _require(
            changed is None,
            f"step gives another {changed} under jit and vmap than without: use jax.numpy on traced values, "
            "and nothing but the arguments",
        )
        step_key, _ = jax.random.split(keys[episode])
        final = play.env.step_env(step_key, state, actions[episode], params)[0]
        _require(
            _difference(jax.device_get(final), plain[5]["final_observation"]) is None,
            "info['final_observation'] is not the observation of step_env, before any auto-reset",
        )


def _check_draws(play: _Play, params: EnvParams) -> None:
    """Episodes are a function of the key, of question and order where they are given."""
    drawn = [jax.device_get(play.reset(play.keys(seed), params)) for seed in (0, 0, 1, 2, 3)]
    _require(
        _difference(drawn[0], drawn[1]) is None,
        "reset gives another episode for the same key: draw all by jax.random from it",
    )
    matrix = params.matrix
    if matrix.num_questions * matrix.num_branches > 1:
        tokens = np.concatenate([state.pool.hidden.tokens for _, state in drawn])
        _require(np.any(tokens != tokens[0]), "reset draws the same episode for different keys")
    question = matrix.num_questions - 1
    order = np.asarray(params.orders.of(question, -1))[: play.env.max_branches].astype(np.int32)
    state = _call("reset with a question and an order", play.begin, *_given(play, params, question, order))[1]
    played = state.pool.hidden.tokens
    _require(
        np.all(state.question == question) and np.all(played == matrix.tokens[question, order]),
        "reset does not play the question or the order that it is given",
    )


def _given(
    play: _Play, params: EnvParams, question: Any, order: Any
) -> tuple[jax.Array, EnvParams, jax.Array, jax.Array]:
    width = order.shape[-1]
    questions = jnp.broadcast_to(jnp.asarray(question, jnp.int32), (play.episodes,))
    return play.keys(0), params, questions, jnp.broadcast_to(order, (play.episodes, width))


def _check_leaks(play: _Play, rng: np.random.Generator, params: EnvParams) -> None:
    """Scrambling what an episode does not reveal changes nothing that a policy sees."""
    matrix, orders = jax.device_get((params.matrix, params.orders))
    question = rng.integers(matrix.num_questions, size=play.episodes)
    order = orders.of(question, rng.integers(orders.num_rows, size=play.episodes))
    order = order[:, : play.env.max_branches].astype(np.int32)
    tape = play.along(params, play.begin(*_given(play, params, question, order)), play.chooser(rng))
    for episode in range(play.episodes):
        kept = _revealed(tape, episode, matrix.max_depth)
        scrambled, ids = scramble(matrix, question[episode], order[episode], kept, rng)
        changed = params.replace(matrix=jax.device_put(scrambled))
        first = play.begin(*_given(play, changed, question, order))
        again = play.along(changed, first, lambda step, _: tape.action[step])
        leaking = _difference(_seen(tape, episode), _seen(again, episode))
        _require(
            leaking is None,
            f"{leaking} changes when what was not revealed is scrambled (gold, unopened branches, deeper "
            "probes, lengths and tokens of unfinished branches, numbers of answers): it tells a policy "
            "something hidden",
        )
        answer, answer_again = tape.info["answer"][:, episode], again.info["answer"][:, episode]
        _require(
            np.array_equal(np.where(answer == NONE, NONE, ids[answer]), answer_again),
            "info['answer'] depends on what was not revealed, or on the numbers of answers: the aggregation "
            "may compare keys for equality only",
        )


def _revealed(tape: _Tape, episode: int, max_depth: int) -> Revealed:
    """What an episode has read and revealed."""
    before, after = (state.pool.state for state in (tape.before, tape.after))
    assert after.shown is not None
    assert after.probed is not None
    assert before.probed is not None
    upto = after.shown[:, episode, :, None]
    past = upto - (after.probed - before.probed)[:, episode, :, None]
    at = np.arange(1, max_depth + 1)
    return Revealed(after.depth[-1, episode], np.any((past < at) & (at <= upto), axis=0))


# --- comparing -------------------------------------------------------------------------------------------


def _require(holds: Any, message: str) -> None:
    if not holds:
        raise AssertionError(message)


def _nowhere(bad: Any, message: str, tape: _Tape) -> None:
    """Raises if ``bad`` holds at any step (rows) of any episode (columns), with the place and the action."""
    places = np.argwhere(bad)
    if len(places):
        step, episode = places[0]
        action = tape.action[step, episode].tolist()
        raise AssertionError(f"{message} (first at step {step} of episode {episode}, action {action})")


def _call(name: str, function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:
        raise AssertionError(f"{name} does not run under jit and vmap: {error}") from error


def _at(tree: Any, index: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], tree)


def _named(done: tuple[Any, ...]) -> dict[str, Any]:
    """What step returns, by name."""
    return dict(zip(("observation", "state", "reward", "terminated", "truncated", "info"), done, strict=True))


def _types(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: f"{leaf.dtype} {leaf.shape} {leaf.weak_type}", tree)


def _difference(one: Any, other: Any) -> str | None:
    """The path of a leaf in which two trees differ, floats by more than rounding; None without one."""
    leaves, others = _leaves(one), _leaves(other)
    if leaves.keys() != others.keys():
        return "structure"
    return next((path for path in leaves if not _close(leaves[path], others[path])), None)


def _leaves(tree: Any) -> dict[str, Any]:
    paths = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in paths}


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray | np.generic) and one.dtype.kind == "f":
        return np.allclose(one, other, rtol=1e-5, atol=1e-6, equal_nan=True)
    return np.array_equal(one, other)


def _differ(one: Any, other: Any, axes: int = 2) -> np.ndarray:
    """Where, along the leading axes, two trees of one structure differ in any leaf."""

    def leaf_differs(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        same = np.isclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True) if a.dtype.kind == "f" else a == b
        return ~np.all(same, axis=tuple(range(axes, a.ndim)))

    return np.any(jax.tree.leaves(jax.tree.map(leaf_differs, one, other)), axis=0)


def _still(state: EnvState) -> EnvState:
    return dataclasses.replace(state, time=np.zeros_like(state.time))


def _progress(state: EnvState) -> tuple[Any, ...]:
    """The part of a state that is the same at the start of all episodes."""
    return state.pool.state, state.tracker, state.history


def _idle(tape: _Tape) -> np.ndarray:
    """Actions of which no admissible entry does anything."""
    entries = tape.action.shape[-1]
    return np.all(~tape.admissible | ((tape.action == 0) & (entries > 1)), axis=-1)


def _seen(tape: _Tape, episode: int) -> dict[str, Any]:
    """What a policy sees of an episode."""
    hidden = ("answer", "correct")
    info = {name: value for name, value in tape.info.items() if name not in hidden}
    return _at({"observation": tape.obs, "info": info}, (slice(None), episode))
