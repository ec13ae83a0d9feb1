"""A loaded model file: its metadata, vocabulary and chat template. Holds no state of any conversation.

Files are checked before llama.cpp loads them, where it would give no reason or abort the process.
"""

import ctypes as C
import functools
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from leftoff.engine import gguf
from leftoff.engine.binding import abi
from leftoff.engine.binding.library import Library, load_library
from leftoff.engine.errors import ModelError, OutOfMemoryError, memory_shortage
from leftoff.engine.fingerprint import file_fingerprint, model_parts
from leftoff.engine.model_settings import ModelSettings
from leftoff.engine.vocabulary import Vocabulary

Progress = Callable[[float], None]

_DESCRIPTION_BYTES = 256


class Model:
    """Weights in memory, shared by every context made from them. Close it after its contexts."""

    def __init__(
        self, path: str | Path, settings: ModelSettings | None = None, *, progress: Progress | None = None
    ) -> None:
        self.path = Path(path)
        self.settings = settings or ModelSettings()
        self.library = load_library()
        _check_files(self.path)
        self.handle: int | None = _load(self.library, self.path, self.settings, progress)
        self.vocabulary = Vocabulary(self.library, self.handle)
        self._check_generates()

    def close(self) -> None:
        if self.handle is not None:
            self.library.dll.llama_model_free(self.handle)
            self.handle = None

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hash of the content of the file, or of all parts of a split one."""
        return file_fingerprint(self.path)

    @functools.cached_property
    def metadata(self) -> dict[str, str]:
        dll = self.library.dll
        count = dll.llama_model_meta_count(self.handle)
        keys = (self._text(dll.llama_model_meta_key_by_index, i) for i in range(count))
        return {key: self._text(dll.llama_model_meta_val_str_by_index, i) for i, key in enumerate(keys)}

    @property
    def architecture(self) -> str:
        return self.metadata.get("general.architecture", "unknown")

    @property
    def name(self) -> str:
        return self.metadata.get("general.name") or self.path.stem

    @functools.cached_property
    def description(self) -> str:
        buffer = C.create_string_buffer(_DESCRIPTION_BYTES)
        self.library.dll.llama_model_desc(self.handle, buffer, _DESCRIPTION_BYTES)
        return buffer.value.decode("utf-8", "replace")

    def chat_template(self) -> str | None:
        """The default Jinja template of the model file."""
        text: bytes | None = self.library.dll.llama_model_chat_template(self.handle, None)
        return text.decode("utf-8", "replace") if text else None

    @property
    def num_parameters(self) -> int:
        return int(self.library.dll.llama_model_n_params(self.handle))

    @property
    def size_bytes(self) -> int:
        return int(self.library.dll.llama_model_size(self.handle))

    @property
    def trained_context(self) -> int:
        return int(self.library.dll.llama_model_n_ctx_train(self.handle))

    @property
    def window(self) -> int:
        """Length of the sliding attention window in tokens; 0 without one."""
        return max(0, int(self.library.dll.llama_model_n_swa(self.handle)))

    @property
    def is_recurrent(self) -> bool:
        return bool(self.library.dll.llama_model_is_recurrent(self.handle))

    @property
    def is_hybrid(self) -> bool:
        return bool(self.library.dll.llama_model_is_hybrid(self.handle))

    def require_text(self) -> None:
        """Raises `ModelError` for a model without a tokenizer: llama.cpp aborts when asked for the text of a token."""
        if not self.vocabulary.has_text:
            raise ModelError(
                f"{self.path} has no vocabulary (tokenizer.ggml.model is"
                f" {self.metadata.get('tokenizer.ggml.model', 'missing')!r}): its tokens stand for no text."
                " Convert the model again together with its tokenizer files"
            )

    def _text(self, read: Callable[..., int], index: int) -> str:
        length = read(self.handle, index, None, 0)
        buffer = C.create_string_buffer(length + 1)
        read(self.handle, index, buffer, length + 1)
        return buffer.value.decode("utf-8", "replace")

    def _check_generates(self) -> None:
        dll = self.library.dll
        if dll.llama_model_has_encoder(self.handle) or not dll.llama_model_has_decoder(self.handle):
            self.close()
            raise ModelError(f"{self.path} is an encoder model; leftoff runs models that generate text token by token")


def _check_files(path: Path) -> None:
    """Raises `ModelError` with a reason: llama.cpp would only say that loading failed."""
    for part in model_parts(path):
        if not part.is_file():
            raise ModelError(f"there is no model file at {part}: give a GGUF file, or org/repo[:quant] of the hub")
        try:
            with part.open("rb") as file:
                magic = file.read(len(gguf.MAGIC))
        except OSError as error:
            raise ModelError(f"{part} cannot be read ({error.strerror})") from error
        if magic != gguf.MAGIC:
            raise ModelError(f"{part} is not a GGUF file: it begins with {magic!r}, not {gguf.MAGIC!r}")
    if (token := _doubled_token(path)) is not None:
        raise ModelError(f"{path} is damaged: its vocabulary has the token {token!r} twice. Fetch the file again")


def _doubled_token(path: Path) -> bytes | None:
    """A token that occurs twice in the vocabulary: llama.cpp aborts on it. All other damage it reports by itself."""
    seen: set[bytes] = set()
    with suppress(*gguf.DAMAGED):
        for token in gguf.vocabulary_texts(path):
            if token in seen:
                return token
            seen.add(token)
    return None


def _load(library: Library, path: Path, settings: ModelSettings, progress: Progress | None) -> int:
    params = settings.params(library)

    def report(fraction: float, _data: object) -> bool:
        # An exception must not pass through C: a broken progress bar is no reason to lose the model.
        with suppress(Exception):
            if progress:
                progress(fraction)
        return True

    params.progress_callback = abi.ProgressCallback(report)
    library.log.take_errors()
    handle: int | None = library.dll.llama_model_load_from_file(os.fsencode(path), params)
    if handle is None:
        reason = library.log.take_errors() or "no reason given"
        if shortage := memory_shortage(reason):
            raise OutOfMemoryError(f"no memory for the weights of {path}: {shortage}")
        raise ModelError(f"llama.cpp cannot load {path}: {reason}")
    return handle
