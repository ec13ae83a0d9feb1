"""Both formats are read as they are meant, and sessions are played side by side at their own pace."""

import gzip
import json
from pathlib import Path

import pytest

from lab.simulate.outcome import unavoidable_tokens
from lab.simulate.reading import SAMPLE, read_recording
from lab.simulate.schedule import side_by_side
from lab.simulate.trace import Request, TraceError
from tests.lab.simulate.traffic import recording, request


def row(session: str, t: float, spans: list[list[int]], *, header: int = 128, tokens: int = 1000) -> dict[str, object]:
    return {"session": session, "t": t, "in": tokens, "out": 9, "header": header, "block": 64, "blocks": spans}


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return path


def test_sessions_of_claude_code_share_no_ids(tmp_path: Path) -> None:
    rows = [row("a", 0, [[1, 3]]), row("a", 5, [[1, 2], [4, 6]]), row("b", 0, [[1, 2]])]
    read = read_recording(write(tmp_path / "t.jsonl", rows))
    first, second = read.sessions
    assert read.block_tokens == 64
    assert [r.blocks().tolist() for r in first] == [[1, 2, 3], [1, 2, 4, 5, 6]]
    assert second[0].blocks().tolist() == [7, 8]
    assert [r.header_blocks for r in (*first, *second)] == [2, 2, 2]


def test_a_sub_agent_begins_when_the_request_before_it_came(tmp_path: Path) -> None:
    main, sub = [[1, 3]], [[50, 52]]
    times = [(0, main), (100, main), (0, sub), (30, sub), (0, sub), (5, sub), (200, main)]
    read = read_recording(write(tmp_path / "t.jsonl", [row("a", t, spans) for t, spans in times]))
    assert [r.time_s for r in read.sessions[0]] == [0, 100, 100, 130, 130, 135, 200]
    assert [r.header_blocks for r in read.sessions[0]] == [2, 2, 0, 0, 0, 0, 2], "its header is another one"


def test_mooncake_ids_are_read_up_to_the_last_whole_block(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"timestamp": 1500, "input_length": 1600, "output_length": 3, "hash_ids": [0, 1, 7, 8]},
        {"timestamp": 2000, "input_length": 100, "output_length": 3, "hash_ids": [9]},
    ]
    read = read_recording(write(tmp_path / "t.jsonl", rows))
    ((only,),) = read.sessions
    assert (read.block_tokens, only.time_s, only.prompt_tokens) == (512, 1.5, 1600)
    assert only.blocks().tolist() == [0, 1, 7]


def test_a_packed_file_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(row("a", 0, [[1, 3]])).encode()))
    assert read_recording(path).name == "t"


@pytest.mark.parametrize(
    ("text", "says"),
    [("", "is empty"), ('{"a": 1}', "none of the keys blocks, hash_ids"), ('{"blocks": 3}', "Expected .array.")],
)
def test_what_is_not_a_trace_is_refused_with_the_reason(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(text)
    with pytest.raises(TraceError, match=says):
        read_recording(path)


def test_sessions_take_the_lane_that_is_free_first() -> None:
    def session(number: int, *times: float) -> list[Request]:
        return [request([number], time, number) for time in times]

    played = side_by_side(recording(session(0, 0, 10), session(1, 0, 4), session(2, 0, 1), session(3, 0)), 2)
    assert [(r.session, r.time_s) for r in played.requests] == [
        *((0, 0), (1, 0), (1, 4), (2, 4), (2, 5), (3, 5), (0, 10)),
    ]


def test_with_one_lane_they_follow_each_other() -> None:
    sessions = [[request([number], time, number) for time in (0, 7)] for number in range(3)]
    assert [r.session for r in side_by_side(recording(*sessions), 1).requests] == [0, 0, 1, 1, 2, 2]


def test_the_sample_is_there_and_mostly_repeats_itself() -> None:
    read = read_recording(SAMPLE)
    trace = side_by_side(read, 8)
    tokens = sum(r.prompt_tokens for r in trace.requests)
    assert (len(read.sessions), len(trace.requests), read.block_tokens) == (17, 593, 64)
    assert 0.03 < unavoidable_tokens(trace) / tokens < 0.1
