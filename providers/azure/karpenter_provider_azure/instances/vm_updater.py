"""Updates tags and identities of running virtual machines in place.

Tags of a NodeClass are no reason to replace a node. The virtual machine is changed last: if a change of its
interface or an extension fails, the virtual machine shows that the change is still to be made.

Karpenter's provider for Azure keeps the hash of what it has updated in an annotation of the NodeClaim
(`in-place-update-hash`). This provider compares with the virtual machine itself, and needs no annotation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Final, final
from urllib.parse import quote

import structlog

from karpenter_core.api.labels import NODE_POOL
from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.instances.change_queue import ChangeQueue
from karpenter_core.provider.kit.instances.tag_changes import DesiredTags, TagChange, tag_change
from karpenter_core.provider.kit.recent_launches import ClaimRef
from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_provider_azure.arm.client import NETWORK_API_VERSION
from karpenter_provider_azure.arm.errors import ArmError, ArmNotFoundError
from karpenter_provider_azure.described_vms import VM_API_VERSION
from karpenter_provider_azure.instance_tags import MAX_TAGS, instance_tags
from karpenter_provider_azure.json_values import tags_of

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView
    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import LeaderFence
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.arm.client import ArmAnswer, ArmClient
    from karpenter_provider_azure.described_vms import DescribedVm
    from karpenter_provider_azure.instances.vm_reader import VmReader
    from karpenter_provider_azure.settings import AzureSettings

__all__ = [
    "DesiredVm",
    "VmChange",
    "VmExtensions",
    "VmState",
    "VmUpdater",
    "changed_state",
    "plan_change",
    "state_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class VmState:
    """State of a virtual machine that can be changed."""

    tags: Mapping[str, str]
    identities: frozenset[str]
    """Ids in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredVm:
    """The tags and identities that a virtual machine should have."""

    tags: DesiredTags
    identities: tuple[str, ...]
    """Ids of identities that it needs; others stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VmChange:
    """A change of one virtual machine."""

    tags: TagChange
    identities: tuple[str, ...]
    """Ids of identities to add."""

    def __bool__(self) -> bool:
        """Return whether there is something to change."""
        return bool(self.tags or self.identities)


def state_of(vm: DescribedVm) -> VmState:
    """Return the state of a described virtual machine."""
    return VmState(tags=vm.tags, identities=vm.identities)


def plan_change(state: VmState, desired: DesiredVm) -> VmChange:
    """Return the change from a state to a desired one.

    Keys of tags are compared as Azure does: ignoring case. Identities are never removed.
    """
    missing = tuple(each for each in desired.identities if each.lower() not in state.identities)
    return VmChange(
        tags=tag_change(state.tags, _spelled_as(state.tags, desired.tags), max_tags=MAX_TAGS),
        identities=missing,
    )


def changed_state(state: VmState, change: VmChange) -> VmState:
    """Return a state after a change."""
    added = frozenset(each.lower() for each in change.identities)
    return VmState(tags=change.tags.applied(state.tags), identities=state.identities | added)


def _spelled_as(tags: Mapping[str, str], desired: DesiredTags) -> DesiredTags:
    """Return desired tags with the keys that a resource has, where they differ in case alone."""
    keys = {key.lower(): key for key in tags}

    def spelled(key: str) -> str:
        return keys.get(key.lower(), key)

    return replace(
        desired,
        added={spelled(key): value for key, value in desired.added.items()},
        set={spelled(key): value for key, value in desired.set.items()},
        obsolete=frozenset((spelled(key), value) for key, value in desired.obsolete),
    )


_ACTION: Final = "virtualMachines:patch"
_CHANGES_PER_SECOND: Final = 1
"""A change is up to four writes, and launches need writes too."""
_READ_AT_ONCE: Final = 100
_REPORTED_LIFE: Final = timedelta(hours=1)
"""Period of log lines about a virtual machine that cannot take all tags."""
_OVERRULED_LIFE: Final = timedelta(hours=1)
"""Time for which a tag is left to the policy that sets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VmExtensions:
    """The names of the extensions that virtual machines of this provider have.

    A virtual machine may be described without one: its provision mode had none, or it is still to be added.
    """

    required: tuple[str, ...]
    """The tags of one that is described must be changed."""
    optional: tuple[str, ...]
    """The tags of one that is described need not be changed if it is gone."""


@final
class VmUpdater:
    """Answers `karpenter_sync_instance`; callable from any thread."""

    def __init__(
        self,
        client: ArmClient,
        clock: Clock,
        *,
        settings: AzureSettings,
        reader: VmReader,
        extensions: VmExtensions,
        last_listed: Callable[[], Mapping[str, DescribedVm]],
        node_class: Callable[[str], AKSNodeClass | None],
        fence: LeaderFence,
    ) -> None:
        """`last_listed` is `ClusterInstances.last_listed`; `node_class` returns one by name."""
        self._settings: Final = settings
        self._reader: Final = reader
        self._last_listed: Final = last_listed
        self._node_class: Final = node_class
        self._log: FilteringBoundLogger = structlog.get_logger("azure.updates")
        self._lock: Final = Lock()
        self._wishes: Final[dict[str, tuple[Mapping[str, str], frozenset[tuple[str, str]]]]] = {}
        """By NodeClass: its tags, and those that it had and has no more."""
        self._reported: Final[TtlCache[str, tuple[str, ...]]] = TtlCache(clock, _REPORTED_LIFE)
        """Keys that a virtual machine has no room for, as last reported, by its id."""
        self._overruled: Final[TtlCache[str, frozenset[str]]] = TtlCache(clock, _OVERRULED_LIFE)
        """Keys in lower case of tags that a policy sets on a virtual machine, by its id."""
        self._queue: Final = ChangeQueue(
            clock,
            _VmChanges(client, reader, extensions, fence, note_tags=self._note_tags),
            action=_ACTION,
            changes_per_second=_CHANGES_PER_SECOND,
            changed_at_once=1,
            read_at_once=_READ_AT_ONCE,
            listed_state=self._listed_state,
        )

    def sync(self, node_claim: NodeClaim, node: NodeView) -> None:
        """Bring the virtual machine of a claim in line with its NodeClass and the settings.

        Raises:
            ThrottledError: it is not its turn yet.
            CloudProviderError: Azure refused or did not answer.
        """
        provider_id = node_claim.status.provider_id
        node_class = self._node_class(node_claim.spec.node_class_ref.name)
        if node_claim.is_deleting or not node.name or not provider_id or node_class is None:
            return
        try:
            name = self._reader.instance_id(provider_id)
        except CloudProviderError as error:
            self._log.error("virtual machine cannot be updated", error=str(error))
            return
        overruled = self._overruled.get(name) or frozenset[str]()
        desired = self._desired(node_claim, node_class, overruled)
        state = self._queue.sync(name, desired)
        left_out = () if state is None else plan_change(state, desired).tags.left_out
        if left_out and self._reported.get(name) != left_out:
            self._reported.put(name, left_out)
            self._log.warning(
                f"virtual machine cannot take all tags: Azure allows {MAX_TAGS}",
                vm=name,
                NodeClaim={"name": node_claim.name},
                keys=list(left_out),
            )

    def _listed_state(self, instance_id: str) -> VmState | None:
        vm = self._last_listed().get(instance_id)
        return None if vm is None else state_of(vm)

    def _note_tags(
        self, vm: DescribedVm, requested: Mapping[str, str], answered: Mapping[str, str]
    ) -> None:
        """Remember tags that Azure did not set as requested: a policy of the subscription sets them.

        A change would be undone each time, and made again as soon as a listing shows it.
        """
        made = {key.lower(): value for key, value in answered.items()}
        keys = sorted(key for key, value in requested.items() if made.get(key.lower()) != value)
        if keys:
            before = self._overruled.get(vm.id) or frozenset[str]()
            self._overruled.put(vm.id, before | {key.lower() for key in keys})
            self._log.warning(
                "a policy of the subscription sets tags of a virtual machine: they are left to it",
                vm=vm.name,
                keys=keys,
            )

    def _desired(
        self, node_claim: NodeClaim, node_class: AKSNodeClass, overruled: Container[str]
    ) -> DesiredVm:
        tags = instance_tags(
            node_class.spec.tags,
            additional_tags=self._settings.additional_tags,
            cluster=self._settings.cluster_name,
            claim_uid=node_claim.uid,
            node_pool=node_claim.metadata.labels.get(NODE_POOL, ""),
            claim_name=node_claim.name,
        )
        return DesiredVm(
            tags=DesiredTags(
                added={},
                set={key: value for key, value in tags.items() if key.lower() not in overruled},
                obsolete=self._obsolete(node_class, tags),
                claim=ClaimRef(name=node_claim.name, uid=node_claim.uid),
            ),
            identities=self._settings.node_identities,
        )

    def _obsolete(
        self, node_class: AKSNodeClass, desired: Mapping[str, str]
    ) -> frozenset[tuple[str, str]]:
        """Return the tags that a NodeClass had in the life of this process, and has no more.

        Other tags may belong to others, such as those of a policy, and stay.
        """
        tags = instance_tags(node_class.spec.tags, additional_tags={}, cluster="", claim_uid="")
        with self._lock:
            before, obsolete = self._wishes.get(node_class.name, ({}, frozenset()))
            obsolete = (obsolete | frozenset(before.items())) - frozenset(tags.items())
            self._wishes[node_class.name] = (tags, obsolete)
        wanted = {key.lower() for key in desired}
        return frozenset((key, value) for key, value in obsolete if key.lower() not in wanted)


@final
class _VmChanges:
    """Changes of virtual machines with their interfaces and extensions, for the queue."""

    def __init__(
        self,
        client: ArmClient,
        reader: VmReader,
        extensions: VmExtensions,
        fence: LeaderFence,
        *,
        note_tags: Callable[[DescribedVm, Mapping[str, str], Mapping[str, str]], None],
    ) -> None:
        """`note_tags` gets the tags of a virtual machine as they were requested, and as answered."""
        self._client: Final = client
        self._reader: Final = reader
        self._extensions: Final = extensions
        self._fence: Final = fence
        self._note_tags: Final = note_tags

    def read(self, instance_ids: Sequence[str]) -> Mapping[str, VmState]:
        vms = self._reader.of_ids(instance_ids)
        return {
            name: state_of(vm)
            for name, vm in vms.items()
            if not vm.is_leaving and not vm.machine_claim
        }

    def planner(self) -> Callable[[VmState, DesiredVm], VmChange]:
        return plan_change

    def make(self, change: VmChange, instance_ids: Sequence[str]) -> None:
        for name in instance_ids:
            # Azure replaces all tags of a resource: it is read right before.
            vm = self._reader.find(name)
            if vm is None:
                raise ArmNotFoundError(f"virtual machine {name} does not exist", status=404)
            self._change(vm, change)

    def changed(self, state: VmState, change: VmChange) -> VmState:
        return changed_state(state, change)

    def is_gone(self, error: CloudProviderError) -> bool:
        return isinstance(error, ArmNotFoundError)

    def is_refusal(self, error: CloudProviderError) -> bool:
        return isinstance(error, ArmError | _MissingPartError)

    def _change(self, vm: DescribedVm, change: VmChange) -> None:
        body: JsonObject = {}
        vm_path = self._reader.resource_path(vm.name)
        if change.tags:
            tags = change.tags.applied(vm.tags)
            body["tags"] = tags
            for interface in vm.interfaces:
                self._patch_tags(interface, tags, "networkInterfaces:patch", NETWORK_API_VERSION)
            self._patch_extensions(vm, vm_path, tags)
        if change.identities:
            body["identity"] = {
                "type": "SystemAssigned, UserAssigned"
                if vm.has_system_identity
                else "UserAssigned",
                "userAssignedIdentities": {each: {} for each in change.identities},
            }
        if body:
            answer = self._patch(vm_path, body, _ACTION, VM_API_VERSION)
            if change.tags and "tags" in answer.body:
                self._note_tags(vm, body["tags"], tags_of(answer.body["tags"]))

    def _patch_extensions(self, vm: DescribedVm, vm_path: str, tags: Mapping[str, str]) -> None:
        names = (*self._extensions.required, *self._extensions.optional)
        for extension in (each for each in names if each.lower() in vm.extensions):
            path = f"{vm_path}/extensions/{quote(extension, safe='')}"
            try:
                self._patch_tags(path, tags, "virtualMachines/extensions:patch", VM_API_VERSION)
            except ArmNotFoundError as error:
                if extension in self._extensions.required:
                    raise _MissingPartError(
                        f"virtual machine {vm.name} has no extension {extension}: {error}"
                    ) from error

    def _patch_tags(
        self, path: str, tags: Mapping[str, str], action: str, api_version: str
    ) -> None:
        self._patch(path, {"tags": dict(tags)}, action, api_version)

    def _patch(self, path: str, body: JsonObject, action: str, api_version: str) -> ArmAnswer:
        self._fence.check()
        return self._client.send("PATCH", path, api_version=api_version, action=action, body=body)


class _MissingPartError(CloudProviderError):
    """A part of a virtual machine is missing; the virtual machine itself exists."""
