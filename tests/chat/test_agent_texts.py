"""What today's agents change from session to session leaves the header, whole; what people write stays where it is."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leftoff.chat.agent_texts import AGENT_TEXTS, LATE_SECTIONS
from leftoff.chat.header_rules import Applied, Rules, with_moved
from leftoff.chat.template.render import MessageDict
from leftoff.config import AGENTS
from tests.chat.conversations import assistant, system, user

SKILLS = "Available agent types for the Agent tool"
RULES = Rules(move=[AGENTS])


def apply(*messages: MessageDict) -> Applied:
    return RULES.apply(messages, "")


def git(day: int) -> str:
    commits = "".join(f"\n{number:07x} Light lamp {number}" for number in range(day, 0, -1))
    return (
        "This is the git status at the start of the conversation. It will not change.\n\nCurrent branch: main\n\n"
        f"Git user: Ann\n\nStatus:\nM lamp{day}.py\n?? # odd name\n\nRecent commits:{commits or chr(10)}"
    )


def claude_code(day: int) -> list[MessageDict]:
    date = f"# currentDate\nToday's date is 2026-11-{day:02}.\n"
    reminder = f"<system-reminder>\n# claudeMd\nUse tabs.\n{date}\n    IMPORTANT: maybe.\n</system-reminder>\n\n"
    skills = f"{SKILLS}:\n- lamp: lights it\n\n- skill: too"
    return [system(f"You help.\n\nBe kind.\n\ngitStatus: {git(day)}"), user(f"{reminder}\nHello"), system(skills)]


def claude_code_excluding(day: int) -> list[MessageDict]:
    date = f"# currentDate\nToday's date is 2026-11-{day:02}.\n"
    return [
        system("You help."),
        user(f"<system-reminder>\n# gitStatus\n{git(day)}\n# claudeMd\nTabs.\n{date}# Memory\n"),
    ]


def claude_code_late(day: int) -> list[MessageDict]:
    """Newer versions: the git status is in the first user message, the date in the system message behind it."""
    late = f"# Environment\nYou have been invoked in the following environment: \n - Shell: bash\n\n{SKILLS}:\n- lamp"
    reminder = f"<system-reminder>\n# gitStatus\n{git(day)}\n\nClaude Code attached this.\n</system-reminder>"
    return [system("You help."), user(f"{reminder}\nHello"), system(f"{late}\n\nToday's date is 2026-11-{day:02}.")]


def claude_code_rules(day: int) -> list[MessageDict]:
    """With rules of the project, in a reminder of its own, before the git status or behind it."""
    rules, _, words = "<system-reminder>\n# claudeMd\nUse tabs.\n</system-reminder>", *claude_code_late(day)[:2]
    return [system("You help."), user(f"{rules}\n{words['content']}"), claude_code_late(day)[2]]


def opencode(day: int) -> list[MessageDict]:
    env = f"<env>\n  Platform: linux\n  Today's date: Mon Nov {day:02} 2026\n</env>"
    return [system(f"You help.\n{env}\nUse tabs."), user("Hello")]


def crush(day: int) -> list[MessageDict]:
    status = f"\n\n\nGit status (snapshot at conversation start - may be outdated):\n{git(day)}\n\n"
    env = f"<env>\nPlatform: linux\nToday's date: 11/{day}/2026{status}</env>"
    return [system(f"You help.\n{env}\n\n<lsp>\nOn.\n</lsp>"), user("Hello")]


def continue_cli(day: int) -> list[MessageDict]:
    env = f"<env>\nPlatform: linux\nToday's date: 2026-11-{day:02}\n</env>\n\n"
    status = f'<context name="gitStatus">{git(day)}\n</context>\n<context name="commitSignature">Sign.\n</context>'
    return [system(f"You help.\n{env}{status}\n\nBe brief."), user("Hello")]


def cline(day: int) -> list[MessageDict]:
    env = f"<env>\n1. Platform: linux\n2. Date: 11/{day}/2026\n3. IDE: Terminal Shell\n4. Working Directory: /w\n</env>"
    return [system(f"You help.\n{env}\nUse tabs."), user("Hello")]


def pi(day: int) -> list[MessageDict]:
    return [system(f"You help.\n\nCurrent date: 2026-11-{day:02}\nCurrent working directory: /w"), user("Hello")]


def old_pi(day: int) -> list[MessageDict]:
    now = f"Monday, November {day}, 2026 at 11:45:{day:02} AM UTC"
    return [system(f"You help.\nCurrent date and time: {now}\nCurrent working directory: /w"), user("Hello")]


def qwen_date(day: int) -> str:
    return (
        f"<system-reminder>\nThe current date is: Monday, November {day}, 2026. Note: it is so.\n</system-reminder>\n"
    )


def qwen_code(day: int) -> list[MessageDict]:
    status = "".join(f"git: {number:07x} Light lamp {number}\n" for number in range(day, 0, -1))
    snapshot = f"Git snapshot at conversation start. It may be old.\n```text\ngit: Status:\n{status}```\n"
    files = (
        "This is the Qwen Code. We are setting up the context for our chat.\n" + f"Today's date is {day}.\n/w/lamp.py"
    )
    texts = [reminder("Skills: none."), reminder(files), reminder("Tools: none."), qwen_date(day), "Hello"]
    return [system(f"You help.\n\n{snapshot}\n---\n\nUse tabs."), user("".join(texts))]


def qwen_code_in_parts(day: int) -> list[MessageDict]:
    header, words = qwen_code(day)
    texts = str(words["content"]).replace("</system-reminder>\n", "</system-reminder>\n\0").split("\0")
    return [header, {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}]


def reminder(text: str) -> str:
    return f"<system-reminder>\n{text}\n</system-reminder>\n"


def old_qwen_code(day: int) -> list[MessageDict]:
    begins = "This is the Qwen Code. We are setting up the context for our chat.\n"
    context = f"Today's date is Monday, November {day}, 2026.\nMy system is: linux\n\n/w/\n└───lamp{day}.py"
    return [system("You help."), user(begins + context), assistant("Got it."), user("Hello")]


CLIENTS = (
    *(claude_code, claude_code_excluding, claude_code_late, claude_code_rules, opencode, crush, cline, pi, old_pi),
    *(continue_cli, qwen_code, qwen_code_in_parts, old_qwen_code),
)


@pytest.mark.parametrize("client", CLIENTS)
def test_the_rest_is_the_same_on_another_day_and_after_a_commit(client) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    first, second = (RULES.apply(client(day), "") for day in (2, 13))
    assert first.messages == second.messages
    assert first.moved != second.moved
    assert "13" in str(with_moved(second.messages, second.moved)[_user(second.messages)]["content"])
    assert " lamp" not in str(first.messages[0]["content"])


def _user(messages: Sequence[MessageDict]) -> int:
    return next(index for index, message in enumerate(messages) if message["role"] == "user")


def test_the_list_of_skills_joins_the_header() -> None:
    applied = RULES.apply(claude_code(3), "")
    assert [text.split()[0] for text in applied.moved] == ["gitStatus:", "#"]
    assert [message["role"] for message in applied.messages] == ["system", "system", "user"]
    assert [str(note) for note in applied.notes] == ["moved 3 texts"]
    later = [*claude_code(3), assistant("Yes."), user("Go on."), system(f"{SKILLS}:\n- more")]
    assert RULES.apply(later, "").messages[3:] == later[3:], "one that comes later stays"
    assert apply(system(f"{SKILLS}:\n- one"), user("Hello")).notes == (), "one that is in its place stays"
    newer = RULES.apply(claude_code_late(3), "")
    assert [message["role"] for message in newer.messages] == ["system", "system", "user"]


def test_after_compaction_the_header_is_the_same() -> None:
    """The late header then stands behind a reply that was kept, with its sections in another order."""
    tools = "The following deferred tools are now available via ToolSearch. Load them first:\nLamp\nDoor"
    agents, skills = (
        f"{SKILLS}:\n- lamp: lights it",
        "The following skills are available for use with the Skill tool:\n- one",
    )
    place = "# Environment\nYou have been invoked in the following environment: \n - Shell: bash\n\nYou are a model."
    date = "Today's date is 2026-11-16."
    fresh = [system("You help."), user("Hello"), system("\n\n".join([place, tools, agents, skills, date]))]
    late = system("\n\n".join([tools, agents, skills, place, date]))
    compacted = [system("You help."), user("In short: hello."), assistant("Yes."), user("Go on."), late]
    more = [*compacted, assistant("Well."), user("And?"), system(f"{tools}\nWindow")]
    first, after, then = (RULES.apply(messages, "") for messages in (fresh, compacted, more))
    assert first.messages[:2] == after.messages[:2] == then.messages[:2]
    assert [message["role"] for message in after.messages] == ["system", "system", "user", "assistant", "user"]
    assert then.messages[5:] == more[5:], "what has changed since is told where it was"
    assert first.moved == after.moved == (date,)


def test_after_compaction_the_rules_of_the_project_stand_before_the_summary() -> None:
    def reminders(day: int) -> str:
        rules = "Codebase and user instructions are shown below. Obey.\n\nUse tabs."
        place = (
            f"As you answer the user's questions, you can use the following context:\n# gitStatus\n{git(day)}\n\nSo."
        )
        return reminder(rules) + reminder(place) + reminder("Sign commits.") + "\n"

    fresh = [system("You help."), user(f"{reminders(2)}Hello")]
    compacted = [system("You help."), user("In short: hello."), assistant("Yes."), user(f"{reminders(13)}Go on.")]
    more = [*compacted, assistant("Well."), user(f"{reminders(13)}And?")]
    first, after, then = (RULES.apply(messages, "") for messages in (fresh, compacted, more))
    one, other = (str(with_moved(each.messages, each.moved)[1]["content"]) for each in (first, after))
    assert one[: one.index("<context>")] == other[: other.index("<context>")]
    assert other.endswith("In short: hello.")
    assert after.messages[2:] == [assistant("Yes."), user("Go on.")]
    assert then.messages[:4] == after.messages, "they are put there once"
    assert then.messages[4:] == more[4:]


def test_the_moved_texts_stand_behind_the_reminders_that_do_not_change() -> None:
    for client in (claude_code_rules, qwen_code, qwen_code_in_parts):
        first, second = (RULES.apply(client(day), "") for day in (2, 13))
        one, other = (str(with_moved(each.messages, each.moved)[-1]["content"]) for each in (first, second))
        assert one.index("<context>") == other.index("<context>")
        assert one[: one.index("<context>")] == other[: one.index("<context>")]
        assert "reminder>" not in one[one.index("</context>") :]
        assert one.endswith(("Hello", "'Hello'}]"))


def qwen_tools(day: int) -> str:
    return reminder(f"The following MCP tools became available after startup and work.\n- lamp of November {day}")


@pytest.mark.parametrize("told_on", [qwen_date, qwen_tools])
def test_a_text_that_follows_the_user_is_told_once_until_it_changes(told_on: Callable[[int], str]) -> None:
    def turns(day: int, *, told: int) -> list[MessageDict]:
        words = [told_on(day) + text if index == told else text for index, text in enumerate(("Hello", "And now?"))]
        return [system("You help."), user(words[0]), assistant("Yes."), user(words[1])]

    first = RULES.apply(turns(3, told=0)[:2], "")
    second = RULES.apply(turns(3, told=1), "")
    assert second.messages == [*first.messages, assistant("Yes."), user("And now?")]
    assert first.moved == second.moved == (told_on(3),)
    assert "November 3" in str(with_moved(second.messages, second.moved, second.followed)[1])
    next_day = RULES.apply(turns(4, told=1), "")
    shown = with_moved(next_day.messages, first.moved, next_day.followed)
    assert [f"November {day}" in str(message) for message in shown for day in (3, 4)] == [
        *(False, False),
        *(True, False),
        *(False, False),
        *(False, True),
    ]


def test_of_several_texts_that_follow_the_user_each_is_told_when_it_changes() -> None:
    begun = RULES.apply([system("You help."), user(f"{qwen_tools(3)}{qwen_date(3)}Hello")], "")
    words = user(f"{qwen_tools(4)}{qwen_date(4)}And now?")
    later = RULES.apply([system("You help."), user("Hello"), assistant("Yes."), words], "")
    shown = with_moved(later.messages, begun.moved, later.followed)
    assert shown[3]["content"] == words["content"]


def test_a_repository_without_commits_and_an_appended_prompt() -> None:
    text = f"You help.\n\ngitStatus: {git(0)}"
    assert "Recent commits:" in text
    assert apply(system(text), user("Hello")).messages[0]["content"] == "You help.\n\n"
    text = f"You help.\n\ngitStatus: {git(2)}\n\nAlways be kind."
    assert str(apply(system(text), user("Hello")).messages[0]["content"]).endswith("\nAlways be kind.")


@pytest.mark.parametrize(
    "words",
    [
        "What is today's date?",
        "Today's date: 2026-11-16",
        "Today's date is 2026-11-16.",
        "gitStatus: clean",
        "This is the git status at the start of the conversation.\n\nRecent commits:\nabc1234 Begin",
        "Current date: 2026-11-16\nMy directory: /w",
        "1. Platform: linux\n2. Date: tomorrow\n3. Time: noon",
        "Look: This is the Qwen Code. We are setting up the context for our chat.\nHello",
        "Here: Available agent types for the Agent tool:\n- none",
        "<env>\nDate: 2026-11-16\n</env>",
        "<system-reminder>\nThe current date is unknown.\n</system-reminder>",
        "Git snapshot at conversation start.\n```text\ngit status\n```\n",
    ],
)
def test_what_people_write_stays(words: str) -> None:
    for messages in ([system(words), user(words)], [user(words), assistant("Yes."), user("Go on.")]):
        applied = apply(*messages)
        assert applied == Applied(messages)
        assert with_moved(applied.messages, applied.moved) == messages


PIECES = st.sampled_from(
    [
        *(
            "gitStatus: ",
            "# gitStatus\n",
            "This is the git status at the start of the conversation.",
            "Recent commits:\n",
        ),
        *("abc1234 Begin\n", "# currentDate\n", "Today's date is 2026-11-16.", "Today's date: 2026-11-16", "\n</env>"),
        *(
            "Current date: 2026-11-16",
            "\nCurrent working directory: ",
            "2. Date: 11/16/2026",
            "\n3. IDE: ",
            "\n",
            " ",
            "",
        ),
        *("<system-reminder>\n", "\n</system-reminder>\n", "Available agent types for the Agent tool:\n"),
        "# Environment\nYou have been invoked in the following environment:\n",
        *("This is the Qwen Code.", " We are setting up the context for our chat.\n", "Hello", "<context>", "\n\n"),
    ]
)
TEXTS = st.lists(PIECES, max_size=8).map("".join)
MESSAGES = st.lists(
    st.builds(
        lambda role, text: {"role": role, "content": text}, st.sampled_from(["system", "user", "assistant"]), TEXTS
    ),
    max_size=5,
)


@settings(deadline=None, max_examples=300)
@given(messages=MESSAGES)
def test_without_a_match_nothing_changes_and_with_one_nothing_is_lost(messages: list[MessageDict]) -> None:
    applied = RULES.apply(messages, "")
    if not applied.notes:
        assert applied == Applied(messages)
        assert with_moved(applied.messages, applied.moved) == messages
    else:
        contents = [str(message["content"]) for message in applied.messages]
        assert _letters([*contents, *applied.moved]) == _letters([str(message["content"]) for message in messages])
        shown = "".join(str(message["content"]) for message in with_moved(applied.messages, applied.moved))
        assert all(text.strip() in shown for text in applied.moved)
    assert RULES.apply(messages, "") == applied


def _letters(texts: Sequence[str]) -> Counter[str]:
    return Counter("".join("".join(texts).split()))


HOSTILE = [
    *("gitStatus: This is the git status at the start of the conversation.", "# currentDate\nToday's date is "),
    *("Today's date: 2026-11-16\nGit status (snapshot at conversation start):\n", "Today's date: 2026-11-16"),
    *("Git snapshot at conversation start. It.\n```text\ngit: a\n", "<system-reminder>\nThe current date is: "),
    *("Current date: 2026-11-16", "2. Date: 2026-11-16", "\n\nRecent commits:\nabc1234 x", "abc1234 ", "\n", " "),
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_no_text_is_slow_to_search(piece: str) -> None:
    began = time.thread_time()
    for filler in (piece, "\n", " "):
        apply(system(piece + filler * 60_000), user("Hello"))
    assert time.thread_time() - began < 2.0


def test_every_pattern_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "headers.md").read_text()
    patterns = [*LATE_SECTIONS, *(text.pattern for text in AGENT_TEXTS)]
    assert [pattern for pattern in patterns if f"\n{pattern}\n" not in page] == []
