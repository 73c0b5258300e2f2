"""Sealing: what cheats when it runs next to the gold answers does not when it runs sealed."""

import ast
import builtins
import ctypes
import dataclasses
import importlib.util
import inspect
import json
import os
import pickle
import re
import secrets
import signal
import socketserver
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from ledgers import question_of
from matrices import spelled_dataset

import autotts_jax
from autotts_jax.errors import InputError
from autotts_jax.policies import Sealing, select
from autotts_jax.policies.sealed.ledger import Ledger
from autotts_jax.replay import BranchOrders
from autotts_jax.sandbox import Sandbox
from autotts_jax.sandbox.process import Child, SandboxError
from autotts_jax.user_code import find_code

CHEATS = Path(__file__).parent / "cheats"
QUESTIONS, ROWS = 6, 6


def a_question(number):
    """The gold answer is among the first three branches, and most of them agree on it in every other question."""
    right, wrong, other = (f"q{number}{kind}" for kind in ("right", "wrong", "other"))
    first = [right, wrong, wrong] if number % 2 else [right, other, right]
    branches = [*first, right, right, right, other]
    return [[answer, answer] for answer in branches], [900] * len(branches), right, 500


DATA = spelled_dataset(*map(a_question, range(QUESTIONS)))
GOLD = [question.gold for question in DATA.questions]
# The same three branches come first in all rows, in another order.
ORDERS = np.array([[*first, 3, 4, 5, 6] for first in ([0, 1, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0])], np.int16)
ORDERS = ORDERS[np.arange(ROWS) % len(ORDERS)]
PLACES = [order.tolist().index(0) for order in ORDERS for _ in GOLD]
LIMITS = Sandbox(seconds=20, memory=1 << 30)

ASKS = """

class Program:
    turn = 0

    def __init__(self, config=None):
        pass

    def solve(self, question):
        turn, Program.turn = Program.turn, Program.turn + 1
        shown = [question.probe_new()[0] for _ in range(3)]
        try:
            answer = {cheat}(question, turn, shown)
        except Exception:
            answer = None
        return max(shown, key=shown.count) if answer is None else answer
"""
DOES = """

class Program:
    def __init__(self, config=None):
        pass

    def solve(self, question):
        shown = [question.probe_new()[0] for _ in range(3)]
        try:
            done = {cheat}()
        except Exception:
            done = False
        if done:
            raise RuntimeError("it was done")
        return max(shown, key=shown.count)
"""


def functions(file):
    """The cheats of a file."""
    tree = ast.parse((CHEATS / f"{file}.py").read_text())
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [(file, name) for name in names if not name.startswith("_")]


def ids(cheats):
    return [name for _, name in cheats]


# --- the judge without a seal ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Score:
    """What a program's episodes came to: the higher, the better."""

    right: int
    tokens: int

    def beats(self, other):
        return (self.right, -self.tokens) > (other.right, -other.tokens)


HONEST = Score(ROWS * QUESTIONS // 2, ROWS * QUESTIONS * 3 * 500)


def judge(program):
    """Plays all episodes as the package did before programs were sealed: next to the gold answers."""
    records, right, tokens = DATA.questions, 0, 0
    for order in ORDERS:
        for number, record in enumerate(records):
            question, ledger = question_of(DATA, order, question=number)

            def grade(answer, gold=record.gold):
                return answer == gold

            # Process pools hand over what was returned as pickles.
            answer = pickle.loads(pickle.dumps(program().solve(question)))
            right += bool(grade(answer))
            tokens += ledger.tokens
    return Score(right, tokens)


@pytest.fixture(scope="module")
def secret(tmp_path_factory):
    """Puts the gold answers where cheats look for them; returns the places."""
    folder = tmp_path_factory.mktemp("secret")
    gold = json.dumps(GOLD)
    (folder / "data.json").write_text(gold)
    shared = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else folder
    shared = shared / f"autotts-test-{os.getpid()}"
    shared.write_text(gold)
    buffer = ctypes.create_string_buffer(gold.encode(), len(gold))

    class Tells(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.sendall(gold.encode())

    os.environ["TEST_GOLD"] = gold
    local = f"/tmp/autotts-test-{os.getpid()}"
    with (
        socketserver.ThreadingTCPServer(("127.0.0.1", 0), Tells) as listener,
        socketserver.ThreadingUnixStreamServer(local, Tells) as local_listener,
        (folder / "data.json").open() as _,
    ):
        for server in (listener, local_listener):
            threading.Thread(target=server.serve_forever, daemon=True).start()
        yield {
            "DATA": folder / "data.json",
            "SHARED": shared,
            "FOLDER": folder,
            "SOCKET": local,
            "PORT": listener.server_address[1],
            "PID": os.getpid(),
            "ADDRESS": ctypes.addressof(buffer),
            "SIZE": len(buffer),
            "GOLD": gold,
            "PLACES": json.dumps(PLACES),
            "BYTES": 3 << 28,
            "SECONDS": 60,
        }
        for server in (listener, local_listener):
            server.shutdown()
    for place in (shared, Path(local)):
        place.unlink()
    del os.environ["TEST_GOLD"]


@pytest.fixture
def write(secret, tmp_path):
    """Writes a program that holds a cheat, which knows the places of the secret; returns its name."""

    def write(file, cheat, program=ASKS, **places):
        text = (CHEATS / f"{file}.py").read_text()
        for name, place in (secret | places).items():
            text = text.replace(f"@{name}@", str(place))
        path = tmp_path / f"{cheat}.py"
        path.write_text(text + program.format(cheat=cheat))
        return f"{path}:Program"

    return write


@pytest.fixture(autouse=True)
def same_draws(monkeypatch):
    """Draws the same episodes to check each time."""
    monkeypatch.setattr(secrets, "randbits", lambda _: 5)


# --- sealed ---------------------------------------------------------------------------------------------


def orders(table=ORDERS):
    return BranchOrders(np.asarray(table)[None], np.zeros(QUESTIONS, np.int32))


def sealed(spec, spellings=False, limits=LIMITS, data=DATA, table=ORDERS):
    play = select(spec, sealing=Sealing(spellings=spellings, sandbox=limits)).play(data, orders(table))
    return Score(int(play.correct.sum()), int(play.tokens.sum()))


def refusal(spec, limits=LIMITS, **settings):
    """The one clear error with which a program's run ends."""
    with pytest.raises(InputError) as refused:
        sealed(spec, limits=limits, **settings)
    message = str(refused.value)
    assert len(message.splitlines()) <= 12
    return message


def is_no_better(spec, **settings):
    """Whether a program is refused, or scores no better than the honest one."""
    try:
        return not sealed(spec, **settings).beats(HONEST)
    except InputError as error:
        return len(str(error).splitlines()) <= 12


@pytest.fixture(scope="module")
def kernel():
    """For tests of what only a kernel keeps from a process."""
    try:
        with Child("autotts_jax.policies.sealed.child", Sandbox("kernel")) as child:
            child.begin()
    except SandboxError as error:
        pytest.skip(str(error))


def test_the_honest_program_scores_the_same_with_and_without_a_seal(write):
    spec = write("inside", "(lambda *_: None)")
    assert judge(find_code(spec).load()) == HONEST
    assert sealed(spec) == sealed(spec, spellings=True) == HONEST


INSIDE, OUTSIDE, KNOWING = functions("inside"), functions("outside"), functions("knowing")
ASKING = [*INSIDE, *OUTSIDE, *KNOWING]


@pytest.mark.parametrize(("file", "cheat"), ASKING, ids=ids(ASKING))
def test_cheats_beat_honest_play_where_nothing_seals_them(write, file, cheat, monkeypatch):
    monkeypatch.setattr(builtins, "sum", sum)
    monkeypatch.setattr(Ledger, "tokens", Ledger.tokens)
    assert judge(find_code(write(file, cheat)).load()).beats(HONEST)


@pytest.mark.parametrize(("file", "cheat"), [*INSIDE, *OUTSIDE], ids=ids([*INSIDE, *OUTSIDE]))
def test_sealed_cheats_that_look_around_find_nothing(write, file, cheat, kernel):
    # Spelled answers would pay for a gold answer that was found.
    assert is_no_better(write(file, cheat), spellings=True)


@pytest.mark.parametrize(("file", "cheat"), KNOWING, ids=ids(KNOWING))
def test_sealed_cheats_that_know_the_questions_cannot_use_it(write, file, cheat):
    assert is_no_better(write(file, cheat))


def test_places_known_by_heart_and_memory_are_noticed(write):
    for cheat in ("table_of_places", "memory_between_episodes"):
        message = refusal(write("knowing", cheat))
        assert "plays another episode when it has not played the question before (question " in message


DOING = functions("doing")


@pytest.mark.parametrize(("file", "cheat"), DOING, ids=ids(DOING))
def test_what_no_program_may_do(write, file, cheat, kernel, secret):
    spec = write(file, cheat, DOES)
    assert getattr(sys.modules[find_code(spec).load().__module__], cheat)()
    (secret["FOLDER"] / "written").unlink(missing_ok=True)
    assert sealed(spec) == HONEST
    assert not (secret["FOLDER"] / "written").exists()


def test_what_is_done_is_noticed(write):
    assert "RuntimeError: it was done" in refusal(write("doing", "(lambda: True)", DOES))


WASTE = {
    "think_too_long": "took longer than the 3 s that a step may take",
    "loop": "took longer than the 3 s that a step may take",
    "hoard": "MemoryError",
    "hoard_shared": r"held more than 0\.5 GiB of memory",
}


@pytest.mark.parametrize("cheat", WASTE)
def test_time_and_memory_end(write, cheat):
    spec = write("wasting", cheat, DOES, SECONDS=0.1)
    getattr(sys.modules[find_code(spec).load().__module__], cheat)()  # nobody stops it here
    limits = Sandbox(seconds=3, memory=1 << 29)
    if cheat == "hoard":  # a program that goes on with what it has
        spec = write("wasting", cheat, DOES.replace("except Exception", "except ZeroDivisionError"))
    else:
        spec = write("wasting", cheat, DOES)
    assert re.search(WASTE[cheat], refusal(spec, limits))


def test_questions_for_tokens_end(tmp_path):
    file = tmp_path / "asks.py"
    file.write_text(
        "class Program:\n    def __init__(self, config): pass\n    def solve(self, question):\n"
        "        while True:\n            question.get_seq_and_total_tokens()\n"
    )
    assert "more than 100000 actions that read nothing" in refusal(f"{file}:Program", table=ORDERS[:1])


@pytest.mark.parametrize(
    "answer", ["float('nan')", "object()", "None", "b'a0'", "['a0']", "True", "'a99'", "'a-1'", "len"]
)
def test_what_was_not_shown_is_never_right(tmp_path, answer):
    file = tmp_path / "answers.py"
    file.write_text(
        "class Program:\n    def __init__(self, config): pass\n    def solve(self, question):\n"
        f"        question.probe_new()\n        return {answer}\n"
    )
    assert sealed(f"{file}:Program", table=ORDERS[:1]) == Score(0, QUESTIONS * 500)
