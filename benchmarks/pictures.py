"""Draws the pictures of the README: the frontier of five families, and the report in a browser.

    python benchmarks/pictures.py ../shared/replay --out docs

``make pictures`` calls it. It needs the extra ``dev`` and Chromium. It leaves the other pictures of the
documentation, most of which are of training runs that take hours, as they are.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from playwright.sync_api import sync_playwright

import autotts_jax as at
from autotts_jax.errors import InputError

FAMILIES = ("sc", "asc", "esc", "parallel-probe", "cmc")
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


def main(
    data: Annotated[list[str], typer.Argument(help="The released data, as in evaluate.")],
    out: Annotated[Path, typer.Option(help="Folder of the pictures.")] = Path("docs"),
) -> None:
    """Plays the families with all their values, and draws."""
    with tempfile.TemporaryDirectory() as folder:
        at.evaluate(data, FAMILIES).save(folder)
        shutil.copy(Path(folder, "frontier.png"), out / "frontier.png")
        photograph(Path(folder, "report.html"), out / "report.png")


if __name__ == "__main__":
    typer.run(main)
