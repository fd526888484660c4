"""The ratios that are wanted of our kernels on an H200, and what each compares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

COPY = "triton.bandwidth/bandwidth-copy-mib1024-f32"
"""What bandwidths are held against: our own copy of 1 GiB. On an H200 it takes two thirds of the time of
`Tensor.copy_`, which a captured graph turns into a memcpy node."""

Kind = Literal["speed", "bandwidth"]


@dataclass(frozen=True)
class Wanted:
    """One ratio.

    ours, against    'backend/workload id'
    kind             'speed': the other's time over ours; 'bandwidth': our bytes per second over the other's
    at_least         what is wanted
    """

    name: str
    ours: str
    against: str
    at_least: float
    kind: Kind = "speed"


def _prefill() -> list[Wanted]:
    found = []
    for dtype in ("f16", "bf16"):
        case = f"prefill-b4-s4096-h32-d128-{dtype}-causal"
        for ours in ("triton.flash", "triton.flash_persistent"):
            for name, wanted in (("sdpa_flash", 1.2), ("sdpa_cudnn", 0.75)):
                title = f"{ours} d128 {dtype} over {name}"
                found.append(Wanted(title, f"{ours}/{case}", f"native.{name}/{case}", wanted))
    for length in (512, 1024, 2048, 4096):
        case = f"prefill-b4-s{length}-h8-d256-f16-causal"
        title = f"triton.flash d256 s{length} over sdpa_flash"
        found.append(Wanted(title, f"triton.flash/{case}", f"native.sdpa_flash/{case}", 1.0))
    return found


def _varlen() -> list[Wanted]:
    return [
        Wanted(
            f"varlen of equal lengths {count}x{length} over dense",
            f"triton.flash_varlen/varlen-q{count}x{length}-h32-hk8-d128-bf16-causal",
            f"triton.flash/prefill-b{count}-s{length}-h32-hk8-d128-bf16-causal",
            0.95,
        )
        for count, length in ((4, 2048), (8, 2048), (4, 4096))
    ]


def _gemm() -> list[Wanted]:
    square = "gemm-m8192-n8192-k8192-f16"
    found = [Wanted("gemm 8192 f16 over torch.matmul", f"triton.gemm/{square}", f"native.matmul/{square}", 0.8)]
    for size in ("m896-n4864-k8192-f16", "m1792-n2432-k8192-bf16-nt"):
        for twin in ("gemm_data_parallel", "gemm"):
            name = f"stream-K {size} over {twin}"
            found.append(Wanted(name, f"triton.gemm_stream_k/gemm-{size}", f"triton.{twin}/gemm-{size}", 1.0))
    return found


def _rows() -> list[Wanted]:
    found = []
    for family, native in (("softmax", "softmax"), ("rmsnorm", "rms_norm"), ("layernorm", "layer_norm")):
        for columns in (1024, 4096, 16384, 32768, 65536):
            case = f"{family}-r{(1 << 28) // columns}-c{columns}-bf16"
            ours = f"triton.{family}/{case}"
            found.append(Wanted(f"{family} c{columns} of copy", ours, COPY, 0.85, "bandwidth"))
            found.append(Wanted(f"{family} c{columns} over native", ours, f"native.{native}/{case}", 1.0))
    return found


def _memory() -> list[Wanted]:
    decode = "triton.flash_decode/decode-b64-kv4096-h32-hk8-d128-f16"
    copies = [f"bandwidth-copy-mib{size}-f32" for size in (256, 1024, 4096)]
    return [
        Wanted("decode b64 s4096 of copy", decode, COPY, 0.85, "bandwidth"),
        *(Wanted(f"{case} over copy_", f"triton.bandwidth/{case}", f"native.copy_/{case}", 0.95) for case in copies),
    ]


def _hip() -> list[Wanted]:
    seed, large = "prefill-b1-s512-h8-d64-f16-causal", "prefill-b4-s4096-h32-d128-f16-causal"
    steps = ("naive", "lds_tiles", "flash", "vectorised", "matrix", "prefetch", "best")
    wanted = {("lds_tiles", seed): 3.0, ("flash", seed): 3.3, ("best", large): 30.0}
    found = [
        Wanted(
            f"hip.{step} over hip.naive, {name}",
            f"hip.{step}/{case}",
            f"hip.naive/{case}",
            wanted.get((step, case), 1.0),
        )
        for name, case in (("seed's size", seed), ("large", large))
        for step in steps[1:]
    ]
    for name, case, at_least in (("seed's size", seed, 0.5), ("large", large, 0.5)):
        title = f"hip.best over sdpa_flash, {name}"
        found.append(Wanted(title, f"hip.best/{case}", f"native.sdpa_flash/{case}", at_least))
    decode = "hip.decode/decode-b64-kv4096-h32-hk8-d128-f16"
    return [*found, Wanted("hip.decode b64 s4096 of copy", decode, COPY, 0.8, "bandwidth")]


def _layers() -> list[Wanted]:
    found = []
    for title, case, ours, against in (
        ("Llama 3 8B prefill 4k", "block-b1-s4096-h32-hk8-d128-bf16", "triton.flash", "native.sdpa_flash"),
        ("Llama 3 8B decode 4k", "block-b1-s1-p4095-h32-hk8-d128-bf16", "triton.flash_decode", "native.sdpa_decode"),
        (
            "Llama 3 8B decode 16 x 4k",
            "block-b16-s1-p4095-h32-hk8-d128-bf16",
            "triton.flash_decode",
            "native.sdpa_decode",
        ),
    ):
        name = f"layer over {ours}, {title}, over {against}"
        found.append(Wanted(name, f"layer.{ours}/{case}", f"layer.{against}/{case}", 1.0))
    return found


WANTED: tuple[Wanted, ...] = (*_prefill(), *_varlen(), *_memory(), *_gemm(), *_rows(), *_hip(), *_layers())
