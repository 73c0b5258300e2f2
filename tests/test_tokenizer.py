"""A model's own tokenizer, with chat templates as models have them."""

import pytest

from autotts_jax.collect.engine import ChatMessage
from autotts_jax.collect.tokenizer import HubTokenizer
from autotts_jax.errors import InputError

TURNS = """
{%- for message in messages %}<|{{ message.role }}|>{{ message.content }}{% endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}
"""
ALTERNATING = """
{%- for message in messages %}
{%- if (message.role == "user") != (loop.index0 % 2 == 0) %}
{{- raise_exception("roles must alternate") }}{% endif %}
{%- endfor %}
"""
CONVERSATION = (
    ChatMessage("system", "Be brief."),
    ChatMessage("user", "5 + 5?"),
    ChatMessage("assistant", "10"),
    ChatMessage("user", "and 6?"),
)


@pytest.fixture(scope="module")
def tokenizer():
    """Makes the tokenizer of a chat template."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytewise = Tokenizer(models.BPE(vocab={byte: i for i, byte in enumerate(alphabet)}, merges=[]))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bytewise.decoder = decoders.ByteLevel()

    def make(template, **special):
        return HubTokenizer(
            transformers.PreTrainedTokenizerFast(tokenizer_object=bytewise, chat_template=template, **special)
        )

    return make


def test_the_end_of_a_text_is_a_token_without_text(tokenizer):
    plain = tokenizer(TURNS)
    assert (plain.end, plain.vocab_size) == (None, 256)
    ended = tokenizer(TURNS, eos_token="<|end|>")
    assert (ended.end, ended.vocab_size) == (256, 257)
    assert ended.encode("5<|end|>") == (*ended.encode("5"), ended.end)
    assert ended.decode([ended.end]) == ""


def test_a_conversation_goes_through_the_model_s_chat_template(tokenizer):
    turns = tokenizer(TURNS)
    told = turns.decode(turns.chat(CONVERSATION))
    assert told == "<|system|>Be brief.<|user|>5 + 5?<|assistant|>10<|user|>and 6?<|assistant|>"


def test_a_conversation_that_the_template_refuses_is_an_error_of_the_user(tokenizer):
    with pytest.raises(InputError, match="chat template refuses the messages: roles must alternate"):
        tokenizer(ALTERNATING).chat(CONVERSATION)
