"""The beginning of conversations in a file: to be prewarmed, or kept because a client has used it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from leftoff.chat.conversation import Conversation
from leftoff.chat.template.render import MessageDict, ToolDict
from leftoff.disk.headers import HeaderFiles
from leftoff.setting import SettingError


class HeaderFile(Struct):
    """The contents of a JSON file for --prewarm. `options` are variables for the template."""

    messages: Sequence[MessageDict]
    tools: Sequence[ToolDict] | None = None
    options: Mapping[str, Any] = {}
    namespace: str = ""

    def __post_init__(self) -> None:
        if not all(isinstance(message.get("role"), str) for message in self.messages):
            raise ValueError('a message has no role: write {"role": "system", "content": "..."}')

    def conversation(self) -> Conversation:
        return Conversation(self.messages, self.tools, self.options, self.namespace)


def read_header(path: Path, flag: str = "--prewarm ") -> HeaderFile:
    """A `.json` file has messages; any other is the text of a system prompt. Errors name it as the flag's value."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or "it is no text"
        raise SettingError(f"{flag}{path}: it cannot be read ({reason}): give a text, or JSON with messages") from error
    if path.suffix != ".json":
        return HeaderFile([{"role": "system", "content": text}])
    try:
        return msgspec.json.decode(text, type=HeaderFile)
    except msgspec.MsgspecError as error:
        raise SettingError(f'{flag}{path}: {error}; it must look like {{"messages": [...]}}') from error


def is_header_meant(is_meant: Callable[[str], bool], owner: str, content: bytes) -> bool:
    """Whether a kept header is of the namespaces that are meant; what cannot be read counts as its owner's."""
    try:
        namespace = msgspec.json.decode(content, type=HeaderFile).namespace
    except (msgspec.MsgspecError, UnicodeDecodeError):
        namespace = f"{owner}/" if owner else ""
    return is_meant(namespace)


def last_headers(files: HeaderFiles | None, owner: str | None = None) -> list[HeaderFile]:
    """The headers that clients used last, the latest first, without files that are damaged or of another version."""
    found: list[HeaderFile] = []
    for content in files.last(owner) if files is not None else ():
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):
            found.append(msgspec.json.decode(content, type=HeaderFile))
    return found
