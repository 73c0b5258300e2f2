"""Families of models, by their own chat templates: where thinking ends, and how an answer is forced."""

from pathlib import Path
from typing import NamedTuple

import pytest

from autotts_jax.collect.answers import extractor
from autotts_jax.collect.engine import ChatMessage, Completion, Finish
from autotts_jax.collect.thinking import CHANNELS, TAGS
from autotts_jax.collect.tokenizer import HubTokenizer
from autotts_jax.collect.trajectories import Sampling, Trajectories
from autotts_jax.errors import InputError

TEMPLATES = Path(__file__).parent / "fixtures" / "chat_templates"
ANSWER = "The final answer is \\boxed{"
PARAGRAPH = "\n\n" + ANSWER
CLOSED = "\n</think>\n\n" + ANSWER
SPECIAL = (
    *("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>"),
    *(
        "<|im_start|>",
        "<|im_end|>",
        "<｜Assistant｜>",
        "<｜User｜>",
        "<|eot_id|>",
        "<|end_header_id|>",
        "<|bos|>",
    ),
)
WHOLE = ("<think>", "</think>", "[THINK]", "[/THINK]", "assistant", "analysis", "final")
"""Other tokens; the first are no special ones in Qwen3 and DeepSeek either."""


class Family(NamedTuple):
    """What a model's replies look like, and what forces an answer from them.

    Attributes:
        template: the file of its chat template.
        kwargs: arguments of the template.
        prompt: the end of the prompt.
        reply: a reply to its end.
        thought: its thinking.
        forced: what is put after a part of its thinking, or of all of it where there is none.
    """

    template: str
    kwargs: dict
    prompt: str
    reply: str
    thought: str
    forced: str

    @property
    def end(self):
        """What ends the thinking."""
        return "<|channel|>final<|message|>" if "<|channel|>" in self.forced else "</think>"


FAMILIES = {
    "Qwen3": Family(
        "qwen3",
        {},
        "<|im_start|>assistant\n",
        "<think>\nIs it 5? No.\n</think>\n\nIt is 12.<|im_end|>",
        "Is it 5? No.",
        CLOSED,
    ),
    "Qwen3 that does not think": Family(
        "qwen3",
        {"enable_thinking": False},
        "<|im_start|>assistant\n<think>\n\n</think>\n\n",
        "It is 12, because 7 + 5 is 12.<|im_end|>",
        "",
        PARAGRAPH,
    ),
    "Qwen3-2507-Instruct": Family(
        "qwen3_instruct_2507",
        {},
        "<|im_start|>assistant\n",
        "It is 12, because 7 + 5 is 12.<|im_end|>",
        "",
        PARAGRAPH,
    ),
    "DeepSeek-R1-Distill": Family(
        "deepseek_r1_distill",
        {},
        "<｜Assistant｜><think>\n",
        "Is it 5? No.\n</think>\n\nIt is 12.<|im_end|>",
        "Is it 5? No.",
        CLOSED,
    ),
    "DeepSeek-V3.1": Family(
        "deepseek_v3_1",
        {},
        "<｜Assistant｜><think></think>",
        "It is 12, because 7 + 5 is 12.<|im_end|>",
        "",
        PARAGRAPH,
    ),
    "DeepSeek-V3.1 that thinks": Family(
        "deepseek_v3_1",
        {"thinking": True},
        "<｜Assistant｜><think>",
        "Is it 5? No.</think>It is 12.<|im_end|>",
        "Is it 5? No.",
        CLOSED,
    ),
    "gpt-oss": Family(
        "gptoss",
        {"reasoning_effort": "high"},
        "<|start|>assistant",
        "<|channel|>analysis<|message|>Is it 5? No."
        "<|end|><|start|>assistant<|channel|>final<|message|>It is 12.<|return|>",
        "Is it 5? No.",
        CHANNELS.close + ANSWER,
    ),
    "Llama 3.1": Family(
        "llama3_1",
        {},
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        "It is 12, because 7 + 5 is 12.<|eot_id|>",
        "",
        PARAGRAPH,
    ),
}
every = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


@pytest.fixture(scope="module")
def hub():
    """Makes a model's tokenizer, a token for each byte and each mark."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())

    def make(template):
        bytewise = Tokenizer(models.BPE(vocab={byte: i for i, byte in enumerate(alphabet)}, merges=[]))
        bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        bytewise.decoder = decoders.ByteLevel()
        bytewise.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
        bytewise.add_tokens([AddedToken(text, normalized=False) for text in WHOLE])
        return transformers.PreTrainedTokenizerFast(
            tokenizer_object=bytewise, bos_token="<|bos|>", chat_template=template
        )

    return make


class Replying:
    """Writes a reply, and 7 where an answer is forced."""

    model, max_model_len, running = "replying", 1 << 20, 0

    def __init__(self, tokenizer, reply):
        self.tokenizer, self.reply = tokenizer, tokenizer.encode(reply)
        self.prompt, self.forced = (), []

    def generate(self, requests, _cancel=None):
        return [self.complete(request) for request in requests]

    def complete(self, request):
        if request.stop:
            self.forced.append(request.prompt)
            return Completion(self.tokenizer.encode("7}"), "7}", Finish.stop)
        self.prompt = self.prompt or request.prompt
        begun = len(request.prompt) - len(self.prompt)
        tokens = self.reply[begun : begun + request.max_tokens]
        ended = begun + len(tokens) == len(self.reply)
        return Completion(tokens, self.tokenizer.decode(tokens), Finish.stop if ended else Finish.length)


@pytest.fixture
def read(hub):
    """Reads a branch of a family to its end."""

    def run(family, interval=8, question="7 + 5?", think_end=None, **settings):
        raw = hub((TEMPLATES / f"{family.template}.jinja").read_text())
        engine = Replying(HubTokenizer(raw, family.kwargs, think_end), family.reply)
        sampling = Sampling(interval, max_tokens=400, **settings)
        trajectories = Trajectories(engine, question, sampling, extractor("auto"))
        trajectories.read({0: sampling.max_depth})
        return trajectories, engine, raw.decode

    return run


@every
@pytest.mark.parametrize("interval", [1, 8])
def test_an_answer_is_forced_as_the_family_writes_it(read, family, interval):
    trajectories, engine, decode = read(family, interval)
    prompt = decode(engine.prompt)
    assert prompt.endswith(family.prompt)
    assert prompt.count("7 + 5?") == 1
    assert len(engine.forced) >= 2
    for depth, asked in enumerate(engine.forced, 1):
        written = decode(engine.reply[: depth * interval])
        if not family.thought or family.end in written:
            assert decode(asked) == prompt + written + PARAGRAPH
        else:  # the marks that end thinking are there once, wherever they were cut
            assert decode(asked) == prompt + written.partition("<|end|>")[0] + family.forced
    assert trajectories[0].final.answer == "12", "not the 5 of the thinking"


@every
def test_thinking_is_told_from_what_is_said(read, family):
    trajectories, engine, _ = read(family)
    thought, said = (engine.tokenizer.thinking or TAGS).split(trajectories.text(0))
    assert thought == family.thought
    assert said.startswith("It is 12")
    assert "<" not in said
    shown = trajectories.answered(0, 2, "7")
    assert shown.endswith(f"{ANSWER}7}}")
    assert (family.end in shown) == bool(family.thought)


def test_the_arguments_of_the_chat_template_reach_it(read):
    prompts = [
        decode(engine.prompt)
        for kwargs in ({}, {"reasoning_effort": "low"})
        for _, engine, decode in [read(FAMILIES["gpt-oss"]._replace(kwargs=kwargs))]
    ]
    assert ["Reasoning: medium" in prompts[0], "Reasoning: low" in prompts[1]] == [True, True]
    assert "Current date: 2026-01-01" in prompts[0], "the same every day"


@pytest.mark.parametrize("name", ["enable_thinkin", "reasoning_effort", "messages"])
def test_an_argument_that_the_chat_template_would_ignore_is_refused(hub, name):
    raw = hub((TEMPLATES / "qwen3.jinja").read_text())
    with pytest.raises(InputError, match=f"chat template takes no argument '{name}'"):
        HubTokenizer(raw, {name: "x"})


def test_deepseek_s_own_end_of_the_prompt_is_understood(hub):
    template = (TEMPLATES / "deepseek_v3_1.jinja").read_text().replace("'<think></think>'", "'</think>'")
    engine = Replying(HubTokenizer(hub(template)), "It is 12, because 7 + 5 is 12.")
    Trajectories(engine, "7 + 5?", Sampling(8, max_tokens=80), extractor("auto")).read({0: 1})
    (asked,) = map(engine.tokenizer.decode, engine.forced)
    assert asked.endswith("</think>It is 12" + PARAGRAPH)


def test_the_end_of_thinking_can_be_given(read):
    family = FAMILIES["Llama 3.1"]._replace(reply="[THINK]Is it 5? No.[/THINK]It is 12.")
    trajectories, engine, decode = read(family, think_end="[/THINK]")
    assert decode(engine.forced[0]).endswith("[THINK]Is it 5\n[/THINK]" + PARAGRAPH)
    assert decode(engine.forced[-1]).endswith("[/THINK]It" + PARAGRAPH)
    assert trajectories[0].final.answer == "12"
    assert engine.tokenizer.thinking.split(trajectories.text(0)) == ("Is it 5? No.", "It is 12.")
    _, silent, decode = read(FAMILIES["Qwen3"], think_end="")
    assert decode(silent.forced[0]).endswith("<think>\nIs it " + PARAGRAPH)


def test_a_prompt_template_surrounds_the_last_question(read):
    ask = "Solve this: {question}\nPut the answer in \\boxed{}."
    turns = (ChatMessage("user", "Hi."), ChatMessage("assistant", "Hello."), ChatMessage("user", "7 + 5?"))
    _, engine, decode = read(FAMILIES["Llama 3.1"], question=turns, prompt_template=ask)
    assert decode(engine.prompt).count("Solve this") == 1
    assert "Solve this: 7 + 5?\nPut the answer in \\boxed{}.<|eot_id|>" in decode(engine.prompt)
    with pytest.raises(InputError, match=r"has no place for the question; write \{question\} there"):
        Sampling(prompt_template="Solve {problem}")
