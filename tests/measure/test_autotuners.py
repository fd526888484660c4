from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.measure.autotuners import (
    INDUCTOR,
    PADDING,
    TRITON,
    Use,
    format_config,
    format_inductor_config,
    inductor_use,
    padding_use,
    parse_config,
    parse_value,
    triton_use,
)

pytest_plugins = ["tests.measure.fake_autotuners"]

TRITON_RELIED_ON = (
    "self.nargs = dict(zip(self.arg_names, args))",
    "self.prune_configs(kwargs)",
    "self._bench(*args, config=config, **kwargs)",
    "self.cache[key]",
    "self.best_config = config",
    "self.base_fn",
)
INDUCTOR_RELIED_ON = (
    "def run(",
    "def bench(self, launcher",
    "self.launchers",
    "self.precompile()",
    "self.kernel_hash",
    "self._reload_kernel",
    "found_by_coordesc",
    'inductor_meta.get("kernel_name")',
    ".make_launcher()",
)


def config(**options: Any) -> Any:
    """Shaped like triton.Config."""
    return SimpleNamespace(kwargs=options.pop("kwargs", {"BLOCK_M": 64}), num_warps=4, num_stages=3, **options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "BLOCK_M: 64, num_warps: 4, num_stages: 3"),
        ({"num_ctas": 1, "maxnreg": None}, "BLOCK_M: 64, num_warps: 4, num_stages: 3"),
        ({"num_buffers_warp_spec": 0, "reg_inc_consumer": 0}, "BLOCK_M: 64, num_warps: 4, num_stages: 3"),
        ({"num_ctas": 2, "maxnreg": 128}, "BLOCK_M: 64, num_warps: 4, num_stages: 3, num_ctas: 2, maxnreg: 128"),
        ({"kwargs": {"EVEN": True, "num_warps": 8}}, "EVEN: True, num_warps: 4, num_stages: 3"),
    ],
)
def test_one_wording_for_all_versions(options: dict[str, Any], text: str) -> None:
    """Options at the value that older or newer versions do not have go unsaid; all others are said."""
    assert format_config(config(**options)) == text


def test_a_text_gives_its_values_back() -> None:
    """Numbers, truth values and words come back as they were."""
    text = format_config(config(kwargs={"BLOCK_M": 64, "EVEN": False, "ORDER": "rows"}))
    values = {name: parse_value(part) for name, part in parse_config(text).items()}
    assert values == {"BLOCK_M": 64, "EVEN": False, "ORDER": "rows", "num_warps": 4, "num_stages": 3}


def test_uses_of_an_autotuned_kernel(triton_tuner: Callable[..., Any]) -> None:
    """A use is told apart by the values of the tuning keys and the dtypes of the tensors, as in Triton's own key."""
    x = SimpleNamespace(dtype="torch.float16")
    use = triton_use(triton_tuner(), {"x": x, "size": 512, "grid": (1,)})
    assert use.kernel == "tuned"
    assert use.where.endswith("size=512, float16")
    assert use.entries == (f"autotuned.tuned({use.where})", "autotuned.tuned")


def test_a_template_says_its_block_sizes() -> None:
    """Of a template's constants those that say how it computes are said, before what the launcher has."""
    constants = {
        "BLOCK_N": 64,
        "BLOCK_M": 128,
        "SM_SCALE": 0.125,
        "BLOCKS_ARE_CONTIGUOUS": False,
        "HAS_FULL_BLOCKS": True,
    }
    autotuner = SimpleNamespace(inductor_meta={"config_args": constants}, fn=SimpleNamespace(src=""))
    launched = SimpleNamespace(kwargs={}, num_warps=8, num_stages=3)
    assert format_inductor_config(autotuner, launched) == "BLOCK_M: 128, BLOCK_N: 64, num_warps: 8, num_stages: 3"


def test_a_template_of_older_torch_says_them_in_its_source() -> None:
    """Where the constants are not listed beside the kernel, they are read from its source."""
    source = "def triton_tem_fused_0(arg_Q):\n    BLOCK_M : tl.constexpr = 128\n    R0_BLOCK: tl.constexpr = 1024\n"
    autotuner = SimpleNamespace(inductor_meta={}, fn=SimpleNamespace(src=source))
    launched = SimpleNamespace(kwargs={}, num_warps=8, num_stages=3)
    assert format_inductor_config(autotuner, launched) == "BLOCK_M: 128, num_warps: 8, num_stages: 3"


def test_uses_of_a_kernel_that_inductor_wrote() -> None:
    """The kernel's name, or the function's where it has none, and the hash of its source."""
    named = SimpleNamespace(inductor_meta={"kernel_name": "triton_poi_0"}, kernel_hash="c" + "0" * 50)
    assert inductor_use(named) == Use("triton_poi_0", "c" + "0" * 11)
    unnamed = SimpleNamespace(inductor_meta={}, kernel_hash="", fn=SimpleNamespace(__name__="triton_"))
    assert inductor_use(unnamed) == Use("triton_", "")


def test_uses_of_padding() -> None:
    """A product is told apart by operator, dtype and sizes."""
    left, right = (SimpleNamespace(shape=shape, dtype="torch.float16") for shape in ((2, 9, 64), (2, 64, 9)))
    assert padding_use(left, right, "aten.bmm") == Use("pad_mm", "aten.bmm float16 2x9x64 by 2x64x9")


def test_the_installed_triton_is_shaped_like_that() -> None:
    """Triton's Autotuner has the methods that are wrapped, with the arguments they are called with."""
    module = pytest.importorskip(TRITON[0])
    autotuner = getattr(module, TRITON[1])
    assert list(inspect.signature(autotuner.prune_configs).parameters) == ["self", "kwargs"]
    assert inspect.signature(autotuner._bench).parameters["config"].kind is inspect.Parameter.KEYWORD_ONLY
    source = inspect.getsource(autotuner)
    for relied_on in TRITON_RELIED_ON:
        assert relied_on in source, relied_on


def test_the_installed_torch_is_shaped_like_that() -> None:
    """Inductor's CachingAutotuner and its padding pass have what is wrapped, read and called."""
    pytest.importorskip("triton")
    module = pytest.importorskip(INDUCTOR[0])
    autotuner = getattr(module, INDUCTOR[1])
    assert list(inspect.signature(autotuner._precompile_config).parameters) == ["self", "cfg"]
    source = inspect.getsource(autotuner)
    for relied_on in INDUCTOR_RELIED_ON:
        assert relied_on in source, relied_on
    padding = pytest.importorskip(PADDING[0])
    assert callable(padding._should_pad)
    assert "_should_pad(match, mat1, mat2, op, input)" in inspect.getsource(padding.should_pad)
    assert "config_args" in inspect.getsource(pytest.importorskip("torch._inductor.select_algorithm"))
    assert isinstance(pytest.importorskip("torch._functorch.config").enable_autograd_cache, bool)
