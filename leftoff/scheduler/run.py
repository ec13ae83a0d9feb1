"""The state of one job from its submission to its end: it waits, reads its prompt in a slot, and writes its reply."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice

import numpy as np

from leftoff.adapters import NO_ADAPTERS, AdapterSet
from leftoff.cache.fetch import Fetches, Preparation
from leftoff.cache.turn import Turn
from leftoff.drafts.trail import Draft, Trail
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.errors import EngineError, InputError
from leftoff.engine.sampler import Sampler
from leftoff.picture_tokens import is_text
from leftoff.scheduler.job import Finish, Job, Sink, Timings
from leftoff.types import Logits, Tokens

logger = logging.getLogger(__name__)

_ENCODED_AHEAD = 4  # pictures
_MAX_SCORED_BYTES = 32 << 20  # of logits of one chunk: llama.cpp keeps room for as many as it ever had to give


class Run:
    """Knows what comes next in its sequence; decodes nothing itself. Once submitted it belongs to the scheduler."""

    turn: Turn  # while it has a slot; another one when it resumes after a pause
    _engine: LlamaEngine

    def __init__(self, job: Job, sink: Sink) -> None:
        self.job = job
        self.sink = sink
        self.timings = Timings()
        self.prompt = job.prompt  # what is to be read: after a pause, with the reply so far
        self.finish: Finish | None = None
        self.error: Exception | None = None
        self.last_served = 0
        self.is_cancelled = False  # by any thread: the scheduler ends it within a step
        # while it waits
        self.is_held = False  # another run is reading what its prompt begins with
        self.is_paused = False  # it was preempted, and resumes when there is room
        self.is_due = False  # it is answered before the model sleeps: it was preempted, or waited for it to be loaded
        self.is_put_off = False  # too many others fetch
        self.preparation: Preparation | None = None  # of what it needs from below RAM
        self.trail: Trail | None = None  # if drafts are made for its reply
        self._sampler: Sampler | None = None
        self._next = np.empty(1, np.int32)  # tokens of the reply that are chosen and not decoded
        self._sampled: tuple[int, Logits | None] | None = None  # and not handed to the sink yet
        self._num_scored = 1  # positions of the prompt; no logits come before the first
        # the logits at positions of its prompt are still wanted; after a pause it reads again those that it has
        self.reads_all = job.score is not None and job.prompt.length > 1
        if self.reads_all and job.prompt.pictures:
            raise InputError("the log-probabilities of a prompt with pictures are not computed")

    @property
    def waits_for_disk(self) -> bool:
        return self.is_put_off or (self.preparation is not None and self.preparation.is_waiting)

    @property
    def fetch(self) -> Fetches | None:
        """What was brought from below RAM for the run."""
        return self.preparation.fetch if self.preparation is not None else None

    def prepare(self, engine: LlamaEngine) -> None:
        """Makes the sampler, once: after a pause it goes on with the tokens it has seen."""
        if self._sampler is None:
            self._engine = engine
            self._sampler = Sampler(engine.model, self.job.sampling)
            if self.job.sampling.has_penalties:
                tokens = self.job.prompt.tokens
                self._sampler.accept(tokens[tokens >= 0] if self.job.prompt.pictures else tokens)

    def stop_waiting(self) -> None:
        """The run has a slot now, or ends. What was fetched for it is freed with the fetch."""
        self.is_held = self.is_paused = self.is_due = self.is_put_off = False
        self.preparation = None

    def reply_work(self) -> Work:
        """The tokens of the reply to decode next: what was chosen last."""
        return Work(self.turn.seq, self._next)

    def start(self, turn: Turn) -> None:
        """Reads on from where the turn begins. Pictures before that are not encoded for it, unless it is paused."""
        self.turn = turn
        for start, source in self.prompt.sources.items():
            if start < turn.position:
                source.cancel()

    def encode_pictures(self, wake: Callable[[], None]) -> None:
        """Has the next pictures encoded while text is read and others run; `wake` is called after each."""
        if not self.prompt.sources:
            return
        unread = (span for span in self.prompt.pictures if span.start >= self.turn.position)
        for span in islice(unread, _ENCODED_AHEAD):
            self.prompt.sources[span.start].begin(wake)

    def prompt_work(self, limit: int) -> Work | None:
        """The tokens of the prompt to decode next: up to the next snapshot, and no more than `limit`; or a picture.

        None while that is being encoded, or if it cannot be: then the run has ended.
        """
        if (span := self.turn.next_picture) is not None:
            try:
                embeddings = self.prompt.sources[span.start].take()
            except Exception as error:
                self._fail(error)
                return None
            if embeddings is None:
                return None
            is_last = span.end == self.turn.prompt.length
            return Work(self.turn.seq, self.turn.next_chunk(limit), logits=is_last, picture=embeddings)
        if self.reads_all:
            limit = max(1, min(limit, _MAX_SCORED_BYTES // (4 * self._engine.model.vocabulary.size)))
        turn = self.turn
        tokens = self._as_written(turn.next_chunk(limit))
        is_last = turn.position + tokens.size == turn.prompt.length
        return Work(turn.seq, tokens, logits=is_last, all_logits=self.reads_all)

    def _as_written(self, chunk: Tokens) -> Tokens:
        """The tokens of a chunk of the prompt as the vocabulary has them, in place of those that the trees know."""
        if self.prompt is self.job.prompt:
            return chunk
        start = self.turn.position
        own = self.job.prompt.tokens[start : start + chunk.size]
        return np.concatenate([own, chunk[own.size :]])  # after a pause, parts of the reply

    @property
    def adapters(self) -> AdapterSet:
        """The adapters that its next tokens are decoded with."""
        prompt = self.prompt
        return prompt.adapters if self.turn.position >= prompt.adapted_from else NO_ADAPTERS

    @property
    def most_drafted(self) -> int:
        """How many tokens more than the next one the reply may have."""
        if self.job.max_tokens is None:
            return self._engine.memory.num_cells
        return self.job.max_tokens - self.timings.num_generated - 1

    def work_with(self, draft: Draft) -> Work:
        """The tokens to decode next, with a draft of what follows them, up to the end of the reply."""
        ends = [index for index, token in enumerate(draft.tokens) if not is_text(token) or self._is_end(token)]
        tokens = draft.tokens[: ends[0]] if ends else draft.tokens
        following = np.concatenate([self._next, np.array(tokens, np.int32)])
        return Work(self.turn.seq, following, num_drafted=len(tokens))

    def verify(self, work: Work, row: int, draft: Draft) -> int:
        """Samples at each position of the draft, up to the first token that differs; `row` is that of the last one.

        Returns how many tokens of the work belong to the reply.
        """
        num_right, num_sure = 0, work.tokens.size - work.num_drafted
        while True:
            self.sample(row - work.num_drafted + num_right)
            self.take_sampled()
            if self.finish is not None or num_right == work.num_drafted:
                break
            if self._next[-1] != work.tokens[num_sure + num_right]:
                break
            num_right += 1
        self.timings.saw_draft(draft.source.value, work.num_drafted, num_right)
        return num_sure + num_right

    def decode_again(self, tokens: Tokens) -> None:
        """Takes tokens of the reply that the engine dropped with a wrong draft: they come before the last one."""
        self._next = np.concatenate([tokens, self._next])

    def score(self, work: Work, row: int) -> None:
        """Passes on the logits at the positions of a chunk that was decoded; `row` is that of its last token."""
        assert self.job.score is not None
        try:
            first = self.turn.position + 1
            for position in range(first, min(first + work.tokens.size, self.job.prompt.length)):
                if position >= self._num_scored:
                    self.job.score(position, self._engine.logits(row - work.tokens.size + 1 + position - first))
                    self._num_scored = position + 1
            self.reads_all = self._num_scored < self.job.prompt.length
        except Exception as error:
            self._fail(error)

    def pause(self) -> None:
        """Gives up its slot. Its prompt is now the old one and the reply so far, most of which the cache still has."""
        self.is_paused = self.is_due = True
        if not self.turn.is_reading:
            so_far = np.concatenate([self.turn.sequence.tokens, self._next])
            self.prompt = replace(self.prompt, tokens=so_far)

    def choose_from_kept(self, logits: Logits | None) -> None:
        """Samples the first token from logits that are kept with the whole prompt: nothing had to be computed."""
        if self._wants_none():
            return
        assert logits is not None
        try:
            masked = logits.copy()
            self._mask(masked)
            assert self._sampler is not None
            self._take(self._sampler.sample_from(masked), logits if self.job.wants_logits else None)
        except Exception as error:
            self._fail(error)

    def sample(self, row: int) -> None:
        """Samples the next token from a row of the last batch. Runs may do so at the same time, on several threads."""
        if self._wants_none():
            return
        try:
            kept = self._engine.logits(row).copy() if self.job.wants_logits else None
            self._sampled = self._sample(row), kept
        except Exception as error:
            self._fail(error)

    def take_sampled(self) -> None:
        """Hands the token that was sampled to the sink."""
        if self._sampled is None:
            return
        sampled, self._sampled = self._sampled, None
        try:
            self._take(*sampled)
        except Exception as error:
            self._fail(error)

    def report_progress(self, work: Work, row: int) -> Logits | None:
        """Tells the sink how far the prompt is read. Returns the logits at its end, before a constraint masks them."""
        if not self.turn.is_reading:
            return None
        if work.all_logits:
            self.score(work, row)
        if self.timings.num_generated == 0:
            self.timings.num_read = self.turn.position + work.tokens.size
            self.sink.progress(self.timings.num_read)
        return self._engine.logits(row).copy() if work.logits else None

    def end(self, finish: Finish, error: Exception | None) -> None:
        """Frees what it holds, and tells the sink."""
        for source in self.prompt.sources.values():
            source.cancel()
        if self._sampler is not None:
            self._sampler.close()
        self.timings.finished = time.perf_counter()
        try:
            self.sink.finished(finish, self.timings, error)
        except Exception:  # the sink's own matter: other runs go on
            logger.exception("the end of a reply could not be told")

    def _wants_none(self) -> bool:
        """Some jobs only want their prompt to be read."""
        if self.job.max_tokens == 0:
            self.finish = Finish.LENGTH
        return self.job.max_tokens == 0

    def _sample(self, row: int) -> int:
        assert self._sampler is not None
        if self.job.constraint is not None and self._mask(self._engine.logits(row)):
            return self._sampler.sample_masked(self._engine.context, row)
        return self._sampler.sample(self._engine.context, row)

    def _mask(self, logits: Logits) -> bool:
        return self.job.constraint is not None and self.job.constraint.mask(logits)

    def _fail(self, error: Exception) -> None:
        """An error of a constraint or a sink ends this reply, not the others in the batch."""
        if not isinstance(error, EngineError):
            logger.error("an unforeseen error in a reply", exc_info=error)
        self.finish, self.error = Finish.FAILED, error

    def _take(self, token: int, logits: Logits | None) -> None:
        job, timings = self.job, self.timings
        if timings.num_generated == 0:
            timings.first_token = time.perf_counter()
        if self._is_end(token):
            self.finish = Finish.END
            return
        timings.num_generated += 1
        self._next = np.array([token], np.int32)  # a new array: the cache has still to be told of the last one
        if self.trail is not None:
            self.trail.append(token)
        if job.constraint is not None:
            job.constraint.accept(token)
        if not self.sink.token(token, logits):
            self.finish = Finish.STOPPED
        elif job.constraint is not None and job.constraint.is_done:
            self.finish = Finish.END
        elif job.max_tokens is not None and timings.num_generated >= job.max_tokens:
            self.finish = Finish.LENGTH

    def _is_end(self, token: int) -> bool:
        ignores = self.job.ignore_end and self.job.constraint is None
        return token in self._engine.model.vocabulary.end_tokens and not ignores
