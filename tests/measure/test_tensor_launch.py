from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import pytest_attnperf as attnperf
from pytest_attnperf.codeobject.building import build_object
from pytest_attnperf.codeobject.built import object_bytes
from pytest_attnperf.codeobject.hip_toolchain import hip_reasons
from pytest_attnperf.errors import CodeObjectError, UsageError
from pytest_attnperf.isa.faults import ExecutionFault
from pytest_attnperf.kernel_builds import HipSource, KernelBuild

REASONS = hip_reasons("gfx942")
pytestmark = pytest.mark.skipif(bool(REASONS), reason="; ".join(REASONS))

SOURCE = """
extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(1, 64)))
void scale(float* out, const float* values, float factor, int count) {
    const int x = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
    if (x < count) out[x] = values[x] * factor;
}
"""


@pytest.fixture(scope="module")
def scale(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`scale` compiled for gfx942: the path of the object."""
    folder = tmp_path_factory.mktemp("scale")
    (folder / "scale.hip").write_text(SOURCE)
    build = KernelBuild("hip.scale", "one", "gfx942", HipSource(folder / "scale.hip", "scale", threads=64))
    path = folder / "scale.co"
    path.write_bytes(object_bytes(build_object(build, folder / "cache")))
    return path


def test_tensors_are_changed_as_by_a_launch(scale: Path) -> None:
    """A path or bytes, sizes in one direction, tensors in place, and counters if asked for."""
    values, out = torch.arange(100.0), torch.zeros(100)
    done = attnperf.execute(scale, (2,), (64,), (out, values, 2.5, 100), record=True)
    assert torch.equal(out, values * 2.5)
    assert done.record is not None
    assert sum(tally.executed for tally in done.record.tallies) == done.instructions
    array = np.zeros(100, np.float32)
    attnperf.execute(scale.read_bytes(), (2,), (64,), (array, values, -1.0, 100), kernel="scale")
    assert (array == -values.numpy()).all()


def test_views_share_their_storage(scale: Path) -> None:
    """A kernel may read one half of a tensor and write the other; what lies outside of the storage is a fault."""
    both = torch.arange(128.0)
    attnperf.execute(scale, (1,), (64,), (both[64:], both[:64], 3.0, 64))
    assert torch.equal(both, torch.cat((torch.arange(64.0), torch.arange(64.0) * 3)))
    with pytest.raises(ExecutionFault, match="beyond the end of argument 1"):
        attnperf.execute(scale, (2,), (64,), (both[64:], torch.ones(128), 3.0, 128))


def test_workgroups_that_race_are_found(scale: Path) -> None:
    """A workgroup that reads what another one wrote before is a fault: on a GPU it may run first."""
    both = torch.arange(192.0)
    with pytest.raises(
        ExecutionFault, match=r"reads byte 256 of argument 1.*which workgroup \(0, 0, 0\), wave 0 wrote"
    ):
        attnperf.execute(scale, (2,), (64,), (both[64:], both[:128], 3.0, 128))


def test_an_output_holds_nothing_before(scale: Path) -> None:
    """What is not written of an output is NaN afterwards, and reading it is a fault."""
    out = torch.zeros(64)
    attnperf.execute(scale, (1,), (64,), (out, torch.ones(64), 2.0, 60), outputs=(0,))
    assert out[:60].eq(2).all()
    assert out[60:].isnan().all()
    with pytest.raises(ExecutionFault, match="which nothing wrote"):
        attnperf.execute(scale, (1,), (64,), (out, torch.ones(64), 2.0, 64), outputs=(0, 1))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((torch.ones(4, device="meta"), torch.ones(4), 1.0, 4), {}, "argument 1 is on meta"),
        ((np.ones((4, 4), np.float32).T, torch.ones(4), 1.0, 4), {}, r"argument 1, an array of \(4, 4\)"),
        (("text", torch.ones(4), 1.0, 4), {}, "argument 1 is 'text'"),
        ((torch.ones(8)[4:], torch.ones(4), 1.0, 4), {"outputs": (0,)}, "shares memory that is not all an output"),
    ],
)
def test_arguments_that_cannot_be_passed(scale: Path, arguments: tuple, options: dict, message: str) -> None:
    """The error names the argument and what is taken instead."""
    with pytest.raises(UsageError, match=message):
        attnperf.execute(scale, (1,), (64,), arguments, **options)


def test_sizes_and_files(scale: Path, tmp_path: Path) -> None:
    """Four directions and a missing file are errors of the caller."""
    with pytest.raises(UsageError, match=r"grid is \(1, 1, 1, 1\)"):
        attnperf.execute(scale, (1, 1, 1, 1), (64,), ())
    with pytest.raises(CodeObjectError, match=r"gone\.co cannot be read"):
        attnperf.execute(tmp_path / "gone.co", (1,), (64,), ())
