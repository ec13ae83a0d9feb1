"""What one request wants of its reply's text."""

from collections.abc import Sequence
from dataclasses import dataclass

from leftoff.chat.formats.base import OutputFormat, Wanted
from leftoff.chat.formats.parser import Parser
from leftoff.chat.formats.tools import Tools
from leftoff.chat.template.render import ToolDict


@dataclass(frozen=True)
class Output:
    """`format` is the model's, the rest is asked for. Without tools, what looks like a call is content."""

    format: OutputFormat
    tools: Sequence[ToolDict] = ()
    splits_reasoning: bool = True
    one_call: bool = False

    def parser(self, prompt_end: str = "") -> Parser:
        """`prompt_end` is the end of the prompt's text: some templates begin the reasoning themselves."""
        thinking = self.format.thinking
        begins = thinking is not None and prompt_end.rstrip().endswith(thinking.begin.rstrip())
        return Parser(self.format, Wanted(Tools(self.tools), self.splits_reasoning, begins), one_call=self.one_call)
