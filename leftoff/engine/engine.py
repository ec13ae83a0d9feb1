"""The engine: a model, one context, and its memory. Decodes any number of sequences in one batch.

It tracks positions, so that a caller only says which tokens come next in which sequence.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from blake3 import blake3

from leftoff.adapters import AdapterSet
from leftoff.engine.batch import BatchPart
from leftoff.engine.context import Context, ContextSettings
from leftoff.engine.embedder import Embedder, Pooling
from leftoff.engine.errors import EngineError, InputError, NoRoomError
from leftoff.engine.fit import shortage_explained
from leftoff.engine.head import HeadContext
from leftoff.engine.memory.llama_memory import LlamaMemory
from leftoff.engine.memory.probe import probe_memory
from leftoff.engine.model import Model
from leftoff.engine.model_settings import ModelSettings
from leftoff.engine.mtp import MtpContext
from leftoff.machine import trim_heap
from leftoff.types import Embeddings, Logits, Tokens

if TYPE_CHECKING:
    from leftoff.engine.vision.projector import Projector

logger = logging.getLogger(__name__)


class Work(NamedTuple):
    """The next tokens of one sequence, and whether to compute logits of the last one, of all, or of none.

    With `picture` they stand for one, and are alone in their batch.

    The last `num_drafted` tokens are guesses, verified by the logits of the tokens before them. `LlamaEngine.settle`
    takes back those that turn out wrong: it must be called before anything else is done with the sequence.
    """

    seq: int
    tokens: Tokens
    logits: bool = True
    all_logits: bool = False
    num_drafted: int = 0
    picture: Embeddings | None = None

    @property
    def num_logits(self) -> int:
        """How many of the last tokens have logits."""
        return self.tokens.size if self.all_logits else self.num_drafted + 1 if self.logits else 0


class LlamaEngine:
    """Belongs to one thread; `cancel` may be called from any."""

    def __init__(self, model: Model, settings: ContextSettings | None = None) -> None:
        self.model = model
        self.settings = settings or ContextSettings()
        with shortage_explained(model.path, model.settings, self.settings):
            self.context = Context(model, self.settings)
        try:
            self.memory: LlamaMemory = probe_memory(self.context, self._fingerprint())
        except EngineError:
            self.context.close()
            raise
        self.batch_tokens = min(self.context.batch_tokens, self.memory.max_batch_tokens)
        self._embedder: Embedder | None = None
        self.projector: Projector | None = None  # of pictures; whoever sets it gives it away
        self.draft: LlamaEngine | None = None  # of a draft model, which sleeps and wakes with it; given away as well
        self.head: HeadContext | None = None  # guesses from hidden states: a next-token layer, or what a caller sets
        if model.settings.mtp:
            self._open_mtp()

    @classmethod
    def open(
        cls,
        path: str | Path,
        settings: ContextSettings | None = None,
        *,
        model_settings: ModelSettings | None = None,
    ) -> "LlamaEngine":
        """Loads the model and makes an engine; closing the engine closes the model too."""
        with shortage_explained(Path(path), model_settings or ModelSettings(), settings or ContextSettings()):
            model = Model(path, model_settings)
        try:
            return cls(model, settings)
        except BaseException:
            model.close()
            raise

    def close(self) -> None:
        self.close_head()
        self._close_embedder()
        if self.projector is not None:
            self.projector.close()
        if self.draft is not None:
            self.draft.close()
        self.context.close()
        self.model.close()

    @property
    def is_asleep(self) -> bool:
        return self.context.handle is None

    @property
    def locked_bytes(self) -> int:
        """The page-locked memory that it holds."""
        return 0 if self.is_asleep else self.context.staging.locked_bytes

    def sleep(self, freed: Callable[[], None] = lambda: None) -> None:
        """Gives weights, contexts and page-locked memory back until `wake`. All sequences are lost.

        `freed` is called once there is room for another model: the rest takes a while.
        """
        if not self.model.may_sleep:
            raise InputError(f"{self.model.path} was not loaded to sleep: its vocabulary would go with the weights")
        self.memory.clear()
        if self.head is not None:
            self.head.close()
        self._close_embedder()
        if self.projector is not None:
            self.projector.sleep()
        if self.draft is not None:
            self.draft.sleep()
        self.context.free()
        self.model.sleep()
        freed()
        self.context.close()
        self.context.arena.free_idle()
        trim_heap()

    def wake(self, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Loads the model again, unless it is loaded. Raises `CancelledError` once that is not wanted any more."""
        if self.draft is not None:
            self.draft.wake(is_wanted)
        try:
            self.context.open(is_wanted)
        except EngineError:
            if self.draft is not None:
                self.draft.sleep()
            raise
        self._reopen_head()
        self.context.arena.keeps_idle = True

    def __enter__(self) -> "LlamaEngine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close_head(self) -> None:
        """Frees the context of the head: no drafts are made with it."""
        if self.head is not None:
            self.head.close()
            self.head = None

    def _reopen_head(self) -> None:
        """Opens the head after a sleep. Without memory for it, or with another in its place, there is none any more."""
        try:
            if self.head is not None:
                self.head.open()
        except EngineError as error:
            logger.warning("no more drafts of hidden states: %s", error)
            self.head = None

    def embedder(self, pooling: Pooling | None = None) -> Embedder:
        """The context for vectors of texts: made when it is first asked for, and gone when the engine sleeps."""
        if self._embedder is None:
            self._embedder = Embedder(self.model, self.settings.threads_batch or self.settings.threads, pooling)
        return self._embedder

    def _close_embedder(self) -> None:
        if self._embedder is not None:
            self._embedder.close()
            self._embedder = None

    @property
    def is_on_device(self) -> bool:
        """State lies in the memory of a GPU, and moves through page-locked memory."""
        return self.context.staging.is_locked

    def use(self, adapters: AdapterSet) -> bool:
        """Decodes with these adapters from now on; False if that is nothing new. State bytes do not tell them."""
        return self.context.adapters.use(adapters)

    def decode(self, works: Sequence[Work], *, is_awaited: bool = True) -> list[int]:
        """Decodes the tokens of all works in one batch. Returns, for each, the row of its last token's logits.

        Unless `is_awaited`, a GPU may still compute it on return: the next batch is prepared meanwhile.
        On `CancelledError` and other failures each sequence is back at its old length, or its `is_whole` is False.
        """
        num_tokens = {work.seq: work.tokens.size for work in works}
        self._check(works)
        starts = self.memory.prepare(num_tokens)
        head = self.head if self.head is not None and not self.head.is_paused else None
        try:
            for work in works:
                if work.num_drafted:
                    self.memory.hold(work.seq)
            if head is not None:
                head.prepare(len(works))
            rows = self._decode_all(works, starts)
        except (NoRoomError, InputError):
            self.memory.release()
            raise  # nothing was changed
        except BaseException:
            self._take_back(works)
            raise
        try:
            if is_awaited:
                self.context.wait()
            self.model.check_intact()
            if head is not None:
                for work, row in zip(works, rows, strict=True):
                    self._follow(head, work, row)
        except BaseException:
            self._take_back(works)
            raise
        self.memory.extend(num_tokens)
        self.memory.add_pictures((work.seq, work.tokens) for work in works if work.picture is not None)
        return rows

    def _take_back(self, works: Sequence[Work]) -> None:
        self.memory.release()
        for work in works:
            self.memory.rewind(work.seq)

    def _follow(self, head: HeadContext, work: Work, row: int) -> None:
        """A head reads tokens alone: it knows nothing of a sequence with pictures, and guesses nothing there."""
        if work.picture is not None or self.memory.has_pictures(work.seq):
            self.memory.replaced.add(work.seq)
        else:
            head.follow(work.seq, work.tokens, self.memory.length(work.seq), row, work.num_logits)

    def _decode_all(self, works: Sequence[Work], starts: Sequence[int]) -> list[int]:
        if (picture := works[0].picture) is not None:
            return [self._decode_picture(works[0], picture, starts[0])]
        parts = [
            BatchPart(work.seq, work.tokens, start, work.num_logits) for work, start in zip(works, starts, strict=True)
        ]
        rows = self.context.fill_batch(*parts)
        self.context.decode()
        return rows

    def _decode_picture(self, work: Work, picture: Embeddings, start: int) -> int:
        """Decodes a picture in as few batches as it fits into. Returns the row of its last token."""
        num_tokens, most = len(picture.rows), self.most_picture_tokens(is_causal=picture.is_causal)
        if num_tokens > most and not picture.is_causal:
            raise InputError(f"a picture of {num_tokens} tokens cannot be read in parts: use --ubatch {num_tokens}")
        row = 0
        for first in range(0, num_tokens, most):
            part, is_last = picture.part(first, first + most), first + most >= num_tokens
            at = start if picture.positions is not None else start + first
            row = self.context.fill_picture(part, at, work.seq, has_logits=work.logits and is_last)
            try:
                self.context.decode_picture(is_causal=picture.is_causal)
            except NoRoomError as error:
                if first == 0:
                    raise
                raise EngineError(f"only {first} of a picture's {num_tokens} tokens were decoded: {error}") from error
        return row

    def most_picture_tokens(self, *, is_causal: bool) -> int:
        """How many tokens of a picture one batch takes."""
        return self.batch_tokens if is_causal else min(self.batch_tokens, self.context.micro_batch_tokens)

    def settle(self, work: Work, num_kept: int) -> int:
        """After a decode with a draft: keeps the first `num_kept` tokens of the work, and takes the others back.

        Returns how many tokens of the work the sequence now holds. Where memory cannot be cut, that is 0 if any token
        was taken back: the kept ones must then be decoded again, together with what follows them.
        """
        if not work.tokens.size - work.num_drafted <= num_kept <= work.tokens.size:
            raise InputError(f"{num_kept} of {work.tokens.size} tokens kept, of which {work.num_drafted} were drafted")
        start = self.memory.length(work.seq) - work.tokens.size
        if self.head is not None:
            self.head.cut(work.seq, start + num_kept)
        return self.memory.settle(work.seq, start + num_kept) - start

    def cancel(self) -> None:
        self.context.cancel()

    def logits(self, row: int) -> Logits:
        """The logits of a row of the last batch: valid, and writable, until the next decode."""
        return self.context.logits(row)

    def _open_mtp(self) -> None:
        """Opens a context for the MTP layer. Without memory for a second one the engine goes on without its drafts."""
        try:
            self.head = MtpContext(self.context, self.memory.replaced)
        except EngineError as error:
            logger.warning("no drafts with the MTP layer of %s: %s", self.model.path, error)

    def _check(self, works: Sequence[Work]) -> None:
        if not works:
            raise InputError("nothing to decode")
        if sum(work.num_drafted > 0 for work in works) > 1:
            raise InputError("more than one draft in a batch")
        if len({work.seq for work in works}) < len(works):
            raise InputError("a sequence occurs twice in one batch: join its tokens")
        for work in works:
            if work.num_drafted and not self.memory.can_draft:
                raise InputError(f"{self.memory.kind.value} memory takes no drafts: no token can be taken back")
            if work.tokens.size <= work.num_drafted:
                raise InputError(f"no tokens for sequence {work.seq}")
            if work.picture is None:
                self.model.vocabulary.check(work.tokens)
            elif len(works) > 1 or len(work.picture.rows) != work.tokens.size or work.all_logits:
                raise InputError("a picture is decoded alone, whole, and without the logits of all its tokens")

    def _rope(self) -> str:
        """Whether long-context RoPE factors apply: some models use others in a context above their original length."""
        original = self.model.number("rope.scaling.original_context_length")
        return "long" if 0 < original < self.context.num_cells else ""

    def _fingerprint(self) -> str:
        """Hash of everything that state bytes depend on: states are only loaded under the same fingerprint."""
        settings = self.settings
        types = "/".join(dict.fromkeys([settings.kv_type, settings.v_type]))
        parts = [self.model.fingerprint, self.model.library.fingerprint, types, self._rope()]
        if settings.flash_attention == "off":  # V is stored in columns
            parts.append("no flash attention")
        if self.model.window:
            parts.append("window pages")
        if settings.control is not None:
            parts.append(f"control vector {settings.control.fingerprint}")
        if settings.grid is not None:  # the last bit matters, and these change it
            parts += [f"grid {settings.grid}", f"{settings.threads} threads", f"{settings.micro_batch_tokens} at once"]
            parts += [f"{settings.threads_batch or settings.threads} threads for prefill", *self._devices()]
        return blake3("|".join(parts).encode()).hexdigest()

    def _devices(self) -> list[str]:
        """Which devices compute what: they round differently. Empty if the CPU computes everything."""
        devices = self.model.settings.used_devices(self.model.library)
        shown = [f"{device.name} {device.description}" for device in devices]
        return [*shown, repr(replace(self.model.settings, mmap=True, mlock=False))] if shown else []
