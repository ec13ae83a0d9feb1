"""Lets recorded sessions run side by side: so many at a time, each at its own pace.

There are N lanes. A session is played from its beginning to its end, with the pauses it had, in the lane that is free
first. Which request comes when follows from the recording alone.

    lane 1   [ session 1 )[ session 4 ········· )
    lane 2   [ session 2 ········· )[ session 6 )
    lane 3   [ session 3 ··· )[ session 5 ··· )
"""

import heapq
from dataclasses import replace
from operator import attrgetter

from lab.simulate.trace import Recording, Request, Trace


def side_by_side(recording: Recording, num_lanes: int) -> Trace:
    free_from = [0.0] * num_lanes
    requests: list[Request] = []
    for session in recording.sessions:
        start = heapq.heappop(free_from)
        requests += (replace(request, time_s=start + request.time_s) for request in session)
        heapq.heappush(free_from, requests[-1].time_s)
    return Trace(recording.block_tokens, sorted(requests, key=attrgetter("time_s")))
