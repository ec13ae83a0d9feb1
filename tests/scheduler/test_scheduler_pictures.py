"""Pictures in prompts: replies go on while one is encoded, and it is alone in its batch."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from leftoff.cache.cache import Cache
from leftoff.engine.errors import EngineError, InputError
from leftoff.picture_tokens import pictures_in
from leftoff.sampling import Sampling
from leftoff.scheduler.job import Finish, Job
from leftoff.scheduler.run import Run
from leftoff.scheduler.scheduler import Scheduler
from leftoff.types import Embeddings, Prompt
from tests.engine.vision.pictures import Opened, Piece, opened, picture, tokens_of
from tests.scheduler.recorder import Recorder, ask, prompt, run


@dataclass
class Source:
    """A picture that is encoded when the test says so."""

    embeddings: Embeddings
    is_ready: bool = False
    error: Exception | None = None
    wake: Callable[[], None] = lambda: None
    num_begun: int = 0
    is_cancelled: bool = False

    def begin(self, wake: Callable[[], None]) -> None:
        self.num_begun, self.wake = self.num_begun + 1, wake

    def take(self) -> Embeddings | None:
        if self.error is not None:
            raise self.error
        return self.embeddings if self.is_ready else None

    def cancel(self) -> None:
        self.is_cancelled = True


@pytest.fixture(scope="module")
def both() -> Iterator[Opened]:
    with opened("qwen35", "qwen3vl_merger") as pair:
        yield pair


@pytest.fixture
def scheduler(both: Opened) -> Scheduler:
    engine, _ = both
    engine.memory.clear()
    return Scheduler(engine, Cache(engine.memory, num_slots=2, budget_bytes=64 << 20))


def shown(scheduler: Scheduler, both: Opened, **source: object) -> tuple[Run, Recorder, Source]:
    """A prompt with a picture in the middle, submitted."""
    before, after = prompt(scheduler, 40, 1), prompt(scheduler, 20, 2)
    pieces: list[Piece] = [(before, None), *picture(both[1], 1), (after, None)]
    embeddings = next(each for _, each in pieces if each is not None)
    tokens, recorder, made = tokens_of(pieces), Recorder(), Source(embeddings, **source)  # type: ignore[arg-type]
    sources = {span.start: made for span in pictures_in(tokens)}
    asked = Run(Job(Prompt(tokens, sources=sources), Sampling(temperature=0.0), max_tokens=6), recorder)
    scheduler.submit(asked)
    return asked, recorder, made


def test_a_picture_that_is_known_is_not_waited_for(scheduler: Scheduler, both: Opened) -> None:
    shown(scheduler, both, is_ready=True)
    run(scheduler)
    asked, _, source = shown(scheduler, both)
    assert scheduler.step()
    assert asked.finish is None
    assert (source.num_begun, source.is_cancelled) == (0, True), "its pixels need not wait for the end of the reply"
    run(scheduler)


def test_a_reply_goes_on_while_a_picture_is_encoded(scheduler: Scheduler, both: Opened) -> None:
    _, alone, _ = shown(scheduler, both, is_ready=True)
    run(scheduler)
    scheduler.cache.clear()
    _, looking, source = shown(scheduler, both)
    _, talking = ask(scheduler, prompt(scheduler, 30, 3), max_tokens=12)
    run(scheduler)
    assert len(talking.tokens) == 12
    assert not looking.tokens
    assert max(looking.reads) < 60, "it has read what comes before the picture"
    assert not scheduler.step(), "there is nothing to do until the picture is there"
    source.is_ready = True
    source.wake()
    run(scheduler)
    assert looking.tokens == alone.tokens


def test_a_picture_is_read_whole_and_alone_and_a_snapshot_stands_behind_it(scheduler: Scheduler, both: Opened) -> None:
    asked, recorder, _ = shown(scheduler, both, is_ready=True)
    _, talking = ask(scheduler, prompt(scheduler, 30, 3), max_tokens=12)
    (span,) = asked.prompt.pictures
    run(scheduler)
    assert {span.start, span.end} <= {*recorder.reads}
    assert not [read for read in recorder.reads if span.start < read < span.end]
    assert len(talking.tokens) == 12
    assert span.end in {point.position for point in scheduler.cache.ram.match("", asked.prompt.tokens).points()}


def test_a_picture_that_fails_ends_its_own_reply(scheduler: Scheduler, both: Opened) -> None:
    _, looking, source = shown(scheduler, both, error=EngineError("no picture"))
    _, talking = ask(scheduler, prompt(scheduler, 30, 3), max_tokens=12)
    run(scheduler)
    assert looking.finish is Finish.FAILED
    assert str(looking.error) == "no picture"
    assert len(talking.tokens) == 12
    assert source.is_cancelled


def test_who_goes_away_does_not_want_the_picture_any_more(scheduler: Scheduler, both: Opened) -> None:
    asked, looking, source = shown(scheduler, both)
    for _ in range(3):
        scheduler.step()
    assert source.num_begun
    scheduler.cancel(asked)
    run(scheduler)
    assert looking.finish is Finish.CANCELLED
    assert source.is_cancelled


def test_the_log_probabilities_of_a_picture_are_not_computed(scheduler: Scheduler, both: Opened) -> None:
    tokens = tokens_of([(prompt(scheduler, 10, 1), None), *picture(both[1], 1)])
    with pytest.raises(InputError, match="pictures"):
        Run(Job(Prompt(tokens), score=lambda *_: None), Recorder())


def test_penalties_and_text_pass_pictures_over(scheduler: Scheduler, both: Opened) -> None:
    tokens = tokens_of([(prompt(scheduler, 10, 1), None), *picture(both[1], 1)])
    assert scheduler.engine.model.vocabulary.text(tokens).count("[image]") == 1
    embeddings = next(each for _, each in picture(both[1], 1) if each is not None)
    sources = {span.start: Source(embeddings, is_ready=True) for span in pictures_in(tokens)}
    recorder = Recorder()
    whole = Prompt(np.concatenate([tokens, prompt(scheduler, 3, 2)]), sources=sources)
    scheduler.submit(Run(Job(whole, Sampling(repeat_penalty=1.2), max_tokens=4), recorder))
    run(scheduler)
    assert recorder.finish is Finish.LENGTH
