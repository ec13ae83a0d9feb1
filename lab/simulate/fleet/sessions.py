"""More sessions than were recorded, of the same shape: for fleets that 120 sessions would not keep busy.

Each is a copy of a recorded one, drawn at random, with its pauses, its branches and its lengths. Copies of one session
share its header, as people with the same client do, and nothing else:

    copy 1   [ ··· header ··· )[ ········ )
    copy 2   [ ··· header ··· )[ ········ )     the header has the recorded ids, all that follows has new ones
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from lab.simulate.trace import Recording, Request, Session, Span, num_ids


def generate(recording: Recording, num_lanes: int, num_sessions: int) -> list[Session]:
    """Sessions with times of their own beginning at 0, `num_lanes` at a time.

    The first of each lane begins in the middle of another's time, so that not all of them read their header at once.
    """
    rng = np.random.default_rng(1)
    stride = num_ids(chain.from_iterable(recording.sessions))
    usual_s = float(np.median([session[-1].time_s for session in recording.sessions]))
    free_from = sorted(rng.uniform(0, usual_s, num_lanes).tolist())
    made: list[Session] = []
    for number in range(num_sessions):
        recorded = recording.sessions[int(rng.integers(len(recording.sessions)))]
        start = heapq.heappop(free_from)
        made.append(list(_copy(recorded, number, start, stride * (1 + number))))
        heapq.heappush(free_from, made[-1][-1].time_s)
    return made


def conversations(requests: Sequence[Request]) -> list[Session]:
    """Sessions of a recording that does not tell who asked: a prompt that goes on from another is its next one."""
    found: list[list[Request]] = []
    ends: dict[int, int] = {}  # the last block of each conversation so far
    for request in requests:
        blocks = request.blocks().tolist()
        number = next((ends.pop(block) for block in reversed(blocks) if block in ends), len(found))
        if number == len(found):
            found.append([])
        found[number].append(replace(request, session=number))
        ends[blocks[-1]] = number
    return list(found)


def _copy(recorded: Sequence[Request], number: int, start_s: float, offset: int) -> Iterator[Request]:
    shared = min((each.header_blocks for each in recorded if each.header_blocks), default=0)
    for each in recorded:
        kept = shared if each.header_blocks else 0
        yield replace(each, session=number, time_s=start_s + each.time_s, spans=tuple(_moved(each.spans, kept, offset)))


def _moved(spans: Sequence[Span], kept: int, offset: int) -> Iterator[Span]:
    """Gives new ids to all but the first `kept` blocks."""
    for first, last in spans:
        if (num_kept := min(kept, last - first + 1)) > 0:
            yield first, first + num_kept - 1
        if num_kept <= last - first:
            yield first + max(0, num_kept) + offset, last + offset
        kept -= num_kept
