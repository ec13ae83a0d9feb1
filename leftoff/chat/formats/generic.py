"""For models whose template shows no calls: what they were shown instead (see `shape.py`), or a call as plain JSON."""

from leftoff.chat.formats.hermes import HermesCalls
from leftoff.chat.formats.json_calls import read_call
from leftoff.chat.formats.scanner import Reading, Waiting
from leftoff.chat.formats.tools import Tools


class GenericCalls(HermesCalls):
    is_bare = True

    def read_calls(self, reading: Reading, tools: Tools, trigger: str) -> Waiting[None]:
        if trigger:
            yield from super().read_calls(reading, tools, trigger)
        else:
            yield from read_call(reading, tools.names)
