"""Checks plans of `wide_problem`s by the verifier, with what else these problems have.

Beside what the verifier knows of: quotas, limits of price, currencies, virtual pods on nodes. Devices are
checked by tests of their own.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from karpenter_core.api.labels import NODES, PRICE_PER_HOUR
from karpenter_core.api.prices import Price
from karpenter_core.scheduling.problem import MinValuesPolicy
from tests.verifier import violations
from tests.verifier.contents import claim_variants
from tests.verifier.places import type_variants
from tests.verifier.rules import meets

_PRICE_TEXTS = ("cheapest is", "not sorted by price", "is not the sum")
_MILLION = 1_000_000


def wide_faults(problem, plan, options):
    """Return everything that is wrong with a plan, as texts."""
    rates = {options.currency: 1.0, **options.exchange_rates}
    plan = _without_covered_pods(problem, plan)
    plain = _without_price_limits(_in_one_currency(problem, rates))
    strict = options.min_values is MinValuesPolicy.STRICT
    texts = violations(plain, plan, strict_min_values=strict)
    if problem.commitments or not _are_rated(problem, rates):
        texts = [text for text in texts if not any(part in text for part in _PRICE_TEXTS)]
    texts += _over_price_limits(problem, plan, rates)
    texts += _over_quotas(problem, plan, rates)
    return texts


def _without_covered_pods(problem, plan):
    covered = {pod.uid for pods in problem.covered_pods.values() for pod in pods}
    existing = {
        name: tuple(pod for pod in pods if pod.uid not in covered)
        for name, pods in plan.existing.items()
    }
    return replace(plan, existing={name: pods for name, pods in existing.items() if pods})


def _offerings(problem):
    for sold in problem.catalogues.values():
        for kind in sold.instance_types:
            yield from kind.offerings


def _are_rated(problem, rates):
    return all(one.price.currency in rates for one in _offerings(problem))


def _in_one_currency(problem, rates):
    def rated(one):
        return replace(one, price=Price(one.price.amount * rates.get(one.price.currency, 1.0)))

    return replace(
        problem,
        catalogues={
            name: replace(
                sold,
                instance_types=tuple(
                    replace(kind, offerings=tuple(rated(one) for one in kind.offerings))
                    for kind in sold.instance_types
                ),
            )
            for name, sold in problem.catalogues.items()
        },
    )


def _without_price_limits(problem):
    pools = []
    for pool in problem.pools:
        limits = {name: n for name, n in pool.spec.limits.items() if name != PRICE_PER_HOUR}
        pools.append(
            pool.model_copy(update={"spec": pool.spec.model_copy(update={"limits": limits})})
        )
    return replace(problem, pools=tuple(pools))


# -- what claims take at most ----------------------------------------------------------------------


def _priced(problem, claim):
    """List what a claim may become, offerings that are sold out too: these may come back."""
    required = {r.key: r for r in claim.requirements}
    for kind in problem.catalogues[claim.pool].instance_types:
        if kind.name in claim.instance_types:
            there = replace(
                kind, offerings=tuple(replace(one, available=True) for one in kind.offerings)
            )
            yield from type_variants(there, claim.labels, required)


def _highest_price(variants, rates):
    """Return the highest price in millionths; infinite if a price is not known."""
    prices = [one.offering.price for one in variants]
    return max(
        (round(price.amount * rates.get(price.currency, inf) * _MILLION, 3) for price in prices),
        default=0,
    )


def _over_price_limits(problem, plan, rates):
    for pool in problem.pools:
        limit = pool.spec.limits.get(PRICE_PER_HOUR)
        claims = [claim for claim in plan.claims if claim.pool == pool.name]
        if limit is None or not claims:
            continue
        used = problem.pool_usage.get(pool.name, {}).get(PRICE_PER_HOUR, 0)
        used += sum(_highest_price(_priced(problem, claim), rates) for claim in claims)
        if used > float(str(limit)) * _MILLION + 1:
            yield f"pool {pool.name}: the price {used} exceeds the limit {limit}"


def _over_quotas(problem, plan, rates):
    for quota in problem.quotas:

        def counts(variant, quota=quota):
            return all(meets(r, variant.labels) for r in quota.requirements.values())

        used, claims = dict(quota.used), 0
        for claim in plan.claims:
            listed = [one for of_type in claim_variants(problem, claim).values() for one in of_type]
            counted = [one for one in listed if counts(one)]
            if not counted:
                continue
            claims += 1
            for name in {name for one in counted for name in one.capacity}:
                most = max(one.capacity.get(name, 0) for one in counted)
                used[name] = used.get(name, 0) + most
            used[NODES] = used.get(NODES, 0) + 1
            price = _highest_price(filter(counts, _priced(problem, claim)), rates)
            used[PRICE_PER_HOUR] = used.get(PRICE_PER_HOUR, 0) + price
        if claims and quota.refusal:
            yield f"{quota.name} refuses all claims, and counts {claims}"
        for name, limit in quota.limits.items():
            if claims and used.get(name, 0) > limit + (1 if name == PRICE_PER_HOUR else 0):
                yield f"{quota.name}: {name} {used[name]} exceeds {limit}"
