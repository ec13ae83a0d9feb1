"""A reason in one word, and the very flag that would help."""

import re
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leftoff.chat.diagnosis import explain_difference, suggest
from leftoff.chat.header_rules import Rules
from tests.chat.conversations import system, user

UUIDS = ("3f2a9c81-52ab-4bbb-8ccc-1234567890ab", "8d1b0c77-99ab-4ddd-9eee-abcdef012345")

VOLATILE = [
    ("The current time is ", "2024-05-15 15:00:00 EST.", "2024-05-16 09:30:00 EST."),
    ("The current time is 2024-05-1", "5 15:00:00 EST.", "6 09:30:00 EST."),
    ("The current time is 2024-05-15 15:", "00:00", "01:30"),
    ("Now: ", "2025-01-02T03:04:05Z", "2025-01-02T03:05:41Z"),
    ("Today's date: ", "Mon Mar 3 2025", "Tue Mar 4 2025"),
    ("Date: ", "March 3, 2025", "April 1, 2025"),
    ("Session: ", *UUIDS),
    ("Session: 3f2a9c81-", "52ab-4bbb-8ccc-1234567890ab", "99ab-4bbb-8ccc-1234567890ab"),
    ("The time is ", "9:30, and all is well", "10:15, and nothing is well"),
    ("Git status:\n", "M a.py\n?? b.py\n\nBe kind.", "M c.py\n\nBe kind."),
    ("Git status:\nM a.py\n", "?? b.py\n\nBe kind.", "\nBe kind."),
    ("Recent commits:\n", "1f3a9c8 Begin", "99ab03c End\n1f3a9c8 Begin"),
    ("# Open files\n", "a.py\nb.py", "b.py"),
    ("<files>\nsrc/\n", "a.py\n\nb.py</files>\nMore", "b.py</files>\nMore"),
    ("<env>\nToday's date: ", "2026-11-16\n</env>", "2026-11-17\n</env>"),
    ("Build ", "1f3a9c8d2e", "99ab03c7d1"),
    ("Request number ", "41", "42"),
    ("x-anthropic-billing-header: cc_version=2.1; cch=", "1f3a0;", "99ab1;"),
    ("", "x-anthropic-billing-header: cch=1f3a0;", "x-anthropic-billing-header: cch=99ab1;"),
]


@pytest.mark.parametrize(("shared", "before", "after"), VOLATILE)
def test_a_header_that_changes_by_itself_is_seen_and_the_flag_helps(shared: str, before: str, after: str) -> None:
    assert explain_difference(before, after, True, f"Rules.\n\n{shared}") == "volatile header"
    suggestion = suggest(before, after, f"Rules.\n\n{shared}")
    assert suggestion is not None
    flag, pattern = shlex.split(re.search(r"--\S+ '.*'", suggestion)[0])  # type: ignore[index]
    drop, pin, move = ([pattern] if flag == name else [] for name in ("--drop-header", "--pin", "--move"))
    rules = Rules(drop, pin, move)
    headers = [system(f"Rules.\n\n{shared}{text}\n\nMore rules.") for text in (before, after)]
    ruled = [rules.apply([header, user("Hello")], "").messages for header in headers]
    assert ruled[0] == ruled[1]
    assert "More rules." in str(ruled[0][0]["content"])


@pytest.mark.parametrize(
    ("shared", "before", "after", "rule"),
    [
        ("Today's date: ", "Mon Mar 3 2025", "Tue Mar 4 2025", r"--move 'Today.s date: \w+ \w+ \d+ \d+'"),
        ("It is 2024-05-1", "5 15:00 now", "6 09:30 now", r"--move 'It is \d+-\d+-\d+ \d+:\d+'"),
        ("\n\nOpen files:\n", "a.py", "b.py", r"--move 'Open files:\n(?:[^\n]+(?:\n|\Z))*'"),
        ("<git_status>\n", "a.py", "b.py", r"--move '<git_status>[\s\S]*?</git_status>'"),
        ("Request number ", "41", "42", r"--pin 'Request number [^\n]*'"),
    ],
)
def test_the_rule_is_narrow_and_ready_to_paste(shared: str, before: str, after: str, rule: str) -> None:
    assert rule in (suggest(before, after, f"Rules.{shared}" if shared[0] in "<\n" else shared) or "")


@pytest.mark.parametrize(
    ("before", "after"), [("2024-05-15 15:00", "2024-05-16 09:30"), UUIDS, ("12:30:01 UTC", "12:31:07 UTC")]
)
def test_without_words_before_it_the_thing_itself_is_pinned(before: str, after: str) -> None:
    suggestion = suggest(before, after)
    assert suggestion is not None
    (pattern,) = re.findall(r"--pin '(.*)'", suggestion)
    assert re.fullmatch(pattern, before)
    assert re.fullmatch(pattern, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [("cook", "pilot"), ("You are kind", "Be brief"), ("", "42"), ("41", "forty"), ("41 ships", "42 ships")],
)
def test_a_header_that_somebody_changed_is_edited(before: str, after: str) -> None:
    for shared in ("", "Rules:\n\nYou:\n- ", "<role>\n"):
        assert suggest(before, after, shared) is None
        assert explain_difference(before, after, True, shared) == "edited"


REASONING = [
    ("<|im_start|>assistant\n", "<think>\nLet me see", "The dog is"),
    ("<|im_start|>assistant\n", "<think>\n\n</think>\n\nThe dog is", "The dog is"),
    ("<|assistant|>\n<think>", "Let me see", "</think>\nThe dog is"),
    ("<|im_start|>assistant\n<think>", "\nLet me see", "</think>The dog is"),
    ("<|im_start|>assistant\n<", "think>\nLet me see", "tool_call>"),
    ("", "<think>Let me see", "The dog is"),
    ("", "and so it is.</think>The dog is", "The dog is"),
    ("<|start|>assistant<|channel|>", "analysis<|message|>We need", "final<|message|>The dog is"),
    ("<|start|>assistant", "<|channel|>analysis<|message|>We need", "<|channel|>final<|message|>The dog is"),
    ("<|turn>model\n", "<|channel>thought\nLet me see", "The dog is"),
    ("<|im_start|>assistant\n<think>\nLet me see. ", "It may be", "</think>"),
]


@pytest.mark.parametrize(("shared", "before", "after"), REASONING)
def test_reasoning_that_is_gone_is_seen(shared: str, before: str, after: str) -> None:
    assert explain_difference(before, after, False, shared) == "reasoning dropped"


CALL = '<tool_call>\n{"name": "look", "arguments": '
RENDERED = [
    (CALL, '{"place":"Oslo","days":2}}\n</tool_call>', '{"place": "Oslo", "days": 2}}\n</tool_call>'),
    (CALL + "{", '"days": 2, "place": "Oslo"}}\n</tool_call>', '"place": "Oslo", "days": 2}}\n</tool_call>'),
    ("", '{"a": 1, "b": [1, 2]}', '{"b": [1, 2], "a": 1}'),
    (CALL, '{"days": 2, "place": "Oslo", "unit', '{"place": "Oslo", "days": 2, "unit": "kn'),
    ("On the", " pier, I think.\n\n", "  pier, I think."),
    ("On the pier.", "\n\nAnd more", "\nAnd more"),
    ("<|im_start|>assistant\n<think>", "\n</think>\nThe dog", "\n\n</think>\n\nThe dog"),
]


@pytest.mark.parametrize(("shared", "before", "after"), RENDERED)
def test_the_same_in_another_form_is_seen(shared: str, before: str, after: str) -> None:
    assert explain_difference(before, after, False, shared) == "re-rendered"


@pytest.mark.parametrize(
    ("shared", "before", "after"),
    [
        ("<|im_start|>user\n", "Where is the dog?", "Where is the cat?"),
        (CALL, '{"place": "Oslo", "days": 2}}', '{"place": "Rome", "days": 3}}'),
        ("<|im_start|>assistant\n<think>\nLet me", " see", " think"),
        ("", "", "more"),
        ("<|im_start|>assistant\n<think>", "</think>\nThe dog", "I saw it.</think>The dog"),  # added, not dropped
        ("It is ", "10:00", "11:00"),  # a date in a turn is the user's, not the header's
    ],
)
def test_anything_else_is_edited(shared: str, before: str, after: str) -> None:
    assert explain_difference(before, after, False, shared) == "edited"


@settings(deadline=None, max_examples=200)
@given(before=st.text(max_size=60), after=st.text(max_size=60), shared=st.text(max_size=60), header=st.booleans())
def test_any_text_gets_a_reason(before: str, after: str, shared: str, header: bool) -> None:
    reason = explain_difference(before, after, header, shared)
    assert reason in ("volatile header", "reasoning dropped", "re-rendered", "edited")
    if suggestion := suggest(before, after, shared):
        (pattern,) = re.findall(r"--(?:pin|move|drop-header) '(.*)'", suggestion)
        re.compile(pattern)
