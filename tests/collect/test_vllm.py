"""The pipeline and live controllers on a real vLLM."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from live_signals import assert_live_shows

from autotts_jax.collect import (
    Cancelled,
    ChatMessage,
    EngineError,
    Finish,
    LocalWorkers,
    MathGrader,
    Plan,
    Problem,
    Request,
    Sampling,
    Store,
    VLLMEngine,
    collect_missing,
    last_depth,
)
from autotts_jax.errors import InputError
from autotts_jax.experiments import answer_questions
from autotts_jax.live import answer
from autotts_jax.policies import CONTROLLERS, select
from autotts_jax.replay import SIGNALS, BranchOrders, read_files
from autotts_jax.testing import check_engine

pytest.importorskip("vllm", reason="vLLM is not installed; make test-collect has an environment with it")
pytestmark = pytest.mark.filterwarnings("ignore")  # of vLLM

WIDTH = 16
PLAN = Plan(
    "tiny-qwen3",
    "sums",
    tuple(Problem(f"What is {n} + {n}?", str(2 * n)) for n in range(1, 5)),
    num_branches=WIDTH,
    chunk=8,
    sampling=Sampling(interval=16, max_tokens=160, seed=5, probe_tokens=8, probe_tail=8, signals=SIGNALS),
)
OWN = f"{Path(__file__).parents[2] / 'examples' / 'my_controller.py'}:first_finishers@0.5"
VALUES = {"cmc": 0.3, "distilled": 0.3, "single": 2, "dynasor": 2, "deer": 0.9, "eat": 0.1}
"""Values of families where it is not the width."""
SCORED = ("weighted-majority", "best-of-n")
"""Families that read the score of a verifier, which no engine gives."""
PLAYERS = (
    *(f"{name}@{VALUES.get(name, WIDTH)}" for name in CONTROLLERS if name not in SCORED),
    "cmc@0",
    "neural@5e-5",
    OWN,
)


@pytest.fixture(scope="module")
def run(engine, tmp_path_factory):
    """A finished collection, and what the engine did for it."""
    told = []
    with Store.writing(tmp_path_factory.mktemp("run") / "run", PLAN, {}) as run:
        collect_missing(run, LocalWorkers(engine), told.append)
        run.export()
    return run, told[-1].usage


def requests(engine, count, seed=0, tokens=40):
    prompt = engine.tokenizer.chat([ChatMessage("user", "What is 1 + 2?")])
    return [Request(prompt, tokens, temperature=0.7, seed=seed + n) for n in range(count)]


def test_it_keeps_the_contract_of_engines(engine):
    check_engine(engine, close=False)


def test_a_request_is_continued_alike_whatever_runs_beside_it(engine):
    alone = [engine.generate([request])[0] for request in requests(engine, 6)]
    together = engine.generate([*requests(engine, 20, seed=100), *requests(engine, 6)])[20:]
    assert [written.tokens for written in together] == [written.tokens for written in alone]
    assert len({written.tokens for written in alone}) == 6


def test_the_parts_of_a_completion_fit_together(engine):
    for written in engine.generate(requests(engine, 30, tokens=100)):
        assert written.text == engine.tokenizer.decode(written.tokens)
        assert (written.finish is Finish.length) == (len(written.tokens) == 100)
        assert written.logprobs is None
    asking = dataclasses.replace(requests(engine, 1)[0], logprobs=True, top_logprobs=True)
    (written,) = engine.generate([asking])
    assert all(-10 < logprob < 0 for logprob in written.logprobs)
    assert all(2 < confidence < 20 for confidence in written.confidences)
    assert all(0 < entropy < 5 for entropy in written.entropies)
    forced = Request(engine.tokenizer.encode("The answer is \\boxed{"), 20, stop=("}",))
    (written,) = engine.generate([forced])
    assert written.text.endswith("}")
    assert written.finish is Finish.stop


def test_the_prefix_is_cached(engine):
    prompt = engine.tokenizer.encode("x" * 200)
    engine.generate([Request(prompt, 1)])
    (written,) = engine.generate([Request(prompt + engine.tokenizer.encode("y"), 1)])
    assert written.cached >= 160


def test_requests_of_one_who_has_gone_are_dropped(engine):
    cancel = threading.Event()
    threading.Timer(0.3, cancel.set).start()
    with pytest.raises(Cancelled):
        engine.generate([dataclasses.replace(r, max_tokens=900) for r in requests(engine, 200)], cancel)
    deadline = time.monotonic() + 10
    while engine.running and time.monotonic() < deadline:
        time.sleep(0.05)
    assert engine.running == 0
    assert len(engine.generate(requests(engine, 2))) == 2


def test_a_request_that_cannot_be_is_refused_and_the_others_go_on(engine):
    with pytest.raises(EngineError, match="refuses"):
        engine.generate([*requests(engine, 3), Request(tuple(range(5)) * 400, 10)])
    assert len(engine.generate(requests(engine, 2))) == 2
    assert engine.running == 0


@pytest.mark.parametrize(
    ("model", "options"), [("nowhere", {}), (None, {"colour": "red"}), (None, {"max_model_len": -5})]
)
def test_what_vllm_cannot_load_is_one_error(model, options, request):
    with pytest.raises(InputError, match="vLLM cannot load"):
        VLLMEngine(model or str(request.getfixturevalue("model")), options)


def test_a_collection_is_complete_and_says_something(run):
    finished, usage = run
    dataset = read_files(str(finished.folder))
    assert dataset.matrix.answers.shape[:2] == (4, WIDTH)
    for unit in PLAN.units():
        for branch in finished.read(unit).branches:
            assert len(branch.probes) == last_depth(branch.tokens, 16) - 1
    assert len(dataset.questions[0].vocabulary) > 10
    assert usage.cached > 0.3 * usage.prompted
    assert json.loads((finished.folder / "matrix.json").read_text())[0]["probe_freq"] == 16


def test_a_collection_again_is_the_same_whatever_runs_at_once(engine, run, tmp_path):
    plan = dataclasses.replace(PLAN, chunk=4)
    with Store.writing(tmp_path / "run", plan, {}) as again:
        collect_missing(again, LocalWorkers(engine, in_flight=4))
        again.export()
    for name in ("matrix.json", "matrix.npz"):
        assert (again.folder / name).read_bytes() == (run[0].folder / name).read_bytes()


@pytest.mark.parametrize("whole", [False, True])
def test_live_pools_show_the_signals_of_the_collection(whole, engine, run):
    assert_live_shows(engine, PLAN, read_files(str(run[0].folder)), whole)


@pytest.mark.parametrize("spec", PLAYERS)
def test_a_live_run_is_the_replay_of_the_collection(spec, engine, run):
    dataset = read_files(str(run[0].folder))
    orders = BranchOrders(np.arange(WIDTH, dtype=np.int32)[None, None], np.zeros(len(dataset), np.int32))
    play = select(spec).play(dataset, orders)
    with MathGrader(1) as grader:
        for row, asked in enumerate(PLAN.questions):
            live = answer(engine, asked.text, spec, grader=grader, sampling=PLAN.sampling, max_branches=WIDTH)
            assert (live.answer or "ERR") == play.answer[0, 0, row]
            shown = {text for decision in live.decisions for text in decision.answers if text}
            assert shown <= set(dataset.questions[row].vocabulary)
            assert live.tokens == play.tokens[0, 0, row]
            assert live.rounds == play.rounds[0, 0, row]
            assert live.stop_reason == play.stop_reason[0, 0, row]
            assert len(live.texts) == play.branches[0, 0, row]
    assert engine.running == 0


def test_many_questions_are_those_of_the_collection(engine, run, tmp_path):
    found = answer_questions(
        engine,
        PLAN.questions,
        "cmc@0.3",
        out=tmp_path / "live",
        collection=run[0].folder,
        sampling=PLAN.sampling,
        max_branches=WIDTH,
        at_once=3,
    )
    replay = found.summary()["replay"]
    assert replay["questions"] == replay["same_answer"] == replay["same_tokens"] == 4
    assert replay["same_stop_reason"] == 4
    assert all(row.seconds > 0 for row in found.answered)
