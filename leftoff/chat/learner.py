"""Learns which lines of a client's header change from one conversation to the next, to move them as rules do.

A conversation's first request shows the header as its client makes it: two of them are compared if they are of one
namespace and have the same tools. What differs is a `LearnedMove`, used from then on, also after a restart. Values that
change while a conversation goes on are no snapshot of its beginning, and values that take turns belong to headers that
do not change: such stretches are refused, and not learned again.

It reads system and developer messages at the beginning only, after the rules: no words of a user, a reply or a tool.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from blake3 import blake3

from leftoff.chat.conversation import Conversation, Note
from leftoff.chat.header_rules import Applied, header_texts, with_header_texts
from leftoff.chat.learned_move import LearnedMove, Parted, Stretch, Texts, find_move, hash_of
from leftoff.chat.template.render import MessageDict, ToolDict
from leftoff.chat.work import checkpoint
from leftoff.disk.headers import HeaderFiles
from leftoff.lru import LruCache
from leftoff.types import header_size, owner_of
from leftoff.units import counted

logger = logging.getLogger("leftoff.requests")

VOLATILE = "volatile header"
_LEARNED = f"{VOLATILE}: --move learn has learned the lines that change; they are moved from now on"
_PROPOSED = f"{VOLATILE}: --move learn would put the lines that change behind the header"
_MAX_CHARACTERS, _MAX_LINES = 1 << 18, 1 << 13  # of a header
_MAX_MOVES = 64  # of a tenant
_MAX_SAMPLES = 4  # of a client's header
_SAMPLE_BYTES = 16 << 20
_CONVERSATIONS = 4096
_MAX_VALUES = 64  # of conversations that begin with the same words
_MAX_CHANGES = 2  # while a conversation goes on: the first may be midnight
_STABLE_S = 14 * 86_400  # lines that do not change for so long were edited, once


class _Header(NamedTuple):
    """The texts of the system messages that a conversation begins with."""

    namespace: str
    texts: Texts
    opening: bytes  # a hash of the messages up to the first reply, by which the conversation is known again
    is_new: bool  # nothing was replied yet


class _Samples(NamedTuple):
    namespace: str
    headers: tuple[Texts, ...]  # the latest first


class _Match(NamedTuple):
    move: LearnedMove
    parted: Parted


@dataclass
class _Conversation:
    """The move that conversations with these first words began with, if any, and hashes of the values they had."""

    move: str
    values: set[str]
    num_changes: int = 0


class Learner:
    """Knows the moves of all tenants. Thread-safe. If it is off, it only says where it would help."""

    def __init__(self, files: HeaderFiles | None = None, *, is_on: bool = True) -> None:
        self._files = files if is_on else None
        self._is_on = is_on
        self._lock = threading.Lock()
        self._moves: dict[str, list[LearnedMove]] = {}  # by tenant, the last that had news first
        self._samples: LruCache[bytes, _Samples] = LruCache(
            max_bytes=_SAMPLE_BYTES,
            size_of=lambda _, samples: 2 * sum(len(text) for texts in samples.headers for text in texts),
        )
        self._conversations: LruCache[bytes, _Conversation] = LruCache(max_entries=_CONVERSATIONS)
        for content in self._files.last() if self._files is not None else ():
            with suppress(msgspec.MsgspecError, UnicodeDecodeError):
                move = msgspec.json.decode(content, type=LearnedMove)
                self._of(move.namespace).append(move)

    def apply(self, ruled: Applied, conversation: Conversation) -> Applied:
        """Moves what was learned, after the rules. Learns from the first request of a conversation."""
        header = _header(ruled.messages, conversation.namespace)
        has_place = any(message.get("role") == "user" for message in ruled.messages)
        if header is None or not has_place or not (self._is_on or header.is_new):
            return ruled
        notes: list[Note] = []
        with self._lock:
            match = self._begin(header, conversation.tools, notes) if header.is_new else self._go_on(header)
        texts = [value for value in match.parted.values if value.strip()] if match is not None else []
        if match is None or not texts:
            return ruled._replace(notes=(*ruled.notes, *notes))
        notes.append(Note("moved", f"moved {counted(len(texts), 'learned text')}"))
        messages = with_header_texts(ruled.messages, match.parted.rest)
        return ruled._replace(messages=messages, moved=(*ruled.moved, *texts), notes=(*ruled.notes, *notes))

    def remember(self, conversation: Conversation) -> None:
        """Notes a header of an earlier process, to compare others with."""
        header = _header(conversation.messages, conversation.namespace)
        if header is not None:
            with self._lock:
                self._others(header, msgspec.json.encode(conversation.tools or ()))

    def moves(self, is_meant: Callable[[str], bool]) -> list[LearnedMove]:
        """The moves in use in the namespaces that are meant."""
        with self._lock:
            every = [move for moves in self._moves.values() for move in moves]
        return [move for move in every if move.rest and is_meant(move.namespace)]

    def refuse(self, name: str, is_meant: Callable[[str], bool]) -> bool:
        """Moves this no more, and does not learn it again; whether there was such a move."""
        found = [move for move in self.moves(is_meant) if move.name == name]
        with self._lock:
            for move in found:
                self._refuse(move, move.stretches, "somebody asked for it")
        return bool(found)

    def forget(self, is_meant: Callable[[str], bool]) -> None:
        """Removes all that is known of the namespaces that are meant."""
        with self._lock:
            self._samples.remove_if(lambda samples: is_meant(samples.namespace))
            for move in [move for moves in self._moves.values() for move in moves if is_meant(move.namespace)]:
                self._drop(move)

    # --- with the lock held

    def _of(self, namespace: str) -> list[LearnedMove]:
        return self._moves.setdefault(owner_of(namespace), [])

    def _begin(self, header: _Header, tools: Sequence[ToolDict] | None, notes: list[Note]) -> _Match | None:
        match = self._match(header) or self._learn(header, msgspec.json.encode(tools or ()), notes)
        if match is not None and not self._is_right(match):
            match = None
        name, values = (match.move.name, {*map(hash_of, match.parted.values)}) if match is not None else ("", set())
        known = self._conversations.get(header.opening)
        if known is not None and known.move == name and len(known.values) < _MAX_VALUES:
            values |= known.values  # another conversation, perhaps at the same time
        self._conversations.put(header.opening, _Conversation(name, values))
        return match

    def _is_right(self, match: _Match) -> bool:
        """Whether a move still holds, now that another conversation begins with these values. If not, it is removed."""
        move = match.move
        if move.saw(match.parted.values):
            self._keep(move)
            if wrong := [stretch for stretch in move.stretches if stretch.takes_turns]:
                self._refuse(move, wrong, "a few values take turns")
            return not wrong
        is_stable = time.time() - move.changed_at > _STABLE_S and any(map(str.strip, match.parted.values))
        if is_stable:
            self._drop(move, "they have not changed for long")
        return not is_stable

    def _go_on(self, header: _Header) -> _Match | None:
        """A conversation that began with the text in its header keeps it there."""
        known = self._conversations.get(header.opening)
        match = self._match(header, known.move if known is not None else None)
        if match is None or (known is not None and not known.move):
            return None
        values = [hash_of(value) for value in match.parted.values]
        if known is None:  # it began before the server did
            self._conversations.put(header.opening, _Conversation(match.move.name, {*values}))
            return match
        pairs = zip(match.move.stretches, values, strict=True)
        changed = [stretch for stretch, value in pairs if value not in known.values]
        known.values.update(values)
        known.num_changes += bool(changed)
        if changed and known.num_changes >= _MAX_CHANGES:
            self._refuse(match.move, changed, "they change while a conversation goes on")
            return None
        return match

    def _match(self, header: _Header, name: str | None = None) -> _Match | None:
        """A move that fits the header: the one of this name, or else the one that moves most."""
        own = [move for move in self._of(header.namespace) if move.namespace == header.namespace]
        own.sort(key=lambda move: (move.name != name, -len(move.stretches)))
        parts = ((move, move.part(header.texts)) for move in own if move.rest)
        return next((_Match(move, parted) for move, parted in parts if parted is not None), None)

    def _learn(self, header: _Header, tools: bytes, notes: list[Note]) -> _Match | None:
        for texts in self._others(header, tools):
            checkpoint()
            move = find_move(header.namespace, texts, header.texts, len(tools))
            if move is None or self._is_refused(move):
                continue
            notes.append(Note("moved", _LEARNED if self._is_on else _PROPOSED))
            if not self._is_on:
                return None
            self._keep(move)
            logger.info("%s change from one conversation to the next: they are moved from now on", move)
            return self._match(header)
        return None

    def _others(self, header: _Header, tools: bytes) -> list[Texts]:
        """Earlier headers of the same client; none if this header is among them. It is remembered."""
        client = blake3(msgspec.json.encode((header.namespace, len(header.texts), tools))).digest()
        samples = self._samples.get(client)
        known = samples.headers if samples is not None else ()
        others = [texts for texts in known if texts != header.texts]
        self._samples.put(client, _Samples(header.namespace, (header.texts, *others)[:_MAX_SAMPLES]))
        return others if len(others) == len(known) else []

    def _is_refused(self, move: LearnedMove) -> bool:
        refused = [known for known in self._of(move.namespace) if not known.rest]
        wrong = [stretch for known in refused if known.namespace == move.namespace for stretch in known.stretches]
        return any(stretch.overlaps(other) for stretch in move.stretches for other in wrong)

    def _refuse(self, move: LearnedMove, stretches: Sequence[Stretch], reason: str) -> None:
        self._drop(move, reason)
        self._keep(LearnedMove(move.namespace, stretches))

    def _keep(self, move: LearnedMove) -> None:
        own = self._of(move.namespace)
        own[:] = [move, *(other for other in own if other is not move)]
        if self._files is not None:
            self._files.keep(owner_of(move.namespace), move.name, msgspec.json.encode(move))
        for old in own[_MAX_MOVES:]:
            self._drop(old)

    def _drop(self, move: LearnedMove, reason: str = "") -> None:
        own = self._of(move.namespace)
        own[:] = [other for other in own if other is not move]
        if self._files is not None:
            self._files.drop(owner_of(move.namespace), move.name)
        if reason:
            logger.info("%s are moved no more: %s", move, reason)


def _header(messages: Sequence[MessageDict], namespace: str) -> _Header | None:
    """The header of a conversation; None if there is none, or if it is too long."""
    texts = header_texts(messages)
    num_lines = sum(text.count("\n") for text in texts)
    if not 0 < sum(map(len, texts)) <= _MAX_CHARACTERS or num_lines > _MAX_LINES:
        return None
    is_reply = [message.get("role") == "assistant" for message in messages]
    end = is_reply.index(True) if any(is_reply) else len(messages)
    opening = blake3(msgspec.json.encode((namespace, messages[header_size(messages) : end]))).digest()
    return _Header(namespace, texts, opening, is_new=not any(is_reply))
