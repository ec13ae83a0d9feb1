"""Builds and runs images by docker or podman, or by buildah, which has no daemon and runs them in a chroot.

A container gets what docs/containers.md gives it: a volume for the cache, no capabilities, nothing else to write to.
"""

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from lab.bench.process import children
from leftoff.errors import LeftoffError

TOOLS = ("docker", "podman", "buildah")
_DOCKERFILE = "deploy/Dockerfile"
_STOP_S = 60


class ContainerError(LeftoffError):
    """A tool for containers that is missing, or that failed. The message has its last words."""


class Container(Protocol):
    """One container of an image, and the volume of its cache, which outlives it."""

    def start(self, environment: Mapping[str, str], port: int) -> None: ...

    def passes(self, command: Sequence[str]) -> bool:
        """Whether a command in the running container succeeds."""
        ...

    def stop(self) -> None: ...

    def remove_volume(self) -> None: ...

    def log(self) -> str: ...


def find_tool() -> str:
    """The first that is installed."""
    return _installed()[0]


def find_running_tool(image: str) -> str:
    """The first that runs a command in a container of the image: one that is installed may not be allowed to."""
    problems = []
    for tool in _installed():
        try:
            run_once(tool, image, ["true"], Path.cwd(), "/given")
        except ContainerError as error:
            problems.append(str(error))
        else:
            return tool
    raise ContainerError("\n".join(problems))


def build(tool: str, target: str, image: str, arguments: Mapping[str, str]) -> None:
    """Shows what the tool says. OCI's own format, podman's and buildah's default, has no health checks."""
    given = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
    form = [] if tool == "docker" else ["--format", "docker", "--layers"]
    command = [tool, "build", *form, *given, "--file", _DOCKERFILE, "--target", target, "--tag", image, "."]
    isolated = {} if tool == "docker" else {"BUILDAH_ISOLATION": os.environ.get("BUILDAH_ISOLATION", "chroot")}
    if subprocess.run(command, env=os.environ | isolated, check=False).returncode:
        raise ContainerError(f"{' '.join(command)} failed: its last lines say why")


def image_config(tool: str, image: str) -> dict[str, Any]:
    """What the Dockerfile says of user, volumes, command and health check."""
    if tool == "buildah":
        shown = json.loads(_said(tool, "inspect", "--type", "image", image))["Docker"]
    else:
        (shown,) = json.loads(_said(tool, "image", "inspect", image))
    config: dict[str, Any] = shown.get("config") or shown["Config"]
    if tool == "podman" and "Healthcheck" not in config:  # beside the others
        config["Healthcheck"] = shown["Healthcheck"]
    return config


def run_once(tool: str, image: str, command: Sequence[str], folder: Path, at: str) -> str:
    """What a command prints in a fresh container of an image, as root, with a folder of this machine to read."""
    mounted = ("--volume", f"{folder}:{at}:ro")
    if tool != "buildah":
        return _said(tool, "run", "--rm", "--user", "0", *mounted, image, *command)
    name = _said("buildah", "from", "--pull-never", image).strip()
    try:
        return _said(*_RUN, "--user", "0", *mounted, name, "--", *command)
    finally:
        _run("buildah", "rm", name)


def container_of(tool: str, image: str) -> Container:
    return BuildahContainer(image) if tool == "buildah" else EngineContainer(tool, image)


class EngineContainer:
    """A container of docker or podman, whose commands are the same. The port is published on loopback alone."""

    def __init__(self, tool: str, image: str) -> None:
        self._tool, self._image = tool, image
        self._name = f"leftoff-play-{os.getpid()}"

    def start(self, environment: Mapping[str, str], port: int) -> None:
        variables = [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
        _said(
            *(self._tool, "run", "--detach", "--name", self._name, "--publish", f"127.0.0.1:{port}:{port}"),
            *("--volume", f"{self._name}:/cache", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL"),
            *("--security-opt", "no-new-privileges", *variables, self._image),
        )

    def passes(self, command: Sequence[str]) -> bool:
        return not _run(self._tool, "exec", self._name, *command).returncode

    def log(self) -> str:
        done = _run(self._tool, "logs", self._name)
        return done.stdout + done.stderr

    def stop(self) -> None:
        _run(self._tool, "stop", "-t", str(_STOP_S), self._name)
        _run(self._tool, "rm", "--force", self._name)

    def remove_volume(self) -> None:
        _run(self._tool, "volume", "rm", self._name)


class BuildahContainer:
    """A container by `buildah run`, in the network and among the processes of this machine."""

    def __init__(self, image: str) -> None:
        self._image = image
        self._volume = Path(tempfile.mkdtemp(prefix="leftoff-cache-"))
        user, _, group = image_config("buildah", image)["User"].partition(":")
        os.chown(self._volume, int(user), int(group))
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._name = ""
        self._variables: list[str] = []
        self._process: subprocess.Popen[str] | None = None

    def start(self, environment: Mapping[str, str], port: int) -> None:  # noqa: ARG002
        config = image_config("buildah", self._image)
        self._variables = [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
        self._name = _said("buildah", "from", "--pull-never", self._image).strip()
        command = [*_RUN, "--volume", f"{self._volume}:/cache", *self._variables, self._name, "--"]
        command += [*config["Entrypoint"], *config["Cmd"]]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log, text=True)

    def passes(self, command: Sequence[str]) -> bool:
        return not _run(*_RUN, *self._variables, self._name, "--", *command).returncode

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def stop(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.kill(_innermost(self._process.pid), signal.SIGTERM)  # buildah would kill it
            self._process.wait(_STOP_S)
            self._process = None
            _run("buildah", "rm", self._name)

    def remove_volume(self) -> None:
        shutil.rmtree(self._volume)


_RUN = ("buildah", "run", "--isolation", "chroot")


def _installed() -> list[str]:
    found = [tool for tool in TOOLS if shutil.which(tool)]
    if not found:
        raise ContainerError(f"an image takes one of {', '.join(TOOLS)}: none of them is installed")
    return found


def _innermost(pid: int) -> int:
    return next((_innermost(child) for child in children(pid)), pid)


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _said(*command: str) -> str:
    done = _run(*command)
    if done.returncode:
        raise ContainerError(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return done.stdout
