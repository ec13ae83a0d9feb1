"""Four conversations in turn on a disk that holds three of them: each byte kept is written about once."""

from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from leftoff.host.build import open_host
from leftoff.server.server import serving
from tests.patience import PATIENCE_S
from tests.server.fixtures import settings
from tests.server.wire import Texts, Wire, says

NUM_TURNS = 6


@pytest.mark.parametrize(("architecture", "turn_tokens"), [("llama", 110), ("gemma3", 220)])
def test_what_cannot_stay_is_not_written(tmp_path: Path, architecture: str, turn_tokens: int) -> None:
    texts = Texts(5)
    chats = [[says("user", texts.text(turn_tokens))] for _ in range(4)]
    with (
        open_host(settings(architecture, slots=1, disk=1, cache_dir=str(tmp_path), read_ahead=False)) as host,
        serving(host) as url,
        httpx.Client(base_url=url, timeout=PATIENCE_S) as http,
    ):
        for _ in range(NUM_TURNS):
            for chat in chats:
                chat.append(says("assistant", Wire(http).chat(chat, 2).text))
                chat.append(says("user", texts.text(turn_tokens)))
                host.call(host.cache.save_idle).result()
                assert host.cache.disk is not None
                host.cache.disk.blobs.flush(PATIENCE_S)  # type: ignore[attr-defined]
        disk = http.get("/cache").json()["tiers"][1]
        assert disk["name"] == "disk"
        assert disk["most_bytes"] > 0.8 * disk["budget_bytes"], "the disk is full"
        assert 0.9 * disk["used_bytes"] < disk["written_bytes"] <= 1.5 * disk["most_bytes"]
        metrics = {each.name: each.samples for each in text_string_to_metric_families(http.get("/metrics").text)}
        (sample,) = metrics["leftoff_cache_written_bytes"]
        assert (sample.labels, sample.value) == ({"tier": "disk"}, disk["written_bytes"])
