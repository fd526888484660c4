"""What is private on this machine: names of people and of the machine, their folders, values of secrets."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterator

from pytest_attnperf.environment.system import ProbeError
from pytest_attnperf.tools.doctor.probes import Surroundings
from pytest_attnperf.tools.doctor.redaction import Private, is_secret_name

USER_VARIABLES = (
    *("USER", "LOGNAME", "USERNAME", "SUDO_USER", "JUPYTERHUB_USER", "GITHUB_ACTOR", "GITLAB_USER_LOGIN"),
    *("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "GITLAB_USER_NAME"),
)
HOST_VARIABLES = (
    *("HOSTNAME", "HOST", "COMPUTERNAME", "CONTAINER_NAME", "POD_NAME", "NODE_NAME", "KUBERNETES_NODE_NAME"),
    *("SLURMD_NODENAME", "SLURM_SUBMIT_HOST", "RUNNER_NAME"),
)
FOLDER_VARIABLES = ("SCRATCH", "WORK", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")

_LONGEST_COMMON_PART = 3


def private_here(here: Surroundings) -> Private:
    """Of this user on this machine; nothing is asked of a network."""
    names = [name for name in _users(here) if name]
    hosts = [name for name in _hosts(here) if name]
    hosts += [name.partition(".")[0] for name in hosts]
    return Private(
        users=tuple(dict.fromkeys(name for name in names if len(name) > 1)),
        hosts=tuple(dict.fromkeys(name for name in hosts if len(name) > 1)),
        homes=tuple(dict.fromkeys(_folders(here))),
        roots=tuple(_roots(here)),
        secrets=tuple(value for name, value in here.environ.items() if is_secret_name(name)),
    )


def _users(here: Surroundings) -> Iterator[str]:
    """The account, and the person behind it, by full name and by each longer part of that."""
    yield from (here.environ.get(name, "") for name in USER_VARIABLES)
    yield from (os.path.basename(home.rstrip("/")) for home in _homes(here))
    account = _account()
    if account is not None:
        yield account.pw_name
        full = account.pw_gecos.partition(",")[0].strip()
        yield from (full, *(between.join(full.split()) for between in ("", ".", "_", "-")))
        yield from (part for part in re.split(r"[\s.]+", full) if len(part) > _LONGEST_COMMON_PART)


def _folders(here: Surroundings) -> Iterator[str]:
    """The user's, each also as the system names it where it is a link."""
    for folder in (*_homes(here), *(here.environ.get(name, "") for name in FOLDER_VARIABLES)):
        if len(folder) > 1:
            yield folder
            yield os.path.realpath(folder)


def _homes(here: Surroundings) -> tuple[str, str]:
    """As the environment says, and as the system does."""
    account = _account()
    return here.environ.get("HOME", ""), account.pw_dir if account is not None else ""


def _roots(here: Surroundings) -> Iterator[str]:
    """The project's folder as the system names it, and as the shell does that came there by a link."""
    yield str(here.root)
    shell = here.environ.get("PWD", "")
    if shell and os.path.realpath(shell) == os.path.realpath(here.root):
        yield shell


def _hosts(here: Surroundings) -> Iterator[str]:
    yield from (here.environ.get(name, "") for name in HOST_VARIABLES)
    yield os.uname().nodename
    try:
        yield here.system.read("etc/hostname")
    except ProbeError:
        return


def _account() -> pwd.struct_passwd | None:
    """None in a container whose user has no entry."""
    try:
        return pwd.getpwuid(os.getuid())
    except KeyError:
        return None
