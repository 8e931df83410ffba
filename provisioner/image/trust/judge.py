"""What the condition Verified of an Image says. Pure.

Everything that a manifest says stands in the Image, too, so that the signed text can be written again from the object
alone: without a store, and so that not one word of it, such as a kernel argument, can differ from what was signed. Its
name is compared, too, where it ends with a digest, as publishing makes it: NodePools and orders name Images, and an
older image that was signed as well must not take the place of one. What the object says beside the manifest,
`measurements`, is not judged here.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from typing import Final, Literal

from provisioner.api.images.image import Image, ImageSpec
from provisioner.api.machinery.conditions import condition_of, find_condition
from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.meta import Condition
from provisioner.api.machinery.values import Sha256Digest
from provisioner.image.finished.check import Checked
from provisioner.image.finished.manifest import FileDigest, Layer, Manifest, digest_of
from provisioner.image.finished.publish import image_object
from provisioner.image.finished.sign import signing_key_number
from provisioner.image.trust.document import KEYS, NAME, Trust

VERIFIED: Final = "Verified"
_DIGEST_IN_NAME: Final = re.compile(r"-([0-9a-f]{12})$")
"""As `image_name` writes it."""


def judge(image: Image, trust: Trust | Refused, now: datetime) -> Condition | None:
    """What Verified shall say; None if it stays as it is. trust: Refused, with the reason, if it cannot be read.

    While it cannot be read, what was found before stays, and a new Image is not believed.
    """
    before = find_condition(image.status.conditions, VERIFIED)
    if isinstance(trust, Refused):
        if before is not None:
            return None
        said = _false("TrustUnreadable", f"whom to believe cannot be read: {trust}")
    else:
        said = _judge(image, trust)
    status, reason, message = said
    if before is not None and (before.status, before.reason, before.message) == said:
        return None
    return condition_of(image, VERIFIED, status, reason, message, now)


_Said = tuple[Literal["True", "False", "Unknown"], str, str]


def _judge(image: Image, trust: Trust) -> _Said:
    revoked = trust.revoked.get(Sha256Digest(image.spec.digest))
    if revoked is not None:
        return _false("Revoked", f"it was revoked: {revoked}")
    if trust.keys is None:
        return (
            "Unknown",
            "NoTrustedKeys",
            f"nobody has said by which keys Images must be signed; to say it: kubectl -n provisioner-system create "
            f"configmap {NAME} --from-file={KEYS}",
        )
    named = _DIGEST_IN_NAME.search(image.name)
    if named is not None and not image.spec.digest.startswith(f"sha256:{named[1]}"):
        return _false("Altered", f"the object is named after the digest {named[1]}…, and has {image.spec.digest}")
    try:
        text = signed_text(image.spec)
    except Refused as error:
        return _false("Altered", str(error))
    try:
        trust.keys.verify(text, image.spec.signature)
    except Refused as error:
        return _false("SignatureInvalid", str(error))
    return "True", "Signed", f"signed with key {signing_key_number(image.spec.signature).hex()}"


def signed_text(spec: ImageSpec) -> bytes:
    """The manifest that an Image says it has. Raises: Refused if the Image is not what publishing makes of that."""
    manifest = Manifest(
        recipe=spec.recipe,
        distribution=spec.distribution,
        architecture=spec.architecture,
        kernel=_file(spec.kernel.sha256, spec.kernel.size_bytes),
        stage1=_file(spec.stage1.sha256, spec.stage1.size_bytes),
        layers=(
            tuple(Layer(each.name, _file(each.sha256, each.size_bytes)) for each in spec.layers)
            if spec.root is None
            else (Layer("root", _file(spec.root.sha256, spec.root.size_bytes)),)
        ),
        documents={each.name: _file(each.sha256, each.size_bytes) for each in spec.documents},
        kernel_arguments=spec.kernel_arguments,
        versions=spec.versions,
        format=2 if spec.root is None else 1,
    )
    text = manifest.encode()
    digest = digest_of(text)
    if digest != spec.digest:
        raise Refused(
            f"the object says something else than a manifest with {spec.digest}: what it says has {digest}",
            hint="delete it, and publish the image again: provisioner image publish",
        )
    # What a TPM shows of the kernel follows from the file, which boot hosts have: boot/host/image_store.py compares.
    described = image_object(Checked(digest, manifest, spec.signature)).spec
    if replace(described, measurements=spec.measurements) != spec:
        raise Refused(
            "the object names its files elsewhere than its manifest does",
            hint="delete it, and publish the image again: provisioner image publish",
        )
    return text


def _file(sha256: str, size_bytes: int) -> FileDigest:
    return FileDigest(sha256.removeprefix("sha256:"), size_bytes)


def _false(reason: str, message: str) -> _Said:
    return "False", reason, message[:1024]
