"""Names of the site's files. Names of cases and commits are foreign text: a hash tells them apart, never the text."""

from __future__ import annotations

import hashlib
import re

HASH_DIGITS = 16
"""64 bits: two of a million names collide with a chance below 1e-7."""

READABLE_LENGTH = 60
CASES, COMMITS = "cases", "commits"
PAGE = re.compile(rf"(?:{CASES}|{COMMITS})/[a-z0-9]+(?:-[a-z0-9]+)*\.html")
"""What the path of a page below the site's folder looks like."""


def make_page_name(folder: str, readable: str, *identity: str) -> str:
    """Returns the path of a page below the site's folder: 'cases/prefill-triton-flash-3f2a....html'.

    The hash is of `identity`; `readable` is for people only, reduced to small letters, digits and '-'."""
    text = "\0".join(identity).encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(text).hexdigest()[:HASH_DIGITS]
    words = re.sub(r"[^a-z0-9]+", "-", readable[: 4 * READABLE_LENGTH].lower())[:READABLE_LENGTH].strip("-")
    return f"{folder}/{words}-{digest}.html" if words else f"{folder}/{digest}.html"
