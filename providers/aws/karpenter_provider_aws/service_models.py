"""Keeps of botocore's descriptions of services only what the provider calls.

EC2 alone has 750 operations: their descriptions, and the methods that botocore makes of them, take
more memory than the whole provider. An operation that is missing in `OPERATIONS` does not exist for
the clients of the provider; a test compares the table with the calls.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast, final

from botocore.loaders import JSONFileLoader

if TYPE_CHECKING:
    from karpenter_core.api.json_objects import JsonObject

__all__ = ["OPERATIONS", "ModelFiles"]

OPERATIONS: Final = {
    "arc-zonal-shift": {"GetManagedResource"},
    "ec2": {
        "CreateFleet",
        "CreateLaunchTemplate",
        "CreateTags",
        "DeleteLaunchTemplate",
        "DescribeCapacityReservations",
        "DescribeImages",
        "DescribeInstanceStatus",
        "DescribeInstanceTypeOfferings",
        "DescribeInstanceTypes",
        "DescribeInstances",
        "DescribeLaunchTemplates",
        "DescribePlacementGroups",
        "DescribeSecurityGroups",
        "DescribeSpotPriceHistory",
        "DescribeSubnets",
        "RunInstances",
        "TerminateInstances",
    },
    "eks": {"DescribeCluster"},
    "iam": {
        "AddRoleToInstanceProfile",
        "CreateInstanceProfile",
        "DeleteInstanceProfile",
        "GetInstanceProfile",
        "ListInstanceProfiles",
        "RemoveRoleFromInstanceProfile",
    },
    "pricing": {"GetProducts"},
    "sqs": {"DeleteMessageBatch", "GetQueueUrl", "ReceiveMessage"},
    "ssm": {"GetParameter"},
}
"""The operations that the provider calls, by service. Those of other services all stay."""
_ENDPOINTS_OF: Final = {
    *OPERATIONS,
    "api.pricing",
    "oidc",
    "portal.sso",
    "signin",
    "sso",
    "sts",
}
"""Services whose endpoints are kept: the provider's, and those of botocore's credentials."""
_MODEL: Final = "service-2"
_ENDPOINTS: Final = "endpoints"


@final
class ModelFiles(JSONFileLoader):
    """Reads botocore's files."""

    def load_file(self, file_path: str) -> object:
        """Return what a file has, without what is never used; None if there is no such file."""
        read = super().load_file(file_path)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - botocore has no types of its own
        path = Path(file_path)
        service = path.parent.parent.name
        if read is None or (path.name != _ENDPOINTS and service not in OPERATIONS):
            return cast("object", read)
        found = cast("JsonObject", read)
        if path.name == _ENDPOINTS:
            used: JsonObject = _used_endpoints(found)
        elif path.name == _MODEL:
            used = _used_model(found, OPERATIONS[service])
        else:
            return found
        # A copy, of its own memory blocks: the large remainder leaves whole ones free.
        return cast("object", json.loads(json.dumps(used)))


def _used_endpoints(endpoints: JsonObject) -> JsonObject:
    partitions = [
        {
            **partition,
            "services": {
                name: service
                for name, service in partition["services"].items()
                if name in _ENDPOINTS_OF
            },
        }
        for partition in endpoints["partitions"]
    ]
    return {**endpoints, "partitions": partitions}


def _used_model(model: JsonObject, names: set[str]) -> JsonObject:
    """Return a description with some of its operations, and the shapes that they reach."""
    operations = {name: each for name, each in model["operations"].items() if name in names}
    shapes = model["shapes"]
    reached = dict.fromkeys(_named_shapes(operations))
    waiting = list(reached)
    while waiting:
        for name in _named_shapes(shapes[waiting.pop()]):
            if name not in reached:
                reached[name] = None
                waiting.append(name)
    kept = {name: shape for name, shape in shapes.items() if name in reached}
    described = {**model, "operations": operations, "shapes": kept}
    return cast("JsonObject", _without_texts(described))


def _named_shapes(part: object) -> list[str]:
    """Return the shapes that a part of a description refers to."""
    if isinstance(part, list):
        return [name for each in cast("list[object]", part) for name in _named_shapes(each)]
    if not isinstance(part, dict):
        return []
    members = cast("JsonObject", part)
    named: object = members.get("shape")
    found = [named] if isinstance(named, str) else []
    return found + [name for each in members.values() for name in _named_shapes(each)]


def _without_texts(part: object) -> object:
    """Leave out the documentation; a member may be called so, but is no text then."""
    if isinstance(part, list):
        return [_without_texts(each) for each in cast("list[object]", part)]
    if not isinstance(part, dict):
        return part
    return {
        key: _without_texts(value)
        for key, value in cast("JsonObject", part).items()
        if key != "documentation" or not isinstance(value, str)
    }
