from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernels.hip import extension
from kernels.hip.extension import build_extension, render_program
from kernels.hip.kernel_source import flatten_includes
from kernels.hip.sources import HipKernel
from pytest_attnperf.errors import CodeObjectError

SOURCE = (
    '#include "gpu.h"\nKERNEL(64) scale(float* x, int count) {\n    if (thread_index() < count) x[0] = FACTOR;\n}\n'
)


@pytest.fixture
def kernel(tmp_path: Path) -> HipKernel:
    """A kernel with a macro and dynamic LDS."""
    (tmp_path / "k.hip").write_text(SOURCE)
    return HipKernel(str(tmp_path / "k.hip"), "scale", 64, {"FACTOR": "2"}, lds_bytes=1024)


class Inline:
    """torch's `load_inline`, which records what it is given."""

    def __init__(self, raised: Exception | None = None) -> None:
        self.given: dict[str, Any] = {}
        self.launched: list[Any] = []
        self.raised = raised

    def __call__(self, name: str, no_implicit_headers: bool = False, **given: Any) -> Any:
        """Record it."""
        self.given = {"name": name, **given}
        if self.raised is not None:
            raise self.raised
        return SimpleNamespace(launch=lambda *values: self.launched.append(values))


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> Inline:
    """In place of torch's."""
    import torch.utils.cpp_extension

    fake = Inline()
    monkeypatch.setattr(torch.utils.cpp_extension, "load_inline", fake)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=99))
    return fake


def test_a_launch_passes_pointers_and_integers(kernel: HipKernel, inline: Inline) -> None:
    """The launcher gets addresses and numbers, which of them are addresses, the grid, and torch's current stream."""
    x = torch.zeros(4)
    built = build_extension(kernel, flatten_includes(kernel.path), "sm_90")
    built.start((3, 2, 1), (x, 7))
    assert inline.launched == [([x.data_ptr(), 7], [True, False], [3, 2, 1], 99)]
    assert (built.data, built.handle) == (b"", 0)
    assert inline.given["extra_cuda_cflags"] == ["-std=c++17", "-O3", "-DFACTOR=2"]


def test_what_one_architecture_has_is_built_for_it_alone(kernel: HipKernel, inline: Inline) -> None:
    """torch adds no architecture of its own where the options name one."""
    build_extension(replace(kernel, specific=True), flatten_includes(kernel.path), "sm_90")
    assert inline.given["extra_cuda_cflags"][-1] == "-gencode=arch=compute_90a,code=sm_90a"


def test_the_name_tells_everything_apart(kernel: HipKernel, inline: Inline) -> None:
    """torch keeps one extension of a name: source, macros, launch size and architecture are all in it."""
    text = flatten_includes(kernel.path)
    names = []
    for one, source, arch in (
        (kernel, text, "sm_90"),
        (kernel, text, "sm_100"),
        (kernel, f"{text}//", "sm_90"),
        (HipKernel(kernel.file, "scale", 64, {"FACTOR": "3"}, lds_bytes=1024), text, "sm_90"),
        (HipKernel(kernel.file, "scale", 64, {"FACTOR": "2"}, lds_bytes=2048), text, "sm_90"),
    ):
        build_extension(one, source, arch)
        names.append(inline.given["name"])
    assert len(set(names)) == 5


def test_what_does_not_build_is_an_error(kernel: HipKernel, inline: Inline) -> None:
    """The compiler's first error is shown, with the macros."""
    inline.raised = RuntimeError("Error building extension\n[1/3] nvcc ...\nk.hip(2): error: no\nninja: stopped")
    with pytest.raises(
        CodeObjectError, match=r"scale in k\.hip does not compile for sm_90:\nk\.hip\(2\): error: no"
    ) as raised:
        build_extension(kernel, flatten_includes(kernel.path), "sm_90")
    assert "-DFACTOR=2" in str(raised.value)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
def test_nvcc_takes_the_program(kernel: HipKernel, tmp_path: Path) -> None:
    """What is generated is compiled by nvcc, for the host and the GPU."""
    (tmp_path / "program.cu").write_text(render_program(kernel, flatten_includes(kernel.path)))
    command = ["nvcc", "-c", "-std=c++17", "-arch=sm_80", "-DFACTOR=2", "program.cu", "-o", "program.o"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_host_gets_a_stand_in_on_amd(kernel: HipKernel) -> None:
    """hipcc reads the file for the host, too, which must not see the builtins of an AMD GPU."""
    text = render_program(kernel, flatten_includes(kernel.path))
    host, _, device = text.partition("#else\n#line 1")
    assert 'extern "C" __global__ void scale() {}' in host
    assert "__builtin_amdgcn" not in host
    assert "__builtin_amdgcn" in device


def test_older_torch_includes_its_headers_itself(kernel: HipKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch that always adds its headers is not told to leave them out, and gets them once."""
    given: dict[str, Any] = {}
    import torch.utils.cpp_extension

    def load_inline(
        name: str, cpp_sources: list[str], cuda_sources: list[str], functions: list[str], **rest: Any
    ) -> Any:
        given.update(rest, cpp=cpp_sources)
        return SimpleNamespace(launch=None)

    monkeypatch.setattr(torch.utils.cpp_extension, "load_inline", load_inline)
    extension.build_extension(kernel, "", "gfx942")
    assert "no_implicit_headers" not in given
    assert "torch/extension.h" not in given["cpp"][0]
