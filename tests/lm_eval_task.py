"""A generate task of lm-eval, run by its own command against a server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

TASK = """
task: sums
dataset_path: json
dataset_kwargs:
  data_files:
    test: {questions}
test_split: test
output_type: generate_until
repeats: {repeats}
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs:
  until: {until}
  do_sample: false
  temperature: 0.0
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
filter_list:
  - name: flexible-extract
    filter:
      - function: regex
        group_select: -1
        regex_pattern: "-?[0-9]+"
      - function: take_first
metadata:
  version: 1.0
"""
"""A task like gsm8k."""

ASKED = {"max_tokens": 256, "temperature": 0, "seed": 1234}
"""What lm-eval sends with each question, besides ``stop``; fewer tokens than many an interval has."""

UNTIL = ("Question:", "</s>", "<|im_end|>")


def run_lm_eval(
    address: str,
    model: str,
    questions: Sequence[str],
    folder: Path,
    until: Sequence[str] = UNTIL,
    repeats: int = 1,
) -> dict[str, dict]:
    """What lm-eval logs of each question, by its text."""
    file = folder / "sums.jsonl"
    file.write_text("".join(json.dumps({"question": text, "answer": "7"}) + "\n" for text in questions))
    (folder / "sums.yaml").write_text(
        TASK.format(questions=file, until=json.dumps(list(until)), repeats=repeats)
    )
    arguments = {"base_url": f"{address}/chat/completions", "model": model, "num_concurrent": 4}
    subprocess.run(
        [
            *(sys.executable, "-m", "lm_eval", "--model", "local-chat-completions"),
            *("--model_args", ",".join(f"{name}={value}" for name, value in arguments.items())),
            *("--tasks", "sums", "--include_path", folder, "--apply_chat_template"),
            *("--output_path", folder / "results", "--log_samples"),
        ],
        check=True,
        cwd=folder,
        env=os.environ
        | {"HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "cache"), "HF_HUB_OFFLINE": "1"},
    )
    (logged,) = (folder / "results").rglob("samples_sums_*.jsonl")
    samples = [json.loads(line) for line in logged.read_text().splitlines()]
    return {sample["doc"]["question"]: sample for sample in samples}
