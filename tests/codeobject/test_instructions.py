from __future__ import annotations

import pytest

from pytest_attnperf.codeobject.instructions import CLASSES, SIZED, STORE_CLASSES, is_store, width_bytes, with_width


def test_no_class_is_named_twice() -> None:
    """Counts by class add up to the kernel's length only if every class stands once."""
    assert len(set(CLASSES)) == len(CLASSES)
    assert set(CLASSES) >= STORE_CLASSES


@pytest.mark.parametrize(
    "name",
    ["global_store_2B", "global_store", "global_store_tile", "image_store", "scalar_store", "global_atomic"],
)
def test_every_way_to_write_global_memory_is_a_store(name: str) -> None:
    """Stores of every width and kind, and atomics, carry a result out of a kernel."""
    assert is_store(name)


@pytest.mark.parametrize(
    "name", ["scratch_store", "lds_write_16B", "lds_atomic", "global_load_16B", "global_load_lds_16B", "cache", "other"]
)
def test_what_stays_inside_the_kernel_is_no_store(name: str) -> None:
    """A kernel whose only stores are spills or LDS writes has computed nothing that anybody could see."""
    assert name in CLASSES
    assert not is_store(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("global_load_1B", 1),
        ("global_load_lds_12B", 12),
        ("global_store_16B", 16),
        ("lds_read_32B", 32),
        ("lds_write_6B", 6),
        ("global_load", None),
        ("global_load_tile", None),
        ("global_atomic", None),
        ("matrix", None),
        ("global_load_5B", None),
    ],
)
def test_a_class_has_the_width_in_its_name(name: str, expected: int | None) -> None:
    """Only loads and stores of a known width per lane have one."""
    assert width_bytes(name) == expected


@pytest.mark.parametrize("kind", SIZED)
def test_an_unknown_width_keeps_its_kind(kind: str) -> None:
    """A width that no class has leaves the plain kind, which is a class itself: a store remains a store."""
    assert with_width(kind, 16) == f"{kind}_16B"
    assert with_width(kind, 5) == with_width(kind, None) == kind
    assert kind in CLASSES
