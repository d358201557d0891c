"""Handles the tags of resources: set, remove, list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_simulated_alibabacloud.paging import token_page
from karpenter_simulated_alibabacloud.parameters import read_tags

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from karpenter_simulated_alibabacloud.parameters import RequestParameters

    Tagged = Callable[[str], dict[str, str] | None]

__all__ = ["ResourceTags"]

_MOST_RESOURCES: Final = 50
_MOST_TAGS: Final = 20
_MOST_LISTED: Final = 1000
_PAGE: Final = 50
_NOT_FOUND: Final = 404
_KINDS: Final = ("instance", "disk", "image", "securitygroup", "ddh", "launchtemplate")


@final
class ResourceTags:
    """The tags of everything that has them."""

    def __init__(
        self,
        find: Mapping[str, Tagged],
        *,
        instances: Callable[[], Sequence[tuple[str, Mapping[str, str]]]],
    ) -> None:
        self._find: Final = find
        self._instances: Final = instances

    def tag(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer TagResources: all resources, or none when one is not there."""
        request.required("RegionId")
        wanted = read_tags(request)
        if not wanted:
            raise CloudError("MissingParameter.Tag", "A tag must be given.")
        self._set(self._resources(request), wanted)
        return {}

    def add(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer AddTags, the old way for one resource."""
        request.required("RegionId")
        kind = request.choice("ResourceType", _KINDS)
        tags = self._tags_of(kind, request.required("ResourceId"))
        self._set([tags], read_tags(request))
        return {}

    def untag(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer UntagResources."""
        request.required("RegionId")
        keys = request.texts("TagKey", most=_MOST_TAGS)
        for tags in self._resources(request):
            gone = list(tags) if not keys and request.flag("All") else keys
            for key in gone:
                tags.pop(key, None)
        return {}

    def list(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer ListTagResources for instances."""
        request.required("RegionId")
        kind = request.choice("ResourceType", _KINDS)
        request.required("ResourceType")
        if kind != "instance":
            raise request.invalid("ResourceType", kind)
        ids = request.texts("ResourceId", most=_MOST_RESOURCES)
        wanted = request.items_of("Tag", most=_MOST_TAGS)
        if not ids and not wanted:
            raise CloudError("MissingParameter.TagOrResourceId", "ResourceId or Tag must be given.")
        rows = [
            (f"{name}/{key}", name, key, value)
            for name, tags in self._instances()
            if (not ids or name in ids)
            and all(
                each.required("Key") in tags
                and ("Value" not in each or tags[each.text("Key")] == each.text("Value"))
                for each in wanted
            )
            for key, value in sorted(tags.items())
        ]
        page, token = token_page(
            rows, request, key=lambda row: row[0], default=_PAGE, most=_MOST_LISTED
        )
        return {
            "NextToken": token,
            "TagResources": {
                "TagResource": [
                    {
                        "ResourceId": name,
                        "ResourceType": "instance",
                        "TagKey": key,
                        "TagValue": value,
                    }
                    for _, name, key, value in page
                ]
            },
        }

    def _resources(self, request: RequestParameters) -> Sequence[dict[str, str]]:
        kind = request.choice("ResourceType", _KINDS)
        request.required("ResourceType")
        ids = request.texts("ResourceId", most=_MOST_RESOURCES)
        if not ids:
            raise CloudError("MissingParameter.ResourceId", "A resource must be given.")
        return [self._tags_of(kind, each) for each in ids]

    def _tags_of(self, kind: str, named: str) -> dict[str, str]:
        find = self._find.get(kind)
        tags = find(named) if find else None
        if tags is None:
            raise CloudError(
                "InvalidResourceId.NotFound",
                f"The specified ResourceId {named} of type {kind} does not exist.",
                status=_NOT_FOUND,
            )
        return tags

    @staticmethod
    def _set(resources: Sequence[dict[str, str]], wanted: Mapping[str, str]) -> None:
        for tags in resources:
            if len(tags.keys() | wanted.keys()) > _MOST_TAGS:
                raise CloudError(
                    "InvalidParameter.TagCount",
                    f"A resource would have more than {_MOST_TAGS} tags.",
                )
        for tags in resources:
            tags.update(wanted)
