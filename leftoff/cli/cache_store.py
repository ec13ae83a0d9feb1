"""`leftoff cache list|verify|prune|clear --store URL --index URL`: the store that machines share."""

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict

from rich.console import Console

from leftoff.cli.terminal import terminal
from leftoff.config import MIB, Settings
from leftoff.errors import reason_of
from leftoff.setting import SettingError
from leftoff.store import tools
from leftoff.store.fleet_key import read_fleet_key
from leftoff.store.link import PROBLEMS, Link, public_url
from leftoff.units import one_line, show_bytes, show_count

_SOUND, _FAULTY = 0, 1


def run(action: str, args: argparse.Namespace, settings: Settings) -> int:
    """Does what the disk's action of the same name does, for every group of servers in the store."""
    if action not in _ACTIONS:
        raise SettingError(f"leftoff cache {action} is for the disk: leave out --store; there is {', '.join(_ACTIONS)}")
    if not settings.index:
        raise SettingError(f"--store {settings.store}: it takes --index too, such as redis://host:6379/0")
    console = terminal()
    try:
        return _ACTIONS[action](console, args, settings)
    except PROBLEMS as error:
        reason = reason_of(error).partition("\n")[0]
        raise SettingError(f"--store {settings.store}, --index {public_url(settings.index)}: {reason}") from error


def _list(console: Console, args: argparse.Namespace, settings: Settings) -> int:
    groups = [link.call(tools.group_of(link)).result() for link in _links(args, settings)]
    if args.json:
        print(json.dumps({"store": settings.store, "groups": [asdict(group) for group in groups]}))
        return 0
    for group in groups:
        missing = group.num_objects - group.known.num_blobs
        note = f" · {missing:,} not in the index yet" if missing > 0 else ""
        console.print(one_line(f"{group.described} · {group.name}"), style="bold")
        console.print(f"  {show_count(group.num_objects)} blobs · {show_bytes(group.nbytes)}{note}")
    if not groups:
        console.print(f"nothing is kept in {settings.store}")
    return 0


def _verify(console: Console, args: argparse.Namespace, settings: Settings) -> int:
    num_faults, shown = 0, []
    key = read_fleet_key(settings.fleet_key)
    for link in _links(args, settings):
        fingerprint, described, key_id = link.call(tools.about(link.objects, link.group)).result()
        if key_id != (key.id if key is not None else ""):
            problem = f"{described} ({link.group}) was stored with {'another' if key_id else 'no'} --fleet-key"
            raise SettingError(f"{problem}: give that, or check other groups with --model")
        findings = link.call(tools.verify_group(link, fingerprint, key, fix=args.fix)).result()
        num_objects, faults = findings.num_blobs, findings.faults
        num_faults += len(faults)
        shown.append({"group": link.group, "num_objects": num_objects, "faults": [asdict(fault) for fault in faults]})
        if not args.json:
            verdict = f"{len(faults)} damaged{', removed' if args.fix else ''}" if faults else "all sound"
            console.print(one_line(f"{described}: {num_objects:,} blobs: {verdict}"))
            for fault in faults:
                console.print(f"  {fault.name}: {one_line(fault.reason)}")
    if args.json:
        print(json.dumps({"store": settings.store, "groups": shown}))
    return _FAULTY if num_faults and not args.fix else _SOUND


def _prune(console: Console, args: argparse.Namespace, settings: Settings) -> int:
    if args.to is None and args.older is None:
        raise SettingError("how much is to go? Give --to MIB, --older DAYS, or both")
    to_bytes = None if args.to is None else int(args.to * MIB)
    for link in _links(args, settings):
        nbytes = link.call(tools.prune(link, to_bytes, args.older)).result()
        console.print(f"{link.group}: {show_bytes(nbytes)} removed")
    return 0


def _clear(console: Console, args: argparse.Namespace, settings: Settings) -> int:
    for link in _links(args, settings):
        console.print(f"{link.group}: {link.call(tools.clear(link)).result():,} objects removed")
    return 0


def _links(args: argparse.Namespace, settings: Settings) -> Iterator[Link]:
    """A link to each group, or to those whose name or description begins as `--model` says, one after the other."""
    with closing(Link(settings.store, settings.index, tools.NO_GROUP)) as link:
        names = [name for name in link.call(link.objects.groups()).result() if len(name) == len(link.group)]
        named = [(name, link.call(tools.about(link.objects, name)).result()[1]) for name in names]
    for group, described in named:
        if args.only is None or group.startswith(args.only) or described.startswith(args.only):
            with closing(Link(settings.store, settings.index, group)) as link:
                yield link


_ACTIONS: dict[str, Callable[[Console, argparse.Namespace, Settings], int]] = {
    "list": _list,
    "verify": _verify,
    "prune": _prune,
    "clear": _clear,
}
