"""Setting values of another type are refused."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest

from karpenter_core.errors import SettingsError
from karpenter_core.provider.kit.setting_values import (
    SettingReader,
    duration_of,
    number_of,
)

MINUTE = timedelta(minutes=1)


def test_a_setting_of_another_type_is_refused_by_flag_and_value():
    """As a plug-in might declare it that shares the setting."""
    context = SimpleNamespace(settings={"qps": 2.5, "on": True, "period": MINUTE})

    assert number_of(context, "qps") == 2.5
    assert duration_of(context, "period") == MINUTE
    with pytest.raises(SettingsError, match="--on: must be a number, not True"):
        number_of(context, "on")
    with pytest.raises(SettingsError, match=r"--qps: must be a duration, not 2\.5"):
        duration_of(context, "qps")


def reader_of(**settings):
    return SettingReader(SimpleNamespace(settings=settings))


def complaint_about(read, value, **bounds):
    reader = reader_of(it=value)
    read(reader, "it", **bounds)
    try:
        reader.finish()
    except SettingsError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("read", "bounds", "usable", "refused"),
    [
        (SettingReader.text, {"choices": ("", "a", "b")}, ["", "a", " b "], ["c", "A"]),
        (SettingReader.url, {}, ["", "https://h", "ftp://h:1/p"], ["h", "http://", "http://[::1"]),
        (SettingReader.url, {"schemes": ("https",)}, ["", "https://h"], ["http://h"]),
        (SettingReader.url, {"required": True}, ["https://h"], ["", " "]),
        (SettingReader.host, {}, ["", "h", "h:1", "[::1]:8"], ["h/p", "http://h", "h:p", "h:0"]),
        (SettingReader.number, {}, [0, -2.5], [True, "1", float("nan"), float("inf")]),
        (SettingReader.number, {"at_least": 0, "below": 1}, [0, 0.9], [-0.1, 1, float("nan")]),
        (SettingReader.number, {"above": 0}, [0.1], [0, -1, float("inf")]),
        (SettingReader.count, {"at_least": 1}, [1, 7], [0, "1"]),
        (SettingReader.duration, {"at_least": MINUTE}, [MINUTE], [MINUTE / 2, 60]),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_with_its_flag(read, bounds, usable, refused):
    for value in usable:
        assert complaint_about(read, value, **bounds) == ""
    for value in refused:
        assert complaint_about(read, value, **bounds).startswith("--it: must be ")


def test_values_are_read_with_their_types():
    reader = reader_of(on=True, off="true", name=" a ", many=3.0, period=MINUTE, url="https://h")

    assert (reader.switch("on"), reader.switch("off")) == (True, False)
    assert (reader.text("name"), reader.count("many")) == ("a", 3)
    assert (reader.duration("period"), reader.url("url")) == (MINUTE, "https://h")
    reader.finish()


def test_all_complaints_come_together():
    reader = reader_of(qps=-1, period=timedelta(seconds=1), network="moon")
    reader.complain("--cluster-name: must be given")
    reader.number("qps", at_least=0, below=1)
    reader.duration("period", at_least=MINUTE)
    reader.text("network", choices=("", "public", "vpc"))

    with pytest.raises(SettingsError) as raised:
        reader.finish()
    assert str(raised.value).split("; ") == [
        "--cluster-name: must be given",
        "--qps: must be at least 0 and below 1, not -1",
        "--period: must be a duration of at least 1m0s, not 1s",
        '--network: must be public or vpc, not "moon"',
    ]
