"""Removes private text: names, places and secrets. A pure function of the text and of what is private.

What is known to be private (names, folders, values of secrets) is replaced everywhere. What only looks private
(addresses, tokens, paths, identifiers of devices) is found by its form. If a text can be read in two ways, it is
replaced.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import unicodedata
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SECRET, USER, HOST, HOME, ROOT, PATH, URL, EMAIL, ADDRESS = (
    *("<secret>", "<user>", "<host>", "<home>", "<root>", "<path>", "<url>", "<email>", "<address>"),
)

COMMON_NAMES = frozenset(
    {
        *("root", "user", "users", "runner", "ubuntu", "debian", "admin", "nobody", "home", "default", "container"),
        *("local", "localhost", "host", "docker", "worker", "linux", "main", "test", "build", "path", "address", "id"),
        *("python", "torch", "pytest", "triton", "cuda", "rocm", "secret", "email", "url", "site", "packages"),
    }
)
"""Common names that identify no person or machine, and occur in every report."""

SHORTEST_SECRET, SHORTEST_MIXED_SECRET = 8, 6
"""Least characters of a secret: shorter values ('true', '1') occur in ordinary text, too. Letters mixed with digits or
signs may be shorter; they are replaced as whole words only."""

LONG_NAME = 6

Rules = tuple[tuple[re.Pattern[str], "str | Callable[[re.Match[str]], str]"], ...]

_PUBLIC = re.compile(
    r"https?://(?:github\.com/(?:rocm|pytorch|triton-lang)/|(?:[\w-]+\.)*(?:pytorch\.org|python\.org|amd\.com|nvidia\.com)(?:/|$))",
    re.IGNORECASE,
)
"""Addresses that identify nobody. Other addresses of GitHub hold an account or a company."""


@dataclass(frozen=True)
class Private:
    """What must be removed from a text.

    users     names of people and accounts
    hosts     names of this machine, with and without its domain
    homes     home folders
    roots     folder of the project, by each of its names; paths below it stay, relative to <root>
    secrets   values of variables whose names suggest a secret
    """

    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()


@functools.lru_cache(maxsize=4096)
def redact_text(text: str, private: Private) -> str:
    """Returns the text with private names, folders, secrets and addresses replaced by marks such as <user>. Redacting
    twice changes nothing more."""
    text = _SLASH.sub("/", _ANSI.sub(" ", text))
    text = _apply_rules(text, _ADDRESSES)
    text = _redact_secrets(text, private.secrets)
    text = _apply_rules(text, _SECRETS)
    for root in sorted(_list_spellings(private.roots), key=len, reverse=True):
        if len(root) > 1:
            text = re.sub(rf"{re.escape(root.rstrip('/'))}(?![\w.-])", ROOT, text)
    text = _redact_folders(text, _list_spellings(private.homes))
    text = _apply_rules(text, _PLACES)
    text = _redact_names(text, private.hosts, HOST)
    text = _redact_names(text, private.users, USER)
    return _apply_rules(text, _DEVICES)


def redact_tree(value: Any, private: Private) -> Any:
    """Returns a JSON value with all of its texts redacted, including keys and secrets of a command's arguments."""
    if isinstance(value, str):
        return redact_text(value, private)
    if isinstance(value, dict):
        return {redact_text(str(key), private): _redact_value(key, item, private) for key, item in value.items()}
    if isinstance(value, list):
        return [
            SECRET if isinstance(item, str) and _is_secret_option(before) else redact_tree(item, private)
            for before, item in zip([None, *value], value, strict=False)
        ]
    return value


def _is_secret_option(before: Any) -> bool:
    """Returns whether a command's argument is an option without '=' that takes a secret as its next argument."""
    return isinstance(before, str) and before.startswith("-") and "=" not in before and is_secret_name(before)


def is_secret_name(name: str) -> bool:
    """Returns whether the name of a variable or field suggests a secret."""
    return bool(_SECRET_NAME.search(name) or _SECRET_VARIABLE.search(name))


def _redact_value(key: Any, item: Any, private: Private) -> Any:
    """Returns <secret> if the field's name suggests a secret or serial number, else its value redacted. Searches lists
    and objects."""
    if isinstance(item, (str, int)) and not isinstance(item, bool) and _SERIAL_NAME.search(str(key)):
        return SECRET
    return SECRET if isinstance(item, str) and is_secret_name(str(key)) else redact_tree(item, private)


@functools.cache
def _list_spellings(values: tuple[str, ...]) -> tuple[str, ...]:
    """Returns each value and each of its lines as it may be written: plain, URL-quoted, in JSON, in a repr, in two
    Unicode forms."""
    found: list[str] = []
    for value in (line for text in values for line in (text.strip(), *text.split("\n"))):
        for form in (unicodedata.normalize("NFC", value), unicodedata.normalize("NFD", value)):
            said = form.encode("utf-8", "surrogateescape")
            found += [form, urllib.parse.quote(said, safe=""), urllib.parse.quote(said), urllib.parse.quote_plus(said)]
            found += [json.dumps(form)[1:-1], json.dumps(form, ensure_ascii=False)[1:-1], ascii(form)[1:-1]]
    return tuple(dict.fromkeys(found))


def _redact_secrets(text: str, secrets: tuple[str, ...]) -> str:
    """Returns the text with <secret> for each secret in any letter case, because URL quoting may use either case. Short
    secrets stay."""
    for value in sorted(_list_spellings(secrets), key=len, reverse=True):
        mixed = not value.isalpha() and not value.isdigit()
        if len(value) >= SHORTEST_SECRET:
            text = re.sub(re.escape(value), SECRET, text, flags=re.IGNORECASE)
        elif mixed and len(value) >= SHORTEST_MIXED_SECRET:
            text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", SECRET, text, flags=re.IGNORECASE)
    return text


def _redact_folders(text: str, folders: tuple[str, ...]) -> str:
    """Returns the text with <home> for each home folder and the path below it, which may identify its owner. Paths
    inside of site-packages stay."""
    for folder in sorted({each.rstrip("/") for each in folders}, key=len, reverse=True):
        if len(folder) > 1:
            home = re.escape(folder)
            text = re.sub(rf"{home}(?:/[^\s\"'<>|:,;]{{0,1000}})?/site-packages(?=/)", "<site-packages>", text)
            text = re.sub(rf"{home}(?![\w.-])(?:(?:/|%2[fF])[^\s\"'<>|:,;()\[\]]*)?", HOME, text)
    return text


def _redact_names(text: str, names: tuple[str, ...], by: str) -> str:
    """Returns the text with `by` for each name, in any letter case and as a whole word; an underscore or digit also
    ends a word ('anna_2', 'torch_anna'). A long name with more than letters, such as 'gpu-node-17', is replaced
    anywhere, because no other word contains it."""
    for name in sorted(_list_spellings(names), key=len, reverse=True):
        if len(name) >= 2 and name.lower() not in COMMON_NAMES:
            anywhere = not name.isalpha() and len(name) >= LONG_NAME
            pattern = re.escape(name) if anywhere else rf"{_WORD_BEGINS}{re.escape(name)}(?![A-Za-z])"
            text = re.sub(pattern, by, text, flags=re.IGNORECASE)
    return text


def _apply_rules(text: str, rules: Rules) -> str:
    for pattern, by in rules:
        text = pattern.sub(by, text)
    return text


def _redact_url(found: re.Match[str]) -> str:
    """Returns the matched address if it is public; else <url>, as it may identify an employer or hold a password."""
    address = found[0]
    return address if _PUBLIC.match(address) and "@" not in address and "?" not in address else URL


def _redact_assigned(found: re.Match[str]) -> str:
    """Returns the matched assignment with <secret> as its value; the name before it and its quotes stay."""
    quote = found["quote"] or ""
    return f"{found['name']}{quote}{SECRET}{quote}"


def _hash_identifier(found: re.Match[str]) -> str:
    """Returns a short hash of the matched device identifier: equal for one device, so that lines can be matched, and
    not reversible."""
    return f"<id:{hashlib.sha256(found[0].lower().encode()).hexdigest()[:8]}>"


def _redact_path(found: re.Match[str]) -> str:
    """Returns the matched path if every machine has it (device files, system folders); <site-packages>/... for a
    package's file; else <path>."""
    path = found[0]
    if _KNOWN_PATH.match(path) or (path.count("/") == 1 and len(path) < 4):
        return path
    _, packages, inside = path.partition("/site-packages/")
    return f"<site-packages>/{inside}" if packages else PATH


_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
"""Control characters of a terminal. A blank replaces them; removing them could join a name to the text before it."""

_WORD_BEGINS = r"(?:(?<![A-Za-z])|(?<=%2[fF])|(?<=\\[nrt]))"
"""Start of a word, also after %2F (a slash in an address) and \\n, \\r, \\t in a quoted text."""

_SLASH = re.compile(r"\\(?:/|u002f|x2f)", re.IGNORECASE)
"""A slash as JSON and a repr may write it."""

_SECRET_WORD = (
    r"token(?!iz|s_per)|secret|passw(?:or)?d|passphrase|credential|api[_-]?key|access[_-]?key|private[_-]?key|cookie"
)
_SECRET_NAME = re.compile(rf"{_SECRET_WORD}|auth|(?<![a-z])(?:(?-i:pwd)|dsn|sig)(?![a-z])", re.IGNORECASE)
_SECRET_VARIABLE = re.compile(r"[A-Z0-9]_(?:KEY|PAT|PASS|PWD)$")
"""Capitals only: 'case_key' is no secret."""

_KEPT = r"(?![bru]?\\*[\"']?<(?:secret|user|host|home|root|path|url|email|address)>)"
_SERIAL_NAME = re.compile(r"serial", re.IGNORECASE)
_KNOWN_PATH = re.compile(
    r"/(?:dev/(?:kfd|dri|nvidia[\w*-]*|shm|null)|proc|sys|opt/rocm[\w.-]*|usr/(?:s?bin|lib(?:64)?|local/(?:bin|cuda[\w.-]*)))"
    r"(?:/(?!site-packages)[\w.+*-]+)*/?$"
)

_SECRETS: Rules = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), SECRET),
    (
        re.compile(
            r"(?:gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|(?<![A-Za-z])hf_\w{16,}|xox[abeprs]-[\w-]{10,})"
        ),
        SECRET,
    ),
    (
        re.compile(
            r"(?:(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[\w-]{30,}|(?<![A-Za-z])sk-[\w-]{20,}|pypi-[\w-]{20,}|npm_\w{20,})"
        ),
        SECRET,
    ),
    (re.compile(r"eyJ[\w-]{8,500}\.[\w-]{8,}\.[\w-]*"), SECRET),
    (re.compile(r"(?i)\b((?:bearer|basic)\s+)[\w.~+/=-]{8,}"), rf"\1{SECRET}"),
    (
        re.compile(
            r"(?i)(?P<name>(?:authorization|cookie)\\*[\"']?\s*[=:]\s*)(?!\s|bearer|basic)"
            + _KEPT
            + r"(?:(?P<quote>\\*[\"'])(?!bearer|basic)[^\n\"']*?(?P=quote)|[^\n\"']+)"
        ),
        _redact_assigned,
    ),
    (
        re.compile(
            rf"(?P<name>(?:(?i:(?!tokens\b)(?:{_SECRET_WORD})|(?<![A-Za-z])(?:auth|(?!(?-i:PWD))pwd|sig)(?![A-Za-z_-]))[\w-]{{0,40}}"
            r"|[A-Z0-9]_(?:KEY|PAT|PASS|PWD))\\*[\"']?\s*(?:=>|[=:])\s*[bru]?)"
            + _KEPT
            + r"(?:(?P<quote>\\*[\"']).*?(?P=quote)|\\*[\"']?[^\s\"'&,;}\\]+)"
        ),
        _redact_assigned,
    ),
    (
        re.compile(
            rf"(?i)(?P<name>--?[\w-]{{0,40}}(?:{_SECRET_WORD})[\w-]{{0,40}}[\"']?,?\s+)(?!-)"
            + _KEPT
            + r"(?:(?P<quote>\\*[\"']).*?(?P=quote)|[^\s\"']+)"
        ),
        _redact_assigned,
    ),
    (re.compile(r"(?i)(\bserial(?:[ _-]?(?:number|no\.?))?[\"']?\s*[=:]\s*[\"']?)(?!<)[\w-]+"), rf"\1{SECRET}"),
)

_ADDRESSES: Rules = (
    (re.compile(r"\bfile:/{1,3}[^\s\"'<>]*"), PATH),
    (re.compile(r"(?<![a-z0-9+.-])[a-z0-9+.-]+://[^\s@]{0,1000}@[^\s\"'<>]*", re.IGNORECASE), URL),
    (re.compile(r"(?<![a-z0-9+.-])[a-z0-9+.-]+://[^\s\"'<>]+", re.IGNORECASE), _redact_url),
)
"""Applied first: other rules would replace a part of an address and leave the rest. A password may hold a quote."""

_PLACES: Rules = (
    (re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)*:[\w./~-]+"), URL),
    (re.compile(r"(?<![\w.+-])[\w.+-]+(?:@|%40)[\w-]+(?:\.[\w-]+)+"), EMAIL),
    (re.compile(r"(?:%2f[\w.+@~*%-]*)+", re.IGNORECASE), PATH),
    (re.compile(r"\b[A-Za-z]:\\[^\s\"'<>|]+|\\\\[\w.-]+\\[^\s\"'<>|]+"), PATH),
    (re.compile(r"(?<![\w.>~/-])~[\w.-]*(?:/[^\s\"'<>|:,;()\[\]]*)"), HOME),
    (
        re.compile(r"(?:(?:(?<![\w.>/])|(?<=[\s\"']-[A-Za-z]))/|(?<![\w.>/:])/{2,})(?:[\w.+@~%*=#$&!-]+/*)+"),
        _redact_path,
    ),
)

_DEVICES: Rules = (
    (re.compile(r"(?<![\w-])(?:[0-9a-f]{2}-){5}[0-9a-f]{2}(?![\w-])", re.IGNORECASE), ADDRESS),
    (re.compile(r"(?:(?:GPU|MIG)-)?[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE), _hash_identifier),
    (re.compile(r"\bGPU-[0-9a-f]{16}\b|\b0x[0-9a-f]{16}\b", re.IGNORECASE), _hash_identifier),
    (
        re.compile(
            r"(?<!\d)(?<!\d\.)(?<!==)(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?!\.?\d)"
        ),
        ADDRESS,
    ),
    (re.compile(r"(?<![\w:])(?:[0-9a-f]{1,4}:){4,7}[0-9a-f]{1,4}(?![\w:])", re.IGNORECASE), ADDRESS),
    (
        re.compile(
            r"(?<![\w:])(?:fe[89ab][0-9a-f]|f[cd][0-9a-f]{2}|2[0-9a-f]{3})(?=[0-9a-f:]*::):[0-9a-f:]*(?![\w:])", re.I
        ),
        ADDRESS,
    ),
)
