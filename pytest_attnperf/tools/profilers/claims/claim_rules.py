"""Shared by the rules for claims: constructors of findings, and figures that follow from a document."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from pytest_attnperf.codeobject.arch import ARCHS, ArchLimits
from pytest_attnperf.codeobject.occupancy import ComputeBlock, Resources, block_of
from pytest_attnperf.codeobject.targets import plain_arch
from pytest_attnperf.environment.device import gpu_product
from pytest_attnperf.environment.device_specs import (
    BYTES_PER_MIB,
    FLOPS_PER_TFLOP,
    HZ_PER_MHZ,
    DeviceSpec,
    all_specs,
)
from pytest_attnperf.records.profiles import ProfileFinding
from pytest_attnperf.roofline.floors import UNRELIABLE
from pytest_attnperf.tools.profilers.claims.claimed_figures import Interval, exact_interval
from pytest_attnperf.tools.profilers.claims.records import Claims, Model, ReportedDevice

ELEMENT_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "f8": 1, "i8": 1}

ENCODED_VGPRS = 8
"""Least VGPRs that a kernel descriptor can encode for wave32, and on gfx90a and later: LLVM getVGPREncodingGranule."""

WARP = 32
"""Threads of a warp on NVIDIA."""


def make_agreement(rule: str, said: str, text: str) -> ProfileFinding:
    """Makes a finding that holds. `rule` names the check, `said` is the report's words, `text` the sentence to
    print."""
    return ProfileFinding(rule, True, said, "", text)


def make_contradiction(rule: str, said: str, should: str, text: str = "") -> ProfileFinding:
    """Makes a finding of a wrong statement `said`. `should` is what is right, `text` by default 'said: should'."""
    return ProfileFinding(rule, False, said, should, text or f"{said}: {should}")


def make_open_finding(rule: str, said: str, text: str, should: str = "") -> ProfileFinding:
    """Makes a finding of a statement `said` that cannot be decided. `should` is what speaks against it, '' if
    nothing."""
    return ProfileFinding(rule, None, said, should, text)


@dataclass(frozen=True)
class Known:
    """The claims of a report, and figures that follow from them.

    limits   limits of the architecture; None if not known
    spec     the one row of `device_specs` that fits the device; None if none or several do
    """

    claims: Claims
    limits: ArchLimits | None
    spec: DeviceSpec | None

    @property
    def threads(self) -> int | None:
        """Threads of a workgroup, by its sizes or else as counted; None if not given."""
        kernel = self.claims.kernel
        if kernel.workgroup is not None:
            return math.prod(kernel.workgroup)
        return kernel.threads.count if kernel.threads else None

    @property
    def grid(self) -> tuple[int, int, int] | None:
        """Workgroups of a launch in x, y, z, from work-items or else as counted; None if not given."""
        kernel = self.claims.kernel
        if not (kernel.grid_items and kernel.workgroup):
            return kernel.grid_workgroups
        x, y, z = (-(-items // size) for items, size in zip(kernel.grid_items, kernel.workgroup, strict=True))
        return x, y, z

    @property
    def wave_size(self) -> int | None:
        """The report's wave size if the architecture has it, else the architecture's own. Without known limits of the
        architecture: 32 on NVIDIA, else the report's; None if it gives none."""
        device = self.claims.device
        said = device.wave_size if device else None
        if self.limits is None:
            return WARP if device and device.arch.startswith("sm_") else said
        return said if said in self.limits.wave_sizes else self.limits.wave_sizes[0]

    @property
    def waves(self) -> int | None:
        """Waves of a workgroup, from its threads; None if threads or wave size are not known."""
        if not self.threads or not self.wave_size:
            return None
        return -(-self.threads // self.wave_size)

    def find_block(self, per: str) -> ComputeBlock | None:
        """Returns what a 'CU' or 'WGP' (`per`) holds; None without known limits, workgroup or WGP."""
        asked = self.find_resources(wgp_mode=per == "WGP")
        if self.limits is None or asked is None or (per == "WGP" and not self.limits.wgp):
            return None
        return block_of(self.limits, asked)

    def find_resources(self, *, wgp_mode: bool) -> Resources | None:
        """Returns what the reported kernel asks for, 0 for what is not given; None without workgroup or limits."""
        if not self.threads or self.limits is None:
            return None
        kernel = self.claims.kernel
        return Resources(
            vgprs=kernel.vgprs.count if kernel.vgprs else 0,
            agprs=kernel.agprs.count if kernel.agprs else 0,
            sgprs=min(kernel.sgprs.count if kernel.sgprs else 0, self.limits.max_sgprs),
            lds_bytes=self.lds_bytes,
            threads=self.threads,
            wave_size=self.wave_size or 0,
            wgp_mode=wgp_mode,
        )

    @property
    def lds_bytes(self) -> int:
        """LDS of a workgroup in bytes; 0 if not given."""
        lds = self.claims.kernel.lds
        return round(lds.size.interval.middle) if lds else 0

    @property
    def call_s(self) -> Interval | None:
        """Seconds per call: total over calls if both are given, because the total has more digits; None if neither is
        given."""
        said = self.claims.performance
        if said.total and said.calls and said.calls.count:
            return said.total.time.interval.divide_by(exact_interval(said.calls.count))
        return said.per_call.time.interval if said.per_call else None

    @property
    def flops(self) -> float | None:
        """Useful FLOPs of one call of attention: 4 x tokens^2 x head_dim per head and sequence, causal about half; None
        for another kernel, or if a size is not given."""
        model = self.claims.model
        if self.claims.kernel.family != "attention" or not model.tokens or not model.head_dim:
            return None
        if not model.heads or not model.sequences:
            return None
        pairs = model.tokens * (model.tokens + 1) / 2 if model.causal else model.tokens**2
        return 4.0 * pairs * model.head_dim * model.heads * model.sequences

    @property
    def least_bytes(self) -> float | None:
        """Least bytes of one call of attention: reads Q, K and V, writes the output once. None without `flops`."""
        model = self.claims.model
        if self.flops is None:
            return None
        return float(_count_rows(model) * (model.head_dim or 0) * ELEMENT_BYTES[model.dtype])

    @property
    def has_one_granule(self) -> bool:
        """Whether a matrix kernel has no more registers than an empty one."""
        kernel = self.claims.kernel
        if kernel.vgprs is None or kernel.family == "other":
            return False
        return max(kernel.vgprs.count, kernel.agprs.count if kernel.agprs else 0) <= ENCODED_VGPRS

    @property
    def doubted_work(self) -> str:
        """Why it is open whether a call does its work: its registers, or a rate above the memory's; '' if nothing says
        so, or if outputs were compared with a reference."""
        if self.claims.kernel.outputs_checked:
            return ""
        if self.has_one_granule:
            return "a kernel with one granule of registers may compute nothing"
        if self.least_bytes is None or self.call_s is None or self.spec is None:
            return ""
        rate = exact_interval(self.least_bytes).divide_by(self.call_s)
        return "its least traffic is faster than the memory" if rate.low > self.spec.peak_bytes_per_s else ""

    @property
    def cache_bytes(self) -> float | None:
        """Size of the last-level cache in bytes; None if not known."""
        return self.spec.last_level_cache_bytes if self.spec else None

    def describe_cache_fit(self, size: float) -> str:
        """Returns 'they fit the 32 MiB cache' if `size` bytes fit the device's cache; '' if not or unknown."""
        if self.cache_bytes is None or size > self.cache_bytes:
            return ""
        return f"they fit the {self.cache_bytes / BYTES_PER_MIB:.0f} MiB cache"


def _count_rows(model: Model) -> int:
    """Returns the number of rows of head_dim elements in Q, K, V and the output of one call."""
    heads, kv_heads = model.heads or 0, model.kv_heads or model.heads or 0
    return 2 * (heads + kv_heads) * (model.tokens or 0) * (model.sequences or 0)


def make_known(claims: Claims) -> Known:
    """Returns the claims with limits and data sheet of the device that they name; None if not known."""
    if claims.device is None:
        return Known(claims, None, None)
    arch = plain_arch(claims.device.arch) or claims.device.arch
    return Known(claims, ARCHS.get(arch), find_spec(claims.device, arch))


def find_spec(device: ReportedDevice, arch: str) -> DeviceSpec | None:
    """Returns the device table's only reliable row with this architecture and, if given, product and number of compute
    units; None if none or several fit."""
    fitting = [
        spec
        for spec in all_specs()
        if spec.arch == arch
        and spec.confidence != UNRELIABLE
        and (device.compute_units in (None, spec.compute_units))
        and (not device.product or _is_named(device.product, spec))
    ]
    return fitting[0] if len(fitting) == 1 else None


def _is_named(product: str, spec: DeviceSpec) -> bool:
    plain = letters_of(product)
    return plain == letters_of(spec.name) or gpu_product(product) in spec.products


def letters_of(text: str) -> str:
    """Returns the letters and digits of a name, in lower case."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


def datasheet_flops(spec: DeviceSpec, dtype: str) -> tuple[tuple[float, ...], str] | None:
    """Returns a device's peak FLOP/s, highest first, and in words how the highest follows; None if not known.

    There are several, because reports use the maximum clock, the boost clock or the vendor's printed figure."""
    per_clock = {
        "f16": spec.f16_flop_per_cu_clk,
        "bf16": spec.f16_flop_per_cu_clk,
        "f32": spec.f32_flop_per_cu_clk,
        "f8": spec.f8_flop_per_cu_clk,
        "i8": spec.i8_flop_per_cu_clk,
    }[dtype]
    clocks = sorted({mhz for mhz in (spec.max_mhz, spec.boost_mhz) if mhz is not None}, reverse=True)
    if per_clock is None or not clocks:
        return None
    rates = [per_clock * spec.compute_units * mhz * HZ_PER_MHZ for mhz in clocks]
    if dtype in ("f16", "bf16") and spec.f16_tflops is not None:
        rates.append(spec.f16_tflops * FLOPS_PER_TFLOP)
    how = f"{spec.compute_units} CU x {per_clock:.0f} FLOP per clock x {clocks[0] / 1000:g} GHz"
    return tuple(sorted(rates, reverse=True)), how


def format_count(count: float, word: str) -> str:
    """Formats a count with its noun, which gets an s unless the count is 1: '1 wave', '8 waves'."""
    return f"{count:,.10g} {word}" + ("" if count == 1 else "s")
