"""`provisioner authorizer`: the authorization webhook that holds Nodes to the certificates of their current boot."""

from __future__ import annotations

import threading
from pathlib import Path

import click

from provisioner.cli.options import EXISTING_FILE, kubeconfig_option
from provisioner.cluster.trim import without_managed_fields
from provisioner.node.stop_signals import stop_on_signals


@click.command("authorizer")
@kubeconfig_option
@click.option(
    "--listen",
    "place",
    metavar="ADDRESS:PORT",
    default="127.0.0.1:9443",
    show_default=True,
    help="Where API servers ask, by HTTPS.",
)
@click.option("--certificate", required=True, type=EXISTING_FILE, help="PEM by which API servers know this service.")
@click.option(
    "--key", "key_file", required=True, type=EXISTING_FILE, help="Its private key. Both are read again on change."
)
@click.option(
    "--client-ca",
    required=True,
    type=EXISTING_FILE,
    help="PEM of who signs the API servers' client certificate: no other asks.",
)
@click.option("--health-address", metavar="ADDRESS:PORT", help="Serve /healthz and /readyz there [off].")
def authorizer(
    kubeconfig: Path | None, place: str, certificate: Path, key_file: Path, client_ca: Path, health_address: str | None
) -> None:
    """Tell API servers which requests of Nodes come by a certificate of an earlier boot, so that they are denied.

    It allows nothing, and denies nothing on a list older than two minutes. docs/credentials.md has the API server's
    configuration.
    """
    from provisioner.cli.service.listening import listen_at, serve_health
    from provisioner.cluster.client import Cluster
    from provisioner.cluster.health.checks import Check, HealthVerdict, ill, well
    from provisioner.cluster.informer import Informer
    from provisioner.cluster.resources import CREDENTIALS, ROLES
    from provisioner.join.credentials.review import CredentialList
    from provisioner.join.credentials.web import AuthorizerServer, ServerTLS

    stop = stop_on_signals()
    tls = ServerTLS(certificate, key_file, client_ca)
    cluster = Cluster.connect(kubeconfig, user_agent="provisioner-authorizer", patient=True)
    roles = Informer(cluster, ROLES, namespace=CREDENTIALS, trim=without_managed_fields)
    listed = CredentialList(roles, roles.heard_seconds)
    server = listen_at(place, "--listen", lambda address, port: AuthorizerServer(address, port, tls, listed))
    roles.start(stop)
    answering = threading.Thread(target=server.serve_forever, name="authorizer", daemon=True)
    answering.start()

    def follows() -> HealthVerdict:
        return ill("the thread that follows the list has ended") if roles.is_dead else well()

    def is_fresh() -> HealthVerdict:
        stale = listed.why_not_fresh()
        return ill(stale) if stale is not None else well()

    if health_address is not None:
        serve_health([Check("follows", follows)], [Check("list", is_fresh)], health_address)
    stop.wait()
    server.shutdown()
    server.server_close()
