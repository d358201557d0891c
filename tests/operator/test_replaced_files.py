"""A file is replaced in whole, and nothing stays of replacements that did not end."""

from __future__ import annotations

import os

import pytest

from karpenter_core.files import replace_file

HOUR = 3600


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def make_partial(folder, name, *, age):
    path = folder / name
    path.write_bytes(b"half")
    made = path.stat().st_mtime - age
    os.utime(path, (made, made))


def test_leftovers_of_a_killed_process_are_removed(tmp_path):
    """Each kill in the middle of a write would otherwise leave a whole cache in the folder."""
    make_partial(tmp_path, ".cache.json.abcdefgh.partial", age=2 * HOUR)
    replace_file(tmp_path / "cache.json", b"new")
    assert names(tmp_path) == ["cache.json"]


def test_a_file_that_another_process_writes_stays(tmp_path):
    make_partial(tmp_path, ".cache.json.abcdefgh.partial", age=0)
    make_partial(tmp_path, ".other.json.abcdefgh.partial", age=2 * HOUR)
    make_partial(tmp_path, ".cache.json.original", age=2 * HOUR)
    before = names(tmp_path)
    replace_file(tmp_path / "cache.json", b"new")
    assert names(tmp_path) == sorted([*before, "cache.json"])


def test_an_interrupted_replacement_keeps_the_old_file_alone(tmp_path, monkeypatch):
    """Ctrl-C is no error of the disk."""
    path = tmp_path / "cache.json"
    path.write_bytes(b"old")

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(path), "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        replace_file(path, b"new")
    assert names(tmp_path) == ["cache.json"]
    assert path.read_bytes() == b"old"


def test_a_replaced_file_is_private(tmp_path):
    replace_file(tmp_path / "cache.json", b"new")
    assert (tmp_path / "cache.json").stat().st_mode & 0o777 == 0o600
