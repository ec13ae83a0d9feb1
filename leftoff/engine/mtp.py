"""The next-token (MTP) layer of a model, as a head: it reads the last hidden state of every token."""

from pathlib import Path

import numpy as np

from leftoff.engine.binding import abi
from leftoff.engine.binding.library import Library
from leftoff.engine.context import create_context, floats
from leftoff.engine.errors import ModelError
from leftoff.engine.head import HeadContext, Hidden
from leftoff.engine.model_header import model_header

# Architectures whose layer was tried. llama.cpp aborts the process, or ignores the layer, in some others.
ARCHITECTURES = ("qwen35", "qwen35moe", "qwen3next", "deepseek2")
_LAYER_END = ".nextn.eh_proj.weight"  # the tensor that every such layer has


def mtp_problem(library: Library, path: Path) -> str:
    """Why no drafts can be made with the MTP layer of a model file; empty if they can."""
    try:
        header = model_header(path)
    except ModelError as error:
        return str(error)
    num_layers = sum(tensor.name.endswith(_LAYER_END) for tensor in header.tensors)
    if num_layers == 0:
        return "there is no MTP layer in the model file"
    if num_layers > 1:
        return f"the model has {num_layers} MTP layers, and only one is supported"
    if header.architecture not in ARCHITECTURES:
        return f"the MTP layer of {header.architecture} was not tried yet, only that of {', '.join(ARCHITECTURES)}"
    return library.problem_without(abi.MTP_FUNCTIONS)


class MtpContext(HeadContext):
    """Has no weights of its own: they are loaded with the model."""

    _is_alone: bool | None = None  # what the main context was told last

    def prepare(self, num_works: int) -> None:
        """For a sequence alone, asks for the hidden states of all its tokens.

        Of several sequences llama.cpp mixes the rows of tokens without logits, so that only the others can be told
        apart.
        """
        is_alone = num_works == 1
        if self._is_alone is not is_alone:
            self._is_alone = is_alone
            self._dll.llama_set_embeddings_nextn(self._main.handle, True, not is_alone)

    def _create(self) -> int:
        model = self._main.model
        return create_context(model.library, model.handle, model.path, self._main.settings, abi.CONTEXT_MTP)

    def _ask(self, *, is_wanted: bool) -> None:
        """`prepare` asks for them, once it is known for how many sequences."""
        self._is_alone = None
        if not is_wanted:
            self._dll.llama_set_embeddings_nextn(self._main.handle, False, False)

    def _hidden(self, num_tokens: int, last_row: int, num_logits: int) -> Hidden:
        if self._is_alone:
            rows = floats(self._dll.llama_get_embeddings_nextn(self._main.handle), (last_row + 1) * self._width)
            return rows.reshape(-1, self._width)[-num_tokens:]
        known = range(last_row + 1 - min(num_tokens, num_logits), last_row + 1)
        addresses = (self._dll.llama_get_embeddings_nextn_ith(self._main.handle, row) for row in known)
        hidden = np.array([floats(address, self._width) for address in addresses], np.float32)
        return hidden.reshape(-1, self._width)
