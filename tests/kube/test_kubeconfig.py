"""Kubeconfigs are read as kubectl reads them."""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path

import pytest
from aiohttp import web

from karpenter_core.errors import SettingsError
from karpenter_core.kube.kubeconfig import read_kubeconfig
from karpenter_core.kube.login import find_namespace
from tests.kube.serving import GET, connected, no_surroundings, serving

__all__ = ["no_surroundings"]

SERVER = "https://cluster.example.com"
VERSION = "client.authentication.k8s.io/v1"


def config(*, server=SERVER, user=None, name="main", **cluster):
    return {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": {"server": server, **cluster}}],
        "users": [{"name": name, "user": user or {}}],
    }


def write(path, document):
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(json.dumps(document))
    return str(path)


def read_one(tmp_path, document):
    return read_kubeconfig(write(tmp_path / "config", document), None)


def test_the_first_file_with_a_current_context_decides(tmp_path):
    """Otherwise the commands, and the controller, would work on another cluster than kubectl."""
    unset = write(tmp_path / "0", {**config(name="unset"), "current-context": ""})
    first = write(tmp_path / "1", config(name="first", server="https://first.example.com"))
    second = write(tmp_path / "2", config(name="second", server="https://second.example.com"))

    chosen = read_kubeconfig(os.pathsep.join((unset, first, second)), None)

    assert (chosen.context, chosen.cluster["server"]) == ("first", "https://first.example.com")


async def test_a_session_goes_to_the_cluster_of_the_first_current_context(tmp_path):
    first = write(tmp_path / "1", config(name="first", server="https://first.example.com"))
    second = write(tmp_path / "2", config(name="second", server="https://second.example.com"))
    async with connected(os.pathsep.join((first, second))) as transport:
        assert transport.host == "https://first.example.com"


def test_the_first_file_with_a_name_decides(tmp_path):
    files = [
        write(tmp_path / server, config(server=f"https://{server}.example.com"))
        for server in ("first", "second")
    ]
    chosen = read_kubeconfig(os.pathsep.join(files), None)

    assert chosen.cluster["server"] == "https://first.example.com"


def test_paths_are_relative_to_the_file_that_has_them(tmp_path):
    """The user of a cluster may be in another file than the cluster."""
    user = {"client-certificate": "me.crt", "client-key": "/keys/me.key", "tokenFile": "../token"}
    cluster = config(**{"certificate-authority": "pki/ca.crt"})
    cluster.pop("users")
    files = (
        write(tmp_path / "clusters" / "config", cluster),
        write(tmp_path / "users" / "config", {"users": config(user=user)["users"]}),
    )
    chosen = read_kubeconfig(os.pathsep.join(files), None)

    assert chosen.cluster["certificate-authority"] == str(tmp_path / "clusters/pki/ca.crt")
    assert chosen.user == {
        "client-certificate": str(tmp_path / "users/me.crt"),
        "client-key": "/keys/me.key",
        "tokenFile": str(tmp_path / "token"),
    }


@pytest.mark.parametrize(
    ("command", "found"), [("aws", "aws"), ("bin/login", "{folder}/bin/login"), ("/x/y", "/x/y")]
)
def test_a_command_with_a_folder_is_relative_to_its_file(tmp_path, command, found):
    user = {"exec": {"apiVersion": VERSION, "command": command}}
    chosen = read_one(tmp_path, config(user=user))

    assert chosen.exec_settings["command"] == found.format(folder=tmp_path)


def test_a_token_file_comes_before_a_token(tmp_path):
    chosen = read_one(tmp_path, config(user={"token": "old", "tokenFile": "/token"}))

    assert chosen.user == {"tokenFile": "/token"}


@pytest.mark.parametrize("user", [None, ""])
def test_a_context_may_have_no_user(tmp_path, user):
    document = config()
    document["contexts"][0]["context"]["user"] = user

    assert read_one(tmp_path, document).user == {}


async def test_a_plug_in_learns_of_the_cluster_if_it_asks_for_it(tmp_path):
    """Some log in at a cluster whose address and authority they must know."""
    seen, extension = tmp_path / "seen", {"garden": "main"}
    program = (
        "import json, os, pathlib\n"
        f"pathlib.Path({str(seen)!r}).write_text(os.environ['KUBERNETES_EXEC_INFO'])\n"
        f"print(json.dumps({{'apiVersion': {VERSION!r}, 'status': {{'token': 'a'}}}}))"
    )
    settings = {"apiVersion": VERSION, "command": sys.executable, "args": ["-c", program]}
    (tmp_path / "ca.crt").write_text("pem")
    cluster = {
        "server": "http://127.0.0.1:1",
        "certificate-authority": "ca.crt",
        "tls-server-name": "api",
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": extension}],
    }

    async def info(**more):
        user = {"exec": {**settings, **more}}
        path = write(tmp_path / "config", config(user=user, **cluster))
        async with connected(path):
            pass
        return json.loads(seen.read_text())["spec"].get("cluster")

    assert await info() is None
    assert await info(provideClusterInfo=True) == {
        "server": "http://127.0.0.1:1",
        "tls-server-name": "api",
        "certificate-authority-data": base64.b64encode(b"pem").decode(),
        "config": extension,
    }


async def test_requests_act_as_the_user_whom_the_kubeconfig_names(tmp_path):
    """They would otherwise have the rights of an administrator who gave them up."""
    seen = []

    async def handler(request):
        seen.extend((n, v) for n, v in request.headers.items() if n.startswith("Impersonate"))
        return web.json_response({})

    user = {
        "as": "viewer",
        "as-uid": "7",
        "as-groups": ["a", "b"],
        "as-user-extra": {"example.com/Team": ["x", "y"]},
    }
    async with serving(handler) as url:
        path = write(tmp_path / "config", config(server=url, user=user))
        async with connected(path) as transport:
            await transport.request(GET)

    assert seen == [
        ("Impersonate-User", "viewer"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-example.com%2Fteam", "x"),
        ("Impersonate-Extra-example.com%2Fteam", "y"),
    ]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({**config(), "contexts": {"main": {}}}, "contexts: must be a list"),
        ({**config(), "contexts": ["main"]}, r"contexts\[0\]: must have a name"),
        ({**config(), "users": None}, 'context "main": user: there is no user "main"'),
        ({**config(), "clusters": []}, 'context "main": cluster: there is no cluster "main"'),
        ({**config(), "users": [{"name": "main", "user": 5}]}, 'user "main": must be an object'),
        (config(server=""), 'cluster "main": server: must be a URL with https or http, not ""'),
        (config(server="127.0.0.1:1"), 'not "127.0.0.1:1"'),
        (config(server="https://[a"), "server: must be a URL"),
        (config(server=5), "server: must be a text"),
        # The official client takes any text for true, and checks no certificate.
        (
            config(**{"insecure-skip-tls-verify": "false"}),
            "insecure-skip-tls-verify: must be true or false",
        ),
        (config(user={"token": 5}), 'user "main": token: must be a text'),
        (config(user={"exec": "aws"}), "exec: must be an object"),
        (config(user={"exec": {"args": "a"}}), "exec.args: must be a list"),
        (config(user={"exec": {"env": ["A=b"]}}), "exec.env: must be a list of objects"),
        (config(user={"exec": {"env": [{"value": "A"}]}}), "exec.env: must be a list of objects"),
        (config(user={"as-groups": ["a"]}), "as: missing"),
        (config(user={"as": "a", "as-user-extra": {"b": "c"}}), "as-user-extra: must be an object"),
        (config(user={"as": "a", "as-user-extra": [1]}), "as-user-extra: must be an object"),
    ],
)
def test_a_kubeconfig_that_kubectl_refuses_is_refused_with_its_cause(tmp_path, document, message):
    with pytest.raises(SettingsError, match=f"^kubeconfig {tmp_path}/config: .*{message}"):
        read_one(tmp_path, document)


def test_a_key_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "config"
    path.write_text(
        json.dumps(config(user={"as": "a", "as-user-extra": {"KEY": ["b"]}})).replace('"KEY"', "5")
    )
    with pytest.raises(SettingsError, match="as-user-extra: must be an object of lists"):
        read_kubeconfig(str(path), None)


def test_a_kubeconfig_that_is_nested_too_deeply_is_refused(tmp_path):
    path = tmp_path / "config"
    path.write_text("[" * 5_000)
    with pytest.raises(SettingsError, match=f"^kubeconfig {path}: is nested too deeply"):
        read_kubeconfig(str(path), None)


def test_a_kubeconfig_in_a_folder_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    """As that of root for another user."""
    path = write(tmp_path / "config", config())
    stat = Path.stat

    def refuse(self, **options):
        if self == Path(path):
            raise PermissionError(13, "Permission denied", path)
        return stat(self, **options)

    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(SettingsError, match=f"^kubeconfig {path}: Permission denied"):
        read_kubeconfig(path, None)


def test_a_kubeconfig_that_links_to_itself_is_named(tmp_path):
    path = tmp_path / "config"
    path.symlink_to(path)
    with pytest.raises(SettingsError, match=f"^kubeconfig {path}: Too many levels of symbolic"):
        read_kubeconfig(str(path), None)


def test_a_kubeconfig_of_an_unknown_user_is_not_found(tmp_path):
    """There is no home folder to look in; other files of the list are read."""
    path = write(tmp_path / "config", config())
    assert read_kubeconfig(f"~nobody-of-this-name/config:{path}", None).context == "main"
    with pytest.raises(SettingsError, match=r"^kubeconfig ~nobody-of-this-name/config: no such"):
        read_kubeconfig("~nobody-of-this-name/config", None)


async def test_a_token_that_is_no_text_is_refused(tmp_path):
    provider = {"name": "oidc", "config": {"id-token": 5}}
    path = write(tmp_path / "config", config(user={"auth-provider": provider}))
    with pytest.raises(SettingsError, match=f"^kubeconfig {path}: "):
        async with connected(path):
            pass


@pytest.mark.parametrize(("fields", "expected"), [({"namespace": "shop"}, "shop"), ({}, "default")])
def test_objects_without_a_namespace_are_those_of_the_context(tmp_path, fields, expected):
    document = config()
    document["contexts"][0]["context"] |= fields
    path = write(tmp_path / "config", document)

    assert find_namespace(kubeconfig=path, context=None) == expected


def test_a_namespace_of_another_type_is_refused(tmp_path):
    document = config()
    document["contexts"][0]["context"]["namespace"] = 5

    with pytest.raises(SettingsError, match='context "main": namespace: must be a text'):
        read_one(tmp_path, document)


@pytest.mark.parametrize("is_mounted", [True, False])
def test_in_a_pod_objects_without_a_namespace_are_those_of_its_own(
    tmp_path, monkeypatch, is_mounted
):
    token, namespace = tmp_path / "token", tmp_path / "namespace"
    token.write_text("token")
    if is_mounted:
        namespace.write_text("karpenter\n")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setattr("karpenter_core.kube.login._TOKEN_FILE", token)
    monkeypatch.setattr("karpenter_core.kube.login._NAMESPACE_FILE", namespace)

    found = find_namespace(kubeconfig=None, context=None)

    assert found == ("karpenter" if is_mounted else "default")
