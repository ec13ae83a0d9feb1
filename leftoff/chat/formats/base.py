"""How a model writes its replies: what a parser must look for, and what a grammar must ask for."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from leftoff.chat.formats.scanner import Reading, Waiting
from leftoff.chat.formats.tools import Tools


@dataclass(frozen=True)
class Thinking:
    """The texts around reasoning."""

    begin: str = "<think>"
    end: str = "</think>"


@dataclass(frozen=True)
class ParameterSyntax:
    """`before_key` key `after_key` value `after_value`, and `between` two of them.

    A value is JSON, but for strings where `plain_strings` is set: they are written as they are, with `text_quote`
    before and after them, and `after_text_key` in the place of `after_key` where it is set.
    """

    before_key: str
    after_key: str
    after_value: str
    between: str = ""
    plain_strings: bool = True
    after_text_key: str = ""
    text_quote: str = ""


@dataclass(frozen=True)
class CallSyntax:
    """`begin`, then calls with `between` two of them, then `end`.

    A call is `before_name` name `after_name` arguments `after_arguments`. The arguments are one JSON object, or where
    `parameter` says so, one parameter after the other.
    """

    before_name: str
    after_name: str
    after_arguments: str
    begin: str = ""
    between: str = ""
    end: str = ""
    parameter: ParameterSyntax | None = None


@dataclass(frozen=True)
class Wanted:
    """What to look for in one reply."""

    tools: Tools
    splits_reasoning: bool = True
    begins_in_reasoning: bool = False


class OutputFormat(ABC):
    """One way to write replies. Knows no request."""

    name: str
    syntax: CallSyntax
    thinking: Thinking | None
    before_content: str = ""  # what a model must write before it can speak to the user

    @property
    @abstractmethod
    def trigger(self) -> str:
        """The text that begins a call; empty if any reply may be one."""

    @property
    @abstractmethod
    def markers(self) -> Sequence[str]:
        """All texts that steer the parser: where a model has tokens of their own for them, they must be shown."""

    @abstractmethod
    def read(self, reading: Reading, wanted: Wanted) -> Waiting[None]:
        """Reads a reply to its end."""
