"""Defences of tenants' networks, each by the test of the attack that it is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.attacks.taken_away.defence import NOTHING, Defence, always, instead

_EVPN: Final = "provisioner.network.evpn.learn"
_PEERS: Final = "provisioner.network.control.compile.peers"
_ROOM: Final = "provisioner.network.control.compile.room"
_PLACE: Final = "provisioner.network.control.compile.place"
_CARD: Final = "provisioner.network.control.records.facts"
_FABRIC: Final = "provisioner.network.infiniband.compile"

DEFENCES: Final[Mapping[str, Defence]] = {
    "tests/network/evpn/test_learn.py::test_a_dpu_of_a_peer_takes_no_address_of_ours": Defence(
        "everything is inside of every VPC",
        {f"{_EVPN}:_is_inside": always(True)},
        sees=r"10\.1\.0\.7/32",
    ),
    "tests/network/evpn/test_learn.py::test_who_announces_too_much_is_told_no_more_but_keeps_what_it_had": Defence(
        "nobody announces too much",
        {f"{_EVPN}:_too_many": always(set())},
        sees=r"10\.1\.1\.\d/32",
    ),
    "tests/network/control/test_compile.py::"
    "test_a_vpc_that_is_too_large_for_the_object_reaches_nothing_and_the_others_of_the_dpu_do": Defence(
        "MOST_BYTES_OF_REACH is 1 GiB",
        {f"{_ROOM}:MOST_BYTES_OF_REACH": instead(1 << 30)},
        sees=r"assert \d{7,} < ",
    ),
    "tests/attacks/test_hostile_tenants.py::"
    "test_a_peer_takes_no_address_of_ours_by_a_route_and_sends_from_none": Defence(
        "what two VPCs hold is not compared",
        {f"{_PEERS}:first_shared": NOTHING},
        sees="peerVnis",
    ),
    "tests/attacks/test_hostile_tenants.py::"
    "test_a_cidr_that_grows_into_a_peers_ends_the_peering_and_both_are_told": Defence(
        "what two VPCs hold is not compared",
        {f"{_PEERS}:first_shared": NOTHING},
        sees="peerVnis",
    ),
    "tests/attacks/test_hostile_tenants.py::test_a_peer_takes_no_address_of_another_peer_by_what_it_adds": Defence(
        "no peer is another one's rival",
        {f"{_PEERS}:_rivals": always({})},
        sees=r"'10\.3\.0\.201/32': '10\.255\.0\.3'",
        row="named last",
    ),
    "tests/attacks/test_hostile_tenants.py::"
    "test_two_peers_that_come_with_the_same_addresses_are_both_cut_off_and_told": Defence(
        "no peer is another one's rival",
        {f"{_PEERS}:_rivals": always({})},
        sees=r"'True', 'Allocated'",
    ),
    "tests/attacks/test_hostile_tenants.py::"
    "test_what_a_peer_changes_again_and_again_keeps_no_change_of_ours_waiting": Defence(
        "what a peer has changed counts as ours",
        {"provisioner.network.control.follow:_peers_that_hold_else": always({"blue/main"})},
        sees=r"10\.1\.0\.\d+",
    ),
    "tests/network/control/test_compile.py::test_a_peer_that_is_too_large_is_left_out_and_isolates_nobody": Defence(
        "MOST_BYTES_OF_REACH is 1 GiB",
        {f"{_ROOM}:MOST_BYTES_OF_REACH": instead(1 << 30)},
        sees=r"10\.101\.\d+\.3/32",
    ),
    "tests/attacks/test_hostile_tenants.py::"
    "test_functions_that_the_card_has_not_take_no_room_from_those_that_were_assigned": Defence(
        "whoever comes first is attached",
        {
            "provisioner.network.control.attachments:has_room": instead(
                lambda function, _assigned, claimed: function in claimed or len(claimed) < 256
            )
        },
        sees="DPUFull",
    ),
    "tests/attacks/test_hostile_tenants.py::"
    "test_the_peers_of_one_tenant_take_none_of_another_and_who_has_too_many_is_told": Defence(
        "whoever is named first has room",
        {f"{_ROOM}:fitting": instead(lambda sizes, most: {*sorted(sizes)[:most]})},
        sees="PeersLeftOut",
    ),
    "tests/attacks/test_hostile_tenants.py::"
    "test_a_tenant_that_makes_vpc_after_vpc_leaves_identifiers_for_others": Defence(
        "a tenant may take all that are left",
        {"provisioner.network.control.claims.wanted:may_take": always(True)},
        sees="VNIsExhausted",
    ),
    "tests/network/infiniband/test_compile.py::"
    "test_a_tenant_with_more_members_than_a_fabrics_object_holds_loses_partitions_and_no_other_tenant_does": Defence(
        "an object may be of any size",
        {f"{_FABRIC}:MOST_BYTES": instead(1 << 30)},
        sees=r"assert \d{7,} < ",
    ),
    "tests/attacks/test_hostile_tenants.py::test_who_leads_next_knows_whose_the_addresses_are": Defence(
        "what peers hold is not written down",
        {"provisioner.network.control.vpcs:held_by_peers": always(())},
        sees="the new leader has given the addresses",
    ),
    "tests/network/infiniband/test_compile.py::"
    "test_a_port_is_in_no_more_partitions_than_its_table_has_room_for": Defence(
        "MOST_PARTITIONS is 1000",
        {f"{_FABRIC}:MOST_PARTITIONS": instead(1000)},
        sees="169 more items",
    ),
    "tests/network/infiniband/test_compile.py::test_another_tenants_attachment_of_a_server_gives_nothing": Defence(
        "whose server it is, is not asked",
        {f"{_FABRIC}:_is_its_tenants": always(True)},
        sees=r"258: \('0x506b4b0300a1b201'",
    ),
    "tests/network/infiniband/test_compile.py::"
    "test_a_port_that_two_servers_have_registered_is_in_no_partition_and_told_of": Defence(
        "no GUID is registered twice",
        {f"{_FABRIC}:_doubled": always(set())},
        sees=r"258: \('0x506b4b0300a1b202'",
    ),
    "tests/network/infiniband/test_compile.py::"
    "test_a_server_that_the_administrators_have_quarantined_is_in_no_partition_whatever_its_tenant_says": Defence(
        "all servers are let in",
        {f"{_FABRIC}:_is_let_in": always(True)},
        sees=r"257: \('0x506b4b0300a1b201'",
    ),
    "tests/attacks/test_hostile_tenants.py::"
    "test_a_tenant_does_not_lift_a_quarantine_that_the_administrators_have_set_on_its_server": Defence(
        "the administrators' quarantine is not asked for",
        {f"{_PLACE}:_is_quarantined": always(False)},
        sees=r"\['Tenant'\] == \['Quarantined'\]",
    ),
    "tests/attacks/test_hostile_tenants.py::"
    "test_who_registers_a_server_once_more_does_not_lift_its_quarantine": Defence(
        "the administrators' quarantine is not asked for",
        {f"{_PLACE}:_is_quarantined": always(False)},
        sees=r"\['Tenant'\] == \['Quarantined'\]",
    ),
    "tests/network/control/test_card.py::"
    "test_a_card_of_which_nothing_is_declared_or_that_nobody_accepted_stays_as_it_is": Defence(
        "every card counts as accepted",
        {f"{_CARD}:_is_ours": always(True)},
        sees="CardConfiguration",
        row="not accepted",
    ),
}
