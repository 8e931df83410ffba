"""What the maintenance executor wants of this boot (annotation provisioner.dev/boot-intent), and what to do next.

Pure: the annotation, the boot id and what is held go in, one step comes out.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

INTENT_ANNOTATION = "provisioner.dev/boot-intent"
REPORT_ANNOTATION = "provisioner.dev/boot-report"
FACTS_ANNOTATION = "provisioner.dev/node-facts"

STAGE, KEXEC, REBOOT = "Stage", "Kexec", "Reboot"
STAGING, STAGED, FAILED, REBOOTING = "Staging", "Staged", "Failed", "Rebooting"

MAX_INTENT_BYTES = 16384
RETRY_SECONDS = 60.0
"""How long after a staging that failed it is tried again, while the executor still wants the image staged."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PLAIN = re.compile(r"[\x21-\x7e]+")


class IntentError(Exception):
    """The annotation is not an intent. `id` is its id, if it has one that can be answered."""

    def __init__(self, message: str, intent_id: str = "") -> None:
        super().__init__(message)
        self.id = intent_id


class Intent(NamedTuple):
    """One boot intent; see `provisioner.api.nodes.facts.BootIntent`."""

    id: str
    action: str
    boot_id_before: str
    image: str
    image_digest: str
    arguments: tuple[str, ...]


class LoadedSuccessor(NamedTuple):
    """The system that the loaded kernel becomes, as far as it may be told.

    `request_key_sha256`: of the key by which it will ask to join. `hand_over_sha256`: as `tpm.hand_over` says.
    """

    request_key_sha256: str = ""
    hand_over_sha256: str = ""


NOBODY = LoadedSuccessor()
"""After a start by the firmware."""


class StagedImage:
    """An image that this machine stages or has staged, for the intent of that id."""

    def __init__(
        self,
        *,
        image_digest: str,
        arguments: tuple[str, ...],
        state: str,
        intent_id: str,
        message: str,
        since: float,
        successor: LoadedSuccessor = NOBODY,
    ) -> None:
        self.image_digest = image_digest
        self.arguments = arguments
        self.state = state
        self.intent_id = intent_id
        self.message = message
        self.since = since
        self.successor = successor

    def is_for(self, intent: Intent) -> bool:
        return (self.image_digest, self.arguments) == (intent.image_digest, intent.arguments)


def parse_intent(text: str) -> Intent:
    """Raises: IntentError."""
    intent_id = ""
    try:
        if len(text) > MAX_INTENT_BYTES:
            raise ValueError(f"it is longer than {MAX_INTENT_BYTES} bytes")
        told = json.loads(text)
        intent_id = str(told["id"])[:63]
        arguments = told.get("kernelArguments", [])
        intent = Intent(
            id=intent_id,
            action=str(told["action"]),
            boot_id_before=str(told["bootIDBefore"]),
            image=str(told["image"]),
            image_digest=str(told["imageDigest"]),
            arguments=tuple(str(word) for word in arguments),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise IntentError(
            f"{INTENT_ANNOTATION} is not a boot intent ({type(error).__name__}: {error})", intent_id
        ) from error
    if intent.action not in (STAGE, KEXEC, REBOOT):
        raise IntentError(
            f"action {intent.action[:40]!r} is not known here, only Stage, Kexec and Reboot; boot "
            "an image of the same release as the controller",
            intent_id,
        )
    if not _PLAIN.fullmatch(intent.id):
        # It is written into a file, from which it has to come back as it is.
        raise IntentError(f"id {intent.id!r} is not one plain word")
    for word in intent.arguments:
        if not _PLAIN.fullmatch(word):
            raise IntentError(
                f"kernel argument {word[:80]!r} is not one plain word; correct the Image or NodePool", intent_id
            )
    if not _DIGEST.fullmatch(intent.image_digest):
        raise IntentError(
            f"image digest is {intent.image_digest[:80]!r}, not sha256: and 64 hexadecimal digits", intent_id
        )
    return intent


NOTHING, DROP, FETCH, ACT_KEXEC, ACT_REBOOT = "Nothing", "Drop", "Fetch", "ActKexec", "ActReboot"


def next_step(intent: Intent | None, boot_id: str, held: StagedImage | None, finished: str, now: float) -> str:
    """What to do now.

    `finished`: id of the intent that was acted upon in this boot, or has failed for good; nothing is done twice.
    """
    if intent is None or intent.boot_id_before != boot_id:
        return DROP if held else NOTHING
    if intent.id == finished:
        return NOTHING
    if intent.action == REBOOT:
        return ACT_REBOOT
    if held is None or not held.is_for(intent):
        return FETCH
    if held.state == STAGED:
        return ACT_KEXEC if intent.action == KEXEC else NOTHING
    if held.state == FAILED and (held.intent_id != intent.id or now - held.since >= RETRY_SECONDS):
        return FETCH
    return NOTHING


def render_report(
    *,
    intent_id: str,
    state: str,
    image_digest: str,
    boot_id: str,
    message: str,
    time: str,
    successor: LoadedSuccessor = NOBODY,
) -> str:
    """The annotation's text, as `provisioner.api.machinery.codec.to_json` would write a BootReport."""
    report = {
        "id": intent_id,
        "state": state,
        "imageDigest": image_digest,
        "bootID": boot_id,
        "message": message[:1024],
        "time": time,
        **({"nextRequestKeySHA256": successor.request_key_sha256} if successor.request_key_sha256 else {}),
        **({"nextHandOverSHA256": successor.hand_over_sha256} if successor.hand_over_sha256 else {}),
    }
    return json.dumps(report, separators=(",", ":"))
