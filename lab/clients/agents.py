"""The agents of the catalog: programs with settings of their own, a way to go on, and tools by MCP or an extension."""

from lab.clients.client import Client

_MCP = "{scripts}/../notes_mcp.py"
_CLAUDE = (
    *("{bin}/claude", "--mcp-config", "{home}/mcp.json", "--strict-mcp-config"),
    *("--allowedTools", "mcp__notes__read_note,mcp__notes__take_screenshot", "--print"),
)
CLAUDE_CODE = Client(
    name="claude-code",
    title="Claude Code",
    registry="npm",
    packages=("@anthropic-ai/claude-code@2.1.325",),
    connect="```sh\nANTHROPIC_BASE_URL={url} ANTHROPIC_AUTH_TOKEN=none ANTHROPIC_MODEL=local claude\n```",
    begin=_CLAUDE,
    go_on=(*_CLAUDE, "--continue"),
    environment={
        "ANTHROPIC_BASE_URL": "{url}",
        "ANTHROPIC_AUTH_TOKEN": "none",
        "ANTHROPIC_MODEL": "local",
        "ENABLE_TOOL_SEARCH": "false",  # tools of MCP servers are offered at once
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        # A slow machine takes long to read the first prompt.
        "API_TIMEOUT_MS": "1800000",
        "CLAUDE_STREAM_IDLE_TIMEOUT_MS": "1800000",
        "CLAUDE_STREAM_FIRST_BYTE_TIMEOUT_MS": "1800000",
    },
    files={"mcp.json": f'{{"mcpServers": {{"notes": {{"command": "{{python}}", "args": ["{_MCP}"]}}}}}}'},
    sees_pictures=True,
)

_CODEX_TOML = """model = "local"
model_provider = "leftoff"

[model_providers.leftoff]
name = "leftoff"
base_url = "{url}/v1"
wire_api = "responses"
"""
_CODEX = ("{bin}/codex", "exec", "--skip-git-repo-check")
CODEX = Client(
    name="codex",
    title="Codex",
    registry="npm",
    packages=("@openai/codex@0.166.0",),
    connect=f"`~/.codex/config.toml`:\n\n```toml\n{_CODEX_TOML}```",
    begin=_CODEX,
    go_on=(*_CODEX, "resume", "--last"),
    files={
        ".codex/config.toml": f"""{_CODEX_TOML}
[mcp_servers.notes]
command = "{{python}}"
args = ["{_MCP}"]
default_tools_approval_mode = "approve"
"""
    },
    sees_pictures=True,
)

_OPENCODE_JSON = """{
  "provider": {
    "leftoff": {
      "npm": "@ai-sdk/openai-compatible",
      "options": {"baseURL": "{url}/v1", "apiKey": "none"},
      "models": {"local": {}}
    }
  },
  "model": "leftoff/local"
}
"""
OPENCODE = Client(
    name="opencode",
    title="OpenCode",
    registry="npm",
    packages=("opencode-ai@1.18.18",),
    connect=f"`opencode.json`:\n\n```json\n{_OPENCODE_JSON}```",
    begin=("{bin}/opencode", "run"),
    go_on=("{bin}/opencode", "run", "--continue"),
    environment={"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
    files={
        ".config/opencode/opencode.json": _OPENCODE_JSON.replace(
            '  "model":', f'  "mcp": {{"notes": {{"type": "local", "command": ["{{python}}", "{_MCP}"]}}}},\n  "model":'
        )
    },
)

_PI_JSON = """{
  "providers": {
    "leftoff": {
      "baseUrl": "{url}/v1",
      "api": "openai-completions",
      "apiKey": "none",
      "models": [{"id": "local"}]
    }
  }
}
"""
_PI = ("{bin}/pi", "--provider", "leftoff", "--model", "local", "--extension", "{scripts}/pi_notes.ts", "--print")
PI = Client(
    name="pi",
    title="pi",
    registry="npm",
    packages=("@mariozechner/pi-coding-agent@0.73.1",),
    connect=f"`~/.pi/agent/models.json`, and then `pi --provider leftoff --model local`:\n\n```json\n{_PI_JSON}```",
    begin=_PI,
    go_on=(*_PI, "--continue"),
    files={".pi/agent/models.json": _PI_JSON},
)
AGENTS = (CLAUDE_CODE, CODEX, OPENCODE, PI)
