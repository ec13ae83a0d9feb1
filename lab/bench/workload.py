"""The workloads by name: a script, and the server it is made for."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from lab.bench import crowds, scripts
from lab.bench.ask import Script
from lab.bench.texts import Texts


@dataclass(frozen=True)
class Setup:
    """How a server runs that is started for a workload; every side gets the same."""

    slots: int = 4
    ctx: int = 32768
    ram: int = 1024  # MiB
    disk: int = 0  # MiB, where a side has a disk tier
    cuts: bool = False  # a prompt that outgrows the window is cut, where a side can do that


_USUAL = Setup()


@dataclass(frozen=True)
class Workload:
    name: str
    title: str
    script: Callable[[Texts], Script]
    setup: Setup = _USUAL

    def scaled(self, scale: float) -> "Workload":
        """A window that is to be outgrown shrinks with the texts."""
        ctx = int(scale * self.setup.ctx) if self.setup.cuts else self.setup.ctx
        return replace(self, setup=replace(self.setup, ctx=ctx))

    @property
    def needs_own_server(self) -> bool:
        """Whether it restarts the server, or depends on its memory or its window."""
        return replace(self.setup, slots=_USUAL.slots) != _USUAL


_ALL = (
    Workload("agent-loop", "12-turn agent loop", scripts.agent_loop),
    Workload("shortened", "replies shortened, reasoning dropped", scripts.shortened),
    Workload("agents", "4 agents on 2 slots", crowds.agents, Setup(slots=2)),
    Workload("edit", "edit and come back", scripts.edit_and_return),
    Workload("regenerate", "regenerate", scripts.regenerate),
    Workload("titles", "title requests in between", scripts.titles),
    Workload("tools", "tool loop, then a new question", scripts.tool_loop),
    Workload("volatile", "volatile header", scripts.volatile_header),
    Workload("document", "long document, long questions", scripts.document),
    Workload("subagents", "6 sub-agents at once on 4 slots", crowds.subagents),
    Workload("restart", "restart in the middle", scripts.restart, Setup(disk=1024)),
    Workload("window", "a chat outgrows the window", scripts.outgrown, Setup(slots=1, ctx=2048, cuts=True)),
    Workload("ram", "16 chats in little RAM", crowds.many_chats, Setup(ram=64)),
    Workload("resumed", "a long prompt resumed", scripts.resumed, Setup(slots=1)),
)
WORKLOADS = {workload.name: workload for workload in _ALL}
# One prompt is longer than the small model was trained for, which llama-server refuses: that one meets a cold start.
COLD = ("agent-loop", "resumed")
USUAL = tuple(name for name in WORKLOADS if name != "resumed")
