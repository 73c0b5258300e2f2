"""Critics: what they say of ideas, what that is worth, and when it decides."""

import json
import math

import numpy as np
import pytest
from scripted_model import serving
from searches import RUNGS, made_up, run_of

import autotts_jax as at
from autotts_jax.discovery import (
    CriticReport,
    Judge,
    Lift,
    OpenAIProposer,
    Opinion,
    Tally,
    cmc,
    mutate,
    random_program,
)
from autotts_jax.discovery.critics.critic import Gate
from autotts_jax.discovery.critics.named import as_critic
from autotts_jax.discovery.critics.nearest import Nearest, behaviour
from autotts_jax.discovery.critics.report import MIN_EXECUTED, ratio_interval, read_report, report
from autotts_jax.errors import InputError

ORDERS = (1, 3, 12)


def program_of(number, *, hit=False, accepts=None, gated=False, score=0.5, fold=0, program=None):
    """The record of a program that was tried."""
    record = {"kind": "candidate", "number": number, "proposer": "rules", "parents": [], "fold": fold}
    record |= {"program": (program or cmc()).to_tree(), "scores": [score, score, score] if hit else [score]}
    if hit:
        record |= {"cost": 1.0, "width": 1.0}
    if accepts is not None:
        record["critic"] = {"score": float(accepts), "accepts": accepts}
    return record | ({"gated": True, "scores": []} if gated else {})


def file_of(number, objective, parents=(), accepts=None, dollars=0.25):
    record = {
        "kind": "code",
        "number": number,
        "proposer": "openai:wise",
        "parents": list(parents),
        "fold": 0,
    }
    record |= {"source": "pass", "metrics": None if objective is None else {"objective": objective}}
    if accepts is not None:
        record["critic"] = {"score": 1.0, "accepts": accepts, "tokens": 10, "dollars": dollars}
    return record


# --- what a critic is worth -----------------------------------------------------------------------------


def test_rates_by_hand():
    """Of 10 accepted 4 come through, of 30 rejected 2: 6 of 40 in all."""
    records = [program_of(n, hit=n < 4, accepts=True) for n in range(10)]
    records += [program_of(n, hit=n < 12, accepts=False) for n in range(10, 40)]
    records += [program_of(40, hit=True)]  # Nobody has judged it.
    lift = Tally.of(records).lift
    assert lift.executed == 40
    assert lift.base_rate == pytest.approx(6 / 40)
    assert lift.precision == pytest.approx(0.4)
    assert lift.recall == pytest.approx(4 / 6)
    assert lift.lift == pytest.approx(0.4 / 0.15)
    assert 1 < lift.low < lift.lift < lift.high < 4
    assert not lift.gates, "too few were executed"


def test_audited_candidates_stand_for_all_that_were_rejected():
    """The same rates, but only each third of the rejected ones was executed."""
    records = [program_of(n, hit=n < 4, accepts=True) for n in range(10)]
    records += [program_of(n, hit=n < 12, accepts=False, gated=n >= 20) for n in range(10, 40)]
    tally = Tally.of(records)
    assert tally == Tally(judged=40, passed=10, accepted=10, accepted_hits=4, rejected=10, rejected_hits=2)
    assert tally.lift.executed == 20
    assert tally.lift.base_rate == pytest.approx((10 * 0.4 + 30 * 0.2) / 40)
    assert tally.lift.recall == pytest.approx(4 / 10)


def test_the_interval_of_a_ratio_is_koopmans():
    """The example of Koopman (1984)."""
    low, high = ratio_interval(36, 40, 16, 80)
    assert (round(low, 2), round(high, 2)) == (2.94, 7.15)
    assert ratio_interval(0, 40, 16, 80)[0] == 0
    assert ratio_interval(36, 40, 0, 80)[1] == math.inf
    assert ratio_interval(0, 0, 16, 80) == (0, math.inf)


def test_intervals_of_lifts_hold_as_often_as_they_say():
    rng = np.random.default_rng(0)
    missed = 0
    for _ in range(400):
        accepted, rejected = (int(rng.binomial(of, rate)) for of, rate in ((60, 0.2), (140, 0.1)))
        lift = Tally(200, 60, 60, accepted, 140, rejected).lift
        missed += not lift.low <= 0.2 / (0.3 * 0.2 + 0.7 * 0.1) <= lift.high
    assert 8 <= missed <= 34, "20 are expected"


@pytest.mark.parametrize("accepted", [45, 225, 900])
def test_a_critic_that_looks_good_can_be_worthless(accepted):
    """As published: of 151 rejected ideas 108 failed, which is 71.5 %; of the accepted ones 71.1 % failed."""
    hits = accepted - round(0.711 * accepted)
    lift = Tally(151 + accepted, accepted, accepted, hits, 151, 151 - 108).lift
    assert pytest.approx(0.715, abs=5e-4) == 108 / 151
    assert lift.lift == pytest.approx(1, abs=0.02)
    assert lift.low < 1 < lift.high
    assert not lift.gates


def test_nothing_is_known_before_anything_is_executed():
    assert math.isnan(Tally.of([]).lift.lift)
    assert not Tally.of([]).lift.gates
    everything = Tally(400, 400, 400, 100, 0, 0).lift
    assert (everything.lift, everything.low, everything.high) == (1, 1, 1)
    assert not everything.gates


def test_files_succeed_if_they_are_better_than_their_parents():
    records = [file_of(0, 0.5), file_of(1, None)]
    records += [
        file_of(2, 0.6, [0, 1], accepts=True),
        file_of(3, 0.4, [0], accepts=True),
        file_of(4, None, [0], accepts=False),
        file_of(5, 0.1, [1], accepts=False),
        file_of(6, 0.1, accepts=False),
    ]
    assert Tally.of(records) == Tally(5, 2, 2, 1, 3, 2)


def test_a_report_says_what_gating_would_have_saved_and_lost():
    first = [program_of(0, hit=True, score=0.1), program_of(1)]
    second = [program_of(2, hit=True, accepts=True, score=0.2), program_of(3, accepts=False)]
    third = [program_of(4, hit=True, accepts=False, score=0.3), program_of(5, hit=True, accepts=True)]
    third[1]["scores"] = [0.1, 0.1, 0.25]
    fourth = [program_of(6, accepts=False, gated=True), program_of(7, hit=True, accepts=True, score=0.1)]
    said = report("nearest", [(first, 17.0), (second, 17.0), (third, 32.0), (fourth, 16.0)], ORDERS)
    # A program that is rejected saves the first rung; one that comes through plays 16 orders.
    assert said.cpu_seconds == pytest.approx(1 + 1 + 1)
    assert (said.improvements, said.lost) == (2, 1)
    assert said.gated == 1
    assert said.dollars == 0
    files = [file_of(0, 0.1, accepts=False), file_of(1, None, accepts=True)]
    said = report("openai:wise", [(files, 10.0)], ORDERS)
    assert (said.cpu_seconds, said.tokens, said.dollars) == (5.0, 20, 0.5)
    assert "2 candidates judged and executed" in str(said)
    assert "1 of 1 improvements; verdicts took 20 tokens ($0.5000)" in str(said)
    unpriced = report("openai:wise", [([file_of(0, 0.1, accepts=True, dollars=None)], 1.0)], ORDERS)
    assert "unpriced" in str(unpriced)
    assert str(report("nearest", [([program_of(0)], 1.0)], ORDERS)) == "critic nearest: no candidate judged"


# --- when it gates --------------------------------------------------------------------------------------


class Guessing:
    """Accepts a share of good candidates, and a share of the others; whether one is good its program says."""

    name = "guessing"

    def __init__(self, of_good, of_others):
        self.shares = of_others, of_good

    def judge(self, records, past, folder, round_number):  # noqa: ARG002
        draws = np.random.default_rng(round_number).random(len(records))
        shares = [self.shares[record["program"]["good"]] for record in records]
        return [Opinion(float(draw), bool(draw < share)) for draw, share in zip(draws, shares, strict=True)]


def rounds_of(tmp_path, critic, rounds=12, size=40):
    """Rounds in which a tenth of the candidates is good and comes through."""
    gate = Gate(critic, tmp_path, 0)
    for number in range(rounds):
        records = [program_of(number * size + at) | {"program": {"good": at % 10 == 0}} for at in range(size)]
        gate.judge(records, number)
        for record in records:
            if record["program"]["good"] and "gated" not in record:
                record |= {"cost": 1.0, "width": 1.0}
        gate.take(records)
        yield records


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a_critic_that_guesses_never_gates(tmp_path, share):
    for records in rounds_of(tmp_path, Guessing(share, share)):
        assert all("critic" in record for record in records)
        assert not any("gated" in record for record in records)


def test_a_critic_that_knows_gates_once_it_has_its_labels(tmp_path):
    rounds = list(rounds_of(tmp_path, Guessing(0.9, 0.2)))
    first = MIN_EXECUTED // 40 + 1  # rounds in which there are too few
    assert not any("gated" in record for records in rounds[:first] for record in records)
    after = [record for records in rounds[first:] for record in records]
    rejected = [record for record in after if not record["critic"]["accepts"]]
    executed = [record for record in rejected if "gated" not in record]
    assert all(record["critic"]["accepts"] is False for record in after if "gated" in record)
    assert 0.03 < len(executed) / len(rejected) < 0.2, "a tenth is executed all the same"
    lift = Tally.of([record for records in rounds for record in records]).lift
    assert lift.low > 1
    assert lift.base_rate == pytest.approx(0.1, abs=0.04)


def test_searches_are_judged_apart(tmp_path):
    """What one search has seen of questions that another leaves out does not reach that one's critic."""
    seen = []

    class Watching(Guessing):
        def judge(self, records, past, folder, round_number):
            seen.append({record["fold"] for record in past})
            return super().judge(records, past, folder, round_number)

    gate = Gate(Watching(1, 0), tmp_path, 0)
    for number, fold in enumerate((0, 1, 0, None)):
        records = [program_of(number, fold=fold) | {"program": {"good": True}}]
        gate.judge(records, number)
        gate.take(records)
    assert seen == [set(), set(), {0}, set()]
    begun = [program_of(9) | {"proposer": "start"}]
    gate.judge(begun, 4)
    assert "critic" not in begun[0]


# --- critics --------------------------------------------------------------------------------------------


def test_programs_that_behave_alike_are_near():
    rng = np.random.default_rng(0)
    mine = behaviour(cmc())
    assert mine.min() >= 0
    np.testing.assert_array_equal(mine, behaviour(cmc()))
    children = [np.abs(behaviour(mutate(cmc(), rng)) - mine).sum() for _ in range(30)]
    strangers = [np.abs(behaviour(random_program(rng)) - mine).sum() for _ in range(30)]
    assert max(children) > 0
    assert np.median(children) < np.median(strangers) / 3


def test_nearest_finds_what_came_through(tmp_path):
    """Children of CMC have come through and random programs have not; so it goes on."""
    rng = np.random.default_rng(0)

    def tried(count, first):
        programs = [mutate(cmc(), rng) if n % 4 == 0 else random_program(rng) for n in range(count)]
        return [program_of(first + n, hit=n % 4 == 0, program=one) for n, one in enumerate(programs)]

    past, new = tried(100, 0), tried(40, 100)
    opinions = Nearest().judge([*new, file_of(140, 0.1)], past, tmp_path, 1)
    assert opinions[-1] is None
    assert Nearest().judge(new, past, tmp_path, 1) == opinions[:-1]
    judged = [record | {"critic": said.to_json()} for record, said in zip(new, opinions, strict=False)]
    lift = Tally.of(judged).lift
    assert lift.low > 1
    assert lift.recall > 0.8
    assert Nearest().judge(new, past[:10], tmp_path, 1) == [None] * 40
    json.dumps(judged, allow_nan=False)


def test_a_model_scores_files_within_the_limits_of_the_run(tmp_path):
    pytest.importorskip("openai")

    def script(request):
        source = request["messages"][1]["content"].rpartition("The file to judge:")[2]
        return "I cannot say." if "odd" in source else f"Hm.\n**Score: {7.5 if 'good' in source else 2}**/10"

    with serving(script) as server:
        account = OpenAIProposer("wise", server.url, count=4, reply_tokens=500, prices={"wise": (1.0, 2.0)})
        critic = as_critic("openai:wise", [account])
        # Long enough for the 1,000 tokens that the server counts.
        parent = file_of(0, 0.5) | {"source": "the parent", "feedback": "it is slow " * 50}
        files = [file_of(n, None, [0]) | {"source": text} for n, text in enumerate(("good", "bad", "odd"), 1)]
        records = [*files, file_of(4, None) | {"source": None}, program_of(5)]
        opinions = critic.judge(records, [parent], tmp_path, 3)
        assert [said and said.score for said in opinions] == [7.5, 2.0, None, None, None]
        assert [said and said.accepts for said in opinions] == [True, False, True, None, None]
        assert {(said.tokens, said.dollars) for said in opinions[:3]} == {(1500, 0.002)}
        assert "it is slow" in server.requests[0]["messages"][1]["content"]
        assert (tmp_path / "transcripts" / opinions[0].transcript).exists()
        assert critic.judge(records, [parent], tmp_path, 3) == opinions
        assert len(server.requests) == 3, "nothing is paid for twice"
        poor = as_critic(
            "openai:wise", [OpenAIProposer("wise", server.url, reply_tokens=500, max_tokens=5000)]
        )
        assert poor.judge(files, [parent], tmp_path, 4) == [None] * 3


@pytest.mark.parametrize(
    ("said", "score"), [("score: -3", None), ("score - 7", 7.0), ("Score: 10", 10.0), ("score: 11", None)]
)
def test_scores_that_models_write(tmp_path, said, score):
    pytest.importorskip("openai")
    with serving(lambda _: said) as server:
        critic = as_critic("openai:wise", [OpenAIProposer("wise", server.url)])
        (opinion,) = critic.judge([file_of(0, None) | {"source": "a file"}], [], tmp_path, 0)
    assert opinion.score == score


def test_a_model_is_shown_the_best_parent(tmp_path):
    pytest.importorskip("openai")
    parents = [
        file_of(n, score) | {"source": f"parent {n}", "feedback": ""}
        for n, score in enumerate((None, 0.0, -0.5))
    ]
    with serving(lambda _: "score: 6") as server:
        critic = as_critic("openai:wise", [OpenAIProposer("wise", server.url)])
        critic.judge([file_of(3, None, [0, 1, 2]) | {"source": "a file"}], parents, tmp_path, 0)
        assert "parent 1" in server.requests[0]["messages"][1]["content"]


def test_bad_critics_are_named():
    with pytest.raises(InputError, match="unknown critic 'nobody'"):
        as_critic("nobody", [])
    with pytest.raises(InputError, match="no proposer writes any"):
        as_critic("openai:wise", [])
    assert as_critic(None, []) is None


def test_a_critic_in_the_shadow_changes_nothing_but_the_records_of_its_verdicts(tmp_path, monkeypatch):
    monkeypatch.setattr(Judge, "play", made_up)

    def records_of(name):
        lines = (tmp_path / name / "archive.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    for name, critic in (("alone", None), ("critic", "nearest")):
        run = run_of(tmp_path / name, critic=critic)
        run.search(5 * RUNGS[0][0], None)
        run_of(tmp_path / name, critic=critic).search(8 * RUNGS[0][0], None)
    alone, judged = records_of("alone"), records_of("critic")
    assert sum("critic" in record for record in judged) > 40
    for one, other in zip(alone, judged, strict=True):
        assert one | {"cpu_seconds": 0} == {k: v for k, v in other.items() if k != "critic"} | {
            "cpu_seconds": 0
        }
    said = read_report(tmp_path / "critic")
    assert isinstance(said, CriticReport)
    assert said.lift.executed == sum("critic" in record for record in judged)
    assert "critic nearest" in str(at.read_run(tmp_path / "critic").table())
    assert at.read_run(tmp_path / "alone").critic() is None
    # Once it has proven itself it decides; here that nothing is worth playing.
    monkeypatch.setattr(Lift, "gates", True)
    monkeypatch.setattr(Nearest, "judge", lambda _, records, *__: [Opinion(0.0, False) for _ in records])
    run_of(tmp_path / "critic", critic="nearest").search(10 * RUNGS[0][0], None)
    after = [record for record in records_of("critic")[len(judged) :] if record["kind"] == "candidate"]
    gated = [record for record in after if "gated" in record]
    assert 0.75 < len(gated) / len(after) < 1
    assert all(record["scores"] == [] and "cost" not in record for record in gated)
    assert all(record["scores"] for record in after if "gated" not in record)
