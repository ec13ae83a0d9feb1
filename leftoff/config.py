"""Every setting, defined once: flags, environment variables, help and the settings page come from here.

A setting's environment variable is its name in capitals after `LEFTOFF_`. Flags that llama-server has for the same
thing are aliases, so that a command line written for it works.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

MIB = 1 << 20

# The line Claude Code puts first into every system prompt, different each time.
BILLING_LINE = r"x-anthropic-billing-header:[^\n]*\n?"


@dataclass(frozen=True)
class Flag:
    """What the command line and the settings page show of a setting."""

    names: tuple[str, ...]
    help: str
    metavar: str | None = None
    choices: tuple[str, ...] = ()


def setting(default: Any, text: str, *names: str, metavar: str | None = None, choices: tuple[str, ...] = ()) -> Any:  # noqa: ANN401
    """A field of `Settings`. The name of the field gives its first flag; `names` are further ones."""
    return dataclasses.field(default=default, metadata={"flag": Flag(names, text, metavar, choices)})


@dataclass(frozen=True)
class Settings:
    """How a server runs. Every default is right for most."""

    model: str = setting("", "GGUF file, or org/repo[:quant] of the hub", "-m", metavar="MODEL")
    alias: str = setting("", "name of the model on the wire (default: the file's)", "-a")
    host: str = setting("127.0.0.1", "address to listen on")
    port: int = setting(8080, "port to listen on; 0 takes a free one")
    api_key: tuple[str, ...] = setting((), "accept only requests with this key; may be given several times")
    cors: tuple[str, ...] = setting(
        (), "allow web pages from this origin; may be given several times", metavar="ORIGIN"
    )
    slots: int = setting(4, "requests that run at the same time", "-np", "--parallel")
    parked: int = setting(0, "states kept inside the engine beyond the slots: the fastest way back, for GPU memory")
    ctx: int = setting(
        0, "tokens of context, shared by all slots (0: what the model was trained for)", "-c", "--ctx-size"
    )
    ram: int = setting(4096, "MiB of RAM for snapshots and pages", "--cache-ram", metavar="MIB")
    threads: int = setting(0, "threads to compute with (0: one per physical core)", "-t")
    gpu_layers: int = setting(-1, "layers to put on the GPU (-1: all)", "-ngl", "--n-gpu-layers")
    batch: int = setting(2048, "most tokens in one batch", "-b", "--batch-size")
    ubatch: int = setting(512, "tokens computed at once", "-ub", "--ubatch-size")
    kv_type: str = setting("f16", "type of the attention cache", "-ctk", "--cache-type-k")
    max_tokens: int = setting(-1, "longest reply when a request does not say (-1: what fits)", "-n", "--predict")
    chat_template_file: str = setting("", "Jinja template to use instead of the model's", metavar="FILE")
    drop_header: tuple[str, ...] = setting(
        (BILLING_LINE,), "remove text that matches from system prompts", metavar="REGEX"
    )
    pin: tuple[str, ...] = setting((), "keep the first text that matched, whatever comes later", metavar="REGEX")
    overflow: str = setting(
        "error", "a prompt that does not fit: refuse it, or cut the oldest turns", choices=("error", "cut")
    )
    queue: int = setting(512, "requests that may wait")
    max_body: int = setting(32, "MiB of the largest request", metavar="MIB")
    reports: int = setting(256, "reuse reports to keep for GET /cache/requests")
    log_level: str = setting("info", "how much to log", choices=("debug", "info", "warning", "error"))
