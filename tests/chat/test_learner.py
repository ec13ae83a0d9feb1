"""The server learns what changes in a client's header, for that tenant, and unlearns what was wrong."""

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from leftoff.chat import learner as learner_module
from leftoff.chat.conversation import Conversation
from leftoff.chat.header_rules import Applied, Rules
from leftoff.chat.learner import Learner
from leftoff.chat.template.render import MessageDict, ToolDict
from leftoff.disk.headers import HeaderFiles
from tests.chat.conversations import TOOLS, assistant, result, system, user

RULES = "".join(f"Rule {number}: keep lamp number {number} lit.\n" for number in range(60))


def header(mood: str) -> str:
    return f"You are a pilot.\n\nMood: {mood}\n\n{RULES}"


def ask(
    learner: Learner, text: str, *others: MessageDict, namespace: str = "", tools: Sequence[ToolDict] = ()
) -> Applied:
    messages = [system(text), *(others or [user(text[:60])])]
    return learner.apply(Applied(messages), Conversation(messages, tools, namespace=namespace))


def taught(files: HeaderFiles | None = None, namespace: str = "") -> Learner:
    learner = Learner(files)
    for mood in ("calm", "wild"):
        ask(learner, header(mood), namespace=namespace)
    return learner


def moves(learner: Learner) -> int:
    return len(learner.moves(lambda _: True))


def test_the_second_conversation_teaches_and_has_its_own_text(caplog: pytest.LogCaptureFixture) -> None:
    learner = Learner()
    with caplog.at_level(logging.INFO, "leftoff.requests"):
        first, second, third, same = (ask(learner, header(mood)) for mood in ("calm", "wild", "mild", "mild"))
    assert (first.moved, second.moved, third.moved) == ((), ("Mood: wild\n",), ("Mood: mild\n",))
    assert second.messages[0] == third.messages[0] == system(header("x").replace("Mood: x\n", ""))
    assert same == third
    assert [str(note).partition(":")[0] for note in second.notes] == ["volatile header", "moved 1 learned text"]
    assert [str(note) for note in third.notes] == ["moved 1 learned text"]
    (line,) = (record.getMessage() for record in caplog.records)
    assert "after 'You are a pilot.'" in line


def test_off_it_moves_nothing_and_says_where_it_would_help() -> None:
    learner = Learner(is_on=False)
    applied = [ask(learner, header(mood)) for mood in ("calm", "wild", "wild")]
    assert [each.moved for each in applied] == [(), (), ()]
    assert [[str(note) for note in each.notes] for each in applied] == [
        [],
        ["volatile header: --move learn would put the lines that change behind the header"],
        [],
    ]


def test_no_tenant_is_taught_by_another() -> None:
    learner = Learner()
    for namespace, mood in (("ann/", "calm"), ("bob/", "wild"), ("ann/salt", "mild"), ("", "glad")):
        assert ask(learner, header(mood), namespace=namespace).moved == ()
    learner = taught(namespace="ann/")
    for namespace in ("bob/", "ann/salt", ""):
        assert ask(learner, header("mild"), namespace=namespace).moved == ()
    assert ask(learner, header("mild"), namespace="ann/").moved == ("Mood: mild\n",)


def test_clients_with_other_tools_or_messages_do_not_teach_each_other() -> None:
    learner = Learner()
    ask(learner, header("calm"), tools=TOOLS)
    assert ask(learner, header("wild"), tools=TOOLS[:1]).moved == ()
    messages = [system(header("mild")), system("Be kind."), user("hi")]
    assert learner.apply(Applied(messages), Conversation(messages, TOOLS)).moved == ()
    assert moves(learner) == 0


def test_another_agent_with_the_same_beginning_is_left_alone() -> None:
    learner = taught()
    other = header("mild").replace("keep lamp", "mend lamp")
    assert ask(learner, other).messages[0] == system(other)
    assert ask(learner, header("mild") + "Be kind.\n").moved == ()


def test_agents_that_take_turns_each_keep_their_header(caplog: pytest.LogCaptureFixture) -> None:
    learner = taught()
    ask(learner, header("calm"))
    with caplog.at_level(logging.INFO, "leftoff.requests"):
        assert ask(learner, header("wild")).moved == ()
    assert "take turns" in caplog.text
    for mood in ("calm", "mild", "glad"):
        assert ask(learner, header(mood)).moved == (), "it is not learned again"


def test_what_changes_within_a_conversation_is_unlearned() -> None:
    learner = taught()
    turns = [user("hi"), assistant("Hello."), user("Go on.")]
    assert ask(learner, header("m0"), *turns[:1]).moved
    for mood in ("m0", "m0", "m1", "m1"):
        assert ask(learner, header(mood), *turns).moved == (f"Mood: {mood}\n",), "once it may"
    applied = ask(learner, header("m2"), *turns, assistant("Yes."), user("And?"))
    assert applied.messages[0] == system(header("m2")), "the model sees what is so now"
    assert moves(learner) == 0
    assert ask(learner, header("other")).moved == ()


def test_what_is_wrong_for_one_salt_may_be_right_for_another() -> None:
    learner = taught(namespace="ann/")
    (move,) = learner.moves(lambda _: True)
    learner.refuse(move.name, lambda _: True)
    for mood in ("calm", "wild"):
        applied = ask(learner, header(mood), namespace="ann/salt")
    assert applied.moved == ("Mood: wild\n",)


def test_more_is_learned_later_and_a_conversation_keeps_what_it_began_with() -> None:
    def at_dawn(hour: int, mood: str) -> str:
        return header(mood).replace("Rule 30:", f"It is {hour}.\nRule 30:")

    learner = Learner()
    for mood in ("calm", "wild", "mild"):
        ask(learner, at_dawn(6, mood), user(mood))
    assert ask(learner, at_dawn(7, "glad"), user("glad")).moved == ("Mood: glad\n", "It is 7.\n")
    assert ask(learner, at_dawn(6, "sad"), user("sad")).moved == ("Mood: sad\n", "It is 6.\n"), "more is moved"
    going_on = ask(learner, at_dawn(6, "mild"), user("mild"), assistant("Hi."), user("Go on."))
    assert going_on.moved == ("Mood: mild\n",)


def test_a_place_that_is_empty_gives_no_text() -> None:
    learner = taught()
    for empty in (header("x").replace("Mood: x\n", ""), header("x").replace("Mood: x\n", "\n\n")):
        applied = ask(learner, empty)
        assert (applied.messages[0], applied.moved, applied.notes) == (system(empty), (), ())


def test_a_header_without_the_text_says_nothing_of_its_values() -> None:
    """As it is prewarmed, each time the server starts."""
    learner = taught()
    rest = ask(learner, header("wild")).messages
    for _ in range(5):
        learner.apply(Applied(rest), Conversation(rest))
        assert ask(learner, header("wild")).moved == ("Mood: wild\n",)
    (move,) = learner.moves(lambda _: True)
    move.changed_at -= 15 * 86_400
    learner.apply(Applied(rest), Conversation(rest))
    assert moves(learner) == 1


def test_nothing_is_learned_from_what_was_deleted() -> None:
    learner = Learner()
    ask(learner, header("calm"))
    learner.forget(lambda _: True)
    assert ask(learner, header("wild")).moved == ()


def test_conversations_side_by_side_with_the_same_words_are_not_one_that_changes() -> None:
    learner = taught()
    moods = [f"m{number}" for number in range(5)]
    for mood in moods:
        ask(learner, header(mood), user("hi"))
    for reply in ("Hello.", "Yes."):
        for mood in moods:
            assert ask(learner, header(mood), user("hi"), assistant(reply), user("Go on.")).moved == (
                f"Mood: {mood}\n",
            )


def test_a_line_that_was_edited_once_returns_to_the_header(tmp_path: Path) -> None:
    learner = taught(HeaderFiles(tmp_path))
    assert ask(learner, header("wild")).moved
    (move,) = learner.moves(lambda _: True)
    move.changed_at -= 15 * 86_400
    assert ask(learner, header("wild")).moved == ()
    assert [*(tmp_path / "headers").iterdir()] == []
    assert ask(learner, header("mild")).moved, "it is learned again if it changes again"


def test_a_conversation_that_began_before_keeps_its_header() -> None:
    learner = Learner()
    ask(learner, header("calm"), user("hi"))
    assert ask(learner, header("wild"), user("hello")).moved
    assert ask(learner, header("calm"), user("hi"), assistant("Hi."), user("Go on.")).moved == ()
    assert ask(learner, header("wild"), user("hello"), assistant("Hi."), user("Go on.")).moved == ("Mood: wild\n",)


def test_only_system_messages_at_the_beginning_are_read() -> None:
    learner = Learner()
    for mood in ("calm", "wild", "mild"):
        others = [user(header(mood)), assistant("Yes."), result(1, header(mood)), system(header(mood)), user("Go on.")]
        applied = ask(learner, "Be kind.", *others)
        assert applied.messages[1:] == others
        messages = [user(header(mood))]
        assert learner.apply(Applied(messages), Conversation(messages)).messages == messages
        alone = [system(header(mood))]
        assert learner.apply(Applied(alone), Conversation(alone)).messages == alone, "there is no place to move it to"
    assert moves(learner) == 0


def test_parts_of_a_message_are_texts_of_their_own() -> None:
    learner = Learner()

    def parts(mood: str) -> list[MessageDict]:
        texts = ["You are a pilot.", f"Mood: {mood}\n{RULES}"]
        return [{"role": "system", "content": [{"type": "text", "text": text} for text in texts]}, user(mood)]

    applied = [learner.apply(Applied(parts(mood)), Conversation(parts(mood))) for mood in ("calm", "wild", "mild")]
    assert applied[2].moved == ("Mood: mild\n",)
    assert applied[2].messages[0] == applied[1].messages[0]
    assert applied[2].messages[0]["content"][0] == parts("x")[0]["content"][0]


def test_rules_come_first() -> None:
    rules, learner = Rules(move=[r"Mood: \w+\n"], pin=[r"day \d+"]), Learner()
    for number, mood in enumerate(("calm", "wild", "mild")):
        messages = [system(header(mood).replace("Rule 9", f"On day {number}, Rule 9")), user("hi")]
        applied = learner.apply(rules.apply(messages, ""), Conversation(messages))
        assert applied.moved == (f"Mood: {mood}\n",)
    assert moves(learner) == 0


def test_moves_survive_a_restart_and_go_with_their_tenant(tmp_path: Path) -> None:
    files = HeaderFiles(tmp_path)
    for namespace in ("ann/", "bob/"):
        taught(files, namespace)
    learner = Learner(files)
    assert ask(learner, header("mild"), namespace="ann/").moved == ("Mood: mild\n",)
    learner.forget(lambda namespace: namespace == "ann/")
    assert ask(learner, header("glad"), namespace="ann/").moved == ()
    (left,) = (tmp_path / "headers").iterdir()
    assert left.name.startswith("bob.")
    again = Learner(files)
    assert [move.namespace for move in again.moves(lambda _: True)] == ["bob/"]


def test_what_was_refused_stays_so_after_a_restart(tmp_path: Path) -> None:
    files = HeaderFiles(tmp_path)
    learner = taught(files)
    (move,) = learner.moves(lambda _: True)
    assert not learner.refuse(move.name, lambda namespace: namespace == "bob/")
    assert learner.refuse(move.name, lambda _: True)
    assert not learner.refuse(move.name, lambda _: True)
    for each in (learner, Learner(files)):
        assert [ask(each, header(mood)).moved for mood in ("mild", "glad")] == [(), ()]


def test_a_damaged_file_is_passed_over(tmp_path: Path) -> None:
    files = HeaderFiles(tmp_path)
    taught(files)
    for number, content in enumerate((b"{", b"\xff", b"[]", b'{"namespace": "ann/", "stretches": [1]}')):
        files.keep("", f"{number}", content)
    assert ask(Learner(files), header("mild")).moved


def test_a_header_of_an_earlier_process_is_compared_with() -> None:
    learner = Learner()
    learner.remember(Conversation([system(header("calm"))]))
    assert ask(learner, header("wild")).moved == ("Mood: wild\n",)


def test_moves_and_headers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner_module, "_MAX_MOVES", 5)
    learner = Learner()
    for agent in range(20):
        for mood in ("calm", "wild"):
            ask(learner, f"Agent {agent}.\n{header(mood)}")
    assert moves(learner) == 5
    assert ask(learner, f"Agent 19.\n{header('mild')}").moved
    assert ask(learner, f"Agent 0.\n{header('mild')}").moved == ()
    for long in ("x" * (1 << 18), "\n" * (1 << 13)):
        assert [ask(learner, header(mood) + long).moved for mood in ("calm", "wild")] == [(), ()]
