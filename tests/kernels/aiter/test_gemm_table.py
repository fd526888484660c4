"""The row of aiter's GEMM tables that its dispatcher takes, and tables that are off."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernels.aiter import config_files
from kernels.aiter.gemm import AiterGemm
from kernels.aiter.gemm_table import KEY, VARIABLE, list_sizes, list_tables
from kernels.aiter.mha_source import CONFIGS, SOURCE_VARIABLE
from kernels.aiter.tuning import TunableMha
from pytest_attnperf.errors import UnsupportedError, UsageError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.records.tuned_tables import Coverage, TableEntry
from pytest_attnperf.workloads.gemm import Gemm
from pytest_attnperf.workloads.prefill import Prefill

HEADER = ",".join((*KEY, "libtype", "us"))
ROW = "gfx942,304,512,6144,4096,False,torch.bfloat16,torch.bfloat16,False,False,asm,7.9"
EXACT = Gemm.parse("gemm-m512-n6144-k4096-bf16-nt")
MI300X = DeviceInfo("rocm", "gfx942", "mi300x", "MI300X", 304)
DATA = Path(__file__).parents[2] / "data" / "aiter"


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of aiter that AITER_SOURCE names, without tables."""
    monkeypatch.setattr(config_files, "find_installed", lambda: None)
    monkeypatch.setenv(SOURCE_VARIABLE, str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    (tmp_path / "aiter/configs/model_configs").mkdir(parents=True)
    return tmp_path


def find(root: Path, *rows: str, workload: Gemm = EXACT, device: DeviceInfo = MI300X) -> TableEntry:
    """The entry of `aiter.auto` for a table of these rows."""
    (root / "aiter/configs/bf16_tuned_gemm.csv").write_text("\n".join((HEADER, *rows, "")), encoding="utf-8")
    (entry,) = AiterGemm("aiter.auto").find_entries(workload, device)
    return entry


def test_the_exact_row(root: Path) -> None:
    """All of the key is the workload's own; the table names no version and no tiles."""
    found = find(root, ROW)
    assert (found.coverage, found.file) == (Coverage.EXACT, "bf16_tuned_gemm.csv")
    assert found.key == "line 2: M 512, N 6144, K 4096, bf16, 304 CUs"
    assert (found.versions, found.tiles, found.tunable) == ({}, None, False)


def test_padded_rows(root: Path) -> None:
    """M = 500 takes the row of 512, and says so; N is never padded."""
    found = find(root, ROW, workload=Gemm.parse("gemm-m500-n6144-k4096-bf16-nt"))
    assert (found.coverage, found.apart) == (Coverage.NEAREST, {"M": (512, 500)})
    assert find(root, ROW, workload=Gemm.parse("gemm-m512-n6000-k4096-bf16-nt")).coverage is Coverage.NONE


@pytest.mark.parametrize(
    ("change", "to"),
    [("gfx942", "gfx950"), ("304", "80"), ("torch.bfloat16,torch.bfloat16", "torch.float16,torch.float16"),
     ("torch.bfloat16,torch.bfloat16", "torch.bfloat16,torch.float32"), ("False,torch", "True,torch"),
     ("False,False,asm", "False,True,asm")],
)  # fmt: skip
def test_a_row_for_something_else_is_not_exact(root: Path, change: str, to: str) -> None:
    """Another architecture, number of CUs, type, bias or order of weights: aiter does not take the row."""
    assert find(root, ROW.replace(change, to, 1)).coverage is Coverage.NONE


@pytest.mark.parametrize(
    ("size_m", "size_n", "sizes"),
    [(3, 64, [3, 4]), (100, 64, [100, 112, 128]), (1000, 64, [1000, 1024]), (3000, 64, [3000, 3008, 4096]),
     (5000, 64, [5000, 5120, 8192]), (9000, 8192, [9000, 9088, 8192]), (1, 64, [1])],
)  # fmt: skip
def test_sizes_that_are_looked_up(size_m: int, size_n: int, sizes: list[int]) -> None:
    """M itself, a fine step, then a power of two; 8192 above it where N is large."""
    assert list_sizes(size_m, size_n) == sizes


OFF = {
    "empty": ("", "needs the columns"),
    "header only": (HEADER + "\n", "has no rows"),
    "old": (HEADER.removeprefix("gfx,") + "\n", "gfx is missing or repeated"),
    "column twice": (HEADER + ",M\n", "M is missing or repeated"),
    "cut row": (f"{HEADER}\n{ROW[:40]}", "the row is cut off or damaged"),
    "cut quote": (f'{HEADER}\n"{ROW}', "is no CSV"),
    "number": (f"{HEADER}\n{ROW.replace('512', 'nan')}", "M is 'nan', must be a whole number"),
    "huge": (f"{HEADER}\n{ROW.replace('512', '9' * 30)}", "must be a whole number"),
    "negative": (f"{HEADER}\n{ROW.replace('512', '-1')}", "must be a whole number"),
    "digits": (f"{HEADER}\n{ROW.replace('512', '٥١٢')}", "must be a whole number"),
    "flag": (f"{HEADER}\n{ROW.replace('False', 'maybe', 1)}", "bias is 'maybe', must be True or False"),
    "twice": (f"{HEADER}\n{ROW}\n{ROW.replace('7.9', '9.9')}", "stands in bf16_tuned_gemm.csv:2 already"),
}


@pytest.mark.parametrize("name", OFF)
def test_a_table_that_is_off_is_a_usage_error(root: Path, name: str) -> None:
    """It names the file, and what is wrong."""
    content, said = OFF[name]
    (root / "aiter/configs/bf16_tuned_gemm.csv").write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match=r"bf16_tuned_gemm\.csv") as raised:
        AiterGemm("aiter.auto").find_entries(EXACT, MI300X)
    assert said in str(raised.value)


def test_no_text_and_no_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that are no text, and a table that the variable names and that is not there."""
    (root / "aiter/configs/bf16_tuned_gemm.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="is no UTF-8 text"):
        AiterGemm("aiter.auto").find_entries(EXACT, MI300X)
    monkeypatch.setenv(VARIABLE, "nowhere.csv")
    with pytest.raises(UsageError, match=r"nowhere\.csv does not exist"):
        AiterGemm("aiter.auto").find_entries(EXACT, MI300X)


def test_tables_of_models_count_and_untuned_ones_do_not(root: Path) -> None:
    """As aiter merges them: a row that stands in both counts once, two rows of one key are refused."""
    models = root / "aiter/configs/model_configs"
    for name in ("llama_bf16_tuned_gemm.csv", "llama_bf16_untuned_gemm.csv", "llama_a8w8_tuned_gemm.csv"):
        (models / name).write_text(f"{HEADER}\n{ROW}\n", encoding="utf-8")
    assert [path.name for path in list_tables()] == ["llama_bf16_tuned_gemm.csv"]
    assert find(root, ROW, ROW).key.startswith("line 2: ")
    with pytest.raises(UsageError, match=r"stands in bf16_tuned_gemm\.csv:2 already, with other values"):
        find(root, ROW.replace("7.9", "9.9"))


def test_where_nothing_can_be_looked_up(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other kernels than the dispatcher's, without a table, without aiter; an NVIDIA device gives nothing."""
    with pytest.raises(UnsupportedError, match="not of gemm_a16w16_asm"):
        AiterGemm("aiter.asm", path="asm").find_entries(EXACT, MI300X)
    with pytest.raises(UnsupportedError, match=r"has no bf16_tuned_gemm\.csv"):
        AiterGemm("aiter.auto").find_entries(EXACT, MI300X)
    assert AiterGemm("aiter.auto").find_entries(EXACT, DeviceInfo("cuda", "sm_90", "h200", "H200", 132)) == ()
    monkeypatch.delenv(SOURCE_VARIABLE)
    with pytest.raises(UnsupportedError, match="ROCm/aiter is not installed"):
        AiterGemm("aiter.auto").find_entries(EXACT, MI300X)


def test_buckets_of_attention(root: Path) -> None:
    """A bucket is never exact: 'default' is for everything, 'small_head' for a kind; no file is a gap."""
    backend = TunableMha("aiter.triton", family="prefill")
    folder = root / CONFIGS
    folder.mkdir(parents=True)
    small, large = (Prefill.parse(f"prefill-b1-s512-h8-d{size}-bf16") for size in (64, 128))
    mi350x = DeviceInfo("rocm", "gfx950", "mi350x", "MI350X", 256)
    assert [each.coverage for each in backend.find_entries(large, mi350x)] == [Coverage.NONE]
    (folder / "gfx950-MHA-DEFAULT.json").write_bytes((DATA / "gfx950-MHA-DEFAULT.json").read_bytes())
    assert [each.coverage for each in backend.find_entries(large, mi350x)] == [Coverage.DEFAULT]
    (found,) = backend.find_entries(small, mi350x)
    assert (found.coverage, found.key) == (Coverage.NEAREST, "bucket fwd.small_head")
    (folder / "gfx950-MHA-DEFAULT.json").write_text('{"fwd": {"default"', encoding="utf-8")
    with pytest.raises(UsageError, match=r"gfx950-MHA-DEFAULT\.json: cannot be read as JSON"):
        backend.find_entries(large, mi350x)
