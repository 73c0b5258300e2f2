"""The released matrices by one name: from a folder or a server on this machine, or said how to get them."""

import functools
import hashlib
import http.server
import json
import threading

import pytest
from release_files import ITEMS

import autotts_jax as at
from autotts_jax.errors import DataError, InputError
from autotts_jax.replay import find_files, released

CELLS = ("Qwen3-4B/aime24", "Qwen3-8B/hmmt25")
CONTENT = json.dumps(ITEMS).encode()


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    """Two small cells in place of the released ones, and a cache of the test's own."""
    monkeypatch.setattr(released, "SHA256", dict.fromkeys(CELLS, hashlib.sha256(CONTENT).hexdigest()))
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(tmp_path / "cache" / name))
    monkeypatch.delenv(released.FOLDER_VARIABLE, raising=False)


def put(folder, content=CONTENT, cells=CELLS):
    for cell in cells:
        (folder / cell).parent.mkdir(parents=True)
        (folder / f"{cell}.json").write_bytes(content)
    return folder


@pytest.fixture
def server(monkeypatch, tmp_path):
    """A server with the files, the folder of what it serves, and what it was asked for."""
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            asked.append(self.path)

    folder = put(tmp_path / "served" / released.INSIDE)
    handler = functools.partial(Handler, directory=tmp_path / "served")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        monkeypatch.setattr(released, "BASE", f"http://127.0.0.1:{running.server_port}/")
        yield folder, asked
        running.shutdown()
        thread.join()


def names(dataset):
    return [cell.name for cell in dataset.cells]


def test_they_are_downloaded_once(server, run):
    pytest.importorskip("pooch")
    folder, asked = server
    assert names(at.load("autotts")) == list(CELLS)
    assert asked == [f"/{released.INSIDE}/{cell}.json" for cell in CELLS]
    (folder / f"{CELLS[0]}.json").unlink()
    status, said, _ = run("data", "info", "autotts")
    assert (status, len(asked)) == (0, 2)
    assert "Qwen3-8B" in said


@pytest.mark.parametrize("damage", ["other content", "missing"])
def test_what_is_not_the_released_file_is_refused(server, tmp_path, damage):
    pytest.importorskip("pooch")
    folder, _ = server
    file = folder / f"{CELLS[1]}.json"
    file.unlink() if damage == "missing" else file.write_bytes(b"[]")
    with pytest.raises(InputError, match=r"cannot be downloaded from http://127.* by hand: git clone"):
        at.load("autotts")
    assert not list((tmp_path / "cache").rglob("hmmt25*"))


def test_without_a_network_it_says_where_to_get_them(monkeypatch):
    pytest.importorskip("pooch")
    monkeypatch.setattr(released, "BASE", "http://127.0.0.1:9/")
    with pytest.raises(InputError, match=r"git checkout 3cd98d1.*autotts:FOLDER or by .* AUTOTTS_FOLDER"):
        at.load("autotts")


@pytest.mark.parametrize("inside", ["", released.INSIDE])
def test_a_folder_is_read_as_it_is(monkeypatch, tmp_path, inside):
    put(tmp_path / "mine" / inside, cells=CELLS[:1])
    assert names(at.load(f"autotts:{tmp_path}/mine")) == list(CELLS[:1])
    monkeypatch.setenv(released.FOLDER_VARIABLE, str(tmp_path / "mine"))
    assert names(at.load("autotts")) == list(CELLS[:1])
    assert len(find_files("autotts")) == 1


def test_a_folder_without_them_or_with_others_is_refused(tmp_path):
    with pytest.raises(InputError, match="has none of the released matrices, as Qwen3-4B/aime24"):
        at.load(f"autotts:{tmp_path}")
    put(tmp_path, CONTENT + b" ")
    with pytest.raises(DataError, match=r"aime24\.json: is not the released file of 3cd98d12c7cb"):
        at.load(f"autotts:{tmp_path}")


def test_the_released_data_has_these_checksums(monkeypatch, replay_dir):
    monkeypatch.undo()
    found = released.released_files(f"autotts:{replay_dir}")
    assert {file.relative_to(replay_dir) for file in found} == {
        file.relative_to(replay_dir) for file in replay_dir.rglob("*.json")
    }
