"""From a conversation to a prompt: rules, overflow, template, with real tokens."""

from collections.abc import Iterator

import numpy as np
import pytest

from leftoff.chat.chat import Chat
from leftoff.chat.conversation import Conversation
from leftoff.chat.header_rules import Rules
from leftoff.chat.overflow import ContextOverflowError
from leftoff.chat.prompts import PromptMaker
from leftoff.chat.template.render import MessageDict, TemplateError
from leftoff.config import BILLING_LINE
from leftoff.engine.model import Model
from leftoff.types import Prompt
from tests.chat.conversations import RULES, TOOLS, assistant, system, user
from tests.factory import model_path

WINDOW = 600


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    model = Model(model_path("llama"))
    yield model
    model.close()


@pytest.fixture(scope="module")
def prompts(model: Model) -> PromptMaker:
    return PromptMaker(model)


def text_of(model: Model, prompt: Prompt) -> str:
    return model.vocabulary.detokenize(prompt.tokens).decode()


def test_without_rules_it_is_the_templates_prompt(prompts: PromptMaker) -> None:
    conversation = Conversation([RULES, user("Where is the dog?")])
    made = Chat(prompts, WINDOW).prompt(conversation)
    assert made.prompt.tokens.tolist() == prompts.from_conversation(conversation).tokens.tolist()
    assert made.notes == ()


def test_a_header_that_changes_gives_the_same_tokens(prompts: PromptMaker) -> None:
    chat = Chat(prompts, WINDOW, rules=Rules([BILLING_LINE], [r"It is \d+"]))
    made = [
        chat.prompt(
            Conversation([system(f"x-anthropic-billing-header: cch={n};\nYou are a pilot. It is {n}."), user("Hi")])
        )
        for n in range(3)
    ]
    assert len({one.prompt.tokens.tobytes() for one in made}) == 1
    assert [note.kind for note in made[0].notes] == ["dropped"]
    assert [note.kind for note in made[1].notes] == ["dropped", "pinned"]


def test_moved_text_stands_behind_the_header(prompts: PromptMaker, model: Model) -> None:
    chat = Chat(prompts, WINDOW, rules=Rules(move=[r"It is \d+\. "]))
    made = [chat.prompt(Conversation([system(f"It is {n}. Be kind."), user("Hi")])) for n in range(3)]
    headers = [one.prompt.tokens[: one.prompt.header_end].tobytes() for one in made]
    assert headers == headers[:1] * 3
    assert made[2].header == [system("Be kind.")]
    assert "<context>\nIt is 2.\n</context>\n\nHi" in text_of(model, made[2].prompt)


def test_a_snapshot_is_taken_before_moved_text_that_stands_behind_rules_of_a_project(prompts: PromptMaker) -> None:
    """A fresh session after a commit goes on there, and does not read the rules again."""
    chat = Chat(prompts, 4 * WINDOW, rules=Rules(move=[r"It is \d+\. "]))
    rules = "<system-reminder>\n" + "The dog is in the garden.\n" * 20 + "</system-reminder>\n"
    one, other = (chat.prompt(Conversation([system(f"It is {n}. Be kind."), user(f"{rules}Hi")])) for n in (1, 2))
    start = one.prompt.moved_start or 0
    assert start > (one.prompt.header_end or 0) + 50
    assert one.prompt.tokens[:start].tolist() == other.prompt.tokens[:start].tolist()


def test_moved_text_stays_when_the_oldest_messages_are_cut(prompts: PromptMaker, model: Model) -> None:
    chat = Chat(prompts, WINDOW, rules=Rules(move=[r"It is \d+\. "]), overflow="cut")
    turns = [user("the river runs " * 30), assistant("It does.")] * 8
    made = chat.prompt(Conversation([system("It is 2. Be kind."), *turns, user("Hi")]))
    assert [note.kind for note in made.notes] == ["moved", "cut"]
    assert text_of(model, made.prompt).count("<context>\nIt is 2.\n</context>\n\nthe river") == 1


def test_a_prompt_that_does_not_fit_is_refused(prompts: PromptMaker) -> None:
    chat = Chat(prompts, WINDOW)
    with pytest.raises(ContextOverflowError, match="the context holds 600"):
        chat.prompt(Conversation([user("the river " * 400)]))


def test_a_conversation_beyond_the_window_reads_little_per_turn(prompts: PromptMaker, model: Model) -> None:
    """All tokens that change, over all turns, are few times the tokens of the turns themselves."""
    chat = Chat(prompts, WINDOW, overflow="cut")
    messages: list[MessageDict] = [RULES]
    read, last = 0, np.empty(0, np.int32)
    for number in range(60):
        messages.append(user(f"Question {number}: where does the river run?"))
        prompt = chat.prompt(Conversation(messages)).prompt
        assert prompt.length < WINDOW
        assert text_of(model, prompt).startswith("<|im_start|>system\nYou are a harbour master.")
        size = min(last.size, prompt.length)
        differs = np.nonzero(last[:size] != prompt.tokens[:size])[0]
        read += prompt.length - (int(differs[0]) if differs.size else size)
        last = prompt.tokens
        messages.append(assistant(f"Answer {number}: down from the hill to the town."))
    whole = prompts.from_conversation(Conversation(messages)).length
    assert whole > 4 * WINDOW
    assert read < 2.5 * whole  # dropping the oldest message on every turn would read 60 times about 500


def test_positions_are_those_of_the_cut_prompt(prompts: PromptMaker, model: Model) -> None:
    chat = Chat(prompts, WINDOW, overflow="cut")
    messages = [
        RULES,
        *(m for n in range(30) for m in (user(f"Question {n}?"), assistant("Down the river."))),
        user("So?"),
    ]
    made = chat.prompt(Conversation(messages))
    assert made.notes[0].kind == "cut"
    start = made.prompt.last_user_start
    assert start is not None
    assert text_of(model, Prompt(made.prompt.tokens[start:])).startswith("So?<|im_end|>")
    assert made.prompt.header_end is not None


def test_tools_that_the_template_does_not_show_are_noted(prompts: PromptMaker, model: Model) -> None:
    assert Chat(prompts, 4096).prompt(Conversation([user("Hi")], TOOLS)).notes == ()
    silent = Chat(PromptMaker(model, "{% for m in messages %}{{ m.content }}{% endfor %}"), 4096)
    (note,) = silent.prompt(Conversation([user("Hi")], TOOLS)).notes
    assert str(note) == "the model's template shows no tools: it was not told of 2"


def test_a_refusal_of_the_template_comes_through(model: Model) -> None:
    chat = Chat(PromptMaker(model, "{{ raise_exception('roles must alternate') }}"), WINDOW, overflow="cut")
    with pytest.raises(TemplateError, match="roles must alternate"):
        chat.prompt(Conversation([user("Hi")]))


def test_what_is_deleted_leaves_no_text(prompts: PromptMaker) -> None:
    chat = Chat(prompts, WINDOW)
    chat.prompt(Conversation([user("where does the road end")]))
    assert prompts.tokenizer.num_bytes > 0
    chat.forget(lambda _: True)
    assert prompts.tokenizer.num_bytes == 0
