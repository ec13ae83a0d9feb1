"""Files of a hub on this machine: downloaded, broken off, changed on their way, and found again without a network."""

import hashlib
import logging
import os
from pathlib import Path

import httpx
import pytest

from leftoff.hub.download import Progress
from leftoff.hub.files import HubError, download_file, list_files
from leftoff.hub.reference import find_model
from tests.cli.here import served
from tests.factory import model_path
from tests.hubs import LocalHub
from tests.patience import PATIENCE_S

REPO, FILE = "org/repo", "model-Q4_K_M.gguf"
CONTENT = os.urandom(1000)


@pytest.fixture
def hub(local_hub: LocalHub) -> LocalHub:
    local_hub.repos[REPO] = {"README.md": b"#", FILE: CONTENT}
    return local_hub


def blobs(tmp_path: Path) -> dict[str, bytes]:
    folder = tmp_path / "hf" / "hub" / "models--org--repo" / "blobs"
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_file_is_downloaded_with_progress_and_lies_where_others_find_it(hub: LocalHub, tmp_path: Path) -> None:
    seen: list[float] = []
    titles: list[str] = []

    def begin(title: str) -> Progress:
        titles.append(title)
        return seen.append

    path = find_model(REPO, begin)
    assert path.read_bytes() == CONTENT
    assert titles == [f"downloading {FILE}, 1,000 B"]
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    folder = tmp_path / "hf" / "hub" / "models--org--repo"
    commit = (folder / "refs" / "main").read_text()
    assert path == folder / "snapshots" / commit / FILE
    assert path.resolve() == folder / "blobs" / hashlib.sha256(CONTENT).hexdigest()
    assert [method for method, _, _ in hub.requests] == ["GET", "HEAD", "GET", "GET"]


def test_what_is_there_is_not_downloaded_again_until_it_changes(hub: LocalHub) -> None:
    first = download_file(REPO, FILE)
    assert download_file(REPO, FILE) == first
    assert len(hub.ranges()) == 1
    hub.repos[REPO][FILE] = CONTENT[::-1]
    assert download_file(REPO, FILE).read_bytes() == CONTENT[::-1]
    assert first.read_bytes() == CONTENT


def test_a_download_that_breaks_off_goes_on_by_itself_and_next_time(hub: LocalHub) -> None:
    hub.break_after = 100
    with pytest.raises(HubError, match=r"org/repo: model-Q4_K_M.gguf broke off after 400 of 1,000 bytes"):
        download_file(REPO, FILE)
    hub.break_after = 300
    assert download_file(REPO, FILE).read_bytes() == CONTENT
    assert hub.ranges() == ["", "bytes=100-", "bytes=200-", "bytes=300-", "bytes=400-", "bytes=700-"]


@pytest.mark.parametrize("sent", [CONTENT[::-1], CONTENT + bytes(100)], ids=["changed", "longer"])
def test_another_file_than_the_hub_names_is_not_kept(hub: LocalHub, sent: bytes, tmp_path: Path) -> None:
    hub.sends = sent
    with pytest.raises(HubError, match=r"has the SHA-256 .*, and .* is expected: .* It is not used"):
        download_file(REPO, FILE)
    assert blobs(tmp_path) == {}
    hub.sends = None
    assert download_file(REPO, FILE).read_bytes() == CONTENT


def test_without_a_network_what_was_downloaded_is_found(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    path = find_model(REPO)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    assert find_model(REPO) == path
    assert list_files(REPO) == [FILE]
    with pytest.raises(HubError, match=r"the hub cannot be reached for org/other .*: check the network, or give"):
        find_model("org/other")
    assert hub.ranges() == [""]


def test_a_repository_that_is_not_there_or_asks_for_a_licence_says_what_to_do(hub: LocalHub) -> None:
    with pytest.raises(HubError, match=r"there is no org/none, .* private ones need HF_TOKEN"):
        find_model("org/none")
    hub.gated.add(REPO)
    with pytest.raises(HubError, match=r"asks for its licence .*/org/repo, then set HF_TOKEN"):
        find_model(REPO)


def test_a_repository_that_was_renamed_is_found(hub: LocalHub) -> None:
    hub.renamed["old/name"] = REPO
    assert find_model("old/name").read_bytes() == CONTENT


def test_the_token_goes_to_the_hub_and_not_where_the_content_is(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    download_file(REPO, FILE)
    sent = {path.split("/")[1]: token for (_, path, _), token in zip(hub.requests, hub.tokens, strict=True)}
    assert sent == {"org": "Bearer secret", "cdn": ""}


def test_a_file_larger_than_the_disk_is_refused_before_it_is_fetched(hub: LocalHub) -> None:
    hub.claims_bytes = 1 << 60
    with pytest.raises(HubError, match=r"needs 1,048,576 TiB in .* are free there: set HF_HOME"):
        download_file(REPO, FILE)
    assert hub.ranges() == []


@pytest.mark.parametrize("file", ["../../evil.gguf", "/etc/evil.gguf"])
def test_a_file_that_would_be_written_elsewhere_is_refused(hub: LocalHub, file: str) -> None:
    with pytest.raises(HubError, match="would be written elsewhere"):
        download_file(REPO, file)
    assert hub.requests == []


def test_a_server_that_is_no_hub_is_told_apart(monkeypatch: pytest.MonkeyPatch, hub: LocalHub) -> None:
    monkeypatch.setenv("HF_ENDPOINT", f"{hub.url}/page")
    with pytest.raises(HubError, match="does not say what it has"):
        list_files(REPO)
    with pytest.raises(HubError, match="does not say what it has"):
        download_file(REPO, FILE)


def test_a_name_of_the_catalogue_is_downloaded_and_served(hub: LocalHub, caplog: pytest.LogCaptureFixture) -> None:
    hub.repos["unsloth/Qwen3.5-0.8B-GGUF"] = {
        "Qwen3.5-0.8B-Q4_K_M.gguf": model_path("llama").read_bytes(),
        "Qwen3.5-0.8B-Q8_0.gguf": b"another",
    }
    with caplog.at_level(logging.INFO, "leftoff"), served(model="qwen3.5-0.8b") as server:
        (model,) = httpx.get(f"{server.url}/v1/models", timeout=PATIENCE_S).json()["data"]
        assert model["id"] == "qwen3.5-0.8b"
        assert "downloading Qwen3.5-0.8B-Q4_K_M.gguf" in caplog.text
    assert len(hub.ranges()) == 1
