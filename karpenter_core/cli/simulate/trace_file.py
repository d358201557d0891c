"""Reads traces: CSV files with one pod in each row.

    arrival,duration,cpu,memory
    0,10m,500m,1Gi

Other traces are read by naming their columns, with a unit where theirs is another one:
`arrival=creation_time,end=deletion_time,cpu=cpu_milli:m,memory=memory_mib:Mi,nvidia.com/gpu=num_gpu`.
"""

from __future__ import annotations

import csv
import math
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.durations import parse_duration
from karpenter_core.api.quantities import parse_quantity
from karpenter_core.cli.manifests import manifest_text
from karpenter_core.cli.simulate.workload import PodArrival, Workload
from karpenter_core.errors import BadInputError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping
    from pathlib import Path

    from karpenter_core.api.json_objects import JsonObject

__all__ = ["TraceFormat", "parse_columns", "read_trace"]

ARRIVAL: Final = "arrival"
DURATION: Final = "duration"
END: Final = "end"
NAME: Final = "name"
SELECTOR: Final = "selector"
CPU: Final = "cpu"
MEMORY: Final = "memory"
LABEL: Final = "label:"
"""Beginning of a field whose column holds the values of a node label that a pod needs."""

_DEFAULT: Final = (ARRIVAL, DURATION, END, NAME, SELECTOR, CPU, MEMORY)
_TIMES: Final = {"s": 1.0, "ms": 0.001, "m": 60.0, "h": 3600.0}
_SHOWN: Final = 60
"""Length to which cells are cut in messages."""
_UNITS: Final = frozenset({"n", "u", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"})


@dataclass(frozen=True, slots=True)
class TraceColumn:
    """The column of a field, and the unit of its numbers."""

    name: str
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFormat:
    """The columns of traces by field, and the factor by which their time goes faster."""

    columns: Mapping[str, TraceColumn] = field(
        default_factory=lambda: {name: TraceColumn(name) for name in _DEFAULT}
    )
    is_default: bool = True
    speed: float = 1.0


def parse_columns(text: str, *, speed: float = 1.0) -> TraceFormat:
    """Read the option that names the columns; empty = the default names.

    Raises:
        SettingsError: it cannot be read.
    """
    if not speed > 0 or not math.isfinite(speed):
        raise SettingsError(f"--trace-speed: must be above zero, not {speed:g}")
    if not text:
        return TraceFormat(speed=speed)
    columns: dict[str, TraceColumn] = {}
    for pair in text.split(","):
        name, separator, column_text = (part.strip() for part in pair.partition("="))
        column, _, unit = (
            column_text.rpartition(":") if ":" in column_text else (column_text, "", "")
        )
        if not separator or not name or not column:
            raise SettingsError(
                f'--trace-columns: "{pair}" is not FIELD=COLUMN or FIELD=COLUMN:UNIT'
            )
        if name not in _DEFAULT and "/" not in name and not name.startswith(LABEL):
            fields = ", ".join(_DEFAULT)
            raise SettingsError(
                f'--trace-columns: unknown field "{name}"; there are {fields}, {LABEL}KEY and the names '
                "of other resources, such as nvidia.com/gpu"
            )
        allowed = _TIMES if name in {ARRIVAL, DURATION, END} else _UNITS
        if unit and unit not in allowed:
            known = ", ".join(sorted(allowed))
            raise SettingsError(f'--trace-columns: {name}: unknown unit "{unit}" ({known})')
        if name in columns:
            raise SettingsError(f'--trace-columns: field "{name}" is duplicated')
        columns[name] = TraceColumn(column, unit)
    if ARRIVAL not in columns:
        raise SettingsError(f'--trace-columns: field "{ARRIVAL}" is missing')
    return TraceFormat(columns=columns, is_default=False, speed=speed)


def read_trace(file: Path, trace_format: TraceFormat, *, duration: float) -> Workload:
    """Read the pods of a trace that arrive within the simulated time.

    Raises:
        BadInputError: a row cannot be used; names file, line, column and value.
    """
    name, text = manifest_text(file)
    reader = csv.DictReader(text.splitlines(), strict=True)
    with _names_line(name, reader):
        header = reader.fieldnames or ()
    columns = _present(name, header, trace_format)
    shapes: dict[tuple[str, ...], JsonObject] = {}
    arrivals = [
        arrival
        for row in _rows(name, reader)
        if (
            arrival := _arrival(
                _Row(row, columns, f"{name}, line {reader.line_num}"), shapes, trace_format.speed
            )
        ).at
        < duration
    ]
    arrivals.sort(key=lambda each: each.at)
    return Workload(arrivals=tuple(arrivals))


@contextmanager
def _names_line(name: str, reader: csv.DictReader[str]) -> Generator[None]:
    """Name the line with which a row begins that is no CSV: an open quotation mark takes in the rest.

    Raises:
        BadInputError: the text is not CSV.
    """
    line = reader.line_num + 1
    try:
        yield
    except csv.Error as error:
        raise BadInputError(f"{name}, line {line}: is not CSV: {error}") from error


def _rows(
    name: str, reader: csv.DictReader[str]
) -> Iterator[Mapping[str | None, str | list[str] | None]]:
    while True:
        with _names_line(name, reader):
            row = next(reader, None)
        if row is None:
            return
        yield row


def _present(
    name: str, header: Iterable[str], trace_format: TraceFormat
) -> Mapping[str, TraceColumn]:
    """Return the columns that the file has; those that were named must be there."""
    given = {each.strip() for each in header}
    columns = {
        name_of: column
        for name_of, column in trace_format.columns.items()
        if not trace_format.is_default or column.name in given
    }
    for column in columns.values():
        if column.name not in given:
            listed = ", ".join(sorted(given)) or "none"
            raise BadInputError(f'{name}: column "{column.name}" is missing (columns: {listed})')
    if ARRIVAL not in columns:
        raise BadInputError(
            f'{name}: column "{ARRIVAL}" is missing; --trace-columns names the columns of other traces'
        )
    if trace_format.is_default:
        unknown = sorted(given - {column.name for column in columns.values()})
        if unknown:
            raise BadInputError(
                f'{name}: unknown column "{unknown[0]}"; --trace-columns names the columns to read'
            )
    return columns


class _Row:
    """One row, by field."""

    def __init__(
        self, row: Mapping[str | None, str | list[str] | None], columns: Mapping[str, TraceColumn],
        where: str,
    ) -> None:  # fmt: skip
        self.where: Final = where
        self.columns: Final = columns
        if None in row:
            raise BadInputError(f"{where}: has more cells than the header")
        self._row: Final = {str(key).strip(): str(text or "").strip() for key, text in row.items()}

    def text(self, name: str) -> str:
        """Return the text of a field; empty if there is none."""
        column = self.columns.get(name)
        return "" if column is None else self._row.get(column.name, "")

    def seconds(self, name: str) -> float | None:
        """Return a time; None if the cell is empty."""
        text = self.text(name)
        if not text:
            return None
        unit = self.columns[name].unit
        try:
            seconds = float(text) * _TIMES[unit or "s"]
        except ValueError:
            try:
                seconds = parse_duration(text) / timedelta(seconds=1)
            except ValueError:
                seconds = math.nan
        if not math.isfinite(seconds):
            raise self._error(name, "is neither a number nor a duration")
        if seconds < 0:
            raise self._error(name, "must not be negative")
        return seconds

    def amount(self, name: str) -> str:
        """Return a quantity; empty if the cell is empty or zero."""
        text = self.text(name)
        if not text:
            return ""
        quantity = f"{text}{self.columns[name].unit}"
        try:
            value = parse_quantity(quantity)
        except ValueError:
            raise self._error(name, "is no quantity") from None
        if value < 0:
            raise self._error(name, "must not be negative")
        return quantity if value else ""

    def _error(self, name: str, problem: str) -> BadInputError:
        column = self.columns[name].name
        text = self.text(name)
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        return BadInputError(f'{self.where}: column "{column}": "{shown}" {problem}')


def _arrival(row: _Row, shapes: dict[tuple[str, ...], JsonObject], speed: float) -> PodArrival:
    at = row.seconds(ARRIVAL)
    if at is None:
        raise BadInputError(f'{row.where}: column "{row.columns[ARRIVAL].name}": is empty')
    run_seconds, end = row.seconds(DURATION), row.seconds(END)
    if run_seconds is None and end is not None:
        if end < at:
            raise BadInputError(f"{row.where}: the pod ends ({end:g}) before it arrives ({at:g})")
        run_seconds = end - at
    key = tuple(
        row.text(name) for name in row.columns if name not in {ARRIVAL, DURATION, END, NAME}
    )
    if key not in shapes:
        shapes[key] = _pod(row)
    line = row.where.rpartition(" ")[2]
    return PodArrival(
        at=at / speed,
        namespace="default",
        name=row.text(NAME) or f"row-{int(line):06d}",
        where=row.where,
        pod=shapes[key],
        run_seconds=None if run_seconds is None else run_seconds / speed,
    )


def _pod(row: _Row) -> JsonObject:
    requests = {
        name: amount
        for name in row.columns
        if name in {CPU, MEMORY} or ("/" in name and not name.startswith(LABEL))
        if (amount := row.amount(name))
    }
    limits = {name: amount for name, amount in requests.items() if "/" in name}
    resources = {"requests": requests, **({"limits": limits} if limits else {})}
    spec: JsonObject = {
        "containers": [{"name": "main", "image": "simulated", "resources": resources}],
        "restartPolicy": "Never",
    }
    selector = _selector(row)
    if selector:
        spec["nodeSelector"] = selector
    expressions = [
        {"key": name.removeprefix(LABEL), "operator": "In", "values": row.text(name).split("|")}
        for name in row.columns
        if name.startswith(LABEL) and row.text(name)
    ]
    if expressions:
        spec["affinity"] = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": expressions}]
                }
            }
        }
    return {"metadata": {"labels": {"trace": "pod"}}, "spec": spec}


def _selector(row: _Row) -> dict[str, str]:
    text = row.text(SELECTOR)
    pairs = [pair.partition("=") for pair in text.split(";") if pair.strip()]
    for key, separator, _ in pairs:
        if not separator or not key.strip():
            column = row.columns[SELECTOR].name
            raise BadInputError(
                f'{row.where}: column "{column}": "{text}" is not KEY=VALUE, more of them separated by ;'
            )
    return {key.strip(): value.strip() for key, _, value in pairs}
