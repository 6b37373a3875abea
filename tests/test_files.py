from __future__ import annotations

import errno
import os
import stat

import pytest

from mlmclm.files import replacing, write_whole


def test_a_file_is_replaced_as_a_whole_and_missing_folders_are_made(tmp_path):
    path = tmp_path / "a" / "b.txt"
    write_whole(path, "old\n")
    write_whole(path, "ä".encode())
    assert path.read_bytes() == b"\xc3\xa4"
    assert [each.name for each in path.parent.iterdir()] == ["b.txt"]


def test_what_goes_wrong_half_way_leaves_the_old_file_and_no_draft(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old", encoding="utf-8")

    def half_way() -> None:
        with replacing(path) as draft:
            draft.write_text("ne", encoding="utf-8")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half_way()
    assert path.read_text(encoding="utf-8") == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["a.txt"]


def test_a_full_disk_is_said_of_the_file_that_did_not_fit(tmp_path):
    path = tmp_path / "a.txt"
    with pytest.raises(OSError, match=r"No space left on device: .*a\.txt"), replacing(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
def test_others_may_read_what_the_umask_lets_them(tmp_path):
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "a", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640
