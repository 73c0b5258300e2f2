"""Nothing that others wrote controls the terminal that shows it."""

import io
import json
import os
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from autotts_jax.checks import check_float
from autotts_jax.cli import ending
from autotts_jax.cli import main as cli
from autotts_jax.cli.console import say
from autotts_jax.core.controller import check_beta
from autotts_jax.errors import DataError
from autotts_jax.experiments.tables import Table, add_row, difference, plain_table, points
from autotts_jax.terminal import counted, printable, quoted, styled

HOSTILE = "[red]\x1b]0;owned\x07\x9b31m\u202egnp\u2066\r[/red]\nforged"
SHOWN = r"[red]\u001b]0;owned\u0007\u009b31m\u202egnp\u2066\u000d[/red]\u000aforged"
CONTROLS = re.compile(r"[^\t\x20-\x7e\xa0-\U0010ffff]|[\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@given(st.text(st.characters(codec=None, exclude_categories=())))
def test_what_is_printable_controls_nothing_and_means_the_same_in_json(text):
    shown = printable(text)
    assert printable(text, lines=True).split("\n") == [printable(line) for line in text.split("\n")]
    assert not CONTROLS.search(shown)
    assert json.loads(printable(json.dumps(text, ensure_ascii=False))) == text
    assert shown.isprintable() or text != shown or not text.isprintable()


def test_ordinary_text_stays_as_it_is():
    for text in ("π ≈ 3.14", "שלום", "👩‍🚀", "a\tb", "[red]", r"\frac{1}{2}"):
        assert printable(text) == text
        assert styled(text).plain == text
    assert printable(HOSTILE) == SHOWN


def test_tables_and_lines_show_it_as_text(capsys):
    table = plain_table(HOSTILE)
    table.add_column("")
    add_row(table, HOSTILE)
    screen = Console(file=io.StringIO(), width=200, force_terminal=True, color_system=None)
    screen.print(Table(lambda _: [table, styled(HOSTILE, "bold")]))
    assert screen.file.getvalue().count(SHOWN) == 3
    say(HOSTILE, os.fsdecode(b"\xff"))
    say(HOSTILE, error=True)
    assert capsys.readouterr() == (f"{SHOWN}\n\\udcff\n", f"{SHOWN}\n")


def test_a_message_of_several_lines_is_told_from_several_messages(capsys):
    ending.tell("error: it failed:\nautotts-jax: forged\r")
    assert capsys.readouterr().err == "autotts-jax: error: it failed:\n  autotts-jax: forged\\u000d\n"
    assert str(DataError("a\nb", "is wrong")) == "a\\u000ab: is wrong"


@given(st.text(), st.integers(3, 20))
def test_what_is_quoted_is_short_and_on_one_line(text, most):
    shown = quoted(text, most)
    words = " ".join(text.split())
    assert len(shown) == min(len(words), most)
    assert shown == words or words.startswith(shown.partition("…")[0])
    assert "\n" not in shown


def test_no_message_is_longer_than_can_be_read(capsys):
    ending.tell(f"error: {'x' * 10**6}: end\n{'y' * 10**6}")
    said = capsys.readouterr().err
    assert len(said) < 10_000
    assert said.count("\n") == 2
    assert ": end\n" in said


@pytest.fixture
def data(tmp_path):
    """A cell whose names, question and answers are hostile."""
    branches = [[[HOSTILE, "7"], 9, HOSTILE], [["7"], 5, "7"]]
    question = {
        "question": HOSTILE,
        "gold_answer": HOSTILE,
        "probe_freq": 4,
        "each_branch": branches,
        "final_answers_trace": [final for _, _, final in branches],
    }
    path = tmp_path / f"model{HOSTILE.replace('/', '')}" / "bench\x1b[2J.json"
    path.parent.mkdir()
    path.write_text(json.dumps([question]))
    return path


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (["data", "info", "{}"], 0),
        (["data", "validate", "{}"], 0),
        (["data", "validate", "{}", "absent\x1b[2J"], 2),
        (["trace", "--data", "{}", "--controller", "sc@2", "--question", "0", "--max-branches", "2"], 0),
        (["evaluate", "--data", "{}", "--controllers", "no\x1b[2J"], 2),
        (["evaluate", "--data", "absent\x1b[2J\nautotts-jax: forged"], 2),
        (["data", "convert", "{}", "--out", "{}/a.npz"], 2),
    ],
)
def test_commands_show_it_as_text(run, data, monkeypatch, line, status):
    monkeypatch.setenv("COLUMNS", "200")
    ended, *printed = run(*(word.replace("{}", str(data)) for word in line))
    said = "".join(printed)
    assert ended == status
    assert not CONTROLS.search(said.replace("\n", ""))
    assert not re.search(r"^(forged|autotts-jax: forged)", said, re.MULTILINE)
    assert re.search(r"\\(u00|x)1b", said)


@pytest.fixture
def ends(monkeypatch, capsys):
    """Runs the command line with something in the place of its commands; gives status and stderr."""

    def ends(command):
        monkeypatch.setattr("autotts_jax.cli.app.app", command)
        with pytest.raises(SystemExit) as end:
            cli.main()
        return end.value.code, capsys.readouterr().err

    return ends


def test_letters_that_the_output_does_not_have_are_replaced(monkeypatch):
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, "ascii"))
    monkeypatch.setattr("autotts_jax.cli.app.app", lambda: say("κ = 0.5"))
    cli.main()
    assert shown.getvalue() == b"? = 0.5\n"


def test_a_backend_that_jax_does_not_have_is_one_message(ends):
    def start():
        raise RuntimeError("Unable to initialize backend 'none': it is not known")

    told = (
        "autotts-jax: error: JAX cannot start: Unable to initialize backend 'none': it is not known; correct"
    )
    status, said = ends(start)
    assert status == 2
    assert said.startswith(told)
    assert said.count("\n") == 1


def test_other_errors_of_the_program_are_not_hidden(ends):
    with pytest.raises(RuntimeError, match="a fault"):
        ends(lambda: (_ for _ in ()).throw(RuntimeError("a fault")))


def test_one_of_a_kind_is_counted_as_one():
    assert [counted(n, "branch", "branches") for n in (0, 1, 2, 1000)] == [
        *("0 branches", "1 branch", "2 branches", "1,000 branches")
    ]


def test_nothing_is_written_as_less_than_nothing():
    assert points(-0.0001, -0.0001, 0.0) == "+0.0 [+0.0, +0.0]"
    assert difference(-0.0001, -0.5, 0.5) == "+0.000 [-0.500, +0.500]"
    assert str(check_float("β", -0.0)) == str(check_beta(-0.0)) == "0.0"


def test_objectives_far_below_0_are_short():
    assert difference(-1.5e20, -999_999, 0) == "-1.500e+20 [-999999.000, +0.000]"


@pytest.mark.parametrize("error", [MemoryError("1 GiB"), RuntimeError("RESOURCE_EXHAUSTED: 1 GiB")])
def test_too_little_memory_is_one_message(ends, error):
    def start():
        raise error

    told = f"there is too little memory ({error}); give less data, seeds, branches or width"
    assert ends(start) == (2, f"autotts-jax: error: {told}\n")
