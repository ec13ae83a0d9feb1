"""Detects a model's output format from its chat template, since no model file names it.

A new way to write tool calls is one file with a `CallFormat`, and one line in `_FAMILIES`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from leftoff.chat.formats.base import OutputFormat
from leftoff.chat.formats.deepseek import BEGIN, DSML, DeepSeekCalls, DsmlCalls
from leftoff.chat.formats.gemma import GemmaCalls
from leftoff.chat.formats.glm import GlmCalls
from leftoff.chat.formats.harmony import HarmonyFormat
from leftoff.chat.formats.hermes import GenericCalls, GraniteCalls, HermesCalls
from leftoff.chat.formats.kimi import KimiCalls
from leftoff.chat.formats.lfm2 import Lfm2Calls
from leftoff.chat.formats.llama import LlamaCalls
from leftoff.chat.formats.mistral import MistralCalls
from leftoff.chat.formats.qwen_xml import QwenXmlCalls
from leftoff.chat.formats.tagged import CallFormat, TaggedFormat
from leftoff.chat.template.render import ChatTemplate
from leftoff.engine.vocabulary import Vocabulary
from leftoff.types import ReasoningTags

_MISTRAL_REASONING = ReasoningTags("[THINK]", "[/THINK]")
_GEMMA_REASONING = ReasoningTags("<|channel>thought\n", "<channel|>")


@dataclass(frozen=True)
class _Family:
    """A call format, and the texts that all occur in the templates of its models."""

    name: str
    texts: tuple[str, ...]
    make: Callable[[ChatTemplate], CallFormat]


# The first match wins: texts that occur in the templates of other families come last.
_FAMILIES = (
    _Family("gemma", ("<|tool_call>call:",), lambda _: GemmaCalls()),
    _Family("dsml", (DSML,), lambda template: DsmlCalls(_dsml_block(template))),
    _Family("deepseek", (BEGIN,), lambda template: DeepSeekCalls(has_code=template.mentions("```json"))),
    _Family("kimi", ("<|tool_calls_section_begin|>",), lambda _: KimiCalls()),
    _Family("mistral", ("[TOOL_CALLS]",), lambda template: MistralCalls(has_list=not template.mentions("[ARGS]"))),
    _Family("glm", ("<arg_key>",), lambda _: GlmCalls()),
    _Family("qwen_xml", ("<function=", "<parameter="), lambda _: QwenXmlCalls()),
    _Family("lfm2", ("<|tool_call_start|>",), lambda _: Lfm2Calls()),
    _Family("lfm2", ("List of tools: [",), lambda _: Lfm2Calls()),
    _Family("granite", ("<|tool_call|>",), lambda _: GraniteCalls()),
    _Family("hermes", ("<tool_call>",), lambda _: HermesCalls()),
    _Family("llama", ('"name": function name, "parameters": ',), lambda _: LlamaCalls()),
    _Family("generic", (), lambda _: GenericCalls()),
)


def find_format(template: ChatTemplate) -> OutputFormat:
    """The format of a model's replies, by the markers that its template mentions."""
    if template.mentions("<|channel|>") and template.mentions("<|message|>"):
        return HarmonyFormat()
    family = next(family for family in _FAMILIES if all(map(template.mentions, family.texts)))
    return TaggedFormat(family.name, family.make(template), _reasoning(family, template))


def _reasoning(family: _Family, template: ChatTemplate) -> ReasoningTags:
    """A model may reason though its template does not mention it: its tags are then the usual ones."""
    if family.name == "gemma":
        return _GEMMA_REASONING
    return _MISTRAL_REASONING if template.mentions(_MISTRAL_REASONING.begin) else ReasoningTags()


def _dsml_block(template: ChatTemplate) -> str:
    return "function_calls" if template.mentions("function_calls>") else "tool_calls"


def shown_tokens(output_format: OutputFormat, vocabulary: Vocabulary) -> frozenset[int]:
    """The control tokens whose text the format's parser needs. All others are left out of the reply's text."""
    markers = {marker.encode() for marker in output_format.markers}
    return frozenset(token for token in vocabulary.control_tokens if vocabulary.piece(token) in markers)
