"""Other optimisers search with the sealed judge: their examples run, and no failure is ever a score."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from scripted_model import serving

from autotts_jax.discovery.proposers.prompts import code_of
from autotts_jax.user_code import load_object

EXAMPLES = Path(__file__).parents[1] / "examples"
COMPARISON = Path(__file__).parents[1] / "benchmarks" / "discovery_outside.py"
SILENT = """class Silent:
    def __init__(self, config):
        pass

    def solve(self, question):
        [question.get_new_branch_final_answer() for _ in range({branches})]
        return ""


candidate = Silent
"""
DEAR, CHEAP = SILENT.format(branches=16), SILENT.format(branches=2)
"""Files that never answer, so that their objective is below 0, which a failure must not be worth."""
BROKEN, RAISES = CHEAP.replace("config):", "config:"), CHEAP.replace("return", "return 1 / 0 or")
KEY = "sk-not-to-be-written"


def reply_of(file):
    """A reply in the form that each of them asks for."""
    return f"<NAME>\nan_idea\n</NAME>\n<DESCRIPTION>\n</DESCRIPTION>\n<CODE>\n```python\n{file}```\n</CODE>"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("script", "package"),
    [
        ("discover_gepa.py", "gepa"),
        pytest.param("discover_openevolve.py", "openevolve", marks=pytest.mark.nightly),
        ("discover_shinka.py", "shinka"),
    ],
)
def test_the_best_file_is_found_and_no_failure_is_a_score(script, package, tmp_path):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}; the head of {script} says how to install it")
    lock, files = threading.Lock(), iter([BROKEN, RAISES, CHEAP])

    def write(_):
        with lock:
            return reply_of(next(files))

    first = tmp_path / "first.py"
    first.write_text(DEAR)
    options = ["--evaluations", "4", "--first", first, "--out", tmp_path / "run"]
    with serving(write) as server:
        environment = os.environ | {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": KEY}
        done = subprocess.run(
            [sys.executable, EXAMPLES / script, "wise", *options],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "run" / "evaluations.jsonl").read_text().splitlines()]
    assert len(lines) == 4
    measured = {
        name: [line["objective"] for line in lines if file.strip() in line["source"]]
        for name, file in {"dear": DEAR, "cheap": CHEAP, "broken": BROKEN, "raises": RAISES}.items()
    }
    assert measured["broken"] == measured["raises"] == [None]
    (dear,), (cheap,) = measured["dear"], measured["cheap"]
    assert dear < cheap < 0
    assert CHEAP.strip() in (tmp_path / "run" / "best.py").read_text()
    said = re.search(r"^4 evaluations, 2 failures; objective (\S+): ", done.stdout, re.MULTILINE)
    assert float(said[1]) == pytest.approx(cheap, abs=1e-4)
    assert "gain over cmc" in json.dumps(server.requests)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in written if KEY.encode() in path.read_bytes()]


def test_the_model_of_the_comparison_changes_the_numbers_of_a_file_that_it_is_shown():
    model_of, file, numbers = (
        load_object(f"{COMPARISON}:{name}", "an object") for name in ("Model", "FILE", "NUMBERS")
    )
    shown = "1.0, 2.0, 0.5, 0.5", "9.0, 9.5, 0.9, 0.9"
    prompt = "\n".join(f"```python\n{file.format(numbers=one)}```" for one in shown)
    request = {"messages": [{"role": "user", "content": prompt}]}
    first, again, other = model_of(0), model_of(0), model_of(1)
    replies = [first(request) for _ in range(40)]
    assert replies == [again(request) for _ in range(40)] != [other(request) for _ in range(40)]
    files = [source for reply in replies if (source := code_of(reply))]
    assert 30 < len(files) < 40
    for source in files:
        (written,) = numbers.findall(source)
        assert source == file.format(numbers=written)
    firsts = [float(numbers.findall(source)[0].split(",")[0]) for source in files]
    assert np.ptp(np.log(firsts)) > np.log(9) - 1, "children of both"
    alone = [first({"messages": [{"role": "user", "content": "Write a first candidate."}]}) for _ in range(9)]
    assert any(map(code_of, alone))
