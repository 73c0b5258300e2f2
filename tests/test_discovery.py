"""Discovery: the space of programs, the loop, and what becomes of a run that is killed or asked to go on."""

import contextlib
import dataclasses
import functools
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searches import (
    ENDED,
    FEW,
    HYPERPARAMETERS,
    RUNGS,
    TESTED,
    TRIED,
    lines_of,
    made_up,
    run_of,
    written_by_hand,
)

import autotts_jax as at
from autotts_jax.cli import discover as discover_command
from autotts_jax.core import Episodes, rollout
from autotts_jax.discovery import (
    PUBLISHED,
    DecisionList,
    Line,
    OpenAIProposer,
    Program,
    Proposal,
    adaptive_consistency,
    cmc,
    cross,
    decision_list,
    mutate,
    parallel_probe,
    random_program,
    self_consistency,
    short_m,
    source_of,
)
from autotts_jax.discovery.archive.archive import Archive
from autotts_jax.discovery.critics.report import read_report
from autotts_jax.discovery.judging.judge import Judge, Outcome
from autotts_jax.discovery.judging.promotion import ERROR_RATE, LeftOut, gain_over, gains, level_of, matched
from autotts_jax.discovery.programs.variation import constant
from autotts_jax.discovery.proposers.named import PROPOSERS, as_proposer
from autotts_jax.discovery.rounds import programs as program_rounds
from autotts_jax.discovery.search import DiscoveryRun, SearchProgress
from autotts_jax.policies import (
    CMC,
    AdaptiveConsistency,
    ParallelProbe,
    Seen,
    SelfConsistency,
)
from autotts_jax.replay import EXACT, BranchOrders, Cell, ProbeDataset, ProbeMatrix, Question

SEEN = ("answer", "tokens", "probes", "branches")


def play(controllers, data, width=64, rows=3, seed=0):
    """Every question with every controller, in a few orders."""
    rng = np.random.default_rng(seed)
    branches = data.matrix.num_branches
    table = np.stack([rng.permutation(branches)[:width] for _ in range(rows)])[None]
    shape = len(controllers), rows, len(data)
    setting, row, question = (axis.reshape(-1) for axis in np.indices(shape))
    orders = BranchOrders(table, np.zeros(len(data), np.int32))
    return rollout(controllers, data.matrix, orders, Episodes(question, row, setting))


def assert_same(one, other, columns=SEEN):
    for column in columns:
        np.testing.assert_array_equal(getattr(one, column), getattr(other, column), err_msg=column)


def random_member(seed):
    """A program as the search makes them."""
    rng = np.random.default_rng(seed)
    if rng.random() < 0.4:
        return random_program(rng)
    program = [cmc(), parallel_probe(), self_consistency()][rng.integers(3)]
    for _ in range(rng.integers(1, 8)):
        program = mutate(program, rng)
    return cross(program, random_program(rng), rng) if rng.random() < 0.3 else program


members = st.integers(0, 2**32 - 1).map(random_member)


def coins(seed, questions=24, branches=40):
    """Every branch is a fair coin that costs as much as its first interval: nothing beats one branch."""
    rng = np.random.default_rng(seed)
    shape = questions, branches
    answers = np.repeat(rng.integers(0, 2, (*shape, 1)), 2, axis=2).astype(np.int16)
    matrix = ProbeMatrix(
        answers=answers,
        lengths=np.ones(shape, np.int32),
        tokens=np.full(shape, 500, np.int32),
        gold=np.zeros(questions, np.int16),
        interval=np.full(questions, 500, np.int32),
        cell=np.zeros(questions, np.int32),
        vocabulary=2,
    )
    asked = tuple(Question(q, f"question {q}", "heads", ("heads", "tails")) for q in range(questions))
    return ProbeDataset(matrix, asked, (Cell("coin", "toss", branches, "drawn", f"{seed:064x}"),), EXACT)


def loaded(source):
    names = {}
    exec(compile(source, "found.py", "exec"), names)
    return names["FAMILY"]


# --- the space ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_published_controllers_are_programs():
    data = at.load("smollm2")
    betas = [0.0, 0.37, 1.0]
    everything = (*SEEN, "stop_reason")
    assert_same(
        play([CMC.of_beta(beta) for beta in betas], data, width=16),
        play([decision_list(cmc(), beta) for beta in betas], data, width=16),
        everything,
    )
    program = parallel_probe(4, 36)
    assert_same(
        play([ParallelProbe(round(4 + 32 * beta)) for beta in betas], data, width=16),
        play([decision_list(program, beta) for beta in betas], data, width=16),
    )
    assert_same(
        play([AdaptiveConsistency(round(1 + 63 * beta)) for beta in betas], data, width=16),
        play([decision_list(adaptive_consistency(), beta) for beta in betas], data, width=16),
    )
    program = self_consistency(1, 33)
    assert_same(
        play([SelfConsistency(round(1 + 32 * beta)) for beta in betas], data, width=16),
        play([decision_list(program, beta) for beta in betas], data, width=16),
    )


def test_all_programs_share_a_compilation(monkeypatch):
    data, traces = at.load("smollm2"), []
    weigh = DecisionList.weigh
    monkeypatch.setattr(DecisionList, "weigh", lambda *args: (traces.append(1), weigh(*args))[1])
    programs = [random_member(seed) for seed in range(8)]
    play([decision_list(program, 0.5) for program in programs[:4]], data, width=8, rows=1)
    before = len(traces)
    play([decision_list(program, 0.1) for program in programs[4:]], data, width=8, rows=1)
    assert before
    assert len(traces) == before


def test_short_m_answers_when_m_branches_have_ended():
    data = at.load("smollm2")
    lengths = np.asarray(data.matrix.lengths)
    settings = [(1, 4), (3, 8), (2, 4), (8, 8)]
    played = play([decision_list(short_m((m, k), (m, k)), 0.5) for m, k in settings], data, width=8, rows=1)
    row = np.random.default_rng(0).permutation(data.matrix.num_branches)[:8]
    expected = []
    for m, k in settings:
        ends = lengths[:, row[:k]] + 1
        expected += np.minimum(ends, np.sort(ends, axis=1)[:, m - 1 : m]).sum(axis=1).tolist()
    assert played.intervals.tolist() == expected
    assert played.branches.tolist() == [k for _, k in settings for _ in range(len(data))]


@given(members)
def test_a_program_is_json(program):
    assert Program.from_json(program.to_json()) == program
    assert 0 < program.length < 200


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stop": [[[["depth", ">=", [1, 0]]], [1, 0]]]}, "stop cannot compare 'depth'"),
        ({"stop": [[[["round", "==", [1, 0]]], [1, 0]]]}, "by '=='"),
        ({"stop": [[[["round", ">=", [1e999, 0]]], [1, 0]]]}, "must be finite"),
        ({"stop": [[[["round", ">=", [1e308, 1e308]]], [1, 0]]]}, "must be finite"),
        ({"stop": [[[["round", ">=", [10**400, 0]]], [1, 0]]]}, "this is not a program"),
        ({"stop": [[[["round", "==", [1, 0]]], [1, 0]]]}, "^this is not a program: stop cannot compare"),
        ({"open": [[[], [1, 0]]] * 4}, "at most 3"),
        ({"hyperparameters": {}}, "a program has the hyperparameters"),
        ({"go": []}, "'go' is none of hyperparameters, open, read, prune, stop, weigh"),
        ({"go": 1}, "'go' is none of hyperparameters"),
        ({"read": [1]}, "this is not a program"),
    ],
)
def test_what_is_no_program_is_refused(change, message):
    tree = cmc().to_tree() | change
    with pytest.raises(at.InputError, match=message):
        Program.from_json(json.dumps(tree))


@pytest.mark.parametrize("number", [10**400, "x", None])
def test_a_line_of_what_is_no_number_is_refused(number):
    with pytest.raises(at.InputError, match="must be finite"):
        Program(cmc().hyperparameters | {"initial": Line(number)})


def test_json_without_end_is_no_program():
    with pytest.raises(at.InputError, match="this is not a program"):
        Program.from_json("[" * 100_000)


@pytest.mark.parametrize("beta", [float("nan"), float("inf"), -0.1])
def test_programs_have_no_controller_beyond_the_range_of_beta(beta):
    with pytest.raises(at.InputError, match="between 0 and 1"):
        decision_list(cmc(), beta)


def seen_at_random(seed, width=16):
    rng = np.random.default_rng(seed)
    whole = {
        "round": 40,
        "opened": 17,
        "live": 17,
        "finished": 17,
        "agreeing": 17,
        "distinct": 6,
        "stable": 40,
    }
    pool = {name: np.int32(rng.integers(high)) for name, high in whole.items()}
    pool |= {name: np.float32(rng.integers(65) / 4) for name in ("voters", "top1", "top2")}
    pool |= {name: np.float32(rng.random()) for name in ("confidence", "ema")}
    pool["momentum"] = np.float32(rng.normal(0, 0.1))
    branch = {name: rng.integers(0, 12, width, np.int32) for name in ("depth", "streak", "disagreement")}
    branch["support"] = (rng.integers(0, 33, width) / 4).astype(np.float32)
    branch |= {name: rng.random(width) < 0.5 for name in ("agrees", "ended")}
    return Seen(**pool, **branch)


@pytest.mark.slow
@settings(max_examples=60)
@given(members, st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_exported_rules_say_what_the_program_says(program, seed, beta):
    """All else of a round is `RuleController`, for both."""
    exported = loaded(source_of(program, "Found")).make(beta)
    member = decision_list(program, beta)
    for name in HYPERPARAMETERS:
        assert getattr(exported, name) == getattr(member, name), name
    for offset in range(2):
        seen = seen_at_random(seed + offset)
        for slot in ("open", "read", "prune", "stop", "weigh"):
            ours, theirs = (np.asarray(getattr(of, slot)(seen)) for of in (exported, member))
            np.testing.assert_array_equal(np.broadcast_to(ours, theirs.shape), theirs, err_msg=slot)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_exported_sources_play_the_programs_episodes(seed):
    program, betas = cmc() if seed == 0 else random_member(seed), (0.0, 0.4, 1.0)
    exported = loaded(source_of(program, "Found"))
    data = at.load("smollm2")
    assert_same(
        play([exported.make(beta) for beta in betas], data, width=8),
        play([decision_list(program, beta) for beta in betas], data, width=8),
        (*SEEN, "rounds", "stop_reason", "sequential_tokens"),
    )


@given(members, st.floats(0, 1))
def test_constant_programs_are_what_the_program_is_at_one_half(program, beta):
    there, everywhere = decision_list(program, 0.5), decision_list(constant(program), beta)
    for name in ("initial", "max_branches", "warm_up", "window", "pool_low", "branch_high", "values"):
        np.testing.assert_array_equal(getattr(everywhere, name), getattr(there, name), err_msg=name)


def test_an_export_needs_the_name_of_a_class():
    for name in ("found", "2Found", "Found it", "None", "X; import os", 5, None):
        with pytest.raises(at.InputError, match="not a name of a class"):
            source_of(cmc(), name)


@pytest.mark.parametrize("name", ["CMC", "Cmc", "Short_m", "Neural", "FAMILY", "Seen"])
def test_an_export_takes_no_name_that_means_something_else(name):
    with pytest.raises(at.InputError, match=r"is the name of a player|is what the file calls something else"):
        source_of(cmc(), name)


# --- promotion ------------------------------------------------------------------------------------------


def test_error_rates_of_all_tests_add_up():
    assert sum(level_of(test) for test in range(1, 10_000)) == pytest.approx(ERROR_RATE, rel=1e-3)


def test_settings_are_chosen_on_questions_that_are_not_counted():
    """At one β a candidate is lucky on the questions that count, and that β is not chosen for it."""
    used = np.arange(8) < 4
    accuracy = np.full((1, 2, 8), 0.5)
    accuracy[0, 0, :4], accuracy[0, 1, 4:] = 0.9, 0.9
    candidate = Outcome(accuracy, np.ones_like(accuracy), np.ones_like(accuracy))
    flat = np.full_like(accuracy, 0.5)
    incumbent = Outcome(flat, np.ones_like(flat), np.ones_like(flat))
    np.testing.assert_allclose(gains(candidate, incumbent, used), 0)
    np.testing.assert_allclose(gains(candidate, incumbent, ~used), 0)


def test_candidates_are_matched_on_questions_that_their_search_left_out():
    """Where a candidate was searched it costs nothing and is right; left out it needs half, or costs more."""
    used = np.arange(4) < 2
    accuracy, cost = np.full((1, 2, 4), 0.5), np.ones((1, 2, 4))
    accuracy[0, 1], cost[0, 1] = 0.7, 3.0
    incumbent = Outcome(accuracy, 2 * cost, cost)
    left_out = []
    for of_fold in (used, ~used):
        lucky = Outcome(np.where(of_fold, 1.0, accuracy), np.where(of_fold, 0.0, cost), cost)
        left_out.append(LeftOut(lucky, of_fold, np.arange(4)))
    shares, more = matched(left_out, incumbent)
    np.testing.assert_allclose(shares, [0.5, 0.5])
    np.testing.assert_allclose(more, [0.1, 0.0])
    dear = [of._replace(outcome=of.outcome._replace(cost=of.outcome.cost + 4)) for of in left_out]
    shares, more = matched(dear, Outcome(accuracy + 0.1, 2 * cost, cost))
    assert np.isnan(shares[1])
    assert np.isnan(more[0])


def test_lower_bounds_hold_as_often_as_they_say():
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(30), 4)
    above = 0
    for _ in range(200):
        shared = np.repeat(rng.standard_normal(30), 4)
        above += gain_over(shared + rng.standard_normal(120), group).lower(0.05) > 0
    assert above < 22, "10 are expected; questions of several models count once"


# --- the loop -------------------------------------------------------------------------------------------


def search_and_test(folder):
    """Plays a round in each search, one more, and a test."""
    run = run_of(folder, proposers=("rules", "random"))
    assert run.search(5 * RUNGS[0][0], None) == 5
    run.test()
    return folder


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """A run as it is kept, in which nothing was played."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Judge, "play", made_up)
        return search_and_test(tmp_path_factory.mktemp("searched") / "run")


def test_outcomes_are_means_over_branch_orders():
    judge = Judge.of(at.load("smollm2").select(np.arange(6)), 4, seed=0, test_orders=3)
    rows = judge.test.of(np.arange(6)[:, None], np.arange(3))[..., 0]
    finals, tokens = np.asarray(judge.data.matrix.finals()), np.asarray(judge.data.matrix.tokens)
    first = np.take_along_axis(finals, rows, axis=1) == np.asarray(judge.data.matrix.gold)[:, None]
    found = judge.play_test([SelfConsistency(1), SelfConsistency(4)])
    assert found.accuracy.shape == (1, 2, 6)
    np.testing.assert_allclose(found.accuracy[0, 0], first.mean(axis=1))
    np.testing.assert_allclose(
        found.cost[0, 0] * judge.unit, np.take_along_axis(tokens, rows, axis=1).mean(axis=1)
    )
    np.testing.assert_array_equal(found.width[0], [[1] * 6, [4] * 6])


def test_a_run_tries_what_it_says_and_leaves_questions_out(searched):
    found = at.read_run(searched)
    assert len(found.candidates) == 5 * RUNGS[0][0]
    assert [record["number"] for record in found.candidates] == list(range(len(found.candidates)))
    assert {record["fold"] for record in found.candidates} == {0, 1, 2, None}
    assert {record["proposer"] for record in found.candidates} == {"start", "rules", "random"}
    of_test = found.candidates[found.number]
    assert of_test["fold"] is None
    assert found.program() == Program.from_tree(of_test["program"])
    assert found.promoted == (found.test["low"] > 0 and not found.test["falls"])
    for record in found.candidates:
        assert all(parent < record["number"] for parent in record["parents"])


def test_lineages_lead_back_to_what_people_wrote(searched):
    found = at.read_run(searched)
    starts = {record["number"] for record in found.candidates if not record["parents"]}
    for published in (cmc(), parallel_probe(), self_consistency()):
        assert sum(found.program(number) == published for number in starts) == 3
    for record in found.candidates:
        assert found.lineage(record["number"])[0] == record["number"]
        folds = {found.candidates[parent]["fold"] for parent in record["parents"]}
        assert folds <= {record["fold"]} or (record["proposer"] == "start" and None not in folds)
        if record["proposer"] == "rules" and record["parents"]:
            assert starts & set(found.lineage(record["number"]))
    assert found.lineage() == found.lineage(found.number)
    assert len(found.lineage()) > 1
    with pytest.raises(at.InputError, match="candidates 0 to 79, but no 80"):
        found.lineage(80)
    with pytest.raises(at.InputError, match="number is -1"):
        found.lineage(-1)


def test_rounds_after_a_test_are_tested(searched, tmp_path, monkeypatch):
    """Also if the run was killed between its last round and the test."""
    shutil.copytree(searched, tmp_path / "run")
    monkeypatch.setattr(Judge, "play", made_up)
    run = run_of(tmp_path / "run", proposers=("rules", "random"))
    assert not run.untested
    run.search(6 * RUNGS[0][0], None)
    assert run_of(tmp_path / "run", proposers=("rules", "random")).untested


def test_a_run_goes_on_where_it_stopped(searched, tmp_path, monkeypatch):
    monkeypatch.setattr(Judge, "play", made_up)
    for candidates in (1, 2, 5):
        run_of(tmp_path, proposers=("rules", "random")).search(candidates * RUNGS[0][0], None)
        if candidates == 2:
            with (tmp_path / "archive.jsonl").open("a") as file:
                file.write('{"kind": "candidate", "number": 32, "scores": [0.1]}\n{"kind": "cand')
    run_of(tmp_path, proposers=("rules", "random")).test()
    assert lines_of(tmp_path) == lines_of(searched)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Other(SelfConsistency):
    """The same numbers as `SelfConsistency`, in other code."""


def test_another_run_is_not_gone_on_with(searched, tmp_path):
    with pytest.raises(at.InputError, match="holds a run with seed = 0, not 1"):
        run_of(searched, seed=1, proposers=("rules", "random"))
    with pytest.raises(at.InputError, match="proposers"):
        run_of(searched)
    data = at.load("smollm2").select(np.arange(6, 0, -1))
    with pytest.raises(at.InputError, match="questions"):
        run_of(searched, data, proposers=("rules", "random"))
    for make in (
        lambda branches: SelfConsistency(max(int(branches) - 1, 1)),
        lambda branches: Other(int(branches)),
    ):
        other = at.Family("sc", FEW.values, make, "branches")
        with pytest.raises(at.InputError, match="holds a run with incumbent_sha256 = "):
            run_of(searched, incumbent=other, proposers=("rules", "random"))
    (tmp_path / "archive.jsonl").write_text('{"kind": "candi')
    archive = Archive(tmp_path, {})
    assert not list(archive.records())
    with pytest.raises(at.InputError, match="holds no run"):
        at.read_run(tmp_path / "nowhere")


def test_a_damaged_archive_is_not_read(searched, tmp_path):
    for name in ("manifest.json", "archive.jsonl"):
        (tmp_path / name).write_bytes((searched / name).read_bytes())
    lines = (tmp_path / "archive.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "archive.jsonl").write_bytes(b"".join([*lines[:3], b"garbage\n", *lines[3:]]))
    with pytest.raises(at.InputError, match="line 4 is not JSON"):
        at.read_run(tmp_path)


def test_a_damaged_last_round_is_not_cut_off(tmp_path):
    ended = json.dumps(ENDED) + "\n"
    damaged = ended + ended.replace("{", "[")
    (tmp_path / "archive.jsonl").write_text(damaged)
    with pytest.raises(at.InputError, match="line 2 is not JSON"):
        Archive(tmp_path, {})
    assert (tmp_path / "archive.jsonl").read_text() == damaged


def test_a_candidate_of_a_fold_that_is_not_there_is_not_gone_on_with(searched, tmp_path):
    for name in ("manifest.json", "archive.jsonl"):
        (tmp_path / name).write_bytes((searched / name).read_bytes())
    lines = (tmp_path / "archive.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    folds = {record["fold"] for record in records if "fold" in record} - {None}
    for record in records:
        if record.get("fold") == max(folds):
            record["fold"] += 1
    (tmp_path / "archive.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    with pytest.raises(at.InputError, match=f"is of fold {max(folds) + 1}, which is not there"):
        run_of(tmp_path, proposers=("rules", "random"))


def test_a_run_that_was_written_by_hand_is_read(tmp_path):
    found = at.read_run(written_by_hand(tmp_path, TRIED, ENDED, TESTED, ENDED))
    assert found.promoted
    assert all(len(line) < 80 for line in str(found.table()).splitlines())


@pytest.mark.parametrize(
    ("record", "change", "message"),
    [
        (TRIED, {"kind": "idea"}, "line 1: the kind 'idea' is none of"),
        (TRIED, {"number": 7}, "line 1 has candidate 7, where 0 is next"),
        (TRIED, {"parents": [0]}, "its parent 0 does not come before it"),
        (TRIED, {"parents": "ab"}, "parents cannot be 'ab'"),
        (TRIED, {"proposer": "\x1b]0;title\x07"}, "proposer cannot be"),
        (TRIED, {"scores": []}, "with a cost has a width and scores"),
        (TRIED, {"scores": ["much"]}, r"scores cannot be \['much'\]"),
        (TRIED, {"critic": {"accepts": True}}, "critic cannot be"),
        (TESTED, {"baselines": {"sc@8": 0.1}}, "a test with baselines has an objective too"),
        (TESTED, {"number": 1}, "line 3 tests candidate 1"),
        (TRIED, {"scores": [True]}, r"scores cannot be \[True\]"),
        (TRIED, {"cost": 10**400}, "cost cannot be 1000"),
        (TRIED, {"number": False}, "number cannot be False"),
        (TRIED, {"critic": {"score": 1, "accepts": True, "tokens": "x"}}, "critic cannot be"),
        (TRIED, {"critic": {"score": 1, "accepts": True, "dollars": -1}}, "critic cannot be"),
        (TESTED, {"promotes": "yes"}, "promotes cannot be 'yes'"),
        (TESTED, {"baselines": {"\x1b[2J": 1.0}}, "baselines cannot be"),
        (TESTED, {"gains": [0.1, {}]}, "gains cannot be"),
        (TESTED, {"tokens_se": ["\n"]}, "tokens_se cannot be"),
        (ENDED, {"cpu_seconds": float("nan")}, "cpu_seconds cannot be nan"),
        (ENDED, {"cpu_seconds": -1.0}, "cpu_seconds cannot be -1.0"),
    ],
)
def test_forged_records_are_refused(tmp_path, record, change, message):
    records = [one | change if one is record else one for one in (TRIED, ENDED, TESTED, ENDED)]
    with pytest.raises(at.InputError, match=message):
        at.read_run(written_by_hand(tmp_path, *records))


@pytest.mark.parametrize(
    "manifest",
    [
        {"critic": 3},
        {"critic": "\x1b[2J"},
        {"critic": "nearest"},
        {"critic": ""},
        {"critic": "nearest", "rungs": 3},
        {"critic": "nearest", "rungs": [[1, "x"]]},
        {"critic": "nearest", "rungs": [[True, True]]},
        {"version": "1\n"},
        {"seed": -1},
        {"max_branches": None},
        {"data": ["cell"]},
        {"data": [{"cell": 3}]},
    ],
)
def test_a_forged_manifest_is_refused(tmp_path, manifest):
    folder = written_by_hand(tmp_path, TRIED, ENDED, **manifest)
    for read in (at.read_run, read_report):
        with pytest.raises(
            at.InputError, match=rf"manifest\.json: is damaged: ({'|'.join(manifest)}|rungs) "
        ):
            read(folder)


def test_an_export_says_where_it_comes_from(tmp_path):
    """Names of data come from files, and must not become code."""
    data = [{"cell": 'Qwen3-8B/aime24"""\nimport os\r#\ud800'}]
    folder = written_by_hand(tmp_path, TRIED, ENDED, TESTED, ENDED, data=data, seed=3, max_branches=16)
    lines = at.read_run(folder).source("First").splitlines()
    assert lines[0] == "# Candidate 0 of a search by autotts_jax ?, proposed by rules; promoted."
    assert lines[1] == "# Seed 3, at most 16 branches."
    assert lines[2].startswith('# Data: Qwen3-8B/aime24""" import os')
    assert lines[3] == '"""A controller found by search."""'
    untested = written_by_hand(tmp_path, TRIED, ENDED)
    assert "rules; not tested." in at.read_run(untested).source("First", number=0)


@pytest.mark.parametrize("record", [TRIED, TESTED, ENDED], ids=lambda record: record["kind"])
def test_records_without_a_field_are_refused(tmp_path, record):
    for name in record.keys() - {"kind", "cost"}:
        less = {key: value for key, value in record.items() if key != name}
        records = [less if one is record else one for one in (TRIED, ENDED, TESTED, ENDED)]
        with pytest.raises(at.InputError, match=r"archive\.jsonl: line \d: .*(is missing|has a width)"):
            at.read_run(written_by_hand(tmp_path, *records))


def test_what_is_no_run_at_all_is_refused(tmp_path):
    for incumbent in ([], [3], "cmc", ["\x1b[2J"]):
        with pytest.raises(at.InputError, match="does not name the incumbent"):
            at.read_run(written_by_hand(tmp_path, incumbent=incumbent))
    for name in ("archive.jsonl", "manifest.json"):
        written_by_hand(tmp_path)
        (tmp_path / name).write_text("[" * 100_000 + "\n")
        with pytest.raises(at.InputError, match="not JSON"):
            at.read_run(tmp_path)
    written_by_hand(tmp_path)
    (tmp_path / "archive.jsonl").unlink()
    os.mkfifo(tmp_path / "archive.jsonl")
    with pytest.raises(at.InputError, match="is not a file"):
        at.read_run(tmp_path)
    with pytest.raises(at.InputError, match="is not a file"):
        Archive(tmp_path, {})


def test_a_run_is_gone_on_with_by_one_process_at_a_time(tmp_path):
    one, other = Archive(tmp_path, {}), Archive(tmp_path, {})
    end = {"round": 0, "cpu_seconds": 1.0}
    one.append([TRIED], end)
    with pytest.raises(at.InputError, match="changed by another process"):
        other.append([TRIED], end)
    one.append([TRIED | {"number": 1}], end | {"round": 1})
    assert [record.get("number") for record in one.records()] == [0, None, 1, None]


def test_what_cannot_be_read_again_is_not_kept(tmp_path):
    archive = Archive(tmp_path, {})
    for change in ({"parents": [0]}, {"parents": [np.int64(0)]}, {"proposer": "a\nb"}):
        with pytest.raises(at.InputError, match="a candidate of"):
            archive.append([TRIED | change], {"round": 0, "cpu_seconds": 1.0})
    assert not list(archive.records())


@pytest.mark.parametrize(
    "given",
    [[], None, [cmc()], [Proposal(cmc())] * 99, [Proposal("cmc")]],
    ids=["empty", "none", "bare", "many", "text"],
)
def test_proposers_have_to_propose_programs(tmp_path, given):
    class Odd:
        name = "odd"

        def propose(self, *_):
            return given

    with pytest.raises(at.InputError, match="odd was asked for"):
        run_of(tmp_path, proposers=[Odd()]).search(RUNGS[0][0], None)


@pytest.mark.parametrize("name", [None, "", "a\nb", "rules"])
def test_proposers_have_names_of_their_own(name):
    class Odd:
        def propose(self, *_):
            return []

    Odd.name = name
    with pytest.raises(at.InputError, match=r"name of a proposer|a proposer is called"):
        as_proposer(Odd())
    with pytest.raises(at.InputError, match="a proposer is <class"):
        as_proposer(Odd)
    assert as_proposer(PROPOSERS["rules"]) is PROPOSERS["rules"]


def test_a_run_without_beta_tries_and_tests_constants(tmp_path, monkeypatch):
    monkeypatch.setattr(Judge, "play", made_up)
    rungs = ((8, 1), (4, 1))
    run = run_of(tmp_path, beta=False, rungs=rungs)
    run.search(6 * rungs[0][0], None)
    run.test()
    found = at.read_run(tmp_path)
    for record in found.candidates:
        program = Program.from_tree(record["program"])
        assert program == constant(program)
    assert len({json.dumps(record["program"]) for record in found.candidates}) > 20
    assert len(found.test["tokens"]) == 1
    assert not found.test["falls"]
    assert "ktokens: " in str(found.table())
    with pytest.raises(at.InputError, match="holds a run with beta = False, not True"):
        run_of(tmp_path, rungs=rungs)


def test_runs_from_before_there_were_switches_go_on(searched, tmp_path):
    manifest = json.loads((searched / "manifest.json").read_text())
    del manifest["beta"], manifest["traces"]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert run_of(tmp_path, proposers=("rules", "random")).rounds == 0
    with pytest.raises(at.InputError, match="holds a run with traces = True, not False"):
        run_of(tmp_path, proposers=("rules", "random"), traces=False)


def test_bad_arguments_are_named(tmp_path):
    for arguments, message in [
        ({"cpu_minutes": 0.05}, "cpu_minutes is 0.05, .* give at least 0.1"),
        ({"candidates": 384}, "candidates is 384, .* give more than 384"),
        ({"cpu_minutes": 0}, "cpu_minutes is 0"),
        ({"candidates": 0}, "candidates is 0"),
        ({"proposers": ["nobody"]}, "unknown proposer 'nobody'"),
        ({"proposers": []}, "there is no proposer"),
        ({"incumbent": "nobody"}, "unknown player"),
        ({"max_branches": 1000}, "1000"),
    ]:
        with pytest.raises(at.InputError, match=message):
            at.discover("smollm2", out=tmp_path / "run", **arguments)
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("given", "budget"),
    [
        ({}, (None, 600)),
        ({"candidates": 640}, (640, None)),
        ({"cpu_minutes": 2}, (None, 120)),
        ({"candidates": 640, "cpu_minutes": 2}, (640, 120)),
    ],
)
def test_no_limit_holds_that_nobody_asked_for(tmp_path, monkeypatch, given, budget):
    asked = []
    monkeypatch.setattr(DiscoveryRun, "search", lambda _, *limits: asked.append(limits[:2]))
    monkeypatch.setattr(DiscoveryRun, "test", lambda *_: None)
    at.discover(at.load("smollm2").select(np.arange(6)), out=tmp_path, max_branches=4, **given)
    assert asked == [budget]


def test_the_budget_has_to_reach_every_search(tmp_path, monkeypatch):
    monkeypatch.setattr(Judge, "play", made_up)
    run = run_of(tmp_path)
    run.search(RUNGS[0][0], None)
    with pytest.raises(at.InputError, match=r"spent \(rounds: 1, .* call again with a larger one"):
        run.test()


def test_candidates_are_rows_of_a_parquet_file(searched, tmp_path):
    found, file = at.read_run(searched), tmp_path / "candidates.parquet"
    found.to_parquet(file)
    table = pq.read_table(file)
    assert set(table.column_names) >= {name for record in found.candidates for name in record}
    assert not [name for name in table.column_names if table.schema.field(name).type == pa.null()]
    frame = table.to_pandas()
    for name in ("number", "round", "kind", "proposer", "parents", "scores"):
        assert table[name].to_pylist() == [record[name] for record in found.candidates]
    assert table["fold"].to_pylist() == [record["fold"] for record in found.candidates]
    row, record = frame.iloc[found.number], found.candidates[found.number]
    program = Program.from_json(row["program"])
    assert (program, row["parts"]) == (found.program(), found.program().length)
    assert (row["score"], row["cost"], row["width"]) == (
        record["scores"][-1],
        record["cost"],
        record["width"],
    )
    assert row["objective"] == pytest.approx(row["score"] + program_rounds.LENGTH_PRICE * row["parts"])
    assert frame["score"].notna().sum() == sum(
        len(record["scores"]) == len(RUNGS) for record in found.candidates
    )
    assert not frame[["tokens", "dollars"]].any(axis=None)
    assert sorted(frame["round"].unique()) == list(range(5))


def test_excel_compares_with_the_best_that_people_wrote(searched):
    found = at.read_run(searched)
    assert set(found.test["baselines"]) == set(PUBLISHED)
    gain = found.test["objective"] - found.test["baselines"]["sc"]
    assert gain == pytest.approx(found.test["gain"]), "sc is the incumbent"
    name, best = max(found.test["baselines"].items(), key=lambda item: item[1])
    assert found.excel == pytest.approx((found.test["objective"] - best) / best)
    assert f"excel@best: {100 * found.excel:+.1f} % on {name}" in str(found.table())


def test_a_lineage_is_drawn(searched):
    pytest.importorskip("matplotlib")
    found = at.read_run(searched)
    figure = found.plot_lineage()
    ancestors = found.lineage()
    searches = {found.candidates[number]["fold"] for number in ancestors}
    assert len(figure.axes) == len(searches)
    assert sum(len(panel.lines) for panel in figure.axes) == len(ancestors)
    edges = {(parent, one) for one in ancestors for parent in found.candidates[one]["parents"]}
    assert len(figure.artists) == len(edges) > 0
    written = {text.get_text() for panel in figure.axes for text in panel.texts}
    assert str(found.number) in written
    assert written & {"sc (incumbent)", *PUBLISHED}
    with pytest.raises(at.InputError, match="no 80"):
        found.plot_lineage(80)


@pytest.fixture
def run_command(run):
    """Runs ``autotts-jax discover``; gives exit status, stdout and stderr."""
    return functools.partial(run, "discover")


def test_the_test_after_the_last_round_is_called_so(monkeypatch, run_command):
    told = []

    def play(_, on_round, on_test, **given):  # noqa: ARG001
        for spent in (0.5, 1):
            on_round(SearchProgress(7, 96, 1.0, None, None, spent))
        on_test(2, 6)
        sys.exit(0)

    working = contextlib.nullcontext(lambda what, *counts: told.append((what, *counts[:2])))
    monkeypatch.setattr(discover_command, "working", lambda _: working)
    monkeypatch.setattr(at, "discover", play)
    run_command("--data", "smollm2")
    testing = "testing what was found on the questions left out"
    assert told[-3:] == [("searching", 50, 100), (testing, 0, 0), (testing, 2, 6)]


def test_the_verdict_says_why_its_candidate_is_not_the_first_of_the_table(searched):
    found = at.read_run(searched)
    row = r" *\d+ +\w+ +-?\d\.\d{4} "
    numbers = [int(line.split()[0]) for line in str(found.table()).splitlines() if re.match(row, line)]
    for number, said in ((numbers[0], False), (numbers[-1], True)):
        table = str(dataclasses.replace(found, test=found.test | {"number": number}).table())
        assert f"candidate {number}{', the best of the first few' if said else ': '}" in table
        assert ("played in further branch orders" in table) == said
        assert max(map(len, table.splitlines())) <= 80


def test_commands_show_and_export(searched, tmp_path, run_command):
    file, run = tmp_path / "found.py", run_command
    code, out, _ = run("show", searched)
    assert not code
    assert "80 candidates" in out
    assert "promoted" in out
    code, out, _ = run("show", searched, "--lineage", tmp_path / "l.png", "--parquet", tmp_path / "c.parquet")
    assert not code
    assert f"wrote {tmp_path}/l.png" in out
    assert (tmp_path / "l.png").read_bytes().startswith(b"\x89PNG")
    assert pq.read_table(tmp_path / "c.parquet").num_rows == 80
    assert "the suffix must be one of" in run("show", searched, "--lineage", tmp_path / "l.what")[2]
    before = {name: (searched / name).read_bytes() for name in ("archive.jsonl", "manifest.json")}
    for option, name in itertools.product(("--lineage", "--parquet"), before):
        assert "would be lost; name another file" in run("show", searched, option, searched / name)[2]
    (tmp_path / "link").symlink_to(searched / "archive.jsonl")
    assert "would be lost" in run("show", searched, "--parquet", tmp_path / "link")[2]
    assert before == {name: (searched / name).read_bytes() for name in before}
    assert "--number is the candidate that --lineage draws" in run("show", searched, "--number", 3)[2]
    code, out, _ = run("export", searched, "--name", "First", "--out", file)
    assert not code
    assert f"evaluate --controllers {file}:FAMILY" in out
    assert "not tested" not in file.read_text()
    assert "ends in .py" in run("export", searched, "--out", tmp_path / "found.txt")[2]
    assert loaded(file.read_text()).name == "first"
    assert run("export", searched, "--out", file)[2].endswith("name another file\n")
    assert "is the name of a player of this package (sc)" in run("export", searched, "--name", "SC")[2]
    with pytest.raises(at.InputError, match="is the name of a player"):
        at.read_run(searched).family("cmc")
    assert "no 4000" in run("export", searched, "--number", 4000)[2]
    assert "holds no run" in run("show", tmp_path)[2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--max-dollars 2 --files 3", "--files, --max-dollars: no model is asked; name one in --proposers"),
        ("--proposers openai:wise --max-dollars 2", "wise has no price; give --price wise=IN,OUT"),
        ("--proposers openai:wise --price wise=1", "--price wise=1: write it as MODEL=IN,OUT"),
        ("--proposers openai:wise --price 1,2", "--price 1,2: write it as MODEL=IN,OUT"),
        ("--proposers openai:wise --price wise=a,b", "--price wise=a,b: write it as MODEL=IN,OUT"),
        ("--proposers openai:wise --price wise=1,-2", "the price of wise is (1.0, -2.0)"),
        ("--proposers openai:wise --price dear=1,2", "no proposer is openai:dear; the models are wise"),
        ("--proposers rules,openai:wise --max-tokens 0", "--max-tokens is 0"),
        ("--proposers openai:wise --base-url localhost:8000", "--base-url is 'localhost:8000', but it"),
        ("--proposers openai:wise --price wise=1,2 --max-dollars nan", "--max-dollars is nan"),
    ],
)
def test_options_of_models_are_checked_before_anything_is_done(run_command, tmp_path, options, message):
    code, out, err = run_command("--out", tmp_path / "run", *options.split())
    assert (code, out) == (2, "")
    assert err.startswith("autotts-jax: error: ")
    assert message in err
    assert not (tmp_path / "run").exists()


def test_options_reach_every_model(run_command, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(at, "discover", lambda _, **given: asked.extend(given["proposers"]) or sys.exit(0))
    options = "--files 2 --reply-tokens 99 --max-tokens 1000 --max-dollars 0.5 --base-url http://here/v1"
    prices = "--price org/a=b:c=0.25,2 --price wise=1e-1,0"
    proposers = "--proposers rules,openai:org/a=b:c,openai:wise"
    run_command("--data", "smollm2", "--out", tmp_path, *f"{options} {prices} {proposers}".split())
    rules, *models = asked
    assert rules == "rules"
    assert models == [
        OpenAIProposer(
            model,
            "http://here/v1",
            count=2,
            reply_tokens=99,
            max_tokens=1000,
            max_dollars=0.5,
            prices={"org/a=b:c": (0.25, 2.0), "wise": (0.1, 0.0)},
        )
        for model in ("org/a=b:c", "wise")
    ]


@pytest.mark.nightly
@pytest.mark.shipped
def test_a_killed_run_loses_nothing(tmp_path):
    """SIGKILL while rounds are played; in the end the archive is that of a run that was left alone."""
    # It waits for a line after every round, so that it cannot end before it is killed.
    script = (
        "import sys; from pathlib import Path; import searches as t;"
        "run = t.run_of(Path(sys.argv[1])); told = lambda _: (print(flush=True), sys.stdin.readline());"
        f"run.search({8 * RUNGS[0][0]}, None, told); run.tests or run.test()"
    )
    path = f"{Path(__file__).parent}{os.pathsep}{Path(at.__file__).parents[1]}"
    environment = os.environ | {"PYTHONPATH": path}

    def start(folder):
        command = [sys.executable, "-c", script, str(folder)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        return subprocess.Popen(command, env=environment, text=True, **pipes)

    def end(folder):
        with start(folder) as child:
            child.communicate()
        assert child.returncode == 0

    end(tmp_path / "alone")
    rng = np.random.default_rng(0)
    for rounds in (2, 2, 1):
        with start(tmp_path / "killed") as child:
            for _ in range(rounds):
                child.stdout.readline()
                child.stdin.write("\n")
                child.stdin.flush()
            time.sleep(rng.uniform(0, 0.3))
            child.kill()
            child.communicate()
        assert child.returncode == -signal.SIGKILL
    end(tmp_path / "killed")
    assert lines_of(tmp_path / "killed") == lines_of(tmp_path / "alone")


@pytest.mark.nightly
@pytest.mark.shipped
def test_where_nothing_can_be_found_nothing_is_promoted(tmp_path, monkeypatch):
    """On fair coins, at an error rate of 5 %, more than three runs of twenty promote once in sixty times."""
    monkeypatch.setattr(Judge, "final_orders", range(12, 16))
    promoted = 0
    for seed in range(20):
        run = run_of(tmp_path / str(seed), coins(seed), seed=seed, test_orders=10)
        run.search(6 * RUNGS[0][0], None)
        run.test()
        promoted += at.read_run(tmp_path / str(seed)).promoted
    assert promoted <= 3
