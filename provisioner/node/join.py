"""Ask for the join configuration until it is there, and put it where the kubelet starts from."""

from __future__ import annotations

import errno
import json
import ssl
from collections.abc import Callable, Mapping

from provisioner.node import retry
from provisioner.node.http.post import HttpResponse, post
from provisioner.node.machine.boot_facts import BootFacts

MAX_PROOFS_IN_A_ROW = 3
"""Challenges that are answered before what asks them counts as a refusal."""

MAX_WHY_LETTERS = 200

_NO_ROUTE_ERRORS = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, errno.ENETDOWN)


class SealError(Exception):
    """A sealed configuration does not open; the message says why, and nothing of what is in it."""


class NoProver:
    """The machine proves nothing of itself; `why`: for the service and its record. A prover with a TPM takes this one's
    place (`prover.py`)."""

    def __init__(self, why: str = "") -> None:
        self._why = why

    def evidence(self) -> dict[str, object]:
        """What a request begins with."""
        return why_nothing_is_proven(self._why)

    def answer(self, challenge: object) -> dict[str, object] | None:
        """Evidence for the next request, or None when this prover cannot meet the challenge."""
        return None

    def open(self, sealed: object, server: str) -> dict[str, object]:
        """The configuration that was sealed to what `answer` proved. Raises: SealError."""
        raise SealError("this machine proved nothing to which it could be sealed")


def why_nothing_is_proven(why: str) -> dict[str, object]:
    """Evidence of type None, with 200 printable characters of `why` at most."""
    return {"type": "None", **({"why": _printable(why)[:MAX_WHY_LETTERS]} if why else {})}


class JoinOutcome:
    """What one try came to: a configuration, or why not and how long to wait."""

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        asked_seconds: float | None = None,
        configuration: dict[str, object] | None = None,
        challenge: object = None,
    ) -> None:
        self.kind = kind
        self.message = message
        self.asked_seconds = asked_seconds
        self.configuration = configuration
        self.challenge = challenge


def join_request(facts: BootFacts, key: str, evidence: dict[str, object]) -> bytes:
    """The body of POST /v1/join."""
    return json.dumps(
        {
            "macAddress": facts.mac_address,
            "systemUUID": facts.system_uuid,
            "bootID": facts.boot_id,
            "imageDigest": facts.image_digest,
            "requestKey": key,
            "evidence": evidence,
        }
    ).encode()


def read_outcome(answer: HttpResponse) -> JoinOutcome:
    """Judge the service's answer. Pure."""
    try:
        body = json.loads(answer.body)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        body = {}
    if answer.status == 200 and body:
        return JoinOutcome("Joined", "the join configuration is here", configuration=body)
    reason = _printable(body.get("reason")) or f"HTTP {answer.status}"
    said = _printable(body.get("message")) or "the join service said nothing more"
    asked = _seconds(body.get("retryAfterSeconds"))
    if asked is None:
        asked = _seconds(answer.headers.get("retry-after"))
    message = f"{reason}: {said}"
    if answer.status == 401:
        return JoinOutcome(retry.REFUSED, message, challenge=body.get("challenge"))
    if answer.status in (409, 425):
        return JoinOutcome(retry.NOT_YET, message, asked_seconds=asked)
    if answer.status == 429 or answer.status >= 500 or answer.status == 200:
        return JoinOutcome(retry.NO_ANSWER, message, asked_seconds=asked)
    return JoinOutcome(retry.REFUSED, message)


def take(answered: dict[str, object], server: str, prover: NoProver, *, is_proven: bool) -> JoinOutcome:
    """What a service's configuration comes to, sealed or not.

    A proof is answered for this machine's eyes only. What comes in the clear then comes from a service that was talked
    out of it, or from somebody who has its certificate and cannot seal.
    """
    if "sealed" not in answered:
        if not is_proven:
            return JoinOutcome("Joined", "the join configuration is here", configuration=answered)
        return JoinOutcome(
            retry.REFUSED,
            "the join service answered a proof by the TPM with a configuration that is not sealed to this machine; "
            "it is not used. Does the boot host run a version that verifies TPMs?",
        )
    try:
        opened = prover.open(answered["sealed"], server)
    except SealError as error:
        return JoinOutcome(retry.REFUSED, f"the join configuration does not open: {error}")
    return JoinOutcome("Joined", "the join configuration is here", configuration=opened)


def read_failure(error: OSError) -> JoinOutcome:
    """Judge a connection that failed. Pure."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return JoinOutcome(
            retry.REFUSED,
            f"the join service's certificate is not the one that this image trusts ({error.verify_message}); either "
            "somebody else answers at its address, or the image was built for another cluster",
        )
    if error.errno in _NO_ROUTE_ERRORS:
        return JoinOutcome(retry.NO_ROUTE, "the network is not up yet")
    return JoinOutcome(retry.NO_ANSWER, f"no answer ({type(error).__name__}: {error})")


def fetch_configuration(
    facts: BootFacts,
    key: str,
    context: ssl.SSLContext,
    *,
    say: Callable[[str], None],
    tell: Callable[[str], None],
    sleep: Callable[[float], object],
    chance: Callable[[], float],
    prover: NoProver,
    learn: Callable[[], str] = lambda: "this image knows no others",
) -> dict[str, object]:
    """Try for ever; return the configuration.

    The first challenge is answered at once, those after it with a growing wait; a service that goes on asking refuses.
    Who has proven something takes only what is sealed to it; who has not, only what is not sealed.

    `learn`: asked where the service's certificate is not believed; empty if `context` believes more since, else why
    not.
    `say` prints on the console; `tell` reports a message to the boot service. Both hear of a change only once.
    """
    evidence = prover.evidence()
    last_message, last_kind, failures, proofs = "", "", 0, 0
    while True:
        try:
            body = join_request(facts, key, evidence)
            outcome = read_outcome(post(facts.join_url, body, context=context, source_address=facts.address))
        except OSError as error:
            outcome = read_failure(error)
            if isinstance(error, ssl.SSLCertVerificationError):
                why_not = learn()
                if not why_not:
                    continue
                outcome.message += f". {why_not}"
        if outcome.configuration is not None:
            outcome = take(outcome.configuration, facts.server, prover, is_proven=proofs > 0)
            if outcome.configuration is not None:
                return outcome.configuration
        if outcome.challenge is not None:
            proof = prover.answer(outcome.challenge) if proofs < MAX_PROOFS_IN_A_ROW else None
            if proof is not None:
                if proofs:
                    sleep(retry.wait_seconds(retry.NO_ANSWER, proofs, None, chance()))
                evidence, proofs = proof, proofs + 1
                continue
            if proofs:
                outcome.message += f" (after {proofs} answered challenges)"
        if proofs or outcome.kind == retry.REFUSED:
            evidence, proofs = prover.evidence(), 0
        failures = failures + 1 if outcome.kind == last_kind else 1
        if outcome.message != last_message:
            say(_words(facts, outcome))
            if outcome.kind in (retry.NOT_YET, retry.REFUSED):
                tell(outcome.message)
        last_message, last_kind = outcome.message, outcome.kind
        sleep(retry.wait_seconds(outcome.kind, failures, outcome.asked_seconds, chance()))


def report_progress(facts: BootFacts, stage: str, message: str = "", *, context: ssl.SSLContext | None = None) -> None:
    """Tell the boot service how far this boot is, by the TLS of `context`. Nothing depends on it, so nothing is raised:
    a service that is not believed is told nothing."""
    report: Mapping[str, str] = {"mac": facts.mac_address, "stage": stage, "bootID": facts.boot_id}
    if message:
        report = {**report, "message": message[:512]}
    try:
        body = json.dumps(report).encode()
        post(facts.progress_url, body, context=context, source_address=facts.address, timeout_seconds=2.0)
    except (OSError, ValueError):
        return


def _words(facts: BootFacts, outcome: JoinOutcome) -> str:
    if outcome.kind == retry.REFUSED:
        return f"JOIN REFUSED for {facts.server}: {outcome.message}. Trying again slowly."
    if outcome.kind == retry.NOT_YET:
        return f"{facts.server} waits to join: {outcome.message}"
    return f"{facts.server} cannot reach {facts.join_url}: {outcome.message}. Trying again."


def _printable(value: object) -> str:
    if not isinstance(value, str):
        return ""
    return "".join(letter if letter.isprintable() else " " for letter in value[:512])


def _seconds(value: object) -> float | None:
    try:
        seconds = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return seconds if 0.0 <= seconds < 1e9 else None
