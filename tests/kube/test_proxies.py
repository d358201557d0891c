"""The proxy of a URL follows the documented rules of Go's clients."""

from __future__ import annotations

import pytest

from karpenter_core.errors import SettingsError
from karpenter_core.kube.proxies import proxy_for

PROXY = "http://proxy.corp:3128"


def chosen(url, **environment):
    return proxy_for(url, {"HTTPS_PROXY": PROXY, "HTTP_PROXY": PROXY, **environment})


@pytest.mark.parametrize(
    ("url", "no_proxy"),
    [
        # Ranges, IPv4 and IPv6; bits of the host do not matter
        ("https://10.96.0.1:443", "10.96.0.0/12"),
        ("https://10.96.0.1", "10.96.7.7/12"),
        ("https://[fd00::1]:6443", "fd00::/8"),
        ("https://[::ffff:10.96.0.1]", "10.96.0.0/12"),
        # Addresses, with and without a port
        ("https://10.96.0.1", "10.96.0.1"),
        ("https://10.96.0.1", "10.96.0.1:443"),
        ("https://[fd00::1]:6443", "[fd00::1]:6443"),
        ("https://[fd00::1]:6443", "fd00::1"),
        # Names: a domain covers its subdomains
        ("https://example.com", "example.com"),
        ("https://api.example.com:6443", "example.com"),
        ("https://api.example.com", ".example.com"),
        ("https://api.example.com", "*.example.com"),
        ("https://api.example.com:6443", "example.com:6443"),
        ("https://API.Example.com", "EXAMPLE.com"),
        ("https://bücher.example", "xn--bcher-kva.example"),
        # Lists
        ("https://kubernetes.default.svc", "10.0.0.0/8, .svc , example.com"),
        ("https://api.example.com", "10.0.0.0/8,*"),
        # Always
        ("https://localhost:6443", ""),
        ("https://127.3.2.1:6443", ""),
        ("https://[::1]:6443", ""),
    ],
)
def test_excluded_hosts_are_reached_directly(url, no_proxy):
    assert chosen(url, NO_PROXY=no_proxy) is None


@pytest.mark.parametrize(
    ("url", "no_proxy"),
    [
        ("https://10.96.0.1", ""),
        ("https://10.112.0.1", "10.96.0.0/12"),
        ("https://10.96.0.1:6443", "10.96.0.1:443"),
        ("https://10.96.0.1", "10.96.*"),
        ("https://10.96.0.1", "10.96.0.0/255.240.0.0"),
        ("https://[fd00::1]", "[fd00::1]"),
        ("https://notexample.com", "example.com"),
        ("https://example.com", ".example.com"),
        ("https://example.com", "*.example.com"),
        ("https://api.example.com:6443", "example.com:443"),
        ("https://api.example.com", "10.0.0.0/8"),
        ("https://api.example.com", ":443, ,"),
        ("https://api.example.com", "https://api.example.com"),
    ],
)
def test_other_hosts_are_reached_through_the_proxy(url, no_proxy):
    assert chosen(url, NO_PROXY=no_proxy) == PROXY


def test_each_scheme_has_its_variable():
    environment = {"HTTPS_PROXY": "http://one:1", "HTTP_PROXY": "http://two:2"}
    assert proxy_for("https://a.example", environment) == "http://one:1"
    assert proxy_for("http://a.example", environment) == "http://two:2"
    assert proxy_for("https://a.example", {"HTTP_PROXY": PROXY, "ALL_PROXY": PROXY}) is None


def test_upper_case_variables_come_before_lower_case_ones():
    """An empty variable counts as not set."""
    environment = {"https_proxy": "http://lower:1", "no_proxy": "b.example"}
    assert proxy_for("https://a.example", environment) == "http://lower:1"
    assert proxy_for("https://b.example", environment) is None
    environment |= {"HTTPS_PROXY": "http://upper:1", "NO_PROXY": "a.example"}
    assert proxy_for("https://a.example", environment) is None
    assert proxy_for("https://b.example", environment) == "http://upper:1"
    environment |= {"HTTPS_PROXY": "", "NO_PROXY": ""}
    assert proxy_for("https://a.example", environment) == "http://lower:1"


def test_a_proxy_without_a_scheme_is_an_http_proxy():
    assert chosen("https://a.example", HTTPS_PROXY="10.0.0.9:3128") == "http://10.0.0.9:3128"
    assert chosen("https://a.example", HTTPS_PROXY="proxy.corp:3128") == PROXY


def test_a_cgi_program_does_not_use_http_proxy():
    """There a request's header could set it."""
    with pytest.raises(SettingsError, match="HTTP_PROXY is not used in a CGI program"):
        chosen("http://a.example", REQUEST_METHOD="GET")
    assert chosen("https://a.example", REQUEST_METHOD="GET") == PROXY


@pytest.mark.parametrize("proxy", ["socks5://me:secret@proxy:1080", "http://me:secret@"])
def test_a_proxy_that_cannot_be_used_is_refused_without_showing_its_password(proxy):
    with pytest.raises(SettingsError, match="HTTPS_PROXY") as caught:
        chosen("https://a.example", HTTPS_PROXY=proxy)
    assert "secret" not in str(caught.value)
    assert chosen("https://a.example", HTTPS_PROXY=proxy, NO_PROXY="a.example") is None
