"""Who may have a server's proof forgotten: administrators, that and nothing else of its status, on record."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lab.control_plane.plane import ControlPlane
from provisioner.api import Server
from provisioner.api.machinery.codec import encode, to_json
from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.meta import ObjectMeta
from provisioner.api.servers.attestation import AttestationStatus
from provisioner.api.servers.server import ServerSpec
from provisioner.cli.kubectl.forgetting import decide_forgetting, forget_event
from provisioner.cli.main import kubectl
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import EVENTS, of
from tests.people import bind, kubeconfig_of

KEY = "sha256:" + "ab" * 32
PROVED = to_json(AttestationStatus(endorsement_key_sha256=KEY, known_by="Registered", firmware_profile="model-a"))
STATUS = {"address": "10.99.0.7", "attestation": PROVED}


@pytest.fixture(scope="module")
def administrator_kubeconfig(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    bind(Cluster.connect(control_plane.kubeconfig), "provisioner-administrator", "adele")
    return kubeconfig_of(control_plane, tmp_path_factory.mktemp("adele"), "adele")


@pytest.fixture
def proved(cluster: Cluster, unique: str) -> Iterator[str]:
    make_proved(cluster, unique)
    yield unique
    cluster.delete(of(Server), unique)


def make_proved(cluster: Cluster, unique: str) -> str:
    """A server that has proved its firmware, by a registered key; its name."""
    mac = "52:54:" + ":".join(unique[1:9][at : at + 2] for at in (0, 2, 4, 6))
    spec = ServerSpec(boot_mac_address=mac, endorsement_key_sha256=KEY)
    cluster.create(of(Server), encode(Server(metadata=ObjectMeta(name=unique), spec=spec)))
    # As the join service writes it.
    cluster.apply_status(Server, unique, STATUS, manager="provisioner-join")
    return unique


def forget(kubeconfig: Path, *arguments: str) -> Result:
    return CliRunner().invoke(kubectl, ["attestation", "forget", *arguments, "--kubeconfig", str(kubeconfig)])


def told(cluster: Cluster, server: str) -> list[str]:
    listed = cluster.list(EVENTS, namespace="default", field_selector=f"involvedObject.name={server}")
    return [each["message"] for each in listed.items if each["reason"] == "AttestationForgotten"]


def test_an_administrator_has_a_proof_forgotten_which_is_on_record_and_the_key_stays(
    administrator_kubeconfig: Path, cluster: Cluster, proved: str
) -> None:
    tried = forget(administrator_kubeconfig, proved, "--dry-run")
    assert (tried.exit_code, "would be forgotten" in tried.output) == (0, True), tried.output
    assert cluster.read(Server, proved).status.attestation is not None
    assert told(cluster, proved) == []
    done = forget(administrator_kubeconfig, proved, "-m", "firmware 2.7")
    assert done.exit_code == 0, done.output
    server = cluster.read(Server, proved)
    assert (server.status.attestation, server.status.address) == (None, "10.99.0.7")
    assert server.spec.endorsement_key_sha256 == KEY
    assert told(cluster, proved) == ["adele took back what it had proved and shown of itself: firmware 2.7"]
    assert "at its next boot" in done.output
    # The join service, to which the field belonged, writes the rest of its own and does not bring it back.
    cluster.apply_status(Server, proved, {"address": "10.99.0.7"}, manager="provisioner-join")
    again = forget(administrator_kubeconfig, proved)
    assert "nothing to forget" in again.output
    assert len(told(cluster, proved)) == 1


def test_the_registered_key_goes_with_it_if_that_is_said(
    administrator_kubeconfig: Path, cluster: Cluster, proved: str
) -> None:
    done = forget(administrator_kubeconfig, proved, "--key", "-m", "mainboard exchanged")
    assert done.exit_code == 0, done.output
    server = cluster.read(Server, proved)
    assert (server.status.attestation, server.spec.endorsement_key_sha256) == (None, None)


def test_operators_and_the_accounts_of_other_services_may_not(
    operator_kubeconfig: Path, cluster: Cluster, account: Any, proved: str
) -> None:
    refused = forget(operator_kubeconfig, proved, "-m", "please")
    assert refused.exit_code != 0
    assert (
        "provisioner-administrator" in f"{refused.output}{refused.exception!r}{getattr(refused.exception, 'hint', '')}"
    )
    for name in ("controller", "orders", "power", "health", "join"):
        with pytest.raises(Refused, match=r"may not write attestation|cannot patch resource"):
            account(name).patch(of(Server), proved, {"status": {"attestation": None}}, subresource="status")
    assert cluster.read(Server, proved).status.attestation is not None
    assert told(cluster, proved) == []


@pytest.mark.parametrize(
    "status",
    [
        {"address": "10.99.0.8"},
        {"attestation": {"firmwareProfile": "another"}},
        {"attestation": {"firmwareProfile": None}},
        {"attestation": None, "address": None},
        {"attestation": None, "nodeRef": "another"},
    ],
)
def test_an_administrator_writes_nothing_else_of_a_servers_status(
    administrator_kubeconfig: Path, cluster: Cluster, proved: str, status: dict[str, Any]
) -> None:
    adele = Cluster.connect(administrator_kubeconfig)
    with pytest.raises(Refused, match=r"take status\.attestation of Server .* away and write nothing else"):
        adele.patch(of(Server), proved, {"status": status}, subresource="status")
    assert encode(cluster.read(Server, proved))["status"]["attestation"] == PROVED
    adele.patch(of(Server), proved, {"status": {"attestation": None}}, subresource="status")


@pytest.mark.parametrize(
    "change",
    [
        {"message": "somebody else took back what it had proved"},
        {"reason": "JoinConfigurationIssued"},
        {"type": "Normal"},
        {"metadata": {"name": "forged", "namespace": "kube-system"}, "involvedObject": {"namespace": "kube-system"}},
    ],
)
def test_an_administrator_writes_no_other_event_than_of_what_was_forgotten_in_its_own_name(
    administrator_kubeconfig: Path, cluster: Cluster, proved: str, change: dict[str, Any]
) -> None:
    forgetting = decide_forgetting(cluster.read(Server, proved), None, key=False)
    event = forget_event(forgetting, "adele", "firmware 2.7", datetime.now(UTC), proved)
    adele = Cluster.connect(administrator_kubeconfig)
    forged = event | change | {"involvedObject": event["involvedObject"] | change.get("involvedObject", {})}
    with pytest.raises(Refused, match="and no others"):
        adele.create(EVENTS, forged)
    adele.create(EVENTS, event)
    assert told(cluster, proved) == ["adele took back what it had proved and shown of itself: firmware 2.7"]
