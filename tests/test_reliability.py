"""The fault matrix: what each command leaves, and how it ends, when something goes wrong."""

import contextlib
import ctypes
import io
import json
import os
import pickle
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from progress import without_progress
from searches import archive
from toy_command import CONFIG, TOY

import autotts_jax as at
from autotts_jax import experiments, figures
from autotts_jax.cli import main as cli
from autotts_jax.collect import Grader, LocalWorkers, Plan, Problem, Sampling, SimulatedEngine, collect, store
from autotts_jax.core import devices
from autotts_jax.discovery import Distilled, VoteWeights, cmc
from autotts_jax.discovery import entry as discovery_entry
from autotts_jax.discovery.distillation import distill as distilling
from autotts_jax.experiments import files as result_files
from autotts_jax.experiments import live_runs, tracing
from autotts_jax.experiments.benchmark import TASKS, Benchmark, Score
from autotts_jax.files import locked, write_atomically
from autotts_jax.pages import rendering
from autotts_jax.training import entry as training_entry

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "reliability.md"
SIMULATED = "--engine simulated --interval 20 --max-tokens 100"
LINES = {
    "evaluate": "evaluate --data mine --controllers sc@2 --seeds 1 --max-branches 8 --out out",
    "batch": "batch --data mine --allocators uniform --budgets 99 --seeds 1 --max-branches 8 --out out",
    "certify": "certify --data mine --controllers sc@8 --max-branches 8 --seeds 1 --epsilon 0.9 --delta 0.5 "
    "--out out.json",
    "bench": "bench --task recorded --data mine --controllers sc --out out",
    "trace": "trace --data mine --controller sc@2 --max-branches 8 --out out",
    "paper": "paper ttrl --data mine --out out",
    "collect": f"collect {SIMULATED} --questions arithmetic:2:1 --branches 8 --out out",
    "train": "train --config toy.toml --updates 6 --out out",
    "discover": "discover --data mine --candidates 640 --out out",
    "discover ablate": "discover ablate --data mine --seeds 1 --candidates 640 --out out",
    "discover show": "discover show found --number 0 --lineage out.png --parquet out.parquet",
    "discover export": "discover export found --number 0 --out out.py",
    "discover distill": "discover distill neural --data mine --max-branches 8 --out out.py",
    "data import": "data import release --out out",
    "data convert": "data convert mine --out out.npz",
    "answer --questions": f"answer {SIMULATED} --controller sc@2 --max-branches 4 --questions arithmetic:2:1 "
    "--out out",
    "answer": f"answer {SIMULATED} --controller sc@2 --max-branches 4 12+30",
}
WRITING = [name for name in LINES if name != "answer"]
ORIGINAL = {
    (at, "evaluate"): at.evaluate,
    (at, "evaluate_batch"): at.evaluate_batch,
    (at, "certify"): at.certify,
    (at, "bench"): at.bench,
    (at, "trace"): at.trace,
    (at.papers, "ttrl"): at.papers.ttrl,
    (distilling, "distill"): distilling.distill,
    (discovery_entry, "DiscoveryRun"): discovery_entry.DiscoveryRun,
}
"""The functions in whose place tests put their results."""

RESULTS = ["evaluate", "batch", "bench", "trace", "paper"]
"""Commands whose files appear together when they end."""

RACED = ["evaluate", "collect", "train", "discover", "answer --questions", "data convert"]
"""One command for each way of writing."""


def each(commands):
    """The commands, slow where one of `RACED` writes as they do."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name not in RACED)) for name in commands]


FOLDERS = [*RESULTS, "collect", "train", "discover", "discover ablate", "answer --questions"]
"""Commands that take a folder for themselves."""

TAKEN = {"discover ablate": "out/default/0"}
"""The folder that a command takes for itself, where it is not the one that it is given."""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """What the commands read, and what `evaluate` plays on it."""
    folder = tmp_path_factory.mktemp("inputs")
    return folder, prepared(folder)


def prepared(folder):
    """Writes what the commands read to a folder; gives an evaluation of the data there."""
    problems = (Problem("What is 2 + 2?", "4"), Problem("What is 2 + 3?", "5"))
    plan = Plan("sim", "sums", problems, num_branches=8, sampling=Sampling(interval=20, max_tokens=100))
    data = collect(plan, folder / "mine", LocalWorkers(SimulatedEngine()))
    (folder / "release" / "M").mkdir(parents=True)
    shutil.copy(folder / "mine" / "matrix.json", folder / "release" / "M" / "bench.json")
    (folder / "toy.toml").write_text(CONFIG)
    archive(folder / "found")
    with pytest.MonkeyPatch.context() as patched:  # compiles what `train` runs, before a disk is full
        for name, value in TOY.items():
            patched.setattr(training_entry, name, value)
        with tempfile.TemporaryDirectory() as warm:
            at.train(folder / "toy.toml", updates=1, out=Path(warm) / "run")
    return at.evaluate(data, ["sc@2"], seeds=1, max_branches=8)


PLAYING = ["batch", "certify", "bench", "trace", "paper", "discover distill"]


@pytest.fixture(scope="module")
def results(inputs):
    """The results of the other commands that play, by their functions."""
    evaluated = inputs[1]
    data = evaluated.dataset
    scores = tuple(Score(name, None, 1, "sc@1", *[0.0] * 10) for name in ("sc@1", "published"))
    return {
        (at, "evaluate_batch"): at.evaluate_batch(data, "uniform", budgets=[99], seeds=1, max_branches=8),
        (at, "certify"): at.certify(data, "sc@8", epsilon=0.9, delta=0.5, seeds=1, max_branches=8),
        (at, "bench"): Benchmark(TASKS["laptop"], "test", 2, scores, evaluated),
        (at, "trace"): at.trace(data, "sc@2", max_branches=8),
        (at.papers, "ttrl"): at.papers.ttrl(data, seeds=1),
        (distilling, "distill"): Distilled(cmc(), VoteWeights(0.0, 0.0, 0.0), (1e-6, 1e-4), ("Distilled.",)),
    }


class NoGrader(Grader):
    """Spares the process that tells whether answers are equal."""

    def __init__(self, *_):
        pass

    def forms(self, answers, _gold=None):
        return list(answers)

    def reference(self, gold):
        return gold


@pytest.fixture
def run(run, inputs, tmp_path, monkeypatch, request):
    """Runs a command in a folder of its own; gives exit status and stderr."""
    folder, evaluated = inputs
    shutil.copytree(folder, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    results = {(at, "evaluate"): evaluated}
    command = getattr(request.node, "callspec", None) and request.node.callspec.params.get("command")
    if command in PLAYING and "run_in_full" not in request.fixturenames:
        results |= request.getfixturevalue("results")
    shorten(monkeypatch, results)

    def run_line(command):
        status, _, err = run(*LINES[command].split())
        return status, err

    return run_line


def shorten(monkeypatch, results):
    """Puts results that are there in the place of what takes seconds or minutes."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(devices, "configure", lambda *_: None)
    for module in (store, live_runs):
        monkeypatch.setattr(module, "open_grader", NoGrader)
    for (module, name), result in results.items():
        monkeypatch.setattr(module, name, lambda *_, result=result, **__: result)
    for module in (figures, rendering, tracing):  # what they draw takes a second, and is files like others
        monkeypatch.setattr(module, "available", lambda: False)
    monkeypatch.setattr(
        discovery_entry, "DiscoveryRun", lambda _, *args, **options: archive(*args, **options)
    )
    for name, value in TOY.items():
        monkeypatch.setattr(training_entry, name, value)


def files_of_run():
    """The files that a command has written, without those that differ from run to run."""
    paths = [path for path in Path().glob("out*/**/*") if path.is_file()]
    return sorted(str(path) for path in [*paths, *Path().glob("out.*")] if "tensorboard" not in path.parts)


def unfinished():
    """What is left half-written."""
    return [path for path in Path().rglob("*") if re.search(r"\.tmp$|-tmp$|partial|\.lock$", path.name)]


def resumed(command):
    """Lets the line of a run that goes on say so, as the command has told its user."""
    return f"{LINES[command]} --resume" if command == "train" and Path("out/manifest.json").exists() else None


def goes_on(run, command, monkeypatch):
    """Runs a command after a fault: it ends well, with all its files and nothing half-written."""
    if again := resumed(command):
        monkeypatch.setitem(LINES, command, again)
    assert run(command) == (0, "")
    assert files_of_run()
    assert unfinished() == []


# --- signals --------------------------------------------------------------------------------------------


def in_the_middle_of_writing(monkeypatch, act):
    """Acts once, when a file is written but is not in its place."""
    fsync, write_text, acted = os.fsync, Path.write_text, []

    def once(then):
        def called(*args, **options):
            result = then(*args, **options)
            if not acted:
                acted.append(True)
                act()
            return result

        return called

    monkeypatch.setattr(os, "fsync", once(fsync))
    monkeypatch.setattr(Path, "write_text", once(write_text))
    return acted


@pytest.mark.parametrize(
    ("number", "status", "command"),
    [
        *(
            pytest.param(signal.SIGINT, 130, command, marks=[pytest.mark.slow] * (command not in RACED))
            for command in WRITING
        ),
        (signal.SIGTERM, 143, "data convert"),
        *(
            pytest.param(signal.SIGTERM, 143, command, marks=pytest.mark.nightly)
            for command in WRITING
            if command != "data convert"
        ),
    ],
)
def test_a_signal_ends_a_command_in_order(run, command, number, status, monkeypatch):
    acted = in_the_middle_of_writing(monkeypatch, lambda: os.kill(os.getpid(), number))
    code, told = run(command)
    assert acted
    assert code == status
    assert re.fullmatch(r"autotts-jax: interrupted(; .*)?\n", told)
    assert unfinished() == []
    goes_on(run, command, monkeypatch)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_an_answer(run, monkeypatch, number, status):
    monkeypatch.setattr(SimulatedEngine, "generate", lambda *_, **__: os.kill(os.getpid(), number))
    assert run("answer") == (status, "autotts-jax: interrupted; nothing was written\n")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_the_commands_are_imported(number, status):
    """As in the first second, which JAX takes."""
    code = (
        f"import os, sys; sys.modules['autotts_jax.cli.app'] = None\n"
        f"from autotts_jax.cli import main as cli\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        f"        name == 'autotts_jax.cli.app' and os.kill(os.getpid(), {int(number)})\n"
        "del sys.modules['autotts_jax.cli.app']; sys.meta_path.insert(0, Finder()); cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, "autotts-jax: interrupted\n")


KILLED = """
import os, signal, sys
from pathlib import Path
from autotts_jax.experiments.files import results_folder
from autotts_jax.files import write_atomically

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[1] == "file":
    os.fsync = die
    write_atomically("file", b"new" * 1000)
with results_folder("folder", ("a", "b", "last")) as partial:
    for name in ("a", "last"):
        (partial / name).write_text("new")
    if sys.argv[1] == "results":
        die()
    replace = os.replace
    os.replace = lambda *args: (replace(*args), die())
"""


def killed(what):
    done = subprocess.run([sys.executable, "-c", KILLED, what], check=False)
    assert done.returncode == -signal.SIGKILL


def test_a_file_that_was_being_written_at_sigkill_is_as_before(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("old")
    killed("file")
    assert Path("file").read_text() == "old"
    with locked(tmp_path):  # removes what is left
        assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "file"]
    write_atomically("file", b"newer")
    assert Path("file").read_text() == "newer"


@pytest.mark.parametrize("there", [False, True])
def test_a_link_stays_and_the_file_that_it_leads_to_is_written(tmp_path, there):
    target, link = tmp_path / "folder" / "file", tmp_path / "link"
    target.parent.mkdir()
    link.symlink_to(target)
    if there:
        target.write_text("old")
    write_atomically(link, b"new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert [path.name for path in target.parent.iterdir()] == ["file"]


def test_a_link_to_itself_is_one_message(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(at.InputError, match="loop is a link that leads back to itself"):
        write_atomically(tmp_path / "loop", b"new")


@pytest.mark.parametrize(
    ("moment", "left"), [("results", {"a": "old", "b": "old", "last": "old"}), ("appearing", {"a": "new"})]
)
def test_results_that_were_being_written_at_sigkill_are_never_mixed(tmp_path, monkeypatch, moment, left):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    for name in ("a", "b", "last"):
        (Path("folder") / name).write_text("old")
    killed(moment)
    shown = {path.name: path.read_text() for path in Path("folder").glob("[!.]*")}
    assert shown == left
    with result_files.results_folder("folder", ("a", "b", "last")) as partial:
        (partial / "last").write_text("newer")
    assert [path.name for path in Path("folder").iterdir()] == ["last"]


def test_a_collection_that_was_killed_when_it_began_goes_on(run, monkeypatch):
    Path("out/units").mkdir(parents=True)
    for left in (".lock", ".collection.json.0123abcd.tmp", "units/.00000-00000.json.0123abcd.tmp"):
        (Path("out") / left).touch()
    goes_on(run, "collect", monkeypatch)


# --- disks ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def full_disk():
    """No file can grow: as on a full disk, but with another message."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("command", each(WRITING))
def test_a_full_disk_is_one_message_and_loses_nothing(run, command, monkeypatch):
    with full_disk():
        code, told = run(command)
    assert code == 2
    assert re.fullmatch(r"autotts-jax: error: .*out.*File too large.*\n", told)
    assert unfinished() == []
    goes_on(run, command, monkeypatch)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("buffering", [1, -1])
def test_output_that_cannot_be_printed_is_one_message(run, monkeypatch, buffering):
    with Path("/dev/full").open("w", buffering) as full:
        monkeypatch.setattr(sys, "stdout", full)
        code, told = run("answer")
    assert code == 2
    assert told.endswith("autotts-jax: error: the output: No space left on device\n")
    assert "Traceback" not in told


def test_a_command_without_a_stdout_is_carried_out(run, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)  # as Python has it where a shell was told `>&-`
    code, told = run("answer")
    assert code == 0
    assert "Traceback" not in told


OVERRIDE = 1 << 1  # CAP_DAC_OVERRIDE, by which root writes anywhere


@contextlib.contextmanager
def read_only(folder):
    """Nobody can write to a folder, root included."""
    libc, header = ctypes.CDLL(None, use_errno=True), (ctypes.c_uint32 * 2)(0x20080522, 0)
    capabilities = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable, twice
    if os.geteuid() == 0:
        if sys.platform != "linux" or libc.capget(header, capabilities):
            pytest.skip("root cannot lay down its privileges here")
        capabilities[0] &= ~OVERRIDE
        assert libc.capset(header, capabilities) == 0
    folder.chmod(0o555)
    try:
        yield
    finally:
        folder.chmod(0o755)
        if os.geteuid() == 0:
            capabilities[0] |= OVERRIDE
            assert libc.capset(header, capabilities) == 0


@pytest.mark.slow
@pytest.mark.parametrize("command", WRITING)
@pytest.mark.parametrize("there", [False, True])
def test_a_folder_that_cannot_be_written_is_one_message(run, command, there, monkeypatch):
    if there and command not in FOLDERS:
        pytest.skip("the command writes a file")
    place = Path()
    if there:
        place = Path("out")
        place.mkdir()
    with read_only(place):
        code, told = run(command)
    assert code == 2
    assert re.fullmatch(r"autotts-jax: error: out.*: cannot be (made|written): Permission denied.*\n", told)
    goes_on(run, command, monkeypatch)


def test_an_answer_needs_no_folder_to_write_to(run):
    with read_only(Path()):
        assert run("answer")[0] == 0


# --- two processes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", each(FOLDERS))
def test_a_folder_that_another_process_has_is_refused(run, command, monkeypatch):
    monkeypatch.setattr(result_files, "PATIENCE", 0)
    folder = TAKEN.get(command, "out")
    with locked(Path(folder)):
        code, told = run(command)
        assert files_of_run() == [f"{folder}/.lock"]
    assert code == 2
    assert told == f"autotts-jax: error: {folder} is in use by another run; wait for it, or end it\n"
    goes_on(run, command, monkeypatch)


def test_a_folder_that_another_process_removes_is_made_again(tmp_path, monkeypatch):
    """As one does that has found out whether it can write there."""
    folder, opening = tmp_path / "out", os.open

    def late(*arguments):
        monkeypatch.setattr(os, "open", opening)
        folder.rmdir()
        return opening(*arguments)

    monkeypatch.setattr(os, "open", late)
    with locked(folder):
        assert folder.is_dir()
    assert not folder.exists()


@pytest.mark.parametrize("command", each(name for name in WRITING if name not in FOLDERS))
def test_of_two_that_write_a_file_the_last_one_wins(run, command, monkeypatch):
    inner = []
    in_the_middle_of_writing(monkeypatch, lambda: inner.append(run(command)))
    assert run(command)[0] == 0
    assert inner == [(0, "")]
    assert unfinished() == []


RACING = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
import test_reliability; test_reliability.race(*sys.argv[1:])
"""


def race(pickled, *folders):
    """Runs each command in its folder as soon as a line comes, and tells how it ended."""
    told = sys.stdout
    with pytest.MonkeyPatch.context() as monkeypatch:
        shorten(monkeypatch, {(at, "evaluate"): pickle.loads(Path(pickled).read_bytes())})
        for command, folder in zip(RACED, folders, strict=True):
            os.chdir(folder)
            sys.argv = ["autotts-jax", *LINES[command].split()]
            print("ready", file=told, flush=True)
            sys.stdin.readline()
            with (
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()) as said,
                pytest.raises(SystemExit) as end,
            ):
                cli.main()
            ended = [end.value.code or 0, without_progress(said.getvalue())]
            print(json.dumps(ended), file=told, flush=True)


@pytest.mark.slow
def test_two_processes_that_begin_at_once_leave_what_one_does(inputs, run, tmp_path, monkeypatch):
    folders = [tmp_path / str(number) for number, _ in enumerate(RACED)]
    for folder in folders:
        shutil.copytree(inputs[0], folder)
    pickled = tmp_path / "evaluated.pkl"
    pickled.write_bytes(pickle.dumps(inputs[1]))
    with contextlib.ExitStack() as ended:
        two = []
        for _ in range(2):
            command = [sys.executable, "-c", RACING, pickled, *folders]
            two.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            ended.callback(two[-1].communicate)
            ended.callback(two[-1].kill)
        for command, folder in zip(RACED, folders, strict=True):
            assert [process.stdout.readline() for process in two] == ["ready\n"] * 2
            for process in two:
                process.stdin.write("\n")
                process.stdin.flush()
            ends = sorted(json.loads(process.stdout.readline()) for process in two)
            monkeypatch.chdir(folder)
            left = files_of_run()
            assert unfinished() == []
            monkeypatch.chdir(tmp_path / "here")
            assert run(command) == (0, "")
            assert left == files_of_run(), command
            for written in Path().glob("out*"):
                shutil.rmtree(written) if written.is_dir() else written.unlink()
            assert ends[0] == [0, ""]
            if ends[1] != [0, ""]:
                assert command not in RESULTS, ends[1]
                assert ends[1][0] == 2
                assert re.search(r"is in use by another run|already holds a run|exists", ends[1][1])


# --- damaged files --------------------------------------------------------------------------------------

READ = {
    "evaluate": "mine/matrix.npz",
    "batch": "mine/matrix.npz",
    "certify": "mine/matrix.npz",
    "trace": "mine/matrix.npz",
    "paper": "mine/matrix.npz",
    "collect": "out/collection.json",
    "train": "out/manifest.json",
    "discover": "out/archive.jsonl",
    "discover ablate": "out/default/0/archive.jsonl",
    "answer --questions": "out/run.json",
    "discover show": "found/archive.jsonl",
    "discover export": "found/archive.jsonl",
    "discover distill": "mine/matrix.npz",
    "data import": "release/M/bench.json",
    "data convert": "mine/matrix.npz",
}
"""What each command reads, of its own folder where it goes on with one."""


@pytest.mark.parametrize("command", each(READ))
def test_a_damaged_file_is_named_and_nothing_written(run, command, monkeypatch):
    file = Path(READ[command])
    if file.parts[0] == "out":
        goes_on(run, command, monkeypatch)
        if again := resumed(command):
            monkeypatch.setitem(LINES, command, again)
    content = file.read_bytes()
    damaged = b"{" + content[: len(content) // 2] + b"\n"
    file.write_bytes(damaged)
    before = files_of_run()
    code, told = run(command)
    assert code == 2
    assert re.fullmatch(rf"autotts-jax: error: {re.escape(str(file))}.*\n", told)
    assert files_of_run() == before
    assert file.read_bytes() == damaged
    file.write_bytes(content)
    goes_on(run, command, monkeypatch)


def test_results_that_are_damaged_are_replaced(run, monkeypatch):
    Path("out").mkdir()
    for name in result_files.FILES:
        (Path("out") / name).write_bytes(b"\xff")
    goes_on(run, "evaluate", monkeypatch)
    assert all(Path(file).read_bytes() != b"\xff" for file in files_of_run())


def test_a_benchmark_names_damaged_data(run, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(at, "bench", experiments.bench)  # which reads, before it plays
        Path("mine/matrix.npz").write_bytes(b"PK")
        code, told = run("bench")
    assert code == 2
    assert re.fullmatch(r"autotts-jax: error: mine/matrix\.npz.*\n", told)
    assert files_of_run() == []


def test_an_answer_names_a_damaged_policy(run, monkeypatch):
    Path("bad.npz").write_bytes(b"PK")
    monkeypatch.setitem(LINES, "answer", LINES["answer"].replace("sc@2", "neural:bad.npz@1e-5"))
    code, told = run("answer")
    assert code == 2
    assert told.startswith("autotts-jax: error: bad.npz: ")
    assert told.count("\n") == 1


# --- what is not there, or is of another kind -------------------------------------------------------------

INPUTS = dict.fromkeys(LINES, "mine") | {
    "collect": "questions.jsonl",
    "train": "toy.toml",
    "discover show": "found",
    "discover export": "found",
    "data import": "release",
    "answer --questions": "questions.jsonl",
    "answer": "policy.npz",
}
"""What each command is given to read."""


@pytest.fixture
def run_in_full(run, monkeypatch):
    """Runs a command that is to fail before it has played anything; what it reads is a file."""
    for (module, name), original in ORIGINAL.items():
        monkeypatch.setattr(module, name, original)
    for command in ("collect", "answer --questions"):
        monkeypatch.setitem(LINES, command, LINES[command].replace("arithmetic:2:1", "questions.jsonl"))
    monkeypatch.setitem(LINES, "answer", LINES["answer"].replace("sc@2", "neural:policy.npz@1e-5"))
    return run


@pytest.mark.parametrize("command", LINES)
def test_input_that_is_missing_is_named(run_in_full, command):
    given = Path(INPUTS[command])
    if given.is_dir():
        shutil.rmtree(given)
    given.unlink(missing_ok=True)
    code, told = run_in_full(command)
    assert code == 2
    assert re.fullmatch(rf"autotts-jax: error: .*{re.escape(str(given))}.*\n", told)
    assert files_of_run() == unfinished() == []


@pytest.mark.parametrize("command", LINES)
def test_input_that_is_empty_is_named(run_in_full, command):
    """A file without a byte, or a folder of such files."""
    given = Path(INPUTS[command])
    if not given.is_dir():
        given.write_bytes(b"")
    for file in given.rglob("*"):
        if file.is_file():
            file.write_bytes(b"")
    code, told = run_in_full(command)
    assert code == 2
    assert re.fullmatch(rf"autotts-jax: error: .*{re.escape(str(given))}.*\n", told)
    assert files_of_run() == unfinished() == []


@pytest.mark.parametrize("command", each(WRITING))
def test_a_place_of_the_other_kind_is_left_as_it_is(run, command):
    """A file where a folder is to be written, or a folder where a file is."""
    out = Path(LINES[command].split()[-1])
    if command in (*FOLDERS, "data import"):
        out.write_text("mine")
    else:
        (out / "mine").mkdir(parents=True)
    before = sorted(Path().rglob("out*"))
    code, told = run(command)
    assert code == 2
    assert re.fullmatch(rf"autotts-jax: error: .*{re.escape(str(out))}.*\n", told)
    assert [path for path in before if path.exists()] == before
    assert unfinished() == []


# --- output that nobody takes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("taker", "status", "command"),
    [
        pytest.param(taker, status, name, marks=[pytest.mark.slow] * (name not in quick))
        for taker, status, quick in (
            ("a full disk", 2, [*RACED, "answer"]),
            ("nobody", 1, ["evaluate", "answer"]),
        )
        for name in LINES
    ],
)
def test_output_that_cannot_be_printed_costs_no_file(run, taker, status, command, monkeypatch):
    run(command)
    complete = files_of_run()
    for written in Path().glob("out*"):
        shutil.rmtree(written) if written.is_dir() else written.unlink()
    if taker == "nobody":
        reads, writes = os.pipe()
        os.close(reads)
    else:
        writes = os.open("/dev/full", os.O_WRONLY)
    stream = os.fdopen(writes, "w", 1)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", stream)
        code, told = run(command)
    with contextlib.suppress(OSError):
        stream.close()
    assert code == status
    assert "Traceback" not in told
    assert files_of_run() == complete
    assert unfinished() == []


# --- the page -------------------------------------------------------------------------------------------


def of(test, commands, **others):
    """The tests of a column: one that is about several commands, and those of others."""
    return dict.fromkeys(commands, f"test_reliability.py::{test}") | others


KILLED_WRITING = "test_a_file_that_was_being_written_at_sigkill_is_as_before"
SERVED = "test_serve.py::test_the_command_writes_nothing_and_minds_no_full_disk"
SIGNALS = of(
    "test_a_signal_ends_a_command_in_order",
    WRITING,
    answer="test_reliability.py::test_a_signal_ends_an_answer",
    serve="test_serve.py::test_a_signal_ends_the_server_and_what_is_under_way",
    train="test_train_cli.py::test_a_signal_ends_it_and_the_command_that_it_says_goes_on",
)
NOTHING = "test_reliability.py::test_an_answer_needs_no_folder_to_write_to"
TESTS = {
    "SIGINT": SIGNALS,
    "SIGTERM": SIGNALS,
    "SIGKILL": of("test_results_that_were_being_written_at_sigkill_are_never_mixed", RESULTS)
    | of(
        KILLED_WRITING,
        [name for name in WRITING if name not in FOLDERS],
        collect="test_collect.py::test_killed_again_and_again_it_ends_with_the_same_files",
        train="test_training.py::test_a_killed_process_goes_on",
        **{"answer --questions": f"test_reliability.py::{KILLED_WRITING}"},
        **dict.fromkeys(
            ("discover", "discover ablate"),
            "test_killed_discovery.py::test_a_killed_run_loses_nothing_and_pays_for_no_reply_twice",
        ),
        answer=NOTHING,
        serve=SERVED,
    ),
    "full disk": of(
        "test_a_full_disk_is_one_message_and_loses_nothing",
        WRITING,
        answer="test_reliability.py::test_output_that_cannot_be_printed_is_one_message",
        serve=SERVED,
        train="test_training.py::test_a_full_disk_ends_it_with_one_message_and_loses_nothing",
    ),
    "read-only folder": of(
        "test_a_folder_that_cannot_be_written_is_one_message", WRITING, answer=NOTHING, serve=SERVED
    ),
    "two processes": of("test_a_folder_that_another_process_has_is_refused", FOLDERS)
    | of(
        "test_of_two_that_write_a_file_the_last_one_wins",
        [name for name in WRITING if name not in FOLDERS],
        answer=NOTHING,
        serve=SERVED,
    ),
    "damaged file": of(
        "test_a_damaged_file_is_named_and_nothing_written",
        READ,
        bench="test_reliability.py::test_a_benchmark_names_damaged_data",
        answer="test_reliability.py::test_an_answer_names_a_damaged_policy",
        serve="test_serve.py::test_an_unknown_model_is_not_found",
    ),
}
"""The test of each cell of the matrix."""


def test_the_page_has_no_empty_cell_and_each_has_a_test():
    lines = [line.strip("|").split("|") for line in PAGE.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip(" `") for cell in line] for line in lines if len(line) > 2]
    (_, *columns), _, *rows = cells
    assert columns == list(TESTS)
    for named, *cells in rows:
        assert all(cells), named
        assert len(cells) == len(columns)
    commands = {command for named, *_ in rows for command in named.split("`, `")}
    assert commands == {*LINES, "serve"}
    for tests in TESTS.values():
        assert set(tests) == commands
        for test in tests.values():
            file, _, name = test.partition("::")
            assert f"\ndef {name}(" in (Path(__file__).parent / file).read_text(), test
