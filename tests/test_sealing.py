"""Sealing: what cheats when it runs next to the gold answers does not when it runs sealed."""

import ast
import builtins
import contextlib
import ctypes
import dataclasses
import functools
import gc
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
import types
from multiprocessing import resource_tracker
from pathlib import Path

import numpy as np
import pytest
from asking import ASKS
from ledgers import question_of
from matrices import a_question, spelled_dataset

import autotts_jax
from autotts_jax.errors import InputError, InputWarning
from autotts_jax.policies import Sealing, players, select
from autotts_jax.policies.sealed import ledger, program, solving
from autotts_jax.policies.sealed.ledger import Ledger
from autotts_jax.replay import BranchOrders
from autotts_jax.sandbox import Sandbox, process
from autotts_jax.sandbox.process import Child, LevelError, SandboxError
from autotts_jax.user_code import UserCode, find_code

# Cheats fork where nothing stops them, and JAX, which another module may have started, warns of it.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")

CHEATS = Path(__file__).parent / "cheats"
QUESTIONS, ROWS = 6, 6


DATA = spelled_dataset(*map(a_question, range(QUESTIONS)))
GOLD = [question.gold for question in DATA.questions]
# The same three branches come first in all rows, in another order.
ORDERS = np.array([[*first, 3, 4, 5, 6] for first in ([0, 1, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0])], np.int16)
ORDERS = ORDERS[np.arange(ROWS) % len(ORDERS)]
PLACES = [order.tolist().index(0) for order in ORDERS for _ in GOLD]
LIMITS = Sandbox(seconds=20, memory=1 << 30)

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


def honest(rows):
    """What honest play comes to in so many rows of `ORDERS`."""
    return Score(rows * QUESTIONS // 2, rows * QUESTIONS * 3 * 500)


HONEST = honest(ROWS)


def judge(program, rows=ROWS):
    """Plays all episodes as the package did before programs were sealed: next to the gold answers."""
    records, right, tokens = DATA.questions, 0, 0
    for order in ORDERS[:rows]:
        for number, record in enumerate(records):
            question, books = question_of(DATA, order, question=number)

            def grade(answer, gold=record.gold):
                return answer == gold

            # Process pools hand over what was returned as pickles.
            answer = pickle.loads(pickle.dumps(program().solve(question)))
            right += bool(grade(answer))
            tokens += books.tokens
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
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield {
            "DATA": folder / "data.json",
            "SHARED": shared,
            "FOLDER": folder,
            "SOCKET": local,
            "PORT": listener.server_address[1],
            "PID": os.getpid(),
            "ADDRESS": ctypes.addressof(buffer),
            "SIZE": len(buffer),
            "GOLD": ",".join(GOLD),
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


@pytest.fixture(scope="module")
def kernel():
    """For tests of what only a kernel keeps from a process."""
    try:
        with Child("autotts_jax.policies.sealed.child", Sandbox("kernel")) as child:
            child.begin()
    except LevelError as error:
        pytest.skip(str(error))


def test_the_honest_program_scores_the_same_with_and_without_a_seal(write):
    spec = write("inside", "(lambda *_: None)")
    assert judge(find_code(spec).load()) == HONEST
    assert sealed(spec) == sealed(spec, spellings=True) == HONEST


INSIDE, OUTSIDE, KNOWING = functions("inside"), functions("outside"), functions("knowing")
ASKING = [*INSIDE, *OUTSIDE, *KNOWING]


@pytest.mark.slow
@pytest.mark.parametrize(("file", "cheat"), ASKING, ids=ids(ASKING))
def test_cheats_beat_honest_play_where_nothing_seals_them(write, file, cheat, monkeypatch):
    monkeypatch.setattr(builtins, "sum", sum)
    monkeypatch.setattr(Ledger, "tokens", Ledger.tokens)
    rows = ROWS if file == "knowing" else 1  # what looks around learns nothing from row to row
    assert judge(find_code(write(file, cheat)).load(), rows).beats(honest(rows))


LOOKING = [cheat for cheat in [*INSIDE, *OUTSIDE] if cheat != ("inside", "pickles")]


@pytest.mark.parametrize(
    ("file", "cheat"),
    [
        pytest.param(*cheat, marks=[pytest.mark.slow] * (number % 6 > 0), id=cheat[1])
        for number, cheat in enumerate(LOOKING)
    ],
)
@pytest.mark.usefixtures("kernel")
def test_sealed_cheats_that_look_around_find_nothing(write, file, cheat):
    # Spelled answers would pay for a gold answer that was found.
    assert not sealed(write(file, cheat), spellings=True).beats(HONEST)


def test_an_object_that_would_act_when_it_is_unpickled_is_refused(write):
    assert "TypeError: solve returned a Loot" in refusal(write("inside", "pickles"))


def test_known_answers_are_not_shown(write):
    assert not sealed(write("knowing", "table_of_answers")).beats(HONEST)


def test_places_known_by_heart_and_memory_are_noticed(write):
    # Only episodes that begin after others have ended can remember these.
    many = np.tile(ORDERS, (20, 1))
    for cheat, table in (("table_of_places", ORDERS), ("memory_between_episodes", many)):
        message = refusal(write("knowing", cheat), table=table)
        assert "plays another episode when it has not played the question before (question " in message


def test_memory_between_settings_is_noticed(tmp_path):
    file = tmp_path / "remembers.py"
    file.write_text(
        "class Program:\n    known, turn = {}, {}\n\n    def __init__(self, config):\n"
        "        self.beta = config['beta']\n\n    def solve(self, question):\n"
        "        turn = Program.turn[self.beta] = Program.turn.get(self.beta, 0) + 1\n"
        "        if turn in Program.known:\n            question.probe_new()\n"
        "            return Program.known[turn]\n"
        "        shown = [question.probe_new()[0] for _ in range(7)]\n"
        "        Program.known[turn] = max(shown, key=shown.count)\n        return Program.known[turn]\n"
    )
    player = dataclasses.replace(select(f"{file}:Program@0.5"), values=(0.5, 0.2))
    with pytest.raises(SandboxError, match="plays another episode"):
        player.play(DATA, orders())


TELLS = """
import os

class Program:
    deep, turn, held = None, 0, []

    def __init__(self, config=None):
        pass

    def solve(self, question):
        turn, Program.turn = Program.turn, Program.turn + 1
        while turn and Program.deep is None:
            question.get_seq_and_total_tokens()  # the first one learns
        Program.deep = Program.deep or told()
        if Program.deep is None:
            read = [to_end(question) for _ in range(7)]
            finals = [answer for answer, _ in read]
            most = max(finals, key=finals.count)
            Program.deep = next(depth for answer, depth in read if answer == most)
            while number_of_files("self") < 100 + Program.deep:
                Program.held.append(os.dup(1))
            return most
        return next(answer for answer, depth in (to_end(question) for _ in range(3)) if depth == Program.deep)

def to_end(question):
    answer, index, finished = question.probe_new()
    depth = 1
    while not finished:
        answer, finished = question.probe_more(index)
        depth += 1
    return answer, depth

def number_of_files(process):
    try:
        return os.stat(f"/proc/{process}/fd").st_size
    except OSError:
        return 0

def told():
    others = {*range(os.getpid() - 99, os.getpid() + 99)} - {os.getpid()}
    return next((n - 100 for n in map(number_of_files, others) if 100 < n < 104), None)
"""


@pytest.mark.parametrize(
    ("questions", "checked"), [pytest.param(QUESTIONS, QUESTIONS, marks=pytest.mark.slow), (40, 32)]
)
def test_one_episode_of_each_of_32_questions_is_checked(write, monkeypatch, questions, checked):
    slots, send = [], process.Child.send

    def count(child, says, arrays=None):
        slots.append(says.get("slots"))
        send(child, says, arrays)

    monkeypatch.setattr(process.Child, "send", count)
    data = spelled_dataset(*map(a_question, range(questions)))
    table = BranchOrders(ORDERS[None], np.zeros(questions, np.int32))
    select(write("inside", "(lambda *_: None)")).play(data, table)
    assert [number for number in slots if number] == [checked, min(64, questions * ROWS)]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is where the program tells what it has seen")
def test_a_process_that_has_played_cannot_tell_the_one_that_checks_it(tmp_path):
    file = tmp_path / "tells.py"
    file.write_text(TELLS)
    right, wrong, other = ["right"] * 2, ["wrong"] * 2, ["other"] * 2
    data = spelled_dataset(
        ([["right"] * 3, wrong, wrong, right, right, right, other], [900] * 7, "right", 500)
    )
    with pytest.raises(
        SandboxError, match="plays another episode when it has not played the question before"
    ):
        select(f"{file}:Program").play(
            data, BranchOrders(np.tile(ORDERS, (20, 1))[None], np.zeros(1, np.int32))
        )


DOING = functions("doing")


@pytest.mark.parametrize(
    ("file", "cheat"),
    [
        pytest.param(*cheat, marks=[pytest.mark.slow] * (number % 4 > 0), id=cheat[1])
        for number, cheat in enumerate(DOING)
    ],
)
@pytest.mark.usefixtures("kernel")
def test_what_no_program_may_do(write, file, cheat, secret):
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
    "hoard_tables": r"held more than 0\.5 GiB of memory",
    "many_threads": "started more than 100 threads",
}


@pytest.mark.parametrize(
    "cheat",
    [
        pytest.param(cheat, marks=[pytest.mark.slow] * (cheat not in ("hoard", "many_threads")))
        for cheat in WASTE
    ],
)
def test_time_and_memory_end(write, cheat, monkeypatch):
    monkeypatch.setattr(process, "MOST_THREADS", 100)
    spec = write("wasting", cheat, DOES, SECONDS=0.1)
    getattr(sys.modules[find_code(spec).load().__module__], cheat)()  # nobody stops it here
    # A kernel that confines refuses shared memory.
    seconds = 3 if "took longer" in WASTE[cheat] else 60
    limits = Sandbox("process" if cheat == "hoard_shared" else "kernel", seconds=seconds, memory=1 << 29)
    if cheat == "hoard":  # a program that goes on with what it has
        spec = write("wasting", cheat, DOES.replace("except Exception", "except ZeroDivisionError"))
    else:
        spec = write("wasting", cheat, DOES)
    assert re.search(WASTE[cheat], refusal(spec, limits))


def test_cpu_time_ends(write):
    limits = Sandbox(seconds=60, memory=1 << 30, cpu_seconds=2)
    assert "it took more than 2 s of CPU time" in refusal(write("wasting", "loop", DOES), limits)


@functools.cache
def listening():
    """Notes what this process opens and starts; a hook stays for as long as the interpreter runs."""
    noted = types.SimpleNamespace(events=None)

    def note(event, arguments):
        if noted.events is not None and event in ("open", "subprocess.Popen", "os.utime"):
            noted.events.append((event, str(arguments[0])))

    sys.addaudithook(note)
    return noted


@pytest.mark.slow
@pytest.mark.usefixtures("kernel")
def test_what_a_child_can_notice_tells_nothing_of_gold_or_of_what_is_checked(tmp_path, monkeypatch):
    """Words, messages, opened files and processes are the same whatever the gold answers are.

    Those of the child that plays are the same, too, when other episodes are checked.
    """
    file, noted, children, said = tmp_path / "plays.py", listening(), [], []
    file.write_text(
        "class Program:\n    def __init__(self, config=None): pass\n    def solve(self, question):\n"
        "        shown = [question.probe_new()[0] for _ in range(3)]\n"
        "        return max(shown, key=shown.count)\n"
    )
    start, answer, send = Child.__init__, Child.answer, Child.send

    def started(child, *arguments, **options):
        children.append(child)
        said.append([])
        start(child, *arguments, **options)

    def answered(child, words):
        said[children.index(child)] += words
        answer(child, words)

    def told(child, says, arrays=None):
        said[children.index(child)].append(json.dumps(says))
        send(child, says, arrays)

    for name, noting in (("__init__", started), ("answer", answered), ("send", told)):
        monkeypatch.setattr(Child, name, noting)
    seen = []
    gold = np.asarray(DATA.matrix.gold)
    for of, seed in ((gold, 1), (np.where(gold, 0, 1), 1), (gold, 2)):
        monkeypatch.setattr(secrets, "randbits", lambda _, seed=seed: seed)
        data = dataclasses.replace(DATA, matrix=dataclasses.replace(DATA.matrix, gold=of))
        children.clear()
        said.clear()
        player = select(f"{file}:Program", sealing=Sealing(sandbox=LIMITS))
        noted.events = []
        player.play(data, orders())
        events, noted.events = noted.events, None
        elsewhere = [(event, what) for event, what in events if not what.startswith("/proc/")]
        seen.append((sorted(said, key=len), elsewhere))  # who checks plays fewer episodes
    (checked, played), does = seen[0]
    assert seen[1] == seen[0]
    assert seen[2][0][1] == played
    assert seen[2][0][0] != checked
    assert len(seen[0][0]) == len(seen[2][0]) == 2
    assert does == seen[2][1] == []


def children_of(process):
    """The process ids of a process's children."""
    found = []
    for task in Path(f"/proc/{process}/task").iterdir():
        found += (task / "children").read_text().split()
    return {int(pid) for pid in found}


def children():
    """The process ids of this process's children, but for the one that tracks what processes share.

    Whoever uses multiprocessing starts that one, once for all.
    """
    tracker = resource_tracker._resource_tracker  # noqa: SLF001
    return children_of(os.getpid()) - {tracker._pid}  # noqa: SLF001


needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are found in /proc")


EXHAUSTING = """
import time

class Program:
    def __init__(self, config=None):
        pass

    def solve(self, question):
        return question.probe_new()[0]

class Drips(Program):  # never too long for one step
    def solve(self, question):
        while True:
            time.sleep(0.2)
            question.get_seq_and_total_tokens()

HELD = bytearray({held} << 20)
"""


def exhausting(tmp_path, name, held=0):
    file = tmp_path / f"{name}.py"
    file.write_text(EXHAUSTING.format(held=held).replace("Program", name))
    return file


def evaluated(players, **limits):
    limits = Sealing(sandbox=Sandbox(**{"seconds": 60} | limits))
    return autotts_jax.evaluate(DATA, players, seeds=2, max_branches=3, sealing=limits)


@pytest.mark.slow
@needs_proc
def test_a_player_that_takes_too_long_in_all_has_no_results_and_the_others_have_theirs(tmp_path):
    before = children()
    file = exhausting(tmp_path, "Honest")
    with pytest.warns(InputWarning, match="Drips has no results: .* took longer than the 5 s that it has"):
        result = evaluated([f"{file}:Drips", f"{file}:Honest", "sc@3"], wall_seconds=5)
    assert [play.player.name for play in result.plays] == ["Honest", "sc"]
    assert list(result.manifest()["refused"]) == list(result.refused) == ["Drips"]
    gc.collect()
    assert children() == before


def test_where_no_player_has_results_all_are_named(tmp_path):
    (tmp_path / "none.py").write_text("raise RuntimeError('at once')\n")
    (tmp_path / "late.py").write_text(
        "class Late:\n    def __init__(self, config): raise RuntimeError('later')\n    solve = None\n"
    )
    with pytest.raises(InputError) as error:
        evaluated([f"{tmp_path}/none.py:None_", f"{tmp_path}/late.py:Late"])
    head, *said = str(error.value).splitlines()
    assert head == "no player has results"
    assert [line.endswith(end) for line, end in zip(said, ("at once", "later"), strict=True)] == [True, True]


@pytest.mark.slow
def test_a_player_that_takes_too_long_alone_is_an_error(tmp_path):
    with pytest.raises(SandboxError, match="took longer than the 2 s that it has as a whole"):
        evaluated(f"{exhausting(tmp_path, 'Honest')}:Drips", wall_seconds=2)


HOLDS = Sandbox(seconds=60, memory=500 << 20)


@pytest.mark.slow
@needs_proc
def test_processes_that_stand_idle_are_ended_where_all_together_hold_too_much(tmp_path):
    """Two processes of a player hold less than the limit, those of two players more."""
    files = [exhausting(tmp_path, name, held=200) for name in ("First", "Second", "Third")]
    players = [select(f"{file}:{file.stem}", sealing=Sealing(sandbox=HOLDS)) for file in files]
    assert len(children()) <= 2
    for player in players:
        assert player.play(DATA, orders()).seal.level == "kernel"


@pytest.mark.slow
def test_processes_of_one_player_hold_no_more_than_one_may(tmp_path):
    file = exhausting(tmp_path, "Hoards", held=300)
    with pytest.warns(InputWarning, match=r"Hoards has no results: .* held more than 0.488 GiB of memory"):
        result = evaluated([f"{file}:Hoards", "sc@3"], memory=HOLDS.memory)
    assert [play.player.name for play in result.plays] == ["sc"]


NEIGHBOURS = """
import importlib, pathlib

class Program:
    def __init__(self, config=None):
        print("printed")

    def solve(self, question):
        for see in (importlib.import_module, lambda name: pathlib.Path({folder!r}, name + ".py").read_text()):
            try:
                see("neighbour")
            except (ModuleNotFoundError, PermissionError):
                continue
            raise SystemError("seen")
"""


@pytest.mark.usefixtures("kernel")
def test_a_program_in_a_file_sees_no_other_and_prints_nothing(tmp_path, capfd):
    (tmp_path / "neighbour.py").touch()
    file = tmp_path / "looks.py"
    file.write_text(NEIGHBOURS.format(folder=str(tmp_path)))
    assert sealed(f"{file}:Program") == Score(0, 0)
    assert capfd.readouterr() == ("", "")


POLLS = """
class Program:
    def __init__(self, config):
        pass

    def solve(self, question):
        for _ in range({before}):
            question.get_seq_and_total_tokens()
        question.probe_new()
        for _ in range({after}):
            question.get_seq_and_total_tokens()
"""


@pytest.mark.parametrize(
    ("before", "after", "most"),
    [
        pytest.param(501, 0, 500, marks=pytest.mark.slow),
        pytest.param(500, 5, 505, marks=pytest.mark.slow),
        (500, 6, 505),
    ],
)
def test_questions_for_tokens_end(tmp_path, before, after, most):
    file = tmp_path / "asks.py"  # each question is two: for the tokens of all branches, and of the longest
    file.write_text(POLLS.format(before=before, after=after))
    if before + after > most:
        assert "more than 1000 actions that read nothing" in refusal(f"{file}:Program", table=ORDERS[:1])
    else:
        assert sealed(f"{file}:Program", table=ORDERS[:1]).tokens > 0


@pytest.fixture
def answering(tmp_path):
    """Writes a program that gives an answer, an expression; returns its name."""

    def write(answer):
        file = tmp_path / "answers.py"
        file.write_text(
            "class Program:\n    def __init__(self, config): pass\n    def solve(self, question):\n"
            f"        question.probe_new()\n        return {answer}\n"
        )
        return f"{file}:Program"

    return write


@pytest.mark.parametrize(
    "answer",
    [pytest.param("None", marks=pytest.mark.slow), "'a99'", pytest.param("'a-1'", marks=pytest.mark.slow)],
)
def test_what_was_not_shown_is_never_right(answering, answer):
    assert sealed(answering(answer), table=ORDERS[:1]) == Score(0, QUESTIONS * 500)


class Hears:
    """Stands for the parent, to which every branch goes on, and raises what it is told."""

    def __init__(self):
        self.words = self

    def send(self, says):
        if isinstance(says, dict):
            raise InputError(says["failed"])

    def receive(self, number):
        return [1] * number


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("float('nan')", "float"),
        ("object()", "object"),
        ("b'a0'", "bytes"),
        ("['a0']", "list"),
        ("True", "bool"),
        ("(yield)", "generator"),
    ],
)
def test_an_answer_of_another_type_is_refused(answering, answer, kind):
    program = find_code(answering(answer)).load()
    with pytest.raises(InputError, match=f"TypeError: solve returned a {kind}; return an answer"):
        solving.play(Hears(), program, None, 1, False, 1)


# --- messages out of protocol ---------------------------------------------------------------------------

WRITES = """
import gc, os, pickle, struct, time

class Loot:
    def __reduce__(self):
        return open, ({loot!r}, "w")

class Program:
    def __init__(self, config=None):
        pass

    def solve(self, question):
        question.probe_new()
        pickled, words = pickle.dumps(Loot()), {{"failed": [[]], "done": 10**30, "text": 1}}
        frame = lambda text, body=b"", size=0: struct.pack("<II", len(text), size or len(body)) + text + body
        (channel,) = (o for o in gc.get_objects() if type(o).__name__ == "Channel")
        os.write(channel._write, {data})
        time.sleep(1)
"""
# test_sandbox has more of what is not a message.
OUT_OF_PROTOCOL = {
    "b'\\xff' * 4096": "is too large",
    "frame(pickled)": "no message",
    'frame(b\'[{}, [["asks", "object", 1]]]\')': "an array of 'object'",
    'frame(b\'[{"go": "on"}, []]\')': "a message that nobody asked for",
    'frame(b\'[{"failed": [[]], "slot": 0}, []]\')': "a list instead of a message",
    'frame(b\'[{"failed": "x", "slot": 99}, []]\')': "a message that nobody asked for",
}


@pytest.mark.slow
@pytest.mark.parametrize("data", OUT_OF_PROTOCOL)
def test_messages_out_of_protocol_end_the_run(tmp_path, data):
    file = tmp_path / "writes.py"
    file.write_text(WRITES.format(loot=str(tmp_path / "loot"), data=data))
    message = refusal(f"{file}:Program", table=ORDERS[:1])
    assert OUT_OF_PROTOCOL[data] in message
    assert not (tmp_path / "loot").exists()


FORGED = {
    "ask(FULL + 9)": "a branch that is not the next to be opened",
    "ask(9 * END)": "an action that does not exist",
    "ask(MORE + 77)": "a branch that is not open",
    "ask(NEW), ask(FULL)": "a branch that is not the next to be opened",
    "pipe.send([-1]), time.sleep(1)": "an action that does not exist",
    "pipe.send([-(2**63)] * 5), time.sleep(1)": "an action that does not exist",
    "pipe.send([TOKENS] * 9**5), time.sleep(1)": "more than 1000 actions that read nothing",
    "pipe.send([END] * 2 * 64), time.sleep(1)": "an action of no episode",
    "os.write(pipe._write, bytes(range(200, 256))), time.sleep(1)": "an action that does not exist",
    "os.closerange(3, 256), time.sleep(1)": "closed its pipe",
}


@pytest.fixture
def forging(tmp_path):
    """Writes a program that speaks for itself; returns its name."""

    def write(act):
        file = tmp_path / "forges.py"
        file.write_text(
            "import gc, os, time\n\nfrom autotts_jax.policies.sealed.question import *\n\n\n"
            "class Program:\n    def __init__(self, config=None):\n        pass\n\n"
            "    def solve(self, question):\n"
            "        pipe = next(o for o in gc.get_objects() if type(o).__name__ == 'IntChannel')\n"
            f"        ask = question._ask\n        {act}\n"
        )
        return f"{file}:Program"

    return write


@pytest.mark.slow
@pytest.mark.parametrize("act", FORGED)
def test_actions_out_of_protocol_end_the_run(forging, act):
    assert FORGED[act] in refusal(forging(act), table=ORDERS[:1])


def test_who_asks_and_does_not_read_the_answers_is_not_waited_for(forging, monkeypatch):
    monkeypatch.setattr(ledger, "MOST_FREE", 10**6)
    program = forging("pipe.send([TOKENS] * 9**5), time.sleep(1)")
    assert "it asks without reading the answers" in refusal(program, table=ORDERS[:1])


@pytest.mark.parametrize(
    "raised",
    [
        "SystemExit(0)",
        pytest.param("MemoryError()", marks=pytest.mark.slow),
        pytest.param("KeyboardInterrupt('stop')", marks=pytest.mark.slow),
        pytest.param("GeneratorExit()", marks=pytest.mark.slow),
    ],
)
def test_whatever_a_program_raises_is_shown(tmp_path, raised):
    file = tmp_path / "raises.py"
    file.write_text(
        "class Program:\n    def __init__(self, config=None):\n        pass\n\n"
        f"    def solve(self, question):\n        raise {raised}\n"
    )
    assert f"raise {raised}" in refusal(f"{file}:Program", table=ORDERS[:1])


ENDS = """
import os
import sys

from autotts_jax.cli import main as cli


class Raises:
    def __init__(self, config=None):
        pass

    def solve(self, question):
        raise SystemExit(0)


class Exits(Raises):
    def solve(self, question):
        os._exit(0)


def extractor(text):
    raise SystemExit(0)


if __name__ == "__main__":
    answer = ["answer", "Which?", "--engine", "simulated", "--max-branches", "2", "--controller"]
    evaluate = ["evaluate", "--data", "smollm2", "--seeds", "1", "--processes", "1", "--controllers"]
    commands = [
        [*evaluate, __file__ + ":Raises"],
        [*evaluate, __file__ + ":Exits"],
        [*answer, __file__ + ":Raises"],
        [*answer, __file__ + ":Exits"],
        [*answer, "sc@2", "--answers", __file__ + ":extractor"],
    ]
    for command in commands:
        sys.argv[1:] = command
        try:
            cli.main()
        except SystemExit as ended:
            print(ended.code, flush=True)
"""


@pytest.mark.slow
def test_no_command_ends_well_because_code_that_it_was_given_ends_it(tmp_path):
    file = tmp_path / "ends.py"
    file.write_text(ENDS)
    folder = Path(autotts_jax.__file__).parents[1]
    ended = subprocess.run(
        [sys.executable, file], capture_output=True, text=True, check=False, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(folder)},
    )  # fmt: skip
    assert ended.stdout.split() == ["2"] * 5, ended.stderr
    assert ended.stderr.count("autotts-jax: error: ") == 5


ROOMS = ("sandbox", "policies", "core", "experiments", "testing", "live", "cli")
UNPICKLING = {
    "pickle",
    "marshal",
    "shelve",
    "multiprocessing",
    "cloudpickle",
    "dill",
    "joblib",
    "ProcessPoolExecutor",
}


def imported(file):
    """The parts of the names that a file imports."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            yield from (part for name in names for part in name.split("."))


def test_nothing_is_unpickled_where_sealed_code_is_played():
    package = Path(autotts_jax.__file__).parent
    files = [package / "user_code.py", *(file for room in ROOMS for file in (package / room).rglob("*.py"))]
    assert len(files) > 50
    assert [file for file in files if UNPICKLING & set(imported(file))] == []
    assert [
        file for file in package.rglob("*.py") if re.search(r"allow_pickle ?= ?True", file.read_text())
    ] == []


# --- gold -----------------------------------------------------------------------------------------------


def with_other_gold(data):
    questions = tuple(dataclasses.replace(q, gold=f"noise {q.index}") for q in data.questions)
    gold = np.full_like(data.matrix.gold, 2)
    return dataclasses.replace(data, matrix=dataclasses.replace(data.matrix, gold=gold), questions=questions)


@pytest.fixture
def heard(monkeypatch):
    """Records what children send: the frames of each in order, and the words."""
    frames, words = [], []

    class Frames(process.Frames):
        def __init__(self):
            super().__init__()
            self.log = []
            frames.append(self.log)

        def take(self):
            message = super().take()
            self.log.append((json.dumps(message.says), sorted(message.arrays)))
            return message

    class IntChannel(process.IntChannel):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.log = []
            words.append(self.log)

        def take(self):
            taken = super().take()
            self.log.extend(taken)
            return taken

    monkeypatch.setattr(process, "Frames", Frames)
    monkeypatch.setattr(process, "IntChannel", IntChannel)

    def heard():
        copied = [list(log) for log in [*frames, *words]]
        frames.clear()
        words.clear()
        return copied

    return heard


def test_gold_changes_nothing_that_a_child_sends(write, heard):
    scores, sent = [], []
    for data in (DATA, with_other_gold(DATA)):
        scores.append(sealed(write("inside", "frames"), data=data))
        sent.append(heard())
    assert scores[0].right != scores[1].right
    assert sent[0] == sent[1]
    assert sum(map(len, sent[0])) > 100


# --- turns ----------------------------------------------------------------------------------------------


class Replies:
    """Stands for the parent: every request is a branch that goes on, until there were enough."""

    def __init__(self, exchanges):
        self.left = exchanges
        self.numbers = set()
        self.words = self

    def send(self, requests):
        pass

    def receive(self, number):
        turns = inspect.currentframe().f_back.f_locals["self"]
        self.numbers |= {value for value in vars(turns).values() if isinstance(value, int)}
        self.left -= 1
        return [1 if self.left > 0 else 0] * number


class Asks:
    def __init__(self, config=None):
        pass

    def solve(self, question):
        question.probe_new()


def test_a_child_counts_no_further_than_its_seats():
    replies = Replies(1000)
    solving.play(replies, Asks, None, 1, False, 8)
    assert replies.left <= 0
    assert max(replies.numbers) <= 8


class Clock:
    """A clock by which everything takes no time but a look at it and a sleep, and what is ready for whom."""

    def __init__(self, ready):
        self.ready, self.now, self.looks, self.sleeps = ready, 0.0, 0, 0

    def monotonic(self):
        self.now += program.AWAKE / 10
        return self.now

    def select(self, descriptors, _, __, seconds):
        self.looks += not seconds
        self.sleeps += seconds > 0
        return (descriptors if seconds or self.ready else []), [], []


@pytest.fixture
def clock(monkeypatch):
    clock = Clock(ready=True)
    monkeypatch.setattr(program, "time", clock)
    monkeypatch.setattr(program, "select", clock)
    return clock


def test_a_parent_is_awake_for_what_comes_soon(clock):
    waits = program.Waits()
    assert all(waits.until_any([3]) == [3] for _ in range(1000))
    assert (clock.looks, clock.sleeps) == (1000, 0)


def test_a_parent_sleeps_where_to_stay_awake_was_in_vain(clock):
    clock.ready = False
    waits = program.Waits()
    assert all(waits.until_any([3]) == [3] for _ in range(10_000))
    assert clock.sleeps == 10_000
    assert clock.looks < 10_000 * 10 / program.MOST_ASLEEP + 100
    clock.ready, clock.sleeps = True, 0
    for _ in range(10_000):
        waits.until_any([3])
    assert clock.sleeps <= 2 * program.MOST_ASLEEP


# --- the ends of children -------------------------------------------------------------------------------


SLEEPS = (
    "import time\n\n\nclass Program:\n    def __init__(self, config=None):\n        pass\n\n"
    + textwrap.indent("def solve(self, question):\n    question.probe_new()\n    time.sleep(60)\n", "    ")
)


@pytest.mark.slow
@needs_proc
def test_a_child_that_is_killed_ends_its_own_run_alone(write, tmp_path):
    file = tmp_path / "sleeps.py"
    file.write_text(SLEEPS)
    player = select(f"{file}:Program", sealing=Sealing(sandbox=LIMITS))
    honest = write("inside", "(lambda *_: None)")
    scores = []
    other = threading.Thread(target=lambda: scores.append(sealed(honest)))

    def kill():
        time.sleep(2)
        mine = children()
        other.start()
        time.sleep(0.2)
        for child in mine:
            os.kill(child, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(InputError, match=r"sleeps\.py:Program': its process was ended by SIGKILL$"):
        player.play(DATA, orders())
    killer.join()
    other.join()
    assert scores == [HONEST]
    assert sealed(honest) == HONEST


def going_on():
    """How many children of this process do not stand still."""
    states = []
    for child in children():
        with contextlib.suppress(FileNotFoundError):
            states.append(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0])
    return sum(state not in "TZX" for state in states)


def standing_still(but):
    """Whether all children of this process stand still but so many; a signal takes a moment to arrive."""
    end = time.monotonic() + 5
    while going_on() > but and time.monotonic() < end:
        time.sleep(1e-3)
    return going_on() <= but


@needs_proc
def test_processes_that_know_something_run_one_at_a_time(write, monkeypatch):
    player = dataclasses.replace(select(write("inside", "(lambda *_: None)")), values=(0.5, 0.2))
    sent, send = [], process.Child.send

    def count(child, says, arrays=None):
        if "do" in says:
            sent.append((says["do"], standing_still(but=1)))
        send(child, says, arrays)

    monkeypatch.setattr(process.Child, "send", count)
    player.play(DATA, orders())
    player.play(DATA, orders())  # Those that have played are ended.
    assert sent == [("solve", True)] * 8


@pytest.mark.slow
@needs_proc
def test_what_plays_and_what_checks_load_before_anybody_plays(write, monkeypatch):
    before = set(children())
    player, other = (select(write("inside", "(lambda *_: None)")) for _ in range(2))
    standing, alive, send = set(children()) - before, set(), process.Child.send
    assert len(standing) == 4
    assert standing_still(but=0)

    def look(child, says, arrays=None):
        alive.update(children())
        send(child, says, arrays)

    monkeypatch.setattr(process.Child, "send", look)
    player.play(DATA, orders())
    assert alive <= before | standing
    assert len(standing & set(children())) == 2  # What has checked and what has played is ended.
    other.play(DATA, orders())
    assert not standing & set(children())


@pytest.mark.slow
@needs_proc
def test_those_that_have_played_are_ended_before_another_player_is_checked(write, monkeypatch):
    honest, alive, send = write("inside", "(lambda *_: None)"), [], process.Child.send
    first = select(honest)
    played = set(children())
    second = select(honest)

    def look(child, says, arrays=None):
        alive.append(played & set(children()))
        send(child, says, arrays)

    with first.pool.children(2):
        pass
    assert played <= set(children())  # They wait for another episode.
    monkeypatch.setattr(process.Child, "send", look)
    second.play(DATA, orders())
    assert alive
    assert not any(alive[1:])  # The first message is sent to what is begun meanwhile.
    first.play(DATA, orders())


@pytest.mark.slow
def test_a_player_plays_in_one_thread_after_another(write):
    player = select(write("inside", "(lambda *_: None)"))
    right = []

    def play():
        right.append(int(player.play(DATA, orders()).correct.sum()))

    for _ in range(2):
        thread = threading.Thread(target=play)
        thread.start()
        thread.join()
    assert right == [HONEST.right] * 2


@pytest.mark.slow
@needs_proc
def test_nothing_is_left_behind(write, tmp_path, monkeypatch):
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    gc.collect()
    before = children(), len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    honest, raises = write("inside", "(lambda *_: None)"), write("doing", "(lambda: True)", DOES)
    left = {file.name for file in tmp_path.iterdir()}
    sealed(honest)
    refusal(raises)
    gc.collect()
    assert (children(), len(os.listdir("/proc/self/fd"))) == before  # noqa: PTH208
    assert {file.name for file in tmp_path.iterdir()} == left


KILLED = """
import os, random, signal, sys, time
from multiprocessing import resource_tracker
from pathlib import Path
from autotts_jax.sandbox.process import Child, Sandbox

def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False

rng = random.Random(0)
for time_number in range(25):
    parent = os.fork()
    if not parent:
        with Child("autotts_jax.policies.sealed.child", Sandbox()) as child:
            child.begin().receive()
    children = Path(f"/proc/{parent}/task/{parent}/children")
    while not children.read_text():
        time.sleep(1e-3)
    child = int(children.read_text())
    time.sleep(rng.uniform(0, 0.3))
    assert alive(child)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    began = time.monotonic()
    while alive(child):
        assert time.monotonic() - began < 5, "a child outlives its parent"
        time.sleep(1e-3)
print("none")
"""


def run_python(code, *arguments, **options):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=environment, **options
    )


@needs_proc
@pytest.mark.slow
def test_no_child_outlives_its_parent(tmp_path):
    ran = run_python("import tempfile, sys\ntempfile.tempdir = sys.argv[1]\n" + KILLED, tmp_path)
    assert ran.stdout == "none\n", ran.stderr
    assert list(tmp_path.iterdir()) == []


# --- levels ---------------------------------------------------------------------------------------------

WITHOUT = """
import ctypes, struct, sys

libc, none = ctypes.CDLL(None, use_errno=True), ctypes.c_ulong(0)
fail, allow = 0x50000 | 38, 0x7FFF0000
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, int(sys.argv[1])), (6, 0, 0, fail), (6, 0, 0, allow)]
code = b"".join(struct.pack("HBBI", *rule) for rule in rules)
buffer = ctypes.create_string_buffer(code, len(code))
program = struct.pack("HxxxxxxP", len(rules), ctypes.addressof(buffer))
assert libc.prctl(38, ctypes.c_ulong(1), none, none, none) == 0
assert libc.prctl(22, ctypes.c_ulong(2), program, none, none) == 0

from autotts_jax.sandbox.process import Child, LevelError, Sandbox

for level in ("none", "process", "kernel"):
    try:
        with Child("autotts_jax.policies.sealed.child", Sandbox(level)) as child:
            print(child.begin().level)
    except LevelError as error:
        print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no levels")
@pytest.mark.parametrize(
    "call",
    [
        pytest.param(444, marks=pytest.mark.slow),
        {"x86_64": 317, "aarch64": 277}.get(os.uname().machine, 0),
    ],
)
def test_a_kernel_that_cannot_confine_runs_nothing_unless_told_so(call):
    ran = run_python(WITHOUT, call)
    assert ran.stderr == ""
    first, second, refused = ran.stdout.splitlines()
    assert first == second == "process"
    assert refused == (
        "the program does not run, because the kernel of this machine does not confine processes ([Errno 38] "
        "Function not implemented); if you trust it with your files, say --sandbox process, or "
        "Sandbox('process') in Python"
    )


ORDINARY = """
import ctypes, os, sys
from multiprocessing import resource_tracker
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)
NEW_MOUNTS, BIND, RECURSIVE, PRIVATE = 1 << 17, 1 << 12, 1 << 14, 1 << 18
CANNOT = 77

def check(result):
    if result != 0:
        print(os.strerror(ctypes.get_errno()))
        sys.exit(CANNOT)

def mount(source, target, kind, flags, options=None):
    check(libc.mount(source.encode(), str(target).encode(), kind, ctypes.c_ulong(flags), options))

def closed(place):
    return next((folder for folder in reversed(place.parents) if not folder.stat().st_mode & 1), None)

# Folders that others cannot enter are replaced, for this process alone, by ones that hold what is needed.
places = [Path(place).resolve() for place in (sys.base_prefix, sys.prefix, *sys.path) if place]
needed = {place: closed(place) for place in places if place.is_dir() and closed(place)}
if needed:
    check(libc.unshare(ctypes.c_int(NEW_MOUNTS)))
    mount("none", "/", None, RECURSIVE | PRIVATE)
held = {place: os.open(place, os.O_PATH) for place in needed}
for folder in set(needed.values()):
    mount("none", folder, b"tmpfs", 0, b"mode=755")
for place in sorted(needed):
    if not place.is_dir():
        place.mkdir(parents=True)
        mount(f"/proc/self/fd/{held[place]}", place, None, BIND)
    os.close(held[place])
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
os.chdir("/tmp")
os.environ["HOME"] = "/tmp"

import pytest

sys.exit(pytest.main(sys.argv[1:]))
"""


FEW = ("memory_file_of_the_judge", "data_file", "read_passwords")
"""Cheats that depend most on who runs them; those inside of a process do not."""
SEALED = [("test_sealed_cheats_that_look_around_find_nothing", name) for _, name in OUTSIDE]
SEALED += [("test_what_no_program_may_do", name) for _, name in DOING]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="the tests run as an ordinary user")
@pytest.mark.parametrize("few", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_cheats_of_an_ordinary_user(few):
    chosen = [f"{__file__}::{test}[{name}]" for test, name in SEALED if (name in FEW) == few]
    honest = f"{__file__}::test_the_honest_program_scores_the_same_with_and_without_a_seal"
    ran = run_python(ORDINARY, "-n0", "-rs", "-p", "no:cacheprovider", honest, *chosen)
    if ran.returncode == 77:
        pytest.skip(f"an ordinary user cannot read this interpreter: {ran.stdout}")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{1 + len(chosen)} passed" in ran.stdout


# --- what code says of itself ---------------------------------------------------------------------------

PLAYER = """
import autotts_jax as at
from autotts_jax.core import Controller
from autotts_jax.policies import SelfConsistency

made = at.Family("sc", (1, 2), lambda value: SelfConsistency(int(value)), "branches")
family = at.Family("first-two", (1, 2), lambda value: SelfConsistency(int(value)), "branches")

class Unchecked(at.Family):  # as if nobody had checked its values
    def member(self, value):
        return self.make(value)

endless = Unchecked("endless", (1,), lambda value: SelfConsistency(2))
object.__setattr__(endless, "values", (float("nan"),))
"""


@pytest.mark.slow
def test_code_cannot_choose_values_that_are_none(tmp_path):
    file = tmp_path / "of@mine.py"
    file.write_text(PLAYER)
    assert "does not say what its values are" in str(refusal(f"{file}:endless"))


@pytest.mark.parametrize("sandbox", [pytest.param("kernel", marks=pytest.mark.slow), "none"])
def test_a_family_of_a_file_has_its_own_name_but_that_of_no_controller_of_this_package(tmp_path, sandbox):
    file = tmp_path / "of@mine.py"
    file.write_text(PLAYER)
    sealing = Sealing(sandbox=Sandbox(sandbox))
    assert select(f"{file}:family", sealing=sealing).names == ("first-two@1", "first-two@2")
    with pytest.raises(SandboxError, match="its name is 'sc', as a controller of this package; give its Fam"):
        select(f"{file}:made", sealing=sealing)


@pytest.mark.parametrize("name", [None, "", "a@1", "cmc", "neural", "a\x1b[2J", "\ud800", "a" * 101])
def test_names_that_code_cannot_have_are_refused(monkeypatch, name):
    says = {"values": [None], "width": None, "name": name, "signals": []}
    monkeypatch.setattr(players, "WorkerPool", lambda *_: types.SimpleNamespace(describe=lambda: says))
    with pytest.raises(SandboxError, match="'mine:made': its name is"):
        players.of_code(UserCode("mine:made", "player"))


@pytest.mark.parametrize("values", [[float("nan")], [10**400], [0.5] * 5000, [True], ["1"], [], None, 1])
def test_values_that_are_none_are_refused_whoever_says_them(monkeypatch, values):
    says = {"values": values, "width": None, "name": "mine", "signals": []}
    monkeypatch.setattr(players, "WorkerPool", lambda *_: types.SimpleNamespace(describe=lambda: says))
    with pytest.raises(InputError, match="'mine:made' does not say what its values are"):
        players.of_code(UserCode("mine:made", "player"))


@pytest.mark.usefixtures("kernel")
def test_links_out_of_a_package_lead_nowhere(tmp_path, monkeypatch):
    package = tmp_path / "linked"
    package.mkdir()
    (package / "root.py").symlink_to("/", target_is_directory=True)
    (package / "gold.py").symlink_to(Path(autotts_jax.__file__).parent / "replay" / "smollm2.npz")
    (package / "__init__.py").write_text(
        "class Program:\n    def __init__(self, config=None):\n        pass\n\n"
        "    def solve(self, question):\n        for name in ('root.py/etc/passwd', 'gold.py'):\n"
        "            try:\n                open(f'{__file__[:-11]}{name}', 'rb')\n"
        "            except OSError:\n                continue\n            raise SystemError(name)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    sealed("linked:Program", limits=LIMITS)
