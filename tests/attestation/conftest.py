"""Real TPMs, made once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from provisioner.api.machinery.values import SecretBytes
from provisioner.attestation.challenge import QUOTED_PCRS, IssuedChallenge, activation_proof
from provisioner.attestation.judge import Evidence, OfferedKeys
from tests.attestation.firmware_log import a_boot, write_log
from tests.attestation.real_tpm import Loaded, RealTpm, real_tpm


@dataclass(frozen=True)
class RealMachine:
    """A machine with a real TPM, into which the firmware's log was measured. authority: folder of its vendor's CA."""

    tpm: RealTpm
    authority: Path
    event_log: bytes

    def load(self, template: bytes) -> Loaded:
        return self.tpm.create_primary(template)

    def values(self) -> Mapping[int, bytes]:
        return self.tpm.read_pcrs(QUOTED_PCRS)

    def answer(self, issued: IssuedChallenge, endorsement: Loaded, attestation: Loaded) -> Evidence:
        opened = self.tpm.activate(attestation, endorsement, issued.credential_blob, issued.encrypted_secret)
        quote, signature = self.tpm.quote(attestation, issued.nonce, QUOTED_PCRS)
        return Evidence(
            keys=OfferedKeys(endorsement.area, attestation.area),
            activation=activation_proof(SecretBytes(opened), issued.nonce),
            quote=quote,
            signature=signature,
            pcr_values=self.values(),
            event_log=self.event_log,
        )


@pytest.fixture(scope="session")
def booted_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealMachine]:
    authority = tmp_path_factory.mktemp("vendor")
    events = a_boot()
    with real_tpm(authority) as tpm:
        for event in events:
            tpm.extend(event.pcr, event.digest)
        yield RealMachine(tpm, authority, write_log(events))


@pytest.fixture(scope="session")
def other_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealMachine]:
    """Of another owner, and not certified by the same vendor."""
    with real_tpm() as tpm:
        yield RealMachine(tpm, tmp_path_factory.mktemp("nobody"), write_log(()))
