"""Recognises which profiler wrote a CSV file, by its columns rather than its name. Also defines the content of one
file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_attnperf.records.counters import KernelCounter
from pytest_attnperf.records.listing import import_listed_function
from pytest_attnperf.records.profiles import Problem, ProfileSource, StatsRow
from pytest_attnperf.tools.profilers.agents import AgentRow
from pytest_attnperf.tools.profilers.csv_table import CsvTable

if TYPE_CHECKING:
    from pytest_attnperf.tools.profilers.dispatches import DispatchesBuilder


@dataclass(frozen=True)
class CsvForm:
    """One kind of CSV file. A new one is a reader module in this folder and a line in FORMS.

    name      name of the kind, for `ProfileSource.form`
    marks     columns that only this kind has together; a file with all of them is of this kind
    needed    columns without which the file cannot be used
    endings   endings of the file's name without '.csv'; () if the name does not show the kind
    reader    'rocprofv3.read_kernels': module, and function (CsvTable, CsvForm, DispatchesBuilder) -> FilePart
    """

    name: str
    marks: tuple[str, ...]
    needed: tuple[str, ...]
    endings: tuple[str, ...]
    reader: str

    def read_table(self, table: CsvTable, builder: DispatchesBuilder) -> FilePart:
        """Returns the content of a file of this kind, its dispatches added to `builder`. Raises ProfileError if it
        cannot be used."""
        module, _, function = self.reader.partition(".")
        read = import_listed_function(
            f"pytest_attnperf.tools.profilers.{module}", function, __file__, f'"{self.reader}"'
        )
        part: FilePart = read(table, self, builder)
        return part


KERNEL_TRACE = CsvForm(
    "rocprofv3 kernel_trace",
    ("Kernel_Name",),
    ("Kernel_Name", "Start_Timestamp", "End_Timestamp"),
    ("kernel_trace",),
    "rocprofv3.read_kernels",
)
COPY_TRACE = CsvForm(
    "rocprofv3 memory_copy_trace",
    ("Direction",),
    ("Direction", "Start_Timestamp", "End_Timestamp"),
    ("memory_copy_trace",),
    "rocprofv3.read_copies",
)
API_TRACE = CsvForm(
    "rocprofv3 api_trace",
    ("Function",),
    ("Function", "Start_Timestamp", "End_Timestamp"),
    ("hip_api_trace", "hip_trace", "hsa_api_trace", "hsa_trace"),
    "rocprofv3.read_api",
)
COUNTERS = CsvForm(
    "rocprofv3 counter_collection",
    ("Counter_Name",),
    ("Dispatch_Id", "Kernel_Name", "Counter_Name", "Counter_Value"),
    ("counter_collection",),
    "rocprofv3.read_counted",
)
AGENTS = CsvForm(
    "rocprofv3 agent_info", ("Agent_Type",), ("Node_Id", "Agent_Type"), ("agent_info",), "rocprofv3.read_devices"
)
STATS = CsvForm(
    "rocprofv3 stats",
    ("TotalDurationNs", "MinNs"),
    ("Name", "Calls", "TotalDurationNs"),
    (
        "kernel_stats",
        "domain_stats",
        "hip_api_stats",
        "hip_stats",
        "hsa_api_stats",
        "hsa_stats",
        "memory_copy_stats",
    ),
    "rocprofv3.read_statistics",
)
V1_RESULTS = CsvForm(
    "rocprof v1 results", ("KernelName",), ("KernelName", "BeginNs", "EndNs"), (), "rocprofv3.read_results"
)
V1_STATS = CsvForm(
    "rocprof v1 stats",
    ("TotalDurationNs",),
    ("Name", "Calls", "TotalDurationNs"),
    (".stats", ".hip_stats", ".hsa_stats", ".copy_stats"),
    "rocprofv3.read_statistics",
)
V2_RESULTS = CsvForm(
    "rocprof v2 results",
    ("Kernel_Name", "GPU_ID"),
    ("Kernel_Name", "Start_Timestamp", "End_Timestamp"),
    (),
    "rocprofv3.read_results",
)

FORMS = (
    COUNTERS,
    V2_RESULTS,
    COPY_TRACE,
    API_TRACE,
    AGENTS,
    V1_RESULTS,
    STATS,
    V1_STATS,
    KERNEL_TRACE,
)
"""All kinds; those with more specific marks come first."""

UNUSED: tuple[str, ...] = (
    "memory_allocation_trace",
    "scratch_memory_trace",
    "marker_api_trace",
    "marker_api_stats",
    "rccl_api_trace",
)
UNUSED += ("memory_allocation_stats", "scratch_memory_stats", "rccl_api_stats", "rocdecode_api_trace")
UNUSED += ("rocdecode_api_stats", "rocjpeg_api_trace", "rocjpeg_api_stats", "marker_trace", "marker_stats")
"""Endings of other files of rocprofv3, which hold no GPU times."""


def find_form(columns: Sequence[str], stem: str = "") -> CsvForm | None:
    """Returns the kind of a CSV file by its columns, else by `stem`, its name without '.csv'; None if unknown."""
    for form in FORMS:
        if all(name in columns for name in form.marks):
            return form
    for form in FORMS:
        if any(stem == ending or stem.endswith(add_separator(ending)) for ending in form.endings):
            return form
    return None


def infer_version(form: CsvForm, columns: Sequence[str]) -> str:
    """Returns the ROCm versions that write a file with these columns; '' if all versions write the same."""
    convert = ", by rocpd convert" if "Guid" in columns or (form is COUNTERS and columns[:1] == ("Pid",)) else ""
    if convert or "Stream_Id" in columns or (form is KERNEL_TRACE and "VGPR_Count" in columns):
        return f"ROCm 7.0 or later{convert}"
    if form is KERNEL_TRACE:
        return "ROCm 6.3 or 6.4" if "Dispatch_Id" in columns else "ROCm 6.2"
    if form is COPY_TRACE:
        return "ROCm 6.2 to 6.4"
    if form is COUNTERS:
        if "Accum_VGPR_Count" in columns:
            return "ROCm 6.4 or later"
        return "ROCm 6.3" if "Kernel_Id" in columns else "ROCm 6.2"
    return ""


def add_separator(ending: str) -> str:
    """Returns an ending with its separator: '_kernel_trace' ('run_kernel_trace'), but '.stats' ('run.stats')."""
    return ending if ending.startswith(".") else f"_{ending}"


def split_stem(stem: str) -> tuple[str, str]:
    """Splits a file's name without '.csv' or '.db' into (prefix of its run, known ending or '')."""
    endings = [ending for form in FORMS for ending in form.endings]
    for ending in sorted([*endings, *UNUSED, "results"], key=len, reverse=True):
        if stem == ending and ending != "results":
            return "", ending
        if stem.endswith(add_separator(ending)):
            return stem[: -len(add_separator(ending))], ending
    return stem, ""


def describe_wanted_files() -> str:
    """Returns the file names that a folder is searched for, as text."""
    endings = [f"*{add_separator(ending)}.csv" for form in FORMS for ending in form.endings]
    return ", ".join([*endings, "results.csv of rocprof", "*_results.db", "*.json of torch.profiler"])


@dataclass(frozen=True)
class FilePart:
    """Content of one file; its dispatches are in the builder that the reader was given.

    zero            number of dispatches without duration
    api_begin_ns    start of the first host call, if the file is a trace of them
    """

    source: ProfileSource
    problems: tuple[Problem, ...] = ()
    stats: tuple[StatsRow, ...] = ()
    counters: tuple[KernelCounter, ...] = ()
    agents: tuple[AgentRow, ...] = ()
    zero: int = 0
    api_begin_ns: int | None = None


def make_source(table: CsvTable, form: CsvForm, rows: int, name: str = "") -> tuple[ProfileSource, tuple[Problem, ...]]:
    """Returns a file's entry in the list of sources, and its problems; a file without rows is a problem, too. `name` is
    its kind if that is not the name of `form`."""
    problems = table.problems.list_problems(rows)
    if not rows and not problems:
        nothing = "holds no row below the line of columns; did the program launch kernels while it was traced?"
        problems = (Problem(str(table.path), nothing),)
    return ProfileSource(str(table.path), name or form.name, infer_version(form, table.columns), rows), problems
