"""Each client of the table of docs/how-to/serve.md as it is installed, against a running server.

LlamaIndex and instructor cannot be installed beside the others: ``make test-agents`` has them.
"""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pydantic
import pytest
from lm_eval_task import run_lm_eval

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of the clients
os.environ |= {"HF_HUB_OFFLINE": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "serve.md"
QUESTION = "What is 2 + 2?"
USER = [{"role": "user", "content": QUESTION}]
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": PARAMETERS}}]
VOTED, PLAIN = "sim:sc@4", "sim:plain"


class Sum(pydantic.BaseModel):
    answer: int


class OpenAI:
    def __init__(self, address):
        openai = pytest.importorskip("openai")
        self.client = openai.OpenAI(base_url=address, api_key="none", max_retries=0)

    def answers(self):
        return self.client.chat.completions.create(model=VOTED, messages=USER).choices[0].message.content

    def streams(self):
        parts = self.client.chat.completions.create(model=VOTED, messages=USER, stream=True)
        return "".join(part.choices[0].delta.content or "" for part in parts)

    def schema(self):
        asked = {"model": VOTED, "messages": USER, "response_format": Sum}
        return self.client.chat.completions.parse(**asked).choices[0].message.parsed

    def tools(self):
        return self.client.chat.completions.create(model=VOTED, messages=USER, tools=TOOLS)

    def continues(self):
        return self.client.completions.create(model=PLAIN, prompt=QUESTION).choices[0].text

    def responds(self):
        return self.client.responses.create(model=VOTED, input=QUESTION).output_text


class LangChain:
    def __init__(self, address):
        self.library = pytest.importorskip("langchain_openai")
        self.options = {"base_url": address, "api_key": "none"}
        self.model = self.library.ChatOpenAI(model=VOTED, **self.options)

    def answers(self):
        return self.model.invoke(QUESTION).content

    def streams(self):
        return "".join(part.content for part in self.model.stream(QUESTION))

    def schema(self):
        return self.model.with_structured_output(Sum, method="json_schema").invoke(QUESTION)

    def tools(self):
        return self.model.bind_tools(TOOLS).invoke(QUESTION)

    def continues(self):
        return self.library.OpenAI(model=PLAIN, **self.options).invoke(QUESTION)

    def responds(self):
        model = self.library.ChatOpenAI(model=VOTED, use_responses_api=True, **self.options)
        assert "".join(part.text for part in model.stream(QUESTION)) == model.invoke(QUESTION).text
        return model.invoke(QUESTION).text


class LlamaIndex:
    def __init__(self, address):
        library = pytest.importorskip("llama_index.llms.openai_like")
        options = {"api_base": address, "api_key": "none", "context_window": 8000, "max_retries": 0}
        self.model = library.OpenAILike(
            model=VOTED, is_chat_model=True, should_use_structured_outputs=True, **options
        )
        self.plain = library.OpenAILike(model=PLAIN, is_chat_model=False, **options)

    def answers(self):
        return self.model.complete(QUESTION).text

    def streams(self):
        return "".join(part.delta or "" for part in self.model.stream_complete(QUESTION))

    def schema(self):
        return self.model.as_structured_llm(Sum).complete(QUESTION).raw

    def tools(self):
        return self.model.complete(QUESTION, tools=TOOLS)

    def continues(self):
        return self.plain.complete(QUESTION).text


class LiteLLM:
    def __init__(self, address):
        self.library = pytest.importorskip("litellm")
        self.options = {"api_base": address, "api_key": "none"}
        self.asked = {"model": f"openai/{VOTED}", "messages": USER, **self.options}

    def answers(self):
        return self.library.completion(**self.asked).choices[0].message.content

    def streams(self):
        parts = self.library.completion(stream=True, **self.asked)
        return "".join(part.choices[0].delta.content or "" for part in parts)

    def schema(self):
        reply = self.library.completion(response_format=Sum, **self.asked)
        return Sum.model_validate_json(reply.choices[0].message.content)

    def continues(self):
        model = f"text-completion-openai/{PLAIN}"
        return (
            self.library.text_completion(model=model, prompt=QUESTION, max_tokens=9, **self.options)
            .choices[0]
            .text
        )

    def responds(self):
        asked = {"model": f"openai/{VOTED}", "input": QUESTION, **self.options}
        return self.library.responses(**asked).output[0].content[0].text


class Instructor:
    def __init__(self, address):
        openai, self.library = pytest.importorskip("openai"), pytest.importorskip("instructor")
        self.client = openai.OpenAI(base_url=address, api_key="none", max_retries=0)
        self.asked = {"model": VOTED, "messages": USER, "response_model": Sum, "max_retries": 1}

    def _in(self, mode):
        return self.library.from_openai(self.client, mode=mode).chat.completions

    def streams(self):
        asking = self._in(self.library.Mode.JSON_SCHEMA)
        *_, last = asking.create_partial(**self.asked)
        return str(last.answer)

    def schema(self):
        return self._in(self.library.Mode.JSON_SCHEMA).create(**self.asked)

    def tools(self):
        return self._in(self.library.Mode.TOOLS).create(**self.asked)


class DSPy:
    def __init__(self, address):
        self.library = pytest.importorskip("dspy")
        self.options = {"api_base": address, "api_key": "none", "cache": False, "num_retries": 0}
        self.model = self.library.LM(f"openai/{VOTED}", **self.options)

    def answers(self):
        return self._texts(self.model(QUESTION))

    def continues(self):
        plain = self.library.LM(f"text-completion-openai/{PLAIN}", model_type="text", **self.options)
        return self._texts(plain(QUESTION))

    def responds(self):
        model = self.library.LM(f"openai/{VOTED}", model_type="responses", **self.options)
        return self._texts(model(QUESTION))

    def _texts(self, replies):
        return "".join(reply if isinstance(reply, str) else reply["text"] for reply in replies)


class LMEval:
    def __init__(self, address):
        pytest.importorskip("lm_eval")
        self.address = address

    def answers(self, folder):
        (sample,) = run_lm_eval(self.address, VOTED, [QUESTION], folder).values()
        return sample["filtered_resps"][0]


class InspectAI:
    def __init__(self, address):
        pytest.importorskip("inspect_ai")
        from inspect_ai.model import get_model

        self.options = {"base_url": address, "api_key": "none"}
        self.get_model = lambda provider="openai-api/autotts", **more: get_model(
            f"{provider}/{VOTED}", **self.options, **more
        )

    def _generate(self, config=None, tools=(), **options):
        from inspect_ai.model import GenerateConfig

        async def generate():
            config_ = GenerateConfig(max_retries=0, **(config or {}))
            return await self.get_model(**options).generate(QUESTION, config=config_, tools=list(tools))

        return asyncio.run(generate()).completion

    def answers(self):
        return self._generate()

    def streams(self):
        return self._generate(stream=True)

    def schema(self):
        from inspect_ai.model import ResponseSchema
        from inspect_ai.util import json_schema

        form = ResponseSchema(name="sum", json_schema=json_schema(Sum))
        return Sum.model_validate_json(self._generate({"response_schema": form}))

    def tools(self):
        from inspect_ai.tool import ToolInfo

        return self._generate(tools=[ToolInfo(name="add", description="Adds.")])

    def responds(self):
        return self._generate(provider="openai", responses_api=True)


CLIENTS = {
    "openai": OpenAI,
    "LangChain": LangChain,
    "LlamaIndex": LlamaIndex,
    "litellm": LiteLLM,
    "instructor": Instructor,
    "DSPy": DSPy,
    "lm-eval": LMEval,
    "inspect-ai": InspectAI,
}
CELLS = ("answers", "streams", "schema", "tools", "continues", "responds")


def test_the_page_says_what_is_tested():
    page = PAGE.read_text(encoding="utf-8")
    for name, client in CLIENTS.items():
        (row,) = re.findall(rf"^\| {name} \|(.*)\|$", page, re.MULTILINE)
        told = [re.match(r" (yes|refused|–)", cell)[1] for cell in row.split("|")]
        tested = {cell: "refused" if cell == "tools" else "yes" for cell in CELLS if hasattr(client, cell)}
        assert told == [tested.get(cell, "–") for cell in CELLS]


@pytest.mark.parametrize(
    ("name", "cell"),
    [(name, cell) for name, client in CLIENTS.items() for cell in CELLS if hasattr(client, cell)],
)
def test_a_cell_of_the_table(address, tmp_path, name, cell):
    client = CLIENTS[name](address)
    if cell == "tools":
        with pytest.raises(Exception, match="sim:plain passes it on"):
            client.tools()
    elif cell == "schema":
        assert client.schema().answer in range(10)
    else:
        call = getattr(client, cell)
        assert re.search("[0-9]", call(tmp_path) if name == "lm-eval" else call())
