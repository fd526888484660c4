"""Softmax, RMSNorm and LayerNorm in Gluon for sm_90 (NVIDIA Hopper): the CTAs of a cluster share each row.

The registers of a multiprocessor hold a row of some 32,000 elements, but not its weights, which would come from the L2
cache again with every row. Here a cluster of SHARE CTAs works on the same rows, each CTA on its own columns, at most
SLICE of them, so that everything is read from memory once, and weights once for many rows:

    weight, bias   of a CTA's columns stay in its registers
    slots          its columns of SLOTS rows, in shared memory: some arrive while others are worked on
    box            two numbers of a row from each CTA, in the shared memory of each; two boxes, used in turn

                   first                   second
        softmax    maximum m, as log2      sum of exp(x - m)
        RMSNorm    -                       sum of squares
        LayerNorm  mean m                  sum of (x - m)^2, which other means are joined with as in Chan, Golub and
                                           LeVeque 1979, so that no difference of large sums is ever taken

In a turn of its loop a CTA sums up a row and tells all CTAs, then writes the result of the row before, and only then
waits for what the others tell: no CTA is idle while numbers travel. (With the wait a turn later the CTAs of a cluster
drift apart, and softmax took 7 % longer.) They travel straight from one multiprocessor to another (`st.async`): softmax
of 4,096 rows of 65,536 columns took 295 us on an H200 with it, and 406 by way of the L2 cache and the cluster's
barrier. Gluon for Triton 3.6 has neither, nor reductions over a cluster, hence the PTX.

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
    if row < rows:
        start = row.to(gl.int64) * columns
        start_async_copy(x_slot, x_ptr + start + at, mask=inside)
        if residual_ptr is not None:
            start_async_copy(residual_slot, residual_ptr + start + at, mask=inside)
    async_copy.commit_group()


@gluon.jit
def take(x_slot, residual_slot, layout: gl.constexpr, RESIDUAL: gl.constexpr):
    """A row that has arrived; with a residual their sum, rounded as it is stored. A lane reads what itself copied."""
    x = x_slot.load(layout)
    if RESIDUAL:
        x = (x.to(gl.float32) + residual_slot.load(layout).to(gl.float32)).to(x.dtype)
    return x


@gluon.jit
def only_inside(x, inside, other: gl.constexpr):
    """x with `other` behind the row's end; `inside` is None where every CTA has whole slices."""
    if inside is not None:
        x = gl.where(inside, x, other)
    return x


@gluon.jit
def by_lane(x, WIDTH: gl.constexpr):
    """x (SHARE, SLICE) as (SHARE, repeats, lanes, VECTOR) with what each lane holds in dimensions 1 and 3; WIDTH is the
    number of lanes times VECTOR."""
    repeats: gl.constexpr = x.shape[1] // WIDTH
    lanes: gl.constexpr = 32 * gl.num_warps()
    return x.reshape([x.shape[0], repeats, lanes, WIDTH // lanes])


@gluon.jit
def for_each(a, x, WIDTH: gl.constexpr):
    """A number a of each lane (SHARE, lanes), for each element (SHARE, SLICE) that it holds of x."""
    wide = gl.expand_dims(gl.expand_dims(a, 2), 1)
    wide, _ = gl.broadcast(wide, by_lane(x, WIDTH))
    return gl.convert_layout(wide.reshape(x.shape), x.type.layout, assert_trivial=True)


@gluon.jit
def of_row(a, x):
    """A number a of each CTA (SHARE,), in the layout that those of x (SHARE, SLICE) have."""
    return gl.convert_layout(a, gl.SliceLayout(1, x.type.layout), assert_trivial=True)


@gluon.jit
def sum_up(x, inside, count, KIND: gl.constexpr, WIDTH: gl.constexpr):
    """(first, second) of this CTA's `count` columns, see above, and for softmax exp(x - own) and own, the maxima of
    lanes, which need not wait for each other; for others nothing."""
    own = count
    first = count
    if KIND == "softmax":
        x = only_inside(x, inside, float("-inf"))
        # The product before the last maximum: ptxas would fuse one behind it into some of the sums below and not into
        # others, and lanes would then be scaled by maxima that differ in their last bits.
        own = gl.max(gl.max(by_lane(x, WIDTH), 1) * LOG2_E, 2)
        safe = gl.where(own == float("-inf"), 0.0, own)  # a lane without columns: -inf - -inf would be NaN
        x = gl.exp2(gl.fma(x, LOG2_E, -for_each(safe, x, WIDTH)))
        sums = gl.sum(gl.sum(by_lane(x, WIDTH), 1), 2)
        first = gl.max(own, 1)
        apart = own - gl.where(first == float("-inf"), 0.0, first)[:, None]
        second = of_row(gl.sum(sums * gl.exp2(apart), 1), x)
        first = of_row(first, x)
    elif KIND == "rmsnorm":
        x = only_inside(x, inside, 0.0)
        second = gl.sum(x * x, 1)
        x = count
    else:
        x = only_inside(x, inside, 0.0)
        first = gl.sum(x, 1) / gl.maximum(count, 1.0)
        centred = only_inside(x - first[:, None], inside, 0.0)
        second = gl.sum(centred * centred, 1)
        x = count
    return first, second, x, own


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
def join(firsts, seconds, zeros, counts, columns, eps, KIND: gl.constexpr):
    """(shift, scale) of a row, each (SHARE,): from what all CTAs told."""
    if KIND == "softmax":
        m = gl.max(firsts, 0)
        scale = zeros + 1.0 / gl.sum(seconds * gl.exp2(firsts - m), 0)
        shift = zeros + m
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
        weight = gl.load(weight_ptr + at, mask=inside)
    if bias_ptr is not None:
        bias = gl.load(bias_ptr + at, mask=inside)
    return weight, bias


@gluon.jit
def store_result(
    out, x, own, shift, scale, weight, bias, at, inside,
    KIND: gl.constexpr, WIDTH: gl.constexpr, CACHE: gl.constexpr,
):  # fmt: skip
    """Write the result of a row that begins at `out`: x is what softmax keeps of it, or the row itself."""
    x = x.to(gl.float32)
    if KIND == "layernorm":
        if 32 * gl.num_warps() * 8 == WIDTH:  # of 16 bits, whose own error is larger than that of one instruction here
            x = x * scale[:, None] - (shift * scale)[:, None]
        else:
            x = (x - shift[:, None]) * scale[:, None]
        x = x * weight.to(gl.float32) + bias.to(gl.float32)
    elif KIND == "rmsnorm":
        x = x * scale[:, None] * weight.to(gl.float32)
    else:
        shift = gl.convert_layout(shift, gl.SliceLayout(1, own.type.layout), assert_trivial=True)
        scale = gl.convert_layout(scale, gl.SliceLayout(1, own.type.layout), assert_trivial=True)
        x = x * for_each(gl.exp2(own - shift[:, None]) * scale[:, None], x, WIDTH)
    gl.store(out + at, x.to(out.dtype.element_ty), mask=inside, cache_modifier=CACHE)


@gluon.jit
def take_turn(
    turn, kept, own, shift, scale,  # what the turn before returned, of its row
    residual_ptr, sum_ptr, inside, tensors, slots, box, whose, columns_of, eps,
    KIND: gl.constexpr, WIDTH: gl.constexpr, CACHE: gl.constexpr,
):  # fmt: skip
    """Sum up the row of this turn, and write the result of the one before; see above.

    Returns what softmax keeps of the row and the maxima of lanes, nothing for others, and the row's shift and scale.
    """
    x_ptr, weight, bias, out_ptr = tensors
    x_slots, residual_slots = slots
    first_row, step, rows = whose
    columns, at, count, counts, members, zeros = columns_of
    SHARE: gl.constexpr = zeros.shape[0]
    SLOTS: gl.constexpr = x_slots.shape[0]
    RESIDUAL: gl.constexpr = residual_ptr is not None
    layout: gl.constexpr = at.type.layout

    # 1. The row of this turn; in the last turn or two there is none.
    row = first_row + turn * step
    slot = turn % SLOTS
    async_copy.wait_group(SLOTS - 2)
    x = take(x_slots.index(slot), residual_slots.index(slot), layout, RESIDUAL)
    if RESIDUAL:  # noqa: SIM102 - with `and`, Triton compiles what is behind it without a sum_ptr, too
        if row < rows:
            gl.store(sum_ptr + row.to(gl.int64) * columns + at, x, mask=inside, cache_modifier=CACHE)
    first, second, exponentials, maxima = sum_up(x.to(gl.float32), inside, count, KIND, WIDTH)
    if SHARE > 1:
        tell(box, turn, first, second)

    # 2. The row of the turn before, whose slot then takes the next copy.
    free = (turn + SLOTS - 1) % SLOTS
    before = row - step
    if (turn > 0) & (before < rows):
        result = kept
        if KIND != "softmax":
            result = take(x_slots.index(free), residual_slots.index(free), layout, RESIDUAL)
        out = out_ptr + before.to(gl.int64) * columns
        store_result(out, result, own, shift, scale, weight, bias, at, inside, KIND, WIDTH, CACHE)
    start_copies(
        x_slots.index(free), residual_slots.index(free), x_ptr, residual_ptr, row + (SLOTS - 1) * step, rows,
        at, inside, columns,
    )  # fmt: skip

    # 3. What the other CTAs know of this turn's row.
    if SHARE > 1:
        firsts, seconds = hear(box, turn, members)
        shift, scale = join(firsts, seconds, zeros, counts, columns, eps, KIND)
    else:
        shift = first
        scale = 1.0 / second if KIND == "softmax" else gl.rsqrt(second / columns + eps)
    return exponentials, maxima, shift, scale


@gluon.jit
def rows_sm_90_kernel(
    x_ptr, residual_ptr, weight_ptr, bias_ptr, out_ptr, sum_ptr,  # see `kernels.gluon.rows.launch`
    rows, vectors, eps,
    KIND: gl.constexpr, VECTOR: gl.constexpr, SHARE: gl.constexpr, SLICE: gl.constexpr, SLOTS: gl.constexpr,
    EVEN: gl.constexpr, STREAM: gl.constexpr,
):  # fmt: skip
    """Rows p, p + P, p + 2 P ... for the p-th of P clusters. Grid: (P,), of SHARE CTAs each.

    VECTOR elements are 16 bytes, and a row has `vectors` of them. EVEN: it fills the slices of all CTAs, and nothing is
    masked, which saves a tenth of the loop's instructions and more. STREAM writes past what the L2 cache keeps.
    """
    layout: gl.constexpr = slices(SHARE, VECTOR, gl.num_warps())
    shared: gl.constexpr = shared_slices(SHARE)
    CACHE: gl.constexpr = ".cs" if STREAM else ""
    WIDTH: gl.constexpr = 32 * gl.num_warps() * VECTOR
    columns = vectors * VECTOR
    width = (vectors + SHARE - 1) // SHARE * VECTOR  # of a CTA
    cta = gl.arange(0, SHARE, layout=gl.SliceLayout(1, layout))
    offsets = gl.arange(0, SLICE, layout=gl.SliceLayout(0, layout))
    at = (cta * width)[:, None] + offsets[None, :]  # (SHARE, SLICE), columns of a row
    inside = None
    if not EVEN:
        inside = (offsets < width)[None, :] & (at < columns)
    count = gl.maximum(gl.minimum(columns - cta * width, width), 0).to(gl.float32)
    members = gl.arange(0, SHARE, layout=everywhere(SHARE, gl.num_warps()))
    counts = gl.maximum(gl.minimum(columns - members * width, width), 0).to(gl.float32)

    x_slots = gl.allocate_shared_memory(x_ptr.dtype.element_ty, [SLOTS, SHARE, SLICE], shared)
    residual_slots = x_slots
    if residual_ptr is not None:
        residual_slots = gl.allocate_shared_memory(x_ptr.dtype.element_ty, [SLOTS, SHARE, SLICE], shared)
    first_row = gl.program_id(0)
    step = gl.num_programs(0)
    for early in gl.static_range(SLOTS - 1):
        start_copies(
            x_slots.index(early), residual_slots.index(early), x_ptr, residual_ptr, first_row + early * step, rows,
            at, inside, columns,
        )  # fmt: skip
    weight, bias = load_weights(weight_ptr, bias_ptr, at, inside)

    box = first_row
    if SHARE > 1:
        box = meet(first_row)
    zeros = gl.zeros([SHARE], gl.float32, layout=gl.SliceLayout(1, layout))
    kept, own, shift, scale = zeros, zeros, zeros, zeros
    if KIND == "softmax":
        kept = gl.zeros([SHARE, SLICE], gl.float32, layout=layout)
        own = gl.max(gl.max(by_lane(kept, WIDTH), 1), 2)
    tensors = (x_ptr, weight, bias, out_ptr)
    columns_of = (columns, at, count, counts, members, zeros)
    given = (tensors, (x_slots, residual_slots), box, (first_row, step, rows), columns_of, eps)
    turns = (rows - first_row + step - 1) // step + 1
    # Two at a time, what softmax keeps of one row lies where the next does not need it, and is not moved: 2 to 5 % less
    # time. LayerNorm takes up to 5 % more so.
    UNROLLED: gl.constexpr = 2 if KIND == "softmax" else 1
    for turn in range(0, turns, UNROLLED):
        for more in gl.static_range(UNROLLED):
            kept, own, shift, scale = take_turn(
                turn + more, kept, own, shift, scale, residual_ptr, sum_ptr, inside, *given, KIND, WIDTH, CACHE
            )
