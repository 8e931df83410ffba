"""The token bucket and the limit of requests, as time goes by."""

from __future__ import annotations

import ipaddress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.api.servers.server import BootOrder, ServerStatus
from provisioner.rules.rate import Rate, RequestLimit, Shares, TokenBucket, client_of, known_by_address
from tests.boot.fake_source import FakeSource
from tests.boot.objects import at, server

PLENTY = Rate(1000.0, 1000.0)
SERVER = "10.80.0.11"


def passed(limit: RequestLimit, source: str, now: float = 0.0) -> bool:
    return limit.take(source, now) is None


def test_a_burst_passes_and_then_the_client_waits() -> None:
    limit = RequestLimit(Rate(0.5, 3))
    assert [passed(limit, "10.0.0.1") for _ in range(3)] == [True] * 3
    for now, wait in ((0.0, 2.0), (1.0, 1.0)):
        limited = limit.take("10.0.0.1", now)
        assert limited is not None
        assert (limited.wait_seconds, limited.by) == (pytest.approx(wait), "client")
    assert passed(limit, "10.0.0.1", 2.0)
    assert not passed(limit, "10.0.0.1", 2.0)


def test_one_client_does_not_use_up_anothers() -> None:
    limit = RequestLimit(Rate(1, 1))
    assert passed(limit, "10.0.0.1")
    assert not passed(limit, "10.0.0.1")
    assert passed(limit, "10.0.0.2")


def test_a_clock_that_goes_back_gives_nothing_away() -> None:
    limit = RequestLimit(Rate(1, 1))
    assert passed(limit, "10.0.0.1", 100.0)
    assert not passed(limit, "10.0.0.1", 0.0)


def test_memory_is_bounded_and_the_longest_silent_client_is_forgotten() -> None:
    limit = RequestLimit(Rate(0.001, 1), max_clients=2)
    for source in ("10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.3"):
        limit.take(source, 0.0)
    assert not passed(limit, "10.0.0.1")
    assert passed(limit, "10.0.0.2")


def test_known_servers_of_one_prefix_use_up_nothing_of_one_another_and_strangers_are_one_client() -> None:
    one, other = "2001:db8::11", "2001:db8::12"
    limit = RequestLimit(Rate(0.001, 1), is_known=lambda source: source in (one, other))
    assert passed(limit, one)
    assert not passed(limit, one)
    assert passed(limit, other)
    strangers = RequestLimit(Rate(0.001, 1))
    assert passed(strangers, one)
    assert not passed(strangers, other)


def test_a_known_client_is_not_forgotten_for_strangers() -> None:
    limit = RequestLimit(Rate(0.001, 1), is_known=lambda source: source == SERVER, max_clients=2)
    assert passed(limit, SERVER)
    for number in range(100):
        limit.take(f"10.9.0.{number}", 0.0)
    assert not passed(limit, SERVER), "a flood of others would give it another burst"


def test_many_addresses_together_get_what_all_get_and_known_ones_do_not_wait_for_them() -> None:
    limit = RequestLimit(PLENTY, Shares(known=Rate(1, 5), others=Rate(1, 5)), is_known=lambda source: source == SERVER)
    flood = [limit.take(f"10.9.0.{number}", 0.0) for number in range(200)]
    assert flood.count(None) == 5
    assert {limited.by for limited in flood if limited} == {"total"}
    assert passed(limit, SERVER)


def test_without_a_share_of_its_own_a_known_client_would_wait_for_the_flood() -> None:
    limit = RequestLimit(PLENTY, Shares(known=Rate(1, 5), others=Rate(1, 5)))
    for number in range(200):
        limit.take(f"10.9.0.{number}", 0.0)
    assert not passed(limit, SERVER)


def test_known_clients_are_bounded_together_too() -> None:
    limit = RequestLimit(PLENTY, Shares(known=Rate(1, 5), others=PLENTY), is_known=lambda source: True)
    assert [passed(limit, f"10.8.0.{number}") for number in range(7)] == [True] * 5 + [False] * 2


def test_one_client_that_asks_without_end_takes_nothing_from_what_all_get() -> None:
    limit = RequestLimit(Rate(1, 1), Shares(known=PLENTY, others=Rate(1, 3)))
    for _ in range(100):
        limit.take("10.0.0.1", 0.0)
    assert [passed(limit, f"10.0.1.{number}") for number in range(3)] == [True, True, False]


def test_who_waits_for_others_has_not_used_up_its_own() -> None:
    limit = RequestLimit(Rate(0.001, 1), Shares(known=PLENTY, others=Rate(1, 1)))
    assert passed(limit, "10.0.0.1")
    assert not passed(limit, "10.0.0.2")
    assert passed(limit, "10.0.0.2", 1.0)


@pytest.mark.parametrize(
    ("source", "client"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("not an address", ""),
    ],
)
def test_a_client_is_an_ipv4_address_or_the_64_of_an_ipv6_address(source: str, client: str) -> None:
    assert client_of(source) == client


@given(st.integers(0, 2**64 - 1))
def test_a_machine_with_all_addresses_of_its_64_is_one_client(host: int) -> None:
    limit = RequestLimit(Rate(0.001, 1))
    assert passed(limit, "2001:db8::")
    assert not passed(limit, str(ipaddress.IPv6Address((0x20010DB8 << 96) + host)))


def test_known_is_who_has_the_address_of_an_accepted_server_with_an_order() -> None:
    order = BootOrder(id="o1", reason="FirstBoot", ordered_time=at(0), attempt=1)
    ordered = ServerStatus(address=SERVER, subnet_name="boot", order=order)
    servers = FakeSource(server(status=ordered))
    is_known = known_by_address(servers)
    assert is_known(SERVER)
    assert not is_known("10.80.0.12")
    servers.put(server(status=ordered, acceptance="Pending"))
    assert not is_known(SERVER), "nobody has accepted it"
    servers.put(server(status=replace(ordered, order=None)))
    assert not is_known(SERVER), "nobody has ordered a boot of it"


def test_the_rate_limit_allows_a_burst_and_then_the_rate() -> None:
    bucket = TokenBucket.full(Rate(2.0, 3), 100.0)
    taken = []
    for now in (100.0, 100.0, 100.0, 100.0, 100.4, 100.5, 100.6, 99.0, 101.1, 200.0):
        bucket, token = bucket.take(now)
        taken.append(token == 0.0)
    assert taken == [True, True, True, False, False, True, False, False, True, True]
