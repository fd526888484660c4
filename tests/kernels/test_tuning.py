"""What our backends declare to the tuner: which rule is tuned, what is refused, pins, and the files of a winner."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kernels
from kernels import tuning
from kernels.configs import FOLDER, Space
from kernels.configured import Configured
from kernels.hip.prefill import BACKENDS as HIP
from kernels.triton.prefill.space import SPACE, problem_of
from pytest_attnperf.backends import Registry
from pytest_attnperf.errors import UsageError
from pytest_attnperf.tuning_records import Candidate, Tunable, TuningSpace
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.decode import Decode
from pytest_attnperf.workloads.gemm import Gemm
from pytest_attnperf.workloads.layernorm import LayerNorm
from pytest_attnperf.workloads.mla import Mla
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.rmsnorm import RmsNorm
from pytest_attnperf.workloads.softmax import Softmax
from pytest_attnperf.workloads.varlen import Varlen

REGISTRY = Registry()
kernels.register(REGISTRY)
BACKENDS: dict[str, Any] = {each.name: each for each in REGISTRY if isinstance(each, Configured)}
FLASH = BACKENDS["triton.flash"]
D256 = Prefill.parse("prefill-b4-s512-h8-d256-f16-causal")
D128 = Prefill.parse("prefill-b4-s512-h8-d128-f16-causal")
MANY_ROWS = Prefill.parse("prefill-b4-s4096-h32-d128-f16-causal")
ARCHS = ("sm_90", "sm_80", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
SEEDS_DEFAULT = {
    "BLOCK_M": 128, "BLOCK_N": 64, "PRELOAD_V": False, "GROUP_HEADS": 4096, "num_warps": 4, "num_stages": 1,
}  # fmt: skip
CASES: tuple[tuple[str, Workload], ...] = (
    ("triton.flash", D256),
    ("triton.flash", Prefill.parse("prefill-b1-s4096-h8-d64-f32")),
    ("triton.flash_persistent", D128),
    ("triton.flash_varlen", Varlen.parse("varlen-q8x512_63-h8-d128-bf16-causal")),
    ("triton.flash_decode", Decode.parse("decode-b64-kv4096-h32-hk8-d128-f16")),
    ("triton.gemm", Gemm.parse("gemm-m8192-n8192-k8192-f16")),
    ("triton.rmsnorm", RmsNorm.parse("rmsnorm-r8192-c4096-bf16-residual")),
    ("triton.layernorm", LayerNorm.parse("layernorm-r8192-c4096-bf16")),
    ("triton.softmax", Softmax.parse("softmax-r8192-c4096-bf16")),
    ("triton.flash_trans_v", D128),
    ("triton.mla", Mla.parse("mla-b1-s2048-h16-d128-r64-c512-bf16-causal")),
)


def kept(space: TuningSpace) -> list[dict[str, Any]]:
    """Every combination that the constraints let through."""
    every = (dict(zip(space.values, values, strict=True)) for values in itertools.product(*space.values.values()))
    return [values for values in every if all(each.holds(values) for each in space.constraints)]


@pytest.fixture
def in_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Space, str, str], None]:
    """Let a kernel's file of an architecture hold another text, in a copy of the folder of its files."""

    def put(space: Space, arch: str, text: str) -> None:
        folder = tmp_path / "configs" / space.kernel
        folder.mkdir(parents=True)
        for path in (FOLDER / space.kernel).glob("*.json"):
            (folder / path.name).write_bytes(path.read_bytes())
        (folder / f"{arch}.json").write_text(text, encoding="utf-8")
        moved = replace(space, folder=tmp_path / "configs")
        known = {name: replace(each, space=moved) for name, each in tuning.declared_by_kernel().items()}
        monkeypatch.setattr(tuning, "declared_by_kernel", lambda: {space.kernel: known[space.kernel]})
        monkeypatch.setattr(type(FLASH), "spaces", (moved,))

    return put


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(("name", "workload"), CASES, ids=lambda each: str(getattr(each, "id", each)))
def test_the_default_is_today_s_configuration_and_may_be_tried(name: str, workload: Workload, arch: str) -> None:
    """It stands in the grid, meets every constraint, and is what the files choose for the workload."""
    backend = BACKENDS[name]
    assert isinstance(BACKENDS[name], Tunable)
    space = backend.tuning_space([workload], arch)
    assert dict(space.default.values) in kept(space)
    pinned = backend.replay_config(backend.tuning_pin(space.default, space))
    declared = tuning.declared_by_kernel()[space.kernel]
    today = backend.choose(declared.space, arch, declared.problem(workload)).config
    told = pinned.choose(declared.space, arch, declared.problem(workload)).config
    assert {key: value for key, value in told.items() if value or key in today} == today
    assert backend.tuning_serves(workload, space, arch)


@pytest.mark.parametrize("arch", ["sm_90", "gfx942"])
def test_the_grid_at_d256_holds_the_published_pair(arch: str) -> None:
    """100 to 400 candidates, among them the report's slow default and its tuned 64 x 32 with V loaded early."""
    found = kept(FLASH.tuning_space([D256], arch))
    assert 100 <= len(found) <= 400
    tuned = {**SEEDS_DEFAULT, "BLOCK_M": 64, "BLOCK_N": 32, "PRELOAD_V": True}
    for wanted in (SEEDS_DEFAULT, tuned):
        assert any(wanted.items() <= values.items() for values in found)


def test_options_of_amd_s_compiler_are_tried_on_amd_only() -> None:
    """waves_per_eu on every gfx, shapes of matrix instructions on CDNA, neither on NVIDIA."""
    names = {arch: FLASH.tuning_space([D256], arch).values.keys() for arch in ARCHS}
    assert {arch for arch, held in names.items() if "waves_per_eu" in held} == {a for a in ARCHS if a[:3] == "gfx"}
    assert {arch for arch, held in names.items() if "matrix_instr_nonkdim" in held} == {"gfx90a", "gfx942", "gfx950"}


def test_what_cannot_be_launched_is_not_tried() -> None:
    """Three stages of 128 keys of D = 256 are beyond 227 KiB, and a small tile has no work for eight warps."""
    space = FLASH.tuning_space([D256], "sm_90")
    large = {**SEEDS_DEFAULT, "BLOCK_N": 128, "num_stages": 3, "num_warps": 8}
    small = {**SEEDS_DEFAULT, "BLOCK_M": 32, "BLOCK_N": 32, "num_warps": 8}
    why = [[each.why for each in space.constraints if not each.holds(values)] for values in (large, small)]
    assert why == [
        ["stages loaded ahead need more than the 227 KiB of shared memory"],
        ["fewer than 16 x 16 scores for a warp"],
    ]


def test_another_default_can_be_started_from() -> None:
    """A replaced default is pinned as it is: the kernel runs what the space was given, not what the files say."""
    space = replace(FLASH.tuning_space([D256], "sm_90"), default=Candidate(SEEDS_DEFAULT))
    pinned = FLASH.replay_config(FLASH.tuning_pin(space.default, space))
    choice = pinned.choose(SPACE, "sm_90", problem_of(D256))
    assert choice.config == SEEDS_DEFAULT
    recorded = pinned.config_entries({SPACE.kernel: choice})
    assert recorded.items() >= {name: str(value) for name, value in SEEDS_DEFAULT.items()}.items()
    assert recorded["config_source"] == "pinned: a candidate of a tuning run"


def test_one_kernel_of_several_is_pinned_by_itself() -> None:
    """A candidate of the reduction leaves the kernel before it as the files have it."""
    backend, workload = BACKENDS["triton.flash_decode"], Decode.parse("decode-b64-kv4096-h32-hk8-d128-f16")
    space = backend.tuning_space([workload], "sm_90", kernel="decode_reduce")
    assert space.kernel == "decode_reduce"
    pinned = backend.replay_config(backend.tuning_pin(Candidate({**space.default.values, "BLOCK_SPLITS": 8}), space))
    assert {kernel: choice.config["BLOCK_SPLITS"] for kernel, choice in pinned.pinned_choices.items()} == {
        "decode_reduce": 8
    }


def test_a_winner_changes_the_rule_that_serves_its_workload(
    in_copy: Callable[[Space, str, str], None],
) -> None:
    """Its file, put in place, gives the winner for what the rule serves, and today's figures for the rest."""
    space = FLASH.tuning_space([D256], "sm_90")
    winner = Candidate({**SEEDS_DEFAULT, "BLOCK_M": 64, "BLOCK_N": 32, "PRELOAD_V": True})
    (file,) = FLASH.tuned_files(winner, space, [D256], "sm_90", source="a tuning run")
    assert (file.path, file.what) == (
        "configs/prefill_forward/sm_90.json", "rules of prefill_forward for sm_90: rule 5 changed, 10 kept"
    )  # fmt: skip
    in_copy(SPACE, "sm_90", file.text)
    again = FLASH.tuning_space([D256], "sm_90")
    assert (again.default, again.serves) == (winner, space.serves)
    assert FLASH.tuning_space([D128], "sm_90").default.values["BLOCK_M"] == 64


def test_a_narrower_rule_serves_what_it_takes_alone(in_copy: Callable[[Space, str, str], None]) -> None:
    """With `when`, a new rule stands before the old one: longer problems keep today's figures."""
    when = {"rows_max": 16384}
    longer = replace(D256, seq_q=4096, seq_kv=4096)
    space = FLASH.tuning_space([D256], "sm_90", when=when)
    assert space.serves == (
        "a new rule (head_dim_max 256, element_bits 16, rows_max 16384) before rule 5 of 11 (head_dim_max 256, "
        "element_bits 16) for sm_90"
    )
    served = [FLASH.tuning_serves(each, space, "sm_90", when) for each in (D256, longer, D128, CASES[5][1])]
    assert served == [True, False, False, False]
    winner = Candidate({**SEEDS_DEFAULT, "num_warps": 8})
    (file,) = FLASH.tuned_files(winner, space, [D256], "sm_90", source="a tuning run", when=when)
    assert file.what == "rules of prefill_forward for sm_90: 1 rule added before rule 5, 11 kept"
    in_copy(SPACE, "sm_90", file.text)
    assert FLASH.tuning_space([D256], "sm_90").default == winner
    assert FLASH.tuning_space([longer], "sm_90").default == space.default


def test_without_when_the_rule_serves_all_its_problems() -> None:
    """What is tuned at 512 rows is also used at 4,096, and for other masks; a tuner is told so."""
    space = FLASH.tuning_space([D256], "sm_90")
    assert FLASH.tuning_serves(replace(D256, seq_q=4096, seq_kv=4096, causal=False), space, "sm_90")
    assert not FLASH.tuning_serves(D128, space, "sm_90")


def test_a_choice_left_to_the_compiler_is_not_written() -> None:
    """matrix_instr_nonkdim 0 is Triton's default: a rule without it stays without it, and 16 is written."""
    space = FLASH.tuning_space([D128], "gfx942")
    for shape, expected in ((0, None), (16, 16)):
        winner = Candidate({**space.default.values, "matrix_instr_nonkdim": shape, "num_warps": 4})
        (file,) = FLASH.tuned_files(winner, space, [D128], "gfx942", source="x, never run here")
        config: Mapping[str, Any] = json.loads(file.text)["rules"][3]["config"]
        assert (config.get("matrix_instr_nonkdim"), config["num_warps"], config["waves_per_eu"]) == (expected, 4, 2)


def test_workloads_of_several_rules_are_refused() -> None:
    """The error says which rule serves which workload, and what to do."""
    text = r"served by 3 rules of kernels/triton/configs/prefill_forward/sm_90\.json"
    with pytest.raises(UsageError, match=text) as found:
        FLASH.tuning_space([D256, MANY_ROWS, D128], "sm_90")
    assert f"rule 4 (head_dim_max 128, element_bits 16) serves {D128.id}" in str(found.value)
    assert "Choose the workloads of one rule with --workload" in str(found.value)


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ({"colour": 1}, "--when colour: prefill_forward knows head_dim, causal"),
        ({"rows_max": 1024}, "--when rows_max 1024 excludes .*whose rows is 16384"),
        ({"causal_max": True}, "--when causal_max = True must be of the type of .*; only whole numbers take _max"),
        ({"rows_max": True}, "--when rows_max = True must be of the type of 16384, the rows of prefill-b4-s512"),
        ({"rows_max": "16384"}, "--when rows_max = '16384' must be of the type of 16384"),
    ],
)
def test_a_condition_that_does_not_fit_is_refused(when: dict[str, Any], message: str) -> None:
    """Names, types and values of `when` are checked against every workload."""
    with pytest.raises(UsageError, match=message):
        FLASH.tuning_space([D256], "sm_90", when=when)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: FLASH.tuning_space([], "sm_90"), "no workload was chosen; name one with --workload"),
        (lambda: FLASH.tuning_space([CASES[5][1]], "sm_90"), "gemm-m8192.* is no workload of prefill_forward"),
        (lambda: FLASH.tuning_space([D256], "interpreter"), "nothing can be tuned for 'interpreter'"),
        (lambda: FLASH.tuning_space([D256], "../../sm_90"), r"nothing can be tuned for '\.\./\.\./sm_90'"),
        (
            lambda: FLASH.tuning_space([D256], "sm_90", kernel="gemm"),
            "triton.flash has no kernel 'gemm'; it has prefill",
        ),
        (
            lambda: BACKENDS["triton.flash_backward"].tuning_space([D256], "sm_90"),
            "triton.flash_backward: .* declares no tuning space; tunable: decode, decode_reduce, gemm, layernorm",
        ),
        (
            lambda: BACKENDS["triton.gemm_data_parallel"].tuning_space([CASES[5][1]], "sm_90"),
            "gemm_stream_k declares no tuning space",
        ),
        (lambda: HIP[0].tuning_space([D128], "gfx942"), "declares no tuning space"),
    ],
)
def test_what_cannot_be_tuned_says_so(call: Callable[[], object], message: str) -> None:
    """Each refusal is a UsageError that names what there is."""
    with pytest.raises(UsageError, match=message):
        call()


def test_a_file_that_cannot_be_read_is_named(in_copy: Callable[[Space, str, str], None]) -> None:
    """A half-written file ends the command with its name, before anything is tried."""
    in_copy(SPACE, "sm_90", '{"schema": 2, "rules": [{"when": {"head')
    with pytest.raises(UsageError, match=r"sm_90\.json: cannot be read as JSON"):
        FLASH.tuning_space([D256], "sm_90")
    with pytest.raises(UsageError, match=r"sm_90\.json: cannot be read as JSON"):
        FLASH.tuned_files(Candidate(SEEDS_DEFAULT), TuningSpace("", {}, Candidate({})), [D256], "sm_90", source="x")


def test_every_configured_backend_answers_as_tunable() -> None:
    """`Tunable` holds of every `Configured` backend, so that a refusal can say what is tunable."""
    assert all(isinstance(each, Tunable) for each in BACKENDS.values() if isinstance(each, Configured))


def test_alternatives_outside_the_grid_are_candidates_by_name() -> None:
    """gfx90a's published tile, whose file alone has kpack, is in the grid; MLA's own grid holds the document's. A
    tile that is not in the grid is tried under its name, if it serves every workload."""
    backend = BACKENDS["triton.flash_trans_v"]
    declared = tuning.declared_by_kernel()["trans_v"]
    assert backend.tuning_space([D128], "gfx90a").extra == ()
    narrow = replace(declared, values=lambda workloads, target: {"BLOCK_M": (64,)})
    (found,) = tuning.tuning_space(narrow, [D128], "gfx90a", None).extra
    assert (found.label, found.values["BLOCK_M"], found.values["BLOCK_N"]) == ("perf_kernels", 256, 128)
    assert tuning.tuning_space(narrow, [D128], "gfx942", None).extra == ()
    rows = [D128, Prefill.parse("prefill-b4-s512-h8-d64-f16-causal")]
    assert tuning.list_alternatives(declared, rows, "gfx90a", {}) == ()
