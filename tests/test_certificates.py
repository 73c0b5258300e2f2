"""Certificates: exact tests, settings tested one after another, files, and what is refused."""

import json
import math
import random
import statistics
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import autotts_jax as at
from autotts_jax import live
from autotts_jax.collect import LocalWorkers, Plan, Problem, Sampling, SimulatedEngine, collect
from autotts_jax.errors import DataError, InputError
from autotts_jax.experiments import read_certificate
from autotts_jax.experiments.certificates import fixed_sequence, test_of
from autotts_jax.live.settings import ServerSettings
from autotts_jax.policies import SelfConsistency
from autotts_jax.risk import betting_p_value, binomial_p_value, losses_needed
from autotts_jax.user_code import load_object

test_of.__test__ = False  # it chooses a test, and is none

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "certificates.py"
SHARES = st.lists(st.floats(0, 1), min_size=1, max_size=40)


# --- p-values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ones", "number", "bound"), [(0, 1, 0.1), (0, 30, 0.1), (3, 50, 0.2), (7, 7, 0.9)])
def test_binomial_p_values_are_sums_of_probabilities(ones, number, bound):
    losses = np.array([1.0] * ones + [0.0] * (number - ones))
    expected = sum(math.comb(number, k) * bound**k * (1 - bound) ** (number - k) for k in range(ones + 1))
    assert binomial_p_value(losses, bound) == pytest.approx(expected)


def bet(losses, bound, delta):
    """Betting over a plain list, in its order."""
    wealth = most = 1.0
    mean, seen, squares = 0.5, [], 0.25
    for loss in losses:
        variance = squares / (len(seen) + 1)
        stake = min(math.sqrt(2 * math.log(1 / delta) / (len(losses) * variance)), 0.75 / (1 - bound))
        wealth *= 1 + stake * (bound - loss)
        most = max(most, wealth)
        seen.append(loss)
        mean = (0.5 + sum(seen)) / (len(seen) + 1)
        squares += (loss - mean) ** 2
    return 1 / most


@given(SHARES, st.floats(0.01, 0.9), st.floats(0.01, 0.5))
def test_betting_equals_that_over_lists(losses, bound, delta):
    shuffled = np.random.default_rng(0).permutation(losses).tolist()
    found = betting_p_value(np.array(losses), bound, delta)
    assert found == pytest.approx(bet(shuffled, bound, delta), rel=1e-6)
    assert 0 < found <= 1
    # The same losses in [-1, 1].
    wide = betting_p_value(2 * np.array(losses) - 1, 2 * bound - 1, delta, least=-1.0)
    assert wide == pytest.approx(found, rel=1e-6)


@pytest.mark.parametrize("bound", [0.05, 0.2])
@pytest.mark.parametrize("kind", ["binary", "shares"])
def test_few_tests_reject_a_mean_that_is_the_bound(kind, bound):
    rng = np.random.default_rng(1)
    rejected = {"betting": 0, "binomial": 0}
    for _ in range(2000):
        losses = rng.random(60) < bound if kind == "binary" else rng.beta(bound, 1 - bound, 60)
        rejected["betting"] += betting_p_value(losses.astype(float), bound, 0.1) <= 0.1
        if kind == "binary":
            rejected["binomial"] += binomial_p_value(losses.astype(float), bound) <= 0.1
    assert max(rejected.values()) / 2000 <= 0.1 + 2 * math.sqrt(0.1 * 0.9 / 2000)


def test_the_losses_needed_are_the_least_number_that_passes():
    nothing = np.zeros(1)
    for bound, delta in ((0.1, 0.05), (0.02, 0.1)):
        expected = math.ceil(math.log(delta) / math.log(1 - bound))
        assert losses_needed(lambda x, b=bound: binomial_p_value(x, b), nothing, delta) == expected
    assert losses_needed(lambda x: binomial_p_value(x, 0.1), np.ones(3), 0.05) is None


def test_thirty_questions_certify_nothing_below_a_tenth():
    test = test_of("disagreement", 1, 0.09, 0.05)
    assert test(np.zeros(30)) > 0.05
    assert test_of("disagreement", 1, 0.1, 0.05)(np.zeros(30)) <= 0.05


def test_no_setting_is_certified_behind_one_that_fails():
    losses = np.array([[0.0] * 40, [1.0] * 40, [0.0] * 40, [0.0] * 40])
    _, certified = fixed_sequence(losses, test_of("disagreement", 1, 0.2, 0.05), 0.05)
    assert certified.tolist() == [False, False, True, True]


# --- calibration --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data():
    return at.load("smollm2")


@pytest.fixture(scope="module")
def found(data):
    return at.certify(data, "sc", epsilon=0.4, seeds=1, max_branches=64)


def test_losses_are_counted_episode_by_episode(data, found):
    played = at.evaluate(data, "sc", seeds=1).plays[0]
    for setting, answers, tokens, test in zip(
        played.player.names, played.answer, played.tokens, found.tests, strict=True
    ):
        differs = [a != b for a, b in zip(answers[0], played.answer[-1][0], strict=True)]
        assert (test.setting, test.loss) == (setting, statistics.mean(differs))
        assert test.tokens == statistics.mean(tokens[0].tolist())
        assert test.p_value == pytest.approx(binomial_p_value(np.array(differs), 0.4))
    passed = [test.p_value <= 0.05 for test in found.tests]
    assert [test.certified for test in found.tests] == [all(passed[at:]) for at in range(len(passed))]
    assert passed[-1]
    assert found.setting == found.tests[[test.certified for test in found.tests].index(True)].setting
    assert found.summary().num_rows == len(found.tests)


def test_accuracy_is_signed(data):
    found = at.certify(data, ["sc@1", "sc@64"], epsilon=0.2, seeds=2, loss="accuracy")
    one, all_of = (play.correct.mean() for play in at.evaluate(data, ["sc@1", "sc@64"], seeds=2).plays)
    assert found.tests[0].loss == pytest.approx(all_of - one)
    assert found.tests[1].loss == 0
    assert found.tests[1].certified
    assert "points less accurate than the majority of 64 branches" in found.claim


def test_too_few_questions_are_told_how_many_it_takes(data, tmp_path):
    found = at.certify(data.select(range(30)), ["sc@1", "sc@64"], epsilon=0.05, seeds=1)
    assert found.setting is None
    assert found.least_questions == found.tests[1].questions == 59
    assert found.tests[0].questions is None
    assert "A setting that loses nothing takes 59 questions; sc@64" in found.claim
    assert "No setting can be certified" in str(found.table())
    with pytest.raises(InputError, match=r"^there is no certificate to write\. No setting"):
        found.save(tmp_path / "certificate.json")
    assert not list(tmp_path.iterdir())


def test_one_question_certifies_nothing(data):
    found = at.certify(data.select([0]), "sc@8", epsilon=0.5, seeds=2, max_branches=8)
    assert found.setting is None
    assert 0 < found.tests[0].p_value <= 1


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"epsilon": 0}, "epsilon is 0, but it must be a finite number above 0"),
        ({"epsilon": 1}, "epsilon is 1, but it must be below 1"),
        ({"epsilon": math.nan}, "epsilon is nan"),
        ({"delta": "0.05"}, "delta is '0.05'"),
        ({"delta": 1.5}, "delta is 1.5, but it must be below 1"),
        ({"loss": "regret"}, "unknown loss 'regret'"),
        ({"max_branches": 1000}, "128 branches a question, fewer than the 1000"),
        ({"seeds": 0}, "the number of seeds is 0"),
        ({"family": []}, "there are no settings"),
        ({"family": "nobody"}, "unknown player 'nobody'"),
        ({"family": ["sc@8", "sc@4"]}, "the cheapest first, but sc@4 takes fewer tokens than sc@8; turn"),
        ({"family": ["sc@4", "sc@4"]}, "sc@4: given more than once"),
        ({"calibration": "synthetic"}, "a certificate is about one model, and the data has synthetic-S/"),
    ],
)
def test_wrong_arguments_are_refused(changes, problem, data):
    arguments = {"calibration": data, "family": "sc@4", "epsilon": 0.1, "seeds": 1} | changes
    with pytest.raises(InputError, match=problem):
        at.certify(**arguments)


def test_questions_that_come_twice_are_refused(data):
    with pytest.raises(InputError, match="a question comes twice"):
        at.certify(data.select([0, 1, 0]), "sc@4", epsilon=0.1, seeds=1)


# --- files --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(found, tmp_path_factory):
    return found.save(tmp_path_factory.mktemp("certificates") / "certificate.json")


HERE = {"model": "SmolLM2-135M-Instruct", "interval": 8, "grader": "code", "max_branches": 64, "budget": None}


def test_a_certificate_says_what_it_is_of(found, saved):
    read = read_certificate(saved)
    assert (read.setting, read.claim, read.tests) == (found.setting, found.claim, list(found.tests))
    assert (read.model, read.interval, read.encoding) == (HERE["model"], 8, "exact")
    assert (read.questions, read.seeds, read.epsilon, read.delta) == (40, 1, 0.4, 0.05)
    assert read.made_with["data"][0]["sha256"]
    read.check_live(**HERE)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"model": "Qwen3-8B"}, "model: SmolLM2-135M-Instruct there, Qwen3-8B here"),
        ({"interval": 500}, "interval: 8 there, 500 here"),
        ({"grader": "math"}, r"encoding \(grader\): exact there, equiv here"),
        ({"max_branches": 32}, "max_branches: 64 there, 32 here"),
        ({"budget": 1000}, "budget: None there, 1000 here"),
    ],
)
def test_another_model_interval_or_encoding_is_refused(change, problem, saved):
    with pytest.raises(InputError, match=problem):
        read_certificate(saved).check_live(**HERE | change)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "it is no certificate: not JSON"),
        ("[]", "it is no certificate"),
        ("{}", "it is no certificate: format"),
        ('{"epsilon": 1e999}', "it is no certificate"),
    ],
)
def test_damaged_certificates_are_refused(content, problem, tmp_path):
    path = tmp_path / "certificate.json"
    path.write_text(content)
    with pytest.raises(DataError, match=problem):
        read_certificate(path)
    with pytest.raises(DataError, match="cannot be read"):
        read_certificate(tmp_path / "none.json")


def test_another_version_is_refused(saved, tmp_path):
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(json.loads(saved.read_text()) | {"version": 2}))
    with pytest.raises(DataError, match="it is not autotts_jax certificate version 1"):
        read_certificate(path)


def test_an_object_cannot_be_named_in_a_file(data, tmp_path):
    found = at.certify(data, SelfConsistency(8), epsilon=0.5, seeds=1, max_branches=8)
    assert found.setting == "SelfConsistency(8)"
    with pytest.raises(InputError, match="is an object of this process"):
        found.save(tmp_path / "certificate.json")


# --- live ---------------------------------------------------------------------------------------------------

ENGINE = ["--engine", "simulated", "--interval", "20", "--max-tokens", "100", "--max-branches", "4"]


@pytest.fixture(scope="module")
def certified(tmp_path_factory):
    """A certificate of a collection of the simulated engine."""
    folder, draw = tmp_path_factory.mktemp("live"), random.Random(0)
    sums = {(draw.randrange(90), draw.randrange(90)) for _ in range(12)}
    questions = tuple(Problem(f"What is {a} + {b}?", str(a + b)) for a, b in sorted(sums))
    sampling = Sampling(interval=20, max_tokens=100)
    plan = Plan("simulated", "sums", questions, num_branches=4, sampling=sampling)
    collect(plan, folder / "run", LocalWorkers(SimulatedEngine()))
    found = at.certify(
        at.load(folder / "run", "equiv"), ["sc@1", "sc@2", "sc@4"], epsilon=0.4, max_branches=4
    )
    return found.save(folder / "certificate.json")


def test_a_certified_setting_answers(run, certified):
    setting = read_certificate(certified).setting
    status, _, shown = run("answer", "What is 2 + 2?", *ENGINE, "--setting", certified)
    assert status == 0
    assert f"{setting}: " in shown


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (["--interval", 10], "interval: 20 there, 10 here"),
        (["--grader", "arithmetic"], "encoding (grader): equiv there, exact here"),
        (["--budget", 100], "budget: None there, 100 here"),
        (["--controller", "sc@2"], "--setting says what answers"),
        (["--beta", 0.5], "--setting says what answers"),
    ],
)
def test_a_certified_setting_answers_nowhere_else(run, certified, change, problem):
    status, _, shown = run("answer", "What is 2 + 2?", *ENGINE, "--setting", certified, *change)
    assert status == 2
    assert problem in shown


def test_a_certified_setting_is_served_to_who_names_no_other(run, certified, monkeypatch):
    given = []
    monkeypatch.setattr(live, "serve", lambda _engine, settings, *_: given.append(settings))
    assert run("serve", *ENGINE, "--setting", certified)[0] == 0
    assert given[0].controller == read_certificate(certified).setting
    assert run("serve", *ENGINE, "--setting", certified, "--interval", 10)[0] == 2
    with pytest.raises(InputError, match="unknown controller 'nobody'"):
        ServerSettings("model", controller="nobody")


def test_certify_prints_and_writes(run, tmp_path):
    path, arguments = tmp_path / "certificate.json", ["--data", "smollm2", "--controllers", "sc@1,sc@64"]
    status, shown, _ = run("certify", *arguments, "--epsilon", 0.4, "--seeds", 2, "--out", path)
    assert status == 0
    assert "sc@64" in shown
    assert read_certificate(path).setting == "sc@64"
    path.unlink()
    status, shown, problem = run("certify", *arguments, "--epsilon", 0.01, "--seeds", 2, "--out", path)
    assert status == 2
    assert "No setting can be certified" in shown
    assert "nothing is certified, so" in problem
    assert not path.exists()


def test_a_certification_says_its_claim(found):
    assert repr(found).startswith("Certification: On a question drawn as the 40 calibration questions were")


@pytest.mark.slow
def test_the_benchmark_prints_a_table_whose_shares_are_within_their_limits(capsys):
    check = load_object(f"{BENCHMARK}:main", "function")
    check(None, calibrations=100, questions=60, size=60, seeds=3)
    rows = [line.strip("| ").split("|") for line in capsys.readouterr().out.splitlines() if "with " in line]
    assert len(rows) == 8
    for row in rows:
        wrong, edge, limit = (float(cell) for cell in row[6:9])
        assert max(wrong, edge) <= limit
