from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_attnperf.tools.doctor.redaction import Private, is_secret_name, redact_text, redact_tree

HOME, ROOT = "/" + "home/annika", "/" + "home/annika/src/client-x"
PRIVATE = Private(
    users=("annika", "Annika Lind", "Lind", "j\u00f6rg"),
    hosts=("gpu-node-17.corp.example", "gpu-node-17"),
    homes=(HOME, "/scratch/annika"),
    roots=(ROOT, "/data/link"),
    secrets=("correct-horse-battery", 'p@ss/w"rd & more', "hunter2", "first line of a key\nsecond line of it"),
)
UUID = "GPU-5f2c1d3e-0a1b-4c2d-8e9f-001122334455"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{ROOT}/suites/test_a.py:3: error", "<root>/suites/test_a.py:3: error"),
        ("see /data/link/suites", "see <root>/suites"),
        (f"{ROOT}2/secret.py", "<home>"),
        (f"-I{ROOT}/include -I{HOME}/private/inc", "-I<root>/include -I<home>"),
        (f"{HOME}/.local/lib/python3.11/site-packages/torch/x.py", "<site-packages>/torch/x.py"),
        (f"file '{HOME}/deep/er/thing.bin' missing", "file '<home>' missing"),
        ("/opt/venv/lib/python3.11/site-packages/triton/a.py", "<site-packages>/triton/a.py"),
        ("at /mnt/team/zebra/run.py: no", "at <path>: no"),
        ("--x=/mnt/zebra,/mnt/other:/mnt/third", "--x=<path>,<path>:<path>"),
        ("cc -I/mnt/zebra/inc", "cc -I<path>"),
        ("~annika/x ~/y", "<home> <home>"),
        ("file:///mnt/zebra/a b", "<path> b"),
        (r"C:\Users\zebra\x.py", "<path>"),
        ("%2Fhome%2Fannika%2Fx %2fmnt%2Fzebra", "<home> <path>"),
        ("owner ANNIKA, torch_annika_2, Annika Lind", "owner <user>, torch_<user>_2, <user>"),
        ("repr 'a\\nannika'", "repr 'a\\n<user>'"),
        ("by\x1b[31mannika\x1b[0mis", "by <user> is"),
        ("a\x00annika \x1b[/home", "a <user>  [<path>"),
        ("on gpu-node-17.corp.example and gpu-node-17:", "on <host> and <host>:"),
        ("annika@corp.example wrote", "<email> wrote"),
        ("git@git.corp.example:team/zebra.git", "<url>"),
        ("https://git.corp.example/team/zebra", "<url>"),
        ("https://bob:p@ss/word@github.com/ROCm/aiter", "<url>"),
        ("https://github.com/zebra-corp/private", "<url>"),
        ("postgresql://u:pw@db/history?sslpassword=x", "<url>"),
        ("https://u:it's@db.corp/x https://u:correct-horse-battery@db.corp/x", "<url> <url>"),
        (r"by J\u00f6rg, j\xf6rg, j%C3%B6rg", "by <user>, <user>, <user>"),
        ("by jo\u0308rg", "by <user>"),
        (r'{"p": "\/home\/annika\/zebra", "q": "\u002fmnt\u002Fzebra"}', '{"p": "<home>", "q": "<path>"}'),
        ("//mnt//zebra //home//annika//x /mnt/a=zebra", "<path> <path> <path>"),
        ("bob%40corp.example", "<email>"),
        (r"p%40ss%2fw%22rd+%26+more P@SS/W\"RD & more", "<secret> <secret>"),
        ("pw hunter2, second line of it", "pw <secret>, <secret>"),
        (r"{\"token\": \"abc def\"}", r"{\"token\": \"<secret>\"}"),
        ("password='two words' secret=b'abc'", "password='<secret>' secret=b'<secret>'"),
        ("--password abc --api-key 'a b' x", "--password <secret> --api-key '<secret>' x"),
        ("'--auth-token', 'abc'", "'--auth-token', '<secret>'"),
        ("Authorization: Token abc def", "Authorization: <secret>"),
        ("Cookie: a=b; c=d", "Cookie: <secret>"),
        (f"PWD={HOME} Uid=sa;Pwd=abc;", "PWD=<home> Uid=sa;Pwd=<secret>;"),
        ("OPENAI_KEY=abc MYSQL_PWD=abc x?sig=abc", "OPENAI_KEY=<secret> MYSQL_PWD=<secret> x?sig=<secret>"),
        ("mac 02-42-AC-11-00-02", "mac <address>"),
        ("token=abcdef123 next", "token=<secret> next"),
        ('{"api_key": "zz9"}', '{"api_key": "<secret>"}'),
        ("PASSWORD: hunter2", "PASSWORD: <secret>"),
        ("Authorization: Bearer abc.def-123456", "Authorization: Bearer <secret>"),
        ("ghp_" + "a" * 36, "<secret>"),
        ("AKIA" + "ABCDEFGHIJKLMNOP", "<secret>"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.sig", "<secret>"),
        ("said correct-horse-battery aloud", "said <secret> aloud"),
        ("Serial Number: 1650223123456", "Serial Number: <secret>"),
        ("host=10.20.30.40 to 192.168.1.7:29500", "host=<address> to <address>:29500"),
        ("at 10.20.30.40.", "at <address>."),
        ("xgpu-node-17y x_ghp_" + "q" * 30, "x<host>y x_<secret>"),
        ("mac 02:42:ac:11:00:02, fe80::42:acff", "mac <address>, <address>"),
    ],
)
def test_what_is_private_goes(text: str, expected: str) -> None:
    """Each form of a name, a place, an address and a secret is replaced by what it is, and twice changes no more."""
    assert redact_text(text, PRIVATE) == expected
    assert redact_text(expected, PRIVATE) == expected


def test_devices_are_hashed_alike() -> None:
    """A device's UUID becomes a short hash: the same for the same device, another for another, in any case."""
    first, again, other = (redact_text(each, PRIVATE) for each in (UUID, UUID.lower(), UUID[:-1] + "6"))
    assert first == again != other
    assert first.startswith("<id:")
    assert "5f2c1d3e" not in first
    assert redact_text("unique_id 0x1234567890abcdef GPU-1234567890abcdef", PRIVATE).count("<id:") == 2


@pytest.mark.parametrize(
    "text",
    [
        "torch==2.13.0+rocm7.0\nnvidia-cublas-cu12==12.6.4.1",
        "driver 580.95.05, gfx942:sramecc+:xnack-, 0000:c1:00.0",
        "/dev/kfd, /dev/dri/renderD128, /dev/nvidia*, /opt/rocm/bin/hipcc, /usr/bin/clang++-22, /proc/4711/comm",
        "prefill-b4-s512-h8-d256-f16-causal at 1234.5 GB/s, 12:34:56, a/b/c, n/a, 2048:512:64, tokens=4096",
        "test_a.py::test_b[ck-decode], malindi, xannika's",
        "pip install torch --index-url https://download.pytorch.org/whl/rocm7.0; https://github.com/ROCm/aiter",
    ],
)
def test_what_a_bug_report_needs_stays(text: str) -> None:
    """Versions, device files, workloads, times and public addresses are left as they are."""
    assert redact_text(text, PRIVATE) == text


@settings(max_examples=60, deadline=None, derandomize=True)
@given(before=st.text(max_size=12), after=st.text(max_size=12))
def test_no_surroundings_hide_a_home(before: str, after: str) -> None:
    """Whatever stands around it, the user's home and what lies directly below it do not survive."""
    said = redact_text(f"{before}{HOME}/zebra-project{' ' + after if after else ''}", PRIVATE)
    assert "annika" not in said.lower().replace("xannika", "")
    assert "zebra-project" not in said


def test_trees_lose_secrets_by_name_and_keep_numbers() -> None:
    """Keys and texts of JSON are redacted; a field named like a secret or a serial number loses its value."""
    tree = {
        f"{HOME}/x": ["annika", 1.5, None, True],
        "auth_token": "zzz",
        "serial": 165022,
        "tokens_per_s": 5,
        "inner": {"host": "gpu-node-17"},
        "command": ["run", "--db-password", "abc", "--top", "abc"],
    }
    assert redact_tree(tree, PRIVATE) == {
        "<home>": ["<user>", 1.5, None, True],
        "auth_token": "<secret>",
        "serial": "<secret>",
        "tokens_per_s": 5,
        "inner": {"host": "<host>"},
        "command": ["run", "--db-password", "<secret>", "--top", "abc"],
    }


@pytest.mark.parametrize("unit", ["a-", "a.", "a://", "a@", "token", "eyJ-", "/a", "a1:", "1.", "\"'", "%2f"])
def test_no_text_takes_long(unit: str) -> None:
    """A log of one endless word is searched in a time that grows with its length, whatever it is made of."""
    began_s = time.monotonic()
    redact_text(unit * (65536 // len(unit)), PRIVATE)
    assert time.monotonic() - began_s < 5


def test_common_names_stay() -> None:
    """An account named 'root' or 'runner' says nothing, and its name stands in ordinary words."""
    assert redact_text("root of torch", Private(users=("root", "torch"), hosts=("localhost",))) == "root of torch"


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        *((name, True) for name in ("HF_TOKEN", "DB_PASSWORD", "MY_API_KEY", "GH_PAT", "MYSQL_PWD")),
        *(
            (name, False)
            for name in ("TRITON_CACHE_DIR", "KEYBOARD", "case_key", "TOKENIZERS_PARALLELISM", "PWD", "OLDPWD")
        ),
    ],
)
def test_secret_names_are_known(name: str, is_secret: bool) -> None:
    """Variables that hold secrets are told by their names."""
    assert is_secret_name(name) is is_secret
