"""Whether a model will think before it speaks, as far as its template and the request tell."""

from functools import lru_cache

from leftoff.chat.template.render import ChatTemplate, TemplateError
from leftoff.server.request.fields import GenerationFields
from leftoff.server.request.messages import ChatFields
from leftoff.types import ReasoningTags

_SWITCH = "enable_thinking"
_QUESTION = [{"role": "user", "content": "?"}]


def marks_of(
    thinking: ReasoningTags, template: ChatTemplate, body: GenerationFields, prompt_end: str
) -> ReasoningTags | None:
    """What stands around the reasoning of this reply; None if there will be none."""
    marks = ReasoningTags(thinking.begin.strip(), thinking.end.strip())
    if is_open(marks, prompt_end):
        return marks
    is_closed = marks.end in prompt_end
    return marks if not is_closed and isinstance(body, ChatFields) and _may_think(marks, template, body) else None


def is_open(marks: ReasoningTags, prompt_end: str) -> bool:
    """Some templates begin the reasoning themselves."""
    return prompt_end.rstrip().endswith(marks.begin)


def _may_think(marks: ReasoningTags, template: ChatTemplate, body: ChatFields) -> bool:
    options = body.template_options
    if _SWITCH in options:
        return bool(options[_SWITCH])
    if "reasoning_effort" in options:
        return True
    return _thinks_by_default(template) if template.mentions(_SWITCH) else template.mentions(marks.begin)


@lru_cache(8)
def _thinks_by_default(template: ChatTemplate) -> bool:
    """Where switching it off makes a difference, it is on."""
    try:
        return template.render(_QUESTION) != template.render(_QUESTION, options={_SWITCH: False})
    except TemplateError:
        return False
