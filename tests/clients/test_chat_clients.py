"""Clients of OpenAI's API on a running server: lm-eval, LangChain, litellm, OpenAI's helpers, a chat."""

from __future__ import annotations

import asyncio
import os

import pytest

lm_eval = pytest.importorskip(
    "lm_eval", reason="lm-eval is not installed; make test-clients has an environment with it"
)
os.environ |= {"HF_HUB_OFFLINE": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}

import langchain_openai  # noqa: E402
import litellm  # noqa: E402
import openai  # noqa: E402
from lm_eval_task import ASKED, run_lm_eval  # noqa: E402

import autotts_jax as at  # noqa: E402
from autotts_jax.errors import InputWarning  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of the clients

QUESTIONS = [f"What is {n} + {n % 3}?" for n in range(20)]
SYSTEM = {"role": "system", "content": "Answer with a number."}
HARMLESS = {"temperature": 0, "stop": ["Question:"]}


@pytest.fixture(scope="module")
def client(address):
    with openai.OpenAI(base_url=address, api_key="none") as client:
        yield client


def user(text):
    return {"role": "user", "content": text}


@pytest.mark.parametrize("model", ["sim", "sim:sc@4", "sim:plain"])
def test_a_generate_task_of_lm_eval(address, client, tmp_path, model):
    samples = run_lm_eval(address, model, QUESTIONS, tmp_path)
    assert list(samples) == QUESTIONS
    found = {question: sample["filtered_resps"][0] for question, sample in samples.items()}
    for question in QUESTIONS[::5]:
        reply = client.chat.completions.create(model=model, messages=[user(question)], **ASKED)
        assert found[question] == reply.choices[0].message.content.rstrip("} ")[-1]
        assert model == "sim:plain" or found[question] == reply.autotts["answer"]


def test_what_lm_eval_logged_is_imported_and_evaluated(address, tmp_path):
    samples = run_lm_eval(address, "sim:plain", QUESTIONS, tmp_path, repeats=4)
    with pytest.warns(InputWarning, match="a summary, without completions"):
        imported = at.import_answers(tmp_path / "results", tmp_path / "own.npz", model="sim")
    assert imported.layout.endswith(" in resps[*][*]; question doc.question, gold target")
    dataset = imported.dataset
    assert [question.text for question in dataset.questions] == list(samples)
    assert {question.gold for question in dataset.questions} == {"7"}
    assert dataset.matrix.tokens.shape == (len(QUESTIONS), 4)
    assert at.evaluate(dataset, ["sc@4"], seeds=1).rows


def test_langchain(address):
    model = langchain_openai.ChatOpenAI(
        model="sim:cmc@0.5", base_url=address, api_key="none", temperature=0, max_tokens=3000, stop=["\n\n"]
    )
    turns = [
        ("system", "Answer with a number."),
        ("human", "What is 2 + 2?"),
        ("ai", "4"),
        ("human", "and 3?"),
    ]
    reply = model.invoke(turns)
    assert reply.content
    assert reply.response_metadata["finish_reason"] in ("stop", "length")
    assert reply.usage_metadata["output_tokens"] > 0
    assert "".join(part.content for part in model.stream(turns)) == reply.content
    assert asyncio.run(model.ainvoke(turns)).content == reply.content
    answers = model.batch(QUESTIONS[:4])
    assert all(answer.content for answer in answers)


def test_litellm(address):
    asked = {"model": "openai/sim:sc@4", "api_base": address, "api_key": "none", **HARMLESS}
    messages = [SYSTEM, user("What is 2 + 2?")]
    reply = litellm.completion(messages=messages, max_tokens=2000, **asked)
    assert reply.choices[0].message.content
    again = litellm.completion(messages=messages, max_tokens=2000, stream=True, **asked)
    told = "".join(part.choices[0].delta.content or "" for part in again)
    assert told == reply.choices[0].message.content
    later = asyncio.run(litellm.acompletion(messages=messages, max_tokens=2000, **asked))
    assert later.choices[0].message.content == told


def test_the_helpers_of_openai(address, client):
    asked = {"model": "sim:cmc@0.5", "messages": [SYSTEM, user("What is 2 + 2?")], **HARMLESS}
    raw = client.chat.completions.with_raw_response.create(**asked)
    assert raw.headers["x-autotts-ignored"] == "stop, temperature"
    content = raw.parse().choices[0].message.content
    with client.chat.completions.stream(**asked) as told:
        kinds = {event.type for event in told}
        whole = told.get_final_completion()
    assert {"content.delta", "content.done"} <= kinds
    assert whole.choices[0].message.content == content
    assert client.chat.completions.parse(**asked).choices[0].message.content == content

    async def ask():
        async with openai.AsyncOpenAI(base_url=address, api_key="none") as asking:
            replies = await asyncio.gather(*[asking.chat.completions.create(**asked) for _ in range(4)])
            names = [model.id async for model in asking.models.list()]
        assert {"sim", "sim:cmc", "sim:plain"} <= set(names)
        return replies

    assert {reply.choices[0].message.content for reply in asyncio.run(ask())} == {content}


@pytest.mark.parametrize("model", ["sim:cmc@0.5", "sim:single", "sim:plain"])
def test_a_chat_of_several_turns(client, model):
    """As front ends hold it: streamed, and every turn sent back as it came."""
    messages = [SYSTEM]
    for question in ("What is 2 + 2?", "and 3?", "Is that your last word?"):
        messages.append(user(question))
        parts = client.chat.completions.create(
            model=model, messages=messages, stream=True, stream_options={"include_usage": True}
        )
        *told, last = parts
        said = "".join(part.choices[0].delta.content or "" for part in told)
        assert said
        assert last.usage.completion_tokens > 0
        assert told[-1].choices[0].finish_reason == "stop"
        messages.append({"role": "assistant", "content": said, "tool_calls": None})
