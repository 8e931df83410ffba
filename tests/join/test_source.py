"""Whose word on the source address counts, as a table."""

from __future__ import annotations

import ipaddress

import pytest

from provisioner.join.admission.source import TrustedProxies, source_address

NOBODY = TrustedProxies()
NGINX = TrustedProxies(unix_socket=True)
BALANCER = TrustedProxies(
    unix_socket=True, networks=(ipaddress.ip_network("10.1.0.0/24"), ipaddress.ip_network("fd00::/64"))
)


@pytest.mark.parametrize(
    ("peer", "header", "proxies", "expected"),
    [
        ("10.80.0.21", None, NOBODY, "10.80.0.21"),
        ("10.80.0.21", "10.80.0.99", NOBODY, "10.80.0.21"),
        ("10.80.0.21", "10.80.0.99", NGINX, "10.80.0.21"),
        ("::ffff:10.80.0.21", None, NOBODY, "10.80.0.21"),
        (None, "10.80.0.21", NOBODY, None),
        ("localhost", "10.80.0.21", NOBODY, None),
        ("localhost", "10.80.0.21", NGINX, "10.80.0.21"),
        ("", "10.80.0.21", NGINX, "10.80.0.21"),
        (None, None, NGINX, None),
        (None, "", NGINX, None),
        (None, "unknown", NGINX, None),
        (None, "10.80.0.21, unknown", NGINX, None),
        (None, "10.80.0.99, 10.80.0.21", NGINX, "10.80.0.21"),
        (None, "10.80.0.21, 10.1.0.7", BALANCER, "10.80.0.21"),
        (None, "10.80.0.99, 10.80.0.21, 10.1.0.7", BALANCER, "10.80.0.21"),
        (None, "10.80.0.21, fd00::5, 10.1.0.7", BALANCER, "10.80.0.21"),
        (None, "10.80.0.99, 10.80.0.21", BALANCER, "10.80.0.21"),
        (None, "10.1.0.7", BALANCER, "10.1.0.7"),
        ("10.1.0.7", "10.80.0.21", BALANCER, "10.80.0.21"),
        ("10.1.0.7", None, BALANCER, None),
        (None, "10.80.0.21:4711", NGINX, None),
    ],
)
def test_a_header_counts_only_from_a_trusted_proxy(
    peer: str | None, header: str | None, proxies: TrustedProxies, expected: str | None
) -> None:
    assert source_address(peer, header, proxies) == expected
