"""Runs a PostgreSQL server of our own in a folder, on a socket there and no port, as long as a program needs it.

Imported by other programs. Settings are the server's own, but for memory (1 GB for pages) and checkpoints. It syncs to
the disk at a commit, as a server of a team does.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from history_cost import forget

STARTED_S = 60
SETTINGS = {
    "listen_addresses": "",
    "shared_buffers": "1GB",
    "maintenance_work_mem": "1GB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "15min",
}


@dataclass
class PostgresServer:
    """A server on a socket in `folder`; `url` is that of its database."""

    folder: Path
    account: dict[str, Any]
    process: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def url(self) -> str:
        """The address of its database."""
        return f"postgresql://attnperf@/postgres?host={self.folder}"

    @property
    def log(self) -> Path:
        """What it wrote since its start."""
        return self.folder / "log"

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        given = {**SETTINGS, "unix_socket_directories": str(self.folder)}
        options = [f"-c{name}={value}" for name, value in given.items()]
        command = [str(find_programs() / "postgres"), "-D", str(self.folder / "data"), *options]
        with self.log.open("wb") as log:
            process: subprocess.Popen[bytes] = subprocess.Popen(command, **{**self.account, "stderr": log})
        self.process = process
        _await(self.url, process)

    def read_cpu_s(self) -> float:
        """Seconds of CPU that its ended sessions have taken."""
        assert self.process is not None
        time.sleep(0.1)  # a session ends after its client has gone
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """Ends it; its pages are on the disk then."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(600)

    def restart_cold(self) -> None:
        """Restarts it, with its files dropped from the system's memory: the next query reads the disk."""
        self.stop()
        for path in (self.folder / "data").rglob("*"):
            if path.is_file():
                forget(path)
        self.start()


def find_programs() -> Path:
    """The folder of the server's programs. Ends the program if none is installed."""
    found = [Path(one).resolve() for one in (shutil.which("postgres"),) if one]
    places = [one.parent for one in (*found, *sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), reverse=True))]
    place = next((one for one in places if (one / "initdb").is_file()), None)
    if place is None:
        raise SystemExit("no PostgreSQL server is installed: there is no initdb beside postgres on the PATH")
    return place


@contextmanager
def run_server(parent: Path) -> Iterator[PostgresServer]:
    """A new server in a folder below `parent`, which is removed in the end."""
    account = _choose_account()
    folder = Path(tempfile.mkdtemp(prefix="pg", dir=parent))
    if account:
        os.chown(folder, account["user"], account["group"])
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder, **account}
    made = [str(find_programs() / "initdb"), "-D", str(folder / "data"), "-A", "trust", "-U", "attnperf", "-E", "UTF8"]
    server = PostgresServer(folder, quiet)
    try:
        subprocess.run([*made, "--locale=C"], check=True, **quiet)
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _choose_account() -> dict[str, Any]:
    """PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return {}
    account = next((one for one in pwd.getpwall() if one.pw_name in ("postgres", "nobody")), None)
    if account is None:
        raise SystemExit("root cannot start PostgreSQL, and there is no user postgres or nobody")
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _await(url: str, process: subprocess.Popen[bytes]) -> None:
    import psycopg

    deadline = time.monotonic() + STARTED_S
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError as error:
            if time.monotonic() > deadline or process.poll() is not None:
                raise SystemExit(f"the PostgreSQL server did not start: {error}") from error
        time.sleep(0.05)
