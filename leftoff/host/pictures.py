"""The projector with which a model sees pictures: found, tried and opened; and the encoder over it.

Nothing of it is imported for a model without one.
"""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from leftoff.cache.cache import Cache
from leftoff.cache.capacity import Lump
from leftoff.config import Settings
from leftoff.disk.folder import model_folder
from leftoff.disk.picture_files import PictureFiles
from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.errors import EngineError, ModelError
from leftoff.engine.model import Model
from leftoff.host.budgets import picture_budget
from leftoff.host.kept import cache_root
from leftoff.hub.reference import projector_beside

if TYPE_CHECKING:
    from leftoff.engine.vision.encoder import PictureEncoder
    from leftoff.engine.vision.projector import Projector

logger = logging.getLogger("leftoff.pictures")

NO_PROJECTOR = "none"  # for --mmproj


def projector_file(wanted: str, model: Path) -> Path | None:
    """The file that `--mmproj` names; without it, the one beside the model."""
    if wanted == NO_PROJECTOR:
        return None
    return Path(wanted).expanduser() if wanted else projector_beside(model)


def checked_projector(settings: Settings, model: Path) -> Path | None:
    """The projector's file, if the model has one. Raises ModelError if it is not there."""
    path = projector_file(settings.mmproj, model)
    if path is not None and not path.is_file():
        raise ModelError(f"there is no projector at {path}: give another --mmproj FILE, or none")
    return path


def open_projector(settings: Settings, model: Model, context: ContextSettings) -> "Projector | None":
    """None if there is none. One that was named must fit; one that was found is left out if it does not."""
    path = checked_projector(settings, model.path)
    if path is None:
        return None
    from leftoff.engine.vision.probe import check_projector  # noqa: PLC0415
    from leftoff.engine.vision.projector import Projector  # noqa: PLC0415

    try:
        check_projector(path, model.path, model.library)
        use_gpu = bool(model.settings.used_devices(model.library))
        return Projector(
            path,
            model,
            threads=context.threads,
            use_gpu=use_gpu,
            min_tokens=settings.image_min_tokens,
            max_tokens=settings.image_max_tokens,
        )
    except EngineError as error:
        if settings.mmproj:
            raise
        logger.warning("the model sees no pictures: %s", error)
        return None


def open_encoder(engine: LlamaEngine, settings: Settings, cache: Cache) -> "PictureEncoder | None":
    """The encoder of pictures of an engine with a projector."""
    if engine.projector is None:
        return None
    from leftoff.engine.vision.encoder import PictureEncoder  # noqa: PLC0415
    from leftoff.engine.vision.kept import KeptPictures  # noqa: PLC0415

    projector = engine.projector
    is_whole = not projector.is_causal or engine.memory.window_tokens
    most_tokens = engine.most_picture_tokens(is_causal=projector.is_causal) if is_whole else None
    medium, ram = None, Lump()
    cache.ram.budget.capacity.join(ram)
    if cache.disk is not None:
        folder, on_disk = model_folder(cache_root(settings), cache.memory.fingerprint), Lump()
        capacity = cache.disk.budget.capacity
        capacity.join(on_disk)
        medium = PictureFiles(folder, picture_budget(capacity.nbytes), on_disk.count)
    kept = KeptPictures(picture_budget(cache.ram.budget.capacity.nbytes), medium, ram.count)
    return PictureEncoder(projector, kept, most_tokens)
