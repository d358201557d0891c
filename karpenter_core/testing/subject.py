"""A provider under test, and the controls of its simulated cloud.

The conformance kit asks a provider's own tests for one `ConformanceSubject`. Three fields are needed; each of the
others lets the kit show more rules, and a rule that cannot be shown is reported as such, never as
kept. Nothing is mocked: the plug-in runs against the provider's simulated cloud, or against a real
one, through the core's own façade, with worker threads, batches and time limits.

A distribution names its subject in the entry-point group `karpenter.testing`, under the provider's
name; there it is a context manager that starts the simulated cloud and ends it:

    [project.entry-points."karpenter.testing"]
    mycloud = "karpenter_provider_mycloud.testing:subject"
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from contextlib import AbstractContextManager

    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.errors import OfferingKey

__all__ = ["CloudTrouble", "ConformanceSubject"]


class CloudTrouble(StrEnum):
    """What a cloud does on a bad day; it lasts while the context of `ConformanceSubject.trouble` is open."""

    STOCK_OUT = "stock-out"
    """Every offering is sold out."""
    QUOTA = "quota"
    """The account may have no more machines, of any type."""
    THROTTLING = "throttling"
    """Launches are refused as too many; nothing is done."""
    AUTH_FAILURE = "auth-failure"
    """Launches are refused: the credentials are missing, or do not permit it."""
    LOST_REPLY = "lost-reply"
    """The first launch is carried out, and its caller is told of a broken connection."""
    PARTIAL_LISTING = "partial-listing"
    """Listings cannot be read to the end; machines that exist are missing from them."""
    OUTAGE = "outage"
    """No call reaches the cloud: connections are refused or end in server errors."""
    NO_BOOT = "no-boot"
    """Machines are created and do not come up."""
    SILENCE = "silence"
    """The cloud takes calls and never answers."""
    TOKEN_IN_PROGRESS = "token-in-progress"  # noqa: S105 - the name of a trouble
    """The first launch is carried out, and its caller is told of a broken connection; its token is then
    refused, as its request is still in progress."""


@dataclass(frozen=True, kw_only=True)
class ConformanceSubject:
    """The provider under test.

    Functions get the plug-in that `make` made, so that a simulated cloud inside the plug-in's own
    process can be reached; for `CloudTrouble.OUTAGE` it may not have been started yet.
    """

    name: str
    make: Callable[[], object]
    """Makes the plug-in, as a new process would; what the cloud keeps stays. Best the class itself."""
    node_class: NodeClass
    """One that can be launched, once it is resolved; the kit resolves it as the core does."""
    settings: Mapping[str, str | float | bool | timedelta] = field(
        default_factory=dict[str, "str | float | bool | timedelta"]
    )
    """By flag without dashes; the others have their defaults."""

    troubles: frozenset[CloudTrouble] = frozenset()
    """What `trouble` can make."""
    trouble: Callable[[object, CloudTrouble], AbstractContextManager[object]] | None = None
    """Makes trouble in the cloud while its context is open."""
    patience: timedelta = timedelta(seconds=5)
    """Under `CloudTrouble.SILENCE` and `CloudTrouble.NO_BOOT` each hook answers, or gives up, within this time.

    Set the SDK's limits below it.
    """

    node_manifest: Callable[[object, str], Mapping[str, object] | None] | None = None
    """Boots the machine of a provider id and returns the Node that its kubelet would create.

    Not needed where the provider creates Nodes itself, through `ProviderContext.nodes`.
    """
    list_resources: Callable[[object], Collection[str]] | None = None
    """Everything of ours in the cloud, by the cloud's own word: machines, templates, profiles."""
    create_foreign_instance: Callable[[object], str] | None = None
    """Makes a machine of another cluster in the same account; returns its provider id."""
    sell_out: Callable[[object, OfferingKey], None] | None = None
    """Has the cloud say, where it tells of its stocks, that nothing is left of an offering."""
    interrupt: Callable[[object, str], None] | None = None
    """Has the cloud announce the end of the machine with this provider id."""
    protect: Callable[[object, str], AbstractContextManager[object]] | None = None
    """Has the cloud refuse to terminate the machine with this provider id while the context is open."""
    drift: Callable[[object, str], None] | None = None
    """Changes the machine with this provider id, so that it no longer is as its NodeClass asks."""

    changed_node_class: NodeClass | None = None
    """`node_class` with another value in a field whose change is drift."""
    unusable_node_classes: Mapping[str, NodeClass] = field(default_factory=dict[str, "NodeClass"])
    """NodeClasses that refer to nothing, by the text (the value, say) that must be named."""
    sdk_modules: tuple[str, ...] = ()
    """Modules of the cloud's SDK, which loading the plug-in must not import."""
