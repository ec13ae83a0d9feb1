"""The interface of output formats: the syntax of tool calls, for grammars, and a parser of replies."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from leftoff.chat.formats.scanner import Scanner, Waiting
from leftoff.types import ReasoningTags


@dataclass(frozen=True)
class ParameterSyntax:
    """`before_key` key `after_key` value `after_value`, with `between` between parameters.

    Values are JSON. With `plain_strings`, strings are written without JSON's quotes and escapes, between two
    `text_quote`, and after `after_text_key` instead of `after_key` if that is set.
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
    """`begin`, one or more calls with `between` between them, `end`.

    A call is `before_name` name `after_name` arguments `after_arguments`. The arguments are a JSON object, or one
    parameter after another as `parameter` says.
    """

    before_name: str
    after_name: str
    after_arguments: str
    begin: str = ""
    between: str = ""
    end: str = ""
    parameter: ParameterSyntax | None = None


class OutputFormat(ABC):
    """How a model family writes reasoning, content and tool calls. Knows no request."""

    name: str
    syntax: CallSyntax
    reasoning: ReasoningTags
    before_content: str = ""  # what the model must write before content
    trigger: str  # the text that begins a call; empty if a call may begin without one
    markers: tuple[str, ...]  # all texts that the parser looks for: control tokens with these are shown to it

    @abstractmethod
    def parse(self, scanner: Scanner) -> Waiting[None]:
        """Parses a reply to its end."""
