"""Plays seeds, and prints what was found with the seed that replays it.

python -m lab.box --seeds 10000     as many seeds, on all cores
python -m lab.box --seed 296        one of them, with all that happened in it
"""

import argparse
import os
import sys
import time
import traceback
from multiprocessing import Pool

from lab.box.play import play

_CHUNKS = 25  # of 8 seeds, then a process begins anew: what a play leaves behind goes with it
_HASH_SEED = "PYTHONHASHSEED"  # the order of sets of names follows from it


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.box")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="one alone, with its trace")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    if args.seed is not None:
        run = play(args.seed)
        print(*run.world.trace, *run.found or ["nothing was found"], sep="\n")
        sys.exit(bool(run.found))
    began, num_found = time.monotonic(), 0
    with Pool(args.jobs, maxtasksperchild=_CHUNKS) as pool:
        for seed, faults, found in pool.imap_unordered(_outcome, range(args.first, args.first + args.seeds), 8):
            if found:
                num_found += 1
                print(f"seed {seed}: {found[0]}", *(f"    {fault}" for fault in faults), sep="\n", flush=True)
    print(f"{args.seeds} seeds in {time.monotonic() - began:.0f} s, something was found in {num_found}")
    sys.exit(bool(num_found))


def _outcome(seed: int) -> tuple[int, list[str], list[str]]:
    try:
        run = play(seed)
    except Exception as error:
        return seed, traceback.format_exc().splitlines(), [f"{type(error).__name__}: {error}"]
    return seed, [str(fault) for fault in run.faults], run.found


if __name__ == "__main__":
    if os.environ.get(_HASH_SEED) != "0":
        os.execve(sys.executable, [sys.executable, "-m", "lab.box", *sys.argv[1:]], os.environ | {_HASH_SEED: "0"})
    main()
