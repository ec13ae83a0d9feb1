"""OpenAI's Conversations: lists of items that responses go on from, and that their inputs and outputs are added to."""

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response as HttpResponse

from leftoff.config import MIB
from leftoff.server.http.body import convert
from leftoff.server.http.endpoint import Endpoint
from leftoff.server.http.errors import ApiError, bad_field
from leftoff.server.reply.response import json_response
from leftoff.server.request.fields import MAX_MESSAGES
from leftoff.server.responses.convert import Items
from leftoff.server.responses.store import TenantStore
from leftoff.server.responses.types import ConversationRequest, InputItem, ItemDict, ItemsRequest
from leftoff.server.tenant import namespace_of, tenant_of

_MAX_CONVERSATIONS = 1024
_MAX_BYTES = 128 * MIB
_ID_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "function_call_output": "fco"}
_LISTED, _MAX_LISTED = 20, 100


@dataclass(frozen=True)
class KeptConversation:
    """A list of items as they are on the wire, each with an id."""

    id: str
    created_at: int
    metadata: dict[str, Any]
    items: tuple[ItemDict, ...] = ()
    num_bytes: int = 0

    def with_items(self, new: Sequence[ItemDict]) -> "KeptConversation":
        num_bytes = self.num_bytes + len(msgspec.json.encode(new))
        return replace(self, items=(*self.items, *new), num_bytes=num_bytes)

    def without(self, item: ItemDict) -> "KeptConversation":
        left = tuple(each for each in self.items if each is not item)
        return replace(self, items=left, num_bytes=self.num_bytes - len(msgspec.json.encode([item])))

    @property
    def input(self) -> list[InputItem]:
        """The items as a request would bring them."""
        return [msgspec.convert(item, InputItem) for item in self.items]

    @property
    def card(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "conversation",
            "created_at": self.created_at,
            "metadata": self.metadata,
        }


class Conversations:
    """Create, retrieve, update and delete conversations and their items. For the event loop only."""

    def __init__(self, num_tenants: int) -> None:
        self._store: TenantStore[KeptConversation] = TenantStore(
            max_entries=_MAX_CONVERSATIONS, max_bytes=_MAX_BYTES, num_tenants=num_tenants
        )

    def endpoints(self) -> list[Endpoint]:
        one, items, item = (f"/v1/conversations{rest}" for rest in ("/{id}", "/{id}/items", "/{id}/items/{item}"))
        return [
            Endpoint("POST", "/v1/conversations", "Create a conversation", self.create, ConversationRequest),
            Endpoint("GET", one, "A conversation", self.retrieve),
            Endpoint("POST", one, "Change a conversation's metadata", self.update, ConversationRequest),
            Endpoint("DELETE", one, "Delete a conversation", self.delete),
            Endpoint("GET", items, "The items of a conversation (?limit=20&order=desc&after=ID)", self.list_items),
            Endpoint("POST", items, "Add items to a conversation", self.create_items, ItemsRequest),
            Endpoint("GET", item, "An item of a conversation", self.retrieve_item),
            Endpoint("DELETE", item, "Delete an item of a conversation", self.delete_item),
        ]

    # --- for responses

    def find(self, request: Request, wanted: Any) -> KeptConversation:  # noqa: ANN401
        """The conversation that a request names, by its id or as an object with one."""
        name = wanted.get("id") if isinstance(wanted, dict) else wanted
        if not isinstance(name, str):
            raise bad_field("conversation", "must be the id of a conversation, or an object with one")
        conversation = self._get(request, name, "conversation")
        if len(conversation.items) >= MAX_MESSAGES:
            raise bad_field("conversation", f"{name!r} has {len(conversation.items)} items: create another")
        return conversation

    def extend(self, request: Request, name: str, items: Iterable[ItemDict]) -> None:
        """Adds the input and the output of a response, unless the conversation was deleted meanwhile."""
        conversation = self._store.get(tenant_of(request).name, name)
        if conversation is not None:
            self._put(request, conversation.with_items([*map(_kept, items)]))

    # --- routes

    async def create(self, request: Request, body: ConversationRequest) -> HttpResponse:
        new = KeptConversation(f"conv_{uuid.uuid4().hex}", int(time.time()), {})
        return self._changed(request, _with_metadata(new, body.metadata or {}).with_items(_checked(body.items or [])))

    async def retrieve(self, request: Request) -> HttpResponse:
        return json_response(self._named(request).card)

    async def update(self, request: Request, body: ConversationRequest) -> HttpResponse:
        return self._changed(request, _with_metadata(self._named(request), body.metadata or {}))

    async def delete(self, request: Request) -> HttpResponse:
        conversation = self._named(request)
        self._store.delete(tenant_of(request).name, conversation.id)
        return json_response({"id": conversation.id, "object": "conversation.deleted", "deleted": True})

    async def list_items(self, request: Request) -> HttpResponse:
        query = request.query_params
        items = [*self._named(request).items]
        if query.get("order", "desc") == "desc":
            items.reverse()
        if after := query.get("after"):
            ids = [item["id"] for item in items]
            if after not in ids:
                raise bad_field("after", f"{after!r} is not the id of an item here")
            items = items[ids.index(after) + 1 :]
        limit = convert(query.get("limit", str(_LISTED)), int, "limit", strict=False)
        if not 1 <= limit <= _MAX_LISTED:
            raise bad_field("limit", f"is {limit}: must be between 1 and {_MAX_LISTED}")
        return json_response(_listed(items[:limit], has_more=len(items) > limit))

    async def create_items(self, request: Request, body: ItemsRequest) -> HttpResponse:
        items = _checked(body.items)
        self._put(request, self._named(request).with_items(items))
        return json_response(_listed(items))

    async def retrieve_item(self, request: Request) -> HttpResponse:
        return json_response(self._item(request, self._named(request)))

    async def delete_item(self, request: Request) -> HttpResponse:
        conversation = self._named(request)
        return self._changed(request, conversation.without(self._item(request, conversation)))

    def forget(self, is_meant: Callable[[str], bool]) -> None:
        self._store.forget(is_meant)

    def _changed(self, request: Request, conversation: KeptConversation) -> HttpResponse:
        self._put(request, conversation)
        return json_response(conversation.card)

    def _put(self, request: Request, conversation: KeptConversation) -> None:
        self._store.put(namespace_of(request, None), conversation.id, conversation)

    def _named(self, request: Request) -> KeptConversation:
        return self._get(request, request.path_params["id"], "conversation_id")

    def _get(self, request: Request, name: str, param: str) -> KeptConversation:
        conversation = self._store.get(tenant_of(request).name, name)
        if conversation is None:
            problem = f"there is no conversation {name!r} here: it was deleted, or is forgotten. Create another"
            raise ApiError(404, problem, param=param, code="conversation_not_found")
        return conversation

    def _item(self, request: Request, conversation: KeptConversation) -> ItemDict:
        name = request.path_params["item"]
        for item in conversation.items:
            if item["id"] == name:
                return item
        raise ApiError(404, f"there is no item {name!r} in conversation {conversation.id!r}", param="item_id")


def _with_metadata(conversation: KeptConversation, metadata: dict[str, Any]) -> KeptConversation:
    sizes = [len(msgspec.json.encode(each)) for each in (metadata, conversation.metadata)]
    return replace(conversation, metadata=metadata, num_bytes=conversation.num_bytes + sizes[0] - sizes[1])


def _checked(items: list[ItemDict]) -> list[ItemDict]:
    """Items as they are kept; refuses those that no prompt could be made of."""
    Items(convert(items, list[InputItem], "items"), "items")
    return [*map(_kept, items)]


def _kept(item: ItemDict) -> ItemDict:
    """An item in its full form: with an id, and the text of a message in parts."""
    kind = item.get("type") or "message"
    prefix = _ID_PREFIXES.get(kind, "item")
    kept = {"id": f"{prefix}_{uuid.uuid4().hex}", "type": kind, "status": "completed"}
    kept |= {key: value for key, value in item.items() if value is not None}
    if kind == "message" and isinstance(item.get("content"), str):
        part = "output_text" if item.get("role") == "assistant" else "input_text"
        kept["content"] = [{"type": part, "text": item["content"]}]
    return kept


def _listed(items: Sequence[ItemDict], *, has_more: bool = False) -> dict[str, Any]:
    first, last = (items[0]["id"], items[-1]["id"]) if items else (None, None)
    return {"object": "list", "data": items, "first_id": first, "last_id": last, "has_more": has_more}
