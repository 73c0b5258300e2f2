"""Reports: what their files hold, and what a headless Chromium shows of them."""

import csv
import dataclasses
import html
import io
import json
import re
import types
from pathlib import Path

import altair
import pyarrow.parquet as pq
import pytest
import vl_convert
from searches import ENDED, TESTED, TRIED, written_by_hand

import autotts_jax as at
from autotts_jax import figures
from autotts_jax.core import CostModel
from autotts_jax.discovery import entry
from autotts_jax.discovery.results.report import discovery_report
from autotts_jax.experiments.papers import autotts_page
from autotts_jax.experiments.tables import percent
from autotts_jax.pages import rendering
from autotts_jax.pages.rendering import render
from autotts_jax.policies import SelfConsistency
from autotts_jax.replay import SYNTHETIC_MODELS, synthetic
from autotts_jax.terminal import printable
from autotts_jax.training.report import training_report
from autotts_jax.training.validation import Difference

FEW = ("sc@1", "sc@2", "asc@4")
CONTROLLERS = ("sc@1", "sc@2", "sc@4", "cmc@0.1", "cmc@0.5", "asc@4")


DATA = synthetic(models=SYNTHETIC_MODELS[1:3], questions=4, branches=10)
WIDTHS = [400, pytest.param(1280, marks=pytest.mark.nightly)]
"""Of a telephone, on which less fits, and of a screen."""


def evaluated(controllers):
    """An evaluation of two models, with the latency as its cost."""
    cost = CostModel("latency", model="Qwen3-8B")
    return at.evaluate(DATA, controllers, seeds=3, max_branches=4, cost=cost)


@pytest.fixture(scope="module")
def evaluation():
    """An evaluation of all controllers."""
    return evaluated(CONTROLLERS)


@pytest.fixture(scope="module")
def results(evaluation, tmp_path_factory):
    """Its files."""
    folder = tmp_path_factory.mktemp("results")
    evaluation.save(folder)
    return folder


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """The files of an evaluation of few controllers."""
    folder = tmp_path_factory.mktemp("few")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(figures, "available", lambda: False)  # pages draw their own
        evaluated(FEW).save(folder)
    return folder


def name_of(row):
    return f"{row['controller']}@{row['value']:g}"


def table(folder, name):
    with (folder / name).open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def embedded(text):
    """The data that the scripts of a page read."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text)[1])


def test_a_report_needs_nothing_else_and_has_the_numbers_of_the_files(few):
    text = (few / "report.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in html.unescape(text)
    elements, _, _ = text.partition('<script type="application/json"')
    assert not re.findall(r'(?:src|href)="(?!#|data:)', elements), "nothing is loaded"
    shown = embedded(text)["rows"]
    rows = table(few, "summary.csv")
    assert len(shown) == len(rows) == 3 * len(FEW)
    for one, row in zip(shown, rows, strict=True):
        assert one["cell"] == f"{row['model']}/{row['benchmark']}"
        assert one["accuracy"] / 100 == pytest.approx(float(row["accuracy"]))
        for name in ("tokens", "sequential_tokens", "cost"):
            assert one[name] == pytest.approx(float(row[name])), name


def test_charts_of_an_evaluation_are_valid(few):
    """They are written without being validated, which takes Altair longer than making them."""
    charts = embedded((few / "report.html").read_text(encoding="utf-8"))["charts"]
    frontiers = [chart for by_cost in charts.pop("frontier").values() for chart in by_cost.values()]
    assert len(frontiers) == 3
    assert sorted(charts) == ["episode", "gains", "votes"]
    for chart in (*frontiers, *charts.values()):
        altair.Chart.from_dict(chart)


HOSTILE = "</script><script>alert(1)</script><!--\u202e\u2028"


@pytest.mark.parametrize(
    ("folder", "controller"), [pytest.param("results", "cmc", marks=pytest.mark.slow), ("few", "asc")]
)
def test_an_episode_is_the_one_that_trace_plays(request, folder, controller):
    """Which depths were read and revealed in which round is told from few numbers a round."""
    shown = embedded((request.getfixturevalue(folder) / "report.html").read_text(encoding="utf-8"))[
        "episodes"
    ]
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
        max_branches=4,
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
    # What scripts compare is what the page shows.
    assert embedded(text) == {"name": printable(HOSTILE), "none": None}


def opened(browser, file, width, scheme="light"):
    """A page whose charts are drawn, and lists of what it says and of what it asks for."""
    said, asked = [], []
    viewport = {"width": width, "height": 844}
    page = browser.new_context(
        viewport=viewport, color_scheme=scheme, reduced_motion="reduce", accept_downloads=True
    ).new_page()
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
def test_a_report_is_complete_on_paper_and_without_scripts(browser, results):
    file = results / "report.html"
    page, _, _ = opened(browser, file, 1280)
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 720, "height": 844})  # charts keep the size that they had on the screen
    assert page.locator("html").evaluate("html => html.scrollWidth <= html.clientWidth")
    listed = page.locator("#by-question").locator("xpath=..")
    assert listed.evaluate("part => getComputedStyle(part).maxHeight") == "none"
    page = browser.new_page(java_script_enabled=False)
    page.goto(file.as_uri())
    assert page.locator("table:visible").count() == page.locator("main table").count() - 2  # the viewer's
    assert page.locator("form:visible, figure:visible, button:visible").count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
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
        page.get_by_text("What to show", exact=True).click()
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
            percent(*(float(row[name] or "nan") for name in ("accuracy", "accuracy_low", "accuracy_high"))),
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
    page.get_by_label("Cost on the axis").select_option("sequential tokens per episode")
    expect(page.get_by_text("sequential tokens per episode").locator("visible=true").first).to_be_visible()
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
    opened_on = [viewer.locator("select").nth(side).input_value() for side in range(2)]
    plays = [one["plays"][name] for name in opened_on]
    answers = {play["correct"] for play in one["plays"].values()}
    assert {play["correct"] for play in plays} == answers, "two that differ, where two do"
    for side, play in enumerate(plays):
        (row,) = (row for row in played if name_of(row) == play["setting"] and row["seed"] == one["seed"])
        outcome = viewer.locator(".outcome").nth(side)
        expect(outcome).to_contain_text("right" if row["correct"] else "wrong")
        expect(outcome).to_contain_text(f"round {row['rounds']}, {row['tokens']:,} tokens")
    rounds = max(len(play["tokens"]) - 1 for play in plays)
    now = viewer.locator("output")
    expect(now).to_have_text(f"{rounds} / {rounds}")
    page.keyboard.press("Home")
    expect(now).to_have_text(f"0 / {rounds}")
    left = plays[0]
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


def saved(page, name):
    """What a button downloads, and the name of its file."""
    with page.expect_download() as waiting:
        page.get_by_role("button", name=f"Download {name}").locator("visible=true").first.click()
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


def shown_in(table):
    """The headings and the visible lines of a table, as texts without buttons."""
    texts = table.evaluate(
        """table => Array.from(table.rows).filter((row) => row.checkVisibility()).map((row) =>
            Array.from(row.cells).filter((cell) => cell.checkVisibility()).map((cell) => {
                const copy = cell.cloneNode(true);
                copy.querySelectorAll("[data-episode]").forEach((button) => button.remove());
                return copy.textContent.trim();
            }))"""
    )
    return [[str(text) for text in line] for line in texts]


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1280, "light")])
def test_a_reader_takes_results_along(browser, results, width, scheme):
    from PIL import Image
    from playwright.sync_api import expect

    page, said, _ = opened(browser, results / "report.html", width, scheme)
    for button in page.locator("[data-episode]:visible").all()[:3]:
        box = button.bounding_box()
        assert 0 <= box["x"] <= box["x"] + box["width"] <= width, "in reach without scrolling a table"
    # What is downloaded is what is shown, also after it was sorted and searched.
    results_table = page.locator("section", has=page.get_by_role("heading", name="Results")).locator(
        "table:visible"
    )
    before = shown_in(results_table)
    heading = results_table.get_by_role("button", name="accuracy, %")
    for down in (False, True):
        heading.click()
        lines = shown_in(results_table)[1:]
        accuracies = [float(line[1].partition(" ")[0]) for line in lines]
        assert accuracies == sorted(accuracies, reverse=down)
        assert sorted(lines) == sorted(before[1:])
    name, content = saved(page, "synthetic, mean of models as CSV")
    assert name == "synthetic-mean-of-models.csv"
    assert list(csv.reader(io.StringIO(content.decode()))) == shown_in(results_table)
    _, content = saved(page, "synthetic, mean of models as LaTeX")
    assert content.decode().count(" \\\\\n") == len(before)
    assert content.decode().startswith(r"\begin{tabular}{l" + "r" * (len(before[0]) - 1))
    assert content.decode().isascii(), "signs are commands of LaTeX"
    questions = page.locator("#by-question")
    page.get_by_role("searchbox").fill("question 2")
    expect(page.locator("#matches")).to_have_text("2 questions")
    lines = shown_in(questions)
    assert {line[1] for line in lines[1:]} == {"Synthetic question 2"}
    _, content = saved(page, "questions as CSV")
    assert list(csv.reader(io.StringIO(content.decode()))) == lines
    # Pictures are black on white, with the names of what they show.
    _, content = saved(page, "frontier synthetic, mean of models as SVG")
    assert all(f">{name}</text>" in content.decode() for name in ("sc", "cmc", "asc", "accuracy, %"))
    name, content = saved(page, "frontier synthetic, mean of models as PNG")
    with Image.open(io.BytesIO(content)) as picture:
        assert picture.width > 1200
        assert picture.getpixel((0, 0))[:3] == (255, 255, 255)
    # Where nothing is chosen, a word says so.
    if width < 960:
        page.get_by_text("What to show", exact=True).click()
    expect(page.locator(".nothing:visible")).to_have_count(0)
    for box in page.get_by_role("checkbox", checked=True).all()[::-1]:
        box.uncheck()
    expect(page.locator(".nothing:visible").first).to_have_text(re.compile("Nothing is chosen"))
    assert page.locator("html").evaluate("html => html.scrollWidth <= html.clientWidth")
    assert said == []


def table_of(page, caption):
    """The rows of a table of a page, as texts."""
    lines = page.get_by_role("table", name=caption).locator("tbody tr").all_inner_texts()
    return [line.split("\t") for line in lines]


SEARCHED = (0, 1, 2, None, None)
"""Which fold the search of each round leaves out."""


@pytest.fixture
def discovered(tmp_path):
    """A run of discovery of five rounds and a test."""
    records = []
    for number_of_round, fold in enumerate(SEARCHED):
        for _ in range(4):
            number = len([record for record in records if record["kind"] == "candidate"])
            own = {"number": number, "fold": fold, "scores": [0.1 + (7 * number % 10) / 50]}
            records.append(TRIED | own | {"cost": 1.0 + number, "parents": [number - 1] if number else []})
        left_early = {key: value for key, value in TRIED.items() if key not in ("cost", "width")}
        records += [left_early | {"number": number + 1, "fold": fold}, ENDED | {"round": number_of_round}]
    test = TESTED | {"number": 17, "gains": [0.2, -0.1, 0.0], "objective": 0.4, "baselines": {"cmc": 0.3}}
    records += [test | {"falls": [0.5], "promotes": False}, ENDED | {"round": len(SEARCHED)}]
    return written_by_hand(tmp_path, *records, proposers=["rules"])


def test_discover_writes_its_report(discovered, monkeypatch):
    ended = types.SimpleNamespace(search=lambda *_: 0, untested=False, rounds=5)
    monkeypatch.setattr(entry, "DiscoveryRun", lambda *_, **__: ended)
    found = at.discover(DATA, out=discovered, candidates=640)
    text = (discovered / "report.html").read_text(encoding="utf-8")
    assert html.unescape(text).count(found.source().strip()) == 1
    assert "candidate 17 not promoted" in text


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_a_browser_shows_a_discovery(browser, discovered, width):
    from playwright.sync_api import expect

    found = at.read_run(discovered)
    rows = [row for row in found.to_arrow().to_pylist() if row["score"] is not None]
    (discovered / "report.html").write_text(discovery_report(found), encoding="utf-8")
    page, said, asked = opened(browser, discovered / "report.html", width)
    assert page.locator("html").evaluate("html => html.scrollWidth <= html.clientWidth")
    # The slider goes back through the rounds of a search by keys.
    frontier, progress, gains = page.locator("[data-drawn]").all()
    marks = frontier.locator(".mark-symbol.role-mark path")
    last = [row for row in rows if row["fold"] is None]
    expect(marks).to_have_count(len(last))
    page.get_by_label("Rounds up to").focus()
    page.keyboard.press("ArrowLeft")
    expect(marks).to_have_count(len([row for row in last if row["round"] <= 3]))
    page.keyboard.press("Home")
    expect(marks).to_have_count(0)
    page.get_by_label("Search").focus()
    page.keyboard.press("ArrowDown")
    expect(marks).to_have_count(len([row for row in rows if row["fold"] == 0]))
    expect(progress.locator(".mark-symbol.role-mark path")).to_have_count(len(SEARCHED))
    expect(gains.locator(".mark-rect path")).to_have_count(3)
    best = sorted(last, key=lambda row: -row["score"])
    assert [line[:1] + line[3:5] for line in table_of(page, "Best candidates")] == [
        [str(row["number"]), f"{row['score']:.4f}", f"{row['objective']:.4f}"] for row in best
    ]
    assert table_of(page, "Objective on questions left out") == [["found", "0.4000"], ["cmc", "0.3000"]]
    assert page.get_by_text("+0.1000 of objective").is_visible()
    source = page.get_by_role("region", name="Source of candidate 17")
    assert source.text_content() == found.source()
    assert said == []
    assert asked == [(discovered / "report.html").as_uri()]


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_a_browser_shows_a_training(browser, tmp_path, width):
    from playwright.sync_api import expect

    updates = 1200
    lines = [
        {"update": update, "train/loss": None if update == 7 else 1 / update}
        | ({"validation/objective": update / 5000, "validation/tokens": 1e4} if update % 100 == 0 else {})
        for update in range(1, updates + 1)
    ]
    result = {
        "update": updates,
        "best_objective": 0.22,
        "best_update": 1100,
        "seconds": 90.0,
        "ended": "SIGINT",
    }
    config = {"data": {"fold": 0, "split": False}, "trainer": {"kind": "ppo"}, "run": {"updates": 2000}}
    manifest = {"config": config, "data": {"model/bench": {}}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest | {"result": result}))
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    differences = [Difference("sc", 0.1234, -0.1, 0.3, 0.05, 0, 0.1, 0.5)]
    (tmp_path / "report.html").write_text(training_report(tmp_path, differences), encoding="utf-8")
    page, said, asked = opened(browser, tmp_path / "report.html", width)
    assert page.locator("html").evaluate("html => html.scrollWidth <= html.clientWidth")
    assert page.get_by_text("1,200 of 2,000").is_visible()
    objective, tokens, loss = (
        chart.locator(".mark-symbol path") for chart in page.locator("[data-drawn]").all()
    )
    expect(objective).to_have_count(12)
    expect(tokens).to_have_count(12)
    expect(loss).to_have_count(400)
    assert page.get_by_text("loss, every 3 updates").is_visible()
    shown = table_of(page, "Validations")
    assert shown == [
        [
            f"{line['update']:,}{' (best)' * (line['update'] == 1100)}",
            f"{line['update'] / 5000:.4g}",
            "10,000",
        ]
        for line in lines
        if "validation/tokens" in line
    ]
    assert page.get_by_text("On questions that the policy is not trained on.").is_visible()
    assert table_of(page, "Differences from published controllers") == [
        ["sc", "+0.123 [-0.100, +0.300]", "+5.0 [+0.0, +10.0]", "0.50"]
    ]
    assert table_of(page, "Measurements") == [["loss", "1", f"{1 / 1200:.4g}", f"{1 / 1200:.4g}", "1"]]
    manifest = page.get_by_role("region", name="Manifest as JSON")
    assert json.loads(manifest.text_content())["result"]["ended"] == "SIGINT"
    # By keys: past the beginning, and to a part.
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#main"
    page.get_by_role("link", name="Training").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Training")).to_be_in_viewport()
    assert said == []
    assert {url.partition("#")[0] for url in asked} == {(tmp_path / "report.html").as_uri()}


STRANGE = "<img src=x onerror=alert(1)> \"'&amp; `${1}` שלום \U0001f600 $x$" + HOSTILE


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_a_browser_shows_what_strangers_wrote_as_text(browser, tmp_path, width):
    """One question, under one seed; its errors are NaN."""
    model = dataclasses.replace(SYNTHETIC_MODELS[1], name="long" * 50)
    data = synthetic(models=[model], questions=1, branches=10)
    asked_of = dataclasses.replace(data.questions[0], text=STRANGE)
    data = dataclasses.replace(data, questions=(asked_of,))
    names = ("a/b", "<img src=x onerror=alert(2)>", "\"q'" + "long" * 50)
    families = [at.Family(name, (1, 4), lambda n: SelfConsistency(int(n)), "branches") for name in names]
    at.evaluate(data, families, seeds=1, max_branches=8).save(tmp_path)
    page, said, asked = opened(browser, tmp_path / "report.html", width)
    page.on("dialog", lambda dialog: said.append(dialog.message))
    assert page.locator("html").evaluate("html => html.scrollWidth <= html.clientWidth")
    # Names stay where they are while a table is scrolled, so they must leave room for its numbers.
    settings = page.locator("tbody th:visible").all()
    assert max(setting.bounding_box()["width"] for setting in settings) < width / 2
    if width < 960:
        page.get_by_text("What to show", exact=True).click()
    page.get_by_role("checkbox", name=names[1]).uncheck()
    assert page.locator("[data-chart=frontier]:visible .mark-symbol path").count() == 4
    page.locator("[data-episode]:visible").click()
    viewer = page.get_by_role("dialog")
    viewer.locator("select").last.select_option(names[2])
    labels = viewer.locator(".votes .role-axis-label text")
    labels.first.wait_for(state="attached")
    assert {"0", "1"} <= set(labels.all_text_contents()) <= {"", "0", "1", "2", "3", "4"}
    text = viewer.locator("#viewer-question").text_content()
    assert text == f"{printable(STRANGE, lines=True)} Right: {asked_of.gold}."
    assert viewer.locator("select option").all_text_contents()[1] == f"{names[1]}@1"
    assert viewer.evaluate("viewer => viewer.scrollWidth <= viewer.clientWidth")
    assert page.locator("img").count() == 0
    assert said == []
    assert asked == [(tmp_path / "report.html").as_uri()]


@pytest.mark.nightly
def test_the_report_of_eight_cells_is_small(tmp_path):
    """Of the size of those that were released."""
    models = [
        dataclasses.replace(model, name=f"{model.name}-{part}")
        for model in SYNTHETIC_MODELS
        for part in (1, 2)
    ]
    controllers = ["sc", "asc", "esc@64", "parallel-probe", "cmc"]
    at.evaluate(synthetic(models=models), controllers, seeds=1).save(tmp_path)
    assert (tmp_path / "report.html").stat().st_size < 5e6


def test_the_library_of_charts_is_made_once_where_something_is_kept(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda snippet: made.append(snippet) or "é\r\n")
    monkeypatch.setattr(rendering, "kept_folder", lambda: tmp_path / "kept")
    assert [rendering.chart_library.__wrapped__() for _ in range(3)] == ["é\r\n"] * 3
    assert len(made) == 1
    (tmp_path / "file").touch()
    for folder in (None, tmp_path / "file" / "kept"):
        monkeypatch.setattr(rendering, "kept_folder", lambda folder=folder: folder)
        assert rendering.chart_library.__wrapped__() == "é\r\n"
    assert len(made) == 3
