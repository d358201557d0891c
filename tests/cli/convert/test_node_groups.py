"""NodePools of node groups: names, weights of the priority expander, taints, minimum."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.cli.convert.session import convert_documents
from karpenter_core.cli.convert.yaml_manifest import node_of
from karpenter_core.cli.convert.yaml_text import TextDocument
from karpenter_core.provider.contract import Conversion
from karpenter_core.provider.kit.node_groups import NodeGroup, object_name, write_node_pool


def pool_of(group: NodeGroup, *documents: dict[str, object]):
    """Return the NodePool of a group, and what is left to do."""
    import yaml

    rule = Conversion(
        kind="group",
        accepts=lambda document: "group" in document,
        convert=lambda draft: (draft.use("group", ""), write_node_pool(draft, group)),
        successors={},
    )
    texts = [
        TextDocument(where="input", node=node_of(each), text="")
        for each in ({"group": group.name}, *documents)
    ]
    first = convert_documents(texts, [rule])[0]
    return yaml.safe_load(first.texts[0]), first.warnings


def group(**fields: object) -> NodeGroup:
    given_fields = {
        "name": "web",
        "class_group": "g",
        "class_kind": "K",
        "class_name": "web",
        **fields,
    }
    return NodeGroup(**given_fields)


def expander(text: str) -> dict[str, object]:
    return {
        "kind": "ConfigMap",
        "metadata": {"name": "cluster-autoscaler-priority-expander"},
        "data": {"priorities": text},
    }


@pytest.mark.parametrize(
    ("priorities", "weight"),
    [
        ("10: [other]\n50: [w.b]\n90: [nothing]", 50),
        ("10: [web]\n20: [web]", 20),
        ("10: [other]", None),
        ("-5: [other]\n1000: [web]\n5000: [more]", 2),
        ("", None),
    ],
)
def test_the_highest_matching_priority_becomes_the_weight(priorities, weight):
    pool, _ = pool_of(group(), expander(priorities))

    assert pool["spec"].get("weight") == weight


def test_taints_that_other_components_remove_become_startup_taints():
    taints = [
        {"key": "startup-taint.cluster-autoscaler.kubernetes.io/cni", "effect": "NoSchedule"},
        {"key": "dedicated", "value": "web", "effect": "NoExecute"},
    ]

    spec = pool_of(group(taints=taints))[0]["spec"]["template"]["spec"]

    assert (spec["startupTaints"], spec["taints"]) == (taints[:1], taints[1:])


def test_a_minimum_is_left_to_do():
    assert [word for word in pool_of(group(minimum=2))[1] if "minimum of 2 nodes" in word]
    assert pool_of(group(minimum=0))[1] == ()


def test_a_group_without_maximum_gets_no_limit():
    assert "limits" not in pool_of(group())[0]["spec"]
    assert pool_of(group(maximum=0))[0]["spec"]["limits"] == {"nodes": 0}


@given(st.text(max_size=90))
def test_names_of_groups_become_names_of_objects(text):
    name = object_name(text)

    assert 0 < len(name) <= 63
    assert name.replace("-", "a").isascii()
    assert name.replace("-", "a").isalnum()
    assert name == name.lower().strip("-")


def test_groups_whose_names_become_equal_are_left_to_do():
    """Applied, the second NodePool would replace the first: a group would be lost."""
    rule = Conversion(
        kind="group",
        accepts=lambda document: "group" in document,
        convert=lambda draft: (
            draft.use("group", ""),
            write_node_pool(draft, group(name=str(draft.get("group")))),
        ),
        successors={},
    )
    texts = [
        TextDocument(where=f"{name}.json", node=node_of({"group": name}), text="")
        for name in ("gpu_a", "gpu-a", "gpu-b")
    ]
    first, second, third = convert_documents(texts, [rule])
    assert (first.warnings, third.warnings) == ((), ())
    assert second.warnings == (
        (
            'NodePool "gpu-a" is also written for gpu_a.json: give one of them another name, or the second '
            "replaces the first when both are applied"
        ),
    )
