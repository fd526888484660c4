from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.codeobject.triton_function import reachable_functions, source_class, specialise_arguments
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.kernel_builds import TritonSource

ALIGNED = [["tt.divisibility", 16]]
SMALL = [["tt.pointer_range", 32]]


def attributes(marks: str) -> list[list[Any]]:
    """What a backend makes of marks."""
    return ALIGNED * ("D" in marks) + SMALL * ("S" in marks)


def alignment(tensor: Any, asked: dict[str, Any]) -> str:
    """The mark of an aligned tensor, where alignment is asked for."""
    return "D" * (tensor.data_ptr() % 16 == 0 and asked["align"])


def plain() -> Any:
    """A backend that is told of alignment only."""

    class Backend:
        parse_attr = staticmethod(attributes)

        @staticmethod
        def get_tensor_specialization(tensor: Any, **asked: bool) -> str:
            return alignment(tensor, asked)

    return Backend()


def with_buffers() -> Any:
    """A backend, derived from another, that is told of small tensors, too, and would ask torch for their size."""

    class Backend:
        parse_attr = staticmethod(attributes)

        @staticmethod
        def is_within_2gb(_tensor: Any) -> bool:
            raise ImportError("torch")

        @staticmethod
        def get_tensor_specialization(tensor: Any, **asked: bool) -> str:
            return alignment(tensor, asked) + "S" * Backend.is_within_2gb(tensor)

    return type("Derived", (Backend,), {})()


def up_to_35(buffers: bool) -> Any:
    """A backend as up to Triton 3.5, whose buffer instructions an environment variable turns on."""

    class Backend:
        parse_attr = staticmethod(attributes)

        @staticmethod
        def is_within_2gb(_tensor: Any) -> bool:
            raise ImportError("torch")

        @staticmethod
        def get_arg_specialization(tensor: Any, kind: str, **asked: bool) -> str:
            return alignment(tensor, asked) + "S" * (buffers and kind == "tensor" and Backend.is_within_2gb(tensor))

    return Backend()


def methods(backend: Any) -> list[dict[str, Any]]:
    """Everything that the backend's classes define."""
    return [dict(vars(owner)) for owner in type(backend).__mro__]


def parameter(name: str, **more: Any) -> SimpleNamespace:
    """A parameter of a jit function."""
    plain = {"do_not_specialize": False, "do_not_specialize_on_alignment": False, "has_default": False, "default": None}
    return SimpleNamespace(name=name, **{**plain, **more})


FUNCTION = SimpleNamespace(
    arg_names=["x_ptr", "n", "scale", "BLOCK", "MASKED"],
    params=[*map(parameter, ("x_ptr", "n", "scale", "BLOCK")), parameter("MASKED", has_default=True, default=True)],
)


def source(**changed: Any) -> TritonSource:
    """A declaration that fits FUNCTION."""
    fitting = {
        "signature": {"x_ptr": "*fp16", "n": "i32", "scale": "fp32"},
        "constants": {"BLOCK": 64},
        "divisible_by_16": ("x_ptr", "n"),
    }
    return TritonSource("module", "kernel", **{**fitting, **changed})


def test_arguments_stand_in_the_functions_order() -> None:
    """Every argument has a type, constants by position; a default stands in for what is not declared."""
    declared = source(signature={"scale": "fp32", "n": "i32", "x_ptr": "*fp16"})
    known = specialise_arguments(declared, FUNCTION, plain(), "who")
    assert list(known.signature.items()) == [
        ("x_ptr", "*fp16"),
        ("n", "i32"),
        ("scale", "fp32"),
        ("BLOCK", "constexpr"),
        ("MASKED", "constexpr"),
    ]
    assert known.constants == {(3,): 64, (4,): True}


@pytest.mark.parametrize(
    ("backend", "pointer"),
    [
        (plain(), ALIGNED),
        (with_buffers(), ALIGNED + SMALL),
        (up_to_35(False), ALIGNED),
        (up_to_35(True), ALIGNED + SMALL),
    ],
)
def test_the_backend_says_what_a_pointer_is_marked_with(backend: Any, pointer: list[list[Any]]) -> None:
    """Alignment always; a small tensor where this backend would be told, in either form of the question."""
    before = methods(backend)
    assert specialise_arguments(source(), FUNCTION, backend, "who").attributes == {(0,): pointer, (1,): ALIGNED}
    assert methods(backend) == before


def test_what_is_not_aligned_is_not_marked_so() -> None:
    """Without divisible_by_16 an integer has no mark, and a pointer only that of its range."""
    known = specialise_arguments(source(divisible_by_16=()), FUNCTION, with_buffers(), "who")
    assert known.attributes == {(0,): SMALL}


@pytest.mark.parametrize(("kept", "pointer"), [("do_not_specialize", None), ("do_not_specialize_on_alignment", SMALL)])
def test_a_parameter_may_refuse_specialisation(kept: str, pointer: list[list[Any]] | None) -> None:
    """What the kernel's author switched off is off, as in a launch."""
    first, *others = FUNCTION.params
    changed = SimpleNamespace(arg_names=FUNCTION.arg_names, params=[parameter(first.name, **{kept: True}), *others])
    known = specialise_arguments(source(), changed, with_buffers(), "who")
    assert known.attributes.get((0,)) == pointer
    assert known.attributes[1,] == ALIGNED


def test_a_backend_that_fails_is_left_as_it_was() -> None:
    """The question of a tensor's size is put back even where the backend raises."""

    backend = with_buffers()
    type(backend).get_tensor_specialization = staticmethod(lambda tensor: "")
    before = methods(backend)
    with pytest.raises(TypeError):
        specialise_arguments(source(), FUNCTION, backend, "who")
    assert methods(backend) == before


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"constants": {}}, "neither in signature nor in constants: BLOCK. It takes: x_ptr, n, scale, BLOCK, MASKED"),
        ({"constants": {"BLOCK": 64, "BLOKC": 1}}, "kernel: no argument of it: BLOKC. It takes: "),
        ({"constants": {"BLOCK": 64, "n": 1}}, "both in signature and in constants: n. It takes: "),
        ({"divisible_by_16": ("y_ptr",)}, "no argument of it: y_ptr. It takes: "),
        (
            {"divisible_by_16": ("scale",)},
            "divisible_by_16 names scale, whose type is fp32; only pointers and integers",
        ),
        ({"divisible_by_16": ("BLOCK",)}, "divisible_by_16 names BLOCK, whose type is constexpr; only pointers"),
    ],
)
def test_a_declaration_that_does_not_fit_is_explained(changed: dict[str, Any], said: str) -> None:
    """Each mismatch is named with the argument, and with what the function takes."""
    with pytest.raises(CodeObjectError) as caught:
        specialise_arguments(source(**changed), FUNCTION, plain(), "triton.copy, for gfx942")
    assert str(caught.value).startswith("triton.copy, for gfx942: kernel: ")
    assert said in str(caught.value)


def jitted(function: Any) -> SimpleNamespace:
    """What a decorator of Triton leaves, as far as it is looked at."""
    return SimpleNamespace(fn=function)


@jitted
def leaf() -> None:
    """Calls nothing."""


@jitted
def library() -> None:
    """A function of Triton's own."""


library.fn.__module__ = "triton.language.standard"
module = ModuleType("module")
module.inside = leaf  # type: ignore[attr-defined]


@jitted
def branch() -> None:
    """Calls itself, a function through a module, and Triton's own."""
    branch()
    module.inside()
    library()


def test_called_functions_are_found() -> None:
    """By name, through a module, from a closure and an inner function; Triton's own are left out, cycles end."""

    def outer(callee: Any) -> Any:
        @jitted
        def kernel() -> list[None]:
            return [callee() for _ in "ab"]

        return kernel

    kernel = outer(branch)
    assert {each.fn.__name__ for each in reachable_functions(kernel)} == {"kernel", "branch", "leaf"}
    assert [each.fn.__name__ for each in reachable_functions(leaf)] == ["leaf"]


def test_a_gluon_function_is_compiled_as_one() -> None:
    """It says itself that it is one; a function of a Triton that has no Gluon says nothing."""
    pytest.importorskip("triton", minversion="3.6")
    assert source_class(SimpleNamespace(is_gluon=lambda: True)).__name__ == "GluonASTSource"
    assert source_class(SimpleNamespace(is_gluon=lambda: False)).__name__ == "ASTSource"
    assert source_class(SimpleNamespace()).__name__ == "ASTSource"
