"""Runs a task of lm_eval against a server, and compares its loglikelihoods with those that a `Session` computes.

    python -m lab.clients.loglikelihoods PYTHON URL FOLDER

PYTHON has lm_eval. The exit code is 1 if lm_eval fails, or if a loglikelihood is another.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from lab.clients.client import SCRIPTS
from leftoff import Session

_TASK = SCRIPTS / "lm_eval_task"
_ROUNDING = 0.01  # the same tokens are read in the same pieces


def main(python: str, url: str, folder: str) -> int:
    """Prints every loglikelihood beside that of lm_eval."""
    output = Path(folder) / "lm_eval"
    evaluate(python, url, output)
    found = [*samples(output)]
    with Session() as session:
        own = [loglikelihood(session, context, answer) for context, answer, _ in found]
    for (_, answer, theirs), ours in zip(found, own, strict=True):
        print(f"{theirs:10.4f} {ours:10.4f} {answer}")
    worst = max(abs(theirs - ours) for (_, _, theirs), ours in zip(found, own, strict=True))
    print(f"{len(found)} loglikelihoods, the largest difference is {worst:.6f}")
    return 0 if worst < _ROUNDING else 1


def evaluate(python: str, url: str, output: Path) -> None:
    """As people run it."""
    task = output / "task"
    task.mkdir(parents=True)
    text = (_TASK / "capitals.yaml").read_text().replace("DATA", str(_TASK / "capitals.jsonl"))
    (task / "capitals.yaml").write_text(text)
    model = f"model=local,base_url={url}/v1/completions"
    command = [python, "-m", "lm_eval", "--model", "local-completions", "--model_args", model, "--tasks", "capitals"]
    subprocess.run(
        [*command, "--include_path", str(task), "--log_samples", "--output_path", str(output)], cwd=output, check=True
    )


def samples(output: Path) -> Iterator[tuple[str, str, float]]:
    """Each context, answer and loglikelihood that lm_eval has logged."""
    (path,) = output.rglob("samples_*.jsonl")
    for line in path.read_text().splitlines():
        sample = json.loads(line)
        for asked, said in zip(sample["arguments"].values(), sample["filtered_resps"], strict=True):
            yield asked["arg_0"], asked["arg_1"], float(said[0])


def loglikelihood(session: Session, context: str, answer: str) -> float:
    vocabulary = session.engine.model.vocabulary
    num_context, tokens = len(vocabulary.tokenize(context)), vocabulary.tokenize(context + answer)
    return float(sum(session.logprobs(tokens)[num_context - 1 :]))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
