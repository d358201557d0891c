"""Long-running operations, whose state follows from the time.

The answer that starts one has `Azure-AsyncOperation`, `Location` and `Retry-After`; both URLs are
answered by `Operations`. No thread ends an operation: it knows when it ends, and with what.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, Self, final

from karpenter_simulated_azure.arm_api import ApiVersions, ArmFault, ArmReply, error_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from karpenter_core.api.json_objects import JsonMapping, JsonObject
    from karpenter_core.provider.kit.simulated.faults import CloudError
    from karpenter_core.provider.kit.simulated.ids import IdGenerator
    from karpenter_simulated_azure.arm_api import ArmCall, ArmRoutes

__all__ = ["OperationFault", "OperationRecord", "Operations"]

_LIFETIME: Final = timedelta(hours=24)
"""For which an operation can be read after its end."""


@dataclass(slots=True, kw_only=True, eq=False)
class OperationRecord:
    """One operation."""

    id: str
    kind: str
    """The action that started it: `virtualMachines:put`."""
    resource_id: str
    started_at: datetime
    done_at: datetime | None
    """Time of its end; None for never. It may be changed until then."""
    error: CloudError | None = None
    """With what it fails; None if it succeeds."""
    canceled: bool = False
    """Whether it ends as `Canceled`."""
    on_result: Callable[[], JsonMapping | None] | None = None
    """Returns what its `Location` is answered with when it has succeeded."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers of the answer that starts the operation."""

    def status(self, now: datetime) -> str:
        """Return `InProgress`, `Succeeded`, `Failed` or `Canceled`."""
        if self.done_at is None or now < self.done_at:
            return "InProgress"
        if self.canceled:
            return "Canceled"
        return "Succeeded" if self.error is None else "Failed"


@dataclass(slots=True, kw_only=True, eq=False)
class OperationFault:
    """A fault of long-running operations; it lasts until it is used up or ended."""

    kind: str
    """A shell pattern for the actions that start them: `virtualMachines:*`."""
    error: CloudError | None = None
    """With what they fail."""
    canceled: bool = False
    """Whether they end as `Canceled`."""
    stuck: bool = False
    """Whether they never end."""
    times: int | None = 1
    """The number of operations it still applies to; None for no limit."""
    faults: list[OperationFault] = field(default_factory=list["OperationFault"], repr=False)

    def end(self) -> None:
        """Remove the fault."""
        if self in self.faults:
            self.faults.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


@final
class Operations:
    """The long-running operations of a region."""

    def __init__(self, clock: Callable[[], datetime], ids: IdGenerator, location: str) -> None:
        self._clock: Final = clock
        self._ids: Final = ids
        self._location: Final = location
        self._records: Final[dict[str, OperationRecord]] = {}
        self._faults: Final[list[OperationFault]] = []
        self.retry_after_seconds = 0
        """`Retry-After` of unfinished operations; Azure says 10 or more, 0 leaves it to the client."""

    def clear(self) -> None:
        """Remove all operations and faults."""
        self._records.clear()
        self._faults.clear()
        self.retry_after_seconds = 0

    @property
    def all(self) -> Sequence[OperationRecord]:
        """Return every operation by start time."""
        return list(self._records.values())

    @property
    def running(self) -> Sequence[OperationRecord]:
        """Return the operations that have not ended."""
        now = self._clock()
        return [each for each in self.all if each.status(now) == "InProgress"]

    def fail(
        self,
        kind: str,
        *,
        error: CloudError | None = None,
        canceled: bool = False,
        stuck: bool = False,
        times: int | None = 1,
    ) -> OperationFault:
        """Let operations fail, end as canceled, or never end."""
        fault = OperationFault(
            kind=kind,
            error=error,
            canceled=canceled,
            stuck=stuck,
            times=times,
            faults=self._faults,
        )
        self._faults.append(fault)
        return fault

    def start(
        self,
        call: ArmCall,
        *,
        done_at: datetime | None,
        error: CloudError | None = None,
        on_result: Callable[[], JsonMapping | None] | None = None,
    ) -> OperationRecord:
        """Start the operation of a call; its `headers` belong into the answer.

        It ends at `done_at`, never if that is None: with `error`, or with what `on_result` returns. A
        fault may change both.
        """
        record = OperationRecord(
            id=self._ids.uuid(),
            kind=call.action,
            resource_id=call.path,
            started_at=self._clock(),
            done_at=done_at,
            error=error,
            on_result=on_result,
        )
        for fault in self._faults:
            if fault.times != 0 and fnmatchcase(call.action, fault.kind):
                if fault.times is not None:
                    fault.times -= 1
                record.error = fault.error or record.error
                record.canceled = fault.canceled
                record.done_at = None if fault.stuck else record.done_at
                break
        self._records[record.id] = record
        record.headers = self._headers(call, record)
        return record

    def _headers(self, call: ArmCall, record: OperationRecord) -> Mapping[str, str]:
        url = (
            f"{call.base_url}/subscriptions/{call.subscription}/providers/{call.service}"
            f"/locations/{self._location}/operations/{record.id}?api-version={call.api_version}"
        )
        return {
            "Azure-AsyncOperation": url,
            "Location": f"{url}&monitor=true",
            "Retry-After": str(self.retry_after_seconds),
        }

    # -- calls -----------------------------------------------------------------------------------

    def add_routes(self, routes: ArmRoutes) -> None:
        """Add the routes of the operations of AKS, compute and network."""
        for namespace in ("Microsoft.Compute", "Microsoft.ContainerService", "Microsoft.Network"):
            routes.add(
                "GET",
                f"{namespace}/locations/operations",
                self.get,
                api_versions=ApiVersions(earliest="2021-01-01"),
                operation_class=f"{namespace.rpartition('.')[2].lower()}-polls",
            )

    def get(self, call: ArmCall) -> ArmReply:
        """Answer a poll: of the operation, or with `monitor` of its result."""
        record = self._records.get(call.resource_name)
        now = self._clock()
        if record is None or (record.done_at is not None and now > record.done_at + _LIFETIME):
            raise ArmFault(
                "NotFound", f"The operation {call.resource_name} was not found.", status=404
            )
        status = record.status(now)
        pending = status == "InProgress"
        headers = {"Retry-After": str(self.retry_after_seconds)} if pending else {}
        if call.query.get("monitor") == "true":
            return self._monitor(call, record, status, headers)
        body: JsonObject = {
            "startTime": record.started_at.isoformat(),
            "status": status,
            "name": record.id,
        }
        if record.done_at is not None and not pending:
            body["endTime"] = record.done_at.isoformat()
        if status in {"Failed", "Canceled"}:
            body["error"] = error_object(record.error or _canceled())
        return ArmReply(body=body, headers=headers)

    @staticmethod
    def _monitor(
        call: ArmCall, record: OperationRecord, status: str, headers: Mapping[str, str]
    ) -> ArmReply:
        if status == "InProgress":
            url = f"{call.base_url}{call.path}?api-version={call.api_version}&monitor=true"
            return ArmReply(status=202, headers={**headers, "Location": url})
        if status == "Canceled":
            raise _canceled()
        if record.error is not None:
            raise record.error
        result = record.on_result() if record.on_result is not None else None
        return ArmReply(status=204 if result is None else 200, body=result)


def _canceled() -> ArmFault:
    return ArmFault("OperationPreempted", "A later operation has replaced this one.", status=409)
