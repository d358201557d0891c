"""Handles CreateTags and DeleteTags for resources outside of moto."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypedDict, cast, final

from karpenter_simulated_aws.protocol import AwsError
from karpenter_simulated_aws.selection import check_tags

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping, Sequence

    from karpenter_simulated_aws.account import Account
    from karpenter_simulated_aws.images import Images
    from karpenter_simulated_aws.instances import Instances
    from karpenter_simulated_aws.selection import Tag

__all__ = ["ResourceTags"]


class _Call(TypedDict, total=False):
    Resources: Sequence[str]
    Tags: Sequence[Tag]


class _Backend(Protocol):
    def create_tags(self, resource_ids: Sequence[str], tags: Mapping[str, str]) -> bool: ...

    def delete_tags(self, resource_ids: Sequence[str], tags: Mapping[str, str | None]) -> bool: ...


@final
class ResourceTags:
    """The tags of everything in EC2."""

    def __init__(
        self,
        account: Account,
        *,
        instances: Instances,
        images: Images,
        kept: Mapping[str, Callable[[str], MutableMapping[str, str] | None]],
    ) -> None:
        """Make it; `kept` returns the tags of a resource, by the prefix of its id."""
        self._account: Final = account
        self._instances: Final = instances
        self._images: Final = images
        self._kept: Final = kept

    def create(self, request: _Call) -> Mapping[str, object]:
        """Answer CreateTags; one resource that does not exist, and nothing is tagged."""
        resources = request.get("Resources", ())
        new = _pairs(request.get("Tags", ()))
        check_tags(new)
        found = {resource: self._of(resource) for resource in resources}
        for tags in found.values():
            if tags is not None:
                check_tags({k: v for k, v in {**tags, **new}.items() if not k.startswith("aws:")})
        for resource, tags in found.items():
            if tags is not None:
                tags.update(new)
            elif resource.startswith("ami-"):
                self._images.tag(resource, new)
            else:
                self._moto().create_tags([resource], new)
        return {}

    def delete(self, request: _Call) -> Mapping[str, object]:
        """Answer DeleteTags: by key, or by key and value where a value is given."""
        gone = request.get("Tags", ())
        for resource in request.get("Resources", ()):
            tags = self._of(resource)
            if tags is not None:
                for tag in gone:
                    key = tag.get("Key", "")
                    if tag.get("Value") in {None, tags.get(key)}:
                        tags.pop(key, None)
            elif resource.startswith("ami-"):
                self._images.tag(resource, _pairs(gone), remove=True)
            else:
                self._moto().delete_tags(
                    [resource], {t.get("Key", ""): t.get("Value") for t in gone}
                )
        return {}

    def _of(self, resource: str) -> MutableMapping[str, str] | None:
        """Return tags to be changed in place; None for those of images and of moto."""
        prefix = resource.split("-", 1)[0]
        if prefix == "i":
            return self._instances.named([resource])[0].tags
        if prefix == "ami":
            if self._images.get(resource) is None:
                raise AwsError(
                    "InvalidAMIID.NotFound", f"The image id '[{resource}]' does not exist"
                )
            return None
        if prefix not in self._kept:
            return None
        tags = self._kept[prefix](resource)
        if tags is None:
            raise AwsError("InvalidID", f"The ID '{resource}' is not valid")
        return tags

    def _moto(self) -> _Backend:
        from moto.ec2.models import ec2_backends

        return cast("_Backend", ec2_backends[self._account.id][self._account.region])


def _pairs(tags: Sequence[Tag]) -> dict[str, str]:
    return {tag.get("Key", ""): tag.get("Value", "") for tag in tags}
