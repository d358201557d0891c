"""Images: ACK's releases for nodes, and the account's own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from karpenter_simulated_alibabacloud.account import to_seconds
from karpenter_simulated_alibabacloud.paging import numbered_page, tags_match

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from karpenter_simulated_alibabacloud.account import Account
    from karpenter_simulated_alibabacloud.parameters import RequestParameters

__all__ = ["ARM64", "FAMILIES", "X86_64", "Image", "Images"]

X86_64: Final = "x86_64"
"""Names of amd64 in ECS and ACK."""
ARM64: Final = "arm64"
"""Names of arm64 (Yitian and Ampere) in ECS and ACK."""
FAMILIES: Final = ("AlibabaCloudLinux3", "ContainerOS")
"""Families that ACK releases images of."""

_RELEASES: Final = ("20250117", "20250629")
_SHORT: Final = {X86_64: "x64", ARM64: "arm64"}
_MOST_IMAGES: Final = 100
_ALIASES: Final = ("system", "self", "others", "marketplace")


@dataclass(slots=True, kw_only=True, eq=False)
class Image:
    """An image."""

    id: str
    name: str
    architecture: str
    """`x86_64`, `arm64` or `i386`."""
    size_gib: int
    made_at: datetime
    ack_type: str = ""
    """`image_type` in ACK's list; empty for what is not in it."""
    platform: str = "Aliyun"
    os_name: str = ""
    owner: str = "system"
    """`system`, `self`, `others` or `marketplace`."""
    family: str = ""
    """ImageFamily, as its owner has set it."""
    status: str = "Available"
    tags: dict[str, str] = field(default_factory=dict[str, str])


@final
class Images:
    """The images that an account can launch from."""

    def __init__(self, account: Account) -> None:
        self._account: Final = account
        self._images: dict[str, Image] = {}

    def clear(self) -> None:
        """Forget all images."""
        self._images.clear()

    def publish_all(self) -> None:
        """Publish two releases of every family for both architectures."""
        for family in FAMILIES:
            for release in _RELEASES:
                for architecture in (X86_64, ARM64):
                    self.publish(family, release, architecture=architecture)

    def publish(
        self, family: str, release: str, *, architecture: str = X86_64, listed: bool = True
    ) -> Image:
        """Publish a release (`20250629`) of a family; ACK lists it unless it is told not to."""
        short = _SHORT[architecture]
        match family:
            case "AlibabaCloudLinux3":
                image_id = name = f"aliyun_3_{short}_20G_alibase_{release}.vhd"
                ack_type = "AliyunLinux3" if architecture == X86_64 else "AliyunLinux3Arm64"
                size_gib, os_name = 20, "Alibaba Cloud Linux  3.2104 LTS 64-bit"
            case "ContainerOS":
                image_id = f"lifsea_3_{short}_10G_containerd_1_6_36_alibase_{release}.vhd"
                name, ack_type = f"ContainerOS_3_{short}_{release}", "ContainerOS"
                size_gib, os_name = 10, "ContainerOS 3 64-bit"
            case _:
                raise ValueError(f"{family} is none of {', '.join(FAMILIES)}")
        return self._add(
            Image(
                id=image_id,
                name=name,
                architecture=architecture,
                size_gib=size_gib,
                made_at=self._account.clock(),
                ack_type=ack_type if listed else "",
                os_name=os_name,
            )
        )

    def add(
        self,
        name: str,
        *,
        architecture: str = X86_64,
        size_gib: int = 20,
        owner: str = "self",
        family: str = "",
        tags: Mapping[str, str] | None = None,
    ) -> Image:
        """Make an image of the account's own, or of somebody's who shares it."""
        return self._add(
            Image(
                id=self._account.ids.new("m"),
                name=name,
                architecture=architecture,
                size_gib=size_gib,
                made_at=self._account.clock(),
                platform="Customized Linux",
                os_name=name,
                owner=owner,
                family=family,
                tags=dict(tags or {}),
            )
        )

    def _add(self, image: Image) -> Image:
        self._images[image.id] = image
        return image

    def withdraw(self, image_id: str) -> None:
        """Let an image be gone: nothing new is launched from it, and nobody lists it."""
        self._images.pop(image_id, None)

    def get(self, image_id: str) -> Image | None:
        """Return an image; None when there is no such one."""
        return self._images.get(image_id)

    def newest_of(self, family: str) -> Image | None:
        """Return the newest image of an ImageFamily of the account's own."""
        found = [each for each in self._images.values() if each.family == family]
        return found[-1] if found else None

    @property
    def all(self) -> Sequence[Image]:
        """Every image, in the order in which they came."""
        return list(self._images.values())

    # Answers to API calls.

    def listed_by_ack(self) -> Sequence[Mapping[str, str]]:
        """Return the images for nodes as DescribeKubernetesVersionMetadata lists them."""
        return [
            {
                "image_id": each.id,
                "image_name": each.name,
                "platform": "AliyunLinux" if each.ack_type.startswith("Aliyun") else each.ack_type,
                "os_version": "3",
                "image_type": each.ack_type,
                "os_type": "Linux",
                "image_category": "system",
                "architecture": each.architecture,
            }
            for each in self._images.values()
            if each.ack_type
        ]

    def describe_images(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer DescribeImages, the newest first."""
        request.required("RegionId")
        ids = [each for each in request.text("ImageId").split(",") if each]
        owners = {request.choice("ImageOwnerAlias", _ALIASES)}
        found = [
            each
            for each in reversed(self._images.values())
            if (not ids or each.id in ids)
            and request.text("ImageName") in {"", each.name}
            and request.text("ImageFamily") in {"", each.family}
            and request.text("Architecture") in {"", each.architecture}
            and (owners == {""} or each.owner in owners)
            and each.status in request.text("Status", "Available").split(",")
            and tags_match(each.tags, request)
        ]
        page, reply = numbered_page(found, request, most=_MOST_IMAGES)
        rows = [
            {
                "ImageId": each.id,
                "ImageName": each.name,
                "ImageFamily": each.family,
                "ImageOwnerAlias": each.owner,
                "ImageVersion": "",
                "Architecture": each.architecture,
                "Platform": each.platform,
                "OSType": "linux",
                "OSName": each.os_name,
                "OSNameEn": each.os_name,
                "Size": each.size_gib,
                "Status": each.status,
                "Usage": "none",
                "CreationTime": to_seconds(each.made_at),
                "IsPublic": each.owner == "system",
                "IsSupportCloudinit": True,
                "IsSupportIoOptimized": True,
                "BootMode": "UEFI",
                "Progress": "100%",
                "Tags": {
                    "Tag": [{"TagKey": key, "TagValue": value} for key, value in each.tags.items()]
                },
            }
            for each in page
        ]
        return {"Images": {"Image": rows}, "RegionId": self._account.region, **reply}
