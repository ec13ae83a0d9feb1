"""Model references, on listings as they are found on the hub. Nothing here leaves this machine."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from leftoff.hub.files import HubError
from leftoff.hub.reference import Reference, choose, find_model, group, parse_reference
from tests.hubs import LocalHub

FILES = (
    *("README.md", "config.json", "mmproj-F16.gguf", "model-Q2_K.gguf", "model-Q4_K_M.gguf"),
    *("model-Q4_K_M-00001-of-00002.txt", "model-UD-Q4_K_XL.gguf", "model-q8_0.gguf"),
    *("BF16/model-BF16-00002-of-00003.gguf", "BF16/model-BF16-00001-of-00003.gguf"),
    *("BF16/model-BF16-00003-of-00003.gguf", "imatrix.gguf"),
)


def chosen(text: str, files: Sequence[str] = FILES) -> tuple[str, ...]:
    reference = parse_reference(text)
    assert reference is not None
    return choose(reference, files).files


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("org/repo", Reference("org/repo")),
        ("org/repo:Q8_0", Reference("org/repo", "Q8_0")),
        ("Qwen/Qwen3-0.6B-GGUF:q8_0", Reference("Qwen/Qwen3-0.6B-GGUF", "q8_0")),
        ("org/repo:folder/file-00001-of-00002.gguf", Reference("org/repo", "folder/file-00001-of-00002.gguf")),
        ("hf.co/org/repo:Q8_0", Reference("org/repo", "Q8_0")),
        ("https://huggingface.co/org/repo/", Reference("org/repo")),
        ("model.gguf", None),
        ("models/model.gguf", None),
        ("./models/model", None),
        ("../model", None),
        ("/models/model", None),
        ("a/b/c", None),
        ("model", None),
        ("", None),
    ],
)
def test_what_is_a_reference_and_what_a_path(text: str, reference: Reference | None) -> None:
    assert parse_reference(text) == reference


def test_the_usual_quantisation_is_the_default() -> None:
    assert chosen("org/repo") == ("model-Q4_K_M.gguf",)


@pytest.mark.parametrize("choice", ["Q8_0", "q8_0", "model-q8_0.gguf", "model-Q8_0"])
def test_a_quantisation_or_a_file_in_any_case(choice: str) -> None:
    assert chosen(f"org/repo:{choice}") == ("model-q8_0.gguf",)


@pytest.mark.parametrize("choice", ["BF16", "BF16/model-BF16-00001-of-00003.gguf", "model-BF16"])
def test_a_split_model_comes_with_all_its_parts_in_order(choice: str) -> None:
    assert chosen(f"org/repo:{choice}") == tuple(f"BF16/model-BF16-0000{i}-of-00003.gguf" for i in (1, 2, 3))


@pytest.mark.parametrize("choice", ["UD-Q4_K_XL", "Q4_K_XL", "ud-q4_k_xl"])
def test_a_makers_own_recipe_with_and_without_its_name(choice: str) -> None:
    assert chosen(f"org/repo:{choice}") == ("model-UD-Q4_K_XL.gguf",)


@pytest.mark.parametrize(
    ("files", "best"),
    [
        (("m-Q2_K.gguf", "m-Q8_0.gguf", "m-F16.gguf"), "m-Q8_0.gguf"),
        (("m-Q2_K.gguf", "m-UD-Q4_K_XL.gguf", "m-Q5_K_M.gguf"), "m-UD-Q4_K_XL.gguf"),
        (("m-F16.gguf", "m-IQ1_S.gguf"), "m-F16.gguf"),
        (("only.gguf", "mmproj-model.gguf"), "only.gguf"),
        (("m.Q4_0.gguf", "m.F32.gguf"), "m.Q4_0.gguf"),
        (("gpt-oss-20b-mxfp4.gguf",), "gpt-oss-20b-mxfp4.gguf"),
    ],
)
def test_without_the_usual_one_the_best_there_is(files: tuple[str, ...], best: str) -> None:
    assert chosen("org/repo", files) == (best,)


def test_the_folder_names_the_quantisation_where_the_file_does_not() -> None:
    assert chosen("org/repo:Q6_K", ("Q6_K/model.gguf", "Q8_0/model.gguf")) == ("Q6_K/model.gguf",)


def test_a_quantisation_that_is_not_there_lists_what_is() -> None:
    with pytest.raises(HubError, match=r"org/repo has no Q3_K_S: say org/repo:NAME with one of BF16, Q2_K, Q4_K_M"):
        chosen("org/repo:Q3_K_S")


def test_several_models_of_one_quantisation_are_listed_by_name() -> None:
    with pytest.raises(HubError, match="2 models fit org/repo:Q8_0: say org/repo:NAME with one of a-Q8_0, b-Q8_0"):
        chosen("org/repo:Q8_0", ("a-Q8_0.gguf", "b-Q8_0.gguf", "b-Q4_0.gguf"))


def test_a_repository_without_gguf_files_says_where_to_look() -> None:
    with pytest.raises(HubError, match=r"org/repo has no whole GGUF file: look for .* -GGUF"):
        chosen("org/repo", ("model.safetensors", "mmproj.gguf"))


def test_a_model_that_lacks_a_part_is_not_offered() -> None:
    files = ("m-Q4_K_M-00001-of-00002.gguf", "m-Q8_0.gguf")
    assert not group(files)[0].is_whole
    assert chosen("org/repo", files) == ("m-Q8_0.gguf",)


def test_every_part_is_downloaded_and_the_first_is_loaded(local_hub: LocalHub) -> None:
    local_hub.repos["org/repo"] = {file: file.encode() for file in FILES}
    path = find_model("org/repo:BF16")
    first, *_ = parts = chosen("org/repo:BF16")
    assert path.as_posix().endswith(first)
    assert path.read_bytes() == first.encode()
    contents = [path for method, path, _ in local_hub.requests if method == "GET" and path.startswith("/cdn/")]
    assert contents == [f"/cdn/org/repo/{file}" for file in (*parts, "mmproj-F16.gguf")]


def test_a_file_wins_over_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org").mkdir()
    (tmp_path / "org/repo").touch()
    assert find_model("org/repo") == Path("org/repo")


def test_a_path_need_not_exist_for_loading_says_so() -> None:
    assert find_model("~/models/missing.gguf") == Path.home() / "models/missing.gguf"
