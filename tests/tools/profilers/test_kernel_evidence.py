from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_attnperf.records.profiles import Confidence, KernelShape
from pytest_attnperf.tools.profilers.dispatches import Dispatches, DispatchesBuilder
from pytest_attnperf.tools.profilers.kernel_evidence import Classified, classify_kernels
from pytest_attnperf.tools.profilers.kernel_families import FamilyRules
from pytest_attnperf.tools.profilers.profile_summary import summarise_profile
from pytest_attnperf.tools.profilers.profile_text import conclusion_lines
from tests.tools.profilers.loaded_trace import COPY, FLASH, make_profile

RULES = FamilyRules.load_default()
NORM = KernelShape("layer_norm_kernel", "kernel", "1", (256, 1, 1), (65_536, 1, 1), 0, 0, 16)
ATTENTION = KernelShape("attn_fwd", "kernel", "1", (256, 1, 1), (65_536, 1, 1), 16_384, 0, 128)


def _trace(*rows: tuple[KernelShape, int]) -> Dispatches:
    builder, now = DispatchesBuilder(), 0
    for shape, time in rows * 20:
        builder.add(builder.number_of(shape), now, now + time)
        now += time
    return builder.build()


def _found(shape: KernelShape, time: int, *, before: bool = True) -> Classified | None:
    rows = ((NORM, 6_000), (shape, time), (ATTENTION, 40_000))
    return classify_kernels(_trace(*(rows if before else (*rows[:2], rows[0], rows[2]))), RULES).get(shape.name)


def test_a_copy_with_attention_in_its_name_is_a_copy() -> None:
    """The kernel of the review: by its registers, its time, the kernel that follows, and its name's words in order."""
    summary = summarise_profile(make_profile())
    copy = next(kernel for kernel in summary.kernels if kernel.name == COPY)
    assert (copy.family, copy.confidence, len(copy.evidence)) == ("tensor copy", Confidence.LIKELY, 4)
    assert copy.evidence[0] == "its name has 'preprocess' before 'attention'"
    assert copy.evidence[3] == "flash_attention_kernel follows in 75 of 75 calls and takes longer"
    assert {kernel.name for kernel in summary.kernels if kernel.family == "attention"} == {FLASH}
    page = "\n".join(conclusion_lines(summary))
    assert "preprocess_for_attention_body_kernel: likely tensor copy, in spite of its name: " in page
    assert "is anything computed" not in page
    assert not any(finding.rule == "registers" for finding in summary.findings)


@pytest.mark.parametrize(
    ("shape", "time", "before", "confidence"),
    [
        (replace(ATTENTION, name="flash_attention_body"), 30_000, False, None),
        (replace(ATTENTION, name="preprocess_for_attention"), 30_000, False, Confidence.DOUBTFUL),
        (replace(ATTENTION, name="my_attention", vgprs=8, lds_bytes=0), 30_000, False, Confidence.DOUBTFUL),
        (replace(ATTENTION, name="my_attention", vgprs=8, lds_bytes=0), 3_000, False, Confidence.LIKELY),
        (replace(ATTENTION, name="my_attention", vgprs=None, lds_bytes=None), 3_000, True, Confidence.LIKELY),
        (replace(ATTENTION, name="paged_attention_reduce", vgprs=8, lds_bytes=0), 3_000, True, None),
    ],
)
def test_evidence_decides_by_its_number(
    shape: KernelShape, time: int, before: bool, confidence: Confidence | None
) -> None:
    """Nothing against the name: sure; one piece of evidence: doubtful, and still attention; two: a copy."""
    found = _found(shape, time, before=before)
    assert (found.confidence if found else None) is confidence
    assert found is None or (found.family.name == "attention") is (confidence is Confidence.DOUBTFUL)


def test_another_rule_names_what_it_is() -> None:
    """A fused kernel of Inductor, as in a trace of a diffusion model, is what its other words say."""
    name = "triton_poi_fused__scaled_dot_product_flash_attention_cat_transpose_view_10"
    found = _found(replace(ATTENTION, name=name, vgprs=None, lds_bytes=None), 3_000)
    assert found is not None
    assert (found.family.name, found.confidence) == ("transpose", Confidence.LIKELY)


def test_time_is_compared_with_kernels_of_that_size() -> None:
    """Small kernels take the time of their launch, so a large one of attention is not as fast as they are."""
    small = replace(NORM, grid_items=(256, 1, 1))
    dispatches = _trace((small, 6_000), (replace(ATTENTION, name="my_attention"), 30_000), (small, 6_000))
    assert classify_kernels(dispatches, RULES) == {}


@pytest.mark.parametrize(
    "name",
    ["flash_attn_fwd_splitkv", "fmha_fwd_hd128_bf16", "unified_attention_with_output", "attention_copy", "_attn_fwd"],
)
def test_names_of_attention_itself_have_no_word_before_it(name: str) -> None:
    """A word behind 'attention' says what this is, not what it is for."""
    assert _found(replace(ATTENTION, name=name), 30_000, before=False) is None


def test_rules_of_a_user_are_kept(tmp_path: Path) -> None:
    """Whoever names a kernel attention in a rules file knows it."""
    file = tmp_path / "rules.json"
    rule = '{"pattern": "preprocess_for_attention", "family": "attention", "nature": "compute"}'
    file.write_text(f'{{"schema": 1, "rules": [{rule}]}}')
    summary = summarise_profile(make_profile(), rules=FamilyRules.load(file))
    assert {kernel.confidence for kernel in summary.kernels} == {Confidence.SURE}
    assert {kernel.name for kernel in summary.kernels if kernel.family == "attention"} == {FLASH, COPY}
