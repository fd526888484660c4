"""Softmax, RMSNorm and LayerNorm in Gluon for sm_90 (NVIDIA Hopper): the CTAs of a cluster share each row.

The registers of a multiprocessor hold a row of some 32,000 elements, but not its weights, which would come from the L2
cache again with every row. Here a cluster of SHARE CTAs works on the same rows, each CTA on its own columns, at most
SLICE of them, so that everything is read from memory once, and weights once for many rows:

    weight, bias   of a CTA's columns stay in its registers
    slots          its columns of SLOTS rows, in shared memory: some arrive while others are worked on
    box            two numbers of a row from each CTA, in the shared memory of each; two boxes, used in turn

                   first                   second
        softmax    maximum m               sum of exp(x - m)
        RMSNorm    -                       sum of squares
        LayerNorm  mean m                  sum of (x - m)^2, which other means are joined with as in Chan, Golub and
                                           LeVeque 1979, so that no difference of large sums is ever taken

In a turn of its loop a CTA sums up a row and tells all CTAs, then writes the result of the row before, and only then
waits for what the others tell: no CTA is idle while numbers travel. They travel straight from one multiprocessor to
another (`st.async`): softmax of 4,096 rows of 65,536 columns takes 295 us on an H200, and took 406 by way of the L2
cache and the cluster's barrier. Gluon for Triton 3.6 has neither, nor reductions over a cluster, hence the PTX.

Tensors are (SHARE, SLICE) in Gluon: the first dimension is the CTAs. tests/kernels/gluon executes this source.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

import math

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

async_copy = gl.nvidia.ampere.async_copy
start_async_copy = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared
"""Triton 3.6 has the latter name, which 3.9 answers with an error."""

LOG2_E = gl.constexpr(math.log2(math.e))

MEET = gl.constexpr(
    """{
    .reg .pred leader;
    .reg .b32 thread;
    .shared .align 1024 .b64 box[128];
    mov.u32 thread, %tid.x;
    setp.eq.u32 leader, thread, 0;
    mov.u32 $0, box;
    @leader mbarrier.init.shared.b64 [box], 1;
    @leader mbarrier.init.shared.b64 [box+8], 1;
    @leader fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
    }"""
)
"""Two boxes in shared memory, each of a barrier and 16 pairs of numbers, before any CTA of the cluster sends to one."""

TELL = gl.constexpr(
    """{
    .reg .pred leader, sends;
    .reg .b32 thread, rank, barrier, place, bytes;
    mov.u32 thread, %tid.x;
    setp.eq.u32 leader, thread, 0;
    setp.lt.u32 sends, thread, $3;
    mad.lo.u32 barrier, $2, 8, $1;
    mad.lo.u32 place, $2, 128, $1;
    mov.u32 rank, %cluster_ctarank;
    mad.lo.u32 place, rank, 8, place;
    add.u32 place, place, 128;
    shl.b32 bytes, $3, 3;
    @leader mbarrier.arrive.expect_tx.shared.b64 _, [barrier], bytes;
    @sends mapa.shared::cluster.u32 place, place, thread;
    @sends mapa.shared::cluster.u32 barrier, barrier, thread;
    @sends st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [place], {$4, $5}, [barrier];
    mov.b32 $0, 0;
    }"""
)
"""Thread n sends the pair to CTA n, whose barrier counts the bytes that arrive."""

HEAR = gl.constexpr(
    """{
    .reg .pred heard;
    .reg .b32 barrier, place;
    mad.lo.u32 barrier, $3, 8, $2;
    mad.lo.u32 place, $3, 128, $2;
    mad.lo.u32 place, $5, 8, place;
    waiting:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 heard, [barrier], $4;
    @!heard bra.uni waiting;
    ld.shared.v2.f32 {$0, $1}, [place+128];
    }"""
)
"""The pair that CTA $5 sent to box $3, once the barrier has completed the phase of parity $4."""


@gluon.constexpr_function
def cta_bases(share, has_own):
    """CTA bases of tensors (share, n): each CTA of a cluster has its own first index, or has them all."""
    return [[1 << bit if has_own else 0, 0] for bit in range(share.bit_length() - 1)]


@gluon.constexpr_function
def slices(share, vector, warps):
    """The layout of a row (share, n) in registers: a slice for each CTA, `vector` neighbours at a time for a lane."""
    return gl.BlockedLayout([1, vector], [1, 32], [1, warps], [1, 0], cta_bases(share, True))


@gluon.constexpr_function
def shared_slices(share):
    """The same in shared memory."""
    return gl.SwizzledSharedLayout(1, 1, 1, [1, 0], cta_bases(share, True))


@gluon.constexpr_function
def everywhere(share, warps):
    """The layout of a number for each CTA (share,), all of which each CTA has."""
    return gl.BlockedLayout([1], [32], [warps], [0], [basis[:1] for basis in cta_bases(share, False)])


@gluon.jit
def start_copies(x_slot, residual_slot, x_ptr, residual_ptr, row, rows, at, inside, columns):
    """Start the copy of a row, or of nothing behind the last one, as one group."""
    mask = inside & (row < rows)
    start = row.to(gl.int64) * columns
    start_async_copy(x_slot, x_ptr + start + at, mask=mask)
    if residual_ptr is not None:
        start_async_copy(residual_slot, residual_ptr + start + at, mask=mask)
    async_copy.commit_group()


@gluon.jit
def take(x_slot, residual_slot, layout: gl.constexpr, RESIDUAL: gl.constexpr):
    """A row that has arrived; with a residual their sum, rounded as it is stored. A lane reads what itself copied."""
    x = x_slot.load(layout)
    if RESIDUAL:
        x = (x.to(gl.float32) + residual_slot.load(layout).to(gl.float32)).to(x.dtype)
    return x


@gluon.jit
def sum_up(x, inside, count, KIND: gl.constexpr):
    """(first, second) of this CTA's `count` columns, see above, and for softmax exp(x - first)."""
    if KIND == "softmax":
        x = gl.where(inside, x, float("-inf"))
        first = gl.max(x, 1)
        shift = gl.where(first == float("-inf"), 0.0, first)  # a CTA without columns: -inf - -inf would be NaN
        x = gl.exp2((x - shift[:, None]) * LOG2_E)
        second = gl.sum(x, 1)
    elif KIND == "rmsnorm":
        x = gl.where(inside, x, 0.0)
        second = gl.sum(x * x, 1)
        first = second
    else:
        x = gl.where(inside, x, 0.0)
        first = gl.sum(x, 1) / gl.maximum(count, 1.0)
        centred = gl.where(inside, x - first[:, None], 0.0)
        second = gl.sum(centred * centred, 1)
    return first, second, x


@gluon.jit
def meet(any):
    """The address of this CTA's boxes, when those of all CTAs in the cluster are ready; `any` is an integer."""
    return gl.inline_asm_elementwise(MEET, "=r,r", [any], gl.int32, False, 1)


@gluon.jit
def tell(box, turn, first, second):
    """Send this CTA's two numbers of a row, each (SHARE,), to all CTAs of the cluster."""
    share: gl.constexpr = first.shape[0]
    gl.inline_asm_elementwise(TELL, "=r,r,r,r,f,f", [box, turn & 1, share, first, second], gl.int32, False, 1)


@gluon.jit
def hear(box, turn, members):
    """The two numbers that each of `members` told in this turn, when all have."""
    return gl.inline_asm_elementwise(
        HEAR, "=f,=f,r,r,r,r", [box, turn & 1, turn >> 1 & 1, members], (gl.float32, gl.float32), False, 1
    )


@gluon.jit
def join(firsts, seconds, first, zeros, counts, columns, eps, KIND: gl.constexpr):
    """(shift, scale) of a row, each (SHARE,): from what all CTAs told, and for softmax its own maximum, `first`."""
    if KIND == "softmax":
        m = gl.max(firsts, 0)
        scale = gl.exp2((first - m) * LOG2_E) / gl.sum(seconds * gl.exp2((firsts - m) * LOG2_E), 0)
        shift = first
    elif KIND == "rmsnorm":
        scale = zeros + gl.rsqrt(gl.sum(seconds, 0) / columns + eps)
        shift = zeros
    else:
        mean = gl.sum(firsts * counts, 0) / columns
        apart = firsts - mean
        scale = zeros + gl.rsqrt(gl.sum(seconds + apart * apart * counts, 0) / columns + eps)
        shift = zeros + mean
    return shift, scale


@gluon.jit
def load_weights(weight_ptr, bias_ptr, at, inside):
    """Weight and bias of this CTA's columns, 0.0 for each that there is not."""
    weight = 0.0
    bias = 0.0
    if weight_ptr is not None:
        weight = gl.load(weight_ptr + at, mask=inside, other=0.0)
    if bias_ptr is not None:
        bias = gl.load(bias_ptr + at, mask=inside, other=0.0)
    return weight, bias


@gluon.jit
def store_result(out, x, shift, scale, weight, bias, at, inside, KIND: gl.constexpr, CACHE: gl.constexpr):
    """Write the result of a row that begins at `out`: x is what softmax keeps of it, or the row itself."""
    x = x.to(gl.float32)
    if KIND == "layernorm":
        x = (x - shift[:, None]) * scale[:, None] * weight.to(gl.float32) + bias.to(gl.float32)
    elif KIND == "rmsnorm":
        x = x * scale[:, None] * weight.to(gl.float32)
    else:
        x = x * scale[:, None]
    gl.store(out + at, x.to(out.dtype.element_ty), mask=inside, cache_modifier=CACHE)


@gluon.jit
def rows_sm_90_kernel(
    x_ptr, residual_ptr, weight_ptr, bias_ptr, out_ptr, sum_ptr,  # see `kernels.gluon.rows.launch`
    rows, vectors, eps,
    KIND: gl.constexpr, VECTOR: gl.constexpr, SHARE: gl.constexpr, SLICE: gl.constexpr, SLOTS: gl.constexpr,
    STREAM: gl.constexpr,
):  # fmt: skip
    """Rows p, p + P, p + 2 P ... for the p-th of P clusters. Grid: (P,), of SHARE CTAs each.

    VECTOR elements are 16 bytes, and a row has `vectors` of them. STREAM writes past what the L2 cache keeps.
    """
    layout: gl.constexpr = slices(SHARE, VECTOR, gl.num_warps())
    shared: gl.constexpr = shared_slices(SHARE)
    RESIDUAL: gl.constexpr = residual_ptr is not None
    CACHE: gl.constexpr = ".cs" if STREAM else ""
    columns = vectors * VECTOR
    width = (vectors + SHARE - 1) // SHARE * VECTOR  # of a CTA
    cta = gl.arange(0, SHARE, layout=gl.SliceLayout(1, layout))
    offsets = gl.arange(0, SLICE, layout=gl.SliceLayout(0, layout))
    at = (cta * width)[:, None] + offsets[None, :]  # (SHARE, SLICE), columns of a row
    inside = (offsets < width)[None, :] & (at < columns)
    count = gl.maximum(gl.minimum(columns - cta * width, width), 0).to(gl.float32)
    members = gl.arange(0, SHARE, layout=everywhere(SHARE, gl.num_warps()))
    counts = gl.maximum(gl.minimum(columns - members * width, width), 0).to(gl.float32)

    x_slots = gl.allocate_shared_memory(x_ptr.dtype.element_ty, [SLOTS, SHARE, SLICE], shared)
    residual_slots = x_slots
    if RESIDUAL:
        residual_slots = gl.allocate_shared_memory(x_ptr.dtype.element_ty, [SLOTS, SHARE, SLICE], shared)
    first_row = gl.program_id(0)
    step = gl.num_programs(0)
    for early in gl.static_range(SLOTS - 1):
        start_copies(
            x_slots.index(early), residual_slots.index(early), x_ptr, residual_ptr, first_row + early * step, rows,
            at, inside, columns,
        )  # fmt: skip
    weight, bias = load_weights(weight_ptr, bias_ptr, at, inside)

    if SHARE > 1:
        box = meet(first_row)
    zeros = gl.zeros([SHARE], gl.float32, layout=gl.SliceLayout(1, layout))
    shift = zeros
    scale = zeros
    if KIND == "softmax":
        kept = gl.zeros([SHARE, SLICE], gl.float32, layout=layout)
    turns = (rows - first_row + step - 1) // step
    for turn in range(turns + 1):
        # 1. The row of this turn; in the last turn there is none.
        row = first_row + turn * step
        start = row.to(gl.int64) * columns
        slot = turn % SLOTS
        async_copy.wait_group(SLOTS - 2)
        x = take(x_slots.index(slot), residual_slots.index(slot), layout, RESIDUAL)
        if RESIDUAL:
            gl.store(sum_ptr + start + at, x, mask=inside & (row < rows), cache_modifier=CACHE)
        first, second, exponentials = sum_up(x.to(gl.float32), inside, count, KIND)
        if SHARE > 1:
            tell(box, turn, first, second)

        # 2. The row of the turn before, whose slot then takes the next copy.
        free = (turn + SLOTS - 1) % SLOTS
        if turn > 0:
            if KIND != "softmax":
                kept = take(x_slots.index(free), residual_slots.index(free), layout, RESIDUAL)
            before = (row - step).to(gl.int64) * columns
            store_result(out_ptr + before, kept, shift, scale, weight, bias, at, inside, KIND, CACHE)
        start_copies(
            x_slots.index(free), residual_slots.index(free), x_ptr, residual_ptr, row + (SLOTS - 1) * step, rows,
            at, inside, columns,
        )  # fmt: skip
        if KIND == "softmax":
            kept = exponentials

        # 3. What the other CTAs know of this turn's row.
        if SHARE > 1:
            firsts, seconds = hear(box, turn, members)
            shift, scale = join(firsts, seconds, first, zeros, counts, columns, eps, KIND)
        else:
            shift = first
            scale = 1.0 / second if KIND == "softmax" else gl.rsqrt(second / columns + eps)
    async_copy.wait_group(0)
