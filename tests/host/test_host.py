"""A model host is opened and closed as one thing, and leaves nothing behind."""

import threading
from pathlib import Path

import httpx
import pytest

from leftoff.chat.template.render import TemplateError
from leftoff.engine.context import ContextSettings
from leftoff.engine.errors import NoRoomError
from leftoff.host.build import open_host
from leftoff.host.host import HostClosedError
from leftoff.host.request_log import RequestLog
from leftoff.sampling import Sampling
from leftoff.server.server import serving
from leftoff.session import Session
from tests.patience import PATIENCE_S
from tests.server.fixtures import settings

GREEDY = Sampling(temperature=0)
ASKED = {"prompt": "where does the road end", "n_predict": 2}


def engine_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "leftoff-engine"]


def test_one_that_cannot_be_opened_leaves_no_thread(tmp_path: Path) -> None:
    template = tmp_path / "broken.jinja"
    template.write_text("{% for message in messages %}")
    with pytest.raises(TemplateError):
        open_host(settings(chat_template_file=str(template)))
    assert engine_threads() == []


def test_hosts_that_follow_each_other_write_to_one_log() -> None:
    log = RequestLog(size=8)
    for architecture in ("qwen35", "llama"):
        with open_host(settings(architecture, alias=(architecture,)), log=log) as host, serving(host) as url:
            assert httpx.post(f"{url}/completion", json=ASKED, timeout=PATIENCE_S).json()["model"] == architecture
        assert engine_threads() == []
    assert [record.generated for record in log.records] == [2, 2]
    assert [log.counts["", name].requests.total() for name in ("qwen35", "llama")] == [1, 1]


def test_one_that_is_closed_refuses_work() -> None:
    with open_host(settings()) as host, serving(host) as url:
        assert host.call(lambda: 1).result() == 1
        host.stop()
        with pytest.raises(HostClosedError, match="tiny is being closed"):
            host.call(lambda: 1)
        for answer in (httpx.get(f"{url}/health"), httpx.post(f"{url}/completion", json=ASKED)):
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "stopping"


def test_the_sampling_that_is_handed_in_replaces_what_the_model_recommends() -> None:
    with open_host(settings(), sampling={"top_k": 3}) as host:
        assert host.default_sampling.top_k == 3


def test_a_session_is_a_host_without_threads() -> None:
    context = ContextSettings(num_cells=512, num_sequences=2, threads=1)
    with Session(settings().model, context=context) as session:
        assert engine_threads() == []
        first, again = (session.generate("the old bridge", max_tokens=4, sampling=GREEDY) for _ in range(2))
        assert first.tokens == again.tokens
        assert again.report.computed <= 1
        with_stop = session.generate("the old bridge", max_tokens=4, sampling=GREEDY, stop=f"{first.text} never said")
        assert with_stop.text == first.text, "one text is no list of letters"
        assert session.cache.memory is session.engine.memory
        with pytest.raises(NoRoomError, match="the context holds 512"):
            session.generate("word " * 100_000)
