"""Not in the wheel: benchmarks against other servers (`bench`) and of single parts (`speed`), and `simulate`."""
