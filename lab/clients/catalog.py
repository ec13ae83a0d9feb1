"""The clients that are played. To add one: an entry here, and for a library a script in `scripts/`.

A script takes the server's address and questions, and asks them in one conversation that offers the tool `read_note`.
Its lines between `connect` and `end` are shown to people as the way to connect.
"""

from lab.clients.agents import AGENTS
from lab.clients.client import Client

_VERCEL = ("ai@7.0.169", "@ai-sdk/openai@4.0.114", "@ai-sdk/openai-compatible@3.0.90", "@ai-sdk/anthropic@4.0.102")
_LANGCHAIN = ("langchain==1.4.7", "langchain-openai==1.7.3", "langchain-anthropic==1.7.7")
_TORCH = "torch==2.9.1"  # its wheel for ARM is without CUDA
_LM_EVAL = """```sh
lm_eval --model local-completions --model_args model=local,base_url={url}/v1/completions --tasks TASK
```

A task of multiple choice (`lab/clients/scripts/lm_eval_task/`) is played; its loglikelihoods are those that
`leftoff.Session` computes from the same tokens, or `make clients` fails.
"""
_GUIDELLM = """```sh
guidellm run --backend kind=openai_http,target={url} --profile kind=synchronous --data kind=json_file,path=FILE
```

A benchmark of one conversation is played. The file has its turns, as `prompt_0`, `prompt_1` and so on; `tools_0` and
`tool_response_0` make the first a call. By itself, guidellm offers tools only in turns that must call one, which
changes the header of the prompt; `"extras": {"body": {"tools": [...]}}` in the backend's options puts them into every
request, and is set here.
"""


_OPEN_WEBUI = """```sh
OPENAI_API_BASE_URL={url}/v1 OPENAI_API_KEY=none open-webui serve
```

A chat is played as the page in the browser asks for it, with one tool beside those of Open WebUI's own, which are the
most of the prompt. Titles, tags and further questions are asked for besides, and are not in the table.

In a browser, it was also tried with two models (the list has both, and titles come from the one that is chosen), with
an image (the next turn reuses it) and with a text file, whose vectors an [encoder](embeddings.md) of leftoff makes:

```sh
export RAG_EMBEDDING_ENGINE=openai RAG_EMBEDDING_MODEL=embed
export RAG_OPENAI_API_BASE_URL={url}/v1 RAG_OPENAI_API_KEY=none
```

Open WebUI puts what it finds in a file into the newest message only, so that the next turn reads from the one before
on: 2,329 of 10,848 tokens.
"""


def _vercel(provider: str, title: str, num_turns: int = 3) -> Client:
    return Client(
        name="vercel-ai" if provider == "openai-compatible" else f"vercel-ai-{provider}",
        title=f"Vercel AI SDK, {title}",
        registry="npm",
        packages=(*_VERCEL, "zod@4.6.7"),
        folder="vercel-ai",
        script="vercel.cjs",
        part=provider,
        begin=("{node}", "{scripts}/vercel.cjs", provider, "{url}"),
        environment={"NODE_PATH": "{bin}/.."},
        num_turns=num_turns,
    )


def _langchain(kind: str, title: str) -> Client:
    return Client(
        name=f"langchain-{kind}",
        title=f"LangChain, {title}",
        registry="pypi",
        packages=_LANGCHAIN,
        folder="langchain",
        script="langchain_agent.py",
        part=kind,
        begin=("{python}", "{scripts}/langchain_agent.py", kind, "{url}"),
    )


def _python(name: str, title: str, script: str, *packages: str, retells: bool = False) -> Client:
    return Client(
        name=name,
        title=title,
        registry="pypi",
        packages=packages,
        script=script,
        begin=("{python}", f"{{scripts}}/{script}", "{url}"),
        retells=retells,
    )


CATALOG: tuple[Client, ...] = (
    *AGENTS,
    _vercel("openai-compatible", "`@ai-sdk/openai-compatible`"),
    _vercel("openai", "`@ai-sdk/openai` (Responses)", num_turns=10),
    _vercel("anthropic", "`@ai-sdk/anthropic`"),
    _langchain("openai", "`ChatOpenAI`"),
    _langchain("anthropic", "`ChatAnthropic`"),
    _python("litellm", "LiteLLM", "litellm_chat.py", "litellm==1.106.2", "mcp==2.3.0"),
    _python("pydantic-ai", "Pydantic AI", "pydantic_ai_agent.py", "pydantic-ai-slim[openai]==2.66.0"),
    _python("openai-agents", "OpenAI Agents SDK", "openai_agents.py", "openai-agents==0.24.0"),
    _python("smolagents", "smolagents", "smolagents_agent.py", "smolagents[openai]==1.26.0", retells=True),
    Client(
        name="lm-eval",
        title="lm_eval",
        registry="pypi",
        packages=("lm-eval[api]==0.4.13",),
        connect=_LM_EVAL,
        begin=("{own_python}", "-m", "lab.clients.loglikelihoods", "{python}", "{url}", "{home}"),
        environment={"PYTHONPATH": "{scripts}/../../.."},
        is_chat=False,
    ),
    Client(
        name="guidellm",
        title="guidellm",
        registry="pypi",
        packages=("guidellm==0.8.1", _TORCH),
        connect=_GUIDELLM,
        begin=("{python}", "{scripts}/guidellm_benchmark.py", "{url}"),
    ),
    Client(
        name="open-webui",
        title="Open WebUI",
        registry="pypi",
        packages=("open-webui==0.12.4", _TORCH),
        connect=_OPEN_WEBUI,
        begin=("{python}", "{scripts}/open_webui_chat.py", "{url}"),
    ),
)
