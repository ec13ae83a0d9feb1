"""All settings of the server. Flags, environment variables, help texts and docs/settings.md are made from them.

The environment variable of a setting is its name in capitals after `LEFTOFF_`. llama-server's flags for the same thing
are aliases, so that a command line written for it works. A flag overrides the environment, which overrides the default.
What a setting is stands in `setting.py`; the command line itself is in `cli/flags.py`.
"""

import dataclasses
import re
from dataclasses import dataclass
from functools import cache

from leftoff.setting import Definition, SettingError, setting

MIB = 1 << 20
NO_LIMIT = 1 << 30  # MiB

# The first line of Claude Code's system prompts, which differs in every request.
BILLING_LINE = r"x-anthropic-billing-header:[^\n]*\n?"

MAX_SEQUENCES = 255  # llama.cpp's limit of 256, less the engine's scratch sequence
_SMALLEST_BATCH = 32  # the probe of a model's memory decodes a few tokens at once
KV_TYPES = {"f32": 0, "f16": 1, "bf16": 30, "q8_0": 8, "q5_1": 7, "q5_0": 6, "q4_1": 3, "q4_0": 2}  # ggml's numbers

ANY = "*"  # in lists of hosts and of origins
_HOST = re.compile(r"(?:\[([0-9a-f:.]+(?:%[\w.%-]+)?)\]|([\w.-]+))(?::\d{0,5})?", re.ASCII | re.IGNORECASE)


def smallest_batch(num_sequences: int) -> int:
    """The fewest tokens that a batch must hold: llama.cpp aborts if it cannot hold one of every sequence."""
    return max(_SMALLEST_BATCH, num_sequences + 1)


def host_name(text: str) -> str | None:
    """The lower-case name or address in `name`, `name:port` or `[address]:port`; None for any other text."""
    match = _HOST.fullmatch(text.strip())
    return (match[1] or match[2]).lower().removesuffix(".") or None if match else None


def _host_problem(text: str) -> str | None:
    if text == ANY or host_name(text):
        return None
    return f"{text!r} is not a host: give a name or an address, such as chat.example or [fd00::1], or * for all"


def _regex_problem(pattern: str) -> str | None:
    try:
        re.compile(pattern)
    except re.error as error:
        return f"{pattern!r} is not a regular expression ({error}): put a \\ before characters meant as they are"
    return None


@dataclass(frozen=True)
class Settings:
    """The settings of one server, checked when they are made."""

    model: str = setting(
        "", "GGUF file, or org/repo[:quant] of the Hugging Face hub", "-m", "-hf", "-hfr", "--hf-repo", metavar="MODEL"
    )
    alias: str = setting("", "model name that clients see (default: the name of the file)", "-a", metavar="NAME")
    host: str = setting("127.0.0.1", "address to listen on")
    port: int = setting(8080, "port to listen on; 0 takes a free one", limits=(0, 65535))
    api_key: tuple[str, ...] = setting(
        (),
        "accept only requests with this key; may be given several times",
        metavar="KEY",
        separator=",",
        may_be_empty=False,
    )
    cors: tuple[str, ...] = setting(
        (),
        "allow web pages of this origin, such as https://chat.example; * allows all; may be given several times",
        metavar="ORIGIN",
        separator=",",
    )
    allowed_host: tuple[str, ...] = setting(
        (),
        "also accept requests for this host name, such as that of a proxy or a container; * accepts every name, and "
        "with it DNS rebinding; may be given several times",
        metavar="HOST",
        separator=",",
        check=_host_problem,
    )
    slots: int = setting(
        4,
        "requests that run at the same time",
        "-np",
        "--parallel",
        limits=(1, MAX_SEQUENCES),
        words={"auto": 4, "-1": 4},
        bare="auto",
    )
    parked: int = setting(
        0,
        "idle sequences kept in the engine beyond the slots: fastest to resume, but they take GPU memory",
        limits=(0, 254),
    )
    ctx: int = setting(
        0,
        "tokens of context, shared by all slots (0: the length the model was trained for)",
        "-c",
        "--ctx-size",
        limits=(0, 1 << 30),
    )
    ram: int = setting(
        4096,
        "MiB of RAM for the prompt cache (-1: no limit)",
        "-cram",
        "--cache-ram",
        metavar="MIB",
        limits=(0, NO_LIMIT),
        words={"-1": NO_LIMIT},
    )
    disk: int = setting(
        4096,
        "MiB of disk for the prompt cache, kept across restarts (0: none)",
        metavar="MIB",
        limits=(0, 1 << 30),
        words={"off": 0, "none": 0},
    )
    cache_dir: str = setting("", "folder of the disk cache (default: in the user's cache folder)", metavar="DIR")
    prewarm: tuple[str, ...] = setting(
        (),
        "prefill this file at start and never evict it: a text, or JSON with messages; may be given several times",
        metavar="FILE",
    )
    threads: int = setting(0, "compute threads (0: one per physical core)", "-t", limits=(0, 512), words={"-1": 0})
    gpu_layers: int = setting(
        -1,
        "layers to put on the GPU (-1: all)",
        "-ngl",
        "--n-gpu-layers",
        limits=(-1, 1 << 20),
        words={"all": -1, "auto": -1},
    )
    batch: int = setting(2048, "maximum tokens in one batch", "-b", "--batch-size", limits=(32, 1 << 20))
    ubatch: int = setting(
        512, "maximum tokens of a batch that are computed at once", "-ub", "--ubatch-size", limits=(1, 1 << 20)
    )
    kv_type: str = setting(
        "f16",
        "data type of the KV cache, for keys and values",
        "-ctk",
        "--cache-type-k",
        metavar="TYPE",
        choices=tuple(KV_TYPES),
    )
    deterministic: bool = setting(
        False,
        "give the same prompt the same logits, bit for bit, whatever ran before: "
        "one request at a time, prefilled in chunks with fixed borders",
    )
    max_tokens: int = setting(
        -1,
        "maximum tokens of a reply when the request does not say (-1: what fits)",
        "-n",
        "--predict",
        "--n-predict",
        limits=(-1, 1 << 30),
    )
    chat_template_file: str = setting("", "Jinja template to use instead of the model's", metavar="FILE")
    drop_header: tuple[str, ...] = setting(
        (BILLING_LINE,), "remove text that matches from system prompts", metavar="REGEX", check=_regex_problem
    )
    pin: tuple[str, ...] = setting(
        (),
        "replace text that matches in system prompts by the text that matched first",
        metavar="REGEX",
        check=_regex_problem,
    )
    overflow: str = setting(
        "error",
        "refuse a prompt that does not fit, or cut its oldest turns",
        metavar="HOW",
        choices=("error", "cut"),
    )
    remember_replies: bool = setting(
        True, "when a client sends a reply back, write it into the prompt exactly as the model wrote it"
    )
    read_ahead: bool = setting(True, "when idle, prefill the conversation as the next prompt will contain it")
    supervise: bool = setting(False, "restart the server if it crashes")
    queue: int = setting(512, "maximum number of waiting requests", limits=(1, 1 << 20))
    max_body: int = setting(32, "maximum size of a request in MiB", metavar="MIB", limits=(1, 1 << 12))
    reports: int = setting(256, "reuse reports to keep for GET /cache/requests", limits=(0, 1 << 20))
    log_level: str = setting("info", "how much to log", metavar="LEVEL", choices=("debug", "info", "warning", "error"))

    def __post_init__(self) -> None:
        for definition in definitions():
            problem = definition.problem(getattr(self, definition.name))
            if problem:
                raise SettingError(f"{definition.option}: {problem}")
        self._check_sizes()

    def _check_sizes(self) -> None:
        sequences = self.slots + self.parked
        least = smallest_batch(sequences)
        if sequences > MAX_SEQUENCES:
            raise SettingError(f"--slots {self.slots} and --parked {self.parked}: at most {MAX_SEQUENCES} together")
        if 0 < self.ctx < least:
            raise SettingError(f"--ctx {self.ctx}: must be at least {least}, or 0 for what the model was trained for")
        if self.batch < least:
            raise SettingError(f"--batch {self.batch}: must be at least {least}, one more than there are slots")


@cache
def definitions() -> tuple[Definition, ...]:
    """All settings, for flags, environment variables and the documentation."""
    return tuple(
        Definition(field.name, field.default, field.metadata["flag"]) for field in dataclasses.fields(Settings)
    )
