"""A template from anywhere reaches nothing, ends, and stays small."""

import threading

import pytest

from leftoff.chat.template import ChatTemplate, TemplateError
from tests.chat.conversations import user

GROWING = "{% set ns = namespace(x=XXX) %}{% for i in range(99) %}{% set ns.x = YYY %}{% endfor %}{{ ns.x ZZZ}}"


def grows(start: str, step: str, end: str = "") -> str:
    return GROWING.replace("XXX", start).replace("YYY", step).replace("ZZZ", end)


def rendered(source: str) -> str:
    template = ChatTemplate(source, seconds=0.3, characters=4_000_000)
    return template.render([user("Hello")])


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__class__.__base__ }}",
        "{{ (''|attr('__class__')).__mro__ }}",
        "{{ raise_exception.__globals__.keys() }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ messages[0].update({'role': 'system'}) }}",
        "{{ messages[0].clear() }}",
        "{{ [].sort.__self__.__class__.__subclasses__() }}",
        "{{ self.__init__.__globals__ }}",
        "{% import 'os' as os %}{{ os }}",
    ],
)
def test_there_is_no_way_out(source: str) -> None:
    with pytest.raises(TemplateError):
        rendered(source)


def test_a_format_string_reads_no_attributes() -> None:
    for source in ("{{ '{0.__class__}'.format(1) }}", "{{ '{a.__class__}'.format_map({'a': 1}) }}"):
        assert "class" not in rendered(source)


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) if false %}{% endfor %}{% endfor %}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
        "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
        "{% set x = [] %}{% for i in range(9999) %}{% for j in range(9999) %}{{ x.append(j) }}{% endfor %}{% endfor %}",
        "{{ range(1000000000)|list }}",
        "{{ 7 ** 10000000000 }}",
        grows("7", "ns.x * ns.x"),
    ],
)
def test_a_template_that_goes_on_for_ever_is_stopped(source: str) -> None:
    with pytest.raises(TemplateError, match=r"ran for more than|recursion|too big|too large|made more"):
        rendered(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x' * 10000000000 }}",
        "{{ 10000000000 * [1] }}",
        "{{ '%10000000000d' % 1 }}",
        "{{ '%*d' % (10000000000, 1) }}",
        "{{ '{:10000000000}'.format(1) }}",
        "{{ '{:{w}}'.format(1, w=10000000000) }}",
        "{{ 'x'.ljust(10000000000) }}",
        "{{ 'x'.zfill(10000000000) }}",
        "{{ '\t'.expandtabs(10000000000) }}",
        "{{ 'x'|indent(10000000000, true) }}",
        "{% set s = 'x' * 9999 %}{{ s.replace('x', s) }}",
        "{% set s = 'x' * 9999 %}{{ s|replace('x', s) }}",
        "{% set s = 'x' * 9999 %}{{ s.join(s) }}",
        "{% set s = 'x' * 9999 %}{{ s|join(s) }}",
        "{% for i in range(9999) %}{{ 'x' * 999 }}{% endfor %}",
        "{% macro m() %}{% for i in range(9999) %}{{ 'x' * 999 }}{% endfor %}{% endmacro %}{% set s = m() %}",
        "{% set s %}{% for i in range(9999) %}{{ 'x' * 999 }}{% endfor %}{% endset %}",
        grows("'x'", "ns.x + ns.x"),
        grows("'x'", "ns.x ~ ns.x"),
        grows("[1]", "ns.x + ns.x"),
        grows("[1]", "[ns.x, ns.x]"),
        grows("[1]", "[ns.x, ns.x]", "|tojson"),
        grows("[1]", "[ns.x, ns.x]", "|string"),
        grows("[1]", "{'a': ns.x, 'b': ns.x}", "~ 'x'"),
    ],
)
def test_a_template_that_would_fill_the_memory_is_stopped(source: str) -> None:
    with pytest.raises(TemplateError, match=r"made more than|ran for more than|width that is too large"):
        rendered(source)


def test_constants_are_not_computed_when_the_template_is_read() -> None:
    template = ChatTemplate("{% if nothing %}{{ 'x' * 10000000000 }}{{ 7 ** 10000000000 }}{% endif %}fine")
    assert template.render([]) == "fine"


@pytest.mark.parametrize("name", ["center", "batch", "slice", "format", "random"])
def test_filters_that_no_template_needs_are_not_there(name: str) -> None:
    with pytest.raises(TemplateError, match=f"No filter named '{name}'"):
        ChatTemplate("{{ 'x'|" + name + "(3) }}")


def test_every_rendering_has_its_own_budget() -> None:
    template = ChatTemplate("{{ 'x' * 600 }}", characters=1500)
    texts: list[str] = []
    threads = [threading.Thread(target=lambda: texts.append(template.render([]))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == ["x" * 600] * 8
