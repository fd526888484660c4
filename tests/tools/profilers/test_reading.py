from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_attnperf.errors import ProfileError
from pytest_attnperf.tools.profilers.reading import find_files, group_runs, read_profile

HEADERS = "Kind,Agent_Id,Dispatch_Id,Kernel_Name,Start_Timestamp,End_Timestamp,Workgroup_Size_X,Workgroup_Size_Y"
HEADERS += ",Workgroup_Size_Z,Grid_Size_X,Grid_Size_Y,Grid_Size_Z"


def line(start: object, end: object, name: str = "flash", agent: str = "Agent 4") -> str:
    """One dispatch."""
    return f'"KERNEL_DISPATCH","{agent}",1,"{name}",{start},{end},256,1,1,512,2,1'


def trace(path: Path, lines: Sequence[str], *, columns: str = HEADERS, ending: str = "\n") -> Path:
    """A kernel trace with these lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((ending.join([columns, *lines]) + ending).encode())
    return path


def refusal(path: Path, run: str = "") -> str:
    """What the error says."""
    with pytest.raises(ProfileError) as caught:
        read_profile(path, run=run)
    return str(caught.value)


def test_order_of_columns_and_rows(tmp_path: Path) -> None:
    """Columns are found by name, and dispatches come in the order they began."""
    columns = "End_Timestamp,Grid_Size_X,Kernel_Name,Start_Timestamp"
    profile = read_profile(trace(tmp_path / "a.csv", ["30,64,second,20", "19,64,first,10"], columns=columns))
    assert [(shape.name, start, end) for shape, start, end in profile.dispatches] == [
        ("first", 10, 19),
        ("second", 20, 30),
    ]
    assert profile.dispatches.shapes[0].grid_items is None
    assert profile.problems == ()
    assert (profile.name, profile.sources[0].rows) == ("a.csv", 2)


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_marks_and_line_ends(tmp_path: Path, ending: str, mark: str) -> None:
    """A byte order mark, Windows line ends and blank lines change nothing."""
    lines = [line(1, 3), "", line(4, 5), ""]
    profile = read_profile(trace(tmp_path / "a.csv", lines, columns=mark + HEADERS, ending=ending))
    assert (len(profile.dispatches), profile.dispatches.total_ns, profile.problems) == (2, 3, ())
    assert profile.dispatches.shapes[0].workgroups == 4


@pytest.mark.parametrize("name", ["f(int, float)", 'f<""a"">', "two\nlines", "ä", "x" * 5000])
def test_names(tmp_path: Path, name: str) -> None:
    """Commas, quotes, line breaks and any length belong to a name."""
    profile = read_profile(trace(tmp_path / "a.csv", [line(1, 3, name), line(4, 5, name)]))
    assert [shape.name for shape in profile.dispatches.shapes] == [name.replace('""', '"')]
    assert profile.problems == ()


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (
            '"KERNEL_DISPATCH","Agent 4",1,"flash",5',
            "a.csv:3: column End_Timestamp: has 5 values for 12 columns; the row is left",
        ),
        (line("5x", 9), "a.csv:3: column Start_Timestamp: is '5x', expected a whole number of nanoseconds; the row"),
        (line(5, ""), "a.csv:3: column End_Timestamp: is '', expected a whole number of nanoseconds; the row is left"),
        (line("1\0", 9), "a.csv:3:"),
        (line(9, 5), "a.csv:3: column End_Timestamp: ends 4 ns before it starts (Start_Timestamp 9, End_Timestamp 5)"),
        (
            line(0, 10**15),
            "takes 1e+06 s (Start_Timestamp 0, End_Timestamp 1000000000000000), more than a day",
        ),
        (
            line(5, 10**30),
            f"a.csv:3: column End_Timestamp: 5 to {10**30} are no times of 64 bits; the row is left",
        ),
        (line(-5, 10), "-5 to 10 are no times of 64 bits"),
        (line(5, "9" * 4000), "are no times of 64 bits"),
        (line(5, "9" * 50000), "a.csv:3:"),
        (
            line(5, 9, "x" * 200_000),
            "a.csv:3: cannot be read as CSV: field larger than field limit (131072)",
        ),
        (HEADERS, "column Start_Timestamp: is 'Start_Timestamp', expected a whole number"),
    ],
)
def test_a_broken_row(tmp_path: Path, broken: str, said: str) -> None:
    """It is left out and named with its line, its column and what stands there; the others are used."""
    profile = read_profile(trace(tmp_path / "a.csv", [line(1, 3), broken, line(4, 5)]))
    assert (len(profile.dispatches), profile.dispatches.total_ns) == (2, 3)
    (problem,) = profile.problems
    assert said in str(problem)
    assert problem.line == 3
    assert problem.used == "the row is left out, the other 2 rows are used"


def test_a_last_row_cut_short(tmp_path: Path) -> None:
    """As a profiler leaves it that was stopped."""
    path = trace(tmp_path / "a.csv", [line(1, 3), line(4, 5)])
    path.write_text(path.read_text()[:-30])
    (problem,) = read_profile(path).problems
    assert str(problem) == (
        f"{path}:3: column {problem.column}: the last row is cut short: it has 3 values for 12 columns; the row "
        "is left out, "
        "the other row is used"
    )
    assert problem.column == path.read_text().splitlines()[0].split(",")[3]


def test_a_kernel_without_a_name(tmp_path: Path) -> None:
    """It is used under a name of its own, and said with its line and column."""
    path = tmp_path / "a_kernel_trace.csv"
    path.write_text('"Kernel_Name","Start_Timestamp","End_Timestamp"\n"flash",1,3\n"",4,9\n')
    profile = read_profile(path)
    assert [shape.name for shape in profile.dispatches.shapes] == ["flash", "(no name)"]
    (problem,) = profile.problems
    assert str(problem) == (
        f"{path}:3: column Kernel_Name: is '', expected a name; it is called '(no name)'; the row is used"
    )


def test_a_column_that_is_there_twice(tmp_path: Path) -> None:
    """Which of the two is meant is not guessed."""
    path = tmp_path / "a_kernel_trace.csv"
    path.write_text("Kernel_Name,Start_Timestamp,End_Timestamp,Kernel_Name\na,1,2,b\n")
    with pytest.raises(ProfileError, match="column Kernel_Name occurs 2 times in line 1; keep one of them"):
        read_profile(path)


def test_a_quote_that_never_ends(tmp_path: Path) -> None:
    """It costs its own row and the next, not the file."""
    lines = [line(1, 3), line(4, 5).replace('flash"', "flash"), *(line(10 * n, 10 * n + 1) for n in range(1, 9))]
    profile = read_profile(trace(tmp_path / "a.csv", lines))
    assert len(profile.dispatches) == 8
    assert len(profile.problems) == 1


def test_unusual_durations_are_kept(tmp_path: Path) -> None:
    """Dispatches of no duration, and those that overlap on one device, count, and are said."""
    lines = [line(1, 1), line(2, 10), line(5, 12), line(5, 12, agent="Agent 5"), line(13, 14)]
    profile = read_profile(trace(tmp_path / "a.csv", lines))
    assert profile.dispatches.total_ns == 0 + 8 + 7 + 7 + 1
    assert profile.problems == ()
    assert profile.notes[0] == "1 dispatches have no duration: they count as calls of 0 ns"
    assert profile.notes[1].startswith("1 of 5 dispatches begin before an earlier one of the same device has ended")


def test_hundreds_of_problems(tmp_path: Path) -> None:
    """Five of a kind are listed, then how many more."""
    profile = read_profile(trace(tmp_path / "a.csv", [line(1, 3), *[line(9, 5)] * 300, *[line("?", 5)] * 6]))
    assert [problem.line for problem in profile.problems] == [3, 4, 5, 6, 7, 303, 304, 305, 306, 307, None, None]
    assert [problem.text for problem in profile.problems[-2:]] == [
        "295 more rows of this kind: ends before it starts",
        "1 more rows of this kind: Start_Timestamp is no number",
    ]


def test_resources_that_are_no_numbers(tmp_path: Path) -> None:
    """The time counts, the resource is unknown, and it is said once per kernel."""
    lines = [line(1, 3).replace("256", "many"), line(4, 5).replace("256", "many"), line(6, 7, "a\0b")]
    profile = read_profile(trace(tmp_path / "a.csv", lines))
    assert profile.dispatches.shapes[0].workgroup is None
    assert profile.dispatches.shapes[0].grid_items == (512, 2, 1)
    assert str(profile.problems[0]).endswith(
        ":2: column Workgroup_Size_X: is 'many', expected a whole number; it counts as unknown; the row is used"
    )
    assert profile.dispatches.total_ns in (3, 4)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "a.csv is empty (0 bytes); was the profiler stopped before it wrote?"),
        (b"  \n", "is empty (3 bytes)"),
        (bytes(range(256)) * 9, "a.csv is no text (it begins with b'\\x00\\x01\\x02\\x03\\x04\\x05\\x06\\x07')"),
        (b"\xff\xfea\0,\0b\0\n\0", "is no text"),
        (b"\x89PNG" + b"\xff" * 90, "is no text"),
        (b"a,b\n1,2\n", "a.csv is no file of a known profiler; it has the columns: a, b; needed are rocprofv3"),
        (HEADERS.encode(), "holds no row below the line of columns; did the program launch kernels"),
        (b"Kernel_Name,End_Timestamp\nf,2\n", "missing: Start_Timestamp; the file has: Kernel_Name, End_Timestamp"),
        (
            b"KernelName,grd\nf,2\n",
            "a rocprof v1 results CSV needs the columns KernelName, BeginNs, EndNs; missing: Beg",
        ),
        (f"{HEADERS}\n{line(9, 5)}\n".encode(), "ends 4 ns before it starts"),
        (b'{"a": 1}', "is no file of a known profiler; it has the columns: {"),
    ],
)
def test_files_of_no_use(tmp_path: Path, content: bytes, said: str) -> None:
    """What is wrong with the whole file is said, with what it has and what is wanted."""
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    assert said in refusal(path)
    assert str(path) in refusal(path)


def test_paths_of_no_use(tmp_path: Path) -> None:
    """A path that is not there, devices alone, and rocprofv3's JSON."""
    assert "does not exist; give a file that a profiler wrote" in refusal(tmp_path / "none")
    (tmp_path / "x_agent_info.csv").write_text("Node_Id,Agent_Type,Name\n4,GPU,gfx942\n")
    assert "describes devices only" in refusal(tmp_path / "x_agent_info.csv")
    (tmp_path / "x_results.json").write_text(json.dumps({"rocprofiler-sdk-tool": []}))
    assert "run it with --output-format csv or rocpd" in refusal(tmp_path / "x_results.json")
    assert "holds no file of a profiler; looked for, below it too: *_counter_collection.csv" in refusal(tmp_path)


def test_a_chrome_trace(tmp_path: Path) -> None:
    """A trace of torch.profiler goes to its own reader, from a file and from a folder."""
    kernel = {"ph": "X", "cat": "kernel", "name": "flash", "ts": 1.0, "dur": 2.0, "pid": 0, "tid": 7, "args": {}}
    (tmp_path / "a.json").write_text(json.dumps({"traceEvents": [kernel]}))
    for path in (tmp_path, tmp_path / "a.json"):
        assert read_profile(path).dispatches.total_ns == 2000


def test_a_database(tmp_path: Path) -> None:
    """SQLite goes to the reader of rocpd, which says when it is none."""
    with contextlib.closing(sqlite3.connect(tmp_path / "a_results.db")) as connection:
        connection.execute("create table shopping (item)")
        connection.commit()
    for path in (tmp_path, tmp_path / "a_results.db"):
        assert "a_results.db" in refusal(path)


def test_a_database_beside_a_trace(tmp_path: Path) -> None:
    """The CSV trace is read, and the other file of the run is named."""
    trace(tmp_path / "a_kernel_trace.csv", [line(1, 3)])
    (tmp_path / "a_results.db").write_bytes(b"SQLite format 3\0" + bytes(84))
    profile = read_profile(tmp_path)
    assert profile.notes == (f"{tmp_path / 'a_results.db'} was not read: the CSV trace of the same run was",)


def test_two_traces_of_one_run(tmp_path: Path) -> None:
    """Their kernels would count twice."""
    trace(tmp_path / "a_kernel_trace.csv", [line(1, 3)])
    (tmp_path / "a.csv").write_text("KernelName,BeginNs,EndNs\nf,1,3\n")
    assert "are kernel traces of one run, and would count twice" in refusal(tmp_path)


def test_a_file_of_a_run_that_cannot_be_read(tmp_path: Path) -> None:
    """The others are used; where there are none, it is the error."""
    (tmp_path / "a_kernel_trace.csv").write_bytes(b"")
    assert "a_kernel_trace.csv is empty (0 bytes)" in refusal(tmp_path)
    (tmp_path / "a_kernel_stats.csv").write_text("Name,Calls,TotalDurationNs,MinNs\nflash,2,30,10\n")
    profile = read_profile(tmp_path)
    assert [row.spread.total_ns for row in profile.stats] == [30]
    assert [str(problem) for problem in profile.problems] == [
        f"{tmp_path / 'a_kernel_trace.csv'}: is empty (0 bytes); was the profiler stopped before it wrote?"
    ]


def test_two_other_profiles_of_one_run(tmp_path: Path) -> None:
    """Which one is meant is not guessed."""
    (tmp_path / "a.json").write_text('{"traceEvents": []}')
    (tmp_path / "a_results.db").write_bytes(b"SQLite format 3\0" + bytes(84))
    assert "a.json" in refusal(tmp_path)
    assert "a_results.db are several profiles; give one of them" in refusal(tmp_path)


TRACE = "Kernel_Name,Agent_Id,Start_Timestamp,End_Timestamp\nflash,Agent 4,10,{end}\n"
STATS = "Name,Calls,TotalDurationNs,MinNs\nflash,1,{total},1\n"
AGENTS = "Node_Id,Logical_Node_Id,Agent_Type,Name\n4,4,GPU,gfx942\n"


def write(folder: Path, **files: str) -> Path:
    """Files by name; '__' stands for '/', and '.csv' is added."""
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".csv")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_processes_are_runs(tmp_path: Path) -> None:
    """rocprofv3 leaves files of every process in a folder per host; one that only knows devices is no run."""
    write(
        tmp_path,
        host__11_kernel_trace=TRACE.format(end=20),
        host__11_agent_info=AGENTS,
        host__12_kernel_trace=TRACE.format(end=30),
        host__13_agent_info=AGENTS,
    )
    with pytest.raises(ProfileError) as caught:
        read_profile(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path} holds 2 runs, which are not one profile: host/11 (rocprofv3 agent_info, rocprofv3 kernel_trace), "
        "host/12 (rocprofv3 kernel_trace); choose one with --run PREFIX, as in --run host/11"
    )
    for wish in ("host/12", "12"):
        profile = read_profile(tmp_path, run=wish)
        assert profile.dispatches.total_ns == 20
        assert profile.name == f"{tmp_path.name}: host/12"
    assert [agent.arch for agent in read_profile(tmp_path, run="11").agents] == ["gfx942"]


def test_wishes_that_do_not_fit(tmp_path: Path) -> None:
    """One that fits several runs, and one that fits none."""
    write(tmp_path, **{f"b{n}_kernel_trace": TRACE.format(end=20) for n in range(30)})
    with pytest.raises(ProfileError, match=r"--run b fits 30 runs: b0 .*b1 ") as caught:
        read_profile(tmp_path, run="b")
    assert str(caught.value).endswith("and 10 more; name one of them")
    with pytest.raises(ProfileError, match=r"holds no run 'c'; there are: b0"):
        read_profile(tmp_path, run="c")
    assert read_profile(tmp_path, run="b2").dispatches.total_ns == 10


def test_renamed_files_of_one_run(tmp_path: Path) -> None:
    """Their columns say what they are; they are one run as long as no form comes twice."""
    write(tmp_path, trace=TRACE.format(end=20), sums=STATS.format(total=10), gpus=AGENTS)
    profile = read_profile(tmp_path)
    assert [source.form for source in profile.sources] == [
        "rocprofv3 kernel_trace",
        "rocprofv3 kernel_stats",
        "rocprofv3 agent_info",
    ]
    assert profile.problems == ()
    write(tmp_path, again=TRACE.format(end=30))
    with pytest.raises(ProfileError, match=r"holds 3 runs.*: again \(rocprofv3 kernel_trace\), sums .*, trace "):
        read_profile(tmp_path)
    assert read_profile(tmp_path, run="again").dispatches.total_ns == 20


def test_renamed_files_beside_one_run(tmp_path: Path) -> None:
    """A renamed file joins the only run of its folder."""
    write(tmp_path, run_kernel_trace=TRACE.format(end=20), gpus=AGENTS)
    assert [agent.name for agent in read_profile(tmp_path).agents] == ["Agent 4"]


def test_what_is_ignored(tmp_path: Path) -> None:
    """Files of others, and those of the profiler that say nothing of time, do not disturb; they are counted."""
    write(
        tmp_path,
        run_kernel_trace=TRACE.format(end=20),
        shopping="item,price\nmilk,1\n",
        empty="",
        run_memory_allocation_trace="Kind,Operation,Agent_Id,Allocation_Size,Start_Timestamp,End_Timestamp\n",
        run_marker_api_trace="Domain,Function,Start_Timestamp,End_Timestamp\nMARKER_CORE_API,step,1,900\n",
    )
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("hello")
    found = find_files(tmp_path)
    assert [run.name for run in group_runs(found.files)] == ["run"]
    assert (found.ignored, found.broken) == (5, ())
    assert read_profile(tmp_path).stats == ()


def test_statistics_that_do_not_agree(tmp_path: Path) -> None:
    """Calls and total of every kernel must be those of the trace; the domain's sum, too."""
    write(tmp_path, a_kernel_trace=TRACE.format(end=20), a_kernel_stats=STATS.format(total=10))
    assert read_profile(tmp_path).problems == ()
    write(tmp_path, a_kernel_stats=STATS.format(total=11))
    write(tmp_path, a_domain_stats=STATS.format(total=12).replace("flash", "KERNEL_DISPATCH"))
    kernels, domains = sorted(read_profile(tmp_path).problems, key=lambda problem: problem.path, reverse=True)
    assert str(kernels) == (
        f"{tmp_path / 'a_kernel_stats.csv'}: 1 of 1 names differ from the trace of the same run; 'flash': 1 calls, "
        "11 ns here, 1 calls, 10 ns in the trace; files of different runs?; the trace is used"
    )
    assert "'KERNEL_DISPATCH': 1 calls, 12 ns here, 1 calls, 10 ns in the trace" in domains.text


def test_statistics_alone(tmp_path: Path) -> None:
    """Without a trace there are statistics, and no dispatches."""
    profile = read_profile(write(tmp_path, a_kernel_stats=STATS.format(total=11)))
    assert (len(profile.dispatches), [row.spread.total_ns for row in profile.stats]) == (0, [11])
