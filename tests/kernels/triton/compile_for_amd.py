"""Compiles the prefill kernel for an AMD architecture without a GPU: ARCH prints a JSON line per shipped rule.

Started by the test beside it, in a process in which Triton does not interpret.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernels.triton.configs import PREFILL_FORWARD, Rule, load
from kernels.triton.prefill_forward import padded_head_dim, prefill_forward_kernel

INTS = ("heads", "kv_heads", "seq_q", "seq_kv")


def source(rule: Rule) -> tuple[ASTSource, dict[str, Any]]:
    """The kernel with log-sum-exp, causal and ragged, as `rule` would launch it; and the compiler's options."""
    element = "*fp16" if rule.element_bits == 16 else "*fp32"
    config = dict(rule.config)
    options = {key: config.pop(key) for key in ("num_warps", "num_stages", "waves_per_eu")}
    constants = {
        "CAUSAL": True,
        "WITH_LSE": True,
        "EVEN_N": False,
        "HEAD_DIM": rule.head_dim_max,
        "BLOCK_D": padded_head_dim(rule.head_dim_max),
        "PRECISION": "ieee",
        "IN_FP32": False,
        **config,
    }
    signature = {
        **dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "out_ptr"), element),
        "lse_ptr": "*fp32",
        **dict.fromkeys(INTS, "i32"),
        "scale_log2": "fp32",
        **dict.fromkeys(constants, "constexpr"),
    }
    names = prefill_forward_kernel.arg_names
    return ASTSource(
        fn=prefill_forward_kernel,
        signature={name: signature[name] for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in names if name.endswith("_ptr")},
    ), options


def main(arch: str) -> None:
    """Compile every rule of the architecture."""
    for rule in load(PREFILL_FORWARD)[arch]:
        ast, options = source(rule)
        compiled = triton.compile(ast, target=GPUTarget("hip", arch, 64), options=options)
        spills = int(compiled.asm["amdgcn"].split(".vgpr_spill_count:", 1)[1].split()[0])
        figures = {"lds_bytes": compiled.metadata.shared, "vgpr_spills": spills, "source": rule.source}
        print(json.dumps({"head_dim": rule.head_dim_max, "element_bits": rule.element_bits, **figures}))


if __name__ == "__main__":
    main(sys.argv[1])
