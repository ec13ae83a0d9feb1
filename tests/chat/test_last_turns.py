"""The next turn of a long conversation: only what is new is made, and the prompt is as if nothing had been known."""

from collections.abc import Iterator, Sequence

import pytest

from leftoff.chat.chat import Chat
from leftoff.chat.conversation import Conversation
from leftoff.chat.formats.parts import ParsedReply
from leftoff.chat.header_rules import Rules
from leftoff.chat.prompts import PromptMaker
from leftoff.chat.replies import RememberedReplies, Written
from leftoff.chat.template import quirks
from leftoff.chat.template.render import ChatTemplate, MessageDict
from leftoff.config import BILLING_LINE
from leftoff.engine.model import Model
from tests.chat.conversations import TOOLS, assistant, call, result, system, user
from tests.factory import model_path

TURNS = 60
CONTEXT = 100_000


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    model = Model(model_path("llama"))
    yield model
    model.close()


@pytest.fixture
def prompts(model: Model) -> PromptMaker:
    return PromptMaker(model)


def history(num_turns: int = TURNS) -> list[MessageDict]:
    messages = [system("You are a harbour master.")]
    for number in range(num_turns):
        messages += [
            user(f"Where is boat {number}?"),
            assistant("", tool_calls=[call(number, "get_tide", {"place": f"pier {number}"})]),
            result(number, f"at noon, pier {number}"),
            assistant(f"Boat {number} is on the pier."),
        ]
    return messages


def next_turn(messages: Sequence[MessageDict]) -> list[MessageDict]:
    return [*messages, assistant("It is calm."), user("And the dog?")]


def asked(messages: Sequence[MessageDict], namespace: str = "") -> Conversation:
    return Conversation([*map(dict, messages)], TOOLS, namespace=namespace)  # as a client sends them: new objects


class Work:
    """Counts what templates and the tokenizer are given."""

    def __init__(self, prompts: PromptMaker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rendered: list[int] = []  # messages of each rendering
        self.num_forms = 0
        self._prompts = prompts
        render, form = ChatTemplate.render, quirks.Quirks.form

        def counted_render(template: ChatTemplate, messages: Sequence[MessageDict], **options: object) -> str:
            self.rendered.append(len(messages))
            return render(template, messages, **options)  # type: ignore[arg-type]

        def counted_form(one: quirks.Quirks, message: MessageDict, index: int) -> MessageDict:
            self.num_forms += 1
            return form(one, message, index)

        monkeypatch.setattr(ChatTemplate, "render", counted_render)
        monkeypatch.setattr(quirks.Quirks, "form", counted_form)

    def reset(self) -> int:
        """Returns the characters that were tokenised so far."""
        self.rendered, self.num_forms = [], 0
        return self._prompts.tokenizer.num_characters


def test_the_next_turn_makes_only_what_is_new(prompts: PromptMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    chat, work = Chat(prompts, CONTEXT), Work(prompts, monkeypatch)
    messages = [*history(), user("And the cat?")]
    chat.prompt(asked(messages))
    assert work.num_forms == len(messages)
    before = work.reset()
    chat.prompt(asked(next_turn(messages)))
    assert work.num_forms == 2
    long = [size for size in work.rendered if size > 8]
    assert long == [len(messages) + 2]  # once, for its text; marks are put into a short conversation
    assert prompts.tokenizer.num_characters - before < 200


def test_it_is_the_prompt_of_a_server_that_knew_nothing(model: Model, prompts: PromptMaker) -> None:
    chat = Chat(prompts, CONTEXT)
    messages = history(4)
    for end in range(2, len(messages) + 1):
        known = chat.prompt(asked(messages[:end])).prompt
        fresh = Chat(PromptMaker(model), CONTEXT).prompt(asked(messages[:end])).prompt
        assert known.tokens.tolist() == fresh.tokens.tolist()
        assert known.messages == fresh.messages


def test_an_edit_in_the_middle_is_seen(model: Model, prompts: PromptMaker) -> None:
    chat, messages = Chat(prompts, CONTEXT), [*history(8), user("And the cat?")]
    chat.prompt(asked(messages))
    edited = [*messages[:9], user("Where is the old bridge?"), *messages[10:]]
    fresh = Chat(PromptMaker(model), CONTEXT).prompt(asked(edited)).prompt
    assert chat.prompt(asked(edited)).prompt.tokens.tolist() == fresh.tokens.tolist()


def test_a_header_that_changes_and_is_cleaned_costs_nothing_more(
    prompts: PromptMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat, work = Chat(prompts, CONTEXT, rules=Rules(drop=[BILLING_LINE])), Work(prompts, monkeypatch)
    messages = [*history(), user("And the cat?")]

    def billed(number: int, told: Sequence[MessageDict]) -> Conversation:
        line = f"x-anthropic-billing-header: cch={number};\n"
        return asked([system(line + told[0]["content"]), *told[1:]])

    chat.prompt(billed(1, messages))
    work.reset()
    chat.prompt(billed(2, next_turn(messages)))
    assert [size for size in work.rendered if size > 8] == [len(messages) + 2]
    assert work.num_forms == 2  # of what is new


def test_replies_stand_in_the_next_turn_as_the_model_wrote_them(model: Model, prompts: PromptMaker) -> None:
    remembered = RememberedReplies()
    chat, messages = Chat(prompts, CONTEXT, remembered=remembered), [*history(8), user("And the cat?")]
    for number in range(4):
        made = chat.prompt(asked(messages))
        fresh = Chat(PromptMaker(model), CONTEXT, remembered=remembered).prompt(asked(messages))
        assert made.prompt.tokens.tolist() == fresh.prompt.tokens.tolist()
        text = f"The cat is in boat {number}."
        # not as the tokenizer would
        spelled = tuple(token for letter in text for token in prompts.tokens(letter).tolist())
        remembered.add(made.key, Written(spelled, text, ParsedReply(text)))
        messages = [*messages, assistant(text), user("And now?")]
        following = chat.prompt(asked(messages)).prompt.tokens.tolist()
        assert any(following[start : start + len(spelled)] == [*spelled] for start in range(len(following)))


def test_what_is_forgotten_is_made_anew(prompts: PromptMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    chat, work = Chat(prompts, CONTEXT), Work(prompts, monkeypatch)
    messages = [*history(8), user("And the cat?")]
    chat.prompt(asked(messages, "one"))
    chat.forget(lambda namespace: namespace == "one")
    work.reset()
    chat.prompt(asked(next_turn(messages), "one"))
    assert work.num_forms == len(messages) + 2


def test_another_tenant_finds_nothing(prompts: PromptMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    chat, work = Chat(prompts, CONTEXT), Work(prompts, monkeypatch)
    messages = [*history(8), user("And the cat?")]
    chat.prompt(asked(messages, "one"))
    work.reset()
    chat.prompt(asked(next_turn(messages), "other"))
    assert work.num_forms == len(messages) + 2
