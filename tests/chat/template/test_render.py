"""A template gets what templates expect, and a broken one is a clear error."""

import json
from datetime import datetime

import pytest

from leftoff.chat.template.render import ChatTemplate, TemplateError
from tests.chat.conversations import user

HELLO = [user("Hello")]


def rendered(source: str, **options: object) -> str:
    return ChatTemplate(source, bos="<s>", eos="</s>").render(HELLO, options=options)


def test_a_model_without_a_template_speaks_chatml() -> None:
    text = ChatTemplate(None).render(HELLO)
    assert text == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (
            "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}"
            "{% if i > 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            "013",
        ),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "1"),
        ("{% for key, value in {'a': 1, 'b': 2}|items %}{{ key }}{{ value }}{% endfor %}", "a1b2"),
        ("{% for key, value in {'b': 1, 'a': 2}|dictsort %}{{ key }}{{ value }}{% endfor %}", "a2b1"),
        ("{% generation %}words{% endgeneration %}", "words"),
        ("{{ bos_token }}{{ messages[0].content }}{{ messages[0]['role'] }}{{ eos_token }}", "<s>Hellouser</s>"),
        ("{% macro shout(text) %}{{ text|upper }}!{% endmacro %}{{ shout('hi') }}", "HI!"),
        ("{% set queue = [] %}{% set _ = queue.append(7) %}{{ queue.pop(0) }}", "7"),
        ("{{ tools is none }}{{ documents is none }}{{ nothing is defined }}", "TrueTrueFalse"),
        ("{{ ('{\"a\": 1}'|from_json).a }}", "1"),
        ("    {% if true %}\nyes\n    {% endif %}\n", "yes\n"),
        ("{{ 'a' ~ 1 ~ none ~ nothing }}", "a1None"),
        ("{{ messages|map(attribute='role')|join(',') }}", "user"),
        ("{{ messages|selectattr('role', 'equalto', 'user')|list|length }}", "1"),
    ],
)
def test_what_templates_use_works(source: str, text: str) -> None:
    assert rendered(source) == text


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("tojson", '{"b": "<ü>", "a": [1, true, null]}'),
        ("tojson(ensure_ascii=True)", '{"b": "<\\u00fc>", "a": [1, true, null]}'),
        ("tojson(sort_keys=True)", '{"a": [1, true, null], "b": "<ü>"}'),
        ("tojson(separators=(',', ':'))", '{"b":"<ü>","a":[1,true,null]}'),
        ("tojson(indent=2)", json.dumps({"b": "<ü>", "a": [1, True, None]}, indent=2, ensure_ascii=False)),
    ],
)
def test_json_is_written_as_for_training_not_as_for_html(call: str, text: str) -> None:
    assert rendered("{{ value|" + call + " }}", value={"b": "<ü>", "a": [1, True, None]}) == text


def test_the_date_is_todays() -> None:
    now = datetime.now().astimezone()
    assert rendered("{{ strftime_now('%Y') }}") in (str(now.year), str(now.year + 1))


def test_keeping_the_reasoning_has_many_names() -> None:
    source = "{{ preserve_thinking }},{{ keep_past_thinking }},{{ drop_thinking }},{{ clear_thinking }}"
    assert rendered(source, preserve_thinking=True) == "True,True,False,False"
    assert rendered(source, preserve_thinking=True, drop_thinking=True) == "True,True,True,False"
    assert rendered("{{ keep_past_thinking is defined }}") == "False"


def test_names_of_methods_are_methods_and_the_rest_are_keys() -> None:
    value = {"items": 1, "name": 2, "_hidden": 3}
    source = "{{ value.items is callable }},{{ value['items'] }},{{ value.name }},{{ value._hidden }},{{ value.none }}"
    assert rendered(source, value=value) == "True,1,2,3,"
    assert rendered("{% set ns = namespace(a=1) %}{{ ns.a }},{{ ns.b is defined }},{{ ns.__class__ }}") == "1,False,"


def test_a_template_cannot_change_what_it_was_given() -> None:
    conversation = [{"role": "user", "content": ["a", "b"]}]
    source = "{% set _ = messages[0].content.pop() %}{{ messages[0].content }}{{ messages.append(1) }}"
    template = ChatTemplate(source)
    assert template.render(conversation) == template.render(conversation) == "['a']None"
    assert conversation == [{"role": "user", "content": ["a", "b"]}]


@pytest.mark.parametrize("source", ["{% for %}", "{{ x", "{% endif %}", "{{ 1|no_such_filter }}", "{% unknown %}"])
def test_a_broken_template_is_refused_when_it_is_read(source: str) -> None:
    with pytest.raises(TemplateError, match="cannot be parsed"):
        ChatTemplate(source)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ raise_exception('only user messages') }}", "refuses these messages: only user messages"),
        ("{{ messages[0].content + 1 }}", "cannot render these messages: .*str"),
        ("{{ messages[7].content }}", "cannot render these messages: .*no element 7"),
        ("{% include 'secrets' %}", "cannot render these messages: no loader"),
        ("{{ value|tojson(indent=10000) }}", "indents JSON by 10000"),
    ],
)
def test_a_refusal_says_why(source: str, reason: str) -> None:
    with pytest.raises(TemplateError, match=reason):
        rendered(source, value=1)


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt"])
def test_options_do_not_replace_what_has_a_field_of_its_own(name: str) -> None:
    with pytest.raises(TemplateError, match=f"chat_template_kwargs must not set '{name}'"):
        rendered("{{ 1 }}", **{name: None})
