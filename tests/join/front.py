"""The join service as it is served: Flask on waitress on a Unix socket, and, where Debian's nginx is at hand, nginx
with the boot service's own configuration and TLS in front of it."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import waitress
from flask import Blueprint, Flask

from lab.control_plane.ports import free_port
from provisioner.boot.host.nginx import NginxSite, nginx_command, render_nginx
from provisioner.boot.host.peer import RealPeer
from provisioner.join.admission.web import Joins, join_blueprint
from tests.node.fake_join_server import Authority
from tests.tools import lab_tools

SECONDS = 180.0


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: dict[str, Any]

    @property
    def reason(self) -> str:
        return str(self.body.get("reason"))


@contextmanager
def serve(
    service: Any,
    path: Path,
    *,
    beside: Sequence[Blueprint] = (),
    is_known: Callable[[str], bool] = lambda source: False,
    **options: Any,
) -> Iterator[Path]:
    """waitress with the boot service's middleware and the blueprint on a Unix socket, and with those `beside` it.
    `is_known`: who is a registered server, which has a share of the rate of its own."""
    application = Flask("join")
    application.register_blueprint(join_blueprint(service, is_known=is_known, **options))
    for blueprint in beside:
        application.register_blueprint(blueprint)
    server = waitress.create_server(
        RealPeer(application),
        unix_socket=str(path),
        threads=4,
        max_request_body_size=1 << 20,
        clear_untrusted_proxy_headers=False,  # whom to trust is RealPeer's to decide, not waitress'
    )

    def run() -> None:
        with suppress(OSError):  # close() takes the socket away under its poll
            server.run()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield path
    finally:
        server.close()
        thread.join(SECONDS)


def connect(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(SECONDS)
    client.connect(str(path))
    return client


def post(
    connection: http.client.HTTPConnection,
    body: bytes,
    headers: Mapping[str, str] | None = None,
    *,
    to: str = "/v1/join",
) -> Reply:
    given = {"Content-Type": "application/json", **(headers or {})}
    try:
        connection.request("POST", to, body, given)
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    try:
        parsed = json.loads(content)
    except ValueError:
        parsed = {}
    return Reply(response.status, dict(response.getheaders()), parsed)


def post_as_nginx(
    path: Path, body: bytes, source: str, headers: Mapping[str, str] | None = None, *, to: str = "/v1/join"
) -> Reply:
    """A request as nginx passes it on: with the address that it saw."""
    connection = http.client.HTTPConnection("boot-host", timeout=SECONDS)
    connection.sock = connect(path)
    return post(connection, body, {"X-Real-IP": source, **(headers or {})}, to=to)


@dataclass(frozen=True)
class Front:
    """nginx in front of the join service."""

    port: int
    dpu_port: int
    http_port: int
    authority: Authority

    def post(
        self,
        body: bytes,
        source: str,
        headers: Mapping[str, str] | None = None,
        *,
        by_dpu: bool = False,
        to: str = "/v1/join",
    ) -> Reply:
        """A request over TLS from a machine with that address. by_dpu: to the port for what DPUs pass on."""
        context = ssl.create_default_context(cadata=self.authority.pem())
        connection = http.client.HTTPSConnection(
            "127.0.0.1",
            self.dpu_port if by_dpu else self.port,
            timeout=SECONDS,
            context=context,
            source_address=(source, 0),
        )
        return post(connection, body, headers, to=to)

    def post_in_the_clear(self, body: bytes, source: str, *, to: str = "/v1/join") -> Reply:
        return post(http.client.HTTPConnection("127.0.0.1", self.http_port, source_address=(source, 0)), body, to=to)


@contextmanager
def serve_behind_nginx(
    service: Joins,
    folder: Path,
    *,
    beside: Sequence[Blueprint] = (),
    trusted_proxies: tuple[str, ...] = (),
    weaken: Callable[[str], str] = lambda configuration: configuration,
) -> Iterator[Front]:
    """The whole front as on a boot host. `folder` must be below /tmp (the chroot shares that).

    `trusted_proxies`: networks of a site's own. `weaken`: takes a defence out of nginx's configuration.
    """
    tools, authority = lab_tools(), Authority.create()
    authority.server_context(folder)
    for name in ("scripts", "firmware", "images", "run"):
        (folder / name).mkdir()
    with serve(service, folder / "answers.sock", beside=beside) as path:
        site = NginxSite(
            addresses=("127.0.0.1",),
            scripts=folder / "scripts",
            firmware=folder / "firmware",
            firmware_files=("ipxe.efi",),
            images=folder / "images",
            run=folder / "run",
            socket=path,
            access_log=folder / "access.log",
            user="root",
            certificate=folder / "server.pem",
            key=folder / "server.pem",
            http_port=free_port("127.0.0.1"),
            join_port=free_port("127.0.0.1"),
            dpu_join_port=free_port("127.0.0.1"),
            trusted_proxies=trusted_proxies,
            workers="1",
            open_files=512,
        )
        (folder / "nginx.conf").write_text(weaken(render_nginx(site)))
        with (folder / "nginx.log").open("w") as log:
            nginx = subprocess.Popen(
                tools.command(nginx_command(site.run, folder / "nginx.conf"), [folder]), stderr=log
            )
        try:
            wait_for_port(site.join_port, nginx, folder / "nginx.log")
            yield Front(site.join_port, site.dpu_join_port or 0, site.http_port, authority)
        finally:
            nginx.terminate()
            nginx.wait(SECONDS)


def wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    pytest.fail(f"nginx did not listen: {log.read_text()}")
