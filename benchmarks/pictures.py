"""Draws the pictures of the README and of the pages in docs.

    python benchmarks/pictures.py ../shared/replay

``make pictures`` calls it. It needs the extra ``dev`` and Chromium. Frontiers, episodes and the report are
played anew. What takes long to measure, and differs between machines, is drawn from the numbers of the tables
beside the pictures: ``docs/env-speed.csv`` and ``docs/learners.csv``.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import env_speed
import learning_curves
import typer
from PIL import Image
from playwright.sync_api import sync_playwright

import autotts_jax as at
from autotts_jax.core import devices
from autotts_jax.errors import InputError
from autotts_jax.figures import save_figure

DOCS = Path(__file__).parents[1] / "docs"
FAMILIES = ("sc", "asc", "esc", "parallel-probe", "cmc")
EPISODES = {"episode-cmc.png": "cmc@0.5", "episode-neural.png": "neural@5e-5"}
MEANS = "mean of models/aime24", "mean of models/aime25"
VIEW = {"width": 1280, "height": 860}


def photograph(page_file: Path, picture: Path) -> None:
    """Takes a picture of the beginning of a page."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise InputError("there is no Chromium to take a picture with; on Debian: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport=VIEW)
        page.goto(page_file.resolve().as_uri())
        page.wait_for_selector("html[data-ready]", state="attached")
        page.screenshot(path=picture)
        browser.close()


def shrink(picture: Path, small: Path) -> None:
    """Saves a picture in 256 colours, a third of the bytes."""
    with Image.open(picture) as image:
        few = image.convert("RGB").quantize(dither=Image.Dither.NONE)
    few.save(small, optimize=True)


def main(
    data: Annotated[Path, typer.Argument(help="The folder of the released data, MODEL/BENCHMARK.json.")],
    out: Annotated[Path, typer.Option(help="Folder of the pictures.")] = DOCS,
) -> None:
    """Plays what the pictures show, and draws them."""
    devices.configure()
    with tempfile.TemporaryDirectory() as folder:
        drawn, results = Path(folder), Path(folder, "results")
        env_speed.draw(DOCS / "env-speed.csv", drawn / "env-speed.png")
        learning_curves.draw([DOCS / "learners.csv"], drawn / "learners.png")
        for name, player in EPISODES.items():
            trace = at.trace("synthetic", player, cell="synthetic-XL/synthetic", question=3)
            save_figure(trace.figure(), [drawn / name])
        learned = at.evaluate(f"{data}/*/aime25.json", ["cmc", "neural"])
        save_figure(learned.figure(), [drawn / "neural.png"])
        published = at.evaluate(data, FAMILIES)
        published.save(results)
        save_figure(published.figure(panels=MEANS), [drawn / "frontier.png"])
        photograph(results / "report.html", drawn / "report.png")
        for picture in drawn.glob("*.png"):
            shrink(picture, out / picture.name)


if __name__ == "__main__":
    typer.run(main)
