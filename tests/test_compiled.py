"""Compiled programs that a run leaves for the next one: whole ones alone, and not without end."""

import os
import shutil
import tempfile
import zlib
from pathlib import Path

import compiled
import jax
import pytest

WHOLE = zlib.compress(b"program" * 100)


def kept(folder):
    (place,) = (path for path in folder.iterdir() if path.name != "runs")
    return {path.name: path.read_bytes() for path in place.iterdir()}


def test_a_run_finds_what_earlier_ones_have_compiled(tmp_path):
    run, end = compiled.lend("flags", tmp_path)
    (run / "whole").write_bytes(WHOLE)
    (run / "cut").write_bytes(WHOLE[:-1])
    end()
    assert not run.exists()
    assert kept(tmp_path) == {"whole": WHOLE}
    run, end = compiled.lend("flags", tmp_path)
    assert [path.name for path in run.iterdir()] == ["whole"]
    other, other_end = compiled.lend("other flags", tmp_path)
    assert list(other.iterdir()) == []
    other_end()
    end()


def test_what_is_kept_does_not_grow_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "MOST_BYTES", 2 * len(WHOLE))
    run, end = compiled.lend("flags", tmp_path)
    for name in "abc":
        (run / name).write_bytes(WHOLE)
    end()
    assert len(kept(tmp_path)) == 2


def test_what_a_killed_run_has_left_is_deleted(tmp_path, monkeypatch):
    run, _ = compiled.lend("flags", tmp_path)
    monkeypatch.setattr(compiled, "LEFT_BEHIND", -1.0)
    compiled.lend("flags", tmp_path)
    assert not run.exists()


def test_a_user_without_a_folder_has_one_for_the_run(tmp_path):
    (tmp_path / "file").touch()
    run, end = compiled.lend("flags", tmp_path / "file")
    assert run.is_dir()
    end()
    assert not run.exists()


def test_a_folder_that_cannot_be_written_is_done_without(tmp_path, monkeypatch):
    make = tempfile.mkdtemp

    def refused(dir=None, **options):  # noqa: A002
        if dir is not None:
            raise PermissionError
        return make(**options)

    compiled.lend("flags", tmp_path)[1]()
    monkeypatch.setattr(tempfile, "mkdtemp", refused)
    run, end = compiled.lend("flags", tmp_path)
    assert tmp_path not in run.parents
    end()
    assert not run.exists()


def test_runs_go_on_while_others_end_and_the_folder_is_deleted(tmp_path):
    run, end = compiled.lend("flags", tmp_path)
    (tmp_path / "runs" / "ended").symlink_to("nowhere")  # as a folder that is gone when it is looked at
    _, other_end = compiled.lend("flags", tmp_path)
    (run / "whole").write_bytes(WHOLE)
    shutil.rmtree(tmp_path)
    end()
    other_end()


@pytest.fixture
def keeping_all():
    """Has JAX keep what takes no time to compile, too."""
    name = "jax_persistent_cache_min_compile_time_secs"
    before = getattr(jax.config, name)
    jax.config.update(name, 0.0)
    yield
    jax.config.update(name, before)


@pytest.mark.usefixtures("keeping_all")
def test_what_was_cut_later_is_compiled_again():
    @jax.jit
    def cut_later(x):
        return x + 1

    assert cut_later(1) == 2
    (entry,) = Path(os.environ["JAX_COMPILATION_CACHE_DIR"]).glob("jit_cut_later-*")
    entry.write_bytes(entry.read_bytes()[:-1])
    jax.clear_caches()
    assert cut_later(1) == 2  # a warning that is not expected is an error
