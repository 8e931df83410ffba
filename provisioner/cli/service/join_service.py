"""The join service as the boot service carries it: wiring between two stages that do not know each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import structlog
from cryptography import x509
from flask import Blueprint

from provisioner.api import FirmwareProfile, Image, NodePool
from provisioner.api.machinery.errors import NeedsHuman
from provisioner.attestation.endorsement import load_authorities
from provisioner.boot.host.service import BootCaches
from provisioner.boot.script.kernel_arguments import BootUrls
from provisioner.cli.service.expected_boots import load_options_of, served_programs
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import EventRecorder
from provisioner.cluster.remembered import Remembered
from provisioner.cluster.resources import of
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
    settings = JoinSettings(
        api_server_url=api_server_url,
        cluster_ca=ca,
        cluster_dns=tuple(cluster_dns),
    )
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
