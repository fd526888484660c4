"""Checks what compiles HIP here: clang for objects and the emulator, torch's runtime compiler, and hipcc or nvcc."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_attnperf.codeobject.hip_toolchain import INSTALL, find_toolchain
from pytest_attnperf.codeobject.tools import find_objdump
from pytest_attnperf.environment import kfd
from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status, Surroundings

DEFAULT_ARCH = "gfx942"
"""Architecture to compile for if there is no AMD GPU."""

RUNTIME = {"amd": ("hipRTC", "libhiprtc.so"), "nvidia": ("NVRTC", "libnvrtc.so")}
DRIVER = {"amd": ("hipcc", ("opt/rocm/bin",)), "nvidia": ("nvcc", ("usr/local/cuda/bin",))}


def clang_probe(here: Surroundings) -> Sequence[DoctorFinding]:
    """Returns one finding 'clang': whether a clang here compiles HIP for the AMD GPU's architecture (without an AMD
    GPU: for gfx942)."""
    arch = next(iter(kfd.list_architectures(here.system)), DEFAULT_ARCH)
    try:
        found = find_toolchain(arch, here.environ)
    except AttnperfError as error:
        meaning = "HIP kernels cannot be compiled without a GPU: no code objects of them, no emulator on the CPU"
        return (
            DoctorFinding(
                "clang", Status.WARNING, f"none that compiles HIP for {arch}", meaning, INSTALL, (str(error),)
            ),
        )
    return (DoctorFinding("clang", Status.OK, f"{found.name}, compiles HIP for {arch}", details=found.clang),)


def objdump_probe(here: Surroundings) -> Sequence[DoctorFinding]:
    """Returns one finding 'llvm-objdump': whether one on this machine disassembles code for the AMD GPU's
    architecture (without an AMD GPU: for gfx942)."""
    arch = next(iter(kfd.list_architectures(here.system)), DEFAULT_ARCH)
    try:
        found = find_objdump(arch)
    except AttnperfError as error:
        meaning = "instructions of HIP kernels cannot be counted or shown; Triton's come from its own assembly text"
        return (DoctorFinding("llvm-objdump", Status.NOTE, f"none that knows {arch}", meaning, INSTALL, (str(error),)),)
    return (DoctorFinding("llvm-objdump", Status.OK, f"{found.version}, knows {arch}", details=(str(found.path),)),)


def gpu_probe(here: Surroundings) -> Sequence[DoctorFinding]:
    """Returns two findings: the runtime compiler (hipRTC or NVRTC), and the compiler driver (hipcc or nvcc) that builds
    extensions and aiter. Returns none without a GPU."""
    if not here.vendor:
        return ()
    return (_probe_runtime(here), _probe_driver(here))


def _probe_runtime(here: Surroundings) -> DoctorFinding:
    name, library = RUNTIME[here.vendor]
    found = next(_list_libraries(here, library), None)
    if found is not None:
        return DoctorFinding(name, Status.OK, found.name, details=(str(found),))
    meaning = "HIP kernels are built as C++ extensions instead: slow, and their machine code is not known to the gate"
    return DoctorFinding(
        name, Status.WARNING, f"no {library} in torch's folder", meaning, "reinstall torch: its wheels bring it"
    )


def _probe_driver(here: Surroundings) -> DoctorFinding:
    name, folders = DRIVER[here.vendor]
    found = shutil.which(name, path=here.environ.get("PATH", "")) or next(
        (str(here.system.root / folder / name) for folder in _list_tool_folders(here, folders)
         if (here.system.root / folder / name).is_file()),
        None,
    )  # fmt: skip
    if found:
        return DoctorFinding(name, Status.OK, "found", details=(found,))
    if here.vendor == "amd":
        meaning = "aiter builds its kernels with it on first use: without it, ck and aiter.* are UNSUPPORTED"
        fix = "install ROCm's compiler (apt-get install hipcc rocm-dev), or use a container rocm/pytorch"
        return DoctorFinding(name, Status.WARNING, "not found", meaning, fix)
    return DoctorFinding(name, Status.OK, "not found; nothing needs it while torch has NVRTC")


def _list_tool_folders(here: Surroundings, folders: Sequence[str]) -> list[str]:
    """Returns where to look for compilers: bin of ROCM_PATH or CUDA_HOME if it is set, then `folders`."""
    named = here.environ.get("ROCM_PATH" if here.vendor == "amd" else "CUDA_HOME", "")
    return [*([f"{named.lstrip('/')}/bin"] if named else []), *folders]


def _list_libraries(here: Surroundings, library: str) -> Iterator[Path]:
    """Yields files whose names begin with `library`: in torch, in NVIDIA's wheels, in the system's ROCm or CUDA."""
    try:
        spec = importlib.util.find_spec("torch")
    except ValueError:
        spec = None
    for package in (Path(path) for path in (spec.submodule_search_locations or ())) if spec else ():
        yield from package.glob(f"lib/{library}*")
        yield from package.parent.glob(f"nvidia/*/lib/{library}*")
        yield from package.parent.glob(f"_rocm_sdk*/lib/{library}*")
    for folder in _list_tool_folders(here, DRIVER[here.vendor][1]):
        above = (here.system.root / folder).parent
        yield from (path for lib in ("lib", "lib64") for path in above.glob(f"{lib}/{library}*"))
