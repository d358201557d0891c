"""Builders of ProvisioningRequests and what belongs to them, for pure tests."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from karpenter_core.api.base import ObjectMeta
from karpenter_core.api.conditions import Condition
from karpenter_core.api.provisioning_request import (
    ATOMIC_SCALE_UP,
    CONSUMED_REQUEST,
    GANG_ATTEMPT,
    GANG_PODS,
    GANG_REQUEST,
    GANG_SIZE,
    GANG_UID,
    PodSet,
    PodTemplateRef,
    ProvisioningRequest,
    ProvisioningRequestSpec,
    ProvisioningRequestStatus,
)
from karpenter_core.api.workload_records import PodTemplateView
from karpenter_core.testing.builders import EPOCH, pod, pod_shape
from karpenter_core.testing.state_builders import node_and_claim, node_claim

ATTEMPTS = "karpenter.sh/attempts"
ATTEMPT_CLAIMS = "karpenter.sh/attempt-claims"
PLACES = "karpenter.sh/places"
RETRY = "karpenter.sh/retry-after"
MINUTE = timedelta(minutes=1)


def template(name="workers", *, cpu="1"):
    shape = pod_shape(cpu=cpu, owner_kind="")
    return PodTemplateView(uid=f"uid-{name}", namespace="default", name=name, template=shape)


def request(
    *counts,
    name="job",
    provisioning_class=ATOMIC_SCALE_UP,
    conditions=None,
    details=None,
    deleted=None,
    **parameters,
):
    """A request for so many pods of the templates `workers` and `workers-1`, `workers-2` …."""
    return ProvisioningRequest(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=f"uid-{name}",
            resource_version="1",
            generation=1,
            creation_timestamp=EPOCH,
            deletion_timestamp=deleted,
        ),
        spec=ProvisioningRequestSpec(
            provisioning_class_name=provisioning_class,
            pod_sets=tuple(
                PodSet(
                    pod_template_ref=PodTemplateRef(name=f"workers-{n}" if n else "workers"),
                    count=count,
                )
                for n, count in enumerate(counts or (6,))
            ),
            parameters=parameters,
        ),
        status=ProvisioningRequestStatus(
            conditions=tuple(
                Condition(
                    type=kind,
                    status=status,
                    reason=kind,
                    message="",
                    last_transition_time=EPOCH,
                )
                for kind, status in (conditions or {}).items()
            ),
            provisioning_class_details=details or {},
        ),
    )


def gang_annotations(pods, *, job="job", attempt="1", size="2"):
    marks = {GANG_REQUEST: f"default/{job}", GANG_UID: f"uid-{job}", GANG_PODS: pods}
    return marks | ({GANG_ATTEMPT: attempt, GANG_SIZE: size} if attempt else {})


def gang_claim(name, pods="0=3", *, stage="", deleted=None, **marks):
    annotations = gang_annotations(pods, **marks)
    return node_claim(name, stage=stage, annotations=annotations, deleted=deleted)


def gang_node(name, pods="0=3", **marks):
    """A node that is ready, and its claim."""
    return node_and_claim(name, annotations=gang_annotations(pods, **marks))


def consumer(name, *, cpu="1", job="job", **options):
    shape = msgspec.structs.replace(pod_shape(cpu=cpu), annotations={CONSUMED_REQUEST: job})
    return pod(name, shape=shape, **options)
