"""The command line as a user meets it: what it prints, what it writes, and how it says no."""

import dataclasses
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import typer
from progress import without_progress

import autotts_jax as at
from autotts_jax.cli import console, ending
from autotts_jax.errors import InputError
from autotts_jax.experiments import benchmark
from autotts_jax.pages import rendering
from autotts_jax.policies.players import CONTROLLERS
from autotts_jax.replay import SYNTHETIC_MODELS, compact, synthetic, write_compact, write_json

EXAMPLES = Path(__file__).parents[1] / "examples" / "released_programs.py"
FILES = {
    "episodes.parquet",
    *(f"{kind}.{ending}" for kind in ("frontier", "gains") for ending in ("pdf", "png", "svg")),
    "manifest.json",
    "paired.csv",
    "summary.csv",
    "table.md",
    "table.tex",
} | ({"report.html"} if rendering.available() else set())
OWN_CONTROLLER = """
import autotts_jax as at
from autotts_jax.policies import SelfConsistency

mine = at.Family("mine", (1, 2, 4), lambda branches: SelfConsistency(int(branches)), "branches")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """``<model>/synthetic.json`` of two models, three questions and ten branches each."""
    folder = tmp_path_factory.mktemp("data")
    for model in SYNTHETIC_MODELS[1:3]:
        (folder / model.name).mkdir()
        write_json(synthetic(0, [model], 3, 10), folder / model.name / "synthetic.json")
    return folder


@pytest.fixture
def evaluate(run, folder):
    """Runs ``evaluate`` on the small data."""
    return lambda *arguments: run("evaluate", "--data", folder, "--max-branches", 8, "--seeds", 2, *arguments)


# --- evaluate -------------------------------------------------------------------------------------------


def test_evaluate_prints_a_table_and_writes_files(evaluate, tmp_path):
    arguments = ("--controllers", "sc@8,sc@4", "--gamma", 0.001, "--out", tmp_path / "deep" / "out")
    status, out, err = evaluate(*arguments)
    assert status == 0
    assert not re.search("error|warning", err)  # on a busy machine it says what is running
    *lines, last = out.splitlines()
    assert last.endswith(" s, compilation included")
    assert lines[0].strip() == "synthetic"
    sections = [line.strip() for line in lines if line.startswith(("synthetic-", "mean"))]
    assert sections == ["synthetic-L", "synthetic-M", "mean of models"] * 2  # accuracy, then the objective
    assert sum(line.startswith("sc@8 ") for line in lines) == 6
    assert "…" not in out
    assert max(len(line) for line in lines if not line.startswith("wrote ")) <= 80
    assert {file.name for file in (tmp_path / "deep" / "out").iterdir()} == FILES
    manifest = json.loads((tmp_path / "deep" / "out" / "manifest.json").read_text())
    assert manifest["objective"]["gamma"] == 0.001
    again = evaluate(*arguments[:-2])[1].splitlines()[:-1]
    assert again == [line for line in lines if not line.startswith("wrote ")]


def test_one_model_and_one_controller(run, folder):
    cell = folder / "synthetic-M" / "synthetic.json"
    status, out, _ = run("evaluate", "--data", cell, "--controllers", "sc@1", "--max-branches", 8)
    assert status == 0
    assert "mean of models" not in out
    assert "Δ accuracy [95 %]" not in out


@pytest.mark.slow
def test_a_released_program(evaluate):
    status, out, err = evaluate("--controller", f"{EXAMPLES}:OptimalController", "--beta", 0)
    assert (status, err) == (0, "")
    assert out.count("OptimalController@0 ") == 6


@pytest.mark.slow
def test_a_controller_of_ones_own(evaluate, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(OWN_CONTROLLER)
    status, out, _ = evaluate("--controllers", f"sc@4,{file}:mine@4")
    assert status == 0
    figures = [line.split()[1:3] for line in out.splitlines() if line.startswith(("sc@4 ", "mine@4 "))]
    assert figures[::2] == figures[1::2]


def test_long_names_fit_80_columns(run, folder, tmp_path):
    name = "a-model-with-a-name-that-is-rather-long-00B"
    (tmp_path / name).mkdir()
    copy = tmp_path / name / "synthetic.json"
    copy.write_bytes((folder / "synthetic-M" / "synthetic.json").read_bytes())
    play = ("evaluate", "--controllers", "sc@1,sc@8", "--max-branches", 8, "--data")
    for command in (play, ("data", "info")):
        status, out, _ = run(*command, copy)
        assert status == 0
        assert max(map(len, out.splitlines())) <= 80


# --- bench ----------------------------------------------------------------------------------------------


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A task and data that are played in seconds."""
    monkeypatch.setattr(benchmark, "PUBLISHED", ("sc",))
    task = benchmark.Task("recorded", None, 4, (1e-4, 1e-4), "WidthDepthRounds-v0", (10,))
    monkeypatch.setattr(benchmark, "TASKS", {"recorded": task})
    write_compact(synthetic(0, SYNTHETIC_MODELS[1:2], 5, 6), tmp_path / "data.npz")
    return "bench", "--task", "recorded", "--data", tmp_path / "data.npz", "--seeds", 5


def test_bench_names_data_of_too_few_branches(run, tiny, tmp_path):
    write_compact(synthetic(0, SYNTHETIC_MODELS[1:2], 5, 3), tmp_path / "data.npz")
    status, _, err = run(*tiny, "--controllers", "sc")
    assert status == 2
    assert err == (
        "autotts-jax: error: the data has 3 branches a question, fewer than the 4 of the task 'recorded'; "
        "give other data\n"
    )


def test_bench_prints_scores_and_writes_them(run, tiny, tmp_path):
    agents = ("--agent", "mine/10=sc@1", "--agent", "mine/10=sc@4", "--agent", "other=sc@4")
    status, out, err = run(*tiny, "--controllers", "sc@4,sc", *agents, "--out", tmp_path / "out")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].strip() == "recorded, test: 2 questions, γ = 0.0001"
    names = [line.split()[0] for line in lines[3:9]]
    assert names == ["sc@1", "published", "sc@4", "sc", "mine/10", "other"]
    assert max(len(line) for line in lines if not line.startswith("wrote ")) <= 80
    assert "mine/10: 2 training seeds, fewer than 5" in map(str.strip, lines)
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"scores.csv", "manifest.json"}


@pytest.mark.parametrize("agent", ["mine", "=sc@1", "mine=", "mine/ten=sc@1", "mine/=sc@1"])
def test_agents_are_named(run, tiny, agent):
    status, _, err = run(*tiny, "--agent", agent)
    assert status == 2
    assert err == f"autotts-jax: error: --agent {agent}: write it as NAME=PLAYER, or NAME/STEPS=PLAYER\n"


# --- trace ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_trace_prints_an_episode_and_writes_files(run, folder, tmp_path):
    status, out, err = run(
        *("trace", "--data", folder, "--controller", "cmc", "--beta", 0.5, "--max-branches", 8),
        *("--question", 2, "--seed", 1, "--cell", "synthetic-L/synthetic", "--out", tmp_path),
    )
    assert (status, err) == (0, "")
    assert out.startswith("cmc@0.5 on synthetic-L/synthetic, question 2, seed 1")
    assert {file.name for file in tmp_path.iterdir()} == {
        "trace.jsonl",
        "trace.pdf",
        "trace.png",
        "trace.svg",
    }


# --- data -----------------------------------------------------------------------------------------------


def test_data_is_described_converted_and_checked(run, folder, tmp_path):
    status, out, _ = run("data", "info", folder)
    assert status == 0
    assert "synthetic-L synthetic-M" in " ".join(out.split())
    compact = tmp_path / "all.npz"
    assert run("data", "convert", folder, "--out", compact)[0] == 0
    status, out, err = run("data", "validate", compact, f"{folder}/*/*.json")
    assert (status, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == ["good"] * 3
    back = tmp_path / "synthetic-M" / "synthetic.json"
    back.parent.mkdir()
    cell = folder / "synthetic-M" / "synthetic.json"
    assert run("data", "convert", cell, "--out", back)[0] == 0
    assert json.loads(back.read_text()) == json.loads(cell.read_text())


def test_a_file_with_merged_answers_is_good(run, tmp_path):
    merged = dataclasses.replace(synthetic(0, SYNTHETIC_MODELS[1:2], 3, 10), encoding="equiv")
    write_compact(merged, tmp_path / "merged.npz")
    status, out, err = run("data", "validate", tmp_path)
    assert (status, out, err) == (0, f"good  {tmp_path / 'merged.npz'}: 3 questions\n", "")


def test_validate_names_every_bad_file(run, folder, tmp_path):
    (tmp_path / "cut.json").write_text((folder / "synthetic-M" / "synthetic.json").read_text()[:999])
    (tmp_path / "no.npz").write_bytes(b"no archive")
    status, out, err = run("data", "validate", tmp_path, folder)
    assert status == 2
    assert sorted(line.split()[0] for line in out.splitlines()) == ["bad", "bad", "good", "good"]
    assert err == "autotts-jax: error: bad files: 2 of 4; the reasons are printed above\n"


# --- bad input ------------------------------------------------------------------------------------------


@pytest.fixture
def bad_files(tmp_path, folder, monkeypatch):
    """A working directory with files that are wrong."""
    monkeypatch.chdir(tmp_path)
    Path("syntax.py").write_text("class Mine(:\n")
    Path("neither.py").write_text("class Neither:\n    pass\n")
    Path("raises.py").write_text(
        "class Raises:\n    def __init__(self, config=None): pass\n"
        "    def solve(self, question): return question.no_such_method()\n"
    )
    Path("file").write_text("")
    Path("cut.json").write_text((folder / "synthetic-M" / "synthetic.json").read_text()[:999])
    monkeypatch.setattr(compact, "VERSION", 99)
    write_compact(synthetic(0, SYNTHETIC_MODELS[:1], 1, 10), "other.npz")
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("bad_files")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--controllers best", "unknown player 'best'"),
        ("--controllers ,", "--controllers ',' has an empty name"),
        ("--controllers cmc@1.2", "β is 1.2"),
        ("--controllers cmc@nan", "β is nan"),
        ("--controllers cmc@x", "'x' after the @ is not a number"),
        ("--controllers sc@1.5", "must be a whole number"),
        ("--controllers sc@0", "must be a whole number"),
        ("--controllers sc@9", "reads more branches than an episode can open"),
        ("--controllers sc@4,sc@4", "sc@4: given more than once"),
        ("--controllers sc@4 --controller sc", "exclude each other"),
        ("--controllers sc@4 --beta 0.5", "--beta belongs to --controller"),
        ("--controller cmc --beta 2", "β is 2"),
        ("--controller cmc --beta nan", "β is nan"),
        (
            "--controllers sc@4 --max-branches 11",
            "fewer than the 11 that an episode can open; set --max-branches to 10",
        ),
        ("--controllers sc@4 --gamma -1", "gamma is -1"),
        ("--controllers sc@4 --gamma nan", "gamma is nan"),
        ("--controllers sc@4 --kappa-probe 1 --cost tokens", "--kappa-probe is counted in intervals"),
        ("--controllers sc@4 --seeds 0", "seeds is 0"),
        ("--controllers sc@4 --budget -1", "budget is -1"),
        ("--controllers sc@4 --budget 3000000000", "budget is 3000000000"),
        ("--controllers sc@4 --out file/results", "file/results: cannot be made"),
        ("--controller missing.py:Mine", "there is no file missing.py"),
        ("--controller syntax.py:Mine", "SyntaxError"),
        ("--controller neither.py:Neither", "neither a Controller nor a released program"),
        pytest.param(
            "--controller raises.py:Raises", "no attribute 'no_such_method'", marks=pytest.mark.slow
        ),
        ("--controllers sc@4 --data nowhere", "nothing found at 'nowhere'"),
        ("--controllers sc@4 --data cut.json", "cut.json: line 69, column 4 is not JSON"),
        ("--controllers sc@4 --data other.npz", "version 99"),
    ],
)
def test_evaluate_says_what_is_wrong(evaluate, arguments, message, tmp_path):
    out = tmp_path / "results"
    status, stdout, stderr = evaluate("--processes", 1, "--out", out, *arguments.split())
    assert (status, stdout) == (2, "")
    assert stderr.startswith("autotts-jax: error: ")
    assert message in stderr
    assert "Traceback" not in stderr.split("failed")[0]  # a program's own last lines may follow
    assert not out.exists() or not list(out.iterdir())


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        ("evaluate --protocol bootstrap", "--protocol"),
        ("evaluate --encoding same", "--encoding"),
        ("evaluate --gamma low", "--gamma"),
        ("evaluate --seeds 1.5", "--seeds"),
        ("evaluate --max-branches 0", "--max-branches"),
        ("trace --seed -1", "--seed"),
        ("trace --question -1", "--question"),
        ("data convert x", "--out"),
    ],
)
def test_values_that_no_option_takes(run, arguments, option):
    status, stdout, stderr = run(*arguments.split())
    assert (status, stdout) == (2, "")
    assert option in stderr
    assert "Traceback" not in stderr


def test_data_is_named_with_and_without_an_option(run, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("data", "info", "--data", folder) == run("data", "info", folder)
    assert run("data", "validate", "--data", folder) == run("data", "validate", folder)
    converted = run("data", "convert", "--data", folder, "--out", "x.npz")
    assert converted == run("data", "convert", folder, "--out", "x.npz")
    assert converted[0] == 0
    for command in ("info", "validate", "convert --out x.npz"):
        status, stdout, stderr = run("data", *command.split())
        assert (status, stdout) == (2, "")
        example = "a file or a folder" if command == "validate" else "smollm2 or a file"
        assert f"no PATH is given; name the data, as {example}" in stderr


def test_the_version_is_told(run):
    assert run("--version") == (0, f"autotts-jax {at.__version__}\n", "")


@pytest.mark.usefixtures("bad_files")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("trace --cell nowhere/none", "unknown cell 'nowhere/none'; there are"),
        ("trace --question 3", "no question 3; it has 0 … 2"),
        ("trace --controller cmc", "cmc has 11 settings, but this takes one controller at one value"),
        ("trace --controller sc@1,asc@2", "'1,asc@2' after the @ is not a number"),
        ("trace --budget -1", "budget is -1"),
        ("trace --beta 0.3", "--beta belongs to --controller"),
        ("trace --out file/results", "file/results: cannot be made"),
        ("evaluate --encoding equiv", "no data"),
        ("data convert --out x.txt", "the suffix must be .npz"),
        ("data convert --out file/x.npz", "file/x.npz: cannot be written"),
        ("data convert --out x.json", "AutoTTS JSON holds one cell"),
    ],
)
def test_other_commands_say_what_is_wrong(run, folder, arguments, message):
    command = arguments.split()
    if command[0] == "evaluate":
        message = "the synthetic data has only the exact encoding"
    else:
        command += [folder] if command[0] == "data" else ["--data", folder, "--max-branches", 8]
    status, stdout, stderr = run(*command)
    assert (status, stdout) == (2, "")
    assert stderr.startswith("autotts-jax: error: ")
    assert message in stderr
    assert not list(Path().glob("*/trace.jsonl"))


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize("module", ["autotts_jax", "autotts_jax.cli.main"])
def test_a_module_can_be_run_as_the_command(monkeypatch, capsys, module):
    monkeypatch.setattr(sys, "argv", ["autotts-jax", "--version"])
    with pytest.raises(SystemExit) as end:
        runpy.run_module(module, run_name="__main__")
    assert (end.value.code, capsys.readouterr().out) == (0, f"autotts-jax {at.__version__}\n")


# --- a process of its own -------------------------------------------------------------------------------


def start(*arguments, **options):
    code = "from autotts_jax.cli.main import main; main()"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], **pipes | options)


FAILURES = {
    "plays": "class Fails:\n    def __init__(self, _=None): pass\n    def solve(self, _): raise OSError\n",
    "loads": "import nowhere\n",
    "ends": "import os\nos._exit(0)\n",
    "is nothing": "Fails = 3\n",
}
"""Files whose ``Fails`` does not play, by what fails."""


@pytest.mark.parametrize(
    "how", [pytest.param(how, marks=[pytest.mark.slow] * (how != "is nothing")) for how in FAILURES]
)
def test_a_player_that_fails_leaves_the_results_of_others(run, folder, tmp_path, how):
    player, out = tmp_path / "fails.py", tmp_path / "out"
    player.write_text(FAILURES[how])
    status, shown, err = run(
        *("evaluate", "--data", folder, "--controllers", f"{player}:Fails,sc@2", "--seeds", 2),
        *("--max-branches", 8, "--out", out, "--time-limit", 100, "--memory-limit", 2),
    )
    assert status == 2
    called = "Fails" if how == "plays" else f"{player}:Fails"
    assert without_progress(err).startswith(f"autotts-jax: warning: {called} has no results: ")
    assert "sc@2" in shown
    manifest = json.loads((out / "manifest.json").read_text())
    assert [controller["name"] for controller in manifest["controllers"]] == ["sc"]
    assert list(manifest["refused"]) == [called]


@pytest.mark.parametrize("command", ["evaluate", "bench", "discover"])
@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--time-limit", "0"), "--time-limit is 0.0, but it must be a finite number above 0"),
        (
            ("--memory-limit", "0.01"),
            "--memory-limit is 0.01, but it must be a finite number of at least 0.0625",
        ),
        (
            ("--sandbox", "best"),
            "'best' is not one of 'kernel', 'process', 'none'",
        ),
    ],
)
def test_limits_of_sealed_code_are_checked(run, tmp_path, monkeypatch, command, option, message):
    monkeypatch.chdir(tmp_path)
    status, out, err = run(command, *option)
    assert (status, out) == (2, "")
    assert message in " ".join(err.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_ctrl_c_ends_an_evaluation_with_one_line_and_no_files(folder, tmp_path):
    program, out, marker = (tmp_path / name for name in ("slow.py", "out", "started"))
    program.write_text(
        "import pathlib, time\n"
        "class Slow:\n"
        "    def __init__(self, config=None): pass\n"
        "    def solve(self, question):\n"
        f"        pathlib.Path({str(marker)!r}).touch()\n"
        "        time.sleep(60)\n"
    )
    process = start(
        *("evaluate", "--data", folder, "--controller", f"{program}:Slow", "--max-branches", 8),
        *("--processes", 2, "--out", out, "--sandbox", "process"),  # as only then can it touch the file
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 60
        while not marker.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does it: to the workers too
        stdout, stderr = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert stdout == ""
    assert without_progress(stderr) == "autotts-jax: interrupted; nothing was written\n"
    assert not out.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_not_lost_in_a_destructor(capsys, number):
    class Unlucky:
        def __del__(self):
            signal.raise_signal(number)

    def work():
        with ending.orderly(), console.working():
            Unlucky()
            for _ in range(1000):
                time.sleep(0.01)

    before = signal.getsignal(signal.SIGINT)
    if number == signal.SIGTERM:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a script
    try:
        with pytest.raises(typer.Exit) as end:
            work()
    finally:
        signal.signal(signal.SIGINT, before)
    assert end.value.exit_code == 130
    assert capsys.readouterr().err == "autotts-jax: interrupted; nothing was written\n"


@pytest.mark.slow
def test_the_default_trace_runs_in_a_fresh_process(tmp_path):
    environment = os.environ | {"COLUMNS": "80"}
    process = start("trace", "--controller", "sc@2", "--out", tmp_path / "out", env=environment)
    stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, without_progress(stderr)) == (0, "")
    assert stdout.startswith("sc@2 on synthetic-S/synthetic, question 0, seed 0")


def test_without_a_terminal_a_line_says_now_and_then_how_far_the_work_is(monkeypatch, capsys):
    monkeypatch.setattr(console, "LOG_SECONDS", 0.01)

    def lines_until(wanted):
        said = ""
        for _ in range(1000):
            said += capsys.readouterr().err
            if wanted in said:
                break
            time.sleep(0.01)
        return said

    with console.working() as on_progress:
        assert "autotts-jax: 0:00:00  starting\n" in lines_until("starting")
        on_progress("collecting", 1200, 4000, "a note \x1b[2J")
        said = lines_until("collecting")
    assert r"  collecting  1,200/4,000  a note \u001b[2J" in said
    assert without_progress(said[: said.rindex("\n") + 1]) == ""
    assert not any(thread.name == "progress" for thread in threading.enumerate())
    capsys.readouterr()
    with console.working(shown=False):
        assert not any(thread.name == "progress" for thread in threading.enumerate())


@pytest.mark.parametrize("status", [0, 3, None])
def test_code_of_the_users_that_ends_the_program_is_an_error(status):
    with (
        pytest.raises(
            InputError, match=r"the code that the command was given ended the program:\n(.*\n)+Sys"
        ),
        console.working(shown=False),
    ):
        sys.exit(status)


def test_the_help_of_evaluate_names_every_controller(run):
    shown = re.sub(r"-\n *", "-", run("evaluate", "--help")[1])  # names are broken at their hyphens
    assert set(CONTROLLERS) <= set(re.findall(r"[a-z-]+", shown))
