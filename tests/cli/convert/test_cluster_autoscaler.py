"""Flags of Cluster Autoscaler: each is converted, or left out with the reason."""

from __future__ import annotations

import pytest
import yaml

from karpenter_core.cli.convert.cluster_autoscaler import CLUSTER_AUTOSCALER_CONVERSIONS
from karpenter_core.cli.convert.draft import FieldFate
from karpenter_core.cli.convert.session import convert_documents
from karpenter_core.cli.convert.yaml_manifest import node_of
from karpenter_core.cli.convert.yaml_text import TextDocument
from karpenter_core.errors import BadInputError
from karpenter_core.provider.contract import Conversion
from karpenter_core.provider.kit.cluster_autoscaler import autoscaler_flags, autoscaler_settings
from karpenter_core.provider.kit.node_groups import NodeGroup, write_node_pool


def autoscaler(*flags: str, args: tuple[str, ...] = (), **container: object) -> dict[str, object]:
    """Return the Deployment of Cluster Autoscaler with flags."""
    main = {
        "name": "main",
        "image": "registry.k8s.io/autoscaling/cluster-autoscaler:v1.34.1",
        "command": ["./cluster-autoscaler", *flags],
        "args": list(args),
        **container,
    }
    pod = {"containers": [{"name": "sidecar", "image": "proxy:1"}, main]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "cluster-autoscaler"},
        "spec": {"replicas": 1, "template": {"spec": pod}},
    }


def converted(*documents: dict[str, object], group: NodeGroup | None = None):
    """Return the results for documents, and the NodePool of a group that comes first."""
    rule = Conversion(
        kind="group",
        accepts=lambda document: "group" in document,
        convert=lambda draft: (draft.use("group", ""), write_node_pool(draft, group)),
        successors={},
    )
    given = [*([{"group": group.name}] if group else []), *documents]
    texts = [TextDocument(where="input", node=node_of(each), text="") for each in given]
    return convert_documents(texts, [*CLUSTER_AUTOSCALER_CONVERSIONS, rule])


def pool_of(*documents: dict[str, object], **fields: object) -> dict[str, object]:
    group = NodeGroup(
        **{"name": "web", "class_group": "g", "class_kind": "K", "class_name": "web", **fields}
    )
    result = converted(*documents, group=group)[0]
    assert not result.error
    return yaml.safe_load(result.texts[0])


def expander() -> dict[str, object]:
    return {
        "kind": "ConfigMap",
        "metadata": {"name": "cluster-autoscaler-priority-expander"},
        "data": {"priorities": "50: [web]"},
    }


def test_flags_are_read_in_all_forms():
    flags = autoscaler_flags(
        autoscaler("--a=1", "-b", "2", "--c", args=("--d=x=y", "--e")),
    )

    assert [(flag.name, flag.value, len(flag.paths)) for flag in flags] == [
        ("a", "1", 1), ("b", "2", 2), ("c", "true", 1), ("d", "x=y", 1), ("e", "true", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "container",
    [
        {"image": "example.com/mirror/cluster-autoscaler-arm64@sha256:0"},
        {"image": "example.com/tools:1", "command": ["/bin/cluster-autoscaler", "--v=1"]},
    ],
)
def test_a_deployment_is_recognised_by_its_image_or_its_program(container):
    assert converted(autoscaler("--v=1", **container))[0].is_converted


def test_another_deployment_stays_as_it_is():
    assert not converted(autoscaler(image="nginx:1", command=["nginx"]))[0].is_converted


def test_the_time_without_use_becomes_consolidate_after():
    disruption = pool_of(autoscaler("--scale-down-unneeded-time=90s"))["spec"]["disruption"]

    assert disruption["consolidateAfter"] == "90s"


@pytest.mark.parametrize("text", ["false", "False", "f", "0"])
def test_without_scale_down_nothing_is_consolidated(text):
    disruption = pool_of(autoscaler(f"--scale-down-enabled={text}"))["spec"]["disruption"]

    assert disruption["consolidateAfter"] == "Never"


def test_bounds_of_a_flag_precede_those_of_the_group():
    result = converted(
        autoscaler("--nodes=3:9:web", "--nodes=0:1:other"),
        group=NodeGroup(name="web", class_group="g", class_kind="K", class_name="web", maximum=5),
    )[0]

    assert yaml.safe_load(result.texts[0])["spec"]["limits"] == {"nodes": 9}
    assert "minimum of 3 nodes" in result.warnings[0]


def test_a_startup_taint_of_a_flag_becomes_one_of_the_pool():
    taint = {"key": "example.com/agent", "effect": "NoSchedule"}

    spec = pool_of(autoscaler("--startup-taint=example.com/agent"), taints=[taint])["spec"]

    assert spec["template"]["spec"]["startupTaints"] == [taint]
    assert "taints" not in spec["template"]["spec"]


@pytest.mark.parametrize(
    ("flags", "weight"),
    [((), None), (("--expander=least-waste",), None), (("--expander=priority,random",), 50)],
)
def test_priorities_count_only_for_the_priority_expander(flags, weight):
    assert pool_of(autoscaler(*flags), expander())["spec"].get("weight") == weight


def test_priorities_count_where_the_autoscaler_is_not_in_the_input():
    assert pool_of(expander())["spec"]["weight"] == 50


def test_totals_become_a_capacity_quota():
    result = converted(autoscaler("--cores-total=8:400", "--memory-total=0:1600"))[0]

    quota = yaml.safe_load(result.texts[0])
    assert (quota["kind"], quota["spec"]["limits"]["resources"]) == (
        "CapacityQuota",
        {"cpu": "400", "memory": "1600Gi"},
    )
    assert "--capacity-quotas=true" in result.warnings[0]


@pytest.mark.parametrize(
    "flag",
    ["--bypassed-scheduler-names=a", "--enable-dynamic-resource-allocation", "--parallel-scale-up",
     "--force-delete-failed-nodes", "--capacity-buffer-controller-enabled"],
)  # fmt: skip
def test_flags_of_newer_versions_are_known(flag):
    (result,) = converted(autoscaler(flag))
    assert FieldFate.UNKNOWN not in {change.fate for change in result.changes}


@pytest.mark.parametrize(
    ("flags", "named", "unnamed"),
    [
        ((), ("local-storage", "system-pods", "custom-controller-pods"), ()),
        (
            ("--skip-nodes-with-system-pods=false", "--skip-nodes-with-custom-controller-pods=false"),
            ("with local storage (--skip-nodes-with-local-storage)",),
            ("system-pods",),
        ),
        (
            (
                "--skip-nodes-with-system-pods=false", "--skip-nodes-with-local-storage=false",
                "--skip-nodes-with-custom-controller-pods=false",
            ),
            (),
            ("evicted",),
        ),
    ],
)  # fmt: skip
def test_pods_whose_nodes_the_autoscaler_keeps_are_named(flags, named, unnamed):
    """By default it removes no node of a pod with local storage; consolidation would delete the data."""
    warnings = " ".join(converted(autoscaler(*flags))[0].warnings)
    assert all(text in warnings for text in named)
    assert not any(text in warnings for text in unnamed)


def test_options_with_the_meaning_of_flags_are_named():
    warning = converted(autoscaler("--max-nodes-total=200", "--new-pod-scale-up-delay=3s"))[
        0
    ].warnings[0]

    for option in ("--max-nodes-total=200", "--batch-idle-duration=3s", "--priority-cutoff=-10"):
        assert option in warning


def test_an_unknown_flag_is_reported_as_unknown():
    result = converted(autoscaler("--no-such-flag=1", "--v=4"))[0]

    unknown = [change.value for change in result.changes if change.fate is FieldFate.UNKNOWN]
    assert unknown == ["--no-such-flag=1"]


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--scale-down-unneeded-time=soon", '"soon" is no duration'),
        ("--nodes=1:web", '"1:web" has not the form MINIMUM:MAXIMUM:NAME'),
    ],
)
def test_a_flag_of_groups_that_cannot_be_read_is_refused(flag, message):
    with pytest.raises(BadInputError, match=message):
        autoscaler_settings([autoscaler(flag)])


def test_a_total_that_cannot_be_read_is_refused():
    assert '"many" has not the form' in converted(autoscaler("--cores-total=many"))[0].error


@pytest.mark.parametrize(
    ("priorities", "message"),
    [
        ("10: ['(']", 'data.priorities, 10: "(" is no regular expression'),
        ("a: [x]", 'data.priorities: "a" is not a number with a list'),
        ("10: x", 'data.priorities: "10" is not a number with a list'),
        ("[1]", "data.priorities is not a mapping"),
        ("{", "data.priorities is not YAML"),
    ],
)
def test_priorities_that_cannot_be_read_are_refused(priorities, message):
    broken = {**expander(), "data": {"priorities": priorities}}
    group = NodeGroup(name="web", class_group="g", class_kind="K", class_name="web")

    assert message in converted(broken, group=group)[0].error
