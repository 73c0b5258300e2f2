"""Evaluations: episodes, figures and files, against closed forms and against each other."""

import csv
import dataclasses
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from autotts_jax.core import check_beta
from autotts_jax.errors import InputError, InputWarning
from autotts_jax.experiments.evaluation import Evaluation, evaluate
from autotts_jax.experiments.files import FILES, results_folder, write_csv
from autotts_jax.experiments.plots import frontier_figure, pareto
from autotts_jax.experiments.summary import (
    ALL_MODELS,
    Objective,
    Row,
    standard_error,
)
from autotts_jax.figures import save_figure
from autotts_jax.intervals import FEWEST
from autotts_jax.policies import Play, select
from autotts_jax.replay import SYNTHETIC_MODELS, synthetic

SEEDS, WIDTH = 3, 8
CONTROLLERS = ("sc@8", "sc@4", "cmc@0.1", "cmc@0.5")
PROGRAM = """
class Shortest:
    def __init__(self, config=None):
        self.branches = 1 + round(4 * (config or {}).get("beta", 0))

    def solve(self, question):
        return [question.get_new_branch_final_answer() for _ in range(self.branches)][-1]
"""
COLUMNS = [
    "model",
    "benchmark",
    "controller",
    "value",
    "seed",
    "question",
    "answer",
    "correct",
    "tokens",
    "intervals",
    "probes",
    "sequential_tokens",
    "branches",
    "rounds",
    "stop_reason",
]


@pytest.fixture(scope="module")
def dataset():
    return synthetic(models=SYNTHETIC_MODELS[1:3], questions=3, branches=10)


@pytest.fixture(scope="module")
def evaluation(dataset, tmp_path_factory):
    """All controllers and a released program."""
    program = tmp_path_factory.mktemp("program") / "shortest.py"
    program.write_text(PROGRAM)
    selections = [select(name) for name in (*CONTROLLERS, f"{program}:Shortest@0.5")]
    return evaluate(dataset, selections, seeds=SEEDS, max_branches=WIDTH)


@pytest.fixture(scope="module")
def results(evaluation, tmp_path_factory):
    """The files of the evaluation, γ = 1e-3 and κ_probe = 0.5."""
    folder = tmp_path_factory.mktemp("results")
    dataclasses.replace(evaluation, objective=Objective(1e-3, 0.5)).save(folder)
    return folder


def play_of(correct, tokens=1, name="sc"):
    """A play of one setting with what is given, and 1 for the rest."""
    ones = np.ones_like(correct, dtype=np.int64)
    columns = dict.fromkeys(("intervals", "probes", "sequential_tokens", "branches", "rounds"), ones[None])
    answer = np.full((1, *ones.shape), "a", object)
    return Play(
        select(f"{name}@1"),
        answer=answer,
        correct=np.asarray(correct, bool)[None],
        tokens=tokens * ones[None],
        stop_reason=ones[None],
        compile_seconds=0.0,
        run_seconds=0.0,
        **columns,
    )


def row(tokens, accuracy):
    figures = {field.name: 0.0 for field in dataclasses.fields(Row)}
    names = {"model": "m", "benchmark": "b", "controller": "c", "value": 1}
    return Row(**figures | names | {"accuracy": accuracy, "accuracy_se": 0.1, "tokens": tokens})


# --- files agree with each other ------------------------------------------------------------------------


def test_summary_is_what_the_episodes_say(results):
    episodes = pq.read_table(results / "episodes.parquet").to_pylist()
    summary = list(csv.DictReader((results / "summary.csv").read_text().splitlines()))
    per_model = [row for row in summary if row["model"] != ALL_MODELS]
    assert len(per_model) == 2 * (len(CONTROLLERS) + 1)
    for line in per_model:
        mine = [
            e
            for e in episodes
            if all(e[name] == line[name] for name in ("model", "benchmark", "controller"))
            and e["value"] == float(line["value"])
        ]
        assert len(mine) == SEEDS * 3
        by_seed = [np.mean([e["correct"] for e in mine if e["seed"] == seed]) for seed in range(SEEDS)]
        worth = [e["correct"] - 1e-3 * (e["intervals"] + 0.5 * e["probes"]) for e in mine]
        worth_by_seed = [
            np.mean([w for w, e in zip(worth, mine, strict=True) if e["seed"] == seed])
            for seed in range(SEEDS)
        ]
        expected = {
            "accuracy": np.mean(by_seed),
            "accuracy_se": np.std(by_seed, ddof=1) / np.sqrt(SEEDS),
            "tokens": np.mean([e["tokens"] for e in mine]),
            "sequential_tokens": np.mean([e["sequential_tokens"] for e in mine]),
            "objective": np.mean(worth),
            "objective_se": np.std(worth_by_seed, ddof=1) / np.sqrt(SEEDS),
        }
        assert {name: float(line[name]) for name in expected} == pytest.approx(expected, rel=1e-8, abs=1e-12)


def test_mean_of_models_is_the_mean_of_the_models(results):
    summary = list(csv.DictReader((results / "summary.csv").read_text().splitlines()))
    means = [row for row in summary if row["model"] == ALL_MODELS]
    assert len(means) == len(CONTROLLERS) + 1
    for mean in means:
        members = [
            row
            for row in summary
            if (row["controller"], row["value"]) == (mean["controller"], mean["value"]) and row is not mean
        ]
        for name in ("accuracy", "tokens", "sequential_tokens", "objective"):
            expected = np.mean([float(row[name]) for row in members if row["model"] != ALL_MODELS])
            assert float(mean[name]) == pytest.approx(expected, rel=1e-8)


def test_episodes_have_one_row_each_and_every_column(results, dataset):
    table = pq.read_table(results / "episodes.parquet")
    assert table.column_names == COLUMNS
    rows = table.to_pylist()
    keys = {
        tuple(e[name] for name in ("model", "benchmark", "controller", "value", "seed", "question"))
        for e in rows
    }
    assert len(keys) == len(rows) == (len(CONTROLLERS) + 1) * SEEDS * len(dataset)
    for e in rows:
        gold = dataset.questions[e["question"]].gold  # models answer the same questions
        assert e["correct"] == (e["answer"] == gold)
        assert 0 < e["sequential_tokens"] <= e["tokens"]
        assert 1 <= e["branches"] <= WIDTH
        assert e["intervals"] >= e["branches"]
        program = e["controller"] == "Shortest"
        assert (e["rounds"] is None) == (e["stop_reason"] is None) == program
    assert {e["stop_reason"] for e in rows} <= {None, "decided", "exhausted", "step_limit"}


def test_manifest_says_what_was_run(results, dataset):
    manifest = json.loads((results / "manifest.json").read_text())
    assert {"python", "autotts-jax", "jax", "numpy"} <= set(manifest["versions"])
    assert manifest["devices"]
    assert (manifest["protocol"], manifest["seeds"], manifest["max_branches"]) == ("repo100", SEEDS, WIDTH)
    assert manifest["objective"] == {"gamma": 1e-3, "kappa_probe": 0.5, "unit": "intervals"}
    assert [cell["sha256"] for cell in manifest["data"]] == [cell.sha256 for cell in dataset.cells]
    assert [entry["name"] for entry in manifest["controllers"]][-3:] == ["cmc", "cmc", "Shortest"]
    for entry in manifest["controllers"]:
        assert entry["run_seconds"] >= 0
        assert entry["compile_seconds"] >= 0


def test_pictures_are_there(results):
    assert (results / "frontier.png").read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in (results / "frontier.svg").read_text()


# --- episodes -------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:cmc opened no branch")
@pytest.mark.parametrize("budget", [0, 3_000, 20_000])
def test_no_episode_exceeds_its_budget(dataset, budget):
    (play,) = evaluate(dataset, [select("cmc@0.5")], seeds=SEEDS, max_branches=WIDTH, budget=budget).plays
    assert play.tokens.max() <= budget
    assert (play.tokens >= play.sequential_tokens).all()


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["repo100", "paper64"])
def test_the_released_program_plays_as_the_compiled_controller(protocol):
    data = synthetic(models=SYNTHETIC_MODELS[2:3], questions=4, branches=40)
    program = "examples/released_programs.py:OptimalController@0.5"
    compiled, released = evaluate(
        data, [select("cmc@0.5"), select(program)], protocol=protocol, seeds=4, max_branches=40
    ).plays
    for name in ("answer", "correct", "tokens", "intervals", "probes", "sequential_tokens", "branches"):
        np.testing.assert_array_equal(getattr(compiled, name), getattr(released, name), err_msg=name)


def test_protocols_differ_in_their_orders(dataset):
    one, other = (
        evaluate(dataset, [select("sc@1")], protocol=name, seeds=SEEDS, max_branches=WIDTH).plays[0].tokens
        for name in ("repo100", "paper64")
    )
    assert (one != other).any()


def test_progress_names_the_phase_and_ends_at_the_total(dataset):
    told = []
    evaluate(
        dataset,
        [select("sc@1")],
        seeds=2,
        max_branches=WIDTH,
        on_progress=lambda *progress: told.append(progress),
    )
    assert told[0] == ("sc: starting", 0, 0)
    assert told[-1] == ("sc", 12, 12)


# --- figures --------------------------------------------------------------------------------------------


def test_objective_charges_intervals_and_probes_or_tokens(dataset):
    two = dataset.select([0, 1])
    play = play_of([[True, False]], tokens=700)
    np.testing.assert_allclose(Objective(0.1, 2.0).of(play, two), [[[1 - 0.1 * 3, -0.1 * 3]]])
    np.testing.assert_allclose(Objective(1e-3, unit="tokens").of(play, two), [[[1 - 0.7, -0.7]]])
    np.testing.assert_allclose(Objective(0.0).of(play, two), [[[1, 0]]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1.0,), "gamma is -1"),
        ((float("nan"),), "gamma is nan"),
        ((0.1, -2.0), "kappa_probe is -2"),
        ((0.1, float("inf")), "kappa_probe is inf"),
        ((0.1, 1.0, "tokens"), "leave it out"),
    ],
)
def test_bad_objectives(arguments, message):
    with pytest.raises(InputError, match=message):
        Objective(*arguments)


def test_standard_error():
    assert standard_error(np.array([0.0, 1.0])) == pytest.approx(0.5)
    assert standard_error(np.full(9, 0.3)) == pytest.approx(0.0)
    assert np.isnan(standard_error(np.array([0.3])))


def test_rows_by_hand():
    """A gain on every question, none, and one on half of them, of a third of the first setting's tokens."""
    data = synthetic(models=SYNTHETIC_MODELS[2:3], questions=8, branches=WIDTH)
    number = len(data)
    half = np.tile(np.arange(number) % 2, (3, 1))
    plays = (
        play_of(np.zeros((3, number)), 30, "sc"),
        play_of(np.ones((3, number)), 10, "asc"),
        play_of(np.zeros((3, number)), 10, "cmc"),
        play_of(half, 10, "parallel-probe"),
    )
    rows = Evaluation(data, plays, 3).rows
    assert [row.tokens_ratio for row in rows] == pytest.approx([1, 1 / 3, 1 / 3, 1 / 3])
    assert [(row.ratio_low, row.ratio_high) for row in rows[1:]] == [pytest.approx((1 / 3, 1 / 3))] * 3
    assert [row.baseline for row in rows] == ["sc@1"] * 4
    assert np.isnan(rows[0].gain_p)
    assert (rows[0].gain_low, rows[0].gain_high) == (0, 0)
    assert rows[1].gain_p < 0.01
    assert rows[2].gain_p == 1
    assert rows[2].gain_low < 0 < rows[2].gain_high, "no gain on so few questions may be one on others"
    least = rows[1].gain_p
    assert rows[1].gain_p_adjusted == pytest.approx(min(3 * least, rows[3].gain_p * 3 / 2))
    against = Evaluation(data, plays, 3, baseline="parallel-probe@1").rows
    assert [row.gain for row in against] == pytest.approx([-0.5, 0.5, -0.5, 0])
    assert np.isnan([row.gain_p for row in against]).tolist() == [False, False, False, True]


def test_few_questions_claim_nothing(dataset):
    plays = [play_of(np.full((3, 1), right), 10, name) for right, name in ((0, "sc"), (1, "asc"))]
    result = Evaluation(dataset.select([0]), tuple(plays), 3)
    _, gained = result.rows
    assert gained.gain == 1
    assert np.isnan([gained.gain_low, gained.gain_p, gained.gain_p_adjusted, gained.gain_detectable]).all()
    assert "+100.0 [n/a]" in str(result.table())
    assert "fewer than 6 questions" in str(result.table())


def test_gains_are_differences_of_accuracies_where_cells_differ_in_size():
    data = synthetic(models=SYNTHETIC_MODELS[1:3], questions=9, branches=2)
    uneven = data.select(range(15))  # nine questions of one model and six of the other
    rng = np.random.default_rng(0)
    plays = tuple(play_of(rng.random((5, 15)) < 0.5, name=name) for name in ("sc", "asc"))
    rows = Evaluation(uneven, plays, 5).rows
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        assert (first.gain, first.gain_low, first.gain_high) == (0, 0, 0)
        assert (first.objective_gain, first.objective_gain_low, first.objective_gain_high) == (0, 0, 0)
        assert second.objective_gain == pytest.approx(second.objective - first.objective)
        assert second.objective_gain_low <= second.objective_gain <= second.objective_gain_high
        assert second.gain == pytest.approx(second.accuracy - first.accuracy)
        assert second.gain_low <= second.gain <= second.gain_high
    assert rows[-1].model == ALL_MODELS
    assert rows[-1].accuracy == pytest.approx((rows[1].accuracy + rows[3].accuracy) / 2)


def swept(correct, **columns):
    """Plays of one controller at two values of β."""
    return [
        dataclasses.replace(play_of(right, **columns), player=select(f"cmc@{beta}"))
        for beta, right in zip((0.1, 0.5), correct, strict=True)
    ]


def test_a_setting_is_chosen_on_other_questions_than_it_is_judged_on():
    data = synthetic(models=SYNTHETIC_MODELS[:1], questions=5, branches=2)  # five folds of one question
    right = np.random.default_rng(9).random((2, 4, 5)) < 0.5
    result = Evaluation(data, (play_of(right[0], name="sc"), *swept(right)), 4, Objective(0))
    chosen = result.choose()
    worth = right.mean(axis=1)
    best = [int(np.delete(worth, question, axis=1).mean(axis=1).argmax()) for question in range(5)]
    assert len(set(best)) == 2
    baseline, mine = chosen.rows
    assert (baseline.name, mine.controller, mine.value) == ("sc@1", "cmc", None)
    assert mine.accuracy == pytest.approx(np.mean([worth[at, question] for question, at in enumerate(best)]))
    assert chosen.settings == {"cmc": {"cmc@0.1": best.count(0), "cmc@0.5": best.count(1)}}
    assert "chosen on other questions" in str(chosen.table())
    assert chosen.summary().num_rows == 2


def test_settings_cannot_be_chosen_where_there_are_no_other_questions():
    data = synthetic(models=SYNTHETIC_MODELS[:1], questions=4, branches=2)
    result = Evaluation(data, tuple(swept(np.ones((2, 3, 4)))), 3)
    with pytest.raises(InputError, match="4 questions cannot be dealt out to 5 folds"):
        result.choose()
    with pytest.raises(InputError, match="must be one of several benchmarks; there are synthetic"):
        result.choose(on="synthetic")


def test_settings_are_compared_with_the_one_that_is_asked_for(evaluation):
    paired = evaluation.paired("cmc@0.5", baseline="sc@4").to_pylist()
    assert {(row["controller"], row["value"], row["baseline"]) for row in paired} == {("cmc", 0.5, "sc@4")}
    for row in paired:
        mine, its = (
            next(r for r in evaluation.rows if r.name == name and r.model == row["model"])
            for name in ("cmc@0.5", "sc@4")
        )
        assert row["gain"] == pytest.approx(mine.accuracy - its.accuracy)
        assert row["tokens_ratio"] == pytest.approx(mine.tokens / its.tokens)
    with pytest.raises(InputError, match=r"cmc@0\.7"):
        evaluation.paired("cmc@0.7")


def test_fewer_questions_tell_a_larger_gain(evaluation):
    assert set(evaluation.power(0.02)["questions"].to_pylist()) == {None}  # three questions tell nothing
    enough = synthetic(models=SYNTHETIC_MODELS[1:3], questions=FEWEST, branches=10)
    result = evaluate(enough, ["sc@8", "sc@4", "sc@2"], seeds=SEEDS, max_branches=WIDTH)
    small, large = (result.power(gain)["questions"].to_pylist() for gain in (0.02, 0.2))
    assert len(small) == len(large) == 3 * 2  # two models and their mean; no baseline
    assert all(more > fewer for more, fewer in zip(small, large, strict=True))
    for gain in (0, -0.1, 1.1, 1e-12, float("nan")):
        with pytest.raises(InputError, match="the gain is"):
            evaluation.power(gain)


@pytest.mark.parametrize("each", [32, 10**9])
def test_probes_cost_the_tokens_that_are_asked_for(evaluation, each):
    charged = dataclasses.replace(evaluation, probe_tokens=each)
    for play in evaluation.plays:
        for index, value in enumerate(play.player.values):
            tokens = play.tokens[index] + each * play.probes[index].astype(float)
            rows = [row for row in charged.rows if (row.controller, row.value) == (play.player.name, value)]
            of_models = [row.tokens for row in rows if row.model != ALL_MODELS]
            assert np.mean(of_models) == pytest.approx(tokens.mean())


def test_the_frontier_holds_what_nothing_beats():
    rows = [row(10, 0.2), row(20, 0.1), row(30, 0.5), row(30, 0.4), row(40, 0.5), row(50, 0.6)]
    assert [(r.tokens, r.accuracy) for r in pareto(rows)] == [(10, 0.2), (30, 0.5), (50, 0.6)]


def test_a_narrow_terminal_shows_numbers_by_their_own_names(evaluation):
    table = evaluation.frontier().table()
    console = Console(file=io.StringIO(), width=40, color_system=None)
    console.print(table)
    lines = [line.strip() for line in console.file.getvalue().splitlines()]
    assert any(line.startswith("hypervolume ") for line in lines)
    assert not any(f": {name}" in line for name in ("hypervolume", "regret", "Δ hyper") for line in lines)


@pytest.mark.parametrize("rows", [[row(100, 0.5)], [row(0, 0.0), row(0, 0.0)], [row(1e3, 0.1), row(1e6, 1)]])
def test_a_frontier_of_any_costs_can_be_drawn(rows, tmp_path):
    save_figure(frontier_figure(rows), [tmp_path / "frontier.png"])
    assert (tmp_path / "frontier.png").stat().st_size > 1000


def test_names_leave_room_for_the_frontier_and_are_no_formulas(tmp_path):
    names = ("$\\frac$", "long" * 50, *map(str, range(200)))
    rows = [dataclasses.replace(row(10, 0.2), model=names[0], controller=name) for name in names]
    figure = frontier_figure(rows)
    save_figure(figure, [tmp_path / "frontier.png"])
    (legend,) = figure.legends
    shown = [text.get_text() for text in legend.get_texts()]
    assert shown[0] == names[0]
    assert shown[-1] == f"{len(names) + 2 - len(shown[:-1])} others"
    assert len(legend.legend_handles) == len(shown)
    assert legend.get_window_extent().y0 >= 0
    assert figure.axes[0].get_window_extent().width > figure.bbox.width / 4


# --- bad input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("controllers", "arguments", "message"),
    [
        ("sc@1", {"seeds": 0}, "seeds is 0"),
        ("sc@1", {"seeds": 1, "protocol": "bootstrap"}, "unknown protocol 'bootstrap'"),
        ("sc@1", {"budget": -1}, "budget is -1"),
        ("sc@9", {}, "sc@9 reads more branches"),
        ("sc@1", {"max_branches": 11}, "10 branches a question, fewer than the 11"),
        ("sc@1,asc@1,sc@1", {}, "sc@1: given more than once"),
        ("cmc,cmc@0.3", {}, "cmc@0.3: given more than once"),
        pytest.param(
            "examples/released_programs.py:SelfConsistency",
            {"budget": 5},
            "exceeds the token budget",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_bad_arguments(dataset, controllers, arguments, message):
    selections = [select(spec) for spec in controllers.split(",")]
    with pytest.raises(InputError, match=message):
        evaluate(dataset, selections, **({"max_branches": WIDTH} | arguments))


@pytest.mark.slow
def test_episodes_open_as_many_branches_as_there_are(dataset):
    result = evaluate(dataset, ["sc@10", "asc@4"], seeds=1)
    assert result.max_branches == 10
    assert evaluate("smollm2", "sc@1", seeds=1).max_branches == 64
    with pytest.raises(
        InputError, match="sc@16 reads more branches than an episode can open; give it at most 10"
    ):
        evaluate(dataset, "sc@16", seeds=1)


def test_settings_of_a_family_that_do_not_fit_are_left_out(dataset):
    with pytest.warns(
        InputWarning, match=r"sc@16, sc@32, sc@64, esc@16, esc@32, esc@64: left out, .* most 10"
    ):
        result = evaluate(dataset, ["sc", "esc", "asc@4"], seeds=1, baseline="asc@4")
    assert [name for play in result.plays for name in play.player.names] == ["sc@1", "sc@4", "sc@8", "asc@4"]
    assert [len(play.correct) for play in result.plays] == [3, 1]
    with pytest.raises(InputError, match="and no setting is left; name one, as sc@10"):
        evaluate(dataset, "esc", seeds=1)


def test_a_baseline_shows_the_ratios_of_tokens(evaluation):
    assert "ratio" not in str(evaluation.table())
    shown = str(dataclasses.replace(evaluation, baseline="sc@8").table())
    (ratio,) = evaluation.paired("sc@4", "sc@8")["tokens_ratio"].to_pylist()[:1]
    assert "tokens" in shown
    assert f"{ratio:.2f} [" in shown
    assert "ratio: to its tokens" in shown


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("best", "unknown player 'best'; known are sc, asc"),
        ("cmc@1.5", "β is 1.5"),
        ("cmc@-0.1", "β is -0.1"),
        ("cmc@nan", "β is nan, but it must be a finite number"),
        ("cmc@high", "'high' after the @ is not a number"),
        ("cmc@", "'' after the @ is not a number"),
        ("sc@2.5", "2.5, but it must be a whole number"),
        ("sc@0", "must be a whole number"),
        ("sc@inf", "sc's branches is inf, but it must be a finite number"),
        ("esc@7", "whole number >= 8"),
        ("missing.py:Mine", "there is no file missing.py"),
        pytest.param("examples/released_programs.py:OptimalController@2", "β is 2", marks=pytest.mark.slow),
        ("no_such_module:Mine", "importing no_such_module failed"),
    ],
)
def test_bad_controllers(spec, message):
    with pytest.raises(InputError, match=message):
        select(spec)


def test_a_cell_of_which_nothing_is_selected_is_left_out(dataset):
    last = len(dataset.cells) - 1
    chosen = dataset.select(dataset.cell_questions(last))
    assert chosen.cells == dataset.cells[last:]
    (row,) = evaluate(chosen, ["sc@2"], max_branches=WIDTH, seeds=1).rows
    assert row.model == dataset.cells[last].model
    whole = evaluate(dataset, ["sc@2"], max_branches=WIDTH, seeds=1).rows
    assert row.accuracy == next(other.accuracy for other in whole if other.model == row.model)


@pytest.mark.parametrize("beta", ["0.5", None, [0.5], 1 + 1j])
def test_a_beta_that_is_no_number(beta):
    with pytest.raises(InputError, match="but it must be a number between 0 and 1"):
        check_beta(beta)


def test_a_controller_must_be_a_pytree(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import autotts_jax as at\n"
        "from autotts_jax.policies import SelfConsistency\n"
        "class Sub(SelfConsistency):\n    pass\n"
        "mine = at.Family('mine', (), lambda branches: Sub(int(branches)), 'branches')\n"
    )
    with pytest.raises(InputError, match="class Sub is not a pytree; decorate it"):
        select(f"{file}:mine@1")


def test_results_appear_together_or_not_at_all(tmp_path):
    def fail():
        with results_folder(tmp_path, ("half",)) as folder:
            (folder / "half").write_text("")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert list(tmp_path.iterdir()) == []
    with results_folder(tmp_path, ("whole",)) as folder:
        (folder / "whole").write_text("")
        assert not (tmp_path / "whole").exists()
    assert [file.name for file in tmp_path.iterdir()] == ["whole"]
    (tmp_path / "notes").write_text("of the user")
    with results_folder(tmp_path, ("whole", "other")) as folder:
        (folder / "other").write_text("")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["notes", "other"]


def test_files_of_an_evaluation_before_do_not_stay(dataset, tmp_path):
    for name in FILES:
        (tmp_path / name).write_text("of an evaluation before")
    written = evaluate(dataset, ["sc@2"], max_branches=WIDTH, seeds=1).save(tmp_path)
    assert {file.name for file in written} < set(FILES)
    assert sorted(tmp_path.iterdir()) == sorted(written)


def test_a_folder_in_the_place_of_a_file_is_named_and_nothing_is_lost(dataset, tmp_path):
    (tmp_path / "summary.csv").write_text("of an evaluation before")
    (tmp_path / "report.html").mkdir()
    with pytest.raises(InputError, match=r"report.html is a folder; move it"):
        evaluate(dataset, ["sc@2"], max_branches=WIDTH, seeds=1).save(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["report.html", "summary.csv"]


@pytest.mark.slow
def test_a_tilde_in_the_name_of_a_folder_is_a_tilde(dataset, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    evaluate(dataset, ["sc@2"], max_branches=WIDTH, seeds=1).save("~/found")
    assert (tmp_path / "~" / "found" / "episodes.parquet").is_file()


def test_no_text_in_a_csv_is_run_as_a_formula(tmp_path):
    texts = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "a=1", "", None]
    write_csv(tmp_path / "table.csv", pa.table({"text": texts, "number": [-0.5] * len(texts)}))
    with (tmp_path / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["text"] for row in rows] == [*(f"'{text}" for text in texts[:6]), "a=1", "", ""]
    assert {row["number"] for row in rows} == {"-0.5"}
