"""Laws of the parts of simulated clouds: capacity, prices, tokens, ids, throttling, kubelets."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from http.client import HTTPSConnection
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.provider.kit.simulated.behaviour import CloudBehaviour
from karpenter_core.provider.kit.simulated.capacity import CapacityLimits, SimulatedQuota
from karpenter_core.provider.kit.simulated.cloud_time import CloudTime
from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_core.provider.kit.simulated.ids import IdGenerator
from karpenter_core.provider.kit.simulated.instances import (
    InstancePhase,
    SimulatedInstance,
    SimulatedInstances,
)
from karpenter_core.provider.kit.simulated.kubelets import allocatable_amounts
from karpenter_core.provider.kit.simulated.launch_calls import LaunchCalls
from karpenter_core.provider.kit.simulated.pools import InstancePool, PoolFault, PoolFaults
from karpenter_core.provider.kit.simulated.prices import SimulatedPrices
from karpenter_core.provider.kit.simulated.rates import CallRates, SimulatedCallRate
from karpenter_core.provider.kit.simulated.server import HttpReply, HttpServer
from karpenter_core.provider.kit.simulated.tokens import ClientTokens, NoAnswerError, TokenErrors

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
POOL = InstancePool(capacity_type="spot", instance_type="large", zone="north")
ERRORS = TokenErrors(
    mismatch=lambda: CloudError("mismatch", "other parameters"),
    in_progress=lambda: CloudError("in-progress", "not answered yet"),
)
GIBIBYTE = 2**30


def instances_of(count, pool=POOL, **fields):
    time, behaviour = CloudTime(lambda: NOON), CloudBehaviour()
    found = SimulatedInstances[SimulatedInstance](time, behaviour)
    for number in range(count):
        found.add(SimulatedInstance(id=f"vm-{number}", pool=pool, launched_at=NOON, **fields))
    return found, time, behaviour


def limits(instances):
    return CapacityLimits(instances, sold_out=lambda pool: CloudError("sold-out", pool.zone))


def quota(amount, covers=POOL.holds, **fields):
    return SimulatedQuota(amount=amount, covers=covers, error=CloudError("quota", "no"), **fields)


# -- capacity ----------------------------------------------------------------------------------------


@given(
    running=st.integers(0, 5),
    stock=st.none() | st.integers(0, 8),
    vcpus=st.none() | st.integers(0, 40),
    wanted=st.integers(0, 10),
)
def test_no_more_is_obtainable_than_stock_and_quota_leave(running, stock, vcpus, wanted):
    instances, *_ = instances_of(running)
    capacity = limits(instances)
    if stock is not None:
        capacity.stock(POOL, stock)
    if vcpus is not None:
        capacity.set_quota("vCPUs", quota(vcpus, cost=lambda _: 4))

    had, error = capacity.obtainable(POOL, wanted)

    most = [wanted]
    if stock is not None:
        most.append(max(0, stock - running))
    if vcpus is not None:
        most.append(max(0, vcpus - 4 * running) // 4)
    assert had == min(most)
    assert (error is None) == (had == wanted)


def test_the_last_rule_of_stock_counts_until_it_ends():
    capacity = limits(instances_of(1)[0])
    capacity.stock(InstancePool(), 9)

    with capacity.stock(POOL, 3):
        within = capacity.left(POOL)

    assert (within, capacity.left(POOL)) == (2, 8)


def test_instances_from_reserved_capacity_take_no_stock():
    capacity = limits(instances_of(3, takes_stock=False)[0])
    capacity.stock(POOL, 1)

    assert capacity.left(POOL) == 1


def test_the_smallest_quota_words_the_refusal():
    capacity = limits(instances_of(1)[0])
    capacity.set_quota("wide", quota(9))
    narrow = SimulatedQuota(
        amount=1, covers=InstancePool(zone="north").holds, error=CloudError("zone", "no")
    )
    capacity.set_quota("narrow", narrow)

    assert capacity.obtainable(POOL, 2) == (0, narrow.error)
    capacity.set_quota("narrow", None)
    assert capacity.allowed(POOL)[0] == 8


# -- instances ---------------------------------------------------------------------------------------


@given(
    pending=st.integers(0, 20),
    fails_after=st.none() | st.integers(0, 40),
    ends_after=st.none() | st.integers(0, 40),
    terminating=st.integers(0, 20),
)
def test_a_phase_never_changes_backwards(pending, fails_after, ends_after, terminating):
    instances, time, behaviour = instances_of(0)
    behaviour.pending_seconds, behaviour.terminating_seconds = pending, terminating
    if fails_after is not None:
        error = CloudError("late", "failed")
        instances.late_failures.add(PoolFault(pool=POOL, error=error, after_seconds=fails_after))
    vm = SimulatedInstance(id="vm", pool=POOL, launched_at=NOON)
    instances.add(vm)
    if ends_after is not None:
        instances.end(vm, at=NOON + timedelta(seconds=ends_after))
    order = list(InstancePhase)

    seen = []
    for _ in range(70):
        seen.append(order.index(instances.phase_of(vm)))
        time.advance(1)

    assert all(before <= after for before, after in pairwise(seen))
    assert (order[seen[-1]] is InstancePhase.GONE) == (ends_after is not None)


def test_changes_of_phase_are_announced_with_their_delays():
    instances, _, behaviour = instances_of(0)
    behaviour.pending_seconds, behaviour.terminating_seconds = 5, 7
    told = []
    instances.phase_changed = lambda _, phase, seconds: told.append((phase, seconds))
    vm = SimulatedInstance(id="vm", pool=POOL, launched_at=NOON)

    instances.add(vm)
    instances.end(vm, at=NOON + timedelta(seconds=60))

    assert told == [
        (InstancePhase.PENDING, 0),
        (InstancePhase.RUNNING, 5),
        (InstancePhase.TERMINATING, 60),
        (InstancePhase.GONE, 67),
    ]


def test_a_termination_that_has_started_is_not_put_off():
    instances, time, _ = instances_of(1)
    (vm,) = instances.all
    instances.end(vm, reason="first")
    time.advance(10)
    instances.end(vm, reason="second")

    assert (vm.ends_at, vm.end_reason) == (NOON, "first")


def test_a_cloud_may_let_some_instances_take_longer_to_terminate():
    class Slow(SimulatedInstances[SimulatedInstance]):
        def gone_at(self, instance):
            ended = super().gone_at(instance)
            return ended if ended is None else ended + timedelta(seconds=50)

    time = CloudTime(lambda: NOON)
    instances = Slow(time, CloudBehaviour(terminating_seconds=10, gone_visible_seconds=5))
    instances.add(SimulatedInstance(id="vm", pool=POOL, launched_at=NOON))
    (instance,) = instances.all
    instances.end(instance)
    time.advance(59)
    assert instances.phase_of(instance) is InstancePhase.TERMINATING
    time.advance(1)
    assert instances.phase_of(instance) is InstancePhase.GONE
    assert instances.is_visible(instance)
    time.advance(5)
    assert not instances.is_visible(instance)


def test_a_fault_of_pools_strikes_in_order_and_as_often_as_was_said():
    faults = PoolFaults()
    faults.add(PoolFault(pool=InstancePool(zone="south"), error=CloudError("other", "")))
    faults.add(PoolFault(pool=POOL, error=CloudError("first", ""), times=2))
    with faults.add(PoolFault(pool=InstancePool(), error=CloudError("last", ""))):
        struck = [faults.strike(POOL).error.code for _ in range(3)]

    assert struck == ["first", "first", "last"]
    assert faults.strike(POOL) is None


# -- prices ------------------------------------------------------------------------------------------


def prices(time=None, **fields):
    return SimulatedPrices(time or CloudTime(lambda: NOON), lambda _: 1.0, **fields)


@given(name=st.text(), zone=st.text(), share=st.floats(0, 0.9))
def test_prices_are_the_same_in_every_run_and_move_by_the_share_at_most(name, zone, share):
    first, second = prices(), prices()

    spot = first.spot(name, zone)
    assert spot == second.spot(name, zone)
    assert 0.25 <= spot <= 0.45
    first.move(share)
    assert abs(first.spot(name, zone) - spot) <= share * spot + 1e-5
    assert abs(first.on_demand(name) - 1) <= share + 1e-5
    first.clear()
    assert first.spot(name, zone) == spot


def test_a_price_that_is_set_stays_and_zero_removes_it():
    found = prices()
    found.set_spot("large", "north", 0.0)
    found.set_on_demand("large", 3.0)
    found.move(0.5)

    assert found.of(POOL) == 0.0
    assert found.on_demand("large") == 3.0
    assert 0.25 * 3 * 0.5 <= found.spot("large", "south") <= 0.45 * 3 * 1.5


def test_the_history_of_a_spot_price_has_every_move_last_first():
    time = CloudTime(lambda: NOON)
    found = prices(time)
    before = found.spot("large", "north")
    time.advance(60)
    found.move()
    after = found.spot("large", "north")

    assert list(found.spot_moves("large", "north")) == [
        (NOON + timedelta(seconds=60), after),
        (NOON - timedelta(seconds=3540), before),
    ]
    since = NOON + timedelta(seconds=60)
    assert list(found.spot_moves("large", "north", since)) == [(since, after)]


def test_a_walk_changes_prices_with_the_time_alone():
    time = CloudTime(lambda: NOON)
    found = prices(time)
    steady = found.spot("large", "north")
    found.walk = 0.2
    walked = found.spot("large", "north")
    time.advance(3600)

    assert len({steady, walked, found.spot("large", "north")}) == 3
    assert found.spot("large", "north", at=NOON) == walked


# -- tokens, ids, log --------------------------------------------------------------------------------


def test_a_repeated_token_gets_the_first_answer_and_does_nothing():
    tokens, done = ClientTokens[int](lambda: NOON, ERRORS), []

    def act():
        done.append(1)
        return len(done)

    answers = [tokens.once("a", {"size": 1}, act) for _ in range(3)]

    assert (answers, len(done)) == ([1, 1, 1], 1)
    assert [tokens.once("", {"size": 1}, act) for _ in range(2)] == [2, 3]
    with pytest.raises(CloudError, match="mismatch"):
        tokens.once("a", {"size": 2}, act)


def test_a_call_that_is_refused_keeps_no_token():
    tokens = ClientTokens[str](lambda: NOON, ERRORS)

    def refuse():
        raise CloudError("sold-out", "no")

    with pytest.raises(CloudError, match="sold-out"):
        tokens.once("a", {}, refuse)
    assert tokens.once("a", {}, lambda: "made") == "made"


def test_a_slow_call_is_carried_out_and_its_token_is_in_progress_meanwhile():
    time = CloudTime(lambda: NOON)
    tokens = ClientTokens[str](time, ERRORS, working_seconds=lambda: 10)

    with pytest.raises(NoAnswerError):
        tokens.once("a", {}, lambda: "made")
    with pytest.raises(CloudError, match="in-progress"):
        tokens.once("a", {}, lambda: "again")
    time.advance(10)
    assert tokens.once("a", {}, lambda: "again") == "made"


def test_a_token_is_forgotten_after_its_lifetime():
    time = CloudTime(lambda: NOON)
    tokens = ClientTokens[str](time, ERRORS, lifetime=timedelta(hours=1))
    tokens.once("a", {}, lambda: "first")
    time.advance(3600)

    assert tokens.once("a", {}, lambda: "second") == "second"


def test_ids_differ_and_are_the_same_in_every_run():
    first, second = IdGenerator("seed"), IdGenerator("seed")
    made = [first.new("i") for _ in range(100)]

    assert made == [second.new("i") for _ in range(100)]
    assert len(set(made)) == 100
    assert first.named("i", "x") == second.named("i", "x")
    assert IdGenerator("other").new("i") not in made


def test_the_launch_log_has_sold_out_and_launched_offerings():
    calls, other = LaunchCalls(), InstancePool(capacity_type="spot", instance_type="s", zone="n")
    calls.add("create", sold_out=[POOL], bought={other: 2, POOL: 0})

    (call,) = calls.all
    assert (call.action, call.sold_out) == ("create", [POOL.offering])
    assert call.bought == {other.offering: 2}


# -- throttling --------------------------------------------------------------------------------------


@given(
    bucket=st.integers(1, 10),
    refill=st.integers(1, 5),
    calls=st.integers(0, 30),
    tokens=st.integers(1, 10),
)
def test_a_call_succeeds_after_the_wait_and_not_before(bucket, refill, calls, tokens):
    time = CloudTime(lambda: NOON)
    rates = CallRates(time)
    rates.set({"write": SimulatedCallRate(bucket=bucket, refill=refill)})
    for _ in range(calls):
        rates.take("write")

    wait = rates.wait_seconds("write", tokens)

    assert (wait == float("inf")) == (tokens > bucket)
    assert (wait == 0) == rates.take("write", tokens)
    if 0 < wait < float("inf"):
        time.advance(wait + 1e-5)
        assert rates.take("write", tokens)


def test_a_bucket_reports_its_remaining_calls_only_where_calls_are_limited():
    rates = CallRates(CloudTime(lambda: NOON))
    assert rates.left("write") is None

    rates.set({"wri*": SimulatedCallRate(bucket=3, refill=1)})
    rates.take("write")

    assert rates.left("write") == 2


# -- kubelets and server -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("threshold", "left"),
    [("100Mi", GIBIBYTE - 100 * 2**20), ("25%", 3 * GIBIBYTE // 4), ("100%", GIBIBYTE)],
)
def test_allocatable_is_capacity_less_reserved_amounts_and_eviction_thresholds(threshold, left):
    capacity = {"cpu": 2000, "memory": GIBIBYTE}

    found = allocatable_amounts(
        capacity, {"cpu": 300, "gpu": 1}, {"cpu": 3000}, thresholds={"memory": threshold}
    )

    assert found == {"cpu": 0, "memory": left}


def test_a_server_with_a_certificate_serves_https(tmp_path):
    context, trusted = contexts(tmp_path)
    server = HttpServer(
        lambda request: HttpReply(status=200, body=request.body), name="tls", tls=context
    )
    server.start()
    try:
        connection = HTTPSConnection(server.endpoint, context=trusted, timeout=20)
        for _ in range(2):
            connection.request("PUT", "/", body="text")
            assert connection.getresponse().read() == b"text"
        connection.close()
        assert server.endpoint_url.startswith("https://127.0.0.1:")
    finally:
        server.stop()


def contexts(folder):
    """Return the contexts of a server with a new certificate and of a client that trusts it."""
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    (folder / "tls.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "tls.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context, ssl.create_default_context(cafile=folder / "tls.crt")
