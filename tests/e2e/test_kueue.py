"""Kueue admits a job when there is room for all of its pods, on a real control plane.

Kueue and the CRDs of Kueue and Cluster Autoscaler are those of their modules, unchanged. Kueue runs without
its webhooks, which only fill in defaults that the objects here give themselves.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
import yaml

from karpenter_core.api.provisioning_request import (
    ATOMIC_SCALE_UP,
    CONSUMED_REQUEST,
    GANG_ATTEMPT,
    GANG_REQUEST,
)
from karpenter_core.kube.resources import POD_TEMPLATES, PODS, ResourceKind
from karpenter_core.kube.wire.codecs import PROVISIONING_REQUESTS
from tests.e2e.kwok import KwokCloud
from tests.support.certificates import CertificateAuthority
from tests.support.controlplane import find_binaries
from tests.support.local_clusters import RealLocalCluster
from tests.support.processes import ChildProcess, free_ports, wait_until
from tests.support.runner import NODE_CLAIMS, NODE_POOLS, ScenarioWorld
from tests.support.shared_clusters import PROCESS_CORES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
KUEUE = CACHE / "karpenter-core" / "controlplane" / "kueue-v0.19.0"
GROUP = "kueue.x-k8s.io"


def kueue_kind(plural: str, kind: str, *, namespaced: bool = False) -> ResourceKind:
    return ResourceKind(GROUP, "v1beta2", plural, kind, namespaced=namespaced)


JOBS = ResourceKind("batch", "v1", "jobs", "Job", namespaced=True)
WORKLOADS = kueue_kind("workloads", "Workload", namespaced=True)
LOCAL_QUEUES = kueue_kind("localqueues", "LocalQueue", namespaced=True)
KINDS = (
    JOBS,
    WORKLOADS,
    PROVISIONING_REQUESTS,
    POD_TEMPLATES,
    LOCAL_QUEUES,
    kueue_kind("clusterqueues", "ClusterQueue"),
    kueue_kind("resourceflavors", "ResourceFlavor"),
    kueue_kind("admissionchecks", "AdmissionCheck"),
    kueue_kind("provisioningrequestconfigs", "ProvisioningRequestConfig"),
)
"""Kinds of the story, in the order in which they are removed."""

QUEUES = f"""
apiVersion: {GROUP}/v1beta2
kind: ResourceFlavor
metadata: {{name: any-node}}
---
apiVersion: {GROUP}/v1beta2
kind: ProvisioningRequestConfig
metadata: {{name: whole-gangs}}
spec:
  provisioningClassName: {ATOMIC_SCALE_UP}
  parameters: {{ValidUntilSeconds: "1800"}}
---
apiVersion: {GROUP}/v1beta2
kind: AdmissionCheck
metadata: {{name: whole-gangs}}
spec:
  controllerName: kueue.x-k8s.io/provisioning-request
  parameters: {{apiGroup: {GROUP}, kind: ProvisioningRequestConfig, name: whole-gangs}}
---
apiVersion: {GROUP}/v1beta2
kind: ClusterQueue
metadata: {{name: batch}}
spec:
  namespaceSelector: {{}}
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - name: any-node
      resources: [{{name: cpu, nominalQuota: 100}}, {{name: memory, nominalQuota: 400Gi}}]
  admissionChecksStrategy:
    admissionChecks: [{{name: whole-gangs}}]
---
apiVersion: {GROUP}/v1beta2
kind: LocalQueue
metadata: {{name: batch, namespace: default}}
spec: {{clusterQueue: batch}}
"""
POOL = """
apiVersion: karpenter.kwok.sh/v1alpha1
kind: KWOKNodeClass
metadata: {name: default}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  limits: {cpu: "4"}
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 0s}
  template:
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements:
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
      - {key: karpenter.kwok.sh/instance-cpu, operator: In, values: ["4"]}
"""
JOB = f"""
apiVersion: batch/v1
kind: Job
metadata:
  name: training
  namespace: default
  labels: {{{GROUP}/queue-name: batch}}
spec:
  suspend: true
  parallelism: 6
  completions: 6
  template:
    metadata: {{labels: {{job: training}}}}
    spec:
      restartPolicy: Never
      containers:
      - name: work
        image: busybox
        resources: {{requests: {{cpu: "1", memory: 100Mi}}}}
"""
CONFIGURATION = f"""
apiVersion: config.{GROUP}/v1beta2
kind: Configuration
leaderElection: {{leaderElect: false}}
internalCertManagement: {{enable: false}}
integrations: {{frameworks: [batch/job]}}
"""

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(400),
]


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(kubernetes: str) -> AsyncIterator[RealLocalCluster]:
    """A real control plane of its own: the CRDs of others stay in no shared one."""
    assert find_binaries(kubernetes)
    if not (KUEUE / "kueue").exists():
        pytest.fail(f"Kueue is not built: `python {ROOT}/tests/e2e/kueue/build_kueue.py` does it")
    async with RealLocalCluster(kubernetes, cores=PROCESS_CORES) as local_cluster:
        yield local_cluster


def kueue(cluster: RealLocalCluster, folder: Path) -> ChildProcess:
    """Return Kueue's controller manager with everything on free ports of this host."""
    webhook, metrics, health = free_ports(3)
    # Kueue reads the certificate of its metrics below /etc: a namespace of its own has it there.
    etc, work = folder / "etc", folder / "work"
    certificates = etc / "kueue" / "metrics" / "certs"
    certificates.mkdir(parents=True)
    work.mkdir()
    overlay = f"lowerdir=/etc,upperdir={etc},workdir={work}"
    CertificateAuthority(certificates).issue("tls", "kueue", hosts=("127.0.0.1",))
    configuration = yaml.safe_load(CONFIGURATION)
    configuration |= {
        "webhook": {"port": webhook, "host": "127.0.0.1", "certDir": str(certificates)},
        "metrics": {"bindAddress": f"127.0.0.1:{metrics}"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
    }
    file = folder / "kueue.yaml"
    file.write_text(yaml.safe_dump(configuration))
    return ChildProcess(
        "kueue",
        [
            *("unshare", "--mount", "--map-root-user", "sh", "-c"),
            f'mount -t overlay overlay -o {overlay} /etc && exec "$@"',
            "sh",
            KUEUE / "kueue",
            f"--config={file}",
            f"--kubeconfig={cluster.kubeconfig}",
            "--feature-gates=VisibilityOnDemand=false",
        ],
        log=folder / "kueue.log",
    )


def conditions(found):
    return {
        each["type"]: (each["status"], each["reason"])
        for each in found.get("status", {}).get("conditions", ())
    }


async def test_kueue_starts_a_job_when_all_of_its_nodes_are_ready(
    cluster: RealLocalCluster, tmp_path
):
    crds = (*sorted((ROOT / "crds").glob("*.yaml")), *sorted((KUEUE / "crds").glob("*.yaml")))
    queue = kueue(cluster, tmp_path)
    async with ScenarioWorld(cluster, KwokCloud(), tmp_path, crds=crds, kinds=KINDS) as world:
        await queue.start()
        controller = world.add_controller(
            options={"providers": "kwok", "provisioning-requests": "true"}
        )
        try:
            await controller.start()
            for manifest in (*yaml.safe_load_all(POOL), *yaml.safe_load_all(QUEUES)):
                await world.create(manifest)
            await world.create(yaml.safe_load(JOB))

            async def requests():
                return await world.client.list(PROVISIONING_REQUESTS)

            async def has_no_capacity():
                return any(
                    conditions(each).get("Provisioned") == ("False", "CapacityIsNotFound")
                    for each in await requests()
                )

            async def is_told():
                return any(
                    "have no place" in check.get("message", "")
                    for each in await world.client.list(WORKLOADS)
                    for check in each.get("status", {}).get("admissionChecks", ())
                )

            async def is_done():
                (job,) = await world.client.list(JOBS)
                return job.get("status", {}).get("succeeded") == 6

            await wait_until(has_no_capacity, seconds=20)
            await wait_until(is_told, seconds=20)
            assert not await world.client.list(NODE_CLAIMS)
            assert not await world.client.list(PODS)
            patch = {"spec": {"limits": {"cpu": "8"}}}
            await world.client.patch(NODE_POOLS, "general", patch)
            await wait_until(is_done, seconds=150)
            # Kueue deletes the request of a job that is done.
            (request,) = (each.object for each in world.mirror.ever(PROVISIONING_REQUESTS))
            name = request["metadata"]["name"]
            assert conditions(request)["Accepted"] == ("True", "Accepted")
            assert conditions(request)["Provisioned"] == ("True", "CapacityIsProvisioned")
            pods = await world.client.list(PODS)
            assert {each["metadata"]["annotations"][CONSUMED_REQUEST] for each in pods} == {name}
            claims = [each.object for each in world.mirror.ever(NODE_CLAIMS)]
            assert len(claims) == 2, "the job got its gang and no more"
            for claim in claims:
                annotations = claim["metadata"]["annotations"]
                assert annotations[GANG_REQUEST] == f"default/{name}"
                assert GANG_ATTEMPT not in annotations
        except BaseException:
            for kind in KINDS:
                for found in await world.client.list(kind):
                    found["metadata"].pop("managedFields", None)
                    print(yaml.safe_dump(found))  # noqa: T201 - seen where it fails
            print(controller.process.log_tail())  # noqa: T201
            print((tmp_path / "kueue.log").read_text()[-6000:])  # noqa: T201
            raise
        finally:
            await queue.stop()
