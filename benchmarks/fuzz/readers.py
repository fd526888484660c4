"""Every function that reads a file somebody else may have written, as a user's command calls it."""

from __future__ import annotations

import contextlib
import gzip
from functools import partial
from pathlib import Path

from benchmarks.fuzz import samples
from benchmarks.fuzz.answers import GITHUB_READS, answers_of_a_worker
from benchmarks.fuzz.mutations import damaged_bytes, damaged_json, damaged_lines, damaged_table
from benchmarks.fuzz.reading import Reader, command
from pytest_attnperf.errors import AttnperfError


def all_readers(scratch: Path) -> list[Reader]:
    """Of every kind; `scratch` is a folder for making samples. What is compared with lies in scratch/beside."""
    beside = scratch / "beside"
    beside.mkdir(exist_ok=True)
    results = samples.results(scratch)
    (beside / "results.json").write_bytes(results[2])
    stored = samples.timed_baselines()
    (beside / "rope.json").write_bytes(stored[0])
    for name, data in zip(("rope", "softmax", "gemm", "decode"), stored, strict=True):
        place = beside / "baselines" / "sm_90" / "h200" / f"{name}.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    tables = samples.profiler_tables()
    (beside / "kernel_trace.csv").write_bytes(next(data for name, data in tables if name == "kernel_trace.csv"))
    return [*_of_results(results, stored), *_of_stores(stored), *_of_profiles(tables, scratch), *_of_configs(),
            *_of_objects(), *_of_others()]  # fmt: skip


def _of_results(results: list[bytes], stored: list[bytes]) -> list[Reader]:
    reads = [
        command("report", "{file}"),
        command("report", "{file}", "--markdown", "-"),
        *(command("export", "--to", name, "{file}") for name in ("csv", "pytest-benchmark", "pytorch-hud")),
        command("report", "{file}", "--markdown", "{folder}/r.md", "--junit", "{folder}/r.xml"),
        command("gate", "--results", "{file}", "--against", "{beside}/baselines", "--markdown", "-"),
        command("gate", "--results", "{file}", "--against", "{beside}/baselines", "--json", "{folder}/j.json"),
        command("explain", "--results", "{file}", "--baselines", "{beside}/baselines"),
        command("explain", "--results", "{file}", "--json"),
        command("report", "{file}", "--by", "step"),
        command("report", "{file}", "--by", "stage"),
        command("dispatch", "{file}", "--out", "{folder}/which.py"),
        command("profile", "{file}"),
        command(
            "baselines",
            "accept",
            "native",
            "--results",
            "{file}",
            "--reason",
            "r",
            "--author",
            "a",
            "--baselines",
            "{folder}/baselines",
        ),
        _completed,
    ]
    history = [command("history", "--history", "{folder}/h.db", "--import", "{file}")]
    page = [command("report", "{file}", "--report", "{folder}/page")]
    both = [*results, *samples.benchmark_results()]
    joined = [
        command("report", "{file}", "--markdown", "-"),
        command("compare", "{file}", "{beside}/results.json"),
        command("compare", "{beside}/results.json", "{file}", "--by", "backend", "--json"),
        command("compare", "--by", "gpu", "{file}"),
        command("gate", "--results", "{file}", "--against", "{beside}/baselines", "--markdown", "-"),
        command("report", "{file}", "{beside}/results.json", "--out", "{folder}/merged.json", "--markdown", "-"),
        command("report", "{file}", "--out", "{folder}/merged.json", "--junit", "{folder}/j.xml"),
    ]
    journal = [command("explain", "--results", "{file}"), _resumed]
    return [
        Reader("results.json", "results.json", results, damaged_json, reads, 9),
        Reader("results.json, as a page", "results.json", results, damaged_json, page, 0.2),
        Reader("results for a history", "results.json", both, damaged_json, history, 0.3),
        Reader("stored baselines reported", "rope.json", stored, damaged_json, [command("report", "{file}")], 2),
        Reader("merged results", "merged.json", samples.merged_files(results), damaged_json, joined, 4),
        Reader("journal of a run", "run.jsonl", samples.journals(results), damaged_lines, [*journal, *joined], 5),
    ]


def _of_stores(stored: list[bytes]) -> list[Reader]:
    timed = [
        partial(_store, "prefill"),
        command("baselines", "merge", "--rewrite", "{file}"),
        command("baselines", "merge", "{beside}/rope.json", "{file}", "{beside}/rope.json"),
        command("dispatch", "{file}"),
    ]
    rewriting = command("baselines", "merge", "--rewrite", "{file}")
    ceilings = [(samples.STORED / "sm_90" / "h200" / "ceilings" / "132.json").read_bytes()]
    published = [file.read_bytes() for file in sorted((samples.STORED / "published").glob("*.json"))]
    reports = [_published, command("dispatch", "{beside}/results.json", "{file}")]
    return [
        Reader("timed baselines", "rope.json", stored, damaged_json, timed, 12),
        Reader(
            "compiled kernels", "code_objects.json", samples.stored_kernels(), damaged_json, [_kernels, rewriting], 6
        ),
        Reader("ceilings", "132.json", ceilings, damaged_json, [_ceilings], 4),
        Reader("published figures", "report.json", published, damaged_json, reports, 3),
    ]


def _of_profiles(tables: list[tuple[str, bytes]], scratch: Path) -> list[Reader]:
    profile = [command("profile", "{file}"), command("profile", "{file}", "--against", "{beside}/kernel_trace.csv")]
    counters = [data for name, data in tables if name.startswith("counter")]
    counting = [command("profile", "{beside}/kernel_trace.csv", "--counters", "{file}")]
    traces = samples.chrome_traces()
    packed = [gzip.compress(trace) for trace in traces]
    rules = [(samples.REPOSITORY / "pytest_attnperf" / "tools" / "profilers" / "kernel_families.json").read_bytes()]
    families = [command("profile", "{beside}/kernel_trace.csv", "--families", "{file}")]
    claims = [file.read_bytes() for file in sorted((samples.DATA / "claims").glob("*.json"))]
    claimed = [
        command("profile", "{beside}/kernel_trace.csv", "--claims", "{file}"),
        command("profile", "--claims", "{file}"),
    ]
    named = {name for name, _ in tables}
    found = [
        Reader(f"profile: {name}", name, [data for other, data in tables if other == name], damaged_table, profile, 1)
        for name in sorted(named)
    ]
    return [
        *found,
        Reader("profile: torch trace", "trace.json", traces, damaged_json, profile, 4),
        Reader("profile: packed torch trace", "trace.json.gz", packed, damaged_bytes, profile, 1),
        Reader("profile: rocpd database", "a.db", [samples.rocpd_database(scratch)], damaged_bytes, profile, 3),
        Reader("hardware counters", "counters.csv", counters, damaged_table, counting, 2),
        Reader("kernel families", "families.json", rules, damaged_json, families, 2),
        Reader("claims", "claims.json", claims, damaged_json, claimed, 4),
        Reader("claims as YAML", "claims.yaml", claims, damaged_json, claimed, 0.5),
    ]


def _of_configs() -> list[Reader]:
    models = [file.read_bytes() for file in sorted((samples.REPOSITORY / "suites" / "models").glob("*.json"))]
    lines = [b"b,s,h,d,dtype,causal\n1,512,8,128,f16,1\n2,64,4,64,bf16,0\n", b"b=1,s=512,h=8,d=128\n# c\nb=2,s=4\n"]
    objects = [b'{"b": 1, "s": 512, "h": 8, "d": 128}\n"b=1,s=64,h=8,d=64"\n{"b": 2, "s": 8, "causal": true}\n']
    triton = samples.REPOSITORY / "kernels" / "triton" / "configs"
    rules = [file.read_bytes() for file in sorted(triton.glob("prefill_forward/*.json"))]
    return [
        Reader("model config.json", "config.json", models, damaged_json, [_model], 8),
        Reader("workloads as CSV", "w.csv", lines, damaged_table, [_workloads], 5),
        Reader("workloads as JSON lines", "w.jsonl", objects, damaged_lines, [_workloads], 5),
        Reader("tuned configurations", "default.json", rules, damaged_json, [_rules], 6),
        Reader(
            "workload ids",
            "id.txt",
            [b"prefill-b4-s512-h8-d256-f16-causal", b"gemm-m16-n16-k16-f16", b"decode-b1-kv1024-h8-d128-f16"],
            damaged_bytes,
            [_workload_id],
            4,
        ),
    ]


def _of_objects() -> list[Reader]:
    listed = [(samples.DATA / "assembly" / name).read_bytes() for name in
              ("tile-gfx942.objdump.txt", "tile-sm_90.nvdisasm.txt", "tile-gfx942.s")]  # fmt: skip
    manifest = (b'{"format": 1, "arch": "gfx942", "objects": [{"file": "a.co", "sha256": "00", "kernel": "k", '
                b'"config": "c", "function": "f", "source": "a.hip", "sources": {"a.hip": "00"}, "defines": '
                b'{"A": "1"}, "threads": 256, "dynamic_lds_bytes": 0, "compiler": "hipcc"}]}')  # fmt: skip
    return [
        Reader(
            "code objects", "a.co", samples.code_objects(), damaged_bytes, [command("occupancy", "{file}"), _lines], 12
        ),
        Reader("disassembly", "listing.txt", listed, damaged_bytes, [_listing], 1),
        Reader("manifest of objects", "manifest.json", [manifest], damaged_json, [_manifest], 4),
    ]


def _of_others() -> list[Reader]:
    journal = [b'{"attnperf_tune_journal": 1, "header": {"a": "b"}}\n{"kind": "trial", "slot": 0, "attempt": 0, '
               b'"values": {"B": 1}, "label": "", "workload": "w", "process": 0, "median_us": 1.5, "failure": "", '
               b'"summary": null}\n'
               b'{"kind": "round", "a": 1}\n']  # fmt: skip
    stamps = [b'<!-- attnperf-run: {"sha": "abc", "run": 3, "attempt": 1, "measured": true} -->']
    start = [b'{"start": {"files": ["suites/test_a.py"], "options": ["--attnperf-device=gpu"], "name": "base0-1", '
             b'"role": "device", "environment": {"A": "0"}}}']  # fmt: skip
    return [
        Reader("artifact of a job", "a.zip", samples.zip_archives(), damaged_bytes, [_artifact], 4),
        Reader("comment on a pull request", "c.txt", stamps, damaged_bytes, [_stamp], 2),
        Reader("tuning journal", "tune.jsonl", journal, damaged_lines, [_tuning_journal], 3),
        Reader("a worker's answers", "answers.jsonl", samples.worker_lines(), damaged_json, [answers_of_a_worker], 10),
        Reader("answers of GitHub", "answer.json", samples.github_answers(), damaged_json, GITHUB_READS, 4),
        Reader("a worker's first line", "start.json", start, damaged_json, [_start_line], 2),
    ]


def _completed(file: Path, _folder: Path) -> None:
    from pytest_attnperf.cli.commands.completion import case_keys

    case_keys(file)


def _resumed(file: Path, _folder: Path) -> None:
    from pytest_attnperf.reports.files.journal import read_content

    _ = read_content(file).reusable_results


def _store(_suite: str, file: Path, folder: Path) -> None:
    from pytest_attnperf.baselines.store import BaselineStore

    place = folder / "sm_90" / "h200" / "rope.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(file.read_bytes())
    store = BaselineStore(folder)
    store.list_products("sm_90", "rope")
    store.load("sm_90", "h200", "rope")


def _kernels(file: Path, folder: Path) -> None:
    from pytest_attnperf.baselines.code_store import CodeStore

    place = folder / "gfx942" / "code_objects.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(file.read_bytes())
    CodeStore(folder).load("gfx942")


def _ceilings(file: Path, folder: Path) -> None:
    from pytest_attnperf.baselines.ceilings_store import read_ceilings

    place = folder / "sm_90" / "h200" / "ceilings" / "132.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(file.read_bytes())
    read_ceilings(place)


def _published(file: Path, _folder: Path) -> None:
    from pytest_attnperf.baselines.published import collect_published

    collect_published(file.parent, ["prefill-b4-s512-h8-d256-f16-causal"], None)


def _model(file: Path, _folder: Path) -> None:
    from pytest_attnperf.workloads.model_config import ModelConfig
    from pytest_attnperf.workloads.model_workloads import BUILDERS, reason_no_workload, workloads_of

    config = ModelConfig.read(file)
    config.describe(1)
    for family in BUILDERS:
        workloads_of(config, family, 1, (1, 8), (512,)) or reason_no_workload(config, family)


def _workloads(file: Path, _folder: Path) -> None:
    from pytest_attnperf.workloads.families import FAMILIES, workloads_from_text

    for workload in workloads_from_text(str(file), FAMILIES.get("prefill")):
        _ = workload.id, workload.flops, workload.bytes_min


def _workload_id(file: Path, _folder: Path) -> None:
    from pytest_attnperf.workloads.families import parse_workload

    workload = parse_workload(file.read_bytes().decode("utf-8", "surrogateescape"))
    assert parse_workload(workload.id) == workload, "does not parse back"


def _rules(file: Path, folder: Path) -> None:
    from dataclasses import replace

    from kernels import configs
    from kernels.config_files import rules_of
    from kernels.triton.prefill.space import SPACE

    place = folder / SPACE.kernel / "default.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(file.read_bytes())
    configs._load_rules.cache_clear()  # the damaged file stands where the one before it stood
    rules_of(replace(SPACE, folder=folder), "gfx942")


def _lines(file: Path, _folder: Path) -> None:
    from pytest_attnperf.codeobject.line_table import read_line_table
    from pytest_attnperf.codeobject.objects import read_object

    contents = read_object(file.read_bytes(), str(file))
    read_line_table(contents.elf)


def _listing(file: Path, _folder: Path) -> None:
    from pytest_attnperf.codeobject.decoding import read_assembly
    from pytest_attnperf.codeobject.disassembly import parse_cubin_listing, parse_listing

    text = file.read_bytes().decode("utf-8", "replace")
    read_assembly(text, "tile")
    for read in (
        lambda: parse_listing(text, start=0x1000, size=256, place=lambda _address: None),
        lambda: parse_cubin_listing(text, symbol="tile", size=256),
    ):
        with contextlib.suppress(AttnperfError):
            read()


def _manifest(file: Path, _folder: Path) -> None:
    from pytest_attnperf.codeobject.object_manifest import read_manifest

    read_manifest(file.parent, "gfx942")


def _artifact(file: Path, _folder: Path) -> None:
    from pytest_attnperf.tools.ci.fetch_results import extract_member, read_commit

    read_commit(extract_member(file.read_bytes()))


def _stamp(file: Path, _folder: Path) -> None:
    from pytest_attnperf.tools.ci.comments import cut_body, parse_stamp

    text = file.read_bytes().decode("utf-8", "replace")
    cut_body(text, 300)
    parse_stamp(text.partition("\n")[0])


def _tuning_journal(file: Path, folder: Path) -> None:
    from pytest_attnperf.tools.tuner.tuner_journal import TrialJournal

    place = folder / "tune.jsonl"
    place.write_bytes(file.read_bytes())
    with TrialJournal.open(place, {"a": "b"}) as journal:
        _ = journal.trials


def _start_line(file: Path, _folder: Path) -> None:
    from pytest_attnperf.workers.command_plan import StartLine

    StartLine.parse(file.read_bytes().partition(b"\n")[0])
