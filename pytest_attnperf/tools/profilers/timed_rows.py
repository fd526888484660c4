"""Reads rows with a start and an end, a million in seconds: one look-up per row, and only times are parsed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter

from pytest_attnperf.records.profiles import KernelShape
from pytest_attnperf.tools.profilers.csv_table import CsvTable
from pytest_attnperf.tools.profilers.dispatches import DispatchesBuilder
from pytest_attnperf.tools.profilers.kernel_columns import Report

LONGEST_NS = 86_400 * 10**9
"""A day: nothing on a GPU takes longer, so one of the two times is wrong (0 if it was never written)."""

QUEUES = {"Stream_Id": "stream", "Queue_Id": "queue", "Queue_ID": "queue", "queue-id": "queue"}
"""Columns that name where a row ran, and the word for it; the first that a table has is used."""

BEYOND = 1 << 63
"""Least number that does not fit into signed 64 bits."""

ShapeOf = Callable[[Sequence[str], Report], KernelShape]
"""Function that makes a shape of a row's describing values, and reports what is wrong with them."""


def add_rows(
    table: CsvTable, builder: DispatchesBuilder, columns: Sequence[str], shape_of: ShapeOf, start: str, end: str
) -> tuple[int, int]:
    """Adds every row with usable times to `builder`; returns (rows added, those of them that take 0 ns). The other rows
    become problems of `table`. `start` and `end` are the columns of the times, in ns.

    `columns` define a shape; their values are parsed once per combination. A column of QUEUES names a row's queue.
    """
    indices = [table.column_index(name) for name in columns]
    # itemgetter with one index returns no tuple
    key_of = itemgetter(*(indices if len(indices) > 1 else indices * 2))
    begin_at, finish_at = table.column_index(start), table.column_index(end)
    numbers: dict[object, int] = {}
    add, number_at, queue_at = builder.add, numbers.get, _find_queue(table, builder)
    before, zero = len(builder), 0

    def report(column: str, text: str) -> None:
        table.problems.add(table.line, text, column=column, kind=f"{column} of another form", lost=False)

    for row in table:
        try:
            begin, finish = int(row[begin_at]), int(row[finish_at])
        except ValueError:
            report_bad_times(table, row, start, end)
            continue
        if not (0 <= begin < finish < BEYOND and finish - begin <= LONGEST_NS):
            if begin != finish or not 0 <= begin < BEYOND:
                report_bad_duration(table, begin, finish, start, end)
                continue
            zero += 1
        key = key_of(row)
        number = number_at(key)
        if number is None:
            number = builder.number_of(shape_of([row[index] for index in indices], report))
            numbers[key] = number
        add(number, begin, finish, queue_at(row))
    return len(builder) - before, zero


def _find_queue(table: CsvTable, builder: DispatchesBuilder) -> Callable[[Sequence[str]], int]:
    """Returns a function that gives the number of a row's queue: 'stream 1' or 'queue 1'; 0 if no column names it."""
    column = table.find_column(*QUEUES)
    if not column:
        return lambda row: 0
    at, word, numbers = table.column_index(column), QUEUES[column], dict[str, int]()

    def queue_of(row: Sequence[str]) -> int:
        number = numbers.get(row[at])
        if number is None:
            name = f"{word} {row[at]}" if row[at].strip() else ""
            number = numbers[row[at]] = builder.queue_number_of(name)
        return number

    return queue_of


def report_bad_times(table: CsvTable, row: Sequence[str], start: str, end: str) -> None:
    """Adds a problem to `table`: the first of the columns `start` and `end` whose value in `row` is no whole number."""
    for column in (start, end):
        text = row[table.column_index(column)]
        try:
            int(text)
        except ValueError:
            wanted = f"is {text[:40]!r}, expected a whole number of nanoseconds"
            table.problems.add(table.line, wanted, column=column, kind=f"{column} is no number")
            return


def report_bad_duration(table: CsvTable, begin: int, finish: int, start: str, end: str) -> None:
    """Adds a problem to `table`: times beyond 64 bits, an end before the start, or more than a day between them."""
    if not (0 <= begin < BEYOND and 0 <= finish < BEYOND):
        text, kind = (
            f"{_format_number(begin)} to {_format_number(finish)} are no times of 64 bits",
            "times beyond 64 bits",
        )
    elif finish < begin:
        text, kind = (
            f"ends {begin - finish} ns before it starts ({start} {begin}, {end} {finish})",
            "ends before it starts",
        )
    else:
        text = f"takes {(finish - begin) / 1e9:.6g} s ({start} {begin}, {end} {finish}), more than a day"
        kind = "takes more than a day"
    table.problems.add(table.line, text, column=end, kind=kind)


def _format_number(number: int) -> str:
    # str() refuses numbers of thousands of digits
    return str(number) if -(10**40) < number < 10**40 else f"a number of {number.bit_length()} bits"
