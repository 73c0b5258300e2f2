"""A run of discovery that is killed many times: no record is lost, and no reply is paid for twice."""

import functools
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections import Counter
from pathlib import Path

import jax
import numpy as np
import pytest
from scripted_model import serving

import autotts_jax as at
from autotts_jax.discovery import Measurement, OpenAIProposer
from autotts_jax.discovery.archive import archive
from autotts_jax.discovery.archive.archive import RECORDS, Archive
from autotts_jax.discovery.archive.transcripts import TRANSCRIPTS, Transcript
from autotts_jax.discovery.judging.judge import Judge, Outcome
from autotts_jax.discovery.rounds import files as file_rounds
from autotts_jax.errors import InputError
from autotts_jax.pages import rendering

pytest.importorskip("openai")

PRICES = {"wise": (1.0, 2.0), "judge": (0.5, 1.0)}


def number_of(*parts):
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:4])


# --- a life: in a process of its own --------------------------------------------------------------------


def play(_judge, candidates, questions, _orders, rows, _filling=()):
    """Outcomes by a hash of the controllers, so that nothing has to be compiled."""
    shape = len(candidates), len(candidates[0]), len(questions)
    drawn = np.empty((*shape, 3))
    for place, candidate in enumerate(candidates):
        for setting, controller in enumerate(candidate):
            leaves = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(controller)]
            rng = np.random.default_rng(number_of(leaves, list(rows)))
            drawn[place, setting] = rng.random((len(questions), 3))
    return Outcome(drawn[..., 0], 1 + 8 * drawn[..., 1], 1 + 16 * drawn[..., 2])


def measure(source, _course):
    number = number_of(source)
    if number % 5 == 0:
        return Measurement(None, "SyntaxError")
    return Measurement({"objective": number / 2**32, "cost": 2.0, "width": 4.0}, f"scored {number}", "kernel")


def play_sealed(*_):
    raise InputError("no file plays the test")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def before(function, left):
    def called(*args, **options):
        if next(left) == 0:
            die()
        return function(*args, **options)

    return called


def after(function, left):
    def called(*args, **options):
        result = function(*args, **options)
        if next(left) == 0:
            die()
        return result

    return called


def with_a_reply(wrap):
    """Counts only transcripts that hold a reply."""

    def wrapped(function, left):
        then = wrap(function, left)
        return lambda self, path: (function if self.response is None else then)(self, path)

    return wrapped


def halfway_to_its_place(function, left):
    """A file that is written beside its place has only its first half."""

    def called(self, target):
        if TRANSCRIPTS in self.parts and next(left) == 0:
            os.truncate(self, self.stat().st_size // 2)
            die()
        return function(self, target)

    return called


def halfway_through_a_round(function, left):
    """Part of what a round adds to the archive is there: to the middle of a line, or all but its end."""

    def called(self, records, end):
        path = self.folder / RECORDS
        size = path.stat().st_size if path.exists() else 0
        function(self, records, end)
        if (later := next(left)) == 0:
            os.truncate(path, np.random.default_rng(size).integers(size, path.stat().st_size))
            die()
        return later

    return called


BEGIN = {"the manifest is written": (archive, "write_atomically", before)}
MOMENTS = {
    "a call is about to be noted": (Transcript, "begin", before),
    "a call is noted": (Transcript, "begin", after),
    "the server has a call": None,
    "a reply has come": (Transcript, "write", with_a_reply(before)),
    "half of a reply is written": (Path, "replace", halfway_to_its_place),
    "a reply is kept": (Transcript, "write", with_a_reply(after)),
    "a file is measured": (file_rounds, "measure", after),
    "programs have played": (Judge, "play", after),
    "a round is about to be kept": (Archive, "append", before),
    "half of a round is kept": (Archive, "append", halfway_through_a_round),
    "a round is kept": (Archive, "append", after),
}
END = {
    "the test is played": (Judge, "play_test", after),
    "half of the test is kept": (Archive, "append", halfway_through_a_round),
}
EVERY = BEGIN | MOMENTS | END


def live(folder, url, moment, times, candidates):
    """Goes on with the run until a moment has come so many times, or to its end."""
    Judge.play, file_rounds.measure, file_rounds.play_sealed = play, measure, play_sealed
    file_rounds.Course.of = lambda *_, **__: None  # it plays the incumbent
    rendering.available = lambda: False  # a report takes seconds
    if EVERY.get(moment):
        owner, name, wrap = EVERY[moment]
        setattr(owner, name, wrap(getattr(owner, name), iter(range(times - 1, -sys.maxsize, -1))))
    writer = OpenAIProposer(
        "wise", url, count=2, reply_tokens=500, prices=PRICES, max_dollars=100.0, pause=0.01
    )
    at.discover(
        at.load("smollm2").select(range(0, 40, 4)),
        out=folder,
        proposers=["rules", writer, "constants", writer],
        critic="openai:judge",
        candidates=candidates,
        max_branches=8,
    )


def nurse():
    """Lives one life for each line; what they all import is imported once."""
    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                live(**json.loads(line))
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


# --- the test -------------------------------------------------------------------------------------------


class Model:
    """Replies by the request alone, and kills whoever has asked so many times."""

    def __init__(self):
        self.left, self.child = 0, None
        self.lock, self.born = threading.Lock(), threading.Event()

    def __call__(self, request):
        with self.lock:
            self.left -= 1
            if self.left == 0 and self.born.wait(60):
                os.kill(self.child, signal.SIGKILL)
        number = number_of(request["messages"])
        if request["model"] == "judge":
            return f"score: {number % 11}"
        return f"```python\n# {number % 1000}\n```" if number % 7 else "I cannot."


def lives(nursery, model, **life):
    """Lives a life, and returns how it ended."""
    model.born.clear()
    model.left = life["times"] if EVERY.get(life["moment"], True) is None else 0
    nursery.stdin.write(json.dumps(life) + "\n")
    nursery.stdin.flush()
    model.child = int(nursery.stdout.readline())
    model.born.set()
    return int(nursery.stdout.readline())


def transcripts(folder):
    return {path.name: Transcript.read(path) for path in sorted((folder / TRANSCRIPTS).glob("*.json"))}


def text_of(request):
    return json.dumps(request, sort_keys=True)


def whole_rounds(folder):
    """The lines of the rounds that have ended."""
    path = folder / RECORDS
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    ends = [at for at, line in enumerate(lines, 1) if line.endswith(b"}\n") and b'"kind": "round"' in line]
    return lines[: ends[-1]] if ends else []


def without_costs(line):
    """A record without the time that it took, and what was paid for calls whose replies were lost."""
    costs = ("cpu_seconds", "tokens", "dollars")
    return json.loads(line, object_hook=lambda of: {key: of[key] for key in of if key not in costs})


def twenty():
    """Kills at every moment at which something is on its way, each at a random time of a life."""
    rng = np.random.default_rng(0)
    between = [str(moment) for _ in range(2) for moment in rng.permutation(list(MOMENTS))]
    moments = [*BEGIN, *between[: 20 - len(BEGIN) - len(END)], *END]
    assert set(moments) == set(EVERY)
    return [(moment, int(rng.integers(1, 4)) if moment in MOMENTS else 1) for moment in moments]


FOUR = [
    ("the server has a call", 2),
    ("half of a reply is written", 2),
    ("half of a round is kept", 1),
    ("half of the test is kept", 1),
]


@pytest.mark.parametrize(
    ("kills", "candidates"),
    [
        pytest.param(FOUR, 600, marks=pytest.mark.slow),
        # About thirty-five rounds. Those who are killed before the test play some twenty of them, so that
        # no life ends by itself, however fast it is.
        pytest.param(twenty(), 2200, marks=pytest.mark.nightly),
    ],
    ids=["four times", "twenty times"],
)
def test_a_killed_run_loses_nothing_and_pays_for_no_reply_twice(tmp_path, kills, candidates):
    alone, killed, model = tmp_path / "alone", tmp_path / "killed", Model()
    path = f"{Path(__file__).parent}{os.pathsep}{Path(at.__file__).parents[1]}"
    with (
        serving(model) as server,
        subprocess.Popen(
            [sys.executable, "-c", "import test_killed_discovery as t; t.nurse()"],
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as nursery,
    ):
        birth = functools.partial(lives, nursery, model, url=server.url, candidates=candidates)
        assert birth(folder=str(alone), moment=None, times=0) == 0
        assert len(server.requests) == len(transcripts(alone))
        server.requests.clear()
        replied, rounds, asked = {}, [], Counter()
        for moment, times in [*kills, (None, 0)]:
            end = birth(folder=str(killed), moment=moment, times=times)
            assert end == (0 if moment is None else -signal.SIGKILL), moment
            asked.update(map(text_of, server.requests))
            server.requests.clear()
            kept = transcripts(killed)
            assert replied.items() <= kept.items(), "a reply that was kept was lost, or asked for again"
            replied = {name: one for name, one in kept.items() if one.response}
            made = Counter()
            for one in kept.values():
                made[text_of(one.request)] += 1 + one.lost
            assert asked <= made, "a call was made that no transcript counts"
            assert whole_rounds(killed)[: len(rounds)] == rounds, "a round was lost"
            rounds = whole_rounds(killed)
        nursery.stdin.close()
    assert list(map(without_costs, rounds)) == list(map(without_costs, whole_rounds(alone)))
    wanted = transcripts(alone)
    assert {name: (one.request, one.response) for name, one in kept.items()} == {
        name: (one.request, one.response) for name, one in wanted.items()
    }
    assert sum(one.lost for one in kept.values()) > 0
    assert not any(one.lost for one in wanted.values())
    records = list(map(json.loads, rounds))
    written = [record for record in records if record["kind"] == "code"]
    paid = [of for record in written for of in (record, record.get("critic", {}))]
    assert sum(of.get("tokens", 0) for of in paid) == sum(sum(one.cost) for one in kept.values())
    assert [record["kind"] for record in records[-2:]] == ["test", "round"]
    assert {record["proposer"] for record in records if "proposer" in record} == {
        "start",
        "rules",
        "constants",
        "openai:wise",
    }
    assert not [file for file in killed.rglob("*") if ".tmp" in file.name]
