"""The training text: the same for the same seed, well formed, and without what the evaluation asks."""

import re
from itertools import islice

import pytest

from leftoff.chat.template.render import ChatTemplate
from training.chat import Call, Chat, Json, Message, render
from training.coined import coined
from training.content import HERE, heldout_content, training_content
from training.draw import Draw
from training.generate import documents
from training.questions import PARTS, read
from training.rare import heldout_words
from training.scenes import SCENES
from training.skills.invented import invent_tool
from training.skills.recall import Recall
from training.skills.sheet import Sheet
from training.skills.table import Table
from training.skills.toolbox import Toolbox
from training.thinking import Document
from training.tokens import beginnings

_TURN = re.compile(r"<\|im_start\|>(system|user|assistant)\n(.*?)<\|im_end\|>\n", re.DOTALL)


@pytest.fixture(scope="module")
def sample() -> list[Document]:
    return list(islice(documents(seed=7), 400))


def test_the_same_seed_makes_the_same_text() -> None:
    first, again, other = (list(islice(documents(seed), 20)) for seed in (1, 1, 2))
    assert first == again != other


def test_every_document_is_whole_turns_with_a_reply_at_the_end(sample: list[Document]) -> None:
    for document in sample:
        assert _TURN.sub("", document.text) == ""
        roles = [role for role, _ in _TURN.findall(document.text)]
        spoken = roles[1:] if roles[0] == "system" else roles
        assert spoken == ["user", "assistant"] * (len(spoken) // 2)


def test_no_slot_is_left_unfilled_and_every_thought_ends(sample: list[Document]) -> None:
    for document in sample:
        assert not re.search(r"\{[a-z_]+\}", document.text)
        assert document.text.count("<think>\n") == document.text.count("\n</think>\n\n")


def test_a_document_that_trains_only_thinking_ends_with_it(sample: list[Document]) -> None:
    thinking = [document for document in sample if document.only_thinking]
    assert thinking
    for document in thinking:
        assert "<think>" in _TURN.findall(document.text)[-1][1]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_every_scene_plays(scene: object) -> None:
    assert callable(scene)
    for seed in range(12):
        scene(Draw(seed, training_content()))


def test_answers_contain_what_was_asked_for() -> None:
    draw, chat = Draw(3, training_content()), Chat()
    recall = Recall(draw, chat)
    recall.tell(6)
    for fact in recall.known:
        recall.ask_for(fact)
        assert fact.value in chat.messages[-1].content
    for skill in (Table(draw, Chat(), 20), Sheet(draw, Chat(), 20)):
        text = skill.text()
        for _ in range(40):
            question = skill.question()
            assert question.want.lower() in question.answer.lower()
            assert question.want in text or not question.want or question.want in question.answer


def test_a_call_names_a_tool_of_the_box_and_its_parameters() -> None:
    toolbox = Toolbox(Draw(4, training_content()), Chat(), 6)
    for _ in range(60):
        use = toolbox.use()
        assert use.call.name in {tool.name for tool in toolbox.tools}
        assert set(use.call.arguments) == set(use.tool.parameters.values())
        assert all(str(value) in use.ask for value in use.call.arguments.values())


def test_every_piece_that_words_begin_with_comes_up_in_made_up_words() -> None:
    draw, pieces = Draw(6, training_content()), set(beginnings())
    assert len(pieces) > 2000
    made = [coined(draw) for _ in range(40_000)]
    found = {piece for word in made for piece in (word[:end] for end in range(1, len(word))) if piece in pieces}
    assert len(found) > 0.95 * len(pieces)


def test_an_invented_tool_is_asked_for_with_all_its_values() -> None:
    draw = Draw(8, training_content())
    for _ in range(200):
        tool = invent_tool(draw)
        assert 1 <= len(tool.parameters) == len(set(tool.parameters.values())) <= 3
        for ask in tool.row["asks"]:
            assert sorted(re.findall(r"\{(s\d)\}", ask)) == sorted(tool.parameters)


# --- the held-out set


def test_held_out_words_are_in_no_list_and_in_no_text(sample: list[Document]) -> None:
    own, trained = heldout_content(rephrased=False).words, training_content().words
    lists = {word.lower() for words in trained.values() for word in words}
    changed = [word for kind, words in own.items() if words != trained.get(kind) for word in words]
    assert len(changed) > 300
    assert [word for word in changed if word.lower() in lists] == []
    names = set(own["first_name"]) | set(own["pet_name"]) | set(own["surname"])
    said = {word for document in sample for word in re.findall(r"[A-Z][a-z]+", document.text)}
    assert names & said == set()


def test_rare_words_leave_the_held_out_ones_out() -> None:
    rare = (HERE / "data" / "rare_words.txt").read_text().lower().split()
    assert len(rare) > 10_000
    assert heldout_words() & set(rare) == set()


def test_held_out_phrasings_are_not_trained() -> None:
    trained = set(training_content().texts())
    own = heldout_content(rephrased=True)
    assert [text for text in own.texts() if text in trained and "{" in text and text not in _shared()] == []


def _shared() -> set[str]:
    """What both use, because the held-out set replaces only some of the phrasings."""
    trained, own = training_content().phrases, heldout_content(rephrased=True).phrases
    return {
        text
        for group in own
        for name in own[group]
        if own[group][name] == trained[group][name]
        for text in own[group][name]
    }


def test_no_held_out_question_is_in_the_training_text(sample: list[Document]) -> None:
    asked = {message for document in sample for role, message in _TURN.findall(document.text) if role == "user"}
    for name in {part.name for part in PARTS}:
        for conversation in read(name):
            contexts = {
                str(message["content"]) for message in conversation.messages if len(str(message["content"])) > 60
            }
            assert contexts.isdisjoint(asked)
            assert all(question.want for question in conversation.questions)


# --- rendering

_TOOL: Json = {
    "type": "function",
    "function": {"name": "dial", "description": "Dials.", "parameters": {"type": "object"}},
}
_CALLED = [
    Message("user", "Call Ann"),
    Message("assistant", "One moment.", "The tool fits.", Call("dial", {"who": "Ann", "times": 2})),
    Message("tool", '{"ok": true}'),
    Message("assistant", "Done."),
]
_THOUGHT = [
    Message("user", "Hi"),
    Message("assistant", "Hello!", "Easy."),
    Message("user", "Bye"),
    Message("assistant", "Bye!", "End."),
]


@pytest.mark.parametrize("keep_thinking", [False, True])
@pytest.mark.parametrize(
    "chat",
    [
        Chat(messages=_THOUGHT),
        Chat("Be brief.", messages=_THOUGHT),
        Chat("Be brief.", [_TOOL], _CALLED),
        Chat("", [_TOOL], _CALLED),
    ],
)
def test_text_is_what_the_chat_template_makes(chat: Chat, keep_thinking: bool) -> None:
    template = ChatTemplate((HERE / "chat_template.jinja").read_text(), bos="", eos="")
    messages: list[Json] = [{"role": "system", "content": chat.system}] if chat.system else []
    for message in chat.messages:
        call = (
            {"function": {"name": message.call.name, "arguments": dict(message.call.arguments)}}
            if message.call
            else None
        )
        messages.append(
            {"role": message.role, "content": message.content}
            | ({"reasoning_content": message.think} if message.think else {})
            | ({"tool_calls": [call]} if call else {})
        )
    tools = [dict(tool) for tool in chat.tools] or None
    options = {"preserve_thinking": keep_thinking}
    expected = template.render(messages, tools=tools, add_generation_prompt=False, options=options)
    assert render(chat, keep_thinking=keep_thinking) == expected
