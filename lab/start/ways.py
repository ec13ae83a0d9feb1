"""The ways to start of README.md, timed to the first token, each in a fresh container with python3 and nothing else.

`make ways` takes a tool for containers that runs here. What is not published yet comes from this folder: the wheel of
dist/ in place of the name on PyPI, and a clone. The fourth way, the image, is what `make image` plays.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lab.start.container import TOOLS, ContainerError, find_running_tool, run_once
from leftoff.errors import LeftoffError

_BASE = "docker.io/library/python:3.13-slim-bookworm"
_GOAL_S = 60.0
_SYSTEM = "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends "
# Each line is a stage; the last one serves.
WAYS = {
    "uvx": [
        f"{_SYSTEM} libgomp1",
        "python3 -m venv uv && uv/bin/pip install -q uv",
        "uv/bin/uvx --from /given/*.whl leftoff serve",
    ],
    "pip": [
        f"{_SYSTEM} libgomp1",
        "python3 -m venv .venv && .venv/bin/pip install -q /given/*.whl",
        ".venv/bin/leftoff serve",
    ],
    "clone": [
        f"{_SYSTEM} libgomp1 git make",
        "git config --global --add safe.directory '*' && git clone -q /given/leftoff.git leftoff",
        "make -C leftoff serve",
    ],
}
_GIVEN = Path("build/ways")
_MARK = "stage:"  # a line of the script's own, with seconds since its start


@dataclass(frozen=True)
class Timed:
    """One way: seconds from its start to the end of each stage and to the first token, and what it used meanwhile.

    The CPU seconds include the end of the server. They and the load tell a slow way from a busy machine.
    """

    seconds: list[float]
    cpu_s: float
    load: float

    @property
    def is_quick(self) -> bool:
        return self.seconds[-1] < _GOAL_S


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--way", dest="ways", action="append", choices=[*WAYS], help="one of them (default: all)")
    parser.add_argument("--tool", choices=TOOLS, help="default: the first of them that runs here")
    parser.add_argument("--base", default=_BASE, help="an image with python3 and apt (default: %(default)s)")
    args = parser.parse_args()
    try:
        tool = args.tool or find_running_tool(args.base)
        _give()
        timed = {way: _timed(tool, args.base, way) for way in args.ways or WAYS}
    except LeftoffError as error:
        print(f"make ways: {error}", file=sys.stderr)
        return 1
    _show(timed)
    return int(not all(way.is_quick for way in timed.values()))


def _give() -> None:
    """What the containers are shown: the wheel, a clone, and the client that waits for the first token."""
    shutil.rmtree(_GIVEN, ignore_errors=True)
    _GIVEN.mkdir(parents=True)
    wheels = [*Path("dist").glob("*.whl")]
    if len(wheels) != 1:
        raise ContainerError(f"dist/ has {len(wheels)} wheels, and one is wanted: rm -r dist && make wheel")
    shutil.copy(wheels[0], _GIVEN)
    shutil.copy(Path(__file__).with_name("first_token.py"), _GIVEN)
    subprocess.run(["git", "clone", "-q", "--bare", f"file://{Path.cwd()}", _GIVEN / "leftoff.git"], check=True)


def script(way: str) -> str:
    """All stages of a way, and what asks the server meanwhile. It ends when the first token is there."""
    *stages, serve = WAYS[way]
    said = "echo " + _MARK + ' $(python3 -c "import time; print(time.time() - $BEGAN)")'
    lines = ["set -e", "cd /root", 'export BEGAN=$(python3 -c "import time; print(time.time())")']
    lines += [f"{stage} >/dev/null\n{said}" for stage in stages]
    lines += [
        f"{serve} >serve.log 2>&1 & SERVER=$!",
        "python3 /given/first_token.py $SERVER || (cat serve.log; exit 1)",
    ]
    return "\n".join([*lines, said, "kill $SERVER", "wait $SERVER || true", "times"])


def _timed(tool: str, base: str, way: str) -> Timed:
    said = run_once(tool, base, ["sh", "-c", script(way)], _GIVEN.resolve(), "/given").splitlines()
    seconds = [float(line.removeprefix(_MARK)) for line in said if line.startswith(_MARK)]
    return Timed(seconds, _cpu_s(said[-1]), os.getloadavg()[0])


def _cpu_s(times: str) -> float:
    """The last line of the shell's `times`: its children in user and system mode, such as `0m7.25s 0m1.50s`."""
    return sum(60 * int(minutes) + float(rest) for minutes, rest in re.findall(r"(\d+)m([\d.]+)s", times))


def _show(timed: dict[str, Timed]) -> None:
    table = Table("way", "packages of the system", "uv, wheels or clone", "first token", "of CPU", "load")
    for way, each in timed.items():
        table.add_row(way, *(f"{second:.1f} s" for second in (*each.seconds, each.cpu_s)), f"{each.load:.1f}")
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
