"""A baseline file written anew in the form of this version: what is in it stays, to the last field."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pytest_attnperf.baselines import schema
from pytest_attnperf.baselines.opened import content_of
from pytest_attnperf.baselines.store import locked, refuse_loss
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.records.atomic_file import write_atomically


def rewritten(path: Path) -> bool:
    """Write the file of timed cases anew; False where that changes nothing, and for any other JSON file.

    Raises BaselineError, and writes nothing, for a damaged file, and where a field would be lost.
    """
    if not _holds_cases(content_of(path), path):
        return False
    with locked(path):
        data = content_of(path)
        file = schema.decode(data, str(path))
        refuse_loss(path, schema.fields_lost(data, file, str(path)))
        anew = schema.encode(file)
        if anew == data:
            return False
        if schema.decode(anew, f"the new text of {path}") != file:
            raise BaselineError(f"{path}: would not read back as it was; nothing was written")
        write_atomically(path, anew)
    return True


def _holds_cases(data: bytes, path: Path) -> bool:
    """Compiled kernels, ceilings and published figures have no summary lines: their fields are lines already."""
    try:
        fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        return False
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BaselineError(f"{path}: is not readable as JSON ({error}); restore it from version control") from error
    return {"suite", "entries", "environments"} <= fields.keys()
