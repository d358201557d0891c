"""Decisions of single functions of disruption: each condition of them counts by itself."""

from __future__ import annotations

from math import nan
from types import SimpleNamespace

import pytest

from karpenter_core.api.labels import INSTANCE_TYPE
from karpenter_core.api.records import Taint
from karpenter_core.disruption import (
    buffer_room,
    committed_moves,
    consolidation,
    explain,
    pricing,
    return_to_preferred,
    revalidation,
    single_node,
)
from karpenter_core.disruption.buffer_room import _NodeRanks
from karpenter_core.disruption.candidate_memory import CandidateMemory
from karpenter_core.disruption.committed_moves import _committed_move, evaluate_single_move
from karpenter_core.disruption.consolidation import DisruptionMove
from karpenter_core.disruption.expendable_moves import ExpendableMoves
from karpenter_core.disruption.method import MethodPlan
from karpenter_core.disruption.pricing import NodePrices
from karpenter_core.disruption.revalidation import _reduced_command_steps
from karpenter_core.disruption.single_node import SingleNodeConsolidation
from karpenter_core.scheduling.whatif.what_if_question import WhatIfOutcome


def move(count, *, replacements=1, savings=1.0):
    made = object.__new__(DisruptionMove)
    fields = {
        "candidates": tuple(range(count)),
        "replacements": tuple(range(replacements)),
        "savings_per_hour": savings,
    }
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


@pytest.mark.parametrize(
    ("moves", "approved", "count"),
    [
        ({4: move(4)}, (), 4),
        ({4: move(4, replacements=3), 3: move(3)}, (3,), 3),
        ({4: None, 3: move(3), 2: move(2)}, (2,), 2),
        ({4: None, 3: move(3), 2: move(2)}, (), None),
        ({4: None, 3: None, 2: move(2)}, (2,), 2),
    ],
)
def test_a_command_with_fewer_nodes_has_to_be_approved_anew(monkeypatch, moves, approved, count):
    """The whole one was approved when it was made."""
    asked = []

    def evaluate(_pass, remaining, *, max_claims):
        asked.append((len(remaining), max_claims))
        return moves[len(remaining)]

    monkeypatch.setattr(revalidation, "evaluate_move", evaluate)
    monkeypatch.setattr(
        revalidation, "_is_approved", lambda move, _pass: len(move.candidates) in approved
    )
    command = SimpleNamespace(candidates=range(4), replacements=(1,))
    steps = _reduced_command_steps(command, None, list(range(4)))
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found = end.value
            break
    assert (None if found is None else len(found.candidates)) == count
    assert {claims for _, claims in asked} == {1}


def test_candidates_with_virtual_pods_are_evaluated_anew():
    """Other pods take their room from pass to pass."""
    snapshot = SimpleNamespace(node_pools={}, catalogues={})
    memory = CandidateMemory()
    candidates = [
        SimpleNamespace(state_node=name, hosts_virtual_pods=name == "virtual")
        for name in ("web", "virtual")
    ]
    memory.keep(snapshot, candidates)
    assert list(memory.candidates(snapshot)) == ["web"]


@pytest.mark.parametrize(
    ("has_type", "price", "is_sold"),
    [(True, 1.0, True), (False, 1.0, False), (True, None, False), (True, nan, False)],
)
def test_a_node_is_sold_as_a_known_type_at_a_known_price(monkeypatch, has_type, price, is_sold):
    offering = None
    if price is not None:
        offering = SimpleNamespace(price=SimpleNamespace(amount=price))
    instance_type = SimpleNamespace(name="small") if has_type else None
    monkeypatch.setattr(pricing, "_offering", lambda *_: offering)
    candidate = SimpleNamespace(instance_type=instance_type, zone="a", capacity_type="spot")
    prices = SimpleNamespace(
        _types_of_pool=lambda _pool: {"small": instance_type} if has_type else {},
        offering_of=lambda _node: offering,
    )
    state_node = SimpleNamespace(pool="web", labels={INSTANCE_TYPE: "small"})
    assert (NodePrices._sold(None, candidate) is not None) is is_sold
    assert (NodePrices._sold_node(prices, state_node) is not None) is is_sold


REPLACEMENT = SimpleNamespace(cheapest=SimpleNamespace(price_per_hour=0.25))


class Pass:
    """A pass in which a move to a node of a commitment is possible, apart from one thing."""

    def __init__(self, problem=""):
        planned = SimpleNamespace(min_values_relaxed=problem == "minValues")
        verdict = SimpleNamespace(
            is_possible=problem != "impossible", claims=() if problem == "no claim" else (planned,)
        )
        self.limits = SimpleNamespace(
            below=0.0 if problem == "costs nothing" else 1.0, price=1.0, least=0.0
        )
        self.prices = SimpleNamespace(
            missing_rates_message=lambda _currencies: "no rate" if problem == "no rate" else "",
            limited_to_commitment=lambda _planned, below_price: (
                None if problem == "no commitment" else REPLACEMENT
            ),
        )
        self.simulation = SimpleNamespace(
            evaluate=lambda _candidates, max_claims: verdict,
            unready_destination=lambda _verdict: problem == "unready",
        )


@pytest.mark.parametrize(
    "problem",
    [
        "costs nothing", "no rate", "impossible", "no claim", "unready", "minValues",
        "no commitment",
    ],
)  # fmt: skip
def test_a_move_to_a_commitment_has_to_be_possible_in_every_way(monkeypatch, problem):
    monkeypatch.setattr(committed_moves, "price_limits", lambda found, _candidates: found.limits)
    monkeypatch.setattr(committed_moves, "DisruptionMove", lambda **fields: fields)
    candidate = SimpleNamespace(price=SimpleNamespace(currency="USD"))
    assert _committed_move(Pass(problem), candidate) is None
    found = _committed_move(Pass(), candidate)
    assert (found["replacements"], found["savings_per_hour"]) == ((REPLACEMENT,), 0.75)


@pytest.mark.parametrize(("savings", "is_listed"), [(1.0, False), (2.0, True), (3.0, True)])
def test_a_listed_price_that_saves_as_much_is_preferred(monkeypatch, savings, is_listed):
    listed, committed = move(1, savings=savings), move(1, savings=2.0)
    monkeypatch.setattr(committed_moves, "evaluate_move", lambda *_, **__: listed)
    monkeypatch.setattr(committed_moves, "_committed_move", lambda *_: committed)
    disruption_pass = SimpleNamespace(prices=SimpleNamespace(has_unused_commitments=True))
    found = evaluate_single_move(disruption_pass, None)
    assert found is (listed if is_listed else committed)


def claim(*, types=("small",), virtual=0):
    pods = [SimpleNamespace(is_virtual=False, shape=SimpleNamespace(requests={"cpu": 1}))]
    pods += [SimpleNamespace(is_virtual=True, shape=SimpleNamespace(requests={"cpu": 2}))] * virtual
    requests = {"cpu": 1 + 2 * virtual}
    return SimpleNamespace(pool="web", instance_types=types, requests=requests, pods=pods)


@pytest.mark.parametrize(
    ("planned", "room"),
    [
        (claim(), {}),
        (claim(virtual=1), {"cpu": 7}),
        (claim(virtual=2), {"cpu": 7}),
        (claim(types=("large", "small"), virtual=1), {"cpu": 15}),
        (claim(types=("gone",), virtual=1), {}),
    ],
)
def test_a_new_node_has_the_room_of_its_buffer_pods(planned, room):
    types = [
        SimpleNamespace(name=name, allocatable=lambda cpu=cpu: {"cpu": cpu})
        for name, cpu in (("small", 8), ("large", 16))
    ]
    catalogues = {"web": SimpleNamespace(instance_types=types)}
    moves = SimpleNamespace(_snapshot=SimpleNamespace(catalogues=catalogues))
    assert ExpendableMoves._buffer_room(moves, planned) == room
    moves._snapshot.catalogues = {}
    assert ExpendableMoves._buffer_room(moves, planned) == {}


def existing(*, closed=False, taints=(), requirements=None):
    return SimpleNamespace(
        closed=closed, taints=taints, requirements=requirements, node_name="n", labels={"a": "b"}
    )


@pytest.mark.parametrize(
    ("node", "selects", "is_taken"),
    [
        (existing(), True, True),
        (existing(), False, False),
        (existing(closed=True), True, False),
        (existing(taints=(Taint(key="a", effect="NoSchedule"),)), True, False),
        (existing(taints=(Taint(key="a", effect="PreferNoSchedule"),)), True, True),
        (existing(requirements="booting"), True, True),
        (existing(requirements="booting"), False, False),
    ],
)
def test_taints_and_labels_admit_a_pod_to_a_node(monkeypatch, node, selects, is_taken):
    monkeypatch.setattr(buffer_room, "selects_node", lambda *_: selects)
    terms = [
        SimpleNamespace(may_select=lambda _node, *, allow_undefined, it=it: it)
        for it in (False, selects)
    ]
    monkeypatch.setattr(buffer_room, "required_terms", lambda *_: terms)
    ranks = _NodeRanks(SimpleNamespace(well_known=frozenset()), {}, {})
    pod = SimpleNamespace(shape=SimpleNamespace(tolerations=()))
    assert ranks.takes(node, pod) is is_taken


def test_pools_that_a_pass_did_not_reach_are_examined_first(monkeypatch):
    ordered = []

    class Search:
        moves, notices, refused, is_cut_short = (), (), (), False
        unexamined_pools = frozenset()

        def __init__(self, _pass):
            pass

        def steps(self, candidates):
            ordered.append([each.name for each in candidates])
            yield 1

    monkeypatch.setattr(single_node, "_SingleSearch", Search)
    monkeypatch.setattr(single_node, "individually_within_budget", lambda found, _budgets: found)
    monkeypatch.setattr(single_node, "sort_by_savings", lambda found, *_: list(found))
    method = SingleNodeConsolidation()
    candidates = [
        SimpleNamespace(name=name, pool=SimpleNamespace(name=pool))
        for name, pool in (("a", "web"), ("b", "late"), ("c", "web"), ("d", "late"))
    ]
    for waiting in ({}, {method.name: frozenset({"late"})}, {"other": frozenset({"late"})}):
        disruption_pass = SimpleNamespace(
            simulation=SimpleNamespace(prepare_steps=lambda avoid_unsettled: iter(())),
            unexamined_pools=waiting,
            prices=None,
            memory=SimpleNamespace(savings_order=None),
        )
        list(method.plan_steps(disruption_pass, candidates, {}))
    assert ordered == [list("abcd"), list("bdac"), list("abcd")]


@pytest.mark.parametrize(("accepted", "has_outcome"), [(False, True), (True, False)])
def test_a_method_that_did_not_run_declines_a_node(monkeypatch, accepted, has_outcome):
    """It may accept a node in a pass in which its group was not evaluated."""
    acceptance = SimpleNamespace(accepted=accepted, decline_reason="why", notices=())
    monkeypatch.setattr(explain, "accept_or_set_aside", lambda *_: acceptance)
    candidate = SimpleNamespace(pool=SimpleNamespace(name="web"))
    outcome = SimpleNamespace(commands=()) if has_outcome else None
    found = explain._explain_method(None, "method", candidate, outcome, {"web": "budget"})
    assert (found.verdict, found.budget) == (explain.MethodVerdict.DECLINED, "budget")


@pytest.mark.parametrize(
    ("only_spot", "offered", "cheaper", "bought"),
    [
        (False, {"spot", "on-demand"}, {"spot"}, ("spot", 1)),
        (False, {"spot", "on-demand"}, set(), ("on-demand", 0)),
        (False, {"spot", "on-demand"}, {"on-demand"}, ("on-demand", 1)),
        (False, {"spot"}, set(), ("spot", 0)),
        (False, {"on-demand"}, {"any"}, ("any", 1)),
        (True, {"spot", "on-demand"}, {"on-demand"}, ("spot", 0)),
        (True, {"on-demand"}, {"spot"}, ("spot", 1)),
        (False, {"spot", "reserved"}, {"any"}, ("any", 1)),
    ],
)
def test_spot_is_bought_where_it_is_cheaper(monkeypatch, only_spot, offered, cheaper, bought):
    monkeypatch.setattr(pricing, "_requirements", lambda _planned: Offered(offered))
    monkeypatch.setattr(pricing, "_with_capacity_type", lambda _requirements, kind: kind)

    def kind_of(requirements):
        return requirements if isinstance(requirements, str) else "any"

    prices = SimpleNamespace(
        types_of=lambda _planned: (),
        _cheaper=lambda _types, found, _below: ("t",) if kind_of(found) in cheaper else (),
        _replacement=lambda _planned, types, found: (kind_of(found), len(types)),
    )
    found = NodePrices.limited_by_price(prices, None, below_price=1.0, only_spot=only_spot)
    assert found == bought


class Offered:
    """Requirements that allow some capacity types."""

    def __init__(self, kinds):
        self.kinds = kinds

    def get(self, _key):
        return SimpleNamespace(has=lambda kind: kind in self.kinds)


def sold(capacity_type, pool="web"):
    return SimpleNamespace(pool=pool, cheapest=SimpleNamespace(capacity_type=capacity_type))


@pytest.mark.parametrize(
    ("weight", "theirs", "planned", "mine", "outcome"),
    [
        (2, 1, sold("on-demand"), "on-demand", "planned"),
        (1, 2, sold("reserved"), "on-demand", None),
        (1, 1, sold("on-demand"), "on-demand", None),
        (1, 1, sold("reserved"), "on-demand", "planned"),
        (1, 1, sold("spot"), "on-demand", "spot"),
        (1, 1, sold("on-demand"), "spot", None),
        (None, 1, sold("reserved", pool="gone"), "on-demand", None),
    ],
)
def test_a_node_returns_to_a_heavier_pool_or_a_cheaper_kind(weight, theirs, planned, mine, outcome):
    pools = {} if weight is None else {"web": SimpleNamespace(spec=SimpleNamespace(weight=weight))}
    disruption_pass = SimpleNamespace(
        snapshot=SimpleNamespace(node_pools=pools),
        prices=SimpleNamespace(limited_by_price=lambda _planned, below_price, only_spot: "spot"),
    )
    candidate = SimpleNamespace(
        pool=SimpleNamespace(spec=SimpleNamespace(weight=theirs)), capacity_type=mine
    )
    found = return_to_preferred._preferred_replacement(disruption_pass, candidate, planned)
    assert found == (planned if outcome == "planned" else outcome)


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        ("", ""),
        ("left", "Unplaced"),
        ("many", "without creating more than 1"),
        ("unrated", "Can't compare prices: JPY"),
        ("dear", "cheaper"),
        ("little", "Can't save enough"),
        ("unready", "Not ready"),
        ("crowding", "2 expendable pod(s)"),
        ("lost", "room of 3 pod(s)"),
    ],
)
def test_a_move_is_refused_for_one_reason(monkeypatch, problem, text):
    outcomes = {
        "left": WhatIfOutcome.LEFT, "many": WhatIfOutcome.TOO_MANY, "dear": WhatIfOutcome.TOO_DEAR,
    }  # fmt: skip
    outcome = outcomes.get(problem, WhatIfOutcome.FITS)
    verdict = SimpleNamespace(outcome=outcome, claims=("c",), fits=outcome is WhatIfOutcome.FITS)
    least = 9.0 if problem == "little" else 0.5
    monkeypatch.setattr(
        consolidation,
        "price_limits",
        lambda *_: consolidation.PriceLimits(1.0, least, 0.5),
    )
    monkeypatch.setattr(consolidation, "_replacements", lambda *_: ())
    monkeypatch.setattr(consolidation, "DisruptionMove", lambda **fields: fields)
    disruption_pass = SimpleNamespace(
        simulation=SimpleNamespace(
            evaluate=lambda *_, **__: verdict,
            unready_destination=lambda _verdict: "not ready" if problem == "unready" else "",
            unplaced_pods=lambda _verdict: "unplaced pods",
        ),
        prices=SimpleNamespace(
            currency="USD",
            missing_rates_message=lambda _found: "JPY" if problem == "unrated" else "",
        ),
        expendable_moves=SimpleNamespace(
            taking_buffer_room=lambda *_: 2 if problem == "crowding" else 0
        ),
        buffer_room=SimpleNamespace(lost_by=lambda _verdict: 3 if problem == "lost" else 0),
    )
    found = consolidation.evaluate_move(disruption_pass, ())
    if problem:
        assert text.lower() in found.message.lower()
    else:
        assert found["savings_per_hour"] == 1.0


def test_a_method_that_found_nothing_was_not_held_back():
    found = MethodPlan()
    assert (found.constrained, found.is_cut_short) == (False, False)
    assert (found.commands, found.notices, found.scores) == ((), (), ())
    assert found.unexamined_pools == frozenset()
