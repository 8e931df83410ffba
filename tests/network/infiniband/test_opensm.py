"""Two tenants on a real OpenSM: what ports can reach follows the attachments, and is believed only when read back."""

from __future__ import annotations

import threading
from datetime import datetime
from typing import Any, cast

import pytest

from provisioner.api import Condition, InfiniBandNetwork
from provisioner.api.machinery.codec import encode
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.errors import Retryable
from provisioner.cluster.client import Cluster
from provisioner.cluster.source import Snapshot
from provisioner.network.infiniband.compile import compile_network
from provisioner.network.infiniband.model.verify import compare
from provisioner.network.infiniband.opensm.agent import run
from provisioner.network.infiniband.opensm.partitions_file import render
from tests.network.infiniband import site
from tests.network.infiniband.simulated_fabric import SimulatedFabric, wait_for
from tests.network.infiniband.site import NOON, network, partition

BLUE, RED = 0x0101, 0x0102
LIMITED, FULL = 0x7FFF, 0xFFFF
LIMITED_BUT_FOR_A_MISTAKE = "Default=0x7fff : ALL=limited, SELF=full ;\nx=0x0101 : 0xzz=full ;\n"


def clock() -> datetime:
    return NOON


def condition(status: Any, type_: str) -> Condition:
    found = find_condition(status.conditions, type_)
    assert found is not None
    return found


def two_tenants(fabric: SimulatedFabric, *, blue: tuple[int, ...], red: tuple[int, ...]) -> InfiniBandNetwork:
    """Compiled of VPCs and attachments, of which each of the servers 1 to 3 has one, of its own tenant."""
    vpcs = [site.vpc("blue"), site.vpc("red")]
    tenants = dict.fromkeys(blue, "blue") | dict.fromkeys(red, "red")
    compiled = compile_network(
        site.fabric(),
        pool=site.pool((0x100, 0x1FF)),
        vpcs=vpcs,
        attachments=[site.attachment(tenant, f"s{number}") for number, tenant in tenants.items()],
        servers=[site.server(f"s{number}", tenant, [fabric.guids[number]]) for number, tenant in tenants.items()],
        claims=[site.claim(BLUE, vpcs[0]), site.claim(RED, vpcs[1])],
    )
    return network(*compiled.spec.partitions)


def test_two_tenants_have_a_partition_each_and_membership_moves_with_the_attachments(
    programs: SimulatedFabric,
) -> None:
    host = programs.host("default")
    programs.partitions_file.write_text(render("default", network().spec))
    programs.start_opensm()
    assert programs.keys(1) == {LIMITED}

    status = host.enforce(two_tenants(programs, blue=(1, 2), red=(3,)), clock)
    assert status is not None
    assert (status.observed_generation, status.ports, status.pkeys) == (1, 4, (BLUE, RED))
    assert condition(status, "Applied").status == condition(status, "DefaultPartitionLimited").status == "True"
    assert [programs.keys(number) for number in range(4)] == [
        {FULL},
        {LIMITED, 0x8000 | BLUE},
        {LIMITED, 0x8000 | BLUE},
        {LIMITED, 0x8000 | RED},
    ]

    status = host.enforce(two_tenants(programs, blue=(1,), red=(2, 3)), clock)
    assert status is not None
    assert status.observed_generation == 1
    assert programs.keys(2) == {LIMITED, 0x8000 | RED}

    status = host.enforce(network(generation=3), clock)
    assert status is not None
    assert (status.observed_generation, status.pkeys) == (3, ())
    assert [programs.keys(number) for number in (1, 2, 3)] == [{LIMITED}] * 3


def test_a_generation_that_opensm_did_not_take_is_not_acknowledged(programs: SimulatedFabric) -> None:
    """OpenSM reads another file than the one that is written: the file alone would look right."""
    other = programs.folder / "other.conf"
    other.write_text("Default=0x7fff : ALL=limited, SELF=full ;\n")
    programs.start_opensm("-P", str(other))
    status = programs.host("default", sweep_seconds=0.5).enforce(two_tenants(programs, blue=(1,), red=(3,)), clock)
    assert status is not None
    assert status.observed_generation is None
    applied = condition(status, "Applied")
    assert (applied.status, applied.reason) == ("False", "Differs")
    assert programs.guids[1] in applied.message


@pytest.mark.parametrize("text", [None, "Default=0x7fff : ALL=full ;\n", LIMITED_BUT_FOR_A_MISTAKE])
def test_a_default_partition_with_all_as_full_members_is_found(programs: SimulatedFabric, text: str | None) -> None:
    """No file at all, one that says so, one with a mistake in it: OpenSM takes none of them for an error."""
    other = programs.folder / "other.conf"
    if text is not None:
        other.write_text(text)
    programs.start_opensm("-P", str(other))
    assert programs.keys(1) == {FULL}
    status = programs.host("default", sweep_seconds=0.5).enforce(network(), clock)
    assert status is not None
    limited = condition(status, "DefaultPartitionLimited")
    assert (limited.status, limited.reason) == ("False", "FullMembers")
    assert programs.guids[1] in limited.message
    assert "opensm -P" in limited.message


def test_the_trap_closes_once_opensm_reads_our_file(programs: SimulatedFabric) -> None:
    programs.start_opensm()  # there is no file yet
    assert programs.keys(1) == {FULL}
    status = programs.host("default").enforce(network(), clock)
    assert status is not None
    assert condition(status, "DefaultPartitionLimited").status == "True"
    assert programs.keys(1) == {LIMITED}


def test_shared_ports_alone_stay_full_members_of_the_default_partition(programs: SimulatedFabric) -> None:
    programs.start_opensm()
    status = programs.host("default").enforce(network(sharedGuids=[programs.guids[3]]), clock)
    assert status is not None
    assert condition(status, "DefaultPartitionLimited").status == "True"
    assert [programs.keys(number) for number in (1, 3)] == [{LIMITED}, {FULL}]


def test_a_file_that_somebody_edited_is_put_back_and_told_of(programs: SimulatedFabric) -> None:
    host, wanted = programs.host("default"), two_tenants(programs, blue=(1,), red=(3,))
    programs.start_opensm()
    assert host.enforce(wanted, clock) is not None
    text = programs.partitions_file.read_text()
    programs.partitions_file.write_text(text.replace(programs.guids[3], programs.guids[1]))
    status = host.enforce(wanted, clock)
    assert status is not None
    assert status.mended_time == "2026-01-02T12:00:00Z"
    assert programs.partitions_file.read_text() == text


def test_somebody_elses_file_is_left_alone_until_a_person_gives_it_up(programs: SimulatedFabric) -> None:
    theirs = "Default=0x7fff : ALL=limited, SELF=full ;\nstorage=0x0042 : ALL=full ;\n"
    programs.partitions_file.write_text(theirs)
    programs.start_opensm()
    status = programs.host("default").enforce(network(), clock)
    assert status is not None
    applied = condition(status, "Applied")
    assert (applied.status, applied.reason) == ("False", "ForeignFile")
    assert "--adopt" in applied.message
    assert programs.partitions_file.read_text() == theirs
    status = programs.host("default", adopt=True).enforce(network(), clock)
    assert status is not None
    assert status.observed_generation == 1
    assert programs.keys(1) == {LIMITED}


def test_who_died_between_file_and_signal_tells_opensm_next_time(programs: SimulatedFabric) -> None:
    wanted = two_tenants(programs, blue=(1,), red=(3,))
    programs.start_opensm()
    assert programs.host("default").enforce(network(), clock) is not None
    programs.partitions_file.write_text(render("default", wanted.spec))
    assert programs.keys(1) == {LIMITED}
    status = programs.host("default").enforce(wanted, clock)
    assert status is not None
    assert status.observed_generation == 1
    assert programs.keys(1) == {LIMITED, 0x8000 | BLUE}


def test_without_opensm_the_file_is_written_and_nothing_is_acknowledged(programs: SimulatedFabric) -> None:
    programs.start_opensm()
    programs.stop_opensm()
    wanted = two_tenants(programs, blue=(1,), red=(3,))
    status = programs.host("default").enforce(wanted, clock)
    assert status is not None
    assert (condition(status, "Applied").reason, status.observed_generation) == ("SubnetManagerNotRunning", None)
    programs.start_opensm()
    status = programs.host("default").enforce(wanted, clock)
    assert status is not None
    assert status.observed_generation == 1


def test_a_subnet_manager_that_stands_by_keeps_its_file_and_says_nothing(programs: SimulatedFabric) -> None:
    programs.start_opensm()
    there = programs.host("default").diagnostics
    elsewhere = type(there)(prefix=there.prefix, environment={**(there.environment or {}), "SIM_HOST": "H2"})
    wanted = two_tenants(programs, blue=(1,), red=(3,))
    assert programs.host("default", diagnostics=elsewhere).enforce(wanted, clock) is None
    assert programs.partitions_file.read_text() == render("default", wanted.spec)
    idle = programs.host("default", diagnostics=elsewhere, pid_file=programs.folder / "none")
    assert idle.enforce(network(), clock) is None
    programs.partitions_file.write_text("somebody else's\n")
    assert programs.host("default", diagnostics=elsewhere).enforce(wanted, clock) is None


def test_a_partition_of_many_ports_is_read_whole_by_opensm(programs: SimulatedFabric) -> None:
    """The member on the last line is one. In one line, which OpenSM cuts off, it would be none."""
    last = programs.guids[3]
    many = [f"0x{number:016x}" for number in range(0x1000, 0x1000 + 600)]
    wanted = network(partition(BLUE, *many, last))
    programs.start_opensm()
    status = programs.host("default").enforce(wanted, clock)
    assert status is not None
    assert (status.observed_generation, status.absent) == (1, 600)
    assert programs.keys(3) == {LIMITED, 0x8000 | BLUE}

    one_line = f"Default=0x7fff : ALL=limited, SELF=full ;\nx=0x0101, defmember=full : {', '.join([*many, last])} ;\n"
    programs.stop_opensm()
    programs.partitions_file.write_text(one_line)
    programs.start_opensm()
    assert programs.keys(3) != {LIMITED, 0x8000 | BLUE}


class Away:
    """A client of an API server that does not answer."""

    def read(self, *_: Any) -> None:
        raise Retryable("no answer")

    apply_status = read


def test_while_the_api_server_is_away_the_last_state_stays_in_force_and_is_mended(programs: SimulatedFabric) -> None:
    wanted = two_tenants(programs, blue=(1,), red=(3,))
    programs.start_opensm()
    networks = Snapshot({"default": encode(wanted)})
    stop, away = threading.Event(), cast("Cluster", Away())
    settings = {"clock": clock, "look_seconds": 0.1, "retry_seconds": 0.1}
    agent = threading.Thread(
        target=run, args=(away, networks, programs.host("default"), stop), kwargs=settings, daemon=True
    )
    agent.start()
    try:
        wait_for("the partitions", lambda: programs.keys(1) == {LIMITED, 0x8000 | BLUE})
        text = render("default", wanted.spec)
        programs.partitions_file.write_text(text.replace(programs.guids[3], programs.guids[2]))
        wait_for("the file to be put back", lambda: programs.partitions_file.read_text() == text)
        wait_for("the partitions", lambda: programs.keys(3) == {LIMITED, 0x8000 | RED})
    finally:
        stop.set()
        agent.join(30)


def test_the_view_names_each_port_of_the_fabric_once(programs: SimulatedFabric) -> None:
    programs.partitions_file.write_text(render("default", network().spec))
    programs.start_opensm()
    master = programs.diagnostics.master()
    view = wait_for("ports", lambda: programs.diagnostics.read(master))
    assert sorted(view.ports) == sorted(programs.guids)
    assert [view.ports[each].kind for each in programs.guids] == ["SubnetManager", "Host", "Host", "Host"]
    assert compare(network().spec, view).agrees
