"""Selects the images of a NodeClass.

Aliases are looked up in the list of images that ACK publishes for the cluster's version of
Kubernetes; all other images are read from ECS. The first image of each architecture counts, in the
order of the terms, and the newest first where a term matches several.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import ARCH
from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.provider.kit.node_class.discovery import DiscoveryResult, QueryTerm
from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_provider_alibabacloud.api.families import ImageFamily
from karpenter_provider_alibabacloud.api.nodeclass import Image
from karpenter_provider_alibabacloud.api_answers import objects_at, text_of
from karpenter_provider_alibabacloud.discovery.call_errors import core_errors_of
from karpenter_provider_alibabacloud.discovery.families import (
    ARCHITECTURES,
    ListedImage,
    chosen_images,
)
from karpenter_provider_alibabacloud.discovery.queries import (
    DiscoveryQuery,
    described,
    tag_parameters,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from karpenter_core.clock import Clock
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass, ImageAlias, ImageTerm
    from karpenter_provider_alibabacloud.discovery.cluster import ClusterReader
    from karpenter_provider_alibabacloud.sdk import CloudClients

__all__ = ["DescribedImage", "ImageReader", "first_of_each_architecture", "image_query"]

FIELD: Final = "spec.imageSelectorTerms"
PAGE_SIZE: Final = 100
TTL: Final = timedelta(minutes=1)
MANAGED: Final = "ManagedKubernetes"


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedImage:
    """An image as ECS or ACK describes it."""

    id: str
    name: str
    architecture: str
    """The cloud's name: `x86_64`, `arm64`, `i386`."""
    created: str = ""
    """In ISO 8601, which sorts as it should."""


def image_query(index: int, term: ImageTerm) -> DiscoveryQuery | None:
    """Return what a term asks ECS for; None for a term that says nothing, as that of an alias."""
    parameters: dict[str, object] = {
        "ImageFamily": term.image_family,
        "ImageId": term.id,
        "ImageName": term.name,
        "ImageOwnerAlias": term.owner_alias,
        "Tag": tag_parameters(term.tags),
    }
    given = tuple(sorted((name, value) for name, value in parameters.items() if value))
    term_text = described(
        (
            ("id", term.id),
            ("name", term.name),
            ("tags", term.tags),
            ("imageFamily", term.image_family),
            ("ownerAlias", term.owner_alias),
        )
    )
    # An owner alone selects hundreds of images, and so states no wish.
    if {name for name, _ in given} <= {"ImageOwnerAlias"}:
        return None
    return DiscoveryQuery(given, (QueryTerm(f"{FIELD}[{index}] {term_text}", term.id),))


def first_of_each_architecture(images: Iterable[DescribedImage]) -> tuple[Image, ...]:
    """Return the images that count, by name and id, with what an instance type needs to run them.

    Those of architectures that no node has are left out.
    """
    first: dict[str, DescribedImage] = {}
    for image in images:
        if image.architecture in ARCHITECTURES:
            first.setdefault(image.architecture, image)
    counting = (
        Image(
            id=image.id,
            name=image.name,
            requirements=(
                RequirementSpec(
                    key=ARCH, operator="In", values=(ARCHITECTURES[image.architecture],)
                ),
            ),
        )
        for image in first.values()
    )
    return tuple(sorted(counting, key=lambda image: (image.name, image.id)))


@final
class ImageReader:
    """Finds images; callable from any thread."""

    def __init__(self, clients: CloudClients, clock: Clock, cluster: ClusterReader) -> None:
        self._clients: Final = clients
        self._cluster: Final = cluster
        self._owned: Final[TtlCache[DiscoveryQuery, tuple[DescribedImage, ...]]] = TtlCache(
            clock, TTL
        )
        self._listed: Final[TtlCache[str, tuple[ListedImage, ...]]] = TtlCache(clock, TTL)

    def find(self, node_class: ECSNodeClass) -> DiscoveryResult[Image]:
        """Return the images that the NodeClass means.

        An answer with none of a term's is not kept: it is looked at again sooner than what was found.

        Raises:
            CloudProviderError: ECS or ACK refused or did not answer (`discovery.call_errors`).
        """
        images: list[DescribedImage] = []
        absent: list[str] = []
        for index, term in enumerate(node_class.spec.image_selector_terms):
            term_images, term_text = self._of_term(index, term)
            usable = [image for image in term_images if image.architecture in ARCHITECTURES]
            images.extend(usable)
            if not usable:
                absent.append(term_text)
        return DiscoveryResult(items=first_of_each_architecture(images), absent=tuple(absent))

    def _of_term(self, index: int, term: ImageTerm) -> tuple[Sequence[DescribedImage], str]:
        """Return the images of a term, and its text for the case that no node can run one."""
        alias = term.parsed_alias
        if alias is not None:
            return self._published(alias, f'{FIELD}[{index}] alias "{term.alias}"')
        query = image_query(index, term)
        if query is None:
            return (), f"{FIELD}[{index}] (it is empty)"
        images = self._owned.get(query)
        if images is None:
            images = self._described(query)
            if images:
                self._owned.put(query, images)
        name = query.terms[0].text
        odd = sorted({image.architecture for image in images} - ARCHITECTURES.keys())
        return images, f"{name} (an image for {', '.join(odd)})" if odd else name

    def _published(self, alias: ImageAlias, term_text: str) -> tuple[Sequence[DescribedImage], str]:
        if alias.family is None:
            return (), f"{term_text} (families are {', '.join(ImageFamily)})"
        if self._cluster.is_custom:
            return (
                (),
                f"{term_text} (of a Custom cluster only id, name, tags and imageFamily are known)",
            )
        version = self._cluster.details().kubernetes_version
        listed = self._listed.get(version)
        if listed is None:
            listed = self._fetched(version)
            self._listed.put(version, listed)
        chosen = [
            DescribedImage(id=image.id, name=image.name, architecture=image.architecture)
            for image in chosen_images(alias, listed)
        ]
        if not chosen:
            self._listed.drop(version)
        return chosen, f"{term_text} (among ACK's images for Kubernetes {version})"

    def _fetched(self, version: str) -> tuple[ListedImage, ...]:
        with core_errors_of():
            answer = self._clients.ack.call(
                "DescribeKubernetesVersionMetadata",
                {
                    "Region": self._clients.region,
                    "ClusterType": MANAGED,
                    "KubernetesVersion": version,
                },
            )
        action = "cs:DescribeKubernetesVersionMetadata"
        releases = objects_at(answer, "body", action=action)
        images = objects_at(releases[0], "images", action=action) if releases else []
        return tuple(
            ListedImage(
                id=text_of(item, "image_id"),
                name=text_of(item, "image_name"),
                architecture=text_of(item, "architecture"),
                kind=text_of(item, "image_type"),
                system=text_of(item, "os_type") or "linux",
            )
            for item in images
        )

    def _described(self, query: DiscoveryQuery) -> tuple[DescribedImage, ...]:
        """Return the newest first; an image that is named by its id may be an expired one."""
        parameters = query.to_api()
        with core_errors_of():
            pages = self._clients.ecs.pages(
                "DescribeImages",
                {
                    "RegionId": self._clients.region,
                    "PageSize": PAGE_SIZE,
                    "ShowExpired": True if "ImageId" in parameters else None,
                    **parameters,
                },
                items="Images.Image",
            )
            images = [
                DescribedImage(
                    id=text_of(item, "ImageId"),
                    name=text_of(item, "ImageName"),
                    architecture=text_of(item, "Architecture"),
                    created=text_of(item, "CreationTime"),
                )
                for item in pages
            ]
        by_id = sorted(images, key=lambda image: image.id)
        return tuple(sorted(by_id, key=lambda image: image.created, reverse=True))
