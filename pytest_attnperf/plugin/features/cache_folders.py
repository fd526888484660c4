"""Where compilers and libraries keep what they build, as their environment variables say, and how much is there."""

from __future__ import annotations

import getpass
import importlib.util
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MEGABYTE = 1e6


@dataclass(frozen=True)
class CacheFolder:
    """One folder, and whose it is."""

    name: str
    path: Path


@dataclass(frozen=True)
class Contents:
    """Files in a folder, at any depth, and their bytes together."""

    files: int = 0
    size_bytes: int = 0


def cache_folders(environ: Mapping[str, str], root: Path, home: Path) -> list[CacheFolder]:
    """Those of Triton, Inductor, torch's extensions, aiter, and this project's own under `root`.

    aiter builds its modules into its own package where it may write there, and under `home` otherwise; what it compiles
    for single shapes goes to a folder of its own.
    """
    triton = environ.get("TRITON_CACHE_DIR") or Path(environ.get("TRITON_HOME") or home, ".triton", "cache")
    inductor = environ.get("TORCHINDUCTOR_CACHE_DIR") or Path(tempfile.gettempdir(), f"torchinductor_{_user()}")
    shared = Path(environ.get("XDG_CACHE_HOME") or home / ".cache")
    found = [
        CacheFolder("Triton", Path(triton)),
        CacheFolder("Inductor", Path(inductor)),
        CacheFolder("torch extensions", Path(environ.get("TORCH_EXTENSIONS_DIR") or shared / "torch_extensions")),
    ]
    named = environ.get("AITER_JIT_DIR")
    aiter = [Path(named)] if named else [*_aiter_packages(), home / ".aiter" / "jit"]
    aiter.append(Path(environ.get("AITER_ROOT_DIR") or home / ".aiter", "build"))
    found += [CacheFolder("aiter", path) for path in aiter]
    return [*found, CacheFolder("attnperf", root / ".attnperf" / "cache")]


def contents(folder: Path) -> Contents:
    """What a folder holds now; nothing where it does not exist or may not be read."""
    files = size = 0
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.lstat(os.path.join(where, name)).st_size
            except OSError:  # removed meanwhile
                continue
            files += 1
    return Contents(files, size)


def growth_lines(before: Mapping[CacheFolder, Contents], after: Mapping[CacheFolder, Contents]) -> list[str]:
    """What has come to each folder that changed, in files and MB; one line where none did."""
    lines = []
    for folder, now in after.items():
        then = before.get(folder, Contents())
        if now != then:
            files, size = now.files - then.files, (now.size_bytes - then.size_bytes) / MEGABYTE
            lines.append(f"cache of {folder.name}: {files:+d} files, {size:+.1f} MB in {folder.path}")
    return lines or [f"no cache grew: {_listed(after)} had everything, or none was written to"]


def _listed(folders: Mapping[CacheFolder, Contents]) -> str:
    return ", ".join(dict.fromkeys(folder.name for folder in folders))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return f"uid_{os.getuid()}"


def _aiter_packages() -> Sequence[Path]:
    """The folder of modules that ROCm's aiter builds inside its package; none where it is not installed."""
    try:
        spec = importlib.util.find_spec("aiter")
    except ValueError:  # somebody put a module without a spec in its place
        spec = None
    places = [] if spec is None else list(spec.submodule_search_locations or [])
    return [Path(place, "jit") for place in places if Path(place, "jit").is_dir()]
