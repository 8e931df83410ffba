"""The configuration of nginx: scripts, images and first-stage files from disk, everything else to the boot service.

Pure. nginx is what faces the machines; the boot service listens on a unix socket alone.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from provisioner.api.machinery.errors import Refused
from provisioner.boot.template import load_template
from provisioner.node.http.lingering_close import LINGER_SECONDS

_PLAIN_PATH = re.compile(r"^/[A-Za-z0-9._/+@=-]*$")
PLAIN_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")

BY_DPU_PREFIX: Final = "/by-dpu"
"""Of the paths by which what DPUs pass on is asked for, as the services behind have them."""

NGINX: Final = "/usr/sbin/nginx"


@dataclass(frozen=True, kw_only=True)
class NginxSite:
    """What nginx serves, and where.

    addresses: IPv4 addresses to listen on. scripts, firmware, images: folders. run: a folder for the pid file and
    temporary files. user: whom the workers run as; None where nginx is not started by root. certificate, key: PEM files
    for the join; None leaves the encrypted servers out. dpu_join_port: where DPUs pass on their hosts' joins; None:
    nowhere. trusted_proxies: networks whose X-Forwarded-For is believed. requests_per_second, burst: of one client, for
    what is not a file. image_slots: files of images sent at once, beside manifests and what `caches`,
    networks, ask for; images_per_client: of those one machine gets at once. workers: a number or `auto`.
    """

    addresses: tuple[str, ...]
    scripts: Path
    firmware: Path
    firmware_files: tuple[str, ...]
    images: Path
    run: Path
    socket: Path
    access_log: Path
    user: str | None = None
    certificate: Path | None = None
    key: Path | None = None
    http_port: int = 80
    join_port: int = 8443
    dpu_join_port: int | None = None
    trusted_proxies: tuple[str, ...] = ()
    requests_per_second: int = 50
    burst: int = 200
    image_slots: int = 1000
    images_per_client: int = 16
    caches: tuple[str, ...] = ()
    ask_again_seconds: int = 10
    workers: str = "auto"
    open_files: int = 65536

    def __post_init__(self) -> None:
        check_paths(self.scripts, self.firmware, self.images, self.run, self.socket, self.access_log)
        if (self.certificate is None) != (self.key is None):
            raise Refused("nginx got a certificate without its key, or the reverse", hint="give both or neither")
        check_paths(self.certificate, self.key)
        check_names(*self.firmware_files, self.user, self.workers)
        try:
            for address in self.addresses:
                ipaddress.IPv4Address(address)
            for network in (*self.trusted_proxies, *self.caches):
                ipaddress.ip_network(network)
        except ValueError as error:
            raise Refused(
                f"nginx setting is no address: {error}", hint="write it as 10.80.0.1 or 10.80.0.0/24"
            ) from error

    @property
    def request_log(self) -> Path:
        """What is counted: a line for each request, without a word of the client's."""
        return self.access_log.with_name("requests.log")

    @property
    def status_socket(self) -> Path:
        """Where nginx says how many connections there are."""
        return self.run / "status.sock"

    @property
    def join_listeners(self) -> tuple[tuple[int, str], ...]:
        """Port of each encrypted server, and what it puts before the paths that it passes on; empty: as they came."""
        if self.certificate is None:
            return ()
        by_dpu = ((self.dpu_join_port, BY_DPU_PREFIX),) if self.dpu_join_port is not None else ()
        return ((self.join_port, ""), *by_dpu)


def render_nginx(site: NginxSite) -> str:
    """The whole nginx.conf."""
    return load_template("nginx.conf.j2").render(site=site, linger_seconds=round(LINGER_SECONDS))


def nginx_command(run: Path, configuration: Path, *, test: bool = False) -> list[str]:
    """The command that runs nginx in the foreground, or with `test` only checks its configuration. run: its folder."""
    command = [NGINX, "-e", "stderr", "-p", str(run), "-c", str(configuration)]
    return [*command, "-t", "-q"] if test else command


def check_paths(*paths: Path | None) -> None:
    """Raises: Refused for one that cannot stand in nginx's configuration."""
    for path in paths:
        if path is not None and not _PLAIN_PATH.match(str(path)):
            raise Refused(
                f"path {str(path)!r} cannot be written into nginx.conf",
                hint="use an absolute path of letters, digits and '._/+@=-'",
            )


def check_names(*names: str | None) -> None:
    """Raises: Refused for one that cannot stand in nginx's configuration."""
    for name in names:
        if name is not None and not PLAIN_NAME.match(name):
            raise Refused(f"{name!r} is not a plain name", hint="use letters, digits, '.', '_' and '-'")
