"""The files by which a repository gates its first kernel: a test, what it imports, lines for git, and a CI workflow."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from pytest_attnperf.errors import UnknownNameError, UsageError

PERF = Path("perf")
WORKFLOWS = {
    "github": (Path(".github/workflows/perf.yml"), "github.yml"),
    "gitlab": (Path(".gitlab-ci.yml"), "gitlab.yml"),
}
"""CI system -> (file in a repository, its template beside this module)."""

SOURCE_FOLDERS = (Path("src"), Path("."))
"""Where a repository may keep its modules, in the order in which they are searched."""

DRIVER = "attnperf"
"""Name of git's merge driver for baselines."""

ATTRIBUTES = f"baselines/**/*.json merge={DRIVER}"
"""Line of .gitattributes by which git merges baselines."""

IGNORED = (".attnperf/", ".*.lock")
"""Results of runs, and the locks of baseline files: lines of .gitignore."""

_KERNEL = re.compile(r"(?P<module>[^\W\d]\w*(?:\.[^\W\d]\w*)*):(?P<function>[^\W\d]\w*)")

EXAMPLE_NAME = "softmax"
EXAMPLE = '''"""Proven right, timed, and held against baselines/: pytest --attnperf perf/"""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def softmax(x):  # an example: put the call of your kernel here
    return torch.softmax(x, dim=-1)


def plain_softmax(x):  # the same in plain torch; it also runs in fp64, and that is the truth
    weights = (x - x.amax(dim=-1, keepdim=True)).exp()
    return weights / weights.sum(dim=-1, keepdim=True)


def test_softmax(attnperf):
    def make_inputs():  # torch is seeded before each call
        return torch.randn(1024, 1024, device=DEVICE)

    attnperf.gate("softmax", softmax, reference=plain_softmax, inputs=make_inputs)
'''

OF_KERNEL = '''"""Proven right, timed, and held against baselines/: pytest --attnperf perf/"""

import torch
from {module} import {function}

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def plain_{function}({parameters}):
    raise NotImplementedError("write {function} in plain torch here; it also runs in fp64, and that is the truth")


def test_{function}(attnperf):
    def make_inputs():  # torch is seeded before each call; put your shapes and types here
{inputs}
        return {parameters}

    attnperf.gate("{function}", {function}, reference=plain_{function}, inputs=make_inputs)
'''

CONFTEST = '''"""Lets the tests here, and the processes that measure, import the modules of {folder}."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]{below}))
'''


@dataclass(frozen=True)
class StarterFile:
    """A file to write. path: within the repository; is_line: `text` is one line, which an existing file also gets."""

    path: Path
    text: str
    is_line: bool = False


@dataclass(frozen=True)
class StarterKernel:
    """A function to gate.

    parameters   names of its arguments without a default; ('x',) if they are not known
    folder       within the repository, that must be on the import path; None if it is there without help
    """

    module: str
    function: str
    parameters: tuple[str, ...] = ("x",)
    folder: Path | None = None


def find_kernel(text: str, root: Path) -> StarterKernel:
    """Returns the function that MODULE:FUNCTION names, without importing it. Raises UsageError for another form, for
    a module that is neither in the repository `root` nor installed, and for a function that the module lacks."""
    match = _KERNEL.fullmatch(text)
    if match is None:
        raise UsageError(f"--kernel {text!r} is not MODULE:FUNCTION; write for example my_package.norms:rms_norm")
    module, function = match["module"], match["function"]
    top, is_installed = module.partition(".")[0], _is_installed(module.partition(".")[0])
    for folder in SOURCE_FOLDERS:
        stem = root / folder / Path(*module.split("."))
        file = next((file for file in (stem.with_suffix(".py"), stem / "__init__.py") if file.is_file()), None)
        if file is not None:
            parameters = _read_parameters(file, function)
            return StarterKernel(module, function, parameters or ("x",), None if is_installed else folder)
    if not is_installed:
        raise UsageError(
            f"--kernel {text}: {top} is not installed for {sys.executable}, and {root} has no module {module} in src/ "
            "or beside it; run this in the folder of your repository"
        )
    return StarterKernel(module, function)


def plan_files(root: Path, kernel: StarterKernel | None, ci: str) -> list[StarterFile]:
    """Returns what the repository `root` needs.

    kernel   None writes an example that passes as it stands
    ci       'github', 'gitlab', or 'none'
    """
    name = kernel.function if kernel else EXAMPLE_NAME
    files = [StarterFile(PERF / f"{_choose_stem(root, name)}.py", _render_test(kernel) if kernel else EXAMPLE)]
    if kernel and kernel.folder is not None:
        below = "" if kernel.folder == Path(".") else f' / "{kernel.folder}"'
        shown = "this repository" if kernel.folder == Path(".") else f"{kernel.folder}/"
        files.append(StarterFile(PERF / "conftest.py", CONFTEST.format(folder=shown, below=below)))
    files.append(StarterFile(Path(".gitattributes"), ATTRIBUTES, is_line=True))
    files += [StarterFile(Path(".gitignore"), line, is_line=True) for line in IGNORED]
    if ci in WORKFLOWS:
        path, template = WORKFLOWS[ci]
        files.append(StarterFile(path, read_template(template)))
    return files


def read_template(name: str) -> str:
    """Returns a CI workflow that the package holds."""
    from importlib import resources

    return resources.files("pytest_attnperf.tools.starter").joinpath(name).read_text(encoding="utf-8")


def _choose_stem(root: Path, name: str) -> str:
    """Returns the test file's stem: another one where tests/ has a file of that name, because pytest imports both."""
    taken = any((root / "tests").rglob(f"test_{name}.py"))
    return f"test_{name}_perf" if taken else f"test_{name}"


def _render_test(kernel: StarterKernel) -> str:
    made = [f"        {name} = torch.randn(1024, 1024, device=DEVICE)" for name in kernel.parameters]
    return OF_KERNEL.format(
        module=kernel.module,
        function=kernel.function,
        parameters=", ".join(kernel.parameters),
        inputs="\n".join(made),
    )


def _is_installed(package: str) -> bool:
    """Returns whether this Python finds the package, whatever folder the command was typed in."""
    program = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
    return subprocess.run([sys.executable, "-I", "-c", program, package], check=False).returncode == 0


def _read_parameters(file: Path, function: str) -> tuple[str, ...]:
    """Returns the arguments without a default of a function in a file; () if the file imports or computes it. Raises
    UsageError for a file that is no Python, and for a name that it does not have."""
    try:
        body = ast.parse(file.read_text(encoding="utf-8")).body
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{file} is not Python: {error}; correct it first") from error
    functions = {node.name: node.args for node in body if isinstance(node, ast.FunctionDef)}
    if function in functions:
        args = functions[function]
        names = [arg.arg for arg in (*args.posonlyargs, *args.args)]
        return tuple(names[: len(names) - len(args.defaults)])
    others = {node.name for node in body if isinstance(node, ast.ClassDef)}
    others |= {alias.asname or alias.name for node in body if isinstance(node, ast.ImportFrom) for alias in node.names}
    others |= {
        one.id for node in body if isinstance(node, ast.Assign) for one in node.targets if isinstance(one, ast.Name)
    }
    if function not in others and "*" not in others:
        raise UnknownNameError(f"function of {file}", function, functions)
    return ()
