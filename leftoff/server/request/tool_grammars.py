"""The grammars of the tools that a request offers, as far as their schemas can be followed."""

from collections.abc import Callable, Mapping, Sequence

from leftoff.chat.formats.base import function_of
from leftoff.chat.formats.parser import Output
from leftoff.chat.template.render import ToolDict
from leftoff.grammar.compile import Grammars
from leftoff.grammar.constraint import Trigger
from leftoff.grammar.errors import GrammarError
from leftoff.grammar.grammar import Grammar
from leftoff.server.http.errors import bad_field
from leftoff.server.request.tool_grammar import CallGrammar

_MAX_CALLS = 16  # in one reply


class ToolGrammars:
    """A tool that is not `strict`, and whose schema is beyond us, is called with any object."""

    def __init__(
        self, grammars: Grammars, output: Output, tools: Sequence[ToolDict], places: Mapping[str, str]
    ) -> None:
        """`places` says by the name of a tool what the client calls its schema."""
        self._grammars = grammars
        self._format = output.format
        self._tools = tools
        self._places = places
        self._most = 1 if output.one_call else _MAX_CALLS

    def calls(self) -> Grammar:
        """A reply that is nothing but calls."""
        return self._compiled(lambda calls: calls.calls(self._most))

    def triggers(self) -> tuple[Trigger, ...]:
        """Where a call begins in a reply, and how it must go on; nothing if it may begin anywhere."""
        trigger, syntax = self._format.trigger, self._format.syntax
        if not trigger or not (syntax.begin + syntax.before_name).startswith(trigger):
            return ()
        most = self._most if syntax.end else 1  # without an end, the next call has a trigger of its own
        return (Trigger(trigger, self._compiled(lambda calls: calls.calls_after(trigger, most))),)

    def _compiled(self, make: Callable[[CallGrammar], Grammar]) -> Grammar:
        try:
            return self._compile(make, self._tools)
        except GrammarError:
            return self._compile(make, [self._bearable(make, tool) for tool in self._tools])

    def _compile(self, make: Callable[[CallGrammar], Grammar], tools: Sequence[ToolDict]) -> Grammar:
        grammar = make(CallGrammar(self._format.syntax, tools, self._grammars.vocabulary))
        self._grammars.compile(grammar)
        return grammar

    def _bearable(self, make: Callable[[CallGrammar], Grammar], tool: ToolDict) -> ToolDict:
        try:
            self._compile(make, [tool])
        except GrammarError as error:
            function = function_of(tool)
            if function.get("strict") is True:
                raise bad_field(self._places[function["name"]], str(error)) from error
            return {"name": function["name"], "parameters": {"additionalProperties": True}}
        return tool
