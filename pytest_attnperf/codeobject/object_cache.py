"""A disk cache of compiled objects, by a key of all their inputs. Standard library: compile workers load this.

It is safe for several processes: a file is written whole or not at all. A file that another process removes, or that
is damaged, counts as absent.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from pytest_attnperf.records.atomic_file import write_atomically

LIMIT_BYTES = 512 * 1024 * 1024
ABANDONED_AFTER_S = 3600.0
"""A temporary file this old belongs to a process that died while writing it."""

_SUFFIX = ".object"
_DIGEST_BYTES = hashlib.sha256().digest_size


def cache_key(*parts: str) -> str:
    """Returns the hex SHA-256 of the sequence of texts; ('ab', 'c') and ('a', 'bc') have different ones."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@dataclass(frozen=True)
class ObjectCache:
    """A folder of objects; the least recently used are deleted above its limit.

    limit_bytes   of all files together, checked after each store
    """

    folder: Path
    limit_bytes: int = LIMIT_BYTES

    def load(self, key: str) -> bytes | None:
        """Returns the data stored under `key`, or None. Removes a damaged file."""
        path = self._object_path(key)
        try:
            text = path.read_bytes()
        except OSError:
            return None
        digest, data = text[:_DIGEST_BYTES], text[_DIGEST_BYTES:]
        if hashlib.sha256(data).digest() != digest:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return data

    def store(self, key: str, data: bytes) -> None:
        """Stores `data` under `key`, and deletes the least recently used files above the limit. Ignores a folder that
        cannot be written: it only costs time."""
        with contextlib.suppress(OSError):
            write_atomically(self._object_path(key), hashlib.sha256(data).digest() + data)
            self._make_room(key)

    def _object_path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def _make_room(self, newest: str) -> None:
        """Removes the least recently used files above the limit, never `newest`, and old temporary files."""
        kept = []
        for entry in os.scandir(self.folder):
            with contextlib.suppress(OSError):
                status = entry.stat()
                if entry.name.endswith(_SUFFIX):
                    kept.append((status.st_mtime_ns, status.st_size, Path(entry.path)))
                elif entry.name.endswith(".tmp") and time.time() - status.st_mtime > ABANDONED_AFTER_S:
                    os.unlink(entry.path)
        excess = sum(size for _, size, _ in kept) - self.limit_bytes
        for _, size, path in sorted(kept):
            if excess <= 0:
                return
            if path != self._object_path(newest):
                path.unlink(missing_ok=True)
                excess -= size
