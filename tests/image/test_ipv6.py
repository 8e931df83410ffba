"""What the image does about IPv6: nodes have none of their own, and no neighbour can give them any."""

from __future__ import annotations

import socket
import struct
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lab.virtual_network.namespace import Namespace, ip
from tests.image.samples import NODE
from tests.tools import need_root

SYSCTLS = NODE / "tree/etc/sysctl.d/10-provisioner.conf"
OURS = ("net.ipv6.conf.all.", "net.ipv6.conf.default.")


def settings() -> dict[str, str]:
    lines = (line for line in SYSCTLS.read_text().splitlines() if line and not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}


@pytest.fixture
def link() -> Iterator[tuple[Namespace, Namespace]]:
    """A node and its neighbour; the node's interface appears after its sysctls are set, as at a boot."""
    need_root("make network namespaces")
    node, neighbour = (Namespace(f"v6-{name}-{uuid.uuid4().hex[:6]}") for name in ("node", "mate"))
    try:
        for each in (node, neighbour):
            each.create()
        yield node, neighbour
    finally:
        for each in (node, neighbour):
            each.delete()


def join(node: Namespace, neighbour: Namespace) -> None:
    name = f"v{uuid.uuid4().hex[:8]}"
    ip("link", "add", name, "type", "veth", "peer", "name", f"{name}p")
    ip("link", "set", name, "netns", node.name, "name", "eth0")
    ip("link", "set", f"{name}p", "netns", neighbour.name, "name", "eth0")
    neighbour.ip("link", "set", "eth0", "up")
    node.ip("link", "set", "eth0", "up")


def configure(node: Namespace, values: dict[str, str]) -> None:
    for key, value in values.items():
        node.inside(lambda key=key, value=value: Path("/proc/sys", key.replace(".", "/")).write_text(value))  # type: ignore[misc]


def advertise(neighbour: Namespace, times: int, *, until: Callable[[], bool] = lambda: False) -> None:
    """Router advertisements (RFC 4861) of a default router with the prefix 2001:db8:bad::/64."""

    def send() -> None:
        with socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) as raw:
            index = socket.if_nametoindex("eth0")
            raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
            raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
            head = struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0)
            address = socket.inet_pton(socket.AF_INET6, "2001:db8:bad::")
            prefix = struct.pack("!BBBBIII", 3, 4, 64, 0xC0, 3600, 3600, 0) + address
            raw.sendto(head + prefix, ("ff02::1", 0, 0, index))

    deadline, sent = time.monotonic() + 120, 0
    while sent < times and not until():
        assert time.monotonic() < deadline, "the neighbour cannot send"
        with suppress(OSError):  # no link-local address yet: it is tentative for a second or two
            neighbour.inside(send)
            sent += 1
        time.sleep(0.1)


def believed(node: Namespace) -> str:
    return "".join(
        line + "\n"
        for line in (node.ip("-6", "address", "show", "dev", "eth0") + node.ip("-6", "route", "show")).splitlines()
        if "2001:db8:bad" in line or line.startswith("default")
    )


def test_a_neighbours_router_advertisement_gives_a_node_neither_address_nor_route(
    link: tuple[Namespace, Namespace],
) -> None:
    node, neighbour = link
    configure(node, {key: value for key, value in settings().items() if key.startswith(OURS)})
    join(node, neighbour)
    advertise(neighbour, times=20)
    assert believed(node) == ""


def test_without_the_images_settings_it_would(link: tuple[Namespace, Namespace]) -> None:
    """The twin: what the kernel does by itself."""
    node, neighbour = link
    join(node, neighbour)
    advertise(neighbour, times=600, until=lambda: "2001:db8:bad" in believed(node))
    assert "2001:db8:bad" in believed(node)


def test_pods_may_have_ipv6_all_the_same() -> None:
    assert settings()["net.ipv6.conf.all.forwarding"] == "1"
    assert not any(key.endswith("disable_ipv6") for key in settings()), "a CNI with IPv6 works in its own networks"


def test_networkd_takes_no_ipv6_on_the_interface_that_boots() -> None:
    handover = (NODE / "stage1/lib/stage1/handover.sh").read_text()
    assert 'echo "IPv6AcceptRA=no"' in handover
    assert 'echo "LinkLocalAddressing=no"' in handover
