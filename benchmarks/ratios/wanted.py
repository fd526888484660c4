"""The ratios that are wanted of our kernels on an H200, and what each compares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

COPY = "triton.bandwidth/bandwidth-copy-mib1024-f32"
"""What bandwidths are held against: our own copy of 1 GiB. On an H200 it takes two thirds of the time of
`Tensor.copy_`, which a captured graph turns into a memcpy node."""

Kind = Literal["speed", "bandwidth", "work"]


@dataclass(frozen=True)
class Wanted:
    """One ratio.

    ours, against    'backend/workload id'
    kind             'speed': the other's time over ours; 'bandwidth': our bytes per second over the other's; 'work':
                     our floating-point operations per second over the other's
    at_least         what is wanted
    """

    family: str
    name: str
    ours: str
    against: str
    at_least: float
    kind: Kind = "speed"


PREFILL_CASES = (
    *((4, length, dtype, mask) for length in (2048, 4096) for dtype in ("f16", "bf16") for mask in ("-causal", "")),
    *((1, 16384, "bf16", mask) for mask in ("-causal", "")),
)
"""Sequences, their length, element type and mask."""

HEAD_DIMS = (40, 59, 72, 80, 96, 104, 111, 120, 160)


def _prefill() -> Iterator[Wanted]:
    for head_dim, heads, at_least in ((64, 32, 0.95), (128, 16, 1.0), (256, 8, 0.95)):
        for batch, length, dtype, mask in PREFILL_CASES:
            case = f"prefill-b{batch}-s{length}-h{heads}-d{head_dim}-{dtype}{mask}"
            name = f"d{head_dim} {batch}x{length} {dtype} {'causal' if mask else 'full'} over cuDNN"
            yield Wanted("prefill", name, f"gluon.flash/{case}", f"native.sdpa_cudnn/{case}", at_least)
    for head_dim, heads in ((128, 32), (256, 8)):
        case = f"prefill-b4-s4096-h{heads}-d{head_dim}-f16-causal"
        name = f"triton.flash d{head_dim} 4x4096 over SDPA flash"
        yield Wanted("prefill", name, f"triton.flash/{case}", f"native.sdpa_flash/{case}", 1.2)
    for batch, length in ((8, 2048), (4, 4096)):
        varlen = f"varlen-q{batch}x{length}-h32-hk8-d128-bf16-causal"
        dense = f"prefill-b{batch}-s{length}-h32-hk8-d128-bf16-causal"
        name = f"varlen {batch}x{length} over dense"
        yield Wanted("prefill", name, f"triton.flash_varlen/{varlen}", f"triton.flash/{dense}", 0.95)


def _head_dims() -> Iterator[Wanted]:
    for head_dim in HEAD_DIMS:
        power = 1 << (head_dim - 1).bit_length()
        heads = 8 if power == 256 else 16
        case, next_case = (f"prefill-b4-s4096-h{heads}-hk4-d{size}-bf16-causal" for size in (head_dim, power))
        name = f"d{head_dim} over d{power}"
        yield Wanted("head sizes", name, f"gluon.flash/{case}", f"gluon.flash/{next_case}", 1 / 1.15)


BACKWARD = "gluon.flash_backward"


def _backward() -> Iterator[Wanted]:
    for head_dim, heads in ((64, 32), (128, 32)):
        for mask in ("-causal", ""):
            case = f"backward-b4-s4096-h{heads}-hk8-d{head_dim}-bf16{mask}"
            name = f"d{head_dim} {'causal' if mask else 'full'}"
            yield Wanted("backward", f"{name} over flash", f"{BACKWARD}/{case}", f"native.sdpa_backward/{case}", 1.0)
            yield Wanted("backward", f"{name} over cuDNN", f"{BACKWARD}/{case}", f"native.cudnn_backward/{case}", 0.8)
    case = "varlen_backward-q4x4096-h32-hk8-d128-bf16-causal"
    against = f"native.sdpa_varlen_backward/{case}"
    yield Wanted("backward", "varlen d128 causal over flash", f"{BACKWARD}/{case}", against, 1.0)


def _decode() -> Iterator[Wanted]:
    for backend in ("triton.flash_decode", "hip.decode"):
        for batch, length in ((1, 131072), (8, 16384), (64, 4096), (256, 1024)):
            for page in ("", "-page16"):
                case = f"{backend}/decode-b{batch}-kv{length}-h32-hk8-d128{page}-f16"
                at_least = 1 / 1.3 if batch == 1 else 0.9
                name = f"{backend} {batch}x{length}{page} of copy"
                yield Wanted("decode", name, case, COPY, at_least, "bandwidth")
    for queries in (2, 4, 8):
        several, one = (f"triton.flash_decode/decode-b16{q}-kv8192-h32-hk8-d128-f16" for q in (f"-q{queries}", ""))
        yield Wanted("decode", f"{queries} new tokens over one", several, one, 0.8)
    for batch, length, heads in ((32, 4096, 16), (128, 4096, 16), (32, 16384, 16)):
        case = f"triton.mla/mla-b{batch}-s1-kv{length}-h{heads}-d128-r64-c512-bf16"
        yield Wanted("decode", f"latent attention {batch}x{length} h{heads} of copy", case, COPY, 0.8, "bandwidth")


def _rows() -> Iterator[Wanted]:
    for family, native in (("softmax", "softmax"), ("rmsnorm", "rms_norm"), ("layernorm", "layer_norm")):
        for columns in (1024, 4096, 16384, 32768, 65536, 131072):
            case = f"{family}-r{(1 << 28) // columns}-c{columns}-bf16"
            ours = f"{'gluon' if columns >= GLUON_ROWS[family] else 'triton'}.{family}/{case}"
            yield Wanted("rows", f"{family} c{columns} of copy", ours, COPY, 0.9, "bandwidth")
            if columns in (4096, 65536):
                yield Wanted("rows", f"{family} c{columns} over native", ours, f"native.{native}/{case}", 1.0)


GLUON_ROWS = {"softmax": 65536, "rmsnorm": 65536, "layernorm": 16384}
"""Columns from which the kernel that keeps rows in shared memory is compared."""


def _gemm() -> Iterator[Wanted]:
    for text, ours, at_least in (
        ("m8192-n8192-k8192-f16", "gluon.gemm", 0.98),
        ("m8192-n8192-k8192-bf16-nt", "gluon.gemm", 0.98),
        ("m4096-n4096-k4096-f16", "gluon.gemm", 0.98),
        ("m8192-n8192-k8192-f8e4m3-nt", "gluon.gemm", 0.9),
    ):
        yield Wanted("gemm", f"{text} over torch", f"{ours}/gemm-{text}", f"native.matmul/gemm-{text}", at_least)
    for size in ("m896-n4864-k8192-f16", "m1792-n2432-k8192-bf16-nt"):
        for twin in ("gemm_data_parallel", "gemm"):
            name = f"stream-K {size} over {twin}"
            yield Wanted("gemm", name, f"triton.gemm_stream_k/gemm-{size}", f"triton.{twin}/gemm-{size}", 1.0)


def _bandwidth() -> Iterator[Wanted]:
    for size in (256, 1024, 4096):
        case = f"bandwidth-copy-mib{size}-f32"
        yield Wanted("bandwidth", f"{case} over copy_", f"triton.bandwidth/{case}", f"native.copy_/{case}", 0.95)


def _hip() -> Iterator[Wanted]:
    seed, large = "prefill-b1-s512-h8-d64-f16-causal", "prefill-b4-s4096-h32-d128-f16-causal"
    steps = ("lds_tiles", "flash", "vectorised", "matrix", "prefetch", "best", "wgmma")
    wanted = {("lds_tiles", seed): 3.0, ("flash", seed): 3.3, ("best", large): 30.0}
    for name, case in (("seed's size", seed), ("large", large)):
        for step in steps:
            title = f"hip.{step} over hip.naive, {name}"
            yield Wanted("hip", title, f"hip.{step}/{case}", f"hip.naive/{case}", wanted.get((step, case), 1.0))
        yield Wanted("hip", f"hip.wgmma over SDPA flash, {name}", f"hip.wgmma/{case}", f"native.sdpa_flash/{case}", 1.0)


def _layers() -> Iterator[Wanted]:
    for title, case, ours, against in (
        ("Llama 3 8B prefill 4k", "block-b1-s4096-h32-hk8-d128-bf16", "gluon.flash", "native.sdpa_flash"),
        ("Llama 3 8B decode 4k", "block-b1-s1-p4095-h32-hk8-d128-bf16", "triton.flash_decode", "native.sdpa_decode"),
        ("Llama 3 8B decode 16x4k", "block-b16-s1-p4095-h32-hk8-d128-bf16", "triton.flash_decode",
         "native.sdpa_decode"),
    ):  # fmt: skip
        name = f"layer over {ours}, {title}, over {against}"
        yield Wanted("layer", name, f"layer.{ours}/{case}", f"layer.{against}/{case}", 1.0)


WANTED: tuple[Wanted, ...] = (
    *_prefill(), *_head_dims(), *_backward(), *_decode(), *_rows(), *_gemm(), *_bandwidth(), *_hip(), *_layers(),
)  # fmt: skip
