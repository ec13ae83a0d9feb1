"""Rounds of a template's loops that are remembered: the same text, and only what is new is run."""

import pytest

from leftoff.chat.template.loops import RoundMemo
from leftoff.chat.template.render import ChatTemplate, MessageDict
from tests.chat.conversations import assistant, user

MESSAGES = [user("one"), assistant("two"), user("three"), assistant("four"), user("five")]


def rendered(
    template: ChatTemplate, messages: list[MessageDict], last: RoundMemo | None = None, **options: object
) -> RoundMemo:
    """Checks that the text is that of a rendering without a memory."""
    memo = RoundMemo(last.texts if last is not None else {})
    memo.add(messages)
    assert template.render(messages, options=options, rounds=memo) == template.render(messages, options=options)
    return memo


PURE = {
    "contents": "{% for m in messages %}{{ m.content }}{% endfor %}",
    "a position": "{% for m in messages %}{{ '[' if loop.first }}{{ m.content }}{% endfor %}",
    "a comparison": "{% set n = namespace(at=1) %}"
    "{% for m in messages %}{{ m.content if loop.index0 > n.at }};{% endfor %}",
    "a macro": "{% macro show(c) %}<{{ c|upper }}{{ bos_token }}>{% endmacro %}"
    "{% for m in messages %}{{ show(m.content) }}{% endfor %}",
    "an inner loop": "{% for m in messages %}{% for c in [1, 2] %}{{ m.content if loop.last }}{% endfor %}{% endfor %}",
    "a variable": "{% for m in messages %}{% set t = m.content|trim %}{{ t }}{% endfor %}",
}


@pytest.mark.parametrize("source", PURE.values(), ids=PURE)
def test_only_new_messages_are_run(source: str) -> None:
    template = ChatTemplate(source)
    first = rendered(template, MESSAGES[:4])
    assert first.num_rendered == 4
    assert rendered(template, MESSAGES, first).num_rendered == 1


def test_what_a_round_depends_on_is_compared() -> None:
    source = "{% for m in messages %}{{ m.content }}{{ ' last' if loop.last }}{{ sign }}{% endfor %}"
    template = ChatTemplate(source)
    first = rendered(template, MESSAGES[:4], sign="!")
    second = rendered(template, MESSAGES, first, sign="!")
    assert second.num_rendered == 2  # the fourth is no longer the last one
    assert rendered(template, MESSAGES, second, sign="?").num_rendered == 5
    assert rendered(template, MESSAGES, second, sign=1).num_rendered == 5
    assert rendered(template, MESSAGES, rendered(template, MESSAGES, sign=1), sign=True).num_rendered == 5


def test_the_message_before_is_an_input() -> None:
    source = "{% for m in messages %}{{ messages[loop.index0 - 1].content != 'two' }}{{ m.content }}{% endfor %}"
    template = ChatTemplate(source)
    first = rendered(template, MESSAGES)
    changed = [MESSAGES[0], assistant("2"), *MESSAGES[2:]]
    assert rendered(template, changed, first).num_rendered == 2


IMPURE = {
    "a counter": "{% set n = namespace(c=0) %}{% for m in messages %}{% set n.c = n.c + 1 %}{{ n.c }}{% endfor %}",
    "the date": "{% for m in messages %}{{ strftime_now('%Y') }}{{ m.content }}{% endfor %}",
    "a break": "{% for m in messages %}{% if m.content == 'four' %}{% break %}{% endif %}{{ m.content }}{% endfor %}",
    "a macro that counts": "{% set n = namespace(c=0) %}{% macro up(c) %}{% set n.c = n.c + 1 %}{{ n.c }}{% endmacro %}"
    "{% for m in messages %}{{ up(m.content) }}{% endfor %}",
    "a macro of two kinds": "{% if add_generation_prompt %}{% macro a(c) %}{{ c }}{% endmacro %}{% else %}"
    "{% macro a(c) %}-{% endmacro %}{% endif %}{% for m in messages %}{{ a(m.content) }}{% endfor %}",
}


@pytest.mark.parametrize("source", IMPURE.values(), ids=IMPURE)
def test_what_does_more_than_write_text_is_always_run(source: str) -> None:
    template = ChatTemplate(source)
    first = rendered(template, MESSAGES)
    assert not rendered(template, [*MESSAGES[1:], user("six")], first).texts


def test_the_whole_list_as_an_input_is_not_remembered() -> None:
    macro = "{% macro a(c, all) %}{{ c }}{{ all|length }}{% endmacro %}"
    source = macro + "{% for m in messages %}{{ a(m.content, messages) }}{% endfor %}"
    template = ChatTemplate(source)
    assert not rendered(template, MESSAGES).texts


def test_a_variable_that_is_read_before_it_is_set_is_an_input() -> None:
    source = "{% set t = sign %}{% for m in messages %}{{ t }}{% set t = m.content %}{{ t }}{% endfor %}"
    template = ChatTemplate(source)
    first = rendered(template, MESSAGES, sign="a")
    assert rendered(template, MESSAGES, first, sign="b").num_rendered == 5


def test_an_input_that_the_template_would_not_have_looked_at_does_no_harm() -> None:
    source = (
        "{% for m in messages %}{{ m.content }}"
        "{% if not loop.last %}{% if messages[loop.index0 + 1].role == 'user' %}.{% endif %}{% endif %}{% endfor %}"
    )
    template = ChatTemplate(source)
    for end in range(1, len(MESSAGES) + 1):
        rendered(template, MESSAGES[:end])
