"""llama-server of the xllamacpp wheel, over the very library leftoff uses: the peer of the benchmarks.

Prints its URL and serves on loopback until its standard input is closed. What is not set here is as llama-server has
it: 32 checkpoints per slot, 8,192 tokens apart at least, and idle slots are kept in RAM.
"""

import argparse
import os
import sys

import xllamacpp  # type: ignore[import-untyped]

from lab.bench.port import free_port

_KV_TYPES = {"f16": xllamacpp.ggml_type.GGML_TYPE_F16, "q8_0": xllamacpp.ggml_type.GGML_TYPE_Q8_0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--ctx", type=int, default=16384)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--ram", type=int, default=4096, help="MiB")
    parser.add_argument("--kv-type", choices=_KV_TYPES, default="f16")
    parser.add_argument("--mmproj", default="", help="the projector of a model that sees pictures")
    parser.add_argument("--ngram", action="store_true", help="draft tokens that the context repeats")
    arguments = parser.parse_args()
    server = xllamacpp.Server(parameters(arguments))
    print("URL", server.listening_address, flush=True)
    sys.stdin.read()
    os._exit(0)  # its own shutdown waits for clients that may be gone


def parameters(arguments: argparse.Namespace) -> xllamacpp.CommonParams:
    params = xllamacpp.CommonParams()
    params.model.path = arguments.model
    params.n_parallel = arguments.slots
    params.n_ctx = arguments.ctx
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = arguments.threads
    params.cache_ram_mib = arguments.ram
    params.kv_unified = params.cache_prompt = params.use_jinja = True
    params.endpoint_slots = params.endpoint_metrics = True
    params.warmup = params.fit_params = params.ui = False
    params.n_gpu_layers = 0
    params.cache_type_k = params.cache_type_v = _KV_TYPES[arguments.kv_type]
    params.mmproj.path, params.mmproj_use_gpu = arguments.mmproj, False
    if arguments.ngram:
        params.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
    params.hostnames, params.port = ["127.0.0.1"], free_port()
    return params


if __name__ == "__main__":
    main()
