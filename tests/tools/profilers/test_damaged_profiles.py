"""Whatever stands in a file: it is read in part, or refused with the error that is meant for it, and soon."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_attnperf.errors import ProfileError
from pytest_attnperf.tools.profilers.reading import read_profile

SAMPLES = Path(__file__).parents[2] / "data" / "profiles"
CONTENTS = [path.read_bytes()[:6000] for path in sorted(SAMPLES.rglob("*.csv"))]
LIMIT_S = 2.0

PIECES = st.one_of(
    st.sampled_from(
        [b'"', b",", b"\n", b"\r\n", b"\0", b"\xff", b"-", b"9" * 40, b"\xef\xbb\xbf", b"1e9", b"nan", b""]
    ),
    st.binary(max_size=8),
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file for all examples."""
    return tmp_path_factory.mktemp("damaged") / "run_kernel_trace.csv"


def reads_or_refuses(path: Path, content: bytes) -> None:
    """Nothing else may be raised, of the file or of its folder, and what is counted is whole."""
    path.write_bytes(content)
    began = time.process_time()
    for where in (path, path.parent):
        with contextlib.suppress(ProfileError):
            profile = read_profile(where)
            durations = [end - start for _, start, end in profile.dispatches]
            assert min(durations, default=0) >= 0
            assert all(row.spread.calls >= 0 and row.spread.total_ns >= 0 for row in profile.stats)
            assert profile.dispatches or profile.stats or profile.counters
    assert time.process_time() - began < LIMIT_S


@settings(deadline=None, max_examples=60)
@given(content=st.binary(max_size=400))
def test_any_bytes(file: Path, content: bytes) -> None:
    """Bytes of nothing in particular."""
    reads_or_refuses(file, content)


@settings(deadline=None, max_examples=200)
@given(
    content=st.sampled_from(CONTENTS),
    cuts=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 12), PIECES), min_size=1, max_size=6),
    kept=st.floats(0.2, 1),
)
def test_damaged_samples(file: Path, content: bytes, cuts: list[tuple[float, int, bytes]], kept: float) -> None:
    """Real files with bytes taken out, put in and cut off."""
    content = content[: int(len(content) * kept)]
    for place, length, piece in cuts:
        at = int(len(content) * place)
        content = content[:at] + piece + content[at + length :]
    reads_or_refuses(file, content)
