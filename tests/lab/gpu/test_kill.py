"""The rate of the disk that a restart is held against."""

import os
from pathlib import Path

from lab.gpu.kill import read_back


def test_the_files_of_a_folder_are_read_back_and_timed(tmp_path: Path) -> None:
    for number in range(3):
        folder = tmp_path / f"{number:02x}"
        folder.mkdir()
        (folder / "blob").write_bytes(os.urandom(1 << 20))
    disk = read_back(tmp_path)
    assert disk.num_bytes == 3 << 20
    assert disk.bytes_per_s > 0
    assert "4 threads read them from the" in str(disk)
