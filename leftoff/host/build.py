"""From settings to a model host: the model, and on the engine's thread its engine, cache with tiers, and scheduler."""

import dataclasses
import math
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from leftoff.cache.blob_tier import TierSettings
from leftoff.cache.cache import Cache
from leftoff.cache.costs import SMALLEST_BYTES, Costs
from leftoff.cache.placement import Placement
from leftoff.cache.restore import Stay
from leftoff.config import ALL_LAYERS, AUTO, MIB, Settings
from leftoff.engine.binding.library import load_library
from leftoff.engine.context import ContextSettings
from leftoff.engine.devices import available_ram
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.errors import ModelError
from leftoff.engine.fit import Wishes, fit_model, shortage_explained
from leftoff.engine.measure import measure_at_load
from leftoff.engine.model import Model, Progress
from leftoff.engine.model_settings import ModelSettings
from leftoff.host.adapters import adapted, adapter_bytes
from leftoff.host.budgets import Capacities, queue_budget, ram_budget
from leftoff.host.drafts import beside, make_drafter, uses_mtp
from leftoff.host.encoder import EncoderHost
from leftoff.host.fleet import SHOWN_DIGITS, Fleet, model_label
from leftoff.host.host import ModelHost
from leftoff.host.kept import open_disk
from leftoff.host.pictures import checked_projector, open_projector
from leftoff.host.request_log import RequestLog
from leftoff.machine import default_threads, mapped_file_bytes
from leftoff.scheduler.batcher import Limits
from leftoff.scheduler.gate import Gate
from leftoff.scheduler.scheduler import Scheduler
from leftoff.setting import numbers

# With --deterministic, prefill chunks end at multiples of this. With a larger number more would be read again at each
# turn; a smaller one would slow prefill down: llama.cpp's kernels work on tiles of 64 tokens.
_GRID = 64
_VIEW_PART = 16  # times as much of the shared store is remembered as RAM holds
_PARKED_ON_GPU = 4  # each may take a recurrent state or a window of the GPU's memory
_MAX_CONTEXT = 1 << 17  # unless asked for: some models are trained for more than memory holds


@dataclass(frozen=True)
class Fitted:
    """The settings with what `--fit` chooses for this model and this machine, and a line that tells it."""

    settings: Settings
    line: str = ""
    needs: Mapping[str, int] = field(default_factory=dict)  # bytes on each device, where that is known
    room: Mapping[str, int] = field(default_factory=dict)
    shared: Capacities | None = None  # with other models
    chosen: frozenset[str] = frozenset()  # the names of the settings that were left open, and are not any more


def fitted(settings: Settings, room: Mapping[str, int] | None = None) -> Fitted:
    """Asks llama.cpp what the model takes, and chooses what was left open.

    With `room`, so many bytes of each device may be used, whatever other models have of it now.
    """
    if not settings.fit:
        return Fitted(settings)
    wishes = Wishes(
        settings.ctx,
        most_cells=_MAX_CONTEXT,
        fewest_cells=settings.fit_ctx,
        chooses_layers=settings.gpu_layers != ALL_LAYERS,
        margins=tuple(int(mebibytes * MIB) for mebibytes in numbers(settings.fit_target or "0")),
    )
    projector = checked_projector(settings, Path(settings.model))
    context, num_bytes = _context_settings(settings), projector.stat().st_size if projector is not None else 0
    num_bytes += adapter_bytes(settings)
    where = _model_settings(settings)
    draft = beside(settings, where, context)
    fit = fit_model(Path(settings.model), where, context, wishes, room, beside_bytes=num_bytes, draft=draft)
    own = dataclasses.replace(
        settings, ctx=fit.num_cells, gpu_layers=fit.model.gpu_layers, n_cpu_moe=fit.model.n_cpu_moe
    )
    chosen = frozenset(name for name, value in vars(own).items() if value != getattr(settings, name))
    return Fitted(own, fit.line, fit.needs, fit.room, chosen=chosen)


def open_host(
    wanted: Settings | Fitted,
    *,
    fleet: Fleet | None = None,
    log: RequestLog | None = None,
    sampling: dict[str, Any] | None = None,
    progress: Progress | None = None,
    gate: Gate | None = None,
) -> ModelHost:
    """Loads the model of the settings and makes all that belongs to it. A fleet comes unjoined.

    With a `gate`, other models share this machine's memory.
    """
    fit = wanted if isinstance(wanted, Fitted) else fitted(wanted)
    settings = fit.settings
    may_sleep = gate is not None or settings.sleep_idle_seconds >= 0
    where, context = _model_settings(settings), _context_settings(settings)
    began = time.perf_counter()
    model = load_model(Path(settings.model), where, context, _while_wanted(progress, gate), may_sleep=may_sleep)
    make = partial(make_scheduler, settings=settings, fleet=fleet, gate=gate, shared=fit.shared)
    host = ModelHost(
        model, make, settings, fleet=fleet, log=log, sampling=sampling, fit_line=fit.line, chosen=fit.chosen
    )
    host.scheduler.gate.load_s = time.perf_counter() - began
    return host


def _while_wanted(progress: Progress | None, gate: Gate | None) -> Progress:
    """The progress of a load that ends when nobody waits for it any more."""

    def report(fraction: float) -> bool:
        if progress is not None:
            progress(fraction)
        return gate is None or gate.is_wanted()

    return report


def open_text_encoder(settings: Settings) -> EncoderHost:
    """Loads a model that reads texts and writes none."""
    model = load_model(Path(settings.model), _model_settings(settings), _context_settings(settings))
    return EncoderHost(model, settings)


def load_model(
    path: Path,
    where: ModelSettings,
    context: ContextSettings,
    progress: Progress | None = None,
    *,
    may_sleep: bool = False,
) -> Model:
    """Loads a model, which must be able to write text."""
    with shortage_explained(path, where, context):
        model = Model(path, where, progress=progress, may_sleep=may_sleep)
    try:
        model.require_text()
    except ModelError:
        model.close()
        raise
    return model


def make_scheduler(
    model: Model,
    settings: Settings,
    fleet: Fleet | None = None,
    gate: Gate | None = None,
    shared: Capacities | None = None,
) -> Scheduler:
    """An engine, its cache with the tiers that are configured, and the scheduler over both."""
    context = adapted(_context_settings(settings, model.trained_context), settings, model)
    projector = open_projector(settings, model, context)
    try:
        engine = LlamaEngine(model, context if projector is None else projector.context_for(context))
    except BaseException:
        if projector is not None:
            projector.close()
        raise
    engine.projector = projector
    with ExitStack() as opened:
        opened.callback(engine.close)
        shared = shared or Capacities(_ram_bytes(engine, settings))
        cache = _cache(engine, settings, fleet, shared)
        opened.callback(cache.close, 0.0)  # it has locked its folder
        drafter = make_drafter(engine, cache, settings, lambda other: _cache_beside(other, shared))
        opened.pop_all()
    if drafter is None:
        engine.close_head()
    limits = Limits(queue=settings.queue, at_once=1 if settings.deterministic else settings.slots)
    return Scheduler(engine, cache, limits, drafter, gate or Gate(sleep_after_s(settings)))


def sleep_after_s(settings: Settings) -> float:
    """How long a model may be idle before it sleeps."""
    return settings.sleep_idle_seconds if settings.sleep_idle_seconds >= 0 else math.inf


def _cache(engine: LlamaEngine, settings: Settings, fleet: Fleet | None, shared: Capacities) -> Cache:
    costs = measured_costs(engine)
    shared.add(engine)
    ram_bytes = shared.ram.nbytes
    disk = open_disk(engine, settings, shared, costs.prefill_ms(1))
    store = _open_store(engine, fleet, ram_bytes) if fleet is not None else None
    return Cache(
        engine.memory,
        num_slots=settings.slots,
        budget_bytes=shared.ram,
        tiers=[tier for tier in (disk, store) if tier is not None],
        placement=_placement(engine),
        costs=costs,
        stay=Stay.IF_FASTER if settings.parked < 0 and engine.memory.num_sequences > settings.slots else None,
    )


def _cache_beside(engine: LlamaEngine, shared: Capacities) -> Cache:
    """The cache of a draft model, in the RAM of all."""
    shared.add(engine)
    placement = _placement(engine)
    return Cache(engine.memory, num_slots=1, budget_bytes=shared.ram, placement=placement, costs=measured_costs(engine))


def _placement(engine: LlamaEngine) -> Placement:
    """Where snapshots are taken: on a CPU only as densely as is cheap, since a pause costs more than a person gains."""
    if engine.is_on_device:
        return Placement(grid=engine.settings.grid)
    return Placement(
        most_overhead=Placement.overhead,
        longest_replay_ms=Placement.scarce_replay_ms,
        near_replay_ms=Placement.scarce_replay_ms,
        grid=engine.settings.grid,
    )


def measured_costs(engine: LlamaEngine) -> Costs:
    """The costs of prefill, saving and loading on this machine, measured at load: no request waits for it."""
    rates = measure_at_load(engine)
    costs = Costs(
        prefill_tokens_per_ms=rates.prefill.tokens_per_s / 1000,
        rate_tokens=rates.prefill.num_tokens,
        cut_ms=rates.cut_ms,
        step_ms=rates.step_ms,
    )
    if rates.moved.nbytes >= SMALLEST_BYTES:
        costs.save_bytes_per_ms = rates.moved.save_bytes_per_s / 1000
        costs.large_save_bytes = rates.moved.nbytes
        costs.load_bytes_per_ms = rates.moved.load_bytes_per_s / 1000
    if engine.memory.kind.has_snapshots:
        costs.snapshot_ms = 1000 * rates.moved.nbytes / rates.moved.save_bytes_per_s
    costs.saw_step(rates.step_ms)  # beside next to no cells: longer sequences then show what a cell costs
    return costs


def _ram_bytes(engine: LlamaEngine, settings: Settings) -> int:
    if settings.ram != AUTO:
        return settings.ram * MIB
    mapped = mapped_file_bytes()
    return ram_budget(engine.memory, available_ram() - (engine.model.size_bytes if mapped is None else mapped))


def _open_store(engine: LlamaEngine, fleet: Fleet, ram_bytes: int) -> TierSettings | None:
    settings, model = engine.settings, engine.model
    types = "/".join(dict.fromkeys([settings.kv_type, settings.v_type]))
    library = model.library.fingerprint[:SHOWN_DIGITS]
    fleet.join(engine.memory, f"{model_label(model.path, model.fingerprint)}, library {library}, KV {types}")
    view_bytes = _VIEW_PART * max(ram_bytes, MIB)
    return fleet.open_store(engine.context.arena, queue_bytes=queue_budget(ram_bytes), view_bytes=view_bytes)


def _model_settings(settings: Settings) -> ModelSettings:
    return ModelSettings(
        gpu_layers=settings.gpu_layers,
        devices=tuple(filter(None, map(str.strip, settings.device.split(",")))),
        split_mode=settings.split_mode,
        tensor_split=numbers(settings.tensor_split),
        main_gpu=settings.main_gpu,
        n_cpu_moe=settings.n_cpu_moe,
        cpu_moe=settings.cpu_moe,
        override_tensor=settings.override_tensor,
        mmap=settings.mmap,
        mlock=settings.mlock,
        mtp=uses_mtp(settings),
    )


def _num_parked(settings: Settings) -> int:
    """How many idle sequences stay in the engine: on a CPU they cost replies more time than loading them again does."""
    if settings.parked >= 0:
        return settings.parked
    uses_gpus = settings.gpu_layers != 0 and _model_settings(settings).used_devices(load_library())
    return _PARKED_ON_GPU if uses_gpus and not settings.deterministic else 0


def _context_settings(settings: Settings, trained_context: int = _MAX_CONTEXT) -> ContextSettings:
    return ContextSettings(
        num_cells=settings.ctx or min(trained_context, _MAX_CONTEXT),
        num_sequences=settings.slots + _num_parked(settings),
        batch_tokens=settings.batch,
        micro_batch_tokens=settings.ubatch,
        threads=settings.threads or default_threads(),
        threads_batch=settings.threads_batch,
        kv_type=settings.cache_type_k or settings.kv_type,
        values_type=settings.cache_type_v or settings.kv_type,
        flash_attention=settings.flash_attn,
        grid=_GRID if settings.deterministic else None,
    )
