"""The released interface: its accounting, its programs, and parity with the released evaluator."""

import multiprocessing
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotts_jax.errors import InputError
from autotts_jax.policies.programs import (
    NO_ANSWER,
    RESULT,
    BranchError,
    BudgetError,
    ProgramEpisode,
    QuestionRecord,
    ReplayQuestion,
    evaluate_program,
    load_program,
    program_episodes,
    question_records,
)
from autotts_jax.replay.dataset import EQUIV, Cell, ProbeDataset, Question
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.replay.orders import paper64_orders, repo100_orders

EXAMPLES = Path(__file__).parents[1] / "examples" / "released_programs.py"
CACHED = Path(__file__).parents[1] / "benchmarks" / "cached_programs.py"
PROGRAMS = {
    "asc64": ("AdaptiveConsistency", {"max_samples": 64, "threshold": 0.95}),
    "esc64": ("EarlyStoppingConsistency", {"max_samples": 64, "window_size": 8}),
    "cmc_beta0.5": ("OptimalController", {"beta": 0.5}),
    "cmc_beta1.0": ("OptimalController", {"beta": 1.0}),
    "parallel_probe64": ("ParallelProbe", {"num_chains": 64}),
}
SEEDS = range(100)

# Branch 0 ends after its last probe's interval, branch 1 within it (Δ·L = 1000 > T = 900).
RECORD = QuestionRecord(
    cell="model/benchmark",
    index=7,
    answers=[["1", "2", "2"], ["3", "3", "3"], ["4", "5"]],
    tokens=[1200, 900, 600],
    interval=500,
    gold="2",
)
EPISODE = ProgramEpisode(question=0, seed=3, order=[0, 1, 2])


def totals(question: ReplayQuestion) -> tuple[int, int, int, int]:
    sequential, total = question.get_seq_and_total_tokens()
    return sequential, total, question.intervals, question.probes


# --- one episode ----------------------------------------------------------------------------------------


def test_nothing_read_costs_nothing():
    question = ReplayQuestion(RECORD, [0, 1, 2])
    assert totals(question) == (0, 0, 0, 0)
    assert question.opened == 0


def test_stepwise_reading_shows_each_depth_and_charges_the_longer_of_probes_and_tokens():
    question = ReplayQuestion(RECORD, [0, 1])
    assert question.probe_new() == ("1", 0, False)
    assert question.branch_tokens == [500]
    assert question.probe_more(0) == ("2", False)
    assert question.branch_tokens == [1000]
    assert question.probe_more(0) == ("2", True)
    assert question.branch_tokens == [1200]

    assert question.probe_new() == ("3", 1, False)
    assert [question.probe_more(1) for _ in range(2)] == [("3", False), ("3", True)]
    assert question.branch_tokens == [1200, 1000]
    assert question.depth == [3, 3]
    assert totals(question) == (1200, 2200, 6, 6)


def test_full_read_costs_its_tokens_even_where_the_probes_span_more():
    question = ReplayQuestion(RECORD, [1, 0])
    assert question.get_new_branch_final_answer() == "3"
    assert question.branch_tokens == [900]
    assert totals(question) == (900, 900, 3, 1)


@pytest.mark.parametrize("full", [False, True])
def test_finished_branch_repeats_its_final_answer_for_free(full):
    question = ReplayQuestion(RECORD, [2])
    if full:
        question.get_new_branch_final_answer()
    else:
        question.probe_new()
        question.probe_more(0)
    before = totals(question)
    assert question.probe_more(0) == ("5", True)
    assert totals(question) == before


@pytest.mark.parametrize("base", [IndexError, ValueError])
def test_branch_errors_are_caught_as_either_base(base):
    question = ReplayQuestion(RECORD, [2])
    for index in (0, -1):
        with pytest.raises(base):
            question.probe_more(index)
    question.probe_new()
    for open_another in (question.probe_new, question.get_new_branch_final_answer):
        with pytest.raises(base):
            open_another()
    for index in (1, -1):
        with pytest.raises(BranchError, match="not open"):
            question.probe_more(index)
    assert totals(question) == (500, 500, 1, 1)


def test_budget_admits_what_fits_exactly_and_nothing_more():
    question = ReplayQuestion(RECORD, [0, 2, 1], budget=1800)
    question.probe_new()
    question.probe_more(0)
    question.probe_more(0)  # 1200
    assert question.get_new_branch_final_answer() == "5"  # 1800
    before = totals(question)
    for action in (question.probe_new, question.get_new_branch_final_answer):
        with pytest.raises(BudgetError, match=r"^(500|900) more"):
            action()
    assert totals(question) == before
    assert question.opened == 2
    assert question.probe_more(0) == ("2", True)


def test_budget_stops_a_branch_where_it_is():
    question = ReplayQuestion(RECORD, [0], budget=1100)
    question.probe_new()
    question.probe_more(0)
    with pytest.raises(BudgetError):
        question.probe_more(0)
    assert question.depth == [2]
    assert totals(question) == (1000, 1000, 2, 2)


@st.composite
def questions(draw) -> QuestionRecord:
    interval = draw(st.integers(1, 9))
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    return QuestionRecord(
        cell="",
        index=0,
        answers=[
            [f"{branch}.{depth}" for depth in range(length + 1)] for branch, length in enumerate(lengths)
        ],
        tokens=[draw(st.integers(1, 6 * interval)) for _ in lengths],
        interval=interval,
        gold=None,
    )


@given(
    record=questions(),
    actions=st.lists(st.sampled_from(["new", "full", -1, 0, 1, 2, 3, 4]), max_size=40),
    budget=st.none() | st.integers(0, 100),
)
def test_every_state_costs_what_its_depths_cost(record, actions, budget):
    question = ReplayQuestion(record, range(len(record.answers)), budget)
    full = []
    for action in actions:
        before = (list(question.depth), list(question.branch_tokens), question.probes)
        try:
            if action == "new":
                question.probe_new()
                full.append(False)
            elif action == "full":
                question.get_new_branch_final_answer()
                full.append(True)
            else:
                answer, finished = question.probe_more(action)
                assert answer == record.answers[action][question.depth[action] - 1]
                assert finished == (question.depth[action] == len(record.answers[action]))
        except BranchError:
            assert before == (question.depth, question.branch_tokens, question.probes)
    expected = []
    for depth, read_in_full, answers, tokens in zip(
        question.depth, full, record.answers, record.tokens, strict=False
    ):
        length = len(answers) - 1
        stepwise = record.interval * depth if depth <= length else max(record.interval * length, tokens)
        expected.append(tokens if read_in_full else stepwise)
    assert question.branch_tokens == expected
    assert question.get_seq_and_total_tokens() == (max(expected, default=0), sum(expected))
    assert question.probes == sum(1 if f else depth for depth, f in zip(question.depth, full, strict=True))
    assert budget is None or sum(expected) <= budget


# --- records --------------------------------------------------------------------------------------------


def test_records_spell_answers_and_leave_padding_out():
    # Two cells stacked: the second has one branch and two probes less than the arrays hold.
    dataset = ProbeDataset(
        matrix=ProbeMatrix(
            answers=np.array([[[0, NONE, 1], [1, 1, NONE]], [[0, 0, NONE], [NONE] * 3]], np.int16),
            lengths=np.array([[2, 1], [1, 1]], np.int32),
            tokens=np.array([[1100, 700], [600, 1]], np.int32),
            gold=np.array([1, NONE], np.int16),
            interval=np.array([500, 250], np.int32),
            cell=np.array([0, 1], np.int32),
            vocabulary=2,
        ),
        questions=(
            Question(4, "first?", "1/2", ("7", "0.5")),
            Question(5, "second?", "unparsable", ("8",)),
        ),
        cells=(Cell("a", "x", 2, "", ""), Cell("b", "x", 1, "", "")),
        encoding=EQUIV,
    )
    assert question_records(dataset) == [
        QuestionRecord("a/x", 4, [["7", NO_ANSWER, "0.5"], ["0.5", "0.5"]], [1100, 700], 500, "0.5"),
        QuestionRecord("b/x", 5, [["8", "8"]], [600], 250, None),
    ]


# --- programs -------------------------------------------------------------------------------------------


@pytest.fixture
def program_file(tmp_path):
    """Writes the body of ``solve`` into a program file and returns the program's name."""

    def write(body: str) -> str:
        file = tmp_path / "program.py"
        file.write_text(
            "import os, sys, time\n\n\nclass Program:\n"
            "    def __init__(self, config=None):\n        self.config = config\n\n"
            "    def solve(self, question):\n" + textwrap.indent(textwrap.dedent(body), " " * 8)
        )
        return f"{file}:Program"

    return write


def test_program_by_file_and_by_module(tmp_path, monkeypatch):
    by_file = load_program(f"{EXAMPLES}:SelfConsistency")
    assert by_file({"max_samples": 3}).solve(ReplayQuestion(RECORD, [0, 1, 2])) == "2"
    package = tmp_path / "my_programs"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "first.py").write_text("class First:\n    def solve(self, question):\n        return ''\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert load_program("my_programs.first:First").__module__ == "my_programs.first"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("SelfConsistency", "give it as"),
        ("no_such_file.py:X", "no file"),
        ("no_such_module:X", "No module named 'no_such_module'"),
        (f"{EXAMPLES}:Missing", "SelfConsistency, AdaptiveConsistency"),
        (f"{EXAMPLES}:majority", "no class majority"),
        (f"{EXAMPLES}:Branch", "no method solve"),
    ],
)
def test_programs_that_are_not_there(spec, message):
    with pytest.raises(InputError, match=message):
        load_program(spec)


@pytest.mark.parametrize("statement", ["1 / 0", "def", "raise SystemExit('stop')", "import no_such_module"])
def test_program_file_that_fails_on_import(tmp_path, statement):
    file = tmp_path / "broken.py"
    file.write_text(statement)
    with pytest.raises(InputError, match=r"(?s)importing .*broken\.py failed:.*(Error|SystemExit: stop)"):
        load_program(f"{file}:X")


def test_an_example_that_runs_out_of_branches_raises_like_the_question():
    program = load_program(f"{EXAMPLES}:SelfConsistency")({"max_samples": 4})
    with pytest.raises(IndexError, match="no branch is left"):
        program.solve(ReplayQuestion(RECORD, [0, 1, 2]))


# --- evaluation -----------------------------------------------------------------------------------------


def test_results_of_an_episode(program_file):
    program = program_file("question.probe_new()\nreturn question.get_new_branch_final_answer()")
    results = evaluate_program(program, None, [RECORD], [EPISODE, ProgramEpisode(0, 4, [1, 0])])
    expected = [("3", False, 1400, 4, 2, 900, 2), ("2", True, 1700, 4, 2, 1200, 2)]
    assert results.dtype == RESULT
    assert results.tolist() == expected


@pytest.mark.parametrize(("body", "answer"), [("return None", None), ("return 2", None), ("return '2'", "2")])
def test_program_that_reads_nothing(program_file, body, answer):
    (result,) = evaluate_program(program_file(body), {}, [RECORD], [EPISODE])
    assert result.tolist() == (answer, answer == "2", 0, 0, 0, 0, 0)


def test_no_answer_is_never_right(program_file):
    record = QuestionRecord("model/benchmark", 0, [["ERR", "ERR"]], [600], 500, None)
    program = program_file("question.probe_new()\nreturn question.probe_more(0)[0]")
    (result,) = evaluate_program(program, None, [record], [ProgramEpisode(0, 0, [0])])
    assert (result["answer"], result["correct"]) == ("ERR", False)


@pytest.mark.parametrize("config", [None, {}, {"beta": 0.5, "extra": [1]}])
def test_each_instance_gets_its_own_config(program_file, config):
    body = f"""
        assert self.config == {config!r}
        if self.config is not None:
            self.config["seen"] = True
    """
    assert len(evaluate_program(program_file(body), config, [RECORD], [EPISODE] * 2)) == 2


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("return question.probe_more(5)", "BranchError: branch 5 is not open"),
        ("sys.exit(3)", "SystemExit: 3"),
    ],
)
def test_program_that_raises(program_file, processes, body, line):
    program = program_file(body)
    with pytest.raises(InputError) as caught:
        evaluate_program(program, None, [RECORD], [EPISODE] * 3, processes)
    message = str(caught.value)
    assert message.startswith(f"program {program!r} failed on question 7 of model/benchmark, seed 3:")
    assert body in message
    assert line in message
    assert len(message.splitlines()) < 12


def test_program_that_ends_its_process(program_file):
    with pytest.raises(InputError, match="worker process ended"):
        evaluate_program(program_file("os._exit(1)"), None, [RECORD], [EPISODE], processes=2)


def test_interrupt_ends_workers_that_never_would(program_file):
    program = program_file("time.sleep(0 if question.get_new_branch_final_answer() == '2' else 600)")
    episodes = [EPISODE, *[ProgramEpisode(0, 0, [1])] * 10]

    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate_program(program, None, [RECORD], episodes, processes=2, on_progress=interrupt)
    assert multiprocessing.active_children() == []


def test_processes_and_progress_do_not_change_results():
    rng = np.random.default_rng(0)
    records = []
    for index in range(5):
        answers = [rng.choice(["1", "2", "3"], rng.integers(4, 20)).tolist() for _ in range(16)]
        records.append(QuestionRecord("m/b", index, answers, rng.integers(1, 9000, 16).tolist(), 500, "1"))
    episodes = program_episodes(paper64_orders(5, 16, range(6)), range(6))
    program, config = f"{EXAMPLES}:OptimalController", {"beta": 0.2}
    seen: list[int] = []
    serial = evaluate_program(program, config, records, episodes)
    parallel = evaluate_program(program, config, records, episodes, processes=2, on_progress=seen.append)
    assert serial.tolist() == parallel.tolist()
    assert seen == sorted(set(seen))
    assert seen[-1] == len(episodes) == 30


def test_arguments_that_do_not_fit():
    program = f"{EXAMPLES}:SelfConsistency"
    assert evaluate_program(program, None, [RECORD], []).shape == (0,)
    with pytest.raises(InputError, match="processes"):
        evaluate_program(program, None, [RECORD], [EPISODE], processes=0)
    with pytest.raises(InputError, match="question 0, seed 1"):
        evaluate_program(program, None, [RECORD], [ProgramEpisode(0, 1, [0, 3])])


def test_workers_need_no_jax():
    code = "import sys, autotts_jax.policies.programs; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- protocols ------------------------------------------------------------------------------------------


def test_repo100_orders_are_those_of_cpython():
    orders = repo100_orders(128, SEEDS)
    assert orders.shape == (100, 128)
    assert orders.dtype == np.int16
    assert (np.sort(orders) == np.arange(128)).all()
    assert repo100_orders(5, [0]).tolist() == [[2, 1, 0, 4, 3]]


def test_paper64_orders_depend_on_seed_and_question_alone():
    orders = paper64_orders(3, 16, [0, 1, 7])
    assert orders.shape == (3, 3, 16)
    assert orders.dtype == np.int16
    assert (np.sort(orders) == np.arange(16)).all()
    assert len(np.unique(orders.reshape(9, 16), axis=0)) == 9
    np.testing.assert_array_equal(paper64_orders(2, 16, [7])[0], orders[2, :2])


# --- parity with the released evaluator -----------------------------------------------------------------


@pytest.fixture(scope="module")
def released_cells(replay_dir, golden_dir):
    """Every cell with golden values: its name, and their questions as records."""
    from autotts_jax.replay import read_files

    names = [file.stem for file in (golden_dir / "episodes").glob("*.npz")]
    dataset = read_files([replay_dir / f"{name.replace('_', '/')}.json" for name in names])
    return [cell.name.replace("/", "_") for cell in dataset.cells], question_records(dataset)


@pytest.mark.slow
@pytest.mark.parametrize("controller", PROGRAMS)
def test_example_programs_match_the_released_evaluator(controller, released_cells, golden_dir):
    """Most of their time goes into SciPy's Beta distribution: here each value of it is computed once."""
    names, records = released_cells
    name, config = PROGRAMS[controller]
    orders = np.broadcast_to(repo100_orders(128, SEEDS)[:, None], (len(SEEDS), len(records), 128))
    episodes = program_episodes(orders, SEEDS)
    results = evaluate_program(f"{CACHED}:{name}", config, records, episodes, processes=2)
    cells = results.reshape(len(SEEDS), len(names), -1)
    mismatches = {}
    for index, cell in enumerate(names):
        with np.load(golden_dir / "episodes" / f"{cell}.npz") as golden:
            for field in ("correct", "tokens"):
                wrong = int((cells[field][:, index] != golden[f"{controller}/{field}"]).sum())
                if wrong:
                    mismatches[cell, field] = wrong
    assert mismatches == {}
