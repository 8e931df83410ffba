"""How a registry is reached: address, credentials, certificate authority, and how long and how much it may take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from provisioner.api.machinery.errors import Refused
from provisioner.image.registry.credentials import RegistryCredentials, read_credentials
from provisioner.image.registry.reference import Repository

MIB: Final = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one registry may take of time and memory."""

    connect_seconds: float = 10.0
    silence_seconds: float = 30.0
    """Between two bytes."""
    call_seconds: float = 30.0
    """For a call with a short answer; one with a blob has the time of its size beside that."""
    least_bytes_per_second: int = 256 * 1024
    """As of a server's source of images: what is slower is given up, and tried again."""
    attempts: int = 5
    """In a row, without a MiB of progress between them."""
    first_wait_seconds: float = 1.0
    """Before the second attempt; it doubles, unless the registry names a time (Retry-After)."""
    longest_wait_seconds: float = 60.0
    chunk_bytes: int = 16 * MIB
    """Sent at a time, and held in memory."""

    def seconds_for(self, size_bytes: int) -> float:
        """How long a call may take in all that moves so much."""
        return self.call_seconds + size_bytes / self.least_bytes_per_second


@dataclass(frozen=True, kw_only=True)
class RegistryAccess:
    """A repository of a registry, and what opens it."""

    repository: Repository
    plain_http: bool = False
    ca: Path | None = None
    """What its certificate is checked with; the system's authorities without one."""
    credentials: RegistryCredentials | None = None
    token_hosts: tuple[str, ...] = ()
    """Hosts beside the registry's own at which tokens may be asked for, with the credentials."""
    limits: Limits = Limits()

    @property
    def root(self) -> str:
        """URL of the repository."""
        scheme = "http" if self.plain_http else "https"
        return f"{scheme}://{self.repository.host}/v2/{self.repository.name}"


def open_access(
    repository: Repository,
    *,
    ca: Path | None = None,
    plain_http: bool = False,
    configuration: Path | None = None,
    token_hosts: tuple[str, ...] = (),
    limits: Limits | None = None,
) -> RegistryAccess:
    """TLS, but for a registry on this machine for which no `ca` was given, and for one of which a person says so.

    configuration: docker's file with names and passwords; the usual one without it.
    Raises: Refused for credentials that anybody on the way could read; what `read_credentials` raises.
    """
    if plain_http and ca is not None:
        raise Refused("a CA and plain HTTP were both asked for", hint="leave one of the two out")
    plain = plain_http or (repository.is_loopback and ca is None)
    credentials = read_credentials(repository.host, configuration, repository.name)
    if credentials is not None and plain and not repository.is_loopback:
        raise Refused(
            f"the password for {repository.host} would be sent over plain HTTP",
            hint="give the registry a certificate (--registry-ca), or take its entry out of the configuration",
        )
    return RegistryAccess(
        repository=repository,
        plain_http=plain,
        ca=ca,
        credentials=credentials,
        token_hosts=token_hosts,
        limits=limits or Limits(),
    )
