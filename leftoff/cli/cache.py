"""`leftoff cache` lists, checks and prunes the disk cache, and exports and imports prefixes of prompts.

With `--store` it lists, checks, prunes and clears the store that machines share (`cache_store.py`).
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from leftoff.adapters import without_adapters
from leftoff.blobs.blob import Blob
from leftoff.cli.cache_text import text_of
from leftoff.cli.cache_view import findings_json, model_json, show_findings, show_model, show_path
from leftoff.cli.extras import importing
from leftoff.cli.flags import CommandLine, add_action, add_json, add_settings, settings_from
from leftoff.cli.progress import show_stages
from leftoff.cli.terminal import terminal
from leftoff.config import MIB, Settings
from leftoff.disk.errors import BundleError, FolderBusyError, FolderError
from leftoff.disk.headers import HeaderFiles
from leftoff.disk.secret import FILE as SECRET
from leftoff.disk.tools.bundle import export_bundle, import_bundle, read_manifest
from leftoff.disk.tools.catalog import Catalog
from leftoff.disk.tools.models import ModelUsage, models, prune, remove_model
from leftoff.disk.tools.verify import remove_faults, verify_folder
from leftoff.engine.fingerprint import cache_folder
from leftoff.errors import reason_of
from leftoff.units import counted, one_line, printable, show_bytes

_DAY_S = 86_400
_SOUND, _FAULTY = 0, 1
_MOST = 10**12  # MiB or days
_ENTRY = "name of an entry, as `leftoff cache list` shows it, or the first characters of it"


def add_parser(subparsers: "argparse._SubParsersAction[CommandLine]") -> None:
    """Adds the command `cache`."""
    parser = subparsers.add_parser(
        "cache",
        description="Manages the disk cache, which has a folder for each model. Entries can be listed while a server "
        "runs; to change something, stop it first. With --store and --index: the store that servers share.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    listing = _add(actions, "list", _list, "list models and conversations, with their sizes and ages")
    listing.add_argument("--all", action="store_true", help="list all conversations, not only the latest")
    add_json(listing)
    showing = _add(actions, "show", _show, "show the pages and snapshots that lead to one entry")
    showing.add_argument("name", metavar="NAME", help=_ENTRY)
    showing.add_argument(
        "--text",
        metavar="MODEL",
        type=Path,
        help="GGUF file whose vocabulary decodes the tokens, if the model file was moved",
    )
    verifying = _add(actions, "verify", _verify, "check every file; exit code 1 means that one is damaged")
    verifying.add_argument("--fix", action="store_true", help="remove damaged files")
    add_json(verifying)
    pruning = _add(actions, "prune", _prune, "remove the least recently used entries")
    pruning.add_argument("--to", metavar="MIB", type=_amount, help="until this many MiB are left")
    pruning.add_argument("--older", metavar="DAYS", type=_amount, help="everything that was not used for so many days")
    exporting = _add(actions, "export", _export, "write everything that is needed to resume at an entry into one file")
    exporting.add_argument("name", metavar="NAME", help=_ENTRY)
    exporting.add_argument("file", metavar="FILE", type=Path, help="file to write")
    adding = _add(actions, "import", _import, "add a file that `export` wrote; only from somebody you trust")
    adding.add_argument("file", metavar="FILE", type=Path, help="file to read")
    _add(actions, "clear", _clear, "remove everything")


def _add(
    actions: "argparse._SubParsersAction[CommandLine]",
    name: str,
    action: Callable[["_Request"], int],
    text: str,
) -> CommandLine:
    parser = add_action(actions, name, text)
    add_settings(parser, ("cache_dir", "store", "index", "fleet_key"))
    parser.add_argument(
        "--model",
        dest="only",
        metavar="NAME",
        help="only this model: its name, or the beginning of its folder's name",
    )
    parser.set_defaults(run=lambda args: _run(name, action, args))
    return parser


def _run(name: str, action: Callable[["_Request"], int], args: argparse.Namespace) -> int:
    settings = settings_from(args)
    if settings.store:
        return _run_on_store(name, args, settings)
    try:
        return action(_Request(args))
    except FolderBusyError as error:
        raise FolderError(f"{error.folder} is in use by a server ({error.holder}): stop it first") from error


def _run_on_store(name: str, args: argparse.Namespace, settings: Settings) -> int:
    with importing("cluster", "--store"):
        from leftoff.cli import cache_store  # noqa: PLC0415
    return cache_store.run(name, args, settings)


def _amount(text: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = -1.0
    if not 0 <= amount <= _MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to {_MOST:,}")
    return amount


class _Request:
    """The arguments of an action, and the models and entries that they name."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.console = terminal()
        self.root = Path(settings_from(args).cache_dir or cache_folder()).expanduser()

    def models(self) -> list[ModelUsage]:
        every, wanted = models(self.root), self.args.only
        if wanted is None:
            return every
        chosen = [usage for usage in every if wanted == usage.label or usage.path.name.startswith(wanted)]
        if not chosen:
            there = ", ".join(usage.name for usage in every) or "nothing"
            raise FolderError(f"{self.root} has nothing of a model called {wanted!r}: there is {there}")
        return chosen

    def say_nothing_is_kept(self) -> None:
        self.console.print(f"nothing is kept in {printable(str(self.root))}")

    def entry(self) -> tuple[ModelUsage, Catalog, Blob]:
        """The one entry whose name begins with the given text."""
        name = self.args.name
        found = []
        for usage in self.models():
            if not usage.problem:
                catalog = Catalog.of(usage.path)
                found += [(usage, catalog, blob) for blob in catalog.named(name)]
        if len(found) != 1:
            count = f"{len(found)} entries have" if found else "no entry has"
            raise FolderError(f"{count} a name that begins with {name!r}: `leftoff cache list` shows what there is")
        return found[0]


def _list(request: _Request) -> int:
    usages = request.models()
    if request.args.json:
        print(json.dumps({"folder": str(request.root), "models": [*map(model_json, usages)]}))
        return 0
    if not usages:
        request.say_nothing_is_kept()
    for usage in usages:
        show_model(request.console, usage, every=request.args.all)
    return 0


def _show(request: _Request) -> int:
    usage, catalog, blob = request.entry()
    path = catalog.path_to(blob)
    show_path(request.console, usage, blob, path, text_of(usage, path.tokens, request.args.text))
    return 0


def _verify(request: _Request) -> int:
    is_watched = sys.stdout.isatty() and not request.args.json
    with show_stages(request.console, visible=is_watched) as begin:
        results = [
            (usage, verify_folder(usage.path, begin(f"checking {one_line(usage.name)}"))) for usage in request.models()
        ]
    faulty = [(usage, findings) for usage, findings in results if findings.faults]
    if request.args.fix:
        for usage, findings in faulty:
            remove_faults(usage, findings.faults)
    if request.args.json:
        print(json.dumps(findings_json(results)))
    elif not results:
        request.say_nothing_is_kept()
    else:
        show_findings(request.console, results, is_fixed=request.args.fix)
    return _FAULTY if faulty and not request.args.fix else _SOUND


def _prune(request: _Request) -> int:
    to, older = request.args.to, request.args.older
    if to is None and older is None:
        raise FolderError("how much is to go? Give --to MIB, --older DAYS, or both")
    usages = request.models()
    pruned = prune(
        [usage for usage in usages if not usage.problem],
        to_bytes=None if to is None else int(to * MIB),
        before=None if older is None else time.time() - older * _DAY_S,
    )
    gone, remaining = show_bytes(pruned.nbytes), show_bytes(pruned.left_bytes)
    request.console.print(f"removed {counted(pruned.num_blobs, 'file')} ({gone}); {remaining} are left")
    for usage in usages:
        if usage.problem:
            left_alone = f"left alone: {usage.name}, {show_bytes(usage.nbytes)}: {usage.problem}"
            request.console.print(one_line(left_alone))
    return 0


def _export(request: _Request) -> int:
    usage, _, blob = request.entry()
    with _named(request.args.file):
        manifest = export_bundle(usage.path, blob, request.args.file)
    request.console.print(
        f"{request.args.file}: {blob.end} tokens of {one_line(usage.name)}, {show_bytes(manifest.nbytes)}. "
        f"To use it elsewhere, with the same model file and library: leftoff cache import {request.args.file}"
    )
    if without_adapters(manifest.namespace):
        request.console.print(
            "it was computed under an API key or a salt: only requests with the same can use it, and only in a cache "
            f"folder with the same {SECRET}: copy {request.root / SECRET} there before its first server starts"
        )
    return 0


def _import(request: _Request) -> int:
    source = request.args.file
    with _named(source):
        manifest = read_manifest(source)
    known = {usage.fingerprint: usage for usage in models(request.root)}
    if request.args.only is not None and manifest.fingerprint not in {u.fingerprint for u in request.models()}:
        raise BundleError(
            f"{source} was made by another model, library or KV type ({manifest.label or manifest.fingerprint[:16]}): "
            f"{request.args.only} cannot use it"
        )
    import_bundle(request.root, source)
    request.console.print(f"took in {manifest.num_tokens} tokens of {one_line(manifest.label) or 'a model'}")
    if manifest.fingerprint not in known:
        request.console.print("no server with that model, library and KV type has used this folder yet: others cannot")
    if without_adapters(manifest.namespace):
        request.console.print(
            f"it was computed under an API key or a salt: requests find it only if {request.root / SECRET} is a copy "
            "of the one in the folder it was exported from"
        )
    return 0


@contextmanager
def _named(file: Path) -> Iterator[None]:
    try:
        yield
    except FolderError:
        raise
    except OSError as error:
        raise BundleError(f"FILE {file}: {reason_of(error)}. Name another") from error


def _clear(request: _Request) -> int:
    usages = request.models()
    busy = next((usage for usage in usages if usage.is_in_use), None)
    if busy is not None:
        raise FolderBusyError(busy.path, busy.pid)
    for usage in usages:
        is_gone = remove_model(usage.path)
        what = f"{usage.name}: {show_bytes(usage.nbytes)} removed" if is_gone else f"left alone: {usage.problem}"
        request.console.print(one_line(what))
    num_headers = HeaderFiles(request.root).remove() if request.args.only is None else 0  # they are of all models
    if num_headers:
        request.console.print(f"headers of clients, kept for --prewarm last: {num_headers} removed")
    if not usages and not num_headers:
        request.say_nothing_is_kept()
    return 0
