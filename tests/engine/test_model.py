"""What a model file tells, and what is said of a file that is none. Bad files are opened in a process that lives."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.errors import EngineError, ModelError, ReplacedError
from leftoff.engine.model import Model
from leftoff.engine.model_settings import ModelSettings
from tests.factory import Scale, model_path, small_vocabulary
from tests.factory.gguf import Value, write_model
from tests.factory.parts import attention, body
from tests.factory.template import CHAT_TEMPLATE

PROGRAM = """
import json, sys
from leftoff.engine.errors import EngineError
from leftoff.engine.engine import LlamaEngine
said = {}
for path in sys.argv[1:]:
    try:
        LlamaEngine.open(path).close()
    except EngineError as error:
        said[path] = [type(error).__name__, str(error)]
print(json.dumps(said))
"""

MESSAGES = {
    "missing.gguf": "there is no model file at",
    "folder.gguf": "is a folder: name a GGUF file in it, or serve all of them by --models-dir",
    "empty.gguf": "is not a GGUF file: it is empty",
    "text.gguf": "is not a GGUF file: it begins with the bytes 6f 6e 63 65, not with GGUF",
    "header-only.gguf": "is not whole: it ends before its weights do. Fetch the file again",
    "cut-in-metadata.gguf": "is not whole: it ends before its weights do. Fetch the file again",
    "cut-in-weights.gguf": "is not whole: it ends before its weights do. Fetch the file again",
    "newer-format.gguf": "version 259",
    "many-tensors.gguf": "is not whole",
    "unknown.gguf": "unknown model architecture: 'lluma'",
    "vocabulary-only.gguf": "llama.cpp cannot load",
    "split-00001-of-00002.gguf": "split-00002-of-00002.gguf",
    "tail-00002-of-00002.gguf": "tail-00001-of-00002.gguf",
    "encoder.gguf": "is an encoder model",
}


def described(architecture: str, more: dict[str, Value] | None = None) -> dict[str, Value]:
    keys = body(Scale(), layers=2) | attention(Scale()) | (more or {})
    prefixed: dict[str, Value] = {f"{architecture}.{key}": value for key, value in keys.items()}
    return {"general.architecture": architecture} | small_vocabulary().metadata() | prefixed


def write(path: Path, metadata: dict[str, Value], omit: tuple[str, ...] = ()) -> Path:
    write_model(path, metadata, lambda tensor: np.zeros((tensor.rows, tensor.columns), np.float32), omit)
    return path


@pytest.fixture(scope="module")
def bad_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    good = model_path("llama").read_bytes()
    contents = {
        "empty.gguf": b"",
        "text.gguf": b"once upon a time",
        "header-only.gguf": good[:24],
        "cut-in-metadata.gguf": good[:3000],
        "cut-in-weights.gguf": good[: len(good) // 2],
        "newer-format.gguf": good[:5] + b"\x01" + good[6:],
        "many-tensors.gguf": good[:15] + b"\xff" + good[16:],
        "unknown.gguf": good.replace(b"llama", b"lluma"),
        "split-00001-of-00002.gguf": good,
        "tail-00002-of-00002.gguf": good,
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    (folder / "folder.gguf").mkdir()
    write(folder / "vocabulary-only.gguf", described("llama"), omit=("",))
    write(folder / "encoder.gguf", described("t5encoder", {"attention.relative_buckets_count": 8}))
    return folder


@pytest.fixture(scope="module")
def said(bad_files: Path) -> dict[str, tuple[str, str]]:
    """Type and text of the error for each bad file, from one process that met them all and ended well."""
    paths = [str(bad_files / name) for name in MESSAGES]
    done = subprocess.run([sys.executable, "-c", PROGRAM, *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return {Path(path).name: (kind, text) for path, (kind, text) in json.loads(done.stdout.splitlines()[-1]).items()}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_file_that_is_no_model_is_refused_by_name_and_reason(
    name: str, bad_files: Path, said: dict[str, tuple[str, str]]
) -> None:
    kind, text = said[name]
    assert kind == "ModelError"
    assert MESSAGES[name] in text
    assert str(bad_files) in text
    assert not text.endswith("no reason given")


def test_a_good_model_loads_after_a_bad_one(bad_files: Path) -> None:
    with pytest.raises(ModelError):
        Model(bad_files / "cut-in-weights.gguf")
    with LlamaEngine.open(model_path("llama")) as engine:
        assert engine.memory.length(0) == 0


def test_a_model_without_a_memory_of_its_own_is_refused(tmp_path: Path) -> None:
    """BERT and its kin do not call themselves encoders, but remember nothing from one token to the next."""
    metadata = described("bert", {"attention.causal": False, "pooling_type": 1})
    metadata["tokenizer.ggml.token_type_count"] = 2
    with pytest.raises(EngineError, match=r"bert\.gguf.* it has no memory"):
        LlamaEngine.open(write(tmp_path / "bert.gguf", metadata))


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that cannot be read, even by root")
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "unreadable.gguf"
    path.symlink_to("/proc/self/mem")
    with pytest.raises(ModelError, match=r"unreadable\.gguf cannot be read"):
        Model(path)


def test_a_model_tells_its_metadata() -> None:
    model = Model(model_path("gemma3"))
    assert model.architecture == model.metadata["general.architecture"] == "gemma3"
    assert model.metadata["gemma3.context_length"] == str(model.trained_context) == "4096"
    assert model.window == int(model.metadata["gemma3.attention.sliding_window"])
    assert 0 < model.num_parameters < model.size_bytes < model.path.stat().st_size
    assert "gemma3" in model.description
    assert (model.is_recurrent, model.is_hybrid) == (False, False)
    model.close()
    model.close()  # again does no harm


def test_a_model_has_the_chat_template_it_was_written_with() -> None:
    model = Model(model_path("llama"))
    assert model.chat_template() == CHAT_TEMPLATE
    model.close()


def test_a_model_without_a_name_is_called_after_its_file(tmp_path: Path) -> None:
    nameless = Model(write(tmp_path / "nameless-7b.gguf", described("llama")))
    named = Model(write(tmp_path / "file.gguf", described("llama") | {"general.name": "Grüße 🙂"}))
    assert (nameless.name, named.name) == ("nameless-7b", "Grüße 🙂")
    assert nameless.chat_template() is None
    nameless.close()
    named.close()


def test_a_file_may_have_any_name_the_system_allows(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9 \xf0\x9f\x99\x82.gguf")
    path.symlink_to(model_path("llama"))
    Model(path).close()


def test_progress_grows_to_one() -> None:
    reported: list[float] = []
    Model(model_path("llama"), progress=reported.append).close()
    assert reported == sorted(reported)
    assert len(reported) > 1
    assert reported[-1] == 1.0


def test_a_progress_bar_that_fails_does_not_lose_the_model() -> None:
    calls: list[float] = []

    def broken(fraction: float) -> None:
        calls.append(fraction)
        raise RuntimeError("the bar broke")

    model = Model(model_path("llama"), progress=broken)
    assert model.vocabulary.size == len(small_vocabulary().tokens)
    assert calls[-1] == 1.0
    model.close()


def test_a_vocabulary_with_a_token_twice_is_refused(tmp_path: Path) -> None:
    """llama.cpp would abort the process."""
    content = model_path("llama").read_bytes()
    first = b"<|im_start|>"
    damaged = tmp_path / "damaged.gguf"
    end = content.index(len(first).to_bytes(8, "little") + first) + 8 + len(first)  # as an item of the list
    following = end + 8 + int.from_bytes(content[end : end + 8], "little")
    damaged.write_bytes(content[:end] + len(first).to_bytes(8, "little") + first + content[following:])
    with pytest.raises(ModelError, match="twice"):
        Model(damaged)


def test_a_vocabulary_alone_has_no_weights() -> None:
    model = Model(model_path("llama"), ModelSettings(vocab_only=True))
    try:
        assert model.vocabulary.text(model.vocabulary.tokenize("hello")) == "hello"
        with pytest.raises(EngineError):
            LlamaEngine(model)
    finally:
        model.close()


def test_a_file_that_is_taken_away_between_two_looks_is_refused_with_a_reason(tmp_path: Path) -> None:
    path, num_opens = tmp_path / "own.gguf", 0

    def take_away(event: str, args: tuple[object, ...]) -> None:
        nonlocal num_opens
        if event == "open" and str(args[0]) == str(path):
            num_opens -= 1
            if num_opens == 0:
                path.unlink()

    sys.addaudithook(take_away)  # called before a file is opened
    for at in range(1, 4):
        shutil.copy(model_path("llama"), path)
        num_opens = at
        with pytest.raises(ModelError, match="there is no model file at"):
            Model(path)
        assert num_opens == 0


def test_weights_that_are_written_over_in_place_are_not_computed_with(tmp_path: Path) -> None:
    path = Path(shutil.copy(model_path("qwen35"), tmp_path / "own.gguf"))
    settings, tokens = ContextSettings(num_cells=256, num_sequences=1, threads=1), small_vocabulary().words[:8]
    with LlamaEngine.open(path, settings) as engine:
        assert engine.model.fingerprint
        work = Work(0, np.array(tokens, np.int32))
        engine.decode([work])
        path.touch()
        engine.decode([work])
        Path(shutil.copy(model_path("llama"), tmp_path / "part")).replace(path)
        engine.decode([work])
        assert not engine.model.is_spoiled, "what was loaded is still there"
        assert engine.memory.length(0) == 3 * len(tokens)
    path = Path(shutil.copy(model_path("qwen35"), tmp_path / "other.gguf"))
    with LlamaEngine.open(path, settings) as engine:
        assert engine.model.fingerprint
        engine.decode([work])
        write_other_weights(path)
        for _ in range(2):
            with pytest.raises(ReplacedError, match="was written over while it was in use"):
                engine.decode([work])
            engine.memory.drop(0)
        assert engine.memory.length(0) == 0
    with LlamaEngine.open(path, settings, model_settings=ModelSettings(mmap=False)) as engine:
        assert engine.model.fingerprint
        write_other_weights(path)
        engine.decode([work])


def test_weights_that_are_written_over_are_found_when_another_file_has_their_place(tmp_path: Path) -> None:
    path = Path(shutil.copy(model_path("qwen35"), tmp_path / "own.gguf"))
    with LlamaEngine.open(path, ContextSettings(num_cells=256, num_sequences=1, threads=1)) as engine:
        write_other_weights(path)
        Path(shutil.copy(model_path("qwen35"), tmp_path / "part")).replace(path)
        with pytest.raises(ReplacedError, match="was written over while it was in use"):
            engine.decode([Work(0, np.array(small_vocabulary().words[:8], np.int32))])


def write_other_weights(path: Path) -> None:
    """Into the same file, without a moment at which it is shorter."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size - 4096)
        last = file.read()
        file.seek(size - 4096)
        file.write(last[::-1])
