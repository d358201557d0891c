"""The embedded and a real API server pass one suite of API semantics.

The real one takes part in the end-to-end runs, if its binaries are built or given.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.sim.api_client import (
    BUDGETS,
    CONFIG_MAPS,
    DEFINITIONS,
    JSON_PATCH,
    MERGE,
    NODES,
    PODS,
    REPLICA_SETS,
    WIDGETS,
    Api,
    budget,
    pod,
    unique,
    widget,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")


def config_map(name: str, **labels: str):
    return {"metadata": {"name": name, "labels": labels}, "data": {"key": "value"}}


# Objects and their metadata


async def test_create_fills_in_server_side_metadata(api: Api):
    """UID, version, time and generation come from the server; a status sent along is dropped."""
    name = unique("fresh")

    made = await api.create(WIDGETS, widget(name) | {"status": {"phase": "Forged"}})

    metadata = made["metadata"]
    assert metadata["generation"] == 1
    assert int(metadata["resourceVersion"]) > 0
    assert len(metadata["uid"]) == 36
    assert metadata["creationTimestamp"].endswith("Z")
    assert made["status"] == {"phase": "Fresh"}


async def test_create_refuses_a_name_that_is_taken(api: Api):
    """409 AlreadyExists, naming the object."""
    name = unique("taken")
    await api.create(WIDGETS, widget(name))

    answer = await api.send("POST", WIDGETS, widget(name))

    assert answer.status == 409
    assert answer.body["reason"] == "AlreadyExists"
    assert answer.body["message"] == f'widgets.test.karpenter.sh "{name}" already exists'
    assert answer.body["details"]["name"] == name


async def test_generate_name_adds_a_suffix(api: Api):
    """Five letters behind the prefix."""
    made = await api.create(CONFIG_MAPS, {"metadata": {"generateName": "made-"}})

    assert made["metadata"]["name"].startswith("made-")
    assert len(made["metadata"]["name"]) == len("made-") + 5


async def test_bad_names_and_labels_are_refused(api: Api):
    """422 naming each field."""
    answer = await api.send("POST", CONFIG_MAPS, config_map("Bad_Name", color="no good"))

    assert answer.status == 422
    assert {field for _, field in answer.causes} == {"metadata.name", "metadata.labels"}


async def test_missing_object_and_missing_kind_differ(api: Api):
    """A Status for the object, plain text for a kind that is not installed."""
    missing = await api.send("GET", f"{WIDGETS}/nobody")
    unknown = await api.send("GET", "/apis/karpenter.example/v1/gadgets")

    assert missing.status == unknown.status == 404
    assert missing.body["reason"] == "NotFound"
    assert missing.body["details"] == {
        "name": "nobody",
        "group": "test.karpenter.sh",
        "kind": "widgets",
    }
    assert unknown.text == b"404 page not found\n"


async def test_missing_namespace_is_not_found(api: Api):
    """Objects cannot be made where there is no namespace."""
    path = "/api/v1/namespaces/nowhere/configmaps"

    answer = await api.send("POST", path, config_map("lost"))

    assert answer.status == 404
    assert answer.body["details"]["kind"] == "namespaces"


async def test_body_must_agree_with_the_path(api: Api):
    """400 for another namespace or another name than the URL's."""
    name = unique("agree")
    elsewhere = config_map(name)
    elsewhere["metadata"]["namespace"] = "kube-system"
    made = await api.create(CONFIG_MAPS, config_map(name))

    wrong_namespace = await api.send("POST", CONFIG_MAPS, elsewhere)
    wrong_name = await api.send("PUT", f"{CONFIG_MAPS}/other", made)

    assert wrong_namespace.status == wrong_name.status == 400


# Writes and versions


async def test_stale_update_conflicts(api: Api):
    """A client with an older version gets 409, by PUT and by PATCH."""
    name = unique("stale")
    first = await api.create(WIDGETS, widget(name))
    await api.patch(f"{WIDGETS}/{name}", {"spec": {"size": 4}})
    locked = {"metadata": {"resourceVersion": first["metadata"]["resourceVersion"]}}

    put = await api.send("PUT", f"{WIDGETS}/{name}", first)
    patch = await api.send("PATCH", f"{WIDGETS}/{name}", locked | {"spec": {}}, media=MERGE)

    assert (put.status, put.body["reason"]) == (409, "Conflict")
    assert (patch.status, patch.body["reason"]) == (409, "Conflict")
    assert "the object has been modified" in put.body["message"]


async def test_update_of_a_custom_object_needs_a_version(api: Api):
    """422 without, success with."""
    name = unique("versioned")
    made = await api.create(WIDGETS, widget(name))

    bare = await api.send("PUT", f"{WIDGETS}/{name}", widget(name, size=5))
    good = await api.send("PUT", f"{WIDGETS}/{name}", made | {"spec": {"size": 5}})

    assert bare.status == 422
    assert [field for _, field in bare.causes] == ["metadata.resourceVersion"]
    assert (good.status, good.body["spec"]) == (200, {"size": 5})


async def test_generation_counts_changes_of_the_spec_only(api: Api):
    """Labels and status leave it alone; every write but an empty one moves the version."""
    name = unique("generation")
    made = await api.create(WIDGETS, widget(name))

    labelled = await api.patch(f"{WIDGETS}/{name}", {"metadata": {"labels": {"a": "b"}}})
    reported = await api.patch(f"{WIDGETS}/{name}/status", {"status": {"phase": "Done"}})
    changed = await api.patch(f"{WIDGETS}/{name}", {"spec": {"size": 9}})
    same = await api.patch(f"{WIDGETS}/{name}", {"spec": {"size": 9}})

    steps = (made, labelled, reported, changed, same)
    assert [each["metadata"]["generation"] for each in steps] == [1, 1, 1, 2, 2]
    versions = [int(each["metadata"]["resourceVersion"]) for each in steps]
    assert versions[0] < versions[1] < versions[2] < versions[3] == versions[4]


async def test_merge_patch_removes_with_null_and_replaces_lists(api: Api):
    """RFC 7386."""
    name = unique("merge")
    await api.create(CONFIG_MAPS, config_map(name, keep="1", drop="1"))

    patch = {"metadata": {"labels": {"drop": None, "new": "1"}}}
    patched = await api.patch(f"{CONFIG_MAPS}/{name}", patch)

    assert patched["metadata"]["labels"] == {"keep": "1", "new": "1"}


async def test_a_json_patch_applies_all_operations_or_none(api: Api):
    """A failed `test` is 422 and changes nothing."""
    name = unique("operations")
    await api.create(CONFIG_MAPS, config_map(name, color="red"))
    path = f"{CONFIG_MAPS}/{name}"
    good = [
        {"op": "test", "path": "/metadata/labels/color", "value": "red"},
        {"op": "add", "path": "/metadata/labels/a~1b", "value": "slash"},
        {"op": "replace", "path": "/data/key", "value": "other"},
    ]
    bad = [
        {"op": "remove", "path": "/data/key"},
        {"op": "test", "path": "/metadata/labels/color", "value": "green"},
    ]

    patched = await api.patch(path, good, media=JSON_PATCH)
    refused = await api.send("PATCH", path, bad, media=JSON_PATCH)

    assert patched["metadata"]["labels"] == {"color": "red", "a/b": "slash"}
    assert patched["data"] == {"key": "other"}
    assert refused.status == 422
    assert (await api.get(path))["data"] == {"key": "other"}


@pytest.mark.parametrize(
    ("operation", "fits"),
    [
        ({"op": "test", "path": "/metadata/annotations", "value": None}, True),
        ({"op": "test", "path": "/metadata/labels", "value": None}, False),
        ({"op": "test", "path": "/metadata/finalizers", "value": ["a.io/b"]}, True),
        ({"op": "test", "path": "/metadata/finalizers", "value": None}, False),
        ({"op": "test", "path": "/metadata/finalizers/1", "value": None}, False),
        ({"op": "test", "path": "/metadata/labels/size", "value": None}, True),
        ({"op": "remove", "path": "/metadata/labels/size"}, False),
        ({"op": "add", "path": "/metadata/ownerReferences/-", "value": {}}, False),
    ],
)
async def test_json_patch_of_missing_members(api: Api, operation, fits):
    """A missing member equals null; a missing item does not."""
    name = unique("missing")
    made = config_map(name, color="red")
    made["metadata"]["finalizers"] = ["a.io/b"]
    await api.create(CONFIG_MAPS, made)

    answer = await api.send("PATCH", f"{CONFIG_MAPS}/{name}", [operation], media=JSON_PATCH)

    assert answer.status == (200 if fits else 422)
    assert fits or "causes" not in answer.body.get("details", {})


async def test_the_last_taint_of_a_node_leaves_no_empty_list(api: Api):
    name = unique("bare")
    await api.create(NODES, {"metadata": {"name": name}})
    none = [{"op": "add", "path": "/spec/taints", "value": []}]

    node = await api.patch(f"{NODES}/{name}", none, media=JSON_PATCH)

    assert "taints" not in node["spec"]


async def test_a_taint_that_is_there_already_is_a_duplicate(api: Api):
    name = unique("twice")
    await api.create(NODES, {"metadata": {"name": name}})
    taint = {"key": "a.io/b", "effect": "NoSchedule"}
    added = [{"op": "add", "path": "/spec/taints", "value": [taint, taint]}]

    answer = await api.send("PATCH", f"{NODES}/{name}", added, media=JSON_PATCH)

    assert answer.status == 422
    assert {each["reason"] for each in answer.body["details"]["causes"]} == {"FieldValueDuplicate"}


async def test_unknown_patch_type_is_refused(api: Api):
    """415."""
    name = unique("media")
    await api.create(CONFIG_MAPS, config_map(name))

    answer = await api.send("PATCH", f"{CONFIG_MAPS}/{name}", {}, media="text/plain")

    assert answer.status == 415


async def test_malformed_body_is_a_bad_request(api: Api):
    """400, not a crash."""
    answer = await api.send("POST", CONFIG_MAPS, ["not", "an", "object"])

    assert answer.status == 400


async def test_status_and_spec_are_written_apart(api: Api):
    """The object's path ignores status, the status path ignores everything else."""
    name = unique("apart")
    await api.create(WIDGETS, widget(name))
    both = {
        "metadata": {"labels": {"written": "yes"}},
        "spec": {"size": 7},
        "status": {"phase": "Written"},
    }

    main = await api.patch(f"{WIDGETS}/{name}", both)
    again = {"metadata": {"labels": {"more": "yes"}}, "spec": {"size": 8}, "status": {"phase": "X"}}
    status = await api.patch(f"{WIDGETS}/{name}/status", again)

    assert (main["spec"]["size"], main["status"]) == (7, {"phase": "Fresh"})
    assert (status["spec"]["size"], status["status"]) == (7, {"phase": "X"})
    assert status["metadata"]["labels"] == {"written": "yes"}


async def test_scale_reads_and_writes_replicas(api: Api):
    """The scale subresource maps onto the paths that the definition names."""
    name = unique("scaled")
    await api.create(WIDGETS, widget(name, replicas=2))
    await api.patch(f"{WIDGETS}/{name}/status", {"status": {"replicas": 1}})

    before = await api.get(f"{WIDGETS}/{name}/scale")
    await api.patch(f"{WIDGETS}/{name}/scale", {"spec": {"replicas": 6}})

    assert (before["kind"], before["spec"], before["status"]["replicas"]) == (
        "Scale",
        {"replicas": 2},
        1,
    )
    assert (await api.get(f"{WIDGETS}/{name}"))["spec"]["replicas"] == 6


@pytest.mark.parametrize(
    ("replicas", "message"),
    [
        (2**31, "should be less than or equal to 2147483647"),
        (-1, "should be a non-negative integer"),
    ],
)
async def test_replicas_that_a_scale_cannot_show_are_refused(api: Api, replicas: int, message: str):
    """Also where the schema has no bound."""
    answer = await api.send("POST", WIDGETS, widget(unique("scaled"), replicas=replicas))

    assert answer.status == 422
    assert message in answer.body["message"]


# Custom kinds


async def test_schema_defaults_and_prunes(api: Api):
    """Unknown fields are dropped, missing ones take their default."""
    made = await api.create(WIDGETS, widget(unique("pruned"), unknown="field"))

    assert made["spec"] == {"size": 3}


async def test_schema_violations_name_the_field(api: Api):
    """422 with a cause per field."""
    answer = await api.send("POST", WIDGETS, widget(unique("wrong"), size=0, color="green"))

    assert answer.status == 422
    assert answer.body["reason"] == "Invalid"
    assert answer.body["details"]["kind"] == "Widget"
    assert set(answer.causes) >= {
        ("FieldValueInvalid", "spec.size"),
        ("FieldValueNotSupported", "spec.color"),
    }


async def test_rules_are_evaluated(api: Api):
    """A CEL rule speaks with its own message."""
    answer = await api.send("POST", WIDGETS, widget(unique("rule"), low=5, high=1))

    assert answer.status == 422
    assert "low must not exceed high" in answer.body["message"]
    assert [field for _, field in answer.causes] == ["spec"]


async def test_transition_rules_compare_with_the_old_object(api: Api):
    """An immutable field may be set and kept, not changed."""
    name = unique("immutable")
    await api.create(WIDGETS, widget(name, color="red"))

    same = await api.send("PATCH", f"{WIDGETS}/{name}", {"spec": {"size": 1}}, media=MERGE)
    other = await api.send("PATCH", f"{WIDGETS}/{name}", {"spec": {"color": "blue"}}, media=MERGE)

    assert same.status == 200
    assert other.status == 422
    assert "color is immutable" in other.body["message"]


async def test_definition_is_served_and_unserved(api: Api):
    """A kind is there while its definition is; deleting that deletes its objects."""
    group = f"{unique('group')}.karpenter.sh"
    schema = {"openAPIV3Schema": {"type": "object"}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gears.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "gears", "singular": "gear", "kind": "Gear"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }
    path = f"/apis/{group}/v1/namespaces/default/gears"

    await api.create(DEFINITIONS, definition)
    await api.until(path, lambda found: found is not None)
    await api.create(
        path, {"apiVersion": f"{group}/v1", "kind": "Gear", "metadata": {"name": "one"}}
    )
    await api.send("DELETE", f"{DEFINITIONS}/gears.{group}")
    gone = await api.until(f"{DEFINITIONS}/gears.{group}", lambda found: found is None)

    assert gone is None
    assert (await api.send("GET", path)).status == 404


async def test_another_version_serves_the_same_objects(api: Api):
    """Without conversion only the apiVersion differs; a deprecated version warns."""
    group = f"{unique('group')}.karpenter.sh"
    schema = {
        "openAPIV3Schema": {
            "type": "object",
            "properties": {
                "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
            },
        }
    }
    old = {"deprecated": True, "deprecationWarning": "use v1 instead"}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gears.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"plural": "gears", "singular": "gear", "kind": "Gear"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": schema},
                {"name": "v1alpha1", "served": True, "storage": False, "schema": schema, **old},
            ],
        },
    }
    new, deprecated = f"/apis/{group}/v1/gears", f"/apis/{group}/v1alpha1/gears"
    await api.create(DEFINITIONS, definition)
    await api.until(deprecated, lambda found: found is not None)
    listed = await api.until(new, lambda found: found is not None)
    start = listed["metadata"]["resourceVersion"]
    gear = {"kind": "Gear", "metadata": {"name": "one"}, "spec": {"size": 3}}

    made = await api.send("POST", deprecated, {"apiVersion": f"{group}/v1alpha1", **gear})
    stored = await api.send("GET", f"{new}/one")
    wrong = await api.send("POST", deprecated, {"apiVersion": f"{group}/v1", **gear})
    listed = await api.get(deprecated)
    (event,) = await api.watch(deprecated, count=1, resourceVersion=start)
    removed = await api.send("DELETE", f"{deprecated}/one")

    assert (made.status, wrong.status, removed.status) == (201, 400, 200)
    assert made.body == {**stored.body, "apiVersion": f"{group}/v1alpha1"}
    assert stored.body["apiVersion"] == f"{group}/v1"
    assert [item["apiVersion"] for item in listed["items"]] == [f"{group}/v1alpha1"]
    assert event["object"] == made.body
    assert made.headers["warning"] == '299 - "use v1 instead"'
    assert "warning" not in stored.headers
    assert (await api.send("GET", f"{new}/one")).status == 404


# Deletion


async def test_finalizers_hold_a_deleted_object(api: Api):
    """Deletion marks it; the last finalizer that goes takes it away."""
    name = unique("held")
    held = widget(name)
    held["metadata"]["finalizers"] = ["karpenter.sh/test", "karpenter.sh/other"]
    await api.create(WIDGETS, held)
    path = f"{WIDGETS}/{name}"

    marked = (await api.send("DELETE", path)).body
    again = (await api.send("DELETE", path)).body
    more = {"metadata": {"finalizers": ["karpenter.sh/test", "karpenter.sh/new"]}}
    added = await api.send("PATCH", path, more, media=MERGE)
    await api.patch(path, {"metadata": {"finalizers": ["karpenter.sh/other"]}})
    last = await api.send("PATCH", path, {"metadata": {"finalizers": None}}, media=MERGE)

    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    assert marked["metadata"]["deletionTimestamp"]
    assert marked["metadata"]["generation"] == 2
    assert again["metadata"]["resourceVersion"] == marked["metadata"]["resourceVersion"]
    assert added.status == 422
    assert {field for _, field in added.causes} == {"metadata.finalizers"}
    assert last.status == 200
    assert (await api.send("GET", path)).status == 404


async def test_delete_answers_with_a_status(api: Api):
    """An immediate deletion is acknowledged by name and UID."""
    name = unique("gone")
    made = await api.create(WIDGETS, widget(name))

    answer = await api.send("DELETE", f"{WIDGETS}/{name}")

    assert answer.status == 200
    assert answer.body["status"] == "Success"
    assert answer.body["details"]["uid"] == made["metadata"]["uid"]


async def test_delete_honours_preconditions(api: Api):
    """Another UID or version means another object: 409."""
    name = unique("precondition")
    made = await api.create(WIDGETS, widget(name))
    path = f"{WIDGETS}/{name}"

    for wrong in ({"uid": "someone-else"}, {"resourceVersion": "1"}):
        refused = await api.send("DELETE", path, {"preconditions": wrong})
        assert (refused.status, refused.body["reason"]) == (409, "Conflict")
    right = {"preconditions": {"uid": made["metadata"]["uid"]}}

    assert (await api.send("DELETE", path, right)).status == 200


async def test_dependents_follow_their_owner(api: Api):
    """Background collection by UID, and of objects whose owner never was."""
    name = unique("owner")
    owner = await api.create(CONFIG_MAPS, config_map(name))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": name}
    owned = config_map(unique("owned"))
    owned["metadata"]["ownerReferences"] = [reference | {"uid": owner["metadata"]["uid"]}]
    orphan = config_map(unique("orphan"))
    orphan["metadata"]["ownerReferences"] = [
        reference | {"uid": "d9607e19-0000-4000-8000-000000000000"}
    ]
    await api.create(CONFIG_MAPS, owned)
    await api.create(CONFIG_MAPS, orphan)

    await api.until(f"{CONFIG_MAPS}/{orphan['metadata']['name']}", lambda found: found is None)
    still = await api.send("GET", f"{CONFIG_MAPS}/{owned['metadata']['name']}")
    await api.send("DELETE", f"{CONFIG_MAPS}/{name}")

    assert still.status == 200
    await api.until(f"{CONFIG_MAPS}/{owned['metadata']['name']}", lambda found: found is None)


async def test_delete_collection_deletes_selected_objects(api: Api):
    """Only what the selector matches."""
    mark = unique("batch")
    for index in range(3):
        await api.create(CONFIG_MAPS, config_map(f"{mark}-{index}", batch=mark, n=str(index % 2)))

    await api.send("DELETE", CONFIG_MAPS, labelSelector=f"batch={mark},n=0")

    left = (await api.send("GET", CONFIG_MAPS, labelSelector=f"batch={mark}")).body["items"]
    assert [each["metadata"]["name"] for each in left] == [f"{mark}-1"]


# Lists and watches


async def test_list_pages_are_of_one_moment(api: Api):
    """Objects made between two pages are not in the second, and its version is the first's."""
    mark = unique("page")
    for index in range(5):
        await api.create(CONFIG_MAPS, config_map(f"{mark}-{index}", page=mark))
    query = {"labelSelector": f"page={mark}", "limit": "2"}

    page = (await api.send("GET", CONFIG_MAPS, **query)).body
    await api.create(CONFIG_MAPS, config_map(f"{mark}-9", page=mark))
    names, versions = [], set()
    while True:
        names += [each["metadata"]["name"] for each in page["items"]]
        versions.add(page["metadata"]["resourceVersion"])
        token = page["metadata"].get("continue")
        if not token:
            break
        page = (await api.send("GET", CONFIG_MAPS, **query, **{"continue": token})).body

    assert names == [f"{mark}-{index}" for index in range(5)]
    assert len(versions) == 1


async def test_continue_token_that_is_none_is_refused(api: Api):
    """400."""
    answer = await api.send("GET", CONFIG_MAPS, limit="1", **{"continue": "nonsense"})

    assert answer.status == 400


async def test_items_of_built_in_lists_have_no_kind(api: Api):
    """Those of custom kinds have one: decoders must not rely on it."""
    await api.create(CONFIG_MAPS, config_map(unique("typed")))
    await api.create(WIDGETS, widget(unique("typed")))

    maps, widgets = await api.get(CONFIG_MAPS), await api.get(WIDGETS)

    assert (maps["kind"], widgets["kind"]) == ("ConfigMapList", "WidgetList")
    assert all("kind" not in each for each in maps["items"])
    assert all(each["kind"] == "Widget" for each in widgets["items"])


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("color=red", ["a"]),
        ("color!=red", ["b", "c"]),
        ("color in (red,blue),size", ["b"]),
        ("color notin (red)", ["b", "c"]),
        ("!color", ["c"]),
    ],
)
async def test_label_selectors(api: Api, selector: str, expected: list[str]):
    """Every form of requirement; objects without the label satisfy the negative ones."""
    mark = unique("labels")
    for name, labels in (("a", {"color": "red"}), ("b", {"color": "blue", "size": "1"}), ("c", {})):
        await api.create(CONFIG_MAPS, config_map(f"{mark}-{name}", mark=mark, **labels))

    answer = await api.send("GET", CONFIG_MAPS, labelSelector=f"mark={mark},{selector}")

    results = [each["metadata"]["name"] for each in answer.body["items"]]
    assert results == [f"{mark}-{name}" for name in expected]


async def test_field_selectors(api: Api):
    """By name for everything, by node for pods, and not by what the kind cannot do."""
    name, node = unique("field"), unique("field-node")
    await api.create(PODS, pod(name, node=node))
    await api.create(PODS, pod(unique("field")))

    by_name = await api.send("GET", PODS, fieldSelector=f"metadata.name={name}")
    by_node = await api.send("GET", "/api/v1/pods", fieldSelector=f"spec.nodeName={node}")
    wrong = await api.send("GET", WIDGETS, fieldSelector="spec.size=3")

    assert [each["metadata"]["name"] for each in by_name.body["items"]] == [name]
    assert [each["metadata"]["name"] for each in by_node.body["items"]] == [name]
    assert wrong.status == 400


async def test_a_watch_returns_every_change_after_a_version(api: Api):
    """ADDED, MODIFIED, DELETED in order; resuming in the middle misses nothing."""
    name = unique("watched")
    start = (await api.get(WIDGETS))["metadata"]["resourceVersion"]
    await api.create(WIDGETS, widget(name))
    changed = await api.patch(f"{WIDGETS}/{name}", {"spec": {"size": 8}})
    await api.send("DELETE", f"{WIDGETS}/{name}")

    whole = await api.watch(
        WIDGETS, count=3, resourceVersion=start, fieldSelector=f"metadata.name={name}"
    )
    rest = await api.watch(
        WIDGETS,
        count=1,
        resourceVersion=changed["metadata"]["resourceVersion"],
        fieldSelector=f"metadata.name={name}",
    )

    assert [event["type"] for event in whole] == ["ADDED", "MODIFIED", "DELETED"]
    assert rest == whole[2:]
    last, before = (event["object"]["metadata"]["resourceVersion"] for event in whole[:0:-1])
    assert int(last) > int(before)


async def test_watch_with_selector_sees_objects_enter_and_leave(api: Api):
    """A label that goes is a deletion to a watch that selects by it."""
    name, mark = unique("entering"), unique("mark")
    start = (await api.get(CONFIG_MAPS))["metadata"]["resourceVersion"]
    await api.create(CONFIG_MAPS, config_map(name))
    await api.patch(f"{CONFIG_MAPS}/{name}", {"metadata": {"labels": {"mark": mark}}})
    await api.patch(f"{CONFIG_MAPS}/{name}", {"data": {"key": "new"}})
    await api.patch(f"{CONFIG_MAPS}/{name}", {"metadata": {"labels": {"mark": None}}})

    events = await api.watch(
        CONFIG_MAPS, count=3, resourceVersion=start, labelSelector=f"mark={mark}"
    )

    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]


async def test_watch_can_start_with_the_state_of_now(api: Api):
    """Initial events end with a bookmark that says so (feature gate WatchList, on since 1.34)."""
    if int((await api.get("/version"))["minor"]) < 34:
        pytest.skip("this server has the feature gate WatchList off")
    name = unique("initial")
    await api.create(WIDGETS, widget(name))

    events = await api.watch(
        WIDGETS,
        count=2,
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
        fieldSelector=f"metadata.name={name}",
    )

    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK"]
    annotations = events[1]["object"]["metadata"]["annotations"]
    assert annotations == {"k8s.io/initial-events-end": "true"}
    assert events[1]["object"]["kind"] == "Widget"


async def test_watch_ends_when_its_time_is_over(api: Api):
    """The stream closes in good order."""
    start = (await api.get(WIDGETS))["metadata"]["resourceVersion"]

    events = await api.watch(WIDGETS, count=99, resourceVersion=start, timeoutSeconds="1")

    assert all(event["type"] != "ERROR" for event in events)


async def test_watch_from_forgotten_history_is_gone(api: Api):
    """The stream opens and says 410 in its first event, which is also its last."""
    await api.create(WIDGETS, widget(unique("history")))
    api.compact()

    events = await api.watch(WIDGETS, count=2, resourceVersion="1", timeoutSeconds="5")

    assert [event["type"] for event in events] == ["ERROR"]
    assert (events[0]["object"]["code"], events[0]["object"]["reason"]) == (410, "Expired")


async def test_a_live_watch_receives_writes(api: Api):
    """Not only history: what is written while it is open arrives."""
    name = unique("live")
    start = (await api.get(WIDGETS))["metadata"]["resourceVersion"]
    watching = asyncio.create_task(
        api.watch(WIDGETS, count=1, resourceVersion=start, fieldSelector=f"metadata.name={name}")
    )
    await asyncio.sleep(0.1)

    await api.create(WIDGETS, widget(name))

    assert [event["type"] for event in await watching] == ["ADDED"]


# Pods, nodes and budgets


async def test_new_nodes_are_not_ready(api: Api):
    """Admission taints them; their status may be sent along, unlike a pod's."""
    name = unique("node")
    capacity = {"cpu": "4", "memory": "8Gi", "pods": "110"}

    node = await api.create(NODES, {"metadata": {"name": name}, "status": {"capacity": capacity}})

    taints = [(each["key"], each["effect"]) for each in node["spec"]["taints"]]
    assert ("node.kubernetes.io/not-ready", "NoSchedule") in taints
    assert node["status"]["capacity"] == capacity


async def test_provider_id_cannot_be_changed(api: Api):
    """Once set it stays."""
    name = unique("provided")
    await api.create(NODES, {"metadata": {"name": name}, "spec": {"providerID": "kwok://one"}})

    answer = await api.send(
        "PATCH", f"{NODES}/{name}", {"spec": {"providerID": "kwok://two"}}, media=MERGE
    )

    assert answer.status == 422


async def test_pods_get_defaults(api: Api):
    """Fields that later logic reads are set at creation."""
    made = await api.create(PODS, pod(unique("defaults")))

    spec = made["spec"]
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["restartPolicy"] == "Always"
    assert spec["priority"] == 0
    assert {each["key"] for each in spec["tolerations"]} == {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }
    assert made["status"]["phase"] == "Pending"
    assert made["status"]["qosClass"] == "BestEffort"
    assert made["metadata"]["generation"] == 1


async def test_pod_spec_is_immutable(api: Api):
    """All but a few fields: 422 naming the spec."""
    name = unique("fixed")
    await api.create(PODS, pod(name))

    answer = await api.send(
        "PATCH", f"{PODS}/{name}", {"spec": {"nodeSelector": {"a": "b"}}}, media=MERGE
    )

    assert answer.status == 422
    assert ("FieldValueForbidden", "spec") in answer.causes


async def test_an_unbound_pod_is_removed_at_once(api: Api):
    """No kubelet has to let go of it."""
    name = unique("unbound")
    made = await api.create(PODS, pod(name))

    answer = await api.send("DELETE", f"{PODS}/{name}")

    assert answer.status == 200
    assert answer.body["metadata"]["uid"] == made["metadata"]["uid"]
    assert (await api.send("GET", f"{PODS}/{name}")).status == 404


async def test_bound_pod_waits_for_its_kubelet_or_force(api: Api):
    """A grace period is granted, may be shortened, and ended by force; no kubelet is here."""
    name = unique("bound")
    await api.create(PODS, pod(name, node="no-such-node"))
    path = f"{PODS}/{name}"

    first = (await api.send("DELETE", path)).body["metadata"]
    longer = (await api.send("DELETE", path, {"gracePeriodSeconds": 300})).body["metadata"]
    shorter = (await api.send("DELETE", path, {"gracePeriodSeconds": 10})).body["metadata"]
    await api.send("DELETE", path, {"gracePeriodSeconds": 0})

    assert first["deletionGracePeriodSeconds"] == 30
    assert longer["deletionTimestamp"] == first["deletionTimestamp"]
    assert shorter["deletionGracePeriodSeconds"] == 10
    assert shorter["deletionTimestamp"] < first["deletionTimestamp"]
    assert (await api.send("GET", path)).status == 404


async def test_binding_places_a_pod_once(api: Api):
    """The second binding conflicts."""
    name = unique("binding")
    await api.create(PODS, pod(name))
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "no-such-node"},
    }

    first = await api.send("POST", f"{PODS}/{name}/binding", binding)
    second = await api.send("POST", f"{PODS}/{name}/binding", binding)
    bound = await api.get(f"{PODS}/{name}")

    assert (first.status, first.body["status"]) == (201, "Success")
    assert second.status == 409
    assert bound["spec"]["nodeName"] == "no-such-node"
    conditions = {each["type"]: each["status"] for each in bound["status"]["conditions"]}
    assert conditions["PodScheduled"] == "True"


async def test_a_pod_may_be_nominated_for_a_node_until_it_is_bound(api: Api):
    """By any client that may patch its status, under its UID; binding removes the nomination.

    Before 1.35 it stays there, and no longer means anything.
    """
    name = unique("nominated")
    made = await api.create(PODS, pod(name))
    path = f"{PODS}/{name}/status"
    uid = made["metadata"]["uid"]

    def nomination(uid: str):
        return {"metadata": {"uid": uid}, "status": {"nominatedNodeName": "no-such-node"}}

    another = await api.send("PATCH", path, nomination("somebody-else"), media=MERGE)
    same = await api.send("PATCH", path, nomination(uid), media=MERGE)
    await api.send(
        "POST",
        f"{PODS}/{name}/binding",
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "no-such-node"},
        },
    )
    bound = await api.get(f"{PODS}/{name}")
    late = await api.send("PATCH", path, nomination(uid), media=MERGE)

    assert another.status in {409, 422}
    assert same.body["status"]["nominatedNodeName"] == "no-such-node"
    assert bound["spec"]["nodeName"] == "no-such-node"
    if int((await api.get("/version"))["minor"]) < 35:
        return
    assert "nominatedNodeName" not in bound["status"]
    assert late.status == 422


def eviction(name: str):
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}


async def run_pods(api: Api, app: str, count: int) -> list[str]:
    """Start bare pods of one app on a node and wait until they are ready."""
    node = unique("worker")
    await api.create(NODES, {"metadata": {"name": node}})
    await api.until(f"{NODES}/{node}", is_ready)
    names = [f"{app}-{index}" for index in range(count)]
    for name in names:
        await api.create(PODS, pod(name, node=node, labels={"app": app}))
    for name in names:
        await api.until(f"{PODS}/{name}", is_ready)
    return names


def is_ready(found) -> bool:
    conditions = (found or {}).get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


async def test_eviction_keeps_to_the_budget(api: Api):
    """One may go, the next is refused with the budget's name, and the first is marked."""
    app, name = unique("app"), unique("budget")
    first, second = await run_pods(api, app, 2)
    await api.create(BUDGETS, budget(name, {"app": app}, minAvailable=1))
    await api.until(f"{BUDGETS}/{name}", lambda found: found["status"]["disruptionsAllowed"] == 1)

    allowed = await api.send("POST", f"{PODS}/{first}/eviction", eviction(first))
    refused = await api.send("POST", f"{PODS}/{second}/eviction", eviction(second))

    assert (allowed.status, allowed.body["status"]) == (201, "Success")
    assert refused.status == 429
    assert refused.body["reason"] == "TooManyRequests"
    cause = refused.body["details"]["causes"][0]
    assert cause["reason"] == "DisruptionBudget"
    assert name in cause["message"]
    await api.until(f"{PODS}/{first}", lambda found: found is None)


async def test_an_evicted_pod_has_its_disruption_condition(api: Api):
    """The DisruptionTarget condition."""
    (name,) = await run_pods(api, unique("app"), 1)
    start = (await api.get(PODS))["metadata"]["resourceVersion"]

    await api.send("POST", f"{PODS}/{name}/eviction", eviction(name))

    events = await api.watch(
        PODS, count=1, resourceVersion=start, fieldSelector=f"metadata.name={name}"
    )
    conditions = events[0]["object"]["status"]["conditions"]
    reasons = [each["reason"] for each in conditions if each["type"] == "DisruptionTarget"]
    assert reasons == ["EvictionByEvictionAPI"]


async def test_eviction_under_two_budgets_is_an_error(api: Api):
    """500: which one should pay is not decided."""
    app = unique("app")
    (name,) = await run_pods(api, app, 1)
    for _ in range(2):
        await api.create(BUDGETS, budget(unique("budget"), {"app": app}, maxUnavailable=1))

    answer = await api.send("POST", f"{PODS}/{name}/eviction", eviction(name))

    assert answer.status == 500
    assert "more than one PodDisruptionBudget" in answer.body["message"]


async def test_eviction_checks_the_uid(api: Api):
    """A pod of the same name is not the one that was meant."""
    name = unique("other")
    await api.create(PODS, pod(name))
    options = {"deleteOptions": {"preconditions": {"uid": "someone-else"}}}

    answer = await api.send("POST", f"{PODS}/{name}/eviction", eviction(name) | options)

    assert answer.status == 409
    assert (await api.send("GET", f"{PODS}/{name}")).status == 200


async def test_eviction_of_a_missing_pod_is_not_found(api: Api):
    """404."""
    assert (await api.send("POST", f"{PODS}/nobody/eviction", eviction("nobody"))).status == 404


async def test_workload_selector_must_match_its_template(api: Api):
    """422 at the template's labels."""
    replica_set = {
        "metadata": {"name": unique("mismatch")},
        "spec": {
            "selector": {"matchLabels": {"app": "one"}},
            "template": {
                "metadata": {"labels": {"app": "two"}},
                "spec": {"containers": [{"name": "main", "image": "nginx"}]},
            },
        },
    }

    answer = await api.send("POST", REPLICA_SETS, replica_set)

    assert answer.status == 422
    assert ("FieldValueInvalid", "spec.template.metadata.labels") in answer.causes
