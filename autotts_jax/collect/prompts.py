"""Questions in prompts that a chat template was applied to already."""

from __future__ import annotations

import re

_USER = re.compile(
    r"""
    <\|im_start\|>user\n | <\|start_header_id\|>user<\|end_header_id\|> | <start_of_turn>user\n
    | <\|start\|>user<\|message\|> | <\|user\|> | <｜User｜> | \[INST\]
    | (?:^|\n)(?:user|User|USER|Human)(?:\n|:[ \n]) | (?:^|\n)\#\#\#[ ](?:Instruction|Question|User):
    """,
    re.VERBOSE,
)
_ASSISTANT = re.compile(
    r"""
    \s* (?: <\|im_end\|> | <\|eot_id\|> | <end_of_turn> | <\|end\|> | <\|assistant\|> | <｜Assistant｜>
    | \[/INST\] | \n(?:assistant|Assistant|ASSISTANT)(?:\n|:|\Z) | \n\#\#\#[ ](?:Response|Answer|Assistant): )
    """,
    re.VERBOSE,
)


def question_in(prompt: str) -> str:
    """Finds the question in a prompt.

    Args:
        prompt: a question, or what a chat template made of one. Special tokens may have been left out, so
            that names of roles stand alone on their lines.

    Returns:
        What the user said last; the prompt itself where nothing shows that a template was applied.
    """
    turns = list(_USER.finditer(prompt))
    for turn in reversed(turns):
        if reply := _ASSISTANT.search(prompt, turn.end()):
            return prompt[turn.end() : reply.start()].strip() or prompt
    return prompt
