"""A process that compiles candidates, one request and one answer per line. Needs the standard library and Triton.

A request is base64 of a pickle that our own parent made; an answer is JSON. Output of a compiler goes to standard
error, so that it cannot mix with answers.
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
"""Code that the interpreter runs. It removes the current folder from the path, where it would precede the harness."""

READY = "ready\n"
"""First line that the process writes."""

Build = Callable[[KernelBuild, Path], Built]


@dataclass(frozen=True)
class Answer:
    """Result of compiling one candidate.

    built         its objects, in the order of its builds; empty if one could not be made
    failure       why one does not compile, '' if all do
    unsupported   why this machine cannot compile them
    """

    built: tuple[Built, ...] = ()
    failure: str = ""
    unsupported: tuple[str, ...] = ()


def encode_request(builds: Sequence[KernelBuild], cache: Path) -> str:
    """Returns a request to compile `builds` into the folder `cache`, as one line: base64 of a pickle."""
    return base64.b64encode(pickle.dumps(([_make_picklable(build) for build in builds], cache))).decode("ascii") + "\n"


def decode_answer(line: str) -> Answer:
    """Returns the answer that a line of JSON holds. Raises ValueError if it is not JSON or lacks a field."""
    found = json.loads(line)
    try:
        built = tuple(Built(**one) for one in found["built"])
        return Answer(built, str(found["failure"]), tuple(map(str, found["unsupported"])))
    except (KeyError, TypeError) as error:
        raise ValueError(f"a compile process answered {line[:200]!r}, which is invalid ({error}); run again") from error


def main() -> int:
    """Answers compile requests of standard input until the parent closes it, then returns exit status 0. Answers go to
    standard output; what compilers print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    with os.fdopen(0, encoding="ascii") as requests:
        serve(requests, answers)
    return 0


def serve(requests: Iterator[str] | TextIO, answers: TextIO, build: Build = building.build_object) -> None:
    """Writes READY; then compiles the builds of each request line and writes an answer, one line of JSON."""
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
        except Exception as error:  # any error of a compiler fails this candidate only
            return Answer(failure=f"{type(error).__name__}: {error}")
    return Answer(tuple(built))


def _make_picklable(build: KernelBuild) -> KernelBuild:
    """Returns the build with its mappings as plain dictionaries, because those that authors use may not be
    picklable."""
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
