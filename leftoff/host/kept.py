"""The cache folder of a host: its disk tier, remembered replies, headers, and the secret of tenants."""

import logging
from functools import partial
from pathlib import Path

from leftoff.blobs.replies import MediumReplies
from leftoff.cache.blob_tier import TierSettings
from leftoff.cache.cache import Cache
from leftoff.config import AUTO, MIB, Settings
from leftoff.disk.errors import FolderError
from leftoff.disk.files import problem_of, room_bytes
from leftoff.disk.folder import model_folder, note_model
from leftoff.disk.headers import LEARNED, HeaderFiles
from leftoff.disk.medium import open_folder
from leftoff.disk.reply_store import open_replies
from leftoff.disk.secret import folder_secret, held_secret, new_secret
from leftoff.engine.devices import default_gpus
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.fingerprint import cache_folder
from leftoff.errors import reason_of
from leftoff.host.budgets import Capacities, disk_budget
from leftoff.machine import num_cores

logger = logging.getLogger("leftoff.disk")

_CORES_FOR_DISK = 4  # from so many on, a GPU does not notice that the disk is written


def cache_root(settings: Settings) -> Path:
    """The cache folder of all models."""
    return Path(settings.cache_dir).expanduser() if settings.cache_dir else cache_folder()


def open_disk(engine: LlamaEngine, settings: Settings, shared: Capacities, ms_per_token: float) -> TierSettings | None:
    """The disk tier, if it is wanted and its folder can be used."""
    if not settings.disk:
        return None
    root = cache_root(settings)
    disk, folder = shared.disk(root), model_folder(root, engine.memory.fingerprint)
    left = disk.opening(folder)
    is_on_gpu = bool(default_gpus(engine.model.library))
    try:
        blobs = open_folder(
            root,
            engine.memory.fingerprint,
            engine.context.arena,
            label=engine.model.path.stem,
            queue_bytes=shared.queue,
            gives_way=not is_on_gpu or num_cores() < _CORES_FOR_DISK,
            daily_bytes=settings.disk_daily * MIB or None,
        )
    except FolderError as error:
        disk.closed(folder)
        logger.warning("%s; until then nothing is kept on disk", error)
        return None
    note_model(folder, engine.model.path, engine.model.fingerprint, ms_per_token)
    budget_bytes = settings.disk * MIB
    if settings.disk == AUTO:
        budget_bytes = disk_budget(engine.memory, room_bytes(root) + disk.capacity.used_bytes)
    disk.capacity.nbytes = max(disk.capacity.nbytes, budget_bytes)
    return TierSettings(blobs, disk.capacity, left=left, closed=partial(disk.closed, folder))


def own_secret(settings: Settings) -> bytes:
    """The secret by which tenants find their entries again after a restart; a random one without a disk.

    It is of the cache folder, and so of all models in it, also where another server uses the folder of this one.
    """
    if not settings.disk:
        return new_secret()
    root = cache_root(settings)
    try:
        return folder_secret(root)
    except OSError as error:
        if not problem_of(root):  # else the disk tier has told it
            reason = reason_of(error)
            logger.warning(
                "no secret in %s (%s): what is kept there for API keys will not be found again", root, reason
            )
        return held_secret(root)


def reply_store(settings: Settings, cache: Cache) -> MediumReplies | None:
    """Where replies are kept beyond the end of the process: in the folder of the model, if it has one."""
    if cache.disk is None or not settings.remember_replies:
        return None
    fingerprint = cache.memory.fingerprint
    folder = model_folder(cache_root(settings), fingerprint)
    return None if problem_of(folder) else open_replies(folder, fingerprint)  # the disk tier has told the problem


def header_files(settings: Settings) -> HeaderFiles | None:
    """Where the headers of clients are kept for all models, to be prewarmed; nowhere if nothing is kept on disk."""
    return HeaderFiles(cache_root(settings)) if settings.disk else None


def learned_files(settings: Settings) -> HeaderFiles | None:
    """Where moves that were learned are kept, beside the headers."""
    return HeaderFiles(cache_root(settings), LEARNED, max_per_owner=128, limit=1024) if settings.disk else None
