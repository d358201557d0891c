"""Selects the images of a NodeClass.

An alias names images by public SSM parameters, one for each variant (GPU drivers, architecture);
all other terms name images themselves. The status lists one image for each set of requirements: the
newest that is not deprecated.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias, final

from karpenter_core.api.labels import ARCH
from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.node_class.discovery import (
    DiscoveryResult,
    QueryTerm,
    absent_terms,
    tag_text,
)
from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_provider_aws.api.families import AmiFamily
from karpenter_provider_aws.api.node_class_status import Ami
from karpenter_provider_aws.discovery.call_errors import core_errors_of
from karpenter_provider_aws.discovery.queries import DescribeFilter, DiscoveryQuery, tag_filters
from karpenter_provider_aws.families.family import image_parameters
from karpenter_provider_aws.paging import ending_pages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from types_boto3_ec2.type_defs import ImageTypeDef

    from karpenter_core.clock import Clock
    from karpenter_provider_aws.api.families import AmiAlias
    from karpenter_provider_aws.api.nodeclass import AmiTerm, EC2NodeClass
    from karpenter_provider_aws.discovery.parameters import SsmParameterReader
    from karpenter_provider_aws.sdk import CloudClients

__all__ = [
    "DescribedImage",
    "ImageReader",
    "RequirementSets",
    "image_queries",
    "minor_version",
    "select_images",
    "unsupported_alias",
]

FIELD: Final = "spec.amiSelectorTerms"
PAGE_SIZE: Final = 1000
AL2_ENDS_WITH: Final = (1, 33)
"""The first minor version of Kubernetes for which EKS publishes no image of Amazon Linux 2."""
WINDOWS2025_BEGINS_WITH: Final = (1, 35)

_ARCHITECTURES: Final = {"x86_64": "amd64", "arm64": "arm64"}
_DAWN: Final = datetime.min.replace(tzinfo=UTC)
_DOOM: Final = datetime.max.replace(tzinfo=UTC)
_DEFAULT_OWNERS: Final = ("self", "amazon")
_AVAILABLE: Final = DescribeFilter("state", ("available",))

RequirementSets: TypeAlias = "tuple[tuple[RequirementSpec, ...], ...]"
"""Requirements of an image beside its architecture: a type must meet any of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedImage:
    """An image as EC2 describes it."""

    id: str
    name: str
    architecture: str
    """As labels have it: `amd64` or `arm64`."""
    created: datetime
    deprecated_from: datetime
    """The end of time for an image that is not deprecated."""

    def is_deprecated(self, now: datetime) -> bool:
        """Whether its owner has deprecated it."""
        return self.deprecated_from <= now


def minor_version(version: str) -> str:
    """Return `1.34` of `v1.34.2-eks-1234`, and nothing of a text that is no version."""
    major, _, rest = version.removeprefix("v").partition(".")
    minor = rest.split(".")[0].rstrip("+")
    return f"{major}.{minor}" if major.isdigit() and minor.isdigit() else ""


def unsupported_alias(alias: AmiAlias, kubernetes_version: str) -> str:
    """Return why there are no such images for this version of Kubernetes; empty when there may be."""
    text = minor_version(kubernetes_version)
    if not text:
        return ""
    major, _, minor = text.partition(".")
    version = (int(major), int(minor))
    said = f'{FIELD}[0].alias "{alias}" does not exist for Kubernetes {text}: EKS has no images of '
    if alias.family is AmiFamily.AL2 and version >= AL2_ENDS_WITH:
        return f"{said}Amazon Linux 2 from 1.33 on"
    if alias.family is AmiFamily.WINDOWS2025 and version < WINDOWS2025_BEGINS_WITH:
        return f"{said}Windows Server 2025 before 1.35"
    return ""


def image_queries(
    terms: Sequence[AmiTerm], parameters: Mapping[str, str | None]
) -> tuple[tuple[DiscoveryQuery, ...], tuple[str, ...]]:
    """Return one query for each term with tags or a name, one for all ids, and useless terms.

    `parameters` are the values of the terms' SSM parameters, None for one that does not exist.
    """
    queries: list[DiscoveryQuery] = []
    named: list[QueryTerm] = []
    useless: list[str] = []
    for index, term in enumerate(terms):
        where = f"{FIELD}[{index}]"
        if term.id:
            named.append(QueryTerm(f'{where}.id "{term.id}"', term.id))
        elif term.ssm_parameter:
            value = parameters.get(term.ssm_parameter)
            text = f'{where}.ssmParameter "{term.ssm_parameter}"'
            if value is None:
                useless.append(f"{text} (there is no such parameter)")
            elif value.startswith("ami-"):
                named.append(QueryTerm(f'{text} (its value "{value}")', value))
            else:
                useless.append(f'{text} (its value "{value}" is no image id)')
        elif term.name or term.tags:
            queries.append(_described_query(term, where))
    if named:
        ids = tuple(dict.fromkeys(part.pattern for part in named))
        filters = (_AVAILABLE, DescribeFilter("image-id", ids))
        queries.append(DiscoveryQuery(filters=filters, terms=tuple(named)))
    return tuple(queries), tuple(useless)


def _described_query(term: AmiTerm, where: str) -> DiscoveryQuery:
    """Return the query for a term that describes images: anybody's only if it says so."""
    filters = [_AVAILABLE]
    owners: tuple[str, ...] = (term.owner,) if term.owner else ()
    said: list[str] = [f'owner "{term.owner}"'] if term.owner else []
    if term.name:
        # Anybody can publish an image under any name.
        owners = owners or _DEFAULT_OWNERS
        filters.append(DescribeFilter("name", (term.name,)))
        said.append(f'name "{term.name}"')
    if term.tags:
        filters += tag_filters(term.tags)
        said.append(f"tags {tag_text(term.tags)}")
    part = QueryTerm(f"{where} ({', '.join(said)})")
    return DiscoveryQuery(filters=tuple(filters), owners=owners, terms=(part,))


def select_images(
    images: Iterable[DescribedImage],
    requirement_sets: Mapping[str, RequirementSets],
    *,
    now: datetime,
) -> tuple[Ami, ...]:
    """Return for each set of requirements the one image to use; the newest image comes first.

    Of images for the same instances one that is not deprecated wins, then the newer, then the one
    whose name is greater. `requirement_sets` is by image id; an image that is not named is for all
    instances of its architecture.
    """
    chosen: dict[tuple[RequirementSpec, ...], DescribedImage] = {}
    for image in sorted(images, key=lambda image: image.id):
        for extra in requirement_sets.get(image.id, ((),)):
            requirements = _requirements(image, extra)
            best = chosen.get(requirements)
            if best is None or _rank(image, now) > _rank(best, now):
                chosen[requirements] = image
    ordered = sorted(
        chosen.items(),
        key=lambda item: (-item[1].created.timestamp(), item[1].id, str(item[0])),
    )
    return tuple(
        Ami(
            id=image.id,
            name=image.name,
            deprecated=image.is_deprecated(now) or None,
            requirements=requirements,
        )
        for requirements, image in ordered
    )


def _rank(image: DescribedImage, now: datetime) -> tuple[bool, datetime, str]:
    return not image.is_deprecated(now), image.created.replace(microsecond=0), image.name


def _requirements(
    image: DescribedImage, extra: Iterable[RequirementSpec]
) -> tuple[RequirementSpec, ...]:
    architecture = RequirementSpec(key=ARCH, operator="In", values=(image.architecture,))
    return tuple(sorted((architecture, *extra), key=lambda spec: (len(spec.key), spec.key)))


def _read(item: ImageTypeDef) -> DescribedImage | None:
    """Read EC2's description; None for an architecture on which no node runs."""
    architecture = _ARCHITECTURES.get(item.get("Architecture", ""))
    if architecture is None:
        return None
    return DescribedImage(
        id=item.get("ImageId", ""),
        name=item.get("Name", ""),
        architecture=architecture,
        created=_instant(item.get("CreationDate", ""), default=_DAWN),
        deprecated_from=_instant(item.get("DeprecationTime", ""), default=_DOOM),
    )


def _instant(text: str, *, default: datetime) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return default
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ImageQueries:
    """The queries of EC2 for a NodeClass."""

    queries: tuple[DiscoveryQuery, ...]
    requirement_sets: Mapping[str, RequirementSets]
    useless: tuple[str, ...]


@final
class ImageReader:
    """Reads images; callable from any thread."""

    def __init__(
        self,
        clients: CloudClients,
        clock: Clock,
        *,
        parameters: SsmParameterReader,
        kubernetes_version: Callable[[], str],
        refresh_interval: timedelta,
    ) -> None:
        """`kubernetes_version` is asked for each alias: `1.34`, with or without more."""
        self._clients: Final = clients
        self._clock: Final = clock
        self._parameters: Final = parameters
        self._kubernetes_version: Final = kubernetes_version
        self._cache: Final[TtlCache[DiscoveryQuery, tuple[DescribedImage, ...]]]
        self._cache = TtlCache(clock, refresh_interval)

    def find(self, node_class: EC2NodeClass) -> DiscoveryResult[Ami]:
        """Return the images of a NodeClass as its status lists them.

        An alias that this version of Kubernetes does not have (`unsupported_alias`) finds none.

        Raises:
            CloudProviderError: EC2 or SSM refused or did not answer (`discovery.call_errors`).
        """
        alias = node_class.alias
        image_queries = self._of_terms(node_class) if alias is None else self._of_alias(alias)
        answers = [self._images(query) for query in image_queries.queries]
        return DiscoveryResult(
            items=select_images(
                (image for answer in answers for image in answer),
                image_queries.requirement_sets,
                now=self._clock.now(),
            ),
            absent=(
                *image_queries.useless,
                *absent_terms(image_queries.queries, answers, keys=lambda image: (image.id,)),
            ),
        )

    def unsupported(self, node_class: EC2NodeClass) -> str:
        """Return why the NodeClass's alias has no images for this version; empty if it may have."""
        alias = node_class.alias
        return "" if alias is None else unsupported_alias(alias, self._kubernetes_version())

    def forget_deprecated(self) -> tuple[str, ...]:
        """Stop believing parameters whose image was deprecated or is gone; return their paths.

        An image that turned out bad is deprecated: its successor is wanted sooner than in a day.

        Raises:
            CloudProviderError: EC2 refused or did not answer (`discovery.call_errors`).
        """
        values = self._parameters.mutable_values()
        if not values:
            return ()
        now = self._clock.now()
        ids = tuple(sorted(set(values.values())))
        query = DiscoveryQuery(filters=(_AVAILABLE, DescribeFilter("image-id", ids)), terms=())
        good = {image.id for image in self._describe(query) if not image.is_deprecated(now)}
        stale = tuple(path for path, image_id in sorted(values.items()) if image_id not in good)
        for path in stale:
            self._parameters.forget(path)
        return stale

    def _of_alias(self, alias: AmiAlias) -> _ImageQueries:
        version = minor_version(self._kubernetes_version())
        if not version:
            raise CloudProviderError("the cluster's version of Kubernetes is not known")
        sets: dict[str, RequirementSets] = {}
        for parameter in image_parameters(alias, version):
            # A variant that is not there is left out; one that could not be asked for is not,
            # or all its nodes would have drifted.
            image_id = self._parameters.public(parameter.path, mutable=parameter.mutable)
            if image_id is not None:
                sets[image_id] = (*sets.get(image_id, ()), *parameter.requirement_sets)
        text = f'{FIELD}[0].alias "{alias}"'
        if not sets:
            useless = f"{text} (no SSM parameter of it exists for Kubernetes {version})"
            return _ImageQueries(queries=(), requirement_sets={}, useless=(useless,))
        filters = (_AVAILABLE, DescribeFilter("image-id", tuple(sets)))
        query = DiscoveryQuery(filters=filters, terms=(QueryTerm(text),))
        return _ImageQueries(queries=(query,), requirement_sets=sets, useless=())

    def _of_terms(self, node_class: EC2NodeClass) -> _ImageQueries:
        terms = node_class.spec.ami_selector_terms
        names = dict.fromkeys(term.ssm_parameter for term in terms if term.ssm_parameter)
        values = {name: self._parameters.own(name) for name in names}
        queries, useless = image_queries(terms, values)
        return _ImageQueries(queries=queries, requirement_sets={}, useless=useless)

    def _images(self, query: DiscoveryQuery) -> tuple[DescribedImage, ...]:
        images = self._cache.get(query)
        if images is None:
            images = tuple(self._describe(query))
            self._cache.put(query, images)
        return images

    def _describe(self, query: DiscoveryQuery) -> list[DescribedImage]:
        with core_errors_of("ec2:DescribeImages"):
            pages = self._clients.ec2.get_paginator("describe_images").paginate(
                Filters=query.filters_to_api(),
                Owners=list(query.owners),
                IncludeDeprecated=True,
                PaginationConfig={"PageSize": PAGE_SIZE},
            )
            read = [_read(item) for page in ending_pages(pages) for item in page["Images"]]
        return [image for image in read if image is not None]
