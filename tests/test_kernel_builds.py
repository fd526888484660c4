from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.errors import UnknownNameError, UsageError
from pytest_attnperf.kernel_builds import (
    HipSource,
    Kernel,
    KernelBuild,
    KernelRegistry,
    KernelSource,
    KeyTile,
    ObjectFile,
    Proof,
    TritonSource,
    with_settings,
)
from pytest_attnperf.workloads.softmax import Softmax

TRITON = TritonSource(
    module="kernels.triton.prefill.forward",
    function="prefill_forward_kernel",
    signature={"q_ptr": "*fp16"},
    constants={"BLOCK_M": 64, "CAUSAL": True, "SCALE": 0.5, "PRECISION": "ieee", "BIAS": None, "TILE": (16, 16)},
    options={"num_warps": 4, "waves_per_eu": 2},
)
HIP = HipSource(Path("softmax.hip"), "softmax", defines={"HEAD_DIM": "128", "VEC": "4"}, flags=("-ffast-math",))
OBJECT = ObjectFile(Path("vendor.hsaco"), "attention")


def build(
    config: str = "d128", arch: str = "gfx942", source: KernelSource = TRITON, kernel: str = "triton.prefill"
) -> KernelBuild:
    """One configuration."""
    return KernelBuild(kernel, config, arch, source, settings={"BLOCK_M": "64"})


@dataclass(frozen=True)
class Declared(Kernel):
    """A kernel with these configurations for every architecture that it supports."""

    name: str = "triton.prefill"
    backends: tuple[str, ...] = ("triton.flash",)
    configs: Sequence[str] = ("d64", "d128")
    refused: Sequence[str] = ()
    made: Callable[[KernelBuild], KernelBuild] = field(default=lambda one: one)

    def builds(self, arch: str) -> Sequence[KernelBuild]:
        """As declared; `made` changes each."""
        return [self.made(build(config, arch, kernel=self.name)) for config in self.configs]

    def unsupported_reasons(self, arch: str) -> list[str]:
        """A reason for each refused architecture."""
        return [f"no kernel for {arch}"] if arch in self.refused else []


def registry(*kernels: Kernel) -> KernelRegistry:
    """These kernels, registered."""
    made = KernelRegistry()
    made.add(*kernels)
    return made


def test_kernels_keep_the_order_they_came_in() -> None:
    """Iteration, and the builds of several, follow registration, not the alphabet."""
    kernels = registry(Declared("b.second"), Declared("a.first", configs=("only",)))
    assert [kernel.name for kernel in kernels] == ["b.second", "a.first"]
    assert len(kernels) == 2
    assert isinstance(kernels.get("a.first"), Kernel)
    assert [one.id for one in kernels.list_builds(["gfx942", "gfx1100"])] == [
        "b.second-d64-gfx942",
        "b.second-d128-gfx942",
        "b.second-d64-gfx1100",
        "b.second-d128-gfx1100",
        "a.first-only-gfx942",
        "a.first-only-gfx1100",
    ]


def test_only_named_kernels_are_built() -> None:
    """Names choose, in their own order, and naming a kernel or an architecture twice builds it once."""
    kernels = registry(Declared("a"), Declared("b", configs=("x",)), Declared("c", configs=("y",)))
    assert [one.id for one in kernels.list_builds(["gfx942", "gfx942"], ["c", "b", "c"])] == [
        "c-y-gfx942",
        "b-x-gfx942",
    ]
    assert kernels.list_builds(["gfx942"], []) == []
    assert kernels.list_builds([]) == []


def test_an_iterator_of_architectures_serves_every_kernel() -> None:
    """Architectures that can be gone through once only are not used up by the first kernel."""
    kernels = registry(Declared("a", configs=("x",)), Declared("b", configs=("x",)))
    assert [one.id for one in kernels.list_builds(iter(["gfx942"]))] == ["a-x-gfx942", "b-x-gfx942"]


def test_a_kernel_is_left_out_where_it_says_so() -> None:
    """An architecture that a kernel gives a reason against is not built, and the others are."""
    kernels = registry(Declared(refused=("gfx1100",), configs=("d64",)))
    assert [one.arch for one in kernels.list_builds(["gfx942", "gfx1100", "gfx950"])] == ["gfx942", "gfx950"]


@pytest.mark.parametrize("name", ["", "triton-prefill", "a b", ".a", "a.", "a..b", "a/b", "naïve", "a\n", "[a]"])
def test_a_malformed_name_is_refused(name: str) -> None:
    """A name that a test id could not be taken apart with again is named, with what is allowed."""
    with pytest.raises(UsageError, match=r"is malformed: use letters, digits, '_' and '\.', no hyphen") as caught:
        registry(Declared(name))
    assert repr(name) in str(caught.value)


class Undeclared(Kernel):
    """Says of nothing what it is compiled as."""


class Lookalike:
    """Has what a kernel has, and is none."""

    name, backends = "a", ("b",)


@pytest.mark.parametrize(
    ("kernel", "lacks"),
    [
        (Undeclared("a", ()), r"Undeclared has no builds\(self, arch\): define one that returns every KernelBuild"),
        (Lookalike(), r"Lookalike is not a Kernel: derive it from pytest_attnperf\.kernel_builds\.Kernel"),
    ],
)
def test_what_a_kernel_lacks_is_said_with_the_place_of_its_class(kernel: Any, lacks: str) -> None:
    """File and line of the class, and what to write there."""
    with pytest.raises(UsageError, match=rf"test_kernel_builds\.py:\d+: class {lacks}"):
        registry(kernel)


def test_a_name_is_registered_once() -> None:
    """A second kernel of one name is refused, and the first stays."""
    first = Declared()
    kernels = registry(first)
    with pytest.raises(UsageError, match=r"kernel 'triton\.prefill' is registered twice"):
        kernels.add(Declared())
    assert list(kernels) == [first]


def test_an_unknown_name_lists_what_there_is() -> None:
    """The error says what was asked for and what is registered, also where that is nothing."""
    with pytest.raises(UnknownNameError, match=r"unknown kernel 'hip\.x'; known: a, b"):
        registry(Declared("b"), Declared("a")).list_builds(["gfx942"], ["hip.x"])
    with pytest.raises(UnknownNameError, match="unknown kernel 'a'; known: none are registered"):
        KernelRegistry().get("a")


@pytest.mark.parametrize("config", ["", "d128/f16", "d 128", "d128[f16]", "größe", "d128\n", "a::b", "a,b"])
def test_a_malformed_configuration_is_refused(config: str) -> None:
    """A configuration that cannot stand in a test id or a baseline's key is named with its kernel."""
    with pytest.raises(UsageError, match=r"triton\.prefill for gfx942 has a configuration '.*'; use letters, digits"):
        registry(Declared(configs=(config,))).list_builds(["gfx942"])


@pytest.mark.parametrize("config", ["d128", "D.128_f16+lse-causal", "-", "64x32"])
def test_what_a_configuration_may_hold(config: str) -> None:
    """Letters, digits and '_.+-' pass; kernel and architecture can be told from it, having no hyphen."""
    [made] = registry(Declared(configs=(config,))).list_builds(["gfx942"])
    kernel, _, rest = made.id.partition("-")
    assert (kernel, *rest.rpartition("-")[::2]) == ("triton.prefill", config, "gfx942")


def test_a_configuration_is_there_once() -> None:
    """Two builds of one id would be held against one entry: refused, naming both."""
    with pytest.raises(UsageError, match=r"triton\.prefill for gfx950 has two configurations 'd64'"):
        registry(Declared(configs=("d64", "d128", "d64"), refused=("gfx942",))).list_builds(["gfx942", "gfx950"])


@pytest.mark.parametrize("changes", [{"kernel": "triton.other"}, {"kernel": "not a name"}, {"arch": "gfx1100"}])
def test_a_build_is_its_kernels_own(changes: dict[str, str]) -> None:
    """A build under another's name, or for an architecture that nobody asked for, would be held against the wrong
    entry: refused."""
    kernels = registry(Declared(made=lambda one: replace(one, **changes)))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"of kernel 'triton.prefill' returned a build of ") as caught:
        kernels.list_builds(["gfx942"])
    assert all(value in str(caught.value) for value in changes.values())


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("BLOCK_M", "128", 128),
        ("BLOCK_M", "-1", -1),
        ("CAUSAL", "False", False),
        ("CAUSAL", "True", True),
        ("SCALE", "1", 1.0),
        ("SCALE", "1e-3", 0.001),
        ("PRECISION", "tf32", "tf32"),
        ("PRECISION", "64", "64"),
    ],
)
def test_a_triton_constant_is_read_as_the_old_ones_type(name: str, text: str, value: object) -> None:
    """A text becomes a number where a number stood; every other constant, option and field stays as it was."""
    old = build()
    new = with_settings(old, {name: text})
    assert isinstance(new.source, TritonSource)
    assert new.source.constants == {**TRITON.constants, name: value}
    assert type(new.source.constants[name]) is type(value)
    assert replace(new.source, constants=TRITON.constants) == TRITON
    assert new.settings == {"BLOCK_M": "64", name: text}
    assert new.where == "--attnperf-code-set"
    assert replace(new, source=TRITON, settings=old.settings, where=old.where) == old
    assert old == build()


def test_constants_and_options_are_changed_together() -> None:
    """One call reaches constants and compiler options, and what a reader is shown follows."""
    new = with_settings(build(), {"BLOCK_M": "128", "num_warps": "8"})
    assert isinstance(new.source, TritonSource)
    assert new.source.constants["BLOCK_M"] == 128
    assert new.source.options == {"num_warps": 8, "waves_per_eu": 2}
    assert new.settings == {"BLOCK_M": "128", "num_warps": "8"}
    assert new.id == build().id


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("BLOCK_M", "wide", "BLOCK_M='wide' must be a number, as 64 is"),
        ("BLOCK_M", "64.5", "BLOCK_M='64.5' must be a number, as 64 is"),
        ("BLOCK_M", "", "BLOCK_M='' must be a number"),
        ("num_warps", "True", "num_warps='True' must be a number, as 4 is"),
        ("SCALE", "half", "SCALE='half' must be a number, as 0.5 is"),
        ("CAUSAL", "1", "CAUSAL='1' must be True or False"),
        ("CAUSAL", "true", "CAUSAL='true' must be True or False"),
        ("BIAS", "4", "BIAS is None, which cannot be set; only texts, numbers, True and False can"),
        ("TILE", "(32, 32)", r"TILE is \(16, 16\), which cannot be set"),
    ],
)
def test_a_value_of_another_type_is_refused(name: str, text: str, said: str) -> None:
    """What is none of the old value's type is named with what stood there, and never compiled as something else."""
    with pytest.raises(UsageError, match=said):
        with_settings(build(), {name: text})


def test_macros_of_a_hip_kernel_stay_text() -> None:
    """A macro is text for the compiler whatever it looks like; the flags stay."""
    new = with_settings(build(source=HIP), {"HEAD_DIM": "64"})
    assert new.source == replace(HIP, defines={"HEAD_DIM": "64", "VEC": "4"})
    assert new.settings == {"BLOCK_M": "64", "HEAD_DIM": "64"}


def test_proofs_follow_a_changed_setting() -> None:
    """The configuration that a proof pins changes with the build, under the kernel's own name, too; others stay."""
    pinned = {"BLOCK_M": "64", "prefill.BLOCK_M": "64", "config_arch": "gfx942"}
    old = replace(build(), proofs=(Proof("triton.flash", Softmax(2, 8), pinned),))
    (proof,) = with_settings(old, {"BLOCK_M": "128"}).proofs
    assert proof.config == {"BLOCK_M": "128", "prefill.BLOCK_M": "128", "config_arch": "gfx942"}
    assert (proof.backend, proof.workload) == ("triton.flash", Softmax(2, 8))


def test_an_unknown_setting_lists_what_there_is() -> None:
    """A name that the build does not have is no new constant: refused, with what it has."""
    with pytest.raises(UsageError, match=r"triton\.prefill-d128-gfx942 has no setting BLOCK_X, flags; it has BIAS, B"):
        with_settings(build(), {"BLOCK_X": "1", "BLOCK_M": "64", "flags": "-O1"})
    with pytest.raises(UsageError, match="has no setting flags; it has HEAD_DIM, VEC"):
        with_settings(build(source=HIP), {"flags": "-O1"})
    with pytest.raises(UsageError, match="has no setting N; it has none"):
        with_settings(build(source=replace(HIP, defines={})), {"N": "1"})


def test_an_object_file_is_what_it_is() -> None:
    """What is compiled already has no setting that could be changed."""
    with pytest.raises(UsageError, match=r"triton\.prefill-d128-gfx942 is compiled already: its settings cannot"):
        with_settings(build(source=OBJECT), {"BLOCK_M": "64"})


def test_a_tile_is_read_from_what_the_source_is_compiled_with() -> None:
    """Constants, options and macros, also after a change; what is missing is a KeyError."""
    rows_of_waves = KeyTile(512, 512, ("BLOCK_M", "num_warps"), 16, "waves_per_eu")
    assert rows_of_waves.read_sizes(TRITON) == (64 * 4 * 16, 2)
    changed = with_settings(build(), {"BLOCK_M": "128"})
    assert rows_of_waves.read_sizes(changed.source) == (128 * 4 * 16, 2)
    assert KeyTile(512, 512, ("HEAD_DIM",), keys="VEC").read_sizes(HIP) == (128, 4)
    with pytest.raises(KeyError, match="BLOCK_N"):
        KeyTile(512, 512, ("HEAD_DIM",)).read_sizes(HIP)
