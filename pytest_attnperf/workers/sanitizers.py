"""Workers under a vendor's sanitizer: where the tools are, how a worker is started, and what their logs say.

compute-sanitizer's log is read as its manual of 2025 and logs of the versions from 2020 to 2025 show it; ROCm's address
sanitizer as its manual shows it. A log without a summary, or with a message of the tool about itself, proves nothing.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_attnperf.errors import UnknownNameError, UsageError
from pytest_attnperf.records.sanitizers import SanitizerFinding, SanitizerReport
from pytest_attnperf.workers.controller import Ready
from pytest_attnperf.workers.launch import LaunchPlan

FLAG = "--attnperf-sanitize"
ON_A_CPU = (
    "needs a GPU: its tools watch kernels on a device. C++ extensions on a CPU must be compiled with "
    "-fsanitize=address for that, which no option can do afterwards; build them so, and run pytest with "
    "LD_PRELOAD=$(gcc -print-file-name=libasan.so) and without this option"
)

NVIDIA_TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
ASAN = "asan"
TOOLS = (*NVIDIA_TOOLS, ASAN)

PROGRAM = "compute-sanitizer"
PROGRAM_VARIABLE = "ATTNPERF_COMPUTE_SANITIZER"
"""Environment variable that names the one program to use."""

SYSTEM_CUDA, SYSTEM_ROCM = Path("/usr/local/cuda"), Path("/opt/rocm")

ASAN_RUNTIMES = ("lib/llvm/lib/clang/*/lib/linux", "llvm/lib/clang/*/lib/linux", "lib/llvm/lib/clang/*/lib/*-linux-gnu")
"""Folders below ROCm's that may hold the runtime of its address sanitizer."""

ASAN_FILE = "libclang_rt.asan-x86_64.so"
XNACK_ARCHS = ("gfx908", "gfx90a", "gfx942", "gfx950")
"""Architectures whose kernels ROCm instruments; those of all others run as they are, unseen."""

FOUND_STATUS = 86
"""Exit status of compute-sanitizer after an error; the log decides, this only tells people."""

UNCACHED = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
"""torch's allocator gives tensors parts of large blocks, in which no tool sees a write beyond a tensor."""

ASAN_ENVIRONMENT = {
    "HSA_XNACK": "1",
    "TRITON_ENABLE_ASAN": "1",
    "PYTORCH_NO_HIP_MEMORY_CACHING": "1",
    "AMD_PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
    "HSA_DISABLE_FRAGMENT_ALLOCATOR": "1",
}

ONLY_COMPILED = "kernels that were not compiled for it ran unseen; it cannot tell which"

EXIT_SECONDS = 120.0
"""Seconds that a tool has to write its log after the worker has ended."""

KINDS = re.compile(
    r"(Invalid|Illegal|Misaligned|Uninitialized|Unaligned|Out-of-range|Barrier error|Malloc/Free|Host API|Program hit|"
    r"Hardware|Stack|Warp|Leaked|(Error: )?(Race reported|Potential \w+ hazard))"
)
"""Beginning of the first line of an error."""

ABOUT_ITSELF = re.compile(
    r"(Error:|Internal Sanitizer Error|Target application terminated|No attachable process|Device not supported|"
    r".*[Uu]nsupported|.*not supported|Warning: .*(not supported|unsupported|disabled|ignored))"
)
"""Beginning of what compute-sanitizer says of itself instead of the program."""

SUMMARY = re.compile(r"(?:ERROR SUMMARY: (\d+) errors?|RACECHECK SUMMARY: \d+ hazards? displayed \((\d+) errors?,.*)$")
AT = re.compile(r"at (?P<kernel>.+?)(?:[+:]0x[0-9a-f]+)?(?: in (?P<place>.+:\d+))?$", re.IGNORECASE)
AT_OFFSET = re.compile(r"at 0x[0-9a-f]+ in (?:(?P<place>[^()]+:\d+):)?(?P<kernel>.+)$", re.IGNORECASE)
"""'at kernel(int*)+0x90 in file.cu:41', and as it was before 2022: 'at 0x90 in file.cu:41:kernel(int*)'."""

CONTINUED = ("and ", "at ", "by thread", "in ", "Address 0x", "Access to ")
"""Beginning of a line that belongs to the one before, should it not be indented."""

ACCESS = re.compile(r"(?:Error: )?(?P<kind>Race reported between \w+ access) (?P<at>at .+)$")
DEVICE_FRAME = re.compile(r"Device Frame: ?(?P<at>.+)$")
ASAN_ERROR = re.compile(r"==\d+==\s*ERROR: AddressSanitizer: (?P<kind>[\w-]+)(?P<gpu> on amdgpu device \d+)?")
ASAN_ACCESS = re.compile(r"(?P<access>(?:READ|WRITE) of size \d+) in workgroup id (?P<block>\([\d,]+\))")
ASAN_FRAME = re.compile(r"\s*#0 0x[0-9a-f]+ in (?P<kernel>.+?) at (?P<place>.+?:\d+)(?::\d+)?$")
ASAN_REGION = re.compile(r"(?P<memory>0x[0-9a-f]+ is located .+)$")


@dataclass(frozen=True)
class Sanitizer:
    """One tool that was found: `program` is compute-sanitizer, or the runtime of ROCm's address sanitizer."""

    tool: str
    program: Path

    def wrap(self, plan: LaunchPlan, log: Path) -> LaunchPlan:
        """Returns the plan of workers that run under the tool, which writes to `log`, or, the address sanitizer, to
        files whose names begin with it."""
        command: tuple[str, ...] = ()
        if self.tool == ASAN:
            options = f"detect_leaks=0:halt_on_error=1:log_path={log}"
            rocm = next((p for p in self.program.parents if (p / "lib/asan").is_dir()), None)
            folders = [str(rocm / "lib/asan")] if rocm else []
            folders += filter(None, [str(self.program.parent), os.environ.get("LD_LIBRARY_PATH", "")])
            paths = {"LD_PRELOAD": str(self.program), "LD_LIBRARY_PATH": os.pathsep.join(folders)}
            added = {**ASAN_ENVIRONMENT, **paths, "ASAN_OPTIONS": options}
        else:
            added, command = UNCACHED, tuple(self._list_words(log))
        environment = {**plan.extra_environment, **added}
        return replace(plan, wrapped_by=command, extra_environment=environment, exit_seconds=EXIT_SECONDS, forks=False)

    def _list_words(self, log: Path) -> Iterator[str]:
        """Yields the words that come before the command of a worker."""
        yield from (str(self.program), "--tool", self.tool, "--target-processes", "all", "--log-file", str(log))
        yield from ("--error-exitcode", str(FOUND_STATUS), "--show-backtrace", "no")
        if self.tool == "memcheck":
            yield from ("--report-api-errors", "no")  # libraries ask for what a device may refuse

    def find_obstacle(self, ready: Ready) -> str:
        """Returns, in words, why the tool cannot see what runs in this process; '' if nothing speaks against it."""
        arch = ready.device.arch
        if self.tool != ASAN:
            return f"it watches kernels on NVIDIA devices; this one is {arch}" if arch.startswith("gfx") else ""
        if not arch.startswith(XNACK_ARCHS):
            return f"kernels are instrumented on {', '.join(XNACK_ARCHS)} only; this device is {arch}"
        try:
            loaded = ASAN_FILE in Path(f"/proc/{ready.pid}/maps").read_text(errors="replace")
        except OSError as error:
            return f"whether its runtime is loaded cannot be read: {error}"
        return "" if loaded else f"its runtime {self.program} is not loaded in process {ready.pid}"

    def read_report(self, log: Path) -> SanitizerReport:
        """Returns what the tool has written; a report with a failure if it has written nothing that proves anything."""
        logs = sorted(log.parent.glob(f"{log.name}.*")) if self.tool == ASAN else [log]
        texts = [path.read_text(errors="replace") for path in logs if path.is_file()]
        if self.tool != ASAN:
            return replace(parse_compute_sanitizer(self.tool, texts), log=str(log))
        report = parse_asan("\n".join(texts))
        return replace(report, log=str(log), warnings=(*report.warnings, ONLY_COMPILED))


def read_tools(what: str, text: str) -> tuple[str, ...]:
    """Returns the names of tools in an option's value, each once. Raises UsageError, which names the option as `what`,
    for one that does not exist."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in TOOLS:
            raise UnknownNameError(f"tool of {what}", name, TOOLS)
    return names


def find_sanitizer(tool: str, environ: Mapping[str, str] = os.environ) -> Sanitizer:
    """Returns the tool installed here. Raises UsageError with where it was looked for, and how to install it."""
    if tool == ASAN:
        root = Path(environ.get("ROCM_PATH") or SYSTEM_ROCM)
        looked = [root / folder / ASAN_FILE for folder in ASAN_RUNTIMES]
        found = [path for folder in ASAN_RUNTIMES for path in sorted(root.glob(f"{folder}/{ASAN_FILE}"))]
        how = "install ROCm's rocm-llvm and the -asan packages of its runtimes, or set ROCM_PATH"
    else:
        looked = list(_list_programs(environ))
        found = [path for path in looked if path.is_file() and os.access(path, os.X_OK)]
        how = (
            f"install the CUDA toolkit's package cuda-sanitizer, or name the program in {PROGRAM_VARIABLE}; the copy "
            "in CUDA's Python wheels is known to lack libraries that it needs"
        )
    if not found:
        raise UsageError(
            f"{FLAG}={tool}: {ASAN_FILE if tool == ASAN else PROGRAM} is not installed; looked for "
            f"{', '.join(map(str, looked))}. Nothing was checked; {how}"
        )
    return Sanitizer(tool, found[0])


def _list_programs(environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get(PROGRAM_VARIABLE):
        yield Path(environ[PROGRAM_VARIABLE])
        return
    homes = [Path(environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if environ.get(name)]
    if on_path := shutil.which(PROGRAM, path=environ.get("PATH", "")):
        yield Path(on_path)
    for home in (*homes, SYSTEM_CUDA):
        yield home / "bin" / PROGRAM
        yield home / PROGRAM / PROGRAM


def parse_compute_sanitizer(tool: str, texts: Sequence[str]) -> SanitizerReport:
    """Returns what logs of compute-sanitizer say. Without a summary, or with a summary that counts errors of which none
    can be read, it has a failure."""
    text = "\n".join(texts)
    findings: dict[tuple[str, str, str], SanitizerFinding] = {}
    warnings: list[str] = []
    failures: list[str] = []
    summaries: list[int] = []
    for first, more in _split_blocks(text):
        if summary := SUMMARY.match(first):
            summaries.append(int(summary[1] or summary[2] or 0))
        elif first.startswith(("Warning: Race", "WARN")):
            warnings.append(first)
        elif KINDS.match(first):
            _add_finding(findings, _read_error(first, more))
        elif ABOUT_ITSELF.match(first):
            failures.append(first)
    if not summaries:
        failures.append(f"{tool} wrote no summary" if text.strip() else f"{tool} wrote no log")
    elif max(summaries) and not findings:
        failures.append(f"{tool} counts {max(summaries)} errors, none of which could be read from its log")
    return SanitizerReport(
        tool, tuple(findings.values()), tuple(dict.fromkeys(warnings)), tuple(dict.fromkeys(failures))
    )


def _add_finding(known: dict[tuple[str, str, str], SanitizerFinding], new: SanitizerFinding) -> None:
    """Adds a finding, or counts it where another thread did the same at the same place."""
    place = new.kind, new.kernel, new.place
    before = known.get(place)
    known[place] = new if before is None else replace(before, count=before.count + 1)


def _split_blocks(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yields the first line of each message, and its indented lines and continuations, without the '=' in front."""
    first: str = ""
    more: list[str] = []
    for line in text.splitlines():
        if not line.startswith("========="):
            continue
        said = line.lstrip("=")
        continues = said.startswith("  ") or said.strip().startswith(CONTINUED)
        if first and continues and said.strip():
            more.append(said.strip())
            continue
        if first:
            yield first, more
        first, more = said.strip(), []
    if first:
        yield first, more


def _read_error(first: str, more: Sequence[str]) -> SanitizerFinding:
    """Returns an error from its first line and those that belong to it. The kernel is the outermost frame of the
    device's."""
    access = ACCESS.match(first)
    kind, places = (access["kind"], [access["at"]]) if access else (first.rstrip("."), [])
    places += [line for line in more if line.startswith("at ")]
    kernel, place = _read_place(places[0]) if places else ("", "")
    frames = [f"at {frame['at']}" for line in more if (frame := DEVICE_FRAME.match(line))]
    if frames:
        kernel = _read_place(frames[-1])[0]
    other = next((line for line in more if line.startswith(("and Read access", "and Write access"))), "")
    near = [line for line in more if line.startswith(("Address ", "Access to ", "and is "))]
    thread = next((line[3:] for line in more if line.startswith("by thread")), "")
    return SanitizerFinding(kind, kernel, place, thread, other or " ".join(near))


def _read_place(line: str) -> tuple[str, str]:
    """Returns (kernel without its arguments, 'file:line' or '') of a line that begins with 'at '."""
    match = AT_OFFSET.match(line) or AT.match(line)
    if match is None:
        return "", ""
    return _strip_signature(match["kernel"]), match["place"] or ""


def _strip_signature(name: str) -> str:
    """Returns `attention<(int)64>` for `void attention<(int)64>(float *)`."""
    name, depth = name.strip().removeprefix("void "), 0
    if not name.endswith(")"):
        return name
    for index in range(len(name) - 1, -1, -1):
        depth += (name[index] == ")") - (name[index] == "(")
        if depth == 0:
            return name[:index].strip()
    return name


def parse_asan(text: str) -> SanitizerReport:
    """Returns what logs of the address sanitizer say; it writes none where it sees nothing."""
    findings: list[SanitizerFinding] = []
    for line in text.splitlines():
        if error := ASAN_ERROR.search(line):
            findings.append(SanitizerFinding(f"{error['kind']}{' on the GPU' if error['gpu'] else ''}"))
        elif findings:
            findings[-1] = _read_more(findings[-1], line)
    return SanitizerReport(ASAN, tuple(dict.fromkeys(findings)))


def _read_more(finding: SanitizerFinding, line: str) -> SanitizerFinding:
    if not finding.thread and (access := ASAN_ACCESS.search(line)):
        return replace(finding, kind=f"{finding.kind}, {access['access']}", thread=f"workgroup {access['block']}")
    if not finding.kernel and (frame := ASAN_FRAME.match(line)):
        return replace(finding, kernel=_strip_signature(frame["kernel"]), place=frame["place"])
    if not finding.memory and (region := ASAN_REGION.match(line)):
        return replace(finding, memory=region["memory"])
    return finding
