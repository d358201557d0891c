"""Resolves the parts of a NodeClass into its status and conditions.

All parts are resolved side by side, whatever becomes of the others. A part that the cloud refuses is
False. A part that the cloud does not answer keeps its earlier result. If no part is answered, there is
no resolution (PC-014).
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, final

from karpenter_core.api.nodeclass import NodeClass
from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.node_class.parts import current_condition, resolution_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from karpenter_core.api.conditions import Condition
    from karpenter_core.provider.contract import NodeClassResolution
    from karpenter_core.provider.kit.node_class.call_errors import CallErrors
    from karpenter_core.provider.kit.node_class.parts import ResolutionPart

__all__ = ["NodeClassPart", "NodeClassResolver", "NodeClassValidation", "SharedRead"]

C = TypeVar("C", bound=NodeClass)
V_contra = TypeVar("V_contra", bound=NodeClass, contravariant=True)
T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True)
class NodeClassPart:
    """One condition of a NodeClass, and the function that computes it."""

    condition_type: str
    field: str
    """The field of the spec, with its value if that helps: messages of failed calls begin with it."""
    resolve: Callable[[], ResolutionPart]
    """Called in a thread of its own. Raises CloudProviderError if the cloud refuses or does not
    answer."""
    _: KW_ONLY
    is_launch_need: bool = True
    """Whether nothing can be launched, and no launch can be tried out, without it."""
    is_always_read: bool = True
    """Whether each NodeClass needs a call for it. If no such part is answered, the cloud is down."""


@final
class SharedRead(Generic[T]):
    """One read of the cloud that several parts of a resolution need; callable from any thread.

    The first caller reads; the others wait for its result or error.
    """

    def __init__(self, read: Callable[[], T]) -> None:
        self._read: Final = read
        self._lock: Final = Lock()
        self._result: Future[T] | None = None

    def __call__(self) -> T:
        """Return what was read, or raise what reading raised."""
        with self._lock:
            is_first = self._result is None
            result = self._result = self._result or Future()
        if is_first:
            try:
                result.set_result(self._read())
            except BaseException as error:
                result.set_exception(error)
        return result.result()


class NodeClassValidation(Protocol[V_contra]):
    """The methods of `NodeClassValidator` that a resolution uses."""

    def validate(self, node_class: V_contra, dependencies: Iterable[Condition]) -> ResolutionPart:
        """Return the condition `ValidationSucceeded`."""
        ...

    def forget(self, node_class: V_contra) -> None:
        """Forget a NodeClass that is gone."""
        ...


@final
class NodeClassResolver(Generic[C]):
    """Answers `karpenter_resolve_node_class`; callable from any thread."""

    def __init__(
        self,
        parts_of: Callable[[C], Sequence[NodeClassPart]],
        errors: CallErrors,
        *,
        validation: NodeClassValidation[C] | None = None,
        max_silence: int | None = None,
    ) -> None:
        """`parts_of` returns the parts in the order of their conditions.

        After `max_silence` unanswered reads of a part in a row its earlier result is not kept any
        longer, if other parts are answered; None for no limit.
        """
        self._parts_of: Final = parts_of
        self._errors: Final = errors
        self._validation: Final = validation
        self._silences: Final = _SilenceCounts(max_silence)

    def resolve(self, node_class: C) -> NodeClassResolution:
        """Return status and conditions of a NodeClass.

        Raises:
            CloudProviderError: the cloud answered nothing.
        """
        searches = self._parts_of(node_class)
        parts = self._resolved(node_class, searches)
        if self._validation is None:
            return resolution_of(node_class, parts)
        generation, before = node_class.metadata.generation, node_class.status.conditions
        needs = [
            current_condition(part, before, generation=generation)[0]
            for part, search in zip(parts, searches, strict=True)
            if search.is_launch_need
        ]
        status = {name: value for part in parts for name, value in part.status.items()}
        validated = self._validation.validate(_with_status(node_class, status), needs)
        return resolution_of(node_class, [*parts, validated])

    def forget(self, node_class: C) -> None:
        """Forget a NodeClass that is gone."""
        self._silences.forget(node_class.uid)
        if self._validation is not None:
            self._validation.forget(node_class)

    def _resolved(
        self, node_class: C, searches: Sequence[NodeClassPart]
    ) -> Sequence[ResolutionPart]:
        """Resolve all parts at once: a service that does not answer delays no other."""
        with ThreadPoolExecutor(len(searches) or 1, thread_name_prefix="node-class-part") as pool:
            drafts = list(pool.map(self._draft, searches))
        unread = [
            part
            for (part, _), search in zip(drafts, searches, strict=True)
            if search.is_always_read and not part.is_answered
        ]
        is_down = bool(unread) and len(unread) == sum(each.is_always_read for each in searches)
        parts = [
            self._errors.silent_part(part, error)
            if self._silences.note(node_class.uid, part)
            else part
            for part, error in drafts
        ]
        if is_down:
            raise CloudProviderError("; ".join(part.condition.message for part in unread))
        return parts

    def _draft(self, search: NodeClassPart) -> tuple[ResolutionPart, CloudProviderError | None]:
        try:
            return search.resolve(), None
        except CloudProviderError as error:
            return self._errors.failed_part(search.condition_type, search.field, error), error


@final
class _SilenceCounts:
    """Counts the unanswered reads in a row, by UID and type of condition."""

    def __init__(self, limit: int | None) -> None:
        self._limit: Final = limit
        self._lock: Final = Lock()
        self._counts: Final[dict[str, dict[str, int]]] = {}

    def note(self, uid: str, part: ResolutionPart) -> bool:
        """Record a read; return whether the limit of unanswered ones is reached."""
        if self._limit is None:
            return False
        name = part.condition.type
        with self._lock:
            counts = self._counts.setdefault(uid, {})
            counts[name] = 0 if part.is_answered else counts.get(name, 0) + 1
            return counts[name] >= self._limit

    def forget(self, uid: str) -> None:
        with self._lock:
            self._counts.pop(uid, None)


def _with_status(node_class: C, status: Mapping[str, object]) -> C:
    before = node_class.status.model_dump(mode="json", exclude_none=True)
    after = type(node_class.status).model_validate({**before, **status})
    return node_class.model_copy(update={"status": after})
