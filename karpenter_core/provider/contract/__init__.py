"""Defines the values that pass between the core and a provider.

All values are immutable except `ClusterFacts`, which the core completes. A provider imports these
names from here, models from `.api`, errors from `.errors`.
"""

from __future__ import annotations

from karpenter_core.api.decisions import Decision
from karpenter_core.api.interruptions import InterruptionKind
from karpenter_core.provider.contract.context import (
    ClaimReader,
    ClusterFacts,
    FeatureGates,
    LeaderFence,
    NodeReader,
    NodeWriter,
    ObjectReader,
    PeriodicTask,
    ProviderContext,
    UnfencedProcess,
)
from karpenter_core.provider.contract.conversion import Conversion, ManifestDraft
from karpenter_core.provider.contract.findings import Finding, Severity
from karpenter_core.provider.contract.info import (
    CONTRACT_VERSION,
    POLLING_BOUNDS,
    READ_BOUNDS,
    BatchKey,
    BatchLimits,
    LabelClasses,
    ObjectRead,
    PollingPeriods,
    ProviderInfo,
    RepairPolicy,
    SettingSpec,
)
from karpenter_core.provider.contract.instances import (
    DriftFinding,
    DriftOutcome,
    FetchOutcome,
    Instance,
    InstanceListing,
    RegistrationGate,
    RegistrationRefusal,
    TerminateOutcome,
    TerminationStatus,
)
from karpenter_core.provider.contract.interruptions import Interruption
from karpenter_core.provider.contract.launch import (
    CatalogueOffering,
    LaunchedInstance,
    LaunchOutcome,
    LaunchRequest,
)
from karpenter_core.provider.contract.node_class import NodeClassHash, NodeClassResolution

__all__ = [
    "CONTRACT_VERSION",
    "POLLING_BOUNDS",
    "READ_BOUNDS",
    "BatchKey",
    "BatchLimits",
    "CatalogueOffering",
    "ClaimReader",
    "ClusterFacts",
    "Conversion",
    "Decision",
    "DriftFinding",
    "DriftOutcome",
    "FeatureGates",
    "FetchOutcome",
    "Finding",
    "Instance",
    "InstanceListing",
    "Interruption",
    "InterruptionKind",
    "LabelClasses",
    "LaunchOutcome",
    "LaunchRequest",
    "LaunchedInstance",
    "LeaderFence",
    "ManifestDraft",
    "NodeClassHash",
    "NodeClassResolution",
    "NodeReader",
    "NodeWriter",
    "ObjectRead",
    "ObjectReader",
    "PeriodicTask",
    "PollingPeriods",
    "ProviderContext",
    "ProviderInfo",
    "RegistrationGate",
    "RegistrationRefusal",
    "RepairPolicy",
    "SettingSpec",
    "Severity",
    "TerminateOutcome",
    "TerminationStatus",
    "UnfencedProcess",
]
