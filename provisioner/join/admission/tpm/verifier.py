"""Evidence of type TPM2 against what the cluster knows: the registered key, the Image, approved firmware.

Two requests: the first shows the keys and gets a challenge; the second answers it. Nothing is remembered in between:
the state that the machine brings back is sealed, and bound to this fetch. A fetch is an order together with the token
that was handed out before it, so each answer counts once: what it brought the machine makes its state one of another
fetch. Who repeats an answer, or brings one of another fetch, gets a new challenge and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from cryptography import x509

from provisioner.api.images.image import Image
from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.meta import rfc3339_micro
from provisioner.api.machinery.values import Sha256Digest
from provisioner.api.pools.node_pool import NodePool
from provisioner.api.servers.attestation import AttestationStatus, KnownBy, SeenMachine
from provisioner.api.servers.firmware_profile import FirmwareProfile
from provisioner.api.servers.server import BootOrder, Server
from provisioner.attestation.boot import ExpectedBoot
from provisioner.attestation.challenge import (
    ChallengeBinding,
    ChallengeKeys,
    ChallengeState,
    issue,
    open_,
    public_area_sha256,
)
from provisioner.attestation.continuation import HAND_OVER_PCR, judge_continuation, pcr_digest
from provisioner.attestation.endorsement import Vouched, check_certificates, endorsement_key_sha256
from provisioner.attestation.judge import (
    ChainPolicy,
    ConfirmedLog,
    ConfirmedQuote,
    Evidence,
    EvidenceAccepted,
    KnownIdentity,
    OfferedKeys,
    confirm_log,
    confirm_quote,
    judge_evidence,
    judge_keys,
    parse_keys,
)
from provisioner.attestation.keys import check_attestation_key, check_endorsement_key
from provisioner.attestation.measurements import ImageMeasurements, learn_firmware, why_log_shows_no_boot
from provisioner.attestation.outcome import EvidenceRefused, Reason
from provisioner.join.admission.attestation import (
    Challenge,
    EvidenceQuestion,
    Pending,
    Proof,
    Proven,
    Seal,
    Unproven,
    known_endorsement_key,
)
from provisioner.join.admission.successor import Successor
from provisioner.join.admission.tpm.before import find_predecessor, reset_count_before
from provisioner.join.admission.tpm.firmware import (
    MAX_LEARNED,
    MAX_LEARNED_OF_STRANGERS,
    approved,
    find_false_name,
    find_ignored,
    learned_profile,
    to_learn_again,
    to_prove_again,
)
from provisioner.join.admission.tpm.wire import ChallengeAnswer, TpmEvidence, challenge_to_wire, read_evidence
from provisioner.rules.bootability import REMEDY, is_measured

_UNKNOWN_FIRMWARE: Final = frozenset(
    {Reason.FIRMWARE_NOT_APPROVED, Reason.FIRMWARE_MISMATCH, Reason.BOOT_PROGRAM_MISMATCH}
)


@dataclass(frozen=True, kw_only=True)
class TpmVerifier:
    """Judges for every server.

    keys: those that seal challenges now. profiles: all FirmwareProfiles. authorities: of vendors' TPMs; without any a
    key must be registered or approved. load_options: digests of the command lines that the server may have been given.
    """

    keys: Callable[[], ChallengeKeys]
    profiles: Callable[[], Sequence[FirmwareProfile]]
    load_options: Callable[[Server, NodePool, Image], Sequence[Sha256Digest]]
    authorities: tuple[x509.Certificate, ...] = ()
    boot_programs: Mapping[Sha256Digest, str] = field(default_factory=dict)
    random: Callable[[int], bytes] = os.urandom

    def verify(self, question: EvidenceQuestion) -> Proof:
        """Raises: Retryable while there is no key for challenges."""
        try:
            offered = read_evidence(question.request.evidence)
        except Refused as error:
            return Unproven(str(error), offered=True, reason=Reason.EVIDENCE_MALFORMED.value)
        keys = parse_keys(offered.endorsement_key, offered.attestation_key, offered.certificates)
        if isinstance(keys, EvidenceRefused):
            return _refused(keys)
        for reason, unfit in (
            (Reason.ENDORSEMENT_KEY_UNFIT, check_endorsement_key(keys.endorsement)),
            (Reason.ATTESTATION_KEY_UNFIT, check_attestation_key(keys.attestation)),
        ):
            if unfit is not None:
                return _refused(EvidenceRefused(reason, unfit))
        identity = self._identity(question, keys)
        judged = judge_keys(keys, identity, question.now)
        is_unknown = isinstance(judged, EvidenceRefused) and judged.reason is Reason.ENDORSEMENT_KEY_UNKNOWN
        if isinstance(judged, EvidenceRefused) and not is_unknown:
            return _refused(judged)
        challenged = _challenged(question, keys)
        state = self._open(offered, challenged, question)
        if state is None or offered.answer is None:
            issued = issue(
                self.keys(),
                challenged,
                keys.endorsement,
                keys.attestation,
                now=question.now.timestamp(),
                random=self.random,
            )
            return Challenge(challenge_to_wire(issued))
        shown = _Shown(question, keys, _evidence(keys, offered.answer), state, identity)
        return shown.pending_key(self.profiles()) if is_unknown else self._judge(shown)

    def _identity(self, question: EvidenceQuestion, keys: OfferedKeys) -> KnownIdentity:
        """A certificate counts where no key is known yet. One that leads nowhere is as none: a person decides."""
        registered = known_endorsement_key(question.server)
        counts = registered is None and _authority(self.authorities, keys, question) is not None
        return KnownIdentity(
            registered=registered,
            authorities=self.authorities,
            chain=ChainPolicy.SUFFICES if counts else ChainPolicy.IGNORED,
        )

    def _open(
        self, offered: TpmEvidence, challenged: ChallengeBinding, question: EvidenceQuestion
    ) -> ChallengeState | None:
        if offered.answer is None:
            return None
        opened = open_(self.keys(), offered.answer.state, challenged, now=question.now.timestamp())
        return None if isinstance(opened, EvidenceRefused) else opened

    def _judge(self, shown: _Shown) -> Proof:
        question = shown.question
        if question.successor is not None:
            return shown.continued(question.successor)
        if shown.why_no_boot is not None:
            return shown.without_boot(shown.why_no_boot)
        image = _measurements(question.image)
        if image is None:
            return shown.pending(
                "ImageNotMeasured",
                f"Image {question.image.name} does not say what a TPM shows of it, or no boot host has compared that "
                "with its kernel yet; see its condition Available, or publish it again",
            )
        profiles = self.profiles()
        firmware = approved(profiles)
        outcome: EvidenceAccepted | EvidenceRefused = EvidenceRefused(
            Reason.COMMAND_LINE_MISMATCH, f"no command line can be made for server {question.server.name}"
        )
        for options in self.load_options(question.server, question.pool, question.image):
            expected = ExpectedBoot(
                image=image,
                load_options=options,
                firmware=firmware,
                boot_programs=self.boot_programs,
                reset_count_above=reset_count_before(question, endorsement_key_sha256(shown.keys.endorsement)),
            )
            outcome = judge_evidence(shown.evidence, shown.identity, shown.state, expected, question.now)
            if not isinstance(outcome, EvidenceRefused) or outcome.reason is not Reason.COMMAND_LINE_MISMATCH:
                break
        if isinstance(outcome, EvidenceAccepted):
            counts = (outcome.tpm_reset_count, outcome.tpm_restart_count) if outcome.tpm_counts_are_true else None
            return shown.proven(outcome.firmware, outcome.firmware_digest, counts)
        if outcome.reason not in _UNKNOWN_FIRMWARE:
            return _refused(outcome)
        if not _was_proven(question.server):
            return shown.pending_firmware(outcome, image, profiles)
        ignored = find_ignored(profiles)
        if ignored is None:
            return _refused(outcome)
        remedy = to_prove_again(ignored.name, question.server.name)
        return _refused(replace(outcome, message=f"{outcome.message}; {find_false_name(ignored)}; {remedy}"))


@dataclass(frozen=True)
class _Shown:
    """An answer whose challenge was ours, and what comes of it."""

    question: EvidenceQuestion
    keys: OfferedKeys
    evidence: Evidence
    state: ChallengeState
    identity: KnownIdentity

    def proven(self, profile: str | None, firmware_digest: str | None, counts: tuple[int, int] | None) -> Proven:
        """counts: the TPM's resets and restarts, if they are its own numbers."""
        reset_count, restart_count = counts or (None, None)
        known_by = self._known_by()
        key = endorsement_key_sha256(self.keys.endorsement)
        record = AttestationStatus(
            endorsement_key_sha256=key,
            attestation_key_sha256=self.state.challenged.attestation_key_sha256,
            known_by=known_by,
            firmware_profile=profile,
            firmware_digest=firmware_digest,
            pcr_digest=pcr_digest(self.evidence.pcr_values),
            pcr14="sha256:" + self.evidence.pcr_values[HAND_OVER_PCR].hex(),
            tpm_reset_count=reset_count,
            tpm_restart_count=restart_count,
            order_id=self.question.order.id,
            boot_id=self.question.request.boot_id,
            time=rfc3339_micro(self.question.now),
        )
        return Proven(f"TPM2, endorsement key {key}, {known_by}", record, self._seal())

    def continued(self, successor: Successor) -> Proof:
        """Of a kexec: what was proved of the boot before holds on, if this is what that one has handed over to."""
        question = self.question
        predecessor = find_predecessor(question, successor)
        if predecessor is None:
            return self.pending(
                "PredecessorUnproven",
                f"the system that started this one by kexec on server {question.server.name} had proved nothing; have "
                "the server booted by its BMC",
            )
        confirmed = self._confirmed_quote()
        if isinstance(confirmed, EvidenceRefused):
            return _refused(confirmed)
        if isinstance(predecessor, EvidenceRefused):
            return _refused(predecessor)
        refused = judge_continuation(confirmed, self.evidence, predecessor.boot, predecessor.hand_overs)
        if refused is not None:
            return _refused(refused)
        clock = confirmed.quote.clock
        return self.proven(
            predecessor.firmware_profile, predecessor.firmware_digest, (clock.reset_count, clock.restart_count)
        )

    def pending_key(self, profiles: Sequence[FirmwareProfile]) -> Proof:
        key = endorsement_key_sha256(self.keys.endorsement)
        message = (
            f"the machine has a TPM with endorsement key {key}, which is not registered{REMEDY}compare it with the "
            f"packing list, then: kubectl provision attestation approve {self.question.server.name} --key {key}"
        )
        image = _measurements(self.question.image)
        if image is None or (self.why_no_boot is not None and not _was_proven(self.question.server)):
            return self.pending(Reason.ENDORSEMENT_KEY_UNKNOWN.value, message)
        return self._pending_log(Reason.ENDORSEMENT_KEY_UNKNOWN.value, lambda _: message, image, profiles)

    def pending_firmware(
        self, refused: EvidenceRefused, image: ImageMeasurements, profiles: Sequence[FirmwareProfile]
    ) -> Proof:
        def message(profile: str | None) -> str:
            if profile is None:
                return (
                    f"{refused.message}; {MAX_LEARNED} FirmwareProfiles wait for approval already: look at them, and "
                    "delete those that are nobody's"
                )
            return (
                f"{refused.message}{REMEDY}look at FirmwareProfile {profile}, which was learned of it, then: "
                f"kubectl provision attestation approve {self.question.server.name} --firmware {profile}"
            )

        return self._pending_log(Reason.FIRMWARE_NOT_APPROVED.value, message, image, profiles)

    def _pending_log(
        self,
        reason: str,
        message: Callable[[str | None], str],
        image: ImageMeasurements,
        profiles: Sequence[FirmwareProfile],
    ) -> Proof:
        if self.question.successor is not None:
            # Its firmware was looked at when it booted.
            return self.pending(reason, message(None))
        log = self._confirmed_log()
        if isinstance(log, EvidenceRefused):
            return _refused(log)
        try:
            learned = learned_profile(learn_firmware("learned", log.log, image.kernel))
        except Refused as error:
            return Unproven(str(error), offered=True, reason=Reason.MEASUREMENT_UNEXPECTED.value)
        present = next((each for each in profiles if each.name == learned.name), None)
        waiting = sum(not each.spec.approved for each in profiles)
        is_stranger = reason == Reason.ENDORSEMENT_KEY_UNKNOWN.value
        false_name = find_false_name(present) if present is not None else None
        if false_name is not None:
            words = message(None) if is_stranger else f"{false_name}; {to_learn_again(learned.name)}"
            return Pending(reason, words, self._seen(None), seal=self._seal())
        is_kept = present is not None or waiting < (MAX_LEARNED_OF_STRANGERS if is_stranger else MAX_LEARNED)
        name = learned.name if is_kept and not (present is not None and present.spec.approved) else None
        return Pending(
            reason,
            message(name),
            self._seen(name),
            learned=learned if present is None and is_kept else None,
            seal=self._seal(),
        )

    @cached_property
    def why_no_boot(self) -> str | None:
        """Why the log cannot show which kernel the firmware started. That is no evidence of a wrong one."""
        return why_log_shows_no_boot(self.evidence.event_log) if self.question.successor is None else None

    def without_boot(self, why: str) -> Proof:
        """Of the TPM keys, activation and quote are known; of what it booted nothing. Who has proved its firmware, and
        shows it no more, hides what it booted."""
        reason, server = Reason.EVENT_LOG_MISSING, self.question.server
        if not _was_proven(server):
            return self.pending(
                reason.value,
                f"the firmware of server {server.name} {why}, so nothing says what it booted; a newer firmware may, or "
                "booting by UEFI with TPM 2.0 and its SHA-256 bank on; else a pool with attestation Optional, where it "
                "joins and proves nothing",
            )
        confirmed = self._confirmed_quote()
        if isinstance(confirmed, EvidenceRefused):
            return _refused(confirmed)
        message = (
            f"the firmware of server {server.name} {why}, and was proved by one before: find out who changed it; if "
            f"you did: kubectl provision attestation forget {server.name}"
        )
        return _refused(EvidenceRefused(reason, message))

    def pending(self, reason: str, message: str) -> Proof:
        """What was started by kexec is in no log, and a log may show no boot: then the quote alone holds."""
        is_without = self.question.successor is not None or self.why_no_boot is not None
        confirmed = self._confirmed_quote() if is_without else self._confirmed_log()
        if isinstance(confirmed, EvidenceRefused):
            return _refused(confirmed)
        return Pending(reason, message, self._seen(None), seal=self._seal())

    def _confirmed_quote(self) -> ConfirmedQuote | EvidenceRefused:
        return confirm_quote(self.evidence, self._as_shown(), self.state, self.question.now)

    def _confirmed_log(self) -> ConfirmedLog | EvidenceRefused:
        return confirm_log(self.evidence, self._as_shown(), self.state, self.question.now)

    def _as_shown(self) -> KnownIdentity:
        """Whether the TPM of the shown keys confirms it, be they known or not."""
        return KnownIdentity(registered=endorsement_key_sha256(self.keys.endorsement))

    def _seen(self, profile: str | None) -> SeenMachine:
        return SeenMachine(
            endorsement_key_sha256=endorsement_key_sha256(self.keys.endorsement),
            authority=_authority(self.identity.authorities, self.keys, self.question),
            firmware_profile=profile,
            is_registered=self._is_registered(),
            time=rfc3339_micro(self.question.now),
        )

    def _is_registered(self) -> bool:
        """Whether the key was registered before it was shown."""
        server, key = self.question.server, endorsement_key_sha256(self.keys.endorsement)
        before = (server.status.attestation or AttestationStatus()).pending
        was_unknown = before is not None and before.endorsement_key_sha256 == key and not before.is_registered
        return server.spec.endorsement_key_sha256 == key and not was_unknown

    def _known_by(self) -> KnownBy:
        server = self.question.server
        before = server.status.attestation or AttestationStatus()
        registered = server.spec.endorsement_key_sha256
        if registered is None:
            return "Certificate"
        was_approved = before.known_by == "Approved" and before.endorsement_key_sha256 == registered
        return "Registered" if self._is_registered() and not was_approved else "Approved"

    def _seal(self) -> Seal:
        return Seal(self.state.secret, self.state.nonce, endorsement_key_sha256(self.keys.endorsement))


def fetch_id(server: Server, order: BootOrder) -> str:
    """Names one fetch of the join configuration: the order, and the token that was handed out before."""
    join = server.status.join
    return f"{order.id}/{(join.token_id if join is not None else None) or ''}"


def _challenged(question: EvidenceQuestion, keys: OfferedKeys) -> ChallengeBinding:
    return ChallengeBinding(
        server_uid=question.server.metadata.uid or "",
        order_id=fetch_id(question.server, question.order),
        boot_id=question.request.boot_id,
        request_key_sha256=question.request.request_key_sha256,
        endorsement_key_sha256=public_area_sha256(keys.endorsement),
        attestation_key_sha256=public_area_sha256(keys.attestation),
    )


def _was_proven(server: Server) -> bool:
    return server.status.attestation is not None and server.status.attestation.firmware_profile is not None


def _measurements(image: Image) -> ImageMeasurements | None:
    """None if the Image has none, or nobody has compared them with the kernel: no signature covers them."""
    measured = image.spec.measurements
    if measured is None or not is_measured(image):
        return None
    kernel = Sha256Digest(measured.kernel_authenticode_sha256)
    return ImageMeasurements(kernel=kernel, initrd=Sha256Digest(image.spec.stage1.sha256))


def _evidence(keys: OfferedKeys, answer: ChallengeAnswer) -> Evidence:
    return Evidence(
        keys=keys,
        activation=answer.activation,
        quote=answer.quote,
        signature=answer.signature,
        pcr_values=answer.pcr_values,
        event_log=answer.event_log,
    )


def _authority(authorities: Sequence[x509.Certificate], keys: OfferedKeys, question: EvidenceQuestion) -> str | None:
    """The vendor's authority that vouches for the endorsement key."""
    if not authorities or not keys.certificates:
        return None
    vouched = check_certificates(keys.endorsement, keys.certificates, authorities, question.now)
    return vouched.authority[:256] if isinstance(vouched, Vouched) else None


def _refused(refused: EvidenceRefused) -> Unproven:
    return Unproven(refused.message, offered=True, reason=refused.reason.value)
