"""Reports: what their files hold, and what a headless Chromium shows of them."""

import csv
import html
import json
import re

import pyarrow.parquet as pq
import pytest

import autotts_jax as at
from autotts_jax.core import CostModel
from autotts_jax.experiments.papers import autotts_page
from autotts_jax.experiments.report.page import render
from autotts_jax.replay import SYNTHETIC_MODELS, synthetic

CONTROLLERS = ("sc@1", "sc@4", "sc@8", "cmc@0.1", "cmc@0.5", "asc@8")


DATA = synthetic(models=SYNTHETIC_MODELS[1:3], questions=4, branches=10)


@pytest.fixture(scope="module")
def evaluation():
    """An evaluation of two models, with the latency as its cost."""
    cost = CostModel("latency", model="Qwen3-8B")
    return at.evaluate(DATA, CONTROLLERS, seeds=3, max_branches=8, cost=cost)


@pytest.fixture(scope="module")
def results(evaluation, tmp_path_factory):
    """Its files."""
    folder = tmp_path_factory.mktemp("results")
    evaluation.save(folder)
    return folder


def name_of(row):
    return f"{row['controller']}@{row['value']:g}"


def table(folder, name):
    with (folder / name).open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def embedded(text):
    """The data that the scripts of a page read."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text)[1])


def test_a_report_needs_nothing_else_and_has_the_numbers_of_the_files(results):
    text = (results / "report.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in html.unescape(text)
    elements, _, _ = text.partition('<script type="application/json"')
    assert not re.findall(r'(?:src|href)="(?!#|data:)', elements), "nothing is loaded"
    shown = embedded(text)["rows"]
    rows = table(results, "summary.csv")
    assert len(shown) == len(rows) == 3 * len(CONTROLLERS)
    for one, row in zip(shown, rows, strict=True):
        assert one["cell"] == f"{row['model']}/{row['benchmark']}"
        assert one["accuracy"] / 100 == pytest.approx(float(row["accuracy"]))
        for name in ("tokens", "sequential_tokens", "cost"):
            assert one[name] == pytest.approx(float(row[name])), name


HOSTILE = "</script><script>alert(1)</script><!--\u202e\u2028"


@pytest.mark.parametrize("controller", ["cmc", "asc"])
def test_an_episode_is_the_one_that_trace_plays(results, controller):
    """Which depths were read and revealed in which round is told from few numbers a round."""
    shown = embedded((results / "report.html").read_text(encoding="utf-8"))["episodes"]
    assert len(shown) == len(DATA)
    assert len({(one["cell"], one["question"]) for one in shown}) == len(shown)
    one = shown[1]
    play = one["plays"][controller]
    trace = at.trace(
        DATA,
        play["setting"],
        cell=one["cell"],
        question=one["question"],
        seed=one["seed"],
        max_branches=8,
    )
    assert (play["answer"], one["gold"]) == (trace.answer, trace.gold)
    assert (play["stop"], len(play["tokens"]) - 1) == (
        trace.stop_reason.name.lower().replace("_", " "),
        trace.rounds,
    )
    by_round = {step.round: step.tokens for step in trace.steps}
    assert {number: play["tokens"][number] for number in by_round} == by_round
    for number, (read, seen, pruned) in enumerate(play["branches"]):
        revealed = [at_round >= 0 for at_round in seen or read]
        answers = [one["answers"][key] if key >= 0 else None for key in one["shown"][number]]
        assert [
            answer if is_shown else None for answer, is_shown in zip(answers, revealed, strict=False)
        ] == trace.shown[number]
        assert (pruned >= 0) == trace.pruned[number]
        assert (len(read) == one["ends"][number]) == trace.finished[number]
        opened = next(s.round for s in trace.steps if number in s.decision.branches)
        assert read[0] == opened


def test_nothing_from_outside_ends_an_element():
    facts = {HOSTILE: HOSTILE}
    text = render("base", HOSTILE, {"name": HOSTILE, "none": float("nan")}, facts=facts)
    assert "alert(1)</script>" not in text
    assert "<!--" not in text.partition('id="data"')[2].partition("</script>")[0]
    assert "\u202e" not in text
    assert embedded(text) == {"name": HOSTILE, "none": None}


def opened(browser, file, width):
    """A page whose charts are drawn, and lists of what it says and of what it asks for."""
    said, asked = [], []
    page = browser.new_context(viewport={"width": width, "height": 844}).new_page()
    page.set_default_timeout(60_000)
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    return page, said, asked


@pytest.mark.slow
def test_a_browser_shows_a_paper(browser, evaluation, tmp_path):
    paper = autotts_page.page(evaluation, {})
    paper.save(tmp_path)
    page, said, asked = opened(browser, tmp_path / "autotts.html", 390)
    assert page.locator("html").evaluate("html => html.scrollWidth <= html.clientWidth")
    for section in paper.sections:
        part = page.locator("section", has=page.get_by_role("heading", name=section.title, exact=True))
        texts = [
            part.locator("table").nth(n).locator("tbody tr").all_inner_texts()
            for n, _ in enumerate(section.grids)
        ]
        lines = [["\t".join(line).strip() for line in grid.lines] for grid in section.grids]
        assert [[text.strip() for text in of] for of in texts] == lines
    (chart,) = page.locator("[data-drawn] svg").all()
    assert chart.locator(".mark-symbol.role-mark path").count() == len(CONTROLLERS)
    assert (said, asked) == ([], [(tmp_path / "autotts.html").as_uri()])


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_shows_an_evaluation(browser, results, width):
    from playwright.sync_api import expect

    page, said, asked = opened(browser, results / "report.html", width)
    expect.set_options(timeout=60_000)

    def fits():
        return page.locator("html").evaluate("html => html.scrollWidth <= html.clientWidth")

    assert fits()
    # The mean of the models alone is shown, until another cell is picked; so in charts and in tables.
    expect(page.locator("figure:visible")).to_have_count(2)
    if width < 960:
        page.get_by_text("What to show").click()
    page.get_by_role("checkbox", name=SYNTHETIC_MODELS[1].name).check()
    expect(page.locator("figure:visible svg")).to_have_count(4)
    caption = f"synthetic, {SYNTHETIC_MODELS[1].name}"
    summary = [r for r in table(results, "summary.csv") if r["model"] == SYNTHETIC_MODELS[1].name]
    paired = [r for r in table(results, "paired.csv") if r["model"] == SYNTHETIC_MODELS[1].name]
    shown = page.locator("section", has=page.get_by_role("heading", name="Results"))
    lines = shown.get_by_role("table", name=caption).locator("tbody tr")
    assert [line.split("\t")[:2] for line in lines.all_inner_texts()] == [
        [
            f"{row['controller']}@{float(row['value']):g}",
            f"{100 * float(row['accuracy']):.1f} ± {100 * float(row['accuracy_se']):.1f}",
        ]
        for row in summary
    ]
    differences = page.locator("section", has=page.get_by_role("heading", name="Differences"))
    gains = differences.get_by_role("table", name=caption).locator("tbody tr td:nth-child(2)")
    assert [float(text.partition(" ")[0]) for text in gains.all_inner_texts()] == pytest.approx(
        [100 * float(row["gain"]) for row in paired[1:]], abs=0.051
    )
    # A controller that is left out goes from both.
    page.get_by_role("checkbox", name="cmc").uncheck()
    expect(lines.locator("visible=true")).to_have_count(4)
    marks = page.locator("figure:visible [data-chart=frontier] .mark-symbol path")
    expect(marks).to_have_count(2 * 4)
    # The cost that was asked for is on the axis, and another can be.
    axis = page.locator("figure:visible [data-chart=frontier] .role-axis-title").first
    expect(axis).to_have_text("latency an episode, s")
    page.get_by_label("Cost on the axis").select_option("sequential tokens an episode")
    expect(page.get_by_text("sequential tokens an episode").locator("visible=true").first).to_be_visible()
    marks.first.hover()
    expect(page.locator("#vg-tooltip-element")).to_contain_text("accuracy, %")
    assert fits()
    # The accuracies of the questions are those of the episodes.
    episodes = pq.read_table(results / "episodes.parquet").to_pylist()
    shown = embedded((results / "report.html").read_text(encoding="utf-8"))["episodes"]
    button = page.locator("[data-episode]:visible").first
    one = shown[int(button.get_attribute("data-episode"))]
    played = [
        row
        for row in episodes
        if (f"{row['model']}/{row['benchmark']}", row["question"]) == (one["cell"], one["question"])
    ]
    listed = button.locator("xpath=ancestor::tr/td[@data-controller]").all_text_contents()
    assert [int(text) for text in listed] == [
        round(100 * sum(row["correct"] for row in played if name_of(row) == play["setting"]) / 3)
        for play in one["plays"].values()
    ]
    # The viewer shows the end of the episode, and steps by keys.
    button.click()
    viewer = page.get_by_role("dialog")
    expect(viewer.get_by_role("heading", name=f"{one['cell']}, question {one['question']}")).to_be_visible()
    for side, (name, play) in enumerate(list(one["plays"].items())[:2]):
        assert viewer.locator("select").nth(side).input_value() == name
        (row,) = (row for row in played if name_of(row) == play["setting"] and row["seed"] == one["seed"])
        outcome = viewer.locator(".outcome").nth(side)
        expect(outcome).to_contain_text("right" if row["correct"] else "wrong")
        expect(outcome).to_contain_text(f"round {row['rounds']}, {row['tokens']:,} tokens")
    rounds = max(len(play["tokens"]) - 1 for play in list(one["plays"].values())[:2])
    now = viewer.locator("output")
    expect(now).to_have_text(f"{rounds} / {rounds}")
    page.keyboard.press("Home")
    expect(now).to_have_text(f"0 / {rounds}")
    left = next(iter(one["plays"].values()))
    expect(viewer.locator(".doing").first).to_contain_text(f"{left['tokens'][0]:,} tokens")
    cells = viewer.locator(".picture").first.locator(".mark-rect path")
    expect(cells).to_have_count(sum(at_round == 0 for read, _, _ in left["branches"] for at_round in read))
    page.keyboard.press("ArrowRight")
    expect(now).to_have_text(f"1 / {rounds}")
    page.keyboard.press(" ")
    expect(now).to_have_text(f"{rounds} / {rounds}")
    expect(viewer.get_by_role("button", name="Play")).to_be_visible()
    assert viewer.evaluate("viewer => viewer.scrollWidth <= viewer.clientWidth")
    page.keyboard.press("Escape")
    expect(viewer).not_to_be_visible()
    assert said == []
    assert asked == [(results / "report.html").as_uri()]
