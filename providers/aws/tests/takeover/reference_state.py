"""State as Karpenter's own controller for AWS leaves it: objects of the cluster, and EC2's instances.

Names, values and forms are facts of Karpenter's API (`karpenter.sh/v1`, `karpenter.k8s.aws/v1`): hashes of
NodeClasses have its version, instances and launch templates are tagged at launch with cluster, NodePool and
NodeClass, and with `Name` and `karpenter.sh/nodeclaim` once the node has registered. CreateFleet gets no client
token, and an instance no tag that names its NodeClaim before that.
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from typing import TYPE_CHECKING, Any, Final, final

import boto3
import botocore.session

from karpenter_core.kube.resources import NODES
from karpenter_core.kube.wire.codecs import NODE_CLAIMS, NODE_POOLS

if TYPE_CHECKING:
    from karpenter_core.testing.harness import ControllerHarness
    from karpenter_simulated_aws.cloud import SimulatedAws

__all__ = [
    "CLUSTER",
    "NODE_CLASS_HASH",
    "NODE_CLASS_HASH_VERSION",
    "NODE_POOL_HASH",
    "REGISTERED_TAGS",
    "ReferenceState",
]

CLUSTER: Final = "test"
NODE_CLASS_HASH: Final = "15389374310012304251"
NODE_CLASS_HASH_VERSION: Final = "v6"
NODE_POOL_HASH: Final = "6821555240594823858"
"""Karpenter's value for a template with nothing but `karpenter.k8s.aws/EC2NodeClass/default` and 720h."""
LONG_AGO: Final = "2029-12-31T20:00:00Z"
REGISTERED_TAGS: Final = ("Name", "karpenter.sh/nodeclaim", "eks:eks-cluster-name")
REFERENCE: Final = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
IMAGE: Final = (
    "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/x86_64/standard/recommended/image_id"
)
LAUNCHED: Final = ("Launched",)
RUNNING: Final = ("Launched", "Registered", "Initialized", "Ready", "ConsistentStateFound")


def condition(kind: str, status: str = "True", reason: str = "") -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason or kind,
        "message": "",
        "lastTransitionTime": LONG_AGO,
        "observedGeneration": 1,
    }


@cache
def loader() -> Any:
    """Return what reads the descriptions of AWS's services, each once in a process: EC2's takes a second."""
    return botocore.session.Session().get_component("data_loader")


@final
class ReferenceState:
    """Writes the state into a cluster and a simulated AWS."""

    def __init__(self, aws: SimulatedAws, harness: ControllerHarness) -> None:
        self.aws, self.harness = aws, harness
        core = botocore.session.Session()
        core.register_component("data_loader", loader())
        session = boto3.Session(botocore_session=core)
        self.ec2, self.iam = session.client("ec2"), session.client("iam")
        self.image = session.client("ssm").get_parameter(Name=IMAGE)["Parameter"]["Value"]
        self.zone, self.subnet = next(iter(sorted(aws.world.subnets.items())))
        found = self.ec2.describe_subnets(SubnetIds=sorted(aws.world.subnets.values()))["Subnets"]
        self.zone_ids = {each["SubnetId"]: each["AvailabilityZoneId"] for each in found}
        self.profile = f"{CLUSTER}_10837470498321974529"
        self.instances: dict[str, str] = {}
        """Provider IDs by NodeClaim."""

    # -- objects -----------------------------------------------------------------------------------

    def node_class(self) -> None:
        """Write a NodeClass that is Ready, and its instance profile."""
        discovery = {"tags": {"karpenter.sh/discovery": CLUSTER}}
        self._apply(
            {
                "apiVersion": "karpenter.k8s.aws/v1",
                "kind": "EC2NodeClass",
                "metadata": {
                    "name": "default",
                    "finalizers": ["karpenter.k8s.aws/termination"],
                    "annotations": {
                        "karpenter.k8s.aws/ec2nodeclass-hash": NODE_CLASS_HASH,
                        "karpenter.k8s.aws/ec2nodeclass-hash-version": NODE_CLASS_HASH_VERSION,
                    },
                },
                "spec": {
                    "role": self.aws.world.role,
                    "amiSelectorTerms": [{"alias": "al2023@latest"}],
                    "subnetSelectorTerms": [discovery],
                    "securityGroupSelectorTerms": [discovery],
                },
            }
        )
        (node_class,) = self.objects("EC2NodeClass")
        uid = node_class["metadata"]["uid"]
        self.iam.create_instance_profile(
            InstanceProfileName=self.profile,
            Path=f"/karpenter/{self.aws.account.region}/{CLUSTER}/{uid}/",
            Tags=tags_of(
                {
                    **self._tags(),
                    "karpenter.k8s.aws/ec2nodeclass": "default",
                    "topology.kubernetes.io/region": self.aws.account.region,
                }
            ),
        )
        self.iam.add_role_to_instance_profile(
            InstanceProfileName=self.profile, RoleName=self.aws.world.role
        )
        self.write_status(
            node_class,
            {
                "instanceProfile": self.profile,
                "subnets": [
                    {"id": subnet, "zone": zone, "zoneID": self.zone_ids[subnet]}
                    for zone, subnet in sorted(self.aws.world.subnets.items())
                ],
                "securityGroups": [{"id": self.aws.world.security_group_id, "name": "test-node"}],
                "amis": [
                    {
                        "id": self.image,
                        "name": "al2023",
                        "requirements": [
                            {
                                "key": "kubernetes.io/arch",
                                "operator": "In",
                                "values": ["amd64"],
                            }
                        ],
                    }
                ],
                "conditions": [
                    condition(kind)
                    for kind in (
                        "AMIsReady",
                        "CapacityReservationsReady",
                        "InstanceProfileReady",
                        "SecurityGroupsReady",
                        "SubnetsReady",
                        "ValidationSucceeded",
                        "Ready",
                    )
                ],
            },
        )

    def node_pool(self, name: str = "web", **spec: Any) -> None:
        """Write a NodePool that is Ready; by default one that never consolidates."""
        self._apply(
            {
                "apiVersion": "karpenter.sh/v1",
                "kind": "NodePool",
                "metadata": {
                    "name": name,
                    "annotations": {
                        "karpenter.sh/nodepool-hash": NODE_POOL_HASH,
                        "karpenter.sh/nodepool-hash-version": "v3",
                    },
                },
                "spec": {
                    "disruption": {"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]},
                    "template": {
                        "spec": {
                            "nodeClassRef": REFERENCE,
                            "expireAfter": "720h",
                            "requirements": [
                                {
                                    "key": "karpenter.sh/capacity-type",
                                    "operator": "In",
                                    "values": ["spot", "on-demand"],
                                }
                            ],
                        }
                    },
                    **spec,
                },
            }
        )
        pool = self.harness.pool(name)
        kinds = ("ValidationSucceeded", "NodeClassReady", "NodeRegistrationHealthy", "Ready")
        self.write_status(pool, {"conditions": [condition(kind) for kind in kinds]})

    def claim(
        self, name: str, *, pool: str = "web", annotations: dict[str, str] | None = None
    ) -> None:
        """Write a NodeClaim as the scheduler creates it, not launched yet."""
        uid = self.harness.pool(pool)["metadata"]["uid"]
        self._apply(
            {
                "apiVersion": "karpenter.sh/v1",
                "kind": "NodeClaim",
                "metadata": {
                    "name": name,
                    "generateName": f"{pool}-",
                    "labels": {
                        "karpenter.sh/nodepool": pool,
                        "karpenter.k8s.aws/ec2nodeclass": "default",
                    },
                    "annotations": {
                        "karpenter.sh/nodepool-hash": NODE_POOL_HASH,
                        "karpenter.sh/nodepool-hash-version": "v3",
                        "karpenter.k8s.aws/ec2nodeclass-hash": NODE_CLASS_HASH,
                        "karpenter.k8s.aws/ec2nodeclass-hash-version": NODE_CLASS_HASH_VERSION,
                        "karpenter.sh/nodeclaim-min-values-relaxed": "false",
                        **(annotations or {}),
                    },
                    "finalizers": ["karpenter.sh/termination"],
                    "ownerReferences": [
                        {
                            "apiVersion": "karpenter.sh/v1",
                            "kind": "NodePool",
                            "name": pool,
                            "uid": uid,
                            "blockOwnerDeletion": True,
                        }
                    ],
                },
                "spec": {
                    "nodeClassRef": REFERENCE,
                    "expireAfter": "720h",
                    "requirements": [
                        {"key": key, "operator": "In", "values": values}
                        for key, values in (
                            ("karpenter.sh/capacity-type", ["on-demand"]),
                            ("karpenter.sh/nodepool", [pool]),
                            ("karpenter.k8s.aws/ec2nodeclass", ["default"]),
                            ("node.kubernetes.io/instance-type", ["m5.large", "m5.xlarge"]),
                        )
                    ],
                    "resources": {"requests": {"cpu": "1", "memory": "1Gi", "pods": "3"}},
                },
            }
        )

    def launched(self, name: str, *, pool: str = "web", **claim: Any) -> str:
        """Write a NodeClaim with its instance, whose node has not come yet; return the provider ID."""
        self.claim(name, pool=pool, **claim)
        provider_id = self.instances[name] = self.launch(pool=pool)
        found = self.find("NodeClaim", name)
        assert found is not None
        self._patch(
            found,
            {
                "metadata": {
                    "labels": {**self._labels()},
                    "annotations": {"karpenter.k8s.aws/instance-profile-name": self.profile},
                }
            },
        )
        self._claim_status(name, LAUNCHED)
        return provider_id

    def running(self, name: str, *, pool: str = "web", **claim: Any) -> str:
        """Write a NodeClaim with its instance and its Node, in service; return the provider ID."""
        provider_id = self.launched(name, pool=pool, **claim)
        node_name = f"ip-{name}.ec2.internal"
        self.ec2.create_tags(
            Resources=[provider_id.rpartition("/")[2]],
            Tags=tags_of(
                {
                    "Name": node_name,
                    "karpenter.sh/nodeclaim": name,
                    "eks:eks-cluster-name": CLUSTER,
                }
            ),
        )
        found = self.find("NodeClaim", name)
        assert found is not None
        self._patch(
            found,
            {
                "metadata": {
                    "annotations": {
                        "karpenter.k8s.aws/tagged": "true",
                        "compatibility.karpenter.k8s.aws/cluster-name-tagged": "true",
                    }
                }
            },
        )
        self._claim_status(name, RUNNING, nodeName=node_name)
        amounts = {"cpu": "2", "memory": "7600Mi", "pods": "29", "ephemeral-storage": "20Gi"}
        owner = {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "name": name,
            "uid": found["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }
        self._apply(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": node_name,
                    "labels": {
                        **self._labels(),
                        "karpenter.sh/nodepool": pool,
                        "karpenter.k8s.aws/ec2nodeclass": "default",
                        "karpenter.sh/registered": "true",
                        "karpenter.sh/initialized": "true",
                        "karpenter.sh/do-not-sync-taints": "true",
                        "kubernetes.io/hostname": node_name,
                    },
                    "annotations": dict(found["metadata"]["annotations"]),
                    "finalizers": ["karpenter.sh/termination"],
                    "ownerReferences": [owner],
                },
                "spec": {"providerID": provider_id},
            }
        )
        node = self.find("Node", node_name)
        assert node is not None
        self.write_status(
            node,
            {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": LONG_AGO}],
                "nodeInfo": {"kubeletVersion": "v1.34.0"},
            },
        )
        return provider_id

    # -- the cloud ---------------------------------------------------------------------------------

    def launch(self, *, pool: str = "web") -> str:
        """Launch an instance as a fleet of one, from a launch template; return its provider ID."""
        tags = {
            **self._tags(),
            "karpenter.sh/nodepool": pool,
            "karpenter.k8s.aws/ec2nodeclass": "default",
        }
        name = f"karpenter.k8s.aws/1044703562478{len(self.instances)}{pool}"
        if not self.ec2.describe_launch_templates(
            Filters=[{"Name": "launch-template-name", "Values": [name]}]
        )["LaunchTemplates"]:
            self._create_template(name, tags)
        answer = self.ec2.create_fleet(
            Type="instant",
            LaunchTemplateConfigs=[
                {
                    "LaunchTemplateSpecification": {
                        "LaunchTemplateName": name,
                        "Version": "$Latest",
                    },
                    "Overrides": [
                        {
                            "InstanceType": "m5.large",
                            "SubnetId": self.subnet,
                            "ImageId": self.image,
                            "AvailabilityZone": self.zone,
                        }
                    ],
                }
            ],
            TargetCapacitySpecification={
                "TotalTargetCapacity": 1,
                "DefaultTargetCapacityType": "on-demand",
            },
            OnDemandOptions={"AllocationStrategy": "lowest-price"},
            TagSpecifications=[
                {"ResourceType": kind, "Tags": tags_of(tags)}
                for kind in ("instance", "volume", "fleet")
            ],
        )
        (instance,) = answer["Instances"]
        return f"aws:///{self.zone}/{instance['InstanceIds'][0]}"

    def _create_template(self, name: str, tags: dict[str, str]) -> None:
        group = self.aws.world.security_group_id
        interface = {"DeviceIndex": 0, "Groups": [group]}
        self.ec2.create_launch_template(
            LaunchTemplateName=name,
            LaunchTemplateData={
                "ImageId": self.image,
                "IamInstanceProfile": {"Name": self.profile},
                "NetworkInterfaces": [interface],
                "UserData": b64encode(b"MIME-Version: 1.0\n").decode(),
                "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
            },
            TagSpecifications=[{"ResourceType": "launch-template", "Tags": tags_of(tags)}],
        )

    # -- reading -----------------------------------------------------------------------------------

    def objects(self, kind: str) -> list[Any]:
        """Return the objects of a kind."""
        found = {"NodeClaim": NODE_CLAIMS, "NodePool": NODE_POOLS, "Node": NODES}.get(kind)
        return self.harness.cluster.list(found or node_class_kind())

    def find(self, kind: str, name: str) -> Any:
        """Return one object, or None."""
        return next((o for o in self.objects(kind) if o["metadata"]["name"] == name), None)

    def _tags(self) -> dict[str, str]:
        return {f"kubernetes.io/cluster/{CLUSTER}": "owned", "eks:eks-cluster-name": CLUSTER}

    def _labels(self) -> dict[str, str]:
        return {
            "karpenter.sh/capacity-type": "on-demand",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": "m5.large",
            "topology.kubernetes.io/region": self.aws.account.region,
            "topology.kubernetes.io/zone": self.zone,
            "topology.k8s.aws/zone-id": self.zone_ids[self.subnet],
            "karpenter.k8s.aws/instance-category": "m",
            "karpenter.k8s.aws/instance-family": "m5",
            "karpenter.k8s.aws/instance-generation": "5",
            "karpenter.k8s.aws/instance-size": "large",
            "karpenter.k8s.aws/instance-cpu": "2",
            "karpenter.k8s.aws/instance-memory": "8192",
            "karpenter.k8s.aws/instance-hypervisor": "nitro",
        }

    def _claim_status(self, name: str, kinds: tuple[str, ...], **more: str) -> None:
        found = self.find("NodeClaim", name)
        amounts = {"cpu": "2", "memory": "7600Mi", "pods": "29", "ephemeral-storage": "20Gi"}
        self.write_status(
            found,
            {
                "providerID": self.instances[name],
                "imageID": self.image,
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [condition(kind) for kind in kinds],
                **more,
            },
        )

    def _apply(self, manifest: dict[str, Any]) -> None:
        self.harness.cluster.apply([manifest])

    def write_status(self, written: Any, status: dict[str, Any]) -> None:
        """Write the status of an object."""
        self._patch(written, {"status": status}, part="status")

    def _patch(self, written: Any, body: dict[str, Any], *, part: str = "") -> None:
        kinds = {"NodeClaim": NODE_CLAIMS, "NodePool": NODE_POOLS, "Node": NODES}
        kind = kinds.get(written["kind"]) or node_class_kind()
        name = written["metadata"]["name"]
        self.harness.cluster.server.registry.patch(kind, body, name, "", part=part)


def node_class_kind() -> Any:
    from karpenter_core.kube.resources import custom_kind
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass

    return custom_kind(EC2NodeClass.resource)


def tags_of(tags: dict[str, str]) -> list[Any]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]
