"""Prompts that are not chats: text, token ids, several of either, or (as llama-server allows) text and ids mixed."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
from blake3 import blake3

from leftoff.chat.work import checkpoint
from leftoff.engine.vocabulary import Vocabulary
from leftoff.host.host import ModelHost
from leftoff.lru import LruCache
from leftoff.picture import Picture, PictureError
from leftoff.server.http.body import convert, decode
from leftoff.server.http.errors import PromptTooLongError, bad_field
from leftoff.types import Prompt, Tokens

_MAX_PROMPTS = 1024
_MEDIA = "<__media__>"  # where a picture stands in a text, for llama-server
_REMEMBERED_LISTS = 16
_REMEMBERED_BYTES = 32 << 20
_LONG_LIST = 16 << 10  # bytes of JSON: a shorter list is decoded anew
_REPLACED_SHARE = 0.9  # of a remembered list: a longer one that begins with as much of it takes its place
_NO_TOKENS: Tokens = np.empty(0, np.int32)
_NAMES = {
    type(None): "null",
    bool: "true or false",
    int: "a number",
    float: "a fraction",
    str: "a text",
    list: "a list",
    dict: "an object",
}
_MAX_TOKENS = 1 << 20  # of all prompts of a request; a single one may have as many as the context holds


_readers: WeakKeyDictionary[ModelHost, "RawPrompts"] = WeakKeyDictionary()


class RawPrompts:
    """Reads the `prompt` field of a request to a host."""

    def __init__(self, host: ModelHost) -> None:
        self._maker = host.prompts
        self._vocabulary = host.model.vocabulary
        self._pictures = host.pictures
        self._max_images = host.settings.max_images
        self.id_lists = IdLists(self._vocabulary.size)

    @classmethod
    def of(cls, host: ModelHost) -> "RawPrompts":
        """The reader of a host: it lives as long as the host, to which it does not refer."""
        if host not in _readers:
            _readers[host] = cls(host)
        return _readers[host]

    def read(self, data: msgspec.Raw, namespace: str = "") -> list[Prompt]:
        """One prompt for a text or a list of token ids; for a list of prompts, one for each. `data` is JSON."""
        tokens = self.id_lists.decode(bytes(data), namespace)
        if tokens is not None and tokens.size:
            self._check_length(int(tokens.size))
            return [Prompt(tokens)]
        value: Any = decode(bytes(data), object)
        if not _is_many(value):
            return [self._one(value, "prompt", namespace)]
        if len(value) > _MAX_PROMPTS:
            raise bad_field("prompt", f"{len(value)} prompts in one request; at most {_MAX_PROMPTS} are taken")
        prompts: list[Prompt] = []
        num_tokens = 0
        for index, item in enumerate(value):
            checkpoint()
            prompts.append(self._one(item, f"prompt[{index}]", namespace))
            num_tokens += prompts[-1].length
            if num_tokens > _MAX_TOKENS and index:
                raise bad_field(
                    "prompt", f"the first {index + 1} have {num_tokens} tokens; at most {_MAX_TOKENS} are taken"
                )
        return prompts

    def _one(self, value: Any, place: str, namespace: str) -> Prompt:  # noqa: ANN401
        if isinstance(value, dict):
            return self._from_object(value, place, namespace)
        if isinstance(value, str):
            prompt = self._maker.from_text(value)
        elif isinstance(value, list):
            prompt = Prompt(self._from_list(value, place))
        else:
            raise bad_field(place, f"must be a text or a list of token ids, not {_name(value)}")
        if prompt.length == 0:
            raise bad_field(place, "is empty: there is nothing to go on from")
        return prompt

    def _from_object(self, value: dict[str, Any], place: str, namespace: str) -> Prompt:
        """llama-server's object: a text, and the pictures that its media markers stand for, in base64."""
        text, at = value.get("prompt_string"), f"{place}.multimodal_data"
        files: list[str] = convert(value.get("multimodal_data") or [], list[str], at)
        if not isinstance(text, str):
            raise bad_field(f"{place}.prompt_string", "must be a text")
        if not files:
            return self._one(text, f"{place}.prompt_string", namespace)
        if not self._maker.sees_pictures:
            raise bad_field(at, "cannot be read: this model reads text only")
        pieces = text.split(_MEDIA)
        if len(pieces) != len(files) + 1 or len(files) > self._max_images:
            problem = f"has {len(files)} images for {len(pieces) - 1} times {_MEDIA} in prompt_string"
            raise bad_field(at, f"{problem}: must be as many, and at most {self._max_images} (--max-images)")
        shown = [self._picture(file, f"{at}[{index}]", index, namespace) for index, file in enumerate(files)]
        markers = [*(picture.marker for picture in shown), ""]
        words = "".join(piece + marker for piece, marker in zip(pieces, markers, strict=True))
        return self._maker.from_text(words, {picture.marker: picture for picture in shown})

    def _picture(self, file: str, place: str, index: int, namespace: str) -> Picture:
        checkpoint()
        try:
            return self._pictures.take(file, f"image {index + 1}", namespace)
        except PictureError as error:
            raise bad_field(place, str(error)) from error

    def _from_list(self, items: list[Any], place: str) -> Tokens:
        if str in set(map(type, items)):
            return np.concatenate([*self._mixed_parts(items, place)])
        self._check_length(len(items))
        return token_ids(items, self._vocabulary, place)

    def _mixed_parts(self, items: list[Any], place: str) -> Iterator[Tokens]:
        num_tokens = 0
        for index, item in enumerate(items):
            checkpoint()
            part = self._mixed_part(item, f"{place}[{index}]", index)
            num_tokens += part.size
            self._check_length(num_tokens)
            yield part

    def _check_length(self, num_tokens: int) -> None:
        meter = self._maker.meter
        if meter is not None and num_tokens >= meter.context_tokens:
            raise PromptTooLongError(num_tokens, meter.context_tokens)

    def _mixed_part(self, item: Any, place: str, index: int) -> Tokens:  # noqa: ANN401
        if not isinstance(item, str):
            return token_ids([item], self._vocabulary, place)
        # Only text at the beginning gets what the model wants at the beginning.
        return self._maker.from_text(item).tokens if index == 0 else self._maker.tokens(item)


@dataclass(frozen=True, eq=False)
class _IdList:
    namespace: str
    data: bytes
    tokens: Tokens

    @property
    def num_bytes(self) -> int:
        return len(self.data) + self.tokens.nbytes


class IdLists:
    """Decodes lists of token ids. Of one that begins like a list decoded before, only what is new. Thread-safe.

    Clients that keep their conversations as tokens send them all with every turn: a megabyte of JSON for 131,072.
    """

    def __init__(self, vocabulary_size: int) -> None:
        token = Annotated[int, msgspec.Meta(ge=0, lt=vocabulary_size)]
        self._decoder = msgspec.json.Decoder(list[token])
        self._lists: LruCache[tuple[str, bytes], _IdList] = LruCache(
            max_entries=_REMEMBERED_LISTS, max_bytes=_REMEMBERED_BYTES, size_of=lambda _, ids: ids.num_bytes
        )

    @property
    def num_bytes(self) -> int:
        """Bytes of the remembered lists."""
        return self._lists.num_bytes

    def decode(self, data: bytes, namespace: str) -> Tokens | None:
        """The tokens of a JSON list; None if it is anything else than a list of tokens of the vocabulary."""
        if not data.startswith(b"["):
            return None
        known, cut = self._known(data, namespace) if len(data) >= _LONG_LIST else (_NO_TOKENS, 0)
        try:
            items = self._decoder.decode(b"[" + data[cut + 1 :])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        tokens = np.concatenate([known, np.frombuffer(array("i", items), np.int32)])
        if len(data) >= _LONG_LIST:
            self._lists.put((namespace, blake3(data).digest()), _IdList(namespace, data, tokens))
        return tokens

    def forget(self, is_meant: Callable[[str], bool]) -> None:
        """Forgets the lists of the namespaces that are meant."""
        self._lists.remove_if(lambda ids: is_meant(ids.namespace))

    def _known(self, data: bytes, namespace: str) -> tuple[Tokens, int]:
        """The tokens of the longest beginning that is known, and the offset of the comma or bracket behind them."""
        best, common = None, 0
        for key, ids in self._lists.items():
            if ids.namespace == namespace and (length := _common_bytes(ids.data, data)) > common:
                best, common = (key, ids), length
        cut = data.rfind(b",", 0, common)
        if best is None or cut < 0:
            return _NO_TOKENS, 0
        key, ids = best
        if common > _REPLACED_SHARE * len(ids.data):
            self._lists.pop(key)
        return ids.tokens[: data.count(b",", 0, cut) + 1], cut


def _common_bytes(left: bytes, right: bytes) -> int:
    if left[:_LONG_LIST] != right[:_LONG_LIST]:
        return 0  # what they share would be too little to be worth a comparison
    size = min(len(left), len(right))
    differs = np.frombuffer(left, np.uint8, size) != np.frombuffer(right, np.uint8, size)
    first = int(differs.argmax())
    return first if differs[first] else size


def token_ids(items: Sequence[Any], vocabulary: Vocabulary, place: str) -> Tokens:
    """Token ids of a request as an array. Checked here, since one unknown id would fail a whole batch."""
    if set(map(type, items)) <= {int} and 0 <= min(items, default=0) <= max(items, default=0) < vocabulary.size:
        return np.array(items, np.int32)
    for index, item in enumerate(items):
        if type(item) is not int:
            raise bad_field(f"{place}[{index}]", f"must be a token id, not {_name(item)}")
        if not 0 <= item < vocabulary.size:
            raise bad_field(f"{place}[{index}]", f"token {item} is not in the vocabulary of {vocabulary.size} tokens")
    raise AssertionError("one of them is wrong")


def _is_many(value: Any) -> bool:  # noqa: ANN401
    """Whether it is a list of prompts. A list with a token id in it, or an empty one, is a single prompt."""
    return isinstance(value, list) and bool(value) and all(isinstance(item, str | list | dict) for item in value)


def _name(value: object) -> str:
    """The type of a JSON value, for an error message."""
    return _NAMES[type(value)]
