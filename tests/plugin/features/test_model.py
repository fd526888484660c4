"""--attnperf-model: a model's workloads in place of those that tests are marked with, in every process of a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.plugin import options
from pytest_attnperf.plugin.config import RunConfig
from pytest_attnperf.plugin.features.model_cases import ModelCases, ModelOption
from pytest_attnperf.testing.project import FakeProject

SMALL = {
    "model_type": "mistral",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "sliding_window": 32,
    "torch_dtype": "float16",
    "mood": "good",
}
TESTS = """
import pytest

@pytest.mark.attnperf(family="prefill", workloads=["prefill-b1-s64-h1-d16-f16"])
def test_first(attnperf, backend, workload):
    attnperf.run(backend, workload)

@pytest.mark.attnperf(family="prefill", workloads=["prefill-b1-s32-h1-d16-f16"])
def test_second(attnperf, backend, workload):
    attnperf.run(backend, workload)

@pytest.mark.attnperf(
    family="prefill", workloads=["prefill-b1-s16-h1-d16-f16"], label="small", timed=False, backends=["fake.a"]
)
def test_small(attnperf, backend, workload):
    attnperf.run(backend, workload)

@pytest.mark.attnperf(family="softmax", workloads=["softmax-r4-c4-f16"])
def test_softmax(attnperf, backend, workload):
    attnperf.run(backend, workload)

@pytest.mark.attnperf(family="mla", workloads=["mla-b1-s8-h1-d16-r16-c16-f16"])
def test_mla(attnperf, backend, workload):
    attnperf.run(backend, workload)

def test_plain():
    pass
"""
BACKENDS = """
def pytest_attnperf_register_backends(registry):
    from pytest_attnperf.testing.fake.backends import FakeBackend
    registry.add(FakeBackend("fake.rest", families=("softmax", "mla")))
"""
SIZES = "--attnperf-model=small.json,tp=2,seq=16:64:128"


@pytest.fixture
def project(attnperf_project: FakeProject) -> FakeProject:
    """Tests of three families, and a model that one of them has workloads of."""
    attnperf_project.conftest(BACKENDS)
    attnperf_project.backend("fake.a", time_us=100.0)
    (attnperf_project.path / "suites" / "test_prefill.py").write_text(TESTS)
    (attnperf_project.path / "small.json").write_text(json.dumps(SMALL))
    return attnperf_project


def test_the_model_replaces_the_workloads_of_all_tests(project: FakeProject) -> None:
    """Cases are the model's, each once; families that it has none of are left out with the reason; ordinary tests stay.
    The header says what is measured, and what a reader must know."""
    listed = project.run("--co", SIZES)
    listed.stdout.fnmatch_lines(
        [
            "attnperf: model mistral (small.json), tp 2: heads 2, K/V heads 1, head_dim 16, hidden 64, f16",
            "attnperf: note: unknown fields, left out: mood",
            "attnperf: note: longer than max_position_embeddings=64, and left out: 128",
            "collected 9 items / 6 deselected / 3 selected",
            "attnperf: no softmax of small.json: softmax is none of the families*",
            "attnperf: no mla of small.json: mistral has no latent attention",
            "*<Function test_first[[]fake.a-prefill-b1-s16-h2-hk1-d16-f16-causal]>",
            "*<Function test_first[[]fake.a-prefill-b1-s64-h2-hk1-d16-w32-f16-causal]>",
            "*<Function test_plain>",
        ]
    )


def test_workers_make_the_same_cases(project: FakeProject) -> None:
    """Every process of a run reads the model, and a case of it is judged as any other."""
    assert project.run("--attnperf", SIZES).ret == 0
    assert {case["key"]["workload"]: case["verdict"] for case in project.results()["cases"]} == {
        "prefill-b1-s16-h2-hk1-d16-f16-causal": "NO_BASELINE",
        "prefill-b1-s64-h2-hk1-d16-w32-f16-causal": "NO_BASELINE",
    }


def test_what_a_timed_test_proves_is_not_proven_again(project: FakeProject) -> None:
    """A test that is not timed is left out beside one that is, and is run where it alone was selected."""
    assert "test_small" not in project.run("--co", "-q", SIZES).stdout.str()
    assert project.run("--attnperf", "-k", "test_small", SIZES).ret == 0
    cases = project.results()["cases"]
    assert [(case["key"]["label"], case["verdict"]) for case in cases] == [("small", "RIGHT")] * 2


def test_a_model_that_cannot_be_is_a_usage_error(project: FakeProject) -> None:
    """It is found before anything is collected, whether the header is printed or not."""
    for quiet in ("-q", "-v"):
        result = project.run(quiet, "--co", SIZES.replace("tp=2", "tp=3"))
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(
            ["ERROR: small.json: 4 heads and 2 K/V heads cannot be split over tp=3*allowed: 1*"]
        )


Cases = Callable[..., "ModelCases | None"]


@pytest.fixture
def cases_of(pytester: pytest.Pytester) -> Cases:
    """What a command line asks for, in a folder that holds the model."""
    (pytester.path / "small.json").write_text(json.dumps(SMALL))

    def asked(*words: str) -> ModelCases | None:
        return ModelCases.from_options(RunConfig.from_pytest(pytester.parseconfig("-p", "no:randomly", *words)))

    return asked


def test_without_a_model_there_is_nothing(cases_of: Cases) -> None:
    """Tests keep their workloads."""
    assert cases_of() is None


def test_what_is_measured_unless_said(cases_of: Cases) -> None:
    """One rank, batches of 1 and 16, and of the lengths 512 and 4096 those that the model holds."""
    (Path("small.json")).write_text(json.dumps({**SMALL, "max_position_embeddings": 4096}))
    cases = cases_of("--attnperf-model=small.json, ignore=mood: sliding_window")
    assert cases is not None
    assert (cases.tp, cases.batches, cases.lengths) == (1, (1, 16), (512, 4096))
    assert [workload.id for workload in cases.list_workloads("decode")][-1] == "decode-b16-kv4096-h4-hk2-d16-f16"
    assert cases.model.notes == ("ignored, as asked for: mood, sliding_window",)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--attnperf-model=small.json", "--attnperf-workload=s=64,h=1,d=16"), "both replace the workloads.*drop one"),
        (("--attnperf-model=small.json", "--attnperf-update-baselines"), "never stored; add them to the suite's list"),
        (("--attnperf-model=small.json,tp=two",), "--attnperf-model: tp='two' is not a whole number"),
        (("--attnperf-model=small.json,tp=2:4",), "--attnperf-model: tp='2:4' is not a whole number"),
        (("--attnperf-model=small.json,tp=0",), "--attnperf-model: tp='0' must be a whole number of at least 1"),
        (("--attnperf-model=small.json,batch=1:x",), "--attnperf-model: batch='x' is not a whole"),
        (("--attnperf-model=small.json,seq=16::64",), "--attnperf-model: seq='' is not a whole"),
        (("--attnperf-model=small.json,tp=1,tp=2",), "has tp twice; allowed: FILE,tp=8,batch=1:16,"),
        (("--attnperf-model=small.json,heads=2",), "has no field 'heads=2'; allowed: FILE,tp=8,"),
        (("--attnperf-model=small.json,tp",), "has no field 'tp'; allowed: FILE,tp=8,"),
        (("--attnperf-model=big.json,tp=2",), r"big\.json cannot be read"),
        (("--attnperf-model=small.json",), "no sequence length of 512, 4096 is within max_position_embeddings=64"),
        (("--attnperf-model=big.json",), r"big\.json cannot be read"),
    ],
)
def test_options_that_cannot_be(cases_of: Cases, words: tuple[str, ...], said: str) -> None:
    """Each is an error that names the option, the value, and the way out."""
    with pytest.raises(UsageError, match=said):
        cases_of(*words)


def test_an_existing_file_whose_name_is_the_whole_text_wins(cases_of: Cases) -> None:
    """A name may have commas and '=', before fields, too; the longest one that exists is the file."""
    for name in ("small,tp=2", "small,tp=2,v1.json"):
        Path(name).write_text(json.dumps({**SMALL, "max_position_embeddings": 4096}))
    for text, file, tp in (
        ("small,tp=2", "small,tp=2", 1),
        ("small,tp=2,tp=4", "small,tp=2", 4),
        ("small,tp=2,v1.json,tp=2", "small,tp=2,v1.json", 2),
    ):
        option = ModelOption.parse(text)
        assert (option.file, option.tp) == (file, tp)


def test_the_ini_file_names_a_model_from_rootdir(pytester: pytest.Pytester) -> None:
    """A worker gets the absolute path, whichever folder it starts in; what is not given is not passed on."""
    pytester.makeini("[pytest]\nattnperf_model = models/small.json,tp=2\n")
    pytester.mkdir("elsewhere")
    (pytester.path / "elsewhere" / "test_it.py").touch()
    config = pytester.parseconfig("-p", "no:randomly", str(pytester.path / "elsewhere"))
    asked = RunConfig.from_pytest(config)
    told = {name: asked.text(name) for name in options.PASSED_TO_WORKERS if asked.text(name)}
    assert told == {"model": f"{pytester.path / 'models' / 'small.json'},tp=2"}
    assert asked.replaced_by == "--attnperf-model"
