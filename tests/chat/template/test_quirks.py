"""Templates get messages in the form they want, found out by trying; nothing is lost without a word."""

from typing import Any

import pytest

from leftoff.chat.template.quirks import Quirks, find_quirks
from leftoff.chat.template.render import ChatTemplate, MessageDict, TemplateError
from tests.chat.conversations import CALLS, TOOLS, assistant, call, result, system, user

BODY = "{% for m in messages %}[{{ m.role }}]{{ m.content }}CALLS{% endfor %}"
EACH = "{% for c in m.tool_calls %}({{ c.function.name }} ARGUMENTS){% endfor %}"
PLAIN = BODY.replace("CALLS", EACH)


def shape_of(source: str) -> Quirks:
    return find_quirks(ChatTemplate(source))


def text_of(source: str, messages: list[MessageDict], tools: list[dict[str, Any]] | None = None) -> str:
    template = ChatTemplate(source)
    shape = find_quirks(template)
    return template.render(shape.messages(messages), tools=shape.tools(tools))


@pytest.mark.parametrize(
    ("arguments", "is_object"),
    [
        ("{{ c.function.arguments|tojson }}", True),
        ("{% for k, v in c.function.arguments|items %}{{ k }}={{ v }}{% endfor %}", True),
        ("{{ '' + c.function.arguments }}", False),
        ("{{ c.function.arguments }}", False),  # would print an object as Python does
    ],
)
def test_arguments_are_an_object_or_text_as_the_template_wants(arguments: str, is_object: bool) -> None:
    source = PLAIN.replace("ARGUMENTS", arguments)
    assert shape_of(source).object_arguments is is_object
    for given in ('{"place": "Oslo"}', {"place": "Oslo"}):
        text = text_of(source, [user("Storm?"), assistant(None, tool_calls=[call(1, "look", given)])])
        assert "Oslo" in text
        assert "'place'" not in text


def test_arguments_that_are_no_object_are_printed_or_wrapped() -> None:
    """A reply that was cut off stays in the conversation: nobody could go on from it if the template failed."""
    conversation = [user("Storm?"), assistant(None, tool_calls=[call(1, "look", '{"place": ')])]
    prints = PLAIN.replace(
        "ARGUMENTS",
        "{% if c.function.arguments is string %}{{ c.function.arguments }}"
        "{% else %}{{ c.function.arguments|tojson }}{% endif %}",
    )
    assert '(look {"place": )' in text_of(prints, conversation)
    goes_through = PLAIN.replace(
        "ARGUMENTS", "{% for key, value in c.function.arguments|items %}{{ key }}={{ value }};{% endfor %}"
    )
    assert '(look arguments={"place": ;)' in text_of(goes_through, conversation)
    for given, shown in (("[7]", "arguments=[7];"), ('{"place": "Oslo"}', "place=Oslo;"), ("", ""), (" ", "")):
        conversation = [user("Storm?"), assistant(None, tool_calls=[call(1, "look", given)])]
        assert f"(look {shown})" in text_of(goes_through, conversation)


def test_a_template_that_asks_whether_content_is_none_gets_none() -> None:
    source = "{% for m in messages %}{% if m.content is none %}CALLS{% else %}{{ m.content }}{% endif %}{% endfor %}"
    source = source.replace("CALLS", EACH.replace("ARGUMENTS", "{{ c.function.arguments|tojson }}"))
    assert shape_of(source).null_content
    assert "look" in text_of(source, [user("Storm?"), assistant("", tool_calls=[call(1, "look", "{}")])])


def test_a_template_that_wants_parts_gets_parts() -> None:
    source = "{% for m in messages %}{{ m.content[0].text }};{% endfor %}"
    assert shape_of(source).text_as_parts
    assert text_of(source, [user("Where?"), assistant("Here.")]) == "Where?;Here.;"


def test_a_template_without_a_system_role_hears_the_rules_from_the_user() -> None:
    refuses = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + PLAIN
    leaves_out = "{% for m in messages if m.role != 'system' %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    for source in (refuses, leaves_out):
        assert text_of(source, [system("Be brief."), user("Where?")]) == "[user]Be brief.\n\nWhere?"


def test_rules_in_two_messages_become_one_where_only_one_is_shown() -> None:
    source = "{{ messages[0].content }}|{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}"
    assert text_of(source, [system("Be brief."), system("Be kind."), user("Where?")]) == "Be brief.\n\nBe kind.|Where?"
    assert text_of(PLAIN, [system("a"), system("b"), user("c")]) == "[system]a[system]b[user]c"


def test_rules_between_turns_become_reminders_where_the_template_refuses_them() -> None:
    conversation = [
        system("Be kind."),
        user("Hi"),
        system("Be short."),
        assistant("Hello"),
        system("Be wet."),
        user("So?"),
    ]
    for lost in ("{{ raise_exception('too late') }}", ""):
        source = (
            "{% for m in messages %}{% if m.role == 'system' and not loop.first %}" + lost + "{% else %}"
            "[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}"
        )
        assert text_of(source, conversation) == (
            "[system]Be kind."
            "[user]Hi\n\n<system-reminder>\nBe short.\n</system-reminder>"
            "[assistant]Hello"
            "[user]<system-reminder>\nBe wet.\n</system-reminder>\n\nSo?"
        )
    assert "[system]Be wet." in text_of(PLAIN.replace("ARGUMENTS", ""), conversation)


def test_ids_are_shortened_only_where_they_must_be() -> None:
    source = (
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{% if c.id|length != 9 %}"
        "{{ raise_exception('nine letters') }}{% endif %}{{ c.id }}{{ c.function|tojson }}{% endfor %}"
        "{{ m.tool_call_id }}{% endfor %}"
    )
    shape = shape_of(source)
    assert shape.short_ids
    messages = shape.messages(CALLS)
    (one,) = messages[1]["tool_calls"]
    assert len(one["id"]) == 9
    assert one["id"].isalnum()
    assert messages[2]["tool_call_id"] == one["id"]
    assert Quirks().messages(CALLS)[2]["tool_call_id"] == CALLS[2]["tool_call_id"]


def test_calls_and_results_that_would_be_lost_are_shown_as_text() -> None:
    source = "{% for m in messages if m.role != 'tool' %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    text = text_of(source, CALLS)
    for words in ("get_weather", "Oslo", "calm", "at noon"):
        assert words in text
    assert not shape_of(source).shows_tools


def test_tools_without_a_description_get_one_where_the_template_fails_without() -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    source = "{% for t in tools or [] %}{{ t.function.name + t.function.description }}{% endfor %}" + PLAIN
    assert text_of(source, [user("Hi")], tools) == "look[user]Hi"
    untouched = "{{ tools|tojson }}" + PLAIN
    assert "description" not in text_of(untouched, [user("Hi")], tools)
    assert "Weather of a place" in text_of(source, [user("Hi")], TOOLS)


def test_developer_is_system_where_nobody_knows_it() -> None:
    messages = [{"role": "developer", "content": "Be brief."}, user("Hi")]
    assert text_of(PLAIN, messages) == "[system]Be brief.[user]Hi"
    assert text_of(PLAIN + "{# developer #}", messages) == "[developer]Be brief.[user]Hi"


def test_function_is_the_old_name_of_tool() -> None:
    assert Quirks().messages([{"role": "function", "name": "look", "content": "fog"}])[0]["role"] == "tool"


def test_reasoning_goes_by_the_name_the_template_knows() -> None:
    source = "{% for m in messages %}{{ m.NAME }}{{ m.content }}CALLS{% endfor %}"
    source = source.replace("CALLS", EACH.replace("ARGUMENTS", "{{ c.function.arguments|tojson }}"))
    for name in ("thinking", "reasoning_content"):
        for field in ("reasoning", "reasoning_content"):
            conversation = [user("Why?"), assistant("So.", **{field: "Hmm. "}), user("Oh.")]
            assert text_of(source.replace("NAME", name), conversation) == "Why?Hmm. So.Oh."


def test_an_empty_list_of_calls_is_no_call() -> None:
    assert "tool_calls" not in Quirks().messages([assistant("Hi", tool_calls=[])])[0]


def test_parts_are_joined_as_lines_and_what_is_no_text_is_refused() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert Quirks().messages([{"role": "user", "content": parts}])[0]["content"] == "one\ntwo"
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    with pytest.raises(TemplateError, match=r"messages\[1\].content has a part of type 'image_url'"):
        Quirks().messages([user("Look:"), {"role": "user", "content": [image]}])
    with pytest.raises(TemplateError, match=r"messages\[0\].content is neither"):
        Quirks().messages([{"role": "user", "content": 7}])


def test_what_was_given_is_not_changed() -> None:
    before = repr(CALLS)
    Quirks(short_ids=True, shows_calls=False, shows_results=False, text_as_parts=True).messages(CALLS)
    assert repr(CALLS) == before
    assert result(1, "x")["role"] == "tool"
