"""What `kernels.register` offers, and what it costs to ask."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

import kernels
from kernels.aiter import package
from pytest_attnperf.backends import Registry
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.records.listing import find_class_place
from pytest_attnperf.workloads.base import QUANTISED
from pytest_attnperf.workloads.families import FAMILIES, Family
from pytest_attnperf.workloads.prefill import DTYPES, Prefill
from pytest_attnperf.workloads.rope import Rope

ROOT = Path(__file__).parents[2]
CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu")
INTERPRETING = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu", interpreted=True)
CUDA = DeviceInfo(kind="cuda", arch="sm_90", product="h200")
ROCM = DeviceInfo(kind="rocm", arch="gfx942", product="mi300x")
PROBE = """
import sys
import kernels
from pytest_attnperf.backends import Registry
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.prefill import Prefill
registry = Registry()
kernels.register(registry)
workload = Prefill.parse("prefill-b1-s512-h8-d64-f16-causal")
for backend in registry.for_family("prefill"):
    backend.unsupported_reasons(workload, DeviceInfo(kind="cuda", arch="sm_90", product="h200"))
print(sorted(sys.modules.keys() & {"torch", "triton", "aiter"}))
"""

INDUCTOR_PROBE = """
import sys
import kernels
from pytest_attnperf.backends import Registry
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.families import parse_workload
registry = Registry()
kernels.register(registry)
for name, text in (
    ("native.sdpa_flash", "prefill-b1-s8-h1-d16-f32-causal"),
    ("native.sdpa_decode", "decode-b1-q2-kv8-h1-d16-f32"),
):
    workload = parse_workload(text)
    registry.get(name).prepare(workload, workload.make_inputs(0, "cpu", planted=False)).run()
print("torch._inductor" in sys.modules)
"""


def unlisted(root: Path) -> list[str]:
    """'file:line: what to do' for every BACKENDS and KERNELS below `root` that no line of MODULES names."""
    found = []
    for path in sorted(root.rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts)
        folder = name.removesuffix(".backend").removesuffix(".builds")
        for node in ast.parse(path.read_text()).body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            given = {getattr(target, "id", "") for target in targets} & {"BACKENDS", "KERNELS"}
            if given and not {name, folder} & {*kernels.MODULES}:
                found.append(f"{path}:{node.lineno}: add {name!r} to MODULES in {root / '__init__.py'}")
    return found


def test_every_module_with_backends_or_kernels_is_listed() -> None:
    """None is left out, and none is listed twice."""
    assert unlisted(ROOT / "kernels") == []
    assert len(set(kernels.MODULES)) == len(kernels.MODULES)


def test_an_unlisted_module_is_named_with_its_line(tmp_path: Path) -> None:
    """Where BACKENDS stands, and where its line belongs; a private name needs none."""
    (tmp_path / "mine.py").write_text('"""Mine."""\n\nBACKENDS: tuple[str, ...] = ()\n_OTHER = 1\n')
    (finding,) = unlisted(tmp_path)
    assert finding == f"{tmp_path}/mine.py:3: add 'mine' to MODULES in {tmp_path}/__init__.py"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("native.mine", r'py:\d+ names "native\.mine", but there is no kernels/native/mine\.py'),
        (
            "triton.configs",
            r'py:\d+ names "triton\.configs", but there is no kernels/triton/configs/backend\.py',
        ),
        ("nowhere.mine", r'py:\d+ names "nowhere\.mine", but there is no kernels/nowhere/mine\.py'),
        (
            "native.prefill_eager",
            r"prefill_eager\.py:1: has neither BACKENDS nor KERNELS, and .*py:\d+ lists it",
        ),
    ],
)
def test_a_line_that_names_nothing_is_refused(name: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """File and line of the list, and what is not there."""
    monkeypatch.setattr(kernels, "MODULES", (name,))
    with pytest.raises(UsageError, match=said):
        kernels.register(Registry())


def test_a_list_without_its_comma_is_named_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """`BACKENDS = (Mine(...))` is the backend itself."""
    from kernels.native import rope

    monkeypatch.setattr(kernels, "MODULES", ("native.rope",))
    monkeypatch.setattr(rope, "BACKENDS", rope.BACKENDS[0])
    with pytest.raises(UsageError, match=r"native/rope\.py:\d+: BACKENDS must be a tuple, with a comma: BACKENDS = \("):
        kernels.register(Registry())


def lacking_backends(registry: Registry, families: Iterable[Family]) -> list[str]:
    """'file:line: what to do' for each family without what its suite compares, or with a reason that has gone."""
    problems = []
    for family in families:
        assert family.kind
        names = {backend.name.removeprefix("layer.") for backend in registry.for_family(family.name)}
        groups = {name.partition(".")[0] for name in names}
        where = f"{find_class_place(family.kind)}: family {family.name}"
        if "native" not in groups:
            problems.append(
                f"{where} has no backend native.*: add kernels/native/{family.name}.py, and its line in MODULES"
            )
        if "triton" not in groups and not family.kind.NO_TRITON_YET:
            problems.append(f"{where} has no backend triton.*: add one, or say why in NO_TRITON_YET of the class")
        if "triton" in groups and family.kind.NO_TRITON_YET:
            problems.append(f"{where} has a backend triton.*: take NO_TRITON_YET out of the class")
    return problems


def test_every_family_has_its_backends() -> None:
    """What a suite compares is there for each op family, whose class is whole, under names that say whose it is."""
    registry = Registry()
    kernels.register(registry)
    assert lacking_backends(registry, [FAMILIES.get(family.name) for family in FAMILIES]) == []


class Reasoned(Rope):
    """A family that says why it has no Triton backend."""

    NO_TRITON_YET = "nobody has written it"


def test_a_family_without_a_backend_is_named_with_its_file_and_line() -> None:
    """One that lacks a native or a Triton backend, and one whose reason for the latter has gone."""
    registry, empty = Registry(), Registry()
    kernels.register(registry)
    silent, reasoned = Family.of(Rope, ""), Family.of(Reasoned, "")
    assert lacking_backends(registry, [silent]) == []
    (native,) = lacking_backends(empty, [reasoned])
    assert re.fullmatch(r".*test_registration\.py:\d+: family rope has no backend native\.\*: add kernels.*", native)
    _, triton = lacking_backends(empty, [silent])
    assert re.fullmatch(r".*workloads/rope\.py:\d+: family rope has no backend triton\.\*: add one, or say.*", triton)
    (gone,) = lacking_backends(registry, [reasoned])
    assert gone.endswith("family rope has a backend triton.*: take NO_TRITON_YET out of the class")


def test_every_attention_backend_has_its_layer() -> None:
    """Family block holds the plain layer, and one over each backend of prefill or decode, under its name."""
    registry = Registry()
    kernels.register(registry)
    attending = [backend.name for backend in registry if {"prefill", "decode"}.intersection(backend.families)]
    layers = [backend.name for backend in registry.for_family("block")]
    assert layers == ["layer.plain", *(f"layer.{name}" for name in attending)]


def test_every_latent_attention_backend_has_its_layer() -> None:
    """Family mla_block holds one over each backend of mla; where a backend has both kinds of attention, its layer is
    one backend of both families."""
    registry = Registry()
    kernels.register(registry)
    attending = [backend for backend in registry if "mla" in backend.families]
    layers = {backend.name: backend.families for backend in registry.for_family("mla_block")}
    assert layers.keys() == {f"layer.{backend.name}" for backend in attending}
    both = {f"layer.{backend.name}" for backend in attending if {"prefill", "decode"}.intersection(backend.families)}
    assert both == {"layer.aiter.asm", "layer.aiter.triton"}
    assert {name for name, families in layers.items() if families == ("block", "mla_block")} == both


def test_describing_backends_imports_neither_torch_nor_a_compiler() -> None:
    """Registering, and asking for reasons, leaves torch, triton and aiter out of a fresh process."""
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_attention_of_torch_imports_no_compiler() -> None:
    """Preparing and calling it on a CPU leaves Inductor out of a fresh process: importing it takes a second."""
    done = subprocess.run([sys.executable, "-c", INDUCTOR_PROBE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_no_backend_has_a_tolerance_of_its_own() -> None:
    """Every backend is held to twice the plain computation's error."""
    registry = Registry()
    kernels.register(registry)
    assert {backend.tolerance.multiplier for backend in registry} == {2.0}


def test_backends_offered_on_a_cpu_can_run_there() -> None:
    """A backend with a limit above zero has no reason against a plain case on a CPU; one with zero has."""
    registry = Registry()
    kernels.register(registry)
    workload = Prefill.parse("prefill-b1-s128-h2-d64-f16-causal")
    interpreting = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu", interpreted=True)
    for backend in registry.for_family("prefill"):
        assert bool(backend.cpu_flops_max) == (not backend.unsupported_reasons(workload, interpreting)), backend.name


def test_the_small_problems_cross_every_two_properties(problems: tuple[str, ...]) -> None:
    """Any two values of different properties meet in a problem; causal with fewer keys than queries, which not every
    backend takes, is among the further ones."""
    workloads = [Prefill.parse(problem) for problem in problems]
    rows = [
        (
            ("d", w.head_dim),
            ("dtype", w.dtype),
            ("group", w.heads // w.kv_heads if w.kv_heads > 1 else "mqa"),
            ("lengths", (w.seq_q, w.seq_kv)),
            ("causal", w.causal),
            ("lse", w.lse),
        )
        for w in workloads
    ]
    met = {pair for row in rows for pair in itertools.combinations(row, 2)}
    values = [sorted({row[i] for row in rows}, key=str) for i in range(6)]
    for first, second in itertools.combinations(values, 2):
        for pair in itertools.product(first, second):
            if pair != (("lengths", (70, 31)), ("causal", True)):
                assert pair in met


def test_the_further_problems_hold_what_the_small_ones_do_not(further_problems: tuple[str, ...]) -> None:
    """Every dtype beyond f32, f16 and bf16, windows narrower and wider than the keys, and rows without keys occur."""
    workloads = [Prefill.parse(problem) for problem in further_problems]
    assert {w.dtype for w in workloads} == set(DTYPES)
    assert {w.window > w.seq_kv for w in workloads if w.window} == {True, False}
    assert {w.lse for w in workloads if w.rows_without_keys} == {True, False}


OURS = ["triton.flash", "triton.flash_persistent"]
EIGHT_BITS = {
    "cpu": dict.fromkeys(sorted(QUANTISED), OURS),
    "cuda": {"i8": OURS, "f8e4m3": OURS, "f8e5m2": OURS},
    "rocm": {"i8": OURS, "f8e4m3fnuz": OURS, "f8e5m2fnuz": OURS},
}
"""Which backends beyond eager attention multiply a format: ours, where the device does or Triton is interpreted."""
ELSEWHERE = {("f8e4m3fnuz", "rocm"): {"ck", "aiter.auto", "aiter.asm"}}
"""Taken, too, where aiter is installed, by assembly at other head dimensions."""


@pytest.mark.parametrize("device", [INTERPRETING, CUDA, ROCM], ids=lambda device: device.kind)
@pytest.mark.parametrize("dtype", sorted(QUANTISED))
def test_who_takes_8_bits(device: DeviceInfo, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every backend that does not compute an 8-bit dtype refuses it by name, on every kind of device."""
    monkeypatch.setattr(package, "_find_folders", lambda: ([], None))  # where aiter is installed, it takes more
    registry = Registry()
    kernels.register(registry)
    workload = Prefill.parse(f"prefill-b1-s128-h2-d64-{dtype}")
    reasons = {
        backend.name: backend.unsupported_reasons(workload, device) for backend in registry.for_family("prefill")
    }
    taken = ["native.eager", "native.eager_fp32", *EIGHT_BITS[device.kind].get(dtype, [])]
    assert [name for name, found in reasons.items() if not found] == taken
    elsewhere = ELSEWHERE.get((dtype, device.kind), set())
    refused = {name: found for name, found in reasons.items() if found and name not in elsewhere}
    assert all(any(f"not {dtype}" in reason for reason in found) for found in refused.values())
    assert all("aiter" in reasons[name][0] for name in elsewhere)


def test_tf32_is_taken_where_f32_is() -> None:
    """A backend for f32 may be more exact than TF32; one without f32 takes neither, unless its f32 is emulated."""
    registry = Registry()
    kernels.register(registry)
    for device in (CPU, CUDA, ROCM):
        for backend in registry.for_family("prefill"):
            f32, tf32 = (Prefill(1, 128, 2, 64, dtype=dtype) for dtype in ("f32", "tf32"))
            refused = bool(backend.unsupported_reasons(f32, device))
            emulated = backend.name == "native.sdpa_efficient" and device is not CPU
            assert refused == (bool(backend.unsupported_reasons(tf32, device)) or emulated)


@pytest.mark.usefixtures("lean_processes")
def test_a_backend_asked_for_by_name_says_why_it_cannot_run() -> None:
    """`--attnperf-backend=ck` without aiter is a skip with the reason, not an empty selection."""
    command = [sys.executable, "-m", "pytest", "suites/", "--attnperf-backend=ck", "--attnperf-device=cpu"]
    command += ["--attnperf-tier=nightly", "-rs", "-q"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
    assert "passed" not in result.stdout
    assert "[19] suites/test_prefill.py" in result.stdout
    assert "ck" in result.stdout
    assert "ROCm" in result.stdout or "aiter" in result.stdout
