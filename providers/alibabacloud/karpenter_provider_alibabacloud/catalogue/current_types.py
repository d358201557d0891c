"""Lists current instance types, and requests prices of launchable ones."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, final

from karpenter_core.api.labels import WELL_KNOWN
from karpenter_core.provider.catalogue import Requirements
from karpenter_provider_alibabacloud import labels
from karpenter_provider_alibabacloud.catalogue.instance_types import CatalogueInputs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.clock import Clock
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
    from karpenter_provider_alibabacloud.catalogue.instance_types import InstanceTypeCatalogue
    from karpenter_provider_alibabacloud.discovery.cluster import ClusterDetails

__all__ = ["CurrentInstanceTypes", "launchable"]

_KNOWN_LABELS: Final = WELL_KNOWN | labels.WELL_KNOWN


def launchable(types: Iterable[InstanceType], node_pool: NodePool) -> tuple[str, ...]:
    """Return the names of the types that a NodePool may launch by its requirements and labels."""
    template = node_pool.spec.template
    pool_requirements = Requirements.from_specs(template.spec.requirements).merge(
        Requirements.from_labels(template.metadata.labels)
    )
    return tuple(
        it.name
        for it in types
        # Unknown labels are the pool's own: its nodes have them.
        if it.requirements.compatible(
            pool_requirements, allow_undefined=_KNOWN_LABELS | frozenset(pool_requirements.keys())
        )
    )


class _LaunchableTypes(NamedTuple):
    """The launchable types of a NodePool, and the inputs that they follow from."""

    types: tuple[InstanceType, ...]
    template: object
    names: tuple[str, ...]


@final
class CurrentInstanceTypes:
    """Lists the instance types of a NodeClass as they are now; callable from any thread."""

    def __init__(
        self,
        catalogue: InstanceTypeCatalogue,
        clock: Clock,
        *,
        cluster: Callable[[], ClusterDetails],
        consider: Callable[[Iterable[str]], bool],
        wake_prices: Callable[[], None],
    ) -> None:
        """`cluster` is `Clusters.details`, `consider` is `PriceReader.consider`.

        `wake_prices` is called when prices are wanted that have not been read.
        """
        self._catalogue: Final = catalogue
        self._clock: Final = clock
        self._cluster: Final = cluster
        self._consider: Final = consider
        self._wake_prices: Final = wake_prices
        self._lock: Final = Lock()
        self._launchable_by_pool: Final[dict[str, _LaunchableTypes]] = {}

    def instance_types(
        self, node_class: ECSNodeClass, node_pool: NodePool | None = None
    ) -> tuple[InstanceType, ...]:
        """Return every type that the region sells (as `InstanceTypeCatalogue.instance_types`).

        Prices are read exactly of those that the NodePool may launch.
        """
        types = self._catalogue.instance_types(node_class, self._situation())
        if node_pool is not None and self._consider(self._launchable(types, node_pool)):
            self._wake_prices()
        return types

    def max_pods(self, node_class: ECSNodeClass) -> Callable[[str], int | None]:
        """Return a function from a type's name to its kubelet's limit of pods (`max_pods`)."""
        return self._catalogue.max_pods(node_class, self._situation())

    def image_for(self, node_class: ECSNodeClass) -> Callable[[str], str]:
        """Return a function from a type's name to the image of its nodes (`image_for`)."""
        return self._catalogue.image_for(node_class, self._situation())

    def learn_memory(
        self, node_class: ECSNodeClass, *, instance_type: str, image_id: str, memory_bytes: int
    ) -> bool:
        """Note how much memory a registered node has (as `InstanceTypeCatalogue.learn_memory`)."""
        return self._catalogue.learn_memory(
            node_class,
            self._situation(),
            instance_type=instance_type,
            image_id=image_id,
            memory_bytes=memory_bytes,
        )

    def _situation(self) -> CatalogueInputs:
        return CatalogueInputs(now=self._clock.now(), cluster=self._cluster())

    def _launchable(self, types: tuple[InstanceType, ...], node_pool: NodePool) -> Sequence[str]:
        name, template = node_pool.metadata.name, node_pool.spec.template
        with self._lock:
            cached = self._launchable_by_pool.get(name)
        if cached is None or cached.types is not types or cached.template != template:
            cached = _LaunchableTypes(types, template, launchable(types, node_pool))
            with self._lock:
                self._launchable_by_pool[name] = cached
        return cached.names
