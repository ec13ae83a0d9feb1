"""Small made-up traffic: conversations over a shared header that grow, are changed near their end, and start over."""

import numpy as np

from lab.simulate.llm import Llm
from lab.simulate.trace import Recording, Request, Trace

HEADER_BLOCKS = 4
LLM = Llm("small", bytes_per_token=10, snapshot_bytes=400)
BLOCK_TOKENS = 16
CELL_BYTES = LLM.bytes_per_token * BLOCK_TOKENS


class Ids:
    """Gives every prefix an id of its own, as traces do."""

    def __init__(self) -> None:
        self._ids: dict[tuple[int, ...], int] = {}

    def of(self, content: list[int]) -> list[int]:
        prefixes = (tuple(content[: end + 1]) for end in range(len(content)))
        return [self._ids.setdefault(prefix, len(self._ids)) for prefix in prefixes]


def traffic(seed: int, num_requests: int = 60, num_chats: int = 4) -> Trace:
    rng, ids, fresh = np.random.default_rng(seed), Ids(), iter(range(1, 10**6))
    header = [next(fresh) for _ in range(HEADER_BLOCKS)]
    chats = [header[:] for _ in range(num_chats)]
    requests = []
    for now in range(num_requests):
        chat = chats[number := int(rng.integers(num_chats))]
        event = rng.random()
        if event < 0.1:
            chat[:] = header
        elif event < 0.25 and len(chat) > HEADER_BLOCKS:
            chat.pop()
        chat += [next(fresh) for _ in range(int(rng.integers(1, 9)))]
        requests.append(request(ids.of(chat), now, number))
    return Trace(BLOCK_TOKENS, requests)


def request(ids: list[int], time_s: float = 0.0, session: int = 0, rest_tokens: int = 5) -> Request:
    return Request(session, time_s, len(ids) * BLOCK_TOKENS + rest_tokens, tuple((i, i) for i in ids), HEADER_BLOCKS)


def recording(*sessions: list[Request]) -> Recording:
    return Recording("made up", BLOCK_TOKENS, sessions)
