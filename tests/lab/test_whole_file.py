"""A file is there whole or not at all."""

import os
from pathlib import Path

import pytest

from hitrate_lab.bad_input import BadInput
from hitrate_lab.whole_file import whole_file, write_whole


def test_folder_and_file_are_made_and_replaced(tmp_path):
    path = tmp_path / "new" / "folder" / "page.html"
    write_whole(path, b"first")
    write_whole(path, b"second")
    assert path.read_bytes() == b"second"
    assert os.listdir(path.parent) == ["page.html"]


def test_readers_see_the_old_file_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "page.html"
    write_whole(path, b"old")
    with whole_file(path) as new:
        new.write_bytes(b"ne")
        assert path.read_bytes() == b"old"
        with new.open("ab") as file:
            file.write(b"w")
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError, OSError(28, "No space")])
def test_what_is_not_finished_leaves_what_was_there(tmp_path, error):
    path = tmp_path / "page.html"
    write_whole(path, b"old")
    expected = BadInput if isinstance(error, OSError) else error
    with pytest.raises(expected), whole_file(path) as new:
        new.write_bytes(b"half")
        raise error
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["page.html"]


@pytest.mark.parametrize("place", [".", "file/page.html"])
def test_a_place_that_cannot_have_the_file_is_said_in_one_line(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput, match=rf"^{place}: cannot be written: \w"):
        write_whole(Path(place), b"x")
    assert os.listdir(tmp_path) == ["file"]


def test_others_may_read_what_is_written(tmp_path):
    before = os.umask(0o022)
    try:
        write_whole(tmp_path / "data.csv", b"1")
    finally:
        os.umask(before)
    assert (tmp_path / "data.csv").stat().st_mode & 0o777 == 0o644
