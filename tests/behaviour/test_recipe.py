"""What people measure when they report that a server reads everything again, on a model of each memory kind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.alike import NUM_TOP
from tests.server.cold import num_ties
from tests.server.wire import MessageDict, Texts, Wire, says, wired

KINDS = ("mamba2", "qwen35", "gemma3", "llama")

# ChatML as real models have it: a role is one token. The factory's words hold no roles, but every letter.
SHORT_CHATML = """\
{%- for message in messages -%}
    {{- "<|im_start|>" + message.role[0] + "\\n" + message.content + "<|im_end|>\\n" -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- "<|im_start|>a\\n" -}}
{%- endif -%}
"""


@pytest.fixture(scope="module", params=KINDS)
def wire(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    template = tmp_path_factory.mktemp("templates") / "short.jinja"
    Path(template).write_text(SHORT_CHATML)
    with wired(request.param, slots=2, chat_template_file=str(template)) as wire:
        yield wire


def test_the_same_long_prompt_again(wire: Wire) -> None:
    wire.forget()
    texts = Texts(1)
    messages = [says("system", texts.text(250)), says("user", texts.text(1250))]
    cold = wire.stream(messages, 4)
    again = [wire.stream(messages, 4) for _ in range(3)]
    assert 1500 < cold.computed == cold.prompt_tokens < 1600
    assert [answer.text for answer in again] == [cold.text] * 3
    assert all(answer.computed <= 1 for answer in again)


@pytest.mark.parametrize("keeps_replies", [True, False], ids=["replies kept", "replies written anew"])
def test_three_short_turns(wire: Wire, keeps_replies: bool) -> None:
    wire.forget()
    texts = Texts(2)
    chat: list[MessageDict] = []
    sizes, cached = [], []
    for num_words in (23, 4, 4):
        chat = [*chat, says("user", texts.text(num_words))]
        answer = wire.chat(chat, 3)
        sizes.append(answer.prompt_tokens)
        cached.append(answer.cached)
        chat = [*chat, says("assistant", answer.text if keeps_replies else texts.text(3))]
    assert sizes == [31, 48, 65]
    assert cached[0] == 0
    assert cached[1] >= 27
    assert cached[2] >= 44


def test_five_turns(wire: Wire) -> None:
    wire.forget()
    texts = Texts(3)
    chat: list[MessageDict] = []
    shares = []
    for _ in range(5):
        chat = [*chat, says("user", texts.text(40))]
        answer = wire.chat(chat, 8)
        shares.append(answer.cached / answer.prompt_tokens)
        chat = [*chat, says("assistant", answer.text)]
    assert shares[0] == 0
    assert shares[1] > 0
    assert shares[2] >= 0.616
    assert shares[3] >= 0.679
    assert shares[4] >= 0.728


def test_independent_prompts_in_a_row_are_answered_right(wire: Wire) -> None:
    wire.forget()
    texts = Texts(4)
    prompts = [[says("user", texts.text(20, 300))] for _ in range(4)]
    answers = [wire.chat(prompt, 10, num_top=NUM_TOP) for prompt in prompts]
    assert len({answer.tokens for answer in answers}) == len(prompts)
    ties = [num_ties(wire, prompt, answer) for prompt, answer in zip(prompts, answers, strict=True)]
    assert sum(ties) <= len(prompts), "ties are rare"
