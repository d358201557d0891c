"""Resolves the status and conditions of a NodeClass.

Answers `karpenter_resolve_node_class`. vSwitches, security groups, images and reservations are read
at once, and each is resolved, whatever became of the others. A condition shows a refusal by the
cloud. A part that the cloud does not answer keeps its earlier result, for a while; when no part is
answered, there is no answer.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, final

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.node_class.parts import current_condition, resolution_of
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClassStatus
from karpenter_provider_alibabacloud.discovery import (
    images,
    reservations,
    security_groups,
    vswitches,
)
from karpenter_provider_alibabacloud.discovery.call_errors import is_refusal
from karpenter_provider_alibabacloud.discovery.queries import DiscoveryResult
from karpenter_provider_alibabacloud.node_class import parts
from karpenter_provider_alibabacloud.node_class.conditions import (
    CAPACITY_RESERVATIONS_READY,
    IMAGES_READY,
    SECURITY_GROUPS_READY,
    VSWITCHES_READY,
    long_unanswered_condition,
    refused_condition,
    unanswered_condition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from karpenter_core.api.conditions import Condition
    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import NodeClassResolution
    from karpenter_core.provider.kit.node_class.parts import ResolutionPart
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
    from karpenter_provider_alibabacloud.discovery.images import ImageReader
    from karpenter_provider_alibabacloud.discovery.reservations import (
        DescribedReservation,
        ReservationReader,
    )
    from karpenter_provider_alibabacloud.discovery.security_groups import SecurityGroupReader
    from karpenter_provider_alibabacloud.discovery.vswitches import VSwitchReader

__all__ = ["NodeClassDiscovery", "NodeClassResolver"]

LAUNCH_NEEDS: Final = (VSWITCHES_READY, SECURITY_GROUPS_READY, IMAGES_READY)
"""What is always asked, and without which no launch can be tried out."""
MAX_SILENCE: Final = 3
"""After so many looks without an answer in a row, what was found before does not stand any longer."""

T = TypeVar("T")


class NodeClassValidation(Protocol):
    """The methods of `NodeClassValidator` that a resolution uses."""

    def validate(
        self, node_class: ECSNodeClass, dependencies: Iterable[Condition]
    ) -> ResolutionPart:
        """Return the condition."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClassDiscovery:
    """All that discovery can find."""

    vswitches: VSwitchReader
    security_groups: SecurityGroupReader
    images: ImageReader
    reservations: ReservationReader | None
    """None when the feature gate ReservedCapacity is off."""


@dataclass(frozen=True, slots=True)
class _SearchResult(Generic[T]):
    """The result of a search: resources, or an error."""

    found: T | None
    error: CloudProviderError | None = None


@final
class NodeClassResolver:
    """Resolves NodeClasses; callable from any thread."""

    def __init__(
        self, discovery: NodeClassDiscovery, validation: NodeClassValidation, clock: Clock
    ) -> None:
        self._discovery: Final = discovery
        self._validation: Final = validation
        self._clock: Final = clock
        self._lock: Final = Lock()
        self._silences: Final[dict[tuple[str, str], int]] = {}
        """Number of consecutive unanswered reads, by UID and type of condition."""

    def resolve(self, node_class: ECSNodeClass) -> NodeClassResolution:
        """Return status and conditions of a NodeClass.

        Raises:
            CloudProviderError: the cloud could be asked for nothing.
        """
        resolved_parts = self._resolved_parts(node_class)
        needed = [part for part in resolved_parts if part.condition.type in LAUNCH_NEEDS]
        silent = [part for part in needed if not part.is_answered]
        if len(silent) == len(needed):
            raise CloudProviderError("; ".join(part.condition.message for part in silent))
        status = {name: value for part in resolved_parts for name, value in part.status.items()}
        generation, before = node_class.metadata.generation, node_class.status.conditions
        needs = [current_condition(part, before, generation=generation)[0] for part in needed]
        validated = self._validation.validate(_with_status(node_class, status), needs)
        return resolution_of(node_class, [*resolved_parts, validated])

    def forget(self, node_class: ECSNodeClass) -> None:
        """Forget a NodeClass that is gone."""
        with self._lock:
            for key in [key for key in self._silences if key[0] == node_class.uid]:
                del self._silences[key]

    def _resolved_parts(self, node_class: ECSNodeClass) -> list[ResolutionPart]:
        """Ask for all at once: a service that is silent holds up no other."""
        spec, finder = node_class.spec, self._discovery
        with ThreadPoolExecutor(4, thread_name_prefix="alibabacloud-discovery") as pool:
            switches = pool.submit(
                _search, lambda: finder.vswitches.find(spec.v_switch_selector_terms)
            )
            groups = pool.submit(
                _search, lambda: finder.security_groups.find(spec.security_group_selector_terms)
            )
            pictures = pool.submit(_search, lambda: finder.images.find(node_class))
            pools = pool.submit(_search, lambda: self._reserved(node_class))
        found_switches = switches.result()
        networks = (
            frozenset[str]() if found_switches.found is None else parts.vpcs(found_switches.found)
        )
        drafts = [
            _part(VSWITCHES_READY, vswitches.FIELD, found_switches, parts.vswitch_part),
            _part(
                SECURITY_GROUPS_READY,
                security_groups.FIELD,
                groups.result(),
                lambda found: parts.security_group_part(found, networks),
            ),
            _part(IMAGES_READY, images.FIELD, pictures.result(), parts.image_part),
        ]
        nobody_answers = not any(part.is_answered for part, _ in drafts)
        if finder.reservations is not None:
            now = self._clock.now()
            drafts.append(
                _part(
                    CAPACITY_RESERVATIONS_READY,
                    reservations.FIELD,
                    pools.result(),
                    lambda found: parts.reservation_part(found, now=now),
                )
            )
        return [
            self._counted(node_class, *draft, nobody_answers=nobody_answers) for draft in drafts
        ]

    def _reserved(self, node_class: ECSNodeClass) -> DiscoveryResult[DescribedReservation]:
        finder, terms = (
            self._discovery.reservations,
            node_class.spec.capacity_reservation_selector_terms,
        )
        return DiscoveryResult(items=()) if finder is None else finder.find(terms)

    def _counted(
        self,
        node_class: ECSNodeClass,
        part: ResolutionPart,
        error: CloudProviderError | None,
        *,
        nobody_answers: bool,
    ) -> ResolutionPart:
        key = (node_class.uid, part.condition.type)
        with self._lock:
            if part.is_answered or error is None:
                self._silences.pop(key, None)
                return part
            count = self._silences[key] = self._silences.get(key, 0) + 1
        # When nothing is answered the last finding stands however long that lasts (PC-014).
        if nobody_answers or count < MAX_SILENCE:
            return part
        return long_unanswered_condition(part, error)


def _search(find: Callable[[], DiscoveryResult[T]]) -> _SearchResult[DiscoveryResult[T]]:
    try:
        return _SearchResult(find())
    except CloudProviderError as error:
        return _SearchResult(None, error)


def _part(
    condition_type: str, field: str, search: _SearchResult[T], made: Callable[[T], ResolutionPart]
) -> tuple[ResolutionPart, CloudProviderError | None]:
    if search.found is not None:
        return made(search.found), None
    error = search.error or CloudProviderError("no result")
    if is_refusal(error):
        return refused_condition(condition_type, field, error), error
    return unanswered_condition(condition_type, field, error), error


def _with_status(node_class: ECSNodeClass, status: dict[str, object]) -> ECSNodeClass:
    before = node_class.status.model_dump(mode="json", exclude_none=True)
    after = ECSNodeClassStatus.model_validate({**before, **status})
    return node_class.model_copy(update={"status": after})
