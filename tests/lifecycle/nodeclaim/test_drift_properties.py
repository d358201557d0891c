"""A claim that was just launched for a plan has not drifted."""

from __future__ import annotations

from hypothesis import given

from karpenter_core.api.nodeclaim import LAUNCHED
from karpenter_core.lifecycle.claim_status import with_condition
from karpenter_core.lifecycle.nodeclaim.drift import TYPE_CHECK_AGE, DriftRules, local_drift
from karpenter_core.lifecycle.nodeclaim.launch import launched_claim
from karpenter_core.lifecycle.nodeclaim.node_claim_builder import build_node_claim
from karpenter_core.lifecycle.nodepool.hashing import HASH_VERSION, node_pool_hash, with_hash
from karpenter_core.provider.contract import LaunchedInstance
from karpenter_core.scheduling.requirements import Requirements
from karpenter_core.scheduling.solve import solve
from karpenter_core.testing.builders import EPOCH
from tests.properties import with_examples
from tests.support.strategies import problems


def launched(claim, instance_type, offering):
    """The claim as a provider completes it: with the labels that type and offering decide."""
    decided = instance_type.requirements.merge(offering.requirements)
    labels = {key: value for key in decided if (value := decided.single_value(key))}
    instance = LaunchedInstance(
        provider_id="fake://1",
        instance_type=instance_type.name,
        zone=offering.zone,
        capacity_type=offering.capacity_type,
        capacity=instance_type.capacity,
        allocatable=instance_type.allocatable(),
        labels=labels,
    )
    return with_condition(launched_claim(claim, instance), LAUNCHED, now=EPOCH)


@with_examples(60)
@given(asked=problems())
def test_launched_claim_of_a_plan_has_not_drifted(asked):
    """Every type that is listed, in every offering that the claim allows."""
    pools = {pool.name: pool for pool in asked.pools}
    rules = DriftRules(
        well_known=DriftRules().well_known | asked.well_known,
        aliases={**DriftRules().aliases, **asked.aliases},
    )
    for planned in solve(asked).claims:
        pool = with_hash(pools[planned.pool])
        claim = build_node_claim(
            planned,
            pool,
            suffix="x",
            node_pool_hash=node_pool_hash(pool),
            node_pool_hash_version=HASH_VERSION,
        )
        metadata = claim.metadata.model_copy(update={"creation_timestamp": EPOCH})
        claim = claim.model_copy(update={"metadata": metadata})
        requirements = Requirements(planned.requirements)
        types = {item.name: item for item in asked.catalogues[planned.pool].instance_types}
        now = EPOCH + 2 * TYPE_CHECK_AGE
        for name in planned.instance_types:
            for offering in types[name].offerings:
                if requirements.intersects(offering.requirements):
                    instance = launched(claim, types[name], offering)
                    local = local_drift(instance, pool, types, now=now, rules=rules)
                    assert local.reason == "", (instance.metadata.labels, planned.requirements)
                    assert local.is_type_found
