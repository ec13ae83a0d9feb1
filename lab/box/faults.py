"""What goes wrong in a run: drawn from its seed."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.box.play import Play

_FIRST_S, LAST_S, _LONGEST_S = 1.5, 9.0, 12.0


@dataclass(frozen=True)
class Fault:
    """Something breaks at `at_s`, and is mended `for_s` later."""

    name: str
    at_s: float
    for_s: float
    server: int

    def __str__(self) -> str:
        return f"{self.at_s:.1f} s: {self.name} (server {self.server}) for {self.for_s:.1f} s"


def draw(chance: random.Random, num_servers: int) -> list[Fault]:
    """Up to five of them."""
    return sorted(
        (
            Fault(
                chance.choice([*BREAKS]),
                chance.uniform(_FIRST_S, LAST_S),
                chance.choice((1, 1, _LONGEST_S)) * chance.random(),
                chance.randrange(num_servers),
            )
            for _ in range(chance.randrange(6))
        ),
        key=lambda fault: fault.at_s,
    )


# --- each breaks something, and mends it later

Break = Callable[["Play", Fault], None]


def _redis_down(play: "Play", fault: Fault, *, forgets: bool) -> None:
    play.redis.is_down = True

    def back() -> None:
        play.redis.restart(forgets=forgets)
        play.redis.is_down = False

    play.later(fault.for_s, back)


def _flag(part: str, flag: str, value: object) -> Break:
    def set_(play: "Play", fault: Fault) -> None:
        broken = getattr(play, part)
        usual = type(value)()
        setattr(broken, flag, value)
        play.later(fault.for_s, lambda: setattr(broken, flag, usual))

    return set_


def _cut(part: str, *, of_router: bool = False) -> Break:
    def cut(play: "Play", fault: Fault) -> None:
        name = play.router.name if of_router else play.server(fault.server).process.name
        getattr(play, part).cut.add(name)
        play.later(fault.for_s, lambda: getattr(play, part).cut.discard(name))

    return cut


def _wipe(name: str | None) -> Break:
    return lambda play, _: play.bucket.wipe(name)


def _kill(play: "Play", fault: Fault, *, is_in_write: bool = False) -> None:
    server = play.server(fault.server)
    if is_in_write and server.process.is_alive and not server.num_waiting_blobs and play.is_breaking:
        play.later(0.01, lambda: _kill(play, fault, is_in_write=True))
    else:
        play.kill(server)
        play.later(fault.for_s, lambda: play.start_server(fault.server))


def _stop(play: "Play", fault: Fault) -> None:
    play.server(fault.server).stop()
    play.later(fault.for_s, lambda: play.start_server(fault.server))


BREAKS: dict[str, Break] = {
    "redis is down and forgets all": lambda play, fault: _redis_down(play, fault, forgets=True),
    "redis is down": lambda play, fault: _redis_down(play, fault, forgets=False),
    "redis freezes": _flag("redis", "is_frozen", True),
    "redis is slow": _flag("redis", "slow_s", 0.2),
    "redis loses answers": _flag("redis", "lost", 0.05),
    "redis is cut off": _cut("redis"),
    "redis is cut off from the router": _cut("redis", of_router=True),
    "the bucket is down": _flag("bucket", "is_down", True),
    "the bucket freezes": _flag("bucket", "is_frozen", True),
    "the bucket is slow": _flag("bucket", "slow_s", 0.4),
    "the bucket loses answers": _flag("bucket", "lost", 0.05),
    "the bucket is full": _flag("bucket", "is_full", True),
    "the bucket is cut off": _cut("bucket"),
    "the bucket is wiped": _wipe(None),
    "the secret is lost": _wipe("secret"),
    "a server is killed": _kill,
    "a server is killed in a write": lambda play, fault: _kill(play, fault, is_in_write=True),
    "a server is stopped": _stop,
}
