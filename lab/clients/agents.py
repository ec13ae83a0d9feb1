"""The agents of the catalog: programs with settings of their own, a way to go on, and tools by MCP or an extension.

Those that `leftoff launch` knows are started by it, and the page shows what it tells them.
"""

from lab.clients.client import Client
from leftoff.agents import CODING_AGENTS, Connection

_MCP = "{scripts}/../notes_mcp.py"
_SHOWN = Connection("http://127.0.0.1:8080", "local", 131072)


def _launched(name: str, *arguments: str) -> tuple[str, ...]:
    """The command line that launches an agent with these arguments."""
    return ("{own_python}", "-m", "leftoff", "launch", name, "--url", "{url}", "--", *arguments)


def _connect(name: str) -> str:
    """How it is connected, as Markdown: by launch, or by hand."""
    agent = CODING_AGENTS[name]
    text = agent.tell(_SHOWN, agent.file).file.rstrip()
    language = "js" if agent.file.endswith("js") else "json"
    file = f"`{agent.file}`:\n\n```{language}\n{text}\n```\n\n" if agent.file else ""
    launch = f"`leftoff launch {name}`, or without it" + (", with a file of settings besides its own" * bool(file))
    return f"{launch}:\n\n{file}```sh\n{agent.shell(_SHOWN)}\n```"


_CLAUDE = (
    *("--mcp-config", "{home}/mcp.json", "--strict-mcp-config"),
    *("--allowedTools", "mcp__notes__read_note,mcp__notes__take_screenshot", "--print"),
)
CLAUDE_CODE = Client(
    name="claude-code",
    title="Claude Code",
    registry="npm",
    packages=("@anthropic-ai/claude-code@2.1.326",),
    connect=_connect("claude"),
    begin=_launched("claude", *_CLAUDE),
    go_on=_launched("claude", *_CLAUDE, "--continue"),
    files={"mcp.json": f'{{"mcpServers": {{"notes": {{"command": "{{python}}", "args": ["{_MCP}"]}}}}}}'},
    sees_pictures=True,
    rules="CLAUDE.md",
    compacts="/compact",
)
CODEX = Client(
    name="codex",
    title="Codex",
    registry="npm",
    packages=("@openai/codex@0.169.0",),
    connect=_connect("codex"),
    begin=_launched("codex", "exec", "--skip-git-repo-check"),
    go_on=_launched("codex", "exec", "--skip-git-repo-check", "resume", "--last"),
    files={
        ".codex/config.toml": f"""[mcp_servers.notes]
command = "{{python}}"
args = ["{_MCP}"]
default_tools_approval_mode = "approve"
"""
    },
    sees_pictures=True,
)
OPENCODE = Client(
    name="opencode",
    title="OpenCode",
    registry="npm",
    packages=("opencode-ai@1.18.33",),
    connect=_connect("opencode"),
    begin=_launched("opencode", "run"),
    go_on=_launched("opencode", "run", "--continue"),
    environment={"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
    files={
        ".config/opencode/opencode.json": f'{{"mcp": {{"notes": '
        f'{{"type": "local", "command": ["{{python}}", "{_MCP}"]}}}}}}'
    },
)
_PI = ("--extension", "{scripts}/pi_notes.ts", "--print")
PI = Client(
    name="pi",
    title="pi",
    registry="npm",
    packages=("@earendil-works/pi-coding-agent@0.87.1",),
    connect=_connect("pi"),
    begin=_launched("pi", *_PI),
    go_on=_launched("pi", *_PI, "--continue"),
)
QWEN_CODE = Client(
    name="qwen-code",
    title="Qwen Code",
    registry="npm",
    packages=("@qwen-code/qwen-code@0.24.4",),
    connect=_connect("qwen"),
    begin=_launched("qwen", "--prompt"),
    go_on=_launched("qwen", "--continue", "--prompt"),
    files={
        ".qwen/settings.json": f'{{"mcpServers": '
        f'{{"notes": {{"command": "{{python}}", "args": ["{_MCP}"], "trust": true}}}}}}'
    },
    rules="QWEN.md",
    compacts="/compress",
    offers="tool_search",
)

_CLINE_JSON = """{
  "version": 1,
  "lastUsedProvider": "openai-compatible",
  "providers": {
    "openai-compatible": {
      "settings": {
        "provider": "openai-compatible",
        "baseUrl": "{url}/v1",
        "apiKey": "none",
        "model": "local",
        "contextWindow": 131072
      },
      "updatedAt": "2026-01-01T00:00:00Z"
    }
  }
}
"""
CLINE = Client(
    name="cline",
    title="Cline",
    registry="npm",
    packages=("cline@3.0.65",),
    connect=f"`~/.cline/data/settings/providers.json`:\n\n```json\n{_CLINE_JSON}```",
    begin=("{bin}/cline",),
    num_turns=1,  # it goes on in a terminal only
    files={
        ".cline/data/settings/providers.json": _CLINE_JSON,
        ".cline/data/settings/cline_mcp_settings.json": '{"mcpServers": {"notes": '
        f'{{"command": "{{python}}", "args": ["{_MCP}"]}}}}}}',
    },
)

_CONTINUE_YAML = """name: Local
version: 1.0.0
schema: v1
models:
  - name: local
    provider: openai
    model: local
    apiBase: {url}/v1
    apiKey: none
    roles: [chat]
    defaultCompletionOptions:
      contextLength: 131072
"""
_CONTINUE = ("{bin}/cn", "--auto")
CONTINUE = Client(
    name="continue",
    title="Continue",
    registry="npm",
    packages=("@continuedev/cli@1.5.47",),
    connect=f"`~/.continue/config.yaml`, and then `cn`:\n\n```yaml\n{_CONTINUE_YAML}```",
    begin=(*_CONTINUE, "--print"),
    go_on=(*_CONTINUE, "--resume", "--print"),
    files={
        ".continue/config.yaml": f"""{_CONTINUE_YAML}mcpServers:
  - name: notes
    command: "{{python}}"
    args: ["{_MCP}"]
"""
    },
)

AIDER = Client(
    name="aider",
    title="aider",
    registry="pypi",
    packages=("aider-chat==0.86.2",),
    connect=_connect("aider"),
    begin=_launched("aider", "--yes-always", "--message"),
    go_on=_launched("aider", "--yes-always", "--restore-chat-history", "--message"),
    calls_notes=False,
    reorders=True,
    share=0.3,
)
AGENTS = (CLAUDE_CODE, CODEX, OPENCODE, PI, QWEN_CODE, CLINE, CONTINUE, AIDER)
