"""Runs: whatever stops one, it resumes bit for bit, and it refuses what it cannot resume from."""

import json
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import serialization
from toy_runs import MANIFEST, Toy, end_of, load_policy, save_policy, train, two_processes, validate

from autotts_jax.core import hosts
from autotts_jax.errors import InputError
from autotts_jax.files import write_atomically
from autotts_jax.training import Checkpoints, RunSettings, RunState, checkpoints, manifest, read_metrics
from autotts_jax.training.checkpoints import checksum

NEWEST = "00000030"


class Counter:
    """Its policy is the number of updates made; what goes wrong does so at update 11."""

    def __init__(self, **wrong):
        self.wrong = wrong

    def init(self, _key):
        return jnp.zeros(())

    def update(self, state):
        metrics = {"loss": 1.0, "explained_variance": float("inf")}
        return state + 1, metrics | (self.wrong if state == 10 else {})

    def policy(self, state):
        return {"n": jnp.where(("policy" in self.wrong) & (state == 11), jnp.nan, state)}


def counted(folder, objectives=(), trainer=None, **options):
    """A run of `Counter`, with these validation objectives after updates 1, 2, …"""

    def look_up(policy):
        update = int(policy["n"])
        return {"objective": objectives[update - 1] if objectives and update else update - 100 * (not update)}

    return train(folder, trainer or Counter(), validate=look_up, **options)


def events_of(folder):
    """Scalars by update as TensorBoard shows them: a session that starts takes later events back."""
    from tensorboardX.proto.event_pb2 import Event, SessionLog

    shown = []
    for file in sorted((folder / "tensorboard").iterdir()):
        content, at = file.read_bytes(), 0
        while at + 12 <= len(content):
            (length,) = struct.unpack_from("Q", content, at)
            if at + 12 + length + 4 > len(content):
                break  # cut by a kill
            event = Event.FromString(content[at + 12 : at + 12 + length])
            at += 12 + length + 4
            if event.session_log.status == SessionLog.START:
                shown = [(step, scalars) for step, scalars in shown if step < event.step]
            elif event.summary.value:
                shown.append((event.step, {value.tag: value.simple_value for value in event.summary.value}))
    return shown


def assert_events_are_the_metrics(folder):
    metrics = read_metrics(folder)
    events = events_of(folder)
    assert [step for step, _ in events] == [line.pop("update") for line in metrics]
    for (_, scalars), line in zip(events, metrics, strict=True):
        expected = {name: np.nan if value is None else value for name, value in line.items()}
        assert scalars == pytest.approx(expected, rel=1e-6, nan_ok=True)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "uninterrupted"
    outcome = train(folder)
    assert outcome.stopped_by is None
    assert outcome.state.update == 30
    return folder


@pytest.fixture
def copy(uninterrupted, tmp_path):
    """A run of its own to damage."""
    return shutil.copytree(uninterrupted, tmp_path / "run")


# --- what a run leaves ----------------------------------------------------------------------------------


def test_a_run_leaves_its_files(uninterrupted):
    files = {path.name for path in uninterrupted.iterdir()}
    assert files == {"manifest.json", "best.npz", "metrics.jsonl", "tensorboard", "checkpoints"}
    checkpoints = sorted(path.name for path in (uninterrupted / "checkpoints").iterdir())
    assert checkpoints == ["00000024", "00000028", NEWEST]
    lines = read_metrics(uninterrupted)
    assert [line["update"] for line in lines] == list(range(31))
    assert lines[0].keys() == {"update", "validation/objective", "validation/tokens"}
    assert lines[1].keys() == {"update", "train/loss", "train/explained_variance"}
    assert lines[1]["train/explained_variance"] is None
    assert [line["update"] for line in lines if "validation/objective" in line] == list(range(0, 31, 3))
    assert_events_are_the_metrics(uninterrupted)
    objectives = {line["update"]: line["validation/objective"] for line in lines[::3]}
    best = max(objectives, key=objectives.get)
    assert best < 30  # or the test would not tell the best policy from the last one
    assert float(validate(load_policy(uninterrupted))["objective"]) == objectives[best]
    manifest = json.loads((uninterrupted / "manifest.json").read_text())
    result = manifest.pop("result")
    assert manifest == MANIFEST
    assert result.pop("seconds") > 0
    assert result == {
        "update": 30,
        "best_objective": objectives[best],
        "best_update": best,
        "validations_since_best": (30 - best) // 3,
        "ended": "all updates made",
    }


def test_the_seed_decides(uninterrupted, tmp_path):
    train(tmp_path / "same")
    assert end_of(tmp_path / "same") == end_of(uninterrupted)
    train(tmp_path / "other", settings=RunSettings(30, 3, 4, seed=6))
    assert end_of(tmp_path / "other")[0] != end_of(uninterrupted)[0]


def test_the_best_policy_is_kept(tmp_path):
    settings = RunSettings(updates=5, validate_every=1)
    outcome = counted(tmp_path, [0.1, 0.5, 0.4, 0.5, 0.3], settings=settings)
    assert outcome.state.best_update == 2
    assert outcome.state.best_objective == 0.5
    assert load_policy(tmp_path)["n"] == 2


def test_the_last_update_is_validated(tmp_path):
    assert counted(tmp_path, settings=RunSettings(updates=5, validate_every=3)).state.best_update == 5


def test_the_start_counts(tmp_path):
    """A run whose updates only make things worse, or that has none, keeps what it started with."""
    worse = train(tmp_path / "worse", Counter(), validate=lambda policy: {"objective": -policy["n"]})
    assert (worse.state.best_update, worse.state.update) == (0, 30)
    assert load_policy(tmp_path / "worse")["n"] == 0
    none = counted(tmp_path / "none", settings=RunSettings(updates=0))
    assert (none.state.best_update, none.state.update) == (0, 0)
    assert load_policy(tmp_path / "none")["n"] == 0


@pytest.mark.parametrize(("patience", "last"), [(None, 9), (3, 9), (2, 4)])
def test_patience_ends_a_run(tmp_path, patience, last):
    settings = RunSettings(updates=9, validate_every=1, patience=patience)
    objectives = [0.1, 0.5, 0.4, 0.5, 0.6, 0.2, 0.3, 0.9, 0.1]
    outcome = counted(tmp_path, objectives, settings=settings)
    assert outcome.state.update == last
    ended = json.loads((tmp_path / "manifest.json").read_text())["result"]["ended"]
    assert ended == ("all updates made" if last == 9 else "early stopping")
    # It stays ended.
    assert counted(tmp_path, objectives, settings=settings, resume=True) == outcome


# --- stopped and resumed --------------------------------------------------------------------------------


class Killed(BaseException):
    pass


class Bomb:
    """Goes off at a certain call, whichever of the functions is called."""

    def __init__(self, calls):
        self.calls = calls

    def in_(self, function):
        def called(*arguments):
            self.calls -= 1
            if self.calls < 0:
                raise Killed
            return function(*arguments)

        return called


def write_half(path, _policy):
    path.write_bytes(b"half a poli")


@pytest.mark.parametrize(
    "seed", [pytest.param(0, marks=pytest.mark.slow), 1, pytest.param(2, marks=pytest.mark.slow)]
)
def test_killed_ten_times_anywhere_it_ends_the_same(uninterrupted, tmp_path, monkeypatch, seed):
    rng = random.Random(seed)
    kills = 0
    while kills < 10:
        bomb, toy = Bomb(rng.randrange(1, 40)), Toy()
        monkeypatch.setattr(toy, "update", bomb.in_(toy.update), raising=False)
        # In the middle of writing a checkpoint: its arrays are there, its checksum is not; or the manifest.
        monkeypatch.setattr(checkpoints, "checksum", bomb.in_(checksum))
        monkeypatch.setattr(manifest, "write_atomically", bomb.in_(write_atomically))

        def save_badly(path, policy, bomb=bomb):
            write_half(path, policy)
            bomb.in_(save_policy)(path, policy)

        options = {"validate": bomb.in_(validate), "save_policy": save_badly}
        try:
            train(tmp_path, toy, resume=(tmp_path / "manifest.json").exists(), **options)
        except Killed:
            kills += 1
            if (tmp_path / "best.npz").exists():
                assert load_policy(tmp_path).keys() == {"w", "b"}
            continue
        # It got to its end before it was killed often enough: take it back to where it was in between.
        for checkpoint in (tmp_path / "checkpoints").glob("000000[23][048]"):
            if rng.random() < 0.7:
                shutil.rmtree(checkpoint)
    monkeypatch.undo()
    train(tmp_path, resume=True)
    assert end_of(tmp_path) == end_of(uninterrupted)
    assert_events_are_the_metrics(tmp_path)
    assert not [path for path in tmp_path.rglob("*") if "partial" in path.name or "tmp" in path.name]


@pytest.mark.slow
def test_a_killed_process_goes_on(uninterrupted, tmp_path):
    # It waits for a line after every update, so that it cannot end before it is killed.
    code = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[1]); import toy_runs as t\n"
        "folder = pathlib.Path(sys.argv[2]); resume = (folder / 'manifest.json').exists()\n"
        "t.train(folder, resume=resume, on_update=lambda *_: (print(flush=True), sys.stdin.readline()))\n"
    )
    command = [sys.executable, "-c", code, Path(__file__).parent, tmp_path]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    rng = random.Random(0)
    for updates in (10, 9, 8):
        with subprocess.Popen(command, **pipes, text=True) as process:
            for _ in range(updates):
                process.stdout.readline()
                process.stdin.write("\n")
                process.stdin.flush()
            time.sleep(rng.random() * 0.1)
            process.kill()
            _, errors = process.communicate()
        assert "Traceback" not in errors
        assert process.returncode == -signal.SIGKILL
    assert len((tmp_path / "metrics.jsonl").read_bytes().splitlines()) > 16
    assert train(tmp_path, resume=True).state.update == 30
    assert end_of(tmp_path) == end_of(uninterrupted)
    assert_events_are_the_metrics(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_after_the_update_under_way(uninterrupted, tmp_path, number):
    def send(update, _metrics):
        if update == 7:
            os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    outcome = train(tmp_path, on_update=send)
    assert signal.getsignal(number) == before
    assert outcome.stopped_by == number
    assert outcome.state.update == 7
    assert (tmp_path / "checkpoints" / "00000007").exists()
    assert json.loads((tmp_path / "manifest.json").read_text())["result"]["ended"] == number.name
    assert train(tmp_path, resume=True).stopped_by is None
    assert end_of(tmp_path) == end_of(uninterrupted)


def test_the_best_policy_is_that_of_the_checkpoint(uninterrupted, copy):
    save_policy(copy / "best.npz", {"w": np.zeros((3, 2)), "b": np.zeros(2)})
    train(copy, resume=True)
    assert end_of(copy) == end_of(uninterrupted)


def test_the_start_is_kept(uninterrupted, tmp_path):
    """A warm start takes minutes: what is killed right after it goes on from there."""

    def kill(update, _metrics):
        if update == 2:  # before the first checkpoint of the settings
            raise Killed

    with pytest.raises(Killed):
        train(tmp_path, on_update=kill)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["00000000"]
    train(tmp_path, resume=True)
    assert end_of(tmp_path) == end_of(uninterrupted)
    assert_events_are_the_metrics(tmp_path)


def test_a_line_that_was_being_written_is_forgotten(uninterrupted, copy):
    shutil.rmtree(copy / "checkpoints" / NEWEST)
    lines = (copy / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (copy / "metrics.jsonl").write_bytes(b"".join(lines[:30]) + lines[30][:9])
    train(copy, resume=True)
    assert end_of(copy) == end_of(uninterrupted)


def test_ctrl_c_before_the_first_update_ends_it_at_once(uninterrupted, tmp_path):
    class Interrupted(Toy):
        def init(self, key):
            os.kill(os.getpid(), signal.SIGINT)
            return super().init(key)

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, Interrupted())
    train(tmp_path, resume=True)
    assert end_of(tmp_path) == end_of(uninterrupted)


def test_a_second_ctrl_c_ends_it_at_once(tmp_path):
    def interrupt(_update, _metrics):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, on_update=interrupt)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_sharded_state_is_sharded_again(tmp_path):
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    state = jax.device_put(jnp.arange(8.0), sharding)
    (tmp_path / "checkpoints").mkdir()
    with Checkpoints(tmp_path) as stored:
        stored.save(RunState(1), {"x": state})
        run_state, loaded = stored.load({"x": jnp.zeros_like(state, device=sharding)})
    assert run_state == RunState(1)
    assert loaded["x"].sharding == sharding
    assert loaded["x"].tolist() == list(range(8))


# --- several processes ----------------------------------------------------------------------------------


def make_runs(folder, address, process):
    """What one of two processes does in a test; gives how each of its runs ended."""

    def attempt(name, **options):
        try:
            outcome = train(folder / name, **options)
        except InputError as error:
            return str(error)
        return [outcome.state.update, outcome.stopped_by]

    def stop(update, _metrics):
        if (process, update) == (1, 7):
            os.kill(os.getpid(), signal.SIGTERM)

    def fail(_path, _policy):
        raise InputError("the disk is full")

    hosts.initialize(address, 2, process)
    return [
        attempt("run", on_update=stop),
        attempt("run", resume=True),
        attempt("run"),
        attempt(f"run of {process}"),
        attempt("other", manifest={"config": process}),
        attempt("failing", save_policy=fail),
    ]


@pytest.mark.slow
def test_two_processes_make_one_run(uninterrupted, tmp_path):
    code = (
        "import json, pathlib, sys; folder, process = pathlib.Path(sys.argv[1]), sys.argv[-1]\n"
        "import test_training as t; ends = t.make_runs(folder, sys.argv[3], int(process))\n"
        "(folder / process).write_text(json.dumps(ends))\n"
    )
    with two_processes(code, tmp_path, cwd=Path(__file__).parent) as processes:
        assert [process.wait(timeout=120) for process in processes] == [0, 0]
    ours, theirs = (json.loads((tmp_path / name).read_text()) for name in "01")
    assert ours[:2] == theirs[:2] == [[7, signal.SIGTERM], [30, None]]
    assert end_of(tmp_path / "run") == end_of(uninterrupted)
    assert_events_are_the_metrics(tmp_path / "run")
    another = "another process of the run has failed; fix what it reports, and start all again"
    assert [theirs[2], ours[3], ours[4], theirs[5]] == [another] * 4
    assert "already holds a run" in ours[2]
    assert f"process 1 does not see in {tmp_path / 'run of 1'}" in theirs[3]
    assert "config is 0 there and 1 here" in theirs[4]
    assert ours[5] == "the disk is full"
    assert not (tmp_path / "run of 1").exists()


# --- a full disk ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 100, 700, 1500])
def test_a_full_disk_ends_it_with_one_message_and_loses_nothing(uninterrupted, tmp_path, size, capfd):
    """Files cannot grow beyond some bytes: it is found out in the manifest, the metrics, a checkpoint."""
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(update, _metrics):
        if update == 5:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, unlimited[1]))

    try:
        with pytest.raises(InputError, match=f"writing the run to {tmp_path} failed: File too large"):
            train(tmp_path, on_update=fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert capfd.readouterr() == ("", "")
    train(tmp_path, resume=True)
    assert end_of(tmp_path) == end_of(uninterrupted)
    assert_events_are_the_metrics(tmp_path)


# --- what a run does not go on with ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"loss": float("nan")}, "train/loss is nan"),
        ({"policy_loss": -float("inf")}, "train/policy_loss is -inf"),
        ({"policy": 0.0}, "parameters that are not finite"),
    ],
)
def test_divergence_ends_a_run_and_keeps_what_was_good(tmp_path, wrong, message):
    with pytest.raises(InputError, match=f"diverged at update 11: .*{message}") as error:
        counted(tmp_path, trainer=Counter(**wrong), settings=RunSettings(20, 5, 4))
    newest = tmp_path / "checkpoints" / "00000008"
    assert f"Kept from before it: {newest} and {tmp_path / 'best.npz'}." in str(error.value)
    assert sorted((tmp_path / "checkpoints").iterdir())[-1] == newest
    with Checkpoints(tmp_path, writes=False) as stored:
        assert stored.load((jnp.zeros(()), {"n": np.zeros((), np.float32)}))[1][0] == 8
    assert load_policy(tmp_path)["n"] == 10


def test_an_objective_that_is_no_number_ends_a_run(tmp_path):
    with pytest.raises(InputError, match="at update 2: validation/objective is nan"):
        counted(tmp_path, [0.5, float("nan"), 0.7], settings=RunSettings(3, 1))
    assert load_policy(tmp_path)["n"] == 1


def damage(path, how):
    content = path.read_bytes()
    if how == "remove":
        path.unlink()
    elif how == "truncate":
        path.write_bytes(content[: len(content) // 2])
    else:
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])


@pytest.mark.parametrize("how", ["remove", "truncate", "flip"])
def test_a_damaged_checkpoint_is_named(uninterrupted, copy, how, capfd):
    newest = copy / "checkpoints" / NEWEST
    files = [path for path in (newest / "default").rglob("*") if path.is_file()]
    files = [path for path in files if path.name != "commit_success.txt"]
    assert len(files) == 2
    for file in files:
        damage(file, how)
        with pytest.raises(InputError) as error:
            train(copy, resume=True)
        assert str(error.value) == (
            f"{newest}: the checkpoint is damaged; "
            "remove it and resume again, from 00000028, the one before it"
        )
        shutil.rmtree(newest)
        shutil.copytree(uninterrupted / "checkpoints" / NEWEST, newest)
    assert capfd.readouterr() == ("", "")
    shutil.rmtree(newest)
    train(copy, resume=True)
    assert end_of(copy) == end_of(uninterrupted)


@pytest.mark.parametrize("how", ["remove", "truncate", "flip"])
def test_what_orbax_writes_beside_a_checkpoint_may_be_damaged(uninterrupted, copy, how):
    files = [path for path in (copy / "checkpoints" / NEWEST).iterdir() if path.is_file()]
    assert files
    for file in files:
        damage(file, how)
    train(copy, resume=True)
    assert end_of(copy) == end_of(uninterrupted)


def test_a_changed_checkpoint_is_damaged(copy):
    file = copy / "checkpoints" / NEWEST / "default" / "train_state.msgpack"
    content = serialization.msgpack_restore(file.read_bytes())
    content["state"]["validations_since_best"] = 0
    file.write_bytes(serialization.msgpack_serialize(content))
    with pytest.raises(InputError, match="the checkpoint is damaged"):
        train(copy, resume=True)


@pytest.mark.parametrize(
    "change",
    [
        {"update": -1},
        {"update": True},
        {"update": 1},
        {"validations_since_best": -1},
        {"best_update": 10**6},
        {"best_update": None},
        {"seconds": -1.0},
        {"seconds": float("nan")},
    ],
)
def test_a_state_that_no_run_can_have_is_damaged(copy, change):
    """Even if the checksum is that of the content."""
    folder = copy / "checkpoints" / NEWEST / "default"
    file = folder / "train_state.msgpack"
    content = serialization.msgpack_restore(file.read_bytes())
    content["state"] |= change
    file.write_bytes(serialization.msgpack_serialize(content))
    (folder / checkpoints.CHECKSUM).write_text(checkpoints.checksum(folder))
    with Checkpoints(copy) as kept, pytest.raises(InputError, match="the checkpoint is damaged"):
        kept.load({})


def test_a_damaged_checkpoint_with_no_other(copy):
    for older in ("00000024", "00000028"):
        shutil.rmtree(copy / "checkpoints" / older)
    shutil.rmtree(copy / "checkpoints" / NEWEST / "default")
    with pytest.raises(InputError, match="no older one is there; start a new run"):
        train(copy, resume=True)


def test_a_checkpoint_of_another_network(copy):
    class Wider(Toy):
        def init(self, key):
            state = super().init(key)
            return state._replace(params=state.params | {"w": jnp.zeros((3, 3))})

    message = r"belongs to another network.*'w'\] is float32\[3, 2\] there and float32\[3, 3\] here"
    with pytest.raises(InputError, match=message):
        train(copy, Wider(), resume=True)


def test_a_folder_that_holds_a_run_is_not_overwritten(copy):
    before = end_of(copy)
    with pytest.raises(InputError, match=r"already holds a run; resume it \(--resume, or resume=True\)"):
        train(copy)
    (copy / "manifest.json").unlink()
    with pytest.raises(InputError, match="already holds a run"):
        train(copy)
    assert end_of(copy) == before


def test_there_must_be_something_to_resume(tmp_path):
    with pytest.raises(InputError, match="holds no run to resume"):
        train(tmp_path / "run", resume=True)
    assert not (tmp_path / "run").exists()


def test_a_run_is_resumed_with_what_it_was_started_with(copy):
    other = {"config": {"trainer": {"rate": 0.2, "new": True}, "run": {"updates": 30}}, "data": {}}
    with pytest.raises(InputError) as error:
        train(copy, manifest=other, resume=True)
    assert (
        "config.trainer.rate is 0.1 there and 0.2 here; config.trainer.new is nothing there and true here; "
        'data.model/bench is "ab" there and nothing here.'
    ) in str(error.value)


def test_a_damaged_manifest_is_named(copy):
    damage(copy / "manifest.json", "truncate")
    with pytest.raises(InputError, match=r"manifest\.json: the file is damaged"):
        train(copy, resume=True)


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"file/run: cannot be made: Not a directory"):
        train(tmp_path / "file" / "run")


def test_one_process_at_a_time_trains_into_a_folder(copy):
    holding = "import sys; from pathlib import Path; from autotts_jax.files import locked\n"
    holding += "with locked(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", holding, copy]
    before = end_of(copy)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(InputError, match="is in use by another run; wait for it, or end it"):
            train(copy, resume=True)
        holder.communicate()
    assert end_of(copy) == before


def test_a_damaged_line_of_the_metrics_is_named(uninterrupted, copy):
    shutil.rmtree(copy / "checkpoints" / NEWEST)
    metrics = copy / "metrics.jsonl"
    lines = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join([*lines[:2], "[]\n", *lines[2:]]))
    for read in (read_metrics, lambda folder: train(folder, resume=True)):
        with pytest.raises(InputError, match=r"metrics.jsonl: line 3 is damaged; delete it and resume again"):
            read(copy)
    metrics.write_text("".join(lines))
    train(copy, resume=True)
    assert end_of(copy) == end_of(uninterrupted)


def test_a_run_belongs_to_the_main_thread(tmp_path):
    with ThreadPoolExecutor(1) as pool, pytest.raises(InputError, match="the main thread alone can"):
        pool.submit(counted, tmp_path / "run").result()
    assert not list(tmp_path.iterdir())


def test_what_is_no_checkpoint_is_named(copy):
    (copy / "checkpoints" / "9x").mkdir()
    with pytest.raises(InputError, match="9x is not a checkpoint of this run; move it away"):
        train(copy, resume=True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"updates": -1}, "updates is -1"),
        ({"updates": 5, "validate_every": 0}, "validate_every is 0"),
        ({"updates": 5, "checkpoint_every": -1}, "checkpoint_every is -1"),
        ({"updates": 5, "patience": 0}, "patience is 0"),
        ({"updates": 5, "seed": -1}, "seed is -1"),
        ({"updates": 5, "seed": "x"}, "seed is 'x', but it must be a whole number"),
    ],
)
def test_settings_that_make_no_run(settings, message):
    with pytest.raises(InputError, match=message):
        RunSettings(**settings)
