"""Finds out how a model writes its replies: from its template, since no model says so."""

from collections.abc import Callable
from dataclasses import dataclass

from leftoff.chat.formats import deepseek, dsml
from leftoff.chat.formats.base import OutputFormat, Thinking
from leftoff.chat.formats.deepseek import DeepSeekCalls
from leftoff.chat.formats.dsml import DsmlCalls
from leftoff.chat.formats.gemma import GemmaCalls
from leftoff.chat.formats.generic import GenericCalls
from leftoff.chat.formats.glm import GlmCalls
from leftoff.chat.formats.granite import GraniteCalls
from leftoff.chat.formats.harmony import HarmonyFormat
from leftoff.chat.formats.hermes import HermesCalls
from leftoff.chat.formats.kimi import KimiCalls
from leftoff.chat.formats.lfm2 import Lfm2Calls
from leftoff.chat.formats.llama import LlamaCalls
from leftoff.chat.formats.mistral import MistralCalls
from leftoff.chat.formats.qwen_xml import QwenXmlCalls
from leftoff.chat.formats.tagged import CallFormat, TaggedFormat
from leftoff.chat.template.render import ChatTemplate
from leftoff.engine.vocabulary import Vocabulary

_MISTRAL_THINKING = Thinking("[THINK]", "[/THINK]")
_GEMMA_THINKING = Thinking("<|channel>thought\n", "<channel|>")


@dataclass(frozen=True)
class _Kind:
    """A way to write calls, and the texts by which a template shows that it is the model's."""

    name: str
    texts: tuple[str, ...]
    make: Callable[[ChatTemplate], CallFormat]

    def is_in(self, template: ChatTemplate) -> bool:
        return all(map(template.mentions, self.texts))


# Texts that others show as well come last.
_KINDS = (
    _Kind("gemma", ("<|tool_call>call:",), lambda _: GemmaCalls()),
    _Kind("dsml", (dsml.NAME,), lambda template: DsmlCalls(_dsml_block(template))),
    _Kind("deepseek", (deepseek.BEGIN,), lambda template: DeepSeekCalls(has_code=template.mentions("```json"))),
    _Kind("kimi", ("<|tool_calls_section_begin|>",), lambda _: KimiCalls()),
    _Kind("mistral", ("[TOOL_CALLS]",), lambda template: MistralCalls(has_list=not template.mentions("[ARGS]"))),
    _Kind("glm", ("<arg_key>",), lambda _: GlmCalls()),
    _Kind("qwen_xml", ("<function=", "<parameter="), lambda _: QwenXmlCalls()),
    _Kind("lfm2", ("<|tool_call_start|>",), lambda _: Lfm2Calls()),
    _Kind("lfm2", ("List of tools: [",), lambda _: Lfm2Calls()),
    _Kind("granite", ("<|tool_call|>",), lambda _: GraniteCalls()),
    _Kind("hermes", ("<tool_call>",), lambda _: HermesCalls()),
    _Kind("llama", ('"name": function name, "parameters": ',), lambda _: LlamaCalls()),
    _Kind("generic", (), lambda _: GenericCalls()),
)


def find_format(template: ChatTemplate) -> OutputFormat:
    if template.mentions("<|channel|>") and template.mentions("<|message|>"):
        return HarmonyFormat()
    kind = next(kind for kind in _KINDS if kind.is_in(template))
    return TaggedFormat(kind.name, kind.make(template), _thinking(kind, template))


def _thinking(kind: _Kind, template: ChatTemplate) -> Thinking:
    """A model may reason though its template does not speak of it: its tags are then the usual ones."""
    if kind.name == "gemma":
        return _GEMMA_THINKING
    return _MISTRAL_THINKING if template.mentions(_MISTRAL_THINKING.begin) else Thinking()


def _dsml_block(template: ChatTemplate) -> str:
    return "function_calls" if template.mentions("function_calls>") else "tool_calls"


def shown_tokens(output_format: OutputFormat, vocabulary: Vocabulary) -> frozenset[int]:
    """The control tokens that the format must see: all others are no part of what is said."""
    markers = {marker.encode() for marker in output_format.markers}
    return frozenset(token for token in vocabulary.control_tokens if vocabulary.piece(token) in markers)
