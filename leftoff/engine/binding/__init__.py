"""The llama.h C API through ctypes: find the shared library, check its ABI, route its log."""
