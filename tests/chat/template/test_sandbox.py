"""A template from anywhere reaches nothing, ends, and stays small."""

import threading
from contextlib import suppress

import pytest

from leftoff.chat.template.quirks import find_quirks
from leftoff.chat.template.render import ChatTemplate, TemplateError, TemplateLimitError
from tests.chat.conversations import user

STOPPED = "|".join(
    (
        *("ran for more than", "made more than", "recursion", "too big", "too large", "is the most", "nested more"),
        *("64 bits", "no number", "JSON by more than", "date in more than"),
    )
)
GROWING = "{% set ns = namespace(x=XXX) %}{% for i in range(99) %}{% set ns.x = YYY %}{% endfor %}{{ ns.x ZZZ}}"


def grows(start: str, step: str, end: str = "") -> str:
    return GROWING.replace("XXX", start).replace("YYY", step).replace("ZZZ", end)


def deeper(start: str, step: str, end: str) -> str:
    """A hundred thousand times."""
    return grows(start, step).replace("(99)", "(99999)").replace("{{ ns.x }}", end)


def for_ever(body: str) -> str:
    return "{% for i in range(99999) %}{% for j in range(99999) %}" + body + "{% endfor %}{% endfor %}"


def rendered(source: str, seconds: float = 0.3, characters: int = 4_000_000) -> str:
    template = ChatTemplate(source, seconds=seconds, characters=characters)
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
        "{% import self as me %}{{ me }}",
        "{{ dict.fromkeys('ab') }}",
        "{{ dict.mro() }}",
        "{{ dict.update(messages[0], {'role': 'system'}) }}",
        "{{ dict.pop(messages[0], 'role') }}",
        "{{ (messages|map('upper')).throw(1) }}",
        "{{ (messages|map('upper')).gi_frame.f_globals }}",
        "{{ messages[0].keys().mapping.x }}",
        "{{ messages['app' ~ 'end'](1) }}",
        "{{ (messages|attr('clear'))() }}",
        "{{ 'x'.encode().hex() }}",
        "{{ 'x'.translate({120: 'y'}) }}",
        "{{ (1).to_bytes(3, 'big') }}",
        "{{ (1.5).as_integer_ratio() }}",
        "{{ strftime_now.__globals__.x }}",
        "{{ range.__self__.x }}",
        "{% for x in [1] %}{{ loop._iterator.gi_frame }}{% endfor %}",
        "{% macro m() %}{{ caller.__globals__.x }}{% endmacro %}{% call m() %}{% endcall %}",
        "{% macro m() %}{% endmacro %}{{ m._func.__globals__ }}",
        "{{ nothing._undefined_exception.mro() }}",
        "{{ messages|map(attribute='__init__.__globals__')|list }}",
        "{{ messages|map(attribute='update')|first.x }}",
        "{{ messages|sort(attribute='__class__.__name__') }}",
        "{{ '{0.__class__.__mro__}'.format(messages) }}",
        "{% autoescape true %}{% endautoescape %}",
    ],
)
def test_there_is_no_way_out(source: str) -> None:
    with pytest.raises(TemplateError):
        rendered(source)


def test_a_format_string_reads_no_attributes() -> None:
    for source in (
        "{{ '{0.__class__}'.format(1) }}",
        "{{ '{a.__class__}'.format_map({'a': 1}) }}",
        "{{ ('{0.__class__}'|attr('format'))(1) }}",
        "{{ '{0.__class__}'['format'](1) }}",
        "{{ (['{0.__class__}']|map(attribute='format')|first)(1) }}",
        "{{ ('{0.__class__}'|safe).format(1) }}",
    ):
        assert rendered(source) == ""


def test_what_was_given_is_the_same_afterwards() -> None:
    messages = [{"role": "user", "content": ["a"]}]
    options = {"mine": ["b"]}
    for source in (
        "{{ dict.update(messages[0], {'role': 'system'}) }}",
        "{{ messages[0]['content']['app' ~ 'end'](1) }}",
        "{% set _ = messages[0].content.append(1) %}{% set _ = mine.append(1) %}{{ mine }}",
    ):
        with suppress(TemplateError):
            ChatTemplate(source).render(messages, options=options)
    assert (messages, options) == ([{"role": "user", "content": ["a"]}], {"mine": ["b"]})


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
        grows("7", "ns.x ** 64"),
        grows("7", "ns.x - (0 - ns.x)"),
        "{{ 42|round(1000000000, 'ceil') }}",
        "{{ 42|round(-1000000000) }}",
        "{{ 42|round(precision=1000000000, method='floor') }}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% macro m() %}{{ caller() }}{% endmacro %}"
        "{% macro n() %}{% call m() %}{{ n() }}{% endcall %}{% endmacro %}{{ n() }}",
        for_ever("{{ [i]|map('string')|list }}"),
        "{% set a = 'x' * 999999 %}{% set b = 'x' * 999999 %}{{ a in [b] * 99999 }}",
        "{% set a = 'x' * 999999 %}{% set b = 'x' * 999999 %}{{ ([a, b] * 9999)|sort }}",
        "{% set a = 'x' * 999999 %}{% set b = 'x' * 999999 %}{{ ([a, b] * 9999).index(b ~ 'c') }}",
        "{{ ('a' * 999999).rfind('b' ~ 'a' * 99999) }}",
        "{{ ('a' * 999999)" + "|map(attribute='b', default='c')" * 60 + "|list }}",
        "{{ ('a' * 999999)" + "|map(attribute='b', default='c')" * 9 + "|list }}",
    ],
)
def test_a_template_that_goes_on_for_ever_is_stopped(source: str) -> None:
    with pytest.raises(TemplateError, match=STOPPED):
        rendered(source, seconds=0.05)


@pytest.mark.parametrize("begin", ["[1]", "(1,)"])
@pytest.mark.parametrize(
    "use",
    [
        "{{ ns.x }}",
        "{{ ns.x == ns.y }}",
        "{{ ns.x < ns.y }}",
        "{{ ns.x in [ns.y] }}",
        "{{ ns.x is eq(ns.y) }}",
        "{{ ns.x is in([ns.y]) }}",
        "{{ [ns.x].index(ns.y) }}",
        "{{ [ns.x, ns.y]|sort }}",
        "{{ [ns.x, ns.y]|max }}",
        "{{ [ns.x, ns.y]|unique|list }}",
        "{{ [ns.x]|groupby(0)|list }}",
        "{{ [{'a': ns.x}]|selectattr('a', 'eq', ns.y)|list }}",
        "{{ {ns.x: 1} }}",
        "{{ dict([(ns.x, 1)]) }}",
        "{{ '%s' % [ns.x] }}",
        "{{ '{}'.format(ns.x) }}",
        "{{ '{0[0]!r}'.format(ns.x) }}",
        "{{ ns.x|join }}",
        "{{ ns.x|upper }}",
        "{{ ns.x|safe }}",
        "{{ ns.x|e }}",
        "{{ ns.x|indent }}",
        "{{ ns.x|replace('a', 'b') }}",
        "{{ 'a'|replace('a', ns.x) }}",
        "{{ 'a'|default(ns.x)|trim }}{{ ns.x|trim }}",
        "{{ ns.x ~ 'a' }}",
        "{{ {'a': ns.x}.values() }}{{ {'a': ns.x}.items() }}",
        "{{ namespace(a=ns.x) }}",
        "{{ [namespace(a=ns.x)]|string }}",
        "{% set m = namespace(unsafe_callable=true, x=ns.x) %}{{ m() }}{{ m }}",
    ],
)
def test_a_small_value_that_is_endless_when_walked_through_is_not(begin: str, use: str) -> None:
    """x = [x, x], 99 times: 99 small lists, and 2 ** 99 numbers to compare, print or hash."""
    both = ("[ns.x, ns.x]", "[ns.y, ns.y]") if begin == "[1]" else ("(ns.x, ns.x)", "(ns.y, ns.y)")
    loop = f"{{% for i in range(99) %}}{{% set ns.x = {both[0]} %}}{{% set ns.y = {both[1]} %}}{{% endfor %}}"
    with pytest.raises(TemplateError, match=f"{STOPPED}|unhashable|not callable"):
        rendered(f"{{% set ns = namespace(x={begin}, y={begin}) %}}{loop}{use}", characters=400_000)


@pytest.mark.parametrize(
    "source",
    [
        deeper("(1,)", "((((ns.x,),),),)", "{{ {ns.x: 1} }}"),
        deeper("[1]", "[[[[ns.x]]]]", "{{ ns.x == [ns.x] }}"),
        "{% macro m() %}{{ m(varargs) }}{% endmacro %}{{ m(1) }}",
        "{% set x = [] %}{% set _ = x.append(x) %}{{ x }}{{ x|tojson }}",
        deeper("1", "cycler(ns.x).items", "{{ {ns.x: 1} }}"),
    ],
)
def test_depth_is_an_error_and_not_the_end_of_the_process(source: str) -> None:
    """Python's own hash of a tuple of tuples goes down without looking, and ends in a segmentation fault."""
    with pytest.raises(TemplateError, match=f"{STOPPED}|is undefined"):
        ChatTemplate(source).render([user("Hello")])


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
        "{% macro m() %}{% for i in range(9999) %}" + "x" * 999 + "{% endfor %}{% endmacro %}{% set s = m() %}",
        "{% for a in ['x' * 9999] * 9999 %}{{ loop|join }}{% endfor %}",
        grows("'x'", "ns.x + ns.x"),
        "{% set s = 'x' * 999999 %}{{ s" + " + s" * 999 + " }}",
        grows("'x'", "ns.x ~ ns.x"),
        grows("[1]", "ns.x + ns.x"),
        grows("[1]", "[ns.x, ns.x]"),
        grows("[1]", "[ns.x, ns.x]", "|tojson"),
        grows("[1]", "[ns.x, ns.x]", "|string"),
        grows("[1]", "{'a': ns.x, 'b': ns.x}", "~ 'x'"),
        "{{ '%(a)1000000000d' % {'a': 1} }}",
        "{{ ('%(a)s' * 9999) % {'a': 'x' * 9999} }}",
        "{{ ('%s' * 9999) % (('x' * 9999,) * 9999) }}",
        "{{ ('%999d' * 9999) % ((1,) * 9999) }}",
        "{{ ('{0}' * 9999).format('x' * 9999) }}",
        "{{ ('{0:999}' * 9999).format(1) }}",
        "{{ ('{a}' * 9999).format_map({'a': 'x' * 9999}) }}",
        "{{ ('x'|safe).ljust(10000000000) }}",
        "{{ ('x'|e).center(10000000000) }}",
        "{{ '\t'.expandtabs(tabsize=1000000000) }}",
        "{{ 'x'|indent(width=10000000000, first=true) }}",
        "{{ ('\nx' * 9999)|indent('x' * 9999) }}",
        "{{ ('\nx' * 99999)|indent('x' * 99) }}",
        "{{ ('x' * 9999)|replace(old='x', new='y' * 9999) }}",
        "{{ ('x' * 9999)|join(d='y' * 9999) }}",
        "{{ ''.join(['x' * 9999] * 9999) }}",
        "{{ ''.join(range(9999)|map('replace', '', 'x' * 9999)) }}",
        "{{ (['x' * 9999] * 9999)|join }}",
        "{{ ([{'a': 'x' * 9999}] * 9999)|join(attribute='a') }}",
        "{{ ([[1] * 9999] * 9999)|sum(start=[]) }}",
        "{{ ([0] * 9999)|tojson(separators=('x' * 9999, ':')) }}",
        "{% set ns = namespace(x=[1] * 999) %}{% for i in range(150) %}{% set ns.x = [ns.x] %}{% endfor %}"
        "{{ ([ns.x] * 9)|tojson(indent=16) }}",
        "{{ ('\x01' * 999999)|tojson }}",
        "{{ ('[' ~ '[],' * 99999 ~ '[]]')|from_json }}",
        "{{ ('ab,' * 99999).split(',') }}",
        "{{ ('ab\r' * 99999).splitlines() }}",
        "{{ ('x' * 999999)|list }}",
        "{{ strftime_now('%c' * 999999) }}",
        "{% set x = [] %}" + for_ever("{% set _ = x.append([]) %}"),
        "{% set x = [1] %}{% for i in range(99) %}{% set _ = x.extend(x) %}{% endfor %}",
        "{% set s = 'x' * 999999 %}" + "".join(f"{{% set a{i} = s[{i}:] %}}" for i in range(9)),
        "{% macro m() %}" + for_ever("{{ i }}") + "{% endmacro %}{{ m() }}",
        "{% set x %}" + for_ever("x") + "{% endset %}",
        "{% filter replace('x', 'y' * 9999) %}{{ 'x' * 9999 }}{% endfilter %}",
    ],
)
def test_a_template_that_would_fill_the_memory_is_stopped(source: str) -> None:
    with pytest.raises(TemplateError, match=STOPPED):
        rendered(source)


def test_the_error_says_that_it_is_the_models_template_and_is_short() -> None:
    with pytest.raises(TemplateLimitError, match="the model's chat template was stopped: it made more than 4,000,000"):
        rendered("{{ 'x' * 5000000 }}")
    for source in ("{{ raise_exception('x' * 999999) }}", "{{ {}['x' * 999999].y }}"):
        with pytest.raises(TemplateError) as raised:
            rendered(source)
        assert len(str(raised.value)) < 700


@pytest.mark.parametrize(
    "source",
    [
        "{{ " + "9" * 5000 + " }}",
        "{{ " + "(" * 20000 + "1" + ")" * 20000 + " }}",
        "{{ " + "not " * 20000 + "1 }}",
        "{% if a %}" * 3000 + "{% endif %}" * 3000,
        "{% for a in b %}" * 30 + "{% endfor %}" * 30,
        "{% if a %}" + "{% elif a %}" * 7000 + "{% endif %}",
        "x" * 300_000,
    ],
)
def test_a_template_that_cannot_be_compiled_is_an_error_of_ours(source: str) -> None:
    with pytest.raises(TemplateError, match=r"the chat template (cannot be parsed|has 300,000 characters)"):
        ChatTemplate(source)


def test_a_hostile_template_is_refused_at_once_when_its_form_is_looked_for() -> None:
    """It would be stopped in each of a dozen trials, and then at every request."""
    template = ChatTemplate(
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", seconds=0.1
    )
    with pytest.raises(TemplateLimitError):
        find_quirks(template)


def test_constants_are_not_computed_when_the_template_is_read() -> None:
    template = ChatTemplate("{% if nothing %}{{ 'x' * 10000000000 }}{{ 7 ** 10000000000 }}{% endif %}fine")
    assert template.render([]) == "fine"


@pytest.mark.parametrize(
    "name", ["center", "batch", "slice", "format", "random", "striptags", "urlencode", "wordcount"]
)
def test_filters_that_no_template_needs_are_not_there(name: str) -> None:
    with pytest.raises(TemplateError, match=f"No filter named '{name}'"):
        ChatTemplate("{{ 'x'|" + name + "(3) }}")


def test_filters_may_be_chained_and_a_loop_handed_to_a_macro() -> None:
    assert rendered(grows("[1]", "ns.x|map('string')", "|list")) == "['1']"
    macro = "{% macro m(x, loop) %}{{ x }}{{ loop.index }}{% endmacro %}"
    assert rendered(macro + "{% for x in 'ab' %}{{ m(x, loop) }}{% endfor %}") == "a1b2"


def test_every_rendering_has_its_own_budget() -> None:
    template = ChatTemplate("{{ 'x' * 600 }}", characters=1500)
    texts: list[str] = []
    threads = [threading.Thread(target=lambda: texts.append(template.render([]))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == ["x" * 600] * 8
