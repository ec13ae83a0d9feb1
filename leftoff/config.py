"""All settings of the server. Flags, environment variables, help texts and docs/settings.md are made from them.

The environment variable of a setting is its name in capitals after `LEFTOFF_`. llama-server's flags for the same thing
are aliases, so that a command line written for it works. A flag overrides the environment, which overrides the default.
What a setting is stands in `setting.py`; the command line itself is in `cli/flags.py`.
"""

import dataclasses
from dataclasses import dataclass
from functools import cache

from leftoff.setting import (
    SWITCH,
    Definition,
    SettingError,
    host_problem,
    layers_problem,
    numbers_problem,
    origin_problem,
    override_problem,
    regex_problem,
    scaled_file_problem,
    setting,
    shared,
    template_setting,
    url_problem,
)

MIB = 1 << 20
NO_LIMIT = 1 << 30  # MiB
AUTO = -2  # MiB: as much as the machine can spare and the model needs

# The first line of Claude Code's system prompts, which differs in every request.
BILLING_LINE = r"x-anthropic-billing-header:[^\n]*\n?"
AGENTS = "agents"  # stands for the patterns of chat/agent_texts.py
LEARN = "learn"  # stands for what chat/learner.py finds

MAX_SEQUENCES = 255  # llama.cpp's limit of 256, less the engine's scratch sequence
_SMALLEST_BATCH = 32  # the probe of a model's memory decodes a few tokens at once
# ggml's numbers
KV_TYPES = {"f32": 0, "f16": 1, "bf16": 30, "q8_0": 8, "q5_1": 7, "q5_0": 6, "q4_1": 3, "q4_0": 2, "iq4_nl": 20}
MAX_DRAFTED = 255  # llama-server takes more, which no match is worth
_PLAIN_TYPES = ("f32", "f16", "bf16")
ALL_LAYERS = -2  # as llama-server counts them; -1 is as many as fit


def smallest_batch(num_sequences: int) -> int:
    """The fewest tokens that a batch must hold: llama.cpp aborts if it cannot hold one of every sequence."""
    return max(_SMALLEST_BATCH, num_sequences + 1)


def flash_problem(flash_attention: str, values_type: str) -> str | None:
    """Says what is wrong with a type of values where flash attention is off; None if they go together."""
    if flash_attention != "off" or values_type in _PLAIN_TYPES:
        return None
    problem = f"--flash-attn off: llama.cpp keeps values of type {values_type} only with flash attention"
    return f"{problem}: leave it out, or give --cache-type-v f16"


@dataclass(frozen=True)
class Settings:
    """The settings of one server, checked when they are made."""

    model: str = setting(
        "", "GGUF file, or org/repo[:quant] or short name of the hub", "-m", "-hf", "-hfr", "--hf-repo", metavar="MODEL"
    )
    mmproj: str = setting(
        "", "to see images with (default: mmproj*.gguf beside the model; or none)", "-mm", metavar="FILE"
    )
    lora: tuple[str, ...] = setting(
        (),
        "LoRA adapter: with a NAME for requests to MODEL:NAME, without one for all",
        "--lora-scaled",
        metavar="[NAME=]FILE[:SCALE]",
        separator=",",
        check=scaled_file_problem,
    )
    lora_init_without_apply: bool = setting(False, "adapters without a name act on requests for them alone, too")
    control_vector: tuple[str, ...] = setting(
        (),
        "control vector that acts on all requests; of several, their sum does",
        "--control-vector-scaled",
        metavar="FILE[:SCALE]",
        separator=",",
        check=scaled_file_problem,
    )
    control_vector_layers: str = setting(
        "", "the first and the last layer that it acts on (default: all)", metavar="FIRST,LAST", check=layers_problem
    )
    image_min_tokens: int = setting(0, "fewest tokens of an image (0: the model's own choice)", limits=(0, 1 << 16))
    image_max_tokens: int = setting(0, "most tokens of an image (0: the model's own choice)", limits=(0, 1 << 16))
    alias: tuple[str, ...] = setting(
        (),
        "names that requests may give the model, also patterns such as claude-*; lists show the first that "
        "is no pattern (default: the name of the file)",
        "-a",
        "--aliases",
        metavar="NAME",
        separator=",",
    )
    models_dir: str = shared(
        "",
        "also serve every GGUF file in this folder, by its name; one that is added later is found when it is asked",
        metavar="DIR",
    )
    config: str = shared(
        "",
        "TOML file with settings, and with models in [models.NAME]; off: none (default: leftoff.toml in this folder, "
        "else in ~/.config/leftoff)",
        metavar="FILE",
    )
    host: str = shared("127.0.0.1", "address to listen on")
    port: int = shared(8080, "port to listen on; 0 takes a free one", limits=(0, 65535))
    api_key: tuple[str, ...] = shared(
        (), "accept only requests with this key", metavar="KEY", separator=",", may_be_empty=False
    )
    cors: tuple[str, ...] = shared(
        (),
        "allow web pages of this origin, such as https://chat.example; * allows all",
        metavar="ORIGIN",
        separator=",",
        check=origin_problem,
    )
    allowed_host: tuple[str, ...] = shared(
        (),
        "also accept requests for this host name, such as that of a proxy or a container; * accepts every name, and "
        "with it DNS rebinding",
        metavar="HOST",
        separator=",",
        check=host_problem,
    )
    slots: int = setting(
        4,
        "requests that run at the same time",
        *("-np", "--parallel"),
        limits=(1, MAX_SEQUENCES),
        words={"auto": 4, "-1": 4},
        bare="auto",
    )
    parked: int = setting(
        -1,
        "idle sequences kept in the engine beyond the slots: fastest to resume, but they slow running replies down and "
        "change their rounding (-1: on a GPU a few, while they pay; on a CPU none)",
        limits=(-1, 254),
        words={"auto": -1},
    )
    ctx: int = setting(
        0,
        "tokens of context, shared by all slots (0: what the model was trained for, up to 131,072, if it fits)",
        *("-c", "--ctx-size"),
        limits=(0, 1 << 30),
    )
    ram: int = shared(
        AUTO,
        "MiB of RAM for the prompt cache of all models (auto: what this machine can spare, up to what the model needs; "
        "-1: no limit)",
        *("-cram", "--cache-ram"),
        metavar="MIB",
        limits=(0, NO_LIMIT),
        words={"auto": AUTO, "-1": NO_LIMIT},
    )
    disk: int = shared(
        AUTO,
        "MiB of disk for the prompt cache of all models, kept across restarts (auto: a part of what is free; 0: none)",
        metavar="MIB",
        limits=(0, 1 << 30),
        words={"auto": AUTO, "off": 0, "none": 0},
    )
    disk_daily: int = shared(
        0,
        "most MiB written to the disk cache in 24 hours, across restarts; beyond that it is only read (0: no limit)",
        metavar="MIB",
        limits=(0, 1 << 30),
        words={"off": 0, "none": 0},
    )
    cache_dir: str = shared("", "folder of the disk cache (default: in the user's cache folder)", metavar="DIR")
    store: str = shared(
        "",
        "URL of a store that several servers share, below the disk: s3://bucket/folder, gs://, az:// or "
        "file:///mnt/shared; takes --index, and pip install 'leftoff[cluster]'",
        metavar="URL",
        check=url_problem,
    )
    index: str = shared(
        "",
        "URL of the Redis or Valkey that knows what is in --store, and tells a router what this server holds: "
        "redis://host:6379/0",
        metavar="URL",
        check=url_problem,
    )
    fleet_key: str = shared(
        "",
        "file with the key of the fleet, the same on all its servers and routers; `leftoff cluster key FILE` makes "
        "one. Without it, whoever can write to --index or --store can redirect requests and change prompts",
        metavar="FILE",
    )
    store_budget: int = shared(
        100 << 10, "MiB that all servers of this model together keep in --store", metavar="MIB", limits=(1, NO_LIMIT)
    )
    store_days: int = shared(30, "days after which --store forgets what was not used", limits=(1, 3650))
    advertise: str = shared(
        "",
        "URL at which routers reach this server (default: by --host, or the address towards --index, and --port)",
        metavar="URL",
        check=url_problem,
    )
    prewarm: tuple[str, ...] = setting(
        (),
        "prefill this file at start and never evict it: a text, or JSON with messages; last: the headers that clients "
        "used last",
        metavar="FILE",
    )
    threads: int = setting(0, "compute threads (0: one per physical core)", "-t", limits=(0, 512), words={"-1": 0})
    threads_batch: int = setting(
        0, "compute threads for prefill (0: as many as --threads)", "-tb", limits=(0, 512), words={"-1": 0}
    )
    gpu_layers: int = setting(
        -1,
        "layers to put on GPUs (-1: as many as fit; all: all of them, whether they fit or not)",
        *("-ngl", "--n-gpu-layers"),
        limits=(ALL_LAYERS, 1 << 20),
        words={"all": ALL_LAYERS, "auto": -1},
    )
    fit: bool = setting(
        True,
        "before loading, choose what was not given so that it fits the free memory: "
        "the context, experts on the CPU (--n-cpu-moe), layers on GPUs",
        "-fit",
    )
    fit_target: str = setting(
        "1024", "MiB that --fit leaves free on each device", "-fitt", metavar="MIB", check=numbers_problem
    )
    fit_ctx: int = setting(
        8192, "fewest tokens of context before --fit moves layers off a GPU", "-fitc", limits=(1, 1 << 30)
    )
    device: str = setting(
        "", "GPUs to use, such as CUDA0,CUDA1; none: the CPU alone (default: all GPUs)", "-dev", metavar="NAMES"
    )
    split_mode: str = setting(
        "layer",
        "how to use several GPUs: one alone, layers on each, or the rows or tensors of each layer",
        "-sm",
        metavar="HOW",
        choices=("none", "layer", "row", "tensor"),
    )
    tensor_split: str = setting(
        "", "share of each GPU, such as 3,1 (default: by free memory)", "-ts", metavar="N0,N1", check=numbers_problem
    )
    main_gpu: int = setting(
        0, "the GPU for everything with --split-mode none, for the KV cache with row", "-mg", limits=(0, 127)
    )
    n_cpu_moe: int = setting(0, "keep the experts of the first N layers in RAM, for the CPU", "-ncmoe", limits=(0, 999))
    cpu_moe: bool = setting(False, "keep the experts of all layers in RAM, for the CPU", "-cmoe")
    override_tensor: tuple[str, ...] = setting(
        (),
        "put tensors whose name matches into a buffer type, such as ffn_.*_exps=CPU",
        "-ot",
        metavar="PATTERN=TYPE",
        separator=",",
        check=override_problem,
    )
    mmap: bool = setting(True, "map the model file into memory rather than read it")
    mlock: bool = setting(False, "keep the weights in RAM: never swap them out")
    flash_attn: str = setting(
        "auto",
        "flash attention; without it the cache of a conversation is one piece, saved and loaded whole",
        "-fa",
        metavar="HOW",
        choices=("auto", "on", "off"),
        words={word: "on" if is_on else "off" for word, is_on in SWITCH.items()} | {"auto": "auto", "-1": "auto"},
        bare="on",
    )
    batch: int = setting(2048, "maximum tokens in one batch", "-b", "--batch-size", limits=(32, 1 << 20))
    ubatch: int = setting(
        512, "maximum tokens of a batch that are computed at once", "-ub", "--ubatch-size", limits=(1, 1 << 20)
    )
    kv_type: str = setting(
        "f16", "data type of the KV cache, for keys and values", metavar="TYPE", choices=tuple(KV_TYPES)
    )
    cache_type_k: str = setting(
        "", "data type of keys (default: --kv-type)", "-ctk", metavar="TYPE", choices=tuple(KV_TYPES)
    )
    cache_type_v: str = setting(
        "", "data type of values (default: --kv-type)", "-ctv", metavar="TYPE", choices=tuple(KV_TYPES)
    )
    deterministic: bool = setting(
        False,
        "give the same prompt the same logits, bit for bit, whatever ran before: "
        "one request at a time, prefilled in chunks with fixed borders",
    )
    draft: str = setting(
        "auto",
        "speculative decoding, with drafts copied from what the cache knows: tree; guessed by the model's next-token "
        "layer: mtp; by --model-draft: model; off; auto: what pays most",
        metavar="HOW",
        choices=("auto", "tree", "mtp", "model", "off"),
        words={word: "tree" if is_on else "off" for word, is_on in SWITCH.items()},
    )
    model_draft: str = setting(
        "",
        "smaller model with the same tokens, or EAGLE-3 head, to guess what comes next; a file, or org/repo[:quant]",
        *("-md", "--spec-draft-model", "-hfd", "-hfrd", "--hf-repo-draft", "--spec-draft-hf"),
        metavar="MODEL",
    )
    draft_max: int = setting(
        24, "most tokens of a draft", "--draft-n", "--spec-draft-n-max", limits=(1, MAX_DRAFTED), words={"-1": 24}
    )
    max_tokens: int = setting(
        -1,
        "maximum tokens of a reply when the request does not say (-1: what fits)",
        *("-n", "--predict", "--n-predict"),
        limits=(-1, 1 << 30),
    )
    chat_template_file: str = setting("", "Jinja template to use instead of the model's", metavar="FILE")
    chat_template_kwargs: tuple[str, ...] = template_setting(
        'variables for the template, such as {"enable_thinking": false}, for requests that do not set them'
    )
    drop_header: tuple[str, ...] = setting(
        (BILLING_LINE,), "remove text that matches from system prompts", metavar="REGEX", check=regex_problem
    )
    move: tuple[str, ...] = setting(
        (AGENTS,),
        "move text that matches in system prompts behind them, to the first user message; "
        "agents: what today's coding agents change from session to session, such as the date and the git status; "
        "learn: lines that were seen to change from session to session",
        metavar="REGEX",
        check=regex_problem,
    )
    pin: tuple[str, ...] = setting(
        (),
        "replace text that matches in system prompts by the text that matched first",
        metavar="REGEX",
        check=regex_problem,
    )
    pooling: str = setting(
        "",
        "how the tokens of a text become one vector, or scores, for embeddings and reranking (default: as the model"
        " file says, else the mean)",
        metavar="HOW",
        choices=("mean", "cls", "last", "rank"),
    )
    overflow: str = setting(
        "error", "refuse a prompt that does not fit, or cut its oldest turns", metavar="HOW", choices=("error", "cut")
    )
    remember_replies: bool = setting(
        True, "when a client sends a reply back, write it into the prompt exactly as the model wrote it"
    )
    read_ahead: bool = setting(True, "when idle, prefill the conversation as the next prompt will contain it")
    pinned: bool = setting(False, "of several models: load this one at start, and never put it to sleep")
    models_max: int = shared(
        0, "most models that are loaded at a time, of several (0: as many as fit into memory)", limits=(0, 1 << 10)
    )
    sleep_idle_seconds: int = setting(
        -1,
        "after so long without a request, give the memory of weights and context back; the next one loads them again "
        "and reads nothing twice (-1: never)",
        metavar="SECONDS",
        limits=(-1, 1 << 30),
    )
    supervise: bool = shared(False, "restart the server if it crashes")
    queue: int = shared(512, "maximum number of waiting requests", limits=(1, 1 << 20))
    max_body: int = shared(64, "maximum size of a request in MiB", metavar="MIB", limits=(1, 1 << 12))
    max_images: int = setting(256, "most images of a request, the pages of PDFs included", limits=(1, 1 << 14))
    image_megapixels: int = setting(50, "most millions of pixels of an image", metavar="MP", limits=(1, 150))
    fetch_images: bool = shared(
        False, "fetch images and PDFs that requests name by URL, from public addresses only; else they are refused"
    )
    reports: int = shared(256, "reuse reports to keep for GET /cache/requests", limits=(0, 1 << 20))
    page: bool = shared(True, "serve the page at /: chat, and see what the cache does")
    log_level: str = shared("info", "how much to log", metavar="LEVEL", choices=("debug", "info", "warning", "error"))
    log_format: str = shared("text", "how to log: for people, or a JSON object on each line", choices=("text", "json"))
    otel: str = shared(
        "", "send a span of each request to this OpenTelemetry collector, by HTTP", metavar="URL", check=url_problem
    )

    def __post_init__(self) -> None:
        for definition in definitions():
            problem = definition.problem(getattr(self, definition.name))
            if problem:
                raise SettingError(f"{definition.option}: {problem}")
        self._check_sizes()

    def _check_sizes(self) -> None:
        sequences = self.slots + max(0, self.parked)
        least = smallest_batch(sequences)
        if sequences > MAX_SEQUENCES:
            raise SettingError(f"--slots {self.slots} and --parked {self.parked}: at most {MAX_SEQUENCES} together")
        if 0 < self.ctx < least:
            raise SettingError(f"--ctx {self.ctx}: must be at least {least}, or 0 for what the model was trained for")
        problem = flash_problem(self.flash_attn, self.cache_type_v or self.kv_type)
        if problem:
            raise SettingError(problem)
        if self.batch < least:
            raise SettingError(f"--batch {self.batch}: must be at least {least}, one more than there are slots")


@cache
def definitions() -> tuple[Definition, ...]:
    """All settings, for flags, environment variables and the documentation."""
    return tuple(Definition(field.name, field.default, **field.metadata) for field in dataclasses.fields(Settings))
