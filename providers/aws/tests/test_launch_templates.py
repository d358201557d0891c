"""Launch templates in EC2, by real calls of boto3: acceptance cases 92, 117, 133 and 141.

The simulated AWS stands in for EC2; failures are answers that an event handler of boto3 gives.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Barrier, Event
from types import SimpleNamespace
from typing import Final

import pytest
from botocore.exceptions import ClientError
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from karpenter_core.errors import AuthError, CloudProviderError, ThrottledError
from karpenter_provider_aws.instance_tags import owned_tags
from karpenter_provider_aws.launch.template_groups import LaunchTemplate
from karpenter_provider_aws.launch.templates import ClusterLaunchTemplates
from karpenter_provider_aws.launch.user_data_sizes import UserDataSizes
from karpenter_provider_aws.sdk import CloudClients


class ManualClock:
    """Time that stands still unless it is moved."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        raise AssertionError


class World:
    """EC2, what was called there, and one process's templates."""

    def __init__(self, clients: CloudClients) -> None:
        self.clients: Final = clients
        self.ec2: Final = clients.ec2
        self.clock: Final = ManualClock()
        self.registry: Final = CollectorRegistry()
        self.calls: list[str] = []
        self._handlers: list[tuple[str, object]] = []
        self._register("before-call.ec2", lambda model, **_: self.calls.append(model.name))
        self.templates = self.process(self.registry)

    def close(self) -> None:
        """Leave the client as it was."""
        for event, handler in self._handlers:
            self.ec2.meta.events.unregister(event, handler)

    def _register(self, event: str, handler) -> None:
        self._handlers.append((event, handler))
        self.ec2.meta.events.register(event, handler)

    def process(self, registry: CollectorRegistry | None = None) -> ClusterLaunchTemplates:
        """Return the templates of a process that has just started."""
        sizes = UserDataSizes(registry or CollectorRegistry())
        return ClusterLaunchTemplates(self.clients, self.clock, cluster="test", sizes=sizes)

    def fail(self, operation: str, code: str, *, status=400, before=lambda: None) -> None:
        """Have the next call of an operation fail."""
        left = [1]

        def respond(**_):
            before()
            try:
                left.pop()
            except IndexError:
                return None
            parsed = {
                "Error": {"Code": code, "Message": "m"},
                "ResponseMetadata": {"HTTPStatusCode": status},
            }
            return SimpleNamespace(status_code=status), parsed

        self._register(f"before-call.ec2.{operation}", respond)

    def empty(self, operation: str, answer: dict) -> None:
        """Have the next call of an operation answered so."""
        answers = [(SimpleNamespace(status_code=200), answer)]
        self._register(
            f"before-call.ec2.{operation}", lambda **_: answers.pop() if answers else None
        )

    def on(self, operation: str, do) -> None:
        """Do something right before an operation is sent."""

        def handle(**_) -> None:
            do()

        self._register(f"before-call.ec2.{operation}", handle)

    def names(self) -> list[str]:
        found = self.ec2.describe_launch_templates()["LaunchTemplates"]
        return sorted(template["LaunchTemplateName"] for template in found)

    def foreign(self, name: str, **tags: str) -> None:
        """Make a template that is not of this process's making."""
        listed = [{"Key": key.replace("__", "/"), "Value": tags[key]} for key in tags]
        self.ec2.create_launch_template(
            LaunchTemplateName=name,
            LaunchTemplateData={"ImageId": "ami-1"},
            TagSpecifications=[{"ResourceType": "launch-template", "Tags": listed}],
        )


@pytest.fixture
def world(once):
    """Calls that fail once are not repeated."""
    world = World(once)
    yield world
    world.close()


def template(name="one", node_class="default", **changes) -> LaunchTemplate:
    fields = {
        "name": f"karpenter.k8s.aws/{name}",
        "data": {"ImageId": "ami-1", "UserData": "aGVsbG8="},
        "tags": owned_tags({"team": "a"}, cluster="test", node_class=node_class, node_pool="web"),
        "node_class": node_class,
        "image_id": "ami-1",
        "user_data_bytes": 10,
        "instance_types": (),
    }
    return LaunchTemplate(**(fields | changes))


ONE = "karpenter.k8s.aws/one"
TWO = "karpenter.k8s.aws/two"


def test_a_template_is_made_as_it_was_decided_and_tagged(world):
    world.templates.ensure([template()])

    [found] = world.ec2.describe_launch_templates()["LaunchTemplates"]
    assert found["LaunchTemplateName"] == ONE
    assert {tag["Key"]: tag["Value"] for tag in found["Tags"]} == template().tags
    [version] = world.ec2.describe_launch_template_versions(LaunchTemplateName=ONE)[
        "LaunchTemplateVersions"
    ]
    assert version["LaunchTemplateData"]["ImageId"] == "ami-1"
    assert version["LaunchTemplateData"]["UserData"] == "aGVsbG8="


def test_a_template_that_is_needed_again_costs_no_call(world):
    world.templates.ensure([template()])
    world.calls.clear()

    world.templates.ensure([template()])

    assert world.calls == []


def test_a_template_of_an_earlier_process_is_used(world):
    world.templates.ensure([template()])
    world.calls.clear()

    world.process().ensure([template()])

    assert world.calls == ["DescribeLaunchTemplates"]


def test_a_template_that_another_process_makes_meanwhile_is_used(world):
    world.process().ensure([template()])
    world.empty("DescribeLaunchTemplates", {"LaunchTemplates": []})

    world.templates.ensure([template()])

    assert world.names() == [ONE]


def test_many_threads_that_need_a_template_make_it_once(world):
    everybody = Barrier(8)

    def need(_: int) -> None:
        everybody.wait()
        world.templates.ensure([template()])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(need, range(8)))

    assert world.calls.count("CreateLaunchTemplate") == 1
    assert world.calls.count("DescribeLaunchTemplates") == 1


def test_waiters_for_a_template_get_its_creation_error(world):
    inside, go_on = Event(), Event()

    def hold() -> None:
        inside.set()
        assert go_on.wait(10)

    world.fail("CreateLaunchTemplate", "UnauthorizedOperation", status=403, before=hold)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(world.templates.ensure, [template()])
        assert inside.wait(10)
        second = pool.submit(world.templates.ensure, [template()])
        go_on.set()
        errors = [first.exception(10), second.exception(10)]

    # The second either waited for the first, or came after it and made the template itself.
    assert isinstance(errors[0], AuthError)
    assert errors[1] is errors[0] or errors[1] is None
    world.templates.ensure([template()])
    assert world.names() == [ONE]


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("UnauthorizedOperation", 403, AuthError),
        ("RequestLimitExceeded", 503, ThrottledError),
        ("InternalError", 500, CloudProviderError),
    ],
)
@pytest.mark.parametrize("operation", ["DescribeLaunchTemplates", "CreateLaunchTemplate"])
def test_a_refusal_of_ec2_is_a_core_error(world, operation, code, status, error):
    world.fail(operation, code, status=status)

    with pytest.raises(error, match=f"ec2:{operation}"):
        world.templates.ensure([template()])


def test_templates_of_a_launch_are_queried_by_one_call_and_created_concurrently(world):
    world.templates.ensure([template("one")])
    others = [template(f"other-{index}") for index in range(4)]
    everybody = Barrier(4, timeout=10)
    world.on("CreateLaunchTemplate", everybody.wait)
    world.calls.clear()

    world.templates.ensure([template("one"), *others])

    assert sorted(world.calls) == ["CreateLaunchTemplate"] * 4 + ["DescribeLaunchTemplates"]
    assert len(world.names()) == 5


def test_a_template_that_cannot_be_made_leaves_the_others(world):
    world.fail("CreateLaunchTemplate", "UnauthorizedOperation", status=403)

    with pytest.raises(AuthError):
        world.templates.ensure([template("one"), template("two")])
    assert len(world.names()) == 1
    world.templates.ensure([template("one"), template("two")])
    assert world.names() == [ONE, TWO]


# -- launches --------------------------------------------------------------------------------------


def missing(operation="CreateFleet") -> ClientError:
    code = "InvalidLaunchTemplateName.NotFoundException"
    return ClientError({"Error": {"Code": code, "Message": "gone"}}, operation)


def test_a_launch_has_its_templates_in_place(world):
    result = world.templates.run([template("one"), template("two")], world.names)

    assert result == [ONE, TWO]


def test_a_launch_whose_template_is_gone_is_tried_again_with_a_new_one(world):
    seen = []

    def launch() -> str:
        seen.append(world.names())
        if len(seen) == 1:
            raise missing()
        return "launched"

    world.templates.ensure([template()])
    world.ec2.delete_launch_template(LaunchTemplateName=ONE)

    assert world.templates.run([template()], launch) == "launched"
    assert seen == [[], [ONE]]


def test_a_launch_whose_template_is_gone_twice_fails(world):
    def launch() -> None:
        try:
            raise missing()
        except ClientError as error:
            raise CloudProviderError("no template") from error

    with pytest.raises(CloudProviderError, match="no template"):
        world.templates.run([template()], launch)


def test_a_launch_that_fails_otherwise_is_not_tried_again(world):
    tries = []

    def launch() -> None:
        tries.append(1)
        message = "other"
        raise CloudProviderError(message)

    with pytest.raises(CloudProviderError, match="other"):
        world.templates.run([template()], launch)
    assert len(tries) == 1


def test_templates_unknown_to_ec2_are_dropped_from_the_cache(world):
    world.templates.ensure([template()])
    world.calls.clear()

    world.templates.invalidate([ONE])
    world.clock.seconds += 3600
    world.templates.sweep()

    assert world.calls == []
    assert world.names() == [ONE]


# -- upkeep ----------------------------------------------------------------------------------------


def test_templates_unused_for_a_minute_are_deleted(world):
    world.templates.ensure([template("one")])
    world.clock.seconds += 40
    world.templates.ensure([template("two")])
    world.clock.seconds += 30

    assert world.templates.sweep() == (ONE,)
    assert world.names() == [TWO]


def test_a_template_in_repeated_use_is_kept(world):
    for _ in range(5):
        world.templates.ensure([template()])
        world.clock.seconds += 40
        assert world.templates.sweep() == ()


def test_a_template_is_kept_during_a_launch_and_a_minute_after(world):
    def launch() -> tuple[str, ...]:
        world.clock.seconds += 3600
        return world.templates.sweep()

    assert world.templates.run([template()], launch) == ()
    world.clock.seconds += 59
    assert world.templates.sweep() == ()
    world.clock.seconds += 1
    assert world.templates.sweep() == (ONE,)


def test_a_template_that_is_needed_while_it_is_being_deleted_is_made_again(world):
    deleting, needed = Event(), Event()

    def hold() -> None:
        deleting.set()
        assert needed.wait(10)

    world.on("DeleteLaunchTemplate", hold)
    world.templates.ensure([template()])
    world.clock.seconds += 60
    with ThreadPoolExecutor(2) as pool:
        sweep = pool.submit(world.templates.sweep)
        assert deleting.wait(10)
        ensured = pool.submit(world.templates.ensure, [template()])
        needed.set()
        assert sweep.result(10) == (ONE,)
        ensured.result(10)

    assert world.names() == [ONE]
    assert world.calls.count("CreateLaunchTemplate") == 2


def test_a_template_that_is_gone_already_counts_as_deleted(world):
    world.templates.ensure([template()])
    world.fail("DeleteLaunchTemplate", "InvalidLaunchTemplateName.NotFoundException")
    world.clock.seconds += 60

    assert world.templates.sweep() == (ONE,)
    world.calls.clear()
    assert world.templates.sweep() == ()
    assert world.calls == []


def test_a_template_that_cannot_be_deleted_is_tried_again_and_holds_up_no_other(world):
    world.templates.ensure([template("one")])
    world.templates.ensure([template("two")])
    world.fail("DeleteLaunchTemplate", "InternalError", status=500)
    world.clock.seconds += 60

    with pytest.raises(CloudProviderError, match="ec2:DeleteLaunchTemplate"):
        world.templates.sweep()
    assert world.names() == [ONE]
    assert world.templates.sweep() == (ONE,)


def test_throttling_ends_a_sweep(world):
    world.templates.ensure([template("one")])
    world.templates.ensure([template("two")])
    world.fail("DeleteLaunchTemplate", "RequestLimitExceeded", status=503)
    world.clock.seconds += 60

    with pytest.raises(ThrottledError):
        world.templates.sweep()
    assert world.names() == [ONE, TWO]
    assert world.templates.sweep() == (ONE, TWO)


def test_templates_of_an_earlier_process_are_deleted(world):
    world.templates.ensure([template("one")])
    world.templates.ensure([template("two")])
    next_process = world.process()

    next_process.hydrate()
    assert next_process.sweep() == ()
    world.calls.clear()
    next_process.ensure([template("one")])
    assert world.calls == []
    world.clock.seconds += 60

    assert next_process.sweep() == (ONE, TWO)


def test_every_page_of_instances_of_an_earlier_process_is_read(world, monkeypatch):
    monkeypatch.setattr("karpenter_provider_aws.launch.templates._PAGE_SIZE", 5)
    world.templates.ensure([template(f"number-{index}") for index in range(12)])
    next_process = world.process()

    next_process.hydrate()
    world.clock.seconds += 60

    assert len(next_process.sweep()) == 12
    assert world.names() == []


def test_nothing_of_others_is_ever_deleted(world):
    cluster = {"eks:eks-cluster-name": "test"}
    ours = {"karpenter.k8s.aws/ec2nodeclass": "default"}
    world.foreign("not-our-name", **cluster, **ours)
    world.foreign("karpenter.k8s.aws/no-class", **cluster)
    world.foreign("karpenter.k8s.aws/other", **{"eks:eks-cluster-name": "other"}, **ours)
    before = world.names()

    world.templates.hydrate()
    world.clock.seconds += 3600

    assert world.templates.sweep() == ()
    world.templates.delete_all("default")
    assert world.names() == before


def test_all_templates_of_a_node_class_go_with_it(world):
    world.templates.ensure([template("one", "default")])
    world.templates.ensure([template("two", "other")])
    world.process().ensure([template("three", "default")])

    world.templates.delete_all("default")
    world.templates.delete_all("default")

    assert world.names() == [TWO]
    world.clock.seconds += 60
    assert world.templates.sweep() == (TWO,)


def test_a_failed_template_deletion_of_a_node_class_is_reported(world):
    world.templates.ensure([template("one")])
    world.templates.ensure([template("two")])
    world.fail("DeleteLaunchTemplate", "InternalError", status=500)

    with pytest.raises(CloudProviderError, match="ec2:DeleteLaunchTemplate"):
        world.templates.delete_all("default")
    assert world.names() == [ONE]
    world.templates.delete_all("default")
    assert world.names() == []


def test_the_user_data_size_is_kept_until_the_node_class_is_deleted(world):
    def size() -> float | None:
        return world.registry.get_sample_value(
            "karpenter_ec2nodeclasses_userdata_bytes", {"nodeclass": "default"}
        )

    world.templates.hydrate()
    world.templates.ensure([template(user_data_bytes=123)])
    assert size() == 123
    world.templates.ensure([template(user_data_bytes=124)])
    assert size() == 124
    world.templates.delete_all("default")
    assert size() is None


def test_settings_that_are_left_out_of_user_data_are_warned_of_once(world):
    with capture_logs() as logs:
        for _ in range(2):
            world.templates.ensure([template(left_out=("no-such-setting",))])

    [warning] = [log for log in logs if log["log_level"] == "warning"]
    assert warning["settings"] == ["settings.kubernetes.no-such-setting"]
    assert warning["node_class"] == "default"
