"""Workloads played for real, on a real server with a tiny model: the counts are exact."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from lab.bench.ask import Ask, Script, says
from lab.bench.client import Client
from lab.bench.errors import BenchError
from lab.bench.play import Run, play
from lab.bench.reader import Reader
from lab.bench.side import Station, leftoff
from lab.bench.workload import WORKLOADS, Setup
from leftoff.host.build import open_host
from leftoff.server.server import serving
from tests.factory import Scale, model_path
from tests.lab.bench.texts import small_texts
from tests.server.fixtures import settings


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with open_host(settings(slots=2)) as host, serving(host) as url, closing(Client(url)) as client:
        yield client


@pytest.fixture
def station(client: Client) -> Station:
    client.forget()
    return Station(client)


def one_long_question() -> Script:
    yield [Ask([says("user", small_texts(1).text(400))], 8)]


def the_same_three_times() -> Script:
    for _ in range(3):
        yield from one_long_question()


def two_turns_at_once() -> Script:
    texts = small_texts(2)
    chats = [[says("system", texts.text(600)), says("user", texts.text(40))] for _ in range(2)]
    chats[1] = [chats[0][0], says("user", texts.text(40))]
    replies = yield [Ask(chat, 8) for chat in chats]
    yield [Ask([*chat, reply.message, says("user", "more")], 4) for chat, reply in zip(chats, replies, strict=True)]


def test_a_new_prompt_is_all_unavoidable(station: Station) -> None:
    run = play(one_long_question(), station, Setup())
    assert run.prompt_tokens == run.unavoidable == run.computed - run.idle
    assert (run.cached, run.generated, len(run.first_token_ms)) == (0, 8, 1)


def test_the_same_prompt_again_is_not(station: Station) -> None:
    run = play(the_same_three_times(), station, Setup())
    assert run.unavoidable == run.computed - run.idle == run.prompt_tokens // 3
    assert run.cached == 2 * run.prompt_tokens // 3


def test_asked_at_once_what_is_shared_counts_once(station: Station) -> None:
    run = play(two_turns_at_once(), station, Setup())
    assert run.num_miscounted == 0
    assert run.unavoidable
    assert run.unavoidable < run.prompt_tokens / 2
    assert run.computed <= run.unavoidable + 8


def test_a_server_that_forgets_reads_everything(client: Client) -> None:
    run = play(two_turns_at_once(), Station(client, forgets=True), Setup())
    assert run.unavoidable
    assert run.computed - run.idle > 1.5 * run.unavoidable


def test_the_last_token_of_a_reply_that_was_cut_off_was_never_read(client: Client) -> None:
    ask = Ask([says("user", "again and again")], 6)
    answer, reader = client.ask(ask), Reader(client.http)
    assert (answer.generated, answer.is_cut_off) == (6, True)
    assert reader.reply(ask, answer).size == 5
    assert reader.reply(ask, replace(answer, is_cut_off=False)).size == 6


def test_a_prompt_that_does_not_fit_is_a_refusal_and_no_error(client: Client) -> None:
    assert client.ask(Ask([says("user", small_texts(1, scale=20).text(400))], 4)).reply.is_refused


def test_what_is_no_server_is_said_with_its_address() -> None:
    with pytest.raises(BenchError, match=r"http://127\.0\.0\.1:9 .*--api-key"):
        Client("http://127.0.0.1:9")


@pytest.mark.parametrize("name", ["restart", "window"])
def test_a_server_of_its_own(name: str) -> None:
    workload = WORKLOADS[name]
    setup = replace(workload.setup, ctx=640 if workload.setup.cuts else 4096)
    model = model_path("qwen35", Scale(context_length=4096))
    with leftoff(model, 1).open(setup) as station:
        run: Run = play(workload.script(small_texts(1, 0.3)), station, setup)
    assert run.num_refused == run.num_miscounted == 0
    assert run.unavoidable
    assert run.prompt_tokens > 3 * run.unavoidable
    assert run.computed <= 1.03 * run.unavoidable
    assert run.peak_bytes is None or run.peak_bytes > 1 << 25
