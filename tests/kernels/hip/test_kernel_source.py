from __future__ import annotations

from pathlib import Path

import pytest

from kernels.hip.kernel_source import Parameter, flatten_includes, format_path, parse_parameters
from kernels.hip.sources import FOLDER
from pytest_attnperf.errors import CodeObjectError

GPU_H = FOLDER / "gpu.h"


def test_includes_are_put_in_their_place_once(tmp_path: Path) -> None:
    """Every included file stands where it was named first, its lines numbered as its own, and the includer's go on."""
    (tmp_path / "first.h").write_text("#pragma once\nint first;\n")
    (tmp_path / "second.h").write_text('#include "first.h"\nint second;\n')
    (tmp_path / "k.hip").write_text('int top;\n#include "first.h"\n#  include "second.h"\nint bottom;\n')
    assert flatten_includes(tmp_path / "k.hip").splitlines() == [
        '#line 1 "k.hip"', "int top;",
        '#line 1 "first.h"', "", "int first;", '#line 3 "k.hip"',
        '#line 1 "second.h"', "", "int second;", '#line 4 "k.hip"',
        "int bottom;",
    ]  # fmt: skip


def test_files_of_the_project_are_named_relative_to_it() -> None:
    """Messages and line tables do not hold the folder of the checkout."""
    text = flatten_includes(GPU_H)
    assert format_path(GPU_H) == "kernels/hip/gpu.h"
    assert '#line 1 "kernels/hip/gpu_nvidia.h"' in text
    assert str(FOLDER) not in text


def test_the_emulators_header_is_left_out() -> None:
    """What only the emulator includes is no part of what a GPU's compiler sees."""
    assert "gpu_emulated.h" not in flatten_includes(GPU_H)


def test_a_kernel_elsewhere_finds_the_headers(tmp_path: Path) -> None:
    """A file in another folder includes gpu.h of this one."""
    (tmp_path / "k.hip").write_text('#include "gpu.h"\n')
    assert '#line 1 "kernels/hip/gpu_amd.h"' in flatten_includes(tmp_path / "k.hip")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """A missing file, and a missing included one, are named."""
    (tmp_path / "k.hip").write_text('#include "absent.h"\n')
    with pytest.raises(CodeObjectError, match=r"there is no file .*none\.hip; correct"):
        flatten_includes(tmp_path / "none.hip")
    with pytest.raises(CodeObjectError, match=r"there is no file .*absent\.h; correct"):
        flatten_includes(tmp_path / "k.hip")


KERNEL = """
KERNEL(WAVES * (64))
add(const element* __restrict__ left /* not, this */, float *right,  // nor this
    const int* table, int count) { }
KERNEL(64) none() {}
KERNEL(64) chosen(int a
#if X
, int b
#endif
) {}
"""


def test_parameters_are_read_from_the_kernel() -> None:
    """Names, types and what takes a tensor, whatever stands between them."""
    assert parse_parameters(KERNEL, "add") == (
        Parameter("left", "element", pointer=True),
        Parameter("right", "float", pointer=True),
        Parameter("table", "int", pointer=True),
        Parameter("count", "int", pointer=False),
    )
    assert parse_parameters(KERNEL, "none") == ()


@pytest.mark.parametrize("function", ["absent", "chosen"])
def test_parameters_that_cannot_be_told(function: str) -> None:
    """A kernel that is not there, or whose parameters depend on macros, has no known ones."""
    assert parse_parameters(KERNEL, function) is None
