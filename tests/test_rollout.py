"""The rollout engine: same results whatever the lanes and devices, one compilation, every end."""

import dataclasses
import time
from pathlib import Path
from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import multihost_utils
from matrices import BRANCHES, QUESTIONS, WIDTH, random_matrix, shared_orders

from autotts_jax.core import (
    Action,
    Controller,
    Episodes,
    Hooks,
    ReplayExecutor,
    ReplayPool,
    StopReason,
    rollout,
    stepping,
)
from autotts_jax.core.compiling import COMPILER_OPTIONS, UNSHARED_OPTIONS
from autotts_jax.core.controller import checked_act, checked_init
from autotts_jax.core.devices import usable_cores
from autotts_jax.core.rollout import COLUMNS, MANY_LANES, ROUND_LIMIT, end_of_round, kind_of, progress_stops
from autotts_jax.errors import InputError
from autotts_jax.policies import (
    CMC,
    AdaptiveConsistency,
    EarlyStopping,
    ParallelProbe,
    SelfConsistency,
    ShortM,
)
from autotts_jax.replay import NONE, read_files
from autotts_jax.replay.orders import repo100_orders

ORDERS = shared_orders([np.random.default_rng(s).permutation(BRANCHES)[:WIDTH] for s in range(5)])


def grid(settings: int) -> Episodes:
    shape = (settings, ORDERS.num_rows, QUESTIONS)
    setting, row, question = (axis.reshape(-1) for axis in np.indices(shape))
    return Episodes(question, row, setting)


def figures(results):
    return {name: column for name, column in results._asdict().items() if np.ndim(column)}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Plain(Controller):
    """A minimal controller of a user's own: reads ``branches`` side by side for ``rounds`` rounds."""

    branches: int
    rounds: int

    traces: ClassVar[list[int]] = []

    def init(self, view):  # noqa: ARG002
        return jnp.int32(0), Action(open=self.branches)

    def act(self, memory, view):
        self.traces.append(1)
        stop = jnp.where(memory >= self.rounds, StopReason.DECIDED, StopReason.RUNNING)
        return memory + 1, Action(stop, advance=jnp.where(view.live, 1, 0))

    def answer(self, memory, view):  # noqa: ARG002
        return view.vote(view.active)


def look(controller, memory, pool):
    """What a hook may hand out: of the controller, of its memory and of the view, whatever it has to keep."""
    view = pool.view()
    return {
        "controller": jnp.asarray(jax.tree.leaves(controller)[0]),
        "memory": memory,
        "answer": view.answer_key(controller.answer(memory, view).leader),
        **shown(view),
    }


def shown(view):
    names = ("depth", "active", "labels", "revealed_keys", "branch_tokens", "tokens")
    return {name: getattr(view, name) for name in names}


def glance(controller, memory, pool):
    return controller.branches + memory, pool.tokens


def branch_tokens(controller, memory, pool):  # noqa: ARG001
    return pool.branch_tokens


AT_END = Hooks(at_end=look)


@pytest.mark.parametrize(
    "controllers",
    [
        pytest.param([CMC.of_beta(0.0), CMC.of_beta(1.0)], marks=pytest.mark.slow),
        pytest.param(
            [ParallelProbe(3, stability=4, prune_patience=2, warm_up=1), ParallelProbe(4, max_steps=3)],
            marks=pytest.mark.slow,
        ),
        pytest.param([AdaptiveConsistency(4, threshold=0.7)], marks=pytest.mark.slow),
        pytest.param([EarlyStopping(4, window=2)], marks=pytest.mark.slow),
        [SelfConsistency(3)],
    ],
)
def test_results_do_not_depend_on_lanes_or_devices(controllers):
    matrix, episodes = random_matrix(0), grid(len(controllers))
    one = rollout(controllers, matrix, ORDERS, episodes, lanes=1, devices=jax.devices()[:1])
    for lanes, devices in [(8, 2), (MANY_LANES, 1)]:
        other = rollout(controllers, matrix, ORDERS, episodes, lanes=lanes, devices=jax.devices()[:devices])
        chex.assert_trees_all_equal(figures(one), figures(other))
    alone = rollout(
        controllers,
        matrix,
        ORDERS,
        Episodes(*(column[-1:] for column in episodes)),
        lanes=1,
        devices=jax.devices()[:1],
        capacity=len(episodes.question),
    )
    chex.assert_trees_all_equal(figures(alone), {k: v[-1:] for k, v in figures(one).items()})


@pytest.mark.skipif(usable_cores() == 1, reason="XLA shares no pass on a single core")
def test_few_lanes_are_compiled_without_sharing_passes_among_threads():
    # XLA says nothing of names of passes that it does not know.
    lowered = jax.jit(lambda x: jnp.sin(jnp.cos(x) * jnp.tan(x))).lower(jnp.ones((4096, 128)))
    shared, unshared = (
        lowered.compile(compiler_options=options).as_text()
        for options in (COMPILER_OPTIONS, UNSHARED_OPTIONS)
    )
    assert "outer_dimension_partitions" in shared
    assert "outer_dimension_partitions" not in unshared


@pytest.mark.slow
def test_processes_share_the_episodes(monkeypatch):
    controllers, matrix, episodes = [SelfConsistency(3)], random_matrix(0), grid(1)
    alone, shares = rollout(controllers, matrix, ORDERS, episodes, hooks=AT_END), []

    class SentError(Exception):
        pass

    def send(rows):
        shares.append(rows)
        raise SentError

    monkeypatch.setattr(jax, "process_count", lambda: 4)
    monkeypatch.setattr(multihost_utils, "process_allgather", send)
    for process in range(4):
        monkeypatch.setattr(jax, "process_index", lambda process=process: process)
        with pytest.raises(SentError):
            rollout(controllers, matrix, ORDERS, episodes, hooks=AT_END)
    assert {len(rows) for rows, *_ in shares} == {-(-len(episodes.question) // 4)}
    gathered = jax.tree.map(lambda *leaves: np.stack(leaves), *shares)
    monkeypatch.setattr(multihost_utils, "process_allgather", lambda _: gathered)
    together = rollout(controllers, matrix, ORDERS, episodes, hooks=AT_END)
    chex.assert_trees_all_equal(figures(together), figures(alone))
    chex.assert_trees_all_equal(together.ends, alone.ends)


@pytest.mark.parametrize("hooks", ["none", pytest.param("at_end", marks=pytest.mark.slow), "after_round"])
def test_one_compilation_serves_all_settings_orders_and_matrices_of_a_shape(hooks):
    """Hooks are made anew for each call: equal ones share a compilation."""
    Plain.traces.clear()
    asked = {
        "none": Hooks,
        "at_end": lambda: Hooks(at_end=glance),
        "after_round": lambda: Hooks(at_end=glance, after_round=glance, rounds=12),
    }[hooks]
    rollout([Plain(2, 3), Plain(4, 9)], random_matrix(0), ORDERS, grid(2), lanes=4, hooks=asked())
    traces = len(Plain.traces)
    reverse = dataclasses.replace(ORDERS, table=ORDERS.table[:, ::-1])
    again = rollout([Plain(1, 1), Plain(3, 2)], random_matrix(1), reverse, grid(2), lanes=4, hooks=asked())
    assert len(Plain.traces) == traces
    if again.records is not None:
        assert again.recorded.sum(axis=1).tolist() == (again.rounds + 1).tolist()


def test_arrays_of_controllers_are_their_own():
    """As numbers are: only what all of them share is not told apart."""
    shared = jnp.int32(3)
    numbers, arrays = [Plain(2, 3), Plain(4, 3)], [Plain(jnp.int32(2), shared), Plain(jnp.int32(4), shared)]
    plain, of_arrays = (
        rollout(some, random_matrix(0), ORDERS, grid(2), lanes=4) for some in (numbers, arrays)
    )
    chex.assert_trees_all_equal(figures(plain), figures(of_arrays))


def test_watched_episodes_are_the_same_and_need_no_other_compilation():
    controllers, matrix, episodes = [Plain(2, 3), Plain(4, 9)], random_matrix(0), grid(2)
    played = rollout(controllers, matrix, ORDERS, episodes, lanes=4)
    traces = len(Plain.traces)
    few = np.array([len(episodes.question) - 1, 0, 7])
    chosen = Episodes(*(column[few] for column in episodes))
    room = len(episodes.question)
    watched = rollout(controllers, matrix, ORDERS, chosen, lanes=4, watch=True, capacity=room)
    assert len(Plain.traces) == traces
    seen, results = watched.shown, watched._replace(shown=None)
    chex.assert_trees_all_equal(figures(results), {k: v[few] for k, v in figures(played).items()})
    # They show what the stepping driver shows after each round, and stand still when they have ended.
    for e, (question, row, setting) in enumerate(zip(*chosen, strict=True)):
        executor = ReplayExecutor(stepping.begin_pool(matrix, question, ORDERS.of(question, row)), str)
        told = {}
        stepping.play(
            controllers[setting],
            executor,
            lambda decision, told=told, executor=executor: told.update(
                {decision.round: (decision.tokens, np.asarray(executor.pool.depth))}
            ),
        )
        pool, last = executor.pool, max(told)
        for number in range(seen.tokens.shape[1]):
            tokens, depth = told[min(number, last)]
            assert seen.tokens[e, number] == tokens
            np.testing.assert_array_equal(seen.depth[e, number], depth)
        for name in ("revealed_depth", "probed", "active"):
            np.testing.assert_array_equal(getattr(seen, name)[e, -1], getattr(pool, name))
    with pytest.raises(InputError, match="cannot be watched in 1 lanes; give fewer"):
        rollout(controllers, matrix, ORDERS, chosen, lanes=1, watch=True, devices=jax.devices()[:1])


def test_the_ledger_of_a_played_episode():
    matrix = random_matrix(4)
    results = rollout([Plain(2, 3)], matrix, ORDERS, grid(1))
    for e, (question, row, _) in enumerate(zip(*grid(1), strict=True)):
        branches = ORDERS.of(question, row)[:2]
        depth = np.minimum(4, matrix.lengths[question, branches] + 1)
        step = matrix.interval[question]
        whole = np.maximum(step * matrix.lengths[question, branches], matrix.tokens[question, branches])
        spent = np.where(depth > matrix.lengths[question, branches], whole, step * depth)
        votes = matrix.answers[question, branches, depth - 1]
        assert results.answer[e] == votes[0]
        assert results.correct[e] == (votes[0] == matrix.gold[question])
        assert results.tokens[e] == spent.sum()
        assert results.sequential_tokens[e] == spent.max()
        assert results.intervals[e] == results.probes[e] == depth.sum()
        assert (results.branches[e], results.rounds[e]) == (2, 3)
        assert results.stop_reason[e] == StopReason.DECIDED


def test_the_critical_path_of_a_played_episode():
    """Of what a round reads, the branch that costs most is waited for."""
    matrix = random_matrix(4)
    results = rollout([Plain(2, 3)], matrix, ORDERS, grid(1), hooks=Hooks(critical_path=True))
    for e, (question, row, _) in enumerate(zip(*grid(1), strict=True)):
        branches, step = ORDERS.of(question, row)[:2], matrix.interval[question]
        length = matrix.lengths[question, branches]
        whole = np.maximum(step * length, matrix.tokens[question, branches])
        spent = [np.where(depth > length, whole, step * depth) for depth in range(5)]
        assert results.critical_path[e] == np.diff(spent, axis=0).max(axis=1).sum()


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Widening(Plain):
    """Opens another branch every round, while others go on."""

    def act(self, memory, view):
        memory, action = super().act(memory, view)
        return memory, action._replace(open=1)


def test_a_stepped_episode_has_the_results_of_a_rollout():
    matrix, pruned = random_matrix(4), False
    for controller in (ParallelProbe(4, stability=9, prune_patience=2, warm_up=1), Widening(1, 5)):
        played = rollout([controller], matrix, ORDERS, grid(1))
        for e, (question, row, _) in enumerate(zip(*grid(1), strict=True)):
            executor = ReplayExecutor(stepping.begin_pool(matrix, question, ORDERS.of(question, row)), str)
            ended = stepping.play(controller, executor)
            expected = {name: int(getattr(played, name)[e]) for name in COLUMNS}
            assert stepping.results_of(ended, executor.view()) == expected
            pruned |= not np.all(executor.pool.active)
    assert pruned


def test_a_part_that_does_nothing_is_left_out():
    action = Action(
        prune=np.zeros(2, bool), open=-1, advance=np.array([-1, 0]), read=0, probe=np.zeros(2, bool)
    )
    assert list(stepping.parts(action, 2)) == []
    ((name, _),) = stepping.parts(action._replace(advance=np.array([-1, 1])), 2)
    assert name == "advance"


def test_every_reason_to_stop_has_a_number_of_its_own():
    """Those of one number would be one reason, of one name in the files of results."""
    names = ["RUNNING", "DECIDED", "EXHAUSTED", "STEP_LIMIT", "BUDGET", "ROUND_LIMIT"]
    assert [reason.name for reason in StopReason] == names
    assert [int(reason) for reason in StopReason] == list(range(len(names)))


def test_sequential_tokens_by_controller():
    matrix = random_matrix(7)
    spent = matrix.tokens[grid(1).question[:, None], ORDERS.of(grid(1).question, grid(1).row)]
    played = {
        "sc": rollout([SelfConsistency(4)], matrix, ORDERS, grid(1)),
        "asc": rollout([AdaptiveConsistency(4, threshold=2.0)], matrix, ORDERS, grid(1)),
        "esc": rollout([EarlyStopping(4, window=2)], matrix, ORDERS, grid(1)),
    }
    assert played["sc"].sequential_tokens.tolist() == spent.max(axis=1).tolist()
    assert played["asc"].sequential_tokens.tolist() == spent.sum(axis=1).tolist()
    windows = spent.reshape(-1, 2, 2).max(axis=2)
    read = played["esc"].branches // 2
    expected = [row[:n].sum() for row, n in zip(windows, read, strict=True)]
    assert played["esc"].sequential_tokens.tolist() == expected


@pytest.mark.slow
def test_the_critical_path_adds_up_what_rounds_wait_for():
    """What controllers read one after another is on it, and what is read of branches that are opened late."""
    matrix, hooks = random_matrix(7), Hooks(critical_path=True)
    for controller in (SelfConsistency(4), AdaptiveConsistency(4, threshold=2.0), EarlyStopping(4, window=2)):
        played = rollout([controller], matrix, ORDERS, grid(1), hooks=hooks)
        np.testing.assert_array_equal(played.critical_path, played.sequential_tokens)

    hooks = Hooks(after_round=branch_tokens, rounds=150, critical_path=True)
    played = rollout([CMC.of_beta(0.0)], matrix, ORDERS, grid(1), hooks=hooks)
    assert StopReason.RUNNING not in played.stop_reason
    for e, question in enumerate(grid(1).question):
        # At the start branches are opened, at depth 1.
        spent = np.insert(played.records[e, : played.rounds[e] + 1], 0, 0, axis=0)
        spent[0, : (spent[1] > 0).sum()] = matrix.interval[question]
        expected = matrix.interval[question] + np.diff(spent, axis=0).max(axis=1).sum()
        assert played.critical_path[e] == expected
    assert (played.critical_path > played.sequential_tokens).any()
    assert rollout([CMC.of_beta(0.0)], matrix, ORDERS, grid(1)).critical_path is None


def skipped(controller, memory, pool):  # noqa: ARG001
    return pool.skipped


def many_cmc():
    rng, fields = np.random.default_rng(0), [field.name for field in dataclasses.fields(CMC)]
    controllers = [CMC.of_beta(beta) for beta in (0, 0.5, 1)]
    for _ in range(12):
        whole = dict(zip(fields, rng.integers(0, 5, len(fields)).tolist(), strict=True))
        real = {name: float(rng.choice([-0.1, 0.0, 0.3, 0.9])) for name in ("threshold", "slack", "trend")}
        controllers.append(CMC(**whole | real | {"alpha": 0.5, "ema_window": 2}))
    return controllers


@pytest.mark.parametrize(
    "controllers",
    [
        pytest.param(many_cmc(), marks=pytest.mark.slow),
        [ShortM(4, 1), ShortM(3, 2), ShortM(2, 9)],
        pytest.param(
            [AdaptiveConsistency(WIDTH, threshold) for threshold in (0.5, 0.8, 0.9, 2.0)],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_rounds_that_are_played_at_once_change_no_result(controllers):
    """Where the critical path is added up every round is played alone."""
    episodes = grid(len(controllers))
    at_once, alone = (
        rollout(controllers, random_matrix(5), ORDERS, episodes, hooks=Hooks(skipped, critical_path=path))
        for path in (False, True)
    )
    assert not alone.ends.any()
    assert np.sum(at_once.ends > 2) >= 5
    at_once, alone = (played._replace(ends=None, critical_path=None) for played in (at_once, alone))
    chex.assert_trees_all_equal(figures(at_once), figures(alone))


def test_reading_at_once_ends_where_a_budget_does():
    """A branch that is shorter than an interval would fit into what is left, but no interval does."""
    short = np.full((QUESTIONS, BRANCHES), 6, np.int32)
    matrix = dataclasses.replace(
        random_matrix(0), interval=np.full(QUESTIONS, 10, np.int32), lengths=short // 6, tokens=short
    )
    at_once, alone = (
        rollout(
            [AdaptiveConsistency(WIDTH, threshold=2.0)],
            matrix,
            ORDERS,
            grid(1),
            budget=14,
            hooks=Hooks(critical_path=path),
        )
        for path in (False, True)
    )
    assert set(alone.tokens) == {6}
    assert set(alone.stop_reason) == {StopReason.BUDGET}
    chex.assert_trees_all_equal(figures(at_once), figures(alone._replace(critical_path=None)))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Idler(Plain):
    """Does nothing for some rounds, then asks for more than are left."""

    def init(self, view):  # noqa: ARG002
        return None, Action(open=self.branches)

    def act(self, memory, view):
        idle = view.rounds < self.rounds
        stop = jnp.where(jnp.any(view.finished), StopReason.DECIDED, StopReason.RUNNING)
        count = jnp.full(view.width, jnp.where(idle, 0, 1))
        return memory, Action(stop, advance=count, repeat=jnp.where(idle, 1, 1000))


def test_rounds_at_once_end_at_the_limit_of_rounds():
    matrix = random_matrix(5)
    matrix = dataclasses.replace(matrix, lengths=np.full_like(matrix.lengths, 30))
    results = rollout([Idler(2, ROUND_LIMIT - 2), Idler(2, 0)], matrix, ORDERS, grid(2))
    cut = grid(2).setting == 0
    assert set(results.rounds[cut]) == {ROUND_LIMIT}
    assert set(results.stop_reason[cut]) == {StopReason.ROUND_LIMIT}
    assert set(results.intervals[cut]) == {2 * 3}
    assert set(results.rounds[~cut]) == {30}


@pytest.mark.parametrize(
    ("controllers", "double"),
    [
        ({"cmc_beta0.5": CMC.of_beta(0.5), "cmc_beta1.0": CMC.of_beta(1.0)}, False),
        ({"parallel_probe64": ParallelProbe(64)}, False),
        ({"asc64": AdaptiveConsistency(64)}, False),
        ({"asc64": AdaptiveConsistency(64)}, True),
    ],
    ids=["cmc", "parallel_probe", "asc", "asc-double"],
)
def test_episodes_equal_the_released_evaluators(controllers, double):
    """A few of those that tests/test_parity.py compares; double precision changes nothing."""
    folder = Path(__file__).parent / "golden"
    golden = np.load(folder / "SmolLM2-135M-Instruct_arithmetic.npz")
    matrix = read_files(folder / "smollm2.npz").matrix
    orders = shared_orders(repo100_orders(matrix.num_branches, range(2))[:, :64], matrix.num_questions)
    shape = (len(controllers), orders.num_rows, matrix.num_questions)
    setting, row, question = (axis.reshape(-1) for axis in np.indices(shape))
    with jax.enable_x64(double):
        played = rollout([*controllers.values()], matrix, orders, Episodes(question, row, setting))
    for name, ours in (("correct", played.correct), ("tokens", played.tokens)):
        theirs = [golden[f"{controller}/{name}"][: orders.num_rows] for controller in controllers]
        np.testing.assert_array_equal(ours.reshape(shape), theirs)


def test_early_stopping_never_reads_a_part_of_a_window():
    results = rollout([EarlyStopping(3, window=2)], random_matrix(7), ORDERS, grid(1))
    assert set(results.branches) == {2}


@pytest.mark.slow
@pytest.mark.parametrize("budget", [0, 5, 60])
def test_no_episode_exceeds_its_budget(budget):
    matrix = random_matrix(3)
    for controller in (Plain(4, 50), AdaptiveConsistency(4, 2.0), CMC.of_beta(1.0)):
        results = rollout([controller], matrix, ORDERS, grid(1), budget=budget)
        assert results.tokens.max() <= budget
        free = rollout([controller], matrix, ORDERS, grid(1))
        fits = free.tokens <= budget
        assert (results.tokens[fits] == free.tokens[fits]).all()
    assert StopReason.BUDGET in rollout([Plain(4, 50)], matrix, ORDERS, grid(1), budget=60).stop_reason
    nothing = rollout([CMC.of_beta(0.5)], matrix, ORDERS, grid(1), budget=0)
    assert set(nothing.answer) == {NONE}
    assert not nothing.correct.any()


def test_a_controller_that_never_stops_is_stopped():
    results = rollout([Plain(2, 10**9)], random_matrix(0), ORDERS, Episodes([0], [0], [0]), lanes=1)
    assert results.stop_reason.tolist() == [StopReason.ROUND_LIMIT]
    assert results.rounds.tolist() == [ROUND_LIMIT]


@pytest.mark.parametrize(
    "controller",
    [SelfConsistency(4), ParallelProbe(4), pytest.param(CMC.of_beta(0.5), marks=pytest.mark.slow)],
)
def test_answers_that_may_not_vote_never_win_and_are_never_right(controller):
    matrix = random_matrix(2, abstain=1.0)
    matrix.gold[:] = NONE
    results = rollout([controller], matrix, ORDERS, grid(1))
    assert set(results.answer) == {NONE}
    assert not results.correct.any()


def test_labels_name_answers_by_first_showing():
    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class Reader(Plain):
        """Remembers the labels it saw at every look."""

        def init(self, view):
            return (jnp.int32(0), jnp.full((9, view.width), NONE)), Action(open=self.branches)

        def act(self, memory, view):
            step, seen = memory
            seen = seen.at[step].set(view.labels)
            stop = jnp.where(step >= self.rounds, StopReason.DECIDED, StopReason.RUNNING)
            return (step + 1, seen), Action(stop, advance=jnp.where(view.live, 1, 0))

    hooks = Hooks(lambda controller, memory, pool: memory[1], lambda c, m, pool: pool.answer_keys, 9)  # noqa: ARG005
    for seed in range(3):
        matrix = random_matrix(seed)
        played = rollout([Reader(WIDTH, 8)], matrix, ORDERS, Episodes([0], [0], [0]), hooks=hooks)
        # What is read after a look is seen at the next; nothing is read after the last one.
        seen, ids = np.asarray(played.ends[0]), np.asarray(played.records[0])
        opened = ReplayExecutor(stepping.begin_pool(matrix, 0, ORDERS.of(0, 0)), str)
        opened.carry_out("open", Action(open=WIDTH))
        first = opened.pool.answer_keys
        ids = np.concatenate([np.asarray(first)[None], ids[:-1]])
        assert ((ids[:, :, None, None] == ids) == (seen[:, :, None, None] == seen)).all()
        first = {label: np.argwhere(seen == label)[0].tolist() for label in np.unique(seen)}
        assert list(first.values()) == sorted(first.values())


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Static(SelfConsistency):
    branches: int = dataclasses.field(metadata={"static": True})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"controllers": []}, "controllers of one class"),
        (
            {"controllers": [Plain(1, 1), SelfConsistency(1)]},
            "got .*Plain.*Self",
        ),
        ({"controllers": [Static(1), Static(2)]}, "but these Static differ in static fields"),
        ({"episodes": Episodes([], [], [])}, "at least one episode"),
        ({"episodes": Episodes([QUESTIONS], [0], [0])}, "question is outside 0 … 1"),
        ({"episodes": Episodes([0], [-1], [0])}, "row is outside 0 … 4"),
        ({"episodes": Episodes([0], [0], [1])}, "setting is outside 0 … 0"),
        ({"orders": dataclasses.replace(ORDERS, table=ORDERS.table + BRANCHES)}, "branch outside 0 … 5"),
        ({"orders": shared_orders(ORDERS.table[0], 3)}, "orders for 3 questions, but the matrix has 2"),
        ({"budget": -1}, "budget is -1"),
        ({"lanes": 0}, "lanes"),
    ],
)
def test_bad_arguments(change, message):
    arguments = {
        "controllers": [Plain(1, 1)],
        "matrix": random_matrix(0),
        "orders": ORDERS,
        "episodes": Episodes([0], [0], [0]),
    }
    with pytest.raises(InputError, match=message):
        rollout(**(arguments | change))


# --- hooks and pauses -----------------------------------------------------------------------------------

ROUNDS = 60
"""More than any of the episodes below has."""
BUDGET = 150


CONTROLLERS = [CMC.of_beta(0.0), CMC.of_beta(1.0)]


@pytest.fixture(scope="module")
def hooked():
    """Episodes with both hooks."""
    hooks = Hooks(look, look, ROUNDS)
    return rollout(CONTROLLERS, random_matrix(8), ORDERS, grid(2), budget=BUDGET, hooks=hooks)


@pytest.mark.slow
def test_hooks_give_what_stepping_the_controller_gives(hooked):
    matrix = jax.device_put(random_matrix(8))
    begin = jax.jit(lambda question, order: ReplayPool.begin(matrix, question, order, BUDGET))
    start, step = jax.jit(begin_controller), jax.jit(play_round)
    see, see_view = jax.jit(look), jax.jit(lambda pool: shown(pool.view()))
    assert len(set(hooked.rounds)) > 3
    assert StopReason.BUDGET in hooked.stop_reason
    assert StopReason.RUNNING not in hooked.stop_reason
    for e, (question, row, setting) in enumerate(zip(*grid(2), strict=True)):
        controller, empty = CONTROLLERS[setting], begin(question, ORDERS.of(question, row))
        (memory, pool), stop, rounds = start(controller, empty), StopReason.RUNNING, 0
        while stop == StopReason.RUNNING:
            memory, pool, stop = step(controller, memory, pool, rounds)
            record = jax.tree.map(lambda leaf, at=(e, rounds): leaf[at], hooked.records)
            # Confidence is a float, which XLA may compute in another order.
            chex.assert_trees_all_close(record, see(controller, memory, pool), rtol=1e-6)
            rounds += int(stop == StopReason.RUNNING)
        end = jax.tree.map(lambda leaf, at=e: leaf[at], hooked.ends)
        chex.assert_trees_all_close(end, see(controller, memory, pool), rtol=1e-6)
        assert (rounds, stop) == (hooked.rounds[e], hooked.stop_reason[e])
        assert end["answer"] == hooked.answer[e]
        # The stepping driver comes to the same, operation by operation.
        executor = ReplayExecutor(empty, str)
        ended = stepping.play(controller, executor)
        assert (ended.rounds, ended.stop_reason) == (rounds, stop)
        assert ended.sequential_tokens == hooked.sequential_tokens[e]
        expected = see_view(executor.pool)
        chex.assert_trees_all_equal({name: end[name] for name in expected}, expected)


def begin_controller(controller, pool):
    memory, action = checked_init(controller, pool.view())
    return memory, pool.step(action)


def play_round(controller, memory, pool, rounds):
    view = pool.view(rounds)
    memory, action = checked_act(controller, memory, view)
    stop, after = end_of_round(action, view), pool.step(action)
    return memory, jax.tree.map(lambda a, b: jnp.where(stop == StopReason.RUNNING, a, b), after, pool), stop


@pytest.mark.slow
@pytest.mark.shipped
def test_hooks_change_no_result_and_do_not_depend_on_lanes_or_devices(hooked):
    for hooks, settings in (
        (Hooks(), {"lanes": 1}),
        (Hooks(look), {"lanes": 3, "devices": jax.devices()[:1]}),
        (Hooks(look, look, ROUNDS), {"devices": jax.devices()[:1]}),
    ):
        other = rollout(
            CONTROLLERS, random_matrix(8), ORDERS, grid(2), budget=BUDGET, hooks=hooks, **settings
        )
        chex.assert_trees_all_equal(figures(other), figures(hooked))
        if hooks.at_end:
            chex.assert_trees_all_equal(other.ends, hooked.ends)
        if hooks.after_round:
            assert_same_records(other, hooked)


def assert_same_records(one, other):
    played = np.arange(ROUNDS) <= one.rounds[:, None]
    ours, theirs = (jax.tree.map(lambda leaf: leaf[played], results.records) for results in (one, other))
    chex.assert_trees_all_equal(ours, theirs)


@pytest.mark.slow
def test_recording_ends_after_its_rounds():
    matrix = random_matrix(8)
    full = rollout([Plain(2, 6)], matrix, ORDERS, grid(1), hooks=Hooks(None, look, 7))
    cut = rollout([Plain(2, 6)], matrix, ORDERS, grid(1), hooks=Hooks(None, look, 4))
    assert set(full.rounds) == {6}
    assert set(cut.stop_reason) == {StopReason.RUNNING}
    chex.assert_trees_all_equal(cut.records, jax.tree.map(lambda leaf: leaf[:, :4], full.records))


def test_a_pause_sees_and_sets_what_controllers_remember():
    matrix, asked = random_matrix(8), []

    def hurry(memory, view):
        asked.append(np.asarray(view.rounds))
        return memory + 1

    reports = []
    played = rollout([Plain(2, 6)], matrix, ORDERS, grid(1), lanes=2, pause=hurry, on_progress=reports.append)
    expected = rollout([Plain(2, 3)], matrix, ORDERS, grid(1))
    chex.assert_trees_all_equal(figures(played), figures(expected))
    assert np.max(asked) == 3
    assert (asked[0] == 0).all()
    assert reports == sorted(reports)
    assert reports[-1] == ORDERS.num_rows * QUESTIONS


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [1, 4])
def test_a_pause_waits_for_the_slowest_device(lanes):
    """Episodes are dealt in turn, and those of one device are all longer than those of the other."""
    row, question = (axis.reshape(-1) for axis in np.indices((ORDERS.num_rows, QUESTIONS)))
    episodes = Episodes(question, row, np.arange(len(row)) % 2)
    for controllers in ([Plain(2, 2), Plain(2, 9)], [Plain(2, 9), Plain(2, 2)]):
        played = rollout(controllers, random_matrix(8), ORDERS, episodes, lanes=lanes, pause=lambda m, _: m)
        expected = rollout(controllers, random_matrix(8), ORDERS, episodes)
        chex.assert_trees_all_equal(figures(played), figures(expected))


@pytest.mark.parametrize("pause", [None, lambda memory, _: memory])
def test_progress_is_reported_up_to_the_end(pause):
    one_less = Episodes(*(column[:-1] for column in grid(1)))  # so that a device has to fill up its queue
    for episodes in (grid(1), one_less):
        reports, number = [], len(episodes.question)
        rollout([Plain(2, 3)], random_matrix(0), ORDERS, episodes, pause=pause, on_progress=reports.append)
        assert reports == sorted(reports)
        assert reports[-1] == number


def test_progress_is_reported_more_often_where_it_is_slow(monkeypatch):
    now, steps = 0.0, []
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    last = 0
    for stop in progress_stops(10_000):
        steps.append(stop - last)
        last = stop
        now += 1e-5 * steps[-1] * (1 if stop < 5_000 else 100)
    assert last == 10_000
    assert steps[0] == 100
    assert max(steps) > 1_000, "where it is fast"
    assert min(steps[-20:]) < 200, "where it has become slow"


def test_classes_with_as_many_leaves_are_not_taken_for_one_another():
    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class Other(SelfConsistency):
        def init(self, view):  # noqa: ARG002
            return None, Action(read=self.branches - 1)

        def act(self, memory, view):  # noqa: ARG002
            return memory, Action(StopReason.DECIDED)

    assert kind_of(SelfConsistency(4)) == kind_of(SelfConsistency(8)) != kind_of(Other(4))
    for _ in range(2):
        for kind, branches in ((SelfConsistency, 4), (Other, 3)):
            results = rollout([kind(4)], random_matrix(0), ORDERS, grid(1))
            assert set(results.branches) == {branches}
