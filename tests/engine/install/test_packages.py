"""The pinned engines: each is whole, and one that does not exist for a platform is refused with the way out."""

import re

import pytest

from leftoff.engine.binding.image import Platform
from leftoff.engine.install.packages import PACKAGES, NoPackageError, package_for


def test_each_archive_is_pinned_by_its_hash_and_its_name_tells_its_version() -> None:
    for archive in (archive for package in PACKAGES for archive in package.archives):
        assert re.fullmatch(r"[0-9a-f]{64}", archive.sha256)
        assert archive.nbytes > 100_000
        assert f"-{archive.version}" in archive.file
        assert archive.file.endswith(".tgz" if archive.is_npm else ".whl")


def test_a_name_stands_once_for_each_platform() -> None:
    assert len({(package.name, package.platform) for package in PACKAGES}) == len(PACKAGES)


def test_every_platform_that_leftoff_runs_on_has_an_engine() -> None:
    platforms = {Platform(system, machine) for system in ("Linux", "macOS") for machine in ("x86-64", "arm64")}
    assert {package.platform for package in PACKAGES} == platforms


def test_an_engine_that_does_not_exist_is_refused_with_those_that_do() -> None:
    assert package_for("cuda13", Platform("Linux", "x86-64")).name == "cuda13"
    with pytest.raises(
        NoPackageError, match=r"no prebuilt cuda engine for Linux arm64 \(there are: cpu\).*LEFTOFF_LIBLLAMA"
    ):
        package_for("cuda", Platform("Linux", "arm64"))
    with pytest.raises(NoPackageError, match=r"for Linux riscv64 \(there is none for it\)"):
        package_for("cpu", Platform("Linux", "riscv64"))
