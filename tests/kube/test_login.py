"""Credentials are renewed, and what goes wrong with them is told once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from kubernetes.aio.client import Configuration
from structlog.testing import capture_logs

from karpenter_core.errors import SettingsError
from karpenter_core.kube.login import Login, find_login
from tests.kube.serving import MovableClock


class Loader:
    """A kubeconfig whose credentials can be had, or not."""

    def __init__(self, *answers):
        self._answers = iter(answers)

    async def load_and_set(self, client_configuration):
        if not next(self._answers):
            raise OSError("no such file")
        client_configuration.api_key["BearerToken"] = "Bearer new"


async def said(*answers):
    """Renew as often as there are answers; return the level of what is logged each time."""
    clock = MovableClock()
    login = Login(configuration=Configuration(), clock=clock, loader=Loader(*answers))
    levels = []
    for _ in answers:
        clock.ahead += 60
        with capture_logs() as logs:
            assert await login.renew(login.credentials)
        levels.append([each["log_level"] for each in logs])
    return levels


async def test_a_failure_to_renew_is_logged_once_and_so_is_its_end():
    assert await said(False, False, True, True) == [["warning"], [], ["info"], []]


async def test_the_next_failure_after_a_success_is_logged_again():
    """Whoever looks for the cause of a refusal has to see the last one."""
    assert await said(False, True, False, True) == [["warning"], ["info"], ["warning"], ["info"]]


async def test_a_refusal_renews_credentials_at_most_every_few_seconds():
    """Each request is refused while they are wrong."""
    clock = MovableClock()
    login = Login(configuration=Configuration(), clock=clock, loader=Loader(True, True))
    clock.ahead += 6
    assert await login.renew(login.credentials)
    assert not await login.renew(login.credentials)
    clock.ahead += 6
    assert await login.renew(login.credentials)


async def test_requests_that_are_refused_meanwhile_use_the_credentials_of_the_running_renewal():
    answered = asyncio.Event()

    class SlowLoader(Loader):
        async def load_and_set(self, client_configuration):
            await answered.wait()
            await super().load_and_set(client_configuration)

    clock = MovableClock()
    login = Login(configuration=Configuration(), clock=clock, loader=SlowLoader(True))
    clock.ahead += 6
    old = login.credentials
    refused = [asyncio.create_task(login.renew(old)) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(each.done() for each in refused)
    answered.set()
    assert await asyncio.gather(*refused) == [True, True, True]
    assert login.credentials != old


async def test_a_service_account_that_cannot_be_used_is_an_error_of_settings(monkeypatch, tmp_path):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.delenv("KUBERNETES_SERVICE_PORT", raising=False)
    monkeypatch.setattr("karpenter_core.kube.login._TOKEN_FILE", tmp_path)

    with pytest.raises(SettingsError, match="the pod's service account cannot be used: "):
        await find_login(kubeconfig=None, context=None, clock=MovableClock())


async def test_a_kubeconfig_that_is_no_text_is_an_error_of_settings(tmp_path):
    path = tmp_path / "config"
    path.write_bytes(b"apiVersion: \xff\xfe")
    with pytest.raises(SettingsError, match=f"kubeconfig {path}: is not UTF-8 text"):
        await find_login(kubeconfig=str(path), context=None, clock=MovableClock())


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TimeoutError("the plug-in hangs"), "the plug-in hangs"),
        (TimeoutError(), "no answer within"),
        (OSError("no such file"), "no such file"),
    ],
)
async def test_the_log_says_why_credentials_were_not_renewed(error, text):
    class Failing:
        async def load_and_set(self, _configuration):
            raise error

    login = Login(configuration=Configuration(), clock=MovableClock(), loader=Failing())
    with capture_logs() as logs:
        await login._reload()
    assert [text in str(line["error"]) for line in logs] == [True]


async def test_a_token_file_that_is_no_text_is_an_error_of_settings(monkeypatch, tmp_path):
    token, authority = tmp_path / "token", tmp_path / "ca.crt"
    token.write_bytes(b"\xff\xfe")
    authority.write_text("pem")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr("karpenter_core.kube.login._TOKEN_FILE", token)
    library = "kubernetes.aio.config.incluster_config"
    monkeypatch.setattr(f"{library}.SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(f"{library}.SERVICE_CERT_FILENAME", str(authority))

    with pytest.raises(SettingsError, match="the pod's service account cannot be used: "):
        await find_login(kubeconfig=None, context=None, clock=MovableClock())


async def test_a_user_without_a_home_folder_has_no_kubeconfig(monkeypatch):
    """As an arbitrary user ID in a container."""

    def expanduser(_self):
        raise RuntimeError("Could not determine home directory.")

    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "expanduser", expanduser)
    with pytest.raises(SettingsError, match="no cluster to connect to"):
        await find_login(kubeconfig=None, context=None, clock=MovableClock())
