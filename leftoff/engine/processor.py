"""Instructions of this processor that a build of llama.cpp could use and does not: it may be several times slower."""

import re
from pathlib import Path

from leftoff.engine.binding.image import this_platform
from leftoff.engine.install.packages import NoPackageError, package_for

# The system's name of an instruction set, and llama.cpp's.
_WANTED = {"asimddp": "DOTPROD", "avx2": "AVX2"}


def unused_instructions(system_info: str, root: Path = Path("/")) -> str:
    """One line if there is an engine that uses more of the processor than the library with this `system_info` does."""
    try:
        told = (root / "proc/cpuinfo").read_text(errors="replace")
        package_for("cpu", this_platform())
    except (OSError, NoPackageError):
        return ""
    known = re.search(r"^(?:Features|flags)\s*:(.*)$", told, re.MULTILINE)
    has = set(known[1].split()) if known else set()
    for system, name in _WANTED.items():
        if system in has and f"{name} = 1" not in system_info:
            return f"this llama.cpp build leaves {name} instructions unused. Faster: leftoff engine install cpu"
    return ""
