"""Members of answers are texts, lists of texts or objects, or the answer is refused."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from karpenter_core.errors import CloudProviderError
from karpenter_provider_alibabacloud.api_answers import object_of, objects_at, text_of, texts_of
from karpenter_provider_alibabacloud.described_instances import InstanceReader, read_instance

DESCRIBED = {
    "InstanceId": "i-1",
    "InstanceType": "ecs.g7.large",
    "ZoneId": "cn-hangzhou-b",
    "ImageId": "m-1",
    "Status": "Running",
    "VpcAttributes": {"VSwitchId": "vsw-1"},
    "SecurityGroupIds": {"SecurityGroupId": ["sg-1"]},
    "Tags": {"Tag": [{"TagKey": "a", "TagValue": "b"}]},
}


@pytest.mark.parametrize("read", [text_of, texts_of, object_of])
def test_a_missing_member_is_empty(read):
    assert not read({}, "Name")
    assert not read({"Name": None}, "Name")


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (text_of, 10**30),
        (text_of, True),
        (text_of, ["a"]),
        (texts_of, "a"),
        (texts_of, [1]),
        (texts_of, {"a": "b"}),
        (object_of, "a"),
        (object_of, []),
    ],
)
def test_a_member_of_another_kind_is_refused_with_its_name(read, value):
    with pytest.raises(CloudProviderError, match="Name in the answer is not"):
        read({"Name": value}, "Name")


@pytest.mark.parametrize(
    "answer",
    [{}, {"Things": None}, {"Things": []}, {"Things": {}}, {"Things": {"Thing": {}}}, None, "", 1],
)
def test_a_list_that_is_missing_is_not_empty(answer):
    with pytest.raises(
        CloudProviderError, match=r"^ecs:List: the answer has no list Things\.Thing$"
    ):
        objects_at(answer, "Things.Thing", action="ecs:List")


def test_a_list_has_objects_only():
    assert objects_at(
        {"Things": {"Thing": [{"Id": "a"}, {}]}}, "Things.Thing", action="ecs:List"
    ) == [
        {"Id": "a"},
        {},
    ]
    with pytest.raises(CloudProviderError, match="an item of Things is no object: 'None'"):
        objects_at({"Things": [{}, None]}, "Things", action="ecs:List")


def test_an_item_that_is_no_object_is_refused():
    with pytest.raises(CloudProviderError, match="Name in the answer is not in an object"):
        text_of(None, "Name")


def test_a_description_is_read():
    instance = read_instance(DESCRIBED)

    assert (instance.id, instance.vswitch_id) == ("i-1", "vsw-1")
    assert instance.security_groups == {"sg-1"}
    assert instance.tags == {"a": "b"}


@pytest.mark.parametrize("name", sorted(DESCRIBED))
def test_no_part_of_a_description_is_taken_for_another_value(name):
    """An odd security group once looked like drift, and a healthy node was replaced."""
    with pytest.raises(CloudProviderError, match="in the answer is not"):
        read_instance({**DESCRIBED, name: 10**30})


def test_a_security_group_that_is_no_text_is_refused():
    groups = {"SecurityGroupId": [10**30]}

    with pytest.raises(CloudProviderError, match="SecurityGroupId in the answer"):
        read_instance({**DESCRIBED, "SecurityGroupIds": groups})


@pytest.mark.parametrize("left_out", ["InstanceId", "ZoneId"])
def test_an_instance_without_id_or_zone_is_no_answer(left_out):
    """Its provider ID would be none: the instance could not be ended, nor its NodeClaim."""
    item = {"InstanceId": "i-1", "ZoneId": "cn-beijing-a", left_out: ""}
    answer = {"Instances": {"Instance": [item]}}
    ecs = SimpleNamespace(call=lambda *_: answer)
    clients = SimpleNamespace(ecs=ecs, region="cn-beijing")
    reader = InstanceReader(clients, cluster_id="test")
    with pytest.raises(CloudProviderError, match="an instance without id or zone"):
        reader.of_ids(["i-1"])
