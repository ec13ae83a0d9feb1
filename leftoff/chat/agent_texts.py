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
    follows: bool = False  # the agent takes it out of each user message and puts it into the next


# Sections of a system message of Claude Code's that stands behind the user's words: in the first turn, or, after the
# conversation was compacted, in a later one, with its sections in another order. It joins the header as a whole, with
# the sections in this order: the less often one changes, the earlier.
LATE_SECTIONS = (
    r"The following deferred tools are now available via ToolSearch\.",
    r"Available agent types for the Agent tool: ?\n",
    r"The following skills are available for use with the Skill tool: ?\n",
    r"# Environment\nYou have been invoked in the following environment: ?\n",
)

# The reminders that the user's first message begins with in Claude Code: the rules of a project, or else the git status
# first. After the conversation was compacted they stand behind the summary, in a later message.
FIRST_REMINDERS = (
    r"<system-reminder>\n(?:Codebase and user instructions are shown below\. "
    r"|As you answer the user's questions, you can use the following context:)"
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
        "Continue",
        "the state of the git repository",
        r'(?<=<context name="gitStatus">)This is the git status at the start of the conversation\. '
        r"[\s\S]{0,6000}?(?=\n?</context>)",
    ),
    AgentText(
        "OpenCode, Crush, Continue",
        "the date and the state of the git repository",
        r"Today's date: [\w /-]{8,20}(?:\n{1,4}Git status \(snapshot at conversation start[^\n]*\):\n[\s\S]{0,6000}?)?"
        r"\n{0,4}(?=</env>)",
    ),
    AgentText("Cline", "the date", r"2\. Date: [^\n]{6,30}(?=\n3\. IDE: )"),
    AgentText("pi", "the date", r"Current date(?: and time)?: [^\n]{8,80}(?=\nCurrent working directory: )"),
    AgentText(
        "Qwen Code",
        "the tools of MCP servers",
        r"<system-reminder>\nThe following MCP tools became available after startup "
        r"[\s\S]{0,30000}?\n</system-reminder>\n*",
        follows=True,
    ),
    AgentText(
        "Qwen Code",
        "the state of the git repository",
        r"Git snapshot at conversation start\. [^\n]{0,400}\n```text\n(?:git: [^\n]*\n)+```\n",
    ),
    AgentText(
        "Qwen Code, Gemini CLI",
        "the date and the list of files",
        r"(?:\A|(<system-reminder>\n))This is the (?:Qwen Code|Gemini CLI)\. "
        r"We are setting up the context for our chat\.\n(?(1)[\s\S]{0,30000}?\n</system-reminder>\n*|[\s\S]+\Z)",
    ),
    AgentText(
        "Qwen Code",
        "the date",
        r"<system-reminder>\nThe current date is: [^\n]{8,400}\n</system-reminder>\n*",
        follows=True,
    ),
)
