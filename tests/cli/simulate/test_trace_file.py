"""Traces are CSV files with one pod in each row."""

from __future__ import annotations

import re

import pytest

from karpenter_core.cli.simulate.trace_file import parse_columns, read_trace
from karpenter_core.errors import BadInputError, SettingsError

OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_spec,creation_time,deletion_time\n"
    "openb-pod-0000,12000,16384,1,,0,12537496\n"
    "openb-pod-0001,6000,12288,0,V100M16|V100M32,427061,12902960\n"
)
OPENB_COLUMNS = (
    "name=name,arrival=creation_time,end=deletion_time,cpu=cpu_milli:m,memory=memory_mib:Mi,"
    "nvidia.com/gpu=num_gpu,label:example.com/model=gpu_spec"
)


@pytest.fixture
def read(tmp_path):
    """Read a trace with these columns."""

    def run(text, columns="", *, speed=1.0, duration=1e9):
        file = tmp_path / "trace.csv"
        file.write_text(text)
        return read_trace(file, parse_columns(columns, speed=speed), duration=duration).arrivals

    return run


def requests(arrival):
    return arrival.pod["spec"]["containers"][0]["resources"]["requests"]


def test_the_default_columns_are_read(read):
    """In the order of arrival, with times in seconds or as durations."""
    first, second = read(
        "arrival,duration,name,cpu,memory,selector\n1h,10m,b,2,4Gi,a=1;b=2\n30,,a,500m,,\n"
    )

    assert (first.name, first.at, first.run_seconds) == ("a", 30.0, None)
    assert requests(first) == {"cpu": "500m"}
    assert (second.name, second.at, second.run_seconds) == ("b", 3600.0, 600.0)
    assert second.pod["spec"]["nodeSelector"] == {"a": "1", "b": "2"}


def test_columns_of_another_trace_are_named(read):
    """With units; time goes faster by the factor."""
    first, second = read(OPENB, OPENB_COLUMNS, speed=500)

    assert first.name == "openb-pod-0000"
    assert requests(first) == {"cpu": "12000m", "memory": "16384Mi", "nvidia.com/gpu": "1"}
    assert first.run_seconds == pytest.approx(12537496 / 500)
    assert "nvidia.com/gpu" not in requests(second)
    assert second.at == pytest.approx(427061 / 500)
    (term,) = second.pod["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        {"key": "example.com/model", "operator": "In", "values": ["V100M16", "V100M32"]}
    ]
    assert "affinity" not in first.pod["spec"]


def test_rows_after_the_end_are_left_out(read):
    """They arrive when the simulation is over."""
    assert len(read("arrival,cpu\n0,1\n100,1\n", duration=100)) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("duration,cpu\n1,1\n", 'column "arrival" is missing'),
        ("arrival,cpus\n1,1\n", 'unknown column "cpus"'),
        (
            "arrival,cpu\nsoon,1\n",
            'line 2: column "arrival": "soon" is neither a number nor a duration',
        ),
        ("arrival,cpu\n-1,1\n", 'line 2: column "arrival": "-1" must not be negative'),
        ("arrival\n1e400\n", 'line 2: column "arrival": "1e400" is neither a number nor'),
        ('arrival,cpu\n0,1\n0,"1\n0,1\n', "line 3: is not CSV: unexpected end of data"),
        ('arrival,cpu\n0,"' + "1\n" * 140_000, "line 2: is not CSV: field larger than"),
        ('arrival,"cpu\n0,1\n', "line 1: is not CSV: unexpected end of data"),
        ("arrival,cpu\n,1\n", 'line 2: column "arrival": is empty'),
        ("arrival,cpu\n0,1\n1,x\n", 'line 3: column "cpu": "x" is no quantity'),
        ("arrival,end\n10,5\n", "line 2: the pod ends (5) before it arrives (10)"),
        ("arrival,selector\n1,zone\n", 'column "selector": "zone" is not KEY=VALUE'),
        ("arrival,cpu\n1,1,1\n", "line 2: has more cells than the header"),
    ],
)
def test_a_row_that_cannot_be_used_is_refused(read, text, message):
    """With file, line, column and value."""
    with pytest.raises(BadInputError, match=re.escape(message)):
        read(text)


def test_a_named_column_must_be_there(read):
    """The message lists those that are."""
    with pytest.raises(BadInputError, match=r'column "start" is missing \(columns: arrival, cpu\)'):
        read("arrival,cpu\n1,1\n", "arrival=start")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("cpu=cpu", 'field "arrival" is missing'),
        ("arrival=a,arrival=b", 'field "arrival" is duplicated'),
        ("arrival=a,weight=w", 'unknown field "weight"'),
        ("arrival=a:Mi", 'arrival: unknown unit "Mi"'),
        ("arrival=a,cpu=c:h", 'cpu: unknown unit "h"'),
        ("arrival", '"arrival" is not FIELD=COLUMN'),
    ],
)
def test_columns_that_cannot_be_read_are_refused(columns, message):
    """With the field."""
    with pytest.raises(SettingsError, match=re.escape(message)):
        parse_columns(columns)


def test_a_long_cell_is_cut_in_the_message(read):
    with pytest.raises(BadInputError) as error:
        read("arrival\n" + "x" * 9_999 + "\n")
    assert len(str(error.value)) < 300
