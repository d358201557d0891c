"""Scenarios as data: given a cluster, when something happens, then facts hold.

One file, several runners: on virtual time inside the test process, against the embedded API
server, and against a real control plane. A scenario therefore speaks of what a user sees, pods,
nodes, claims, events, conditions and the simulated cloud's instances, and never of a process'
insides. Unknown or misspelt keys are refused.

    name: fifty-replicas
    summary: Fifty pods become nodes, and the nodes go when the pods do.
    given:
      nodePools: [{name: general}]
      deployments: [{name: web, replicas: 0, cpu: "1", memory: 1Gi}]
    steps:
    - when: {scale: {deployment: web, replicas: 50}}
      then: {within: 60s, pods: {running: 50}, nodes: {atLeast: 1}}
    - when: {scale: {deployment: web, replicas: 0}}
      then: {within: 60s, nothingLeft: true}
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self, cast

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel

from karpenter_core.api.durations import parse_duration
from karpenter_core.api.json_objects import JsonObject
from karpenter_core.api.labels import NODE_POOL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime
    from pathlib import Path

__all__ = [
    "CountBounds",
    "DeploymentScale",
    "Expectation",
    "ExpectedCondition",
    "ExpectedEvent",
    "ExpectedPods",
    "InitialObjects",
    "NodeCondition",
    "ObjectPatch",
    "RunnerKind",
    "Scenario",
    "ScenarioAction",
    "ScenarioDeployment",
    "ScenarioError",
    "ScenarioNodePool",
    "ScenarioStep",
    "load_scenario",
    "load_scenarios",
]


class ScenarioError(Exception):
    """A scenario file is invalid; the message names file and field."""


class RunnerKind(StrEnum):
    """Control planes that a scenario can run on."""

    VIRTUAL = "virtual"
    """In the test's process, on time that is moved by hand."""
    EMBEDDED = "embedded"
    """Processes of their own, against the embedded API server."""
    REAL = "real"
    """Processes of their own, against a real control plane."""


class _ScenarioModel(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
    )


def _duration(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


Duration = Annotated[timedelta, BeforeValidator(_duration)]
Manifest = JsonObject


def _one_or_many(value: object) -> object:
    return [cast("JsonObject", value)] if isinstance(value, dict) else value


def _count(value: object) -> object:
    return {"atLeast": value, "atMost": value} if isinstance(value, int) else value


class CountBounds(_ScenarioModel):
    """The expected count: a number, or bounds."""

    at_least: int = 0
    at_most: int | None = None

    def accepts(self, number: int) -> bool:
        """Tell whether a number is within the bounds."""
        return self.at_least <= number and (self.at_most is None or number <= self.at_most)

    def __str__(self) -> str:
        if self.at_least == self.at_most:
            return str(self.at_least)
        upper = "" if self.at_most is None else f" and at most {self.at_most}"
        return f"at least {self.at_least}{upper}"


Amount = Annotated[CountBounds, BeforeValidator(_count)]


class ScenarioNodePool(_ScenarioModel):
    """A NodePool in short; empty nodes go at once unless said otherwise."""

    name: str
    node_class: str = "default"
    node_class_group: str = "karpenter.kwok.sh"
    node_class_kind: str = "KWOKNodeClass"
    labels: dict[str, str] = Field(default_factory=dict)
    taints: list[Manifest] = Field(default_factory=list[Manifest])
    startup_taints: list[Manifest] = Field(default_factory=list[Manifest])
    requirements: list[Manifest] = Field(default_factory=list[Manifest])
    limits: dict[str, str] = Field(default_factory=dict)
    weight: int | None = None
    replicas: int | None = None
    """Of a static pool."""
    expire_after: str = ""
    termination_grace_period: str = ""
    disruption: Manifest = Field(
        default_factory=lambda: {
            "consolidationPolicy": "WhenEmpty",
            "consolidateAfter": "0s",
            "budgets": [{"nodes": "100%"}],
        },
    )

    def manifest(self) -> Manifest:
        """Return the object to create."""
        template_spec: Manifest = {
            "nodeClassRef": {
                "group": self.node_class_group,
                "kind": self.node_class_kind,
                "name": self.node_class,
            },
            "requirements": self.requirements,
        }
        if self.taints:
            template_spec["taints"] = self.taints
        if self.startup_taints:
            template_spec["startupTaints"] = self.startup_taints
        if self.expire_after:
            template_spec["expireAfter"] = self.expire_after
        if self.termination_grace_period:
            template_spec["terminationGracePeriod"] = self.termination_grace_period
        template: Manifest = {"spec": template_spec}
        if self.labels:
            template["metadata"] = {"labels": self.labels}
        spec: Manifest = {"template": template, "disruption": self.disruption}
        if self.limits:
            spec["limits"] = self.limits
        if self.weight is not None:
            spec["weight"] = self.weight
        if self.replicas is not None:
            spec["replicas"] = self.replicas
        return {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": self.name},
            "spec": spec,
        }


class ScenarioDeployment(_ScenarioModel):
    """A Deployment of one container in short; `pod` is merged over the pod's spec."""

    name: str
    replicas: int = 0
    cpu: str = "1"
    memory: str = "1Gi"
    pod: Manifest = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations of the pods."""

    def manifest(self) -> Manifest:
        """Return the object to create."""
        labels = {"app": self.name}
        container = {
            "name": "main",
            "image": "nginx",
            "resources": {"requests": {"cpu": self.cpu, "memory": self.memory}},
        }
        pod = {"terminationGracePeriodSeconds": 0, "containers": [container], **self.pod}
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": self.name, "namespace": "default", "labels": labels},
            "spec": {
                "replicas": self.replicas,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels, "annotations": self.annotations},
                    "spec": pod,
                },
            },
        }


class InitialObjects(_ScenarioModel):
    """Objects in the cluster before the first step."""

    node_classes: list[str] = Field(default_factory=lambda: ["default"])
    """Names of KWOKNodeClasses."""
    node_pools: list[ScenarioNodePool] = Field(default_factory=list[ScenarioNodePool])
    deployments: list[ScenarioDeployment] = Field(default_factory=list[ScenarioDeployment])
    manifests: list[Manifest] = Field(default_factory=list[Manifest])
    """Whole objects, for everything that has no short form."""

    def objects(self) -> list[Manifest]:
        """Return all objects in the order of creation."""
        return [
            *(_kwok_node_class(name) for name in self.node_classes),
            *(pool.manifest() for pool in self.node_pools),
            *self.manifests,
            *(deployment.manifest() for deployment in self.deployments),
        ]


def _kwok_node_class(name: str) -> Manifest:
    return {
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": name},
        "spec": {},
    }


class DeploymentScale(_ScenarioModel):
    """Set the number of a Deployment's replicas."""

    deployment: str
    replicas: int


class ObjectDeletion(_ScenarioModel):
    """Delete an object of one of the kinds that scenarios know."""

    kind: Literal["NodePool", "NodeClaim", "Node", "Deployment", "Pod", "KWOKNodeClass"]
    name: str = ""
    """Empty means: all of them."""


class ObjectPatch(_ScenarioModel):
    """Merge-patch objects of a kind."""

    kind: Literal["NodePool", "NodeClaim", "Node", "Deployment", "PodDisruptionBudget"]
    name: str = ""
    """Empty means: all of them."""
    body: Manifest


class NodeCondition(_ScenarioModel):
    """The condition that Nodes of pools have from now on, in place of theirs of that type."""

    type: str = "Ready"
    status: Literal["True", "False", "Unknown"]
    lasts: Duration = timedelta(0)
    """For how long already."""
    nodes: int | None = None
    """Of how many Nodes, the first by name; all of them unless said otherwise."""

    def patches(self, nodes: Iterable[Manifest], now: datetime) -> Iterator[tuple[str, Manifest]]:
        """Yield the names of the Nodes that are concerned, with the patch of their status."""
        ours = [node for node in nodes if NODE_POOL in node["metadata"].get("labels", {})]
        condition = {
            "type": self.type,
            "status": self.status,
            "reason": "Scenario",
            "message": "",
            "lastHeartbeatTime": f"{now:%Y-%m-%dT%H:%M:%SZ}",
            "lastTransitionTime": f"{now - self.lasts:%Y-%m-%dT%H:%M:%SZ}",
        }
        for node in sorted(ours, key=lambda each: str(each["metadata"]["name"]))[: self.nodes]:
            conditions = [c for c in node["status"].get("conditions", []) if c["type"] != self.type]
            body: Manifest = {"status": {"conditions": [*conditions, condition]}}
            yield node["metadata"]["name"], body


class ScenarioAction(_ScenarioModel):
    """One thing that happens."""

    scale: DeploymentScale | None = None
    create: list[Manifest] | None = None
    deploy: ScenarioDeployment | None = None
    delete: ObjectDeletion | None = None
    patch: ObjectPatch | None = None
    node_condition: NodeCondition | None = None
    faults: list[Manifest] | None = None
    """The faults of the simulated cloud from now on, as in its faults file."""
    wait: Duration | None = None
    kill: Literal["controller"] | None = None
    """SIGKILL, without time for any farewell."""
    start: Literal["controller"] | None = None
    restart: Literal["apiServer"] | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError(f"needs exactly one action, has {sorted(self.model_fields_set)}")
        return self


class ExpectedPods(_ScenarioModel):
    """The expected number of the scenario's pods."""

    running: Amount | None = None
    pending: Amount | None = None


class ExpectedEvent(_ScenarioModel):
    """An event that must have been written."""

    reason: str = ""
    kind: str = ""
    """Kind of the object it is about."""
    contains: list[str] = Field(default_factory=list)
    """Each must occur in the message."""
    count: Amount = CountBounds(at_least=1)
    """The expected number of different events that say so; repetitions of one do not count."""


class ExpectedCondition(_ScenarioModel):
    """A condition that an object must show."""

    kind: Literal["NodePool", "NodeClaim", "KWOKNodeClass"]
    name: str
    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str = ""
    contains: list[str] = Field(default_factory=list)


class Expectation(_ScenarioModel):
    """Facts that must come true `within` a time, and then hold for another."""

    within: Duration = timedelta(seconds=60)
    hold: Duration = timedelta(0)
    """The time for which all of it must stay true once it is."""
    pods: ExpectedPods | None = None
    nodes: Amount | None = None
    """Nodes that belong to a NodePool."""
    ready_nodes: Amount | None = None
    node_claims: Amount | None = None
    instances: Amount | None = None
    """Instances of the simulated cloud."""
    launched: Amount | None = None
    """NodeClaims that ever existed in this scenario."""
    nothing_left: bool = False
    """No pod, node of a pool, claim or instance is left."""
    consistent: bool = False
    """Instances, claims and nodes belong to each other one to one; no instance is a twin."""
    pools_used: list[str] | None = None
    """Exactly these NodePools have nodes."""
    node_taints_absent: list[str] = Field(default_factory=list)
    """No node carries a taint of these keys."""
    node_labels: dict[str, str] = Field(default_factory=dict)
    """Labels that every node of a pool carries."""
    events: list[ExpectedEvent] = Field(default_factory=list[ExpectedEvent])
    conditions: list[ExpectedCondition] = Field(default_factory=list[ExpectedCondition])


class ScenarioStep(_ScenarioModel):
    """One step: an action, and the facts that must follow."""

    when: Annotated[list[ScenarioAction], BeforeValidator(_one_or_many)] = Field(
        default_factory=list[ScenarioAction],
    )
    then: Expectation | None = None

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if not self.when and self.then is None:
            raise ValueError("says neither when nor then")
        return self


ALL_RUNNERS: Final = (RunnerKind.VIRTUAL, RunnerKind.EMBEDDED, RunnerKind.REAL)


class Scenario(_ScenarioModel):
    """One story."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    summary: str
    runs: list[RunnerKind] = Field(default_factory=lambda: list(ALL_RUNNERS))
    providers: list[str] = Field(default_factory=lambda: ["kwok"])
    settings: dict[str, str] = Field(default_factory=dict)
    """Options of `karpenter run`, by flag without dashes in front."""
    given: InitialObjects
    steps: list[ScenarioStep] = Field(min_length=1)


def load_scenario(path: Path) -> Scenario:
    """Read one scenario.

    Raises:
        ScenarioError: names the file and each field that is wrong.
    """
    try:
        scenario = Scenario.model_validate(yaml.safe_load(path.read_text()))
    except (yaml.YAMLError, ValidationError) as error:
        raise ScenarioError(f"{path.name}: {error}") from error
    if scenario.name != path.stem:
        raise ScenarioError(f"{path.name}: name: must be the file's, is {scenario.name!r}")
    return scenario


def load_scenarios(folder: Path, runner: RunnerKind) -> Iterable[Scenario]:
    """Read the scenarios of a folder that can run there, in the order of their names."""
    scenarios = [load_scenario(path) for path in sorted(folder.glob("*.yaml"))]
    return [scenario for scenario in scenarios if runner in scenario.runs]
