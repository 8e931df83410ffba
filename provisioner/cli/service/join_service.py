"""The join service as the boot service carries it: wiring between two stages that do not know each other.

What a boot host gives servers to boot, the one renders, and the other admits as TPMs show it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import structlog
from cryptography import x509
from flask import Blueprint

from provisioner.api import FirmwareProfile, Image, NodePool, Rack, Server
from provisioner.api.machinery.errors import NeedsHuman, Refused
from provisioner.api.machinery.values import Sha256Digest
from provisioner.attestation.authenticode import authenticode_sha256
from provisioner.attestation.endorsement import load_authorities
from provisioner.attestation.measurements import load_options_sha256
from provisioner.boot.host.service import BootCaches
from provisioner.boot.script.kernel_arguments import KERNEL_NAME, BootUrls, kernel_arguments
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import EventRecorder
from provisioner.cluster.remembered import Remembered
from provisioner.cluster.resources import of
from provisioner.cluster.source import Source, look_up
from provisioner.join.admission.attestation import VERIFIERS
from provisioner.join.admission.configuration import JoinSettings
from provisioner.join.admission.meter import JoinMeter
from provisioner.join.admission.service import JoinService, find_dpus_in, find_server_in
from provisioner.join.admission.tpm.firmware import PROFILE_READ_SECONDS
from provisioner.join.admission.tpm.verifier import TpmVerifier
from provisioner.join.admission.tpm.wire import TYPE
from provisioner.join.admission.web import join_blueprint
from provisioner.join.challenge_keys import KEY_READ_SECONDS, read_challenge_keys
from provisioner.join.tokens.mint import mint_token
from provisioner.rules.rate import known_by_address

log = structlog.get_logger()


def load_options_of(racks: Source, urls: BootUrls) -> Callable[[Server, NodePool, Image], Sequence[Sha256Digest]]:
    """Digests of the command lines that this boot host may have given a server: with the rack's cache first, last or
    left out, as that may have changed since its script was fetched. Empty while no script can be written for it."""

    def digests(server: Server, pool: NodePool, image: Image) -> Sequence[Sha256Digest]:
        rack = look_up(Rack, racks, server.spec.rack_ref)
        if rack is None:
            return ()
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

    return digests


def served_programs(folders: Sequence[Path]) -> Mapping[Sha256Digest, str]:
    """The EFI programs that this boot host serves, by their Authenticode digests."""
    found: dict[Sha256Digest, str] = {}
    for path in sorted(path for folder in folders for path in folder.glob("*.efi")):
        try:
            found[authenticode_sha256(path.read_bytes())] = path.name
        except (Refused, OSError) as error:
            log.warning("firmware file is not measured", path=str(path), error=str(error))
    return found


def build_join_blueprint(
    cluster: Cluster,
    recorder: EventRecorder,
    caches: BootCaches,
    *,
    api_server_url: str,
    api_server_ca: Path | None,
    cluster_dns: Sequence[str],
    meter: JoinMeter,
    urls: BootUrls,
    firmware: Sequence[Path] = (),
    endorsement_authorities: Path | None = None,
) -> Blueprint:
    """The join service. `caches` are those of the boot host, `urls` what its scripts name, `firmware` the folders with
    what it serves to firmware. endorsement_authorities: certificates of TPM vendors, PEM.
    """
    ca = api_server_ca.read_text() if api_server_ca else cluster.ca_pem
    if not ca:
        raise NeedsHuman(
            "the kubeconfig names no CA for the API server, and nodes need one",
            hint="give it with --api-server-ca",
        )
    settings = JoinSettings(api_server_url=api_server_url, cluster_ca=ca, cluster_dns=tuple(cluster_dns))
    tpm = TpmVerifier(
        keys=Remembered(lambda: read_challenge_keys(cluster), KEY_READ_SECONDS),
        profiles=Remembered(lambda: tuple(cluster.read_all(FirmwareProfile)), PROFILE_READ_SECONDS),
        load_options=load_options_of(caches.racks, urls),
        authorities=_authorities(endorsement_authorities) if endorsement_authorities else (),
        boot_programs=served_programs(firmware),
    )
    service = JoinService(
        cluster,
        settings,
        find_server=find_server_in(caches.servers),
        find_dpus=find_dpus_in(caches.servers),
        recorder=recorder,
        mint=meter.minted(mint_token),
        verifiers={**VERIFIERS, TYPE: tpm},
        sources={of(NodePool): caches.pools, of(Image): caches.images},
    )
    return join_blueprint(meter.around(service), is_known=known_by_address(caches.servers))


def _authorities(path: Path) -> tuple[x509.Certificate, ...]:
    """Raises: Refused."""

    def left_out(why: str) -> None:
        log.warning("endorsement authority was left out", file=str(path), reason=why)

    return load_authorities(path.read_bytes(), left_out=left_out)
