"""From Rack and Server objects to what workers know, one change at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.api.servers.server import Server
from provisioner.boot.dhcp.responder.inventory import Delta, Inventory, KnownMachine
from provisioner.boot.dhcp.responder.table import ReplyTable
from tests.boot.dhcp.messages import CONFIG, KNOWN_ADDRESS, KNOWN_MAC, address, mac_bytes, rack, server, subnet

KEY = ("r01", "boot")
MAC = mac_bytes(KNOWN_MAC)
OTHER = "52:54:00:00:00:22"


def known(*servers: Server) -> dict[bytes, KnownMachine | None]:
    return Inventory.of([rack()], servers).snapshot().machines


@pytest.mark.parametrize("acceptance", ["Accepted", "Pending"])
def test_a_server_with_an_address_has_it_reserved(acceptance: str) -> None:
    assert known(server(acceptance=acceptance)) == {MAC: KnownMachine(address(KNOWN_ADDRESS), KEY)}  # type: ignore[arg-type]


def test_a_server_without_an_address_is_known_but_has_none() -> None:
    assert known(server(status_address=None)) == {MAC: KnownMachine(None, None)}


def test_a_rejected_server_is_never_answered() -> None:
    assert known(server(acceptance="Rejected")) == {MAC: KnownMachine(None, None, "dropped-rejected-server")}


def test_a_server_s_other_interfaces_are_never_answered() -> None:
    machines = known(server(others=(OTHER,)))
    assert machines[MAC] == KnownMachine(address(KNOWN_ADDRESS), KEY)
    assert machines[mac_bytes(OTHER)] == KnownMachine(None, None, "dropped-not-the-boot-interface")


def test_a_server_whose_subnet_is_not_named_is_found_by_its_address() -> None:
    assert known(replace(server(), status=replace(server().status, subnet_name=None)))[MAC] == KnownMachine(
        address(KNOWN_ADDRESS), KEY
    )


@pytest.mark.parametrize(
    "odd",
    [
        server(status_address="10.99.0.1"),
        server(subnet_name="elsewhere"),
        server(rack_name="r99"),
        server(status_address="not an address"),
    ],
)
def test_an_address_outside_its_subnet_is_not_served_and_reported(odd: Server) -> None:
    inventory = Inventory.of([rack()], [odd])
    assert inventory.snapshot().machines == {MAC: KnownMachine(None, None)}
    assert "is not in subnet" in inventory.problems["Server/r01-u01"]
    inventory.put_server(server())
    assert inventory.problems == {}


@pytest.mark.parametrize(
    ("odd", "remedy"),
    [
        ("52-54-00-00-10-06", "write it as 52:54:00:00:10:06"),
        ("52:54:00:00:10:0A", "write it as 52:54:00:00:10:0a"),
        ("none", "is not six bytes"),
    ],
)
def test_a_mac_address_that_is_none_is_left_out_and_reported(odd: str, remedy: str) -> None:
    inventory = Inventory.of([rack()], [server(), server("odd", odd, others=(OTHER,))])
    assert inventory.snapshot().machines == {
        MAC: KnownMachine(address(KNOWN_ADDRESS), KEY),
        mac_bytes(OTHER): KnownMachine(None, None, "dropped-not-the-boot-interface"),
    }
    inventory.put_rack(rack())
    assert list(inventory.problems) == ["Server/odd"]
    assert repr(odd) in inventory.problems["Server/odd"]
    assert remedy in inventory.problems["Server/odd"]
    inventory.put_server(server("odd", OTHER))
    assert inventory.problems == {}
    inventory.put_server(server("odd", odd))
    inventory.remove_server("odd")
    assert inventory.problems == {}
    assert list(inventory.snapshot().machines) == [MAC]


def test_a_subnet_that_makes_no_sense_is_left_out_and_reported_while_the_others_are_served() -> None:
    inventory = Inventory.of(
        [rack("r01", subnet(), subnet("odd", "10.81.0.0/24", discovery=("10.82.0.1", "10.82.0.9")))], []
    )
    assert list(inventory.snapshot().subnets) == [KEY]
    assert "discovery range 10.82.0.1 to 10.82.0.9" in inventory.problems["Rack/r01"]
    inventory.put_rack(rack())
    assert inventory.problems == {}


def test_two_servers_with_one_mac_are_decided_alike_whatever_the_order() -> None:
    first = server("a", status_address="10.80.0.31", acceptance="Pending")
    second = server("b", status_address="10.80.0.32")
    for pair in ([first, second], [second, first]):
        inventory = Inventory.of([rack()], pair)
        assert inventory.snapshot().machines == {MAC: KnownMachine(address("10.80.0.32"), KEY)}
        assert inventory.server_of(MAC) == "b"
        assert inventory.remove_server("b").machines == {MAC: KnownMachine(address("10.80.0.31"), KEY)}


def test_a_boot_interface_counts_before_another_server_s_further_interface() -> None:
    machines = known(server("a", OTHER, "10.80.0.31", others=(KNOWN_MAC,)), server("b"))
    assert machines[MAC] == KnownMachine(address(KNOWN_ADDRESS), KEY)


def test_one_changed_server_of_ten_thousand_is_one_entry() -> None:
    servers = [
        server(f"s{n}", f"52:54:00:01:{n >> 8:02x}:{n & 255:02x}", f"10.64.{n >> 8}.{n & 255}") for n in range(10_000)
    ]
    inventory = Inventory.of([rack("r01", subnet(cidr="10.64.0.0/16"))], servers)
    delta = inventory.put_server(replace(servers[77], status=replace(servers[77].status, address="10.64.99.99")))
    assert delta.machines == {mac_bytes("52:54:00:01:00:4d"): KnownMachine(address("10.64.99.99"), KEY)}
    assert delta.subnets == {}
    assert not delta.complete


def test_a_change_that_dhcp_does_not_care_about_is_no_delta() -> None:
    inventory = Inventory.of([rack()], [server()])
    assert not inventory.put_server(replace(server(), status=replace(server().status, boot_id="x")))
    assert not inventory.put_rack(rack())


def test_a_server_that_comes_before_its_rack_is_served_when_the_rack_comes() -> None:
    inventory = Inventory.of([], [server()])
    assert inventory.snapshot().machines == {MAC: KnownMachine(None, None)}
    assert inventory.put_rack(rack()).machines == {MAC: KnownMachine(address(KNOWN_ADDRESS), KEY)}
    assert inventory.remove_rack("r01").machines == {MAC: KnownMachine(None, None)}


def test_a_changed_mac_frees_the_old_one() -> None:
    inventory = Inventory.of([rack()], [server()])
    delta = inventory.put_server(server(mac=OTHER))
    assert delta.machines == {MAC: None, mac_bytes(OTHER): KnownMachine(address(KNOWN_ADDRESS), KEY)}
    assert inventory.server_of(MAC) is None


MACS = [f"52:54:00:00:00:0{n}" for n in range(4)]
CHANGES: st.SearchStrategy[Callable[[Inventory], Delta]] = st.one_of(
    st.builds(
        lambda name, mac, host, rack_name, acceptance, others: (
            lambda i: i.put_server(
                server(
                    name,
                    mac,
                    f"10.80.0.{host}" if host else None,
                    rack_name=rack_name,
                    acceptance=acceptance,
                    others=others,
                )
            )
        ),
        st.sampled_from("abc"),
        st.sampled_from(MACS),
        st.sampled_from([0, 5, 6, 7]),
        st.sampled_from(["r01", "r02"]),
        st.sampled_from(["Accepted", "Pending", "Rejected"]),
        st.lists(st.sampled_from(MACS), max_size=2).map(tuple),
    ),
    st.sampled_from("abc").map(lambda name: lambda i: i.remove_server(name)),
    st.builds(
        lambda name, cidr: lambda i: i.put_rack(rack(name, subnet(cidr=cidr))),
        st.sampled_from(["r01", "r02"]),
        st.sampled_from(["10.80.0.0/24", "10.80.0.0/29", "10.81.0.0/24"]),
    ),
    st.sampled_from(["r01", "r02"]).map(lambda name: lambda i: i.remove_rack(name)),
)


@settings(max_examples=200)
@given(st.lists(CHANGES, max_size=20))
def test_deltas_in_order_lead_to_the_same_as_the_whole(changes: list[Callable[[Inventory], Delta]]) -> None:
    inventory = Inventory()
    followed = ReplyTable(CONFIG)
    followed.apply(inventory.snapshot())
    for change in changes:
        followed.apply(change(inventory))
    whole = ReplyTable(CONFIG)
    whole.apply(inventory.snapshot())
    assert followed.machines == whole.machines
    for gateway in ("10.80.0.1", "10.80.0.100", "10.81.0.1"):
        links = [table.link_of_addresses((address(gateway),)) for table in (followed, whole)]
        assert [link and link.by_key for link in links] == [links[1] and links[1].by_key] * 2
    for host in (5, 6, 7):
        assert followed.is_taken(address(f"10.80.0.{host}")) == whole.is_taken(address(f"10.80.0.{host}"))
