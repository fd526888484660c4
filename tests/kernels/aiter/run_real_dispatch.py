"""Drives aiter's own dispatchers without a GPU: `python run_real_dispatch.py <source tree> <empty folder>`.

Its package is imported behind stubs: programs that answer as ROCm's, a compiled core module that holds any name, and a
Triton driver without a device. Then the compiled attention functions in aiter.ops.mha are replaced by ones that note
what they are called with and compute by `mha_results`. The last line printed is JSON: how many rows, and what is wrong.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import stat
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any
from unittest import mock

CORE = """
class AnyMember(type):
    def __getattr__(cls, member):
        if member.startswith("__"):
            raise AttributeError(member)
        return cls(sum(map(ord, member)))
class Enumeration(int, metaclass=AnyMember):
    __members__ = {}
    value = property(int)
    name = "any"
def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return AnyMember(name, (Enumeration,), {"__doc__": "Members:"})
"""
CORES = ("module_aiter_core", "module_aiter_enum")
"""Compiled modules that the import itself needs; the second until 2026."""

SMALL = ("psutil", "pandas", "einops", "packaging")
"""Packages that aiter imports, and that its dispatchers do not need; stood in for where they are missing."""

COMPILED = (
    "mha_fwd",
    "fmha_v3_fwd",
    "mha_varlen_fwd",
    "fmha_v3_varlen_fwd",
    "mha_bwd",
    "fmha_v3_bwd",
    "mha_varlen_bwd",
    "fmha_v3_varlen_bwd",
    "mha_fwd_native_splitkv",
    "fmha_fwd_bf16_opus_fwd",
    "fmha_fwd_with_sink_asm",
)


def stand_in(folder: Path) -> None:
    """Put stubs where aiter looks for ROCm, before it is imported."""
    answers = {"hipconfig": "7.0.0", "rocminfo": "  Name:  gfx942\n  Compute Unit:  304", "hipcc": ""}
    for name, answer in answers.items():
        program = folder / name
        program.write_text(f"#!/bin/sh\nprintf '%s\\n' '{answer}'\n", encoding="utf-8")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    jit = folder / "jit"
    jit.mkdir()
    for name in CORES:
        (jit / f"{name}.py").write_text(CORE, encoding="utf-8")
    os.environ.update(
        {
            "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
            "GPU_ARCHS": "gfx942",
            "CU_NUM": "304",
            "AITER_JIT_DIR": str(jit),
            "ROCM_HOME": str(folder),
            "HOME": str(folder),
            "AITER_LOG_LEVEL": "ERROR",
        }
    )
    sys.path.insert(0, str(jit))
    for name in SMALL:
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = mock.MagicMock(__name__=name, __path__=[], __spec__=ModuleSpec(name, None))
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    class Driver:
        def get_current_target(self) -> Any:
            return GPUTarget("hip", "gfx942", 64)

        def get_current_device(self) -> int:
            return 0

        def get_active_torch_device(self) -> Any:
            import torch

            return torch.device("cpu")

        def __getattr__(self, name: str) -> Any:
            return lambda *args, **kwargs: None

    driver.set_active(Driver())


def replace_compiled(mha: Any) -> list[tuple[str, dict[str, Any]]]:
    """Put noting functions with aiter's own parameters in place of the compiled ones; what they note."""
    from kernels.aiter.signatures import NO_DEFAULT, parameters_of
    from tests.kernels.aiter.mha_results import result

    noted: list[tuple[str, dict[str, Any]]] = []

    def noting(name: str) -> Any:
        parameters = [
            inspect.Parameter(
                one.name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=inspect.Parameter.empty if one.default is NO_DEFAULT else one.default,
            )
            for one in parameters_of(getattr(mha, name))
        ]
        signature = inspect.Signature(parameters)

        def function(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            noted.append((name, dict(bound.arguments)))
            return result(name, bound.arguments)

        function.__signature__ = signature  # type: ignore[attr-defined]
        return function

    for name in COMPILED:
        if hasattr(mha, name):
            setattr(mha, name, noting(name))
    return noted


def wrong_of(row: Any, mha: Any, ran: list[str]) -> list[str]:
    """What is not as it should be on one row, for `aiter.auto` and for whichever forced backends take it; those that
    this version is able to run are added to `ran`."""
    from pytest_attnperf.errors import UnsupportedError
    from tests.kernels.aiter.dispatch_rows import device, part, workload

    function, _, parameter = row.needs.partition(".")
    found_there = not function or hasattr(mha, function)
    if found_there and parameter:
        found_there = parameter in inspect.signature(getattr(mha, function)).parameters
    expected = row.path if found_there else row.otherwise
    mha.get_gfx = lambda: row.arch
    os.environ.update(row.environment)
    problem = workload(row.workload)
    inputs = problem.make_inputs(1, "cpu", planted=True)
    found = []
    for name in ("aiter.auto", "ck", "aiter.asm"):
        backend = part(name, row.workload)
        reasons = backend.unsupported_reasons(problem, device(row.arch))
        if reasons:
            if name == "aiter.auto":
                found.append(f"{row.name}: {name} refuses: {reasons}")
            continue
        try:
            case = backend.prepare(problem, inputs)
        except UnsupportedError as error:
            if "takes no" not in str(error) and "has no" not in str(error):
                found.append(f"{row.name}: {name} is unsupported: {error}")
            continue
        ran.append(name)
        path = {"ck": "ck", "aiter.asm": "asm"}.get(name, expected)
        if case.config["path"] not in (path, row.between or path):
            found.append(f"{row.name}: {name} ran {case.config['path']}, expected {path}")
        plain = problem.plain(inputs)
        for output, value in case.outputs(case.run()).items():
            if not bool((value.float() - plain[output].float()).abs().nan_to_num(0).max() < 1e-2):
                found.append(f"{row.name}: {name} is off in {output}")
    for variable in row.environment:
        del os.environ[variable]
    return found


def main() -> None:
    """Import, replace, and go through the rows."""
    source, folder = sys.argv[1], Path(sys.argv[2])
    stand_in(folder)
    sys.path.insert(0, source)
    from kernels.aiter.importing import import_aiter
    from tests.kernels.aiter.dispatch_rows import ROWS

    mha = import_aiter("aiter.ops.mha")
    # What is compiled by flydsl takes none of these shapes, and says so by giving None.
    sys.modules["aiter.ops.flydsl.fmha_kernels"] = mock.MagicMock(
        flydsl_flash_attn_varlen_func=lambda *args, **kwargs: None
    )
    replace_compiled(mha)
    ran: list[str] = []
    wrong = [text for row in ROWS for text in wrong_of(row, mha, ran)]
    print(json.dumps({"rows": len(ROWS), "ran": len(ran), "wrong": wrong}), flush=True)
    os._exit(0)  # torch's own clearing up fails on operators that aiter has registered


if __name__ == "__main__":
    main()
