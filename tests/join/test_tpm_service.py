"""A machine with a TPM at the join service with the rights that it has, on a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from provisioner.api import FirmwareProfile, Image, NodePool
from provisioner.api.machinery.codec import encode
from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.meta import ObjectMeta
from provisioner.cluster.resources import ATTESTATION_SECRETS, SECRETS, of
from provisioner.join.admission.admit import Challenged, NotYet
from provisioner.join.admission.attestation import VERIFIERS
from provisioner.join.admission.configuration import SealedConfiguration
from provisioner.join.admission.service import Answer, JoinService
from provisioner.join.admission.status import SERVICE_MANAGER
from provisioner.join.admission.tpm.firmware import learned_profile
from provisioner.join.admission.tpm.verifier import TpmVerifier
from provisioner.join.challenge_keys import SECRET_NAME, KeyRotator, read_challenge_keys
from tests.attestation.firmware_log import IPXE, LOAD_OPTIONS
from tests.attestation.machine import FIRMWARE, digest_of
from tests.join.attesting import Agent, measured_image
from tests.join.conftest import Accounts
from tests.join.world import World

LEARNED = learned_profile(FIRMWARE).name


@pytest.fixture
def measured(world: World, accounts: Accounts) -> Iterator[World]:
    """Its pool wants proof, its Image says what a TPM shows of it, and there are keys for challenges."""
    image = replace(measured_image(), metadata=ObjectMeta(name=world.name))
    world.admin.delete(of(type(image)), world.name)
    applied = world.admin.apply(encode(image), manager="tests")
    generation = applied["metadata"]["generation"]
    said = [{**each, "observedGeneration": generation} for each in encode(image)["status"]["conditions"]]
    world.admin.apply_status(Image, world.name, {"conditions": said}, manager="tests")
    world.admin.patch(of(NodePool), world.name, {"spec": {"attestation": "Required"}})
    KeyRotator(cluster=accounts.join).reconcile(SECRET_NAME)
    yield world
    world.admin.delete(of(FirmwareProfile), LEARNED)


def service(world: World) -> JoinService:
    cluster = world.service_cluster
    tpm = TpmVerifier(
        keys=lambda: read_challenge_keys(cluster),
        profiles=lambda: tuple(cluster.read_all(FirmwareProfile)),
        load_options=lambda server, pool, image: [digest_of(LOAD_OPTIONS)],
        boot_programs={digest_of(IPXE): "iPXE"},
    )
    return world.service(verifiers={**VERIFIERS, "TPM2": tpm})


def joins(world: World, agent: Agent) -> Answer:
    replica = service(world)
    challenged = replica.join(world.request(evidence=agent.shown()), world.address)
    assert isinstance(challenged, Challenged), challenged
    # Another replica takes the answer.
    return service(world).join(world.request(evidence=agent.answered(challenged.challenge)), world.address)


def test_a_machine_is_shown_approved_and_proved(measured: World) -> None:
    agent = Agent()
    key = str(agent.machine.identity.registered)
    shown = joins(measured, agent)
    assert isinstance(shown, NotYet)
    assert shown.reason == "EndorsementKeyUnknown"
    measured.change_spec(endorsement_key_sha256=key)
    measured.admin.patch(of(FirmwareProfile), LEARNED, {"spec": {"approved": True}})
    answer = joins(measured, agent)
    assert isinstance(answer, SealedConfiguration), answer
    assert agent.opened(answer, measured.name)["nodeName"] == measured.name
    status = measured.server().status
    assert status.attestation is not None
    assert (status.attestation.known_by, status.attestation.firmware_profile) == ("Approved", LEARNED)
    assert [each.token_id for each in status.credentials] == measured.tokens()


def test_the_account_of_boot_hosts_adds_to_the_record_of_credentials_and_changes_nothing_in_it(world: World) -> None:
    world.joined()
    (issued,) = world.server().status.credentials
    for forged in ([], [{"tokenID": "forged", **_rest(world)}]):
        with pytest.raises(Refused, match=r"may add to status\.credentials"):
            world.service_cluster.apply_status(
                type(world.server()), world.name, _own(world) | {"credentials": forged}, manager=SERVICE_MANAGER
            )
    world.joined()
    assert world.server().status.credentials[0] == issued
    assert len(world.server().status.credentials) == 2


def _own(world: World) -> dict[str, object]:
    """All that the service has written, but the record."""
    status = encode(world.server())["status"]
    conditions = [each for each in status["conditions"] if each["type"] in ("Joined", "Attested")]
    return {"join": status["join"], "conditions": conditions}


def _rest(world: World) -> dict[str, str]:
    return {
        "orderID": "order-1",
        "bootID": "x",
        "address": world.address,
        "evidence": "None",
        "time": "2026-01-01T00:00:00Z",
    }


def test_boot_hosts_read_the_keys_of_challenges_and_no_other_secret_there(measured: World) -> None:
    cluster = measured.service_cluster
    assert repr(read_challenge_keys(cluster)) == "***"
    for name in ("other", "challenge-keys-2"):
        with pytest.raises(Refused, match="cannot get resource"):
            cluster.get(SECRETS, name, namespace=ATTESTATION_SECRETS)
    with pytest.raises(Refused, match="cannot list resource"):
        cluster.list(SECRETS, namespace=ATTESTATION_SECRETS)
