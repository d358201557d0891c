"""What `karpenter_resolve_node_class` answers: status and conditions of a NodeClass.

vSwitches, security groups, images and reservations are asked for at once, and each is looked at whatever became of
the others. What the cloud refuses is said in a condition. What it does not answer keeps what was found
before, for a while; when it answers nothing at all, there is no answer.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, final

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.node_class_parts import known_condition, resolution_of
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClassStatus
from karpenter_provider_alibabacloud.discovery import (
    images,
    reservations,
    security_groups,
    vswitches,
)
from karpenter_provider_alibabacloud.discovery.calls import is_refusal
from karpenter_provider_alibabacloud.discovery.terms import Found
from karpenter_provider_alibabacloud.node_class import parts
from karpenter_provider_alibabacloud.node_class.findings import (
    CAPACITY_RESERVATIONS_READY,
    IMAGES_READY,
    SECURITY_GROUPS_READY,
    VSWITCHES_READY,
    long_unasked,
    refused,
    unasked,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from karpenter_core.api.conditions import Condition
    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import NodeClassResolution
    from karpenter_core.provider.kit.node_class_parts import Part
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
    from karpenter_provider_alibabacloud.discovery.images import Images
    from karpenter_provider_alibabacloud.discovery.reservations import (
        FoundReservation,
        Reservations,
    )
    from karpenter_provider_alibabacloud.discovery.security_groups import SecurityGroups
    from karpenter_provider_alibabacloud.discovery.vswitches import VSwitches

__all__ = ["Discovery", "NodeClassResolver"]

LAUNCH_NEEDS: Final = (VSWITCHES_READY, SECURITY_GROUPS_READY, IMAGES_READY)
"""What is always asked, and without which no launch can be tried out."""
SILENCE_THAT_COUNTS: Final = 3
"""After so many looks without an answer in a row, what was found before does not stand any longer."""

T = TypeVar("T")


class Validation(Protocol):
    """What is asked of `Validator`."""

    def validate(self, node_class: ECSNodeClass, dependencies: Iterable[Condition]) -> Part:
        """Return the condition."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """All that discovery can find."""

    vswitches: VSwitches
    security_groups: SecurityGroups
    images: Images
    reservations: Reservations | None
    """None when the feature gate ReservedCapacity is off."""


@dataclass(frozen=True, slots=True)
class _Search(Generic[T]):
    """What a search brought: something, or an error."""

    found: T | None
    error: CloudProviderError | None = None


@final
class NodeClassResolver:
    """Resolves NodeClasses; callable from any thread."""

    def __init__(self, discovery: Discovery, validation: Validation, clock: Clock) -> None:
        self._discovery: Final = discovery
        self._validation: Final = validation
        self._clock: Final = clock
        self._lock: Final = Lock()
        self._silences: Final[dict[tuple[str, str], int]] = {}
        """How many looks in a row brought no answer, by UID and type of condition."""

    def resolve(self, node_class: ECSNodeClass) -> NodeClassResolution:
        """Return status and conditions of a NodeClass.

        Raises:
            CloudProviderError: the cloud could be asked for nothing.
        """
        found = self._found(node_class)
        needed = [part for part in found if part.condition.type in LAUNCH_NEEDS]
        silent = [part for part in needed if not part.is_asked]
        if len(silent) == len(needed):
            raise CloudProviderError("; ".join(part.condition.message for part in silent))
        status = {name: value for part in found for name, value in part.status.items()}
        generation, before = node_class.metadata.generation, node_class.status.conditions
        needs = [known_condition(part, before, generation=generation)[0] for part in needed]
        validated = self._validation.validate(_with_status(node_class, status), needs)
        return resolution_of(node_class, [*found, validated])

    def forget(self, node_class: ECSNodeClass) -> None:
        """Forget a NodeClass that is gone."""
        with self._lock:
            for key in [key for key in self._silences if key[0] == node_class.uid]:
                del self._silences[key]

    def _found(self, node_class: ECSNodeClass) -> list[Part]:
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
        nobody_answers = not any(part.is_asked for part, _ in drafts)
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

    def _reserved(self, node_class: ECSNodeClass) -> Found[FoundReservation]:
        finder, terms = (
            self._discovery.reservations,
            node_class.spec.capacity_reservation_selector_terms,
        )
        return Found(items=()) if finder is None else finder.find(terms)

    def _counted(
        self,
        node_class: ECSNodeClass,
        part: Part,
        error: CloudProviderError | None,
        *,
        nobody_answers: bool,
    ) -> Part:
        key = (node_class.uid, part.condition.type)
        with self._lock:
            if part.is_asked or error is None:
                self._silences.pop(key, None)
                return part
            count = self._silences[key] = self._silences.get(key, 0) + 1
        # When nothing is answered the last finding stands however long that lasts (PC-014).
        if nobody_answers or count < SILENCE_THAT_COUNTS:
            return part
        return long_unasked(part, error)


def _search(find: Callable[[], Found[T]]) -> _Search[Found[T]]:
    try:
        return _Search(find())
    except CloudProviderError as error:
        return _Search(None, error)


def _part(
    condition_type: str, field: str, search: _Search[T], made: Callable[[T], Part]
) -> tuple[Part, CloudProviderError | None]:
    if search.found is not None:
        return made(search.found), None
    error = search.error or CloudProviderError("nothing was found out")
    if is_refusal(error):
        return refused(condition_type, field, error), error
    return unasked(condition_type, field, error), error


def _with_status(node_class: ECSNodeClass, status: dict[str, object]) -> ECSNodeClass:
    before = node_class.status.model_dump(mode="json", exclude_none=True)
    after = ECSNodeClassStatus.model_validate({**before, **status})
    return node_class.model_copy(update={"status": after})
