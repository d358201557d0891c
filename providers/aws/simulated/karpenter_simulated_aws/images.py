"""Machine images, and the public SSM parameters that name them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, final

from karpenter_simulated_aws.protocol import AwsError
from karpenter_simulated_aws.selection import list_page, tag_list

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from types_boto3_ec2.type_defs import DescribeImagesRequestTypeDef
    from types_boto3_ssm.type_defs import GetParameterRequestTypeDef, GetParametersRequestTypeDef

    from karpenter_simulated_aws.account import Account

__all__ = ["AMAZON", "Image", "Images", "SsmParameters"]

AMAZON: Final = "602401143452"
"""The account that owns the images of EKS."""
_PAGE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A machine image."""

    id: str
    name: str
    created_at: datetime
    architecture: str = "x86_64"
    owner: str = AMAZON
    owner_alias: str = "amazon"
    deprecated_at: datetime | None = None
    state: str = "available"
    windows: bool = False
    root_device: str = "/dev/xvda"
    tags: Mapping[str, str] = field(default_factory=dict[str, str])


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000Z")


@final
class Images:
    """The images that the account may use."""

    def __init__(self, account: Account) -> None:
        self._account: Final = account
        self._images: dict[str, Image] = {}

    def add(self, image: Image) -> Image:
        """Make an image available; one of the same id is replaced."""
        self._images[image.id] = image
        return image

    def add_own(
        self,
        name: str,
        *,
        created_at: datetime,
        architecture: str = "x86_64",
        tags: Mapping[str, str] | None = None,
    ) -> Image:
        """Make an image of the account's own."""
        return self.add(
            Image(
                id=self._account.ids.named("ami", f"{name}/{architecture}"),
                name=name,
                created_at=created_at,
                architecture=architecture,
                owner=self._account.id,
                owner_alias="",
                tags=tags or {},
            )
        )

    @property
    def all(self) -> Sequence[Image]:
        """Every image, by id."""
        return [self._images[image_id] for image_id in sorted(self._images)]

    def get(self, image_id: str) -> Image | None:
        """Return an image, None when there is none of this id."""
        return self._images.get(image_id)

    def deprecate(self, image_id: str, *, at: datetime) -> None:
        """Deprecate an image at a moment, which may be past."""
        self._images[image_id] = replace(self._images[image_id], deprecated_at=at)

    def tag(self, image_id: str, tags: Mapping[str, str], *, remove: bool = False) -> None:
        """Add tags to an image, or remove them."""
        image = self._images[image_id]
        kept = {key: value for key, value in image.tags.items() if not (remove and key in tags)}
        self._images[image_id] = replace(image, tags=kept if remove else {**kept, **tags})

    def remove(self, image_id: str) -> None:
        """Deregister an image; instances that were launched from it stay."""
        self._images.pop(image_id, None)

    def clear(self) -> None:
        """Forget all images."""
        self._images.clear()

    def describe_images(self, request: DescribeImagesRequestTypeDef) -> Mapping[str, object]:
        """Answer DescribeImages; deprecated ones are left out unless asked for, or one's own."""
        ids: Sequence[str] = request.get("ImageIds", ())
        for image_id in ids:
            if not image_id.startswith("ami-"):
                raise AwsError("InvalidAMIID.Malformed", f'Invalid id: "{image_id}"')
        absent = [image_id for image_id in ids if image_id not in self._images]
        if absent:
            raise AwsError(
                "InvalidAMIID.NotFound", f"The image ids '[{', '.join(absent)}]' do not exist"
            )
        owners: Sequence[str] = request.get("Owners", ())
        now = self._account.clock()
        shown = [
            image
            for image in (self._images[image_id] for image_id in ids or sorted(self._images))
            if self._is_of(image, owners)
            and (
                request.get("IncludeDeprecated")
                or image.owner == self._account.id
                or image.deprecated_at is None
                or image.deprecated_at > now
            )
        ]
        part, token = list_page(
            request,
            shown,
            values=_values,
            tags=lambda image: image.tags,
            maximum=_PAGE,
        )
        return {"Images": [self._described(image) for image in part], "NextToken": token}

    def deregister_image(self, request: Mapping[str, str]) -> Mapping[str, object]:
        """Answer DeregisterImage."""
        image_id = request["ImageId"]
        if image_id not in self._images:
            raise AwsError("InvalidAMIID.NotFound", f"The image id '[{image_id}]' does not exist")
        self.remove(image_id)
        return {"Return": True}

    def _is_of(self, image: Image, owners: Sequence[str]) -> bool:
        names = {image.owner, image.owner_alias}
        if image.owner == self._account.id:
            names.add("self")
        return not owners or not names.isdisjoint(owners)

    def _described(self, image: Image) -> Mapping[str, object]:
        return {
            "ImageId": image.id,
            "Name": image.name,
            "ImageLocation": f"{image.owner_alias or image.owner}/{image.name}",
            "OwnerId": image.owner,
            "ImageOwnerAlias": image.owner_alias or None,
            "Architecture": image.architecture,
            "CreationDate": _stamp(image.created_at),
            "DeprecationTime": None if image.deprecated_at is None else _stamp(image.deprecated_at),
            "State": image.state,
            "Public": image.owner != self._account.id,
            "ImageType": "machine",
            "Platform": "windows" if image.windows else None,
            "PlatformDetails": "Windows" if image.windows else "Linux/UNIX",
            "RootDeviceName": image.root_device,
            "RootDeviceType": "ebs",
            "VirtualizationType": "hvm",
            "EnaSupport": True,
            "Hypervisor": "xen",
            "Tags": tag_list(image.tags),
        }


def _values(image: Image, name: str) -> Sequence[str] | None:
    known: Mapping[str, Sequence[str]] = {
        "image-id": (image.id,),
        "name": (image.name,),
        "architecture": (image.architecture,),
        "state": (image.state,),
        "owner-id": (image.owner,),
        "owner-alias": (image.owner_alias,) if image.owner_alias else (),
        "platform": ("windows",) if image.windows else (),
        "root-device-type": ("ebs",),
        "virtualization-type": ("hvm",),
        "image-type": ("machine",),
    }
    return known.get(name)


@final
class SsmParameters:
    """Parameters of Systems Manager, public ones and the account's own."""

    def __init__(self, account: Account) -> None:
        self._account: Final = account
        self._values: dict[str, str] = {}
        self._versions: dict[str, int] = {}

    def put(self, name: str, value: str) -> None:
        """Set a parameter."""
        self._values[name] = value
        self._versions[name] = self._versions.get(name, 0) + 1

    def remove(self, name: str) -> None:
        """Take a parameter away."""
        self._values.pop(name, None)

    def clear(self) -> None:
        """Forget all parameters."""
        self._values.clear()
        self._versions.clear()

    def get_parameter(self, request: GetParameterRequestTypeDef) -> Mapping[str, object]:
        """Answer GetParameter, by name or ARN."""
        name = _bare_name(request["Name"])
        if name not in self._values:
            raise AwsError("ParameterNotFound", f"Parameter {name} not found.")
        return {"Parameter": self._described(name)}

    def get_parameters(self, request: GetParametersRequestTypeDef) -> Mapping[str, object]:
        """Answer GetParameters."""
        names = [_bare_name(name) for name in request["Names"]]
        return {
            "Parameters": [self._described(name) for name in names if name in self._values],
            "InvalidParameters": [name for name in names if name not in self._values],
        }

    def _described(self, name: str) -> Mapping[str, object]:
        return {
            "Name": name,
            "Type": "String",
            "Value": self._values[name],
            "Version": self._versions[name],
            "LastModifiedDate": self._account.clock(),
            "ARN": f"arn:{self._account.partition}:ssm:{self._account.region}::parameter{name}",
            "DataType": "text",
        }


def _bare_name(name: str) -> str:
    """Return a parameter's name out of an ARN, or as it is."""
    if not name.startswith("arn:"):
        return name
    _, _, rest = name.partition(":parameter")
    return rest if rest.count("/") > 1 else rest.removeprefix("/")
