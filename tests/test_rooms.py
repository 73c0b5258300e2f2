"""The rooms of the package: their public names, and what a plain installation can do."""

import ast
import functools
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import autotts_jax

ROOMS = sorted(file.parent.name for file in Path(autotts_jax.__file__).parent.glob("*/__init__.pyi"))


@pytest.mark.parametrize("name", ROOMS)
def test_every_public_name_is_there_and_documented(name):
    room = importlib.import_module(f"autotts_jax.{name}")
    assert inspect.getdoc(room)
    assert room.__all__
    for public in room.__all__:
        found = getattr(room, public)
        package = hasattr(found, "__path__")
        assert package or not inspect.ismodule(found), f"{public} is hidden by a module of the same name"
        if inspect.isclass(found) or inspect.isfunction(found):
            assert inspect.getdoc(found), public


@functools.cache
def parsed():
    """The files of the package, each with what the tests below look for in its syntax tree."""
    looked_for = ast.ClassDef, ast.Assert
    return [
        (
            file,
            [node for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, looked_for)],
        )
        for file in sorted(Path(autotts_jax.__file__).parent.rglob("*.py"))
    ]


def test_no_two_classes_share_a_name():
    """One word has one meaning across the package."""
    places: dict[str, list[str]] = {}
    for file, statements in parsed():
        for statement in statements:
            if isinstance(statement, ast.ClassDef) and not statement.name.startswith("_"):
                places.setdefault(statement.name, []).append(file.name)
    # The same space, for Gymnasium and for gymnax.
    assert {name: found for name, found in places.items() if len(found) > 1} == {
        "MultiDiscrete": ["gymnax_env.py", "spaces.py"]
    }


def test_docstrings_name_what_is_public():
    """What a public docstring sends to is in a room; names without a place are those of the module itself."""
    for room in ROOMS:
        module = importlib.import_module(f"autotts_jax.{room}")
        for public in module.__all__:
            named = re.findall(r"`autotts_jax\.(\w+)\.(\w+)", inspect.getdoc(getattr(module, public)) or "")
            for place, name in named:
                found = importlib.import_module(f"autotts_jax.{place}")
                assert name in found.__all__, f"{room}.{public} names autotts_jax.{place}.{name}"


def checks_nothing_for_types(statement):
    """Whether an assertion does more than tell a type checker what is known."""
    return not re.fullmatch(r"isinstance\(\w+, \w+\)|[\w.]+ is not None", ast.unparse(statement.test))


def test_no_assertion_guards_anything():
    """``python -O`` leaves them out."""
    guards = [
        f"{file.name}:{statement.lineno}"
        for file, statements in parsed()
        for statement in statements
        if isinstance(statement, ast.Assert) and checks_nothing_for_types(statement)
    ]
    assert guards == []


PLAIN = """
import sys

collecting = ("pydantic", "tenacity", "httpx", "anyio", "transformers", "datasets", "sympy")
collecting += ("huggingface_hub",)
sys.modules.update(dict.fromkeys(collecting))  # as if they were not installed
from autotts_jax.replay import load, write_compact, write_json, write_parquet

data = load("smollm2")
write_json(data, "model.json")
write_compact(data, "model.npz")
write_parquet(data, "model")
for written in ("model.json", "model.npz", "model"):
    assert load(written).questions == data.questions

from autotts_jax.collect import SimulatedEngine
from autotts_jax.testing import check_engine

check_engine(SimulatedEngine())
from autotts_jax.collect import ServerEngine, Store

for use in (lambda: ServerEngine("http://127.0.0.1:9", "model"), lambda: Store(".")):
    try:
        use()
    except ValueError as error:
        print(error)
"""


def test_a_plain_installation_reads_data_and_names_the_extra_for_the_rest(tmp_path):
    (tmp_path / "collection.json").write_text("{}")
    done = subprocess.run(
        [sys.executable, "-c", PLAIN], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    server, store = done.stdout.splitlines()
    assert server.startswith("an engine behind HTTP needs anyio: pip install 'autotts-jax[collecting]'")
    assert store.startswith("collecting needs pydantic: pip install 'autotts-jax[collecting]'")
