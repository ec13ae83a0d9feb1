"""The code stands in layers: a folder imports only what stands below it, nothing goes round, and no file is two."""

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "leftoff"

# From the top down.
ORDER = (
    *("__main__", "cli", "cluster", "store", "server", "session", "host", "chat", "grammar"),
    *("scheduler", "drafts", "disk", "blobs", "cache", "engine", "client", "agents", "hub", "models"),
    *("scenes", "config", "setting", "sampling", "pdf", "picture", "machine", "lru", "types"),
    *("adapters", "picture_tokens", "units", "errors"),
)
# The cache knows an engine's memory as a protocol and no engine: any other would do.
CACHE_KNOWS = {"leftoff.engine.memory.base", "leftoff.engine.errors"}
# The folders and files of server/, from the top down. Those of one row do not import each other: so no dialect knows
# another, and what two of them share is in reply/ or request/.
SERVER_ROWS = (
    ("server",),
    ("app",),
    ("openai", "anthropic", "responses", "ollama", "llamacpp", "embeddings", "admin"),
    ("reply",),
    ("request",),
    ("dialect",),
    ("hosts",),
    ("http",),
    ("garbage", "tenant"),
)
# What serves without a fleet.
CORE = {"server", "session", "host", "chat", "grammar", "scheduler", "drafts", "disk", "blobs", "cache", "engine"}
MAX_LINES = 400


@dataclass(frozen=True)
class Module:
    """One file: its dotted name, what it imports of the package, also if only for its types, and how long it is."""

    name: str
    imports: frozenset[str]
    num_lines: int

    @property
    def layer(self) -> str:
        return layer_of(self.name)


def layer_of(name: str) -> str:
    """The folder or file right below the package; the package itself holds nothing and stands at the bottom."""
    return name.split(".")[1] if "." in name else ""


def read_package(package: Path) -> dict[str, Module]:
    paths = {dotted(path, package): path for path in sorted(package.rglob("*.py"))}
    return {name: read_module(name, path, paths.keys()) for name, path in paths.items()}


def dotted(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def read_module(name: str, path: Path, known: Collection[str]) -> Module:
    text = path.read_text()
    folder = name if path.name == "__init__.py" else name.rpartition(".")[0]
    package = name.partition(".")[0]
    found = (target for node in ast.walk(ast.parse(text)) for target in targets(node, folder))
    modules = (target if target in known else target.rpartition(".")[0] for target in found)
    imports = frozenset(module for module in modules if module.partition(".")[0] == package and module != name)
    return Module(name, imports, len(text.splitlines()))


def targets(node: ast.AST, folder: str) -> Iterator[str]:
    """What an import statement names: perhaps a module, perhaps something inside one."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        parts = folder.split(".")
        base = parts[: len(parts) + 1 - node.level] if node.level else []
        module = ".".join([*base, *([node.module] if node.module else [])])
        yield from (f"{module}.{alias.name}" for alias in node.names)


def wrong_imports(modules: dict[str, Module]) -> list[str]:
    return [
        f"{module.name} imports {target}"
        for module in modules.values()
        for target in sorted(module.imports)
        if not may_import(module, target)
    ]


def may_import(module: Module, target: str) -> bool:
    upper, lower = module.layer, layer_of(target)
    if (module.name, target) == ("leftoff", "leftoff.session"):
        return True  # the one name the package hands on, imported when it is first used
    if lower in ("", upper):
        return True
    if upper == "cache" and lower == "engine":
        return target in CACHE_KNOWS
    return upper in ORDER and lower in ORDER and ORDER.index(upper) < ORDER.index(lower)


def wrong_imports_in_server(modules: dict[str, Module]) -> list[str]:
    """Imports between rooms of server/ that do not go down. Imports for types count too."""
    return [
        f"{module.name} imports {target}"
        for module in modules.values()
        for target in sorted(module.imports)
        if (upper := room_of(module.name)) and (lower := room_of(target)) and upper != lower
        if not row_of(upper) < row_of(lower)
    ]


def room_of(name: str) -> str | None:
    """The folder or file right below server/."""
    parts = name.split(".")
    return parts[2] if parts[1:2] == ["server"] and len(parts) > 2 else None


def row_of(room: str) -> int:
    return next(index for index, row in enumerate(SERVER_ROWS) if room in row)


def cycle(modules: dict[str, Module]) -> list[str]:
    """Modules that import each other in a circle, if only for their types; empty when there is none."""
    graph = {name: module.imports & modules.keys() for name, module in modules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [*error.args[1]]
    return []


@pytest.fixture(scope="module")
def modules() -> dict[str, Module]:
    return read_package(PACKAGE)


def test_every_folder_has_its_place_in_the_order(modules: dict[str, Module]) -> None:
    assert {module.layer for module in modules.values()} - {""} <= {*ORDER}


def test_a_folder_imports_only_what_stands_below_it(modules: dict[str, Module]) -> None:
    assert wrong_imports(modules) == []


def test_the_core_is_handed_the_store_and_the_fleet(modules: dict[str, Module]) -> None:
    """It runs without them, and without the packages that they take."""
    for module in modules.values():
        if module.layer in CORE:
            assert {layer_of(target) for target in module.imports}.isdisjoint({"store", "cluster"}), module.name


def test_a_tier_knows_no_medium(modules: dict[str, Module]) -> None:
    """What all media share imports none of them, and the cache not even that."""
    media = {"disk", "store"}
    for module in modules.values():
        imported = {layer_of(target) for target in module.imports}
        assert module.layer != "blobs" or imported.isdisjoint(media), module.name
        assert module.layer != "cache" or imported.isdisjoint(media | {"blobs"}), module.name


def test_a_room_of_the_server_imports_only_what_stands_below_it(modules: dict[str, Module]) -> None:
    assert {room for name in modules if (room := room_of(name))} == {room for row in SERVER_ROWS for room in row}
    assert wrong_imports_in_server(modules) == []


def test_no_modules_import_each_other_in_a_circle(modules: dict[str, Module]) -> None:
    assert cycle(modules) == []


def test_no_file_is_two_files(modules: dict[str, Module]) -> None:
    assert [f"{m.name}: {m.num_lines} lines" for m in modules.values() if m.num_lines > MAX_LINES] == []


def test_the_imports_of_the_package_are_seen(modules: dict[str, Module]) -> None:
    assert {"leftoff.types", "leftoff.engine.binding.abi", "leftoff.engine.model"} <= modules[
        "leftoff.engine.sampler"
    ].imports
    assert modules["leftoff.types"].imports == {"leftoff.adapters", "leftoff.picture_tokens"}
    assert modules["leftoff.picture_tokens"].imports == frozenset()


def package_of(folder: Path, files: dict[str, str]) -> dict[str, Module]:
    for name, text in files.items():
        path = folder / "leftoff" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read_package(folder / "leftoff")


def test_a_wrong_import_is_found_however_it_is_written(tmp_path: Path) -> None:
    modules = package_of(
        tmp_path,
        {
            "__init__.py": "",
            "types.py": "def late() -> None:\n    import leftoff.engine.memory.base\n",
            "config.py": "if TYPE_CHECKING:\n    from leftoff.engine.memory.base import Page\n",
            "engine/__init__.py": "",
            "engine/memory/base.py": "from leftoff import types\nfrom ...cache import tree\n",
            "engine/engine.py": "from .memory import base\nfrom .memory.base import Page\n",
            "cache/tree.py": "from leftoff.engine.memory.base import Page\nfrom leftoff.engine import engine\n",
            "server/server.py": "from leftoff.cache.tree import Tree\nfrom leftoff.cli.main import main\n",
            "cli/main.py": "from leftoff.server import server\nfrom leftoff.types import late\n",
        },
    )
    assert wrong_imports(modules) == [
        "leftoff.cache.tree imports leftoff.engine.engine",
        "leftoff.config imports leftoff.engine.memory.base",
        "leftoff.engine.memory.base imports leftoff.cache.tree",
        "leftoff.server.server imports leftoff.cli.main",
        "leftoff.types imports leftoff.engine.memory.base",
    ]


def test_a_circle_inside_a_folder_is_found(tmp_path: Path) -> None:
    straight = {"__init__.py": "", "engine/a.py": "from .b import x\n", "engine/b.py": "from .c import x\n"}
    assert cycle(package_of(tmp_path / "straight", straight | {"engine/c.py": ""})) == []
    found = cycle(package_of(tmp_path / "round", straight | {"engine/c.py": "from leftoff.engine.a import x\n"}))
    assert {*found} == {f"leftoff.engine.{name}" for name in "abc"}
    for_types = "if TYPE_CHECKING:\n    from leftoff.engine.a import x\n"
    assert cycle(package_of(tmp_path / "types", straight | {"engine/c.py": for_types})) != []


def test_imports_between_dialects_and_upwards_are_found(tmp_path: Path) -> None:
    files = {
        "server/openai/types.py": "",
        "server/openai/routes.py": "from leftoff.server.openai.types import Chat\n",
        "server/ollama/routes.py": "from ..openai import types\n",
        "server/reply/stream.py": "if TYPE_CHECKING:\n    from leftoff.server.app import App\n",
        "server/app.py": "from leftoff.server.openai import routes\n",
    }
    assert wrong_imports_in_server(package_of(tmp_path, files)) == [
        "leftoff.server.ollama.routes imports leftoff.server.openai.types",
        "leftoff.server.reply.stream imports leftoff.server.app",
    ]
