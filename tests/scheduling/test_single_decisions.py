"""Decisions of single functions of the solver: each condition of them counts by itself."""

from __future__ import annotations

from contextlib import nullcontext
from math import inf
from types import SimpleNamespace

import numpy as np
import pytest

from karpenter_core.api.prices import Price
from karpenter_core.scheduling import commitments, pod_selectors
from karpenter_core.scheduling.commitment_bill import CommitmentBill
from karpenter_core.scheduling.compiled import reservations
from karpenter_core.scheduling.compiled.catalogue import CatalogueCache, _index
from karpenter_core.scheduling.compiled.claim_restrictions import _opposite
from karpenter_core.scheduling.compiled.domain_counts import counts_on_node, domains_of
from karpenter_core.scheduling.compiled.problem import compile_steps
from karpenter_core.scheduling.compiled.topology import TopologyKind
from karpenter_core.scheduling.devices import pools, selectors
from karpenter_core.scheduling.devices.constraints import MatchedAttribute
from karpenter_core.scheduling.devices.pod_claims import _is_bound_to
from karpenter_core.scheduling.offerings import count_min_values
from karpenter_core.scheduling.packing.whole_pods import _BoundSearch
from karpenter_core.scheduling.placement import reservation_holdings
from karpenter_core.scheduling.placement.counted_claims import _price
from karpenter_core.scheduling.placement.open_nodes import NO_ROW
from karpenter_core.scheduling.portfolio.plan_profiles import FIRST_FIT
from karpenter_core.scheduling.problem import (
    MinValuesPolicy,
    PackingPolicy,
    PreferencePolicy,
    ReservationPolicy,
    SchedulingPlan,
    SolveOptions,
)
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.scheduling.steps import run_steps
from karpenter_core.scheduling.whatif import solver_run, what_if_question
from karpenter_core.scheduling.whatif.base_state import BaseState, _subtract
from karpenter_core.scheduling.whatif.first_fit import FirstFitPlacement
from karpenter_core.scheduling.whatif.what_if import WhatIf, _KeptRefusals
from karpenter_core.scheduling.whatif.what_if_question import WhatIfOutcome, WhatIfQuestion
from karpenter_core.testing.builders import problem
from tests.scheduling.handmade_plans import pod


@pytest.mark.parametrize(
    ("row", "fitting", "misses", "price"),
    [
        (NO_ROW, [True, True], False, 1.0),
        (1, [True, True], False, 1.0),
        (2, [True, True], False, inf),
        (1, [False, True], False, 3.0),
        (1, [False, False], False, inf),
        (1, [True, True], True, inf),
    ],
)
def test_a_claim_costs_what_its_cheapest_fitting_type_does(row, fitting, misses, price):
    claim = SimpleNamespace(
        bits=0b011,
        fitting=lambda _used: np.array(fitting),
        missing_min_values=lambda _fitting: misses,
        prices=np.array([1.0, 3.0]),
    )
    state = SimpleNamespace(
        compiled=SimpleNamespace(signatures=SimpleNamespace(claim=lambda _number: claim)),
        nodes=SimpleNamespace(row=np.array([row]), used=np.zeros((1, 1))),
    )
    assert _price(state, 0, 0) == price


def test_a_count_of_nothing_is_no_entry():
    counts = {1: 3, 2: 1}
    _subtract(counts, 1, 2)
    _subtract(counts, 2, 1)
    assert counts == {1: 1}


@pytest.mark.parametrize(
    ("remaining", "covered", "units", "listed", "price", "taken"),
    [
        (4, True, 4, 2.0, 1.0, 4),
        (9, True, 4, 2.0, 1.0, 4),
        (1, True, 4, 2.0, 1.75, 1),
        (0, True, 4, 2.0, None, 0),
        (4, False, 4, 2.0, None, 0),
        (4, True, 0, 2.0, None, 0),
        (4, True, 4, 1.0, None, 0),
        (1, True, 1, 2.0, 1.0, 1),
    ],
)
def test_a_commitment_covers_what_is_left_of_it_if_that_saves(
    monkeypatch, remaining, covered, units, listed, price, taken
):
    """A node of which all is covered costs 1 here."""
    monkeypatch.setattr(commitments, "is_covered", lambda *_: covered)
    monkeypatch.setattr(commitments, "committed_units", lambda *_: units)
    sold = SimpleNamespace(offering=SimpleNamespace(price=Price(listed, "USD")))
    commitment = SimpleNamespace(name="c", covered_price=lambda _units, _listed: 1.0)
    found = commitments._cover(SimpleNamespace(commitment=commitment), sold, remaining)
    assert found == (None if price is None else (price, taken, "c"))


def test_a_price_without_a_rate_counts_nothing():
    bill = SimpleNamespace(_rates={"EUR": 2.0})
    assert CommitmentBill._price(bill, ("t", "EUR", 3.0)) == 6.0
    assert CommitmentBill._price(bill, ("t", "JPY", 3.0)) == 0.0


@pytest.mark.parametrize(("count", "is_bound"), [(1, False), (2, True)])
def test_an_attribute_binds_more_than_one_device(count, is_bound):
    constraint = SimpleNamespace(match_attribute="a", requests=())
    bindings = [
        SimpleNamespace(attribute="b", devices=range(9)),
        SimpleNamespace(attribute="a", devices=range(count)),
    ]
    assert MatchedAttribute(constraint, bindings)._bindings == ({1} if is_bound else set())


def counters(*names):
    return [SimpleNamespace(name=name, counters=(("memory", 1),)) for name in names]


def device(name):
    return SimpleNamespace(name=name, counter_uses=())


@pytest.mark.parametrize(
    ("names", "sets", "text"),
    [
        (["a", "b"], ["x", "y"], ""),
        (["a", "a"], ["x"], 'two devices are named "a"'),
        (["a"], ["x", "y", "x"], 'two counter sets are named "x"'),
    ],
)
def test_names_within_a_pool_of_devices_are_used_once(names, sets, text):
    found = pools._invalid([device(name) for name in names], counters(*sets))
    assert text in found
    assert bool(text) is bool(found)


def published(generation, count, pool="p", driver="d"):
    return SimpleNamespace(pool=pool, driver=driver, generation=generation, slice_count=count)


@pytest.mark.parametrize(
    ("slices", "is_complete"),
    [
        ([], False),
        ([published(1, 1)], True),
        ([published(1, 2)], False),
        ([published(1, 2), published(1, 2)], True),
        ([published(1, 1), published(2, 2)], False),
        ([published(1, 2), published(2, 1)], True),
        ([published(1, 1, driver="other")], False),
        ([published(1, 0)], False),
        ([published(1, 1), published(1, 2)], True),
        ([published(1, 2), published(1, 2, pool="q")], False),
    ],
)
def test_a_pool_is_complete_with_all_slices_of_its_newest_generation(slices, is_complete):
    assert pools.has_complete_pool(slices, "d") is is_complete


@pytest.mark.parametrize(("more", "is_refused"), [(0, False), (1, True)])
def test_a_selector_of_the_longest_length_is_read(more, is_refused):
    text = "true" + " " * (selectors._MAX_LENGTH - 4 + more)
    with (
        pytest.raises(selectors.DeviceSelectorError, match="too long")
        if is_refused
        else nullcontext()
    ):
        selectors._compiled(text)


def typed(family, generation):
    return SimpleNamespace(
        requirements=Requirements.from_labels({"family": family, "generation": generation})
    )


@pytest.mark.parametrize(
    ("wanted", "needed", "missing"),
    [
        ({"family": 1, "generation": 1}, 1, {}),
        ({"family": 2, "generation": 1}, 2, {}),
        ({"family": 2, "generation": 2}, 3, {}),
        ({"family": 3, "generation": 2}, 3, {"family": 2}),
    ],
)
def test_minimum_values_of_each_label_are_needed(wanted, needed, missing):
    requirements = Requirements(
        Requirement.of(key, "Exists", [], min_values=count) for key, count in wanted.items()
    )
    types = [typed("c", "1"), typed("m", "1"), typed("m", "2")]
    result = count_min_values(types, requirements)
    assert (result.needed, dict(result.missing)) == (needed, missing)


@pytest.mark.parametrize(
    ("key", "known", "is_allowed"),
    [
        ("example.com/team", (), True),
        ("karpenter.sh/other", (), False),
        ("karpenter.sh/other", ("karpenter.sh/other",), True),
    ],
)
def test_a_restricted_label_is_allowed_where_it_is_known(key, known, is_allowed):
    assert (pod_selectors._label_error(key, frozenset(known)) == "") is is_allowed


@pytest.mark.parametrize(
    ("requirements", "has_opposite"),
    [
        ([Requirement.of("size", "In", ["1"])], True),
        ([Requirement.of("size", "Gt", ["1"])], False),
        ([Requirement.of("size", "Lt", ["1"])], False),
        ([Requirement.of("size", "In", ["1"]), Requirement.of("arch", "In", ["a"])], False),
        ([], False),
    ],
)
def test_one_requirement_without_bounds_has_an_opposite(requirements, has_opposite):
    assert (_opposite(Requirements(requirements)) is not None) is has_opposite


def test_a_reservation_is_named_by_the_labels_that_others_do_not_have():
    pool = SimpleNamespace(shared=frozenset({"zone"}))
    requirements = Requirements(
        [
            Requirement.of("zone", "In", ["a"]),
            Requirement.of("id", "In", ["cr-1"]),
            Requirement.of("not", "NotIn", ["x"]),
        ]
    )
    owner = next(found for found in vars(reservations).values() if hasattr(found, "reservation_of"))
    assert owner.reservation_of(pool, requirements) == (("id", "cr-1"),)


@pytest.mark.parametrize(
    ("is_settled", "closed", "known"),
    [(True, False, (5, 6)), (True, True, (6,)), (False, False, ()), (False, True, ())],
)
def test_a_closed_node_makes_known_the_domains_of_the_pods_that_stay(is_settled, closed, known):
    """One that takes pods makes all of its domains known."""
    place = SimpleNamespace(
        node=SimpleNamespace(requirements=None if is_settled else "booting", closed=closed),
        staying=SimpleNamespace(cells={5: 1, 6: 1}),
        signature=3,
    )
    base = SimpleNamespace(made={5: True, 6: False}, _witnessed={3: (5, 6)})
    assert BaseState.domains_known_by(base, place) == known


@pytest.mark.parametrize(
    ("most", "below", "short", "price", "floor", "outcome"),
    [
        (0, inf, 1, 1.0, 1.0, WhatIfOutcome.TOO_MANY),
        (0, inf, 0, 1.0, 1.0, None),
        (None, inf, 1, 1.0, 9.0, None),
        (None, 2.0, 1, 9.0, 2.0, WhatIfOutcome.TOO_DEAR),
        (None, 2.0, 1, 9.0, 1.9, None),
        (None, 2.0, 1, 9.0, inf, None),
        (1, inf, 1, inf, 1.0, WhatIfOutcome.TOO_MANY),
        (1, inf, 1, 9.0, 9.0, None),
        (1, 2.0, 1, 2.0, 1.0, WhatIfOutcome.TOO_DEAR),
        (1, 2.0, 1, 1.9, 9.0, None),
        (2, 2.0, 1, 9.0, 1.0, None),
        (2, 2.0, 1, 9.0, 3.0, WhatIfOutcome.TOO_DEAR),
    ],
)
def test_a_question_is_refused_early_by_number_and_price(
    monkeypatch, most, below, short, price, floor, outcome
):
    placement = SimpleNamespace(
        predict_new_claims=lambda _placement: [(0, short)],
        left={1: 1} if short else {},
        is_short=False,
    )
    monkeypatch.setattr(what_if_question, "FirstFitPlacement", lambda *_: placement)
    undone = []
    question = SimpleNamespace(
        _most=most,
        _below=below,
        _overlay=SimpleNamespace(mark=lambda: "mark", undo=undone.append),
        _base=SimpleNamespace(compiled=SimpleNamespace(requests=np.ones((1, 1), dtype=np.int64))),
        _bounds=SimpleNamespace(
            lowest_single_price=lambda _amounts: price, lowest_price=lambda _amounts: floor
        ),
    )
    assert WhatIfQuestion._refusal(question, placement) is outcome
    assert set(undone) <= {"mark"}


@pytest.mark.parametrize(
    ("program", "bound"),
    [
        (None, 0.0),
        (SimpleNamespace(solve=lambda: None), 0.0),
        (SimpleNamespace(solve=lambda: SimpleNamespace(cost=5.0)), 5.0),
    ],
    ids=["no program", "no solution", "as low as the bound"],
)
def test_a_bound_without_a_better_solution_is_final(program, bound):
    search = SimpleNamespace(_program=program, bound=bound)
    assert _BoundSearch.improve(search) is False


def test_a_bloated_state_is_compiled_anew():
    options = object()
    for is_bloated in (True, False):
        asked = []
        classifier = SimpleNamespace(is_outdated=True)
        base = SimpleNamespace(compiled=SimpleNamespace(classifier=classifier))

        class Compiled:
            def __init__(self, base, asked, is_bloated):
                self._base, self._asked, self.is_bloated = base, asked, is_bloated

            @property
            def base(self):
                self._asked.append(1)
                return self._base

        whatif = SimpleNamespace(_compiled=Compiled(base, asked, is_bloated), _options=options)
        assert WhatIf.renew(whatif, None, {}, options) is False
        assert bool(asked) is not is_bloated
    assert (
        WhatIf.renew(SimpleNamespace(_compiled=None, _options=options), None, {}, options) is False
    )
    assert WhatIf.renew(SimpleNamespace(_compiled=1, _options=options), None, {}, object()) is False


@pytest.mark.parametrize(
    ("opens", "has_filter", "axis", "in_play", "can"),
    [
        (True, False, 1, True, True),
        (False, False, 1, True, False),
        (True, True, 1, True, False),
        (True, False, 2, True, False),
        (True, True, 2, False, True),
    ],
)
def test_claims_are_opened_where_they_count_in_their_own_domain(
    opens, has_filter, axis, in_play, can
):
    groups = [
        SimpleNamespace(is_host=True, node_filter="f"),
        SimpleNamespace(is_host=False, node_filter="f" if has_filter else None),
    ]
    placement = SimpleNamespace(
        _base=SimpleNamespace(can_open=lambda *_: opens, axis_of=lambda _group: axis),
        _is_in_play=lambda _group: in_play,
    )
    plan = SimpleNamespace(number=0, counted=groups)
    assert FirstFitPlacement._can_open(placement, plan, 1, 0) is can


def test_types_are_indexed_by_what_they_say_of_a_label():
    def of(*requirements):
        return SimpleNamespace(requirements=Requirements(requirements))

    types = [
        of(Requirement.of("gpu", "In", ["a"])),
        of(Requirement.of("gpu", "DoesNotExist", [])),
        of(Requirement.of("gpu", "NotIn", ["b"])),
        of(),
        of(Requirement.of("gpu", "In", ["a", "b"])),
        of(Requirement.of("gpu", "DoesNotExist", [])),
    ]
    defined, values, absent, others = _index(types)
    assert defined == {"gpu": 0b110111}
    assert values == {"gpu": {"a": 0b010001, "b": 0b010000}}
    assert absent == {"gpu": 0b100010}
    assert [bits for _, bits in others["gpu"]] == [0b000100]


AFFINE = SimpleNamespace(kind="affinity", is_host=False, index=0)
"""A group that counts pods in cells 1 and 2, or may turn out to."""


@pytest.mark.parametrize(
    ("is_terminal", "is_terminating", "cells", "possible", "counted"),
    [
        (False, False, (1,), (), ({1: 5}, {2: 4})),
        (False, False, (), (2,), ({1: 4}, {2: 5})),
        (False, False, (), (3,), ({1: 4}, {2: 4, 3: 1})),
        (True, False, (1,), (2,), ({1: 4}, {2: 4})),
        (False, True, (1,), (2,), ({1: 4}, {2: 4})),
        (False, False, None, (2,), ({1: 4}, {2: 4})),
    ],
)
def test_a_pod_counts_where_it_is_and_where_it_may_turn_out_to_be(
    is_terminal, is_terminating, cells, possible, counted
):
    base = SimpleNamespace(
        cells_of=lambda _group, _signature: cells,
        possible_cells_of=lambda _group, _signature: possible,
    )
    effects = SimpleNamespace(host={}, cells={1: 4}, possible_counts={2: 4})
    pod = SimpleNamespace(is_terminal=is_terminal, is_terminating=is_terminating)
    BaseState._add(base, effects, [AFFINE], pod, 0)
    assert (effects.cells, effects.possible_counts) == counted


@pytest.mark.parametrize(
    ("of_base", "more", "counts"),
    [
        ({}, {}, {}),
        ({1: 2}, {}, {(0, 0): [0, 2]}),
        ({}, {1: 2}, {(0, 0): [0, 2]}),
        ({0: 1}, {1: 2}, {(0, 0): [1, 2]}),
        ({1: 2}, {1: -2}, {}),
    ],
)
def test_pods_that_may_turn_out_to_be_somewhere_are_added_up(monkeypatch, of_base, more, counts):
    monkeypatch.setattr(solver_run, "_by_axis", lambda _base, found: [found.reshape(1, 2)])
    found = solver_run._possible_counts(
        SimpleNamespace(possible_counts=of_base, made=[True, True]),
        SimpleNamespace(possible_counts=more),
    )
    assert {key: line.tolist() for key, line in found.items()} == counts


def test_a_refusal_is_kept_as_long_as_it_is_repeated():
    kept = _KeptRefusals()
    kept.keep("a", WhatIfOutcome.TOO_DEAR)
    kept.keep("b", WhatIfOutcome.TOO_DEAR)
    for _ in range(3):
        kept.renew()
        assert kept.repeated("a") is WhatIfOutcome.TOO_DEAR
    assert kept.repeated("b") is None
    assert kept.repeated("c") is None


def test_the_empty_claim_of_a_pool_holds_and_gives_up_nothing():
    steps = compile_steps(problem([pod("web")]), SolveOptions(), CatalogueCache())
    compiled = run_steps(steps)
    (pool,) = compiled.pools
    claim = compiled.signatures.claim(compiled.signatures.number_of_pool(pool))
    assert (claim.held, claim.min_values_relaxed) == (None, False)
    assert (claim.requirements, claim.host_ports) == (pool.requirements, ())


@pytest.mark.parametrize(
    ("still", "may_drop", "released", "stays"),
    [
        ({"a", "b"}, False, None, True),
        ({"a"}, False, ["b"], False),
        ({"a"}, True, ["b"], True),
        (set(), True, ["a", "b"], False),
        (set(), False, ["a", "b"], False),
    ],
)
def test_a_claim_shrinks_while_it_may_give_up_reservations(still, may_drop, released, stays):
    given_back, narrowed = [], []
    claim = SimpleNamespace(
        fitting=lambda _used: None, reservations=lambda _fitting: frozenset(still)
    )
    holdings = SimpleNamespace(
        _nodes=SimpleNamespace(signature=np.array([4]), used=np.zeros((1, 1))),
        _manager=SimpleNamespace(
            held=lambda _column: frozenset({"a", "b"}),
            release=lambda _column, *freed: given_back.extend(sorted(freed)),
        ),
        _signatures=SimpleNamespace(
            claim=lambda _number: claim,
            holding=lambda number, found, *, only: (number, sorted(found), only),
        ),
        _shrinking={0: may_drop},
        _set_signature=lambda _column, signature: narrowed.append(signature),
    )
    owner = next(
        found
        for found in vars(reservation_holdings).values()
        if isinstance(found, type) and hasattr(found, "_shrink")
    )
    owner._shrink(holdings, 0)
    assert given_back == (released or [])
    assert narrowed == ([] if released is None else [(4, sorted(still), not may_drop)])
    assert (0 in holdings._shrinking) is stays


@pytest.mark.parametrize(
    ("kind", "domain", "domains"),
    [
        (TopologyKind.ANTI, 1, (0, 1)),
        (TopologyKind.INVERSE, 1, (0, 1)),
        (TopologyKind.SPREAD, 1, (1,)),
        (TopologyKind.AFFINITY, 1, (1,)),
        (TopologyKind.SPREAD, -1, ()),
    ],
)
def test_anti_affinity_keeps_clear_of_all_domains_and_others_count_a_certain_one(
    kind, domain, domains
):
    signatures = SimpleNamespace(possible=lambda *_: (0, 1), domain=lambda *_: domain)
    assert domains_of(SimpleNamespace(kind=kind), 0, 0, signatures) == domains


@pytest.mark.parametrize(
    ("is_host", "options", "lenient"),
    [(False, {}, False), (True, {}, True), (False, {"lenient": True}, True)],
)
def test_a_claim_that_may_get_the_labels_counts_by_node_but_not_by_domain(
    is_host, options, lenient
):
    chosen = SimpleNamespace(present=(), tolerations=None, alternatives=("one",))
    group = SimpleNamespace(node_filter=chosen, is_host=is_host)
    signatures = SimpleNamespace(admits_labels=lambda *_, lenient: lenient)
    assert counts_on_node(group, 0, signatures, **options) is lenient


def test_first_fit_has_no_preference_of_ours():
    """It opens and fills claims as Karpenter does."""
    preferences = (FIRST_FIT.fewest_first, FIRST_FIT.cheapest_domains, FIRST_FIT.uneven_domains)
    assert preferences == (False, False, False)
    assert FIRST_FIT.late


def test_a_process_without_options_uses_reserved_capacity_and_keeps_wishes():
    options = SolveOptions()
    assert options.reserved_capacity
    assert (options.packing, options.preferences) == (PackingPolicy.VALUE, PreferencePolicy.RESPECT)
    assert (options.min_values, options.reservations) == (
        MinValuesPolicy.STRICT,
        ReservationPolicy.STRICT,
    )


def test_a_plan_is_complete_unless_it_says_otherwise():
    assert not SchedulingPlan().partial


@pytest.mark.parametrize(
    ("is_allocated", "names", "is_bound"),
    [
        (True, (("a",),), True),
        (True, (("b",), ("a",)), True),
        (True, (("b",),), False),
        (True, (), False),
        (False, (("a",),), False),
    ],
)
def test_a_claim_is_bound_to_each_node_that_one_of_its_terms_names(is_allocated, names, is_bound):
    terms = [SimpleNamespace(match_fields=[SimpleNamespace(values=each)]) for each in names]
    claim = SimpleNamespace(is_allocated=is_allocated, node_terms=terms)
    assert _is_bound_to(claim, "a") is is_bound
