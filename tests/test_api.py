"""The public names: what they import, what they take, and that their examples run."""

import base64
import dataclasses
import inspect
import json
import pickle
import pydoc
import re
import subprocess
import sys

import pyarrow as pa
import pytest
from rich.console import Console

import autotts_jax as at
from autotts_jax.cli import console
from autotts_jax.collect import SimulatedEngine
from autotts_jax.policies import SelfConsistency, cmc
from autotts_jax.replay import SYNTHETIC_MODELS, synthetic

HEAVY = (
    "altair",
    "vl_convert",
    "jax",
    "jaxlib",
    "flax",
    "matplotlib",
    "pyarrow",
    "optax",
    "orbax",
    "pandas",
    "scipy",
)
NEWCOMERS = ("answer", "evaluate", "load", "make", "trace")


@pytest.fixture(scope="module")
def dataset():
    return synthetic(models=SYNTHETIC_MODELS[1:3], questions=3, branches=10)


@pytest.fixture(scope="module")
def result(dataset):
    return at.evaluate(dataset, ["sc@1", "sc@8", "cmc@0.2", "cmc@0.5"], seeds=2, max_branches=8)


@pytest.mark.slow
def test_what_a_worker_returns_can_be_sent(dataset, result):
    data, copy = pickle.loads(pickle.dumps((dataset, result)))
    assert (repr(data), str(copy.table())) == (repr(dataset), str(result.table()))
    assert copy.episodes() == result.episodes()
    trace = at.trace(dataset, "sc@2", max_branches=2)
    assert pickle.loads(pickle.dumps(trace)).steps == trace.steps


def test_importing_it_registers_the_environments_and_imports_nothing_heavy():
    code = (
        "import sys, autotts_jax as at, gymnasium\n"
        "assert at.__version__\n"
        "assert {'WidthDepth-v0', 'WidthDepthRounds-v0'} <= gymnasium.registry.keys()\n"
        f"print(sorted(set({HEAVY}) & sys.modules.keys()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_every_public_name_is_documented():
    assert sorted(at.__all__) == at.__all__
    for name in at.__all__:
        found = getattr(at, name)
        assert found is not None
        assert inspect.getdoc(found), name


def public_functions():
    """The public functions, and the public methods of the public classes."""
    for name in at.__all__:
        found = getattr(at, name)
        members = vars(found).values() if inspect.isclass(found) else [found]
        for member in map(inspect.unwrap, members):
            if inspect.isfunction(member) and not member.__name__.startswith("_"):
                yield pytest.param(member, id=member.__qualname__)


@pytest.mark.parametrize("function", public_functions())
def test_public_functions_say_what_they_take_and_return(function):
    text, signature = inspect.getdoc(function), inspect.signature(function)
    assert ("Args:" in text) == bool(signature.parameters.keys() - {"self"})
    assert ("Returns:" in text) == (signature.return_annotation != "None")


def test_help_has_an_example_of_each_function_that_a_newcomer_looks_for():
    text = pydoc.render_doc(at, renderer=pydoc.plaintext)
    for name in NEWCOMERS:
        assert f"\n    {name}(" in text
        _, _, example = inspect.getdoc(getattr(at, name)).partition("Example:\n")
        assert ">>> import autotts_jax as at" in example  # test_docs.py runs it


# --- evaluations ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_players_are_texts_controllers_and_policies(dataset):
    def names(players):
        result = at.evaluate(dataset, players, seeds=1, max_branches=8)
        return [name for play in result.plays for name in play.player.names]

    assert names("sc@4") == ["sc@4"]
    assert names(SelfConsistency(4)) == ["SelfConsistency(4)"]
    assert names(("sc@4", SelfConsistency(2), SelfConsistency(4))) == [
        "sc@4",
        "SelfConsistency(2)",
        "SelfConsistency(4)",
    ]
    family = at.Family("mine", (1, 2), SelfConsistency, "branches")
    assert names([family, cmc.FAMILY.make(0.5)])[:2] == ["mine@1", "mine@2"]


def test_tables_are_shown_everywhere(result):
    table, text = result.table(), str(result.table())
    screen = Console(width=80, record=True)
    with screen.capture() as shown:
        screen.print(table)
    for view in (shown.get(), text, repr(table), table.html(), result._repr_html_()):
        assert "synthetic-M" in view
        assert "cmc@0.5" in view
    assert max(map(len, text.splitlines())) <= 80
    assert "against cmc" in str(result.frontier().table())


def pictures(view):
    """The charts of what a notebook shows, as SVG."""
    return [base64.b64decode(code).decode() for code in re.findall(r"svg\+xml;base64,([^\"]+)", view)]


@pytest.mark.slow
def test_a_notebook_shows_the_charts_of_results(result, dataset):
    for view in (result._repr_html_(), result.frontier()._repr_html_()):
        (picture,) = pictures(view)
        rows = [row for row in result.rows if row.model == "mean of models"]
        assert picture.count('aria-roledescription="point"') == len(rows) == 4
    trace = dataclasses.replace(
        at.trace(dataset, "cmc@0.2", max_branches=8), gold="<img onerror=alert(1)>", title="</pre>\u202e"
    )
    view = trace._repr_html_()
    (picture,) = pictures(view)
    assert picture.count('aria-roledescription="rect mark"') == sum(map(len, trace.shown))
    assert "&lt;img onerror" in view
    assert "<img onerror" not in view
    assert "\u202e" not in view


def test_a_notebook_shows_tables_alone_without_what_draws(result, dataset, monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    trace = at.trace(dataset, "sc@2", max_branches=2)
    for shown in (result, result.frontier(), trace):
        assert shown._repr_html_() == shown.table().html()


def test_frames_have_a_row_for_each_setting_and_each_episode(result, dataset):
    summary, paired, episodes = result.summary(), result.paired(), result.episodes()
    for table in (summary, paired, episodes):
        assert isinstance(table, pa.Table)
    assert len(summary) == len(paired) == 3 * 4  # two models and their mean
    assert len(episodes) == 4 * 2 * len(dataset)
    assert summary.select(["controller", "value"]) == paired.select(["controller", "value"])
    assert sum(episodes["tokens"].to_pylist()) == sum(int(play.tokens.sum()) for play in result.plays)


def test_another_objective_needs_no_other_episodes(result):
    cheap, dear = (
        dataclasses.replace(result, objective=at.Objective(gamma)).summary() for gamma in (0.0, 1.0)
    )
    assert cheap["objective"].to_pylist() == pytest.approx(cheap["accuracy"].to_pylist())
    assert max(dear["objective"].to_pylist()) < 0
    assert cheap["tokens"] == dear["tokens"]


def test_without_what_draws_everything_else_is_written(result, tmp_path, monkeypatch, capsys):
    for missing in ("altair", "matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, missing, None)
    files = result.save(tmp_path / "results")
    names = {
        "episodes.parquet",
        "frontier.csv",
        "manifest.json",
        "paired.csv",
        "summary.csv",
        "table.md",
        "table.tex",
    }
    assert {file.name for file in files} == {file.name for file in (tmp_path / "results").iterdir()} == names
    manifest = json.loads((tmp_path / "results" / "manifest.json").read_text())
    assert [entry["name"] for entry in manifest["controllers"]] == ["sc", "sc", "cmc", "cmc"]
    with pytest.raises(at.InputError, match=r"a picture needs matplotlib: pip install 'autotts-jax\[plot\]'"):
        result.figure()
    console.print_written(files, report=True)
    told = capsys.readouterr().out.splitlines()[1]
    assert told == "for pictures and a report as well: pip install 'autotts-jax[plot]'"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda _: at.load(""), "which names nothing"),
        (lambda _: at.load([]), "which names nothing"),
        (lambda _: at.load("x" * 5000), "File name too long"),
        (lambda data: at.evaluate(data, ["sc@2"], seeds=10**9), "between 1 and 1000000"),
        (lambda data: at.evaluate(data, ["sc@2"], objective=3), "it must be an autotts_jax.Objective"),
        (lambda _: at.answer(None, "How many?"), "engine is None"),
        (lambda _: at.answer(SimulatedEngine(), 3), "question is 3, but it must be text"),
        (
            lambda _: at.answer(SimulatedEngine(), []),
            r"question is \[\], .* messages that end with the user's",
        ),
        (lambda _: at.answer(SimulatedEngine(), " "), "question is ' ', but it must be text"),
        (lambda _: at.train(None), "config is None, but it must be a path"),
        (lambda _: at.train("examples/train.toml", out=3), "out is 3, but it must be a path"),
        (lambda data: data.select([99]), r"from 0 to 5, but not \[99\]"),
        (lambda data: data.select([1.5]), "whole numbers"),
        (lambda data: data.select("a"), "whole numbers"),
        (lambda data: data.split(float("nan"), 0), "fraction is nan"),
        (lambda data: data.split(0.5, -1), "seed is -1"),
        (lambda data: data.shuffle("a"), "seed is 'a'"),
    ],
)
def test_what_cannot_be_meant_is_refused(dataset, call, message):
    with pytest.raises(at.InputError, match=message):
        call(dataset)
