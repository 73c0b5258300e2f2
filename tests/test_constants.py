"""The proposer that tunes the numbers of a program: what it draws and learns, and runs that go on."""

import dataclasses
import json

import numpy as np
import pytest
from searches import FEW, lines_of, made_up

import autotts_jax as at
from autotts_jax.discovery import (
    Judge,
    Line,
    Member,
    Population,
    Program,
    cmc,
    decision_list,
    self_consistency,
)
from autotts_jax.discovery.proposers.named import as_proposer
from autotts_jax.discovery.proposers.protocol import Learner, Trial
from autotts_jax.discovery.search import DiscoveryRun
from autotts_jax.policies import as_player

pytest.importorskip("cmaes")
from autotts_jax.discovery import Constants

RUNGS = ((16, 1), (8, 2), (4, 2))
DETUNED = dataclasses.replace(
    cmc(),
    hyperparameters=cmc().hyperparameters
    | {
        "initial": Line(30, 20),
        "max_branches": Line(40, 20),
        "warm_up": Line(40),
        "alpha": Line(0.05),
        "window": Line(8),
    },
)
"""CMC that opens too many branches and looks at them too late."""


class Forgetful(Constants):
    """The control: it always draws the first generation, whatever has come of it."""

    def learn(self, population, trials):
        pass


def shape(program):
    """The program without the sizes of its numbers."""
    tree = json.loads(program.to_json())
    text = json.dumps([tree.get(slot) for slot in ("open", "read", "prune", "stop", "weigh")])
    return "".join("#" if c in "0123456789-." else c for c in text).replace("#", "")


def play(proposer, generations, score, count=16, seed=0, population=None):
    """Rounds of one rung: the best score of each, and what was proposed in the last."""
    population = population or Population([Member(0, cmc(), 0.0, 1.0, 1.0)])
    best, number = [], 1
    for generation in range(generations):
        rng = np.random.default_rng([seed, generation])
        proposals = proposer.propose(population, count, rng)
        programs = [proposal.program for proposal in proposals]
        scores = map(float, score(programs))
        tried = enumerate(zip(programs, scores, strict=True), number)
        trials = [Trial(at, program, (one,)) for at, (program, one) in tried]
        number += count
        best.append(max(trial.scores[0] for trial in trials))
        proposer.learn(population, trials)
        population.add([Member(t.number, t.program, t.scores[0], 1.0, 1.0) for t in trials])
    return best, proposals


def near(target):
    """A score that is the higher the nearer a program's hyperparameters are to another's."""

    def ends(program):
        return np.array([(line.at_0, line.at_0 + line.slope) for line in program.hyperparameters.values()])

    return lambda programs: [-np.abs(np.log((ends(p) + 1) / (ends(target) + 1))).sum() for p in programs]


def test_rules_stay_and_numbers_change():
    proposer = Constants()
    assert isinstance(proposer, Learner)
    (_, proposals) = play(proposer, 3, near(DETUNED))
    for program, _ in proposals:
        assert program != cmc()
        assert shape(program) == shape(cmc())
        assert program.length <= cmc().length
        assert program.hyperparameters["in_full"] == cmc().hyperparameters["in_full"]
        assert Program.from_json(program.to_json()) == program


def test_it_learns_from_what_became_of_its_candidates():
    learned, _ = play(Constants(DETUNED), 25, near(cmc()))
    control, _ = play(Forgetful(DETUNED), 25, near(cmc()))
    assert learned[0] == control[0]
    assert max(learned) > max(control) / 2
    assert play(Constants(DETUNED), 5, near(cmc()))[0] == learned[:5]


def level(programs):
    return [1.0] * len(programs)


def test_it_begins_anew_with_the_best_of_the_search_where_it_comes_no_further():
    population = Population([Member(7, cmc(), 0.0, 1.0, 1.0)])
    proposer = Constants()
    _, proposals = play(proposer, 1, level, population=population)
    assert {proposal.parents for proposal in proposals} == {(7,)}
    population.add([Member(1000, DETUNED, 2.0, 1.0, 1.0)])
    _, proposals = play(proposer, 6, level, population=population)
    assert {proposal.parents for proposal in proposals} == {(7,)}
    _, proposals = play(proposer, 1, level, population=population)
    assert {proposal.parents for proposal in proposals} == {(1000,)}


def test_where_none_is_the_best_yet_all_are_varied():
    unplayed = [Member(0, program, -np.inf, 1.0, 1.0) for program in (cmc(), self_consistency())]
    proposals = Constants().propose(Population(unplayed), 6, np.random.default_rng(0))
    assert [shape(p.program) for p in proposals] == [shape(cmc()), shape(self_consistency())] * 3
    assert len({p.program.to_json() for p in proposals}) == 6


def test_proposers_by_name(tmp_path):
    assert as_proposer("constants") == Constants()
    file = tmp_path / "program.json"
    file.write_text(cmc().to_json())
    found = as_proposer(f"constants:{file}")
    assert found == Constants(cmc())
    assert found.name == Constants(cmc()).name != Constants(DETUNED).name
    with pytest.raises(at.InputError, match="cannot be read"):
        as_proposer("constants:nowhere.json")
    file.write_text("{}")
    with pytest.raises(at.InputError, match=r"program.json: this is not a program"):
        as_proposer(f"constants:{file}")


def test_a_killed_run_goes_on_as_if_nothing_had_happened(tmp_path, monkeypatch):
    monkeypatch.setattr(Judge, "play", made_up)

    def search():
        data = at.load("smollm2").select(np.arange(9))
        DiscoveryRun(data, tmp_path, ["constants", "rules"], as_player(FEW), 0, 16, RUNGS).search(
            12 * 16, None
        )

    search()
    whole, archive = lines_of(tmp_path), tmp_path / "archive.jsonl"
    assert {"start", "constants", "rules"} == {r["proposer"] for r in whole if r["kind"] == "candidate"}
    lines = archive.read_bytes().splitlines(keepends=True)
    for kept in (len(lines) // 3, len(lines) - 20):
        archive.write_bytes(b"".join(lines[:kept]) + b'{"kind": "cand')
        search()
        assert lines_of(tmp_path) == whole


@pytest.mark.shipped
@pytest.mark.nightly
def test_a_detuned_program_is_tuned_further_than_by_chance():
    judge = Judge.of(at.load("smollm2"), 16, 0)

    def objective(programs):
        candidates = [[decision_list(program, beta) for beta in (0.0, 0.5, 1.0)] for program in programs]
        return judge.play(candidates, np.arange(0, 40, 3), judge.search, range(2)).objective((0.0, 0.5, 1.0))

    tuned, _ = play(Constants(DETUNED), 24, objective, 24)
    control, _ = play(Forgetful(DETUNED), 24, objective, 24)
    assert tuned[0] == control[0]
    assert max(tuned) > max(control) + 0.03
    assert play(Constants(DETUNED), 4, objective, 24)[0] == tuned[:4]
