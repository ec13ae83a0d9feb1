"""The proof that a resume cannot be seen, as long as you like.

    python -m tests.histories leftoff/models/leftoff-tiny-q8_0.gguf 500 --deterministic
    python -m tests.histories MODEL 500 --threads 1 --batch 32 --ubatch 32

Further flags go to the servers. The default settings let borders of pieces lie anywhere, and on a CPU pieces of 64
tokens and more are added up in another way than smaller ones: there, only small pieces can be compared to the bit.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.histories.play import play


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("num_histories", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slow", action="store_true", help="shorter prompts, for a model that takes its time")
    parser.add_argument("--noise", action="store_true", help="measure what idle neighbours do, as the limit")
    args, flags = parser.parse_known_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tally = play(
            args.model,
            Path(folder),
            args.num_histories,
            args.seed,
            flags,
            is_slow=args.slow,
            measures_noise=args.noise,
        )
    print(f"{args.model.name} {' '.join(flags)}\n{tally}\nin {time.monotonic() - began:.0f} s")
    if tally.noise is not None:
        return int(tally.largest > tally.noise)
    return int(tally.num_differing > 0 or tally.largest > 0)


if __name__ == "__main__":
    sys.exit(main())
