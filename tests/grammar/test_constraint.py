"""A reply is led where its outline says so, and left alone elsewhere."""

import numpy as np
import pytest

from leftoff.grammar.compile import Grammars
from leftoff.grammar.constraint import GrammarConstraint, Outline, Trigger
from leftoff.grammar.errors import GrammarError
from leftoff.grammar.grammar import from_choices, from_regex, from_schema, literal, text_until
from leftoff.sampling import Sampling
from leftoff.scheduler.job import Finish, Job
from leftoff.scheduler.run import Run
from leftoff.scheduler.scheduler import Scheduler
from leftoff.types import Prompt, ReasoningTags
from tests.grammar.walk import accepts, allowed, may_end, write
from tests.scheduler.conftest import scheduler_for
from tests.scheduler.recorder import Recorder, run

THINKING = ReasoningTags()
YES_OR_NO = from_choices(["yes", "no"])


def test_a_grammar_holds_from_the_first_token_to_the_last(grammars: Grammars) -> None:
    guide = GrammarConstraint(grammars, Outline(YES_OR_NO))
    assert {grammars.vocabulary.piece(token)[:1] for token in allowed(guide, grammars.vocabulary)} == {b"y", b"n"}
    assert not may_end(guide, grammars.vocabulary)
    write(guide, grammars.vocabulary, "yes")
    assert guide.is_done


def test_a_reply_may_end_exactly_where_the_grammar_does(grammars: Grammars) -> None:
    guide = GrammarConstraint(grammars, Outline(from_regex("ab(cd)*")))
    ends = []
    for letter in "abcdcd":
        write(guide, grammars.vocabulary, letter)
        ends.append(may_end(guide, grammars.vocabulary))
    assert ends == [False, True, False, True, False, True]
    assert not guide.is_done


def test_reasoning_that_the_prompt_has_opened_is_free(grammars: Grammars) -> None:
    vocabulary = grammars.vocabulary
    guide = GrammarConstraint(grammars, Outline(YES_OR_NO, reasoning=THINKING, is_reasoning=True))
    everything = frozenset(range(vocabulary.size))
    assert everything - allowed(guide, vocabulary) == vocabulary.end_tokens, "there is more to come"
    write(guide, vocabulary, "well, <yes> or no? {}</think>")
    assert not may_end(guide, vocabulary)
    write(guide, vocabulary, "\n\nno")
    assert guide.is_done


def test_a_model_may_think_first_or_speak_at_once(grammars: Grammars) -> None:
    outline = Outline(YES_OR_NO, reasoning=THINKING)
    speaks, thinks = GrammarConstraint(grammars, outline), GrammarConstraint(grammars, outline)
    write(speaks, grammars.vocabulary, "yes")
    assert speaks.is_done
    write(thinks, grammars.vocabulary, "<think>\nthe river\n</think>\n\nyes")
    assert thinks.is_done


@pytest.mark.parametrize("repeats", [True, False])
def test_a_trigger_in_free_text_starts_the_grammar(grammars: Grammars, repeats: bool) -> None:
    vocabulary = grammars.vocabulary
    trigger = Trigger("<tool_call>", literal('{"a": ', vocabulary) + from_regex("[0-9]") + literal("}", vocabulary))
    guide = GrammarConstraint(grammars, Outline(triggers=(trigger,), repeats=repeats))
    assert len(allowed(guide, vocabulary)) == vocabulary.size
    write(guide, vocabulary, 'I call {"a": x} <tool_call>')
    assert len(allowed(guide, vocabulary)) == 1
    assert not may_end(guide, vocabulary)
    write(guide, vocabulary, '{"a": 7}')
    assert guide.is_done is not repeats
    if repeats:
        write(guide, vocabulary, ' again <tool_call>{"a": 8}')
        assert len(allowed(guide, vocabulary)) == vocabulary.size


def test_a_trigger_in_the_reasoning_is_none(grammars: Grammars) -> None:
    vocabulary = grammars.vocabulary
    outline = Outline(triggers=(Trigger("<tool_call>", YES_OR_NO),), reasoning=THINKING)
    guide = GrammarConstraint(grammars, outline)
    write(guide, vocabulary, "<think>no <tool_call> yet</think> now <tool_call>")
    assert len(allowed(guide, vocabulary)) < 10


def test_a_trigger_spelled_in_letters_ends_where_a_token_ends(grammars: Grammars) -> None:
    """A token like " the" holds the end of the trigger and more: it would hide where the grammar begins."""
    vocabulary = grammars.vocabulary
    guide = GrammarConstraint(grammars, Outline(triggers=(Trigger("call t", YES_OR_NO),)))
    write(guide, vocabulary, "x call")
    crossing = {vocabulary.piece(t) for t in set(range(vocabulary.size)) - allowed(guide, vocabulary)}
    assert b" the" in crossing
    assert all(piece.startswith(b" t") and piece != b" t" for piece in crossing)
    write(guide, vocabulary, " t")
    assert len(allowed(guide, vocabulary)) < 10


def test_control_tokens_are_asked_for_by_their_ids_and_are_no_text(grammars: Grammars) -> None:
    vocabulary = grammars.vocabulary
    start = int(vocabulary.tokenize("<|im_start|>")[0])
    guide = GrammarConstraint(grammars, Outline(literal("a<|im_start|>b", vocabulary)))
    write(guide, vocabulary, "a")
    assert allowed(guide, vocabulary) == {start}
    text = GrammarConstraint(grammars, Outline(from_regex("(.|\n)*")))
    assert start not in allowed(text, vocabulary)


@pytest.mark.parametrize("end", ["\n</value>", "<|im_start|>x"])
def test_any_text_up_to_its_end(grammars: Grammars, end: str) -> None:
    grammar = text_until(end, grammars.vocabulary) + literal("!", grammars.vocabulary)
    assert accepts(grammars, grammar, f"a < b\n</val{end}!")
    assert not accepts(grammars, grammar, f"a{end}b{end}!")


def test_a_schema_that_cannot_be_compiled_is_known_before_the_reply_begins(grammars: Grammars) -> None:
    with pytest.raises(GrammarError, match="'not'"):
        GrammarConstraint(grammars, Outline(triggers=(Trigger("<tool_call>", from_schema({"not": {}})),)))


# --- in a scheduler

SAMPLINGS = [
    Sampling(),
    Sampling(temperature=2.0, seed=1),
    Sampling(temperature=1.0, top_k=40, top_p=0.9, min_p=0.05, seed=2),
    Sampling(temperature=1.0, typical_p=0.5, seed=3),
    Sampling(mirostat=1, temperature=1.0, seed=4),
    Sampling(mirostat=2, temperature=1.0, seed=5),
    Sampling(temperature=1.0, top_n_sigma=1.0, xtc_probability=0.5, repeat_penalty=1.3, dry_multiplier=0.8, seed=6),
    Sampling(temperature=1.0, logit_bias=((0, 100.0), (300, float("-inf"))), seed=7),
]


def order(scheduler: Scheduler, guide: GrammarConstraint | None, sampling: Sampling, **fields: object) -> Recorder:
    recorder = Recorder()
    prompt = Prompt(scheduler.engine.model.vocabulary.tokenize("the river runs down"))
    values = {"max_tokens": 40, "constraint": guide} | fields
    scheduler.submit(Run(Job(prompt, sampling, **values), recorder))  # type: ignore[arg-type]
    return recorder


def text_of(scheduler: Scheduler, recorder: Recorder) -> str:
    return scheduler.engine.model.vocabulary.detokenize(np.array(recorder.tokens, np.int32)).decode()


def test_no_way_to_choose_gets_around_a_mask() -> None:
    with scheduler_for("qwen35") as scheduler:
        grammars = Grammars(scheduler.engine.model.vocabulary)
        outline = Outline(from_regex("[0-9]{3}-(x|yz)"))
        for ignores in (False, True):
            for sampling in SAMPLINGS:
                recorder = order(scheduler, GrammarConstraint(grammars, outline), sampling, ignore_end=ignores)
                run(scheduler)
                assert recorder.finish is Finish.END
                assert text_of(scheduler, recorder)[3:] in ("-x", "-yz")
        grammars.close()


def test_warm_and_cold_say_the_same() -> None:
    """The first token of a warm reply comes from logits that were kept, the others from the batch."""
    with scheduler_for("qwen35") as scheduler:
        grammars = Grammars(scheduler.engine.model.vocabulary)
        for sampling in SAMPLINGS:
            outline = Outline(from_regex("[a-f]{20}"))
            scheduler.cache.clear()
            replies = []
            for _ in range(2):
                recorder = order(scheduler, GrammarConstraint(grammars, outline), sampling)
                run(scheduler)
                assert recorder.report is not None
                replies.append((text_of(scheduler, recorder), recorder.report.reused > 0))
            assert replies == [(replies[0][0], False), (replies[0][0], True)]
        grammars.close()


def test_a_reply_without_a_constraint_beside_it_is_as_it_would_be_alone() -> None:
    with scheduler_for("qwen35") as scheduler:
        grammars = Grammars(scheduler.engine.model.vocabulary)
        alone = order(scheduler, None, Sampling())
        run(scheduler)
        beside = order(scheduler, None, Sampling())
        other = order(scheduler, GrammarConstraint(grammars, Outline(from_regex("[0-9]{40}"))), Sampling())
        run(scheduler)
        assert beside.tokens == alone.tokens
        assert text_of(scheduler, other).isdecimal()
        grammars.close()


class Failing:
    """A constraint that gives up after two tokens, as one does whose grammar outgrows its limits."""

    is_done = False

    def __init__(self) -> None:
        self.num_taken = 0

    def mask(self, logits: object) -> bool:  # noqa: ARG002
        if self.num_taken == 2:
            raise GrammarError("it is too complex")
        return False

    def accept(self, token: int) -> None:  # noqa: ARG002
        self.num_taken += 1


def test_a_constraint_that_fails_ends_its_own_reply_only() -> None:
    with scheduler_for("qwen35") as scheduler:
        failing = order(scheduler, None, Sampling(), constraint=Failing())
        other = order(scheduler, None, Sampling())
        run(scheduler)
        assert (failing.finish, str(failing.error), len(failing.tokens)) == (Finish.FAILED, "it is too complex", 2)
        assert other.finish in (Finish.LENGTH, Finish.END)
        assert other.error is None
