"""A replica's view: what it holds by deltas, how long its queue is, and when it is gone."""

import json
from dataclasses import dataclass

import msgspec
import pytest

from leftoff.cluster.chain import Chain, read_chain
from leftoff.cluster.fleet import Fleet, UnknownModelError
from leftoff.cluster.memory import Known, Place
from leftoff.cluster.replica import EXPIRY_S, MODEL_S, Delta, Held, Load, Rates, Replica, ReplicaState
from leftoff.cluster.replica_view import ReplicaView
from leftoff.cluster.score import FoundPoint
from leftoff.scheduler.gate import Readiness

RATES = Rates(1.0, 10.0, 100.0, 1e6, 0.0, 1e6, 0.0, 1e6, 10.0)
IDLE = Load(2, 0, 0, 4, 0, 1000)
KNOWN = Known((Place(500, b"header"), Place(900, b"end")), 1000, (500, 900, 1000))
CHAIN = Chain((b"0", b"1", b"2"), (2000, 3600, 4000))


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def replica(name: str = "a", load: Load = IDLE, **changes: object) -> Replica:
    whole = Replica(
        name, f"http://{name}", "F1", "tiny", "tiny, f16", "1", ReplicaState.READY, 0, load, RATES, has_store=True
    )
    return msgspec.structs.replace(whole, **changes)


def view(load: Load = IDLE) -> ReplicaView:
    made = ReplicaView(replica(load=load), Clock())
    made.beat(replica(load=load))
    return made


def held(tag: bytes, end: int, ram_bytes: int = 1_000_000) -> Held:
    return Held(tag, b"run", end, ram_bytes, 0)


def test_what_is_held_follows_the_deltas() -> None:
    seen = view()
    assert not seen.apply(Delta(5, [held(b"end", 900)], [])), "what came before is not known"
    seen.replace_held([held(b"header", 500)], 5)
    assert seen.apply(Delta(5, [], [b"header"])), "that was in the whole already"
    assert seen.apply(Delta(6, [held(b"end", 900)], []))
    assert {*seen.held} == {b"header", b"end"}
    assert not seen.apply(Delta(8, [], [b"end"])), "one is missing"
    assert seen.apply(Delta(9, [held(b"new", 10)], [], is_whole=True))
    assert {*seen.held} == {b"new"}


def test_the_deepest_that_it_holds_is_resumed() -> None:
    seen = view()
    assert seen.estimate(CHAIN, KNOWN).read_ms == 1000
    seen.replace_held([held(b"header", 500)], 1)
    assert (seen.estimate(CHAIN, KNOWN).resume, seen.estimate(CHAIN, KNOWN).load_ms) == (500, 1.0)
    stored = [FoundPoint(900, 2_000_000, 0, 2_000_000, 1)]
    assert seen.estimate(CHAIN, KNOWN, stored).resume == 900


def test_requests_on_their_way_count_at_once() -> None:
    seen = view()
    flight = seen.send(CHAIN, 800.0)
    assert seen.queue_ms == 800
    assert seen.estimate(CHAIN, KNOWN).resume == 999, "who comes now shares what is being read"
    seen.begun(flight)
    assert seen.queue_ms == 0
    seen.ended(flight)
    assert not seen.flights


def test_what_was_read_for_a_request_counts_until_the_replica_has_told_what_it_kept() -> None:
    seen = view()
    seen.replace_held([], 0)
    first, second = (seen.send(CHAIN, 800.0) for _ in range(2))
    found = []
    for flight in (first, second):
        seen.begun(flight)
        seen.ended(flight)
        found.append(seen.estimate(CHAIN, KNOWN).resume)
    for number in range(1, 5):  # the third is looked at after the end, however late it comes
        seen.beat(replica(num_observed=number, number=1))
        found.append(seen.estimate(CHAIN, KNOWN).resume)
    assert found == [999] * 6, "its heartbeat has come, and the delta before it has not"
    seen.apply(Delta(1, [held(b"header", 500)], []))
    assert seen.estimate(CHAIN, KNOWN).resume == 500
    assert not seen.reading


def test_a_request_that_failed_has_left_nothing_behind() -> None:
    seen = view()
    seen.ended(seen.send(CHAIN, 800.0))
    assert seen.estimate(CHAIN, KNOWN).resume == 0


def test_requests_that_have_ended_since_the_last_heartbeat_are_no_load() -> None:
    """Else a replica would look busy with the last turn of a conversation, and its next turn would go elsewhere."""
    seen = view()
    flight = seen.send(CHAIN, 600.0)
    busy = Load(1, 1, 0, 4, 600, 0)
    seen.beat(replica(load=busy, num_observed=1))
    before = seen.queue_ms
    seen.begun(flight)
    seen.ended(flight)
    seen.beat(replica(load=busy, num_observed=2))
    assert (before, seen.queue_ms) == (1600, 0)
    seen.beat(replica(load=busy, num_observed=4))
    assert seen.queue_ms == 1600, "that is another router's request"
    seen.clock.now += EXPIRY_S + 1  # type: ignore[attr-defined]
    assert seen.queue_ms == 0, "of what others have sent there, nothing is known any more"


def test_the_queue_that_it_tells_of_shrinks_with_time() -> None:
    seen = view(Load(2, 1, 0, 4, 600, 0))
    assert seen.queue_ms == 600
    seen.clock.now += 0.5  # type: ignore[attr-defined]
    seen.beat(seen.told)
    assert round(seen.queue_ms) == 100, "the same heartbeat, seen again, is no newer"


def test_without_a_slot_replies_are_waited_for() -> None:
    assert view(Load(2, 2, 1, 4, 0, 0)).queue_ms == 2 * 100 * 10 / 2
    assert view(Load(2, 2, 4, 4, 0, 0)).is_full
    assert not view(Load(2, 2, 3, 4, 0, 0)).is_full


def test_a_replica_that_failed_rests_and_one_that_drains_takes_nothing() -> None:
    seen = view()
    seen.failed()
    taken = [seen.takes_requests]
    seen.clock.now += 10  # type: ignore[attr-defined]
    taken.append(seen.takes_requests)
    seen.beat(replica(state=ReplicaState.DRAINING))
    assert [*taken, seen.takes_requests] == [False, True, False]


def test_without_heartbeats_it_is_gone() -> None:
    clock = Clock()
    fleet = Fleet(clock)
    one, _ = fleet.beat(replica("a")), fleet.beat(replica("b", fingerprint="F2", model="other"))
    assert {*fleet.groups} == {"F1", "F2"}
    assert [each.id for each in fleet.candidates("other")] == ["b"]
    assert [each.id for each in fleet.candidates("", besides=["a"])] == ["b"]
    clock.now += EXPIRY_S - 1
    fleet.beat(replica("b", fingerprint="F2"))
    clock.now += 2
    assert fleet.expire(since=clock.now - 1) == [], "nobody could have read one"
    assert fleet.expire(since=0.0) == [one]
    assert one.gone.is_set()
    assert {*fleet.views} == {"b"}


def test_of_an_unknown_replica_what_was_sent_is_remembered() -> None:
    seen = view()
    asked = read_chain(json.dumps({"messages": [{"role": "user", "content": "Hi"}]}).encode(), {})
    known = Known((), 40, (20, 40))
    assert seen.estimate(asked, known).resume == 0
    flight = seen.send(asked, 1.0)
    seen.begun(flight)
    seen.ended(flight)
    assert seen.estimate(asked, known).resume == 39


def test_a_replica_that_is_to_stop_gets_nothing_new() -> None:
    fleet = Fleet(Clock())
    for name in ("a", "b"):
        fleet.beat(replica(name))
    fleet.leaving = ["http://a"]
    assert [each.id for each in fleet.candidates("")] == ["b"]


def test_no_other_model_answers_for_one_that_is_named() -> None:
    clock = Clock()
    fleet = Fleet(clock)
    fleet.beat(replica("a"))
    assert fleet.meant("any name") == "tiny", "as a server answers, whatever it is called"
    fleet.beat(replica("b", model="other"))
    for name in ("any name", ""):
        with pytest.raises(UnknownModelError, match="name one of other, tiny"):
            fleet.meant(name)
    assert [each.id for each in fleet.candidates("other")] == ["b"]
    assert fleet.meant("other:latest") == "other", "as Ollama's clients name it"
    del fleet.views["b"]
    assert fleet.candidates(fleet.meant("other")) == [], "it is gone, and its name is still its own"
    clock.now += MODEL_S
    assert fleet.meant("other") == "tiny"


def test_a_replica_whose_model_is_not_known_may_have_any() -> None:
    fleet = Fleet(Clock())
    fleet.beat(replica("a", model=""))
    fleet.beat(replica("b", model="other"))
    assert [each.id for each in fleet.candidates("other")] == ["a", "b"]


def test_a_request_without_a_model_is_for_the_first_of_all_servers() -> None:
    fleet = Fleet(Clock())
    fleet.beat(replica("a"))
    fleet.beat(replica("a.1", url="http://a", model="other", order=1))
    fleet.beat(replica("b"))
    assert fleet.meant("") == "tiny"
    with pytest.raises(UnknownModelError, match="there is no model 'any name' in this fleet: name one of other, tiny"):
        fleet.meant("any name")
    assert [each.id for each in fleet.candidates("tiny", besides=["a.1"])] == ["b"], "a server is tried once"
    fleet.beat(replica("c", model="third"))
    with pytest.raises(UnknownModelError, match="the request names no model: name one of other, third, tiny"):
        fleet.meant("")


def test_a_model_that_sleeps_is_loaded_once_others_have_made_way() -> None:
    fleet = Fleet(Clock())
    awake = fleet.beat(replica("a", load=Load(2, 1, 0, 4, 600, 0)))
    asleep = fleet.beat(replica("a.1", model="other", readiness=Readiness(is_awake=False, load_ms=5000)))
    both = (awake, asleep)
    assert [each.wake_ms(both) for each in both] == [0, 5000]
    fleet.beat(replica("a.1", model="other", readiness=Readiness(is_awake=False, load_ms=5000, has_room=False)))
    assert asleep.wake_ms(both) == 5000 + 600 + 100 * 10, "what is read there, and a reply"
    waking = asleep.estimate(CHAIN, KNOWN, wake_ms=asleep.wake_ms(both))
    assert waking.work_ms == 6600 + 1000


def test_a_request_that_loads_a_model_counts_at_once() -> None:
    fleet = Fleet(Clock())
    small, large = Readiness(load_ms=1000), Readiness(is_awake=False, load_ms=5000, has_room=False)
    both = fleet.beat(replica("a", readiness=small)), fleet.beat(replica("a.1", model="other", readiness=large))
    flight = both[1].send(CHAIN, 6000)
    assert [each.wake_ms(both) for each in both] == [1000 + 6000 + 100 * 10, 0], "the one makes way for the other"
    assert both[1].queue_ms == 6000, "who comes later waits for what the first has begun"
    both[1].begun(flight)
    both[1].ended(flight)
    assert both[1].wake_ms(both) == 0, "it is awake, before its heartbeat tells so"


def test_a_name_is_resolved_as_each_server_does_it() -> None:
    fleet = Fleet(Clock())
    fleet.beat(replica("a", aliases=("claude-*", "small")))
    fleet.beat(replica("a.1", url="http://a", model="other", aliases=("claude-opus",), order=1))
    fleet.beat(replica("b", aliases=()))
    assert [fleet.meant(name) for name in ("claude-opus", "claude-haiku", "small:latest")] == ["other", "tiny", "tiny"]
    assert [each.id for each in fleet.candidates("tiny", name="tiny")] == ["a", "b"]
    assert [each.id for each in fleet.candidates("tiny", name="claude-haiku")] == ["a", "b"], "alone, b takes any name"
    fleet.beat(replica("b.1", url="http://b", model="third", order=1))
    assert [each.id for each in fleet.candidates("tiny", name="claude-haiku")] == ["a"], "b does not know it so"
    del fleet.views["a"]
    assert fleet.meant("small") == "small", "it is still the name of one that is gone"


def test_one_model_with_aliases_answers_to_these_alone() -> None:
    fleet = Fleet(Clock())
    fleet.beat(replica("a", aliases=("small",)))
    assert fleet.meant("small") == "tiny"
    with pytest.raises(UnknownModelError, match="there is no model 'other' in this fleet: name one of tiny"):
        fleet.meant("other")


def test_an_encoder_answers_by_its_names_and_leaves_any_other_to_the_model_beside_it() -> None:
    fleet = Fleet()
    fleet.beat(replica("a"))
    fleet.beat(replica("a.1", url="http://a", model="embed", aliases=("bge",), order=1, writes=False))
    fleet.beat(replica("b"))
    for name, model, ids in (("embed", "embed", ["a.1"]), ("bge", "embed", ["a.1"]), ("any name", "tiny", ["a", "b"])):
        assert fleet.meant(name) == model
        assert [each.id for each in fleet.candidates(model, name=name)] == ids
    assert fleet.meant("") == "tiny"
