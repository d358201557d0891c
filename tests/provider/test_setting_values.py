"""Setting values of another type are refused."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest

from karpenter_core.errors import SettingsError
from karpenter_core.provider.kit.setting_values import duration_of, number_of

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
