"""Documents and docstrings are right: code, commands and examples run, links work, and versions agree."""

import csv
import doctest
import functools
import importlib
import re
import shlex
import subprocess
import sys
import tomllib
import types
from pathlib import Path

import pytest
from searches import archive
from toy_command import TOY

from autotts_jax.cli import main as cli
from autotts_jax.core import devices
from autotts_jax.discovery import Judge
from autotts_jax.discovery import entry as discovery_entry
from autotts_jax.training import entry as training_entry
from autotts_jax.user_code import load_object

ROOT = Path(__file__).parents[1]
_pages = load_object(f"{ROOT}/docs/words.py:pages", "function")
DOCUMENTS = [ROOT / name for name in _pages() if name != "CHANGELOG.md"]
"""Pages whose commands and code are run. Those in research/ are records of their time."""
LONG = (
    "autotts_jax/__init__.py",
    "envs/making.py",
    "experiments/batch.py",
    "experiments/benchmark.py",
    "experiments/certificates.py",
    "experiments/evaluation.py",
    "experiments/live_batch.py",
    "experiments/tracing.py",
    "live/answering.py",
    "testing/controllers.py",
    "training/allocators.py",
    "training/entry.py",
)
"""Modules whose examples take seconds."""
NIGHTLY = (
    "benchmark.md",
    "collect.md",
    "discovery.md",
    "discovery-critic.md",
    "discovery-distill.md",
    "distill.py",
    "ppo.md",
)
"""Documents, and a module with examples, that take longest."""
EXAMPLES = [
    pytest.param(
        file.relative_to(ROOT).with_suffix(""),
        marks=pytest.mark.nightly
        if file.name in NIGHTLY
        else [pytest.mark.slow] * file.as_posix().endswith(LONG),
    )
    for file in sorted((ROOT / "autotts_jax").rglob("*.py"))
    if ">>> " in file.read_text(encoding="utf-8")
]
"""Modules with examples in their docstrings."""
BLOCK = re.compile(r"^```(\w+|\{code-cell\})\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CONFIG = """
[network]
hidden = 2
[trainer]
kind = "evolution"
max_branches = 4
population = 4
num_gammas = 1
[run]
updates = 1
"""
"""The configuration that documents train with: the least that is one."""
LEFT_OUT = "…"
"""A line of shown output that stands for others."""


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A working directory with a configuration, in which the checkout's own files are found."""
    for name in ("examples", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.syspath_prepend(ROOT / "examples")  # as docs/conf.py does for notebooks
    (tmp_path / "config.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    # JAX is in use already, and tests leave no cache behind.
    monkeypatch.setattr(devices, "configure", lambda *_: None)


def marks(name):
    """The marks of a document: a search plays more than it compiles."""
    shipped = [pytest.mark.shipped] * name.startswith(("discovery", "README"))
    return [*shipped, pytest.mark.nightly if name in NIGHTLY else pytest.mark.slow]


@pytest.mark.usefixtures("checkout")
@pytest.mark.parametrize(
    "document", [pytest.param(path, id=path.name, marks=marks(path.name)) for path in DOCUMENTS]
)
def test_commands_and_code_run_in_the_order_of_the_document(document, monkeypatch, capsys):
    if document.name != "discovery.md":  # which searches as users do
        monkeypatch.setattr(Judge, "final_orders", range(12, 14))
        short = functools.partial(discovery_entry.DiscoveryRun, rungs=((128, 1), (4, 1)), test_orders=4)
        monkeypatch.setattr(discovery_entry, "DiscoveryRun", short)
    printed: list[str] = []
    notebook = types.ModuleType("notebook")
    monkeypatch.setitem(sys.modules, "notebook", notebook)
    for number, (language, text) in enumerate(BLOCK.findall(document.read_text(encoding="utf-8"))):
        if language == "python":
            module = types.ModuleType(f"block_{number}")
            # Dataclasses look their module up while it is being executed.
            monkeypatch.setitem(sys.modules, module.__name__, module)
            exec(compile(text, f"{document.name}, block {number}", "exec"), vars(module))
            printed = lines(capsys.readouterr().out)
        elif language == "{code-cell}":  # of a notebook, whose cells share their names
            exec(compile(text, f"{document.name}, cell {number}", "exec"), vars(notebook))
            printed = lines(capsys.readouterr().out)
        elif language == "output":
            missing = [line for line in shown_lines(text.splitlines()) if line not in printed]
            assert not missing, f"{document.name}: block {number} shows {missing}, not {printed}"
        elif language == "console":
            for command, shown in commands(text):
                printed = run(command, monkeypatch, capsys)
                missing = [line for line in shown if line not in printed]
                assert not missing, f"{document.name}: {command} does not print {missing}"


@pytest.fixture
def without_waiting(checkout, monkeypatch):  # noqa: ARG001
    """Trains a toy, and searches in no time, as examples would take minutes; there is a run in runs/first."""
    archive(Path("runs/first"))
    monkeypatch.setattr(
        discovery_entry, "DiscoveryRun", lambda _, *args, **options: archive(*args, **options)
    )
    for name, value in TOY.items():
        monkeypatch.setattr(training_entry, name, value)


@pytest.mark.usefixtures("without_waiting")
@pytest.mark.parametrize("module", EXAMPLES, ids=str)
def test_examples_in_docstrings_run(module):
    name = ".".join(module.parts).removesuffix(".__init__")
    assert not doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS).failed


def commands(block):
    """The commands of a console block, each with the lines that are shown of its output."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, *shown = part.splitlines()
        yield command, shown_lines(shown)


def shown_lines(shown):
    """The lines of shown output that have to be printed."""
    return [line for line in shown if line.strip() and line != LEFT_OUT]


def lines(printed):
    """The lines of printed text, without the blanks at their ends."""
    return [line.rstrip() for line in printed.splitlines()]


def run(command, monkeypatch, capsys):
    """The lines that a command prints, without the blanks at their ends."""
    program, *arguments = shlex.split(command)
    if program == "python":
        done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        printed = done.stdout
    else:
        assert program == "autotts-jax", f"{command}: only autotts-jax and python are run"
        monkeypatch.setattr(sys, "argv", [program, *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        printed, errors = capsys.readouterr()
        assert not end.value.code, f"{command}: {errors}"
    return lines(printed)


@pytest.mark.parametrize(
    "document",
    sorted(
        [
            *ROOT.glob("*.md"),
            *ROOT.glob("docs/**/*.md"),
            *ROOT.glob("research/*.md"),
            *ROOT.glob("autotts_jax/**/*.md"),
        ]
    ),
    ids=lambda path: path.name,
)
def test_links_lead_somewhere(document):
    for target in LINK.findall(document.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        file = document.parent / path if path else document
        assert file.exists(), f"{document.name}: no {target}"
        if anchor:
            assert anchor in anchors(file), f"{document.name}: no {target}"


def anchors(document):
    """The headings of a document as GitHub links to them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_contributing_names_every_module_at_the_top():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| module \| holds \|\n(.*?)^$", text, re.MULTILINE | re.DOTALL)
    named = re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines()))
    there_are = {file.stem for file in (ROOT / "autotts_jax").glob("*.py")} - {"__init__", "__main__"}
    assert sorted(named) == sorted(there_are)


def test_the_lowest_gymnasium_is_the_one_of_rllib():
    """The tests run with it under `make test-clients`, for RLlib pins it, and with the latest one in CI."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (lowest,) = (name for name in project["dependencies"] if name.startswith("gymnasium"))
    clients = (ROOT / "constraints-clients.txt").read_text(encoding="utf-8").splitlines()
    assert lowest.replace(">=", "==") in clients


def test_versions_agree():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## [{version}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    (ruff,) = re.findall(r"^ruff==.*$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"ruff==[^\]]+", hooks)) == {ruff}


def test_one_command_draws_every_picture_that_is_shown():
    script = (ROOT / "benchmarks" / "pictures.py").read_text(encoding="utf-8")
    targets = [target for file in DOCUMENTS for target in LINK.findall(file.read_text(encoding="utf-8"))]
    shown = {Path(target).name for target in targets if target.endswith(".png")}
    assert shown == {file.name for file in (ROOT / "docs").glob("*.png")}
    assert shown == set(re.findall(r'"([\w-]+\.png)"', script))


def test_pictures_of_measurements_have_the_numbers_of_the_tables_in_research():
    cell = load_object(f"{ROOT}/benchmarks/env_speed.py:cell", "function")
    page = (ROOT / "research" / "performance.md").read_text(encoding="utf-8")
    rates = {}
    for row in numbers_in("env-speed.csv"):
        rates.setdefault(row["way"], []).append(cell(float(row["steps_per_second"])))
    for of_way in rates.values():
        assert f"| {' | '.join(of_way)} |" in page
    page = (ROOT / "research" / "benchmark.md").read_text(encoding="utf-8")
    for row in numbers_in("learners.csv"):
        told = [f"{float(row[key]):.3f}" for key in ("objective", "objective_se") if row[key]]
        assert f" {' ± '.join(told)} " in page


def numbers_in(name):
    """The rows of a table in docs."""
    with (ROOT / "docs" / name).open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))
