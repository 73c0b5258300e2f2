"""Own answers and completions: any layout gives the same matrix, and damage gives one clear error."""

import collections
import csv
import gzip
import json
import math
import re
import shlex
import warnings
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_lists import NOBODY, majority
from scipy.special import betainc

from autotts_jax import discover, load, make
from autotts_jax.collect import import_answers, read_completions
from autotts_jax.collect.layouts import entries, parse_path, recognise, spelled, values
from autotts_jax.collect.prompts import question_in
from autotts_jax.collect.records import FileRecord
from autotts_jax.collect.trajectories import last_depth
from autotts_jax.core.pool import ReplayPool
from autotts_jax.discovery import ablate, distill
from autotts_jax.errors import DataError, InputError, InputWarning
from autotts_jax.experiments.evaluation import branch_orders, default_controllers, evaluate
from autotts_jax.experiments.tracing import trace
from autotts_jax.policies.players import as_players
from autotts_jax.replay import NONE, cell_statistics, read_compact
from autotts_jax.replay.statistics import question_statistics

QUESTIONS = {"How many pens are sold in 6 days?": "42", "What is 15 more than 28?": "43"}
ANSWERS = (("44", "42", "42"), ("43", "44", "43"))
TEXTS = [
    [f"<think>step {7 * n}.</think> So it is \\boxed{{{a}}}." for n, a in enumerate(row)] for row in ANSWERS
]
TOKENS = ((100, 250, 310), (90, 420, 100))

pytestmark = pytest.mark.filterwarnings("ignore:.* nothing says how many tokens")


def conversation(*turns):
    return [
        {"role": role, "content": content}
        for role, content in zip(("user", "assistant"), turns, strict=False)
    ]


def each(make):
    """Records with all completions of a question."""
    return [make(q, n, gold) for n, (q, gold) in enumerate(QUESTIONS.items())]


def rows(make):
    """Records with one completion."""
    return [
        make(question, text, gold, TOKENS[n][b])
        for n, (question, gold) in enumerate(QUESTIONS.items())
        for b, text in enumerate(TEXTS[n])
    ]


LAYOUTS = {
    "rows": rows(lambda q, c, g, t: {"question": q, "completion": c, "answer": g, "num_tokens": t}),
    "rows of other names": rows(
        lambda q, c, g, t: {"prompt": q, "generated_text": c, "label": g, "n_tokens": t}
    ),
    "rows without telling names": rows(
        lambda q, c, g, t: {"q": q, "said": c, "ref": "", "gold": g, "tokens": t}
    ),
    "rows with templates": rows(
        lambda q, c, g, t: {
            "input": f"system\nBe kind\nuser\n{q}\nassistant\n",
            "output": c,
            "gts": g,
            "len": t,
        }
    ),
    "rows of conversations": rows(
        lambda q, c, g, t: {
            "prompt": conversation(q),
            "completion": [{"role": "assistant", "content": c}],
            "solution": g,
            "completion_length": t,
        }
    ),
    "one conversation": rows(
        lambda q, c, g, t: {
            "messages": conversation(q, c),
            "target": int(g),
            "usage": {"completion_tokens": t},
        }
    ),
    "from and value": rows(
        lambda q, c, g, t: {
            "conversations": [{"from": "human", "value": q}, {"from": "gpt", "value": c}],
            "ground_truth": g,
            "output_tokens": t,
        }
    ),
    "lists": each(lambda q, n, g: {"question": q, "samples": TEXTS[n], "gt_answer": g, "lengths": TOKENS[n]}),
    "lists in lists": each(
        lambda q, n, g: {
            "doc": {"question": q, "answer": f"work\n#### {g}"},
            "target": f"work\n#### {g}",
            "arguments": [[f"Question: {q}\nAnswer:", {"until": ["Question:"]}]],
            "resps": [TEXTS[n]],
            "filtered_resps": ["7"],
            "resp_tokens": [TOKENS[n]],
        }
    ),
    "objects": each(
        lambda q, n, g: {
            "prompt": q,
            "outputs": [
                {"index": b, "text": c, "token_ids": [1] * TOKENS[n][b], "finish_reason": "stop"}
                for b, c in enumerate(TEXTS[n])
            ],
            "reward_model": {"style": "rule", "ground_truth": g},
        }
    ),
    "keys that are numbers": each(
        lambda q, n, g: {
            "problem": q,
            "responses": {str(b): c for b, c in enumerate(TEXTS[n])},
            "expected_answer": g,
            "response_tokens": {str(b): t for b, t in enumerate(TOKENS[n])},
        }
    ),
    "texts beside their answers": each(
        lambda q, n, g: {
            "question": q,
            "gt": g,
            "gt_cot": "as",
            "code": TEXTS[n],
            "pred": ["7"] * 3,
            "len": TOKENS[n],
        }
    ),
    "columns with numbers": each(
        lambda q, n, g: {
            "problem": q,
            "answer": g,
            **{f"completion_{b}": c for b, c in enumerate(TEXTS[n])},
            **{f"completion_{b}_tokens": t for b, t in enumerate(TOKENS[n])},
        }
    ),
    "objects by names with numbers": each(
        lambda q, n, g: {
            "question": q,
            "gold": g,
            "runs": {f"run_{b}": {"text": c, "tokens": TOKENS[n][b]} for b, c in enumerate(TEXTS[n])},
        }
    ),
    "the one that was chosen beside all": each(
        lambda q, n, g: {
            "prompt": q,
            "gt_answer": g,
            "beams": TEXTS[n],
            "pred": TEXTS[n][1],
            "completion_tokens": TOKENS[n],
        }
    ),
    "pieces of completions": each(
        lambda q, n, g: {
            "request": {"prompt": q},
            "references": [{"output": {"text": g}}],
            "completions": [
                {"text": c, "num_tokens": TOKENS[n][b], "tokens": [{"text": "So"}, {"text": "it"}]}
                for b, c in enumerate(TEXTS[n])
            ],
        }
    ),
    "a label of the prompt": rows(
        lambda q, c, g, t: {
            "prompt": {"raw": q, "label": "p"},
            "vars": {"answer": g},
            "response": {"output": c, "tokenUsage": {"total": t + 9, "prompt": 9, "completion": t}},
        }
    ),
    "used": rows(
        lambda q, c, g, t: {
            "input": conversation(q),
            "output": {"role": "assistant", "content": c},
            "metadata": {"expected": g},
            "usage": {"input": 9, "output": t, "total": 9 + t},
        }
    ),
    "an index of the answer": each(
        lambda q, n, g: {
            "query": q,
            "gold_index": [0],
            "gold": [g],
            "predictions": TEXTS[n],
            "cont_tokens": [[5] * t for t in TOKENS[n]],
        }
    ),
    "answers": each(
        lambda q, n, g: {"question": q, "gold": g, "answers": list(ANSWERS[n]), "tokens": TOKENS[n]}
    ),
    "numbers": each(
        lambda q, n, g: {"question": q, "gold": g, "preds": [*map(int, ANSWERS[n])], "tokens": TOKENS[n]}
    ),
    "answers in objects": each(
        lambda q, n, g: {
            "question": q,
            "target": g,
            "runs": [
                {"answer": a, "cost": {"output_tokens": t}}
                for a, t in zip(ANSWERS[n], TOKENS[n], strict=True)
            ],
        }
    ),
    "rows of answers": [
        {"question": q, "final_answer": a, "answer": g, "seed": b, "tokens": t}
        for n, (q, g) in enumerate(QUESTIONS.items())
        for b, (a, t) in enumerate(zip(ANSWERS[n], TOKENS[n], strict=True))
    ],
    "numbered names": each(
        lambda q, n, g: (
            {"question": q, "answer": g}
            | {f"sample_{b}": c for b, c in enumerate(TEXTS[n])}
            | {"num_tokens": TOKENS[n]}
        )
    ),
    "several filters": [
        {"doc": {"question": q}, "target": g, "resps": [TEXTS[n]], "filter": name, "length": TOKENS[n]}
        for n, (q, g) in enumerate(QUESTIONS.items())
        for name in ("strict-match", "flexible-extract")
    ],
    "messages in parts": rows(
        lambda q, c, g, t: {
            "question": q,
            "target": [g],
            "result": {
                "type": "succeeded",
                "message": {
                    "role": "assistant",
                    "content": [{"type": "thinking", "thinking": "7"}, {"type": "text", "text": c}],
                    "stop_reason": "end_turn",
                    "usage": {"input_tokens": 9, "output_tokens": t},
                },
            },
        }
    ),
    "candidates in parts": rows(
        lambda q, c, g, t: {
            "question": q,
            "gold": g,
            "response": {
                "candidates": [
                    {
                        "content": {"parts": [{"text": c[:9]}, {"text": c[9:]}], "role": "model"},
                        "finishReason": "STOP",
                    }
                ],
                "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": t},
            },
        }
    ),
    "prompts by role": rows(
        lambda q, c, g, t: {
            "origin_prompt": [{"role": "HUMAN", "prompt": q}],
            "prediction": c,
            "gold": g,
            "output_tokens": t,
        }
    ),
    "models that answer": each(
        lambda q, n, g: {
            "doc": {"query": q, "choices": [g], "gold_index": 0},
            "gold": g,
            "model_response": {"text": TEXTS[n], "output_tokens": [[1] * t for t in TOKENS[n]]},
        }
    ),
    "output in items": rows(
        lambda q, c, g, t: {
            "question": q,
            "correct_answer": g,
            "correct": 1,
            "body": {
                "output": [
                    {"type": "reasoning", "summary": []},
                    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": c}]},
                ],
                "usage": {"input_tokens": 4, "output_tokens": t},
            },
        }
    ),
    "a solution by a model": rows(
        lambda q, c, g, t: {
            "problem": q,
            "generated_solution": c,
            "expected_answer": g,
            "predicted_answer": "7",
            "num_generated_tokens": t,
            "problem_source": "a book of many pages",
        }
    ),
    "lists of tokens": each(
        lambda q, n, g: {
            "question": q,
            "gold": g,
            "choices": [
                {"message": {"content": c}, "logprobs": {"content": [{"token": "so", "logprob": -1}] * t}}
                for c, t in zip(TEXTS[n], TOKENS[n], strict=True)
            ],
        }
    ),
    "lists of texts of tokens": each(
        lambda q, n, g: {
            "question": q,
            "doc": {"choices": [g]},
            "outputs": [
                {"text": c, "tokens": [{"text": "so"}] * t} for c, t in zip(TEXTS[n], TOKENS[n], strict=True)
            ],
        }
    ),
    "what a user said": rows(
        lambda q, c, g, t: {
            "problem": q,
            "user_message": f"Put your answer in a box. {q * 9}",
            "answer": f"{'I think. ' * 9}{c}",
            "gold_answer": g,
            "output_tokens": t,
        }
    ),
    "numbers in columns": each(
        lambda q, n, g: (
            {"problem": q, "answer": g}
            | {f"pred_{b}": int(a) if b else a for b, a in enumerate(ANSWERS[n])}
            | {f"len_{b}": t for b, t in enumerate(TOKENS[n])}
        )
    ),
    "texts beside their lengths": each(
        lambda q, n, g: {"question": q, "gold": g, "samples": list(zip(TEXTS[n], TOKENS[n], strict=True))}
    ),
    "pairs": each(
        lambda q, n, g: {
            "question": q,
            "gold": g,
            "all_answers": list(zip(ANSWERS[n], TOKENS[n], strict=True)),
        }
    ),
    "chat completions": each(
        lambda q, n, g: {
            "question": q,
            "gold": g,
            "response": {
                "choices": [
                    {"index": b, "message": {"role": "assistant", "content": c}, "finish_reason": "stop"}
                    for b, c in enumerate(TEXTS[n])
                ],
                "usage": {"prompt_tokens": 5, "completion_tokens": sum(TOKENS[n])},
            },
            "token_counts": TOKENS[n],
        }
    ),
}


def write(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def finals(dataset):
    """The final answers of each question."""
    ids = np.take_along_axis(dataset.matrix.answers, dataset.matrix.lengths[..., None], axis=2)[..., 0]
    return [
        tuple(map(question.answer, row.tolist()))
        for question, row in zip(dataset.questions, ids, strict=True)
    ]


def check(dataset, tokens=TOKENS):
    assert {question.text: question.gold for question in dataset.questions} == QUESTIONS
    assert finals(dataset) == list(ANSWERS)
    if tokens is not None:
        np.testing.assert_array_equal(dataset.matrix.tokens, tokens)


# --- layouts


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_is_recognised(tmp_path, name):
    imported = import_answers(write(tmp_path / "b.jsonl", LAYOUTS[name]), model="m")
    check(imported.dataset, None if name == "rows without telling names" else TOKENS)
    assert [cell.name for cell in imported.dataset.cells] == ["m/b"]
    assert not imported.dataset.cells[0].probes


@pytest.mark.parametrize("name", LAYOUTS)
def test_names_of_fields_may_be_capital(tmp_path, name):
    def renamed(value):
        if isinstance(value, dict):
            keep = value.keys() & {"role", "content", "from", "value", "type", "filter", "parts", "text"}
            return {key if keep else key.title().replace("_", ""): renamed(one) for key, one in value.items()}
        return [renamed(one) for one in value] if isinstance(value, list | tuple) else value

    imported = import_answers(write(tmp_path / "b.jsonl", map(renamed, LAYOUTS[name])))
    assert finals(imported.dataset) == list(ANSWERS)


def stored(folder, kind):
    records = LAYOUTS["objects"]
    lines = "".join(json.dumps(record) + "\n" for record in records).encode()
    listed = json.dumps(records).encode()
    if kind == "yaml":
        yaml = pytest.importorskip("yaml")
        listed = yaml.safe_dump(records).encode()
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pylist(records), folder / "b.parquet")
        return folder / "b.parquet"
    elif kind in ("stream.arrow", "file.arrow"):
        table = pa.Table.from_pylist(records)
        new = pa.ipc.new_stream if kind == "stream.arrow" else pa.ipc.new_file
        with pa.OSFile(str(folder / "b.arrow"), "wb") as file, new(file, table.schema) as writer:
            writer.write_table(table)
        return folder / "b.arrow"
    elif kind == "jsonl.zst":
        with pa.CompressedOutputStream(str(folder / "b.jsonl.zst"), "zstd") as file:
            file.write(lines)
        return folder / "b.jsonl.zst"
    contents = {
        "jsonl": lines,
        "json": listed,
        "yaml": listed,
        "jsonl.gz": gzip.compress(lines),
        "blank lines": b"\n\xef\xbb\xbf\n".replace(b"\xef\xbb\xbf", b"") + lines.replace(b"\n", b"\n\n"),
        "bom.json": b"\xef\xbb\xbf" + json.dumps(records, indent=2).encode(),
        "by key": json.dumps({f"q{n}": record for n, record in enumerate(records)}, indent=1).encode(),
        "in a list": json.dumps({"model": "m", "results": records}).encode(),
        "columns": json.dumps({key: [record[key] for record in records] for key in records[0]}).encode(),
    }
    ending = kind if "." in kind or kind in ("json", "jsonl", "yaml") else "json"
    path = folder / f"b.{ending}"
    path.write_bytes(contents[kind])
    return path


KINDS = ["jsonl", "json", "yaml", "parquet", "jsonl.gz", "jsonl.zst", "blank lines", "bom.json", "by key"]
KINDS += ["stream.arrow", "file.arrow"]


@pytest.mark.parametrize("kind", [*KINDS, "in a list", "columns"])
def test_a_file_may_be_stored_in_many_ways(tmp_path, kind):
    check(import_answers(stored(tmp_path, kind)).dataset)


def test_lists_and_lines_are_read_piece_by_piece(tmp_path, monkeypatch):
    monkeypatch.setattr("autotts_jax.collect.records._CHUNK", 7)
    for kind in ("json", "jsonl", "bom.json"):
        check(import_answers(stored(tmp_path, kind)).dataset)


@pytest.mark.parametrize("written", [json.dumps, repr])
def test_tables_hold_lists_as_text(tmp_path, written):
    with (tmp_path / "b.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["question", "answer", "responses", "num_tokens"])
        for n, (question, gold) in enumerate(QUESTIONS.items()):
            table.writerow([question, gold, written(TEXTS[n]), json.dumps(TOKENS[n])])
    check(import_answers(tmp_path / "b.csv").dataset, None)


def test_a_log_holds_its_records_in_a_list(tmp_path):
    samples = [
        {
            "id": n,
            "epoch": b,
            "input": question,
            "target": gold,
            "messages": conversation(question, TEXTS[n][b]),
            "output": {
                "choices": [
                    {"message": {"role": "assistant", "content": TEXTS[n][b]}, "stop_reason": "stop"}
                ],
                "usage": {"input_tokens": 3, "output_tokens": TOKENS[n][b], "total_tokens": 999},
            },
            "scores": {"match": {"value": "C", "answer": "7", "explanation": "It is longer than that."}},
        }
        for n, (question, gold) in enumerate(QUESTIONS.items())
        for b in range(3)
    ]
    log = {"status": "success", "eval": {"task": "sums"}, "stats": {"usage": [{"a": 1}]}, "samples": samples}
    path = tmp_path / "b.json"
    path.write_text(json.dumps(log), encoding="utf-8")
    check(import_answers(path).dataset)


LISTS_OF_ALL = LAYOUTS["lists"]
WRAPPED = {
    "below other objects": {"evalId": "e", "results": {"version": 3, "results": LAYOUTS["rows"]}},
    "runs": {"runs": [{"seed": b, "results": LAYOUTS["rows"][b::3]} for b in range(3)]},
    "by model": {"m": {f"p{n}": record for n, record in enumerate(LISTS_OF_ALL)}},
    "columns by index": {
        name: {str(n): record[name] for n, record in enumerate(LISTS_OF_ALL)} for name in LISTS_OF_ALL[0]
    },
    "rows of values": {
        "columns": [*LISTS_OF_ALL[0]],
        "index": [0, 1],
        "data": [[*record.values()] for record in LISTS_OF_ALL],
    },
    "by number beside others": {
        "accuracy": 0.5,
        "details": {"type": "all", **{str(n): record for n, record in enumerate(LISTS_OF_ALL)}},
    },
    "columns beside others": {
        "model": "m",
        **{name: [record[name] for record in LISTS_OF_ALL] for name in LISTS_OF_ALL[0]},
    },
}


@pytest.mark.parametrize("name", WRAPPED)
def test_records_are_found_inside_of_an_object(tmp_path, name):
    path = tmp_path / "b.json"
    path.write_text(json.dumps(WRAPPED[name]), encoding="utf-8")
    imported = import_answers(path)
    assert sorted(
        zip(imported.dataset.matrix.tokens.tolist(), finals(imported.dataset), strict=True)
    ) == sorted(zip(map(list, TOKENS), ANSWERS, strict=True))


def test_samples_by_number_below_questions_by_id(tmp_path):
    path = tmp_path / "b.json"
    path.write_text(
        json.dumps({str(n): {str(b): c for b, c in enumerate(row)} for n, row in enumerate(TEXTS)})
    )
    check(import_answers(path, questions=known_file(tmp_path)).dataset, None)


def test_several_models_in_one_object_are_not_mixed(tmp_path):
    path = tmp_path / "b.json"
    path.write_text(json.dumps({"model-a": LISTS_OF_ALL, "model-b": LISTS_OF_ALL}), encoding="utf-8")
    with pytest.raises(DataError, match=r"has a question in model-\w.question and in model-\w.question; if"):
        import_answers(path)


@pytest.mark.parametrize("names", [("qwen3-8b", "qwen3-4b"), ("easy", "hard")])
def test_lists_of_one_object_are_joined_but_not_models(tmp_path, names):
    path = tmp_path / "b.json"
    mixed = dict(zip(names, (LISTS_OF_ALL, LISTS_OF_ALL[:1]), strict=True))
    path.write_text(json.dumps(mixed), encoding="utf-8")
    with pytest.raises(
        DataError, match=rf"{names[1]}'?,.* row 1 has a question that .*{names[0]}'?,.* row 1"
    ):
        import_answers(path)
    others = [{**record, "question": f"What, {n}?"} for n, record in enumerate(LISTS_OF_ALL * 2)]
    path.write_text(json.dumps(dict(zip(names, (LISTS_OF_ALL, others), strict=True))), encoding="utf-8")
    assert len(import_answers(path).dataset.questions) == 6


def test_lists_of_several_files_are_joined_by_their_path(tmp_path):
    for n, record in enumerate(LISTS_OF_ALL):
        content = {"log": [{"step": 1}] * (2 * n), "results": {"rows": [record]}}
        (tmp_path / f"part{n}.json").write_text(json.dumps(content), encoding="utf-8")
    check(import_answers(tmp_path).dataset)


def test_keys_of_yaml_may_be_numbers(tmp_path):
    yaml = pytest.importorskip("yaml")
    path = tmp_path / "b.yaml"
    path.write_text(yaml.safe_dump(dict(enumerate(json.loads(json.dumps(LISTS_OF_ALL))))))
    check(import_answers(path).dataset)


@pytest.mark.parametrize(
    "names",
    [
        *(
            ("a/b", "c/b"),
            ("a-7b", "a-14b"),
            ("qwen3", "llama3"),
            ("o1/b", "o3/b"),
            ("gpt-3.5/b", "gpt-4.1/b"),
        ),
        *(("phi-3", "phi-4"), ("smollm-135m", "smollm-360m"), ("beefeed", "cafedad"), ("q-0.5b", "q-1.5b")),
        ("gpt-4o-2024-05-13", "gpt-4o-2024-08-06"),
    ],
)
def test_files_of_several_models_are_not_mixed(tmp_path, names):
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / f"{name}.jsonl", LISTS_OF_ALL)
    with pytest.raises(
        DataError, match=r"line 1 has a question that line 1 of .* has, too; import the files"
    ):
        import_answers(tmp_path)
    assert import_answers(tmp_path, model="m").dataset.cells[0].num_branches == 6


@pytest.mark.parametrize(
    "names",
    [
        *(("seed_1", "seed_2"), ("1/b", "2/b"), ("b-5cafe21", "b-beef170"), ("m-7b-run1", "m-7b-run12")),
        *(("1", "2"), ("out_1", "out_2"), ("b-temp0.6", "b-temp1"), ("b-00000-of-00002", "b-00001-of-00002")),
        ("b_2026-01-01T00-00-00.123", "b_2026-01-02T10-00-07.5"),
    ],
)
def test_runs_of_one_model_are_one_cell(tmp_path, names):
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / f"{name}.jsonl", LISTS_OF_ALL)
    assert import_answers(tmp_path).dataset.cells[0].num_branches == 6


def test_records_of_several_models_are_not_mixed(tmp_path):
    records = [row | {"model": model} for model in ("m", "n") for row in LAYOUTS["rows"]]
    path = write(tmp_path / "b.jsonl", records)
    with pytest.raises(DataError, match="line 7 is of the model 'n', and others are of 'm'; import"):
        import_answers(path)
    assert import_answers(path, model="m").dataset.cells[0].num_branches == 6


@pytest.mark.parametrize("where", ["first", "last"])
def test_what_a_file_says_of_its_records_is_passed_over(tmp_path, where):
    about = [{"model": "m", "accuracy": 0.5, "date": "2025-01-01"}]
    records = [row | {"model": "m"} for row in LAYOUTS["rows"]]
    path = write(tmp_path / "b.jsonl", about + records if where == "first" else records + about)
    line = 1 if where == "first" else 7
    with pytest.warns(InputWarning, match=f"line {line} of b.jsonl passed over: it has other fields than"):
        check(import_answers(path).dataset)


@pytest.mark.parametrize(
    "other", [{"id": 3, "exception": "boom"}, {"id": 3, "q": "What z?", "g": "1"}, {"said": "word " * 30}]
)
def test_a_last_record_of_other_names_is_no_summary(tmp_path, other):
    records = [row | {"id": n} for n, row in enumerate(LAYOUTS["rows"])]
    with pytest.raises(DataError, match="line 7 has no question in question"):
        import_answers(write(tmp_path / "b.jsonl", [*records, other]))


def test_other_models_than_the_writer_may_differ(tmp_path):
    records = [
        row | {"judge": {"model": f"j{n}"}, "meta": {"prompt_writer": {"model": f"w{n}"}}}
        for n, row in enumerate(LAYOUTS["rows"])
    ]
    check(import_answers(write(tmp_path / "b.jsonl", records)).dataset)


def test_completions_in_numbered_columns_beside_others(tmp_path):
    with (tmp_path / "b.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["question", "gold", 0, 1, 2])
        table.writerows([q, gold, *TEXTS[n]] for n, (q, gold) in enumerate(QUESTIONS.items()))
    check(import_answers(tmp_path / "b.csv").dataset, None)


def test_tokens_are_estimated_where_a_record_does_not_list_them(tmp_path):
    records = [
        row | {"logprobs": {"content": [{"token": "a"}] * t} if n else None}
        for n, (row, t) in enumerate(
            rows(lambda q, c, g, t: ({"question": q, "completion": c, "answer": g}, t))
        )
    ]
    path = write(tmp_path / "b.jsonl", records)
    with pytest.warns(InputWarning, match="nothing says how many tokens 1 completions have"):
        tokens = import_answers(path).dataset.matrix.tokens.ravel().tolist()
    assert tokens == [-(-len(TEXTS[0][0]) // 4), *TOKENS[0][1:], *TOKENS[1]]
    with pytest.raises(DataError, match=r"line 1 has no number of tokens in logprobs.content"):
        import_answers(path, tokens="logprobs.content")


def test_a_saved_dataset_is_its_tables(tmp_path):
    stored(tmp_path, "stream.arrow")
    (tmp_path / "state.json").write_text('{"_data_files": [{"filename": "b.arrow"}]}', encoding="utf-8")
    (tmp_path / "dataset_info.json").write_text('{"features": {"prompt": {"dtype": "string"}}}')
    check(import_answers(tmp_path).dataset)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"PK\x03\x04 and more", "is a zip archive, which is not read; decompress it"),
        (json.dumps(LAYOUTS["rows"]).encode("utf-16"), "is UTF-16 or no text at all"),
        (json.dumps(LAYOUTS["rows"]).encode("utf-16-le"), "is UTF-16 or no text at all"),
    ],
)
def test_files_of_other_kinds_are_named(tmp_path, content, words):
    (tmp_path / "b.json").write_bytes(content)
    with pytest.raises(DataError, match=words):
        import_answers(tmp_path / "b.json")


def test_completions_that_are_there_twice_are_warned_of(tmp_path):
    records = [row | {"completion": "word " * 30 + row["completion"]} for row in LAYOUTS["rows"]]
    with pytest.warns(InputWarning, match=r"6 completions are word for word another one of their question"):
        import_answers(write(tmp_path / "b.jsonl", [*records, *records]))


@pytest.mark.parametrize("separator", ["\t", ";", ","])
def test_separators_of_tables_are_found(tmp_path, separator):
    records = LAYOUTS["rows"]
    path = tmp_path / ("b.tsv" if separator == "\t" else "b.csv")
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, [*records[0]], delimiter=separator)
        table.writeheader()
        table.writerows(records)
    check(import_answers(path).dataset)


@pytest.mark.parametrize(
    "end",
    [
        {"finish_reason": "length"},
        {"finishReason": "MAX_TOKENS"},
        {"stop_reason": "max_output_tokens"},
        {"done_reason": "model_length"},
        {"stop_type": "limit"},
        {"finish_reason": {"type": "length", "length": 100}},
        {"truncated": True},
    ],
)
def test_completions_that_were_cut_off_have_no_answer(tmp_path, end):
    (name, cut), *_ = end.items()
    done = {"type": "stop"} if isinstance(cut, dict) else False if cut is True else "stop"
    records = [row | {name: cut if n % 3 == 0 else done} for n, row in enumerate(LAYOUTS["rows"])]
    dataset = import_answers(write(tmp_path / "b.jsonl", records)).dataset
    assert finals(dataset) == [("ERR", *row[1:]) for row in ANSWERS]
    np.testing.assert_array_equal(dataset.matrix.tokens, TOKENS)


def test_many_files_are_one_cell(tmp_path):
    records = LAYOUTS["rows"]
    for n, record in enumerate(records):
        write(tmp_path / f"part-{n}.jsonl", [record])
    (tmp_path / "README.md").write_text("not data", encoding="utf-8")
    for named in (
        tmp_path,
        str(tmp_path / "*.jsonl"),
        [tmp_path / f"part-{n}.jsonl" for n in range(len(records))],
    ):
        check(import_answers(named).dataset)


def test_files_come_in_the_order_of_their_numbers(tmp_path):
    for n in range(12):
        record = {"question": "q?", "completions": [str(n)], "answer": "1", "tokens": [n + 1]}
        write(tmp_path / f"{n}.jsonl", [record])
    dataset = import_answers(tmp_path).dataset
    assert finals(dataset) == [tuple(map(str, range(12)))]


@pytest.mark.parametrize("name", ["objects", "lists in lists", "rows"])
def test_field_paths_find_what_has_other_names(tmp_path, name):
    hidden = {
        "objects": ("alpha", "beta[*].gamma", "delta", "beta[*].eta"),
        "lists in lists": ("alpha.beta", "gamma[0]", "delta", "eta[0]"),
        "rows": ("alpha", "beta", "gamma", "delta"),
    }[name]
    records = {
        "objects": each(
            lambda q, n, g: {
                "alpha": q,
                "beta": [{"gamma": c, "eta": t} for c, t in zip(TEXTS[n], TOKENS[n], strict=True)],
                "delta": g,
            }
        ),
        "lists in lists": each(
            lambda q, n, g: {"alpha": {"beta": q}, "gamma": [TEXTS[n]], "delta": g, "eta": [TOKENS[n]]}
        ),
        "rows": rows(lambda q, c, g, t: {"alpha": q, "beta": c, "gamma": g, "delta": t}),
    }[name]
    question, completions, gold, tokens = hidden
    if name == "lists in lists":
        completions, tokens = f"{completions}[*]", f"{tokens}[*]"
    path = write(tmp_path / "b.jsonl", records)
    with pytest.raises(DataError, match="can be recognised as the question"):
        import_answers(path)
    check(import_answers(path, question=question, completions=completions, gold=gold, tokens=tokens).dataset)


def test_a_path_that_leads_nowhere_is_named(tmp_path):
    path = write(tmp_path / "b.jsonl", LAYOUTS["rows"])
    with pytest.raises(
        DataError, match=r"line 1 has nothing at doc\.gold, which --gold names; it has question"
    ):
        import_answers(path, gold="doc.gold")


@given(st.lists(st.sampled_from(["a", "b c", "*", "0", "17"]), min_size=1, max_size=5))
def test_field_paths_are_written_and_read(steps):
    path = ("x", *steps)
    assert parse_path("completions", spelled(path)) == path


@pytest.mark.parametrize("path", ["", ".", "a..b", "a[", "a[x]", "a]", "a[-1]", "a.[0]"])
def test_what_is_no_field_path(path):
    with pytest.raises(InputError, match="write one as doc"):
        parse_path("gold", path)


@given(st.recursive(st.none() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3), max_leaves=8))
def test_values_are_those_of_plain_loops(value):
    found = values({"a": value}, ("a", "*", "*"))
    outer = entries(value) or []
    assert found == [two for one in outer for two in (entries(one) or [])]


# --- questions and golds elsewhere


@pytest.mark.parametrize("gold", [True, False])
@pytest.mark.parametrize("key", ["qid", "prompt_id", "question_idx", "id"])
@pytest.mark.parametrize("sample", ["sample_idx", "sample_id", "attempt", "rollout_id"])
def test_completions_that_are_numbered_do_not_number_the_question(tmp_path, key, sample, gold):
    rows = [
        {sample: n, key: f"q{question}", "pred": str(question + n), "n_tok": 10 + n}
        | ({"gold": str(question)} if gold else {})
        for question in range(3)
        for n in range(4)
    ]
    known = [{"question": f"What is {n} + 0?", "answer": str(n), key: f"q{n}"} for n in range(3)]
    path = write(tmp_path / "b.jsonl", rows)
    questions = None if gold else write(tmp_path / "q.jsonl", known)
    imported = import_answers(path, questions=questions)
    assert f"key {key}" in imported.layout
    assert imported.dataset.matrix.tokens.shape == (3, 4)


@pytest.mark.parametrize(
    ("rows", "key"),
    [
        ([{"id": n, "num_prompt_tokens": 40} for n in range(6)], "id"),
        ([{"question_id": n // 2, "sample_id": n % 2} for n in range(6)], "question_id"),
        ([{"id": n, "sample_id": f"s{n // 2}"} for n in range(6)], "sample_id"),
        ([{"id": n, "group_idx": n // 2} for n in range(6)], "group_idx"),
        ([{"id": n // 2, "sample_idx": n % 2} for n in range(6)], "id"),
    ],
)
def test_what_repeats_and_has_one_reference_answer_numbers_the_question(rows, key):
    golds = [None, "7", "8", "8", "9", "9"]
    records = [
        FileRecord(Path("b"), f"row {n}", row | {"answer": gold, "completion": f"I think that it is {n}."})
        for n, (row, gold) in enumerate(zip(rows, golds, strict=True))
    ]
    assert recognise(records, {}).key == (key,)


def test_answers_that_are_wrong_by_their_spelling_are_warned_of(tmp_path):
    rows = [{"question": "How much?", "gold": "1/2", "answers": ["\\frac{1}{2}", "1/2"], "tokens": [9, 8]}]
    path = write(tmp_path / "b.jsonl", rows)
    with pytest.warns(
        InputWarning, match=r"1 answers differ .* as '.*frac\{1\}\{2\}' from '1/2', and are wrong"
    ):
        import_answers(path)


def test_questions_are_found_by_text_id_and_number(tmp_path):
    known = write(
        tmp_path / "q.jsonl",
        [{"id": f"a{n}", "question": q, "answer": g} for n, (q, g) in enumerate(QUESTIONS.items())],
    )
    by_text = [{"prompt": q, "samples": TEXTS[n], "lengths": TOKENS[n]} for n, q in enumerate(QUESTIONS)]
    by_id = [{"custom_id": f"a{n}", "samples": TEXTS[n], "lengths": TOKENS[n]} for n in range(2)]
    by_number = [{"problem_idx": n, "samples": TEXTS[n], "lengths": TOKENS[n]} for n in range(2)]
    from_one = [{"problem_idx": n + 1, "samples": TEXTS[n], "lengths": TOKENS[n]} for n in range(2)]
    for records in (by_text, by_id, by_number, from_one):
        path = write(tmp_path / "b.jsonl", records)
        check(import_answers(path, questions=known).dataset)
        with pytest.raises(DataError, match=r"reference answer; it has .* or a file .* by --questions"):
            import_answers(path)


def test_samples_with_ids_of_their_own_are_joined(tmp_path):
    known = write(tmp_path / "q.jsonl", [{"question": q, "answer": g} for q, g in QUESTIONS.items()])
    batch = [
        {
            "custom_id": f"q{n}-s{b}",
            "response": {
                "body": {
                    "model": "m-1",
                    "choices": [
                        {"message": {"role": "assistant", "content": TEXTS[n][b]}, "finish_reason": "stop"}
                    ],
                    "usage": {"prompt_tokens": 20, "completion_tokens": TOKENS[n][b], "total_tokens": 700},
                }
            },
            "error": None,
        }
        for n in range(2)
        for b in range(3)
    ]
    dataset = import_answers(write(tmp_path / "b.jsonl", batch), questions=known).dataset
    check(dataset)
    assert dataset.cells[0].name == "m-1/b"


def replies(ids, failed=(), per_request=1):
    """Rows of a batch; those of some places have failed."""
    for place, (key, n) in enumerate(ids):
        error = {"message": "slow down", "code": "rate_limit_exceeded"}
        choices = [{"message": {"role": "assistant", "content": text}} for text in TEXTS[n][:per_request]]
        if place in failed:
            response = {"status_code": 429, "body": {"error": error}}
        else:
            response = {"status_code": 200, "body": {"choices": choices}}
        yield {"custom_id": key, "response": response, "error": None}


def known_file(folder, ids=("q0", "q1")):
    rows = [{"id": i, "question": q, "answer": g} for i, (q, g) in zip(ids, QUESTIONS.items(), strict=True)]
    return write(folder / "q.jsonl", rows)


@pytest.mark.filterwarnings("ignore:.* requests failed")
@pytest.mark.parametrize("failed", [(), (0,), (1, 4), (0, 1, 2)])
def test_requests_that_failed_are_joined_as_the_others_and_have_no_answer(tmp_path, failed):
    ids = [(f"q{n}-sample-{b}", n) for b in range(2) for n in (1, 0)] + [
        ("q1-sample-2", 1),
        ("q0-sample-2", 0),
    ]
    path = write(tmp_path / "b.jsonl", replies(ids, failed))
    imported = import_answers(path, questions=known_file(tmp_path))
    expected = {1: [], 0: []}
    for place, (_, n) in enumerate(ids):
        expected[n].append("ERR" if place in failed else ANSWERS[n][0])
    assert finals(imported.dataset) == [tuple(answers) for answers in expected.values()]
    assert "'q1-sample-0' is the question 'What is 15" in imported.layout
    told = [note for note in imported.notes if "requests failed" in note]
    assert len(told) == bool(failed)
    assert not told or f"{len(failed)} requests failed" in told[0]


@pytest.mark.filterwarnings("ignore:.* requests failed")
def test_requests_of_several_completions_fail_as_a_whole(tmp_path):
    ids = [(f"q{n}", n) for n in range(2)]
    path = write(tmp_path / "b.jsonl", replies(ids, (0,), per_request=3))
    dataset = import_answers(path, questions=known_file(tmp_path)).dataset
    assert finals(dataset) == [("ERR",) * 3, ANSWERS[1]]
    uneven = [*replies(ids, (0,), 3), *replies([("q1", 1)], (), 2)]
    for records, words in (
        (uneven, "the others have 2 to 3"),
        (replies(ids, (0, 1)), "all 2 requests failed"),
    ):
        with pytest.raises(DataError, match=words):
            import_answers(write(tmp_path / "b.jsonl", records), questions=known_file(tmp_path))


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (["q0", "q7"], "the question 'q7' is not among"),
        (["q0", "1"], "the question '1' is not among"),
        (["a-0", "b-1"], "the question 'a-0' is not among"),
        (["a-1", "a-2", "a-3"], "number all questions there from 0 or 1"),
        (["s0-0", "s0-1"], "may be that of a question or of its sample"),
        (["5", "7"], "the question '5' is not among"),
    ],
)
def test_ids_are_not_joined_by_chance(tmp_path, ids, words):
    records = replies([(key, n % 2) for n, key in enumerate(ids)], per_request=3)
    with pytest.raises(DataError, match=words) as error:
        import_answers(write(tmp_path / "b.jsonl", records), questions=known_file(tmp_path))
    assert "--questions" in str(error.value)


@pytest.mark.parametrize("prefix", ["", "request-", "2024-"])
@pytest.mark.parametrize("first", [0, 1])
def test_ids_that_number_all_questions_are_joined_by_number(tmp_path, prefix, first):
    records = replies([(f"{prefix}{n + first}", n) for n in (1, 0)], per_request=3)
    dataset = import_answers(write(tmp_path / "b.jsonl", records), questions=known_file(tmp_path)).dataset
    assert finals(dataset) == [ANSWERS[1], ANSWERS[0]]
    assert [question.gold for question in dataset.questions] == ["43", "42"]


def test_samples_of_other_references_are_not_joined(tmp_path):
    records = [{"id": f"2024-{n}", "completion": text, "gold": n} for n, text in enumerate(TEXTS[0])]
    with pytest.raises(DataError, match="nothing tells which belong"):
        import_answers(write(tmp_path / "b.jsonl", records))


@pytest.mark.parametrize("nothing", ["None", "null", "NaN"])
def test_the_text_none_is_no_answer(tmp_path, nothing):
    records = [dict(row) for row in LAYOUTS["rows of answers"]]
    records[0]["final_answer"] = nothing
    with pytest.warns(InputWarning, match="1 answers are None, null or nan, and count as ERR"):
        dataset = import_answers(write(tmp_path / "b.jsonl", records)).dataset
    assert finals(dataset) == [("ERR", *ANSWERS[0][1:]), ANSWERS[1]]
    some = [row if row["answer"] == "42" else row | {"answer": nothing} for row in LAYOUTS["rows of answers"]]
    with pytest.warns(InputWarning, match="1 reference answers are"):
        import_answers(write(tmp_path / "b.jsonl", some))
    every = [row | {"answer": nothing} for row in LAYOUTS["rows of answers"]]
    with pytest.raises(DataError, match="every reference answer in answer is"):
        import_answers(write(tmp_path / "b.jsonl", every))


@pytest.mark.filterwarnings("ignore:.* (answers are|none)")
def test_none_may_be_the_right_answer(tmp_path):
    record = {"question": "Which?", "gold": "none", "answers": ["None", "none", "2"], "tokens": [1, 2, 3]}
    other = {"question": "How?", "gold": "2", "answers": ["None", "none", "2"], "tokens": [1, 2, 3]}
    dataset = import_answers(write(tmp_path / "b.jsonl", [record, other])).dataset
    assert finals(dataset) == [("None", "none", "2"), ("ERR", "ERR", "2")]


@pytest.mark.parametrize("keys", [list(QUESTIONS), ["q0", "q1"]])
def test_completions_may_be_listed_by_question_or_id(tmp_path, keys):
    path, known = tmp_path / "b.json", known_file(tmp_path)
    path.write_text(json.dumps(dict(zip(keys, TEXTS, strict=True))), encoding="utf-8")
    check(import_answers(path, questions=known).dataset, None)
    path.unlink()
    for b in range(3):  # and a file may have one of each
        one = {key: TEXTS[n][b] for n, key in enumerate(keys)}
        (tmp_path / f"seed{b}.json").write_text(json.dumps(one), encoding="utf-8")
    check(import_answers(str(tmp_path / "seed*"), questions=known).dataset, None)


def test_rounds_without_what_the_branches_wrote_are_refused(tmp_path):
    record = {"question": "q?", "target": "1", "max_tokens": 64, "probe_responses": ["1}", "2}"]}
    with pytest.raises(DataError, match=r"has probes in .* give completions as well, and finish_reasons"):
        import_answers(write(tmp_path / "b.jsonl", [record]))


# --- ends


def test_what_is_cut_off_empty_or_missing_has_no_answer(tmp_path):
    record = {
        "question": "q?",
        "answer": "7",
        "outputs": [
            {"text": "\\boxed{7}", "finish_reason": "stop", "num_tokens": 5},
            {"text": "\\boxed{7} and", "finish_reason": "length", "num_tokens": 9},
            {"text": "", "finish_reason": "stop", "num_tokens": 0},
            {"text": None, "finish_reason": None, "num_tokens": None},
            {"finish_reason": "stop"},
        ],
    }
    imported = import_answers(write(tmp_path / "b.jsonl", [record]))
    assert finals(imported.dataset) == [("7", "ERR", "ERR", "ERR", "ERR")]
    assert imported.dataset.matrix.tokens.tolist() == [[5, 9, 1, 1, 1]]
    assert imported.errors == 0.8


def test_thinking_of_its_own_field_belongs_to_the_text(tmp_path):
    message = {"role": "assistant", "content": "It is \\boxed{7}.", "reasoning_content": "x" * 400}
    record = {"question": "q?", "answer": "7", "choices": [{"message": message, "finish_reason": "stop"}]}
    dataset = import_answers(write(tmp_path / "b.jsonl", [record])).dataset
    assert finals(dataset) == [("7",)]
    assert dataset.matrix.tokens.tolist() == [[(400 + len(message["content"])) // 4]]


def test_thinking_without_an_end_has_no_answer(tmp_path):
    texts = ["<think>so 7 or 8", "<think>\\boxed{7}", "so 7</think>8", "<think>\\boxed{7}</think> as said"]
    path = write(tmp_path / "b.jsonl", [{"question": "q?", "answer": "7", "completions": texts}])
    assert finals(import_answers(path).dataset) == [("ERR", "7", "8", "7")]


@pytest.mark.parametrize(
    "prompt",
    [
        "<|im_start|>system\nHi<|im_end|>\n<|im_start|>user\nWhat?<|im_end|>\n<|im_start|>assistant\n",
        "<|start_header_id|>user<|end_header_id|>\n\nWhat?<|eot_id|><|start_header_id|>assistant<|end_header_id|>",
        "<bos><start_of_turn>user\nWhat?<end_of_turn>\n<start_of_turn>model\n",
        "<｜begin▁of▁sentence｜><｜User｜>What?<｜Assistant｜><think>\n",
        "<s>[INST] What? [/INST]",
        "system\nYou are helpful\nuser\nWhat?\nassistant\n",
        "user\nA?\nassistant\nB.\nuser\nWhat?\nassistant\n<think>\n",
        "<|start|>user<|message|>What?<|end|><|start|>assistant",
    ],
)
def test_questions_are_found_in_templates(prompt):
    assert question_in(prompt) == "What?"


@pytest.mark.parametrize("prompt", ["What?", "The user\nsays hi", "user\nWhat?", "assistant\nuser", ""])
def test_plain_questions_are_left_alone(prompt):
    assert question_in(prompt) == prompt


def test_prompts_can_be_declared_raw(tmp_path):
    path = write(tmp_path / "b.jsonl", LAYOUTS["rows with templates"])
    (first, _) = import_answers(path, raw_prompts=True).dataset.questions
    assert first.text.startswith("system\n")


def test_ragged_questions_are_cut_kept_or_refused(tmp_path):
    path = write(tmp_path / "b.jsonl", LAYOUTS["rows"][:-1])
    with pytest.warns(InputWarning, match="2 to 3 completions; the first 2 of each are used and 1 of 5"):
        cut = import_answers(path).dataset
    assert finals(cut) == [row[:2] for row in ANSWERS]
    with pytest.warns(InputWarning, match="a cell each: 1 with 3, 1 with 2"):
        kept = import_answers(path, ragged="keep").dataset
    assert [(cell.benchmark, cell.num_branches) for cell in kept.cells] == [("b-3", 3), ("b-2", 2)]
    assert kept.matrix.lengths[1, 2] == 0
    with pytest.raises(DataError, match="2 to 3 completions, the fewer of them 'What is 15"):
        import_answers(path, ragged="refuse")


# --- lengths, probes and signals


@given(
    st.lists(st.lists(st.integers(0, 90_000), min_size=3, max_size=3), min_size=1, max_size=4),
    st.integers(1, 9000),
)
def test_lengths_give_depths_and_no_probes(tmp_path_factory, drawn, interval):
    folder = tmp_path_factory.mktemp("lengths")
    records = [
        {"problem": n, "gold": "1", "finals": [["1", t] for t in row], "problem_id": n}
        for n, row in enumerate(drawn)
    ]
    path = write(folder / "b.jsonl", records)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        matrix = import_answers(path, interval=interval).dataset.matrix
    tokens = np.maximum(1, drawn)
    np.testing.assert_array_equal(matrix.tokens, tokens)
    np.testing.assert_array_equal(matrix.lengths + 1, np.vectorize(last_depth)(tokens, interval))
    before = np.arange(matrix.max_depth) < matrix.lengths[..., None]
    assert (matrix.answers[before] == NONE).all()


def test_the_interval_fits_the_lengths(tmp_path):
    def interval(*tokens):
        record = {"question": "q?", "gold": "1", "all_answers": [["1", t] for t in tokens]}
        return int(import_answers(write(tmp_path / "b.jsonl", [record])).dataset.matrix.interval[0])

    assert interval(20_000, 9_000) == 500
    assert interval(2_000, 1_000) == 50
    assert interval(3, 5) == 1
    assert interval(10_000_000, 1) == 5000


def test_the_share_of_errors_is_that_of_final_answers_where_there_are_no_probes(tmp_path):
    row = {"question": "How much?", "gold": "1", "answers": ["1", "ERR", "2", "ERR"]}
    path = write(tmp_path / "b.jsonl", [row | {"tokens": [500, 700, 90, 9_000]}])
    dataset = import_answers(path, interval=50).dataset
    assert cell_statistics(dataset, 0)["error_share"] == 0.5
    assert question_statistics(dataset)[0].error_share == 0.5


def test_a_matrix_without_probes_says_so_and_refuses_to_be_probed(tmp_path):
    out = tmp_path / "b.npz"
    dataset = import_answers(write(tmp_path / "b.jsonl", LAYOUTS["answers"]), out, model="m").dataset
    again = read_compact(out)
    assert again.cells == dataset.cells
    assert not again.cells[0].probes
    assert again.select([1]).cells[0].probes is False
    for name in ("cmc@0.5", "parallel-probe@2", "single@4"):
        with pytest.raises(InputError, match=r"decides by answers before the end .* m/b has none"):
            evaluate(again, name, max_branches=2, seeds=1)
    with pytest.raises(InputError, match="cmc decides by answers before the end"):
        trace(again, "cmc@0.5", max_branches=2)
    with pytest.raises(InputError, match=r"discover looks for controllers .* m/b has none"):
        discover(again, out=tmp_path / "run")
    with pytest.raises(InputError, match=r"discover ablate looks for controllers .* m/b has none"):
        ablate(again, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError, match=r"distill watches a policy .* m/b has none"):
        distill("neural", again, max_branches=2)
    with pytest.warns(InputWarning, match=r"m/b holds final answers .* no answer before the end"):
        make("WidthDepth-v0", again, max_branches=2)
    with pytest.warns(InputWarning, match="m/b holds final answers"):
        gymnasium.make("autotts_jax:WidthDepth-v0", data=again, max_branches=2, disable_env_checker=True)


@pytest.mark.slow
def test_code_from_a_file_is_trimmed_to_the_data_and_asked_whether_it_decides_by_probes(tmp_path):
    code = tmp_path / "mine.py"
    code.write_text(
        "from autotts_jax.core.controller import Family\n"
        "from autotts_jax.policies.parallel_probe import ParallelProbe\n"
        "from autotts_jax.policies.self_consistency import SelfConsistency\n"
        "FULL = Family.over_branches('full', SelfConsistency, (1, 2, 64))\n"
        "PROBING = Family.over_branches('probing', ParallelProbe, (1, 2))\n"
        "class Program:\n"
        "    def __init__(self, config=None): pass\n"
        "    def solve(self, question):\n"
        "        return question.get_new_branch_final_answer()\n"
    )
    dataset = import_answers(write(tmp_path / "b.jsonl", LAYOUTS["answers"]), model="m").dataset
    with pytest.warns(InputWarning, match=r"full@64: left out, since an episode opens at most 3 branches"):
        found = evaluate(dataset, [f"{code}:FULL", "sc@2"], seeds=2)
    sealed, own = found.plays
    assert sealed.player.names == ("full@1", "full@2")
    assert sealed.tokens[1].tolist() == own.tokens[0].tolist()
    with pytest.raises(InputError, match=r"probing decides by answers before the end .* m/b has none"):
        evaluate(dataset, f"{code}:PROBING", seeds=1)
    with pytest.warns(InputWarning, match=r"Program cannot be asked what it decides by, and m/b has no"):
        evaluate(dataset, f"{code}:Program", seeds=1)


def test_the_controllers_that_are_compared_by_default_fit_the_data(tmp_path):
    dataset = import_answers(write(tmp_path / "b.jsonl", LAYOUTS["answers"]), model="m").dataset
    assert default_controllers(dataset) == ("sc@3", "asc@3")
    assert default_controllers(load("smollm2"), 8) == ("sc@8", "asc@8", "esc@8", "parallel-probe@8", "cmc")
    assert default_controllers(load("smollm2"))[0] == "sc@64"


def test_what_a_controller_looks_at_says_whether_it_decides_by_probes():
    matrix = load("smollm2").matrix
    shapes = jax.eval_shape(lambda given: ReplayPool.begin(given, 0, jnp.arange(8)).view(), matrix)
    asked = {name: as_players(name)[0].decides_by_probes(shapes) for name in (*WITHOUT, *WITH)}
    assert asked == dict.fromkeys(WITHOUT, False) | dict.fromkeys(WITH, True)


WITHOUT = "sc@8", "asc@8", "sprt@8", "esc@8", "short-m@8", "asc-dirichlet@8", "asc-entropy@8"
WITH = "parallel-probe@8", "cmc@0.5", "single@4", "distilled"


def test_tokens_that_contradict_probes_are_warned_of(tmp_path):
    item = {
        "question": "q?",
        "gold_answer": "1",
        "probe_freq": 500,
        "each_branch": [[["1"], 20_000, "1"], [["1"], 900, "1"]],
        "final_answers_trace": ["1", "1"],
    }
    path = tmp_path / "m.json"
    path.write_text(json.dumps([item]), encoding="utf-8")
    from autotts_jax.replay import read_json

    with pytest.warns(InputWarning, match=r"1 of 2 branches .* 20,000 tokens with 1 probes, one every 500"):
        read_json(path)


def rounds(finished=2, count=3):
    """Files of rounds of 128 tokens: two branches, the second of which has ended after some."""
    return [
        {
            "round": n,
            "problem_id": 0,
            "max_tokens": 128 * (n + 1),
            "prompts": ["How many?"] * 2,
            "new_tokens": ["a" * 400, "b" * 40 + (" \\boxed{9}" if n == finished - 1 else "")],
            "finish_reasons": ["length", "stop" if n >= finished - 1 else "length"],
            "is_finished": [False, n >= finished - 1],
            "target": "9",
            "probe_prompts": ["…"] * 2,
            "probe_responses": [f"{n}}} \\]", "\\frac{1}{2}} done"],
            "is_corrects": [False, False],
        }
        for n in range(count)
    ]


def test_rounds_of_probes_are_probes(tmp_path):
    for record in rounds():
        (tmp_path / f"question_0_tokens_{record['max_tokens']}.json").write_text(json.dumps(record))
    imported = import_answers(tmp_path)
    dataset = imported.dataset
    assert imported.layout.startswith("rounds of probes in new_tokens[*]")
    assert dataset.cells[0].probes
    assert dataset.matrix.interval.tolist() == [128]
    assert dataset.matrix.tokens.tolist() == [[384, 128 + 13]]
    read = [
        [dataset.questions[0].answer(k) for k in row[: length + 1]]
        for row, length in zip(dataset.matrix.answers[0].tolist(), dataset.matrix.lengths[0], strict=True)
    ]
    assert read == [["0", "1", "2"], ["0.5", "9"]]


def test_rounds_have_to_be_complete(tmp_path):
    path = tmp_path / "b.jsonl"
    write(path, rounds())
    assert import_answers(path, interval=128).dataset.matrix.interval.tolist() == [128]
    with pytest.raises(DataError, match="its rounds have 128 tokens, and a matrix one interval"):
        import_answers(path, interval=64)
    write(path, rounds()[::2])
    with pytest.raises(DataError, match="the rounds of its question end at 128, 384 tokens"):
        import_answers(path)
    write(path, [*rounds(), rounds()[0]])
    with pytest.raises(DataError, match="line 4 is a second round of 128 tokens"):
        import_answers(path)


def test_confidences_become_signals(tmp_path):
    confidences = [[10.0] * 40 + [12.0] * 25, [8.0] * 30]
    record = {
        "question": "q?",
        "ground_truth": "7",
        "all_traces": [
            {
                "text": "\\boxed{7}",
                "confs": own,
                "group_confs": [1.0],
                "num_tokens": len(own),
                "stop_reason": "stop",
            }
            for own in confidences
        ],
    }
    matrix = import_answers(write(tmp_path / "b.jsonl", [record]), interval=20).dataset.matrix
    assert list(matrix.signals) == ["conf_mean", "conf_low", "conf_tail"]
    assert matrix.lengths.tolist() == [[3, 1]]
    np.testing.assert_allclose(matrix.signals["conf_mean"][0, 0], [10, 10, 12, 12])
    np.testing.assert_allclose(
        matrix.signals["conf_tail"][0, 0], [10, 10, 10 + 2 / 3, 10 + 50 / 65], rtol=1e-3
    )
    np.testing.assert_allclose(matrix.signals["conf_low"][0, 1, :2], [8, 8])


# --- golds and what looks wrong


def test_the_answer_of_a_worked_solution_is_taken(tmp_path):
    solution = "Adding both angles leaves 180.\n\nTherefore, the answer is: 180."
    path = write(
        tmp_path / "b.jsonl", [{"question": "q?", "answer": solution, "completions": ["It is \\boxed{180}."]}]
    )
    assert import_answers(path).dataset.questions[0].gold == "180"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"completions": ["I am lost in this.", "So am I, it seems."]}, "no completion has an answer"),
        ({"answer": "12"}, "no completion reaches a reference answer"),
        ({"answer": "a word " * 40}, "1 reference answers have more than 200 characters"),
        ({"completions": ["\\boxed{7}"] * 5, "lengths": [256] * 5}, "all 5 completions have 256 tokens"),
    ],
)
def test_what_looks_wrong_is_warned_of(tmp_path, change, words):
    record = {"question": "q?", "answer": "7", "completions": ["So \\boxed{7}.", "So \\boxed{8}."]} | change
    with pytest.warns(InputWarning) as warned:
        imported = import_answers(write(tmp_path / "b.jsonl", [record]))
    assert any(re.search(words, str(warning.message)) for warning in warned)
    assert any(re.search(words, note) for note in imported.notes)


def test_given_answers_stay_as_they_are(tmp_path):
    record = {"question": "q?", "gold": "1/2", "answers": ["1/2", "0.5", " 2 "], "tokens": [1, 2, 3]}
    path = write(tmp_path / "b.jsonl", [record])
    assert finals(import_answers(path).dataset) == [("1/2", "0.5", "2")]
    assert finals(import_answers(path, grader="math").dataset) == [("0.5", "0.5", "2")]


# --- bad input

ROW, LISTS = LAYOUTS["rows"][0], LAYOUTS["lists"][0]


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([{"question": "q?", "answer": "7"}], "can be recognised as completions or answers; it has question"),
        ([{"completion": "It is \\boxed{7}, I think."}], "can be recognised as the question or its number"),
        (
            [{"question": "q?", "completion": "It is \\boxed{7}."}],
            "can be recognised as the reference answer",
        ),
        ([7], "line 1 is '7', and a record has named values"),
        (
            [LAYOUTS["rows"][0], {**LAYOUTS["rows"][1], "answer": "8"}],
            "line 2 has the reference answer '8', and",
        ),
        (
            [*LAYOUTS["rows"], {"question": "new?", "completion": "x", "num_tokens": 3}],
            "has no reference answer in",
        ),
        ([*LAYOUTS["rows"], {"question": " ", "completion": "x"}], "line 7 has no question in question"),
        (
            [*LAYOUTS["rows"], {**LAYOUTS["rows"][0], "num_tokens": -1}],
            "line 7 has '-1' as a number of tokens",
        ),
        ([*LAYOUTS["rows"], {**ROW, "num_tokens": True}], "line 7 has True as a number of tokens"),
        (
            [*LAYOUTS["rows"], {**ROW, "num_tokens": None}],
            "line 7 has no number of tokens in num_tokens; give it one, or name --tokenizer",
        ),
        ([*LAYOUTS["rows"], {**ROW, "completion": True}], "line 7 has True in completion, where others"),
        ([{**ROW, "completion": ["7", "8"]}, *LAYOUTS["rows"]], "line 1 has ['7', '8'] in completion, where"),
        ([*LAYOUTS["rows"], {**ROW, "completion": {"a": 1}}], "line 7 has {'a': '1'} in completion, where"),
        (
            [*LAYOUTS["lists"], {**LISTS, "samples": "So it is 7."}],
            "line 3 has 'So it is 7.' in samples[*], where others have a list",
        ),
        (
            [*LAYOUTS["rows"], {**ROW, "question": ["a"]}],
            "line 7 has ['a'], which is no question in question",
        ),
        ([*LAYOUTS["rows"], {**ROW, "question": 7}], "line 7 has '7', which is no question in question"),
        (
            [LISTS, {name.upper(): value for name, value in LISTS.items()}, *LAYOUTS["lists"]],
            "line 2 has no question in question",
        ),
        (
            [*LAYOUTS["lists"], {**LAYOUTS["lists"][0], "lengths": [1]}],
            "line 3 has 3 completions and 1 of lengths",
        ),
        ([{"each_branch": [], "question": "q?"}], "is a probe matrix already"),
        (
            [
                {"id": f"r{n}", "completion": f"So \\boxed{{{n}}}, as was said.", "answer": "1"}
                for n in range(3)
            ],
            "same",
        ),
    ],
)
def test_bad_records_are_named(tmp_path, records, words):
    path = write(tmp_path / "b.jsonl", records)
    with pytest.raises(DataError) as error:
        import_answers(path, tmp_path / "out.npz")
    assert str(error.value).startswith(str(path))
    assert words in str(error.value)
    assert not (tmp_path / "out.npz").exists()


def test_damaged_files_are_named(tmp_path):
    for kind in KINDS:
        path = stored(tmp_path, kind)
        whole = path.read_bytes()
        damages = [
            whole[: len(whole) // 2],
            b"",
            whole[: len(whole) // 2] + b"\xff\xfe" + whole[len(whole) // 2 :],
        ]
        for content in damages:
            path.write_bytes(content)
            with pytest.raises(DataError) as error:
                import_answers(path)
            assert str(error.value).startswith(str(path))
            assert len(str(error.value)) < 1000
        path.unlink()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"question": "a", "question": "b"}', "has 'question' twice"),
        ("[" * 100 + "]" * 100, "nested more than 64 deep"),
        ("version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        ('{"a": 1}\n{"a": ', "line 2, column"),
        ('[{"a": 1}, {"a": ]', "row 2 of its list is not JSON"),
        ('[{"a": 1}] {}', "goes on behind the list of 1 rows"),
        ("[", "row 1 of its list is not JSON"),
        ("[]", "has no records"),
    ],
)
def test_bad_json_is_named(tmp_path, content, words):
    path = tmp_path / "b.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=re.escape(words)):
        import_answers(path)


def test_yaml_cannot_stand_for_more_than_it_says(tmp_path):
    pytest.importorskip("yaml")
    path = tmp_path / "b.yaml"
    path.write_text("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", encoding="utf-8")
    with pytest.raises(DataError, match="has an alias"):
        import_answers(path)
    path.write_text("a: " + "[" * 100 + "]" * 100, encoding="utf-8")
    with pytest.raises(DataError, match="nested more than 64 deep"):
        import_answers(path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"ragged": "drop"}, "unknown ragged 'drop'"),
        ({"interval": 0}, "interval is 0"),
        ({"limit": 0}, "limit is 0"),
        ({"out": "x.json"}, r"let its name end in \.npz"),
        ({"answers": "none"}, "there is no extractor of this name"),
        ({"grader": "none"}, "there is no grader of this name"),
        ({"questions": "none.jsonl"}, "nothing found at 'none.jsonl'"),
        ({"raw_prompts": 1}, "raw_prompts is 1"),
        ({"gold": 7}, "gold is 7"),
    ],
)
def test_bad_arguments_are_named(tmp_path, arguments, words):
    path = write(tmp_path / "b.jsonl", LAYOUTS["rows"])
    with pytest.raises(InputError, match=words):
        import_answers(path, **arguments)


# --- the command


def test_a_dry_run_shows_how_a_file_is_understood(run, tmp_path):
    path = write(tmp_path / "b.jsonl", LAYOUTS["objects"])
    status, said, _ = run("data", "import", path, "--dry-run")
    assert status == 0
    assert said.splitlines() == [
        "layout: completions in outputs[*].text; question prompt, gold reward_model.ground_truth, tokens "
        "outputs[*].token_ids, finish outputs[*].finish_reason",
        "question 1: How many pens are sold in 6 days?",
        "  gold: 42",
        "  completions: 3",
        "    44, 100 tokens: wrong",
        "    42, 250 tokens: right",
        "    42, 310 tokens: right",
        "question 2: What is 15 more than 28?",
        "  gold: 43",
        "  completions: 3",
        "    43, 90 tokens: right",
        "    44, 420 tokens: wrong",
        "    43, 100 tokens: right",
        "without an answer (ERR): 0.0%",
    ]
    assert list(tmp_path.iterdir()) == [path]


def test_the_command_writes_a_matrix(run, tmp_path):
    path, out = write(tmp_path / "b.jsonl", LAYOUTS["rows"]), tmp_path / "own.npz"
    status, said, _ = run("data", "import", path, "--out", out, "--model", "m", "--interval", "50")
    assert status == 0
    assert f"wrote {out}: 2 questions of 3 branches" in said
    assert f"evaluate --data {out} --controllers sc@1,sc@3,asc@1,asc@3 --baseline sc@3" in said
    check(read_compact(out))
    for wrong in ([], ["--out", out, "--dry-run"], ["--out", tmp_path / "x.json"]):
        assert run("data", "import", path, *wrong)[0] == 2


@pytest.mark.slow
def test_a_logged_run_of_lm_eval_reaches_a_frontier_in_two_commands(run, tmp_path):
    output = tmp_path / "output" / "my__model"
    output.mkdir(parents=True)
    records = [
        {
            "doc_id": n,
            "doc": {"id": f"q{n}", "question": question, "answer": gold},
            "target": gold,
            "arguments": {"gen_args_0": {"arg_0": [json.dumps(conversation(question))], "arg_1": {}}},
            "resps": [TEXTS[n]],
            "filtered_resps": [TEXTS[n][0]],
            "filter": "none",
            "metrics": ["exact_match"],
            "doc_hash": "c0ffee",
            "exact_match": 0.0,
        }
        for n, (question, gold) in enumerate(QUESTIONS.items())
    ]
    write(output / "samples_sums_2026-01-01T00-00-00.jsonl", records)
    summary = {"results": {"sums": {"alias": "sums", "exact_match,none": 0.5}}, "versions": {"sums": 1}}
    configs = {"sums": {"task": "sums", "generation_kwargs": {"until": ["Q:"]}}}
    results = output / "results_2026-01-01T00-00-00.json"
    results.write_text(json.dumps(summary | {"configs": configs, "date": 1767225600.0}), encoding="utf-8")
    out = tmp_path / "own.npz"
    status, said, told = run("data", "import", tmp_path / "output", "--out", out, "--model", "m")
    assert status == 0, told
    assert "layout: completions in resps[*][*]; question doc.question, gold target" in said
    assert f"{results.name} passed over: a summary" in told
    check(read_compact(out), None)
    command = shlex.split(said.splitlines()[-1].removeprefix("evaluate it: autotts-jax "))
    status, said, told = run(*command, "--seeds", "2")
    assert (status, told) == (0, "")
    assert "output, tokens" in said
    assert "against sc" in said
    assert "up to the tokens of 3 branches" in said
    assert "an episode opens at most 3 branches, all that a question has" in said
    status, _, told = run("data", "import", results, "--dry-run")
    assert status == 2
    assert "sums up a run and has no completions; name the samples_" in told


def test_one_completion_of_a_question_is_nothing_to_choose_from(run, tmp_path):
    path = write(tmp_path / "b.jsonl", LAYOUTS["rows"][::3])
    _, said, _ = run("data", "import", path, "--out", tmp_path / "own.npz")
    assert "evaluate" not in said
    assert "has one completion, and controllers choose among several: sample more of each" in said


# --- files of others


@pytest.mark.filterwarnings("ignore:.* tokens; check the field of the lengths")
def test_layouts_of_others_are_imported(tmp_path, shared):
    folder = shared("cases") / "layouts"
    plain = [json.loads(line) for line in (folder / "plain.jsonl").read_text().splitlines()]
    golds = {row["question"]: row["answer"] for row in plain}
    known = write(tmp_path / "q.jsonl", [{"question": q, "answer": g} for q, g in golds.items()])
    expected = finals(import_answers(folder / "plain.jsonl").dataset)
    assert len(list(folder.iterdir())) > 14
    for place in folder.iterdir():
        if place.name in ("openai_batch.jsonl", "trl.parquet", "vllm_nested.jsonl"):
            with pytest.raises(DataError, match="a file with questions and answers by --questions"):
                import_answers(place)
            dataset = import_answers(place, questions=known).dataset
        else:
            dataset = import_answers(place).dataset
        assert {question.text: question.gold for question in dataset.questions} == golds
        if place.name != "dynasor":
            assert finals(dataset) == expected
        assert dataset.cells[0].probes == (place.name == "dynasor")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* answers differ from the reference answer by their spelling alone")
def test_published_answers_are_counted_as_numpy_does(shared):
    for path in shared("finals").glob("*.jsonl"):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        dataset = import_answers(path).dataset
        right = [
            collections.Counter(answer or "ERR" for answer, _ in record["all_answers"]).most_common(1)[0][0]
            == record["gold_answer"]
            for record in records
        ]
        most = [collections.Counter(row).most_common(1)[0][0] for row in finals(dataset)]
        assert [a == question.gold for a, question in zip(most, dataset.questions, strict=True)] == right
        lengths = [[max(1, count) for _, count in record["all_answers"]] for record in records]
        np.testing.assert_array_equal(dataset.matrix.tokens, lengths)


def test_records_by_their_questions_have_the_questions(tmp_path):
    answers = {text: {"gold": gold, "outputs": ["\\boxed{42}"] * 2} for text, gold in QUESTIONS.items()}
    dataset = import_answers(write(tmp_path / "b.json", [answers])).dataset
    assert {question.text: question.gold for question in dataset.questions} == QUESTIONS


CELLS = [
    *(
        f"aime2024_{model}"
        for model in (
            *("AM-Thinking-v1", "Datarus-R1-14B-preview", "EXAONE-Deep-32B", "LIMO-v2", "MetaStone-S1-32B"),
            *("NVIDIA-Nemotron-Nano-9B-v2", "Phi-4-reasoning", "Qwen3-14B", "Qwen3-30B-A3B-Thinking-2507"),
            *("Qwen3-4B", "gpt-oss-20b"),
        )
    ),
    *(
        f"math500_{model}"
        for model in (
            *("EXAONE-Deep-32B", "MetaStone-S1-32B", "NVIDIA-Nemotron-Nano-9B-v2", "Phi-4-reasoning"),
            *("Qwen3-14B", "Qwen3-30B-A3B-Thinking-2507", "gpt-oss-20b"),
        )
    ),
]
SEEDS = 4


def confident(first, second):
    """Whether ASC is sure: the chance that the leader has more than half of both, by a uniform prior."""
    return 1 - betainc(first + 1, second + 1, 0.5) > 0.95


def decided(first, second, p1=0.5001, alpha=0.05, beta=0.949976):
    """Whether SPRT is done."""
    ratio = first * math.log(2 * p1) + second * math.log(2 * (1 - p1))
    return ratio >= math.log((1 - beta) / alpha) or ratio <= math.log(beta / (1 - alpha))


def one_after_another(answers, tokens, least, sure):
    """Reads branches until the two leading answers are enough; gives answer, tokens and branches."""
    read = 0
    for read in range(1, len(answers) + 1):
        counts = [count for _, count in collections.Counter(voting(answers[:read])).most_common(2)]
        if read >= least and sure(*counts, *[0] * (2 - len(counts))):
            break
    return majority(answers[:read]), sum(tokens[:read]), read


def voting(answers):
    return [answer for answer in answers if answer != NOBODY]


@pytest.mark.parametrize("cell", [pytest.param(cell, marks=pytest.mark.nightly) for cell in CELLS])
@pytest.mark.filterwarnings("ignore:.* answers differ from the reference answer by their spelling alone")
def test_published_answers_are_played_as_plain_lists_are(shared, cell):
    """Episode by episode: answer, tokens and branches of sc@8, asc@64 and sprt@64."""
    data = import_answers(shared("finals") / f"analysis_{cell}.jsonl").dataset
    plays = evaluate(data, ["sc@8", "asc@64", "sprt@64"], seeds=SEEDS).plays
    table = branch_orders(data, "repo100", range(SEEDS), 64).table[0]
    ids, tokens = np.asarray(data.matrix.finals()), np.asarray(data.matrix.tokens)
    rules = ((8, 8, lambda *_: True), (64, 2, confident), (64, 1, decided))
    for play, (most, least, sure) in zip(plays, rules, strict=True):
        for seed, order in enumerate(table):
            for q, question in enumerate(data.questions):
                chosen = order[:most]
                answer, spent, read = one_after_another(
                    ids[q, chosen].tolist(), tokens[q, chosen].tolist(), least, sure
                )
                text = None if answer == NOBODY else question.vocabulary[answer]
                found = play.answer[0, seed, q], play.tokens[0, seed, q], play.branches[0, seed, q]
                assert found == (text, spent, read), (play.player.name, seed, q)


# --- to be probed


@pytest.mark.parametrize(
    "name", ["lists", "objects", "rows of conversations", "messages in parts", "several filters"]
)
def test_completions_to_be_probed_are_recognised_too(tmp_path, name):
    path = write(tmp_path / "b.jsonl", LAYOUTS[name])
    completions = read_completions(str(path))
    assert [(problem.text, problem.gold) for problem in completions.questions] == list(QUESTIONS.items())
    texts = [[row.completion for row in completions.given[question]] for question in QUESTIONS]
    if name == "messages in parts":
        texts = [[text.partition("</think>\n\n")[2] for text in row] for row in texts]
    assert texts == TEXTS


def test_compressed_files_and_folders_are_probed_too(tmp_path):
    check_texts = [
        [row.completion for row in given]
        for given in read_completions(str(stored(tmp_path, "jsonl.gz"))).given.values()
    ]
    assert check_texts == TEXTS
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b"{}")[:-4])
    with pytest.raises(DataError, match="not a complete compressed file"):
        read_completions(str(tmp_path / "b.jsonl.gz"))


def test_an_empty_completion_cannot_be_probed(tmp_path):
    path = write(tmp_path / "b.jsonl", [{"question": "q?", "answer": "1", "samples": ["So \\boxed{1}.", ""]}])
    with pytest.raises(DataError, match=r"has an empty completion in samples\[\*\], which cannot be probed"):
        read_completions(str(path))
