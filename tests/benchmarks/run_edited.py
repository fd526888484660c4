"""Compiles or interprets kernels of several trees: WHAT and {tree: [name]} as arguments; prints {tree: {name: hash}}.

    code       name is 'kernel/configuration'; the hash of its machine code for sm_90
    outputs    name is 'backend/workload'; the hash of what it returns, with TRITON_INTERPRET=1 from outside

A process of its own: Triton decides at import whether it interprets, and kernels come from other trees.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from pytest_attnperf.backends import Registry
from pytest_attnperf.codeobject.building import build_object
from pytest_attnperf.codeobject.built import object_bytes
from pytest_attnperf.codeobject.objects import read_object
from pytest_attnperf.kernel_builds import KernelRegistry
from pytest_attnperf.workloads.families import parse_workload


def kernels_of(tree: str) -> Any:
    """The kernels of this tree, whatever was imported before."""
    for name in [name for name in sys.modules if name == "kernels" or name.startswith("kernels.")]:
        del sys.modules[name]
    sys.path.insert(0, tree)
    import kernels

    assert str(Path(kernels.__file__).parents[1]) == tree
    return kernels


def code(tree: str, names: list[str], cache: Path) -> dict[str, str]:
    """Hashes of machine code."""
    registry, found = KernelRegistry(), {}
    kernels_of(tree).register_kernels(registry)
    for name in names:
        kernel, config = name.split("/")
        (declared,) = (one for one in registry.get(kernel).builds("sm_90") if one.config == config)
        built = build_object(declared, cache)
        (inside,) = read_object(object_bytes(built), name, arch="sm_90").kernels
        found[name] = inside.code.isa_hash
    return found


def outputs(tree: str, names: list[str]) -> dict[str, str]:
    """Hashes of results on inputs of one seed."""
    registry, found = Registry(), {}
    kernels_of(tree).register(registry)
    for name in names:
        backend, text = name.split("/")
        workload = parse_workload(text)
        prepared = registry.get(backend).prepare(workload, workload.make_inputs(1, "cpu", planted=True))
        tensors = prepared.outputs(prepared.run()).values()
        found[name] = hashlib.sha256(b"".join(one.numpy().tobytes() for one in tensors)).hexdigest()
    return found


def main() -> None:
    """Answer."""
    what, trees = sys.argv[1], json.loads(sys.argv[2])
    with tempfile.TemporaryDirectory() as cache:
        ask = (lambda tree, names: code(tree, names, Path(cache))) if what == "code" else outputs
        found = {tree: ask(tree, names) for tree, names in trees.items()}
    sys.__stdout__.write(json.dumps(found))


if __name__ == "__main__":
    main()
