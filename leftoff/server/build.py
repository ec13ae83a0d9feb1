"""From settings to what runs: engine, cache with its tiers, scheduler. Called on the engine's thread."""

import dataclasses
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from leftoff.cache.cache import Cache
from leftoff.cache.costs import SMALLEST_BYTES, Costs
from leftoff.cache.disk_tier import DiskSettings
from leftoff.cache.placement import Placement
from leftoff.cache.restore import Stay
from leftoff.cache.store_tier import StoreSettings
from leftoff.config import ALL_LAYERS, AUTO, MIB, Settings
from leftoff.disk.errors import FolderError
from leftoff.disk.headers import HeaderFiles
from leftoff.disk.reply_store import FileReplyStore
from leftoff.disk.secret import folder_secret, new_secret
from leftoff.disk.store import FileBlobStore
from leftoff.disk.tools.models import make_room_among_models, models
from leftoff.drafts.batch_times import BatchTimes
from leftoff.drafts.drafter import Drafter
from leftoff.drafts.mtp import MtpDrafts
from leftoff.engine.binding.library import load_library
from leftoff.engine.context import ContextSettings, default_threads
from leftoff.engine.devices import available_ram, default_gpus
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.errors import ModelError
from leftoff.engine.fingerprint import cache_folder
from leftoff.engine.fit import Wishes, fit_model, shortage_explained
from leftoff.engine.measure import measure_at_load, measure_batches, measure_mtp
from leftoff.engine.model import Model, Progress
from leftoff.engine.model_settings import ModelSettings
from leftoff.engine.mtp import mtp_problem
from leftoff.machine import free_disk_bytes, mapped_file_bytes, num_cores
from leftoff.scheduler.batcher import Limits
from leftoff.scheduler.scheduler import Scheduler
from leftoff.server.budgets import disk_budget, queue_budget, ram_budget
from leftoff.setting import SettingError, numbers

if TYPE_CHECKING:
    from leftoff.store.fleet import FleetMember

logger = logging.getLogger("leftoff.disk")
drafts_logger = logging.getLogger("leftoff.drafts")

# The borders of pieces with --deterministic. Fewer would have more read again at each turn; more would slow reading
# down: llama.cpp's kernels work on tiles of 64 tokens.
_GRID = 64
_VIEW_PART = 16  # times as much of the shared store is remembered as RAM holds
_SHOWN_DIGITS = 8
_CORES_FOR_DISK = 4  # from so many on, a GPU does not notice that the disk is written
_PARKED_ON_GPU = 4  # each may take a recurrent state or a window of the GPU's memory
_LEAST_GAIN = 1.5  # if every token of a draft were right; half of that is often lost
_MAX_CONTEXT = 1 << 17  # unless asked for: some models are trained for more than memory holds


def fitted(settings: Settings) -> tuple[Settings, str]:
    """The settings with what `--fit` chooses for this model and this machine, and a line that tells it."""
    if not settings.fit:
        return settings, ""
    wishes = Wishes(
        settings.ctx,
        most_cells=_MAX_CONTEXT,
        fewest_cells=settings.fit_ctx,
        chooses_layers=settings.gpu_layers != ALL_LAYERS,
        margins=tuple(int(mebibytes * MIB) for mebibytes in numbers(settings.fit_target or "0")),
    )
    where = dataclasses.replace(_model_settings(settings), mtp=_uses_mtp(settings))
    fit = fit_model(Path(settings.model), where, _context_settings(settings), wishes)
    chosen = dataclasses.replace(
        settings, ctx=fit.num_cells, gpu_layers=fit.model.gpu_layers, n_cpu_moe=fit.model.n_cpu_moe
    )
    return chosen, fit.line


def open_model(settings: Settings, progress: Progress | None) -> Model:
    """Loads the model, which must be able to write text."""
    where = dataclasses.replace(_model_settings(settings), mtp=_uses_mtp(settings))
    with shortage_explained(Path(settings.model), where, _context_settings(settings)):
        model = Model(settings.model, where, progress=progress)
    try:
        model.require_text()
    except ModelError:
        model.close()
        raise
    return model


def make_scheduler(model: Model, settings: Settings, fleet: "FleetMember | None" = None) -> Scheduler:
    """An engine, its cache with the tiers that are configured, and the scheduler over both."""
    engine = LlamaEngine(model, _context_settings(settings, model.trained_context))
    costs = measured_costs(engine)
    ram_bytes = _ram_bytes(engine, settings)
    disk = _open_disk(engine, settings, queue_budget(ram_bytes))
    store = _open_store(engine, fleet, ram_bytes) if fleet is not None else None
    cache = Cache(
        engine.memory,
        num_slots=settings.slots,
        budget_bytes=ram_bytes,
        disk=disk,
        store=store,
        placement=_placement(engine),
        costs=costs,
        stay=Stay.IF_FASTER if settings.parked < 0 and engine.memory.num_sequences > settings.slots else None,
    )
    limits = Limits(queue=settings.queue, at_once=1 if settings.deterministic else settings.slots)
    drafter = _drafter(engine, cache, settings)
    if drafter is None:
        engine.close_mtp()
    return Scheduler(engine, cache, limits, drafter)


def _drafter(engine: LlamaEngine, cache: Cache, settings: Settings) -> Drafter | None:
    """None where no draft can pay, or is not wanted. With a grid a reply is decoded one token at a time, always."""
    if settings.draft == "off" or settings.deterministic or not engine.memory.can_draft:
        return None
    times = BatchTimes(measure_batches(engine))
    if settings.draft == "auto" and times.best_gain() < _LEAST_GAIN:
        return None
    mtp = _mtp_drafts(engine, times, settings)
    if settings.draft == "mtp" and mtp is None:
        problem = mtp_problem(engine.model.library, engine.model.path) or "there is no memory for a second context"
        drafts_logger.warning("--draft mtp: nothing is drafted: %s", problem)
        return None
    return Drafter(
        times,
        decodes_again=engine.memory.has_state,
        most_drafted=settings.draft_max,
        known=cache.tiers.known_tokens,
        mtp=mtp,
        has_trails=settings.draft != "mtp",
    )


def _mtp_drafts(engine: LlamaEngine, times: BatchTimes, settings: Settings) -> MtpDrafts | None:
    """Drafts of the model's next-token layer, if there is one. If they cannot pay, its context is freed."""
    if engine.mtp is None:
        return None
    step_ms = measure_mtp(engine)
    if settings.draft == "auto" and times.best_gain(step_ms / times.ms) < _LEAST_GAIN:
        drafts_logger.info(
            "no drafts with the MTP layer: it guesses for %.2f ms, a token takes %.2f", step_ms, times.ms
        )
        engine.close_mtp()
        return None
    return MtpDrafts(engine.mtp, step_ms)


def _uses_mtp(settings: Settings) -> bool:
    """Whether the model is loaded with its next-token layer, for drafts."""
    if settings.draft not in ("auto", "mtp") or settings.deterministic:
        return False
    return not mtp_problem(load_library(), Path(settings.model))


def _placement(engine: LlamaEngine) -> Placement:
    """On a CPU a pause costs more than a person gains: snapshots are only as dense as is cheap."""
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
        costs.load_bytes_per_ms = rates.moved.load_bytes_per_s / 1000
    if engine.memory.kind.has_snapshots:
        costs.snapshot_ms = 1000 * rates.moved.nbytes / rates.moved.save_bytes_per_s
    costs.saw_step(rates.step_ms)  # beside next to no cells: longer sequences then show what a cell costs
    return costs


def open_fleet(settings: Settings) -> "FleetMember | None":
    """The fleet of `--index`, not joined yet. What it takes is imported here and nowhere else."""
    if not settings.index:
        if settings.store:
            raise SettingError(f"--store {settings.store}: it takes --index too, such as redis://host:6379/0")
        return None
    try:
        from leftoff.store.fleet import FleetMember  # noqa: PLC0415  # an extra that need not be installed
    except ImportError as error:
        raise SettingError(f"--index takes what `pip install 'leftoff[cluster]'` installs ({error})") from error
    return FleetMember(
        settings.store, settings.index, budget_bytes=settings.store_budget * MIB, days=settings.store_days
    )


def namespace_secret(settings: Settings, cache: Cache, fleet: "FleetMember | None") -> bytes:
    """The secret by which tenants find their entries again: that of the fleet, else that of the cache folder."""
    own = _own_secret(settings, cache)
    return fleet.secret(own) if fleet is not None else own


def _own_secret(settings: Settings, cache: Cache) -> bytes:
    if cache.disk is None:
        return new_secret()
    root = _cache_root(settings)
    try:
        return folder_secret(root)
    except OSError as error:
        reason = error.strerror or error
        logger.warning("no secret in %s (%s): what is kept there for API keys will not be found again", root, reason)
        return new_secret()


def reply_store(settings: Settings, cache: Cache) -> FileReplyStore | None:
    """Where replies are kept beyond the end of the server: in the folder of the model, if it has one."""
    if cache.disk is None or not settings.remember_replies:
        return None
    assert isinstance(cache.disk.blobs, FileBlobStore)
    return FileReplyStore.open(cache.disk.blobs.path, cache.memory.fingerprint)


def header_files(settings: Settings, cache: Cache) -> HeaderFiles | None:
    """Where the headers of clients are kept for all models, to be prewarmed; nowhere if nothing is kept on disk."""
    return HeaderFiles(_cache_root(settings)) if cache.disk is not None else None


def _ram_bytes(engine: LlamaEngine, settings: Settings) -> int:
    if settings.ram != AUTO:
        return settings.ram * MIB
    mapped = mapped_file_bytes()
    return ram_budget(engine.memory, available_ram() - (engine.model.size_bytes if mapped is None else mapped))


def _open_store(engine: LlamaEngine, fleet: "FleetMember", ram_bytes: int) -> StoreSettings | None:
    settings, model = engine.settings, engine.model
    types = "/".join(dict.fromkeys([settings.kv_type, settings.v_type]))
    library = model.library.fingerprint[:_SHOWN_DIGITS]
    fleet.join(engine.memory, f"{model.path.stem} ({model.fingerprint[:_SHOWN_DIGITS]}), library {library}, KV {types}")
    view_bytes = _VIEW_PART * max(ram_bytes, MIB)
    return fleet.open_store(engine.context.arena, queue_bytes=queue_budget(ram_bytes), view_bytes=view_bytes)


def _open_disk(engine: LlamaEngine, settings: Settings, queue_bytes: int) -> DiskSettings | None:
    if not settings.disk:
        return None
    root = _cache_root(settings)
    is_on_gpu = bool(default_gpus(engine.model.library))
    try:
        blobs = FileBlobStore.open(
            root,
            engine.memory.fingerprint,
            engine.context.arena,
            label=engine.model.path.stem,
            queue_bytes=queue_bytes,
            gives_way=not is_on_gpu or num_cores() < _CORES_FOR_DISK,
            daily_bytes=settings.disk_daily * MIB or None,
        )
    except FolderError as error:
        logger.warning("%s; until then nothing is kept on disk", error)
        return None
    budget_bytes = settings.disk * MIB
    if settings.disk == AUTO:
        own_bytes = sum(usage.nbytes for usage in models(root))
        budget_bytes = disk_budget(engine.memory, free_disk_bytes(root) + own_bytes)
    # What other models have left is kept as long as this one has half of the budget for itself.
    others_bytes = make_room_among_models(root, blobs.path, budget_bytes // 2)
    return DiskSettings(blobs, max(0, budget_bytes - others_bytes))


def _cache_root(settings: Settings) -> Path:
    return Path(settings.cache_dir).expanduser() if settings.cache_dir else cache_folder()


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
    )


def _num_parked(settings: Settings) -> int:
    """On a CPU idle sequences slow replies down by more than it takes to load them again."""
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
