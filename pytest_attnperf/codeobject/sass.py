"""Classifies NVIDIA instructions (SASS) by their opcodes.

Opcodes from NVIDIA's "CUDA Binary Utilities", section "Instruction Set Reference" (Turing to Blackwell), and from
nvdisasm 13.1's output for kernels of sm_80, sm_90, sm_100 and sm_120. Unlisted opcodes are 'other'.
"""

from __future__ import annotations

import re

from pytest_attnperf.codeobject.instructions import SIZED, with_width

_OPCODES = {
    "dot": "IDP IDP4A",
    "global_load_tile": "UTMALDG UBLKCP",
    "global_store_tile": "UTMASTG",
    "image_load": "TEX TLD TLD4 TMML TXD TXQ SULD",
    "image_store": "SUST",
    "scalar_load": "LDC LDCU ULDC",
    "global_atomic": "RED REDG ATOM ATOMG SUATOM SURED UTMAREDG UBLKRED UREDGR REDGMC",
    "global_load": "LD LDG LDGMC",
    "global_load_lds": "LDGSTS",
    "global_store": "ST STG USTGR",
    "lds_read": "LDS LDSM",
    "lds_write": "STS STSM STAS",
    "lds_atomic": "ATOMS REDAS",
    "cross_lane": "SHFL VOTE VOTEU MATCH REDUX CREDUX ELECT R2UR",
    "scratch_load": "LDL",
    "scratch_store": "STL",
    "wait": "DEPBAR LDGDEPBAR SYNCS ARRIVES WARPGROUP MEMBAR FENCE ERRBAR CGAERRBAR ACQBULK ACQSHMINIT UTMACMDFLUSH "
    "UTCBAR",
    "barrier": "BAR UCGABAR_ARV UCGABAR_WAIT",
    "branch": "BRA JMP",
    "call": "CALL JCAL BRX BRXU JMX JMXU",
    "agpr_move": "LDT LDTM STT STTM UTCCP UTCSHIFT",
    "cache": "CCTL CCTLL CCTLT UCCTL UTMACCTL UTMAPF UBLKPF",
    "nop": "NOP NANOSLEEP YIELD PMTRIG",
    "return": "RET",
    "end": "EXIT KILL RTT",
    # The convergence barrier and traps: what s_and_saveexec and s_trap are on AMD.
    "salu": "BSSY BSYNC BREAK BMOV WARPSYNC BPT PREEXIT ENDCOLLECTIVE "
    "S2UR UBMSK UBREV UCLEA UFLO UF2F UF2FP UF2I UFADD UFFMA UFMNMX UFMUL UFRND UFSEL UFSET UFSETP UGETNEXTWORKID UI2F "
    "UI2FP UI2I UI2IP UIABS UIADD3 UIMAD UIMNMX UISETP ULEA ULEPC ULOP ULOP3 ULOP32I UMEMSETS UMOV UP2UR UPLOP3 UPOPC "
    "UPRMT UPSETP UR2UP USEL USETMAXREG USETSHMSZ USGXT USHF USHL USHR UTCATOMSWS UVIADD UVIMNMX UVIRTCOUNT CS2UR",
    "valu": "FADD FADD2 FADD32I FCHK FFMA FFMA2 FFMA32I FMNMX FMNMX3 FMUL FMUL2 FMUL32I FSEL FSET FSETP FSWZADD MUFU "
    "HADD2 HADD2_32 HFMA2 HFMA2_32 HMNMX2 HMUL2 HMUL2_32 HSET2 HSETP2 DADD DFMA DMUL DSETP DMNMX DSET "
    "BMSK BREV FLO IABS IADD IADD3 IADD32I IMAD IMNMX IMUL IMUL32I ISCADD ISCADD32I ISETP ISET LEA LOP LOP3 LOP32I "
    "POPC SHF SHL SHR VABSDIFF VABSDIFF4 VIADD VIADDMNMX VIMNMX VIMNMX3 VHMNMX F2F F2FP F2I F2IP I2F I2FP I2I I2IP "
    "FRND MOV MOV32I MOVM PRMT SEL SGXT PLOP3 PSETP P2R R2P PSET CSET CSETP LEPC S2R CS2R B2R R2B QSPC "
    "GETLMEMBASE SETLMEMBASE AL2P",
}
_CLASS_OF = {opcode: name for name, opcodes in _OPCODES.items() for opcode in opcodes.split()}

# HMMA, IMMA, DMMA, BMMA, QMMA, OMMA by warp; HGMMA, IGMMA, QGMMA, BGMMA by warp group; UTC*MMA in tensor memory.
_MATRIX = re.compile(r"([HIDBQO]G?MMA|UTC\w*MMA)$")
_BYTES_OF = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "32": 4, "64": 8, "96": 12, "128": 16, "256": 32}
_NEVER_FALL_THROUGH = frozenset({"EXIT", "RET", "KILL", "RTT", "BRX", "BRXU", "JMX", "JMXU"})


def classify(mnemonic: str, _operands: str = "") -> str:
    """Returns the class of a SASS instruction from its mnemonic alone; 'other' if it is unknown.

    A bulk copy (UBLKCP) loads a tile, or stores one if its first operand is in global memory ('.G.S').
    """
    opcode, *modifiers = mnemonic.split(".")
    if _MATRIX.match(opcode):
        return "matrix"
    name = _CLASS_OF.get(opcode, "other")
    if opcode == "UBLKCP" and modifiers[:2] == ["G", "S"]:
        return "global_store_tile"
    return with_width(name, _width_bytes(opcode, modifiers)) if name in SIZED else name


def falls_through(mnemonic: str, operands: str, predicate: str) -> bool:
    """Returns whether the following instruction may run after this one: no jump, or a conditional one."""
    if predicate:
        return True
    opcode = mnemonic.split(".")[0]
    # A condition may also stand in the operands: BRA.U UP1, `(.L_x_0).
    return opcode not in _NEVER_FALL_THROUGH and (opcode not in ("BRA", "JMP") or "," in operands)


def _width_bytes(opcode: str, modifiers: list[str]) -> int | None:
    """Returns the bytes per lane that an access moves, by its modifiers, by default 4; None for a matrix of unknown
    form. A matrix load or store moves four per lane for each 8 x 8 tile of 16-bit elements. From the PTX ISA,
    "ldmatrix": 8 rows of 16 bytes are spread over 32 lanes."""
    if opcode in ("LDSM", "STSM"):
        tiles = next((int(part) for part in modifiers if part in ("2", "4")), 1)
        return 4 * tiles if {"M88", "MT88"} & set(modifiers) else None
    return next((_BYTES_OF[part] for part in modifiers if part in _BYTES_OF), 4)
