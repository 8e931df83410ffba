"""The join service as the boot service carries it: wiring between two stages that do not know each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flask import Blueprint

from provisioner.api import Server
from provisioner.api.errors import NeedsHuman
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import EventRecorder
from provisioner.cluster.informer import Informer
from provisioner.cluster.resources import of
from provisioner.join.configuration import JoinSettings
from provisioner.join.service import JoinService, find_server_in
from provisioner.join.source import TrustedProxies
from provisioner.join.web import join_blueprint


def build_join_blueprint(
    cluster: Cluster,
    recorder: EventRecorder,
    *,
    api_server_url: str,
    api_server_ca: Path | None,
    cluster_dns: Sequence[str],
) -> tuple[Blueprint, Informer]:
    """The blueprint, and the informer of Servers that the caller must start.

    The addresses that it believes are those of the WSGI server's own peer: the boot service puts the client's address
    there itself (see provisioner.boot.host.peer), and no header counts here.
    """
    servers = Informer(cluster, of(Server))
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
    service = JoinService(cluster, settings, find_server=find_server_in(servers), recorder=recorder)
    return join_blueprint(service, TrustedProxies()), servers
