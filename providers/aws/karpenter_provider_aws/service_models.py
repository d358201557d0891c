"""Keeps of botocore's descriptions of services only what the provider calls.

EC2 alone has 750 operations: their descriptions, and the methods that botocore makes of them, take
more memory than the whole provider. An operation that is missing in `OPERATIONS` does not exist for
the clients of the provider; a test compares the table with the calls.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, Final, TypeAlias, cast, final

import msgspec
from botocore.loaders import JSONFileLoader
from msgspec import Raw

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


_PLAIN: Final = ".json"
_COMPRESSED: Final = ".json.gz"


_RawParts: TypeAlias = "dict[str, Raw]"
"""The members of a JSON object, not decoded yet."""


@final
class ModelFiles(JSONFileLoader):
    """Reads botocore's files.

    Of a description only what is in use becomes objects: the objects of all EC2 would leave 13 MiB of
    memory behind that is mostly holes. Texts that repeat are one object, and objects of JSON are plain
    dictionaries, where botocore makes ordered ones of four times the size.
    """

    def load_file(self, file_path: str) -> object:
        """Return what a file has, without what is never used; None if there is no such file."""
        path = Path(file_path)
        operations = OPERATIONS.get(path.parent.parent.name)
        content = _read(file_path)
        if content is None:
            return None
        if path.name == _ENDPOINTS:
            return _used_endpoints(content)
        if path.name == _MODEL and operations:
            return _used_model(content, operations)
        return _with_shared_texts(msgspec.json.decode(content))


def _read(file_path: str) -> bytes | None:
    """Return what a file has, compressed or not; None if there is no such file."""
    plain, compressed = Path(file_path + _PLAIN), Path(file_path + _COMPRESSED)
    if plain.is_file():
        return plain.read_bytes()
    return gzip.decompress(compressed.read_bytes()) if compressed.is_file() else None


def _used_endpoints(content: bytes) -> object:
    parts = _raw_parts(content)
    partitions = [_used_partition(each) for each in _raw_list(parts.pop("partitions"))]
    return {**_decode_all(parts), "partitions": partitions}


def _used_partition(content: Raw) -> JsonObject:
    parts = _raw_parts(content)
    services = {
        name: service
        for name, service in _raw_parts(parts.pop("services")).items()
        if name in _ENDPOINTS_OF
    }
    return {**_decode_all(parts), "services": _decode_all(services)}


def _used_model(content: bytes, names: set[str]) -> object:
    """Return a description with some of its operations, and the shapes that they reach."""
    parts = _raw_parts(content)
    every_operation, every_shape = (_raw_parts(parts.pop(key)) for key in ("operations", "shapes"))
    operations = _decode_all({n: each for n, each in every_operation.items() if n in names})
    shapes: JsonObject = {}
    waiting = _named_shapes(operations)
    while waiting:
        name = waiting.pop()
        if name not in shapes:
            shapes[name] = msgspec.json.decode(every_shape[name])
            waiting += _named_shapes(shapes[name])
    described = {**_decode_all(parts), "operations": operations, "shapes": shapes}
    return _with_shared_texts(described, without="documentation")


def _raw_parts(content: bytes | Raw) -> _RawParts:
    return msgspec.json.decode(content, type=dict[str, Raw])


def _raw_list(content: Raw) -> list[Raw]:
    return msgspec.json.decode(content, type=list[Raw])


def _decode_all(parts: _RawParts) -> JsonObject:
    return {name: msgspec.json.decode(part) for name, part in parts.items()}


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


def _with_shared_texts(part: object, *, without: str | None = None) -> object:
    """Make equal texts one object in a decoded value, and leave out texts that are called `without`.

    A member of another type may be called so, and stays. A copy beside the value would leave holes in
    memory when that is freed.
    """
    if isinstance(part, str):
        return intern(part)
    if isinstance(part, list):
        items = cast("list[object]", part)
        items[:] = [_with_shared_texts(each, without=without) for each in items]
        return items
    if not isinstance(part, dict):
        return part
    members = cast("JsonObject", part)
    if without is not None and isinstance(members.get(without), str):
        del members[without]
    for key, value in members.items():
        members[key] = _with_shared_texts(value, without=without)
    return members
