"""A profile as a trace for ui.perfetto.dev and chrome://tracing: a process per device, a thread per stream."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pytest_attnperf.errors import UsageError

ADVICE = (
    "a kernel trace has one: rocprofv3 --kernel-trace -- COMMAND, or export_chrome_trace() of torch.profiler; name its "
    "file or folder"
)


def render_trace(path: Path) -> bytes:
    """Returns a profiler's file, or folder of one run, as a trace. Raises ProfileError for a file that is none or
    cannot be read, UsageError for one without start times, such as results."""
    from pytest_attnperf.tools.profilers.profile_summary import analyse_profile
    from pytest_attnperf.tools.profilers.reading import is_profile, read_profile
    from pytest_attnperf.tools.profilers.trace_export import encode_trace

    if path.is_file() and not is_profile(path):
        raise UsageError(
            f"{path} holds no timeline: it is no profiler's file. Results of pytest --attnperf-profile say how long "
            f"each kernel took, not when it ran; {ADVICE}"
        )
    return encode_trace(analyse_profile(replace(read_profile(path), name=str(path))))
