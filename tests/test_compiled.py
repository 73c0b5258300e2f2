"""Compiled programs that a run leaves for the next one: whole ones alone, and not without end."""

import zlib

import compiled

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
