"""Strangers invent MAC addresses to fill the room for unknown machines. docs/threat-model.md, "Who appears as a
machine".

Real parts: API server, shipped accounts and policies, the endpoint for unknown machines with its discoverer, DHCP on
loopback, and the inventory that deletes what nobody touches. Its clock is turned.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from lab.control_plane.plane import ControlPlane
from provisioner.api import Rack, Server
from provisioner.api.machinery.codec import encode
from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.values import MacAddress
from provisioner.api.servers.discovery import MAX_WAITING_IN_SUBNET, URL_LASTS, discovered_name
from provisioner.boot.dhcp.wire import options as opt
from provisioner.boot.host.dhcp_feed import DhcpFeed
from provisioner.boot.host.peer import RealPeer
from provisioner.boot.host.web import boot_blueprint
from provisioner.boot.observe import discover
from provisioner.boot.observe.discover import Discoverer
from provisioner.boot.observe.recorder import ProgressRecorder
from provisioner.boot.observe.server_index import ServerIndex
from provisioner.cluster.client import Cluster
from provisioner.cluster.informer import Informer
from provisioner.cluster.resources import of
from provisioner.inventory.unknown import KEY, UnknownMachines
from tests.boot.dhcp.messages import message, rack, subnet
from tests.boot.dhcp.relay import RELAY_ADDRESS, SERVER_ADDRESS, Relay, config
from tests.cluster.fake_events import FakeEvents
from tests.people import BOOT, kubeconfig_of
from tests.power.power_site import wait_for

HERE = "127.80.0"
"""The subnet of the attack, to which the relay of the DHCP tests belongs. THERE is another one."""
THERE = "127.81.0"
OUTSIDE = "10.250.0"


@dataclass
class Site:
    """A boot host with a relay to it, and the inventory beside it."""

    cluster: Cluster
    inventory_account: Cluster
    unique: str
    application: Flask
    discoverer: Discoverer
    relay: Relay
    macs: Iterator[MacAddress]
    servers: Informer

    def fetch(self, mac: MacAddress, source: str) -> str:
        """What iPXE with this MAC address is answered, as nginx asks for it."""
        client = self.application.test_client()
        answer = client.get("/v1/unknown", query_string={"mac": mac}, environ_base={"REMOTE_ADDR": source})
        assert answer.status_code == 200, "firmware never sees an error"
        return answer.text

    def flood(self, network: str, machines: int) -> None:
        """So many invented machines fetch their scripts, from addresses that keep below the rate limit."""
        for number in range(machines):
            self.fetch(next(self.macs), f"{network}.{100 + number // 25}")

    def boot(self, mac: MacAddress) -> None:
        """A real machine in the attacked subnet: it asks for an address before it fetches anything."""

        def is_heard() -> bool:
            self.relay.send(message(opt.DISCOVER, mac, giaddr=RELAY_ADDRESS, options=PXE))
            return mac in self.discoverer._heard

        wait_for("the machine was heard", is_heard)
        self.fetch(mac, f"{HERE}.201")

    def waiting(self, rack_name: str) -> set[str]:
        listed = self.cluster.list(of(Server), field_selector="spec.acceptance=Pending").items
        return {each["metadata"]["name"] for each in listed if each["spec"].get("rackRef") == rack_name}

    def exists(self, mac: MacAddress) -> bool:
        return self.servers.get(discovered_name(mac)) is not None

    def tidy_up(self, later: timedelta = timedelta()) -> None:
        """As the inventory does, so much later."""
        unknown = UnknownMachines(self.inventory_account, self.servers, clock=lambda: datetime.now(UTC) + later)
        unknown.reconcile(KEY)


PXE = {opt.VENDOR_CLASS: b"PXEClient:Arch:00007:UNDI:003016", opt.CLIENT_ARCHITECTURE: b"\x00\x07"}


@pytest.fixture
def site(
    cluster: Cluster,
    account: Callable[[str], Cluster],
    control_plane: ControlPlane,
    unique: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Site]:
    monkeypatch.setattr(discover, "CREATED_AT_ONCE", 1000.0)  # the subnet is filled in seconds, not in a minute
    boot_account = Cluster.connect(kubeconfig_of(control_plane, tmp_path, BOOT))
    networks = {
        f"{unique}-here": subnet(
            cidr=f"{HERE}.0/24",
            gateway=SERVER_ADDRESS,
            relays=(RELAY_ADDRESS,),
            discovery=(f"{HERE}.200", f"{HERE}.250"),
        ),
        f"{unique}-there": subnet(cidr=f"{THERE}.0/24", discovery=(f"{THERE}.200", f"{THERE}.250")),
    }
    for name, network in networks.items():
        cluster.create(of(Rack), encode(rack(name, network)))
    stop, told = threading.Event(), FakeEvents()
    servers, racks = Informer(boot_account, of(Server)), Informer(boot_account, of(Rack))
    index = ServerIndex(servers)
    index.attach()
    discoverer = Discoverer(boot_account, index, racks, told)
    recorder = ProgressRecorder(boot_account, index, told)
    settings = config(workers=1)
    feed = DhcpFeed(settings, recorder, discoverer, servers, racks, told)
    feed.start()
    for informer in (servers, racks):
        informer.start(stop)
        assert informer.wait_for_sync(60)
    threads = [threading.Thread(target=work, args=(stop,)) for work in (discoverer.run, feed.run)]
    for thread in threads:
        thread.start()
    application = Flask("test")
    application.register_blueprint(
        boot_blueprint(index=index, recorder=recorder, discoverer=discoverer, ready=lambda: True)
    )
    application.wsgi_app = RealPeer(application.wsgi_app)  # type: ignore[method-assign]
    digits = random.Random(unique).randbytes(3).hex(":")
    macs = (MacAddress(f"52:{digits}:{n >> 8:02x}:{n & 255:02x}") for n in itertools.count())
    try:
        with Relay(settings) as relay:
            yield Site(cluster, account("inventory"), unique, application, discoverer, relay, macs, servers)
    finally:
        stop.set()
        discoverer.wake()
        for thread in threads:
            thread.join(60)
        feed.stop()
        for name in networks:
            for each in cluster.list(of(Server), field_selector="spec.acceptance=Pending").items:
                if each["spec"].get("rackRef") == name:
                    cluster.delete(of(Server), each["metadata"]["name"])
            cluster.delete(of(Rack), name)


def test_a_flood_from_elsewhere_records_nothing_and_a_machine_in_the_subnet_is(site: Site) -> None:
    site.flood(OUTSIDE, 200)
    stranger, honest = next(site.macs), next(site.macs)
    assert "no subnet with a discovery range" in site.fetch(stranger, f"{OUTSIDE}.9")
    assert f"kubectl provision accept {discovered_name(honest)}" in site.fetch(honest, f"{HERE}.201")
    wait_for("the honest machine is recorded", lambda: site.exists(honest))
    assert site.waiting(f"{site.unique}-here") == {discovered_name(honest)}
    assert site.waiting(f"{site.unique}-there") == set()


def test_a_flood_in_a_subnet_keeps_out_neither_who_asks_by_dhcp_nor_other_subnets_and_passes(site: Site) -> None:
    site.flood(HERE, 2 * MAX_WAITING_IN_SUBNET)
    full = wait_for("the subnet is full", lambda: _all_of(site, MAX_WAITING_IN_SUBNET))
    late, elsewhere, real = (next(site.macs) for _ in range(3))
    said = "128 unknown machines wait already in its subnet"  # the last one counts twice while it is being recorded
    wait_for("a late one is told how many wait", lambda: said in site.fetch(late, f"{HERE}.150"))
    site.fetch(elsewhere, f"{THERE}.201")
    wait_for("a machine in another subnet is recorded", lambda: site.exists(elsewhere))
    site.boot(real)
    wait_for("a machine that asked by DHCP is recorded", lambda: site.exists(real))
    site.tidy_up()
    wait_for("one of the flood gave way", lambda: len(site.waiting(f"{site.unique}-here")) == MAX_WAITING_IN_SUBNET)
    assert discovered_name(real) in site.waiting(f"{site.unique}-here")
    touched = next(iter(sorted(full & site.waiting(f"{site.unique}-here"))))
    site.cluster.patch(of(Server), touched, {"metadata": {"labels": {"seen-by": "alice"}}})
    wait_for("the label in the cache", lambda: (site.servers.get(touched) or {})["metadata"].get("labels"))
    site.tidy_up(later=URL_LASTS)
    kept = {touched, discovered_name(real)}
    wait_for("the flood has passed", lambda: site.waiting(f"{site.unique}-here") == kept)
    wait_for("the cache has seen it", lambda: len([s for s in full if site.servers.get(s)]) == 1)
    site.fetch(late, f"{HERE}.151")
    wait_for("there is room again", lambda: site.exists(late))


def _all_of(site: Site, number: int) -> set[str] | None:
    found = site.waiting(f"{site.unique}-here")
    return found if len(found) >= number else None


def test_the_controllers_account_deletes_only_unknown_machines_that_nobody_touched(site: Site) -> None:
    machine: dict[str, Any] = {
        "apiVersion": "provisioner.dev/v1alpha1",
        "kind": "Server",
        "metadata": {"name": f"unknown-{site.unique}"},
        "spec": {"bootMACAddress": next(site.macs), "acceptance": "Pending", "rackRef": f"{site.unique}-here"},
    }
    registered = {**machine, "metadata": {"name": site.unique}}
    accepted = {
        **machine,
        "metadata": {"name": f"unknown-{site.unique}-2"},
        "spec": machine["spec"] | {"bootMACAddress": next(site.macs), "acceptance": "Accepted"},
    }
    site.cluster.create(of(Server), machine)
    site.cluster.create(of(Server), accepted)
    site.cluster.create(of(Server), registered)
    site.cluster.patch(of(Server), f"unknown-{site.unique}", {"spec": {"position": "u14"}})
    for name in (site.unique, f"unknown-{site.unique}", f"unknown-{site.unique}-2"):
        with pytest.raises(Refused, match="deletes only unknown machines that nobody touched"):
            site.inventory_account.delete(of(Server), name)
    site.cluster.delete(of(Server), f"unknown-{site.unique}")
    site.cluster.create(of(Server), machine)
    site.inventory_account.delete(of(Server), f"unknown-{site.unique}")
