"""What a boot host gives servers to boot, as TPMs show it: between the stages that render and that admit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from provisioner.api import Image, NodePool, Rack, Server
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.values import Sha256Digest
from provisioner.attestation.authenticode import authenticode_sha256
from provisioner.attestation.measurements import load_options_sha256
from provisioner.boot.script.kernel_arguments import KERNEL_NAME, BootUrls, kernel_arguments
from provisioner.cluster.source import Source

log = structlog.get_logger()


def load_options_of(racks: Source, urls: BootUrls) -> Callable[[Server, NodePool, Image], Sequence[Sha256Digest]]:
    """Digests of the command lines that this boot host may have given a server: with the rack's cache first, last or
    left out, as that may have changed since its script was fetched. None while no script can be written for it."""

    def of(server: Server, pool: NodePool, image: Image) -> Sequence[Sha256Digest]:
        found = racks.get(server.spec.rack_ref) if server.spec.rack_ref is not None else None
        if found is None:
            return ()
        rack = decode(Rack, found)
        direct = replace(rack, spec=replace(rack.spec, cache_url=None))
        order = server.status.order
        attempts = [server]
        if order is not None:
            attempts.append(
                replace(server, status=replace(server.status, order=replace(order, attempt=order.attempt + 1)))
            )
        try:
            lines = [
                " ".join(kernel_arguments(one, pool, image, where, urls))
                for where in (rack, direct)
                for one in attempts
            ]
        except Refused:
            return ()
        return tuple(load_options_sha256(KERNEL_NAME, line) for line in dict.fromkeys(lines))

    return of


def served_programs(folders: Sequence[Path]) -> Mapping[Sha256Digest, str]:
    """The EFI programs that this boot host serves, by their Authenticode digests."""
    found: dict[Sha256Digest, str] = {}
    for path in sorted(path for folder in folders for path in folder.glob("*.efi")):
        try:
            found[authenticode_sha256(path.read_bytes())] = path.name
        except (Refused, OSError) as error:
            log.warning("firmware file is not measured", path=str(path), error=str(error))
    return found
