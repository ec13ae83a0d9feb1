"""llama.h as ctypes sees it: structs, function signatures, and the builds of llama.cpp that can be loaded.

This file only declares; `library.py` opens a library and checks it against these declarations.

A version alone decides nothing: a library is used if the defaults that it returns stand where one of these layouts
has them. `docs/add-a-llama.cpp-build.md` says what to do for one that fits none.

The bytes of saved state also differ between builds, and are declared nowhere: `memory/layout.py` learns them.
"""

import ctypes as C
from dataclasses import dataclass

PARTIAL_ONLY = 1  # llama_state_seq_flags: only the recurrent state or sliding window, which cannot be cut back
FLASH_ATTENTION_AUTO, FLASH_ATTENTION_OFF, FLASH_ATTENTION_ON = -1, 0, 1
SPLIT_MODES = {"none": 0, "layer": 1, "row": 2, "tensor": 3}  # llama_split_mode
LOAD_READ, LOAD_READ_LOCKED, LOAD_MAPPED_LOCKED = 0, 2, 3  # llama_load_mode: without mmap, and with mlock
CONTEXT_MTP = 1  # llama_context_type
OVERRIDE_NUMBER, OVERRIDE_TEXT = 0, 3  # llama_model_kv_override_type
DEVICE_CPU, DEVICE_GPU, DEVICE_INTEGRATED_GPU = 0, 1, 2  # ggml_backend_dev_type

LogCallback = C.CFUNCTYPE(None, C.c_int, C.c_char_p, C.c_void_p)
ProgressCallback = C.CFUNCTYPE(C.c_bool, C.c_float, C.c_void_p)

# Fields that a later build appends to a struct of parameters: they come back from llama_*_default_params() and are
# passed on as they are. Both calling conventions in use pass a struct of this size in memory, so that a function which
# knows a shorter one does not see them.
_LATER = ("later", C.c_uint8 * 128)


class ModelParams(C.Structure):
    """llama_model_params, the same in all known builds."""

    kept: list[object]  # what its pointers point at
    _fields_ = (
        ("devices", C.c_void_p),
        ("tensor_buft_overrides", C.c_void_p),
        ("n_gpu_layers", C.c_int32),
        ("split_mode", C.c_int),
        ("load_mode", C.c_int),
        ("lazy_mode", C.c_int),
        ("main_gpu", C.c_int32),
        ("tensor_split", C.c_void_p),
        ("progress_callback", ProgressCallback),
        ("progress_callback_user_data", C.c_void_p),
        ("kv_overrides", C.c_void_p),
        ("vocab_only", C.c_bool),
        ("check_tensors", C.c_bool),
        ("use_extra_bufts", C.c_bool),
        ("no_host", C.c_bool),
        ("no_alloc", C.c_bool),
        ("load_mtp", C.c_bool),
        _LATER,
    )


class TensorOverride(C.Structure):
    """llama_model_tensor_buft_override; a list of them ends with one without a pattern."""

    _fields_ = (("pattern", C.c_char_p), ("buffer_type", C.c_void_p))


class _OverrideValue(C.Union):
    _fields_ = (("number", C.c_int64), ("real", C.c_double), ("text", C.c_char * 128))


class KeyOverride(C.Structure):
    """llama_model_kv_override: another value for a key of the metadata; a list of them ends with an empty key."""

    _fields_ = (("kind", C.c_int), ("key", C.c_char * 128), ("value", _OverrideValue))


_CONTEXT_HEAD = (
    ("n_ctx", C.c_uint32),
    ("n_batch", C.c_uint32),
    ("n_ubatch", C.c_uint32),
    ("n_seq_max", C.c_uint32),
    ("n_rs_seq", C.c_uint32),
    ("n_outputs_max", C.c_uint32),
    ("n_outputs_max_per_seq", C.c_uint32),
    ("n_threads", C.c_int32),
    ("n_threads_batch", C.c_int32),
    ("ctx_type", C.c_int),
    ("rope_scaling_type", C.c_int),
    ("pooling_type", C.c_int),
    ("attention_type", C.c_int),
    ("flash_attn_type", C.c_int),
    ("rope_freq_base", C.c_float),
    ("rope_freq_scale", C.c_float),
    ("yarn_ext_factor", C.c_float),
    ("yarn_attn_factor", C.c_float),
    ("yarn_beta_fast", C.c_float),
    ("yarn_beta_slow", C.c_float),
    ("yarn_orig_ctx", C.c_uint32),
    ("defrag_thold", C.c_float),
    ("cb_eval", C.c_void_p),
    ("cb_eval_user_data", C.c_void_p),
    ("type_k", C.c_int),
    ("type_v", C.c_int),
)
_CONTEXT_TAIL = (
    ("abort_callback", C.c_void_p),
    ("abort_callback_data", C.c_void_p),
    ("embeddings", C.c_bool),
    ("offload_kqv", C.c_bool),
    ("no_perf", C.c_bool),
    ("op_offload", C.c_bool),
    ("swa_full", C.c_bool),
    ("kv_unified", C.c_bool),
    ("samplers", C.c_void_p),
    ("n_samplers", C.c_size_t),
    ("ctx_other", C.c_void_p),
    _LATER,
)


class ContextParams05(C.Structure):
    """llama_context_params of 0.5."""

    _fields_ = (*_CONTEXT_HEAD, *_CONTEXT_TAIL)


class ContextParams06(C.Structure):
    """llama_context_params of 0.6: one more field after the KV types."""

    _fields_ = (*_CONTEXT_HEAD, ("moe_cache_size", C.c_size_t), *_CONTEXT_TAIL)


@dataclass(frozen=True)
class Build:
    """A build of llama.cpp whose struct layouts were compared with its llama.h."""

    version: str  # as llama_version() returns it
    context_params: type[C.Structure]
    seen_in: str  # a package that ships it


BUILDS = (
    Build("0.7.0-dev", ContextParams06, "cyllama 0.7.0"),
    Build("0.6.0-dev", ContextParams06, "xllamacpp 2026.10.11549"),
    Build("0.5.0-dev", ContextParams05, "llama-cpp-python 0.3.36, node-llama-cpp 3.22.1"),
)


class Batch(C.Structure):
    """llama_batch; the pointers are to arrays of one item per token."""

    _fields_ = (
        ("n_tokens", C.c_int32),
        ("token", C.c_void_p),
        ("embd", C.c_void_p),
        ("pos", C.c_void_p),
        ("n_seq_id", C.c_void_p),
        ("seq_id", C.c_void_p),
        ("logits", C.c_void_p),
    )


class ChainParams(C.Structure):
    """llama_sampler_chain_params."""

    _fields_ = (("no_perf", C.c_bool),)


class LogitBias(C.Structure):
    """llama_logit_bias."""

    _fields_ = (("token", C.c_int32), ("bias", C.c_float))


class Candidates(C.Structure):
    """llama_token_data_array; `data` points at (id, logit, p) triples."""

    _fields_ = (("data", C.c_void_p), ("size", C.c_size_t), ("selected", C.c_int64), ("sorted", C.c_bool))


# Values that llama_context_default_params() and llama_model_default_params() return in every known build. In a build
# whose struct is laid out differently, another value stands at the offset of at least one of these fields.
CONTEXT_DEFAULTS = {
    "n_ctx": 512,
    "n_batch": 2048,
    "n_ubatch": 512,
    "n_seq_max": 1,
    "flash_attn_type": FLASH_ATTENTION_AUTO,
    "yarn_ext_factor": -1.0,
    "defrag_thold": -1.0,
    "type_k": 1,
    "type_v": 1,
    "abort_callback": None,
    "embeddings": False,
    "offload_kqv": True,
    "no_perf": True,
    "op_offload": True,
    "swa_full": True,
    "kv_unified": False,
    "samplers": None,
    "n_samplers": 0,
}
MODEL_DEFAULTS = {
    "devices": None,
    "n_gpu_layers": -1,
    "split_mode": 1,
    "main_gpu": 0,
    "kv_overrides": None,
    "vocab_only": False,
    "check_tensors": False,
    "use_extra_bufts": True,
    "no_host": False,
    "no_alloc": False,
}

# Short names keep a signature on one line.
_P, _STR, _BOOL, _SIZE = C.c_void_p, C.c_char_p, C.c_bool, C.c_size_t
_I32, _U32, _F32 = C.c_int32, C.c_uint32, C.c_float

Signature = tuple[object, tuple[object, ...]]  # result, arguments

# Functions that leftoff calls; a library that lacks one of them is refused.
FUNCTIONS: dict[str, Signature] = {
    "llama_version": (_STR, ()),
    "llama_backend_init": (None, ()),
    "llama_print_system_info": (_STR, ()),
    "llama_supports_gpu_offload": (_BOOL, ()),
    "llama_log_set": (None, (LogCallback, _P)),
    # model
    "llama_model_default_params": (ModelParams, ()),
    "llama_model_load_from_file": (_P, (_STR, ModelParams)),
    "llama_model_free": (None, (_P,)),
    "llama_model_desc": (_I32, (_P, _P, _SIZE)),
    "llama_model_n_params": (C.c_uint64, (_P,)),
    "llama_model_size": (C.c_uint64, (_P,)),
    "llama_model_n_ctx_train": (_I32, (_P,)),
    "llama_model_n_layer": (_I32, (_P,)),
    "llama_model_n_swa": (_I32, (_P,)),
    "llama_model_is_recurrent": (_BOOL, (_P,)),
    "llama_model_is_hybrid": (_BOOL, (_P,)),
    "llama_model_has_encoder": (_BOOL, (_P,)),
    "llama_model_has_decoder": (_BOOL, (_P,)),
    "llama_model_chat_template": (_STR, (_P, _STR)),
    "llama_model_meta_count": (_I32, (_P,)),
    "llama_model_meta_key_by_index": (_I32, (_P, _I32, _P, _SIZE)),
    "llama_model_meta_val_str_by_index": (_I32, (_P, _I32, _P, _SIZE)),
    # vocabulary
    "llama_model_get_vocab": (_P, (_P,)),
    "llama_vocab_type": (C.c_int, (_P,)),
    "llama_vocab_n_tokens": (_I32, (_P,)),
    "llama_vocab_bos": (_I32, (_P,)),
    "llama_vocab_eos": (_I32, (_P,)),
    "llama_vocab_get_add_bos": (_BOOL, (_P,)),
    "llama_vocab_get_add_eos": (_BOOL, (_P,)),
    "llama_vocab_is_eog": (_BOOL, (_P, _I32)),
    "llama_vocab_is_control": (_BOOL, (_P, _I32)),
    "llama_vocab_get_attr": (C.c_int, (_P, _I32)),
    "llama_vocab_get_text": (_STR, (_P, _I32)),
    "llama_tokenize": (_I32, (_P, _P, _I32, _P, _I32, _BOOL, _BOOL)),
    "llama_token_to_piece": (_I32, (_P, _I32, _P, _I32, _I32, _BOOL)),
    # context
    "llama_free": (None, (_P,)),
    "llama_n_ctx": (_U32, (_P,)),
    "llama_n_batch": (_U32, (_P,)),
    "llama_set_abort_callback": (None, (_P, _P, _P)),
    "llama_synchronize": (None, (_P,)),
    "llama_decode": (_I32, (_P, Batch)),
    "llama_batch_get_one": (Batch, (_P, _I32)),
    "llama_get_logits_ith": (_P, (_P, _I32)),
    # memory
    "llama_get_memory": (_P, (_P,)),
    "llama_memory_clear": (None, (_P, _BOOL)),
    "llama_memory_seq_rm": (_BOOL, (_P, _I32, _I32, _I32)),
    "llama_memory_seq_cp": (None, (_P, _I32, _I32, _I32, _I32)),
    "llama_memory_seq_pos_min": (_I32, (_P, _I32)),
    "llama_state_seq_get_size_ext": (_SIZE, (_P, _I32, _U32)),
    "llama_state_seq_get_data_ext": (_SIZE, (_P, _P, _SIZE, _I32, _U32)),
    "llama_state_seq_set_data_ext": (_SIZE, (_P, _P, _SIZE, _I32, _U32)),
    # sampling
    "llama_sampler_chain_default_params": (ChainParams, ()),
    "llama_sampler_chain_init": (_P, (ChainParams,)),
    "llama_sampler_chain_add": (None, (_P, _P)),
    "llama_sampler_free": (None, (_P,)),
    "llama_sampler_clone": (_P, (_P,)),
    "llama_sampler_sample": (_I32, (_P, _P, _I32)),
    "llama_sampler_accept": (None, (_P, _I32)),
    "llama_sampler_apply": (None, (_P, C.POINTER(Candidates))),
    "llama_sampler_init_greedy": (_P, ()),
    "llama_sampler_init_dist": (_P, (_U32,)),
    "llama_sampler_init_top_k": (_P, (_I32,)),
    "llama_sampler_init_top_p": (_P, (_F32, _SIZE)),
    "llama_sampler_init_min_p": (_P, (_F32, _SIZE)),
    "llama_sampler_init_typical": (_P, (_F32, _SIZE)),
    "llama_sampler_init_top_n_sigma": (_P, (_F32,)),
    "llama_sampler_init_xtc": (_P, (_F32, _F32, _SIZE, _U32)),
    "llama_sampler_init_temp": (_P, (_F32,)),
    "llama_sampler_init_temp_ext": (_P, (_F32, _F32, _F32)),
    "llama_sampler_init_mirostat": (_P, (_I32, _U32, _F32, _F32, _I32)),
    "llama_sampler_init_mirostat_v2": (_P, (_U32, _F32, _F32)),
    "llama_sampler_init_dry": (_P, (_P, _F32, _F32, _I32, _I32, _P, _SIZE)),
    "llama_sampler_init_penalties": (_P, (_I32, _I32, _F32, _F32, _F32)),
    "llama_sampler_init_logit_bias": (_P, (_I32, _I32, _P)),
    # devices, and the files with their code where the build has it apart
    "llama_max_devices": (_SIZE, ()),
    "ggml_backend_load": (_P, (_STR,)),
    "ggml_backend_dev_count": (_SIZE, ()),
    "ggml_backend_dev_get": (_P, (_SIZE,)),
    "ggml_backend_dev_name": (_STR, (_P,)),
    "ggml_backend_dev_description": (_STR, (_P,)),
    "ggml_backend_dev_type": (C.c_int, (_P,)),
    "ggml_backend_dev_memory": (None, (_P, C.POINTER(_SIZE), C.POINTER(_SIZE))),
    "ggml_backend_dev_buffer_type": (_P, (_P,)),
    "ggml_backend_buft_name": (_STR, (_P,)),
    # page-locked host memory, where the build has a device that wants it
    "ggml_backend_dev_host_buffer_type": (_P, (_P,)),
    "ggml_backend_buft_alloc_buffer": (_P, (_P, _SIZE)),
    "ggml_backend_buffer_get_base": (_P, (_P,)),
    "ggml_backend_buffer_free": (None, (_P,)),
}

# Functions that pass the build's ContextParams by value, so that they are typed when the build is known.
CONTEXT_FUNCTIONS = ("llama_context_default_params", "llama_init_from_model")

# For drafts by a next-token (MTP) layer: hidden states of the tokens of a batch.
MTP_FUNCTIONS: dict[str, Signature] = {
    "llama_set_embeddings_nextn": (None, (_P, _BOOL, _BOOL)),
    "llama_get_embeddings_nextn": (_P, (_P,)),
    "llama_get_embeddings_nextn_ith": (_P, (_P, _I32)),
    "llama_model_n_embd_out": (_I32, (_P,)),
}

# For drafts by an EAGLE-3 head, besides those: the inputs of layers, and the encoder that joins them.
EAGLE_FUNCTIONS: dict[str, Signature] = {
    "llama_set_embeddings_layer_inp": (None, (_P, _U32, _BOOL)),
    "llama_get_embeddings_layer_inp": (_P, (_P, _U32)),
    "llama_model_target_layer_ids": (_P, (_P,)),
    "llama_model_target_layer_ids_n": (_U32, (_P,)),
    "llama_encode": (_I32, (_P, Batch)),
}

# For vectors and scores of texts.
EMBEDDING_FUNCTIONS: dict[str, Signature] = {
    "llama_pooling_type": (C.c_int, (_P,)),
    "llama_get_embeddings_seq": (_P, (_P, _I32)),
    "llama_model_n_embd": (_I32, (_P,)),
    "llama_model_n_cls_out": (_U32, (_P,)),
    "llama_vocab_sep": (_I32, (_P,)),
    "llama_vocab_get_add_sep": (_BOOL, (_P,)),
}

# For LoRA adapters and control vectors.
ADAPTER_FUNCTIONS: dict[str, Signature] = {
    "llama_adapter_lora_init": (_P, (_P, _STR)),
    "llama_adapter_lora_free": (None, (_P,)),
    "llama_set_adapters_lora": (_I32, (_P, _P, _SIZE, _P)),
    "llama_set_adapter_cvec": (_I32, (_P, _P, _SIZE, _I32, _I32, _I32)),
}

# Functions that known builds export as C++ does, with the types of their arguments in the name.
CPP_NAMES = {
    "llama_set_embeddings_nextn": "_Z26llama_set_embeddings_nextnP13llama_contextbb",
    "llama_get_embeddings_nextn": "_Z26llama_get_embeddings_nextnP13llama_context",
    "llama_get_embeddings_nextn_ith": "_Z30llama_get_embeddings_nextn_ithP13llama_contexti",
    "llama_set_embeddings_layer_inp": "_Z30llama_set_embeddings_layer_inpP13llama_contextjb",
    "llama_get_embeddings_layer_inp": "_Z30llama_get_embeddings_layer_inpP13llama_contextj",
    "llama_model_target_layer_ids": "_Z28llama_model_target_layer_idsPK11llama_model",
    "llama_model_target_layer_ids_n": "_Z30llama_model_target_layer_ids_nPK11llama_model",
}

# Functions that a known build may lack: ask `Library.has` before calling one.
OPTIONAL: dict[str, Signature] = {
    **MTP_FUNCTIONS,
    **EAGLE_FUNCTIONS,
    **EMBEDDING_FUNCTIONS,
    **ADAPTER_FUNCTIONS,
    "llama_model_n_embd_inp": (_I32, (_P,)),
    "llama_set_causal_attn": (None, (_P, _BOOL)),
    "llama_sampler_init_adaptive_p": (_P, (C.c_float, C.c_float, _U32)),
}
