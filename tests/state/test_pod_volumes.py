"""Volumes of pods in a scheduling problem."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from karpenter_core.api.labels import HOSTNAME, NODE_POOL, ZONE
from karpenter_core.api.records import LabelSelector, VolumeView
from karpenter_core.api.storage_records import (
    CSINodeView,
    PersistentVolumeClaimView,
    PersistentVolumeView,
    StorageClassView,
)
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.state.events import DeletionMarked, ObjectObserved, ObjectRemoved, PodsDecided
from karpenter_core.state.pod_volumes import UnsupportedVolumes
from karpenter_core.state.provisioning_input import ProblemSettings, build_provisioning_input
from karpenter_core.testing.builders import EPOCH, node_pool, node_term, pod, pod_shape
from karpenter_core.testing.state_builders import (
    node,
    node_and_claim,
    node_claim,
    ready_node_pool,
    synced_state,
)

POOL = ready_node_pool(node_pool("default"))
EBS = "ebs.csi.aws.com"
WAITS = "WaitForFirstConsumer"


def mounting(*claims: str, ephemeral: bool = False):
    """A shape whose pods mount these claims, or volumes of these names made for each pod."""
    volumes = tuple(
        VolumeView(name=name, ephemeral=True)
        if ephemeral
        else VolumeView(name=name, claim_name=name)
        for name in claims
    )
    return msgspec.structs.replace(pod_shape(), volumes=volumes)


def claim(name="data", **options):
    return PersistentVolumeClaimView(
        uid=f"uid-claim-{name}", namespace="default", name=name, **options
    )


def bound(name="data", volume="pv"):
    return claim(name, volume_name=volume, phase="Bound", bind_completed=True)


def volume(name="pv", *terms, **options):
    return PersistentVolumeView(uid=f"uid-{name}", name=name, node_terms=terms, **options)


def storage_class(name="fast", *terms, binding=WAITS, provisioner=EBS):
    return StorageClassView(
        uid=f"uid-{name}",
        name=name,
        provisioner=provisioner,
        volume_binding_mode=binding,
        allowed_topologies=terms,
    )


def zone(*names: str):
    return node_term((ZONE, "In", *names))


def zones(*names: str):
    return Requirements((Requirement.of(ZONE, "In", names),))


def ask(*objects, **options):
    return build_provisioning_input(
        synced_state(POOL, *objects).snapshot(),
        now=EPOCH,
        problem_settings=ProblemSettings(**options),
    )


def reason(question):
    (ignored,) = question.ignored
    assert not ignored.silent
    return ignored.reason


def asked_volumes(question, name="a"):
    return question.problem.volumes.get(f"uid-default-{name}")


def alternatives(*objects, claims=("data",)):
    question = ask(pod("a", shape=mounting(*claims)), *objects)
    assert question.ignored == ()
    volumes = asked_volumes(question)
    return () if volumes is None else volumes.alternatives


class TestValidation:
    """Cases 270, 271 and 283 to 285: a pod whose volumes cannot be used is left out."""

    def test_a_missing_claim_leaves_out_its_pod_and_no_other(self):
        """Case 270."""
        question = ask(pod("a", shape=mounting("data")), pod("b"))
        assert 'persistentvolumeclaim "default/data" not found' in reason(question)
        assert [item.name for item in question.problem.pods] == ["b"]

    @pytest.mark.parametrize(
        ("objects", "words"),
        [
            ([claim(storage_class="fast")], 'storageclass "fast" of "default/data" not found'),
            ([bound()], 'persistentvolume "pv" of "default/data" not found'),
            ([claim()], "must define a storage class"),
            ([claim(storage_class="")], "must define a storage class"),
            (
                [claim(storage_class="fast"), storage_class(binding="Immediate")],
                "before a node is chosen",
            ),
            (
                [claim(storage_class="fast", selected_node="web-1"), storage_class()],
                'being provisioned for node "web-1", which is gone',
            ),
            (
                [
                    claim(storage_class="fast", selected_node="web-1"),
                    storage_class(),
                    *node_and_claim("web-1"),
                ],
                'being provisioned for node "web-1" (annotation',
            ),
            ([claim(deletion_timestamp=EPOCH)], "being deleted"),
            (
                [bound(), volume(deletion_timestamp=EPOCH)],
                'persistentvolume "pv" of "default/data" is being deleted',
            ),
            ([claim(phase="Lost", volume_name="pv")], "non-existent"),
            ([claim(volume_name="pv"), volume()], "not bound yet"),
            (
                [
                    claim(storage_class="fast", is_exclusive=True),
                    storage_class(),
                    pod("user", shape=mounting("data"), node_name="anywhere", phase="Running"),
                ],
                '"default/data" (ReadWriteOncePod) is in use by pod "default/user"',
            ),
        ],
    )
    def test_unmountable_volumes_are_reported(self, objects, words):
        """Cases 270, 271, 284 and 285."""
        assert words in reason(ask(pod("a", shape=mounting("data")), *objects))

    @pytest.mark.parametrize(
        "objects",
        [
            [bound(), volume()],
            [msgspec.structs.replace(bound(), storage_class=""), volume()],
            [msgspec.structs.replace(bound(), storage_class="gone"), volume()],
            [claim(storage_class="fast"), storage_class()],
            [claim(storage_class="fast"), storage_class(binding=None)],
            [claim(storage_class="fast", is_exclusive=True), storage_class()],
            [
                claim(storage_class="fast", is_exclusive=True),
                storage_class(),
                pod("b", shape=mounting("data"), node_name="anywhere", phase="Succeeded"),
            ],
            [
                claim(storage_class="fast"),
                storage_class(),
                pod("b", shape=mounting("data"), node_name="anywhere", phase="Running"),
            ],
        ],
    )
    def test_mountable_volumes_are_accepted(self, objects):
        """Cases 271 and 285: a bound claim needs no class; a missing binding mode is accepted."""
        assert ask(pod("a", shape=mounting("data")), *objects).ignored == ()

    @pytest.mark.parametrize(
        ("older", "priority", "first"), [("b", 0, "b"), ("a", 0, "a"), ("a", 1, "b")]
    )
    def test_one_of_the_pods_that_ask_for_an_exclusive_claim_is_planned(
        self, older, priority, first
    ):
        """The first in the scheduler's queue; pods with other claims are planned beside it."""
        shared = mounting("data")
        created = {name: EPOCH if name == older else EPOCH + timedelta(minutes=1) for name in "ab"}
        question = ask(
            pod("a", shape=shared, created=created["a"]),
            pod(
                "b",
                shape=msgspec.structs.replace(shared, priority=priority),
                created=created["b"],
            ),
            pod("c", shape=mounting("other")),
            claim(storage_class="fast", is_exclusive=True),
            claim("other", storage_class="fast"),
            storage_class(),
        )
        planned = {item.name for item in question.problem.pods}
        assert planned == {first, "c"}
        assert f'(ReadWriteOncePod) is for pod "default/{first}"' in reason(question)

    def test_pods_that_share_a_claim_of_a_node_are_all_planned(self):
        question = ask(
            pod("a", shape=mounting("data")),
            pod("b", shape=mounting("data")),
            claim(storage_class="fast"),
            storage_class(),
        )
        assert question.ignored == ()

    @pytest.mark.parametrize(
        "objects",
        [
            [claim(storage_class="fast"), storage_class(provisioner="other.csi.example.com")],
            [bound(), volume(driver="other.csi.example.com")],
        ],
    )
    def test_a_driver_that_the_provider_cannot_serve_leaves_the_pod_out(self, objects):
        """Case 283: by the class of an unbound claim, by the volume of a bound one."""
        unsupported = UnsupportedVolumes(provisioners=frozenset({"other.csi.example.com"}))
        asking = pod("a", shape=mounting("data"))
        assert "is not supported" in reason(ask(asking, *objects, unsupported_volumes=unsupported))
        assert ask(asking, *objects).ignored == ()

    def test_a_topology_key_that_no_node_has_leaves_the_pod_out(self):
        """Case 283; a bound claim is past its class."""
        unsupported = UnsupportedVolumes(topology_keys=frozenset({"example.com/rack"}))
        racks = storage_class("fast", node_term(("example.com/rack", "In", "r1")))
        asking = pod("a", shape=mounting("data"))
        unbound = claim(storage_class="fast")
        words = reason(ask(asking, unbound, racks, unsupported_volumes=unsupported))
        assert 'topology key "example.com/rack" is not supported' in words
        of_class = msgspec.structs.replace(bound(), storage_class="fast")
        assert ask(asking, of_class, volume(), racks, unsupported_volumes=unsupported).ignored == ()

    def test_a_topology_that_cannot_be_read_leaves_out_its_pod_and_no_other(self):
        odd = volume("pv", node_term(("size", "Gt", "large")))
        question = ask(pod("a", shape=mounting("data")), pod("b"), bound(), odd)
        assert 'persistentvolume "pv"' in reason(question)
        assert [item.name for item in question.problem.pods] == ["b"]

    def test_every_volume_of_a_pod_is_judged(self):
        question = ask(pod("a", shape=mounting("data", "logs")), bound(), volume())
        assert '"default/logs" not found' in reason(question)


class TestAlternatives:
    """Section 8.2: where a pod's volumes are, or may be made."""

    def test_an_unbound_volume_claim_follows_the_topology_of_its_storage_class(self):
        """Cases 272 and 277."""
        unbound = claim(storage_class="fast")
        assert alternatives(unbound, storage_class("fast", zone("z3"))) == (zones("z3"),)
        both = storage_class("fast", zone("z1"), zone("z2"))
        assert alternatives(unbound, both) == (zones("z1"), zones("z2"))
        assert alternatives(unbound, storage_class("fast")) == ()

    def test_an_ephemeral_volume_is_the_claim_named_after_pod_and_volume(self):
        """Case 272."""
        made = claim("a-scratch", storage_class="fast")
        question = ask(
            pod("a", shape=mounting("scratch", ephemeral=True)),
            made,
            storage_class("fast", zone("z3")),
        )
        volumes = asked_volumes(question)
        assert volumes.alternatives == (zones("z3"),)
        assert volumes.attached == {EBS: {"default/a-scratch"}}

    def test_a_bound_volume_is_where_it_is(self):
        """Cases 273 and 275; the class no longer matters."""
        of_class = msgspec.structs.replace(bound(), storage_class="fast")
        elsewhere = storage_class("fast", zone("z1"))
        terms = alternatives(of_class, volume("pv", zone("z3"), zone("z2")), elsewhere)
        assert terms == (zones("z3"), zones("z2"))

    def test_deprecated_zone_labels_mean_the_canonical_ones(self):
        old = node_term(("failure-domain.beta.kubernetes.io/zone", "In", "z1"))
        assert alternatives(bound(), volume("pv", old)) == (zones("z1"),)

    def test_the_host_of_a_local_volume_does_not_matter_but_that_of_others_does(self):
        """Case 274."""
        host = node_term((HOSTNAME, "In", "gone"))
        assert alternatives(bound(), volume("pv", host, is_local=True)) == ()
        both = node_term((HOSTNAME, "In", "gone"), (ZONE, "In", "z1"))
        assert alternatives(bound(), volume("pv", both, is_local=True)) == (zones("z1"),)
        attached = volume("pv", host, driver=EBS)
        (result,) = alternatives(bound(), attached)
        assert result == Requirements((Requirement.of(HOSTNAME, "In", ("gone",)),))

    def test_a_term_that_names_only_the_host_of_a_local_volume_stays_as_an_open_one(self):
        """Case 276."""
        host = node_term((HOSTNAME, "In", "gone"))
        terms = alternatives(bound(), volume("pv", zone("nowhere"), host, is_local=True))
        assert terms == (zones("nowhere"), Requirements())

    def test_terms_without_expressions_are_passed_over(self):
        assert alternatives(bound(), volume("pv", node_term(), zone("z1"))) == (zones("z1"),)

    def test_a_place_is_read_as_the_provider_spells_it(self):
        """A driver may say of a volume outside zones that its zone is empty."""
        question = ask(
            pod("a", shape=mounting("data")),
            bound(),
            volume("pv", node_term(("csi.example/zone", "In", "", "z1")), zone("")),
            aliases={"csi.example/zone": ZONE},
            value_aliases={ZONE: {"": "0"}},
        )
        assert asked_volumes(question).alternatives == (zones("0", "z1"), zones("0"))

    def test_only_combinations_that_some_node_can_meet_are_tried(self):
        """Case 278: in the order of the volumes and their terms."""
        terms = alternatives(
            bound("data", "one"),
            bound("logs", "two"),
            volume("one", zone("z1"), zone("z2"), zone("z3")),
            volume("two", zone("z3"), zone("z2")),
            claims=("data", "logs"),
        )
        assert terms == (zones("z2"), zones("z3"))

    def test_volumes_in_different_zones_fit_no_node(self):
        """The pod stays pending, with the reason that no node can hold it."""
        (result,) = alternatives(
            bound("data", "one"),
            bound("logs", "two"),
            volume("one", zone("z1")),
            volume("two", zone("z2")),
            claims=("data", "logs"),
        )
        assert result.get(ZONE).operator == "DoesNotExist"

    def test_equal_combinations_are_tried_once(self):
        terms = alternatives(
            bound("data", "one"),
            bound("logs", "two"),
            volume("one", zone("z1"), zone("z1", "z2")),
            volume("two", zone("z1")),
            claims=("data", "logs"),
        )
        assert terms == (zones("z1"),)

    def test_pods_of_one_class_share_their_alternatives(self):
        """Comparing them is then free, however many pods there are."""
        shape = mounting("scratch", ephemeral=True)
        names = [f"db-{n}" for n in range(5)]
        question = ask(
            *(pod(name, shape=shape) for name in names),
            *(claim(f"{name}-scratch", storage_class="fast") for name in names),
            storage_class("fast", zone("z1"), zone("z2")),
        )
        shared = {id(result.alternatives) for result in question.problem.volumes.values()}
        assert len(question.problem.volumes) == 5
        assert len(shared) == 1

    def test_pods_without_claims_are_not_listed(self):
        assert ask(pod("a")).problem.volumes == {}

    def test_pods_of_leaving_nodes_bring_their_volumes(self):
        builder = synced_state(
            POOL,
            *node_and_claim("web"),
            pod("a", shape=mounting("data"), node_name="web"),
            bound(),
            volume("pv", zone("z1"), driver=EBS),
        )
        builder.apply_event(DeletionMarked(names=("web",), cause="drifted/1"))
        question = build_provisioning_input(builder.snapshot(), now=EPOCH)
        volumes = asked_volumes(question)
        assert (volumes.alternatives, volumes.attached) == ((zones("z1"),), {EBS: {"default/data"}})

    @pytest.mark.parametrize(
        "objects",
        [[], [claim(phase="Lost", volume_name="pv")], [bound()], [claim(deletion_timestamp=EPOCH)]],
        ids=["missing", "lost", "without its volume", "being deleted"],
    )
    def test_no_node_is_sought_for_a_leaving_pod_that_could_not_use_its_claim(self, objects):
        """It will be pending, and is reported and planned then if its claim can be used again."""
        builder = synced_state(
            POOL,
            *node_and_claim("web"),
            pod("a", shape=mounting("data"), node_name="web"),
            pod("b", node_name="web"),
            *objects,
        )
        builder.apply_event(DeletionMarked(names=("web",), cause="drifted/1"))
        question = build_provisioning_input(builder.snapshot(), now=EPOCH)
        assert [each.name for each in question.problem.pods] == ["b"]

    def test_a_leaving_pod_gets_new_claims_for_its_ephemeral_volumes(self):
        builder = synced_state(
            POOL,
            *node_and_claim("web"),
            pod("a", shape=mounting("scratch", ephemeral=True), node_name="web"),
        )
        builder.apply_event(DeletionMarked(names=("web",), cause="drifted/1"))
        question = build_provisioning_input(builder.snapshot(), now=EPOCH)
        assert [each.name for each in question.problem.pods] == ["a"]


NO_PROVISIONER = "kubernetes.io/no-provisioner"
GIB = 2**30


def static(name, *hosts, size=10 * GIB, **options):
    """Make a volume that nobody provisioned, on one of these hosts."""
    terms = (node_term((HOSTNAME, "In", *hosts)),) if hosts else ()
    return volume(
        name, *terms, storage_class="disks", capacity_bytes=size, is_local=bool(hosts), **options
    )


def foreign_node(name):
    """Make a node that no NodePool owns."""
    made = node(name)
    labels = {key: value for key, value in made.labels.items() if key != NODE_POOL}
    return msgspec.structs.replace(made, labels={**labels, HOSTNAME: name})


class TestStaticVolumes:
    """A claim of a class without provisioner takes a free volume that is there already.

    kube-scheduler binds its pod only to a node that such a volume allows.
    """

    wants = claim(storage_class="disks", requested_bytes=5 * GIB)
    disks = storage_class("disks", provisioner=NO_PROVISIONER)

    def places(self, *objects, wants=None):
        return alternatives(wants or self.wants, self.disks, *objects)

    def refusal(self, *objects, wants=None):
        asking = pod("a", shape=mounting("data"))
        return reason(ask(asking, wants or self.wants, self.disks, *objects))

    def test_free_volumes_say_where_the_pod_may_go(self):
        there = volume("one", zone("z1"), storage_class="disks", capacity_bytes=5 * GIB)
        taken = volume(
            "two", zone("z2"), storage_class="disks", capacity_bytes=5 * GIB, claim="shop/other"
        )
        other = volume("three", zone("z3"), storage_class="other", capacity_bytes=5 * GIB)
        assert self.places(there, taken, other) == (zones("z1"),)

    def test_a_free_volume_without_a_place_restricts_nothing(self):
        there = volume("one", zone("z1"), storage_class="disks", capacity_bytes=5 * GIB)
        assert self.places(there, static("anywhere")) == ()

    def test_volumes_on_hosts_of_others_restrict_the_pod_to_these_hosts(self):
        """A node that is launched would not have such a volume."""
        hosts = [foreign_node(name) for name in ("h1", "h2", "h3")]
        found = self.places(
            *hosts, static("one", "h1"), static("two", "h2"), static("x", "h3", claim="shop/x")
        )
        assert found == (Requirements((Requirement.of(HOSTNAME, "In", ("h1", "h2")),)),)

    def test_a_pod_whose_volumes_are_all_taken_gets_no_node(self):
        assert self.refusal(static("one", claim="shop/x")) == (
            'persistentvolumeclaim "default/data": no persistentvolume of storageclass "disks", which has '
            "no provisioner, is free for it: create one"
        )
        assert "is free for it" in self.refusal(
            foreign_node("h1"), static("one", "h1", claim="shop/x")
        )

    @pytest.mark.parametrize(
        ("wanted", "offered"),
        [
            ({"requested_bytes": 11 * GIB}, {}),
            ({"volume_mode": "Block"}, {}),
            ({"access_modes": ("ReadWriteMany",)}, {"access_modes": ("ReadWriteOnce",)}),
            ({"selector": LabelSelector(match_labels={"tier": "fast"})}, {"labels": {"tier": "slow"}}),
            ({}, {"deletion_timestamp": EPOCH}),
            ({}, {"claim": "default/data", "claim_uid": "uid-of-an-earlier-one"}),
        ],
    )  # fmt: skip
    def test_a_volume_that_does_not_match_counts_for_nothing(self, wanted, offered):
        wants = msgspec.structs.replace(self.wants, **wanted)
        assert "is free for it" in self.refusal(static("one", **offered), wants=wants)

    @pytest.mark.parametrize(
        ("wanted", "offered"),
        [
            ({"requested_bytes": 10 * GIB}, {}),
            ({"volume_mode": "Block"}, {"volume_mode": "Block"}),
            ({"access_modes": ("ReadWriteOnce",)}, {"access_modes": ("ReadOnlyMany", "ReadWriteOnce")}),
            ({"selector": LabelSelector(match_labels={"tier": "fast"})}, {"labels": {"tier": "fast"}}),
            ({"selector": LabelSelector()}, {}),
            ({}, {"claim": "default/data"}),
            ({}, {"claim": "default/data", "claim_uid": "uid-claim-data"}),
        ],
    )  # fmt: skip
    def test_a_volume_that_matches_is_a_place(self, wanted, offered):
        wants = msgspec.structs.replace(self.wants, **wanted)
        assert self.places(static("one", **offered), wants=wants) == ()

    def test_a_node_whose_matching_volumes_are_taken_takes_no_pod(self):
        """A new one may bring some: a program on its NodePool's nodes makes volumes of their disks."""
        found = self.places(
            *node_and_claim("full"), *node_and_claim("half"), *node_and_claim("bare"),
            static("one", "full", claim="shop/x"),
            static("two", "half", claim="shop/y"), static("three", "half"),
        )  # fmt: skip
        assert found == (Requirements((Requirement.of(HOSTNAME, "NotIn", ("full",)),)),)

    def test_a_volume_without_a_host_opens_the_nodes_that_have_none_left(self):
        nfs = volume("nfs", zone("z1"), storage_class="disks", capacity_bytes=5 * GIB)
        taken = static("one", "full", claim="shop/x")
        found = self.places(*node_and_claim("full"), taken, nfs)
        elsewhere = Requirements((Requirement.of(HOSTNAME, "NotIn", ("full",)),))
        assert found == (elsewhere, zones("z1"))

    @pytest.mark.parametrize(
        "objects",
        [
            (),
            (static("one", "gone"),),
            (static("one", "gone", claim="shop/x"),),
            (*node_and_claim("web"), static("one", "web")),
            (*node_and_claim("web"), static("small", "web", size=GIB, claim="shop/x")),
        ],
        ids=["no volume yet", "of a node that is gone", "taken there", "free", "too small there"],
    )
    def test_volumes_that_nodes_bring_are_expected_of_any_node(self, objects):
        """No node is refused before it had a volume that matches: launches are bounded so."""
        assert self.places(*objects) == ()


class TestAttached:
    """Section 8.3: which claims each driver attaches."""

    def attached(self, *objects):
        volumes = asked_volumes(ask(pod("a", shape=mounting("data")), *objects))
        return {} if volumes is None else volumes.attached

    def test_the_driver_is_that_of_the_volume_or_of_the_class(self):
        """Cases 279 and 287; in-tree kinds are translated when they are read."""
        assert self.attached(bound(), volume(driver=EBS)) == {EBS: {"default/data"}}
        unbound = claim(storage_class="fast")
        assert self.attached(unbound, storage_class()) == {EBS: {"default/data"}}

    def test_a_volume_without_a_driver_does_not_count(self):
        """Case 281: NFS, and local volumes."""
        assert self.attached(bound(), volume()) == {}

    def test_a_bound_volume_counts_by_itself_not_by_its_class(self):
        of_class = msgspec.structs.replace(bound(), storage_class="fast")
        assert self.attached(of_class, volume(), storage_class()) == {}

    def test_a_claim_that_is_mounted_twice_is_attached_once(self):
        """Case 280, within one pod and on one node."""
        question = ask(
            *node_and_claim("web"),
            pod("a", shape=mounting("data", "data")),
            pod("b", shape=mounting("data"), node_name="web"),
            pod("c", shape=mounting("data"), node_name="web"),
            bound(),
            volume(driver=EBS),
        )
        assert asked_volumes(question).attached == {EBS: {"default/data"}}
        assert question.problem.nodes[0].volumes == {EBS: {"default/data"}}

    def test_attachments_of_bound_pods_are_counted_per_driver(self):
        """Case 306: however often the claim of the node is updated."""
        builder = synced_state(
            POOL,
            *node_and_claim("web"),
            pod("a", shape=mounting("data", "logs"), node_name="web"),
            pod("b", shape=mounting("more"), node_name="web"),
            bound("data", "one"),
            claim("logs", storage_class="other"),
            bound("more", "two"),
            volume("one", driver=EBS),
            volume("two", driver=EBS),
            storage_class("other", provisioner="efs.csi.aws.com"),
        )
        expected = {EBS: {"default/data", "default/more"}, "efs.csi.aws.com": {"default/logs"}}
        for _ in range(2):
            (result,) = build_provisioning_input(builder.snapshot(), now=EPOCH).problem.nodes
            assert result.volumes == expected
            for part in node_and_claim("web"):
                builder.apply_event(ObjectObserved(part))

    def test_a_pod_that_leaves_takes_its_volumes_along(self):
        """Those that another pod shares stay."""
        leaving = pod("a", shape=mounting("data", "logs"), node_name="web")
        builder = synced_state(
            POOL,
            *node_and_claim("web"),
            leaving,
            pod("b", shape=mounting("logs"), node_name="web"),
            bound("data", "one"),
            bound("logs", "two"),
            volume("one", driver=EBS),
            volume("two", driver=EBS),
        )
        builder.apply_event(ObjectRemoved(leaving))
        (result,) = build_provisioning_input(builder.snapshot(), now=EPOCH).problem.nodes
        assert result.volumes == {EBS: {"default/logs"}}

    @pytest.mark.parametrize(
        "objects",
        [
            [],
            [claim()],
            [claim(storage_class="")],
            [claim(storage_class="gone")],
            [bound()],
        ],
    )
    def test_bound_pods_with_invalid_claims_count_without_them(self, objects):
        """Case 286."""
        running = pod("a", shape=mounting("data"), node_name="web")
        (result,) = ask(*node_and_claim("web"), running, *objects).problem.nodes
        assert result.volumes == {}
        assert [item.name for item in result.pods] == ["a"]

    def test_volumes_of_nominated_pods_count_on_their_node(self):
        waiting = pod("a", shape=mounting("data"))
        builder = synced_state(POOL, *node_and_claim("web"), waiting, bound(), volume(driver=EBS))
        builder.apply_event(PodsDecided(placed={waiting.uid: "web"}, at=EPOCH))
        (result,) = build_provisioning_input(builder.snapshot(), now=EPOCH).problem.nodes
        assert result.volumes == {EBS: {"default/data"}}

    def test_limits_are_those_of_the_csi_node_and_a_claim_without_node_has_none(self):
        """Cases 279 and 282."""
        limits = CSINodeView(uid="c", name="web", limits={EBS: 25})
        question = ask(*node_and_claim("web"), node_claim("young", stage="Launched"), limits)
        result = {item.name: item.volume_limits for item in question.problem.nodes}
        assert result == {"web": {EBS: 25}, "young": {}}
