"""The Triton of this interpreter: whether it compiles for an architecture, and how to configure it.

Runs in a compile worker: standard library and Triton only. Tested with Triton 3.3 to 3.9. The installed Triton is
tested for features; its version number is not used for that.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_attnperf.codeobject.hip_toolchain import find_linker
from pytest_attnperf.errors import ToolMissingError

OLDEST = (3, 3)
"""The oldest version, (major, minor), that was tested."""

LINKER = "TRITON_HIP_LLD_PATH"
"""Environment variable that names ld.lld to Triton up to 3.4, which runs it for AMD; later ones contain a linker."""

_TARGET = re.compile(r"gfx(?P<generation>\d+)[0-9a-f]{2}|sm_(?P<capability>\d+)a?")
_MACHINE_BYTE = 48
"""Position of EF_AMDGPU_MACH in a 64-bit ELF header's `e_flags`; 0 is a processor unknown to the assembler."""


def triton_reasons(arch: str) -> list[str]:
    """Returns why the Triton of this interpreter cannot compile for `arch`; empty if it can."""
    try:
        triton = load_triton()
        backend = backend_for(arch)
    except ToolMissingError as error:
        return [str(error)]
    if backend.target.backend != "hip":
        return _without_assembler(backend, f"triton {triton.__version__}")
    if not _has_arch(backend, arch):
        return [f"triton {triton.__version__} does not know {arch}; install a newer Triton, or correct the name"]
    if not _needs_linker(backend) or find_linker():
        return []
    return [
        f"triton {triton.__version__} links AMD kernels with ld.lld, and there is none: set {LINKER} or install it "
        "(Debian: apt-get install lld-22; ROCm brings its own)"
    ]


def load_triton() -> Any:
    """Returns the triton package, imported. Raises ToolMissingError if it is absent, broken or too old."""
    install = f"install it for {sys.executable}: pip install 'triton>={OLDEST[0]}.{OLDEST[1]}'"
    try:
        triton = importlib.import_module("triton")
        importlib.import_module("triton.compiler")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "triton":
            raise ToolMissingError(f"triton needs {error.name}; install it for {sys.executable}") from error
        raise ToolMissingError(f"there is no triton ({error}); {install}") from error
    except Exception as error:
        raise ToolMissingError(f"triton cannot be imported ({type(error).__name__}: {error}); {install}") from error
    version = re.match(r"(\d+)\.(\d+)", triton.__version__)
    if version is None or (int(version[1]), int(version[2])) < OLDEST:
        raise ToolMissingError(f"triton {triton.__version__} is too old; {install}")
    return triton


def backend_for(arch: str) -> Any:
    """Returns Triton's backend for an architecture; its `target` has 64 lanes per wave on gfx9 and 32 elsewhere. Raises
    ToolMissingError for an architecture that is not AMD's or NVIDIA's, and if this Triton lacks the backend."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend

    found = _TARGET.fullmatch(arch)
    if found is None:
        raise ToolMissingError(
            f"triton compiles for AMD ('gfx942') and NVIDIA ('sm_90') architectures, not {arch!r}; name one of them"
        )
    target = (
        GPUTarget("cuda", int(found["capability"]), 32)
        if found["capability"]
        else GPUTarget("hip", arch, 64 if found["generation"] == "9" else 32)
    )
    try:
        return make_backend(target)
    except RuntimeError as error:
        raise ToolMissingError(
            f"this triton was built without the backend for {arch} ({error}); install another"
        ) from error


def installation_hash() -> str:
    """Returns a text that identifies the installed Triton: its hash of its own files or, if it has no such function,
    its version and its libraries' sizes and times."""
    for name in ("triton.runtime.cache", "triton.compiler.compiler"):
        own = getattr(importlib.import_module(name), "triton_key", None)
        if own is not None:
            return str(own())
    triton = load_triton()
    libraries = sorted(Path(triton.__file__).parent.glob("_C/*"))
    return f"{triton.__version__} {[(each.stat().st_size, each.stat().st_mtime_ns) for each in libraries]}"


@contextlib.contextmanager
def private_cache() -> Iterator[None]:
    """Makes Triton use a temporary cache folder inside a `with` block: its own has no size limit, and trusts damaged
    files."""
    with tempfile.TemporaryDirectory(prefix="attnperf-triton-") as folder, _set_variable("TRITON_CACHE_DIR", folder):
        yield


def linker_named(backend: Any) -> contextlib.AbstractContextManager[None]:
    """Returns a context in which the environment names ld.lld to a Triton that needs it, to hash itself and to link.
    Does nothing for others."""
    linker = find_linker() if _needs_linker(backend) else None
    return _set_variable(LINKER, str(linker)) if linker else contextlib.nullcontext()


def _has_arch(backend: Any, arch: str) -> bool:
    """Returns whether Triton's assembler knows the architecture, tested with an empty program, as Triton offers no
    list. True if this Triton has another interface and cannot be tested."""
    from triton._C.libtriton import amd, llvm

    llvm.init_targets()
    own = getattr(sys.modules.get(type(backend).__module__), "assemble_amdgcn", None)
    try:
        text = (own or amd.assemble_amdgcn)("\t.text\n", arch, "")
    except ValueError:
        return False
    except Exception:  # this version has another interface: compiling will show
        return True
    return bool(text[_MACHINE_BYTE])


def _without_assembler(backend: Any, compiler: str) -> list[str]:
    """Returns why NVIDIA's assembler (ptxas) cannot run; [] if it can. `compiler` names Triton and its version in the
    reason; a Triton that is built for ROCm has no such assembler."""
    try:
        backend.hash()
    except Exception as error:
        return [f"{compiler} cannot run the assembler that sm_{backend.target.arch} needs: {error}"]
    return []


def _needs_linker(backend: Any) -> bool:
    """Returns whether this Triton looks for an ld.lld to link AMD kernels and finds none itself."""
    look = getattr(backend, "path_to_rocm_lld", None)
    if look is None:
        return False
    try:
        look()
    except Exception:
        return True
    return False


@contextlib.contextmanager
def _set_variable(name: str, value: str) -> Iterator[None]:
    """Sets an environment variable inside a `with` block and restores it afterwards; Triton reads its variables on
    use."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
