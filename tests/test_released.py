"""The released interface: its accounting, its programs, and parity with the released evaluator."""

import dataclasses
import random
import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledgers import question_of
from matrices import spelled_dataset

from autotts_jax.errors import InputError
from autotts_jax.policies import Sealing, select
from autotts_jax.policies.sealed.question import BranchError, BudgetError
from autotts_jax.replay import NONE, BranchOrders
from autotts_jax.replay.orders import paper64_orders, repo100_orders

EXAMPLES = Path(__file__).parents[1] / "examples" / "released_programs.py"
PROGRAMS = {
    "asc64": ("AdaptiveConsistency", {"max_samples": 64, "threshold": 0.95}),
    "esc64": ("EarlyStoppingConsistency", {"max_samples": 64, "window_size": 8}),
    "cmc_beta0.5": ("OptimalController", {"beta": 0.5}),
    "cmc_beta1.0": ("OptimalController", {"beta": 1.0}),
    "parallel_probe64": ("ParallelProbe", {"num_chains": 64}),
}
SEEDS = range(100)

# Branch 0 ends after its last probe's interval, branch 1 within it (Δ·L = 1000 > T = 900).
QUESTION = ([["1", "2", "2"], ["3", "3", "3"], ["4", "5"]], [1200, 900, 600], "2", 500)
DATA = spelled_dataset(QUESTION)
COLUMNS = ("answer", "correct", "tokens", "intervals", "probes", "sequential_tokens", "branches")


def totals(question, ledger):
    sequential, total = question.get_seq_and_total_tokens()
    return sequential, total, sum(ledger.depth), ledger.probes


def asked(order, budget=None):
    return question_of(DATA, order, budget=budget)


# --- one episode ----------------------------------------------------------------------------------------


def test_nothing_read_costs_nothing():
    question, ledger = asked([0, 1, 2])
    assert totals(question, ledger) == (0, 0, 0, 0)
    assert question.opened == 0


def test_stepwise_reading_shows_each_depth_and_charges_the_longer_of_probes_and_tokens():
    question, ledger = asked([0, 1])
    assert question.probe_new() == ("1", 0, False)
    assert ledger.branch_tokens == [500]
    assert question.probe_more(0) == ("2", False)
    assert ledger.branch_tokens == [1000]
    assert question.probe_more(0) == ("2", True)
    assert ledger.branch_tokens == [1200]

    assert question.probe_new() == ("3", 1, False)
    assert [question.probe_more(1) for _ in range(2)] == [("3", False), ("3", True)]
    assert ledger.branch_tokens == [1200, 1000]
    assert ledger.depth == [3, 3]
    assert totals(question, ledger) == (1200, 2200, 6, 6)


def test_full_read_costs_its_tokens_even_where_the_probes_span_more():
    question, ledger = asked([1, 0])
    assert question.get_new_branch_final_answer() == "3"
    assert ledger.branch_tokens == [900]
    assert totals(question, ledger) == (900, 900, 3, 1)


@pytest.mark.parametrize("full", [False, True])
def test_finished_branch_repeats_its_final_answer_for_free(full):
    question, ledger = asked([2])
    if full:
        question.get_new_branch_final_answer()
    else:
        question.probe_new()
        question.probe_more(0)
    before = totals(question, ledger)
    assert question.probe_more(0) == ("5", True)
    assert totals(question, ledger) == before


@pytest.mark.parametrize("base", [IndexError, ValueError])
def test_branch_errors_are_caught_as_either_base(base):
    question, ledger = asked([2])
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
    assert totals(question, ledger) == (500, 500, 1, 1)


def test_budget_admits_what_fits_exactly_and_nothing_more():
    question, ledger = asked([0, 2, 1], 1800)
    question.probe_new()
    question.probe_more(0)
    question.probe_more(0)  # 1200
    assert question.get_new_branch_final_answer() == "5"  # 1800
    before = totals(question, ledger)
    for action in (question.probe_new, question.get_new_branch_final_answer):
        with pytest.raises(BudgetError, match="exceeds the token budget"):
            action()
    assert totals(question, ledger) == before
    assert question.opened == 2
    assert question.probe_more(0) == ("2", True)


def test_budget_stops_a_branch_where_it_is():
    question, ledger = asked([0], 1100)
    question.probe_new()
    question.probe_more(0)
    with pytest.raises(BudgetError):
        question.probe_more(0)
    assert ledger.depth == [2]
    assert totals(question, ledger) == (1000, 1000, 2, 2)


@st.composite
def questions(draw):
    interval = draw(st.integers(1, 9))
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    answers = [[f"{branch}.{depth}" for depth in range(length + 1)] for branch, length in enumerate(lengths)]
    return answers, [draw(st.integers(1, 6 * interval)) for _ in lengths], None, interval


@given(
    asks=questions(),
    actions=st.lists(st.sampled_from(["new", "full", -1, 0, 1, 2, 3, 4]), max_size=40),
    budget=st.none() | st.integers(0, 100),
)
def test_every_state_costs_what_its_depths_cost(asks, actions, budget):
    recorded, tokens_of, _, interval = asks
    question, ledger = question_of(spelled_dataset(asks), range(len(recorded)), budget=budget)
    full = []
    for action in actions:
        before = (list(ledger.depth), list(ledger.branch_tokens), ledger.probes)
        try:
            if action == "new":
                question.probe_new()
                full.append(False)
            elif action == "full":
                question.get_new_branch_final_answer()
                full.append(True)
            else:
                answer, finished = question.probe_more(action)
                assert answer == recorded[action][ledger.depth[action] - 1]
                assert finished == (ledger.depth[action] == len(recorded[action]))
        except BranchError:
            assert before == (ledger.depth, ledger.branch_tokens, ledger.probes)
    expected = []
    for depth, read_in_full, answers, tokens in zip(ledger.depth, full, recorded, tokens_of, strict=False):
        length = len(answers) - 1
        stepwise = interval * depth if depth <= length else max(interval * length, tokens)
        expected.append(tokens if read_in_full else stepwise)
    assert ledger.branch_tokens == expected
    assert question.get_seq_and_total_tokens() == (max(expected, default=0), sum(expected))
    assert ledger.probes == sum(1 if f else depth for depth, f in zip(ledger.depth, full, strict=True))
    assert budget is None or sum(expected) <= budget
    assert question.opened == len(ledger.depth)


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


def run(program, orders=((0, 1, 2),), data=DATA, config=None, spellings=True, **settings):
    """Plays a program on every question under each order; its results as rows of `COLUMNS`."""
    player = select(program, sealing=Sealing(spellings=spellings))
    table = BranchOrders(np.array(orders, np.int16)[None], np.zeros(len(data), np.int32))
    play = dataclasses.replace(player, config=config).play(data, table, **settings)
    return [tuple(row) for row in zip(*(getattr(play, name)[0].ravel() for name in COLUMNS), strict=True)]


def test_program_by_file_and_by_module(tmp_path, monkeypatch):
    assert run(f"{EXAMPLES}:SelfConsistency", config={"max_samples": 3})[0][0] == "2"
    package = tmp_path / "my_programs"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "answers.py").write_text("NONE = ''\n")
    (package / "first.py").write_text(
        "from .answers import NONE\n\n\nclass First:\n    def solve(self, question):\n        return NONE\n"
        "    def __init__(self, config=None):\n        pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert run("my_programs.first:First")[0][:3] == (None, False, 0)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("no_such_file.py:X", "no file"),
        ("no_such_module:X", "importing no_such_module failed:\nthere is no module no_such_module$"),
        (f"{EXAMPLES}:Missing", "SelfConsistency, AdaptiveConsistency"),
        pytest.param(
            f"{EXAMPLES}:Branch",
            "Branch is neither a Controller nor a released program",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_programs_that_are_not_there(spec, message):
    with pytest.raises(InputError, match=message):
        select(spec)


def test_a_program_that_imports_a_file_beside_it_is_told_how(tmp_path):
    (tmp_path / "first.py").write_text("VALUE = 1\n")
    (tmp_path / "first_program.py").write_text("from first import VALUE\n\n\nclass First: ...\n")
    with pytest.raises(
        InputError, match=r"No module named 'first'\ngive both modules as one package on PYTHONPATH"
    ):
        select(f"{tmp_path / 'first_program.py'}:First")


def test_a_file_of_another_kind_is_called_so(tmp_path, monkeypatch):
    (tmp_path / "notes.md").write_text("class X: ...")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"notes\.md is a file, but a file of code ends in \.py$"):
        select("notes.md:X")


@pytest.mark.parametrize(
    "statement",
    [
        "1 / 0",
        "raise SystemExit('stop')",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("def", "import no_such_module")),
    ],
)
def test_program_file_that_fails_on_import(tmp_path, statement):
    file = tmp_path / "broken.py"
    file.write_text(statement)
    with pytest.raises(InputError, match=r"(?s)importing .*broken\.py failed:.*(Error|SystemExit: stop)"):
        select(f"{file}:X")


# --- evaluation -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("spellings", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_results_of_an_episode(program_file, spellings):
    program = program_file("question.probe_new()\nreturn question.get_new_branch_final_answer()")
    results = run(program, [(0, 1, 2), (1, 0, 2)], spellings=spellings)
    assert results == [("3", False, 1400, 4, 2, 900, 2), ("2", True, 1700, 4, 2, 1200, 2)]


def test_what_was_not_shown_is_no_answer(program_file):
    assert run(program_file("return '2'")) == [(None, False, 0, 0, 0, 0, 0)]


def test_no_answer_is_never_right(program_file):
    data = spelled_dataset(([["", ""]], [600], None, 500))
    data.matrix.answers[:] = NONE
    program = program_file(
        "question.probe_new()\nassert question.probe_more(0) == ('ERR', True)\nreturn 'ERR'"
    )
    assert run(program, [(0,)], data)[0][:2] == (None, False)


def test_labels_are_numbered_as_the_episode_sees_them(program_file):
    program = program_file(
        """
        seen = [question.probe_new()[0], question.probe_new()[0], question.probe_more(0)[0]]
        assert seen == ["a0", "a1", "a2"], seen
        return seen[2]
        """
    )
    assert run(program, spellings=False)[0][:2] == ("2", True)


@pytest.mark.parametrize(
    "config",
    [*(pytest.param(one, marks=pytest.mark.slow) for one in (None, {})), {"beta": 0.5, "extra": [1]}],
)
def test_each_instance_gets_its_own_config(program_file, config):
    body = f"""
        assert self.config == {config!r}
        if self.config is not None:
            self.config["seen"] = True
    """
    assert len(run(program_file(body), [(0, 1, 2)] * 2, config=config)) == 2


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("return question.probe_more(5)", "BranchError: branch 5 is not open"),
        pytest.param(
            "assert question.get_new_branch_final_answer() == '4', 'other'",
            "AssertionError: other",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_program_that_raises(program_file, body, line):
    with pytest.raises(InputError) as caught:
        run(program_file(body), [(0, 1, 2)] * 3)
    message = str(caught.value)
    assert message.startswith("program 'Program' failed on question 7 of model/benchmark, seed ")
    assert body in message
    assert line in message
    assert len(message.splitlines()) < 12


def test_program_that_ends_its_process(program_file):
    with pytest.raises(InputError, match="its process ended itself with status 1"):
        run(program_file("os._exit(1)"), processes=2)


@pytest.mark.slow
def test_processes_and_progress_do_not_change_results():
    rng = random.Random(0)
    asks = []
    for _ in range(5):
        answers = [[rng.choice("123") for _ in range(rng.randrange(4, 20))] for _ in range(16)]
        asks.append((answers, [rng.randrange(1, 9000) for _ in answers], "1", 500))
    data = spelled_dataset(*asks)
    orders = paper64_orders(1, 16, range(6))[:, 0]
    program, config = f"{EXAMPLES}:OptimalController", {"beta": 0.2}
    seen: list[int] = []
    serial = run(program, orders, data, config)
    parallel = run(program, orders, data, config, processes=2, on_progress=seen.append)
    assert serial == parallel
    assert seen == sorted(set(seen))
    assert seen[-1] == len(serial) == 30


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


@pytest.mark.slow
@pytest.mark.parametrize("controller", PROGRAMS)
def test_example_programs_match_the_released_evaluator(controller, replay_dir, golden_dir, tmp_path):
    """Under every tenth seed; values of SciPy's Beta distribution, the dearest part, are computed once."""
    seeds = SEEDS[::10]
    cached = tmp_path / "cached.py"
    cached.write_text(
        EXAMPLES.read_text() + "\nimport functools\n\nconfidence = functools.cache(confidence)\n"
    )
    from autotts_jax.replay import read_files

    names = [file.stem for file in (golden_dir / "episodes").glob("*.npz")]
    dataset = read_files([replay_dir / f"{name.replace('_', '/')}.json" for name in names])
    name, config = PROGRAMS[controller]
    player = dataclasses.replace(select(f"{cached}:{name}"), config=config)
    orders = BranchOrders(repo100_orders(128, seeds)[None], np.zeros(len(dataset), np.int32))
    play = player.play(dataset, orders, processes=2)
    mismatches = {}
    for index, cell in enumerate(dataset.cells):
        of_cell = dataset.cell_questions(index)
        with np.load(golden_dir / "episodes" / f"{cell.name.replace('/', '_')}.npz") as golden:
            for field in ("correct", "tokens"):
                known = golden[f"{controller}/{field}"][seeds]
                wrong = int((getattr(play, field)[0][:, of_cell] != known).sum())
                if wrong:
                    mismatches[cell.name, field] = wrong
    assert mismatches == {}
