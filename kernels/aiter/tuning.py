"""Tunes aiter's Triton attention: one bucket of its configuration file, and its own autotuner as a candidate.

A bucket serves every length, head count and mask of its element type and head dimension, so confirm a winner on all of
them, not only on the tuned workloads. Never run on an AMD GPU: configurations are passed to the call in the form that
aiter documents, and files were compared with what its own lookup reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from kernels.aiter import config_files
from kernels.aiter.config_files import AiterFile
from kernels.aiter.direct import reasons_if_installed
from kernels.aiter.mha_source import bucket_of, config_file, source_root
from kernels.aiter.triton_attention import PATHS, TritonMha
from kernels.table_entries import TILES
from kernels.triton.builds import CDNA
from kernels.tuning import spare_default
from kernels.tuning_spaces import prefill
from kernels.tuning_spaces.target import Target
from pytest_attnperf.errors import CodeObjectError, UnsupportedError, UsageError
from pytest_attnperf.records.tuned_tables import Coverage, TableEntry
from pytest_attnperf.tuning_records import Candidate, TunedFile, TuningSpace, Value

if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend
    from pytest_attnperf.kernel_builds import KernelBuild
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.base import Workload
    from pytest_attnperf.workloads.prefill import Prefill
    from pytest_attnperf.workloads.varlen import Varlen

    Takes = Prefill | Varlen

KERNEL = "mha_fwd"
FAMILIES = ("prefill", "varlen")
AUTOTUNED = Candidate({}, "autotuned by aiter")
"""Candidate for the implementation `dao_ai`, which Triton's autotuner configures, so it has no bucket values."""


class TunableMha(TritonMha):
    """`TritonMha` whose configuration can be searched."""

    def replay_config(self, config: Mapping[str, str]) -> TritonMha:
        """Returns a copy with the stored configuration, or a backend for dao_ai if that path was stored."""
        if config.get("path") == PATHS["dao_ai"]:
            return TritonMha(self.name, family=self.family, impl="dao_ai")
        return super().replay_config(config)

    def tuning_space(
        self, workloads: Sequence[Workload], arch: str, *, kernel: str = "", when: Mapping[str, Value] | None = None
    ) -> TuningSpace:
        """Returns the values to try for the bucket that serves these workloads, and aiter's own autotuner as a further
        candidate. Raises UsageError as `Tunable` states."""
        if kernel not in ("", KERNEL):
            raise UsageError(f"{self.name} has no kernel {kernel!r} to tune; it has {KERNEL}")
        target = Target(arch)
        file, name = self._choose_bucket(workloads, arch, when)
        taken = cast("Sequence[Takes]", workloads)
        bucket = file.buckets[name]
        values = _candidate_values(bucket, target)
        default = {key: config_files.NEUTRAL[key] for key in values if key in config_files.NEUTRAL} | dict(bucket)
        return TuningSpace(
            kernel=KERNEL,
            values={
                key: tuple(sorted({*values.get(key, ()), default[key]})) for key in dict.fromkeys((*values, *default))
            },
            default=Candidate(default),
            constraints=tuple(spare_default(each, default) for each in prefill.list_constraints(taken, target)),
            extra=(AUTOTUNED,),
            serves=_describe_served(file, name),
            where=file.relative_path,
        )

    def tuning_serves(
        self, workload: Workload, space: TuningSpace, arch: str, when: Mapping[str, Value] | None = None
    ) -> bool:
        """Returns whether aiter takes the bucket of this tuning space for `workload` too; False if it has none."""
        try:
            return _describe_served(*self._choose_bucket([workload], arch, when)) == space.serves
        except UsageError:
            return False

    def tuning_pin(self, candidate: Candidate, space: TuningSpace) -> dict[str, str]:
        """Returns the candidate's values as entries with which `replay_config` runs it; for aiter's autotuner its
        path."""
        if candidate == AUTOTUNED:
            return {"path": PATHS["dao_ai"]}
        return {name: str(value) for name, value in candidate.values.items()}

    def tuning_builds(
        self, candidate: Candidate, space: TuningSpace, workload: Workload, arch: str
    ) -> Sequence[KernelBuild]:
        """Returns a list of one: aiter's own kernel with the candidate's values; empty without AITER_SOURCE or such a
        kernel."""
        from kernels.aiter.mha_builds import build_with

        if candidate == AUTOTUNED or source_root() is None:
            return ()
        try:
            bucket = aiter_bucket(cast("Takes", workload), arch)
            return [build_with(config_files.to_bucket_values(candidate.values, bucket), cast("Takes", workload), arch)]
        except (CodeObjectError, UsageError):
            return ()

    def tuned_files(
        self,
        winner: Candidate,
        space: TuningSpace,
        workloads: Sequence[Workload],
        arch: str,
        *,
        source: str,
        when: Mapping[str, Value] | None = None,
    ) -> Sequence[TunedFile]:
        """Returns aiter's complete file under the path of every version that reads it, and a README on its use; only a
        README if aiter's autotuner won. Raises UsageError."""
        file, name = self._choose_bucket(workloads, arch, when)
        if winner == AUTOTUNED:
            what = "aiter's dao_ai instead of a bucket: no configuration to write"
            return [TunedFile(f"{config_files.FOLDER}/README.txt", _describe_autotuner(source), what)]
        values = config_files.to_bucket_values(winner.values, file.buckets[name])
        strange = sorted(values.keys() - file.buckets[name].keys() - config_files.NEUTRAL.keys())
        if strange or values.keys() < file.buckets[name].keys():
            raise UsageError(
                f"bucket fwd.{name} of {file.relative_path} consists of {', '.join(file.buckets[name])}; the "
                f"winner has {', '.join(values)} and must have the same; tune again with this version of aiter"
            )
        text = config_files.replace_bucket(file.text, name, values)
        what = (
            f"aiter's attention configurations for {arch}: bucket fwd.{name} changed, which serves every shape of its "
            f"kind; {len(file.buckets) - 1} other forward buckets and all backward ones kept"
        )
        paths = [f"{config_files.FOLDER}/{each}" for each in config_files.list_file_names(file, arch)]
        note = TunedFile(
            f"{config_files.FOLDER}/README.txt", _render_note(file, name, arch, source), "how to apply them"
        )
        return [*(TunedFile(path, text, what) for path in paths), note]

    def find_entries(self, workload: Workload, device: DeviceInfo) -> Sequence[TableEntry]:
        """Returns a list of one: the bucket of aiter's file for the arch. A bucket is for a kind of problem, not for a
        shape, so it is never exact. Raises as `Auditable` states."""
        try:
            root = config_files.aiter_root()
        except UsageError as error:
            raise UnsupportedError(str(error)) from error
        taken = cast("Takes", workload)
        if device.kind == "rocm" and config_file(root, device.arch) is None:
            return [TableEntry(KERNEL, "", "", Coverage.NONE, no_tiles="no file for the architecture")]
        if reasons_if_installed(self, workload, device):
            return []
        file = config_files.aiter_file(device.arch)
        name = bucket_of(taken, device.arch, file.buckets)
        if name not in file.buckets:
            return [TableEntry(KERNEL, file.relative_path, "", Coverage.NONE, no_tiles="no bucket serves it")]
        cut = TILES["varlen_forward" if workload.family == "varlen" else "prefill_forward"]
        return [
            TableEntry(
                KERNEL,
                file.relative_path,
                f"bucket fwd.{name}",
                Coverage.DEFAULT if name == "default" else Coverage.NEAREST,
                unnamed=("lengths", "heads", "causal"),
                tiles=cut(taken, file.buckets[name]),
            )
        ]

    def _choose_bucket(
        self, workloads: Sequence[Workload], arch: str, when: Mapping[str, Value] | None
    ) -> tuple[AiterFile, str]:
        """Returns (aiter's file, the one bucket that serves all these workloads). Raises UsageError if there is no such
        bucket, and if `when` is given."""
        if when:
            raise UsageError(
                f"--when {', '.join(when)}: aiter chooses a bucket by element type and head dimension alone, and none "
                "can be narrowed; leave --when out, and confirm on every shape that the bucket serves"
            )
        foreign = [each.id for each in workloads if each.family not in FAMILIES]
        if foreign or not workloads:
            told = f"{', '.join(foreign)} is neither" if foreign else "no workload was chosen"
            raise UsageError(f"{self.name} is tuned for {' and '.join(FAMILIES)}: {told}; choose with --workload")
        file = config_files.aiter_file(arch)
        held: dict[str, list[str]] = {}
        for each in workloads:
            held.setdefault(config_files.serving_bucket(file, cast("Takes", each), arch), []).append(each.id)
        if len(held) > 1:
            told = "; ".join(f"fwd.{name} serves {', '.join(ids)}" for name, ids in held.items())
            raise UsageError(
                f"these workloads are served by {len(held)} buckets of {file.relative_path}, and a tuner "
                f"changes one: {told}. "
                "Choose the workloads of one bucket with --workload"
            )
        return file, next(iter(held))


def tunable_parts(parts: Iterable[tuple[str, str, Backend]]) -> tuple[tuple[str, str, Backend], ...]:
    """Returns `parts`, (backend name, family, implementation), with aiter's default Triton attention made tunable."""
    return tuple((name, family, _make_tunable(part)) for name, family, part in parts)


def aiter_bucket(workload: Takes, arch: str) -> Mapping[str, Value]:
    """Returns name -> value of the bucket in aiter's file that serves a workload. Raises UsageError without one."""
    file = config_files.aiter_file(arch)
    return file.buckets[config_files.serving_bucket(file, workload, arch)]


def _make_tunable(part: Backend) -> Backend:
    if isinstance(part, TritonMha) and part.impl == "default":
        return TunableMha(part.name, family=part.family)
    return part


def _candidate_values(bucket: Mapping[str, Value], target: Target) -> dict[str, tuple[Value, ...]]:
    """Returns name -> values to try; PRELOAD_V only if the bucket of this version has it, kpack only on gfx942,
    matrix_instr_nonkdim only on CDNA."""
    values: dict[str, tuple[Value, ...]] = {"BLOCK_M": (32, 64, 128), "BLOCK_N": (32, 64, 128)}
    if "PRELOAD_V" in bucket:
        values["PRELOAD_V"] = (False, True)
    values |= {"waves_per_eu": (1, 2), "num_warps": target.possible_warps(4, 8), "num_stages": (1, 2)}
    if target.arch in CDNA:
        values["matrix_instr_nonkdim"] = (0, 16)
    if target.arch == "gfx942":
        values["kpack"] = (1, 2)
    return values


def _describe_served(file: AiterFile, bucket: str) -> str:
    return f"bucket fwd.{bucket} of {file.relative_path}, whatever the lengths, heads and mask"


def _render_note(file: AiterFile, bucket: str, arch: str, source: str) -> str:
    return (
        f"aiter's attention configurations for {arch}, with bucket fwd.{bucket} changed: {source}.\n"
        f"Made from {file.relative_path}; every other bucket is as it was.\n\n"
        "One bucket serves every length, head count and mask of its element type and head dimension: look at what the\n"
        "tuning report says of the workloads that were not tuned before you use it.\n\n"
        "To apply: copy the file that your version of aiter has over its own, in aiter/ops/triton/configs of the\n"
        f"installed package: {arch}-MHA-DEFAULT.json until August 2026, {arch}/triton/attention/mha/DEFAULT.json from\n"
        "then on. Or pass the values as config=... to flash_attn_func. Processes that run keep what they have read.\n"
    )


def _describe_autotuner(source: str) -> str:
    return (
        f"No bucket of aiter's was as fast as its own autotuner: {source}.\n"
        "There is no file to write. Call aiter.ops.triton.attention.mha.mha_set_impl('dao_ai') once per process (the\n"
        "backend aiter.triton_dao), and leave FLASH_ATTENTION_TRITON_AMD_AUTOTUNE at 1.\n"
    )
