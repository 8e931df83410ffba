"""Machines with TPMs at a join service, without a cluster: what an agent sends, and an API server's objects in memory.

The TPMs are those of tests/attestation: a fake in Python, whose quotes and credentials are a real TPM's form.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from provisioner.api.images.image import Image, Measurements
from provisioner.api.machinery.codec import decode, encode
from provisioner.api.machinery.errors import Conflict
from provisioner.api.machinery.meta import Resource
from provisioner.api.machinery.values import SecretBytes
from provisioner.api.servers.firmware_profile import FirmwareProfile
from provisioner.api.servers.server import Server
from provisioner.attestation.challenge import ChallengeKeys, IssuedChallenge
from provisioner.attestation.judge import Evidence
from provisioner.join.admission.attestation import VERIFIERS
from provisioner.join.admission.configuration import JoinConfiguration, JoinSettings, SealedConfiguration
from provisioner.join.admission.service import Answer, JoinService
from provisioner.join.admission.tpm.firmware import learned_profile
from provisioner.join.admission.tpm.verifier import TpmVerifier
from tests.attestation.fake_tpm import FakeTpm
from tests.attestation.firmware_log import INITRD, IPXE, KERNEL, LOAD_OPTIONS, LoggedEvent
from tests.attestation.machine import FIRMWARE, FakeMachine, digest_of
from tests.cluster.fake_events import FakeEvents
from tests.join import samples

Lie = Callable[[Evidence], Evidence]
NAME: Final = "r01-u01"


def _b64(data: bytes) -> str:
    return b64encode(data).decode()


@dataclass
class Agent:
    """The agent of a machine with a TPM: what it sends, and what it can read."""

    machine: FakeMachine = field(default_factory=lambda: FakeMachine(FakeTpm()))
    key: str = samples.KEY
    secret: bytes = b""
    nonce: bytes = b""
    boot_id: str = samples.BOOT_ID

    @classmethod
    def booted(cls, *events: LoggedEvent, key: str = samples.KEY) -> Agent:
        return cls(FakeMachine(FakeTpm(), events or None), key)

    def shown(self) -> dict[str, Any]:
        """The evidence of the first request."""
        tpm = self.machine.tpm
        return {
            "type": "TPM2",
            "endorsementKey": _b64(tpm.endorsement.marshalled),
            "attestationKey": _b64(tpm.attestation.marshalled),
        }

    def answered(self, challenge: Mapping[str, Any], lie: Lie = lambda honest: honest) -> dict[str, Any]:
        """The evidence of the second. Raises: ValueError if the TPM cannot open the credential."""
        blob, encrypted, nonce, state = (
            b64decode(challenge[each]) for each in ("credentialBlob", "encryptedSecret", "nonce", "state")
        )
        self.secret, self.nonce = self.machine.tpm.activate(blob, encrypted), nonce
        issued = IssuedChallenge(
            challenge_id=b"", credential_blob=blob, encrypted_secret=encrypted, nonce=nonce, state=state
        )
        given = self.machine.answer(issued, lie)
        return {
            **self.shown(),
            "state": challenge["state"],
            "activation": _b64(given.activation),
            "quote": _b64(given.quote),
            "signature": _b64(given.signature),
            "pcrValues": {str(pcr): value.hex() for pcr, value in given.pcr_values.items()},
            "eventLog": _b64(given.event_log),
        }

    def opened(self, answer: SealedConfiguration, server: str = NAME) -> dict[str, Any]:
        """The configuration, by the protocol's definition and nothing of the service's. Raises: InvalidTag."""
        sealed = answer.to_wire()["sealed"]
        assert sealed["type"] == "A256GCM"
        key = HKDF(SHA256(), 32, self.nonce, b"provisioner/join/configuration").derive(self.secret)
        plain = AESGCM(key).decrypt(b64decode(sealed["nonce"]), b64decode(sealed["ciphertext"]), server.encode())
        read: dict[str, Any] = json.loads(plain)
        return read


class FakeJoinCluster:
    """A fake of the API server, with its resourceVersions and what server-side apply makes of one manager's status."""

    def __init__(self, *resources: Resource, node: Mapping[str, Any]) -> None:
        self.objects = {(each.KIND.kind, each.name): encode(each) | {"status": _status(each)} for each in resources}
        self.node = dict(node)
        self.secrets: list[str] = []
        self.version = 100

    def find(self, type_: Any, name: str, *, namespace: str | None = None) -> Any:
        if type_.kind == "Node":
            return self.node
        return self.objects.get((type_.kind, name))

    def read(self, kind: type[Any], name: str) -> Any:
        return decode(kind, self.objects[(kind.KIND.kind, name)])

    def read_all(self, kind: type[Any]) -> list[Any]:
        return [decode(kind, body) for (each, _), body in self.objects.items() if each == kind.KIND.kind]

    def apply_status(
        self, kind: type[Any], name: str, status: Mapping[str, Any], *, manager: str, resource_version: str | None
    ) -> None:
        body = self.objects[(kind.KIND.kind, name)]
        if resource_version != body["metadata"]["resourceVersion"]:
            raise Conflict("it was written meanwhile")
        own = {"Joined", "Attested", "CredentialContested"}
        kept = [each for each in body["status"].get("conditions", []) if each["type"] not in own]
        before = {key: value for key, value in body["status"].items() if key not in ("attestation", "credentials")}
        approved = {k: v for k, v in (before.get("join") or {}).items() if k.startswith("certificate")}
        given = {**status, "join": {**approved, **status["join"]}, "conditions": [*kept, *status["conditions"]]}
        self.version += 1
        metadata = {**body["metadata"], "resourceVersion": str(self.version)}
        self.objects[(kind.KIND.kind, name)] = {**body, "metadata": metadata, "status": {**before, **given}}

    def create(self, type_: Any, body: Mapping[str, Any], *, namespace: str | None = None) -> None:
        name = body["metadata"]["name"]
        if type_.kind == "Secret":
            self.secrets.append(name)
            return
        if (type_.kind, name) in self.objects:
            raise Conflict("it is there already")
        self.objects[(type_.kind, name)] = dict(body)

    def delete(self, type_: Any, name: str, *, namespace: str | None = None) -> bool:
        found = name in self.secrets
        self.secrets = [each for each in self.secrets if each != name]
        return found


def _status(resource: Resource) -> dict[str, Any]:
    return dict(encode(resource).get("status") or {})


def measured_image() -> Image:
    """The Image that the machines of tests/attestation boot."""
    plain = samples.image()
    kernel = Measurements(kernel_authenticode_sha256=digest_of(KERNEL))
    stage1 = replace(plain.spec.stage1, sha256=digest_of(INITRD))
    return replace(plain, spec=replace(plain.spec, stage1=stage1, measurements=kernel))


def approved_firmware() -> FirmwareProfile:
    """What these machines' firmware measures, and an administrator has approved."""
    learned = learned_profile(FIRMWARE)
    return replace(learned, spec=replace(learned.spec, approved=True))


class Desk:
    """A join service (of as many replicas as are asked for) before one server whose boot is ordered."""

    def __init__(
        self,
        *,
        attestation: str = "Required",
        registered: Agent | None = None,
        firmware: FirmwareProfile | None = None,
        image: Image | None = None,
        authorities: tuple[Any, ...] = (),
        **server: Any,
    ) -> None:
        spec = samples.spec(
            endorsement_key_sha256=str(registered.machine.identity.registered) if registered is not None else None
        )
        self.now: datetime = samples.NOW
        self.events = FakeEvents()
        self.current_key = SecretBytes(b"k" * 32)
        self.keys = ChallengeKeys(self.current_key)
        self.authorities = authorities
        profiles = [firmware] if firmware is not None else []
        self.cluster = FakeJoinCluster(
            samples.server(spec=spec, status=samples.status(**server)),
            samples.pool(attestation=attestation),
            image or measured_image(),
            *profiles,
            node=samples.node(),
        )
        self.replica = self.new_replica()

    def new_replica(self) -> JoinService:
        cluster: Any = self.cluster
        tpm = TpmVerifier(
            keys=lambda: self.keys,
            profiles=lambda: cluster.read_all(FirmwareProfile),
            load_options=lambda server, pool, image: [digest_of(b"\0" * 32), digest_of(LOAD_OPTIONS)],
            authorities=self.authorities,
            boot_programs={digest_of(IPXE): "iPXE"},
        )
        return JoinService(
            cluster,
            JoinSettings(api_server_url="https://10.80.0.1:6443", cluster_ca="-----BEGIN CERTIFICATE-----\n"),
            find_server=lambda mac: NAME,
            recorder=self.events,
            now=lambda: self.now,
            verifiers={**VERIFIERS, "TPM2": tpm},
            monotonic=lambda: self.now.timestamp(),
        )

    def ask(
        self,
        evidence: Mapping[str, Any] | None = None,
        *,
        key: str = samples.KEY,
        address: str = samples.ADDRESS,
        boot_id: str = samples.BOOT_ID,
    ) -> Answer:
        request = samples.request(evidence=dict(evidence or {"type": "None"}), requestKey=key, bootID=boot_id)
        return self.replica.join(request, address)

    def challenged(self, agent: Agent) -> Mapping[str, Any]:
        answer = self.ask(agent.shown(), key=agent.key, boot_id=agent.boot_id)
        challenge: Mapping[str, Any] = getattr(answer, "challenge", {})
        assert challenge, answer
        return challenge

    def joins(self, agent: Agent, lie: Lie = lambda honest: honest) -> Answer:
        """Both requests of an agent."""
        return self.ask(agent.answered(self.challenged(agent), lie), key=agent.key, boot_id=agent.boot_id)

    def passes(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def server(self) -> Server:
        server: Server = self.cluster.read(Server, NAME)
        return server

    def change(self, **status: Any) -> None:
        """As another controller writes the status."""
        self._write(replace(self.server(), status=replace(self.server().status, **status)))

    def register(self, key: str | None) -> None:
        self._write(samples.with_spec(self.server(), endorsement_key_sha256=key))

    def without_bmc(self) -> None:
        self._write(samples.with_spec(self.server(), bmc=None))

    def _write(self, server: Server) -> None:
        self.cluster.objects[("Server", NAME)] = encode(server) | {"status": _status(server)}


def is_handed_out(answer: Answer) -> bool:
    return isinstance(answer, JoinConfiguration | SealedConfiguration)
