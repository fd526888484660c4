"""The source of the Gluon kernel over rows is right, mistakes in it are found, and what it does not do is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kernels
from kernels.gluon import devices
from kernels.gluon.rows import launch
from kernels.gluon.rows.backend import BACKENDS
from kernels.gluon.rows.builds import KERNELS
from kernels.gluon.rows.space import LAYERNORM, RMSNORM, ROW_BYTES, SOFTMAX
from pytest_attnperf.backends import Registry
from pytest_attnperf.codeobject.analysis import Analyser
from pytest_attnperf.codeobject.compile_triton import compile_triton
from pytest_attnperf.correctness.references import References
from pytest_attnperf.environment.device import identify_device
from pytest_attnperf.errors import UsageError
from pytest_attnperf.kernel_builds import ALL_ARCHS, KernelRegistry
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.families import parse_workload
from tests.kernels.gluon.changed import load_changed
from tests.kernels.judging import find_problems, find_wrong_calls

torch = pytest.importorskip("torch")
Find = Callable[..., tuple[str, ...]]
SCRATCH_BYTES_MAX = 16
"""LayerNorm in Triton 3.9 has two registers too few; in 3.6 it has enough."""
BY_FAMILY: dict[str, Any] = dict(zip(("softmax", "rmsnorm", "layernorm"), BACKENDS, strict=True))
H200 = DeviceInfo(kind="cuda", arch="sm_90", product="h200")

SHARED = {"SHARE": 4, "SLICE": 256, "SLOTS": 4, "TURNS": 8, "STREAM": True, "maxnreg": 0, "num_warps": 1}
ALONE = SHARED | {"SHARE": 1, "SLICE": 1024, "SLOTS": 3, "TURNS": 1, "STREAM": False}
CASES = (
    "softmax-r23-c1024-bf16",
    "softmax-r5-c200-f32",
    "softmax-r1-c72-f16",
    "rmsnorm-r17-c200-bf16-residual",
    "rmsnorm-r5-c1024-f32",
    "rmsnorm-r4-c72-f16",
    "layernorm-r23-c200-bf16",
    "layernorm-r5-c136-f32-residual",
    "layernorm-r9-c1024-f16-residual",
    "layernorm-r2-c72-bf16",
)
"""Rows that fill all slices, a part of the last one, and all but one, which then has no column; numbers of rows that
clusters share evenly and not, and fewer than slots."""

NORM, SOFT = CASES[6], CASES[0]

MISTAKES = {
    "a row is not awaited": (NORM, "async_copy.wait_group(SLOTS - 2)", "async_copy.wait_group(SLOTS - 1)"),
    "the row before lies in another slot": (
        NORM,
        "free = (turn + SLOTS - 1) % SLOTS",
        "free = (turn + SLOTS - 2) % SLOTS",
    ),
    "copies are a row late": (NORM, "row + (SLOTS - 1) * step, rows", "row + SLOTS * step, rows"),
    "rows behind the last": (NORM, "    if row < rows:\n        start = row", "    if row >= 0:\n        start = row"),
    "no turn for the last row": (NORM, "// step + 1\n", "// step\n"),
    "nothing is told": (NORM, "tell(box, turn, first, second)\n\n", "first = first\n\n"),
    "a result behind the last row": (SOFT, "(turn > 0) & (before < rows)", "turn > 0"),
    "what is heard is of the turn before": (NORM, "= hear(box, turn, members)", "= hear(box, turn - 1, members)"),
    "CTAs hear their own numbers only": (NORM, "= hear(box, turn, members)", "= hear(box, turn, 0 * members)"),
    "the mean is that of full slices": (NORM, "count, 1.0)", "0.0 * count, 1.0 * x.shape[1])"),
    "means are joined without counts": (NORM, "gl.sum(firsts * counts, 0)", "gl.sum(firsts * 16, 0)"),
    "means do not differ": (NORM, "seconds + apart * apart * counts", "seconds"),
    "columns behind the slice": (NORM, "only_inside(x - first[:, None], inside, 0.0)", "x - first[:, None]"),
    "masks where all is inside": (NORM, "if not EVEN:", "if EVEN:"),
    "a slice behind the next one's start": (NORM, "inside = (offsets < width)[None, :] &", "inside ="),
    "no bias": (NORM, "x * weight.to(gl.float32) + bias.to(gl.float32)", "x * weight.to(gl.float32)"),
    "no weight": (CASES[3], "x = x * scale[:, None] * weight.to(gl.float32)", "x = x * scale[:, None]"),
    "the residual is left out": (CASES[3], ".to(gl.float32) + residual_slot", ".to(gl.float32) + 0 * residual_slot"),
    "the sum of the row before": (
        CASES[3],
        "gl.store(sum_ptr + row.to(gl.int64) * columns + at",
        "gl.store(sum_ptr + at",
    ),
    "lanes have different maxima": (SOFT, "gl.exp2(own - shift[:, None])", "gl.exp2(own - own)"),
    "CTAs have different maxima": (SOFT, "seconds * gl.exp2(firsts - m)", "seconds * gl.exp2(firsts - firsts)"),
    "lanes add up what has another maximum": (SOFT, "sums * gl.exp2(apart)", "sums * gl.exp2(0.0 * apart)"),
    "a lane without columns": (CASES[2], 'gl.where(own == float("-inf"), 0.0, own)', "own"),
    "a CTA without columns": (CASES[2], 'gl.where(first == float("-inf"), 0.0, first)', "first"),
    "powers of 2": (SOFT, "gl.fma(x, LOG2_E, ", "gl.fma(x, 1.0, "),
    "softmax keeps the next row": (SOFT, "return exponentials, maxima", "return x.to(gl.float32), maxima"),
    "the scale of the next row": (
        SOFT,
        "result, own, shift, scale, weight",
        "result, own, shift, 1.0 / second, weight",
    ),
}


@pytest.fixture
def find_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, poisoned: None) -> Find:
    """`find_wrong(workload id, config, right="", wrong="")`: what is wrong with the outputs of the kernel whose source
    has `wrong` in the place of `right`, or what the stand-in refuses to do."""
    pytest.importorskip("triton", minversion="3.6")
    from tests.kernels.gluon.stand_in import StandInError
    from tests.kernels.gluon.stand_in_cluster import ExecutedInCluster

    def find(text: str, config: dict[str, Any], right: str = "", wrong: str = "") -> tuple[str, ...]:
        module = load_changed(Path(launch.__file__).with_name("sm_90.py"), right, wrong, tmp_path)
        executed = ExecutedInCluster(module.rows_sm_90_kernel)
        monkeypatch.setattr("kernels.gluon.rows.sm_90.rows_sm_90_kernel", executed)
        workload: Any = parse_workload(text)
        inputs = workload.make_inputs(1, "cpu", planted=True)
        expected = References().compute_expected(workload, inputs, seed=1, planted=True)
        try:
            result = BY_FAMILY[workload.family].bind_launch(workload, config)(*inputs)
        except StandInError as refused:
            return (str(refused),)
        out, summed = result if isinstance(result, tuple) else (result, None)
        return find_problems(expected, {"out": out} if summed is None else {"out": out, "residual_out": summed})

    return find


@pytest.mark.parametrize("config", [SHARED, ALONE], ids=["cluster", "alone"])
@pytest.mark.parametrize("case", CASES)
def test_the_source_is_right(case: str, config: dict[str, Any], find_wrong: Find) -> None:
    """The kernel's own source, executed without layouts, is within budget, and reads nothing before it has arrived."""
    assert find_wrong(case, config) == ()


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(name: str, find_wrong: Find) -> None:
    """A dropped wait, a wrong slot, a missing mask: the outputs are wrong, or the stand-in refuses the access."""
    case, right, wrong = MISTAKES[name]
    assert find_wrong(case, SHARED, right, wrong)


@pytest.mark.parametrize(("text", "device", "reason"), [
    ("softmax-r2-c65536-f16", DeviceInfo("cpu", "cpu-x86_64", "cpu", interpreted=True), "does not run Gluon"),
    ("rmsnorm-r2-c65536-f16", DeviceInfo("rocm", "gfx942", "mi300x"), "not for gfx942; use triton.rmsnorm"),
    ("softmax-r2-c1000-f32", H200, "rows of more than 65536 and at most 524288 bytes, not 4000; use triton.softmax"),
    ("layernorm-r2-c8192-bf16", H200, "than 16384 and at most 524288 bytes, not 16384; use triton.layernorm"),
    ("layernorm-r2-c32769-bf16", H200, "a multiple of 16 bytes, not 65538; pad them, or use triton.layernorm"),
])  # fmt: skip
def test_what_it_does_not_compute_is_refused(text: str, device: DeviceInfo, reason: str) -> None:
    """In words that name the workload's property, what there is, and what takes it."""
    workload = parse_workload(text)
    (found,) = BY_FAMILY[workload.family].unsupported_reasons(workload, device)
    assert reason in found


@pytest.mark.parametrize(("version", "reasons"), [("3.5.1", 1), ("3.6.0", 0), ("", 0)])
def test_an_older_triton_is_refused(version: str, reasons: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """3.5 has no layouts of clusters by bases; a version that cannot be read is left to the compiler."""
    monkeypatch.setattr(devices, "version_of", lambda _name: version)
    found = BACKENDS[0].unsupported_reasons(parse_workload("softmax-r2-c65536-f16"), H200)
    assert [f"gluon.softmax needs Triton 3.6 or newer on sm_90; this is {version}; install one"] * reasons == found


def test_a_missing_triton_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Triton is not installed."""
    monkeypatch.setattr(devices.importlib.util, "find_spec", lambda _name: None)
    assert BACKENDS[0].unsupported_reasons(parse_workload("softmax-r2-c65536-f16"), H200) == ["triton is not installed"]


def test_the_launcher_says_what_is_wrong_with_its_arguments() -> None:
    """Rows that are no pieces of 16 bytes, more columns than a cluster takes, and another weight or residual."""
    x = torch.zeros(2, 250, dtype=torch.float16)
    with pytest.raises(
        UsageError, match="SLICE=128 is less than the 256 columns that num_warps=1 holds at once; raise"
    ):
        launch.softmax(torch.zeros(2, 256, dtype=torch.float16), config=SHARED | {"SLICE": 128})
    with pytest.raises(UsageError, match="x has rows of 500 bytes, which must be a multiple of 16; use kernels"):
        launch.softmax(x, config=SHARED)
    with pytest.raises(
        UsageError, match="x has 1032 columns, this configuration takes at most 1024: SHARE=4 times SLICE"
    ):
        launch.softmax(torch.zeros(2, 1032), config=SHARED)
    with pytest.raises(UsageError, match="softmax: x must begin at a multiple of 16 bytes"):
        launch.softmax(torch.zeros(17)[1:].view(2, 8), config=SHARED)
    with pytest.raises(UsageError, match="rmsnorm: weight must have shape"):
        launch.rmsnorm(torch.zeros(2, 8), torch.zeros(4), eps=1.0, config=SHARED)
    with pytest.raises(UsageError, match="layernorm: residual must have dtype"):
        eight = torch.zeros(8)
        launch.layernorm(torch.zeros(2, 8), eight, eight, torch.zeros(2, 8).half(), eps=1.0, config=SHARED)


@pytest.mark.parametrize("space", [SOFTMAX, RMSNORM, LAYERNORM], ids=lambda space: space.kernel)
def test_every_row_it_takes_has_a_configuration(space: Any) -> None:
    """Of each width, with a residual and without; a cluster has room for the row, and a CTA for its slots."""
    assert space.rules_arch("sm_90") == "sm_90"
    for bits in (16, 32):
        for residual in (False, space is not SOFTMAX):
            short, most = ROW_BYTES[space.kernel]
            for row_bytes in (short + 16, 70000, 131072, 131088, most):
                columns = 8 * row_bytes // bits
                config = space.choose("sm_90", {"columns": columns, "element_bits": bits, "residual": residual}).config
                assert config["SHARE"] * config["SLICE"] >= columns
                assert config["SLICE"] * bits // 8 >= 32 * 16 * config["num_warps"]
                assert config["SLICE"] * bits // 8 * config["SLOTS"] * (1 + residual) <= 225 * 1024


def test_clusters_share_the_rows_evenly() -> None:
    """As many as fit the device, more if each would have more rows than it may, and never more than rows."""
    assert launch.count_clusters(4096, 0, 30) == 30
    assert launch.count_clusters(16384, 64, 132) == 256
    assert launch.count_clusters(1000, 64, 132) == 132
    assert launch.count_clusters(7, 64, 132) == 7


def test_it_is_registered_and_built_for_its_architecture_only() -> None:
    """The registry holds the kernels and their backends; elsewhere it says that there is none."""
    registry, backends = KernelRegistry(), Registry()
    kernels.register_kernels(registry)
    kernels.register(backends)
    for kernel in KERNELS:
        assert registry.get(kernel.name).backends == (backends.get(kernel.name).name,)
        assert len({build.config for build in kernel.builds("sm_90")}) == len(kernel.builds("sm_90")) > 0
        assert not any(kernel.builds(arch) for arch in ALL_ARCHS)
        assert "has a kernel for sm_90, not for gfx942" in kernel.unsupported_reasons("gfx942")[0]
        assert kernel.unsupported_reasons("sm_90") == []


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_tuned_build_keeps_its_rows_in_registers(kernel: Any, tmp_path: Path) -> None:
    """Compiled for sm_90, no more than a few words of a thread lie in memory, and shared memory holds the slots."""
    pytest.importorskip("triton", minversion="3.6")
    (build,) = (build for build in kernel.builds("sm_90") if build.config == "c65536-bf16")
    built = compile_triton(build, build.source, tmp_path)
    code = Analyser()(built, build)
    slots = int(build.settings["SLOTS"]) * int(build.settings["SLICE"]) * 2
    assert code.scratch_bytes <= SCRATCH_BYTES_MAX
    assert code.threads == 32 * int(build.settings["num_warps"])
    assert slots <= code.lds_dynamic_bytes <= slots + 1024


GPU_CASES = [
    f"{family}-r{rows}-c{columns}-{dtype}{residual}"
    for rows, columns, dtype in ((301, 65536, "bf16"), (5, 40000, "f16"), (33, 131072, "bf16"), (33, 20004, "f32"))
    for family, residual in (("softmax", ""), ("rmsnorm", ""), ("rmsnorm", "-residual"), ("layernorm", ""))
] + ["layernorm-r9-c65528-bf16-residual", "layernorm-r133-c16384-bf16", "layernorm-r70-c131072-f32"]


@pytest.mark.gpu
@pytest.mark.parametrize("case", GPU_CASES)
def test_right_on_a_gpu(case: str) -> None:
    """The compiled kernel is within budget on whole and ragged slices, where there is one for the device."""
    workload = parse_workload(case)
    if reasons := BY_FAMILY[workload.family].unsupported_reasons(workload, identify_device("cuda")):
        pytest.skip(reasons[0])
    assert find_wrong_calls(BY_FAMILY[workload.family], workload, "cuda") == ()
