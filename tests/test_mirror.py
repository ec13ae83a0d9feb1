"""`tests/` mirrors the folders of the code: whoever changes `leftoff/cache/plan.py` finds its tests beside that name.

A test file is called `test_<subject>.py` or `test_<subject>_<topic>.py`. Its subject is a module or a subfolder of the
folder that its own folder mirrors, or that folder itself. What concerns no single folder is in `tests/behaviour/`.
"""

from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
# Test folders without a namesake: the server from end to end, and the maker of test models.
UNMIRRORED = ("behaviour", "factory")
# Subjects of tests/ itself that are no modules: the repository and its pages.
REPOSITORY = {"deploy", "docs", "examples", "layers", "mirror", "patience", "readme", "wheel", "workflows"}


def source_folder(folder: Path, root: Path = ROOT) -> Path:
    """The folder of the code that a folder of tests mirrors: `tests/cache` is for `leftoff/cache`."""
    parts = folder.relative_to(root / "tests").parts
    is_beside = parts[:1] in (("lab",), ("training",))
    return root.joinpath(*parts) if is_beside else root.joinpath("leftoff", *parts)


def subjects_of(folder: Path) -> set[str]:
    """Everything that a test of this folder may be named after."""
    modules = {path.stem for path in folder.glob("*.py")}
    folders = {path.name for path in folder.iterdir() if path.is_dir()}
    return modules | folders | {folder.name}


def has_subject(test: str, subjects: Iterable[str]) -> bool:
    name = test.removeprefix("test_")
    return any(name == subject or name.startswith(f"{subject}_") for subject in subjects)


def misplaced(root: Path = ROOT, repository: Iterable[str] = ()) -> list[str]:
    """Test files whose folder mirrors nothing, or whose name has no namesake there."""
    found = []
    for path in sorted((root / "tests").rglob("test_*.py")):
        shown, folder = path.relative_to(root), path.parent
        if shown.parts[1] in UNMIRRORED:
            continue
        source = source_folder(folder, root)
        if not source.is_dir():
            found.append(f"{shown}: there is no folder {source.relative_to(root)}")
        elif not has_subject(path.stem, subjects_of(source) | ({*repository} if folder == root / "tests" else set())):
            found.append(f"{shown}: {source.relative_to(root)} has no module of this name")
    return found


def test_every_test_is_named_after_what_it_tests() -> None:
    assert misplaced(repository=REPOSITORY) == []


def test_every_name_of_the_repository_is_in_use() -> None:
    assert {path.stem.removeprefix("test_") for path in TESTS.glob("test_*.py")} >= REPOSITORY


@pytest.mark.parametrize("name", UNMIRRORED)
def test_an_unmirrored_folder_is_none_of_the_code(name: str) -> None:
    assert (TESTS / name).is_dir()
    assert not source_folder(TESTS / name).exists()


def test_a_test_without_a_namesake_is_found(tmp_path: Path) -> None:
    for name in (
        *("leftoff/cache/plan.py", "leftoff/config.py", "lab/bench/play.py"),
        *("tests/test_config.py", "tests/test_readme.py", "tests/test_settings.py"),
        *("tests/cache/test_plan.py", "tests/cache/test_plan_costs.py", "tests/cache/test_planning.py"),
        *("tests/cache/test_cache_whole.py", "tests/cache/tree/test_plan.py"),
        *("tests/lab/bench/test_play.py", "tests/lab/test_bench.py", "tests/behaviour/test_all.py"),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert [line.partition(":")[0] for line in misplaced(tmp_path, {"readme"})] == [
        "tests/cache/test_planning.py",
        "tests/cache/tree/test_plan.py",
        "tests/test_settings.py",
    ]
