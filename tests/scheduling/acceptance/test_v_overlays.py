"""Section V: NodeOverlays change prices and capacity, and never one half of what they say."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest

from karpenter_core.api.labels import (
    ARCH,
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    NODE_POOL,
    ON_DEMAND,
    OS,
    SPOT,
    ZONE,
)
from karpenter_core.api.nodeoverlay import CONFLICT, CONFLICT_MESSAGE, RUNTIME_VALIDATION
from karpenter_core.api.prices import Price
from karpenter_core.errors import BadInputError
from karpenter_core.lifecycle.nodeoverlay.evaluation import OverlayPool, evaluate_overlays
from karpenter_core.lifecycle.nodeoverlay.status import with_verdict
from karpenter_core.scheduling.overlays import apply_overlays
from karpenter_core.scheduling.price_changes import PriceChange
from karpenter_core.state.builder import StateBuilder
from karpenter_core.state.events import (
    CataloguePublished,
    InformersSynced,
    ObjectObserved,
    OverlaysEvaluated,
)
from karpenter_core.testing.builders import (
    EPOCH,
    catalogue,
    instance_type,
    node_overlay,
    node_pool,
    offering,
    standard_catalogue,
)
from karpenter_core.testing.state_builders import MANAGED_KINDS, ready_node_pool

FUSE, HUGE = "smarter-devices/fuse", "hugepages-1Gi"
GIB = 2**30


def single():
    """The one type of most cases: spot in z1 at 1.02."""
    return instance_type("default-instance-type", offerings=[offering("z1", SPOT, 1.02)])


def evaluated(overlays, *types, pools=None):
    listed = catalogue(*(types or (single(),)))
    pools = [node_pool()] if pools is None else pools
    return evaluate_overlays(
        overlays, [OverlayPool(pool, listed) for pool in pools], rules=None
    ), listed


def verdicts(overlays, *types, pools=None):
    """Return the status and the reason of ValidationSucceeded of each overlay."""
    evaluation, _ = evaluated(overlays, *types, pools=pools)
    result = {}
    for overlay in overlays:
        judged = with_verdict(overlay, evaluation, now=EPOCH)
        assert with_verdict(judged, evaluation, now=EPOCH + timedelta(hours=1)) is judged
        conditions = judged.status.conditions
        by_type = {each.type: each for each in conditions}
        valid, ready = by_type["ValidationSucceeded"], by_type["Ready"]
        assert ready.status == valid.status
        assert (valid.message == CONFLICT_MESSAGE) == (valid.reason == CONFLICT)
        result[overlay.name] = True if valid.status == "True" else valid.reason
    return result


def overlaid(overlays, *types, pools=None, pool="default"):
    evaluation, listed = evaluated(overlays, *types, pools=pools)
    return apply_overlays(listed, evaluation.store.pools[pool])


def prices(overlays, *types, pools=None, pool="default"):
    """Return the amounts by type, zone and capacity type."""
    return {
        (it.name, each.zone, each.capacity_type): each.price.amount
        for it in overlaid(overlays, *types, pools=pools, pool=pool).instance_types
        for each in it.offerings
    }


def priced(name, *requirements, weight=10, price="0.5", **more):
    return node_overlay(name, *requirements, price=price, weight=weight, **more)


def sized(name, *requirements, weight=10, **capacity):
    named = {"fuse": FUSE, "huge": HUGE}
    amounts = {named[key]: amount for key, amount in capacity.items()}
    return node_overlay(name, *requirements, weight=weight, capacity=amounts)


@pytest.mark.parametrize(
    ("amount", "change", "result"),
    [
        (10, "-10%", 9),
        (10, "+10%", 11),
        (10, "-50%", 5),
        (10, "+100%", 20),
        (10, "-100%", 0),
        (10, "-200%", 0),
        (1.5, "-25%", 1.125),
        (10, "+5", 15),
        (10, "-2.5", 7.5),
        (10, "-10", 0),
        (10, "-15", 0),
        (10, "80", 80),
    ],
)
def test_case_054_prices_are_set_raised_and_lowered(amount, change, result):
    changed = PriceChange.parse(change).apply(Price(float(amount), "CNY"))
    assert changed.currency == "CNY"
    assert changed.amount == pytest.approx(result)


def test_an_unknown_price_stays_unknown_unless_it_is_set():
    unknown = Price(math.nan)
    assert math.isnan(PriceChange.parse("+1").apply(unknown).amount)
    assert math.isnan(PriceChange.parse("-100%").apply(unknown).amount)
    assert PriceChange.parse("2").apply(unknown).amount == 2


@pytest.mark.parametrize("text", ["", "+", "10%", "nan", "inf", "+inf", "-nan%", "1,5", "0x1"])
def test_a_text_that_is_no_change_is_refused(text):
    with pytest.raises(BadInputError, match="is not a price"):
        PriceChange.parse(text)


def test_case_322_without_overlays_prices_are_as_listed():
    evaluation, listed = evaluated([])
    assert apply_overlays(listed, evaluation.store.pools["default"]) is listed
    assert prices([])["default-instance-type", "z1", SPOT] == 1.02
    assert verdicts([priced("a", (CAPACITY_TYPE, "Exists"))]) == {"a": True}


@pytest.mark.parametrize(
    "bad",
    [
        priced("bad", ("karpenter.sh/own", "Exists")),
        priced("bad", (f"{'a' * 64}/x{'b' * 64}", "Exists")),
        priced("bad", (ZONE, "NotIn")),
        priced("bad", (ZONE, "In")),
        priced("bad", (ZONE, "Gt", "-1")),
        priced("bad", (ZONE, "Near", "1")),
        node_overlay("bad", capacity={"cpu": "1"}),
        node_overlay("bad", annotations={"karpenter.sh/price-per-node": "-0.1"}),
    ],
    ids=lambda overlay: str(overlay.spec.requirements or overlay.spec.capacity)[:40],
)
def test_case_323_an_invalid_overlay_says_so_and_has_no_effect(bad):
    assert verdicts([bad]) == {"bad": RUNTIME_VALIDATION}
    evaluation, listed = evaluated([bad])
    assert apply_overlays(listed, evaluation.store.pools["default"]) is listed


def test_an_invalid_overlay_does_not_stop_a_valid_one():
    bad = node_overlay("bad", price="3", weight=99, capacity={"cpu": "1"})
    good = priced("good")
    assert verdicts([bad, good]) == {"bad": RUNTIME_VALIDATION, "good": True}
    assert prices([bad, good])["default-instance-type", "z1", SPOT] == 0.5


def test_case_324_the_last_name_comes_first_among_equal_weights():
    a = priced("overlay-a", (ARCH, "In", "arm64"))
    b = priced("overlay-b", (CAPACITY_TYPE, "Exists"))
    arm = instance_type("arm", arch="arm64", offerings=[offering("z1", SPOT, 2.0)])
    assert verdicts([a, b], arm, single()) == {"overlay-a": CONFLICT, "overlay-b": True}
    ios = priced("overlay-b", (OS, "In", "ios"))
    apple = instance_type("amd", operating_systems=["ios"], offerings=[offering("z1", SPOT, 2.0)])
    assert verdicts([a, ios], arm, apple) == {"overlay-a": True, "overlay-b": True}


FOUR = instance_type(
    "four",
    offerings=[
        offering("z1", SPOT, 1.0),
        offering("z1", ON_DEMAND, 2.0),
        offering("z2", SPOT, 1.1),
        offering("z2", ON_DEMAND, 2.1),
    ],
)


@pytest.mark.parametrize(
    ("one", "other", "conflicts"),
    [
        ([(ZONE, "In", "z1")], [(ZONE, "In", "z1", "z2")], True),
        ([(ZONE, "In", "z1")], [(ZONE, "In", "z2")], False),
        ([(CAPACITY_TYPE, "In", SPOT)], [(CAPACITY_TYPE, "In", SPOT)], True),
        ([(CAPACITY_TYPE, "In", SPOT)], [(CAPACITY_TYPE, "In", ON_DEMAND)], False),
        ([(ZONE, "In", "z1")], [(CAPACITY_TYPE, "In", SPOT)], True),
        (
            [(ZONE, "In", "z1"), (CAPACITY_TYPE, "In", SPOT)],
            [(ZONE, "In", "z2"), (CAPACITY_TYPE, "In", SPOT)],
            False,
        ),
    ],
)
def test_case_325_overlays_conflict_on_the_same_offering_only(one, other, conflicts):
    found = verdicts([priced("a", *one), priced("b", *other)], FOUR)
    assert found == {"a": CONFLICT if conflicts else True, "b": True}


def test_case_326_equal_values_conflict_and_other_weights_do_not():
    assert verdicts([priced("a", price="1"), priced("b", price="1")]) == {"a": CONFLICT, "b": True}
    assert verdicts([priced("a", weight=1), priced("b", weight=2)]) == {"a": True, "b": True}
    assert verdicts([priced("a", weight=None), priced("b", weight=1)]) == {"a": True, "b": True}
    assert verdicts([priced("a", weight=None), priced("b", weight=None)])["a"] == CONFLICT
    types = [FOUR, instance_type("five")]
    apart = [
        priced("a", (INSTANCE_TYPE, "In", "four")),
        priced("b", (INSTANCE_TYPE, "NotIn", "four")),
    ]
    assert verdicts(apart, *types) == {"a": True, "b": True}


def test_case_327_overlays_conflict_on_the_same_resource_only():
    fuse, same, huge = sized("c", fuse="1"), sized("b", fuse="1"), sized("a", huge="2Gi")
    assert verdicts([fuse, same, huge]) == {"a": True, "b": CONFLICT, "c": True}
    assert verdicts([fuse, huge]) == {"a": True, "c": True}
    assert verdicts([fuse, sized("b", fuse="1", weight=5)]) == {"b": True, "c": True}
    assert verdicts([fuse, priced("b")]) == {"b": True, "c": True}


def test_a_third_overlay_cannot_repeat_the_resource_of_the_first():
    """Between them is one that sets another resource; Karpenter forgets the first one then."""
    third = sized("a", fuse="2")
    assert verdicts([sized("c", fuse="1"), sized("b", huge="1Gi"), third])["a"] == CONFLICT


def test_case_328_an_overlay_changes_only_selected_offerings():
    assert prices([priced("a", price="13234.223")]) == {
        ("default-instance-type", "z1", SPOT): 13234.223
    }
    raised = node_overlay("a", adjustment="+1000")
    assert prices([raised])["default-instance-type", "z1", SPOT] == pytest.approx(1001.02)

    pools = [node_pool("web", labels={"team": "red"}), node_pool("batch", labels={"team": "blue"})]
    for requirement in ((NODE_POOL, "In", "web"), ("team", "In", "red"), ("team", "NotIn", "blue")):
        overlays = [priced("a", requirement)]
        assert prices(overlays, pools=pools, pool="web")["default-instance-type", "z1", SPOT] == 0.5
        assert set(prices(overlays, pools=pools, pool="batch").values()) == {1.02}

    before = prices([], FOUR, instance_type("five", zones=["z1"]))
    selected = {
        (INSTANCE_TYPE, "In", "four"): lambda key: key[0] == "four",
        (CAPACITY_TYPE, "In", SPOT): lambda key: key[2] == SPOT,
        (ZONE, "In", "z2"): lambda key: key[1] == "z2",
    }
    for requirement, is_selected in selected.items():
        changed = prices([priced("a", requirement)], FOUR, instance_type("five", zones=["z1"]))
        assert changed == {key: 0.5 if is_selected(key) else price for key, price in before.items()}


def test_a_label_that_no_node_has_selects_nothing_but_by_its_absence():
    assert set(prices([priced("a", ("team", "Exists"))]).values()) == {1.02}
    assert set(prices([priced("a", ("team", "In", "red"))]).values()) == {1.02}
    assert set(prices([priced("a", ("team", "DoesNotExist"))]).values()) == {0.5}
    assert set(prices([priced("a", ("team", "NotIn", "red"))]).values()) == {0.5}


def test_an_unavailable_offering_is_selected_too():
    out = instance_type("out", offerings=[offering("z1", SPOT, 3.0, available=False)])
    assert prices([priced("a")], out) == {("out", "z1", SPOT): 0.5}


def test_case_329_each_overlay_changes_its_own_offerings_and_the_heaviest_wins():
    apart = [
        priced("a", (ZONE, "In", "z1"), price="7"),
        priced("b", (ZONE, "In", "z2"), (CAPACITY_TYPE, "In", SPOT), price="8"),
    ]
    assert prices(apart, FOUR) == {
        ("four", "z1", SPOT): 7,
        ("four", "z1", ON_DEMAND): 7,
        ("four", "z2", SPOT): 8,
        ("four", "z2", ON_DEMAND): 2.1,
    }
    overlapping = [
        priced("light", (ZONE, "In", "z1"), price="7", weight=1),
        node_overlay("heavy", (CAPACITY_TYPE, "In", SPOT), adjustment="+100%", weight=9),
    ]
    assert prices(overlapping, FOUR) == {
        ("four", "z1", SPOT): 2.0,
        ("four", "z1", ON_DEMAND): 7,
        ("four", "z2", SPOT): 2.2,
        ("four", "z2", ON_DEMAND): 2.1,
    }


def test_case_330_a_conflict_in_one_type_of_one_pool_rejects_the_overlay_everywhere():
    pools = [node_pool("web"), node_pool("batch")]
    types = [FOUR, single()]
    first = priced("b", (NODE_POOL, "In", "batch"), (INSTANCE_TYPE, "In", "four"), price="7")
    second = priced("a", price="9", capacity={FUSE: "1"})
    assert verdicts([first, second], *types, pools=pools) == {"a": CONFLICT, "b": True}
    for pool in ("web", "batch"):
        result = overlaid([first, second], *types, pools=pools, pool=pool)
        assert all(FUSE not in it.capacity for it in result.instance_types)
        assert 9 not in prices([first, second], *types, pools=pools, pool=pool).values()


def test_case_331_capacity_is_added_to_all_offerings_of_a_selected_type():
    (four,) = overlaid([sized("a", (ZONE, "In", "z1"), fuse="1", huge="2Gi")], FOUR).instance_types
    assert four.capacity == {**FOUR.capacity, FUSE: 1, HUGE: 2 * GIB}
    assert four.overlaid_resources == {FUSE, HUGE}
    assert four.allocatable()["memory"] == FOUR.allocatable()["memory"] - 2 * GIB
    assert four.offerings is FOUR.offerings

    overlays = [sized("a", fuse="5", weight=5), sized("b", fuse="99", weight=99)]
    (heaviest,) = overlaid(overlays).instance_types
    assert heaviest.capacity[FUSE] == 99
    overlays = [sized("a", fuse="1"), sized("b", huge="1Gi"), priced("c")]
    (together,) = overlaid(overlays).instance_types
    assert (together.capacity[FUSE], together.capacity[HUGE]) == (1, GIB)
    assert together.offerings[0].price.amount == 0.5


def test_case_332_a_pool_without_listing_does_not_hold_up_the_others():
    listed = catalogue(single())
    evaluation = evaluate_overlays(
        [priced("a")], [OverlayPool(node_pool("web"), listed)], rules=None
    )
    assert list(evaluation.store.pools) == ["web"]
    both = [OverlayPool(node_pool(name), listed) for name in ("web", "batch")]
    recovered = evaluate_overlays([priced("a")], both, rules=None)
    assert set(recovered.store.pools) == {"web", "batch"}
    empty = evaluate_overlays(
        [priced("a")], [OverlayPool(node_pool("web"), catalogue())], rules=None
    )
    assert apply_overlays(catalogue(), empty.store.pools["web"]).instance_types == ()


def state_with(*pools, listed):
    state = StateBuilder(MANAGED_KINDS, overlays=True)
    for pool in pools:
        state.apply_event(ObjectObserved(ready_node_pool(pool)))
        state.apply_event(CataloguePublished(pool.name, listed))
    state.apply_event(InformersSynced())
    return state


def test_case_333_a_pool_that_is_not_evaluated_has_no_catalogue():
    web, batch, listed = node_pool("web"), node_pool("batch"), catalogue(single(), FOUR)
    state = state_with(web, batch, listed=listed)
    before = state.snapshot()
    assert before.catalogues == {}
    assert set(before.listed_catalogues) == {"web", "batch"}

    first = evaluate_overlays([priced("a")], [OverlayPool(web, listed)], rules=None)
    state.apply_event(OverlaysEvaluated(first.store))
    assert set(state.snapshot().catalogues) == {"web"}
    assert before.catalogues == {}, "a snapshot never changes"


def test_case_333_untouched_objects_are_shared_and_touched_ones_are_copied():
    web, batch, listed = node_pool("web"), node_pool("batch"), catalogue(single(), FOUR)
    state = state_with(web, batch, listed=listed)
    pools = [OverlayPool(web, listed), OverlayPool(batch, listed)]
    in_web = priced("a", (NODE_POOL, "In", "web"), (ZONE, "In", "z2"))
    state.apply_event(OverlaysEvaluated(evaluate_overlays([in_web], pools, rules=None).store))

    catalogues = state.snapshot().catalogues
    assert catalogues["batch"] is listed
    default, four = catalogues["web"].instance_types
    assert default is listed.instance_types[0]
    assert four is not FOUR
    assert four.requirements is FOUR.requirements
    assert four.capacity is FOUR.capacity
    assert [one is other for one, other in zip(four.offerings, FOUR.offerings, strict=True)] == [
        True,
        True,
        False,
        False,
    ]
    assert listed.instance_types[1].offerings[2].price.amount == 1.1


def test_an_evaluation_changes_the_catalogues_of_the_pools_that_it_touches():
    web, batch, listed = node_pool("web"), node_pool("batch"), catalogue(single(), FOUR)
    state = state_with(web, batch, listed=listed)
    pools = [OverlayPool(web, listed), OverlayPool(batch, listed)]

    def evaluate(*overlays):
        changes = state.apply_event(
            OverlaysEvaluated(evaluate_overlays(overlays, pools, rules=None).store)
        )
        return {name for change in changes for name in change.names}

    in_web, in_both = priced("a", (NODE_POOL, "In", "web")), priced("b", weight=1, price="3")
    assert evaluate() == {"web", "batch"}
    assert state.snapshot().catalogues["web"] is state.snapshot().catalogues["batch"]
    assert evaluate(in_web) == {"web"}
    before = state.snapshot().catalogues
    assert evaluate(in_web) == set()
    assert state.snapshot().catalogues["web"] is before["web"]
    assert evaluate(in_web, in_both) == {"batch"}, "the light one changes no price of web"
    after = state.snapshot().catalogues
    assert after["web"] is before["web"]
    assert after["batch"].version not in {listed.version, after["web"].version}
    assert evaluate(in_both) == {"web"}
    assert state.snapshot().catalogues["web"] is state.snapshot().catalogues["batch"]


def test_the_listed_price_and_the_source_of_a_price_are_kept():
    (four,) = overlaid([priced("half", (ZONE, "In", "z1"))], FOUR).instance_types
    cheap, dear = four.offerings[0], four.offerings[2]
    assert (cheap.list_price, cheap.price_source) == (Price(1.0), 'NodeOverlay "half"')
    assert cheap.is_overlaid
    assert (dear.list_price, dear.price_source, dear.is_overlaid) == (None, "", False)


def test_fees_per_node_are_added_to_any_price():
    fee = {"karpenter.sh/price-per-node": "0.25"}
    overlays = [
        priced("agent", (ZONE, "In", "z1"), price="7", annotations=fee),
        node_overlay("licence", (CAPACITY_TYPE, "In", SPOT), annotations=fee, weight=10),
    ]
    assert verdicts(overlays, FOUR) == {"agent": True, "licence": True}
    assert prices(overlays, FOUR) == {
        ("four", "z1", SPOT): 7.5,
        ("four", "z1", ON_DEMAND): 7.25,
        ("four", "z2", SPOT): 1.35,
        ("four", "z2", ON_DEMAND): 2.1,
    }
    (four,) = overlaid(overlays, FOUR).instance_types
    assert four.offerings[0].price_source == 'NodeOverlay "agent", NodeOverlay "licence"'
    assert four.offerings[2].price_source == 'NodeOverlay "licence"'


def test_a_large_catalogue_stays_the_same_object_when_no_overlay_selects_it():
    listed = standard_catalogue()
    overlays = [priced(f"o{n}", (NODE_POOL, "In", "other")) for n in range(20)]
    evaluation = evaluate_overlays(overlays, [OverlayPool(node_pool("web"), listed)], rules=None)
    assert not evaluation.conflicts
    assert apply_overlays(listed, evaluation.store.pools["web"]) is listed
