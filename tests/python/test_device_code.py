"""The names that CUDA's kernels use of the standard library: none that nvcc leaves out of CUDA code without a word.

With --expt-relaxed-constexpr nvcc takes any constexpr function of the host's standard library. Where that one calls a
builtin of the host's compiler, the call is dropped: on a GPU std::bit_width was 0, and std::upper_bound and
std::lower_bound, which go by std::advance, found the wrong elements. What is listed here is arithmetic alone, or is
CUDA's own.
"""

import re
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "src"

OF_NO_BUILTIN = set(
    "array begin bit_cast clamp conditional_t declval decay_t end integral_constant is_floating_point_v is_same_v max "
    "min numeric_limits remove_reference_t size".split()
)
CUDAS_OWN = set(
    "abs acos asin atan ceil cos erf exp expm1 fabs floor fma isnan log log1p nearbyint pow round sin sqrt tan tanh "
    "trunc".split()
)


def included(file: Path) -> set[Path]:
    """Finds the file and the project's headers that it includes, at any depth."""
    found, left = {file}, [file]
    while left:
        for name in re.findall(r'#include "(.*?)"', left.pop().read_text()):
            header = SOURCES / name
            if header.exists() and header not in found:
                found.add(header)
                left.append(header)
    return found


def called(file: Path) -> set[str]:
    """Finds what a file names of the standard library, but for types of the standard integers."""
    code = re.sub(r"//.*", "", file.read_text())
    return {name for name in re.findall(r"\bstd::(\w+)", code) if not name.endswith("_t") or name in OF_NO_BUILTIN}


DEVICE_SOURCES = sorted((SOURCES / "kernels" / "cuda").glob("*.cu"))


def test_there_is_device_code():
    assert len(DEVICE_SOURCES) >= 7


@pytest.mark.parametrize("source", DEVICE_SOURCES, ids=lambda file: file.stem)
def test_device_code_calls_what_nvcc_compiles(source):
    files = [file for file in included(source) if file == source or "ONNX_TORCH_BOTH" in file.read_text()]
    wrong = {file.name: sorted(called(file) - OF_NO_BUILTIN - CUDAS_OWN) for file in files}
    assert not {name: names for name, names in wrong.items() if names}
