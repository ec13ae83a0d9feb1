"""Texts that coding agents make anew for each session and put before or into a conversation's beginning.

The word `agents` in `--move` stands for all of them. Each pattern is as narrow as the words of the program allow: it
matches these and nothing that people write. It is quick on any text. docs/headers.md shows what becomes of a prompt.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class AgentText:
    """One such text: who writes it, what it is, and the pattern that matches it."""

    agent: str
    what: str
    pattern: str


# Claude Code's environment and list of agents and skills: a system message behind the user's first words, which differ
# each time. It is moved as a whole, to the end of the header.
LATE_HEADER = (
    r"\A(?:# Environment\nYou have been invoked in the following environment|"
    r"Available agent types for the Agent tool|The following skills are available for use with the Skill tool): ?\n"
)

# In this order they stand in the prompt: the less often a text changes, the earlier, so that more of it is reused.
AGENT_TEXTS = (
    AgentText(
        "Claude Code",
        "the state of the git repository",
        r"(?:gitStatus: |# gitStatus\n)This is the git status at the start of the conversation\.[\s\S]{0,6000}?"
        r"\n\nRecent commits:\n(?:[0-9a-f]{4,40} [^\n]*\n?)*",
    ),
    AgentText(
        "Claude Code",
        "the date",
        r"# currentDate\nToday's date is [^\n]{8,40}\n|(?<=\n\n)Today's date is \d{4}-\d\d-\d\d\.\Z",
    ),
    AgentText(
        "OpenCode, Crush",
        "the date and the state of the git repository",
        r"Today's date: [\w /-]{8,20}(?:\n{1,4}Git status \(snapshot at conversation start[^\n]*\):\n[\s\S]{0,6000}?)?"
        r"\n{0,4}(?=</env>)",
    ),
    AgentText("Cline", "the date", r"2\. Date: [^\n]{6,30}(?=\n3\. IDE: )"),
    AgentText("pi", "the date", r"Current date(?: and time)?: [^\n]{8,80}(?=\nCurrent working directory: )"),
    AgentText(
        "Qwen Code, Gemini CLI",
        "the date and the list of files",
        r"\AThis is the (?:Qwen Code|Gemini CLI)\. We are setting up the context for our chat\.\n[\s\S]+\Z",
    ),
)
