"""What the machine says of itself, read from made-up systems and from this one."""

import os
from pathlib import Path

from leftoff.machine import free_disk_bytes, mapped_file_bytes, num_cores


def test_mapped_files_are_read_where_the_system_tells_of_them(tmp_path: Path) -> None:
    assert mapped_file_bytes(tmp_path) is None
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/status").write_text("Name:\tpython\nRssAnon:\t 7 kB\nRssFile:\t   9216 kB\n")
    assert mapped_file_bytes(tmp_path) == 9216 << 10
    (tmp_path / "proc/self/status").write_text("RssFile:\t\n")
    assert mapped_file_bytes(tmp_path) is None


def test_free_space_is_that_of_the_disk_where_the_folder_would_be(tmp_path: Path) -> None:
    there, later = free_disk_bytes(tmp_path), free_disk_bytes(tmp_path / "not" / "yet")
    total = os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
    assert 0 < there <= total
    assert 0 < later <= total


def test_there_is_a_core() -> None:
    assert 1 <= num_cores() <= (os.cpu_count() or 1)
