"""The error for grammars that cannot be compiled, with a message that says what to change."""

import json
import re

from leftoff.engine.errors import InputError

_MAX_REASON = 300
_KEYWORDS = re.compile(r"Unimplemented keys: (\[.*\])")
_FORMAT = re.compile(r"Unknown format: (.*)")
_PATTERN = re.compile(r"regex parse error:\n(?P<pattern>.*?)\n\s*\^.*error: (?P<reason>.*?)(?:\n|$)", re.DOTALL)
_CONTEXT = re.compile(r"\n\s*(?:\d+ \| |<non-verbose).*", re.DOTALL)  # lines of generated Lark
_LIMIT = re.compile(r"panic|too (?:large|complex|many)|TooComplex|limit|fuel", re.IGNORECASE)


class GrammarError(InputError):
    """A schema, grammar or pattern that cannot be compiled."""


def explain(error: str) -> GrammarError:
    """Translates an error of llguidance for the client who wrote the schema or grammar."""
    if found := _KEYWORDS.search(error):
        keywords = ", ".join(map(repr, json.loads(found[1])))
        return GrammarError(f"the keyword {keywords} is not supported in a schema: leave it out")
    if found := _FORMAT.search(error):
        return GrammarError(f"the 'format' {found[1]!r} is not supported in a schema: leave it out, or use 'pattern'")
    if found := _PATTERN.search(error):
        return GrammarError(f"the pattern {found['pattern'].strip()!r} cannot be read: {found['reason']}")
    if "oneOf" in error:
        return GrammarError("the keyword 'oneOf' is supported only where its branches exclude each other: use 'anyOf'")
    if "min/maxProperties" in error:
        return GrammarError(
            "the keywords 'minProperties' and 'maxProperties' are supported only where all 'properties' are required"
        )
    if "NoExtensionBias" in error:
        return GrammarError("there is no text that follows it")
    if _LIMIT.search(error):
        return GrammarError("it is too complex: use fewer alternatives, smaller repetitions and less nesting")
    return GrammarError(_CONTEXT.sub("", error).strip()[:_MAX_REASON])
