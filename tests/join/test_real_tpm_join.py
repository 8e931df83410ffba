"""The same with a real TPM (swtpm): its own keys, its credential, its quote over what was measured into it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from provisioner.api.machinery.values import SecretBytes
from provisioner.attestation.challenge import QUOTED_PCRS, IssuedChallenge, activation_proof
from provisioner.attestation.endorsement import endorsement_key_sha256
from provisioner.attestation.judge import Evidence, KnownIdentity, OfferedKeys
from provisioner.attestation.tpm.public import PublicArea
from provisioner.join.admission.admit import Denied
from provisioner.join.admission.configuration import SealedConfiguration
from tests.attestation.firmware_log import a_boot, write_log
from tests.attestation.real_tpm import Loaded, RealTpm, ak_template, ek_template, real_tpm
from tests.join.attesting import Agent, Desk, Lie, approved_firmware

pytestmark = pytest.mark.programs


@dataclass(frozen=True)
class Keys:
    """A TPM with both keys loaded."""

    real: RealTpm
    endorsement_key: Loaded
    attestation_key: Loaded

    @property
    def endorsement(self) -> PublicArea:
        return self.endorsement_key.area

    @property
    def attestation(self) -> PublicArea:
        return self.attestation_key.area

    def activate(self, blob: bytes, encrypted: bytes) -> bytes:
        return self.real.activate(self.attestation_key, self.endorsement_key, blob, encrypted)


@dataclass(frozen=True)
class Booted:
    """A machine with that TPM, which has booted what it should."""

    tpm: Keys

    @property
    def identity(self) -> KnownIdentity:
        return KnownIdentity(registered=endorsement_key_sha256(self.tpm.endorsement))

    def answer(self, issued: IssuedChallenge, lie: Lie = lambda honest: honest) -> Evidence:
        real, keys = self.tpm.real, self.tpm
        secret = SecretBytes(keys.activate(issued.credential_blob, issued.encrypted_secret))
        quote, signature = real.quote(keys.attestation_key, issued.nonce, QUOTED_PCRS)
        return lie(
            Evidence(
                keys=OfferedKeys(keys.endorsement, keys.attestation),
                activation=activation_proof(secret, issued.nonce),
                quote=quote,
                signature=signature,
                pcr_values=real.read_pcrs(QUOTED_PCRS),
                event_log=write_log(a_boot()),
            )
        )


@pytest.fixture(scope="module")
def real() -> Iterator[RealTpm]:
    with real_tpm() as tpm:
        for event in a_boot():
            tpm.extend(event.pcr, event.digest)
        yield tpm


@pytest.mark.parametrize("kind", ["rsa", "ecc"])
def test_a_real_tpm_joins_and_reads_its_configuration(real: RealTpm, kind: str) -> None:
    keys = Keys(real, real.create_primary(ek_template(kind)), real.create_primary(ak_template(kind)))
    agent = Agent(Booted(keys))  # type: ignore[arg-type]  # has what of a FakeMachine is used
    before = Desk(registered=agent, firmware=approved_firmware())
    answer = before.joins(agent)
    assert isinstance(answer, SealedConfiguration), answer
    assert agent.opened(answer)["nodeName"] == "r01-u01"
    for key in (keys.attestation_key, keys.endorsement_key):
        real.flush(key.handle)


def test_what_ran_beside_the_log_is_noticed(real: RealTpm) -> None:
    """Runs last: a register cannot be taken back."""
    keys = Keys(real, real.create_primary(ek_template("ecc")), real.create_primary(ak_template("ecc")))
    agent = Agent(Booted(keys))  # type: ignore[arg-type]  # has what of a FakeMachine is used
    before = Desk(registered=agent, firmware=approved_firmware())
    real.extend(4, b"\1" * 32)
    answer = before.joins(agent)
    assert isinstance(answer, Denied)
    assert answer.reason == "EventLogMismatch"
