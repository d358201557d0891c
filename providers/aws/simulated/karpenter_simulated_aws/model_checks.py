"""Checks the parameters of an EC2 call against botocore's model.

The SDK sends any text where the API has an enumeration, and any length or number above a maximum;
EC2 itself refuses them. Instance types are left out: what a region sells is newer than a model.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final, cast

from karpenter_simulated_aws.protocol import AwsError, operation_model

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from botocore.model import ListShape, Shape, StructureShape

    from karpenter_simulated_aws.protocol import ApiCall

__all__ = ["model_violation"]

_UNCHECKED: Final = frozenset({"InstanceType"})
"""Shapes whose values are checked against what the simulated region has."""
_CODES: Final = {
    "FleetLaunchTemplateConfigListRequest": "InvalidFleetConfig",
    "LaunchTemplateName": "InvalidLaunchTemplateName.MalformedException",
}
"""By shape; all others are `InvalidParameterValue`."""


def model_violation(call: ApiCall) -> AwsError | None:
    """Return the refusal of a call whose parameters the API does not take; None for a good one."""
    shape = operation_model(call.service, call.action).input_shape
    return None if shape is None else next(_violations(shape, call.parameters, ""), None)


def _violations(shape: Shape, value: object, path: str) -> Iterator[AwsError]:
    if value is None or shape.name in _UNCHECKED:
        return
    match shape.type_name:
        case "structure":
            members = cast("StructureShape", shape).members
            for name, item in cast("Mapping[str, object]", value).items():
                if name in members:
                    yield from _violations(members[name], item, f"{path}.{name}".lstrip("."))
        case "list":
            items = cast("Sequence[object]", value)
            yield from _range_violations(shape, len(items), path, f"{len(items)} items")
            for number, item in enumerate(items, start=1):
                yield from _violations(cast("ListShape", shape).member, item, f"{path}.{number}")
        case "string":
            yield from _text_violations(shape, str(value), path)
        case "integer" | "long" | "float" | "double":
            number = cast("float", value)
            yield from _range_violations(shape, number, path, str(number))
        case _:
            pass


def _text_violations(shape: Shape, text: str, path: str) -> Iterator[AwsError]:
    metadata = cast("Mapping[str, object]", shape.metadata)
    options = cast("Sequence[str]", metadata.get("enum", ()))
    if options and text not in options:
        yield _refusal(shape, path, text, f"Valid values are: {', '.join(options[:20])}")
    pattern = str(metadata.get("pattern", ""))
    if pattern and not _compiled(pattern).fullmatch(text):
        yield _refusal(shape, path, text, f"It must match {pattern}")
    yield from _range_violations(shape, len(text), path, text)


def _range_violations(shape: Shape, number: float, path: str, text: str) -> Iterator[AwsError]:
    metadata = cast("Mapping[str, float]", shape.metadata)
    lowest, highest = metadata.get("min"), metadata.get("max")
    if lowest is not None and number < lowest:
        yield _refusal(shape, path, text, f"The minimum is {lowest}")
    if highest is not None and number > highest:
        yield _refusal(shape, path, text, f"The maximum is {highest}")


def _refusal(shape: Shape, path: str, text: str, why: str) -> AwsError:
    return AwsError(
        _CODES.get(shape.name, "InvalidParameterValue"),
        f"Value ({text}) for parameter {path} is invalid. {why}.",
    )


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
