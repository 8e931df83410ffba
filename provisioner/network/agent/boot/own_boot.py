"""Where a DPU's host finds what it boots by, if nobody says it: where the DPU itself has found it.

Both were proved by TLS when the DPU joined: the boot host by the certificate authority of its image, the API server by
what that one said.
"""

from __future__ import annotations

import contextlib
from ipaddress import AddressValueError, IPv4Address

from provisioner.network.agent.boot.plane import HTTP_PORT, BootServices, is_unicast
from provisioner.node.api_server import NotJoinedError, read_access
from provisioner.node.http.post import split_url
from provisioner.node.machine.boot_facts import BootFactsError, read_boot_facts


class NotKnown(Exception):
    """The message says which of the DPU's own files does not say it, and what to give to the agent instead."""


def services_of_own_boot(root: str) -> BootServices:
    """`root`: below it lie the files of stage-1 and of the kubelet ("" on a real machine). Raises: NotKnown."""
    try:
        facts, access = read_boot_facts(root), read_access(root)
        url_tls, url_host, url_port, _ = split_url(facts.boot_url)
        join_tls, join_host, join_port, _ = split_url(facts.join_url)
    except (BootFactsError, NotJoinedError, ValueError) as error:
        raise NotKnown(f"{error}; give --boot-host and --api-server, or boot the DPU over the network") from error
    if (url_tls, join_tls, url_host, url_port) != (False, True, join_host, HTTP_PORT):
        raise NotKnown(
            f"the DPU booted from {facts.boot_url} and joined at {facts.join_url}, not from one boot host at ports "
            f"{HTTP_PORT} and another one with TLS; give --boot-host and --api-server"
        )
    services = BootServices(_address(join_host), _address(access.host), access.port, join_port)
    if access.port == HTTP_PORT or (access.host, access.port) == (join_host, join_port):
        raise NotKnown(
            f"the API server is {access.host}:{access.port}, where the boot plane answers otherwise; give it a port of "
            "its own"
        )
    return services


def _address(host: str) -> IPv4Address:
    with contextlib.suppress(AddressValueError):
        if is_unicast(address := IPv4Address(host)):
            return address
    raise NotKnown(
        f"the DPU itself booted or joined by {host}, which is no IPv4 address that a server can have, and nobody tells "
        "its host what that is; give --boot-host and --api-server, and let the host boot by addresses, too"
    )
