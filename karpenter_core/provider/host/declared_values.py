"""Refuses declarations of plug-ins with invalid values, at the start.

A periodic task whose period is zero would run without a pause, and a list in the place of a set would end the
start in a traceback that names no plug-in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.provider.contract import BatchLimits, ObjectRead, RepairPolicy
from karpenter_core.provider.value_text import raw_value, value_text

if TYPE_CHECKING:
    from karpenter_core.provider.contract import (
        LabelClasses,
        PeriodicTask,
        ProviderInfo,
        SettingSpec,
    )

__all__ = ["info_problem", "labels_problem", "setting_problem", "task_problem"]

_FLAG: Final = re.compile(r"--[a-z0-9]+(-[a-z0-9]+)*")
_VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9_]*")
_SHORTEST_PERIOD: Final = timedelta(seconds=1)


def task_problem(task: PeriodicTask) -> str:
    """Return the error of a task; empty if it can be run."""
    name = raw_value(task.name)
    if not isinstance(name, str) or not name:
        return f"a task must have a name, not {value_text(name)}"
    period = raw_value(task.period)
    if not isinstance(period, timedelta) or period < _SHORTEST_PERIOD:
        return f"the period of the task {name} must be a timedelta of a second or more, not {value_text(period)}"
    return "" if callable(task.run) else f"run of the task {name} must be a function"


def labels_problem(labels: LabelClasses) -> str:
    """Return the error of label classes; empty if they can be merged with those of others."""
    for field in fields(labels):
        value: object = getattr(labels, field.name)
        default = field.default_factory() if callable(field.default_factory) else field.default
        if isinstance(default, Mapping):
            is_valid, kind = isinstance(value, Mapping), "a mapping"
        else:
            is_valid, kind = isinstance(value, frozenset | set), "a frozenset"
        if not is_valid:
            return f"LabelClasses.{field.name} must be {kind}, not {value_text(value)}"
    for name in ("value_aliases", "known_values"):
        for key, value in cast("Mapping[str, object]", getattr(labels, name)).items():
            if isinstance(value, str):
                return (
                    f"LabelClasses.{name}[{key!r}] must hold several texts, not {value_text(value)}"
                )
    return ""


def setting_problem(spec: SettingSpec) -> str:
    """Return the error of a setting; empty if it can be parsed."""
    for field, pattern, example in (
        ("flag", _FLAG, "--mycloud-endpoint"),
        ("env", _VARIABLE, "MYCLOUD_ENDPOINT"),
    ):
        value: object = getattr(spec, field)
        if not isinstance(value, str) or not pattern.fullmatch(value):
            return f"{field} of a setting must be like {example}, not {value_text(value)}"
    default = raw_value(spec.default)
    if not isinstance(default, str | float | int | timedelta):
        return (
            f"the default of {spec.flag} must be a text, a number, True, False or a timedelta, not "
            f"{value_text(default)}"
        )
    return ""


def info_problem(info: ProviderInfo) -> str:
    """Return the error of a provider's description; empty if there is none."""
    count = raw_value(info.max_instance_types)
    if not isinstance(count, int) or count < 1:
        return f"max_instance_types must be a whole number above zero, not {value_text(count)}"
    for hook, limits in info.batch_limits.items():
        if problem := _limits_problem(limits):
            return f"batch_limits[{hook!r}]{problem}"
    for name, wanted in (("reads", ObjectRead), ("repair_policies", RepairPolicy)):
        for value in cast("tuple[object, ...]", getattr(info, name)):
            if not isinstance(value, wanted):
                return (
                    f"{name} must be a tuple of {wanted.__name__}, not one with {value_text(value)}"
                )
    return _policy_problem(info) or _model_problem(info)


def _policy_problem(info: ProviderInfo) -> str:
    for policy in info.repair_policies:
        after = raw_value(policy.toleration)
        if not isinstance(after, timedelta):
            return f"toleration of a RepairPolicy must be a timedelta, not {value_text(after)}"
    return ""


def _model_problem(info: ProviderInfo) -> str:
    for model in info.node_classes:
        if not hasattr(model, "resource"):
            return f"node_classes must be a tuple of models with a resource, not one with {value_text(model)}"
    return ""


def _limits_problem(limits: BatchLimits) -> str:
    if not isinstance(raw_value(limits), BatchLimits):
        return f" must be BatchLimits, not {value_text(limits)}"
    for name in ("idle", "maximum", "timeout"):
        value: object = getattr(limits, name)
        if not isinstance(value, timedelta):
            return f".{name} must be a timedelta, not {value_text(value)}"
    if not isinstance(raw_value(limits.size), int) or limits.size < 1:
        return f".size must be above zero, not {value_text(limits.size)}"
    return ""
