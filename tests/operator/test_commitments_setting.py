"""The setting `commitments`: what it means, and what stops the start."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import CPU, MEMORY, PRICE_PER_HOUR
from karpenter_core.errors import SettingsError
from karpenter_core.operator.commitments_setting import parse_commitments

TEXT = """
- name: general
  requirements:
    - {key: example.com/family, operator: In, values: [c, m]}
  resource: cpu
  amount: 100
  price: 0.02
- {name: memory, resource: memory, amount: 64Gi, price: "0.001", currency: CNY}
- {name: plan, resource: spend, amount: 7.5, discount: 25%}
"""


def test_each_form_is_read():
    """Spend is the list price that it pays for."""
    general, memory, plan = parse_commitments(TEXT)

    assert (general.resource, general.amount, general.price) == (CPU, 100_000, 0.02)
    assert general.requirements[0].values == ("c", "m")
    assert general.covered_price(4000, 1.0) == pytest.approx(0.08)
    assert (memory.resource, memory.amount, memory.currency) == (MEMORY, 64 * 2**30, "CNY")
    assert memory.covered_price(8 * 2**30, 1.0) == pytest.approx(0.008)
    assert (plan.resource, plan.amount, plan.price) == (PRICE_PER_HOUR, 10_000_000, None)
    assert plan.covered_price(1, 0.4) == pytest.approx(0.3)


def test_committed_price_is_never_above_the_list_price():
    """A commitment that costs more per node than its list price changes nothing."""
    (one,) = parse_commitments("[{name: a, resource: cpu, amount: 1, price: 5}]")

    assert one.covered_price(4000, 0.2) == 0.2


@pytest.mark.parametrize("text", ["", "  ", "[]"])
def test_empty_text_means_no_commitment(text):
    """As by default."""
    assert parse_commitments(text) == ()


ROW = "name: a, resource: cpu, amount: 1, price: 1"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{}", "must be a list"),
        ("[", "cannot be read as YAML"),
        (f"[{{{ROW}, prize: 2}}]", 'unknown field "prize"'),
        ("[{name: '', resource: cpu, amount: 1, price: 1}]", "[0].name"),
        ("[{name: a, resource: gpu, amount: 1, price: 1}]", "'gpu'"),
        ("[{name: a, resource: cpu, amount: many, price: 1}]", "'many'"),
        ("[{name: a, resource: cpu, amount: -1, price: 1}]", "-1"),
        ("[{name: a, resource: nodes, amount: 1.5, price: 1}]", "a whole number, not 1.5"),
        ("[{name: a, resource: cpu, price: 1}]", "[0].amount"),
        ("[{name: a, resource: cpu, amount: true, price: 1}]", "True"),
        ("[{name: a, resource: cpu, amount: 1}]", "either price or discount"),
        (f"[{{{ROW}, discount: 5%}}]", "either price or discount"),
        ("[{name: a, resource: spend, amount: 1, price: 1}]", "needs discount"),
        ("[{name: a, resource: cpu, amount: 1, discount: 0.3}]", "0.3"),
        ("[{name: a, resource: cpu, amount: 1, discount: 100%}]", "'100%'"),
        ("[{name: a, resource: cpu, amount: 1, price: nan}]", "'nan'"),
        ("[{name: a, resource: cpu, amount: 1, price: -2}]", "-2"),
        ("[{name: a, resource: cpu, amount: 1, price: 1e999}]", "'1e999'"),
        ("[{name: a, resource: spend, amount: 1e999, discount: 5%}]", "'1e999'"),
        ("[{name: a, resource: spend, amount: 1e300, discount: 5%}]", "'1e300'"),
        (f"[{{{ROW}, currency: dollar}}]", "'dollar'"),
        (f"[{{{ROW}, requirements: c5}}]", "'c5'"),
        (f"[{{{ROW}, requirements: [{{key: a, operator: Is, values: [b]}}]}}]", "'Is'"),
        (f"[{{{ROW}, requirements: [{{key: a, operator: In}}]}}]", "values"),
        (f"[{{{ROW}, requirements: [{{key: a, operator: In, values: [1]}}]}}]", "[1]"),
        (f"[{{{ROW}, requirements: [{{key: a, operator: Gt, values: [x]}}]}}]", "one number"),
        (f"[{{{ROW}}}, {{{ROW}}}]", '"a" stands twice'),
    ],
)
def test_wrong_value_stops_the_start(text, named):
    """The message names the setting, the place and the value."""
    with pytest.raises(SettingsError) as error:
        parse_commitments(text)

    assert str(error.value).startswith("commitments: ")
    assert named in str(error.value)
