from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_attnperf.errors import UnsupportedError, UsageError
from pytest_attnperf.problems.trace_inputs import InputMaker, draw_tensor, find_dtype
from pytest_attnperf.problems.trace_schema import TraceDefinition, TraceLine, read_record
from tests.problems_folder import PRODUCT, SCALED, make_workload

save_file: Any = pytest.importorskip("safetensors.torch").save_file
FILE = {"type": "safetensors", "path": "blob/x.safetensors", "tensor_key": "b"}


def make(root: Path, *, definition: dict[str, Any] = PRODUCT, **changed: Any) -> dict[str, Any]:
    """The inputs of `product` for seed 1, with fields of the workload changed."""
    return maker(root, definition=definition, **changed).make(1, "cpu")


def maker(root: Path, *, definition: dict[str, Any] = PRODUCT, **changed: Any) -> InputMaker:
    """What makes them."""
    line = read_record(json.dumps(make_workload(**changed)).encode(), TraceLine, "w")
    return InputMaker(read_record(json.dumps(definition).encode(), TraceDefinition, "d"), line.workload, root)


def store(root: Path, **tensors: torch.Tensor) -> Path:
    """Writes a safetensors file where FILE says."""
    (root / "blob").mkdir(exist_ok=True)
    save_file(tensors, root / "blob" / "x.safetensors")
    return root / "blob" / "x.safetensors"


def test_random_inputs_follow_from_the_seed(tmp_path: Path) -> None:
    """Numbers do not: they are part of the problem."""
    one = maker(tmp_path, inputs={})
    first, again, other = one.make(1, "cpu"), one.make(1, "cpu"), one.make(2, "cpu")
    assert list(first) == ["a", "b", "alpha"]
    assert torch.equal(first["a"], again["a"])
    assert not torch.equal(first["a"], other["a"])
    assert first["alpha"] == other["alpha"]
    assert first["a"].shape == (5, 16)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "int8", "uint8", "int32", "int64", "bool"])
def test_every_dtype_is_drawn(dtype: str) -> None:
    """As FlashInfer-Bench draws them: 8-bit floats within 2, integers of both signs."""
    drawn = draw_tensor((64, 64), dtype, "cpu", torch.Generator().manual_seed(0))
    assert str(drawn.dtype) == f"torch.{dtype}"
    assert len(drawn.float().unique()) > 1
    assert float(drawn.float().abs().max()) <= (2 if dtype.startswith("float8") else 1024)


def test_a_dtype_that_torch_cannot_fill_is_unsupported() -> None:
    """4-bit floats are packed by two, and no operator reads them."""
    with pytest.raises(UnsupportedError, match="float4_e2m1 tensors can neither be drawn nor compared"):
        find_dtype("float4_e2m1")


def test_tensors_come_from_files(tmp_path: Path) -> None:
    """Of the shape and dtype of the definition, and unchanged where other inputs are random."""
    stored = torch.randn(8, 16)
    store(tmp_path, b=stored)
    assert torch.equal(make(tmp_path, inputs={"b": FILE, **SCALED})["b"], stored)


def test_a_problem_whose_tensors_are_all_stored_still_varies(tmp_path: Path) -> None:
    """Elements keep their size and get a sign by the seed, so that an old result does not pass."""
    stored = torch.randn(8, 16)
    store(tmp_path, b=stored, a=torch.randn(5, 16))
    one = maker(tmp_path, inputs={"b": FILE, "a": {**FILE, "tensor_key": "a"}, **SCALED})
    first, other = one.make(1, "cpu")["b"], one.make(2, "cpu")["b"]
    assert torch.equal(first.abs(), stored.abs())
    assert not torch.equal(first, other)


def test_a_file_that_does_not_fit_says_why(tmp_path: Path) -> None:
    """Missing, a pointer of Git LFS, cut, without the tensor, and of another shape or dtype."""
    inputs = {"b": FILE, **SCALED}
    with pytest.raises(UsageError, match=r"input 'b': .*x\.safetensors does not exist"):
        make(tmp_path, inputs=inputs)
    path = store(tmp_path, c=torch.zeros(1))
    with pytest.raises(UsageError, match="holds no tensor 'b'; it holds c"):
        make(tmp_path, inputs=inputs)
    store(tmp_path, b=torch.zeros(9, 16))
    with pytest.raises(UsageError, match=r"'b' has the shape \[9, 16\]; it must have \[8, 16\]"):
        make(tmp_path, inputs=inputs)
    store(tmp_path, b=torch.zeros(8, 16, dtype=torch.float16))
    with pytest.raises(
        UsageError, match=r"input 'b' of workload 'w1' is float16 \[8, 16\]; the definition has float32"
    ):
        make(tmp_path, inputs=inputs)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(UsageError, match=r"is no readable safetensors file"):
        make(tmp_path, inputs=inputs)
    path.write_bytes(b"\xff" * 8 + b"{")  # a header of 2^64 bytes
    with pytest.raises(UsageError, match=r"is no readable safetensors file"):
        make(tmp_path, inputs=inputs)
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(UsageError, match="is a pointer of Git LFS; get its content: git lfs pull"):
        make(tmp_path, inputs=inputs)


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    """A published folder may hold links, too."""
    store(tmp_path, b=torch.randn(8, 16))
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "blob").symlink_to(tmp_path / "blob")
    with pytest.raises(UsageError, match="of input 'b' is outside of"):
        make(inner, inputs={"b": FILE, **SCALED})


def test_without_the_package_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """safetensors is an extra."""
    store(tmp_path, b=torch.randn(8, 16))
    monkeypatch.setitem(__import__("sys").modules, "safetensors", None)
    with pytest.raises(UsageError, match=r"pip install 'pytest-attnperf\[problems\]'"):
        make(tmp_path, inputs={"b": FILE, **SCALED})


@pytest.mark.parametrize(
    ("constraint", "said"),
    [
        ("M == K", r"violates the constraint 'M == K' \(M = 5, K = 16\)"),
        ("a.shape[0] > 99", "violates the constraint"),
        ("nothing > 0", "cannot be evaluated .*'nothing' is not defined"),
        ("open('/etc/passwd')", "cannot be evaluated .*'open' is not defined"),
    ],
)
def test_a_constraint_that_does_not_hold_is_named(tmp_path: Path, constraint: str, said: str) -> None:
    """With the sizes that it names."""
    with pytest.raises(UsageError, match=said):
        make(tmp_path, definition={**PRODUCT, "constraints": [constraint]})


def test_the_definitions_own_function_makes_inputs(tmp_path: Path) -> None:
    """As in SOL-ExecBench: by sizes and scalars; what it leaves out, or makes in another shape, is named."""
    definition = {**PRODUCT, "custom_inputs_entrypoint": "draw"}
    custom = {name: {"type": "custom"} for name in ("a", "b")}
    one = maker(tmp_path, definition=definition, inputs={**custom, **SCALED})
    one.custom = lambda known, device: {name: torch.randn(known[x], known["K"]) for name, x in (("a", "M"), ("b", "N"))}
    assert not torch.equal(one.make(1, "cpu")["a"], one.make(2, "cpu")["a"])
    one.custom = lambda known, device: {"a": torch.randn(known["M"], 16)}
    with pytest.raises(UsageError, match="draw made no input 'b'; it made"):
        one.make(1, "cpu")
    one.custom = lambda known, device: [1]
    with pytest.raises(UsageError, match="draw returned list, not a dict"):
        one.make(1, "cpu")
