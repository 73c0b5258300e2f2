"""Sealed controllers: their process is shown views, and whatever it says, nothing else is gained by it."""

import dataclasses
import re
import secrets
import sys
import types
from pathlib import Path

import jax
import numpy as np
import pytest
from marks import mark_for
from matrices import a_question, shared_orders, spelled_dataset

import autotts_jax as at
from autotts_jax.core import Action, stepping
from autotts_jax.core.rollout import COLUMNS as RESULTS
from autotts_jax.core.stepping import ReplayExecutor
from autotts_jax.errors import InputError
from autotts_jax.experiments import branch_orders
from autotts_jax.policies import Sealing, player, select
from autotts_jax.policies.players import CONTROLLERS
from autotts_jax.policies.sealed import player as sealed_player
from autotts_jax.policies.sealed.player import _Deciding
from autotts_jax.policies.sealed.views import Labels, Shape, packed, parts_of
from autotts_jax.replay import NONE, Cell, ProbeDataset, ProbeMatrix, Question
from autotts_jax.sandbox import Sandbox
from autotts_jax.sandbox.messages import Message
from autotts_jax.sandbox.process import Child, SandboxError

CHEATS = Path(__file__).parent / "cheats" / "controllers.py"
COLUMNS = ("correct", *RESULTS)


def played(spec, data, orders, level="kernel", **options):
    sealing = Sealing(sandbox=Sandbox(level, seconds=60))
    return select(str(spec), sealing=sealing).play(data, orders, **options)


def assert_equal_play(one, other, columns=COLUMNS):
    for name in columns:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


# --- the same episodes ----------------------------------------------------------------------------------

NAMED = """
import dataclasses
from autotts_jax.policies.players import CONTROLLERS

family = CONTROLLERS[{name!r}]
few = dataclasses.replace(family, name="few", values=family.values[:: len(family.values) // 2])
"""


SLOW = ("sc", "parallel-probe", "cmc", "deepconf", "best-of-n")
"""Families that do what others do not, with signals and a number of one's own; others are played nightly."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=mark_for(name, SLOW)) for name in CONTROLLERS])
def test_every_family_plays_the_same_episodes_sealed_and_unsealed(tmp_path, name):
    file = tmp_path / "own.py"
    file.write_text(NAMED.format(name=name))
    family = CONTROLLERS[name]
    signals = family.member(family.values[0]).signals
    data = at.load("smollm2-signals" if signals else "smollm2")
    if "score" in signals:  # another number takes its place
        data = data.with_signals({"score": np.asarray(data.matrix.signals["logprob_mean"])})
    orders = branch_orders(data, "repo100", range(2), 64)
    done = []
    sealed = played(f"{file}:few", data, orders, on_progress=done.append)
    assert_equal_play(sealed, played(f"{file}:few", data, orders, level="none"))
    assert sealed.seal.level == "kernel"
    assert done == sorted(done)
    assert done[-1] == sealed.tokens.size


LOOKS = """
import dataclasses
import jax
import jax.numpy as jnp
from autotts_jax.core import Action, Controller, StopReason
from autotts_jax.core.controller import first_of

@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Looks(Controller):
    '''Probes by what it has seen, and stops by labels and by all that was revealed.'''

    patience: int = 3

    def init(self, view):
        return jnp.int32(0), Action(open=4, probe=jnp.ones(view.width, bool))

    def act(self, memory, view):
        seen = jnp.sum(view.revealed_keys == view.answer_keys[0]) + jnp.max(view.labels)
        action = Action(
            stop=first_of((memory >= self.patience, StopReason.DECIDED), (seen > 6, StopReason.STEP_LIMIT)),
            prune=view.live & (view.labels > 3),
            open=jnp.where(memory % 2 == 0, 1, 0),
            advance=jnp.where(view.labels == 0, 2, 1),
            probe=(jnp.arange(view.width) + memory) % 3 > 0,
        )
        return memory + 1, action

    def answer(self, memory, view):
        return view.vote(view.active)
"""


@pytest.fixture(scope="module")
def looks(tmp_path_factory):
    file = tmp_path_factory.mktemp("looks") / "looks.py"
    file.write_text(LOOKS)
    return f"{file}:Looks"


BEGINS = """
import dataclasses
import jax
import jax.numpy as jnp
from autotts_jax.core import Action, Controller, StopReason, first_of

@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Begins(Controller):
    branches: int = 2

    def init(self, view):
        return None, Action(open=self.branches, advance=jnp.ones(view.width, jnp.int32), repeat=3)

    def act(self, memory, view):
        stop = first_of((view.rounds > 0, StopReason.DECIDED))
        return memory, Action(stop, advance=jnp.ones(view.width, jnp.int8), repeat=jnp.int8(2))
"""


@pytest.mark.slow
def test_what_is_done_before_the_first_look_is_done_once(tmp_path):
    file = tmp_path / "begins.py"
    file.write_text(BEGINS)
    data = at.load("smollm2")
    orders = branch_orders(data, "repo100", range(1), 8)
    sealed = played(f"{file}:Begins", data, orders)
    assert_equal_play(sealed, played(f"{file}:Begins", data, orders, level="none"))


@pytest.mark.parametrize("budget", [None, pytest.param(1500, marks=pytest.mark.slow)])
def test_a_controller_that_looks_at_all_there_is(looks, budget, monkeypatch):
    monkeypatch.setattr(sealed_player, "LANES", 16)  # so that lanes are refilled
    data = at.load("smollm2")
    orders = branch_orders(data, "repo100", range(2), 16)
    columns = (*COLUMNS, *([] if budget else ["critical_path"]))
    options = {"budget": budget, "critical_path": budget is None}
    sealed = played(looks, data, orders, **options)
    assert_equal_play(sealed, played(looks, data, orders, level="none", **options), columns)
    assert len(np.unique(sealed.stop_reason)) > 1


@pytest.mark.slow
def test_a_trace_shows_the_same_votes_sealed_and_unsealed(looks, tmp_path):
    (tmp_path / "named.py").write_text(NAMED.format(name="asc"))
    for spec, of_finals in ((looks, False), (f"{tmp_path}/named.py:few@8", True)):
        one, other = (
            at.trace("smollm2", spec, sealing=Sealing(sandbox=Sandbox(level))).steps
            for level in ("kernel", "none")
        )
        assert one == other
        assert any(step.final for step in one) == of_finals


@pytest.mark.slow
def test_single_episodes_and_other_constants_play_the_same(looks):
    data = at.load("smollm2")
    orders = branch_orders(data, "repo100", range(1), 16)
    sealed = select(looks)
    controller = select(looks, sealing=Sealing(sandbox=Sandbox("none"))).controllers[0]
    decisions, episodes = [], []
    for question in range(3):
        for play in (sealed.play_episode, lambda *given: stepping.play(controller, *given)):
            pool = stepping.begin_pool(jax.device_put(data.matrix), question, orders.of(question, 0))
            executor = ReplayExecutor(pool, str)
            decisions.append([])
            episodes.append(play(executor, decisions[-1].append))
    assert decisions[::2] == decisions[1::2]
    assert episodes[::2] == episodes[1::2]
    with sealed.with_factors(data, orders) as (names, play):
        assert names == ("patience",)
        for factor in (1, 2):
            longer = dataclasses.replace(controller, patience=3 * factor)
            alone = player.ControllerPlayer("looks", (longer,)).play(data, orders)
            assert_equal_play(play({"patience": factor}), alone)


# --- what is said to the child, and what is believed of what it says ----------------------------------------

SHAPE = Shape(2, 3, 5, False, ())
ASKED = {"fields": ["depth", "answer_keys"], "first": ["open"], "parts": ["prune", "advance"]}


class Says:
    """Stands for a child that says what it was made to."""

    name = "player 'own.py:Own'"

    def __init__(self, *messages):
        self.messages, self.closed = list(messages), False

    def ask(self, *_):
        return self.messages.pop(0)

    def close(self):
        self.closed = True

    broke_protocol = Child.broke_protocol


def deciding(*messages):
    return _Deciding(types.SimpleNamespace(name="own"), Says(*messages), SHAPE, {})


@pytest.mark.parametrize(
    "says",
    [
        {},
        ASKED | {"fields": ["gold"]},
        ASKED | {"fields": "depth"},
        ASKED | {"fields": [["depth"]]},
        ASKED | {"first": ["stop"]},
        ASKED | {"first": {"open": 1}},
        ASKED | {"parts": None},
        ASKED | {"parts": [1]},
        ASKED | {"parts": ["prune", "prune"]},
    ],
)
def test_fields_and_parts_that_there_are_not_are_refused(says):
    with pytest.raises(SandboxError, match=r"'own\.py:Own' broke the protocol: (fields|parts)"):
        deciding(Message(says, {}))


RIGHT = {
    "stop": np.zeros(2, np.int32),
    "prune": np.zeros((2, 3), bool),
    "advance": np.ones((2, 3), np.int8),
}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"prune": None}, "nothing for prune, which is bool of shape (2, 3)"),
        ({"prune": np.zeros((2, 3), np.int8)}, "int8 of shape (2, 3) for prune, which is bool"),
        (
            {"advance": np.ones(2, np.int16)},
            "int16 of shape (2,) for advance, which is int8 of shape (2",
        ),
        ({"advance": np.ones((2, 3), np.float32)}, "float32 of shape (2, 3) for advance"),
        ({"advance": np.full((2, 3), -1, np.int8)}, "an action whose advance is not in 0 … 5"),
        ({"advance": np.full((2, 3), 6, np.int8)}, "an action whose advance is not in 0 … 5"),
        ({"stop": np.full(2, 77, np.int32)}, "own: act returned the stop reason 77; return a StopReason"),
        ({"stop": np.full(2, -1, np.int32)}, "own: act returned the stop reason -1; return a StopReason"),
    ],
)
def test_actions_that_there_are_not_are_refused(wrong, message):
    arrays = {name: array for name, array in (RIGHT | wrong).items() if array is not None}
    asked = deciding(Message(ASKED, {}), Message({}, RIGHT), Message({}, arrays))
    assert set(asked.act({}, np.ones(2, bool))) == set(RIGHT)
    with pytest.raises(InputError, match=re.escape(message)):
        asked.act({}, np.ones(2, bool))
    assert asked._child.closed  # noqa: SLF001


@pytest.mark.parametrize(
    ("leader", "believed"), [(-2, False), (2, False), (10**9, False), (-1, True), (1, True)]
)
def test_answers_of_branches_that_are_not_open_are_refused(leader, believed):
    says = Message({}, {"leader": np.array([0, leader], np.int32)})
    asked = deciding(Message(ASKED, {}), says, says)
    opened = np.array([0, 2], np.int32)
    assert asked.answer(np.zeros(2, bool), opened).tolist() == [NONE, NONE]
    if believed:
        assert asked.answer(np.array([False, True]), opened).tolist() == [NONE, leader]
    else:
        with pytest.raises(InputError, match=f"leader is {leader}; it must be one of the 2 opened branches"):
            asked.answer(np.array([False, True]), opened)


def test_what_an_action_leaves_out_is_not_sent_and_counts_are_limited():
    action = Action(open=np.int32(10**9), advance=np.array([-1, 2, 10**6]), read=0)
    assert parts_of(action) == ("open", "advance")
    assert parts_of(Action()) == ()
    assert parts_of(Action(repeat=2)) == ("repeat",)
    sent = jax.jit(lambda action: packed(Action(open=action.open, advance=action.advance), SHAPE))(action)
    assert {name: array.dtype for name, array in sent.items()} == {
        "stop": np.int32, "open": np.int8, "advance": np.int8
    }  # fmt: skip
    assert (int(sent["open"]), sent["advance"].tolist()) == (3, [0, 2, 5])


def test_labels_are_in_the_order_in_which_answers_are_shown():
    labels = Labels(2, 9)
    keys = np.array([[NONE, 7, 3, 7], [3, 3, NONE, NONE]], np.int16)
    assert labels.put({"answer_keys": keys})["answer_keys"].tolist() == [[-1, 0, 1, 0], [0, 0, -1, -1]]
    keys = np.array([[8, 3, 3, 7], [NONE, 5, 4, 3]], np.int16)
    assert labels.put({"answer_keys": keys})["answer_keys"].tolist() == [[2, 1, 1, 0], [-1, 1, 2, 0]]
    labels.forget(np.array([True, False]))
    keys[0] = [5, NONE, 8, 5]
    assert labels.put({"answer_keys": keys})["answer_keys"].tolist() == [[0, -1, 1, 0], [-1, 1, 2, 0]]


# --- cheats ---------------------------------------------------------------------------------------------

QUESTIONS = 6


ROWS = [[*first, 3, 4, 5, 6] for first in ([0, 1, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0])]
ORDERS = shared_orders(ROWS, QUESTIONS)
HONEST = (4 * QUESTIONS // 2, 4 * QUESTIONS * 3 * 500)


def score(spec, level="kernel"):
    """Right answers and tokens."""
    play = played(spec, spelled_dataset(*map(a_question, range(QUESTIONS))), ORDERS, level)
    return int(play.correct.sum()), int(play.tokens.sum())


@pytest.mark.parametrize(
    "cheat",
    [
        "PureCallback",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("PrivateFields", "LiesAboutTokens")),
    ],
)
def test_controllers_that_cheat_beat_honest_play_only_where_nothing_seals_them(cheat, monkeypatch):
    monkeypatch.setattr(player, "prepare_rollout", player.prepare_rollout)
    right, tokens = score(f"{CHEATS}:{cheat}", level="none")
    assert (right, -tokens) > (HONEST[0], -HONEST[1])
    assert score(f"{CHEATS}:{cheat}") == HONEST


@pytest.mark.slow
def test_what_claims_an_answer_of_a_branch_that_it_did_not_open_is_refused():
    with pytest.raises(InputError, match="leader is 0; it must be one of the 0 opened branches"):
        score(f"{CHEATS}:Forges")


@pytest.mark.parametrize("file", ["c02_forge_tenth", pytest.param("c03_atime", marks=pytest.mark.slow)])
def test_forging_files_gain_nothing(file, shared):
    try:
        right, tokens = score(shared("cases") / "cheats" / f"{file}.py:Evil")
    except InputError:
        return
    assert (right, -tokens) <= (HONEST[0], -HONEST[1])


def test_nothing_that_is_sent_to_a_child_depends_on_what_is_not_revealed(monkeypatch):
    monkeypatch.setattr(secrets, "randbits", lambda _: 5)
    sent, send = [], Child.send

    def note(child, says, arrays=None):
        held = {name: (str(array.dtype), array.tobytes()) for name, array in (arrays or {}).items()}
        sent[-1].append((dict(says), held))
        send(child, says, arrays)

    monkeypatch.setattr(Child, "send", note)
    data = spelled_dataset(*map(a_question, range(QUESTIONS)))
    shown = np.asarray(data.matrix.answers).copy()
    shown[:, 3:], shown[:, :, 1:] = 0, 1  # the honest controller sees depth 1 of the first three
    hidden = dataclasses.replace(
        data.matrix,
        answers=shown,
        gold=np.zeros_like(data.matrix.gold),
        tokens=np.full_like(data.matrix.tokens, 901),
    )
    for matrix in (data.matrix, hidden):
        sent.append([])
        played(f"{CHEATS}:Honest", dataclasses.replace(data, matrix=matrix), ORDERS)
    assert sent[0] == sent[1]
    assert [says["do"] for says, _ in sent[0] if "do" in says] == ["prepare", "init", "act", "answer"]


# --- the memory of a child --------------------------------------------------------------------------------

READS = """
import dataclasses
import jax
from autotts_jax.core import Action, Controller, StopReason
from autotts_jax.core.controller import first_of

@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Reads(Controller):
    def act(self, memory, view):
        stop = first_of((view.opened >= 4, StopReason.DECIDED))
        return memory, Action(stop=stop, open=1, advance=view.live.astype("int32"))
"""


def secret_data(draw):
    """Questions whose every answer, length and gold answer was drawn, so that bytes tell what they are of."""
    shape, vocabulary = (8, 16, 16), 3000
    answers = draw.integers(0, vocabulary, shape).astype(np.int16)
    gold = draw.integers(0, vocabulary, shape[0]).astype(np.int16)
    matrix = ProbeMatrix(
        answers=answers,
        lengths=np.full(shape[:2], shape[2] - 1, np.int32),
        tokens=draw.integers(10_000, 2_000_000_000, shape[:2]).astype(np.int32),
        gold=gold,
        interval=np.full(shape[0], 500, np.int32),
        cell=np.zeros(shape[0], np.int32),
        vocabulary=vocabulary,
    )
    words = tuple(f"{draw.integers(1 << 60):x}" for _ in range(vocabulary))
    questions = tuple(Question(q, f"what is {words[q]}", words[gold[q]], words) for q in range(shape[0]))
    return ProbeDataset(matrix, questions, (Cell("", "", shape[1], "", ""),), at.replay.EXACT)


def patterns(data):
    """Bytes of gold answers, and of answers and lengths in the order in which they are recorded and read."""
    matrix = data.matrix
    found = {"the text of a gold answer": data.questions[3].gold.encode()}
    found["the text of a question"] = data.questions[3].text.encode()
    for kind in (np.int16, np.int32):
        found[f"gold, {kind.__name__}"] = matrix.gold.astype(kind).tobytes()
        for branch in (0, 9):
            answers = np.asarray(matrix.answers)[5, branch].astype(kind)
            found[f"answers of branch {branch}, {kind.__name__}"] = answers[-8:].tobytes()
        found[f"answers at a depth, {kind.__name__}"] = matrix.answers[5, :, 7].astype(kind).tobytes()
    found["lengths of branches"] = matrix.tokens[5, 8:].tobytes()
    return found


def held(pid, wanted):
    """Which patterns the memory that a process writes to holds."""
    found = set()
    with Path(f"/proc/{pid}/mem").open("rb") as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            place, rights = line.split()[:2]
            if rights.startswith("rw"):
                first, last = (int(end, 16) for end in place.split("-"))
                memory.seek(first)
                data = memory.read(last - first)
                found |= {name for name, pattern in wanted.items() if pattern in data}
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc is where memory is read")
def test_a_child_that_plays_holds_neither_gold_nor_what_is_not_revealed(tmp_path, monkeypatch):
    data = secret_data(np.random.default_rng(0))
    file = tmp_path / "reads.py"
    file.write_text(READS)
    wanted = patterns(data)
    memories, open_files, acts, ask = [], set(), [], Child.ask

    def search(child, says, arrays=None, most=0):
        message = ask(child, says, arrays, most)
        if says["do"] == "act":
            acts.append(arrays["answer_keys"])
        if says["do"] == "answer" or len(acts) == 3:
            pid = child._process.pid  # noqa: SLF001
            try:
                memories.append(held(pid, wanted | {"what it was shown": acts[-1].tobytes()}))
            except PermissionError:
                pytest.skip("this process may not read the memory of a child")
            open_files.update(str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir())
        return message

    monkeypatch.setattr(Child, "ask", search)
    orders = shared_orders([range(16)], 8)
    played(f"{file}:Reads", data, orders)
    assert memories == [{"what it was shown"}] * 2
    assert all(re.match(r"pipe:|/dev/(null|urandom)$|anon_inode:", name) for name in open_files), open_files
