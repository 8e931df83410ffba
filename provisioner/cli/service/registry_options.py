"""Options of all commands that reach an OCI registry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from provisioner.cli.options import FILE, with_options

if TYPE_CHECKING:
    from provisioner.image.registry.access import RegistryAccess
    from provisioner.image.registry.client import Registry
    from provisioner.image.registry.reference import Repository

registry_options: Final = with_options(
    click.option(
        "--registry-config",
        type=FILE,
        help="File with names and passwords, as docker login writes it [DOCKER_CONFIG; else ~/.docker/config.json].",
    ),
    click.option("--registry-ca", type=FILE, help="CA of the registry's certificate (PEM) [the system's]."),
    click.option(
        "--registry-plain-http",
        is_flag=True,
        help="Without TLS, and without a password. A registry on this machine needs no such word.",
    ),
    click.option(
        "--registry-token-host",
        "registry_token_hosts",
        multiple=True,
        metavar="HOST",
        help="Host beside the registry's own that may be given the password, to make tokens of it.",
    ),
)


def access_of(
    repository: Repository,
    *,
    registry_config: Path | None,
    registry_ca: Path | None,
    registry_plain_http: bool,
    registry_token_hosts: tuple[str, ...],
) -> RegistryAccess:
    """How the options say that the registry is reached. Raises: NeedsHuman."""
    from provisioner.api.machinery.errors import NotFound
    from provisioner.image.registry.access import open_access

    if registry_ca is not None and not registry_ca.is_file():
        raise NotFound(f"{registry_ca} does not exist", hint="name the CA that signed the registry's certificate")
    return open_access(
        repository,
        ca=registry_ca.absolute() if registry_ca is not None else None,
        plain_http=registry_plain_http,
        configuration=registry_config,
        token_hosts=registry_token_hosts,
    )


@contextmanager
def opened(access: RegistryAccess) -> Iterator[Registry]:
    """The registry, for one command."""
    from provisioner.image.registry.client import Registry
    from provisioner.image.registry.transport import RegistryTransport

    with RegistryTransport(access) as transport:
        yield Registry(transport)
