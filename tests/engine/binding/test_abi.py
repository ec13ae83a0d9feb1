"""A library is asked for exactly the functions that leftoff calls: a build is not refused for one that nobody needs."""

import ast
from collections.abc import Iterator
from pathlib import Path

import leftoff
from leftoff.engine.binding import abi

PACKAGE = Path(leftoff.__file__).parent
PREFIXES = ("llama_", "ggml_")


def called_names(source: str) -> Iterator[str]:
    """Functions of llama.h that are reached as attributes, `dll.llama_decode`: the package knows no other way."""
    if not any(f".{prefix}" in source for prefix in PREFIXES):
        return  # most files: to parse them takes long
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr.startswith(PREFIXES):
            yield node.attr


def test_the_declared_functions_are_those_that_are_called() -> None:
    called = {name for path in PACKAGE.rglob("*.py") for name in called_names(path.read_text())}
    assert called == {*abi.FUNCTIONS, *abi.CONTEXT_FUNCTIONS, *abi.OPTIONAL}


def test_no_function_is_looked_up_by_a_name_made_at_run_time() -> None:
    """The names in strings would escape the test above; these alone go through the declarations."""
    looked_up = {path for path in PACKAGE.rglob("*.py") if "getattr(dll" in path.read_text().replace("self._", "")}
    assert looked_up == {PACKAGE / "engine" / "binding" / "library.py", PACKAGE / "engine" / "vision" / "mtmd.py"}


def test_versions_are_declared_once() -> None:
    assert len({build.version for build in abi.BUILDS}) == len(abi.BUILDS)
