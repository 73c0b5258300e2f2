"""What episodes cost: against values computed by hand, as they grow, and with bad input."""

import dataclasses
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import autotts_jax as at
from autotts_jax.core.costs import UNITS, CostModel, Spent
from autotts_jax.core.profiles import Hardware, ModelSize, hardware_named, model_named
from autotts_jax.errors import InputError
from autotts_jax.experiments.summary import Objective

# 100 parameters of 2 bytes; keys and values of a token take 2·1·1·1·2 = 4 bytes, attention 4·1·2·1 = 8 FLOP.
MODEL = ModelSize(100, layers=1, query_heads=2, kv_heads=1, head_dim=1)
# A byte takes as long as 10 FLOP; a step takes 3 seconds more.
MACHINE = Hardware(flops=1000.0, bandwidth=100.0, memory=1e6, step_seconds=3.0)
PROMPT, SUFFIX, ANSWER = 10, 5, 2
# Two branches of 40 tokens, side by side, probed after each of four intervals of 10 tokens; none has ended.
EPISODE = Spent(80, 40, 8, 8, 2, interval=10, longest=100)
ALL = ("latency", "flops", "kv", "usd")


def cost_of(kind, hardware=MACHINE, model=MODEL, **settings):
    settings = {"prompt_tokens": PROMPT, "suffix_tokens": SUFFIX, "answer_tokens": ANSWER} | settings
    return CostModel(kind, hardware, model, **settings).of_models(["m"]).of_cells(0)


def roofline(flops, moved):
    return max(flops / 1000, moved / 100) + 3


def step(sequences, context):
    return roofline(sequences * (200 + 8 * context), 200 + 4 * sequences * context)


def read(tokens, context):
    return roofline(tokens * (200 + 8 * context), 200)


# --- by hand --------------------------------------------------------------------------------------------


def test_the_latency_of_a_question_alone():
    """Behind a token are 20 of its branch on average; there are four rounds of two probes."""
    assert step(2, 30) == 4.4 + 3  # bytes
    assert read(10, 5) == pytest.approx(2.4 + 3)  # FLOP
    by_hand = read(PROMPT, 5) + 40 * step(2, 30) + 4 * (ANSWER * step(2, 30) + read(2 * SUFFIX, 30))
    assert cost_of("latency").of(EPISODE) == pytest.approx(by_hand)


def test_branches_that_are_read_later_are_waited_for():
    """The same branches one after the other: twice as many steps, each of one branch."""
    one_by_one = EPISODE._replace(critical_path=80)
    by_hand = read(PROMPT, 5) + 80 * step(1, 30) + 8 * (ANSWER * step(1, 30) + read(SUFFIX, 30))
    assert cost_of("latency").of(one_by_one) == pytest.approx(by_hand)
    assert cost_of("kv").of(one_by_one) == pytest.approx(4 * (PROMPT + 20) * by_hand)
    for kind in ("flops", "tokens"):
        assert cost_of(kind).of(one_by_one) == cost_of(kind).of(EPISODE)


@pytest.mark.parametrize("kind", ["tokens", "latency", "flops", "kv"])
def test_a_first_interval_alone_costs_an_interval(kind):
    first = Spent(10, 10, 1, 1, 1, interval=10, longest=100, critical_path=10)
    assert cost_of(kind).in_intervals(first) == 1
    ratio = cost_of(kind).of(EPISODE) / cost_of(kind).of(first)
    assert cost_of(kind).in_intervals(EPISODE) == pytest.approx(ratio)


def test_a_black_box_reads_prompts_and_prefixes_again():
    more = read(2 * PROMPT, 5) - read(PROMPT, 5) + 4 * read(2 * 2 * (PROMPT + 20), 15)
    alone, black_box = cost_of("latency").of(EPISODE), cost_of("latency", prefix_cached=False).of(EPISODE)
    assert black_box - alone == pytest.approx(more)


def test_a_shared_batch_takes_its_steps_together():
    by_hand = read(PROMPT, 5) + 40 * step(16, 30) + 4 * (ANSWER * step(16, 30) + read(2 * SUFFIX, 30))
    shared = cost_of("latency", batch=16)
    assert shared.of(EPISODE) == pytest.approx(by_hand)
    # Eight probes write two tokens each, and read five.
    flops = PROMPT * (200 + 8 * 5) + 8 * SUFFIX * (200 + 8 * 30)
    assert shared.device_seconds(EPISODE) == pytest.approx((80 + 16) * step(16, 30) / 16 + flops / 1000)
    assert cost_of("latency").device_seconds(EPISODE) == cost_of("latency").of(EPISODE)


def test_what_memory_does_not_hold_is_decoded_in_turns():
    """Two sequences of 30 tokens take 240 bytes; half of that is left beside the weights."""
    small = dataclasses.replace(MACHINE, memory=200.0 + 120.0)
    difference = cost_of("latency", small).of(EPISODE) - cost_of("latency").of(EPISODE)
    assert difference == pytest.approx(40 * (2 * step(1, 30) - step(2, 30)))
    of_two = [cost_of("latency", machine, batch=2).device_seconds(EPISODE) for machine in (small, MACHINE)]
    assert of_two[0] - of_two[1] == pytest.approx((80 + 16) * (2 * step(1, 30) - step(2, 30)) / 2)


def test_flops_and_byte_seconds():
    flops = (80 + 16) * (200 + 8 * 30) + PROMPT * (200 + 8 * 5) + 8 * SUFFIX * (200 + 8 * 30)
    assert cost_of("flops").of(EPISODE) == flops
    again = PROMPT * (200 + 8 * 5) + 2 * 8 * (PROMPT + 20) * (200 + 8 * 15)
    assert cost_of("flops", prefix_cached=False).of(EPISODE) == flops + again
    held = 4 * (PROMPT + 2 * 20)
    assert cost_of("kv").of(EPISODE) == pytest.approx(held * cost_of("latency").of(EPISODE))


def test_dollars_of_tokens_written_read_and_cached():
    pytest.importorskip("genai_prices")
    price = {"read": 2.5e-6, "cached": 1.25e-6, "written": 1e-5}
    fresh, again = PROMPT + 8 * SUFFIX, 2 * 8 * (PROMPT + 20) + PROMPT
    by_hand = (80 + 16) * price["written"] + fresh * price["read"] + again * price["cached"]
    assert cost_of("usd", model="openai:gpt-4o").of(EPISODE) == pytest.approx(by_hand)
    by_hand += again * (price["read"] - price["cached"])
    black_box = cost_of("usd", model="openai:gpt-4o", prefix_cached=False)
    assert black_box.of(EPISODE) == pytest.approx(by_hand)


def test_branches_that_ended_had_no_answer_forced():
    """Two branches of 35 tokens in four intervals each; a full read has one probe, its own answer."""
    whole = Spent(70, 35, 8, 2, 2, interval=10, longest=100)
    assert cost_of("flops").of(whole) == 70 * (200 + 8 * 27.5) + PROMPT * (200 + 8 * 5)


def test_nothing_costs_nothing():
    nothing = Spent(0, 0, 0, 0, 0, interval=10, longest=100)
    assert [cost_of(kind).of(nothing) for kind in ("latency", "flops", "kv")] == [0, 0, 0]


def test_profiles_are_what_their_sources_say():
    size = model_named("Qwen3-8B")
    assert size.kv_of_token == 2 * 36 * 8 * 128 * 2
    assert (size.weights, size.attention_flops) == (16.4e9, 4 * 36 * 32 * 128)
    alone = Spent(1000, 1000, 2, 0, 1, interval=500, longest=10_000)
    seconds = CostModel("latency", model="Qwen3-8B", prompt_tokens=0).of_models(["m"]).of_cells(0).of(alone)
    # Weights and half of the keys and values on average at 3.35 TB/s.
    assert seconds == pytest.approx(1000 * (16.4e9 + 500 * 147_456) / 3.35e12 + 16.4e9 / 3.35e12)


def test_width_is_not_free():
    steps = {
        name: CostModel("latency", model=name, prompt_tokens=0, answer_tokens=0)
        .of_models(["m"])
        .of_cells(0)
        .of(Spent(np.array([1, 64]) * 20_000, 20_000, 0, 0, 0, interval=500, longest=20_000))
        for name in ("Qwen3-8B", "Qwen3-0.6B")
    }
    assert {name: round(wide / alone) for name, (alone, wide) in steps.items()} == {
        "Qwen3-8B": 7,
        "Qwen3-0.6B": 32,
    }


# --- as episodes grow -----------------------------------------------------------------------------------

COUNTS = st.integers(0, 40)


@given(COUNTS, COUNTS, COUNTS, st.sampled_from(["tokens", "sequential_tokens", "probes", "branches"]))
def test_more_never_costs_less(branches, intervals, probes, which):
    """An episode that writes, waits, probes or opens more than another, and nothing less.

    Fewer at once hold fewer keys and values, so waiting longer for the same can cost fewer byte-seconds.
    """
    sequential = 10 * intervals
    spent = Spent(branches * sequential, sequential, branches * intervals, probes, branches, 10, 10_000)
    more = spent._replace(**{which: getattr(spent, which) + 10})
    if which == "tokens":
        more = more._replace(intervals=more.intervals + 1)
    elif which == "sequential_tokens":
        more = more._replace(tokens=more.tokens + 10, intervals=more.intervals + 1)
    for kind in ("latency", "flops", *["kv"] * (which != "sequential_tokens")):
        for settings in ({}, {"prefix_cached": False}, {"batch": 8}):
            cost = cost_of(kind, **settings)
            assert cost.of(more) >= cost.of(spent) * (1 - 1e-9), (kind, settings)


@given(st.integers(1, 1000))
def test_a_larger_batch_is_slower_for_one_and_faster_for_all(batch):
    one, two = (cost_of("latency", batch=size) for size in (batch, 2 * batch))
    assert two.of(EPISODE) >= one.of(EPISODE)
    assert two.device_seconds(EPISODE) <= one.device_seconds(EPISODE) * (1 + 1e-9)


@pytest.mark.parametrize("kind", ["latency", "flops", "kv"])
def test_traced_and_in_numpy_it_is_the_same(kind):
    models = CostModel(kind).of_models(["Qwen3-0.6B", "Qwen3-8B"])
    columns = Spent(*(np.array([of, 3 * of]) for of in EPISODE._replace(critical_path=60)))
    plain = models.of_cells(np.array([0, 1])).of(columns)
    traced = jax.jit(lambda model, spent: model.of_cells(jnp.array([0, 1])).of(spent))(models, columns)
    np.testing.assert_allclose(traced, plain, rtol=1e-5)


# --- evaluations ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def played():
    players = ["sc@1", "sc@4", "sc@16", "asc@8", "asc@16"]
    return at.evaluate(at.load("smollm2"), players, seeds=2, max_branches=16, cost="latency")


def test_rows_and_tables_are_about_the_cost(played):
    row = played.rows[-1]
    objective = Objective(unit="latency")
    of_last = objective.cost(played.plays[-1], played.dataset)
    assert row.cost == pytest.approx(of_last.mean())
    first = objective.cost(played.plays[0], played.dataset)[0]
    assert row.cost_ratio == pytest.approx(of_last.mean() / first.mean())
    assert row.cost_ratio_low < row.cost_ratio < row.cost_ratio_high
    assert row.objective == pytest.approx(row.accuracy - 1e-4 * row.cost)
    assert "latency, s" in str(played.table())
    assert max(map(len, str(played.table()).splitlines())) <= 80
    assert played.summary().column("cost")[-1].as_py() == row.cost
    assert played.paired().column("cost_ratio")[-1].as_py() == row.cost_ratio
    assert played.manifest()["objective"]["unit"] == "latency"


def test_what_was_waited_for_is_counted_where_the_cost_depends_on_it(played):
    for play in played.plays:
        np.testing.assert_array_equal(play.critical_path, play.sequential_tokens)
    other = at.evaluate("smollm2", "sc@1", seeds=1, cost="flops")
    assert other.plays[0].critical_path is None
    with pytest.raises(InputError, match="its episodes wait for; evaluate it with cost='kv'"):
        dataclasses.replace(other, objective=Objective(unit="kv")).table()


def test_frontiers_are_about_the_cost(played):
    rows = {row.value: row for row in played.rows if row.controller == "sc"}
    for comparison in played.frontier().comparisons:
        cost = pytest.approx(rows[comparison.value].cost)
        assert (comparison.cost_name, comparison.cost) == ("latency", cost)
    assert "latency ratio" in str(played.frontier().table())
    tokens = dataclasses.replace(played, objective=Objective()).frontier()
    for comparison in tokens.comparisons:
        cost = pytest.approx(rows[comparison.value].tokens)
        assert (comparison.cost_name, comparison.cost) == ("tokens", cost)
    assert "latency" not in str(tokens.table())


# --- bad input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "latencey"}, "unknown cost 'latencey'; did you mean 'latency'"),
        ({"hardware": "h100"}, "the hardware 'h100' has no profile; did you mean 'h100-sxm'"),
        ({"model": "Qwen3-7B"}, "the model 'Qwen3-7B' has no profile; did you mean 'Qwen3-"),
        ({"batch": -1}, "batch is -1, but it must be at least 1"),
        ({"prompt_tokens": -1}, "prompt_tokens is -1"),
        ({"answer_tokens": 10**400}, "answer_tokens is 1000.*must be between 0 and 2147483647"),
        ({"hardware": Hardware(0.0, 1.0, 1.0)}, "hardware.flops is 0.0"),
        (
            {"hardware": Hardware(1e-300, 1.0, 1.0)},
            "hardware.flops is 1e-300, .* of at least 0.001 and at most",
        ),
        ({"hardware": Hardware(1.0, 1.0, 1e300)}, "hardware.memory is 1e[+]300, "),
        ({"model": dataclasses.replace(MODEL, layers=-1)}, "model.layers is -1"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(InputError, match=message):
        CostModel(**settings)


@pytest.mark.parametrize("names", [[], None, "Qwen3-8B"])
def test_costs_are_of_a_list_of_models(names):
    with pytest.raises(InputError, match=r"names is .* must be a list of models"):
        CostModel("latency").of_models(names)


def test_a_model_without_a_profile_is_named():
    with pytest.raises(InputError, match="the model 'synthetic-S' has no profile"):
        at.evaluate("synthetic", "sc@1", seeds=1, cost="flops")


def test_a_model_that_memory_does_not_hold():
    with pytest.raises(InputError, match=r"the weights of Qwen3-32B take 6.56e\+10 bytes"):
        CostModel(hardware="laptop-cpu", model="Qwen3-32B").of_models(["m"])


def test_a_model_without_a_price_is_unpriced_and_not_free():
    pytest.importorskip("genai_prices")
    with pytest.raises(InputError, match="SmolLM2-135M-Instruct is unpriced"):
        at.evaluate("smollm2", "sc@1", seeds=1, cost="usd")
    with pytest.raises(InputError, match="model is a size, which has no price"):
        cost_of("usd")


def test_prices_need_a_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    with pytest.raises(InputError, match=r"a cost in US dollars needs genai_prices.*autotts-jax\[prices\]"):
        cost_of("usd", model="nobody:nothing")


def test_every_cost_has_a_unit():
    assert {kind: CostModel(kind).unit for kind in UNITS} == UNITS
    assert hardware_named("h100-sxm").memory == 80e9
