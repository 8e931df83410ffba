"""`provisioner accept` and `kubectl provision accept`."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from provisioner.api import NodePool, Rack, Server
from provisioner.api.machinery.codec import encode
from provisioner.api.machinery.errors import NotFound, Refused
from provisioner.api.servers.discovery import discovered_server, read_claims
from provisioner.api.servers.server import BootOrder, ServerStatus
from provisioner.cli.kubectl.accept import accept
from provisioner.cluster.resources import of
from provisioner.inventory.accept import AcceptOptions, decide_acceptance
from tests.api.objects import node_pool, rack, server
from tests.boot import objects

if TYPE_CHECKING:
    from lab.control_plane.plane import ControlPlane
    from provisioner.cluster.client import Cluster

Accept = Callable[..., Result]
ORDER = BootOrder(id="o1", reason="FirstBoot", ordered_time="2026-01-02T12:00:00Z", attempt=1)


@pytest.fixture
def run(control_plane: ControlPlane) -> Accept:
    def run(*arguments: str) -> Result:
        options = ["--kubeconfig", str(control_plane.kubeconfig)]
        return CliRunner().invoke(accept, [*arguments, *options], catch_exceptions=False)

    return run


@pytest.fixture
def site(cluster: Cluster, unique: str) -> Iterator[str]:
    """A rack and a pool of that name."""
    cluster.apply(rack(unique), manager="tests")
    cluster.apply(node_pool(unique), manager="tests")
    yield unique
    for kind in (Server, Rack, NodePool):
        for body in cluster.list(of(kind)).items:
            if unique in json.dumps([body["metadata"]["name"], body["spec"]]):
                cluster.delete(of(kind), body["metadata"]["name"])


def discover(cluster: Cluster, serial: str, system_uuid: str = "") -> str:
    digits = uuid.uuid4().hex[:10]
    mac = ":".join(["52", *(digits[i : i + 2] for i in range(0, 10, 2))])
    claims = read_claims({"mac": mac, "serial": serial, "uuid": system_uuid})
    unknown = discovered_server(claims, place=None, now=datetime.now(UTC))
    body = encode(unknown)
    cluster.create(of(Server), body)
    cluster.apply_status(Server, unknown.name, {"discovery": body["status"]["discovery"]}, manager="provisioner-boot")
    return unknown.name


def test_a_discovered_machine_is_accepted_and_shown_field_by_field(run: Accept, cluster: Cluster, site: str) -> None:
    name = discover(cluster, f"serial-{site}")
    arguments = (name, "--rack", site, "--pool", site, "--position", "u07")
    rehearsal = run(*arguments, "--dry-run")
    assert f"Server {name} would be accepted" in rehearsal.output
    assert cluster.read(Server, name).spec.acceptance == "Pending"

    done = run(*arguments)
    assert done.output == (
        f"Server {name} accepted\n"
        f"  rackRef: (unset) -> {site}\n"
        f"  nodePoolRef: (unset) -> {site}\n"
        "  position: (unset) -> u07\n"
        f"  serialNumber: (unset) -> serial-{site}\n"
        "  acceptance: Pending -> Accepted\n"
        f"  next: {name} boots image gpu-node-9f9f9f9f9f9f and becomes a Node of pool {site} the next time it asks, "
        "within a minute if it waits at its console message\n"
        "no controller leads, so nothing that waits goes on: start provisioner controller, or see why it does not "
        "lead: kubectl -n provisioner-system get leases,pods; its log has the reason\n"
    )
    spec = cluster.read(Server, name).spec
    assert (spec.acceptance, spec.rack_ref, spec.node_pool_ref) == ("Accepted", site, site)
    assert "was accepted already" in run(name).output


def test_a_discovered_machine_gets_a_name(run: Accept, cluster: Cluster, site: str) -> None:
    name = discover(cluster, f"serial-{site}")
    mac = cluster.read(Server, name).spec.boot_mac_address
    done = run(name, "--name", f"{site}-u07", "--rack", site, "--pool", site)
    assert f"  metadata.name: {name} -> {site}-u07\n" in done.output
    with pytest.raises(NotFound):
        cluster.read(Server, name)
    named = cluster.read(Server, f"{site}-u07")
    assert (named.spec.boot_mac_address, named.spec.acceptance) == (mac, "Accepted")
    assert named.spec.serial_number == f"serial-{site}"


def test_several_are_accepted_together_or_none(run: Accept, cluster: Cluster, site: str) -> None:
    names = [f"{site}-{number}" for number in (1, 2)]
    for number, name in enumerate(names):
        mac = f"52:{site[1:3]}:{site[3:5]}:{site[5:7]}:00:{number:02x}"
        cluster.apply(server(name, rackRef=site, bootMACAddress=mac), manager="tests")
    with pytest.raises(Refused, match="there is no Server nobody"):
        run(names[0], "nobody")
    assert cluster.read(Server, names[0]).spec.acceptance == "Pending"
    done = run(*names)
    assert done.output.count("acceptance: Pending -> Accepted") == 2
    assert f"{names[0]} waits for a NodePool: provisioner accept {names[0]} --pool NAME" in done.output
    assert {cluster.read(Server, name).spec.acceptance for name in names} == {"Accepted"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "it is in no rack, and so in no subnet; give --rack NAME"),
        (("--rack", "nowhere"), "Rack nowhere does not exist; create it, or give --rack NAME"),
        (("--rack", "{site}", "--pool", "nothing"), "NodePool nothing does not exist; create it, or give --pool NAME"),
        (("--rack", "{site}", "--subnet", "dmz"), "has no subnet dmz; give --subnet with one of boot"),
    ],
)
def test_what_cannot_be_is_refused_with_the_remedy(
    run: Accept, cluster: Cluster, site: str, options: tuple[str, ...], words: str
) -> None:
    name = discover(cluster, f"serial-{site}")
    with pytest.raises(Refused) as refused:
        run(name, *(option.format(site=site) for option in options))
    assert words in str(refused.value)
    assert cluster.read(Server, name).spec.acceptance == "Pending"
    cluster.delete(of(Server), name)


def test_a_machine_with_a_registered_serial_number_is_not_accepted_beside_it(
    run: Accept, cluster: Cluster, site: str
) -> None:
    mac = f"52:{site[1:3]}:{site[3:5]}:{site[5:7]}:00:01"
    registered = server(f"{site}-u01", rackRef=site, bootMACAddress=mac, serialNumber=f"serial-{site}")
    cluster.apply(registered, manager="tests")
    name = discover(cluster, f"serial-{site}")
    with pytest.raises(Refused) as refused:
        run(name, "--rack", site)
    assert f"claims the serialNumber serial-{site} of Server {site}-u01, whose boot MAC address is {mac}" in str(
        refused.value
    )
    assert "if an interface of" in refused.value.hint
    cluster.delete(of(Server), name)


def test_nor_is_one_with_a_registered_uuid_in_another_spelling(run: Accept, cluster: Cluster, site: str) -> None:
    told = str(uuid.uuid4())
    swapped = uuid.UUID(bytes_le=uuid.UUID(told).bytes)
    mac = f"52:{site[1:3]}:{site[3:5]}:{site[5:7]}:00:01"
    registered = server(f"{site}-u01", rackRef=site, bootMACAddress=mac, systemUUID=str(swapped))
    cluster.apply(registered, manager="tests")
    name = discover(cluster, f"serial-{site}", told)
    with pytest.raises(Refused, match=f"claims the systemUUID {told} of Server {site}-u01"):
        run(name, "--rack", site)
    cluster.delete(of(Server), name)


def test_only_a_discovered_machine_is_renamed(run: Accept, cluster: Cluster, site: str) -> None:
    body: dict[str, Any] = server(f"{site}-u01", rackRef=site, bootMACAddress=f"52:{site[1:3]}:{site[3:5]}:00:00:09")
    cluster.apply(body, manager="tests")
    with pytest.raises(Refused, match="only discovered machines get another name"):
        run(f"{site}-u01", "--name", "other")


@pytest.mark.parametrize(
    ("acceptance", "order", "words"),
    [
        (
            "Pending",
            None,
            "boots image gpu-node-abababababab and becomes a Node of pool gpu: its BMC is told to start it",
        ),
        (
            "Accepted",
            None,
            "boots image gpu-node-abababababab and becomes a Node of pool gpu: its BMC is told to start it",
        ),
        ("Accepted", ORDER, "was accepted before, so no boot is ordered; what it does: kubectl provision why r01-u01"),
    ],
)
def test_a_boot_is_announced_only_where_one_comes(acceptance: Any, order: BootOrder | None, words: str) -> None:
    known = objects.server(acceptance=acceptance, status=ServerStatus(order=order))
    decision = decide_acceptance(
        known, AcceptOptions(), racks=[objects.rack()], pools=[objects.pool()], servers=[known]
    )
    assert decision.next_step == f"r01-u01 {words}"
