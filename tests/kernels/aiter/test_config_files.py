"""aiter's configuration files: found in every layout, read strictly, and rewritten with one bucket changed."""

from __future__ import annotations

import ast
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernels.aiter import config_files
from kernels.aiter.mha_source import CONFIGS, KERNEL_MODULES, SOURCE_VARIABLE
from kernels.aiter.package import Installed
from pytest_attnperf.errors import UsageError
from pytest_attnperf.workloads.prefill import Prefill

DATA = Path(__file__).parents[2] / "data" / "aiter"
SOURCE = os.environ.get(SOURCE_VARIABLE, "")
NEEDS_SOURCE = pytest.mark.skipif(not SOURCE, reason=f"set {SOURCE_VARIABLE} to the root of a checkout of ROCm/aiter")
D256 = Prefill.parse("prefill-b4-s512-h8-d256-f16-causal")
TUNED = {
    "BLOCK_M": 64, "BLOCK_N": 32, "PRELOAD_V": True, "waves_per_eu": 2, "num_warps": 4, "num_ctas": 1, "num_stages": 1,
}  # fmt: skip
"""The 'Tuned Config' of the MI300X report of 2025-12-30, fwd.default."""

DTYPES = SimpleNamespace(float16="f16", bfloat16="bf16", float32="f32")
"""In place of torch's: the lookup compares them, and nothing else."""

Plant = Callable[..., Path]


@pytest.fixture
def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plant:
    """A tree that AITER_SOURCE names, with one file of configurations."""
    monkeypatch.setattr(config_files, "find_installed", lambda: None)
    monkeypatch.setenv(SOURCE_VARIABLE, str(tmp_path))

    def put(name: str = "gfx942-MHA-DEFAULT.json", text: str | None = None, arch: str = "gfx942") -> Path:
        path = tmp_path / CONFIGS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((DATA / f"{arch}-MHA-DEFAULT.json").read_text() if text is None else text, encoding="utf-8")
        return path

    return put


@pytest.mark.parametrize(
    "name", ["gfx942-MHA-DEFAULT.json", "gfx942/triton/attention/mha/DEFAULT.json", "MI300X-MHA-DEFAULT.json"]
)
def test_the_file_is_found_in_every_layout(plant: Plant, name: str) -> None:
    """By architecture, by folder, and by device as it was until v0.1.7; results are written in the present one too."""
    plant(name)
    file = config_files.aiter_file("gfx942")
    assert (file.name, file.relative_path) == (name, f"aiter/ops/triton/configs/{name}")
    written = config_files.list_file_names(file, "gfx942")
    assert written[:2] == ["gfx942-MHA-DEFAULT.json", "gfx942/triton/attention/mha/DEFAULT.json"]
    assert name in written
    assert ("MI300X-MHA-DEFAULT.json" in written) == name.startswith("MI300X")


def test_the_published_change_and_nothing_else() -> None:
    """128 x 64 to 64 x 32 with PRELOAD_V: fwd.default is the report's, three lines differ, bkwd_* keys are there."""
    text = (DATA / "gfx942-MHA-DEFAULT.json").read_text()
    before, changed = json.loads(text), config_files.replace_bucket(text, "default", TUNED)
    after = json.loads(changed)
    assert after["fwd"]["default"] == TUNED
    assert list(after["fwd"]["default"]) == list(before["fwd"]["default"])
    after["fwd"]["default"] = before["fwd"]["default"]
    assert after == before
    assert list(after) == ["fwd", "bkwd_fused", "bkwd_onekernel"]
    lines = [pair for pair in zip(text.splitlines(), changed.splitlines(), strict=True) if pair[0] != pair[1]]
    assert lines == [
        ('      "BLOCK_M": 128,', '      "BLOCK_M": 64,'),
        ('      "BLOCK_N": 64,', '      "BLOCK_N": 32,'),
        ('      "PRELOAD_V": false,', '      "PRELOAD_V": true,'),
    ]


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_every_bucket_can_be_changed_alone(arch: str) -> None:
    """Whichever bucket: it holds the new values, keys that it lacked come last, and all others are as they were."""
    text = (DATA / f"{arch}-MHA-DEFAULT.json").read_text()
    before = json.loads(text)
    for bucket, held in before["fwd"].items():
        values = {**held, "BLOCK_M": 16, "num_stages": 4, "matrix_instr_nonkdim": 16, "kpack": 2}
        changed = config_files.replace_bucket(text, bucket, values)
        assert json.loads(changed) == {**before, "fwd": {**before["fwd"], bucket: values}}
        assert '      "matrix_instr_nonkdim": 16,\n      "kpack": 2\n    }' in changed


def test_options_at_the_compiler_s_default_are_left_out() -> None:
    """A bucket without kpack stays without it unless the winner's differs; one that has it keeps it."""
    assert config_files.to_bucket_values({"BLOCK_M": 64, "kpack": 1, "matrix_instr_nonkdim": 0}, {"BLOCK_M": 128}) == {
        "BLOCK_M": 64
    }
    assert config_files.to_bucket_values({"kpack": 2, "matrix_instr_nonkdim": 16}, {}) == {
        "kpack": 2,
        "matrix_instr_nonkdim": 16,
    }
    assert config_files.to_bucket_values({"kpack": 1}, {"kpack": 2}) == {"kpack": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"fwd": {"default": {"BLOCK_M": 128', "cannot be read as JSON"),
        ('{"fwd": {"default": {"BLOCK_M": 1, "BLOCK_M": 2}}}', "'BLOCK_M' is given twice"),
        ('{"fwd": {"default": {"BLOCK_M": NaN}}}', "NaN is no JSON number"),
        ("[" * 10_000, "cannot be read as JSON"),
        ("[]", "must be an object that has buckets under 'fwd'"),
        ('{"fwd": []}', "must be an object that has buckets under 'fwd'"),
        ('{"fwd": {"default": 3}}', r"fwd\.default must be an object of values, got '3'"),
        ('{"fwd": {"default": {"BLOCK_M": "../../x"}}}', r"fwd\.default has BLOCK_M = '\.\./\.\./x'"),
        ('{"fwd": {"default": {"BLOCK_M": 1' + "0" * 300 + "}}}", r"fwd\.default has BLOCK_M = '10"),
        ('{"fwd": {"default": {"BLOCK_N": 64}}}', r"fwd\.default has no BLOCK_M"),
    ],
)
def test_a_file_that_aiter_would_not_read_is_named(plant: Plant, text: str, message: str) -> None:
    """Half-written, hostile or of another form: a UsageError with the file's name."""
    plant(text=text)
    with pytest.raises(UsageError, match=rf"(?s)gfx942-MHA-DEFAULT\.json.*{message}"):
        config_files.aiter_file("gfx942")


def test_nothing_to_tune(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file for the architecture, no bucket for the workload, and no aiter at all each say what there is."""
    plant(text=json.dumps({"fwd": {"pe": {"BLOCK_M": 64, "BLOCK_N": 64}}}))
    with pytest.raises(UsageError, match="has no attention configuration for gfx90a; it has gfx942"):
        config_files.aiter_file("gfx90a")
    with pytest.raises(UsageError, match=f"has no bucket 'default', which serves {D256.id}; it has pe"):
        config_files.serving_bucket(config_files.aiter_file("gfx942"), D256, "gfx942")
    monkeypatch.delenv(SOURCE_VARIABLE)
    with pytest.raises(UsageError, match="ROCm/aiter is not installed and AITER_SOURCE is not set; install it, or set"):
        config_files.aiter_file("gfx942")


def test_an_installed_aiter_comes_before_a_source_tree(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs is what is tuned: AITER_SOURCE serves machines without aiter."""
    plant(text=json.dumps({"fwd": {"default": {"BLOCK_M": 1, "BLOCK_N": 1}}}))
    other = Path(os.environ[SOURCE_VARIABLE]) / "site-packages"
    (other / CONFIGS).mkdir(parents=True)
    shutil.copy(DATA / "gfx942-MHA-DEFAULT.json", other / CONFIGS)
    monkeypatch.setattr(config_files, "find_installed", lambda: Installed(other / "aiter", "0.1.20", ""))
    assert config_files.aiter_file("gfx942").buckets["default"]["BLOCK_M"] == 128


def lookup_of(root: Path, folder: Path) -> Callable[..., dict[str, Any]]:
    """aiter's own `_get_config` for an MI300X, alone: of its module nothing else is run, and it reads `folder`."""
    path = next(root / name for name in KERNEL_MODULES if (root / name).is_file())
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (function,) = (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "_get_config")
    function.decorator_list, function.returns = [], None
    for argument in function.args.args:
        argument.annotation = None

    class Arch:
        get_arch = staticmethod(lambda: "gfx942")
        get_device = staticmethod(lambda: "MI300X")

    known: dict[str, Any] = {
        "arch_info": Arch,
        "AITER_TRITON_CONFIGS_PATH": str(folder),
        "load_config_json": lambda name: json.loads(Path(name).read_text(encoding="utf-8")),
        "json": json,
        "torch": DTYPES,
        "os": os,
    }
    exec(compile(ast.Module([function], type_ignores=[]), str(path), "exec"), known)
    found: Callable[..., dict[str, Any]] = known["_get_config"]
    return found


@NEEDS_SOURCE
def test_aiter_s_own_lookup_reads_the_tuned_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its `_get_config`, given our file, returns the tuned values for what the bucket serves, all else as before."""
    monkeypatch.setattr(config_files, "find_installed", lambda: None)
    file = config_files.aiter_file("gfx942")
    tuned = {**file.buckets["default"], **{name: TUNED[name] for name in TUNED.keys() & file.buckets["default"].keys()}}
    for name, text in (("old", file.text), ("new", config_files.replace_bucket(file.text, "default", tuned))):
        for place in config_files.list_file_names(file, "gfx942"):
            (tmp_path / name / place).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / place).write_text(text, encoding="utf-8")
    old, new = (lookup_of(Path(SOURCE), tmp_path / name) for name in ("old", "new"))
    half, single = DTYPES.float16, DTYPES.float32
    assert new(False, half) == new(False, DTYPES.bfloat16) == tuned != old(False, half)
    several = (
        (True, half),
        (False, single),
        *([(False, half, True), (True, half, True)] if "pe" in file.buckets else []),
    )
    for asked in several:
        assert new(*asked) == old(*asked) != tuned


@NEEDS_SOURCE
@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx1151", "gfx1250"])
def test_real_files_are_read_and_rewritten(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file of the checkout is taken, and a bucket put back as it was gives the file itself."""
    monkeypatch.setattr(config_files, "find_installed", lambda: None)
    try:
        file = config_files.aiter_file(arch)
    except UsageError as error:
        pytest.skip(str(error))
    for bucket, values in file.buckets.items():
        assert config_files.replace_bucket(file.text, bucket, values) == file.text
