"""Matrix multiplication of aiter: `ck` (fp8), `aiter.asm` (bf16), `aiter.auto` (its tuned dispatcher), `aiter.triton`.

Weights are (N, K) throughout: b of layout 'nn' is transposed untimed. int8 is refused: aiter scales its products and
rounds them to 16 bits, but this workload asks for exact int32 sums. It multiplies no int32, and writes no fp32 (the
dispatch of gemm_a8w8.cu, the docstrings of its Triton GEMMs). Written from aiter's source, v0.1.5 to
e4048607a5 (2026-08-22); never run on an AMD GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kernels.aiter.direct import Direct, Function, device_reasons, prepare_direct, reasons_if_installed
from kernels.aiter.gemm_table import find_gemm_entry
from kernels.aiter.importing import environment_entries, import_aiter, without_ck
from kernels.aiter.package import version_entries
from kernels.aiter.signatures import EntryPoint, parameters_of
from kernels.limits import HALVES, join_names
from kernels.native.gemm import fp8_formats
from pytest_attnperf.backends import Backend, Declares, Prepared
from pytest_attnperf.errors import UnsupportedError
from pytest_attnperf.workloads.gemm import Gemm

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.records.tuned_tables import TableEntry

A8W8, A16W16, TUNED = "aiter.ops.gemm_op_a8w8", "aiter.ops.gemm_op_a16w16", "aiter.tuned_gemm"
TRITON_A16W16, OLD_TRITON_A16W16 = "aiter.ops.triton.gemm.basic.gemm_a16w16", "aiter.ops.triton.gemm_a16w16"
TRITON_A8W8, OLD_TRITON_A8W8 = "aiter.ops.triton.gemm.basic.gemm_a8w8", "aiter.ops.triton.gemm_a8w8"

ASM_ARCHS = frozenset({"gfx942", "gfx950"})
ASM_MULTIPLE = 64
"""K and N must be multiples of it; it is the smallest tile along N (csrc/py_itfs_cu/asm_gemm_a16w16.cu, v0.1.9)."""

FP8 = frozenset({"f8e4m3", "f8e4m3fnuz"})
"""aiter's `dtypes.fp8` is one of these, by architecture."""

TAKES = {"ck": FP8, "asm": frozenset({"bf16"}), "": HALVES, "triton": HALVES | FP8}
WHO = {"ck": "gemm_a8w8_CK", "asm": "gemm_a16w16_asm", "": "tuned_gemm.gemm_a16w16", "triton": "aiter's Triton gemm"}


@dataclass(frozen=True)
class AiterGemm(Backend[Gemm]):
    """One way to multiply matrices in aiter.

    path    'ck', 'asm' or 'triton'; '' where aiter's dispatcher chooses, and the choice is recorded
    """

    path: str = ""

    families = ("gemm",)

    def unsupported_reasons(self, workload: Gemm, device: DeviceInfo) -> list[str]:
        """Returns why this way cannot multiply: the device, element types, and what the launcher of the assembly
        kernels checks. Empty if it can."""
        who = WHO[self.path]
        found = device_reasons(device)
        if self.path == "ck":
            found += without_ck()
        if workload.dtype == "i8":
            found.append(
                f"{who}: aiter scales int8 products and rounds them to 16 bits, this workload wants int32 sums"
            )
        elif workload.dtype not in TAKES[self.path]:
            found.append(f"{who} takes {join_names(TAKES[self.path])}, not {workload.dtype}")
        elif workload.out_dtype not in HALVES:
            found.append(f"{who} writes {join_names(HALVES)}, not {workload.out_dtype}")
        elif workload.is_scaled and workload.dtype not in fp8_formats(device):
            found.append(f"{device.arch} does not multiply {workload.dtype}; aiter's fp8 is the one of its hardware")
        return found + (self._asm_reasons(workload, device) if self.path == "asm" else [])

    def prepare(self, workload: Gemm, inputs: Tensors) -> Prepared:
        """Copies the inputs, transposing b untimed where it is (K, N), and runs the call once."""
        convert = partial(_weights_by_rows, workload)
        if not self.path:
            return _prepare_tuned(workload, inputs, convert)
        function, call = self._choose_function(workload, inputs)
        return prepare_direct(
            Direct(
                function,
                call,
                outputs=lambda out: {"out": out},
                convert=convert,
                config={"function": function.name, "weights": "(N, K)", "allocated_in_call": "out"},
                declares=Declares(never=("aten::matmul", "aten::_scaled_mm"), matrix=True),
            ),
            inputs,
        )

    def find_entries(self, workload: Gemm, device: DeviceInfo) -> Sequence[TableEntry]:
        """Returns one: the row of aiter's table of tuned kernels, which only the dispatcher reads. Raises as
        `Auditable` states."""
        if self.path:
            raise UnsupportedError(f"of aiter's GEMM tables only those of {WHO['']} are read, not of {WHO[self.path]}")
        if reasons_if_installed(self, workload, device):
            return ()
        return [find_gemm_entry(workload, device)]

    def _asm_reasons(self, workload: Gemm, device: DeviceInfo) -> list[str]:
        found = []
        if device.arch not in ASM_ARCHS:
            found.append(f"aiter's assembly is for {join_names(ASM_ARCHS)}, not for {device.arch}")
        for name, size in (("n", workload.size_n), ("k", workload.size_k)):
            if size % ASM_MULTIPLE:
                found.append(f"{WHO['asm']} needs {name} divisible by {ASM_MULTIPLE}, got {size}")
        return found

    def _choose_function(self, workload: Gemm, inputs: Tensors) -> tuple[Function, Callable[..., Any]]:
        out_dtype = workload.out_stored_as
        if self.path == "ck":
            function = Function.import_named(A8W8, "gemm_a8w8_CK", "ck")
            return function, function.bind_tensors(("XQ", "WQ", "x_scale", "w_scale"), {"dtype": out_dtype})
        if self.path == "asm":
            return _bind_assembly(out_dtype, inputs[0].device)
        if workload.is_scaled:
            function = Function.import_named(TRITON_A8W8, "gemm_a8w8", "triton", old=OLD_TRITON_A8W8)
            return function, function.bind_tensors(("x", "w", "x_scale", "w_scale"), {"dtype": out_dtype})
        function = Function.import_named(TRITON_A16W16, "gemm_a16w16", "triton", old=OLD_TRITON_A16W16)
        return function, function.bind_tensors(("x", "w"), {"dtype": out_dtype}, {"backend": "triton"})


PARTS: tuple[tuple[str, str, Backend], ...] = tuple(
    (name, "gemm", AiterGemm(name, path=path))
    for name, path in (("ck", "ck"), ("aiter.asm", "asm"), ("aiter.auto", ""), ("aiter.triton", "triton"))
)
ENTRY_POINTS = (
    EntryPoint(A8W8, "gemm_a8w8_CK", needed=("XQ", "WQ", "x_scale", "w_scale", "dtype")),
    EntryPoint(A16W16, "gemm_a16w16_asm", needed=("A", "B", "out"), offered=("semaphore",), since="v0.1.6"),
    EntryPoint(A16W16, "get_semaphore_workspace", needed=("device",), since="v0.1.9"),
    EntryPoint(TUNED, "gemm_a16w16", needed=("A", "B"), offered=("otype",), since="v0.1.7"),
    EntryPoint(TRITON_A16W16, "gemm_a16w16", needed=("x", "w", "dtype"), offered=("backend",), old=OLD_TRITON_A16W16),
    EntryPoint(TRITON_A8W8, "gemm_a8w8", needed=("x", "w", "x_scale", "w_scale", "dtype"), old=OLD_TRITON_A8W8),
)


def _bind_assembly(out_dtype: torch.dtype, device: torch.device) -> tuple[Function, Callable[..., Any]]:
    """Returns (aiter's gemm_a16w16_asm, a function of (a, b) that allocates the result and returns it filled). Until
    v0.1.9 aiter takes a workspace as argument; later versions allocate it."""
    function = Function.import_named(A16W16, "gemm_a16w16_asm", "asm")
    asked = {one.name for one in parameters_of(getattr(function.module, function.name))}
    optional = {}
    if "semaphore" in asked:
        optional["semaphore"] = import_aiter(A16W16, "get_semaphore_workspace")(device)
    launch = function.bind_tensors(("A", "B", "out"), {}, optional)

    def call_assembly(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        import torch

        out = torch.empty((a.shape[0], b.shape[0]), dtype=out_dtype, device=a.device)
        launch(a, b, out)
        return out

    return function, call_assembly


def _prepare_tuned(workload: Gemm, inputs: Tensors, convert: Callable[[Tensors], Tensors]) -> Prepared:
    """Prepares aiter's dispatcher, which reads tables of tuned kernels, and runs it once. Records as path the library
    that it chooses."""
    from kernels.aiter.warm import warm_up

    function = Function.import_named(TUNED, "gemm_a16w16", "")
    call = function.bind_tensors(("A", "B"), {}, {"otype": inputs[0].dtype})
    tensors = convert(inputs)
    warm = warm_up(partial(call, *tensors), function.full_name)
    config = {**version_entries(), **environment_entries(), "weights": "(N, K)", "path": "not seen", **warm.entries}
    return Prepared(call, tensors, convert, lambda out: {"out": out}, config, Declares(never=("aten::_scaled_mm",)))


def _weights_by_rows(workload: Gemm, inputs: Tensors) -> Tensors:
    """Returns (a, b, scales) with b as (N, K), and for fp8 one scale per row of a and b, all equal."""
    import torch

    a, b, *scales = inputs
    weights = (b if workload.layout == "nt" else b.t()).clone(memory_format=torch.contiguous_format)
    if not scales:
        return a.clone(), weights
    rows, columns = workload.size_m, workload.size_n
    x_scale, w_scale = scales[0].expand(rows, 1).contiguous(), scales[1].expand(1, columns).contiguous()
    return a.clone(), weights, x_scale, w_scale
