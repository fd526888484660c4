"""Stores to test on: a SQLite file, and a PostgreSQL server that lives as long as the tests."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.records import CaseKey, DeviceInfo, Fingerprint, ProcessSummary, Verdict
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult

MACHINE = {"arch": "sm_90", "product": "h200", "timer": "graph", "power_cap_w": "700"}
ENVIRONMENT = {"torch": "2.11.0", "driver": "580.00"}
GIVEN = "ATTNPERF_TEST_POSTGRES_URL"
MakeRun = Callable[..., RunResult]
NUMBERS = itertools.count(1)


def _binaries() -> Path | None:
    """Where the server's programs are."""
    found = [Path(one).resolve() for one in (shutil.which("postgres"),) if one]
    places = [one.parent for one in (*found, *sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), reverse=True))]
    return next((place for place in places if (place / "initdb").is_file()), None)


def _user() -> dict[str, Any]:
    """PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return {}
    account = next((one for one in pwd.getpwall() if one.pw_name in ("postgres", "nobody")), None)
    if account is None:
        pytest.skip("root cannot start PostgreSQL, and there is no user postgres or nobody")
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


SHORT = "/tmp"
"""A folder with a short name, on every machine."""


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of a database on a server of ours, or on the one that the environment names."""
    pytest.importorskip("psycopg", reason="needs psycopg")
    if given := os.environ.get(GIVEN):
        yield given
        return
    binaries = _binaries()
    if binaries is None:
        pytest.skip(f"no PostgreSQL server is installed, and {GIVEN} names none")
    user = _user()
    # A socket's path holds 107 characters, which pytest's folders and TMPDIR can exceed.
    folder = Path(tempfile.mkdtemp(prefix="attnperf-pg", dir=SHORT))
    if user:
        os.chown(folder, user["user"], user["group"])
    data = folder / "data"
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder, **user}
    made: list[str | Path] = [
        binaries / "initdb",
        "-D",
        data,
        "-A",
        "trust",
        "-U",
        "attnperf",
        "--no-sync",
        "-E",
        "UTF8",
        "--locale=C",
    ]
    subprocess.run(made, check=True, **quiet)
    settings = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={folder}", "-c", "fsync=off"]
    server = subprocess.Popen([binaries / "postgres", "-D", data, *settings], **quiet)
    try:
        url = f"postgresql://attnperf@/postgres?host={folder}"
        _await(url, server)
        yield url
    finally:
        server.terminate()
        server.wait(20)
        shutil.rmtree(folder, ignore_errors=True)


def _await(url: str, server: subprocess.Popen[bytes]) -> None:
    import psycopg

    deadline = time.monotonic() + 20
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError as error:
            if time.monotonic() > deadline or server.poll() is not None:
                pytest.fail(f"the PostgreSQL server of the tests did not start: {error}")
        time.sleep(0.05)


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """An empty namespace on the server, removed afterwards."""
    import psycopg

    name = f"attnperf_test_{os.getpid()}_{next(NUMBERS)}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
        yield f"{postgres_server}{'&' if '?' in postgres_server else '?'}options=-csearch_path%3D{name}"
        connection.execute(f"DROP SCHEMA {name} CASCADE")


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest) -> str:
    """An empty store's address, once of each kind."""
    if request.param == "sqlite":
        path: Path = request.getfixturevalue("tmp_path")
        return f"sqlite:///{path / 'history.sqlite'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def make_run() -> MakeRun:
    """Makes runs of one case by default, at `us`, on day `day` of 2026."""

    def make(
        day: int = 1,
        us: float | None = 100.0,
        *,
        backend: str = "triton.flash",
        machine: dict[str, str] | None = None,
        environment: dict[str, str] | None = None,
        **case: Any,
    ) -> RunResult:
        key = CaseKey("prefill", backend, "prefill-b4-s512-h8-d64-f16-causal")
        processes = () if us is None else tuple(_process(us * scale) for scale in (0.999, 1.0, 1.001))
        fingerprint = Fingerprint(machine or MACHINE, environment or ENVIRONMENT)
        result = CaseResult(
            key, f"suites/test_prefill.py::test_prefill[{backend}-{key.workload}]", Verdict.SAME, "", median_us=us,
            first=processes, fingerprint=fingerprint,
        )  # fmt: skip
        return RunResult(
            schema=RESULTS_SCHEMA,
            version="0.1.0",
            mode="gate",
            started=f"2026-{1 + (day - 1) // 28:02}-{1 + (day - 1) % 28:02}T12:00:00+00:00",
            command="pytest --attnperf",
            commit=f"{day:012x}",
            device=DeviceInfo("cuda", "sm_90", "h200", "NVIDIA H200"),
            fingerprint=fingerprint,
            cases=(replace(result, **case),),
            run_id=f"run {day}",
            provenance={"branch": "main"},
        )

    return make


def _process(us: float) -> ProcessSummary:
    return ProcessSummary(us, us, us, (us,), 10, "graph")
