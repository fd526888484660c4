from __future__ import annotations

import pytest

from pytest_attnperf.codeobject.instructions import CLASSES
from pytest_attnperf.codeobject.sass import classify, falls_through

TABLE = """
matrix | HMMA.16816.F32 R16, R16, R22, R12
matrix | HGMMA.64x128x16.F32 R24, gdesc[UR8], R24, gsb0
matrix | IMMA.16832.S8.S8 R4, R8.ROW, R12.COL, R4
matrix | IGMMA.64x64x32.S8.S8 R24, gdesc[UR4], R24
matrix | QGMMA.64x64x32.F32.E4M3.E4M3 R24, gdesc[UR4], R24
matrix | QMMA.16832.F32.E4M3.E4M3 R4, R8, R12, R4
matrix | DMMA.8x8x4 R4, R8, R10, R4
matrix | BMMA.168256.AND.POPC R4, R8.ROW, R12.COL, R4
matrix | UTCHMMA gdesc[UR4], gdesc[UR10], tmem[UR20], tmem[UR12], idesc[UR13], UPT
matrix | UTCQMMA.2CTA gdesc[UR4], gdesc[UR10], tmem[UR20], tmem[UR12], idesc[UR13], UPT
dot | IDP.4A.S8.S8 R4, R5, R6, R4
global_load_1B | LDG.E.U8 R4, desc[UR4][R2.64]
global_load_2B | LDG.E.S16.CONSTANT R4, desc[UR4][R2.64]
global_load_4B | LDG.E R4, desc[UR4][R2.64]
global_load_8B | LDG.E.64.CONSTANT R4, desc[UR4][R2.64]
global_load_16B | LDG.E.LTC128B.128 R4, desc[UR4][R2.64]
global_load_4B | LDG.E.LTC128B R4, desc[UR4][R2.64]
global_load_32B | LDG.E.ENL2.256 R8, R4, desc[UR4][R2.64]
global_load_16B | LD.E.128 R4, desc[UR4][R2.64]
global_load_lds_16B | LDGSTS.E.BYPASS.LTC128B.128 [R21], desc[UR4][R2.64]
global_load_lds_4B | LDGSTS.E [R21], desc[UR4][R2.64]
global_load_tile | UTMALDG.2D [UR8], [UR4], desc[UR6]
global_load_tile | UBLKCP.S.G [UR8], [UR4], UR6
global_store_tile | UTMASTG.2D [UR8], [UR4]
global_store_tile | UBLKCP.G.S [UR8], [UR4], UR6
global_store_1B | STG.E.U8 desc[UR4][R2.64], R4
global_store_4B | ST.E desc[UR4][R2.64], R4
global_store_16B | STG.E.128 desc[UR4][R2.64], R12
image_load | TEX.SCR R0, R0, R2, 0x0, 2D
image_store | SUST.D.BA.2D.STRONG.SM.TRAP [R2], R4, UR4
global_atomic | RED.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR4][R2.64], R5
global_atomic | REDG.E.ADD.STRONG.GPU desc[UR4][R2.64], R5
global_atomic | ATOMG.E.CAS.STRONG.GPU PT, R5, [R2], R4, R5
global_atomic | ATOM.E.ADD.STRONG.GPU PT, R5, desc[UR4][R2.64], R5
global_atomic | UTMAREDG.2D.ADD [UR8], [UR4]
scalar_load | ULDC.64 UR4, c[0x0][0x208]
scalar_load | LDC R1, c[0x0][0x28]
scalar_load | LDCU.128 UR4, c[0x0][0x380]
lds_read_4B | LDS R7, [R34]
lds_read_2B | LDS.U16 R7, [R34]
lds_read_16B | LDS.128 R4, [R34]
lds_read_4B | LDSM.16.M88 R16, [R21]
lds_read_8B | LDSM.16.M88.2 R22, [R21]
lds_read_16B | LDSM.16.MT88.4 R16, [R21]
lds_write_1B | STS.U8 [R4], R5
lds_write_16B | STS.128 [R21], R8
lds_write_16B | STSM.16.MT88.4 [R21], R8
lds_atomic | ATOMS.ADD R4, [R5], R6
cross_lane | SHFL.BFLY PT, R5, R4, 0x2, 0x1f
cross_lane | REDUX.SUM UR4, R4
scratch_load | LDL.64 R4, [R1+0x8]
scratch_store | STL.128 [R1], R4
wait | DEPBAR.LE SB0, 0x1
wait | LDGDEPBAR
wait | SYNCS.PHASECHK.TRANS64.TRYWAIT P4, [UR6+0x5000], R136
wait | WARPGROUP.DEPBAR.LE gsb0, 0x0
barrier | BAR.SYNC.DEFER_BLOCKING 0x0
barrier | UCGABAR_WAIT
branch | BRA `(.L_x_2)
branch | BRA.U UP1, `(.L_x_0)
call | CALL.REL.NOINC `($tile$div)
call | BRX R4 -0x120
return | RET.REL.NODEC R4 `(tile)
agpr_move | LDTM.x64 R4, tmem[UR8]
agpr_move | STTM.x32 tmem[UR8], R4
cache | CCTL.IVALL
cache | UTMAPF.L2.2D [UR8], [UR4]
valu | FFMA.FTZ R4, R5, R6, R7
valu | IMAD.MOV.U32 R29, RZ, RZ, R2
valu | F2FP.F16.F32.PACK_AB R4, R5, R6
valu | MUFU.EX2 R4, R5
salu | UIADD3 UR4, UR5, UR6, URZ
salu | BSSY B0, `(.L_x_3)
salu | S2UR UR5, SR_CgaCtaId
nop | NOP
end | EXIT
other | FROB.E.128 R4, R5
"""


def rows() -> list[tuple[str, str, str]]:
    """Class, mnemonic and operands of the table."""
    split = [line.split(" | ") for line in TABLE.strip().splitlines()]
    return [(name, *text.partition(" ")[::2]) for name, text in split]


def test_every_instruction_of_the_table_is_in_its_class() -> None:
    """SASS of sm_80 to sm_120, as nvdisasm writes it, is told apart by opcode and modifiers."""
    assert len(rows()) >= 75
    assert [row for row in rows() if classify(row[1], row[2]) != row[0]] == []
    assert {row[0] for row in rows()} <= set(CLASSES)


@pytest.mark.parametrize(
    ("mnemonic", "liar"),
    [
        ("STL.128", "global_store_16B"),
        ("STS.128", "global_store_16B"),
        ("CCTL.E.IV", "global_store_4B"),
        ("UTCATOMSWS.AND", "global_atomic"),
        ("XHMMA.16816.F32", "matrix"),
        ("HMMAX", "matrix"),
        ("HFMA2.MMA", "matrix"),
        ("LDGDEPBAR", "global_load_4B"),
        ("MOVM.16.MT88", "matrix"),
    ],
)
def test_what_looks_like_another_class_is_not_it(mnemonic: str, liar: str) -> None:
    """HFMA2.MMA multiplies and adds within a lane, whatever its modifier says; a spill is no store."""
    assert classify(mnemonic) != liar


def test_a_matrix_load_of_an_unknown_shape_has_no_width() -> None:
    """Only tiles of 8 x 8 have four bytes per lane and tile."""
    assert classify("LDSM.8.MT168.2") == "lds_read"


@pytest.mark.parametrize(
    ("mnemonic", "operands", "predicate", "expected"),
    [
        ("BRA", "`(.L_x_2)", "", False),
        ("BRA", "`(.L_x_2)", "@!P5", True),
        ("BRA.U", "UP1, `(.L_x_0)", "", True),
        ("EXIT", "", "", False),
        ("EXIT", "", "@P0", True),
        ("RET.REL.NODEC", "R4 `(tile)", "", False),
        ("BRX", "R4 -0x120", "", False),
        ("CALL.REL.NOINC", "`($tile$div)", "", True),
        ("FADD", "R1, R2, R3", "", True),
    ],
)
def test_a_condition_lets_the_next_instruction_run(
    mnemonic: str, operands: str, predicate: str, expected: bool
) -> None:
    """The condition of a jump is its predicate, or an operand before the label."""
    assert falls_through(mnemonic, operands, predicate) is expected
