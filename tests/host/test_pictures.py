"""A model that sees pictures: what it was shown once is neither read nor encoded again."""

import base64
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leftoff.cache.cache import Cache
from leftoff.chat.conversation import Conversation
from leftoff.config import Settings
from leftoff.engine.errors import ModelError
from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.host.pictures import NO_PROJECTOR, projector_file
from leftoff.picture import Picture
from leftoff.sampling import Sampling
from leftoff.scheduler.job import Finish, Job, Timings
from leftoff.scheduler.run import Run
from tests.behaviour.histories.tree import picture_part
from tests.engine.vision.pictures import PAIRS, WIDTH
from tests.factory import model_path
from tests.factory.projectors import projector_path
from tests.scheduler.recorder import Recorder

PATIENCE_S = 60.0
GREEDY = Sampling(temperature=0.0)

Messages = list[dict[str, str]]


class Awaited(Recorder):
    """A recorder that another thread waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.is_over = threading.Event()

    def finished(self, finish: Finish, timings: Timings, error: Exception | None) -> None:
        super().finished(finish, timings, error)
        self.is_over.set()


def settings(architecture: str, kind: str, **others: Any) -> Settings:  # noqa: ANN401
    own: dict[str, Any] = {"ctx": 2048, "slots": 2, "ram": 64, "disk": 0, "threads": 1, "fit": False, "draft": "off"}
    return Settings(model=str(model_path(architecture)), mmproj=str(projector_path(kind, WIDTH)), **own | others)


def picture(host: ModelHost, number: int) -> Picture:
    url: str = picture_part(number)["image_url"]["url"]
    return host.pictures.take(base64.b64decode(url.partition(",")[2]))


def says(*texts: str) -> Messages:
    return [{"role": ("user", "assistant")[index % 2], "content": text} for index, text in enumerate(texts)]


def reply(host: ModelHost, messages: Messages, *pictures: Picture, namespace: str = "") -> Awaited:
    conversation = Conversation(messages, namespace=namespace, pictures={each.marker: each for each in pictures})
    prompt, sink = host.chats.prompt(conversation).prompt, Awaited()
    host.scheduler.submit(Run(Job(prompt, GREEDY, max_tokens=6, namespace=namespace, wants_logits=True), sink))
    assert sink.is_over.wait(PATIENCE_S)
    assert sink.error is None, sink.error
    return sink


def lines(sink: Awaited) -> tuple[str, ...]:
    assert sink.report is not None
    return tuple(line.rpartition(", ")[2] for line in sink.report.image_lines)


@pytest.mark.parametrize(("architecture", "kind"), PAIRS)
@pytest.mark.parametrize("deterministic", [False, True], ids=["", "deterministic"])
def test_a_turn_reads_no_old_picture(architecture: str, kind: str, deterministic: bool) -> None:
    with open_host(settings(architecture, kind, deterministic=deterministic)) as host:
        one, other = picture(host, 1), picture(host, 2)
        asked = says(f"look at {one.marker} and say what is on it")
        first = reply(host, asked, one)
        grown = [*asked, *says("", "I see.", f"and {other.marker} then")[1:]]
        second = reply(host, grown, one, other)
        assert lines(first) == ("computed",)
        assert lines(second) == ("reused", "computed")
        cold = reply(host, grown, one, other, namespace="/new")
        assert lines(cold) == ("computed", "computed")
        assert second.tokens == cold.tokens
        shown_otherwise = reply(host, [*grown[:-1], *says(f"and {one.marker} then")], one)
        assert shown_otherwise.tokens != cold.tokens, "it does not look at the picture"
        encoder = host.prompts.encoder
        assert encoder is not None
        assert encoder.num_encoded == 2
        assert host.pictures.num_decoded == 2


def test_an_edit_before_a_picture_and_a_restart_encode_nothing(tmp_path: Path) -> None:
    wanted = settings("qwen35", "qwen3vl_merger", disk=64, cache_dir=str(tmp_path))
    for is_new in (True, False):
        with open_host(wanted) as host:
            one = picture(host, 1)
            reply(host, says(f"look at {one.marker} and say what is on it"), one)
            edited = reply(host, says(f"now look at {one.marker} and say what is on it"), one)
            assert host.prompts.encoder is not None
            assert host.prompts.encoder.num_encoded == int(is_new)
            assert lines(edited) == ("computed" if is_new else "reused",)


def test_a_picture_that_cannot_be_decoded_fails_its_own_reply_alone() -> None:
    with open_host(settings("qwen35", "qwen3vl_merger")) as host:
        one = picture(host, 1)
        conversation = Conversation(says(f"look at {one.marker}"), pictures={one.marker: one})
        prompt, sink = host.chats.prompt(conversation).prompt, Awaited()
        encoder = host.prompts.encoder
        assert encoder is not None
        encoder.projector.path = Path("gone")
        encoder.projector.close()
        host.scheduler.submit(Run(Job(prompt, GREEDY, max_tokens=6), sink))
        assert sink.is_over.wait(PATIENCE_S)
        assert sink.finish is Finish.FAILED
        assert "gone" in str(sink.error)
        assert reply(host, says("and without a picture")).finish is Finish.LENGTH


def test_a_model_that_sleeps_sees_pictures_when_it_is_awake_again() -> None:
    with open_host(settings("qwen35", "qwen3vl_merger", sleep_idle_seconds=600)) as host:
        one, other = picture(host, 1), picture(host, 2)
        reply(host, says(f"look at {one.marker}"), one)
        host.rest().result(PATIENCE_S)
        assert host.engine.is_asleep
        again = reply(host, says(f"look at {one.marker}", "I see.", f"and at {other.marker}"), one, other)
        assert lines(again) == ("reused", "computed")


def test_the_projector_is_found_beside_the_model_and_left_out_if_it_does_not_fit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, projector = tmp_path / "model.gguf", tmp_path / "mmproj-model-f16.gguf"
    model.symlink_to(model_path("qwen35"))
    assert projector_file("", model) is None
    projector.symlink_to(projector_path("qwen3vl_merger", WIDTH))
    assert projector_file("", model) == projector
    assert projector_file(NO_PROJECTOR, model) is None
    for fit in (True, False):
        with pytest.raises(ModelError, match=r"there is no projector at nowhere\.gguf: give another --mmproj"):
            open_host(Settings(model=str(model), mmproj="nowhere.gguf", fit=fit, ram=16, disk=0, threads=1))
    found = Settings(model=str(model), ctx=256, ram=16, disk=0, threads=1, draft="off")
    with open_host(found) as host:
        assert host.prompts.sees_pictures
    projector.unlink()
    projector.symlink_to(projector_path("qwen3vl_merger", 128))
    with open_host(found) as host:
        assert not host.prompts.sees_pictures
    assert "sees no pictures" in caplog.text
    with pytest.raises(ModelError, match="mismatch"):
        open_host(Settings(model=str(model), mmproj=str(projector), ctx=256, ram=16, disk=0, threads=1))


@pytest.mark.parametrize("is_marked", [True, False])
def test_a_chunk_that_a_picture_cuts_short_is_not_taken_for_a_whole_one(
    is_marked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks of less than 64 tokens are added up in another order: with a grid that must not show."""
    if not is_marked:
        monkeypatch.setattr(Cache, "known_as", lambda _, prompt: prompt)
    words = "the river runs down from the hill to the town and on to the sea " * 8
    with open_host(settings("qwen35", "qwen3vl_merger", deterministic=True)) as host:
        one = picture(host, 1)
        reply(host, says(f"{words[:480]} {one.marker} {words}"), one)
        reply(host, says(f"{words[:350]} and {words}"))
        grown = says(f"{words[:350]} and {words}", "I see.", "Go on.")
        warm, cold = reply(host, grown), reply(host, grown, namespace="/new")
        assert warm.report is not None
        assert warm.report.reused > 128
        same = all(map(np.array_equal, warm.logits, cold.logits))
        assert same is is_marked
