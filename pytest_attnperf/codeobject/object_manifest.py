"""The manifest of prebuilt code objects: the sources and options of each. Standard library only.

A folder holds a subfolder per architecture, with the objects and `manifest.json`:

    {"format": 1, "arch": "gfx942", "objects": [{"file": "hip.flash-d64.co", "sha256": "...", ...}]}
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.records.atomic_file import write_atomically
from pytest_attnperf.records.regular_file import read_regular

FORMAT = 1
NAME = "manifest.json"
BYTES_MOST = 16 * 1024 * 1024
AGAIN = "build it again (make kernels ARCH=...)"

_FILE = re.compile(r"[A-Za-z0-9_.+-]+")


@dataclass(frozen=True)
class PrebuiltObject:
    """One object, and everything that it was compiled from.

    file                name in the manifest's folder
    sha256              of the object, in hex
    kernel, config      registered names
    function            the kernel's symbol
    source              the file that has the function, relative to the project
    sources             path, relative to the project -> SHA-256 of that file and all that it includes
    defines             macros
    threads             of a workgroup, 0 where not known
    dynamic_lds_bytes   LDS that the launch adds
    compiler            name and version
    """

    file: str
    sha256: str
    kernel: str
    config: str
    function: str
    source: str
    sources: dict[str, str] = field(default_factory=dict)
    defines: dict[str, str] = field(default_factory=dict)
    threads: int = 0
    dynamic_lds_bytes: int = 0
    compiler: str = ""


def write_manifest(folder: Path, arch: str, objects: Iterable[PrebuiltObject]) -> Path:
    """Writes the manifest of one architecture's folder, whole or not at all. Returns its path."""
    path = folder / NAME
    content = {"format": FORMAT, "arch": arch, "objects": [asdict(one) for one in objects]}
    write_atomically(path, (json.dumps(content, indent=1, sort_keys=True) + "\n").encode())
    return path


def read_manifest(folder: Path, arch: str) -> tuple[PrebuiltObject, ...]:
    """Returns the objects that the manifest in `folder` lists for `arch`; none if there is no manifest. Raises
    CodeObjectError naming file and entry for content that `write_manifest` cannot have written."""
    path = folder / NAME
    try:
        content = json.loads(read_regular(path, BYTES_MOST, CodeObjectError, f"; {AGAIN}"))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise CodeObjectError(f"{path} cannot be read ({error.strerror}); correct its permissions") from error
    except (ValueError, RecursionError) as error:
        raise _make_error(path, f"is no JSON ({error})") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        seen = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise _make_error(path, f"has format {seen!r:.80}, and this version reads {FORMAT}")
    if content.get("arch") != arch:
        raise _make_error(path, f"is for {content.get('arch')!r:.80}, in the folder of {arch}")
    entries = content.get("objects")
    if not isinstance(entries, list):
        raise _make_error(path, "has no list 'objects'")
    return tuple(_parse_entry(path, number, entry) for number, entry in enumerate(entries))


def _parse_entry(path: Path, number: int, entry: Any) -> PrebuiltObject:
    """Returns one entry of a manifest. Raises CodeObjectError for a missing or extra field, a wrong type, or a path
    outside of the project."""
    wanted = {name: type(value) for name, value in asdict(_EXAMPLE).items()}
    if not isinstance(entry, dict) or set(entry) != set(wanted):
        seen = ", ".join(map(repr, entry)) if isinstance(entry, dict) else type(entry).__name__
        raise _make_error(path, f"has an entry {number} with {seen:.200}, and not with {', '.join(wanted)}")
    for name, kind in wanted.items():
        value = entry[name]
        texts = not isinstance(value, dict) or all(isinstance(one, str) for one in value.values())
        if type(value) is not kind or not texts:
            raise _make_error(path, f"has an entry {number} whose {name} is {value!r:.80}, no {kind.__name__} of texts")
    found = PrebuiltObject(**entry)
    if not _FILE.fullmatch(found.file) or found.file.startswith("."):
        raise _make_error(
            path, f"has an entry {number} whose file is {found.file!r:.80}, no plain name in its own folder"
        )
    for name in (found.source, *found.sources):
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise _make_error(path, f"has an entry {number} with a source {name!r:.80} outside of the project")
    return found


def _make_error(path: Path, what: str) -> CodeObjectError:
    return CodeObjectError(f"{path} {what}; it is damaged, or was made by another version: {AGAIN}")


_EXAMPLE = PrebuiltObject("", "", "", "", "", "")
