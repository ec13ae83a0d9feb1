"""The model of training: the same numbers as the reference, and it learns."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'leftoff[training]'")
torch.set_num_threads(1)  # so small a model gains nothing from more
pytest.importorskip("tokenizers", reason="training needs tokenizers: pip install 'leftoff[training]'")

from tests.training.engine import engine_logits  # noqa: E402
from tests.training.reference import logits, random_parameters  # noqa: E402
from training import kernels  # noqa: E402
from training.convert import convert  # noqa: E402
from training.corpus import pack  # noqa: E402
from training.generate import documents  # noqa: E402
from training.model import Model  # noqa: E402
from training.optimiser import Optimiser, orthogonal  # noqa: E402
from training.shape import MICRO  # noqa: E402
from training.tokens import END_OF_TEXT  # noqa: E402
from training.train import learning_rate, parameters  # noqa: E402

TOKENS = [int(token) for token in np.random.default_rng(2).integers(0, 8000, 80)]


def micro_model() -> Model:
    torch.manual_seed(0)
    return Model(MICRO, kernels.plain())


def test_the_model_computes_what_the_reference_does() -> None:
    model, values = micro_model(), random_parameters(MICRO)
    model.load_state_dict({name: torch.from_numpy(value) for name, value in values.items()})
    found = model.logits(torch.tensor([TOKENS]))[0].numpy()
    expected = logits(values, MICRO, TOKENS)
    assert np.abs(found - expected).max() < 1e-3 * np.abs(expected).max()


def test_a_document_does_not_see_the_one_before_it() -> None:
    model = micro_model()
    alone = [TOKENS[:40], [END_OF_TEXT, *TOKENS[40:]]]
    together = torch.tensor([[*alone[0], *alone[1], END_OF_TEXT]])
    weights = torch.zeros_like(together, dtype=torch.float32)
    weights[:, 43:80] = 1  # the second document, from its second token on
    single = torch.tensor([[*alone[1][1:], END_OF_TEXT]])
    only = torch.zeros_like(single, dtype=torch.float32)
    only[:, 2:39] = 1
    assert model.loss(together, weights).item() == pytest.approx(model.loss(single, only).item(), rel=1e-4)


def test_a_few_steps_lower_the_loss_and_the_engine_runs_the_result(tmp_path: Path) -> None:
    model = micro_model()
    rows = pack(list(islice(documents(seed=3), 40)), 257)
    tokens, weights = torch.from_numpy(rows.tokens.astype(np.int64)), torch.from_numpy(rows.weights).float()
    optimiser, losses = Optimiser(model), []
    for step in range(12):
        loss = model.loss(tokens[:8], weights[:8])
        loss.backward()
        optimiser.step(learning_rate(90 + step, 0.0))
        model.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 1

    convert(parameters(model), MICRO, tmp_path / "micro.gguf", quantise=False)
    expected = model.logits(torch.tensor([TOKENS]))[0, -1].numpy()
    found = engine_logits(tmp_path / "micro.gguf", TOKENS)
    assert np.abs(found - expected).max() < 5e-3 * np.abs(expected).max()


def test_newton_and_schulz_make_a_matrix_nearly_orthogonal() -> None:
    values = torch.linalg.svdvals(orthogonal(torch.randn(2, 48, 24)))
    assert 0.6 < values.min() < values.max() < 1.3


def test_the_learning_rate_rises_stays_and_falls() -> None:
    assert learning_rate(0, 0.0) < learning_rate(50, 0.1) < learning_rate(200, 0.2) == learning_rate(900, 0.5) == 1.0
    assert learning_rate(5000, 1.0) == pytest.approx(0.02)
