"""The cache as a scheduler sees it: slots, tenants, cancels, budgets, and what the report says of them."""

import weakref
from collections.abc import Callable, Container

import numpy as np
import pytest

from leftoff.cache.cache import Cache
from leftoff.cache.costs import Costs
from leftoff.cache.lookup import Lookup
from leftoff.cache.placement import Placement
from leftoff.cache.plan import Plan
from leftoff.cache.policy import ValuePerByte
from leftoff.cache.report import Reason
from leftoff.cache.restore import Stay
from leftoff.cache.sequences import EngineSequence
from leftoff.engine.errors import NoRoomError
from leftoff.engine.memory.base import MemoryKind
from leftoff.types import MessageSpan, Prompt
from tests.cache.chain import BYTES_PER_TOKEN, SNAPSHOT_BYTES, ChainMemory
from tests.cache.driver import Driver, Table, slowed_by
from tests.cache.trees import UNLIMITED, Clock, run

KINDS = list(MemoryKind)
PAGED = [kind for kind in MemoryKind if kind.has_pages]


# --- slots


@pytest.mark.parametrize("kind", KINDS)
def test_a_turn_waits_while_every_slot_is_busy(kind: MemoryKind) -> None:
    table = Table(kind)
    turn = table.begin(Prompt(run((1, 20))))
    assert turn is not None
    assert table.begin(Prompt(run((2, 20)))) is None
    table.cache.finish(turn)
    assert table.begin(Prompt(run((2, 20)))) is not None


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_turn_goes_on_in_its_slot(kind: MemoryKind) -> None:
    table = Table(kind, num_slots=1 if kind is MemoryKind.OPAQUE else 3)
    turn = table.request(Prompt(run((1, 50))), run((2, 10)))
    again = table.request(Prompt(run((1, 50), (2, 10), (3, 20))))
    assert again.seq == turn.seq
    assert again.report.line() == "reused 60 of 80 from a live slot · 20 new"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not MemoryKind.OPAQUE])
def test_an_idle_sequence_beyond_the_slots_is_not_overwritten(kind: MemoryKind) -> None:
    table = Table(kind, num_spares=1)
    table.ask(run((1, 100)))
    table.ask(run((2, 60)))
    assert table.ask(run((1, 100), (3, 10))) == "reused 100 of 110 from a live slot · 10 new"
    assert table.ask(run((2, 60), (3, 10))).startswith("reused 60 of 70")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not MemoryKind.OPAQUE])
def test_a_conversation_that_branches_takes_the_place_of_its_old_end(kind: MemoryKind) -> None:
    def chat(*parts: tuple[int, int]) -> Prompt:
        tokens = run((1, 20), *parts)
        return Prompt(tokens, (MessageSpan("system", 0, 20), MessageSpan("user", 20, int(tokens.size))))

    table = Table(kind, num_spares=1)
    other, first = (table.request(chat((number, 60))) for number in (2, 3))
    branch = table.request(chat((3, 50), (4, 20)))
    assert branch.seq == first.seq, "though the other was used longer ago"
    assert table.request(chat((5, 60))).seq == other.seq, "one that shares only the header is another conversation"


def test_of_several_branches_a_prompt_takes_the_place_of_the_one_it_shares_most_with() -> None:
    table = Table(MemoryKind.ATTENTION, num_slots=3, stay=Stay.ALWAYS)
    running = [table.begin(Prompt(tokens)) for tokens in (run((9, 50)), run((1, 70), (2, 30)), run((1, 90), (3, 10)))]
    for turn in reversed(running):
        assert turn is not None
        table.read(turn)
        table.cache.finish(turn)
    assert running[2] is not None
    assert table.request(Prompt(run((1, 85), (4, 15)))).seq == running[2].seq


@pytest.mark.parametrize("kind", [MemoryKind.ATTENTION, MemoryKind.HYBRID, MemoryKind.WINDOW])
@pytest.mark.parametrize(
    ("costs", "source"), [(slowed_by(0.0001), "a live slot"), (slowed_by(0.1), "RAM"), (Costs(), "RAM")]
)
def test_an_idle_sequence_stays_while_loading_it_would_take_longer(kind: MemoryKind, costs: Costs, source: str) -> None:
    table = Table(kind, num_slots=1, num_spares=2, costs=costs, stay=Stay.IF_FASTER)
    for number in (1, 2, 3):
        table.ask(run((number, 100)))
        table.cache.save_idle()
    for number in (1, 2, 3):
        line = table.ask(run((number, 100), (9, 10)))
        assert f"from {source} " in line


@pytest.mark.parametrize("kind", [MemoryKind.ATTENTION, MemoryKind.HYBRID, MemoryKind.WINDOW])
@pytest.mark.parametrize(("num_shared", "is_in_place"), [(98, True), (50, False)])
def test_a_parked_sequence_is_cut_in_place_if_it_loses_little(
    kind: MemoryKind, num_shared: int, is_in_place: bool
) -> None:
    table = Table(kind, num_slots=1, num_spares=2, costs=slowed_by(0.0001), stay=Stay.IF_FASTER)
    for number in (1, 2):
        first = table.request(Prompt(run((number, num_shared))))
        table.request(Prompt(run((number, num_shared), (5, 100 - num_shared))))
        table.cache.save_idle()
    turn = table.request(Prompt(run((2, num_shared), (6, 10))))
    assert (turn.seq == first.seq) is is_in_place
    table.cache.check_integrity()


@pytest.mark.parametrize("kind", [MemoryKind.ATTENTION, MemoryKind.HYBRID, MemoryKind.WINDOW])
def test_a_sequence_that_is_cut_in_place_saves_no_more_than_it_loses(kind: MemoryKind) -> None:
    table = Table(kind, num_slots=1, num_spares=2, costs=slowed_by(0.0001), stay=Stay.IF_FASTER)
    table.memory.group_bytes = 1 << 20  # as on a GPU: a prompt that is alone saves its pages once nothing runs
    old = run((1, 980), (5, 20))
    table.request(Prompt(run((1, 980))), run((5, 20)))
    table.request(Prompt(run((1, 980), (6, 10))))
    covered = table.cache.ram.match("", old).num_covered
    assert covered(980) == 20
    assert covered() == 20
    table.cache.save_idle()
    assert table.ask(np.concatenate([old, run((7, 10))])).startswith("reused 1,000 of 1,010")
    assert table.ask(run((1, 980), (6, 10), (7, 10))).startswith("reused 990 of 1,000")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [0, 4097])
def test_a_prompt_that_cannot_fit_is_refused(kind: MemoryKind, length: int) -> None:
    with pytest.raises(NoRoomError, match=f"a prompt of {length} tokens"):
        Table(kind).cache.begin(Prompt(run((1, length))))


# --- prompts


@pytest.mark.parametrize("kind", KINDS)
def test_a_chat_may_begin_with_the_user(kind: MemoryKind) -> None:
    table = Table(kind)
    table.request(Prompt(run((1, 31)), (MessageSpan("user", 0, 27),)))
    table.cache.check_integrity()


@pytest.mark.parametrize("kind", KINDS)
def test_regenerating_computes_nothing(kind: MemoryKind) -> None:
    table = Table(kind)
    table.request(Prompt(run((1, 50))), run((2, 10)))
    turn = table.request(Prompt(run((1, 50))), run((3, 10)))
    assert turn.logits is not None
    assert turn.report.computed == 0


# --- engine cells


@pytest.mark.parametrize("kind", PAGED)
def test_idle_states_that_are_kept_leave_the_engine_to_the_running_one_and_come_back_from_ram(kind: MemoryKind) -> None:
    table = Table(kind, num_slots=3, num_cells=250)
    for value in (1, 2, 3):
        table.ask(run((value, 100)))
    assert sum(not sequence.is_empty for sequence in table.cache.sequences) == 1
    assert table.ask(run((1, 100), (9, 10))) == "reused 100 of 110 from RAM · 10 new"


@pytest.mark.parametrize("kind", PAGED)
def test_loading_behind_what_is_shared_in_place_makes_room_first(kind: MemoryKind) -> None:
    """[0 ·· from the slot itself ·· 30)[30 ·· pages ·· 200): the idle neighbour must go before the slot is touched."""
    table = Table(kind, num_slots=2, num_cells=320)
    long, other = run((1, 30), (2, 170)), run((1, 30), (3, 60))
    table.ask(long)
    neighbour = table.begin(Prompt(run((8, 10))))
    assert neighbour is not None
    table.ask(other)  # in the slot of the long one, which is in RAM now
    table.cache.finish(neighbour)
    table.ask(run((7, 200)))
    assert table.ask(np.concatenate([long, run((4, 5))])) == "reused 200 of 205 from RAM · 5 new"


@pytest.mark.parametrize("kind", PAGED)
def test_a_slot_is_free_again_when_there_was_no_room_to_load(kind: MemoryKind) -> None:
    table = Table(kind, num_slots=2, num_cells=300)
    table.ask(run((1, 200)))
    table.ask(run((2, 100)))
    busy = table.begin(Prompt(run((3, 150))))
    assert busy is not None
    table.read(busy)
    with pytest.raises(NoRoomError):
        table.cache.begin(Prompt(run((1, 200), (4, 10))))
    table.cache.check_integrity()
    table.cache.finish(busy)
    assert all(not sequence.is_busy for sequence in table.cache.sequences)
    assert table.ask(run((1, 200), (4, 10))) == "reused 200 of 210 from RAM · 10 new"


def test_where_ram_is_half_full_snapshots_take_no_more_of_it_than_pages() -> None:
    memory = ChainMemory(MemoryKind.HYBRID, 1, num_cells=8192, fixed_snapshot_bytes=6400)
    cache = Cache(memory, num_slots=1, budget_bytes=700_000, clock=Clock(), page_tokens=32)
    driver, length = Driver(cache, memory, chunk=512), 4000
    num_snapshots = []
    for number in range(2):
        turn = driver.begin(Prompt(run((number, length))))
        assert turn is not None
        num_snapshots.append(len(turn.snapshot_positions))
        driver.read(turn)
        cache.finish(turn)
        assert not cache.ram.budget.is_mostly_free
    most = length * BYTES_PER_TOKEN // 6400
    assert num_snapshots[0] > 4 * most, "while there is room they are dense"
    assert num_snapshots[1] < 2 * most, "with a few more near the end"


def test_the_last_free_cell_is_used() -> None:
    table = Table(MemoryKind.ATTENTION, num_slots=2, num_cells=300, stay=Stay.ALWAYS)
    table.ask(run((2, 100)))
    turn = table.begin(Prompt(run((1, 200))))
    assert turn is not None
    table.read(turn)
    assert table.memory.free_cells == 0
    table.cache.make_cells(100)  # the idle one makes way
    with pytest.raises(NoRoomError):
        table.cache.make_cells(101)


@pytest.mark.parametrize("kind", PAGED)
def test_after_a_load_that_failed_a_sequence_is_what_the_engine_holds(
    kind: MemoryKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(kind, num_slots=2, stay=Stay.ALWAYS)
    for number in range(3):
        table.ask(run((number, 100)))
    lengths = [table.memory.length(sequence.seq) for sequence in table.cache.sequences]

    def fail(*_: object, **__: object) -> None:
        raise NoRoomError("a device is gone")

    with monkeypatch.context() as patch:
        patch.setattr(table.memory, "restore", fail)
        with pytest.raises(NoRoomError):
            table.cache.begin(Prompt(run((0, 100), (9, 5))))
    held = [table.memory.length(sequence.seq) for sequence in table.cache.sequences]
    assert (sum(lengths), sum(held)) == (200, 100), "one was dropped for it"
    assert [sequence.length for sequence in table.cache.sequences] == held
    assert table.ask(run((0, 100), (9, 5))) == "reused 100 of 105 from RAM · 5 new"


# --- cancelling


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_read_before_a_cancel_stays_usable(kind: MemoryKind) -> None:
    table = Table(kind)
    turn = table.begin(Prompt(run((1, 200))))
    assert turn is not None
    table.read(turn, 130)
    table.cache.finish(turn)
    assert table.ask(run((1, 200))).startswith("reused 130 of 200")


@pytest.mark.parametrize("kind", KINDS)
def test_a_decode_cancelled_halfway_loses_no_snapshot(kind: MemoryKind) -> None:
    table = Table(kind)
    turn = table.begin(Prompt(run((1, 200))))
    assert turn is not None
    table.read(turn, 130)
    table.memory.spoil(turn.seq)
    table.cache.finish(turn)
    table.cache.check_integrity()
    assert table.ask(run((1, 200))).startswith("reused 1")


# --- tenants


@pytest.mark.parametrize("kind", KINDS)
def test_tenants_share_nothing(kind: MemoryKind) -> None:
    table = Table(kind)
    table.ask(run((1, 100)), "one/")
    assert table.ask(run((1, 100)), "two/") == "reused 0 of 100 · 100 new", "what others have sent is not told"
    assert table.ask(run((1, 100)), "one/salt") == "reused 0 of 100 · 100 other salt"
    assert table.ask(run((1, 100)), "one/").startswith("reused 100 of 100")
    adapter = f"/lora:{'0' * 32}"
    assert table.ask(run((1, 100)), f"one/{adapter}") == "reused 0 of 100 · 100 new", "no salt is to blame"
    assert table.ask(run((1, 100)), f"one/salt{adapter}") == "reused 0 of 100 · 100 other salt"


# --- reasons


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_given_up_for_the_budget_is_called_evicted(kind: MemoryKind) -> None:
    memory = ChainMemory(kind)
    table = Table(kind, budget_bytes=memory.page_bytes(100) + 2 * memory.snapshot_bytes(100) + 8)
    table.ask(run((1, 100)))
    for value in (2, 3, 4):
        table.ask(run((value, 100)))
    turn = table.request(Prompt(run((1, 100), (9, 10))))
    assert [part.reason for part in turn.report.rereads] == [Reason.EVICTED, Reason.NEW]
    assert turn.report.reused == 0


def test_a_change_is_shown_from_both_sides() -> None:
    table = Table(MemoryKind.HYBRID)
    table.ask(run((1, 100), (2, 50)))
    turn = table.request(Prompt(run((1, 100), (3, 50))))
    assert [part.reason for part in turn.report.rereads] == [Reason.NO_SNAPSHOT, Reason.NEW]
    assert (set(turn.report.before.tolist()), set(turn.report.after.tolist())) == ({2}, {3})


def test_a_change_before_known_text_is_an_edit_wherever_the_tree_branches() -> None:
    table = Table(MemoryKind.HYBRID)
    for end in (7, 8):  # the tree branches behind the text that is found again
        table.ask(run((1, 100), (2, 5), (4, 50), (end, 20)))
    turn = table.request(Prompt(run((1, 100), (3, 5), (4, 50), (9, 20))))
    found = [(part.reason, part.num_tokens) for part in turn.report.rereads]
    assert found[-2:] == [(Reason.EDITED, 55), (Reason.NEW, 20)]


# --- what the engine holds need not be in RAM as well


def two_chats_bytes(kind: MemoryKind) -> int:
    return 2 * (120 * BYTES_PER_TOKEN + (2 * SNAPSHOT_BYTES if kind.has_snapshots else 0))


@pytest.mark.parametrize("kind", PAGED)
def test_slots_and_ram_hold_together_what_neither_holds_alone(kind: MemoryKind) -> None:
    table = Table(kind, num_slots=2, budget_bytes=two_chats_bytes(kind), policy=ValuePerByte())
    chats = {value: run((value, 100)) for value in (1, 2, 3, 4)}
    for tokens in chats.values():
        table.ask(tokens)
    for turn in range(6, 10):
        for value, tokens in chats.items():
            chats[value] = np.concatenate([tokens, run((turn, 5))])
            assert table.ask(chats[value]).startswith(f"reused {tokens.size} of {tokens.size + 5}")


@pytest.mark.parametrize("kind", PAGED)
def test_with_one_slot_ram_alone_holds_too_little(kind: MemoryKind) -> None:
    table = Table(kind, budget_bytes=two_chats_bytes(kind))
    for value in (1, 2, 3, 4):
        table.ask(run((value, 100)))
    assert not table.ask(run((1, 100), (5, 5))).startswith("reused 100")


@pytest.mark.parametrize("kind", PAGED)
def test_what_is_given_up_for_the_engine_comes_back_when_the_sequence_leaves_it(kind: MemoryKind) -> None:
    table = Table(kind, num_slots=2)
    table.ask(run((1, 100)))
    table.cache.save_idle()
    budget = table.cache.ram.budget
    assert budget.shed is not None
    budget.shed(budget.budget_bytes)  # as if all of it were needed
    assert budget.used_bytes < 100 * BYTES_PER_TOKEN
    for value in (2, 3, 4):
        table.ask(run((value, 50)))
    assert table.ask(run((1, 100), (5, 5))) == "reused 100 of 105 from RAM · 5 new"


def test_a_point_that_is_evicted_is_gone_though_a_sequence_went_on_from_it() -> None:
    table = Table(MemoryKind.HYBRID)
    table.ask(run((1, 100)))
    point = table.cache.sequences[0].point
    assert point is not None
    seen = weakref.ref(point)
    table.cache.ram.budget.drop(point)
    del point
    assert seen() is None
    assert table.ask(run((1, 100), (2, 5))).startswith("reused 100 of 105")


# --- keeping


@pytest.mark.parametrize("kind", KINDS)
def test_writing_behind_saves_once_and_clear_forgets(kind: MemoryKind) -> None:
    table = Table(kind)
    table.ask(run((1, 100)))
    table.cache.save_idle()
    used = table.cache.ram.budget.used_bytes
    table.cache.save_idle()
    assert table.cache.ram.budget.used_bytes == used > 0
    table.cache.clear()
    table.cache.check_integrity()
    assert table.cache.ram.budget.used_bytes == 0
    assert table.ask(run((1, 100))) == "reused 0 of 100 · 100 new"


@pytest.mark.parametrize("kind", KINDS)
def test_clearing_leaves_a_running_turn_alone(kind: MemoryKind) -> None:
    table = Table(kind)
    turn = table.begin(Prompt(run((1, 200))))
    assert turn is not None
    table.read(turn, 100)
    table.cache.clear()
    table.read(turn)
    table.cache.finish(turn)
    table.cache.check_integrity()
    assert table.ask(run((1, 200), (2, 10))).startswith("reused 200 of 210")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("budget_bytes", [0, 3000])
def test_what_is_remembered_only_to_explain_is_bounded(kind: MemoryKind, budget_bytes: int) -> None:
    table = Table(kind, budget_bytes=budget_bytes, seen_tokens=500)
    rng = np.random.default_rng(1)
    for _ in range(60):
        tokens = np.concatenate([run((1, 40)), rng.integers(0, 3, 40).astype(np.int32)])
        table.ask(tokens)
        held = budget_bytes // 8
        assert sum(tree.num_tokens for tree in table.cache.ram.trees.values()) <= 500 + 80 + held


def test_forgetting_stops_at_what_has_become_one_with_a_parent_that_holds_data() -> None:
    table = Table(MemoryKind.RECURRENT, seen_tokens=100)
    table.ask(run((1, 40)))
    for value in (2, 3):
        table.ask(run((1, 40), (value, 30)))
    table.cache.save_idle()
    budget = table.cache.ram.budget
    for point in [point for node in table.cache.ram.trees[""].nodes() for point in node.points if point.position > 40]:
        budget.drop(point)
    table.ask(run((5, 50)))
    assert table.ask(run((1, 40), (6, 5))).startswith("reused 40 of 45")


@pytest.mark.parametrize("kind", [MemoryKind.ATTENTION, MemoryKind.HYBRID, MemoryKind.WINDOW])
def test_a_long_idle_sequence_that_shares_little_makes_way(kind: MemoryKind) -> None:
    table = Table(kind, num_slots=2, num_cells=256)
    short, long = run((1, 4), (2, 32)), run((1, 4), (3, 240))
    table.ask(short)
    table.ask(long)
    assert table.ask(np.concatenate([short, run((4, 2))])).startswith("reused 36 of 38")


# --- tenants who make trouble


def test_ever_new_namespaces_are_forgotten() -> None:
    table = Table(MemoryKind.HYBRID, budget_bytes=20 * SNAPSHOT_BYTES)
    for number in range(700):
        table.request(Prompt(run((number, 20))), namespace=f"salt {number}")
    trees = table.cache.ram.trees
    assert len(trees) < 600
    assert "salt 699" in trees
    table.cache.check_integrity()


def test_to_look_for_something_leaves_nothing_behind() -> None:
    table = Table(MemoryKind.HYBRID)
    table.cache.plan(Prompt(run((1, 20))), "never seen")
    assert "never seen" not in table.cache.ram.trees


def test_to_clear_what_is_mine_costs_others_nothing() -> None:
    table = Table(MemoryKind.HYBRID, num_slots=2, budget_bytes=9000)
    table.request(Prompt(run((1, 300))), namespace="other")
    table.cache.save_idle()
    table.request(Prompt(run((2, 380))), namespace="mine")
    budget = table.cache.ram.budget
    before = budget.num_evictions
    table.cache.clear(lambda namespace: namespace == "mine")
    assert budget.num_evictions == before
    assert table.ask(run((1, 300), (3, 5)), namespace="other").startswith("reused 300 of 305")
    assert table.ask(run((2, 380)), namespace="mine").startswith("reused 0")


# --- one plan for each admission


def counted(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans that are made."""
    planner, made = cache._planner, list[Plan]()
    best = planner.best

    def counting(lookup: Lookup, besides: Container[EngineSequence] = ()) -> Plan:
        made.append(best(lookup, besides))
        return made[-1]

    monkeypatch.setattr(planner, "best", counting)
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_an_admission_plans_once(kind: MemoryKind, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(kind, num_slots=2)
    table.ask(run((1, 100)))
    table.cache.save_idle()
    made = counted(table.cache, monkeypatch)
    prompt = Prompt(run((1, 100), (2, 20)))
    plan = table.cache.plan(prompt)
    table.cache.fetch(prompt)
    turn = table.begin(prompt)
    assert turn is not None
    assert turn.report.reused == plan.resume == 100
    assert made == [plan]


def test_a_plan_is_made_anew_for_another_prompt_or_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(MemoryKind.HYBRID)
    table.ask(run((1, 100)))
    made = counted(table.cache, monkeypatch)
    prompt = Prompt(run((1, 100), (2, 20)))
    for asked, namespace in ((prompt, ""), (prompt, ""), (prompt, "other"), (Prompt(run((1, 60))), "other")):
        table.cache.plan(asked, namespace)
    assert [plan.resume for plan in made] == [100, 0, 0]


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.ask(run((9, 5))),  # a sequence and the trees
        lambda table: table.cache.clear(),
        lambda table: table.cache.drop_one_idle(),  # the sequence alone
        lambda table: table.cache.ram.budget.drop(next(table.cache.ram.match("", run((1, 100))).points())),
        lambda table: table.cache.ram.insert("", run((1, 50), (3, 9))),
    ],
)
def test_a_plan_is_made_anew_after_a_change(change: Callable[[Table], None], monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(MemoryKind.HYBRID, num_slots=2)
    table.ask(run((1, 100)))
    table.cache.save_idle()
    prompt = Prompt(run((1, 100), (2, 20)))
    before = table.cache.plan(prompt)
    change(table)
    made = counted(table.cache, monkeypatch)
    assert table.cache.plan(prompt) is not before
    assert len(made) == 1
    assert table.request(prompt).report.reused in (0, 100), "and it is carried out as it is now"


# --- a sequence that is brought back, or dropped, by request


@pytest.mark.parametrize("kind", list(MemoryKind))
def test_a_sequence_is_loaded_and_stays_until_it_is_dropped(kind: MemoryKind) -> None:
    table, kept = Table(kind), run((1, 100))
    table.ask(kept)
    table.ask(run((2, 100)))
    loaded = table.cache.load_sequence(kept, "")
    assert loaded is not None
    assert loaded.num_tokens == 100
    table.memory.assert_holds(loaded.seq, kept)
    (sequence,) = (each for each in table.cache.sequences if each.seq == loaded.seq)
    assert np.array_equal(sequence.tokens, kept)
    table.cache.drop_sequence(sequence)
    assert (sequence.length, table.memory.length(loaded.seq)) == (0, 0)
    assert "reused 100 of 105" in table.ask(run((1, 100), (3, 5))), "the tiers keep what they have"


@pytest.mark.parametrize(("grid", "is_loaded"), [(None, True), (64, False)])
def test_on_a_grid_nothing_is_loaded_beside_a_running_request(grid: int | None, is_loaded: bool) -> None:
    memory = ChainMemory(MemoryKind.ATTENTION, 3)
    cache = Cache(memory, num_slots=3, budget_bytes=UNLIMITED, placement=Placement(grid=grid), page_tokens=32)
    driver = Driver(cache, memory)
    driver.request(Prompt(run((1, 128))))
    running = driver.begin(Prompt(run((2, 100))))
    assert running is not None
    assert (cache.load_sequence(run((1, 128)), "") is not None) == is_loaded
    cache.finish(running)
    assert cache.load_sequence(run((1, 128)), "") is not None
