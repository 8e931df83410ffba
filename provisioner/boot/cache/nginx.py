"""nginx's configuration on a rack's cache host. Pure."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from provisioner.api.machinery.errors import Refused
from provisioner.boot.cache.paths import PATTERN
from provisioner.boot.host.nginx import PLAIN_NAME, check_names, check_paths
from provisioner.boot.template import load_template
from provisioner.node.http.lingering_close import LINGER_SECONDS


def read_upstream(url: str) -> str:
    """The URL of a boot host's web server, with its port and without a path.

    Raises: Refused if it is no plain `http://HOST[:PORT]`.
    """
    split = urlsplit(url)
    try:
        port = 80 if split.port is None else split.port
    except ValueError:
        port = 0
    plain = split.scheme == "http" and split.path in ("", "/") and not (split.query or split.fragment or split.username)
    if not plain or not port or split.hostname is None or not PLAIN_NAME.match(split.hostname):
        raise Refused(
            f"{url!r} is no boot host of which images can be fetched",
            hint="write it as http://10.80.0.1 or http://boot1:8080, without a path",
        )
    return f"http://{split.hostname}:{port}"


@dataclass(frozen=True, kw_only=True)
class CacheSite:
    """What nginx serves on a cache host, and where.

    addresses: to listen on. upstreams: URLs of boot hosts, the preferred one first. state: a folder that may be empty
    and may be lost. slots: answers at once. user: whom the workers run as; None where nginx is not started by root.
    """

    addresses: tuple[str, ...]
    upstreams: tuple[str, ...]
    state: Path
    slots: int
    user: str | None = None
    port: int = 80
    answers_per_client: int = 16
    ask_again_seconds: int = 10
    requests_per_second: int = 50
    burst: int = 200
    workers: str = "auto"
    open_files: int = 65536

    def __post_init__(self) -> None:
        check_paths(self.state)
        check_names(self.user, self.workers)
        if not self.upstreams:
            raise Refused("a cache without a boot host has nothing to fetch from", hint="name one: --boot-host")
        try:
            for address in self.addresses:
                ipaddress.IPv4Address(address)
        except ValueError as error:
            raise Refused(f"cannot listen: {error}", hint="write the address as 10.80.0.5") from error

    @property
    def pattern(self) -> str:
        return PATTERN + r"\z"  # "$" would let a line break behind it pass

    @property
    def run(self) -> Path:
        """nginx's pid file and temporary files, and sockets."""
        return self.state / "run"

    @property
    def kept(self) -> Path:
        """Whole files that were found right, by the path that they are asked for by."""
        return self.state / "kept"

    @property
    def signatures(self) -> Path:
        """Signatures of manifests, which have no digest of their own."""
        return self.state / "signatures"

    @property
    def fetcher_socket(self) -> Path:
        """Where nginx asks for what is not kept."""
        return self.run / "fetcher.sock"

    @property
    def asked_socket(self) -> Path:
        """Where nginx says what it gave of what is kept."""
        return self.run / "asked.sock"

    @property
    def status(self) -> Path:
        """What /healthz answers with."""
        return self.run / "status.json"

    @property
    def ready(self) -> Path:
        """What /readyz answers with, while it is there."""
        return self.run / "ready"

    @property
    def nginx_status_socket(self) -> Path:
        """Where nginx says how many connections there are."""
        return self.run / "nginx-status.sock"

    @property
    def request_log(self) -> Path:
        """What is counted: a line for each file asked for, without a word of who asked."""
        return self.state / "log/requests.log"

    @property
    def access_log(self) -> Path:
        return self.state / "log/access.json"


def render_cache_nginx(site: CacheSite) -> str:
    """The whole nginx.conf."""
    return load_template("cache_nginx.conf.j2").render(site=site, linger_seconds=round(LINGER_SECONDS))
