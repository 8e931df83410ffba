"""What answers in the boot plane: DHCP, TFTP, HTTP and the two passages, as long as there is a host that boots by it.

Listeners are opened in the plane's namespace; what they fetch goes by the DPU's own uplink.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from ipaddress import IPv4Address
from typing import Final

from provisioner.network.agent.boot import dhcp
from provisioner.network.agent.boot.listeners import PeerListener, datagrams, end, listening, pass_on
from provisioner.network.agent.boot.plane import (
    HOST_LINK,
    HTTP_PORT,
    TFTP_PORT,
    TRANSFER_PORTS,
    BootingHost,
    BootServices,
    ServedBoot,
)
from provisioner.network.agent.boot.proxy import Proxy
from provisioner.network.agent.boot.tftp import Fault, ReadRequest, read_request, transfer
from provisioner.network.agent.dhcp.served import ServedPort
from provisioner.network.agent.dhcp.server import SERVER_PORT, send
from provisioner.network.agent.dhcp.wire import LONGEST_REQUEST, decode
from provisioner.network.agent.model.namespaces import device_here, inside
from provisioner.network.agent.model.state import Place

MOST_REQUESTS: Final = 16
MOST_JOINS: Final = 4
MOST_TO_API_SERVER: Final = 64
"""Connections at a time. A kubelet has one, and a few more for `kubectl logs` and its pods."""
_ANY: Final = ""


class BootServer:
    """Serves the host of the last `serve`, until `stop`. Its methods are for one thread, that in whose namespace the
    uplink is."""

    def __init__(self, services: BootServices, proxy: Proxy, say: Callable[[str], None]) -> None:
        self._services, self._proxy, self._say = services, proxy, say
        self._key: tuple[BootingHost, tuple[int, int]] | None = None
        self._link: int | None = None
        self._dhcp: socket.socket | None = None
        self._open: contextlib.ExitStack | None = None
        self._port: ServedPort | None = None
        self._fault = ""

    def serve(self, boot: ServedBoot | None) -> str | None:
        """From now on this host and no other; None: no host. What goes wrong is said, and tried again by the next.

        Returns: why it is not served; None if it is, or nobody is to be.
        """
        self._port = boot.port if boot is not None else None
        try:
            if boot is None:
                self.stop()
                return None
            with inside(boot.plane):
                namespace, link = device_here(HOST_LINK)
            if (boot.host, namespace) != self._key:
                self.stop()
                self._start(boot.host, boot.plane)
                self._key = boot.host, namespace
            if link != self._link:
                self._start_dhcp(boot.host, boot.plane)
                self._link = link
        except OSError as error:
            self.stop()
            fault = f"the boot of the host is not served: {error}; trying again"
            if fault != self._fault:
                self._fault = fault
                self._say(fault)
            return fault
        self._fault = ""
        return None

    def stop(self) -> None:
        """Close everything."""
        self._key = self._link = None
        if self._dhcp is not None:
            end(self._dhcp)
            self._dhcp = None
        if self._open is not None:
            self._open.close()
            self._open = None

    def _start(self, host: BootingHost, plane: Place) -> None:
        """Raises: OSError."""
        boot_host, peer = str(self._services.boot_host), host.address
        with contextlib.ExitStack() as stack, inside(plane):
            http = stack.enter_context(listening(_ANY, HTTP_PORT, MOST_REQUESTS))
            passages = [
                (stack.enter_context(listening(str(address), port, most)), (str(target), target_port), most)
                for (address, port), (target, target_port), most in passages_of(self._services)
            ]
            asked = stack.enter_context(datagrams(boot_host, TFTP_PORT))
            transfers = [stack.enter_context(datagrams(boot_host, port)) for port in TRANSFER_PORTS]
            self._open = stack.pop_all()
        listener = PeerListener("boot-http", http, peer, MOST_REQUESTS, lambda each: self._proxy.answer(each, host))
        self._open.callback(listener.close)
        for opened, target, most in passages:
            self._open.callback(PeerListener("boot-passage", opened, peer, most, partial(pass_on, target=target)).close)
        self._open.callback(partial(end, asked))
        files = partial(self._files, asked, transfers, host)
        threading.Thread(target=files, name="boot-tftp", daemon=True).start()

    def _start_dhcp(self, host: BootingHost, plane: Place) -> None:
        """Broadcasts leave by a device: where that was made anew, as its port has moved, so is this. Connections go on.

        Raises: OSError.
        """
        if self._dhcp is not None:
            end(self._dhcp)
            self._dhcp = None
        with inside(plane):
            self._dhcp = datagrams(_ANY, SERVER_PORT, HOST_LINK)
        leases = partial(self._leases, self._dhcp, host)
        threading.Thread(target=leases, name="boot-dhcp", daemon=True).start()

    def _leases(self, opened: socket.socket, host: BootingHost) -> None:
        _, router = dhcp.network_of(host.address)
        while True:
            try:
                data = opened.recv(LONGEST_REQUEST + 1)
            except OSError:
                return
            if not data:  # shut down; a datagram that is empty says nothing, either
                if opened.fileno() < 0:
                    return
                continue
            request = decode(data)
            reply = dhcp.answer(request, host, self._services, self._port) if request is not None else None
            if reply is not None:
                send(opened, router, reply)

    def _files(self, opened: socket.socket, transfers: list[socket.socket], host: BootingHost) -> None:
        free = list(transfers)
        lock = threading.Lock()

        def send(by: socket.socket, client: tuple[str, int], request: ReadRequest | Fault) -> None:
            try:
                if isinstance(request, Fault):
                    by.sendto(request.encode(), client)
                    return
                content = self._proxy.first_stage(request.name)
                if content is None:
                    by.sendto(Fault(0, "the boot host did not give it").encode(), client)
                else:
                    transfer(by, client, request, content)
            except OSError:
                pass  # closed
            finally:
                with lock:
                    free.append(by)

        while True:
            try:
                data, client = opened.recvfrom(1024)
            except OSError:
                return
            if client is None:  # shut down
                return
            request = read_request(data)
            if client[0] != str(host.address) or request is None:
                continue
            with lock:
                by = free.pop() if free else None
            if by is None:  # it asks again
                continue
            try:
                threading.Thread(target=send, args=(by, client, request), name="boot-file", daemon=True).start()
            except RuntimeError:  # no more threads are to be had now: it asks again
                with lock:
                    free.append(by)


def passages_of(services: BootServices) -> Iterator[tuple[tuple[IPv4Address, int], tuple[IPv4Address, int], int]]:
    """From where to where, and how many connections at a time. The API server's port may be that of joins."""
    joins = services.boot_host, services.join_port
    for asked, target in services.passages.items():
        yield asked, target, MOST_JOINS if asked == joins else MOST_TO_API_SERVER
