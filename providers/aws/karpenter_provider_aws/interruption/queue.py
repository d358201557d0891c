"""Receives EventBridge messages from the interruption queue.

A received message is hidden from other receivers for a while, and comes again when it was not
deleted. Until then it is kept here and announced at each poll, so that the core sees again what it
could not handle at once; its receipt deletes it.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.contract import Interruption, InterruptionKind
from karpenter_provider_aws.codes import is_not_found
from karpenter_provider_aws.discovery.call_errors import core_errors_of, refusal_behind
from karpenter_provider_aws.interruption.messages import parse_message

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger
    from types_boto3_sqs.type_defs import DeleteMessageBatchRequestEntryTypeDef, MessageTypeDef

    from karpenter_core.clock import Clock
    from karpenter_provider_aws.interruption.directory import InstanceDirectory, OwnedInstance
    from karpenter_provider_aws.interruption.messages import InterruptionMessage
    from karpenter_provider_aws.interruption.shortages import InterruptionShortages
    from karpenter_provider_aws.sdk import CloudClients

__all__ = ["HIDDEN_FOR", "LONGEST_WAIT_SECONDS", "InterruptionQueue"]

LONGEST_WAIT_SECONDS: Final = 20
"""For a first message: as long as SQS takes."""
HIDDEN_FOR: Final = timedelta(seconds=20)
RECEIPT_KEPT_FOR: Final = timedelta(minutes=5)
"""As long as the messages of the queue are kept; a later receipt deletes nothing."""
MAX_MESSAGES_AT_ONCE: Final = 100
"""Messages that one poll brings; the next follows at once."""
_BATCH: Final = 10  # the most that SQS gives, or deletes, at once
_UNUSABLE_RECEIPTS: Final = frozenset({"ReceiptHandleIsInvalid", "InvalidParameterValue"})


@dataclass(slots=True, kw_only=True)
class _ReceivedMessage:
    """A message that was received and not deleted."""

    message: InterruptionMessage
    sent_at: datetime | None
    receipt: str
    hidden_until: float
    """By the monotonic clock; then the queue brings it again."""
    forgotten_at: float
    announced: tuple[str, ...]
    """Ids of its announcements, once it is known whom it is about."""
    acknowledged: set[str] = field(default_factory=set[str])
    """Acknowledged ones since it was received."""


@final
class InterruptionQueue:
    """Polls one queue; callable from any thread."""

    def __init__(
        self,
        clients: CloudClients,
        clock: Clock,
        *,
        name: str,
        directory: InstanceDirectory,
        shortages: InterruptionShortages,
        wait_seconds: int,
    ) -> None:
        """`wait_seconds` is how long a poll waits for a message; shorter than the SDK reads."""
        self._clients: Final = clients
        self._clock: Final = clock
        self._name: Final = name
        self._directory: Final = directory
        self._shortages: Final = shortages
        self._wait_seconds: Final = min(wait_seconds, LONGEST_WAIT_SECONDS)
        self._lock: Final = Lock()
        self._received: Final[dict[str, _ReceivedMessage]] = {}
        self._url = ""
        self._log: FilteringBoundLogger = structlog.get_logger("aws.interruption")

    def poll(self, *, wait: bool) -> tuple[Interruption, ...]:
        """Return what the queue says and was not acknowledged, the first received first.

        Without a message it waits for one, unless the caller wants no wait.

        Raises:
            AuthError: the queue may not be read.
            CloudProviderError: there is no such queue, or AWS did not answer.
        """
        in_hand = self._unannounced()
        self._receive(wait_seconds=self._wait_seconds if wait and not in_hand else 0)
        return self._announcements()

    def acknowledge(self, ids: Iterable[str]) -> None:
        """Delete messages of which all announcements were acknowledged; others' ids are ignored.

        Raises:
            CloudProviderError: a message could not be deleted; it comes again.
        """
        done: dict[str, str] = {}
        with self._lock:
            for each in ids:
                name = each.partition("/")[0]
                held = self._received.get(name)
                if held is None:
                    continue
                held.acknowledged.add(each)
                if held.acknowledged.issuperset(held.announced):
                    done[name] = held.receipt
        names = list(done)
        for first in range(0, len(names), _BATCH):
            self._delete({name: done[name] for name in names[first : first + _BATCH]})

    def check(self) -> None:
        """Try out what reading the queue needs; no message is taken.

        Raises:
            AuthError: a permission is missing.
            CloudProviderError: there is no such queue, or AWS did not answer.
        """
        with self._at_queue("sqs:ReceiveMessage") as url:
            self._clients.sqs.receive_message(
                QueueUrl=url, MaxNumberOfMessages=1, WaitTimeSeconds=0, VisibilityTimeout=0
            )

    def _unannounced(self) -> bool:
        now = self._clock.monotonic()
        with self._lock:
            for name in [name for name, held in self._received.items() if held.forgotten_at <= now]:
                del self._received[name]
            return any(_is_waiting(held, now) for held in self._received.values())

    def _receive(self, *, wait_seconds: int) -> None:
        """Take messages until the queue has fewer than it gives at once."""
        for _ in range(MAX_MESSAGES_AT_ONCE // _BATCH):
            with self._at_queue("sqs:ReceiveMessage") as url:
                answer = self._clients.sqs.receive_message(
                    QueueUrl=url,
                    MaxNumberOfMessages=_BATCH,
                    WaitTimeSeconds=wait_seconds,
                    VisibilityTimeout=int(HIDDEN_FOR.total_seconds()),
                    MessageSystemAttributeNames=["SentTimestamp"],
                )
            received = answer.get("Messages", [])
            self._remember(received)
            if len(received) < _BATCH:
                return
            wait_seconds = 0

    def _remember(self, received: Sequence[MessageTypeDef]) -> None:
        now = self._clock.monotonic()
        with self._lock:
            for item in received:
                name = item.get("MessageId", "")
                received_before = self._received.get(name)
                message = (
                    parse_message(item.get("Body", ""))
                    if received_before is None
                    else received_before.message
                )
                self._received[name] = _ReceivedMessage(
                    message=message,
                    sent_at=message.sent_at or _sent_at(item),
                    receipt=item.get("ReceiptHandle", ""),
                    hidden_until=now + HIDDEN_FOR.total_seconds(),
                    forgotten_at=now + RECEIPT_KEPT_FOR.total_seconds(),
                    announced=() if received_before is None else received_before.announced,
                )

    def _announcements(self) -> tuple[Interruption, ...]:
        now = self._clock.monotonic()
        with self._lock:
            waiting = {
                name: held for name, held in self._received.items() if _is_waiting(held, now)
            }
        named = {one for held in waiting.values() for one in held.message.instance_ids}
        failure: CloudProviderError | None = None
        ours: Mapping[str, OwnedInstance]
        foreign: Collection[str]
        try:
            ours, foreign = self._directory.find(named) if named else ({}, ())
        except CloudProviderError as error:
            # Those that have a Node are known all the same; the others are looked up again.
            failure, foreign = error, ()
            ours = self._directory.by_nodes(named)
        announcements: list[Interruption] = []
        for name, held in waiting.items():
            if failure is not None and not ours.keys() >= set(held.message.instance_ids):
                continue
            announced = tuple(_announce(name, held, ours, foreign))
            with self._lock:
                held.announced = tuple(each.id for each in announced)
                news = [each for each in announced if each.id not in held.acknowledged]
            concerned = [ours[one] for one in held.message.instance_ids if one in ours]
            self._shortages.note(held.message.kind, concerned, message_id=name)
            announcements += news
        if failure is not None:
            if not announcements:
                raise failure
            self._log.warning("instances of messages could not be looked up", error=str(failure))
        return tuple(announcements)

    def _delete(self, receipts: Mapping[str, str]) -> None:
        entries: list[DeleteMessageBatchRequestEntryTypeDef] = [
            {"Id": str(number), "ReceiptHandle": receipt}
            for number, receipt in enumerate(receipts.values())
        ]
        with self._at_queue("sqs:DeleteMessage") as url:
            answer = self._clients.sqs.delete_message_batch(QueueUrl=url, Entries=entries)
        names = list(receipts)
        failed = {
            names[int(item["Id"])]: item
            for item in answer.get("Failed", ())
            # The queue has forgotten the receipt, and brings the message again if it still has it.
            if item.get("Code", "") not in _UNUSABLE_RECEIPTS
        }
        with self._lock:
            for name in receipts.keys() - failed.keys():
                self._received.pop(name, None)
        if failed:
            first = next(iter(failed.values()))
            raise CloudProviderError(
                f"sqs:DeleteMessage: {len(failed)} messages could not be deleted: "
                f"{first.get('Code', '')} {first.get('Message', '')}".rstrip()
            )

    @contextmanager
    def _at_queue(self, action: str) -> Generator[str]:
        """Give the URL of the queue to a call of an action; a queue that is gone is looked up anew.

        Raises:
            AuthError: the call is not permitted.
            CloudProviderError: there is no such queue, or AWS did not answer.
        """
        try:
            if not self._url:
                with core_errors_of("sqs:GetQueueUrl"):
                    self._url = self._clients.sqs.get_queue_url(QueueName=self._name)["QueueUrl"]
            with core_errors_of(action):
                yield self._url
        except CloudProviderError as error:
            failure = refusal_behind(error)
            if failure is None or not is_not_found(failure.code):
                raise
            self._url = ""
            raise CloudProviderError(
                f'--interruption-queue: there is no queue "{self._name}" in {self._clients.region}'
            ) from error


def _is_waiting(held: _ReceivedMessage, now: float) -> bool:
    return now < held.hidden_until and not (
        held.announced and held.acknowledged.issuperset(held.announced)
    )


def _announce(
    name: str, held: _ReceivedMessage, ours: Mapping[str, OwnedInstance], foreign: Collection[str]
) -> Iterator[Interruption]:
    """Turn a message into announcements, one for each instance of ours that it names.

    An instance that EC2 does not know is announced by its bare id: no claim has it, and the core
    waits a minute in case one is about to. Of other instances only the message is left to delete.
    """
    said = held.message
    concerned = [each for each in said.instance_ids if each not in foreign]
    if not concerned:
        kind = InterruptionKind.IRRELEVANT if said.instance_ids else said.kind
        yield Interruption(id=name, kind=kind, detail=said.detail, announced_at=held.sent_at)
        return
    for each in concerned:
        known = ours.get(each)
        yield Interruption(
            id=f"{name}/{each}",
            kind=said.kind,
            provider_id=each if known is None else known.provider_id,
            deadline=said.deadline,
            detail=said.detail,
            announced_at=held.sent_at,
        )


def _sent_at(item: MessageTypeDef) -> datetime | None:
    """Return when the message came into the queue."""
    sent = item.get("Attributes", {}).get("SentTimestamp", "")
    return datetime.fromtimestamp(int(sent) / 1000, tz=UTC) if sent.isdecimal() else None
