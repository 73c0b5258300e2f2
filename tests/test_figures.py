"""Pictures for papers: how they look, at both widths, and what their files hold."""

import dataclasses
import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

import autotts_jax as at
from autotts_jax import figures, styles
from autotts_jax.core.view import StopReason
from autotts_jax.experiments import plots
from autotts_jax.experiments.summary import Row
from autotts_jax.experiments.tracing import Trace
from autotts_jax.policies.player import Seal
from autotts_jax.policies.players import CONTROLLERS, NEURAL

SMALLEST = 6
"""Points of the smallest text that a paper may have."""

DEUTERANOPIA = [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
]
PROTANOPIA = [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
]
"""What eyes see of linear RGB: Machado, Oliveira and Fernandes (2009), table 1, at severity 1."""

EYES = {"all": np.eye(3), "deuteranopia": np.array(DEUTERANOPIA), "protanopia": np.array(PROTANOPIA)}
GROUNDS = ("#ffffff", "#14171b")
"""Of a page in light and in dark."""

TO_CONES = [
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
]
TO_LAB = [
    [0.2104542553, 0.793617785, -0.0040720468],
    [1.9779984951, -2.428592205, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.808675766],
]
"""From linear RGB to Oklab: Ottosson (2020)."""


# --- styles ---------------------------------------------------------------------------------------------


def linear(colour):
    rgb = np.array([int(colour[start : start + 2], 16) for start in (1, 3, 5)]) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def seen(colour, eyes):
    """A colour in Oklab, in which distances are about those that people see; 2 or 3 is just noticeable."""
    rgb = np.clip(EYES[eyes] @ linear(colour), 0, 1)
    return 100 * np.array(TO_LAB) @ np.cbrt(np.array(TO_CONES) @ rgb)


def contrast(one, other):
    lights = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (one, other))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


@pytest.mark.parametrize("eyes", EYES)
def test_colours_are_told_apart(eyes):
    for one, other in itertools.combinations(styles.COLOURS, 2):
        assert np.linalg.norm(seen(one, eyes) - seen(other, eyes)) > 7, (one, other)
    # What this measures: red and green of the same lightness are one colour with deuteranopia.
    reds, greens = seen("#d1495b", "deuteranopia"), seen("#8c7a3c", "deuteranopia")
    assert np.linalg.norm(reds - greens) < 7


@pytest.mark.parametrize("ground", GROUNDS)
def test_colours_have_contrast(ground):
    for colour in (*styles.COLOURS, styles.NEUTRAL):
        assert contrast(colour, ground) >= 3, colour


@pytest.mark.parametrize("eyes", EYES)
def test_controllers_are_told_apart(eyes):
    """By their colours, or else by their marks and dashes."""
    found = styles.styles([*styles.CONTROLLERS, *(f"own{number}" for number in range(16))])
    for one, other in itertools.combinations(found.values(), 2):
        apart = np.linalg.norm(seen(one.colour, eyes) - seen(other.colour, eyes)) > 7
        assert apart or one.mark != other.mark
    assert len(set(found.values())) == 42


def test_a_controller_has_one_style_everywhere():
    assert {*CONTROLLERS, NEURAL} == set(styles.CONTROLLERS)
    everything = styles.styles(styles.CONTROLLERS)
    assert styles.styles(["cmc", "mine", "sc"]) == {
        "cmc": everything["cmc"],
        "mine": styles.styles(["mine"])["mine"],
        "sc": everything["sc"],
    }


@pytest.mark.parametrize(
    "published", [["asc", "cmc"], ["sc", "cmc", "asc", "esc"], [*styles.CONTROLLERS[:5]]]
)
def test_ones_own_controller_has_a_colour_that_is_free(published):
    found = styles.styles([*published, "mine"])
    assert found.pop("mine").colour not in {style.colour for style in found.values()}


def test_right_and_wrong_differ_in_more_than_colour():
    assert styles.RIGHT_SIGN != styles.WRONG_SIGN
    for eyes in EYES:
        assert np.linalg.norm(seen(styles.RIGHT, eyes) - seen(styles.WRONG, eyes)) > 20


# --- figures --------------------------------------------------------------------------------------------

LONG = "a-model-with-a-name-of-more-than-fifty-characters-of-$\\frac$-text"


def setting(model, benchmark, controller, value, accuracy, tokens):
    numbers = {field.name: 0.1 for field in dataclasses.fields(Row)}
    own = {
        "model": model,
        "benchmark": benchmark,
        "controller": controller,
        "value": value,
        "baseline": "sc@4",
    }
    gains = {"gain": accuracy - 0.2, "gain_low": accuracy - 0.4, "gain_high": accuracy}
    return Row(**numbers | own | gains | {"accuracy": accuracy, "tokens": tokens})


ROWS = [
    setting(model, benchmark, controller, value, 0.2 + place / 30, 1e4 * 2**place)
    for benchmark, models in (
        ("aime24", ("Qwen3-8B", LONG)),
        ("aime25", ("Qwen3-8B", "Qwen3-4B", "Qwen3-1.7B")),
    )
    for model in models
    for place, (controller, value) in enumerate(
        [("sc", 4), ("sc", 8), ("sc", 16), ("cmc", 0.1), ("cmc", 0.5), ("parallel-probe", 64), (LONG, 1)]
    )
]


def episode(size, answer, signals):
    shown = [["12", None, "7"] * 8, ["7"] * 30, ["$x_1$", "a much longer answer than the others"]] * (16 + 4)
    return Trace(
        f"cmc@0.5 on {LONG}/aime24, question 3, seed 0",
        [],
        answer,
        "7",
        StopReason.DECIDED,
        [branch % 3 == 0 for branch in range(60)],
        [branch % 3 == 1 for branch in range(60)],
        shown,
        {name: [[0.5] * len(branch) for branch in shown] for name in ("conf", "low_conf")[: 2 * signals]},
    ).figure(size=size)


FIGURES = {
    **{kind: lambda size, kind=kind: plots.KINDS[kind](ROWS, size) for kind in plots.KINDS},
    "frontier of one cell": lambda size: plots.frontier_figure(
        plots.rows_of(ROWS, ["Qwen3-8B/aime25"]), size
    ),
    "frontier of one setting": lambda size: plots.frontier_figure(ROWS[:1], size),
    "episode": lambda size: episode(size, "12", False),
    "episode with signals": lambda size: episode(size, None, True),
}


PARTS = ("frontier of one cell", "frontier of one setting", "gains", "episode")
"""Figures that others have in them, or that are made as they are."""

DRAWN = [
    pytest.param(
        (kind, size), id=f"{kind} {size}", marks=[pytest.mark.slow] * (size != "column" or kind in PARTS)
    )
    for kind, size in itertools.product(FIGURES, figures.WIDTHS)
]
"""What is narrow has the least room."""


@pytest.fixture(scope="module", params=DRAWN)
def drawn(request, tmp_path_factory):
    """A figure, as it is after it was saved; and its files."""
    kind, size = request.param
    figure = FIGURES[kind](size)
    files = [tmp_path_factory.mktemp("figures") / f"figure.{ending}" for ending in figures.FORMATS]
    figures.save_figure(figure, files)
    return size, figure, {file.suffix: file.read_bytes() for file in files}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("ending", figures.FORMATS)
def test_a_full_disk_is_an_error_of_the_disk(tmp_path, ending):
    file = tmp_path / f"figure.{ending}"
    file.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        figures.save_figure(FIGURES["frontier of one setting"]("column"), [file])


def texts(figure):
    """The texts that are visible, with the boxes that they fill."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    found = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    hidden = {
        label
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in axis.get_major_ticks()
        for label in (tick.label1, tick.label2)
        if not (axis.get_view_interval().min() <= tick.get_loc() <= axis.get_view_interval().max())
    }
    return [(text, text.get_window_extent(renderer)) for text in found if text not in hidden]


def test_a_figure_is_as_wide_as_its_place_and_its_text_is_readable(drawn):
    size, figure, _ = drawn
    width, height = figure.get_size_inches()
    assert width == {"column": 3.3, "page": 6.75}[size]
    assert 1 < height < 20
    found = texts(figure)
    assert min(text.get_fontsize() for text, _ in found) >= SMALLEST
    box = figure.bbox
    for text, extent in found:
        inside = (box.x0 - 1 <= extent.x0) and (extent.x1 <= box.x1 + 1)
        inside = inside and (box.y0 - 1 <= extent.y0) and (extent.y1 <= box.y1 + 1)
        assert inside, f"{text.get_text()!r} is cut off at {extent}, in {box}"
    for (one, first), (other, second) in itertools.combinations(found, 2):
        both = first.intersection(first.padded(-1), second.padded(-1))
        assert both is None, f"{one.get_text()!r} overlaps {other.get_text()!r}"


def test_panels_have_room(drawn):
    _, figure, _ = drawn
    for axes in figure.axes:
        assert axes.get_window_extent().height > 0.5 * figure.dpi


def test_text_is_text(drawn):
    _, figure, files = drawn
    label = next(axes.get_xlabel() for axes in figure.axes if axes.get_xlabel()).splitlines()[0]
    assert re.search(rf"<text[^>]*>{re.escape(label)}</text>", files[".svg"].decode())
    assert b"/Subtype /Type0" in files[".pdf"] or b"/Subtype /TrueType" in files[".pdf"]
    assert b"/Subtype /Type3" not in files[".pdf"]
    assert files[".png"].startswith(b"\x89PNG")


def test_right_and_wrong_answers_carry_signs():
    figure = episode("column", "12", False)
    markers = [collection.get_offsets() for collection in figure.axes[0].collections[:2]]
    right, wrong = sorted(map(len, markers), reverse=True)
    assert (right, wrong) == (20 * (8 + 30), 20 * 8)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[:2] == ["7 (right)", "12 (given)"]


# --- of an evaluation -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result():
    return at.evaluate(at.load("smollm2"), ["sc@1", "sc@2", "sc@4"], seeds=2, max_branches=4)


def test_panels_are_chosen_by_name(result):
    (cell,) = {row.cell for row in result.rows}
    assert [panel.get_title() for panel in result.figure(panels=[cell]).axes] == [cell]
    shown = plots.rows_of(ROWS, ["Qwen3-4B/aime25", "Qwen3-8B/aime24"])
    assert [panel.get_title() for panel in plots.gains_figure(shown).axes] == [
        "Qwen3-4B/aime25",
        "Qwen3-8B/aime24",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "frontir"}, "unknown kind of figure 'frontir'"),
        ({"size": 3.3}, "unknown size 3.3"),
        ({"panels": ["Qwen"]}, "unknown panel 'Qwen'"),
        ({"panels": "Qwen"}, "must be a list of cells"),
        ({"panels": []}, "must be a list of cells"),
    ],
)
def test_what_cannot_be_drawn_is_said(result, arguments, message):
    with pytest.raises(at.InputError, match=message):
        result.figure(**arguments)


def test_one_setting_has_no_gains(tmp_path):
    alone = at.evaluate(at.load("smollm2"), "sc@1", seeds=2, max_branches=4)
    with pytest.raises(at.InputError, match="sc@1 is the only setting"):
        alone.figure("gains")
    names = {file.name for file in alone.save(tmp_path)}
    assert "frontier.pdf" in names
    assert "gains.pdf" not in names


def test_tables_are_markdown_and_latex(result):
    table = result.table()
    numbers = re.findall(r"[-+]?\d+\.\d+", str(table).partition("\nseeds: ")[0])
    assert any(number.startswith("-") for number in numbers)
    assert re.findall(r"[-+]?\d+\.\d+", table.markdown().partition("\nseeds: ")[0]) == numbers
    assert re.findall(r"[-+]?\d+\.\d+", table.latex().replace("$-$", "-")) == numbers
    lines = table.latex().splitlines()
    for line in (r"\begin{table}", r"\toprule", r"\bottomrule", r"\end{tabular}", r"\end{table}"):
        assert lines.count(line) == 2
    labels = [line for line in lines if line.startswith(r"\label")]
    assert labels == [r"\label{tab:arithmetic}", r"\label{tab:arithmetic-objective}"]
    rows = [line for line in lines if line.endswith(r"\\")]
    assert len({line.count(" & ") for line in rows[: len(rows) // 2]}) == 1
    assert "\N{PLUS-MINUS SIGN}" not in table.latex()


def test_a_latex_table_holds_its_legend_and_nothing_about_the_run(result):
    play = dataclasses.replace(result.plays[0], seal=Seal("kernel"))
    table = dataclasses.replace(result, plays=(play, *result.plays[1:])).table()
    assert "\nsealed (kernel): " in str(table)
    written = table.latex()
    outside = re.sub(r"\\begin\{table\}.*?\\end\{table\}", "", written, flags=re.DOTALL)
    assert outside.strip() == ""
    assert "sealed" not in written
    assert "seeds: " not in written
    assert (
        written.count(r"\end{tabular}" "\n" r"\par\smallskip\parbox{\linewidth}{\footnotesize [ ]: 95") == 2
    )
    assert written.count(r"1\{correct\} $-$ $\gamma$$\cdot$cost") == 2


def test_names_are_text_in_latex_and_markdown():
    rows = [dataclasses.replace(ROWS[0], controller=r"50%_of_$x$&{\x}#~^|*")]
    from autotts_jax.experiments.tables import summary_table

    table = summary_table(rows)
    escaped = r"50\%\_of\_\$x\$\&\{\textbackslash{}x\}\#\textasciitilde{}\textasciicircum{}|*@4"
    assert escaped in table.latex()
    assert r"50%\_of\_$x$&{\\x}#~^\|\*@4" in table.markdown()


def test_the_command_line_draws_what_is_asked_for(run, tmp_path):
    from PIL import Image

    asked = ("evaluate", "--data", "smollm2", "--controllers", "sc@1,sc@2", "--seeds", 2, "--max-branches", 4)
    cell = "SmolLM2-135M-Instruct/arithmetic"
    status, _, err = run(*asked, "--out", tmp_path, "--figure-size", "column", "--panels", cell)
    assert (status, err) == (0, "")
    with Image.open(tmp_path / "gains.png") as picture:
        assert picture.width == 660
    for wrong, message in (
        (("--out", tmp_path, "--panels", "no/cell"), "unknown panel 'no/cell'"),
        (("--out", tmp_path, "--figure-size", "huge"), "unknown size 'huge'"),
        (("--panels", cell), "give a folder as well"),
    ):
        status, _, err = run(*asked, *wrong)
        assert status == 2
        assert message in err
