"""llama.cpp tells that memory was short only in words."""

import pytest

from leftoff.engine.errors import memory_shortage


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 20000.00 MiB on device 0: cudaMalloc failed: out "
            "of memory; alloc_tensor_range: failed to allocate CUDA0 buffer of size 20971520000; "
            "llama_model_load: error loading model: unable to allocate CUDA0 buffer; "
            "llama_model_load_from_file_impl: failed to load model",
            "error loading model: unable to allocate CUDA0 buffer",
        ),
        ("ggml_vulkan: Device memory allocation of size 1 failed.", "Device memory allocation of size 1 failed."),
        ("out of memory", "out of memory"),
        ("llama_model_load: error loading model: unknown model architecture: 'x'", None),
        ("", None),
    ],
)
def test_a_shortage_is_known_by_its_words(log: str, told: str | None) -> None:
    assert memory_shortage(log) == told
