"""Papers: metrics by hand, published values, pages and their files."""

import contextlib
import csv
import dataclasses

import numpy as np
import pyarrow as pa
import pytest

import autotts_jax as at
from autotts_jax import files
from autotts_jax.errors import InputError, InputWarning
from autotts_jax.experiments import files as result_files
from autotts_jax.experiments import papers
from autotts_jax.experiments.evaluation import Evaluation
from autotts_jax.experiments.metrics import anytime, normalised_regret, pass_at, vote_accuracy
from autotts_jax.experiments.papers.autotts_page import FAMILIES, page
from autotts_jax.experiments.papers.mrt_page import BUDGETS
from autotts_jax.experiments.papers.page import Grid, Page, Section
from autotts_jax.experiments.papers.playing import families
from autotts_jax.experiments.papers.published import DIFFERENT, PUBLISHED
from autotts_jax.pages import rendering
from autotts_jax.policies import ControllerPlayer, Play
from autotts_jax.replay import BranchOrders, Cell, ProbeDataset, ProbeMatrix, Question

# Normalised regret at 4096, 8192, 12288 and 16384 tokens.
REGRET = {
    "Qwen3-0.6B/aime24": (0.9685, 0.9488, 0.9351, 0.9253),
    "Qwen3-0.6B/aime25": (0.9487, 0.9113, 0.8922, 0.8801),
    "Qwen3-1.7B/aime24": (0.8823, 0.7923, 0.7386, 0.7014),
    "Qwen3-1.7B/aime25": (0.8953, 0.8270, 0.7871, 0.7594),
    "Qwen3-4B/aime24": (0.8608, 0.7224, 0.6235, 0.5567),
    "Qwen3-4B/aime25": (0.8710, 0.7539, 0.6755, 0.6179),
    "Qwen3-8B/aime24": (0.8621, 0.7103, 0.6132, 0.5442),
    "Qwen3-8B/aime25": (0.8821, 0.7688, 0.6900, 0.6264),
}
# Percent: mean@1, label accuracy, majority ratio, reward accuracy, pass@128.
REWARDS = {
    "Qwen3-0.6B/aime24": (10.89, 23.33, 26.80, 81.12, 56.67),
    "Qwen3-0.6B/aime25": (16.77, 33.33, 31.02, 83.98, 60.00),
    "Qwen3-1.7B/aime24": (45.94, 73.33, 54.90, 89.22, 80.00),
    "Qwen3-1.7B/aime25": (35.36, 43.33, 52.19, 77.81, 76.67),
    "Qwen3-4B/aime24": (71.85, 80.00, 80.08, 90.68, 90.00),
    "Qwen3-4B/aime25": (64.84, 76.67, 73.49, 89.90, 90.00),
    "Qwen3-8B/aime24": (75.70, 80.00, 83.44, 90.23, 93.33),
    "Qwen3-8B/aime25": (67.06, 76.67, 73.52, 91.67, 90.00),
}


def dataset(cells):
    """One question of two branches for each (model, benchmark): the first right at last, the other before."""
    count = len(cells)
    matrix = ProbeMatrix(
        answers=np.tile(np.array([[1, 0, 0, -1], [0, 1, 1, 1]], np.int16), (count, 1, 1)),
        lengths=np.tile(np.array([2, 3], np.int32), (count, 1)),
        tokens=np.tile(np.array([250, 300], np.int32), (count, 1)),
        gold=np.zeros(count, np.int16),
        interval=np.full(count, 100, np.int32),
        cell=np.arange(count, dtype=np.int32),
        vocabulary=3,
    )
    questions = tuple(Question(0, f"question {q}", "a", ("a", "b")) for q in range(count))
    return ProbeDataset(matrix, questions, tuple(Cell(*names, 2, "made up", "") for names in cells), "exact")


# --- metrics --------------------------------------------------------------------------------------------


def test_anytime_accuracy_by_hand():
    curve = anytime(dataset([("m", "b")]), 0)
    np.testing.assert_array_equal(curve.tokens, [0, 100, 200, 300, 400])
    np.testing.assert_array_equal(curve.accuracy, [0, 0.5, 0.5, 0.5, 0.5])
    np.testing.assert_array_equal(curve.running, [0, 1, 1, 1, 0.5])
    np.testing.assert_array_equal(curve.gained, [0, 0.5, 0.5, 0, 0])
    np.testing.assert_array_equal(curve.lost, [0, 0, 0.5, 0, 0])


def test_regret_is_the_area_above_the_curve():
    curve = anytime(dataset([("m", "b")]), 0)
    assert normalised_regret(curve, 50) == pytest.approx(1 - 0.125)
    assert normalised_regret(curve, 100) == pytest.approx(1 - 0.25)
    assert normalised_regret(curve, 1000) == pytest.approx(1 - (25 + 450) / 1000)
    with pytest.raises(InputError, match="budget is 0"):
        normalised_regret(curve, 0)


def test_pass_at_n_is_the_chance_that_one_is_right():
    right = np.array([[True, False, False, False], [False] * 4])
    assert [pass_at(right, n) for n in (1, 2, 4)] == pytest.approx([1 / 8, 1 / 4, 1 / 2])
    assert pass_at(np.arange(4000)[None] == 0, 1000) == pytest.approx(1 / 4)
    with pytest.raises(InputError, match="pass@5 needs as many branches, but a question has 4"):
        pass_at(right, 5)


def test_votes_by_width_and_depth():
    orders = BranchOrders(np.array([[[0, 1], [1, 0]]]), np.array([0]))
    found = vote_accuracy(dataset([("m", "b")]), orders, [1, 2], [1, 2, 3, 4])[..., 0]
    # Two branches never agree here: the first of the order decides.
    np.testing.assert_array_equal(found, [[0.5] * 4] * 2)


def test_regret_has_its_check_values(released):
    for index, cell in enumerate(released.cells):
        curve = anytime(released, index)
        found = [normalised_regret(curve, budget) for budget in BUDGETS]
        np.testing.assert_allclose(found, REGRET[cell.name], atol=0.000051, err_msg=cell.name)


def test_rewards_have_their_check_values(released):
    found = at.papers.ttrl(released, seeds=1).data()["rewards"].to_pylist()
    assert len(found) == len(REWARDS)
    for row in found:
        values = [100 * row[name] for name in papers.ttrl_page.REWARDS]
        np.testing.assert_allclose(values, REWARDS[f"{row['model']}/{row['benchmark']}"], atol=0.0051)


# --- pages ----------------------------------------------------------------------------------------------


def play_of(name, values, correct, tokens):
    """A play of V settings with these outcomes in every episode: 100 seeds of Q questions."""
    shape = (len(values), 100, 2)
    right = np.zeros(shape, bool)
    for setting, percent in enumerate(correct):
        right[setting, :percent] = True
    spent = np.broadcast_to(np.array(tokens)[:, None, None], shape)
    rest = ("intervals", "probes", "sequential_tokens", "branches", "rounds", "stop_reason")
    return Play(
        ControllerPlayer(name, (), tuple(values)),
        answer=np.full(shape, "a", object),
        correct=right,
        tokens=spent,
        compile_seconds=0.0,
        run_seconds=0.0,
        **dict.fromkeys(rest, np.ones(shape, np.int64)),
    )


@pytest.fixture
def sizes_of_the_paper(monkeypatch):
    """Has the paper's cells be as small as those of `dataset`."""
    for name, size in (("QUESTIONS", 1), ("BRANCHES", 2), ("INTERVAL", 100)):
        monkeypatch.setattr(papers.autotts_page, name, size)


@pytest.fixture(scope="module")
def evaluation():
    """A cell that the paper has, with a figure that is its evaluator's and others, and one that it lacks."""
    plays = (
        play_of("sc", (64,), (80,), (886_800,)),
        play_of("asc", (64,), (80,), (214_200,)),
        play_of("esc", (64,), (80,), (528_900,)),
        play_of("parallel-probe", (64,), (50,), (688_900,)),
        play_of("cmc", (0.5, 1), (82, 83), (236_700, 424_900)),
    )
    return Evaluation(dataset([("Qwen3-4B", "aime24"), ("my|model", "aime24")]), plays, 100)


@pytest.mark.usefixtures("sizes_of_the_paper")
def test_published_figures_are_beside_ours(evaluation):
    found = page(evaluation, {})
    rows = {
        (row["model"], row["controller"], row["value"]): row for row in found.data()["table1"].to_pylist()
    }
    assert len(rows) == 3 * 6
    asc = rows["Qwen3-4B", "asc", 64]
    assert (asc["published_accuracy"], asc["published_tokens"]) == pytest.approx((0.8, 214_200))
    assert (asc["published_by"], asc["paper_prints_the_same"]) == ("released evaluator", False)
    assert rows["Qwen3-4B", "sc", 64]["published_by"] == "arXiv 2605.08083"
    assert rows["my|model", "sc", 64]["published_by"] is None
    text = found.markdown()
    assert "Of 6 published figures, 4 are ours to the printed digit: all but Qwen3-4B" in text
    assert "aime24 parallel-probe@64, Qwen3-4B aime24 cmc@1." in text
    assert "| asc@64 | 80.0/214k\\* | 80.0/214k | 80.0/214k |" in text
    assert "| asc@64 | Qwen3-4B | aime24 | 80.0 / 214.2 | 80.0 / 214.2 |" in text
    assert text.count("not played") == 5
    assert "my\\|model" in text


@pytest.mark.usefixtures("sizes_of_the_paper")
def test_what_differs_from_the_published_setting_is_said(evaluation):
    assert "Ours are of" not in page(evaluation, {}).markdown()
    merged = dataclasses.replace(evaluation.dataset, encoding="equiv")
    text = page(dataclasses.replace(evaluation, dataset=merged), {}).markdown()
    assert "Ours are of 100 seeds in the encoding equiv, and the published of 100 in exact." in text


def test_a_cell_of_another_size_is_not_the_papers(evaluation):
    found = page(evaluation, {})
    assert not any(found.data()["table1"]["published_accuracy"].is_valid().to_pylist())
    assert "published figures" not in found.markdown()


def test_few_tokens_are_shown_with_two_digits(evaluation):
    plays = tuple(dataclasses.replace(play, tokens=play.tokens // 1000) for play in evaluation.plays)
    text = page(dataclasses.replace(evaluation, plays=plays), {}).markdown()
    assert "| cmc@0.5 | 82.0/0.24k | 82.0/0.24k | 82.0/0.24k |" in text


def test_six_cells_differ():
    cells = {(one.model, one.benchmark, one.controller) for one in DIFFERENT}
    benchmarks = ("aime24", "aime25", "hmmt25")
    assert cells == {("Qwen3-4B", b, "asc") for b in benchmarks} | {
        ("Qwen3-1.7B", b, "parallel-probe") for b in benchmarks
    }
    assert len(PUBLISHED) == 8 * 6 + 2


def test_cells_that_the_paper_lacks_need_no_published_figures(evaluation):
    other = dataclasses.replace(evaluation, dataset=dataset([("m", "b"), ("n", "b")]))
    found = page(other, {})
    assert [section.name for section in found.sections] == ["table1", "paired", "scaling"]


def test_rounds_of_runs_are_told(evaluation):
    candidates = pa.table(
        {
            "round": [0, 0, 1, 1, 2],
            "fold": pa.array([None, None, 3, None, None], pa.int64()),
            "score": [0.1, 0.4, 0.9, 0.3, None],
            "tokens": [1, 2, 3, None, 4],
            "dollars": [0.5, None, None, None, 0.5],
        }
    )
    rounds = page(evaluation, {"runs/a": candidates}).data()["rounds"].to_pylist()
    assert [row["candidates"] for row in rounds] == [2, 4, 5]
    assert [row["best"] for row in rounds] == [0.4, 0.4, 0.4]
    assert [row["score"] for row in rounds[:2]] == [0.4, 0.3]
    assert np.isnan(rounds[2]["score"])
    assert (rounds[2]["tokens"], rounds[2]["dollars"]) == (10, 1.0)


def test_a_page_prints_in_80_columns_with_nothing_cut(evaluation):
    shown = str(page(evaluation, {}).table())
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    assert {f"{name}@64" for name in FAMILIES[:4]} <= set(shown.split())


def paper_of(name, sections):
    """A page with the sections of these names."""
    grid = Grid("", ("", "a"), [("x", "1")])
    parts = (Section(one, one, "text", [grid], pa.table({"a": [1.0]})) for one in sections)
    return Page(name, name, "arXiv 0", dataset([("m", "b")]), tuple(parts))


def shown_in(folder):
    return sorted(file.name for file in folder.iterdir() if not file.name.startswith("."))


def test_files_of_an_earlier_page_of_the_paper_do_not_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(rendering, "available", lambda: False)
    paper_of("one", ["a", "b"]).save(tmp_path)
    paper_of("two", ["c"]).save(tmp_path)
    written = paper_of("one", ["b"]).save(tmp_path)
    assert [file.name for file in written] == ["one-b.csv", "one.md"]
    assert shown_in(tmp_path) == ["one-b.csv", "one.md", "two-c.csv", "two.md"]


def test_what_no_page_names_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(rendering, "available", lambda: False)
    paper_of("one", ["a"]).save(tmp_path)
    (tmp_path / "one-mine.csv").touch()
    (tmp_path / ".partial-photos").mkdir()
    paper_of("one", ["b"]).save(tmp_path)
    assert shown_in(tmp_path) == ["one-b.csv", "one-mine.csv", "one.md"]
    assert (tmp_path / ".partial-photos").is_dir()


def test_a_page_is_written_to_a_folder_with_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="folder"):
        paper_of("one", ["a"]).save("")
    assert shown_in(tmp_path) == []


def test_nor_do_those_of_a_page_that_was_written_while_this_one_waited_for_the_folder(tmp_path, monkeypatch):
    @contextlib.contextmanager
    def after_another(*arguments):
        monkeypatch.undo()
        paper_of("one", ["a"]).save(tmp_path)
        with files.locked(*arguments):
            yield

    monkeypatch.setattr(result_files, "locked", after_another)
    paper_of("one", ["b"]).save(tmp_path)
    assert [name for name in shown_in(tmp_path) if name != "one.html"] == ["one-b.csv", "one.md"]


# --- the command ----------------------------------------------------------------------------------------


@pytest.fixture
def run(run):
    """Runs the command line; gives exit status and all that it printed."""

    def run_and_join(*arguments):
        status, *printed = run(*arguments)
        return status, "".join(printed)

    return run_and_join


def test_the_command_writes_a_page_and_its_numbers(run, tmp_path):
    status, said = run("paper", "ttrl", "--data", "smollm2", "--seeds", 2, "--out", tmp_path / "papers")
    assert (status, "Majority rewards" in said) == (0, True)
    html = "ttrl.html, " if rendering.available() else ""
    assert f"wrote ttrl-curves.csv, ttrl-rewards.csv, {html}ttrl.md to {tmp_path / 'papers'}" in said
    rows = list(csv.DictReader((tmp_path / "papers" / "ttrl-curves.csv").read_text().splitlines()))
    assert [int(row["n"]) for row in rows] == [1, 2, 4, 8, 16, 32, 64, 128]
    assert float(rows[0]["pass@n"]) == pytest.approx(float(rows[0]["mean@n"]))
    assert "# TTRL" in (tmp_path / "papers" / "ttrl.md").read_text(encoding="utf-8")


def test_esc_is_left_out_with_a_word():
    assert [family.name for family in families(("sc", "esc"), 8)] == ["sc", "esc"]
    with pytest.warns(
        InputWarning, match="ESC is left out: it looks at 8 branches at a time, and episodes open 7"
    ):
        assert [family.name for family in families(("sc", "esc"), 7)] == ["sc"]


def test_branches_of_ttrl_are_limited(run, tmp_path):
    options = ("--data", "smollm2", "--seeds", 2, "--max-branches", 2, "--out", tmp_path)
    assert run("paper", "ttrl", *options)[0] == 0
    rows = list(csv.DictReader((tmp_path / "ttrl-curves.csv").read_text().splitlines()))
    assert [int(row["n"]) for row in rows] == [1, 2]


def test_a_terminal_of_no_width_is_one_of_80(run, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "0")
    assert "Majority rewards" in run("paper", "ttrl", "--data", "smollm2", "--seeds", 1, "--out", tmp_path)[1]


@pytest.mark.parametrize("runs", [5, "nope", ["nope"]])
def test_runs_are_tables_by_name(runs):
    with pytest.raises(InputError, match="must be tables of candidates by the names of runs"):
        at.papers.autotts("smollm2", runs=runs)


def test_runs_belong_to_autotts(run, tmp_path):
    status, said = run("paper", "mrt", "--run", tmp_path, "--out", tmp_path / "papers")
    assert (status, "--run belongs to autotts; mrt shows no discovery runs" in said) == (2, True)
    assert not (tmp_path / "papers").exists()


@pytest.mark.slow
@pytest.mark.shipped
def test_table_1_is_the_released_evaluators(run, replay_dir, golden_dir, tmp_path):
    status, said = run("paper", "autotts", "--data", f"{replay_dir}/*/*.json", "--out", tmp_path / "papers")
    assert status == 0
    with (tmp_path / "papers" / "autotts-table1.csv").open(encoding="utf-8") as stream:
        rows = {
            (row["controller"], float(row["value"]), f"{row['model']}_{row['benchmark']}"): row
            for row in csv.DictReader(stream)
        }
    methods = {
        "asc64": ("asc", 64),
        "esc64": ("esc", 64),
        "parallel_probe64": ("parallel-probe", 64),
        "cmc_beta0.5": ("cmc", 0.5),
        "cmc_beta1.0": ("cmc", 1),
    }
    for file in sorted((golden_dir / "episodes").glob("*.npz")):
        with np.load(file) as golden:
            for method, setting in methods.items():
                row = rows[*setting, file.stem]
                assert float(row["accuracy"]) == pytest.approx(golden[f"{method}/correct"].mean(), abs=1e-9)
                assert float(row["tokens"]) == pytest.approx(golden[f"{method}/tokens"].mean(), rel=1e-8)
    text = (tmp_path / "papers" / "autotts.md").read_text(encoding="utf-8")
    assert "Of 48 published figures, 48 are ours to the printed digit." in text
    for one in DIFFERENT:
        named = f"{one.controller}@64 {one.model} {one.benchmark}"
        assert named in " ".join(said.split())
