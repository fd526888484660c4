"""One process that compiles candidates: it reads one per line and writes one answer per line. Standard library, Triton.

A request is base64 of a pickle that our own parent made; an answer is JSON. Whatever a compiler prints to standard
output goes to standard error, so that it cannot stand between answers.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from pytest_attnperf.codeobject import building
from pytest_attnperf.codeobject.built import Built
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.kernel_builds import HipSource, KernelBuild, TritonSource

START = (
    "import sys; del sys.path[: sys.path[0] == '']; "
    "from pytest_attnperf.tools.tuner.compile_process import main; sys.exit(main())"
)
"""What the process's interpreter runs; the current folder must not come before the harness on its path."""

READY = "ready\n"
"""What it says first."""

Build = Callable[[KernelBuild, Path], Built]


@dataclass(frozen=True)
class Answer:
    """What came of one candidate.

    built         its objects, in the order of its builds; empty where one could not be made
    failure       why one does not compile, '' where all do
    unsupported   why this machine can compile none of them
    """

    built: tuple[Built, ...] = ()
    failure: str = ""
    unsupported: tuple[str, ...] = ()


def encode_request(builds: Sequence[KernelBuild], cache: Path) -> str:
    """A request as one line."""
    return base64.b64encode(pickle.dumps(([_make_picklable(build) for build in builds], cache))).decode("ascii") + "\n"


def decode_answer(line: str) -> Answer:
    """The answer that one line holds. Raises ValueError where it holds none."""
    found = json.loads(line)
    try:
        built = tuple(Built(**one) for one in found["built"])
        return Answer(built, str(found["failure"]), tuple(map(str, found["unsupported"])))
    except (KeyError, TypeError) as error:
        raise ValueError(f"no answer of a compile process: {line[:200]!r} ({error})") from error


def main() -> int:
    """Serve until the parent closes standard input."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    with os.fdopen(0, encoding="ascii") as requests:
        serve(requests, answers)
    return 0


def serve(requests: Iterator[str] | TextIO, answers: TextIO, build: Build = building.build_object) -> None:
    """Say that the process is ready, and answer every request."""
    answers.write(READY)
    answers.flush()
    for line in requests:
        builds, cache = pickle.loads(base64.b64decode(line))
        answers.write(json.dumps(asdict(_compile_builds(builds, cache, build))) + "\n")
        answers.flush()


def _compile_builds(builds: Sequence[KernelBuild], cache: Path, build: Build) -> Answer:
    built = []
    for declared in builds:
        if reasons := building.unsupported_reasons(declared):
            return Answer(unsupported=tuple(reasons))
        try:
            built.append(build(declared, cache))
        except CodeObjectError as error:
            return Answer(failure=str(error))
        except Exception as error:  # a compiler that raises anything costs this candidate only
            return Answer(failure=f"{type(error).__name__}: {error}")
    return Answer(tuple(built))


def _make_picklable(build: KernelBuild) -> KernelBuild:
    """The build with dictionaries in place of whatever mappings its author used, some of which cannot be pickled."""
    source = build.source
    if isinstance(source, TritonSource):
        source = replace(
            source,
            signature=_copy_to_dict(source.signature),
            constants=_copy_to_dict(source.constants),
            options=_copy_to_dict(source.options),
        )
    elif isinstance(source, HipSource):
        source = replace(source, defines=_copy_to_dict(source.defines))
    return replace(build, source=source, settings=_copy_to_dict(build.settings))


def _copy_to_dict(values: Mapping[str, Any]) -> dict[str, Any]:
    return dict(values)
