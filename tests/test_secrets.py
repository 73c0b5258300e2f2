"""No secret is written to a file: commands are stored without them."""

import json
import sys
from pathlib import Path

import pytest

from autotts_jax.cli import ending
from autotts_jax.cli import main as cli
from autotts_jax.collect import engine_spec
from autotts_jax.commands import without_secrets
from autotts_jax.core import devices
from autotts_jax.keys import VARIABLES
from autotts_jax.replay import synthetic
from autotts_jax.training.config import read_config
from autotts_jax.training.manifest import build_manifest

EXAMPLE = Path(__file__).parents[1] / "examples" / "train.toml"
SECRET = "sk-very-secret-0123456789"


@pytest.mark.parametrize(
    ("words", "stored"),
    [
        (["--api-key", SECRET, "--seeds", "2"], ["--api-key", "[hidden]", "--seeds", "2"]),
        ([f"--api-key={SECRET}"], ["--api-key=[hidden]"]),
        (["--require-key", SECRET], ["--require-key", "[hidden]"]),
        (["--engine-option", f"hf_token={SECRET}"], ["--engine-option", "hf_token=[hidden]"]),
        (["--engine-option", f"api_key={SECRET}\nmore"], ["--engine-option", "api_key=[hidden]"]),
        ([f"https://me:{SECRET}@host/v1"], ["https://[hidden]@host/v1"]),
        (["--max-tokens", "5", "--base-url", "http://host/v1"],) * 2,
        (["--data", "monkey.json", "keys=5"],) * 2,
        (["--base-url", f"me:{SECRET}@host/v1"], ["--base-url", "[hidden]@host/v1"]),
        (["http://me:a@b@host/v1"], ["http://[hidden]@host/v1"]),
        (["http://me:a/b@host"], ["http://[hidden]@host"]),
        ([f"--base-url=http://host/v1?sig={SECRET}&auth={SECRET}"], ["--base-url=http://host/v1?[hidden]"]),
        ([f"host/v1?sig={SECRET}"], ["host/v1?[hidden]"]),
        (
            [f'default_headers={{"Authorization": "Bearer {SECRET}", "A": 1, "b": [{{"api_key": "x"}}]}}'],
            ['default_headers={"Authorization": "[hidden]", "A": 1, "b": [{"api_key": "[hidden]"}]}'],
        ),
        ([f"headers={{'api_key': '{SECRET}'}}"], ["headers=[hidden]"]),
        ([f"headers=X: Bearer {SECRET}"], ["headers=X: Bearer [hidden]"]),
        ([f"authorization={SECRET}"], ["authorization=[hidden]"]),
        ([f'api_keys=["{SECRET}"]'], ["api_keys=[hidden]"]),
        (["eos_token=5", "stop_token_ids=[1, 2]", "tokenizer=/a/b", 'x={"num_key_value_heads":8}'],) * 2,
        (
            ["--api-key", SECRET, "--data", f"x-{SECRET}.json", "-e", f'a={{"b": "{SECRET}"}}'],
            ["--api-key", "[hidden]", "--data", "x-[key].json", "-e", 'a={"b": "[key]"}'],
        ),
        (
            [f"--require-key={SECRET}", f"http://host/{SECRET}/v1"],
            ["--require-key=[hidden]", "http://host/[key]/v1"],
        ),
        ([], []),
        (["--controllers", "x.py:Mine@0.5,sc@8", "--data", "runs/*/x?.json", "--answers", "a.b:f"],) * 2,
    ],
)
def test_secrets_are_left_out(words, stored):
    assert without_secrets(words) == stored
    assert without_secrets(stored) == stored


@pytest.mark.parametrize("variable", VARIABLES)
def test_a_key_of_the_environment_is_left_out(monkeypatch, capsys, variable):
    monkeypatch.setenv(variable, f" {SECRET}\n")
    assert without_secrets(["--system", f"say {SECRET}"]) == ["--system", "say [key]"]
    ending.tell(f"error: {SECRET}: is not there")
    assert capsys.readouterr().err == "autotts-jax: error: [key]: is not there\n"


def test_a_known_key_is_left_out_of_the_options_of_an_engine():
    options = {"a": {"b": [f"x{SECRET}y", 1.5, None]}, "n": 3}
    spec = engine_spec("vllm", "m", options, SECRET)
    assert spec.options == {"a": {"b": ["x[key]y", 1.5, None]}, "n": 3}
    assert engine_spec("vllm", "m", options).options == options


def main(line, monkeypatch):
    """Runs a command, which ends with status 0."""
    monkeypatch.setattr(sys, "argv", ["autotts-jax", *line])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert not end.value.code


@pytest.mark.parametrize(
    "key", [["--api-key", SECRET], pytest.param([f"--api-key={SECRET}"], marks=pytest.mark.slow)]
)
def test_no_artefact_of_a_command_holds_a_key(tmp_path, monkeypatch, key):
    folder = tmp_path / "run"
    settings = ["--branches", "8", "--interval", "20", "--max-tokens", "100", "--out", str(folder)]
    line = ["collect", "--engine", "simulated", "--questions", "arithmetic:1", *settings, *key]
    main(line, monkeypatch)
    evaluated = [
        "evaluate",
        "--data",
        str(folder),
        "--controllers",
        "sc@2",
        "--seeds",
        "1",
        "--max-branches",
        "8",
    ]
    main([*evaluated, "--out", str(tmp_path / "results")], monkeypatch)
    monkeypatch.setattr(sys, "argv", ["autotts-jax", "train", *key])
    manifest = build_manifest(read_config(EXAMPLE), synthetic(questions=1))
    (tmp_path / "train.json").write_text(json.dumps(manifest))
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"collection.json", "manifest.json", "train.json"} <= {path.name for path in written}
    assert [path for path in written if SECRET.encode() in path.read_bytes()] == []
    assert "[hidden]" in (folder / "collection.json").read_text()


@pytest.mark.parametrize("command", [["answer", "1 + 1"], ["serve", "--port", "0"]])
def test_no_message_of_a_command_holds_a_key(tmp_path, monkeypatch, capsys, command):
    """Nor a file; that of `discover` is in the environment, as tests/test_openai_proposer.py has it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(devices, "configure", lambda *_: None)
    server = ["--engine", "server", "--base-url", f"http://me:{SECRET}@127.0.0.1:9/v1", "--model", "none"]
    monkeypatch.setattr(sys, "argv", ["autotts-jax", *command, *server, "--api-key", SECRET])
    with pytest.raises(SystemExit) as end:
        cli.main()
    told = capsys.readouterr()
    assert end.value.code == 2
    assert "http://[hidden]@127.0.0.1:9/v1" in told.err
    assert SECRET not in told.out + told.err
    assert list(tmp_path.iterdir()) == []
