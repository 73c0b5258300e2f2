"""What a collection will take: bounds that hold, and what was collected as the measure of the rest."""

import dataclasses

import pytest

from autotts_jax.collect import (
    LocalWorkers,
    Plan,
    Problem,
    Sampling,
    SimulatedEngine,
    Store,
    Usage,
    collect,
    collect_unit,
    estimate,
)
from autotts_jax.errors import InputError
from autotts_jax.experiments import estimate_table

PLAN = Plan(
    "simulated",
    "sums",
    tuple(Problem(f"What is {n} + {n}?", str(2 * n)) for n in range(1, 4)),
    num_branches=8,
    chunk=4,
    sampling=Sampling(interval=20, max_tokens=200),
)
PLANS = {
    "plain": PLAN,
    "draws": dataclasses.replace(PLAN, sampling=dataclasses.replace(PLAN.sampling, probes_per_prefix=3)),
    "texts": dataclasses.replace(
        PLAN, keep_text=True, sampling=dataclasses.replace(PLAN.sampling, signals=("logprob_mean",))
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_no_collection_takes_more_than_at_most(tmp_path, name):
    plan = PLANS[name]
    found = estimate(plan, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert (found.questions, found.branches, found.collected, found.expected) == (3, 24, 0, None)
    collect(plan, tmp_path / "run", LocalWorkers(SimulatedEngine(mean_tokens=10_000)))
    usage = sum((unit.usage for unit in Store(tmp_path / "run").done()), Usage())
    assert found.most.generated == usage.generated == 24 * 200
    assert usage.forced <= found.most.forced == 24 * 10 * 32 * plan.sampling.probes_per_prefix
    assert sum(path.stat().st_size for path in (tmp_path / "run").rglob("*.json")) <= found.most.disk + 2000
    done = estimate(plan, tmp_path / "run")
    assert (done.collected, done.most.tokens, done.expected.tokens, done.expected.disk) == (24, 0, 0, 0)


def test_the_rest_is_expected_to_be_as_what_was_collected(tmp_path):
    with Store.writing(tmp_path, PLAN, {}) as store:
        for unit in store.missing()[:2]:
            store.write(collect_unit(SimulatedEngine(), PLAN, unit))
        usage = sum((unit.usage for unit in store.done()), Usage())
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    found = estimate(PLAN, tmp_path)
    assert (found.collected, found.most.generated) == (8, 16 * 200)
    assert (found.expected.generated, found.expected.forced) == (2 * usage.generated, 2 * usage.forced)
    assert found.expected.tokens < found.most.tokens
    collect(PLAN, tmp_path, LocalWorkers(SimulatedEngine()))
    size = sum(path.stat().st_size for path in (tmp_path / "units").iterdir())
    size += (tmp_path / "matrix.json").stat().st_size
    assert found.expected.disk == pytest.approx(size * 2 / 3, rel=0.2)
    assert all(path.read_bytes() == content for path, content in before.items() if path.parent != tmp_path)
    grown = estimate(dataclasses.replace(PLAN, num_branches=12), tmp_path)
    assert (grown.branches, grown.collected) == (36, 24)
    with pytest.raises(InputError, match="holds another collection: seed was 0 and is 1"):
        estimate(dataclasses.replace(PLAN, sampling=dataclasses.replace(PLAN.sampling, seed=1)), tmp_path)


def test_the_folder_of_others_is_refused(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(InputError, match="is not empty and holds no collection"):
        estimate(PLAN, tmp_path)


def test_a_table_says_what_to_give_for_more(tmp_path):
    found = estimate(PLAN, tmp_path)
    shown = str(estimate_table(found))
    assert "to collect: 24 of 24 branches of 3 questions" in shown
    assert "collect some first" in shown
    assert "--tokens-per-second" in shown
    timed = str(
        estimate_table(dataclasses.replace(found, expected=found.most), rate=found.most.tokens / 3600)
    )
    assert timed.count("1.00") == 2
    assert "--tokens-per-second" not in timed


@pytest.mark.parametrize("extra", ["--dry-run", "--tokens-per-second 5"])
def test_the_command_starts_no_engine_and_writes_nothing(run, tmp_path, monkeypatch, extra):
    monkeypatch.chdir(tmp_path)
    line = f"collect --model none --max-tokens 1000 --questions arithmetic:3 --branches 8 --out out {extra}"
    status, out, err = run(*line.split())
    assert not list(tmp_path.iterdir())
    if extra == "--dry-run":
        assert (status, err) == (0, "")
        assert "to collect: 24 of 24 branches" in out
    else:
        assert (status, out) == (2, "")
        assert "--tokens-per-second belongs to --dry-run" in err
