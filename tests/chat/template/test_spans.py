"""Messages are found in templates that look closely, turn things round, or leave them out."""

import pytest

from leftoff.chat.template.render import ChatTemplate, MessageDict
from leftoff.chat.template.spans import MARK, Rendered, render_with_spans
from tests.chat.conversations import assistant, system, user

CONVERSATION = [system("Rules."), user("First?"), assistant("One."), user("Second?")]
PLAIN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[go]{% endif %}"


def rendered(source: str, messages: list[MessageDict] = CONVERSATION) -> Rendered:
    template = ChatTemplate(source)
    return render_with_spans(messages, lambda some, prompt: template.render(some, add_generation_prompt=prompt))


def found(result: Rendered) -> dict[int, str]:
    return {span.index: result.text[span.start : span.end] for span in result.spans}


def test_each_message_has_its_words_and_those_of_the_template_after_it() -> None:
    result = rendered(PLAIN)
    assert found(result) == {0: "Rules.[user]", 1: "First?[assistant]", 2: "One.[user]", 3: "Second?"}
    assert result.text.endswith("Second?[go]")


def test_words_in_another_order_are_found_where_they_are() -> None:
    result = rendered("{% for m in messages[1:] %}<{{ m.content }}{% endfor %}<{{ messages[0].content }}")
    assert [span.index for span in result.spans] == [1, 2, 3, 0]


def test_words_that_are_left_out_have_no_span() -> None:
    result = rendered("{% for m in messages if m.role == 'user' %}{{ m.content }};{% endfor %}")
    assert found(result) == {1: "First?;", 3: "Second?;"}


def test_words_that_come_twice_begin_where_they_come_first() -> None:
    result = rendered("{{ messages[-1].content }}|{% for m in messages %}{{ m.content }}{% endfor %}")
    assert result.spans[0].index == 3
    assert result.spans[0].start == 0


@pytest.mark.parametrize(
    "question",
    ["m.content.startswith('First')", "m.content.endswith('ond?')", "m.content|length == 7", "m.content == 'One.'"],
)
def test_a_template_that_looks_at_the_content_is_not_misled(question: str) -> None:
    source = "{% for m in messages %}{% if QUESTION %}!!!{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    result = rendered(source.replace("QUESTION", question))
    starts = {span.index: span.start for span in result.spans}
    assert starts[1] == result.text.index("First?")
    assert starts[3] == result.text.index("Second?")


def test_equal_messages_are_kept_apart() -> None:
    source = "{% for m in messages %}{% if m == messages[-1] %}!{% endif %}[{{ m.content }}]{% endfor %}"
    result = rendered(source, [user("again"), assistant("no"), user("again")])
    assert result.text == "![again][no]![again]"
    assert [(span.index, span.start) for span in result.spans] == [(0, 2), (1, 9), (2, 14)]


def test_the_marks_of_others_do_no_harm() -> None:
    strange = f"a{MARK}\U00100000b{MARK}"
    result = rendered(PLAIN, [system("Rules."), user(strange), assistant("One."), user("Second?")])
    starts = {span.index: span.start for span in result.spans}
    assert starts[1] == result.text.index(strange)
    assert starts[3] == result.text.index("Second?")
    assert strange in result.text


def test_a_last_message_that_is_another_without_the_prompt() -> None:
    source = (
        "{% for m in messages %}[{{ m.content }}"
        "{% if loop.last and m.role == 'assistant' and not add_generation_prompt %}END{% else %}]{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}[go]{% endif %}"
    )
    assert rendered(source, [user("First?"), assistant("One.")]).spans[-1].end == len("[First?][One.]")


def test_the_reasoning_is_part_of_its_message() -> None:
    source = "{% for m in messages %}<{{ m.role }}>{{ m.reasoning_content }}|{{ m.content }}{% endfor %}"
    result = rendered(source, [user("Why?"), assistant("So.", reasoning_content="Hmm")])
    assert found(result)[1] == "Hmm|So."
