"""Model references: the path of a GGUF file, or a model of the Hugging Face hub, downloaded once.

    qwen3.5-9b[:Q8_0]        a name of the catalogue
    org/repo                 the first quantisation of `PREFERRED` that the repository has
    org/repo:Q8_0            this quantisation
    org/repo:some-file.gguf  this file

This module chooses the files; `files.py` lists and downloads them.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from leftoff.errors import meant
from leftoff.hub.catalogue import catalogue, reference_of
from leftoff.hub.files import Begin, HubError, download_file, list_files, silent
from leftoff.models import EMBEDDED

# Best first: the usual size, then larger ones, then smaller ones, then unquantised.
PREFERRED = (
    *("Q4_K_M", "Q4_K_XL", "Q4_K_S", "Q4_K_L", "Q4_K", "IQ4_NL", "IQ4_XS", "Q4_0", "Q4_1", "MXFP4", "MXFP4_MOE"),
    *("Q5_K_M", "Q5_K_XL", "Q5_K_S", "Q5_0", "Q5_1", "Q6_K", "Q6_K_XL", "Q8_0", "Q8_K_XL"),
    *("Q3_K_L", "Q3_K_XL", "Q3_K_M", "Q3_K_S", "IQ3_M", "IQ3_S", "IQ3_XS", "IQ3_XXS"),
    *("Q2_K_XL", "Q2_K_L", "Q2_K", "IQ2_M", "IQ2_S", "IQ2_XS", "IQ2_XXS", "BF16", "F16", "F32"),
)

_REFERENCE = re.compile(r"(?:hf\.co/|https://huggingface\.co/)?([\w.-]+/[\w.-]+?)(?::([\w./-]+))?/?")
_PART = re.compile(r"-(\d{5})-of-(\d{5})$")
_QUANT = re.compile(r"(?:^|[-._])((?:UD-)?(?:I?Q\d[A-Z0-9_]*|TQ\d_\d|MXFP4[A-Z_]*|BF16|F16|F32))$", re.IGNORECASE)
_PROJECTOR = "mmproj"
_NOT_A_MODEL = (_PROJECTOR, "imatrix", "mtp-")
_QUANT_F16 = re.compile(r"[-._]f16\.gguf$", re.IGNORECASE)
_MAX_LISTED = 40


@dataclass(frozen=True)
class Reference:
    """A model of the hub. `choice` is a quantisation, a file, or empty."""

    repo: str
    choice: str = ""

    def __str__(self) -> str:
        return f"{self.repo}:{self.choice}" if self.choice else self.repo


@dataclass(frozen=True)
class Weights:
    """One model in a repository: a file, or the parts of a split one, in order."""

    name: str
    quant: str
    files: tuple[str, ...]
    num_parts: int

    @property
    def is_whole(self) -> bool:
        return len(self.files) == self.num_parts


def default_model() -> Path:
    """The model that comes with the package, used when none is given."""
    return EMBEDDED


def shown_name(names: Sequence[str], model: str | Path) -> str:
    """The name of a model in lists: the first that is no pattern, else that of its file, or as the hub has it."""
    exact = next((name for name in names if not is_pattern(name)), None)
    if exact or (isinstance(model, str) and parse_reference(model) and not Path(model).is_file()):
        return exact or str(model)
    return _PART.sub("", Path(model or default_model()).stem)


def is_pattern(name: str) -> bool:
    """Whether a name stands for all that it matches, as in a shell."""
    return not {*name}.isdisjoint("*?[")


def models_in(folder: Path) -> dict[str, Path]:
    """The whole models in a folder and the folders in it, by their names; of a split one, its first file."""
    paths = [path.relative_to(folder) for path in folder.rglob("*.[gG][gG][uU][fF]") if path.is_file()]
    files = [path.as_posix() for path in paths if _is_text(path)]  # else nobody could ask for it
    return {weights.name: folder / weights.files[0] for weights in group(files) if weights.is_whole}


def _is_text(path: Path) -> bool:
    with suppress(UnicodeEncodeError):
        return bool(str(path).encode())
    return False


def projector_beside(model: Path) -> Path | None:
    """The projector of pictures in the folder of a model, or of the repository that the model is in a folder of."""
    folders = [model.parent, *([model.parent.parent] if "snapshots" in model.parts[:-2] else [])]
    for folder in folders:
        if (found := _preferred_projector([path.name for path in folder.glob("*.gguf")])) is not None:
            return folder / found
    return None


def _preferred_projector(files: Sequence[str]) -> str | None:
    found = sorted(file for file in files if Path(file).name.lower().startswith(_PROJECTOR))
    return next((file for file in found if _QUANT_F16.search(file)), found[0] if found else None)


def find_model(text: str, begin: Begin = silent) -> Path:
    """The file of a reference, downloaded if needed. Whether a path exists is checked when it is loaded.

    `begin` is told of each download, and shows how far it is.
    """
    reference = parse_reference(text)
    if reference is None or Path(text).is_file():
        _refuse_unknown_name(text)
        return Path(text).expanduser()
    return _fetch(reference, begin)


def parse_reference(text: str) -> Reference | None:
    """The model of the hub that a text names; None if the text is a path."""
    match = _REFERENCE.fullmatch(reference_of(text) or text)
    if match is None or match[1].startswith(".") or match[1].lower().endswith(".gguf"):
        return None
    return Reference(match[1], match[2] or "")


def _refuse_unknown_name(text: str) -> None:
    """A word that is no path is meant to be a name of the catalogue."""
    if text and not {*text} & {*"/\\~"} and not text.lower().endswith(".gguf") and not Path(text).exists():
        hint = meant(text.partition(":")[0], catalogue().models) or ": `leftoff models` lists the names"
        raise HubError(f"{text} is neither a file here nor the name of a model{hint}")


def _fetch(reference: Reference, begin: Begin) -> Path:
    """Downloads all parts of a model, and its projector; returns the first part, from which the others are found."""
    files = [file for file in list_files(reference.repo) if file.lower().endswith(".gguf")]
    weights = choose(reference, files)
    paths = [download_file(reference.repo, file, begin) for file in weights.files]
    if (projector := _preferred_projector(files)) is not None:
        download_file(reference.repo, projector, begin)
    return paths[0]


def choose(reference: Reference, files: Sequence[str]) -> Weights:
    """The file of a repository that a reference asks for, or the preferred one."""
    found = [weights for weights in group(files) if weights.is_whole]
    if not found:
        raise HubError(
            f"{reference.repo} has no whole GGUF file: look for one of the same model whose name ends with -GGUF"
        )
    wanted = _named(reference.choice, found) if reference.choice else _preferred(found)
    if len(wanted) == 1:
        return wanted[0]
    problem = f"{len(wanted)} models fit {reference}" if wanted else f"{reference.repo} has no {reference.choice}"
    raise HubError(f"{problem}: say {reference.repo}:NAME with one of {_listed(wanted or found)}")


def group(files: Sequence[str]) -> list[Weights]:
    """The models among the files of a repository, with the parts of each together."""
    parts: dict[str, list[str]] = {}
    for file in sorted(files):
        path = Path(file)
        if path.suffix.lower() == ".gguf" and not path.name.lower().startswith(_NOT_A_MODEL):
            parts.setdefault(_PART.sub("", file[: -len(path.suffix)]), []).append(file)
    return [_weights(name, files) for name, files in parts.items()]


def _weights(name: str, files: list[str]) -> Weights:
    match = _PART.search(Path(files[0]).stem)
    quant = _QUANT.search(Path(name).name) or _QUANT.search(Path(name).parent.name)
    return Weights(name, quant[1].upper() if quant else "", tuple(files), int(match[2]) if match else 1)


def _named(choice: str, found: list[Weights]) -> list[Weights]:
    """The models with this file name, else with this quantisation, else with it after the prefix `UD-`."""
    wanted = choice.lower().removesuffix(".gguf")
    by_name = [w for w in found if wanted in _names(w)]
    by_quant = [w for w in found if w.quant.lower() == wanted]
    return by_name or by_quant or [w for w in found if _plain(w.quant).lower() == wanted]


def _names(weights: Weights) -> set[str]:
    """The names that select a model: with and without its folder, of the whole and of its first part."""
    names = (weights.name, weights.files[0].lower().removesuffix(".gguf"))
    return {form.lower() for name in names for form in (name, Path(name).name)}


def _preferred(found: list[Weights]) -> list[Weights]:
    for quant in PREFERRED:
        matching = [w for w in found if w.quant == quant] or [w for w in found if _plain(w.quant) == quant]
        if matching:
            return matching
    return found


def _plain(quant: str) -> str:
    return quant.removeprefix("UD-")


def _listed(found: list[Weights]) -> str:
    quants = [weights.quant for weights in found]
    unique = all(quants) and len({*quants}) == len(quants)
    names = sorted(quants if unique else [Path(weights.name).name for weights in found])
    more = [f"and {len(names) - _MAX_LISTED} more"] if len(names) > _MAX_LISTED else []
    return ", ".join([*names[:_MAX_LISTED], *more])
