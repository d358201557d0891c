"""Label classes of all providers are merged."""

from __future__ import annotations

from karpenter_core.provider.contract import LabelClasses
from karpenter_core.provider.host.labels import merge_label_classes


def test_unsupported_labels_of_any_provider_count_for_the_process():
    first = LabelClasses(unsupported_provisioners=frozenset({"a.csi.example.com"}))
    second = LabelClasses(
        unsupported_provisioners=frozenset({"b.csi.example.com"}),
        unsupported_topology_keys=frozenset({"example.com/rack"}),
    )
    merged = merge_label_classes({"first": first, "second": second})
    assert merged.unsupported_provisioners == {"a.csi.example.com", "b.csi.example.com"}
    assert merged.unsupported_topology_keys == {"example.com/rack"}


def test_label_values_of_one_provider_do_not_exclude_those_of_another():
    merged = merge_label_classes(
        {
            "one": LabelClasses(known_values={"x/tenancy": frozenset({"a"})}),
            "other": LabelClasses(known_values={"x/tenancy": frozenset({"b"})}),
        }
    )

    assert merged.known_values == {"x/tenancy": frozenset({"a", "b"})}


def test_labels_that_any_provider_lets_users_set_are_settable():
    merged = merge_label_classes(
        {
            "one": LabelClasses(settable=frozenset({"x/a"})),
            "other": LabelClasses(settable=frozenset({"y/b"})),
        }
    )

    assert merged.settable == {"x/a", "y/b"}
