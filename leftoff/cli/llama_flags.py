"""llama-server's flags that are no settings here, so that a command line written for llama-server works.

Its sampling flags set the defaults for requests. A flag that would change nothing here, or only the speed, or that
clients can send as well, is accepted and named at start. A flag whose loss would be dangerous or would change what the
model answers is refused, with what to do instead.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from leftoff.cli.flags import CommandLine
from leftoff.config import MIB
from leftoff.engine.binding.library import load_library
from leftoff.engine.devices import device_memory
from leftoff.sampling import PARAMETERS, Parameter


class Takes(Enum):
    """The kind of value that follows a flag."""

    NOTHING = "nothing"
    VALUE = "value"
    PERHAPS = "perhaps"  # on, off or auto


@dataclass(frozen=True)
class Foreign:
    """Flags that are ignored or refused for one reason."""

    reason: str
    switches: str = ""
    valued: str = ""
    perhaps: str = ""
    refused: bool = False

    @property
    def options(self) -> list[tuple[str, Takes]]:
        kinds = ((self.switches, Takes.NOTHING), (self.valued, Takes.VALUE), (self.perhaps, Takes.PERHAPS))
        return [(option, takes) for options, takes in kinds for option in options.split()]


FOREIGN = (
    Foreign(
        "always so here",
        switches="--jinja --cont-batching -cb --metrics --props --warmup --cache-prompt "
        "--kv-unified -kvu --no-context-shift --op-offload --kv-offload -kvo --repack --mmproj-auto --cache-idle-slots "
        "--perf --escape -e --prefill-assistant --no-skip-chat-parsing --no-models-autoload",
    ),
    Foreign(
        "cannot be turned off here",
        switches="--no-jinja --no-cont-batching -nocb --no-slots --no-cache-prompt --no-kv-unified --no-perf "
        "--no-escape --no-prefill-assistant --no-op-offload --no-kv-offload -nkvo --no-repack -nr "
        "--no-cache-idle-slots -no-kvu",
    ),
    Foreign(
        "the cache chooses where snapshots pay, and keeps to --ram",
        valued="--ctx-checkpoints -ctxcp --swa-checkpoints --checkpoint-every-n-tokens -cpent --checkpoint-every-nb "
        "--checkpoint-min-step -cms --slot-prompt-similarity -sps --cache-reuse --lookup-cache-static -lcs "
        "--lookup-cache-dynamic -lcd --defrag-thold -dt",
        switches="--swa-full",
    ),
    Foreign("slots are saved to the cache, under their names: --cache-dir says where", valued="--slot-save-path"),
    Foreign(
        "the template says what stays of earlier reasoning: clients may send chat_template_kwargs",
        switches="--reasoning-preserve --no-reasoning-preserve",
    ),
    Foreign("tokens are sampled on the CPU", switches="--backend-sampling -bs"),
    Foreign(
        "--cors says which pages may use the server",
        valued="--cors-origins --cors-methods --cors-headers",
        switches="--cors-credentials --no-cors-credentials",
    ),
    Foreign(
        "--overflow cut is the way here",
        switches="--context-shift",
        valued="--keep",
    ),
    Foreign(
        "clients send it with each request",
        valued="--dry-sequence-breaker --samplers --sampler-seq --sampling-seq --reasoning-format --reasoning-budget "
        "--reasoning -rea --chat-template-kwargs --reasoning-effort --reasoning-budget-message --adaptive-target "
        "--adaptive-decay",
    ),
    Foreign(
        "one event loop serves every connection until its reply ends",
        valued="--threads-http --timeout -to --sse-ping-interval",
    ),
    Foreign(
        "llama.cpp places threads and reads files by itself",
        valued="--numa --prio --prio-batch --poll --poll-batch --cpu-mask -C --cpu-range -Cr --cpu-strict --rpc "
        "--cpu-mask-batch -Cb --cpu-range-batch -Crb --cpu-strict-batch "
        "--n-cpu-ffn -ncffn --moe-cache-mib --lazy-mode -lzm",
        switches="--check-tensors --no-host --direct-io -dio --no-direct-io -ndio",
    ),
    Foreign(
        "drafts come from what the cache knows or from the model itself, not from a second one, and their length is "
        "chosen as it pays: see --draft",
        valued="--model-draft -md --hf-repo-draft -hfd -hfrd --draft-min --draft-n-min "
        "--draft-p-min --draft-p-split --gpu-layers-draft -ngld --n-gpu-layers-draft --device-draft -devd "
        "--ctx-size-draft -cd --cache-type-k-draft -ctkd --cache-type-v-draft -ctvd --threads-draft -td --spec-type "
        "--spec-draft-model --spec-draft-n-min --spec-draft-p-min --spec-draft-p-split "
        "--spec-draft-hf --spec-draft-ngl --spec-draft-device --spec-draft-type-k --spec-draft-type-v "
        "--spec-draft-threads --spec-draft-threads-batch --threads-batch-draft -tbd --spec-draft-override-tensor "
        "--override-tensor-draft -otd --spec-draft-n-cpu-moe --spec-draft-ncmoe --n-cpu-moe-draft -ncmoed "
        "--spec-draft-cpu-mask --cpu-mask-draft -Cd --spec-draft-cpu-range --cpu-range-draft -Crd "
        "--spec-draft-cpu-strict --cpu-strict-draft --spec-draft-prio --prio-draft --spec-draft-poll --poll-draft "
        "--spec-draft-cpu-mask-batch --cpu-mask-batch-draft -Cbd --spec-draft-cpu-strict-batch "
        "--cpu-strict-batch-draft --spec-draft-prio-batch --prio-batch-draft --spec-draft-poll-batch "
        "--poll-batch-draft --spec-ngram-size-n --spec-ngram-size-m --spec-ngram-min-hits --spec-ngram-mod-n-min "
        "--spec-ngram-mod-n-max --spec-ngram-mod-n-match --spec-ngram-simple-size-n --spec-ngram-simple-size-m "
        "--spec-ngram-simple-min-hits --spec-ngram-map-k-size-n --spec-ngram-map-k-size-m "
        "--spec-ngram-map-k-min-hits --spec-ngram-map-k4v-size-n --spec-ngram-map-k4v-size-m "
        "--spec-ngram-map-k4v-min-hits",
        switches="--spec-default --spec-draft-cpu-moe --cpu-moe-draft -cmoed --spec-draft-backend-sampling "
        "--no-spec-draft-backend-sampling",
    ),
    Foreign(
        "replies are text, and so are requests",
        valued="--mmproj -mm --mmproj-url -mmu --image-min-tokens --image-max-tokens --mmproj-device -mmdev "
        "--mtmd-batch-max-tokens",
        switches="--no-mmproj --no-mmproj-auto --mmproj-offload --no-mmproj-offload",
    ),
    Foreign(
        "--no-page is the way here",
        switches="--no-webui --no-ui",
    ),
    Foreign(
        "it has nothing to act on here",
        switches="--webui --ui --no-warmup --offline --spm-infill --special -sp --verbose-prompt --simple-io "
        "--ui-mcp-proxy --webui-mcp-proxy --no-ui-mcp-proxy --no-webui-mcp-proxy --agent -ag --no-agent -no-ag "
        "--reuse-port",
        valued="--path --webui-config --webui-config-file --ui-config --ui-config-file --sleep-idle-seconds --tags "
        "--media-path --tools --tools-runtime --mcp-servers-config --mcp-servers-json --embd-normalize",
    ),
    Foreign(
        "--log-level says how much is logged",
        switches="--verbose -v --log-verbose --log-disable --log-prefix --no-log-prefix --log-timestamps "
        "--no-log-timestamps",
        valued="--verbosity -lv --log-verbosity --log-file --log-prompts-dir",
        perhaps="--log-colors",
    ),
    Foreign(
        "leftoff does not encrypt: put a proxy with TLS before it, and leave this out",
        valued="--ssl-key-file --ssl-cert-file",
        refused=True,
    ),
    Foreign(
        "not supported yet, and without it the model would answer differently",
        valued="--lora --lora-scaled --control-vector --control-vector-scaled --control-vector-layer-range "
        "--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale "
        "--yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast --override-kv "
        "--grp-attn-n -gan --grp-attn-w -gaw --pooling --attention --logit-bias -l",
        switches="--ignore-eos --lora-init-without-apply --skip-chat-parsing",
        refused=True,
    ),
    Foreign(
        "send it with each request, as response_format or grammar",
        valued="--grammar --grammar-file --json-schema -j --json-schema-file -jf",
        refused=True,
    ),
    Foreign("send it with each request, as stop", valued="--reverse-prompt -r", refused=True),
    Foreign("write the template into a file and give --chat-template-file", valued="--chat-template", refused=True),
    Foreign("say it after the repository: org/repo:FILE", valued="--hf-file -hff", refused=True),
    Foreign("set HF_TOKEN in the environment", valued="--hf-token -hft", refused=True),
    Foreign(
        "download the file and give its path, or say org/repo[:quant]",
        valued="--model-url -mu --docker-repo -dr",
        switches="--fim-qwen-1.5b-default --fim-qwen-3b-default --fim-qwen-7b-default --fim-qwen-7b-spec "
        "--fim-qwen-14b-spec --fim-qwen-30b-default --gpt-oss-20b-default --gpt-oss-120b-default "
        "--vision-gemma-4b-default --vision-gemma-12b-default",
        refused=True,
    ),
    Foreign(
        "leftoff generates text only",
        switches="--embedding --embeddings --rerank --reranking --embd-gemma-default",
        refused=True,
    ),
    Foreign(
        "leftoff serves one model, under /v1: run one for each",
        valued="--api-prefix --models-dir --models-preset --models-max",
        switches="--models-autoload",
        refused=True,
    ),
)

# llama-server's --load-mode as the settings mmap and mlock; None leaves them as they are.
_LOAD_MODES: dict[str, tuple[bool | None, bool | None]] = {
    "auto": (None, None),
    "none": (False, False),
    "mmap": (True, False),
    "mlock": (False, True),
    "mmap+mlock": (True, True),
    "dio": (False, False),
}
_ANY_SEED = (-1, 2**32 - 1)  # llama-server's two ways to ask for another seed each time
_WORDS = ("on", "off", "auto", "true", "false", "enabled", "disabled")


def add_foreign(parser: CommandLine) -> None:
    """Adds llama-server's flags that have no effect here, hidden from the help."""
    parser.set_defaults(ignored=[])
    for foreign in FOREIGN:
        for option, takes in foreign.options:
            _add(parser, foreign, option, takes)
    hidden = argparse.SUPPRESS
    parser.add_argument("--api-key-file", dest="api_key", action="append", type=_keys_in, help=hidden)
    parser.add_argument("-lm", "--load-mode", action=_LoadMode, choices=_LOAD_MODES, help=hidden)
    parser.add_argument("--list-devices", action=_ListDevices, nargs=0, default=argparse.SUPPRESS, help=hidden)


def add_sampling(parser: CommandLine) -> None:
    """Adds a flag for each sampling parameter that has one."""
    group = parser.add_argument_group(
        "sampling", "Defaults for requests that do not say. llama-server's flags for its other samplers work too."
    )
    for parameter in PARAMETERS:
        if not parameter.flags:
            continue
        default = "another each time" if parameter.name == "seed" else "what the model recommends"
        group.add_argument(
            *parameter.flags,
            dest=_dest(parameter),
            type=_number_reader(parameter),
            metavar="N" if parameter.kind is int else "X",
            help=f"(default: {default})" if parameter.is_in_help else argparse.SUPPRESS,
        )


def sampling_of(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of `Sampling` that were given as flags."""
    values = {parameter.name: getattr(args, _dest(parameter), None) for parameter in PARAMETERS}
    given = {name: value for name, value in values.items() if value is not None}
    if given.get("seed") in _ANY_SEED:
        given["seed"] = None
    return given


def ignored_lines(ignored: Sequence[tuple[str, str]]) -> list[str]:
    """One line for each reason: `ignored: --samplers, --reasoning: clients send it with each request`."""
    by_reason: dict[str, dict[str, None]] = {}
    for option, reason in ignored:
        by_reason.setdefault(reason, {})[option] = None
    return [f"ignored: {', '.join(options)}: {reason}" for reason, options in by_reason.items()]


class _Note(argparse.Action):
    """Remembers that a flag was given, or refuses it."""

    foreign: Foreign

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:  # noqa: ANN401, ARG002
        if self.foreign.refused:
            parser.error(f"{option_string}: {self.foreign.reason}")
        namespace.ignored = [*namespace.ignored, (option_string, self.foreign.reason)]


class _LoadMode(argparse.Action):
    """Sets --mmap and --mlock."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:  # noqa: ANN401, ARG002
        namespace.mmap, namespace.mlock = _LOAD_MODES[values]


class _ListDevices(argparse.Action):
    """Prints the devices that --device can name, as llama-server does, and exits."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:  # noqa: ANN401, ARG002
        print("Available devices:")
        for device in device_memory(load_library()):
            if device.is_gpu:
                total, free = device.total_bytes // MIB, device.free_bytes // MIB
                print(f"  {device.name}: {device.description} ({total} MiB, {free} MiB free)")
        parser.exit()


def _add(parser: CommandLine, foreign: Foreign, option: str, takes: Takes) -> None:
    nargs = 0 if takes is Takes.NOTHING else None
    action = parser.add_argument(option, dest=option, action=_Note, nargs=nargs, help=argparse.SUPPRESS)
    assert isinstance(action, _Note)
    action.default = argparse.SUPPRESS
    action.foreign = foreign
    if takes is Takes.PERHAPS:
        parser.may_stand_alone([option], "on", _WORDS)


def _dest(parameter: Parameter) -> str:
    return f"sampling_{parameter.name}"


def _number_reader(parameter: Parameter) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = parameter.kind(text)
        except ValueError:
            kind = "whole number" if parameter.kind is int else "number"
            raise argparse.ArgumentTypeError(f"{text!r} is not a {kind}") from None
        try:
            parameter.check(value)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return value

    return read


def _keys_in(text: str) -> tuple[str, ...]:
    try:
        lines = Path(text).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(f"{text} cannot be read ({error})") from None
    keys = tuple(line for line in map(str.strip, lines) if line and not line.startswith("#"))
    if not keys:
        raise argparse.ArgumentTypeError(f"{text} holds no key: write one on each line")
    return keys
