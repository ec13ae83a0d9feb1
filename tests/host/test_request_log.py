"""The line that a request leaves says what really happened to it."""

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import httpx
import pytest

from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.host.request_log import RequestRecord
from leftoff.sampling import Sampling
from leftoff.server.reply.response import Replies
from leftoff.server.reply.stream import ReplyStream
from leftoff.server.request.job import ReplyJob
from leftoff.server.server import serving
from leftoff.types import Logits
from tests.server.fixtures import settings
from tests.server.wire import Texts

Prepare = Callable[[ReplyStream], None]
Log = pytest.LogCaptureFixture


@pytest.fixture(scope="module")
def host() -> Iterator[ModelHost]:
    with open_host(settings(slots=2)) as host:
        yield host


@pytest.fixture
def log(caplog: Log) -> Log:
    caplog.set_level(logging.INFO, "leftoff.requests")
    return caplog


def job(host: ModelHost, text: str, max_tokens: int = 4, notes: tuple[str, ...] = ()) -> ReplyJob:
    return ReplyJob(host.prompts.from_text(text), Sampling(temperature=0), max_tokens=max_tokens, notes=notes)


def ended(host: ModelHost, job: ReplyJob, prepare: Prepare = lambda _: None) -> RequestRecord:
    """Runs a job to its end. `prepare` gets the stream before the engine sees it."""

    async def run() -> RequestRecord:
        may_go_on = threading.Event()
        host.call(may_go_on.wait)
        replies = Replies(host, [job], "asked")
        prepare(replies.streams[0])
        may_go_on.set()
        await until_all_ended(replies)
        return host.log.records[0]

    return asyncio.run(run())


async def until_all_ended(replies: Replies) -> None:
    async for _ in replies.batches():
        pass


def cancel_at(position: int, stream: ReplyStream) -> None:
    """The client leaves when so much of the prompt is read. It is noticed at the next step."""
    tell = stream.progress

    def progress(num_read: int) -> None:
        tell(num_read)
        if num_read >= position:
            stream.close()

    stream.progress = progress  # type: ignore[method-assign]


def test_a_prompt_that_was_cancelled_halfway(host: ModelHost, log: Log) -> None:
    asked = job(host, Texts(1).text(3000))
    record = ended(host, asked, partial(cancel_at, 1000))
    num_read = record.reused + record.computed
    assert 1000 <= num_read < 2000
    assert (record.finish, record.unread, record.first_token_ms) == ("cancelled", 3000 - num_read, None)
    assert record.reasons == {"new": record.computed}
    pattern = rf"reused 0 of 3,000 · {num_read:,} new · {record.unread:,} not read · cancelled after [\d,]+ ms"
    assert re.fullmatch(pattern, log.messages[-1])
    counts = host.log.counts["", host.name]
    before = counts.computed_tokens.total()
    again = ended(host, asked)
    assert again.reused + again.computed == 3000
    assert again.computed <= 3000 - num_read + 1, "what was read before the client left is not read again"
    assert counts.computed_tokens.total() == before + again.computed


def test_who_asks_again_while_a_prompt_is_read_goes_on_where_reading_stopped(host: ModelHost) -> None:
    """As clients do that give up a stream: the second request comes while the first is read, and then that one ends."""
    asked = job(host, Texts(4).text(3000))

    async def both() -> list[ReplyStream]:
        may_go_on = threading.Event()
        host.call(may_go_on.wait)
        replies = Replies(host, [asked, asked], "asked")
        cancel_at(1000, replies.streams[0])
        may_go_on.set()
        await until_all_ended(replies)
        return replies.streams

    left, again = asyncio.run(both())
    num_read = left.timings.num_read
    assert 1000 <= num_read < 2000
    assert again.report.computed <= 3000 - num_read + 1


def test_a_reply_that_was_cancelled(host: ModelHost, log: Log) -> None:
    def close_at_first_token(stream: ReplyStream) -> None:
        tell = stream.token

        def token(token: int, logits: Logits | None) -> bool:
            stream.close()
            return tell(token, logits)

        stream.token = token  # type: ignore[method-assign]

    record = ended(host, job(host, "the river", max_tokens=500), close_at_first_token)
    assert (record.finish, record.generated, record.unread) == ("cancelled", 1, 0)
    assert re.search(r" · 1 generated · first token after [\d,]+ ms · cancelled after [\d,]+ ms$", log.messages[-1])


def test_a_request_that_was_cancelled_in_the_queue(host: ModelHost, log: Log) -> None:
    record = ended(host, job(host, Texts(2).text(300)), ReplyStream.close)
    assert (record.finish, record.computed, record.unread, record.reasons) == ("cancelled", 0, 300, {})
    assert record.waited_ms >= record.prompt_ms == 0
    assert re.fullmatch(r"read none of 300 · cancelled after [\d,]+ ms", log.messages[-1])


def test_a_reply_that_failed(host: ModelHost, log: Log) -> None:
    def fail(stream: ReplyStream) -> None:
        def token(token: int, logits: Logits | None) -> bool:  # noqa: ARG001
            raise ValueError("no such word")

        stream.token = token  # type: ignore[method-assign]

    record = ended(host, job(host, "the river"), fail)
    assert (record.finish, record.error) == ("failed", "no such word")
    assert re.search(r"failed after [\d,]+ ms: no such word$", log.messages[-1])


def test_the_time_that_was_saved_is_told_if_it_is_worth_a_word() -> None:
    record = RequestRecord("", 0.0, generated=3, finish="end", saved_ms=41_230.0)
    assert record.ending == "41.2 s spared · 3 generated"
    assert replace(record, saved_ms=20.0).ending == "3 generated"


def test_a_prompt_that_is_only_read(host: ModelHost, log: Log) -> None:
    ended(host, job(host, Texts(3).text(50), max_tokens=0))
    assert re.fullmatch(r"reused 0 of 50 · 50 new · read in [\d,]+ ms", log.messages[-1])


def test_a_note_that_every_request_has_is_logged_once(host: ModelHost, log: Log) -> None:
    for text in ("one", "two"):
        record = ended(host, job(host, text, notes=("dropped 1 line of the header",)))
        assert record.notes == ("dropped 1 line of the header",)
    assert sum("dropped 1 line" in line for line in log.messages) == 1


def test_a_flood_of_bad_requests_leaves_few_lines_and_records(host: ModelHost, http: httpx.Client, log: Log) -> None:
    for number in range(50):
        assert http.post("/v1/messages", json={"messages": number}).status_code == 400
    refused = [line for line in log.messages if line.startswith("POST /v1/messages refused with 400: ")]
    assert 0 < len(refused) < 30
    assert len(host.log.records) < 30


def test_secrets_and_endless_words_stay_out_of_the_line(log: Log) -> None:
    with open_host(settings(api_key=("sesame",))) as host, serving(host) as url:
        key = {"Authorization": "Bearer another-secret"}
        assert httpx.post(f"{url}/v1/messages?key=third-secret", headers=key).status_code == 401
        own = {"x-api-key": "sesame"}
        assert httpx.get(f"{url}/{'x' * 5000}", headers=own).status_code == 404
        assert httpx.post(f"{url}/v1/messages", headers=own).status_code == 400
    strange, unknown, _ = log.messages[-3:]
    assert strange.startswith("POST /v1/messages refused with 401: this API key is not known")
    assert "secret" not in strange
    assert len(unknown) < 600
    assert [record.status for record in host.log.records] == [400], "no strangers, no unknown routes"
