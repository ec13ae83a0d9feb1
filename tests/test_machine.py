"""What the machine says of itself, read from made-up systems and from this one."""

import os
from pathlib import Path

import pytest

from leftoff.machine import cpu_quotas, default_threads, free_disk_bytes, mapped_file_bytes, num_cores


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
    assert 1 <= default_threads() <= num_cores() <= (os.cpu_count() or 1)


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, []),
        ({"sys/fs/cgroup/cpu.max": "max 100000\n"}, []),
        ({"sys/fs/cgroup/cpu.max": "250000 100000\n"}, [3]),
        ({"sys/fs/cgroup/cpu.max": "5000 100000\n"}, [1]),
        (
            {
                "proc/self/cgroup": "0::/pod/server\n",
                "sys/fs/cgroup/pod/server/cpu.max": "max 100000\n",
                "sys/fs/cgroup/pod/cpu.max": "400000 100000\n",
            },
            [4],
        ),
        (
            {
                "proc/self/cgroup": "5:memory:/x\n4:cpu,cpuacct:/docker\n",
                "sys/fs/cgroup/cpu/docker/cpu.cfs_quota_us": "200000\n",
                "sys/fs/cgroup/cpu/docker/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            [2],
        ),
    ],
    ids=["none", "no limit", "rounded up", "at least one", "of a group above", "version 1"],
)
def test_the_time_that_a_container_may_take_is_read(tmp_path: Path, files: dict[str, str], cores: list[int]) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert [*cpu_quotas(tmp_path)] == cores
