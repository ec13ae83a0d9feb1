"""Mutated pictures are decoded or refused; `python -m tests.behaviour.mutated_pictures 5000` is the long version."""

from leftoff.picture import Pictures, kind_of
from tests.behaviour.mutated import send_all, server_of_ours
from tests.behaviour.mutated_pictures import decoded, files, with_picture
from tests.factory.projectors import projector_path


def test_the_files_themselves_are_pictures() -> None:
    pictures = [data for data in files() if not data.startswith(b"%PDF")]
    assert {kind_of(data) for data in pictures} == {"PNG", "JPEG", "GIF", "WEBP", "BMP"}
    for data in pictures:
        assert Pictures().take(data).pixels().shape == (40, 40, 3)


def test_three_hundred_files() -> None:
    found = decoded(seed=1, numbers=range(300))
    assert found["wrong"] == 0
    assert min(found["decoded"], found["refused"]) > 50


def test_fifty_requests_to_a_model_that_sees() -> None:
    projector = str(projector_path("qwen3vl_merger", 64))
    with server_of_ours(None, "--mmproj", projector) as server:
        tally = send_all(server, seed=2, numbers=range(50), make=with_picture)
    assert tally.problems == []
    assert min(tally.statuses[200], tally.statuses[400]) >= 5
