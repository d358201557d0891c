"""Drawn objects of every kind are read into the views that are recorded.

Nothing says that they are right: other tests do. These say which fields, defaults and errors a change
changes.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import msgspec
import pytest

from karpenter_core.errors import BadInputError
from karpenter_core.kube import resources
from karpenter_core.kube.wire import autoscalers, devices, raw
from karpenter_core.kube.wire.codecs import Codecs
from karpenter_core.kube.wire.kind_groups import KindGroup
from tests.support.canonical_text import whole_text
from tests.support.drawn_json import drawn_json
from tests.support.recorded_digests import assert_digests

RECORDED = Path(__file__).with_name("recorded_objects.json")
EACH = 120
KINDS = {
    resources.PODS: raw.RawPod,
    resources.NODES: raw.RawNode,
    resources.DAEMON_SETS: raw.RawDaemonSet,
    resources.POD_DISRUPTION_BUDGETS: raw.RawPodDisruptionBudget,
    resources.NAMESPACES: raw.RawNamespace,
    resources.PERSISTENT_VOLUME_CLAIMS: raw.RawPersistentVolumeClaim,
    resources.PERSISTENT_VOLUMES: raw.RawPersistentVolume,
    resources.STORAGE_CLASSES: raw.RawStorageClass,
    resources.CSI_NODES: raw.RawCSINode,
    resources.VOLUME_ATTACHMENTS: raw.RawVolumeAttachment,
    resources.SERVICES: raw.RawService,
    resources.REPLICATION_CONTROLLERS: raw.RawReplicationController,
    resources.REPLICA_SETS: raw.RawTemplatedWorkload,
    resources.STATEFUL_SETS: raw.RawTemplatedWorkload,
    resources.POD_TEMPLATES: raw.RawPodTemplateObject,
    resources.VERTICAL_POD_AUTOSCALERS: autoscalers.RawVerticalPodAutoscaler,
    resources.RESOURCE_CLAIMS: devices.RawResourceClaim,
    resources.RESOURCE_CLAIM_TEMPLATES: devices.RawResourceClaimTemplate,
    resources.RESOURCE_SLICES: devices.RawResourceSlice,
    resources.DEVICE_CLASSES: devices.RawDeviceClass,
}


def read_text(codec, drawn):
    """Return the view of an object with all its fields, or why it cannot be read."""
    try:
        view = codec.decode(msgspec.json.encode(drawn))
    except BadInputError as error:
        return str(error)
    return whole_text(view)


@pytest.mark.recorded
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_objects_are_read_as_recorded(kind):
    random = Random(f"objects {kind.kind}")
    codec = Codecs(groups=tuple(KindGroup)).for_kind(kind)
    made = {
        f"{kind.kind}-{number:03}": read_text(codec, drawn_json(random, KINDS[kind]))
        for number in range(EACH)
    }
    assert_digests(made, RECORDED)
