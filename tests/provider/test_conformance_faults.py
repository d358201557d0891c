"""The conformance kit finds faults: one faulty provider for each family of rules.

Each is the scaffold's provider with one mistake that authors make. The rule that the mistake breaks
must fail, in a message that names what to correct; the provider without it keeps every rule
(`tests/cli/test_plugin.py`).
"""

from __future__ import annotations

import asyncio
import importlib
import os
import random
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, ClassVar

import pytest
from pydantic import create_model

from karpenter_core.api.base import CustomResource, Model
from karpenter_core.api.cel import CEL
from karpenter_core.api.facets import Facets
from karpenter_core.api.labels import ARCH, REGION, ZONE
from karpenter_core.api.nodeclass import NodeClass
from karpenter_core.errors import (
    CloudProviderError,
    InsufficientCapacityError,
    LaunchFailedError,
    NodeClaimNotFoundError,
    ThrottledError,
)
from karpenter_core.provider.catalogue import Overhead, Price, Requirement
from karpenter_core.provider.contract import (
    DriftFinding,
    Finding,
    InstanceListing,
    InterruptionKind,
    LaunchedInstance,
    NodeClassHash,
    NodeClassResolution,
    PeriodicTask,
    Severity,
    TerminationStatus,
)
from karpenter_core.provider.markers import hookimpl
from karpenter_core.testing import conformance
from karpenter_core.testing.conformance import prerequisites, rule_steps
from karpenter_provider_kwok.plugin import KwokProvider
from karpenter_provider_kwok.testing import subject as kwok_subject

LEFT_EVENTS = {}
LEFT_PROCESSES = []

SCAFFOLD = Path(conformance.__file__).parents[2] / "cli" / "scaffold"


@pytest.fixture(autouse=True)
def end_what_faults_leave():
    yield
    for event in LEFT_EVENTS.values():
        event.set()
    LEFT_EVENTS.clear()
    for process in LEFT_PROCESSES:
        process.kill()
        process.wait()
    LEFT_PROCESSES.clear()


@pytest.fixture(scope="module")
def tinycloud():
    sys.path.insert(0, str(SCAFFOLD))
    try:
        from karpenter_provider_tinycloud import testing

        yield testing
    finally:
        sys.path.remove(str(SCAFFOLD))
        for name in [name for name in sys.modules if name.startswith("karpenter_provider_tiny")]:
            del sys.modules[name]


def failure_of(tinycloud, fault, rule, tmp_path, *, change=lambda good: good):
    """Run one rule of the kit against the provider with a fault; return what it says."""
    with tinycloud.subject() as good:
        wrong = type("Wrong", (tinycloud.TinyCloud,), fault(tinycloud.TinyCloud, good))
        subject = replace(change(good), make=wrong, patience=timedelta(seconds=1))
        (test,) = [
            getattr(conformance, name)
            for name in conformance.__all__
            if name.startswith(f"test_{rule.lower().replace('-', '_')}_")
        ]
        takes_folder = "tmp_path" in test.__annotations__
        with pytest.raises((AssertionError, pytest.fail.Exception, CloudProviderError)) as error:
            test(subject, tmp_path) if takes_folder else test(subject)
        return str(error.value)


def goes_out_while_loading(good, subject):
    @hookimpl
    def karpenter_add_settings(self):
        subprocess.run([sys.executable, "-c", ""], check=True)
        return good.karpenter_add_settings(self)

    return {"karpenter_add_settings": karpenter_add_settings}


def asks_the_cloud_at_start(good, subject):
    @hookimpl
    def karpenter_start(self, context):
        good.karpenter_start(self, context)
        self._refresh_catalogue()

    return {"karpenter_start": karpenter_start}


def shares_one_wish(good, subject):
    """Keeps the request in the object while the cloud is asked."""

    @hookimpl
    def karpenter_launch_instances(self, requests):
        self.current = requests
        time.sleep(0.05)
        return good.karpenter_launch_instances(self, self.current)

    return {"karpenter_launch_instances": karpenter_launch_instances}


def waits_for_ever(good, subject):
    @hookimpl
    def karpenter_list_instances(self):
        time.sleep(1.2)  # past the subject's patience: the SDK's default is often a minute
        return good.karpenter_list_instances(self)

    return {"karpenter_list_instances": karpenter_list_instances}


def is_always_ready(good, subject):
    @hookimpl
    def karpenter_resolve_node_class(self):
        return NodeClassResolution.ready({"imageVersion": "x"})

    return {"karpenter_resolve_node_class": karpenter_resolve_node_class}


def takes_an_outage_for_a_finding(good, subject):
    @hookimpl
    def karpenter_resolve_node_class(self, node_class):
        try:
            return good.karpenter_resolve_node_class(self, node_class)
        except CloudProviderError as error:
            return NodeClassResolution.not_ready("CloudError", str(error))

    return {"karpenter_resolve_node_class": karpenter_resolve_node_class}


def hashes_with_chance(good, subject):
    @hookimpl
    def karpenter_hash_node_class(self):
        return NodeClassHash(value=str(random.random()), version="v1")

    return {"karpenter_hash_node_class": karpenter_hash_node_class}


def changed_types(change):
    def fault(good, subject):
        @hookimpl
        def karpenter_list_instance_types(self):
            return [change(it) for it in good.karpenter_list_instance_types(self)]

        return {"karpenter_list_instance_types": karpenter_list_instance_types}

    return fault


def changed_offerings(**fields):
    return changed_types(
        lambda it: replace(it, offerings=tuple(replace(o, **fields) for o in it.offerings))
    )


def shuffles(good, subject):
    @hookimpl
    def karpenter_list_instance_types(self):
        types = list(good.karpenter_list_instance_types(self))
        self.turn = not getattr(self, "turn", False)
        return types[:: 1 if self.turn else -1]

    return {"karpenter_list_instance_types": karpenter_list_instance_types}


def changed_launch(change):
    """Change requests, or what came of them."""

    def fault(good, subject):
        @hookimpl
        def karpenter_launch_instances(self, requests):
            return change(lambda r: good.karpenter_launch_instances(self, r), requests)

        return {"karpenter_launch_instances": karpenter_launch_instances}

    return fault


def with_a_new_token(launch, requests):
    def renamed(request):
        uid = f"{request.token}-{random.random()}"
        metadata = request.node_claim.metadata.model_copy(update={"uid": uid})
        claim = request.node_claim.model_copy(update={"metadata": metadata})
        return replace(request, node_claim=claim)

    return launch([renamed(request) for request in requests])


def whatever_is_dear(launch, requests):
    def last(request):
        return replace(request, instance_types=request.instance_types[-1:])

    return launch([last(request) for request in requests])


def waits_for_the_boot(good, subject):
    @hookimpl
    def karpenter_launch_instances(self, requests):
        outcomes = good.karpenter_launch_instances(self, requests)
        for outcome in outcomes:
            vm_id = outcome.provider_id.removeprefix("tinycloud://")
            while self._client.vm(vm_id)["state"] == "booting":
                time.sleep(0.02)
        return outcomes

    return {"karpenter_launch_instances": karpenter_launch_instances}


def with_its_own_error(kind, **fields):
    def change(launch, requests):
        return [
            o if isinstance(o, LaunchedInstance) else kind(str(o), **fields)
            for o in launch(requests)
        ]

    return changed_launch(change)


def changed_listing(change):
    def fault(good, subject):
        @hookimpl
        def karpenter_list_instances(self):
            return change(good.karpenter_list_instances(self))

        return {"karpenter_list_instances": karpenter_list_instances}

    return fault


def fails_the_whole_batch(good, subject):
    @hookimpl
    def karpenter_terminate_instances(self, provider_ids):
        outcomes = good.karpenter_terminate_instances(self, provider_ids)
        refused = [each for each in outcomes if isinstance(each, CloudProviderError)]
        return refused[:1] * len(outcomes) or outcomes

    return {"karpenter_terminate_instances": karpenter_terminate_instances}


def lists_every_cluster(good, subject):
    @hookimpl
    def karpenter_list_instances(self):
        ours = good.karpenter_list_instances(self)
        self._cluster = "another"
        theirs = good.karpenter_list_instances(self)
        return InstanceListing(instances=(*ours.instances, *theirs.instances))

    return {"karpenter_list_instances": karpenter_list_instances}


def forgets_with_the_process(good, subject):
    def remembered(self):
        return self.__dict__.setdefault("launched", set())

    @hookimpl
    def karpenter_launch_instances(self, requests):
        outcomes = good.karpenter_launch_instances(self, requests)
        remembered(self).update(o.provider_id for o in outcomes)
        return outcomes

    @hookimpl
    def karpenter_list_instances(self):
        result = good.karpenter_list_instances(self).instances
        known = remembered(self)
        return InstanceListing(instances=tuple(i for i in result if i.provider_id in known))

    return {
        "karpenter_launch_instances": karpenter_launch_instances,
        "karpenter_list_instances": karpenter_list_instances,
    }


def tags_afterwards(good, subject):
    """An instance whose launch has not returned is not known to be the cluster's."""

    @hookimpl
    def karpenter_launch_instances(self, requests):
        outcomes = good.karpenter_launch_instances(self, requests)
        tagged = {
            r.token
            for r, o in zip(requests, outcomes, strict=True)
            if isinstance(o, LaunchedInstance)
        }
        self.tagged = getattr(self, "tagged", set()) | tagged
        return outcomes

    @hookimpl
    def karpenter_list_instances(self):
        found = good.karpenter_list_instances(self)
        known = getattr(self, "tagged", set())
        return replace(found, instances=tuple(i for i in found.instances if i.token in known))

    return {
        "karpenter_launch_instances": karpenter_launch_instances,
        "karpenter_list_instances": karpenter_list_instances,
    }


def leaves_a_thread(good, subject):
    @hookimpl
    def karpenter_start(self, context):
        good.karpenter_start(self, context)
        ended = LEFT_EVENTS.setdefault("ended", threading.Event())
        threading.Thread(target=ended.wait, name="tinycloud-watcher").start()

    return {"karpenter_start": karpenter_start}


def leaves_a_process(good, subject):
    @hookimpl
    def karpenter_start(self, context):
        good.karpenter_start(self, context)
        LEFT_PROCESSES.append(
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        )

    return {"karpenter_start": karpenter_start}


def sleeps_on_the_loop(good, subject):
    @hookimpl
    async def karpenter_list_instances(self):
        time.sleep(1.2)  # noqa: ASYNC251 - the mistake
        return await asyncio.to_thread(good.karpenter_list_instances, self)

    return {"karpenter_list_instances": karpenter_list_instances}


def connects_on_the_loop(good, subject):
    @hookimpl
    async def karpenter_list_instances(self):
        return good.karpenter_list_instances(self)

    return {"karpenter_list_instances": karpenter_list_instances}


def takes_silence_for_absence(good, subject):
    @hookimpl
    def karpenter_fetch_instances(self, provider_ids):
        return [
            NodeClaimNotFoundError(str(o)) if isinstance(o, CloudProviderError) else o
            for o in good.karpenter_fetch_instances(self, provider_ids)
        ]

    return {"karpenter_fetch_instances": karpenter_fetch_instances}


def says_gone_at_once(good, subject):
    @hookimpl
    def karpenter_terminate_instances(self, provider_ids):
        return [TerminationStatus.GONE] * len(provider_ids)

    return {"karpenter_terminate_instances": karpenter_terminate_instances}


def cleans_up_what_it_does_not_see(good, subject):
    @hookimpl
    def karpenter_declare_tasks(self):
        from karpenter_provider_tinycloud.plugin import PREFIX

        def clean():
            seen = {i.provider_id for i in good.karpenter_list_instances(self).instances}
            for provider_id in set(subject.list_resources(self)) - seen:
                self._client.delete_vm(provider_id.removeprefix(PREFIX))

        return [PeriodicTask(name="clean", period=timedelta(minutes=1), run=clean)]

    return {"karpenter_declare_tasks": karpenter_declare_tasks}


def cleans_up_what_has_no_node(good, subject):
    """An booting instance has none yet."""

    @hookimpl
    def karpenter_start(self, context):
        self.read_nodes = context.read_nodes
        good.karpenter_start(self, context)

    @hookimpl
    def karpenter_declare_tasks(self):
        def clean():
            nodes = {node.provider_id for node in self.read_nodes().values()}
            for instance in good.karpenter_list_instances(self).instances:
                if instance.provider_id not in nodes:
                    good.karpenter_terminate_instances(self, [instance.provider_id])

        return [PeriodicTask(name="clean", period=timedelta(minutes=1), run=clean)]

    return {
        "karpenter_start": karpenter_start,
        "karpenter_declare_tasks": karpenter_declare_tasks,
    }


def finds_drift_everywhere(good, subject):
    @hookimpl
    def karpenter_detect_drift(self, node_claims):
        return [DriftFinding(reason="ImageDrift")] * len(node_claims)

    return {"karpenter_detect_drift": karpenter_detect_drift}


def finds_no_drift(good, subject):
    @hookimpl
    def karpenter_detect_drift(self, node_claims):
        return [None] * len(node_claims)

    return {"karpenter_detect_drift": karpenter_detect_drift}


def acknowledges_while_polling(good, subject):
    @hookimpl
    def karpenter_poll_interruptions(self):
        interruptions = good.karpenter_poll_interruptions(self)
        good.karpenter_acknowledge_interruptions(self, [one.id for one in interruptions])
        return interruptions

    return {"karpenter_poll_interruptions": karpenter_poll_interruptions}


def renames_instances(good, subject):
    @hookimpl
    def karpenter_poll_interruptions(self):
        interruptions = good.karpenter_poll_interruptions(self)
        return [replace(one, deadline=one.deadline.replace(tzinfo=None)) for one in interruptions]

    return {"karpenter_poll_interruptions": karpenter_poll_interruptions}


def finds_without_remedy(good, subject):
    @hookimpl
    def karpenter_check(self):
        return [Finding(severity=Severity.WARNING, message="prices are old")]

    return {"karpenter_check": karpenter_check}


def sets_an_unknown_status_field(good, subject):
    @hookimpl
    def karpenter_resolve_node_class(self, node_class):
        return NodeClassResolution.ready({"image_version": "12"})

    return {"karpenter_resolve_node_class": karpenter_resolve_node_class}


FAULTS = [
    ("PC-005", goes_out_while_loading, "loading the plug-in used the network or started a program"),
    ("PC-007", asks_the_cloud_at_start, "while no call reaches the cloud, karpenter_start fails"),
    ("PC-008", shares_one_wish, "claims share instances"),
    ("PC-009", waits_for_ever, "holds karpenter_list_instances for more than 1 s"),
    ("PC-011", hashes_with_chance, "use hashlib over sorted JSON"),
    ("PC-013", is_always_ready, "for no-such-image the condition Ready is True"),
    ("PC-014", takes_an_outage_for_a_finding, "raise instead"),
    ("PC-017", sets_an_unknown_status_field, 'did you mean "imageVersion"?'),
    ("PC-020", changed_types(lambda it: replace(it, name="small")), "lists small twice"),
    ("PC-021", changed_types(
        lambda it: replace(it, requirements=it.requirements.without({REGION}))
    ), f"does not define {REGION}"),
    ("PC-022", changed_types(
        lambda it: replace(it, requirements=it.requirements.replace(
            Requirement.of(ZONE, "In", ["nowhere"])
        ))
    ), "is excluded by the requirements of the type"),
    ("PC-023", changed_offerings(price=Price(-1.0)), "must not be negative"),
    ("PC-023", changed_types(lambda it: replace(it, offerings=tuple(
        replace(o, price=Price(o.price.amount * 730)) for o in it.offerings
    ))), "per vCPU: prices are per hour, these seem to be per month"),
    ("PC-024", changed_types(
            lambda it: replace(it, overhead=Overhead(system_reserved={"memory": 2**40}))
        ), "are left for pods after overhead"),
    ("PC-025", changed_offerings(available=True), "the catalogue says that it is available"),
    ("PC-026", shuffles, "listed twice, these came out differently"),
    ("PC-027", changed_offerings(reservation_capacity=3), "is not reserved, and 3 are left"),
    ("PC-028", changed_types(
        lambda it: replace(it, capacity={**it.capacity, "memory": "16Gi"})
    ), "capacity.memory must be a whole number of bytes"),
    ("PC-031", changed_launch(with_a_new_token), "one token launched"),
    ("PC-033", changed_launch(with_a_new_token), "was launched again"),
    ("PC-034", with_its_own_error(CloudProviderError), "its launch returned CloudProviderError"),
    ("PC-035", changed_launch(whatever_is_dear), "is available"),
    ("PC-037", waits_for_the_boot, "its launch does not return within 1 s"),
    ("PC-040", changed_listing(lambda _: InstanceListing(instances=())), "is not listed"),
    ("PC-040", changed_listing(lambda found: replace(found, instances=tuple(
        replace(each, created=each.created.replace(tzinfo=None)) for each in found.instances
    ))), "created must be a time with a time zone"),
    ("PC-043", changed_listing(lambda found: replace(found, complete=True)), "calls itself comp"),
    ("PC-044", lists_every_cluster, "it would be deleted as leaked"),
    ("PC-045", cleans_up_what_it_does_not_see, "while listings were partial, a task deleted"),
    ("PC-047", cleans_up_what_has_no_node, "with nothing wrong, a task deleted"),
    ("PC-050", says_gone_at_once, "GONE was returned, and the cloud still has"),
    ("PC-053", fails_the_whole_batch, "of the same batch returned TerminationRefusedError"),
    ("PC-055", finds_drift_everywhere, "nodes would be replaced for ever"),
    ("PC-056", finds_no_drift, "the instance was changed, and karpenter_detect_drift returns None"),
    ("PC-060", acknowledges_while_polling, "and a second poll returned []"),
    ("PC-061", renames_instances, "deadline must be a time with a time zone"),
    ("PC-070", forgets_with_the_process, "a new process does not list"),
    ("PC-080", with_its_own_error(InsufficientCapacityError), "without offerings"),
    ("PC-081", with_its_own_error(InsufficientCapacityError), "a quota reaches further"),
    ("PC-082", with_its_own_error(LaunchFailedError), "throttling returned LaunchFailedError"),
    ("PC-083", with_its_own_error(LaunchFailedError), "missing permissions returned LaunchFailed"),
    ("PC-084", changed_launch(with_a_new_token), "its instance is not listed with its token"),
    ("PC-084", tags_afterwards, "is not listed with its token"),
    ("PC-085", takes_silence_for_absence, "would forget a running instance"),
    ("PC-087", changed_launch(with_a_new_token), "for one claim there are 2 instances now"),
    ("PC-088", changed_launch(with_a_new_token), "for one claim there are 2 instances now"),
    ("PC-093", leaves_a_thread, "these threads are left: tinycloud-watcher"),
    ("PC-093", leaves_a_process, "these processes are left: "),
    ("PC-095", sleeps_on_the_loop, "karpenter_list_instances calls something that takes 1"),
    ("PC-095", connects_on_the_loop, "karpenter_list_instances calls socket."),
    ("PC-090", finds_without_remedy, 'the finding "prices are old" has no remedy'),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "fault", "message"), [pytest.param(*fault, id=fault[0]) for fault in FAULTS]
)
def test_a_fault_breaks_the_rule_against_it(tinycloud, rule, fault, message, tmp_path):
    said = failure_of(tinycloud, fault, rule, tmp_path)
    assert message in said.split("\nassert")[0]


def late_nodes(good):
    """The Node of an instance is there at the third look, as in a cloud that creates asynchronously."""
    looks = []

    def node_manifest(plugin, provider_id):
        looks.append(provider_id)
        return good.node_manifest(plugin, provider_id) if len(looks) >= 3 else None

    return replace(good, node_manifest=node_manifest)


def test_the_node_of_an_instance_that_is_still_pending_is_waited_for(tinycloud, tmp_path):
    with tinycloud.subject() as good:
        conformance.test_pc_036_a_node_registers_tainted(late_nodes(good), tmp_path)


def test_a_subject_that_never_shows_a_node_is_told_so(tinycloud, tmp_path, monkeypatch):
    monkeypatch.setattr(rule_steps, "GONE_WITHIN_SECONDS", 0.1)
    with tinycloud.subject() as good:
        silent = replace(good, node_manifest=lambda _plugin, _id: None)
        with pytest.raises(pytest.skip.Exception, match="node_manifest returns None for tinycloud"):
            conformance.test_pc_036_a_node_registers_tainted(silent, tmp_path)


def sees_changes_late(good, subject):
    """Reads images as they were a moment ago."""

    @hookimpl
    def karpenter_detect_drift(self, node_claims, node_class):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls < 3:
            return [None] * len(node_claims)
        return good.karpenter_detect_drift(self, node_claims, node_class)

    return {"karpenter_detect_drift": karpenter_detect_drift}


def test_a_change_that_the_cloud_shows_late_is_waited_for(tinycloud, tmp_path):
    with tinycloud.subject() as good:
        wrong = type("Late", (tinycloud.TinyCloud,), sees_changes_late(tinycloud.TinyCloud, good))
        conformance.test_pc_056_a_changed_instance_has_drifted(replace(good, make=wrong), tmp_path)


class UnusableSpec(Model):
    size: Annotated[int, Facets(minimum=10)] = 5


class WrongRuleSpec(Model):
    cel: ClassVar = (CEL(rule="self.size >", message="is too small"),)
    size: int = 5


class UnionSpec(Model):
    size: int | str = 5


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (UnusableSpec, "the default of spec.size: Invalid value: 5"),
        (WrongRuleSpec, "the rule 'self.size >' of spec cannot be compiled"),
        (
            UnionSpec,
            "UnionSpec.size: a CustomResourceDefinition has no schema for the type int | str",
        ),
    ],
)
def test_a_definition_that_the_api_server_refuses_is_reported(spec, words):
    model = create_model("OddNodeClass", __base__=NodeClass, spec=(spec, spec()))
    model.resource = CustomResource(
        group="odd.example.com", version="v1", kind="OddNodeClass", plural="odds", singular="odd"
    )
    subject = conformance.ConformanceSubject(name="odd", make=object, node_class=model())
    with pytest.raises(pytest.fail.Exception) as error:
        conformance.test_pc_016_the_model_makes_a_definition(subject)
    assert words in str(error.value)


async def test_a_broken_rule_is_not_hidden_by_a_provider_that_keeps_to_a_pause():
    """After a simulated 429 the client sends nothing for a while: launches are possible all the same."""

    class Paused:
        async def request(self, *_):
            return None

        async def launch(self, _):
            return ThrottledError("not sent: paused")

    subject = conformance.ConformanceSubject(name="odd", make=object, node_class=None)
    assert await prerequisites.broken_launch(Paused(), subject) is None


def test_every_theme_of_the_kit_has_a_fault():
    """Rules are numbered by theme: tens of the number."""
    tested = {name[8:10] for name in conformance.__all__ if name.startswith("test_pc_")}
    assert {fault[0][3:5] for fault in FAULTS} == tested


def test_a_private_module_of_the_core_is_reported(tmp_path, monkeypatch):
    """Also one of the package that holds the public ones."""
    (tmp_path / "nosy.py").write_text(
        "from karpenter_core.provider import contract, host\n\n\nclass Nosy:\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    nosy = importlib.import_module("nosy")
    subject = conformance.ConformanceSubject(name="nosy", make=nosy.Nosy, node_class=None)
    with pytest.raises(AssertionError) as error:
        conformance.test_pc_006_imports_what_is_public(subject)
    said = str(error.value).split("\n")[0]
    assert said.endswith("without notice: nosy.py:1 imports karpenter_core.provider.host")


def test_a_node_without_the_taint_is_reported(tinycloud, tmp_path):
    """The mistake is in the user data."""

    def untaints(good):
        def node_manifest(plugin, provider_id):
            manifest = good.node_manifest(plugin, provider_id)
            return {**manifest, "spec": {**manifest["spec"], "taints": []}}

        return replace(good, node_manifest=node_manifest)

    said = failure_of(tinycloud, lambda *_: {}, "PC-036", tmp_path, change=untaints)
    assert "the Node joins without" in said


@pytest.mark.parametrize(
    ("label", "words"),
    [
        (ZONE, "the Node's label topology.kubernetes.io/zone is cloud-1, the outcome's zone "),
        (
            ARCH,
            "the Node's label kubernetes.io/arch is cloud-1, which the requirements of the instance",
        ),
    ],
)
def test_a_node_with_another_label_than_the_catalogue_is_reported(
    tinycloud, tmp_path, label, words
):
    def relabels(good):
        def node_manifest(plugin, provider_id):
            manifest = good.node_manifest(plugin, provider_id)
            metadata = manifest["metadata"]
            labels = {**metadata["labels"], label: "cloud-1"}
            return {**manifest, "metadata": {**metadata, "labels": labels}}

        return replace(good, node_manifest=node_manifest)

    said = failure_of(tinycloud, lambda *_: {}, "PC-036", tmp_path, change=relabels)
    assert words in said


DRIFTING = """
from contextlib import contextmanager
from dataclasses import replace

from karpenter_core.provider.contract import DriftFinding
from karpenter_core.provider.markers import hookimpl
from karpenter_provider_tinycloud import testing


class Drifting(testing.TinyCloud):
    @hookimpl
    def karpenter_detect_drift(self, node_claims):
        return [DriftFinding(reason="ImageDrift")] * len(node_claims)


@contextmanager
def subject():
    with testing.subject() as good:
        yield replace(good, make=Drifting)
"""


WRONG = """
from contextlib import contextmanager
from dataclasses import replace

from karpenter_core.errors import CloudProviderError, LaunchFailedError
from karpenter_core.provider.catalogue import Price
from karpenter_core.provider.markers import hookimpl
from karpenter_provider_tinycloud import testing


class Wrong(testing.TinyCloud):
    {body}


@contextmanager
def subject():
    with testing.subject() as good:
        yield replace(good, make=Wrong)
"""

MISTYPED = """
    @hookimpl
    def karpenter_fetch_instance(self, provider_ids):
        return []
"""
UNSTARTABLE = """
    @hookimpl
    def karpenter_start(self, context):
        raise KeyError("region")
"""
UNRESOLVED = """
    @hookimpl
    def karpenter_resolve_node_class(self, node_class):
        raise CloudProviderError("no route to host")
"""
TEXT_PRICES = """
    @hookimpl
    def karpenter_list_instance_types(self):
        return [
            replace(it, offerings=tuple(replace(o, price=Price("0.0060")) for o in it.offerings))
            for it in testing.TinyCloud.karpenter_list_instance_types(self)
        ]
"""
UNLAUNCHABLE = """
    @hookimpl
    def karpenter_launch_instances(self, requests):
        return [LaunchFailedError("no such image")] * len(requests)
"""


@pytest.mark.parametrize(
    ("body", "rule", "why"),
    [
        (MISTYPED, "PC-004", "the plug-in does not load"),
        (UNSTARTABLE, "PC-002", "the plug-in does not start"),
        (UNRESOLVED, "PC-010", "the NodeClass is not resolved"),
        (TEXT_PRICES, "PC-023", "the catalogue is refused"),
        (UNLAUNCHABLE, "PC-030", "nothing can be launched"),
    ],
    ids=["load", "start", "resolve", "catalogue", "launch"],
)
@pytest.mark.developer_tools
def test_one_mistake_that_blocks_most_rules_is_one_broken_rule(body, rule, why, tmp_path):
    """The others are skipped, and name the rule to correct first."""
    (tmp_path / "wrong.py").write_text(WRONG.replace("{body}", body.strip()))
    numbers = "001 002 004 005 007 008 010 020 021 022 023 028 030 034 037 040 070 080 081 084 093"
    picked = " or ".join(f"pc_{number}" for number in numbers.split())
    done = run_kit(tmp_path, "--karpenter-subject=wrong:subject", "-k", picked)

    assert done.returncode == 1
    broken = [line.split()[0] for line in done.stdout.splitlines() if " BROKEN  " in line]
    assert broken == [rule], done.stdout
    told = [line.strip() for line in done.stdout.splitlines() if why in line]
    assert any(line.startswith(why) and line.endswith(f"({rule})") for line in told), told
    assert len(told) <= 2, told  # once for the broken rule, once for all that depend on it
    assert "the same reason as PC-0" in done.stdout


@pytest.mark.developer_tools
def test_a_subject_that_cannot_be_made_is_one_broken_rule(tmp_path):
    (tmp_path / "wrong.py").write_text("import no_such_sdk\n")
    done = run_kit(
        tmp_path, "--karpenter-subject=wrong:subject", "-k", "pc_001 or pc_002 or pc_040"
    )

    assert done.returncode == 1
    assert "3 rules: 1 BROKEN, 2 not shown" in done.stdout
    assert "No module named 'no_such_sdk'" in done.stdout


def run_kit(folder, *arguments):
    path = os.pathsep.join((str(folder), str(SCAFFOLD)))
    return subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "--pyargs",
            "karpenter_core.testing.conformance", *arguments,
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )  # fmt: skip


@pytest.mark.developer_tools
@pytest.mark.parametrize("processes", ["-n0", "-n1"])
def test_the_report_names_the_broken_rule_and_the_actual_result(processes, tmp_path):
    """Also where the rules are run by other processes."""
    (tmp_path / "drifting.py").write_text(DRIFTING)
    options = ["--karpenter-subject=drifting:subject", processes]
    done = run_kit(tmp_path, *options, "-k", "pc_055 or pc_056")
    assert done.returncode == 1
    report = done.stdout.split('the provider contract, tested with "drifting:subject"', 1)[1]
    assert "PC-055 MUST     BROKEN         an instance just launched" in report
    assert "an instance just launched is drifted: DriftFinding(reason='ImageDrift')" in report
    assert "2 rules: 2 BROKEN" in report


@pytest.mark.developer_tools
def test_a_provider_that_is_not_installed_is_named(tmp_path):
    done = run_kit(tmp_path, "--karpenter-provider=nimbus", "-k", "pc_016 or pc_020")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    told = done.stdout + done.stderr
    assert told.count('no distribution names a subject "nimbus"') == 1, told


@pytest.mark.developer_tools
def test_the_kit_without_a_provider_names_the_option(tmp_path):
    done = run_kit(tmp_path, "-k", "pc_016 or pc_020")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    told = done.stdout + done.stderr
    assert told.count("say which provider with --karpenter-provider=NAME") == 1, told


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": InterruptionKind.INSTANCE_STOPPED}, "it is announced as InstanceStopped"),
        ({"error": None}, "its error is None"),
    ],
)
def test_late_failure_without_kind_or_error_is_a_violation(change, message, tmp_path):
    """The core would launch the same offering again, and it would fail again."""

    @hookimpl
    def karpenter_poll_interruptions(self):
        return [replace(one, **change) for one in KwokProvider.karpenter_poll_interruptions(self)]

    overrides = {"karpenter_poll_interruptions": karpenter_poll_interruptions}
    subject = replace(kwok_subject(), make=type("Wrong", (KwokProvider,), overrides))
    with pytest.raises(AssertionError, match=message):
        conformance.test_pc_064_a_launch_that_fails_late_is_announced(subject, tmp_path)
