"""Builds tiny Triton kernels in every way that `test_compile_triton.py` asks about: CACHE prints one JSON object.

A process of its own: Triton decides at import whether it interprets.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_attnperf.codeobject.building import build_object, unsupported_reasons
from pytest_attnperf.codeobject.built import assembly_text
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.kernel_builds import KernelBuild, TritonSource

SIGNATURE = {"y_ptr": "*fp16", "x_ptr": "*fp16", "factor": "fp32", "n": "i32"}


def declared(arch: str = "gfx942", function: str = "scale", **source: Any) -> KernelBuild:
    """A build of one of the tiny kernels; of `scale` with aligned pointers unless told otherwise."""
    given = {"signature": SIGNATURE, "constants": {"BLOCK": 256}, "divisible_by_16": ("y_ptr", "x_ptr", "n"), **source}
    options = given.pop("options", {"num_warps": 2})
    module = given.pop("module", "tiny_triton")
    return KernelBuild("tiny", "b256", arch, TritonSource(module, function, options=options, **given))


def said(build_of: KernelBuild, cache: Path) -> dict[str, Any]:
    """What a build gives; its error and the kind of it."""
    try:
        built = build_object(build_of, cache)
    except CodeObjectError as error:
        return {"error": str(error), "kind": type(error).__name__}
    return {**asdict(built), "assembly": assembly_text(built)}


@contextmanager
def variable(name: str, value: str):
    """Set an environment variable meanwhile."""
    os.environ[name] = value
    yield
    del os.environ[name]


def builds(cache: Path) -> dict[str, dict[str, Any]]:
    """Every build by name."""
    pointer = {"signature": {"y_ptr": "*fp16"}, "divisible_by_16": ()}
    found = {arch: said(declared(arch), cache) for arch in ("gfx942", "gfx1100", "sm_90")}
    found["again"] = said(declared(), cache)
    with variable("TRITON_DEFAULT_FP_FUSION", "0"):
        found["fusion by default"] = said(declared(), cache)
    with variable("AMDGCN_USE_BUFFER_OPS", "0"):
        found["without buffer operations"] = said(declared(), cache)
    with variable("TRITON_DISABLE_LINE_INFO", "1"):
        found["without lines"] = said(declared(), cache)
    found["without fusion"] = said(declared(options={"num_warps": 2, "enable_fp_fusion": False}), cache)
    found["unaligned"] = said(declared(divisible_by_16=()), cache)
    found["shifted"] = said(declared(constants={"BLOCK": 256, "SHIFTED": True}), cache)
    found["tuned"] = said(
        declared(function="tuned", signature={"y_ptr": "*i32", "n": "i32"}, divisible_by_16=()), cache
    )
    found["mismatched"] = said(declared(function="mismatched", **pointer), cache)
    found["unknown name"] = said(declared(function="unknown_name", **pointer), cache)
    found["unknown option"] = said(declared(options={"num_wraps": 4}), cache)
    found["impossible option"] = said(declared(options={"num_warps": 3}), cache)
    found["missing argument"] = said(declared(constants={}), cache)
    found["no function"] = said(declared(function="scael"), cache)
    found["plain function"] = said(declared(function="plain"), cache)
    found["no module"] = said(declared(module="tiny_tritom"), cache)
    found["GPU at import"] = said(declared(module="gpu_at_import"), cache)
    found["unsupported target"] = said(declared("gfx803"), cache)
    found["unknown processor"] = said(declared("gfx9999"), cache)
    return found


def main(cache: Path) -> None:
    """Print the builds, and why some architectures are not supported."""
    archs = ("gfx942", "sm_90", "gfx9999", "riscv64", "gfx942:xnack+")
    reasons = {arch: unsupported_reasons(declared(arch)) for arch in archs}
    print(json.dumps({"builds": builds(cache), "reasons": reasons}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
