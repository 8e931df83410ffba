"""A FirmwareProfile that is named after one content and has another.

Played: who had a boot host's account for a while, and wrote down what machines have never measured.
docs/threat-model.md, "Who is not the machine".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from provisioner.api import FirmwareProfile, Server
from provisioner.api.machinery.codec import encode, to_json
from provisioner.api.machinery.errors import Conflict, NotFound
from provisioner.api.machinery.meta import ObjectMeta
from provisioner.api.servers.attestation import AttestationStatus, SeenMachine
from provisioner.api.servers.firmware_profile import FirmwareEvent
from provisioner.api.servers.server import ServerSpec
from provisioner.cli.kubectl import attestation_command, learned_profile
from provisioner.cli.kubectl.attestation_command import carry_out, decide_approval
from provisioner.cli.kubectl.learned_profile import read_profile
from provisioner.cli.main import kubectl
from provisioner.cli.why.identity import identity
from provisioner.cli.why.subject import read_subject
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import of
from provisioner.join.admission.admit import NotYet
from provisioner.join.admission.tpm import firmware
from tests.attacks.test_forgotten_proof import KEY, administrator_kubeconfig
from tests.attestation.firmware_log import BootParts, a_boot, sha256
from tests.join.attesting import Agent, Desk, approved_firmware, is_handed_out

__all__ = ["administrator_kubeconfig"]

IMPLANT = sha256(b"an implant")
FALSE_NAME = pytest.mark.parametrize("lie", ["another event", "a register that is not judged", "an event more"])


def falsified(profile: FirmwareProfile, lie: str = "another event") -> FirmwareProfile:
    """Under its name another content."""
    spec = profile.spec
    changed = {
        "another event": replace(spec, events=(replace(spec.events[0], digest=IMPLANT.hex()), *spec.events[1:])),
        "a register that is not judged": replace(spec, judged=(0,)),
        "an event more": replace(spec, events=(*spec.events, FirmwareEvent(pcr=4, digest=IMPLANT.hex(), what="iPXE"))),
    }
    return replace(profile, spec=changed[lie])


def implanted() -> Agent:
    """A machine whose firmware starts a program that is nobody's before iPXE."""
    return Agent.booted(*a_boot(BootParts(ipxe=IMPLANT)))


def joins(profile: FirmwareProfile) -> bool:
    agent = implanted()
    return is_handed_out(Desk(registered=agent, firmware=profile).joins(agent))


def test_a_profile_with_the_name_of_another_content_lets_no_machine_in() -> None:
    assert not joins(falsified(approved_firmware(), "an event more"))
    honest = Agent()
    assert is_handed_out(Desk(registered=honest, firmware=approved_firmware()).joins(honest))


def test_a_profile_with_the_name_of_another_content_succeeds_without_the_digest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(firmware, "find_false_name", lambda profile: None)
    assert joins(falsified(approved_firmware(), "an event more"))


def test_a_profile_whose_name_a_person_has_chosen_may_have_any_content() -> None:
    learned = falsified(approved_firmware(), "an event more")
    assert joins(replace(learned, metadata=ObjectMeta(name="model-a-with-our-tool")))


@FALSE_NAME
def test_a_machine_does_not_wait_for_the_approval_of_what_it_has_not_measured(lie: str) -> None:
    """It measures what the profile's name says; the profile was there before, with another content."""
    agent = Agent()
    waits = replace(approved_firmware().spec, approved=False)
    false = falsified(replace(approved_firmware(), spec=waits), lie)
    desk = Desk(registered=agent, firmware=false)
    answer = desk.joins(agent)
    assert isinstance(answer, NotYet)
    assert f"FirmwareProfile {false.name} has the content of learned-" in answer.message
    assert f"kubectl delete firmwareprofile {false.name}: the boot host writes it again" in answer.message
    assert "attestation forget" not in answer.message
    attested = desk.server().status.attestation
    assert attested is not None
    assert attested.pending is not None
    assert attested.pending.firmware_profile is None, "nobody is asked to approve it"


@pytest.fixture
def waiting(cluster: Cluster, unique: str) -> Iterator[Server]:
    """A server whose machine has shown, as the join service says, the firmware of approved_firmware."""
    mac = "52:54:" + ":".join(unique[1:9][at : at + 2] for at in (0, 2, 4, 6))
    spec = ServerSpec(boot_mac_address=mac, endorsement_key_sha256=KEY)
    cluster.create(of(Server), encode(Server(metadata=ObjectMeta(name=unique), spec=spec)))
    name = approved_firmware().name
    seen = SeenMachine(endorsement_key_sha256=KEY, firmware_profile=name, time="2026-03-01T11:00:00Z")
    status = {"attestation": to_json(AttestationStatus(pending=seen))}
    cluster.apply_status(Server, unique, status, manager="provisioner-join")
    yield cluster.read(Server, unique)
    cluster.delete(of(Server), unique)
    cluster.delete(of(FirmwareProfile), name)


def written(cluster: Cluster, profile: FirmwareProfile) -> None:
    waits = replace(profile, spec=replace(profile.spec, approved=False))
    cluster.create(of(FirmwareProfile), encode(waits))


def approve(kubeconfig: Path, server: str) -> Result:
    arguments = [server, "--firmware", approved_firmware().name, "--kubeconfig", str(kubeconfig)]
    return CliRunner().invoke(kubectl, ["attestation", "approve", *arguments])


def why(cluster: Cluster, server: Server) -> str:
    return "\n".join(identity(read_subject(cluster, server, None, datetime.now(UTC))))


def is_approved(cluster: Cluster) -> bool:
    return cluster.read(FirmwareProfile, approved_firmware().name).spec.approved


@FALSE_NAME
def test_a_profile_with_the_name_of_another_content_is_not_approved(
    lie: str, administrator_kubeconfig: Path, cluster: Cluster, waiting: Server
) -> None:
    written(cluster, falsified(approved_firmware(), lie))
    refused = approve(administrator_kubeconfig, waiting.name)
    assert refused.exit_code != 0
    said = f"{refused.output}{refused.exception}{getattr(refused.exception, 'hint', '')}"
    assert "somebody has changed or invented it" in said
    assert "kubectl delete firmwareprofile" in said
    assert not is_approved(cluster)
    assert "somebody has changed or invented it" in why(cluster, waiting)
    assert "attestation approve" not in why(cluster, waiting), "it would be refused"
    cluster.delete(of(FirmwareProfile), approved_firmware().name)
    written(cluster, approved_firmware())
    done = approve(administrator_kubeconfig, waiting.name)
    assert (done.exit_code, is_approved(cluster)) == (0, True), done.output


def test_a_profile_with_the_name_of_another_content_is_approved_without_the_digest(
    administrator_kubeconfig: Path, cluster: Cluster, waiting: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learned_profile, "find_false_name", lambda profile: None)
    written(cluster, falsified(approved_firmware()))
    assert approve(administrator_kubeconfig, waiting.name).exit_code == 0
    assert is_approved(cluster)


def test_who_approves_a_profile_that_was_deleted_reads_that_it_is_written_again(
    administrator_kubeconfig: Path, cluster: Cluster, waiting: Server
) -> None:
    name = approved_firmware().name
    refused = approve(administrator_kubeconfig, waiting.name)
    assert refused.exit_code != 0
    assert isinstance(refused.exception, NotFound)
    for said in (str(refused.exception), why(cluster, waiting)):
        assert f"FirmwareProfile {name} was deleted since the machine at Server {waiting.name} showed it" in said
        assert "the boot host writes it again when the machine next asks to join" in said
        assert "create it" not in said
    written(cluster, approved_firmware())
    assert f"attestation approve {waiting.name} --firmware {name}" in why(cluster, waiting)


def test_a_profile_that_is_exchanged_between_the_look_and_the_approval_is_not_approved(
    cluster: Cluster, waiting: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(cluster, approved_firmware())

    def then_exchanged(cluster: Cluster, name: str, server: str) -> FirmwareProfile:
        found = read_profile(cluster, name, server)
        cluster.delete(of(FirmwareProfile), name)
        written(cluster, falsified(approved_firmware()))
        return found

    monkeypatch.setattr(attestation_command, "read_profile", then_exchanged)
    with pytest.raises(Conflict):
        carry_out(cluster, waiting, decide_approval(waiting, None, firmware=approved_firmware().name))
    assert not is_approved(cluster)
