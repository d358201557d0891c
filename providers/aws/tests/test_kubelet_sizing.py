"""The numbers of a kubelet: acceptance cases 63-69, as far as they are about numbers."""

from __future__ import annotations

from typing import Any

import pytest

from karpenter_core.errors import BadInputError
from karpenter_provider_aws.families.traits import TRAITS
from karpenter_provider_aws.kubelet.expressions import evaluate
from karpenter_provider_aws.kubelet.sizing import (
    KubeletSizing,
    kubelet_sizing,
    read_kubelet_options,
    reserved_quantity,
)
from providers.aws.tests.catalogue.recorded_region import info, node_class


def sizing(kubelet: dict[str, Any], *, name: str = "m5.large", gate: bool = True) -> KubeletSizing:
    of = node_class({"kubelet": kubelet}, name="web")
    return kubelet_sizing(
        info(name),
        of,
        read_kubelet_options(of),
        TRAITS[of.ami_family],
        evaluate=evaluate if gate else None,
        reserved_enis=0,
    )


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("((default_enis - 1) * (ips_per_eni - 1)) + 2", 20),
        ("min(250, default_enis * (ips_per_eni - 1) * 16 + 2)", 250),
        ("max_pods * 2", 58),
    ],
)
def test_pods_follow_from_an_expression(expression: str, expected: int):
    """Case 63: three interfaces with ten addresses; `max_pods` is the default."""
    found = sizing({"maxPods": expression})

    assert (found.max_pods, found.pods) == (expected, expected)


def test_pods_per_core_cap_pods_and_not_max_pods_of_the_kubelet():
    found = sizing({"maxPods": 20, "podsPerCore": 4})

    assert (found.max_pods, found.pods) == (20, 8)


@pytest.mark.parametrize(("name", "expected"), [("m5.large", "60m"), ("m5.4xlarge", "480m")])
def test_cpu_is_in_millicores(name: str, expected: str):
    """Case 64."""
    found = sizing({"kubeReserved": {"cpu": "max(60, vcpus*30)"}}, name=name)

    assert found.kube_reserved == {"cpu": expected}


@pytest.mark.parametrize(
    ("expression", "expected"), [("70+vcpus", "80m"), ("61", "61"), ("60+vcpus-2", "60m")]
)
def test_cpu_is_rounded_up_to_ten(expression: str, expected: str):
    """Case 65; what is a quantity is none of an expression's affair."""
    assert sizing({"systemReserved": {"cpu": expression}}).system_reserved == {"cpu": expected}


@pytest.mark.parametrize(
    ("resource", "amount", "expected"),
    [
        ("cpu", 61, "70m"),
        ("cpu", 70, "70m"),
        ("memory", 220, "224Mi"),
        ("memory", 81, "96Mi"),
        ("memory", 128, "128Mi"),
        ("memory", 0, "0Mi"),
        ("pid", 71, "71"),
        ("ephemeral-storage", 2, "2Gi"),
    ],
)
def test_results_have_the_unit_and_step_of_their_resource(
    resource: str, amount: int, expected: str
):
    """Cases 65-67."""
    assert reserved_quantity(resource, amount) == expected


@pytest.mark.parametrize(
    ("expression", "expected"), [("max_pods*11", "224Mi"), ("memory_mib/100", "96Mi"),
                                 ("memory_mib/64", "128Mi"), ("vcpus-2", "0Mi")],
)  # fmt: skip
def test_reservations_see_the_resolved_pods(expression: str, expected: str):
    """Case 66."""
    found = sizing({"maxPods": "vcpus*10", "kubeReserved": {"memory": expression}})

    assert found.kube_reserved == {"memory": expected}


def test_other_resources_are_not_rounded():
    """Case 67."""
    wanted = {"pid": "70+1-0", "ephemeral-storage": "1+1"}

    assert sizing({"systemReserved": wanted}).system_reserved == {
        "pid": "71",
        "ephemeral-storage": "2Gi",
    }


@pytest.mark.parametrize("expression", ["0-1", "1/0", "'a'", "unknown", "1.0/0.0", "true", " "])
def test_a_failing_reservation_is_dropped_and_others_are_kept(expression: str):
    """Case 68."""
    found = sizing({"kubeReserved": {"cpu": expression, "memory": "max_pods*11"}})

    assert found.kube_reserved == {"memory": "320Mi"}


@pytest.mark.parametrize("expression", ["0-1", "2147483647 + 1", "1/0", "nonsense("])
def test_pods_that_fail_fail_the_type(expression: str):
    """Case 69."""
    with pytest.raises(BadInputError, match=r'"web": spec.kubelet.maxPods: .* for m5.large'):
        sizing({"maxPods": expression})


def test_without_the_gate_expressions_count_for_nothing():
    """Case 69."""
    found = sizing(
        {"maxPods": "vcpus", "kubeReserved": {"cpu": "vcpus*30", "memory": "1Gi"}}, gate=False
    )

    assert (found.pods, found.kube_reserved) == (29, {"memory": "1Gi"})


@pytest.mark.parametrize(
    ("kubelet", "named"),
    [
        ({"maxPods": [1]}, "maxPods"),
        ({"maxPods": True}, "maxPods"),
        ({"podsPerCore": "2"}, "podsPerCore"),
        ({"podsPerCore": True}, "podsPerCore"),
        ({"kubeReserved": "1Gi"}, "kubeReserved"),
        ({"systemReserved": {"cpu": 2}}, "systemReserved.cpu"),
    ],
)
def test_a_field_of_another_type_is_named(kubelet: dict[str, Any], named: str):
    of = node_class({"kubelet": kubelet}, name="web")

    with pytest.raises(BadInputError, match=f'EC2NodeClass "web": spec.kubelet.{named}: must be'):
        read_kubelet_options(of)
