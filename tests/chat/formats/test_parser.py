"""Whatever the pace at which text comes, the parts say the same: nothing lost, repeated or out of order."""

import json
import re
import sys
import time
from collections.abc import Callable, Collection
from functools import cache
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from leftoff.chat.formats.parser import Output
from leftoff.chat.formats.parts import CallArguments, ParsedReply, join_parts
from tests.chat.formats.forms import BARE, FORMATS, TOOL, Reply, cut, in_order, merged, parse, read, written

few = settings(deadline=None, max_examples=25)
every_format = pytest.mark.parametrize("name", FORMATS)
sizes = st.lists(st.integers(1, 9), min_size=1, max_size=8) | st.just([1])

# Full of what markers are made of, and never one of them, such as Gemma's quote.
texts = st.text("ab<>/{}[]()|\"'\\ \n\t🙂=:;,", max_size=30).filter(lambda text: '<|"|>' not in text)
words = texts.map(str.strip)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts, lambda inner: st.lists(inner, max_size=3), max_leaves=4
)
arguments = st.fixed_dictionaries(
    {},
    optional={
        "place": texts,
        "note": texts.filter(lambda text: text.strip() != "null") | st.none(),
        "days": st.integers(),
        "exact": st.booleans(),
        "options": st.dictionaries(st.text("ab", min_size=1), json_values, max_size=3),
    },
)
calls = st.lists(st.tuples(st.just("look_up"), arguments), max_size=3).map(tuple)


@every_format
def test_a_call_that_is_cut_off_is_no_content(name: str) -> None:
    """Wherever it is cut off behind its trigger. Without a trigger it may be any JSON, until its arguments begin."""
    call = written(name, Reply(calls=(("look_up", {"place": "harbour", "days": 3}),)))
    trigger = FORMATS[name].trigger
    begin = len(trigger) if name not in BARE else call.index("{", 1) + 1
    for end in range(begin, call.rindex("3")):
        said = join_parts(parse(Output(FORMATS[name], [TOOL]), [call[:end]], is_cut=True))
        assert said.content == "", call[:end]
    told = join_parts(parse(Output(FORMATS[name], [TOOL]), [f"It is {trigger or call[:4]}"]))
    assert told.content == f"It is {trigger or call[:4]}" or name == "harmony", "the model ended it so"


@every_format
@few
@given(reasoning=words, content=words, calls=calls, sizes=sizes)
def test_what_is_written_is_read(
    name: str, reasoning: str, content: str, calls: tuple[tuple[str, dict[str, Any]], ...], sizes: list[int]
) -> None:
    reply = Reply(reasoning, "" if name == "llama" and calls else content, calls)
    parts = parse(Output(FORMATS[name], [TOOL]), cut(written(name, reply), sizes))
    said = join_parts(parts)
    assert (said.reasoning, said.content) == (reply.reasoning, reply.content)
    assert [call.name for call in said.calls] == [call[0] for call in reply.calls]
    assert [json.loads(call.arguments) for call in said.calls] == [call[1] for call in reply.calls]


@cache
def noise(name: str) -> st.SearchStrategy[list[str]]:
    """Markers, halves of them, calls and halves of them, white space, and letters that no marker has."""
    output_format = FORMATS[name]
    thinking, syntax = output_format.reasoning, output_format.syntax
    tags = [*output_format.markers, syntax.begin, syntax.before_name, syntax.after_name, syntax.after_arguments]
    tags += [syntax.between, syntax.end]
    tags += [thinking.begin, thinking.end] if thinking else ["<|start|>assistant", "<|channel|>analysis<|message|>"]
    if syntax.parameter:
        tags += [syntax.parameter.before_key, syntax.parameter.after_key, syntax.parameter.after_value]
    tags = [tag for tag in tags if tag and tag != "[CALL_ID]"]  # an id is a part of the syntax: it is never said
    halves = [half for tag in tags for half in (tag[: len(tag) // 2], tag[len(tag) // 2 :])]
    call = written(name, Reply("", "", (("look_up", {"place": "@", "days": 3, "note": "@\n@"}),)))
    cuts = st.integers(0, len(call))
    one = st.one_of(
        st.sampled_from([*tags, *filter(None, halves), *("@", "@@", " @", "\n", " ", "{", '"', "}") * 2]),
        st.just(call),
        cuts.map(lambda at: call[:at]),
        cuts.map(lambda at: call[at:]),
    )
    return st.lists(one, max_size=14)


def numbered(text: str) -> str:
    """Every @ as a letter that is nowhere else, so that none can be missed or said twice unseen."""
    letters = iter(range(0x4E00, 0x9FFF))
    return re.sub("@", lambda _: chr(next(letters)), text)


_ADDRESSED = re.compile(r"to=([\w.:/-]+)")  # to whom a message is, as its header says: told only if it is a call


def _letters(text: str, besides: Collection[str] = ()) -> str:
    return "".join(letter for letter in re.findall("[\u4e00-\u9fff]", text) if letter not in besides)


@every_format
@settings(deadline=None, max_examples=60)
@given(data=st.data(), sizes=sizes, one_call=st.booleans(), splits=st.booleans())
def test_nothing_is_lost_whatever_comes(
    name: str, data: st.DataObject, sizes: list[int], one_call: bool, splits: bool
) -> None:
    text = numbered("".join(data.draw(noise(name))))
    output = Output(FORMATS[name], [TOOL], splits_reasoning=splits, one_call=one_call)
    whole, pieces = parse(output, [text]), parse(output, cut(text, sizes))
    assert merged(pieces) == merged(whole)
    said = _letters(in_order(pieces))
    addressed = "".join(_ADDRESSED.findall(text)) if name == "harmony" else ""
    letters = _letters(text, {*addressed} - {*said})
    assert letters.startswith(said) if one_call else said == letters
    if not splits and name != "harmony" and not join_parts(pieces).calls:
        assert join_parts(pieces) == ParsedReply(text)


@every_format
@few
@given(text=st.text(max_size=60) | texts, sizes=sizes)
def test_plain_text_is_content(name: str, text: str, sizes: list[int]) -> None:
    assume(not any(marker in text for marker in FORMATS[name].markers))
    assert join_parts(parse(Output(FORMATS[name], [TOOL]), cut(text, sizes))) == ParsedReply(text)


@every_format
def test_without_tools_a_call_is_content(name: str) -> None:
    text = written(name, Reply("", "", (("look_up", {"place": "harbour"}),)))
    said = read(Output(FORMATS[name]), text)
    assert said.calls == ()
    assert '"place": "harbour"' in said.content if name == "harmony" else said.content == text


@every_format
def test_arguments_come_piece_by_piece(name: str) -> None:
    place = "a long way down to the harbour " * 20
    text = written(name, Reply("", "", (("look_up", {"place": place}),)))
    parser = Output(FORMATS[name], [TOOL]).parser()
    longest_wait = waited = 0
    for letter in text:
        parts = [part for part in parser.push(letter) if isinstance(part, CallArguments)]
        waited = 0 if parts else waited + 1
        longest_wait = max(longest_wait, waited)
    assert longest_wait < 120, "what may be the head of a call, and no more"


@every_format
def test_only_so_much_is_held_back(name: str) -> None:
    """What begins like a call and never becomes one."""
    text = written(name, Reply("", "", (("look_up", {}),)))
    begin = text[: text.index("look_up")] + "x" * 100_000
    parser = Output(FORMATS[name], [TOOL]).parser()
    said = sum(len(in_order(parser.push(piece))) for piece in cut(begin, [7]))
    assert said > 80_000
    assert said + len(in_order(parser.close())) >= 100_000


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in BARE])
def test_one_call_ends_the_reply(name: str) -> None:
    reply = Reply("", "", (("look_up", {"place": "harbour"}), ("look_up", {"place": "hill"})))
    parser = Output(FORMATS[name], [TOOL], one_call=True).parser()
    parts = parser.push(written(name, reply))
    assert parser.is_over
    assert join_parts(parts).calls == reply.said.calls[:1]
    assert parser.push("and more") == parser.close() == ()


def test_a_parser_is_quick() -> None:
    """A token takes a few calls, and no longer at the end of a long reply than at its beginning."""
    parser = Output(FORMATS["hermes"], [TOOL]).parser()

    def push_some() -> None:
        for _ in range(200):
            parser.push(" word")

    assert num_calls(push_some) < 200 * 40
    costs_s = [thread_seconds(push_some) for _ in range(100)]
    assert min(costs_s[-10:]) < 3 * min(costs_s[:10])


def num_calls(do: Callable[[], None]) -> int:
    """How many functions are called, Python's and C's."""
    events: list[str] = []
    sys.setprofile(lambda _frame, event, _function: events.append(event))
    try:
        do()
    finally:
        sys.setprofile(None)
    return sum(event in ("call", "c_call") for event in events)


def thread_seconds(do: Callable[[], None]) -> float:
    """Of computing: what else the machine does is not counted."""
    began = time.thread_time()
    do()
    return time.thread_time() - began


def test_half_a_character_is_no_name_of_a_tool() -> None:
    text = '<tool_call>\n{"name": "look\\ud800up", "arguments": {}}\n</tool_call>'
    said = join_parts(parse(Output(FORMATS["hermes"], [TOOL]), [text]))
    assert said.calls == ()
    assert said.content == text
