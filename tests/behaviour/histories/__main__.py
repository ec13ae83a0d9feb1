"""The proof that a resume cannot be seen, as long as you like.

    python -m tests.behaviour.histories embedded 500 --deterministic
    python -m tests.behaviour.histories factory:qwen35 300 --deterministic --pictures qwen3vl_merger
    python -m tests.behaviour.histories rwkv7-tiny 500 --batch 32 --ubatch 32 --noise

Models are embedded, rwkv7-tiny, gemma-3-270m, smollm2-135m, factory:ARCHITECTURE, or any GGUF file. Further flags go to
the servers. By default pieces end anywhere, and on a CPU those of 64 tokens and more are added up in another way than
smaller ones: there, only small pieces can be compared to the bit.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.behaviour.histories.models import NotInstalledError, model_file, projector_for
from tests.behaviour.histories.play import Tally, play


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("num_histories", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slow", action="store_true", help="shorter prompts, for a model that takes its time")
    parser.add_argument("--noise", action="store_true", help="allow what cannot be helped, measured in the same run")
    parser.add_argument("--drafts", action="store_true", help="draft whatever is found, and compare with no drafts")
    parser.add_argument(
        "--pictures", metavar="KIND", help="with pictures in chats, and a random projector of this kind"
    )
    args, flags = parser.parse_known_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            model = model_file(args.model, Path(folder))
        except NotInstalledError as error:
            print(f"{args.model} is not here: {error}")
            return 2
        if args.pictures:
            flags += ["--mmproj", str(projector_for(model, args.pictures))]
        kept = Path(folder) / "cache"
        tally = play(
            model,
            kept,
            args.num_histories,
            args.seed,
            flags,
            is_slow=args.slow,
            measures_noise=args.noise,
            drafts=args.drafts,
            pictures=bool(args.pictures),
            progress=_show,
        )
    print(f"{args.model} {' '.join(flags)}\n{tally}\nin {time.monotonic() - began:.0f} s")
    return int(not tally.is_within_noise)


def _show(tally: Tally) -> None:
    print(f"{tally.steps.total()} histories, {tally.num_differing} differ, largest {tally.largest:.7f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
