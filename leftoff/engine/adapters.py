"""The adapters of a native context: all are loaded with it, and those of one set act at a time."""

import ctypes as C
import os
from collections.abc import Sequence
from functools import partial

from leftoff.adapters import NO_ADAPTERS, AdapterSet
from leftoff.engine.adapter_file import ControlVector, LoraFile
from leftoff.engine.binding import abi
from leftoff.engine.errors import EngineError, ModelError
from leftoff.engine.model import Model


class ContextAdapters:
    """Belongs to one native context, and is closed behind it. A control vector acts from the beginning to the end."""

    def __init__(
        self, model: Model, context: int | None, files: Sequence[LoraFile], control: ControlVector | None
    ) -> None:
        self._library = model.library
        self._context = context
        self._used = NO_ADAPTERS
        self._handles: dict[str, int] = {}  # by fingerprint
        if (files or control is not None) and (problem := self._library.problem_without(abi.ADAPTER_FUNCTIONS)):
            raise EngineError(problem)
        try:
            for file in files:
                self._load(model, file)
            if control is not None:
                self._steer(control)
        except EngineError:
            self.close()
            raise

    def close(self) -> None:
        for handle in self._handles.values():
            self._library.dll.llama_adapter_lora_free(handle)
        self._handles.clear()

    def use(self, adapters: AdapterSet) -> bool:
        """Decodes with this set from now on. False if it does already: a switch costs a new graph."""
        if adapters is self._used or adapters == self._used:
            return False
        unknown = [each for each in adapters.adapters if each.fingerprint not in self._handles]
        if unknown:
            raise EngineError(f"the adapter {unknown[0].fingerprint[:8]} is not loaded")
        handles = [self._handles[each.fingerprint] for each in adapters.adapters]
        scales = [each.scale for each in adapters.adapters]
        array, floats = (C.c_void_p * len(handles))(*handles), (C.c_float * len(scales))(*scales)
        if self._library.dll.llama_set_adapters_lora(self._context, array, len(handles), floats) != 0:
            raise EngineError("llama.cpp could not set the adapters")
        self._used = adapters
        return True

    def _load(self, model: Model, file: LoraFile) -> None:
        if file.fingerprint in self._handles:
            return  # the same under another name
        file.require_same()
        handle = self._library.dll.llama_adapter_lora_init(model.handle, os.fsencode(file.path))
        if handle is None:
            raise ModelError(
                f"llama.cpp cannot load {file.path}: {self._library.log.take_errors() or 'no reason given'}"
            )
        self._handles[file.fingerprint] = handle
        file.require_same()

    def _steer(self, control: ControlVector) -> None:
        rows, first, last = control.rows, control.first_layer, control.last_layer
        put = partial(self._library.dll.llama_set_adapter_cvec, self._context, rows.ctypes.data, rows.size)
        if put(rows.shape[1], first, last) != 0:
            raise EngineError("llama.cpp could not set the control vector")
