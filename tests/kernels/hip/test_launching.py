from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from kernels.hip.kernel_source import Parameter
from kernels.hip.launching import GpuKernel, LoadedObject, check_lds, check_threads
from kernels.hip.sources import HipKernel
from pytest_attnperf.errors import UsageError
from pytest_attnperf.measure.ran_code import RanCode, record_code
from pytest_attnperf.records import Launch

HERE = torch.device("cpu")
HALF = torch.zeros(4, 8, dtype=torch.float16)
KERNEL = HipKernel("k.hip", "scale", 64, {"ELEMENT_BF16": "0"}, lds_bytes=128)
PARAMETERS = (Parameter("x", "element", pointer=True), Parameter("count", "int", pointer=False))


class Started:
    """Records launches instead of making them."""

    def __init__(self) -> None:
        self.launches: list[tuple[Any, tuple[Any, ...]]] = []

    def __call__(self, grid: tuple[int, int, int], arguments: Sequence[Any]) -> None:
        """Record it."""
        self.launches.append((grid, tuple(arguments)))


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """Launches of kernels whose device is the current one."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    return Started()


def kernel_of(started: Started, parameters: tuple[Parameter, ...] | None = PARAMETERS) -> GpuKernel:
    """A kernel on the CPU, which is as good as any device to the checks."""
    return GpuKernel(KERNEL, HERE, LoadedObject(started, b"\x7fELF code", 512, 77), parameters)


def test_good_arguments_are_launched(started: Started) -> None:
    """What can be passed reaches the launch as it is; without known parameters, too."""
    kernel_of(started)((1, 2, 3), HALF, -(2**31))
    kernel_of(started, None)((2**31 - 1, 65535, 65535), HALF, 2**31 - 1)
    assert [(grid, arguments[1]) for grid, arguments in started.launches] == [
        ((1, 2, 3), -(2**31)),
        ((2**31 - 1, 65535, 65535), 2**31 - 1),
    ]
    assert started.launches[0][1][0] is HALF


@pytest.mark.parametrize(
    ("grid", "seen"),
    [
        ((0, 1, 1), r"\(0, 1, 1\) has 0 blocks in x, and 1 to 2147483647"),
        ((1, 65536, 1), "65536 blocks in y, and 1 to 65535"),
        ((1, 1, 70000), "70000 blocks in z, and 1 to 65535"),
        ((1, -1, 1), "-1 blocks in y"),
    ],
)
def test_a_grid_that_no_gpu_has(started: Started, grid: tuple[int, int, int], seen: str) -> None:
    """An empty or too long dimension is named, with what is possible, and nothing is launched."""
    with pytest.raises(UsageError, match=f"scale: the grid .*{seen}"):
        kernel_of(started)(grid, HALF, 1)
    assert not started.launches


BAD: list[tuple[tuple[Any, ...], str]] = [
    ((HALF,), r"scale takes 2 arguments \(x, count\), got 1"),
    ((HALF, 1, 2), "takes 2 arguments .* got 3"),
    ((HALF, 2**31), r"count \(argument 2\) is 2147483648, which no 32-bit integer holds"),
    ((HALF, 1.5), "count .* must be a tensor or a 32-bit integer, got 1.5 of type float"),
    ((HALF, True), "got True of type bool"),
    ((HALF, HALF), r"count .* must be a 32-bit integer, got a tensor of shape \(4, 8\)"),
    ((3, 1), r"x \(argument 1\) must be a tensor on cpu, got 3"),
    ((HALF.T, 1), r"x .* must be contiguous, got strides \(1, 8\) of shape \(8, 4\); call \.contiguous"),
    ((HALF.flatten()[1:], 1), "must begin at a multiple of 16 bytes, .* begins 2 bytes after one; call .clone"),
    ((torch.zeros(4, device="meta"), 1), "is on meta, and the kernel was loaded for cpu"),
    ((HALF.bfloat16(), 1), "must be torch.float16, for which the kernel was compiled, got torch.bfloat16"),
    ((HALF.float(), 1), "must be torch.float16, for which the kernel was compiled, got torch.float32"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_a_bad_argument_is_named(started: Started, arguments: tuple[Any, ...], message: str) -> None:
    """What the kernel cannot take is refused by name, value and what is allowed, and nothing is launched."""
    with pytest.raises(UsageError, match=message):
        kernel_of(started)((1, 1, 1), *arguments)
    assert not started.launches


@pytest.mark.parametrize(
    ("declared", "fits", "other"),
    [("float", torch.float32, torch.float16), ("int", torch.int32, torch.int64), ("stored", torch.float64, None)],
)
def test_a_pointer_takes_one_type(
    started: Started, declared: str, fits: torch.dtype, other: torch.dtype | None
) -> None:
    """A tensor of another type than the parameter's is refused, where the type is one that torch has, too."""
    kernel = kernel_of(started, (Parameter("sums", declared, pointer=True),))
    kernel((1, 1, 1), torch.zeros(4, dtype=fits))
    assert len(started.launches) == 1
    if other is not None:
        with pytest.raises(UsageError, match=f"sums .* must be {fits}, .* got {other}"):
            kernel((1, 1, 1), torch.zeros(4, dtype=other))


def test_without_known_parameters_places_are_named(started: Started) -> None:
    """Where a kernel's source does not show its parameters, a bad argument is named by its place."""
    with pytest.raises(UsageError, match="scale: argument 2 must be a tensor or a 32-bit integer, got None"):
        kernel_of(started, None)((1, 1, 1), HALF, None)  # type: ignore[arg-type]


def test_a_watched_launch_tells_its_object(started: Started) -> None:
    """A case that is watched knows the code of what was launched, by the driver's handle and by shared memory."""
    ran = RanCode()
    with record_code(ran):
        kernel_of(started)((1, 1, 1), HALF, 1)
    launch = Launch("scale", grid=(1, 1, 1), block=(64, 1, 1), shared_bytes=640)
    by_size, by_handle, another = ran.identify_launches([launch] * 3, [0, 77, 78])
    assert by_size.object_id == by_handle.object_id != ""
    assert another.object_id == ""
    assert list(ran.encode_objects([by_handle])) == [by_handle.object_id]


def test_a_kernel_of_another_device_is_launched_there(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch on a device that is not the current one makes it so for the launch only."""
    entered: list[Any] = []

    class Device:
        def __init__(self, device: Any) -> None:
            self.device = device

        def __enter__(self) -> None:
            entered.append(self.device)

        def __exit__(self, *raised: object) -> None:
            entered.append(len(started.launches))

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "device", Device)
    kernel_of(started)((1, 1, 1), HALF, 1)
    assert entered == [HERE, 1]


@pytest.mark.parametrize("threads", [0, 1025])
def test_workgroups_that_no_gpu_runs(threads: int) -> None:
    """A workgroup without threads, or with more than 1024, is refused."""
    with pytest.raises(UsageError, match=f"workgroups of {threads} threads; 1 to 1024"):
        check_threads(HipKernel("k.hip", "scale", threads))
    check_threads(HipKernel("k.hip", "scale", 1024))


def test_lds_beyond_the_device() -> None:
    """LDS of the launch and of the kernel together are held against the device's limit, which is said."""
    check_lds(KERNEL, 65536 - 128, 65536, "gfx942")
    with pytest.raises(UsageError, match=r"asks for 65537 bytes of LDS \(128 of them .* of gfx942 may have 0 to 65536"):
        check_lds(KERNEL, 65537 - 128, 65536, "gfx942")
    with pytest.raises(UsageError, match="asks for -1 bytes"):
        check_lds(HipKernel("k.hip", "scale", 64, lds_bytes=-1), 0, 65536, "gfx942")
