"""A tiny random language model that a real engine serves: ``python -m tests.collect.tiny_model FOLDER``.

Its text is noise, but noise with the shape that the pipeline looks for: it ends after about a hundred tokens,
and after an opening brace it writes a digit or two and closes the brace.
"""

from __future__ import annotations

import sys
from pathlib import Path

END = "<|im_end|>"
SPECIAL = ("<|endoftext|>", "<|im_start|>", END)
CHAT = (
    "{% for message in messages %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}
"""With it, vLLM serves the model on a CPU without a network."""

WRITES = "0123456789abcdefghijklmnopqrstuvwxyz +-*/=.{}\n"


def build(folder: Path, seed: int = 1) -> Path:
    """Saves the model and its tokenizer, a token for each byte; the same seed gives the same model."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = _tokenizer()
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        initializer_range=0.1,
        eos_token_id=tokenizer.convert_tokens_to_ids(END),
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        _shape(model, tokenizer)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _tokenizer():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={byte: i for i, byte in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=SPECIAL[0], chat_template=CHAT
    )


def _shape(model, tokenizer) -> None:
    """Uses three hidden dimensions to say what the last token was and so what is likely to follow."""
    always, after_brace, after_digit = range(3)
    ids = {char: tokenizer.encode(char)[0] for char in WRITES.replace("\n", "").replace(" ", "")}
    digits = [ids[digit] for digit in "0123456789"]
    written = [token for char in WRITES for token in tokenizer.encode(char)]

    for name, weight in model.named_parameters():
        if name.endswith("o_proj.weight"):
            weight *= 2
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            weight[:3] = 0
        elif name.endswith("_proj.weight"):
            weight[:, :3] = 0
    embed, head = model.model.embed_tokens.weight, model.lm_head.weight
    embed *= 5
    embed[:, :3] = 0
    embed[:, always] = 1
    embed[ids["{"], after_brace] = 1
    embed[digits, after_digit] = 1

    head *= 2
    head[:, :3] = 0
    head[:, always] = -20
    head[written, always] = 0
    head[tokenizer.eos_token_id, always] = 1.2
    head[digits, after_brace] = 20
    head[ids["}"], after_digit] = 5


if __name__ == "__main__":
    build(Path(sys.argv[1]))
