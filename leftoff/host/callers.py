"""Who sends requests: each client by its name, with its latest conversations and what the cache spared them."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from threading import Lock
from typing import Any

from leftoff.lru import LruCache
from leftoff.types import owner_of

_MAX_CLIENTS = 256  # of all tenants: a client names itself
_MAX_CONVERSATIONS = 4096
_TIMES = ((86_400, "days"), (3600, "hours"), (60, "minutes"))


@dataclass(frozen=True)
class Caller:
    """The sender of a request: the name of its client, the route, and the conversation by hash and first words."""

    client: str = ""
    route: str = ""
    conversation: str = ""  # the same for all turns; without one, the prompt was no chat
    title: str = ""
    trace: str = ""  # the span that it belongs to, as a `traceparent`

    def __str__(self) -> str:
        """As the log names the caller: without words of conversations."""
        conversation = f"conversation {self.conversation}" if self.conversation else ""
        return " · ".join(filter(None, (self.client, self.route, conversation)))


NOBODY = Caller()
PREWARM = Caller("prewarm")  # no client: what is there already when a header is prewarmed is spared to nobody


@dataclass(frozen=True)
class Sums:
    """Sums over some requests, of which the last ended `at`."""

    at: float = 0.0
    requests: int = 0
    prompt_tokens: int = 0
    reused: int = 0
    saved_ms: float = 0.0
    origins: dict[str, int] = field(default_factory=dict)  # tokens by where they were reused from, or by reason

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(
            max(self.at, other.at),
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.reused + other.reused,
            round(self.saved_ms + other.saved_ms, 3),
            dict(Counter(self.origins) + Counter(other.origins)),
        )

    def __str__(self) -> str:
        """What was spared: `1.2 M tokens, 41 minutes`."""
        tokens = f"{self.reused:,}" if self.reused < 1e6 else f"{self.reused / 1e6:.1f} M"
        return f"{tokens} tokens, {show_time(self.saved_ms / 1000)}"


@dataclass(frozen=True)
class _Conversation:
    """A conversation of a client, and the model that was asked last."""

    caller: Caller
    namespace: str
    model: str
    sums: Sums = field(default_factory=Sums)


@dataclass(frozen=True)
class _Client:
    """The sums of all its conversations since the start, also of those that are forgotten."""

    num_conversations: int = 0
    sums: Sums = field(default_factory=Sums)


class Callers:
    """The clients since the start, and the conversations used last. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._clients: LruCache[tuple[str, str], _Client] = LruCache(max_entries=_MAX_CLIENTS)  # by tenant and name
        self._conversations: LruCache[tuple[str, str, str], _Conversation] = LruCache(max_entries=_MAX_CONVERSATIONS)

    def add(self, caller: Caller, namespace: str, model: str, sums: Sums) -> None:
        key = namespace, caller.client, caller.conversation
        with self._lock:
            known = self._conversations.get(key)
            before = known or _Conversation(caller, namespace, model)
            self._conversations.put(key, replace(before, model=model, sums=before.sums + sums))
            client = self._clients.get((owner_of(namespace), caller.client)) or _Client()
            client = _Client(client.num_conversations + (known is None), client.sums + sums)
            self._clients.put((owner_of(namespace), caller.client), client)

    def forget(self, is_meant: Callable[[str], bool], model: str | None = None) -> None:
        """Drops the conversations of the namespaces that are meant: their titles quote prompts. Sums stay."""
        self._conversations.remove_if(lambda each: is_meant(each.namespace) and model in (None, each.model))

    def shown(self, tenant: str, limit: int) -> list[dict[str, Any]]:
        """The clients of a tenant, each with so many of its conversations; what was used last comes first."""
        latest: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for (namespace, client, _), each in reversed(self._conversations.items()):
            if owner_of(namespace) == tenant and len(latest[client]) < limit:
                latest[client].append(_view(each))
        return [
            {"client": name, "conversations": client.num_conversations, **asdict(client.sums), "latest": latest[name]}
            for (owner, name), client in reversed(self._clients.items())
            if owner == tenant
        ]


def _view(each: _Conversation) -> dict[str, Any]:
    caller = each.caller
    return {"conversation": caller.conversation, "title": caller.title, "model": each.model, **asdict(each.sums)}


def show_time(seconds: float) -> str:
    """`41 s`, `41 minutes`, `5.2 hours`."""
    for size, name in _TIMES:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}" if seconds >= 10 * size else f"{seconds / size:.1f} {name}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
