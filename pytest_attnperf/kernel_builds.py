"""Declarations of kernels, so that they can be compiled without a GPU, and the registry of kernels.

Declarations are data: `kernels/` must be importable, and a suite collectable, where neither Triton nor a compiler is
installed. A compile worker makes code objects of them.
"""

from __future__ import annotations

import abc
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pytest_attnperf.errors import UnknownNameError, UsageError
from pytest_attnperf.records.listing import find_class_place

if TYPE_CHECKING:
    from pytest_attnperf.workloads.base import Workload

DEFAULT_ARCHS = ("gfx942",)
"""Architectures compiled for by default (an AMD GPU that is present adds its own)."""

ALL_ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1151", "gfx1201")
"""Architectures of `--attnperf-arch=all`."""

_NAME = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")
_CONFIG = re.compile(r"[A-Za-z0-9_.+-]+")


@dataclass(frozen=True)
class TritonSource:
    """A `@triton.jit` function and how it is specialised.

    module, function   where it is imported from, by the compile worker only
    signature          type of every argument that is not a constant: '*fp16', 'i32', 'fp32', as Triton writes them
    constants          value of every `tl.constexpr` argument
    divisible_by_16    arguments (pointers, integers) that are divisible by 16 when Triton launches it
    options            the compiler's: num_warps, num_stages, waves_per_eu ...
    """

    module: str
    function: str
    signature: Mapping[str, str]
    constants: Mapping[str, object]
    divisible_by_16: Sequence[str] = ()
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class HipSource:
    """A kernel in a HIP file, compiled without headers and device libraries by clang.

    path            the file
    kernel          name of the `extern "C" __global__` function
    defines         macros, e.g. {'HEAD_DIM': '128'}
    flags           further flags of the compiler
    threads         lanes of a workgroup as launched
    dynamic_lds_bytes   LDS that the launch adds
    """

    path: Path
    kernel: str
    defines: Mapping[str, str] = field(default_factory=dict)
    flags: Sequence[str] = ()
    threads: int = 0
    dynamic_lds_bytes: int = 0


@dataclass(frozen=True)
class ObjectFile:
    """A kernel of a code object that exists already: .hsaco, .co, .o, .cubin or an offload bundle.

    compiler   that made it, where that is known
    """

    path: Path
    kernel: str = ""
    threads: int = 0
    dynamic_lds_bytes: int = 0
    compiler: str = ""


KernelSource: TypeAlias = TritonSource | HipSource | ObjectFile


@dataclass(frozen=True)
class KeyTile:
    """What a tile of an attention kernel's key loop needs, so that an estimate counts each product once.

    flops      operations of a query row and a key: 2 (D + Dv)
    key_bytes  of a key of K and V, which a workgroup loads once
    rows       constants or macros whose product is the query rows of a workgroup, in units of `row_unit`
    keys       the constant or macro that is the keys of a tile
    """

    flops: int
    key_bytes: int
    rows: tuple[str, ...] = ("BLOCK_M",)
    row_unit: int = 1
    keys: str = "BLOCK_N"

    def read_sizes(self, source: KernelSource) -> tuple[int, int]:
        """Returns (query rows of a workgroup, keys of a tile) of a source. Raises KeyError for a setting it lacks."""
        known = {name: value for values in _source_settings(source) for name, value in values.items()}
        rows = math.prod(int(str(known[name])) for name in self.rows)
        return rows * self.row_unit, int(str(known[self.keys]))


@dataclass(frozen=True)
class Proof:
    """A small problem on which a build's machine code is executed and judged, without a GPU.

    backend    name of a backend whose call on the workload launches the build
    workload   the problem: ragged lengths, grouped heads, whatever the build's specialisation takes
    config     entries of a `Prepared.config` by which the backend chooses the build's configuration for this problem,
               see `Pinnable.replay_config`; empty where it has no choice
    """

    backend: str
    workload: Workload
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class KernelBuild:
    """One kernel in one shipped configuration, for one architecture.

    kernel     registered name of the kernel, e.g. 'triton.prefill_forward'
    config     id of the configuration: letters, digits and '_.+-', unique within kernel and arch
    arch       'gfx942'
    source     what is compiled
    settings   the configuration as shown to readers, e.g. {'BLOCK_M': '64'}; reports name differences
    matrix     whether it promises matrix instructions (MFMA, WMMA, HMMA, HGMMA) in its machine code
    where      file of the configuration, named in messages
    tile       of its key loop, for attention whose loop loads K and V only
    proofs     of `--attnperf-execute`
    """

    kernel: str
    config: str
    arch: str
    source: KernelSource
    settings: Mapping[str, str] = field(default_factory=dict)
    matrix: bool = False
    where: str = ""
    tile: KeyTile | None = None
    proofs: tuple[Proof, ...] = ()

    @property
    def id(self) -> str:
        """Id of the build's test item: KERNEL-CONFIG-ARCH."""
        return f"{self.kernel}-{self.config}-{self.arch}"


@dataclass(frozen=True)
class Kernel(abc.ABC):
    """Base class of kernels that can be compiled in their shipped configurations: a subclass defines `builds`.

    name       e.g. 'triton.prefill_forward'
    backends   names of the backends that launch it: `--attnperf-backend` selects by them
    """

    name: str
    backends: tuple[str, ...]

    def builds(self, arch: str) -> Sequence[KernelBuild]:
        """Returns a build per shipped configuration for `arch`, the same on every machine. Imports no compiler."""
        raise NotImplementedError(f"{type(self).__name__} has no builds()")

    def unsupported_reasons(self, arch: str) -> list[str]:
        """Returns why the kernel is not built for `arch`; [] where it is. Need not list what the compiler rejects."""
        return []


class KernelRegistry:
    """Kernels by name, in the order they were registered; filled through `pytest_attnperf_register_kernels`."""

    def __init__(self) -> None:
        self._kernels: dict[str, Kernel] = {}

    def add(self, *kernels: Kernel) -> None:
        """Registers kernels. Raises UsageError for one without `builds`, or with a malformed or duplicate name."""
        for kernel in kernels:
            _require_complete(kernel)
            if not _NAME.fullmatch(kernel.name):
                raise UsageError(
                    f"kernel name {kernel.name!r} is malformed: use letters, digits, '_' and '.', no hyphen "
                    "(a test id joins kernel, configuration and architecture by hyphens), e.g. 'triton.prefill_forward'"
                )
            if kernel.name in self._kernels:
                raise UsageError(f"kernel {kernel.name!r} is registered twice; rename or remove one")
            self._kernels[kernel.name] = kernel

    def get(self, name: str) -> Kernel:
        """Returns the kernel registered as `name`. Raises UnknownNameError listing the registered names."""
        if name not in self._kernels:
            raise UnknownNameError("kernel", name, self._kernels)
        return self._kernels[name]

    def list_builds(self, archs: Iterable[str], names: Iterable[str] | None = None) -> list[KernelBuild]:
        """Returns the builds of registered kernels for these architectures; `names` restricts it to some kernels.

        Leaves out unsupported architectures. Raises UsageError if `builds` of a kernel returns two builds of one id, a
        malformed configuration name, or a build of another kernel or architecture.
        """
        chosen = [self.get(name) for name in dict.fromkeys(names)] if names is not None else list(self)
        wanted = tuple(dict.fromkeys(archs))
        found: dict[str, KernelBuild] = {}
        for kernel in chosen:
            for arch in wanted:
                for build in kernel.builds(arch) if not kernel.unsupported_reasons(arch) else ():
                    if (build.kernel, build.arch) != (kernel.name, arch):
                        raise UsageError(
                            f"builds({arch!r}) of kernel {kernel.name!r} returned a build of {build.kernel!r} for "
                            f"{build.arch}; give its builds its own name, and the requested architecture"
                        )
                    if not _CONFIG.fullmatch(build.config):
                        raise UsageError(
                            f"{build.kernel} for {arch} has a configuration {build.config!r}; "
                            "use letters, digits and '_.+-'"
                        )
                    if build.id in found:
                        raise UsageError(
                            f"{build.kernel} for {arch} has two configurations {build.config!r}; rename one"
                        )
                    found[build.id] = build
        return list(found.values())

    def __iter__(self) -> Iterator[Kernel]:
        return iter(self._kernels.values())

    def __len__(self) -> int:
        return len(self._kernels)


def _require_complete(kernel: object) -> None:
    """Raises UsageError if `kernel` is no Kernel or has no `builds`, naming class, file, line and what is missing."""
    lacks = ""
    if not isinstance(kernel, Kernel):
        lacks = "is not a Kernel: derive it from pytest_attnperf.kernel_builds.Kernel"
    elif type(kernel).builds is Kernel.builds:
        lacks = "has no builds(self, arch): define one that returns every KernelBuild for an architecture"
    if lacks:
        raise UsageError(f"{find_class_place(type(kernel))}: class {type(kernel).__name__} {lacks}")


def changeable_settings(build: KernelBuild) -> frozenset[str]:
    """Returns the names of constants, options or macros that `with_settings` can change; none for an object file."""
    return frozenset(name for values in _source_settings(build.source) for name in values)


def with_settings(build: KernelBuild, changes: Mapping[str, str]) -> KernelBuild:
    """Returns the build with the constants, options or macros in `changes`, by name; values get the types of the old
    ones.

    Its `where` (the origin of its settings in messages) becomes --attnperf-code-set. Raises UsageError for an unknown
    name, a value that is not of its type, and an object file.
    """
    source = build.source
    if isinstance(source, ObjectFile):
        raise UsageError(
            f"{build.id} is compiled already: its settings cannot be changed; set them where it is compiled"
        )
    held, known = _source_settings(source), changeable_settings(build)
    unknown = sorted(changes.keys() - known)
    if unknown:
        raise UsageError(f"{build.id} has no setting {', '.join(unknown)}; it has {', '.join(sorted(known)) or 'none'}")
    changed = [
        {name: _convert_like(changes[name], old, name) if name in changes else old for name, old in values.items()}
        for values in held
    ]
    if isinstance(source, TritonSource):
        source = replace(source, constants=changed[0], options=changed[1])
    else:
        source = replace(source, defines={name: str(value) for name, value in changed[0].items()})
    proofs = tuple(replace(proof, config=_change_entries(proof.config, changes)) for proof in build.proofs)
    settings = {**build.settings, **changes}
    return replace(build, source=source, settings=settings, where="--attnperf-code-set", proofs=proofs)


def _change_entries(config: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """Returns the entries of a `Prepared.config` with `changes`, whose names may stand after the kernel's and a dot."""
    return {name: changes.get(name.rpartition(".")[2], text) for name, text in config.items()}


def _source_settings(source: KernelSource) -> tuple[Mapping[str, object], ...]:
    """Returns a source's settings by name: (constants, options) of Triton, (macros,) of HIP, () of an object file."""
    if isinstance(source, TritonSource):
        return source.constants, source.options
    return (source.defines,) if isinstance(source, HipSource) else ()


def _convert_like(text: str, old: object, name: str) -> object:
    """Returns `text` converted to the type of `old`. Raises UsageError naming the setting if that is not possible."""
    if isinstance(old, bool):
        if text in ("True", "False"):
            return text == "True"
        raise UsageError(f"{name}={text!r} must be True or False")
    if isinstance(old, str):
        return text
    if not isinstance(old, (int, float)):
        raise UsageError(f"{name} is {old!r}, which cannot be set; only texts, numbers, True and False can")
    try:
        return type(old)(text)
    except ValueError:
        raise UsageError(f"{name}={text!r} must be a number, as {old!r} is") from None
