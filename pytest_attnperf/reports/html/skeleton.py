"""What every page is made of: template, style, scripts, charts and the content policy that allows only these."""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Callable, Sequence
from typing import Any

from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.reports.html.embedding import csp_hash


class HtmlReportError(AttnperfError):
    """The HTML report cannot be made. The message names what is missing and how to install it."""


def load_template(name: str) -> Any:
    """Returns a template of this folder; it may import others of it. Raises HtmlReportError if Jinja is missing."""
    return make_environment(read_file).get_template(name)


def make_environment(read: Callable[[str], str]) -> Any:
    """Returns Jinja's environment for the templates that `read` returns by name: their values are escaped. Raises
    HtmlReportError if Jinja is missing."""
    try:
        import jinja2
    except ImportError as error:
        raise _make_missing_error("jinja2", error) from error
    loader = jinja2.FunctionLoader(read)
    return jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, loader=loader)


@functools.cache
def load_bundle() -> str:
    """Returns JavaScript of Vega, Vega-Lite and Vega-Embed, safe in a script. Raises HtmlReportError if missing."""
    try:
        import vl_convert
    except ImportError as error:
        raise _make_missing_error("vl_convert", error) from error
    text = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _make_missing_error(module: str, error: ImportError) -> HtmlReportError:
    return HtmlReportError(f"an HTML report needs {module} ({error}): pip install 'pytest-attnperf[html]'")


def join_scripts(names: Sequence[str]) -> str:
    """Returns the script files of this folder as one strict script."""
    return '"use strict";\n' + "\n".join(read_file(name) for name in names)


def read_file(name: str) -> str:
    """Returns the text of a file of this folder."""
    return importlib.resources.files(__package__ or "").joinpath(name).read_text(encoding="utf-8")


def replace_surrogates(text: str) -> str:
    """Returns the text with '?' for lone surrogates, which a name may hold but a UTF-8 file cannot."""
    return text.encode("utf-8", errors="replace").decode()


def build_content_policy(style: str, *scripts: str) -> str:
    """Returns the content security policy of a page that runs `scripts` and nothing else, and asks for no address."""
    hashes = " ".join(csp_hash(script) for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src {csp_hash(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
