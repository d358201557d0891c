"""Describes a provider under test, and the controls of its simulated cloud.

The conformance kit requires one `ConformanceSubject` from a provider's tests. Three fields are
mandatory; each other field lets the kit test more rules. A rule that cannot be tested is reported
as not shown, never as kept. Nothing is mocked: the plug-in runs against the provider's simulated
cloud, or against a real one, behind the core's façade, with its worker threads, batches and time
limits.

A distribution declares its subject in the entry-point group `karpenter.testing`, under the
provider's name, as a context manager that starts and stops the simulated cloud:

    [project.entry-points."karpenter.testing"]
    mycloud = "karpenter_provider_mycloud.testing:subject"
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from karpenter_core.provider.contract import ClusterFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from contextlib import AbstractContextManager

    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.errors import OfferingKey

__all__ = ["CloudTrouble", "ConformanceSubject"]


class CloudTrouble(StrEnum):
    """Failures of a cloud; each lasts while the context of `ConformanceSubject.trouble` is open."""

    STOCK_OUT = "stock-out"
    """Every offering is sold out."""
    QUOTA = "quota"
    """The quota of the account is used up, for every instance type."""
    THROTTLING = "throttling"
    """Launches are throttled; nothing is done."""
    AUTH_FAILURE = "auth-failure"
    """Launches are refused because of missing credentials or permissions."""
    LATE_FAILURE = "late-failure"
    """Launches are accepted, and their instances fail soon afterwards for lack of capacity."""
    LOST_REPLY = "lost-reply"
    """The first launch is executed, and its caller sees a broken connection."""
    PARTIAL_LISTING = "partial-listing"
    """Listings cannot be read completely; existing instances are missing in them."""
    OUTAGE = "outage"
    """No call reaches the cloud: connections are refused or end in server errors."""
    NO_BOOT = "no-boot"
    """Instances are created and do not boot."""
    SILENCE = "silence"
    """The cloud accepts calls and never answers."""
    TOKEN_IN_PROGRESS = "token-in-progress"  # noqa: S105 - the name of a trouble
    """The first launch is executed, and its caller sees a broken connection; afterwards its token is
    refused, because its request is still in progress.
    """


@dataclass(frozen=True, kw_only=True)
class ConformanceSubject:
    """The provider under test.

    Functions get the plug-in that `make` returned, so that they can reach a simulated cloud inside
    the plug-in; for `CloudTrouble.OUTAGE` it may not have been started yet.
    """

    name: str
    make: Callable[[], object]
    """Creates the plug-in, as a new process would; the state of the cloud is kept. Usually the
    class itself.
    """
    node_class: NodeClass
    """A NodeClass from which instances can be launched, once it is resolved; the kit resolves it."""
    settings: Mapping[str, str | float | bool | timedelta] = field(
        default_factory=dict[str, "str | float | bool | timedelta"]
    )
    """By flag without leading dashes; other settings have their defaults."""
    cluster: ClusterFacts = field(default_factory=lambda: ClusterFacts(name="test"))
    """The cluster that instances join, as far as the provider needs to know it."""

    has_tokens: bool = True
    """Whether the cloud has idempotency tokens. Without them, and where it does not show terminated
    instances, a NodeClaim whose instance is gone may get another one (PC-033)."""
    troubles: frozenset[CloudTrouble] = frozenset()
    """The failures that `trouble` can simulate."""
    trouble: Callable[[object, CloudTrouble], AbstractContextManager[object]] | None = None
    """Simulates a failure of the cloud while its context is open."""
    patience: timedelta = timedelta(seconds=5)
    """Under `CloudTrouble.SILENCE` and `CloudTrouble.NO_BOOT` each hook returns or raises within this time.

    Set the SDK's limits below it.
    """

    node_manifest: Callable[[object, str], Mapping[str, object] | None] | None = None
    """Boots the instance with a provider ID and returns the Node that its kubelet would create.

    Not needed if the provider creates Nodes itself, through `ProviderContext.nodes`.
    """
    list_resources: Callable[[object], Collection[str]] | None = None
    """Returns all resources of the cluster in the cloud: instances, templates, profiles."""
    create_foreign_instance: Callable[[object], str] | None = None
    """Creates an instance of another cluster in the same account; returns its provider ID."""
    sell_out: Callable[[object, OfferingKey], None] | None = None
    """Makes the cloud report that an offering is sold out."""
    interrupt: Callable[[object, str], None] | None = None
    """Makes the cloud announce an interruption of the instance with this provider ID."""
    interrupts_nodes: bool = False
    """Whether `interrupt` is announced by conditions of the Node, which `karpenter_read_interruptions`
    reads and `node_manifest` returns."""
    protect: Callable[[object, str], AbstractContextManager[object]] | None = None
    """Makes the cloud refuse to terminate the instance with this provider ID inside the block."""
    drift: Callable[[object, str], None] | None = None
    """Changes the instance with this provider ID, so that it no longer matches its NodeClass.

    It may be seen by the Node that `node_manifest` returns afterwards.
    """

    changed_node_class: NodeClass | None = None
    """`node_class` with another value in a field whose change is drift."""
    unusable_node_classes: Mapping[str, NodeClass] = field(default_factory=dict[str, "NodeClass"])
    """NodeClasses with invalid references, by the text (such as the value) that the message must
    contain.
    """
    sdk_modules: tuple[str, ...] = ()
    """Modules of the cloud's SDK, which loading the plug-in must not import."""
