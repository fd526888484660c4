"""What differs between two environments, in groups of distributions that have to be swapped together."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pytest_attnperf.workers.environments.installed import InstalledPackage, Inventory

REST = "rest"
"""Name of the component that holds the interpreter and everything that cannot be swapped by links."""


@dataclass(frozen=True)
class KnownComponent:
    """Distributions that are known to belong together.

    patterns   of their names
    is_alone   whether it is swapped without those that require one exact version of it
    why        where that is known from
    """

    name: str
    patterns: tuple[str, ...]
    why: str
    is_alone: bool = False


KNOWN = (
    KnownComponent(
        "torch",
        (
            "torch",
            *(f"nvidia-{part}*" for part in ("cublas", "cuda-", "cudnn", "cufft", "cufile", "curand", "cusolver")),
            *(f"nvidia-{part}*" for part in ("cusparse", "nccl", "nvjitlink", "nvshmem", "nvtx")),
            "rocm-sdk-*",
        ),
        "torch's libraries find these beside their own file (RPATH $ORIGIN/../../nvidia), not by the import path",
    ),
    KnownComponent(
        "triton",
        ("triton", "pytorch-triton", "pytorch-triton-rocm", "triton-rocm"),
        "torch requires one version, but imports it only when it compiles, and others are exchanged by hand",
        is_alone=True,
    ),
    KnownComponent("aiter", ("aiter", "amd-aiter"), "one package under two names"),
)

NEVER_SWAPPED = frozenset({"pytest-attnperf"})
"""Both sides run the harness of this command."""

SHARED_BY_MISTAKE = frozenset({"test", "tests", "doc", "docs", "examples", "benchmarks", "scripts", "tools"})
"""Folders that unrelated distributions leave beside their packages; they do not belong together because of them."""


@dataclass(frozen=True)
class Component:
    """A group of distributions of which at least one differs.

    name      its most important distribution that differs
    old, new  its distributions in the two environments, by name
    fixed     why it cannot be swapped by links, a sentence; '' if it can
    """

    name: str
    old: Mapping[str, InstalledPackage]
    new: Mapping[str, InstalledPackage]
    fixed: str = ""

    @property
    def changed(self) -> tuple[str, ...]:
        """Names of its distributions that differ, its own name first."""
        names = sorted(self.old.keys() | self.new.keys(), key=lambda name: (name != self.name, name))
        return tuple(name for name in names if not _is_equal(self.old.get(name), self.new.get(name)))

    @property
    def modules(self) -> frozenset[str]:
        """Names of all modules that it brings to one of the environments."""
        packages = (*self.old.values(), *self.new.values())
        return frozenset(module for package in packages for module in package.modules)

    def is_used(self, imported: frozenset[str]) -> bool:
        """Returns whether a process that has imported these modules used it. Programs that packages bring (ninja) are
        found beside the interpreter, so that they belong to REST."""
        return bool(self.modules & imported)


def list_components(old: Inventory, new: Inventory) -> list[Component]:
    """Returns the components that differ, known ones first, then compiled ones, then by name."""
    names = (old.packages.keys() | new.packages.keys()) - NEVER_SWAPPED
    found = []
    for group in _join_names(names, old, new):
        ours = {name: old.packages[name] for name in group if name in old.packages}
        theirs = {name: new.packages[name] for name in group if name in new.packages}
        differing = [name for name in group if not _is_equal(ours.get(name), theirs.get(name))]
        if differing:
            name = min(differing, key=lambda one: (_rank(one), one))
            found.append(Component(name, ours, theirs, _why_fixed(ours, theirs, old, new)))
    return sorted(found, key=lambda one: (_rank(one.name), not _is_compiled(one), one.name))


def _join_names(names: Iterable[str], old: Inventory, new: Inventory) -> list[list[str]]:
    """Returns groups of names: joined by the table, by an exact requirement, or by a shared package."""
    group_of = {name: {name} for name in names}

    def join(one: str, other: str) -> None:
        if one in group_of and other in group_of and group_of[one] is not group_of[other]:
            group_of[one] |= group_of[other]
            for name in group_of[other]:
                group_of[name] = group_of[one]

    owners: dict[str, str] = {}
    firsts: dict[str, str] = {}
    for installed in (old, new):
        for name, package in installed.packages.items():
            known = _find_known(name)
            if known is not None:
                join(firsts.setdefault(known.name, name), name)
            for other in package.exact:
                if not any(entry is not None and entry.is_alone for entry in (known, _find_known(other))):
                    join(name, other)
            for entry in set(package.entries) - SHARED_BY_MISTAKE:
                join(owners.setdefault(entry, name), name)
    unique = {id(group): group for group in group_of.values()}
    return [sorted(group) for group in unique.values()]


def _why_fixed(
    ours: Mapping[str, InstalledPackage], theirs: Mapping[str, InstalledPackage], old: Inventory, new: Inventory
) -> str:
    packages = (*ours.values(), *theirs.values())
    if old.tag != new.tag and (compiled := [one.name for one in packages if one.is_compiled]):
        return f"{compiled[0]} is compiled for one Python only"
    if lacking := [one.name for one in packages if not one.is_whole]:
        return f"{lacking[0]} is an editable install, or its files are not listed"
    alone = {**ours, **theirs} if not (ours and theirs) else {}
    for name in alone:
        side, installed = ("old", old) if name in ours else ("new", new)
        if not installed.is_added(installed.packages[name]):
            return f"{name} is only in the {side} environment, and links cannot hide it"
    return ""


def _is_equal(one: InstalledPackage | None, other: InstalledPackage | None) -> bool:
    return one is not None and one.is_same(other)


def _is_compiled(component: Component) -> bool:
    return any(one.is_compiled for one in (*component.old.values(), *component.new.values()))


def _find_known(name: str) -> KnownComponent | None:
    return next((one for one in KNOWN if any(fnmatch.fnmatchcase(name, pattern) for pattern in one.patterns)), None)


def _rank(name: str) -> tuple[int, int]:
    """Returns the place of a name in the table: of its component, and of its pattern there; last for all others."""
    known = _find_known(name)
    if known is None:
        return len(KNOWN), 0
    return KNOWN.index(known), [fnmatch.fnmatchcase(name, pattern) for pattern in known.patterns].index(True)
