"""Backend `hip.decode`: one new token per sequence, split over the keys, and a second kernel that merges the splits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.hip.compiler import load, missing_hip
from kernels.hip.emulator import EMULATOR_FLOPS_MAX
from kernels.hip.faces import ELEMENT_BYTES, NVIDIA, arch_of, face_of
from kernels.hip.sources import HipKernel, element_define
from kernels.layouts import own_copies
from kernels.limits import HALVES, join_names
from pytest_attnperf.backends import Backend, Declares, Prepared
from pytest_attnperf.workloads.decode import Decode
from pytest_attnperf.workloads.paged_cache import require_block_table

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo

    Result = tuple[torch.Tensor, torch.Tensor | None]

GROUP_MAX = 16
"""Most query heads per key head: four parts of four heads, the most that the registers of a lane hold."""
HEAD_DIMS = (32, 256, 8)
"""Smallest and largest head dimension, and its divisor: one wave reads a whole row in pieces of 16 bytes."""

SPLIT_MULTIPLE = 32
"""Keys per split are a multiple of it: the keys of one workgroup step at a head dimension of 128."""
SPLIT_KEYS_MIN = 256
"""In a shorter split, starting and merging take about as long as reading."""
WORKGROUPS_PER_MULTIPROCESSOR = 8
"""Of 8, 16, 32 and 64 the fastest on an H200 at b64 kv4096 h32 hk8 d128 f16: 286, 292, 306 and 328 us."""

MMA_GROUP_MIN = 3
"""From so many query heads per key head on, NVIDIA multiplies on matrix units. On an H200 that took 256 us and
decode_split.hip 239 with one head, 266 and 258 with two (D = 256), 256 and 290 with four."""
MMA_TILES = {
    64: {"WAVES": 4, "KEYS": 32, "STAGES": 3},
    128: {"WAVES": 4, "KEYS": 16, "STAGES": 3},
    256: {"WAVES": 4, "KEYS": 16, "STAGES": 2},
}
"""Largest head dimension -> macros of decode_split_mma.hip: of ten tiles at D = 128 the one that was most often among
the best on an H200. At D = 64 and 256 one was tried each."""
MMA_SPLIT_KEYS_MIN = 64
"""On an H200 b1 kv1024 took 6.4 us in splits of 64 keys, 7.2 in splits of 128 and 8.0 in splits of 256."""
MMA_FILLED = (15, 16)
"""There are splits until so much of the multiprocessors has a workgroup. One each is enough, for its ring keeps 64 KiB
on their way: b16 kv1024 h32 hk8 took 20.5 us in 1 split, 24.8 in 2 and 26 in 4."""
FLOAT_BYTES = 4

CPU_MULTIPROCESSORS = 4
"""Multiprocessors assumed for the emulator, so that small problems are split too."""

REDUCE_THREADS = (128, 512)
"""Threads of a workgroup that merges up to REDUCE_SPLITS splits, and more, which need more slices."""
REDUCE_SPLITS = 16


@dataclass(frozen=True)
class HipDecode(Backend[Decode]):
    """Decode attention, contiguous or paged, fp16 or bf16; keys and values are read once for all heads that share them.

    split_keys_min    least keys of a split, unless the sequence has fewer; 0: what suits the kernel
    """

    split_keys_min: int = 0

    families = ("decode",)

    def unsupported_reasons(self, workload: Decode, device: DeviceInfo) -> list[str]:
        """Returns what the two kernels do not compute, and what is missing to compile or emulate them, if anything."""
        found = missing_hip(device)
        least, largest, multiple = HEAD_DIMS
        if workload.queries > 1:
            found.append(f"hip.decode takes one token per sequence, not {workload.queries}")
        if workload.dtype not in HALVES:
            found.append(f"hip.decode takes {join_names(HALVES)}, not {workload.dtype}")
        if not least <= workload.head_dim <= largest or workload.head_dim % multiple:
            found.append(
                f"hip.decode takes a head_dim of {least} to {largest} that is a multiple of {multiple} (a wave reads a "
                f"row in pieces of 16 bytes), not {workload.head_dim}"
            )
        if group_of(workload) > GROUP_MAX:
            found.append(f"hip.decode takes {GROUP_MAX} query heads per K/V head at most, not {group_of(workload)}")
        extras = {
            "sliding window": workload.window,
            "soft cap": workload.cap,
            "8-bit cache": workload.kv_dtype,
            "sinks": workload.sinks,
        }
        return found + [f"hip.decode takes no {name}" for name, has in extras.items() if has]

    def prepare(self, workload: Decode, inputs: Tensors) -> Prepared:
        """Copies the inputs, chooses the splits, compiles both kernels and, on a GPU, runs them once. Raises UsageError
        if the block table or the lengths are out of range."""
        tensors = own_copies(inputs)
        given = workload.split_inputs(tensors)
        if given.table is not None:
            require_block_table(given.table, given.seq_lens, given.k.shape[0], workload.page)
        device = given.q.device
        count = mma_splits_of if takes_mma(workload, device) else splits_of
        least = {"split_keys_min": self.split_keys_min} if self.split_keys_min else {}
        splits, split_keys = count(
            workload.seq_kv, workload.batch * workload.kv_heads, multiprocessors_of(device), **least
        )
        call = hip_decode(workload, device, splits, split_keys)
        if given.q.is_cuda:
            call(*tensors)
        return Prepared(
            call=call,
            tensors=tensors,
            convert=lambda new: new,
            outputs=_canonical_outputs,
            config={"splits": str(splits), "split_keys": str(split_keys)},
            declares=Declares(kernels=kernels_of(workload, device, splits), never=("scaled_dot_product",)),
        )


def hip_decode(workload: Decode, device: torch.device, splits: int, split_keys: int) -> Callable[..., Result]:
    """Compiles both kernels and returns a function of the canonical inputs that launches them.

    `splits` times `split_keys` keys must hold the longest sequence, see `splits_of`.
    """
    import torch

    batch, heads, kv_heads = workload.batch, workload.heads, workload.kv_heads
    source = split_kernel_of(workload, device, splits)
    split_kernel, writes_out = load(source, device), source.function == "decode_split_mma"
    reduce_kernel = load(decode_reduce(workload.head_dim, workload.dtype, splits, with_lse=workload.lse), device)

    def run_decode(*inputs: torch.Tensor) -> Result:
        parts = workload.split_inputs(inputs)
        q, k, v = parts.q, parts.k, parts.v
        # The kernels need a pointer for each; they do not touch an absent table or an lse that is not requested.
        table = parts.seq_lens if parts.table is None else parts.table
        room = k.shape[1] if parts.table is None else parts.table.shape[1]
        partial_out = torch.empty((batch, heads, splits, workload.head_dim), dtype=torch.float32, device=device)
        partial_max, partial_sum = (
            torch.empty((batch, heads, splits), dtype=torch.float32, device=device) for _ in range(2)
        )
        out = torch.empty_like(q)
        lse = torch.empty((batch, heads, 1), dtype=torch.float32, device=device) if workload.lse else None
        direct = (out, partial_max if lse is None else lse) if writes_out else ()
        split_kernel(
            (kv_heads, splits, batch),
            q, k, v, table, parts.seq_lens, partial_out, partial_max, partial_sum, *direct,
            kv_heads, room, splits, split_keys,
        )  # fmt: skip
        if writes_out and splits == 1:
            return out, lse
        reduce_kernel(
            (batch * heads, 1, 1),
            partial_out, partial_max, partial_sum, parts.seq_lens, out, partial_max if lse is None else lse,
            heads, splits, split_keys,
        )  # fmt: skip
        return out, lse

    return run_decode


def splits_of(
    seq_kv: int, workgroups_per_split: int, multiprocessors: int, split_keys_min: int = SPLIT_KEYS_MIN
) -> tuple[int, int]:
    """Returns (number of splits, keys of each): enough splits for WORKGROUPS_PER_MULTIPROCESSOR workgroups on each
    multiprocessor, as far as `split_keys_min` allows; at least one.

    seq_kv                  keys of the longest sequence
    workgroups_per_split    B * Hk
    split_keys_min          limits the splits, so that each has at least this many keys
    """
    wanted = WORKGROUPS_PER_MULTIPROCESSOR * multiprocessors // workgroups_per_split
    return _cut_keys(seq_kv, min(wanted, seq_kv // split_keys_min))


def mma_splits_of(
    seq_kv: int, workgroups_per_split: int, multiprocessors: int, split_keys_min: int = MMA_SPLIT_KEYS_MIN
) -> tuple[int, int]:
    """Returns what `splits_of` does for decode_split_mma.hip: as few splits as give MMA_FILLED of the multiprocessors a
    workgroup."""
    part, whole = MMA_FILLED
    wanted = -(-multiprocessors * part // (workgroups_per_split * whole))
    return _cut_keys(seq_kv, min(wanted, seq_kv // split_keys_min))


def _cut_keys(seq_kv: int, wanted: int) -> tuple[int, int]:
    """Returns (number of splits, keys of each), near `wanted` splits."""
    splits = max(1, wanted)
    keys = -(-seq_kv // (splits * SPLIT_MULTIPLE)) * SPLIT_MULTIPLE
    return -(-seq_kv // keys), keys


def group_of(workload: Decode) -> int:
    """Returns the number of query heads that share a key head."""
    return workload.heads // workload.kv_heads


def takes_mma(workload: Decode, device: torch.device) -> bool:
    """Returns whether the heads of a key head are multiplied on matrix units: on NVIDIA, where they are enough."""
    return face_of(arch_of(device)) == NVIDIA and group_of(workload) >= MMA_GROUP_MIN


def split_kernel_of(workload: Decode, device: torch.device, splits: int) -> HipKernel:
    """Returns the kernel that attends over splits of the keys on a device."""
    problem = (workload.head_dim, group_of(workload), workload.page, workload.dtype)
    if takes_mma(workload, device):
        return decode_split_mma(*problem, one_split=splits == 1, with_lse=workload.lse)
    return decode_split(*problem)


def kernels_of(workload: Decode, device: torch.device, splits: int) -> tuple[str, ...]:
    """Returns the names of the kernels that run: decode_split_mma merges nothing where there is one split."""
    name = split_kernel_of(workload, device, splits).function
    return (name,) if name == "decode_split_mma" and splits == 1 else (name, "decode_reduce")


def decode_split(head_dim: int, group: int, page: int, dtype: str) -> HipKernel:
    """Returns the kernel that attends over splits of the keys. It has 128 threads, or 256 if more than GROUP_MAX / 2
    query heads share a key head."""
    threads = 128 if group <= GROUP_MAX // 2 else 256
    defines = {"HEAD_DIM": head_dim, "GROUP": group, "PAGE": page, "THREADS": threads}
    scale = {"SOFTMAX_SCALE": f"{1.0 / math.sqrt(head_dim)!r}f"}
    texts = {name: str(value) for name, value in defines.items()} | scale | element_define(dtype)
    return HipKernel("decode_split.hip", "decode_split", threads, texts)


def decode_split_mma(head_dim: int, group: int, page: int, dtype: str, *, one_split: bool, with_lse: bool) -> HipKernel:
    """Returns the same on NVIDIA's matrix units, with a ring of tiles in LDS for each wave; with `one_split` it writes
    the result, with the log-sum-exp if `with_lse`."""
    tile = next(tile for largest, tile in MMA_TILES.items() if head_dim <= largest)
    row = -(-head_dim // 16) * 16 + NVIDIA.lds_padding
    ring = 2 * ELEMENT_BYTES * tile["STAGES"] * tile["KEYS"] * row
    found = FLOAT_BYTES * group * (head_dim + 2)  # what the waves leave in its place at the end
    defines = {"HEAD_DIM": head_dim, "GROUP": group, "PAGE": page, **tile}
    defines |= {"ONE_SPLIT": int(one_split), "WITH_LSE": int(with_lse and one_split)}
    scale = {"SOFTMAX_SCALE": f"{1.0 / math.sqrt(head_dim)!r}f"}
    texts = {name: str(value) for name, value in defines.items()} | scale | element_define(dtype)
    waves = tile["WAVES"]
    threads, lds_bytes = waves * NVIDIA.wave, waves * max(ring, found)
    return HipKernel("decode_split_mma.hip", "decode_split_mma", threads, texts, lds_bytes)


def decode_reduce(head_dim: int, dtype: str, splits: int, *, with_lse: bool) -> HipKernel:
    """Returns the kernel that merges the results of the splits, with the log-sum-exp if `with_lse`."""
    threads = REDUCE_THREADS[splits > REDUCE_SPLITS]
    defines = {"HEAD_DIM": str(head_dim), "WITH_LSE": str(int(with_lse)), "THREADS": str(threads)}
    return HipKernel("decode_reduce.hip", "decode_reduce", threads, defines | element_define(dtype))


def multiprocessors_of(device: torch.device) -> int:
    """Returns the multiprocessors (compute units) of a GPU; for a CPU a number assumed for the emulator."""
    import torch

    if device.type == "cpu":
        return CPU_MULTIPROCESSORS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def _canonical_outputs(result: Result) -> Outputs:
    out, lse = result
    return {"out": out} if lse is None else {"out": out, "lse": lse}


BACKENDS = (HipDecode("hip.decode", EMULATOR_FLOPS_MAX, times_on_cpu=False),)
