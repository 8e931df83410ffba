"""Our responder with the race's reservations, until its standard input ends: `serve.py RESERVATIONS WORKERS`."""

from __future__ import annotations

import sys

from provisioner.api.machinery.meta import ObjectMeta
from provisioner.api.servers.rack import Rack, RackSpec, Subnet
from provisioner.api.servers.server import Server, ServerSpec, ServerStatus
from provisioner.boot.dhcp import DhcpConfig, DhcpServer, Observation
from tests.benchmarks.dhcp.wire import SERVER_ADDRESS, SERVER_INTERFACE, SUBNET, reservations


def ignore(_: Observation) -> None:
    """The race is about packets."""


def main(count: int, workers: int) -> None:
    subnet = Subnet(name="race", cidr=SUBNET, gateway=SERVER_ADDRESS, dns_servers=(SERVER_ADDRESS,))
    server = DhcpServer(
        DhcpConfig(server_address=SERVER_ADDRESS, interfaces=(SERVER_INTERFACE,), workers=workers), ignore
    )
    server.start()
    server.replace(
        [Rack(metadata=ObjectMeta(name="race"), spec=RackSpec(subnets=(subnet,)))],
        [
            Server(
                metadata=ObjectMeta(name=f"s{n}"),
                spec=ServerSpec(rack_ref="race", acceptance="Accepted", boot_mac_address=mac),
                status=ServerStatus(address=address, subnet_name="race"),
            )
            for n, (mac, address) in enumerate(reservations(count))
        ],
    )
    sys.stdin.read()
    print(dict(server.tally().counters), flush=True)
    server.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
