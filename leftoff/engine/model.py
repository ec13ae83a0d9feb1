"""A loaded model file: its metadata, vocabulary and chat template. Holds no state of any conversation.

Files are checked before llama.cpp loads them, where it would give no reason or abort the process.
"""

import ctypes as C
import dataclasses
import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from leftoff.engine import gguf
from leftoff.engine.binding import abi
from leftoff.engine.binding.library import Library, load_library
from leftoff.engine.errors import (
    CancelledError,
    EngineError,
    ModelError,
    OutOfMemoryError,
    ReplacedError,
    memory_shortage,
)
from leftoff.engine.fingerprint import Identity, file_fingerprint, identity_of, is_untouched, model_parts
from leftoff.engine.model_settings import ModelSettings
from leftoff.engine.vocabulary import Vocabulary

Progress = Callable[[float], object]  # is given the fraction that is read; who returns False ends the load

_DESCRIPTION_BYTES = 256


class Model:
    """Weights in memory, shared by every context made from them. Close it after its contexts.

    One that `may_sleep` holds its vocabulary apart from the weights: those may go and come back, the rest stays usable.
    """

    def __init__(
        self,
        path: str | Path,
        settings: ModelSettings | None = None,
        *,
        progress: Progress | None = None,
        may_sleep: bool = False,
    ) -> None:
        self.path = Path(path)
        self.settings = settings or ModelSettings()
        self.library = load_library()
        check_files(self.path)
        self._files = identities(self.path)
        self._mapped: list[int] = []  # handles of the files that are in use, wherever they lie by then
        self.is_spoiled = False  # another model was written over the files that are mapped
        self.may_sleep = may_sleep
        self._weights: int | None = None
        self._words = self._load(dataclasses.replace(self.settings, vocab_only=True)) if may_sleep else None
        try:
            self._weights = self._load_weights(progress)
            self._check_same_files()
        except EngineError:
            self.close()
            raise
        self.vocabulary = Vocabulary(self.library, self._words or self._weights)
        self._check_generates()
        dll = self.library.dll
        self.num_parameters = int(dll.llama_model_n_params(self.handle))
        self.size_bytes = int(dll.llama_model_size(self.handle))
        self.num_layers = int(dll.llama_model_n_layer(self.handle))  # without a next-token layer
        self.trained_context = int(dll.llama_model_n_ctx_train(self.handle))
        self.window = max(0, int(dll.llama_model_n_swa(self.handle)))  # tokens of sliding attention; 0 without
        self.is_recurrent = bool(dll.llama_model_is_recurrent(self.handle))
        self.is_hybrid = bool(dll.llama_model_is_hybrid(self.handle))
        self.description = self._described()  # of the vocabulary alone llama.cpp says nothing

    @property
    def handle(self) -> int | None:
        """The native handle of the weights; while they are gone, that of the vocabulary."""
        return self._weights or self._words

    def close(self) -> None:
        self.sleep()
        if self._words is not None:
            self.library.dll.llama_model_free(self._words)
            self._words = None

    def sleep(self) -> None:
        """Frees the weights, if they are there. Its contexts must be closed before."""
        if self._weights is not None:
            self.library.dll.llama_model_free(self._weights)
            self._weights = None
        while self._mapped:
            os.close(self._mapped.pop())

    def wake(self, is_wanted: Callable[[], bool] = lambda: True) -> bool:
        """Loads the weights again, if they are gone: then it returns True."""
        if self._weights is not None:
            return False
        files = identities(self.path)
        if files != self._files:
            check_files(self.path)
            if self.is_replaced:
                raise ReplacedError(
                    f"{self.path} is not the model any more that was loaded: ask again, or start the server again"
                )
            self._files = files
        try:
            self._weights = self._load_weights(lambda _: is_wanted())
            self._check_same_files()
        except EngineError:
            self.sleep()
            raise
        self.is_spoiled = False
        return True

    def check_intact(self) -> None:
        """Raises `ReplacedError` if another model was written over the files in place.

        llama.cpp maps them, so that it computes with what lies there now. A file that is renamed into their place
        changes nothing. To be called after each decode: what was computed before is right.
        """
        self.is_spoiled = self.is_spoiled or self._is_written_over()
        if self.is_spoiled:
            raise ReplacedError(
                f"{self.path} was written over while it was in use: start the server again."
                " To replace a model, rename the new file into its place"
            )

    def _is_written_over(self) -> bool:
        if all(map(is_untouched, self._mapped, self._files)):
            return False
        there = identities(self.path)
        is_in_use = [file.inode for file in there] == [file.inode for file in self._files]
        if not is_in_use or _fingerprint(self.path) != self.fingerprint:
            return True
        self._files = there  # the same bytes again, or only another time
        return False

    @property
    def _weight_settings(self) -> ModelSettings:
        """How weights are loaded: without the texts of tokens, where those are held apart."""
        if self._words is None:
            return self.settings
        dll = self.library.dll
        num_tokens = int(dll.llama_vocab_n_tokens(dll.llama_model_get_vocab(self._words)))
        told = self.metadata.get(f"{self.architecture}.vocab_size", str(num_tokens))  # layers may depend on it
        return dataclasses.replace(
            self.settings, no_texts=(self.architecture, num_tokens) if told == str(num_tokens) else None
        )

    def _load_weights(self, progress: Progress | None) -> int:
        if self.settings.mmap:
            with _readable(self.path):
                self._mapped += [os.open(part, os.O_RDONLY) for part in model_parts(self.path)]
        return self._load(self._weight_settings, progress)

    def _load(self, settings: ModelSettings, progress: Progress | None = None) -> int:
        try:
            return load_weights(self.library, self.path, settings, progress)
        except ModelError:
            self._check_same_files()  # llama.cpp opens it twice: of two files in turn it says that one is damaged
            raise

    def _check_same_files(self) -> None:
        if identities(self.path) != self._files:
            raise ReplacedError(f"{self.path} was replaced while it was loaded: ask again")

    @property
    def has_same_files(self) -> bool:
        """Whether the files are the ones that were loaded, as far as their names, sizes and times tell."""
        with suppress(ModelError):
            return identities(self.path) == self._files
        return True  # they are gone, which is told when they are to be loaded

    @property
    def is_replaced(self) -> bool:
        """Whether another model lies in its place now. Reads all of it where that is a matter of its content."""
        return not self.has_same_files and _fingerprint(self.path) != self.fingerprint

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hash of the content of the file, or of all parts of a split one."""
        fingerprint = _fingerprint(self.path)
        self._check_same_files()
        return fingerprint

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

    def number(self, key: str) -> int:
        """A number of the metadata, such as `pooling_type`, by its key without the architecture; 0 if there is none."""
        return int(self.metadata.get(f"{self.architecture}.{key}") or 0)

    def _described(self) -> str:
        buffer = C.create_string_buffer(_DESCRIPTION_BYTES)
        self.library.dll.llama_model_desc(self.handle, buffer, _DESCRIPTION_BYTES)
        return buffer.value.decode("utf-8", "replace")

    def chat_template(self) -> str | None:
        """The default Jinja template of the model file."""
        text: bytes | None = self.library.dll.llama_model_chat_template(self.handle, None)
        return text.decode("utf-8", "replace") if text else None

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


def check_files(path: Path) -> None:
    """Raises `ModelError` with a reason: llama.cpp would only say that loading failed."""
    with _readable(path):
        for part in model_parts(path):
            _check_file(part)
        if (token := _doubled_token(path)) is not None:
            shown = token.decode("utf-8", "replace")
            raise ModelError(f"{path} is damaged: its vocabulary has the token {shown!r} twice. Fetch the file again")


def _check_file(part: Path) -> None:
    if part.is_dir():
        raise ModelError(f"{part} is a folder: name a GGUF file in it, or serve all of them by --models-dir {part}")
    if not part.is_file():
        raise _missing(part)
    with part.open("rb") as file:
        magic = file.read(len(gguf.MAGIC))
    if magic != gguf.MAGIC:
        begins = f"it begins with the bytes {magic.hex(' ')}, not with GGUF" if magic else "it is empty"
        raise ModelError(f"{part} is not a GGUF file: {begins}")
    if not gguf.is_whole(part):
        raise ModelError(f"{part} is not whole: it ends before its weights do. Fetch the file again")


def _missing(path: str | Path) -> ModelError:
    return ModelError(f"there is no model file at {path}: give a GGUF file, or org/repo[:quant] of the hub")


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raises `ModelError` if a file of the model cannot be read: it may be taken away at any moment."""
    try:
        yield
    except FileNotFoundError as error:
        raise _missing(error.filename or path) from error
    except OSError as error:
        raise ModelError(
            f"{path} cannot be read ({error.strerror}): see that it is there, and that this user may read it"
        ) from error


def _doubled_token(path: Path) -> bytes | None:
    """A token that occurs twice in the vocabulary: llama.cpp aborts on it. All other damage it reports by itself."""
    seen: set[bytes] = set()
    with suppress(*gguf.DAMAGED):
        for token in gguf.vocabulary_texts(path):
            if token in seen:
                return token
            seen.add(token)
    return None


def identities(path: Path) -> list[Identity]:
    """The identity of the model file, or of each part of a split one."""
    with _readable(path):
        return [*map(identity_of, model_parts(path))]


def _fingerprint(path: Path) -> str:
    with _readable(path):
        return file_fingerprint(path)


def load_weights(library: Library, path: Path, settings: ModelSettings, progress: Progress | None = None) -> int:
    """The native handle of a model, or with `vocab_only` of its vocabulary."""
    params, is_wanted = settings.params(library), True

    def report(fraction: float, _data: object) -> bool:
        # An exception must not pass through C: a broken progress bar is no reason to lose the model.
        nonlocal is_wanted
        with suppress(Exception):
            is_wanted = progress is None or progress(fraction) is not False
        return is_wanted

    params.progress_callback = abi.ProgressCallback(report)
    library.log.take_errors()
    handle: int | None = library.dll.llama_model_load_from_file(os.fsencode(path), params)
    if not is_wanted:
        if handle is not None:
            library.dll.llama_model_free(handle)
        library.log.take_errors()
        raise CancelledError(f"{path} is not loaded any more: nobody waits for it")
    if handle is None:
        reason = library.log.take_errors() or "no reason given"
        if shortage := memory_shortage(reason):
            raise OutOfMemoryError(f"no memory for the weights of {path}: {shortage}")
        raise ModelError(f"llama.cpp cannot load {path}: {reason}")
    return handle
