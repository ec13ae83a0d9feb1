"""Whatever the schema, a model that knows nothing writes a document of it: the grammar alone sees to that."""

import json
import os
from decimal import Decimal

import jsonschema
import pytest

from leftoff.chat.tokenizer import TextStream
from leftoff.grammar.compile import Grammars
from leftoff.grammar.constraint import GrammarConstraint, Outline
from leftoff.grammar.grammar import from_schema
from leftoff.sampling import Sampling
from leftoff.scheduler.job import Finish, Job
from leftoff.scheduler.run import Run
from leftoff.scheduler.scheduler import Scheduler
from leftoff.types import Prompt
from tests.grammar.schemas import Schema, Schemas
from tests.scheduler.conftest import scheduler_for
from tests.scheduler.recorder import Recorder, run

NUM_SCHEMAS = 500 if os.environ.get("LEFTOFF_FULL") else 60
MAX_TOKENS = 2000
SLOTS = 4


def documents(scheduler: Scheduler, schemas: list[Schema]) -> list[str]:
    """One document of each schema, chosen at random, several at once."""
    vocabulary = scheduler.engine.model.vocabulary
    grammars = Grammars(vocabulary)
    recorders = [Recorder() for _ in schemas]
    for seed, (schema, recorder) in enumerate(zip(schemas, recorders, strict=True)):
        prompt = Prompt(vocabulary.tokenize(f"a document {seed}: "))
        guide = GrammarConstraint(grammars, Outline(from_schema(schema)))
        sampling = Sampling(temperature=1.5, seed=seed)
        scheduler.submit(Run(Job(prompt, sampling, max_tokens=MAX_TOKENS, constraint=guide), recorder))
    run(scheduler)
    grammars.close()
    for schema, recorder in zip(schemas, recorders, strict=True):
        assert recorder.finish is Finish.END, f"{recorder.finish} {recorder.error} for {schema}"
    streams = [TextStream(vocabulary) for _ in schemas]
    return [
        "".join(map(stream.push, recorder.tokens)) + stream.close()
        for stream, recorder in zip(streams, recorders, strict=True)
    ]


@pytest.mark.timeout(600)
def test_every_document_is_valid() -> None:
    made = [Schemas(seed).schema() for seed in range(NUM_SCHEMAS)]
    with scheduler_for("qwen35", slots=SLOTS) as scheduler:
        written = documents(scheduler, made)
    for schema, text in zip(made, written, strict=True):
        # In binary, 5.3 is no multiple of 0.1.
        exact, document = (json.loads(source, parse_float=Decimal) for source in (json.dumps(schema), text))
        jsonschema.Draft202012Validator(exact, format_checker=jsonschema.FormatChecker()).validate(document)
    assert len({*written}) > NUM_SCHEMAS / 2, "documents of many kinds"
