"""`python -m lab.mutants` counts the changes to the code that tests find, and names those that survive."""

import argparse
import hashlib
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from .change import Change, changes_of
from .covering import Coverer
from .judge import Judge

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "mutants"
SURVIVED = KEPT / "survived.txt"
EQUIVALENT = Path(__file__).parent / "equivalent.txt"
PACKAGES = ("leftoff/cache", "leftoff/scheduler", "leftoff/engine/memory", "leftoff/blobs", "leftoff/drafts")
# Those of the packages, and those of the disk, which is the medium that write-behind is tested on.
TESTS = ("tests/cache", "tests/scheduler", "tests/engine/memory", "tests/blobs", "tests/disk", "tests/drafts")
FLOOR = 0.85


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    names = _sample(arguments.packages or PACKAGES, arguments.sample, arguments.seed)
    if arguments.again:
        survived = set(SURVIVED.read_text().splitlines())
        names = {change: name for change, name in names.items() if name in survived}
    covering = Coverer(ROOT, PACKAGES, KEPT / "covering.json", arguments.jobs).cover(TESTS)
    judge = Judge(ROOT, KEPT, covering.libraries, jobs=arguments.jobs, budget_s=arguments.budget)
    equivalent = {line for line in EQUIVALENT.read_text().splitlines() if not line.startswith((" ", "#"))}
    outcomes = {}
    for verdict in judge.judge((change, covering.of(change.path, change.lines)) for change in names):
        name = names[verdict.change]
        outcome = "found" if verdict.found_by else "equivalent" if name in equivalent else "survived"
        outcomes[verdict.change] = outcome
        print(f"{outcome:10} {verdict.seconds:5.1f} s  {name}  [{verdict.found_by or verdict.num_tests}]", flush=True)
    return _report(names, outcomes)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.mutants", description=__doc__)
    parser.add_argument("packages", nargs="*", help=f"folders of the code; without any: {' '.join(PACKAGES)}")
    parser.add_argument("--sample", type=int, default=300, help="how many changes are tried (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="picks them (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="how many are tried at once (default: %(default)s)")
    parser.add_argument("--budget", type=float, default=15, help="seconds of tests for each (default: %(default)s)")
    parser.add_argument("--again", action="store_true", help="of the same sample, only those that survived last time")
    return parser


def _sample(packages: Sequence[str], number: int, seed: int) -> dict[Change, str]:
    """Changes with their names. Drawn by name: the same seed draws much the same after the code has changed."""
    paths = sorted(path for name in packages for path in (ROOT / name).glob("*.py"))
    everything = {name: change for path in paths for name, change in changes_of(path, ROOT).items()}
    drawn = sorted(everything, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())[:number]
    print(f"{len(drawn)} of {len(everything)} changes, seed {seed}", flush=True)
    return {everything[name]: name for name in drawn}


def _report(names: dict[Change, str], outcomes: dict[Change, str]) -> int:
    """The exit status: 1 if less than the floor was found, counting equivalent changes as not found."""
    SURVIVED.write_text("".join(f"{names[change]}\n" for change in outcomes if outcomes[change] == "survived"))
    counts = Counter((str(Path(change.path).parent), outcome) for change, outcome in outcomes.items())
    counts.update(("all", outcome) for outcome in outcomes.values())
    print(f"\n{'':24}{'tried':>8}{'found':>8}{'equivalent':>12}{'survived':>10}")
    for package in dict.fromkeys(package for package, _ in sorted(counts, key=lambda key: (key[0] == "all", key))):
        found, equivalent, survived = (counts[package, kind] for kind in ("found", "equivalent", "survived"))
        tried = found + equivalent + survived
        print(f"{package:24}{tried:8}{found:8}{equivalent:12}{survived:10}{found / tried:8.1%}")
    return int(counts["all", "found"] < FLOOR * len(outcomes))


if __name__ == "__main__":
    sys.exit(main())
