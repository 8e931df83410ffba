"""Hosts whose image knows nothing of the VPC: other people's clients on them, and real DPUs' kernels."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from provisioner.network.agent.dhcp.served import ServedPort
from provisioner.network.agent.dhcp.server import HostDhcpServer
from tests.network.agent.dhcp.clients import Client, answering, running, wait_until
from tests.network.agent.rack import DPU, Rack
from tests.network.agent.specs import BLUE, ONE, RED, TWO, port, spec, vpc
from tests.tools import installed

HERE, THERE = "10.1.0.3", "10.1.0.5"
TOLD = {
    "udhcpc": "bound 10.1.0.3/31 via 10.1.0.2 mtu 1400 from 10.1.0.2",
    "dhclient": "BOUND 10.1.0.3/255.255.255.254 via 10.1.0.2 mtu 1400 from 10.1.0.2",
}
SPEC = spec([vpc(mtu=1400, remotes={TWO: [f"{THERE}/32"]})], [port(HERE)])


def two_dpus(network: Rack) -> tuple[DPU, tuple[ServedPort, ...]]:
    """The first one's host has no address; behind the second is one that has. And what the first DPU is to serve."""
    one, two = network.dpu(ONE), network.dpu(TWO)
    there = spec([vpc(mtu=1400, remotes={ONE: [f"{HERE}/32"]})], [port(THERE, vtep=TWO)], vtep=TWO)
    assert two.enforce(there).agrees
    two.hosts["pf0"].take(THERE)
    enforced = one.enforce(SPEC)
    assert enforced.agrees, enforced.problems
    return one, enforced.served


@pytest.mark.parametrize("name", TOLD)
def test_a_host_gets_its_address_and_reaches_its_peer(network: Rack, tmp_path: Path, name: str) -> None:
    dpu, served = two_dpus(network)
    host, client = dpu.hosts["pf0"], Client(name, dpu.hosts["pf0"], tmp_path)
    assert host.reaches_nothing_at(THERE)
    with answering(dpu, served), client.running():
        assert client.await_event(TOLD[name].split()[0]) == TOLD[name]
        assert host.pings(THERE)
        assert host.output("cat", "/sys/class/net/eth0/mtu") == "1400\n"


def test_a_host_that_hears_nothing_but_broadcasts_before_it_has_an_address(network: Rack, tmp_path: Path) -> None:
    dpu, served = two_dpus(network)
    client = Client("udhcpc", dpu.hosts["pf0"], tmp_path, "-B")
    with answering(dpu, served), client.running():
        assert client.await_event("bound") == TOLD["udhcpc"]


NETWORKD = """
mount --make-rprivate /
mount -o remount,ro,bind /sys  # so that networkd does not wait for udev
mount -t tmpfs tmpfs /run/systemd
mkdir -p /run/systemd/network /run/systemd/netif/leases /run/systemd/netif/links /run/systemd/netif/lldp
chown -R systemd-network /run/systemd/netif
cat > /run/systemd/network/10-host.network <<END
[Match]
Name=eth0
[Network]
DHCP=ipv4
LinkLocalAddressing=no
[DHCPv4]
UseMTU=yes
END
exec "$0"
"""


def test_a_host_with_systemd_networkd_gets_its_address_and_reaches_its_peer(network: Rack) -> None:
    dpu, served = two_dpus(network)
    host = dpu.hosts["pf0"]
    command = host.command("unshare", "-m", "sh", "-c", NETWORKD, installed("systemd-networkd"))
    with answering(dpu, served), running(command):
        wait_until(lambda: "inet 10.1.0.3/31 " in host.ip("-4", "address", "show", "dev", "eth0"), "no address")
        wait_until(lambda: "default via 10.1.0.2 " in host.ip("route", "show"), "no gateway")
        wait_until(lambda: "mtu 1400 " in host.ip("link", "show", "dev", "eth0"), "the MTU was not taken")
        wait_until(lambda: host.pings(THERE, patience_seconds=0.2), "the peer is not reached")


def test_a_host_renews_its_address_and_an_agent_that_was_just_started_knows_it(network: Rack, tmp_path: Path) -> None:
    dpu, served = two_dpus(network)
    client = Client("udhcpc", dpu.hosts["pf0"], tmp_path)
    with client.running() as process:
        with answering(dpu, served):
            client.await_event("bound")
        again = dpu.inside(lambda: dpu.another().served())
        assert again == served
        with answering(dpu, again):
            process.send_signal(signal.SIGUSR1)
            assert client.await_event("renew") == TOLD["udhcpc"].replace("bound", "renew")


def test_a_host_that_remembers_an_address_of_elsewhere_comes_to_its_own(network: Rack, tmp_path: Path) -> None:
    dpu, served = two_dpus(network)
    client = Client("dhclient", dpu.hosts["pf0"], tmp_path)
    client.remembers("10.9.9.9", "10.9.9.8")
    with answering(dpu, served), client.running():
        assert client.await_event("BOUND") == TOLD["dhclient"]
        assert not any(each.startswith(("REBOOT", "TIMEOUT")) for each in client.events)


def listens(dpu: DPU) -> bool:
    """Whether a server's socket is open in the blue domain."""
    return dpu.in_domain(BLUE, "ss", "-Hlun", "sport", "=", ":67") != ""


def asks_in_vain(client: Client) -> bool:
    """For two seconds."""
    busybox = ("busybox", "udhcpc", "-f", "-q", "-n", "-i", "eth0", "-s", "/bin/true", "-t", "2", "-T", "1", "-A", "1")
    return client.host.run(*busybox).returncode != 0


def test_a_port_that_passes_nothing_is_not_answered_until_it_passes_again(network: Rack, tmp_path: Path) -> None:
    dpu, served = two_dpus(network)
    client = Client("udhcpc", dpu.hosts["pf0"], tmp_path)
    with answering(dpu, served) as server:
        quarantined = dpu.enforce(spec(SPEC.vpcs, [port(HERE, state="Quarantined")]))
        assert quarantined.served == ()
        server.serve(quarantined.served)
        assert asks_in_vain(client)
        server.serve(dpu.enforce(SPEC).served)
        with client.running():
            assert client.await_event("bound") == TOLD["udhcpc"]


def test_a_host_whose_address_was_changed_is_told_the_new_one(network: Rack, tmp_path: Path) -> None:
    dpu, served = two_dpus(network)
    client = Client("dhclient", dpu.hosts["pf0"], tmp_path)
    with answering(dpu, served) as server:
        with client.running():
            client.await_event("BOUND")
        server.serve(dpu.enforce(spec(SPEC.vpcs, [port("10.1.0.9")])).served)
        dpu.hosts["pf0"].ip("addr", "flush", "dev", "eth0")
        with client.running():
            wait_until(lambda: client.events[-1].startswith("BOUND 10.1.0.9/"), f"it heard {client.events}")


def test_a_port_that_vanishes_and_comes_back_ends_nothing(network: Rack, tmp_path: Path) -> None:
    dpu = network.dpu(ONE, ("pf0", "pf1"))
    wish = spec([vpc(BLUE), vpc(RED)], [port(HERE), port("10.2.0.3", function="pf1", vni=RED)])
    said: list[str] = []
    with answering(dpu, dpu.enforce(wish).served, said) as server:
        host = dpu.hosts["pf0"]
        wait_until(lambda: listens(dpu), "nothing listens")
        host.ip("link", "delete", "eth0")
        broken = dpu.enforce(wish)
        assert [each.function for each in broken.served] == ["pf1"]
        server.serve(broken.served)
        other = Client("udhcpc", dpu.hosts["pf1"], tmp_path)
        with other.running():
            assert other.await_event("bound").startswith("bound 10.2.0.3/31 ")
        network.cable(host, "eth0", dpu, dpu.ports["pf0"], its_mac=host.mac)
        server.serve(dpu.enforce(wish).served)
        folder = tmp_path / "again"
        folder.mkdir()
        back = Client("udhcpc", host, folder)
        with back.running():
            assert back.await_event("bound").startswith("bound 10.1.0.3/31 ")
    assert said == []


def test_a_device_that_was_made_anew_between_two_looks_is_answered(network: Rack, tmp_path: Path) -> None:
    dpu, served = two_dpus(network)
    host, client = dpu.hosts["pf0"], Client("udhcpc", dpu.hosts["pf0"], tmp_path)
    with answering(dpu, served) as server:
        with client.running():
            client.await_event("bound")
        host.ip("link", "delete", "eth0")
        network.cable(host, "eth0", dpu, dpu.ports["pf0"], its_mac=host.mac)
        server.serve(dpu.enforce(SPEC).served)
        seen = len(client.events)
        with client.running():
            wait_until(lambda: any(each.startswith("bound") for each in client.events[seen:]), "no answer")


def test_a_port_that_cannot_be_listened_at_is_told_of_once(network: Rack) -> None:
    dpu, served = two_dpus(network)
    said: list[str] = []
    with answering(dpu, (), said) as server:
        dpu.hosts["pf0"].ip("link", "delete", "eth0")
        for _ in range(5):
            server.serve(served)
            wait_until(lambda: said != [], "it was not told")
    assert said == ["DHCP is not answered on port pf0: no interface with this name; trying again"]


def test_tenants_with_the_same_addresses_are_each_told_their_own(network: Rack, tmp_path: Path) -> None:
    dpu = network.dpu(ONE, ("pf0", "pf1"))
    wish = spec([vpc(BLUE, mtu=1400), vpc(RED, mtu=1300)], [port(HERE), port(HERE, function="pf1", vni=RED)])
    with answering(dpu, dpu.enforce(wish).served):
        for function, mtu in (("pf0", 1400), ("pf1", 1300)):
            folder = tmp_path / function
            folder.mkdir()
            client = Client("udhcpc", dpu.hosts[function], folder)
            with client.running():
                assert client.await_event("bound") == f"bound 10.1.0.3/31 via 10.1.0.2 mtu {mtu} from 10.1.0.2"


def test_a_server_that_ends_leaves_no_socket_behind(network: Rack) -> None:
    dpu, served = two_dpus(network)
    server = HostDhcpServer(lambda words: None)
    dpu.inside(server.start)
    server.serve(served)
    wait_until(lambda: listens(dpu), "nothing listens")
    server.stop()
    assert not listens(dpu)
