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
    packages=("@anthropic-ai/claude-code@2.1.326",),
    connect="```sh\nANTHROPIC_BASE_URL={url} ANTHROPIC_AUTH_TOKEN=none ANTHROPIC_MODEL=local "
    "CLAUDE_CODE_MAX_CONTEXT_TOKENS=131072 claude\n```",
    begin=_CLAUDE,
    go_on=(*_CLAUDE, "--continue"),
    environment={
        "ANTHROPIC_BASE_URL": "{url}",
        "ANTHROPIC_AUTH_TOKEN": "none",
        "ANTHROPIC_MODEL": "local",
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "131072",
    },
    files={"mcp.json": f'{{"mcpServers": {{"notes": {{"command": "{{python}}", "args": ["{_MCP}"]}}}}}}'},
    sees_pictures=True,
    rules="CLAUDE.md",
    compacts="/compact",
)

_CODEX_TOML = """model = "local"
model_provider = "leftoff"
model_context_window = 131072

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
    packages=("@openai/codex@0.169.0",),
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
      "models": {"local": {"limit": {"context": 131072, "output": 8192}}}
    }
  },
  "model": "leftoff/local"
}
"""
OPENCODE = Client(
    name="opencode",
    title="OpenCode",
    registry="npm",
    packages=("opencode-ai@1.18.33",),
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
      "models": [{"id": "local", "contextWindow": 131072}]
    }
  }
}
"""
_PI = ("{bin}/pi", "--provider", "leftoff", "--model", "local", "--extension", "{scripts}/pi_notes.ts", "--print")
PI = Client(
    name="pi",
    title="pi",
    registry="npm",
    packages=("@earendil-works/pi-coding-agent@0.87.1",),
    connect=f"`~/.pi/agent/models.json`, and then `pi --provider leftoff --model local`:\n\n```json\n{_PI_JSON}```",
    begin=_PI,
    go_on=(*_PI, "--continue"),
    files={".pi/agent/models.json": _PI_JSON},
)

_QWEN_JSON = """{
  "model": {"generationConfig": {"contextWindowSize": 131072}}
}
"""
QWEN_CODE = Client(
    name="qwen-code",
    title="Qwen Code",
    registry="npm",
    packages=("@qwen-code/qwen-code@0.24.4",),
    connect="```sh\nOPENAI_BASE_URL={url}/v1 OPENAI_API_KEY=none OPENAI_MODEL=local qwen\n```\n\n"
    f"`~/.qwen/settings.json`:\n\n```json\n{_QWEN_JSON}```",
    begin=("{bin}/qwen", "--prompt"),
    go_on=("{bin}/qwen", "--continue", "--prompt"),
    environment={"OPENAI_BASE_URL": "{url}/v1", "OPENAI_API_KEY": "none", "OPENAI_MODEL": "local"},
    files={
        ".qwen/settings.json": _QWEN_JSON.replace(
            "\n}\n",
            f',\n  "mcpServers": {{"notes": {{"command": "{{python}}", "args": ["{_MCP}"], "trust": true}}}}\n}}\n',
        )
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

_AIDER_JSON = """{
  "openai/local": {"max_input_tokens": 131072, "litellm_provider": "openai", "mode": "chat"}
}
"""
_AIDER = ("{bin}/aider", "--model", "openai/local", "--yes-always")
AIDER = Client(
    name="aider",
    title="aider",
    registry="pypi",
    packages=("aider-chat==0.86.2",),
    connect="```sh\nOPENAI_API_BASE={url}/v1 OPENAI_API_KEY=none aider --model openai/local\n```\n\n"
    f"`~/.aider.model.metadata.json`:\n\n```json\n{_AIDER_JSON}```",
    begin=(*_AIDER, "--message"),
    go_on=(*_AIDER, "--restore-chat-history", "--message"),
    environment={"OPENAI_API_BASE": "{url}/v1", "OPENAI_API_KEY": "none"},
    files={".aider.model.metadata.json": _AIDER_JSON},
    calls_notes=False,
    reorders=True,
    share=0.3,
)
AGENTS = (CLAUDE_CODE, CODEX, OPENCODE, PI, QWEN_CODE, CLINE, CONTINUE, AIDER)
