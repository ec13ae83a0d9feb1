"""The coding agents that leftoff connects: what each of them must be told to use a server, defined once.

The page, `leftoff launch` and lab/clients use the same definitions. None touches the user's own settings: an agent is
told by its environment, by arguments, and by at most one file of settings besides its own.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from shlex import quote
from typing import Any

NO_KEY = "none"  # what clients send to a server that asks for none: some refuse to run without


@dataclass(frozen=True)
class Choice:
    """A model of a server."""

    name: str
    window: int  # tokens that a conversation may have; 0 if that is not known before it is loaded
    sees: bool = False  # it takes images: some agents send none unless they are told so

    @property
    def max_reply(self) -> int:
        """Tokens that agents leave free for a reply, where they ask for a number."""
        return self.window // 8


@dataclass(frozen=True)
class Connection:
    """A server and one of its models, as a client is told of them."""

    url: str  # without /v1
    model: str
    window: int
    key: str = NO_KEY
    sees: bool = False
    others: tuple[Choice, ...] = ()  # what else an agent may be switched to
    trained: int = 0  # tokens that the model was trained for; 0 if that is not known

    @property
    def chosen(self) -> Choice:
        return Choice(self.model, self.window, self.sees)


@dataclass(frozen=True)
class Told:
    """The environment, arguments and text of a settings file by which an agent finds a server."""

    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    file: str = ""


@dataclass(frozen=True)
class Agent:
    """One agent. `tell` gets the connection, and the path of the file if it takes one."""

    name: str  # of its command, too
    title: str
    install: str  # the command that does
    instructions: int  # about so many tokens of its own begin each conversation
    least_window: int  # tokens: in fewer, what it leaves free at the end leaves no room for work behind them
    tell: Callable[[Connection, str], Told]
    file: str = ""  # the name of its file of settings, if it takes one
    without: tuple[str, ...] = ()  # variables of the environment that would lead elsewhere

    def line(self, to: Connection) -> str:
        """The line to paste. One that takes a file is started by `leftoff launch`, which makes it."""
        if self.file:
            key = "" if to.key == NO_KEY else f" --api-key {quote(to.key)}"
            return f"leftoff launch {self.name} --url {to.url} --model {quote(to.model)}{key}"
        return self.shell(to)

    def shell(self, to: Connection) -> str:
        """The command in a shell, beside its file if it takes one."""
        told = self.tell(to, self.file)
        variables = [f"{name}={quote(value)}" for name, value in told.environment.items()]
        return " ".join([*variables, self.name, *map(quote, told.arguments)])


def _claude(to: Connection, _file: str) -> Told:
    return Told(
        {
            "ANTHROPIC_BASE_URL": to.url,
            "ANTHROPIC_AUTH_TOKEN": to.key,
            "ANTHROPIC_MODEL": to.model,
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": to.model,  # for titles and the like
            "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(to.window),
        }
    )


def _codex(to: Connection, _file: str) -> Told:
    key, wire = "LEFTOFF_API_KEY", 'wire_api="responses"'
    has_key = to.key != NO_KEY
    provider = f'name="leftoff",base_url={_json(f"{to.url}/v1")},{wire}' + f',env_key="{key}"' * has_key
    values = (
        f"model={_json(to.model)}",
        'model_provider="leftoff"',
        f"model_providers.leftoff={{{provider}}}",
        f"model_context_window={to.window}",
    )
    return Told({key: to.key} if has_key else {}, tuple(word for value in values for word in ("-c", value)))


def _opencode(to: Connection, _file: str) -> Told:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{to.url}/v1", "apiKey": to.key},
        "models": {choice.name: _opencode_model(choice) for choice in (to.chosen, *to.others)},
    }
    chosen = f"leftoff/{to.model}"
    settings = {"provider": {"leftoff": provider}, "model": chosen, "small_model": chosen}
    return Told({"OPENCODE_CONFIG_CONTENT": _json(settings)})


def _opencode_model(choice: Choice) -> dict[str, Any]:
    limit = {"limit": {"context": choice.window, "output": choice.max_reply}} if choice.window else {}
    return limit | ({"modalities": {"input": ["text", "image"], "output": ["text"]}} if choice.sees else {})


def _qwen(to: Connection, file: str) -> Told:
    environment = {
        "OPENAI_BASE_URL": f"{to.url}/v1",
        "OPENAI_API_KEY": to.key,
        "OPENAI_MODEL": to.model,
        "QWEN_CODE_SYSTEM_SETTINGS_PATH": file,
    }
    generation = {"contextWindowSize": to.window} | ({"modalities": {"image": True}} if to.sees else {})
    settings = {"model": {"name": to.model, "generationConfig": generation}}
    return Told(environment, ("--auth-type", "openai"), _json(settings, indent=2))


def _pi(to: Connection, file: str) -> Told:
    model = {
        "id": to.model,
        "name": to.model,
        "reasoning": False,
        "input": ["text", "image"] if to.sees else ["text"],
        "cost": dict.fromkeys(("input", "output", "cacheRead", "cacheWrite"), 0),
        "contextWindow": to.window,
        "maxTokens": to.chosen.max_reply,
    }
    provider = {"baseUrl": f"{to.url}/v1", "api": "openai-completions", "apiKey": to.key, "models": [model]}
    extension = f'export default (pi) => pi.registerProvider("leftoff", {_json(provider, indent=2)});\n'
    return Told({}, ("--extension", file, "--provider", "leftoff", "--model", to.model), extension)


def _crush(to: Connection, file: str) -> Told:
    model = {
        "id": to.model,
        "name": to.model,
        "context_window": to.window,
        "default_max_tokens": to.chosen.max_reply,
        "supports_attachments": to.sees,
    }
    provider = {"type": "openai-compat", "base_url": f"{to.url}/v1", "api_key": to.key, "models": [model]}
    chosen = {"provider": "leftoff", "model": to.model}
    settings = {"providers": {"leftoff": provider}, "models": {"large": chosen, "small": chosen}}
    return Told({"CRUSH_GLOBAL_DATA": file.rpartition("/")[0] or "."}, (), _json(settings, indent=2))


def _aider(to: Connection, file: str) -> Told:
    name = f"openai/{to.model}"
    model: dict[str, Any] = {"max_input_tokens": to.window, "litellm_provider": "openai", "mode": "chat"}
    model |= {"supports_vision": True} if to.sees else {}
    environment = {"OPENAI_API_BASE": f"{to.url}/v1", "OPENAI_API_KEY": to.key}
    return Told(environment, ("--model", name, "--model-metadata-file", file), _json({name: model}, indent=2))


def _json(value: Any, indent: int | None = None) -> str:  # noqa: ANN401
    return json.dumps(value, indent=indent, ensure_ascii=False)


CODING_AGENTS = {
    agent.name: agent
    for agent in (
        Agent(
            "claude",
            "Claude Code",
            "npm install -g @anthropic-ai/claude-code",
            18_000,
            65_536,
            _claude,
            without=("ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"),
        ),
        Agent("codex", "Codex", "npm install -g @openai/codex", 13_000, 32_768, _codex),
        Agent("opencode", "OpenCode", "npm install -g opencode-ai", 10_000, 32_768, _opencode),
        Agent("qwen", "Qwen Code", "npm install -g @qwen-code/qwen-code", 29_000, 81_920, _qwen, "settings.json"),
        Agent("pi", "pi", "npm install -g @earendil-works/pi-coding-agent", 2_000, 32_768, _pi, "leftoff.js"),
        Agent("crush", "Crush", "npm install -g @charmland/crush", 10_000, 32_768, _crush, "crush.json"),
        Agent("aider", "aider", "python -m pip install aider-chat", 1_000, 8_192, _aider, "models.json"),
    )
}


def agents_for(window: int) -> list[Agent]:
    """The agents that can work in a window of so many tokens."""
    return [agent for agent in CODING_AGENTS.values() if window >= agent.least_window]


def cramped_agents(window: int) -> str:
    """One line on the others; empty if there are none."""
    names = [agent.name for agent in CODING_AGENTS.values() if window < agent.least_window]
    return f"a window of {window:,} tokens is too small for {', '.join(names)}" if names else ""
