"""The page of the server, in a headless Chromium."""

import contextlib
import threading
import time

import pytest
import uvicorn

from autotts_jax.collect import Sampling, SimulatedEngine
from autotts_jax.live import ServerSettings, create_app

KEY = "secret"
pytestmark = pytest.mark.slow


class Slow(SimulatedEngine):
    """Slow enough for a page to show what happens."""

    def generate(self, requests, cancel=None):
        time.sleep(0.03)
        return super().generate(requests, cancel)


@contextlib.contextmanager
def served(key):
    """The address of a server in a thread."""
    settings = ServerSettings("sim", Sampling(interval=5, max_tokens=400), max_branches=16, api_key=key)
    config = uvicorn.Config(create_app(Slow(mean_tokens=160), settings), port=0, log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.mark.parametrize(("key", "width"), [(None, 1280), (KEY, 390)])
def test_the_page_asks_and_shows_branches_come_and_go(browser, key, width):
    from playwright.sync_api import expect

    said, asked = [], []
    with served(key) as address:
        page = browser.new_context(viewport={"width": width, "height": 844}).new_page()
        page.set_default_timeout(60_000)
        expect.set_options(timeout=60_000)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        if key:
            expect(page.get_by_role("status")).to_have_text("Enter the API key.")
            page.get_by_label("API key").fill(key)
            page.get_by_label("API key").press("Tab")
        expect(page.get_by_label("API key")).to_be_visible(visible=key is not None)
        page.get_by_label("Controller").select_option("parallel-probe")
        page.get_by_label("Value").fill("16")
        page.get_by_label("Question").fill("What is 17 + 25?")
        page.get_by_role("button", name="Ask").click()
        rows = page.locator("#branches tbody tr")
        expect(rows.filter(has_text="reading").first).to_be_visible()
        expect(page.get_by_role("button", name="Ask")).to_be_disabled()
        expect(page.get_by_role("status")).to_contain_text("Done. The answer is")
        expect(rows.filter(has_text="reading")).to_have_count(0)
        expect(rows.filter(has_text="pruned").first).to_be_visible()
        expect(rows).to_have_count(16)
        answer = page.locator("#answer").inner_text()
        assert answer == page.locator("#votes td").first.inner_text()
        assert int(page.locator("#tokens").inner_text().replace(",", "")) > 0
        assert page.locator("html").evaluate("html => html.scrollWidth <= html.clientWidth"), "it fits"
        stored = page.evaluate(
            "() => JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])"
        )
        assert stored == '[{},{},""]'
        # An error is told, and the page goes on.
        page.get_by_label("Value").fill("17")
        page.get_by_role("button", name="Ask").click()
        expect(page.get_by_role("status")).to_contain_text("more branches than the 16")
    (refused,) = said
    assert "404" in refused
    assert asked
    assert all(url.startswith((f"{address}/", "data:")) for url in asked)
