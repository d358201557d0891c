"""Instances belong to the NodeClaims that name them, then to remembered launches."""

from __future__ import annotations

from karpenter_core.provider.kit.instance_owners import InstanceOwners
from karpenter_core.provider.kit.recent_launches import ClaimRef
from karpenter_core.testing.state_builders import node_claim


class Remembered:
    """Launches of the last minutes."""

    def __init__(self, **owners):
        self._owners = owners

    def owners(self):
        return self._owners


def claim(name, provider_id=""):
    return node_claim(name, uid=f"uid-{name}", provider_id=provider_id)


def ours(provider_id):
    return provider_id.removeprefix("here/") if provider_id.startswith("here/") else ""


def known(*claims, **recent):
    owners = InstanceOwners(
        ours, recent=Remembered(**recent), read_claims=lambda: {c.name: c for c in claims}
    )
    return owners()


def test_a_claim_names_its_instance():
    assert known(claim("a", "here/one")) == {"one": ClaimRef(name="a", uid="uid-a")}


def test_claims_without_an_instance_and_foreign_claims_have_no_owner():
    assert known(claim("a"), claim("b", "elsewhere/one")) == {}


def test_a_recent_launch_is_remembered():
    launched = ClaimRef(name="a", uid="uid-a")
    assert known(claim("a"), one=launched) == {"one": launched}


def test_recorded_owners_outrank_remembered_ones():
    result = known(claim("b", "here/one"), one=ClaimRef(name="a", uid="uid-a"))
    assert result == {"one": ClaimRef(name="b", uid="uid-b")}
