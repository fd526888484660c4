"""Frozen data of compiled kernels: what the compiler made, how much fits a compute unit, and the gate's findings.

Standard library only: the worker's server side and the reports import this file. Sizes are in bytes, registers in
32-bit registers per lane.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pytest_attnperf.records import CaseKey, Verdict

CODE_SUITE = "code_objects"
"""Name of the baseline files of compiled kernels: `baselines/<arch>/code_objects.json`."""


@dataclass(frozen=True)
class KernelObject:
    """A compiled kernel that preparing a case launched.

    threads   of a block
    data      its code object: base64 of zlib-compressed bytes
    """

    name: str
    threads: int
    data: str = field(repr=False)


@dataclass(frozen=True)
class SourceLine:
    """One line of a kernel's source, and the instructions that it became.

    file     base name of the file
    line     its number, 0 where it was not kept (baselines keep the text only: numbers move with every edit)
    text     the stripped source text, '' where the file cannot be read
    counts   instructions by class, as in `KernelCode.instructions`; only classes that move data or multiply matrices
    """

    file: str
    line: int
    text: str
    counts: dict[str, int]


@dataclass(frozen=True)
class LoopInstruction:
    """Equal instructions of one source line in a key loop, and the time that a wave spends at them.

    mnemonic   of waits with their limits: 's_waitcnt vmcnt(0)'
    cycles     of a wave per iteration, from the instruction before: with all waiting for registers, memory, units
    file, line, text   as in `SourceLine`; '', 0 and '' where the object has no line table
    """

    mnemonic: str
    count: int
    cycles: float
    file: str
    line: int
    text: str


@dataclass(frozen=True)
class LoopEstimate:
    """One iteration of a kernel's key loop by the static issue model of `codeobject.issue_model`: estimated, +-30 %.

    waves           of a SIMD that share its units
    cycles          of the SIMD per iteration of one wave
    peak_cycles     that the loop's products take at the matrix units' peak for their element types
    matrix_cycles   that they take by the instructions used
    vector_cycles   of VALU and transcendental instructions
    lds_cycles      that LDS accesses take of the SIMD's share
    matrix, valu, transcendental, salu, lds, loads, waits, barriers   instructions; `loads` also counts stores
    flops           operations of the matrix instructions of one wave
    lds_reads, lds_writes   of `lds`, which also counts exchanges between lanes
    lds_read_bytes, lds_write_bytes, load_bytes   of one wave
    load_cycles     that `loads` take of the SIMD's share
    heaviest        at which a wave spends most of its time, longest first
    keys            of an iteration; 0 where the kernel's declaration does not say what a tile needs
    repeated        times that a product is computed: by several waves, or for padding; 1 where that is not known
    """

    waves: int
    cycles: float
    peak_cycles: float
    matrix_cycles: int
    vector_cycles: int
    lds_cycles: int
    matrix: int
    valu: int
    transcendental: int
    salu: int
    lds: int
    loads: int
    waits: int
    barriers: int
    flops: int = 0
    lds_reads: int = 0
    lds_writes: int = 0
    lds_read_bytes: int = 0
    lds_write_bytes: int = 0
    load_bytes: int = 0
    load_cycles: int = 0
    heaviest: tuple[LoopInstruction, ...] = ()
    keys: int = 0
    repeated: float = 1.0

    @property
    def peak_share(self) -> float:
        """Estimated share of the matrix units' peak. It orders configurations of one workload as cycles per key do,
        since a key of a row needs 2 (D + Dv) operations in all of them."""
        return self.peak_cycles / self.repeated / self.cycles


@dataclass(frozen=True)
class KernelCode:
    """One kernel of a code object.

    arch               'gfx942', 'sm_90'
    vgprs, agprs       architectural and accumulation VGPRs per lane; on NVIDIA registers per thread, and 0
    unified_vgprs      what both are allocated from on gfx90a and later CDNA: vgprs aligned to 4, plus agprs; elsewhere
                       the larger of the two
    sgprs              with the extra ones (VCC, XNACK mask, flat scratch), as the metadata counts; 0 on NVIDIA
    vgpr_spills        registers kept in memory because VGPRs ran out; None where the object does not say
    sgpr_spills        registers kept in VGPRs or memory because SGPRs ran out; None where the object does not say
    scratch_bytes      private memory per lane (stack, spills); on NVIDIA the local memory per thread
    lds_static_bytes   LDS (shared memory) that the object requires
    lds_dynamic_bytes  LDS that the launch adds: all of it for a Triton kernel
    threads            lanes of a workgroup as launched; 0 where only `max_threads` is known
    max_threads        the largest workgroup it was compiled for, 0 where the object does not say
    wave_size          64 or 32
    wgp_mode           whether a workgroup may spread over both compute units of a WGP (RDNA); None elsewhere
    dynamic_stack      recursion or calls through pointers: `scratch_bytes` is then the compiler's estimate
    code_bytes         size of the kernel's own machine code
    isa_hash           hex; equal where machine code and register allocation are, whatever the paths, names, line tables
                       and build ids
    instructions       static counts by class (`codeobject.instructions.CLASSES`); empty where it was not disassembled
    in_loops           the same, of instructions inside loops only
    undecoded          why `instructions` or `in_loops` are incomplete; '' where they are not
    reserved_vgprs     VGPRs per lane that the kernel descriptor makes the hardware allocate, AGPRs included: more than
                       are used where the compiler was given a number of waves (`waves_per_eu`); 0 where the object
                       does not say
    reserved_sgprs     SGPRs per wave, the same, without those of the trap handler
    lines              source lines behind matrix, LDS, memory and scratch instructions, in order of address
    key_loop           the estimate of its key loop; None where there is none (see `codeobject.issue_model`)
    """

    name: str
    arch: str
    vgprs: int
    agprs: int
    unified_vgprs: int
    sgprs: int
    vgpr_spills: int | None
    sgpr_spills: int | None
    scratch_bytes: int
    lds_static_bytes: int
    lds_dynamic_bytes: int
    kernarg_bytes: int
    threads: int
    max_threads: int
    wave_size: int
    wgp_mode: bool | None
    dynamic_stack: bool
    code_bytes: int
    isa_hash: str
    instructions: dict[str, int] = field(default_factory=dict)
    in_loops: dict[str, int] = field(default_factory=dict)
    undecoded: str = ""
    reserved_vgprs: int = 0
    reserved_sgprs: int = 0
    lines: tuple[SourceLine, ...] = ()
    key_loop: LoopEstimate | None = None

    @property
    def lds_bytes(self) -> int:
        """LDS (shared memory) of one workgroup as launched, in bytes: static and dynamic."""
        return self.lds_static_bytes + self.lds_dynamic_bytes

    @property
    def workgroup(self) -> int:
        """Number of lanes of a workgroup: as launched if that is known, else the maximum it was compiled for."""
        return self.threads or self.max_threads


@dataclass(frozen=True)
class Occupancy:
    """How many waves of one kernel fit a SIMD, and which resources limit them.

    waves_per_simd          the compiler's form: rounded up, workgroups may be split
    whole_waves_per_simd    the form the hardware runs: whole workgroups only, averaged over the SIMDs of a block
    max_waves_per_simd      of the architecture
    workgroups              whole workgroups per block (CU; WGP on RDNA in WGP mode)
    waves_per_workgroup     waves of one workgroup
    limits                  waves per SIMD that each resource alone would allow: 'vgprs', 'sgprs', 'lds', 'slots'
                            (wave slots) and 'workgroups' (barriers), in the compiler's form
    limiters                which of `limits` bind, most specific first; empty at full occupancy
    fits                    False where not even one workgroup fits (LDS over the limit): no launch would succeed
    block                   what shares LDS: 'CU' or 'WGP'
    """

    waves_per_simd: int
    whole_waves_per_simd: float
    max_waves_per_simd: int
    workgroups: int
    waves_per_workgroup: int
    limits: dict[str, int]
    limiters: tuple[str, ...]
    fits: bool = True
    block: str = "CU"


@dataclass(frozen=True)
class CodeFinding:
    """One difference from the stored code object, or one rule that the kernel breaks.

    kind            'spills', 'scratch', 'lds_limit', 'matrix', 'store', 'occupancy', 'vgprs', 'lds', 'code_size',
                    'wider_loads', 'launch'
    fails           whether the policy lets it fail the test; otherwise it is a warning
    before, after   as text with units, '' where there is no such side
    text            the whole sentence, with causes to look at
    """

    kind: str
    fails: bool
    before: str
    after: str
    text: str


RIGHT, WRONG, NOT_EXECUTED, UNPROVEN = "right", "wrong", "not executed", "unproven"
"""Outcomes of an execution; unproven: no proof launched this very object."""


@dataclass(frozen=True)
class CodeExecution:
    """What executing a compiled kernel by the interpreter of machine code, on its proofs, showed. Counted, not timed.

    outcome             RIGHT, WRONG, NOT_EXECUTED or UNPROVEN
    text                the judge's problem or the fault, or why it was not executed; '' if right
    workloads           ids of the problems that were executed and right
    launches            of the object itself
    lane_instructions   of these launches: instructions times lanes
    seconds             of all proofs, with the reference and with what else was launched
    """

    outcome: str
    text: str = ""
    workloads: tuple[str, ...] = ()
    launches: int = 0
    lane_instructions: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class CodeResult:
    """The result of one compiled kernel: one pytest item.

    key         suite, kernel, config and (as its label) architecture
    config      block sizes and options it was compiled with
    compiler    name and version, 'triton 3.9.0'
    stored      the baseline's kernel, None without one; `stored_compiler` made it
    unchanged   the machine code and its launch equal the stored ones
    matrix      whether the kernel promises matrix instructions
    policy      the gate's policy as a plain record
    accepted    the reason for its spills, where it was recorded with some
    executed    what executing it showed; None without --attnperf-execute
    """

    key: CaseKey
    nodeid: str
    verdict: Verdict
    summary: str
    fails: bool = False
    findings: tuple[CodeFinding, ...] = ()
    notes: tuple[str, ...] = ()
    code: KernelCode | None = None
    occupancy: Occupancy | None = None
    stored: KernelCode | None = None
    stored_occupancy: Occupancy | None = None
    config: dict[str, str] = field(default_factory=dict)
    compiler: str = ""
    stored_compiler: str = ""
    unchanged: bool = False
    matrix: bool = False
    policy: dict[str, Any] = field(default_factory=dict)
    accepted: str = ""
    sources: dict[str, str] = field(default_factory=dict)
    reproduce: str = ""
    log: str = ""
    seconds: float = 0.0
    executed: CodeExecution | None = None
