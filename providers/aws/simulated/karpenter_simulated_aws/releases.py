"""The images that AWS publishes for EKS nodes, and their parameters."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, final

from karpenter_simulated_aws.images import AMAZON, Image

if TYPE_CHECKING:
    from collections.abc import Iterator

    from karpenter_simulated_aws.account import Account
    from karpenter_simulated_aws.images import Images, SsmParameters

__all__ = ["KUBERNETES_VERSIONS", "ImageReleases"]

KUBERNETES_VERSIONS: Final = ("1.32", "1.33", "1.34", "1.35", "1.36")
_AL2_UNTIL: Final = 32
_WINDOWS_2025_FROM: Final = 35
_AMAZON_WINDOWS: Final = "801119661308"
_BOTTLEROCKET: Final = "149721548608"

_FIRST: Final = (datetime(2026, 1, 12, tzinfo=UTC), "v20260112", "1.45.0", "2026.01.12")
_SECOND: Final = (datetime(2026, 6, 8, tzinfo=UTC), "v20260608", "1.46.0", "2026.06.08")


@dataclass(frozen=True, slots=True, kw_only=True)
class _PublishedImage:
    """One image and the parameters that name it."""

    name: str
    architecture: str
    pinned: str
    """The parameter of this release alone; empty when there is none."""
    latest: str
    """The parameter of the newest release."""
    owner: str = AMAZON
    windows: bool = False


@final
class ImageReleases:
    """The published images; a release of a family replaces its newest one."""

    def __init__(self, account: Account, images: Images, parameters: SsmParameters) -> None:
        self._account: Final = account
        self._images: Final = images
        self._parameters: Final = parameters

    def publish_all(self) -> None:
        """Publish two releases of every family for every version of Kubernetes."""
        for created_at, eks, bottlerocket, windows in (_FIRST, _SECOND):
            for version in KUBERNETES_VERSIONS:
                minor = int(version.partition(".")[2])
                if minor <= _AL2_UNTIL:
                    self.publish("al2", version, eks, created_at=created_at)
                self.publish("al2023", version, eks, created_at=created_at)
                self.publish("bottlerocket", version, bottlerocket, created_at=created_at)
                for year in ("2019", "2022", "2025"):
                    if year != "2025" or minor >= _WINDOWS_2025_FROM:
                        self.publish(f"windows{year}", version, windows, created_at=created_at)

    def publish(
        self,
        family: str,
        kubernetes: str,
        release: str,
        *,
        created_at: datetime,
    ) -> tuple[Image, ...]:
        """Publish the images of a family (an alias's name, `al2023`) for a version of Kubernetes."""
        published: list[Image] = []
        for one in _images_of(family, kubernetes, release):
            image = self._images.add(
                Image(
                    id=self._account.ids.named("ami", one.name),
                    name=one.name,
                    created_at=created_at,
                    architecture=one.architecture,
                    owner=one.owner,
                    windows=one.windows,
                    root_device="/dev/sda1" if one.windows else "/dev/xvda",
                )
            )
            for parameter in (one.pinned, one.latest):
                if parameter:
                    self._parameters.put(f"{parameter}/image_id", image.id)
            published.append(image)
        return tuple(published)


def _images_of(family: str, kubernetes: str, release: str) -> Iterator[_PublishedImage]:
    match family:
        case "al2":
            return _al2(kubernetes, release)
        case "al2023":
            return _al2023(kubernetes, release)
        case "bottlerocket":
            return _bottlerocket(kubernetes, release)
        case _:
            return _windows(kubernetes, release, year=family.removeprefix("windows"))


def _al2(kubernetes: str, release: str) -> Iterator[_PublishedImage]:
    for variant, architecture in (("", "x86_64"), ("-arm64", "arm64"), ("-gpu", "x86_64")):
        folder = f"/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2{variant}"
        name = f"amazon-eks{variant}-node-{kubernetes}-{release}"
        yield _PublishedImage(
            name=name,
            architecture=architecture,
            pinned=f"{folder}/{name}",
            latest=f"{folder}/recommended",
        )


def _al2023(kubernetes: str, release: str) -> Iterator[_PublishedImage]:
    for architecture, variants in (
        ("x86_64", ("standard", "nvidia", "neuron")),
        ("arm64", ("standard", "nvidia")),
    ):
        for variant in variants:
            folder = (
                f"/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2023"
                f"/{architecture}/{variant}"
            )
            name = f"amazon-eks-node-al2023-{architecture}-{variant}-{kubernetes}-{release}"
            yield _PublishedImage(
                name=name,
                architecture=architecture,
                pinned=f"{folder}/{name}",
                latest=f"{folder}/recommended",
            )


def _bottlerocket(kubernetes: str, release: str) -> Iterator[_PublishedImage]:
    for variant in ("", "-nvidia"):
        for architecture in ("x86_64", "arm64"):
            folder = f"/aws/service/bottlerocket/aws-k8s-{kubernetes}{variant}/{architecture}"
            yield _PublishedImage(
                name=f"bottlerocket-aws-k8s-{kubernetes}{variant}-{architecture}-v{release}-0f1e2d3c",
                architecture=architecture,
                pinned=f"{folder}/{release}",
                latest=f"{folder}/latest",
                owner=_BOTTLEROCKET,
            )


def _windows(kubernetes: str, release: str, *, year: str) -> Iterator[_PublishedImage]:
    name = f"Windows_Server-{year}-English-Core-EKS_Optimized-{kubernetes}"
    yield _PublishedImage(
        name=f"{name}-{release}",
        architecture="x86_64",
        pinned="",
        latest=f"/aws/service/ami-windows-latest/{name}",
        owner=_AMAZON_WINDOWS,
        windows=True,
    )
