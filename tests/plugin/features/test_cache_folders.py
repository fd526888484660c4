"""Where compilers keep what they build, and how much came to it."""

from __future__ import annotations

from pathlib import Path

from pytest_attnperf.plugin.features.cache_folders import CacheFolder, Contents, cache_folders, contents, growth_lines


def test_variables_say_where(tmp_path: Path) -> None:
    """Each variable is heeded as its owner does; without them the folders lie in the home and the temporary folder."""
    names = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "AITER_JIT_DIR", "build")
    said = {name: str(tmp_path / name) for name in names} | {"AITER_ROOT_DIR": str(tmp_path)}
    found = cache_folders(said, tmp_path / "project", tmp_path / "home")
    assert [folder.path.name for folder in found] == [*names, "cache"]
    usual = cache_folders({}, tmp_path / "project", tmp_path / "home")
    by_name = {folder.name: folder.path for folder in usual}
    assert by_name["Triton"] == tmp_path / "home" / ".triton" / "cache"
    assert by_name["torch extensions"] == tmp_path / "home" / ".cache" / "torch_extensions"
    assert {folder.path for folder in usual if folder.name == "aiter"} >= {
        tmp_path / "home" / ".aiter" / "jit",
        tmp_path / "home" / ".aiter" / "build",
    }
    assert by_name["Inductor"].name.startswith("torchinductor_")
    assert by_name["attnperf"] == tmp_path / "project" / ".attnperf" / "cache"
    triton = cache_folders({"TRITON_HOME": str(tmp_path)}, tmp_path, tmp_path / "home")[0]
    assert triton.path == tmp_path / ".triton" / "cache"


def test_contents_and_growth(tmp_path: Path) -> None:
    """Files and bytes at any depth are counted; only what changed is said, and that nothing did where that is so."""
    folder, idle = CacheFolder("Triton", tmp_path / "new"), CacheFolder("Inductor", tmp_path / "absent")
    before = {one: contents(one.path) for one in (folder, idle)}
    assert before[folder] == Contents(0, 0)
    (tmp_path / "new" / "deep").mkdir(parents=True)
    (tmp_path / "new" / "deep" / "kernel.cubin").write_bytes(b"x" * 1_500_000)
    (tmp_path / "new" / "kernel.json").write_bytes(b"{}")
    after = {one: contents(one.path) for one in (folder, idle)}
    assert growth_lines(before, after) == [f"cache of Triton: +2 files, +1.5 MB in {tmp_path / 'new'}"]
    assert growth_lines(after, after) == ["no cache grew: Triton, Inductor had everything, or none was written to"]
