"""ProvisioningRequests on the embedded cluster: gangs that are launched, booked and used."""

from __future__ import annotations

from karpenter_core.api.provisioning_request import GANG_ATTEMPT, GANG_REQUEST
from tests.controllers.gangs import consumer, request, run_gangs


def test_a_gang_is_launched_booked_and_used(tmp_path):
    """The nodes stay while they are booked, though nothing runs on them, and no pod buys another."""

    async def story(scene):
        scene.prepare(request())
        scene.harness.start()
        await scene.until(lambda: scene.is_true("Provisioned"))
        assert scene.condition("Accepted")["status"] == "True"
        assert scene.condition("Provisioned")["reason"] == "CapacityIsProvisioned"
        assert len(scene.instances()) == 2
        await scene.passes(300)
        assert len(scene.instances()) == 2, "booked nodes are not empty nodes"
        marks = [claim["metadata"]["annotations"] for claim in scene.harness.claims()]
        assert {each[GANG_REQUEST] for each in marks} == {"default/job"}
        assert not any(GANG_ATTEMPT in each for each in marks)
        scene.cluster.apply([consumer(f"worker-{n}") for n in range(6)])
        await scene.until(lambda: len(scene.bound()) == 6, seconds=30)
        assert len(scene.launches()) == 2
        await scene.until(lambda: scene.is_true("BookingExpired"))
        assert scene.condition("BookingExpired")["reason"] == "CapacityReservationTimeExpired"
        await scene.passes(60)
        assert len(scene.instances()) == 2, "the pods of the job are on them"

    run_gangs(tmp_path, story)
