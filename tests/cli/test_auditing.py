"""`attnperf tune --audit` as a user types it, on the fake device."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from pytest_attnperf.cli.auditing import UNUSED, find_device
from pytest_attnperf.cli.program import build_parser, main
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.testing.project import WORKLOAD, FakeProject

OTHER, OF_MODEL = "prefill-b1-s128-h1-d16-f16", "prefill-b1-s128-h1-d16-f16-causal"
EXACT = {"coverage": "exact", "versions": {"triton": "999.0"}}
SPACE = {"values": {"BLOCK_M": [16, 32]}, "default": {"BLOCK_M": 32}}
NEAREST = {"coverage": "nearest", "apart": {"s_max": [512, 128]}}


COMMANDS = {
    "all": ("--arch", "gfx942", "--tests", "suites/test_prefill.py"),
    "exact": ("fake.a", "--arch", "gfx942/mi308x", "--workload", WORKLOAD, "--json"),
    "model": ("fake.a", "--arch", "gfx942", "--model", "config.json,batch=1,seq=128", "--json"),
    "invalid": ("fake.c", "--arch", "gfx942"),
}
"""Commands behind `attnperf tune --audit`."""

EACH_IN_A_FORK = """
import json, os, sys
import pytest_attnperf.plugin.own_pytest, pytest_attnperf.plugin.controller_session
import pytest_attnperf.tools.tuner.audit_text
from pytest_attnperf.cli.program import main
for name, arguments in json.loads(sys.argv[1]).items():
    child = os.fork()
    if not child:
        for number, end in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{name}.{end}", os.O_WRONLY | os.O_CREAT), number)
        status = main(["tune", "--audit", *arguments])
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    print(name, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), sep=":", flush=True)
"""
"""Commands share what is the same for all: starting Python and importing pytest."""

MODEL = {"model_type": "llama", "hidden_size": 16, "num_attention_heads": 1, "num_key_value_heads": 1,
         "num_hidden_layers": 1, "max_position_embeddings": 128, "torch_dtype": "float16"}  # fmt: skip
ENDS = {"all": 1, "exact": 0, "model": 0, "invalid": 2}


def write_project(project: FakeProject) -> None:
    """`fake.a` has an exact entry for one workload and a neighbour's for the other, `fake.b` no table, `fake.c` one
    that cannot be read; a model."""
    project.suite([WORKLOAD, OTHER], settings=", backends=['fake.a', 'fake.b']")
    project.suite([WORKLOAD], settings=", backends=['fake.c']", name="test_third.py")
    project.backend("fake.a", space={**SPACE, "entries": {WORKLOAD: EXACT, OF_MODEL: EXACT, OTHER: NEAREST}})
    project.backend("fake.b")
    project.backend("fake.c", space={"refuse": "fake.json: cannot be read\x1b[31m"})
    project.write()
    (project.path / "config.json").write_text(json.dumps(MODEL), encoding="utf-8")


def test_audits_as_typed(attnperf_project: FakeProject) -> None:
    """A gap ends with 1 and is named with how to measure it; exact entries end with 0; a model's shapes replace the
    suite's; a table that is invalid ends with 2."""
    project = attnperf_project
    write_project(project)
    command = [sys.executable, "-c", EACH_IN_A_FORK, json.dumps(COMMANDS)]
    environment = {**os.environ, "COLUMNS": "120"}
    done = subprocess.run(command, cwd=project.path, env=environment, capture_output=True, text=True, check=True)
    out, err = ({name: (project.path / f"{name}.{end}").read_text() for name in COMMANDS} for end in ("out", "err"))
    assert done.stdout.splitlines() == [f"{name}:{status}" for name, status in ENDS.items()], err
    assert "tables for gfx942 (MI300X, 304 CUs)" in out["all"]
    assert "s_max 512 for 128 (x4)" in out["all"]
    assert "fake.b prefill" in out["all"]
    assert f"attnperf tune fake.a --kernel fake_kernel --workload {OTHER}" in out["all"]
    exact = json.loads(out["exact"])
    assert (exact["compute_units"], [row["workload"] for row in exact["rows"]]) == (80, [WORKLOAD])
    assert [row["workload"] for row in json.loads(out["model"])["rows"]] == [OF_MODEL]
    assert "attnperf: fake.json: cannot be read" in err["invalid"]
    assert not any("Traceback" in text or "\x1b" in text for text in err.values())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--audit", "--static", "gfx942"), "--static is of no use with --audit, which searches nothing; drop it"),
        (("--audit", "--min-gain", "2"), "--min-gain is of no use with --audit"),
        (("--audit", "--model", "a.json", "--workload", "x"), "--model and --workload both say what to audit"),
        (("fake.a", "--arch", "gfx942"), "--arch needs --audit; add that, or drop --arch"),
        (("fake.a", "--json"), "--json needs --audit"),
        (("--budget", "10s"), "name the backend to tune, e.g. triton.flash; only --audit takes none"),
    ],
)
def test_options_that_do_not_go_together(
    arguments: tuple[str, ...], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing that was typed is ignored; no project is loaded for it."""
    assert main(["tune", *arguments]) == 2
    assert said in capfd.readouterr().err


def test_every_option_of_a_search_is_refused() -> None:
    """UNUSED has all options but those that an audit reads, and those of the program."""
    read = {"backend", "family", "workload", "tests", "audit", "arch", "model", "json", "dependent", "default_of"}
    given = vars(build_parser(["tune"]).parse_args(["tune", "x"]))
    assert set(given) - read - {"command"} == set(UNUSED)


def test_devices() -> None:
    """The GPU here, a product by name, or of an architecture the largest; nothing else is guessed."""
    here = DeviceInfo("rocm", "gfx942", "mi308x", "MI308X", 80)
    assert find_device("", here) is here
    assert (find_device("gfx942", None).name, find_device("gfx942/mi300a", None).compute_units) == ("MI300X", 228)
    for given in (None, DeviceInfo("cpu", "cpu-x86_64", "unknown")):
        with pytest.raises(UsageError, match="no GPU is known here; name the device to look up"):
            find_device("", given)
    for text in ("gfx943", "gfx942/h200", "/mi300x"):
        with pytest.raises(UsageError, match="is not known; known are gfx1100/"):
            find_device(text, here)
