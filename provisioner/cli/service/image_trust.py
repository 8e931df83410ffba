"""`provisioner image sign` and `revoke`: who says what may boot, apart from who builds and publishes it."""

from __future__ import annotations

from pathlib import Path

import click

from provisioner.api import Image, Maintenance, NodePool, Server
from provisioner.api.machinery.errors import NotFound
from provisioner.api.machinery.values import Sha256Digest, parse_digest
from provisioner.cli import printer
from provisioner.cli.options import FILE, kubeconfig_option
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import of
from provisioner.image.finished.sign import read_secret_key
from provisioner.image.finished.sign_elsewhere import sign_manifest
from provisioner.image.retention.signers import find_signers
from provisioner.image.trust.controller import READ_SECONDS
from provisioner.image.trust.revoke import revoke_digest


@click.command("sign")
@click.argument("manifest", type=click.Path(path_type=Path))
@click.option("--key", "key_file", type=FILE, required=True, help="Secret key that signs (provisioner image keygen).")
@click.option(
    "--digest",
    "expected",
    metavar="sha256:…",
    help="The image's digest, as the build said it: another one is not signed.",
)
def sign(manifest: Path, key_file: Path, expected: str | None) -> None:
    """Sign MANIFEST, or that of an image's folder, on the machine that has the key; write manifest.sig beside it.

    No other file of the image is needed. What is signed is shown.
    """
    key = read_secret_key(key_file)
    done = sign_manifest(manifest, key, parse_digest(expected) if expected is not None else None)
    known = done.manifest
    printer.say(f"recipe        {known.recipe}, {known.distribution}, {known.architecture}")
    printer.say(f"arguments     {' '.join(known.kernel_arguments) or 'none'}")
    for name, value in sorted(known.versions.items()):
        printer.say(f"{name:<14}{value}")
    state = "was signed already" if done.again else "signed"
    printer.say(f"image {done.digest} {state} with key {key.number.hex()}: {done.file}")


@click.command("revoke")
@click.argument("image", metavar="IMAGE|sha256:…")
@click.option(
    "-m", "--message", "reason", required=True, help="Why, in a line: it is shown wherever the image is asked for."
)
@kubeconfig_option
def revoke(image: str, reason: str, kubeconfig: Path | None) -> None:
    """Let no server boot IMAGE any more, whoever assigns it, also if it is published again.

    Servers that run it go on, and are listed.
    """
    cluster = Cluster.connect(kubeconfig, user_agent="provisioner-image")
    images = cluster.list(of(Image)).items
    digest = _digest_of(image, {str(each["metadata"]["name"]): str(each["spec"]["digest"]) for each in images})
    added = revoke_digest(cluster, digest, reason)
    said = f"revoked: within {READ_SECONDS:.0f} s nothing boots it" if added else "was revoked already"
    printer.say(f"image {digest} {said}")
    others = [item for kind in (Server, NodePool, Maintenance) for item in cluster.list(of(kind)).items]
    for entry in find_signers(images, others):
        if entry.digest == digest:
            for kind, names in sorted(entry.named_by.items()):
                printer.say(f"named by {kind} {', '.join(sorted(names))}")


def _digest_of(image: str, known: dict[str, str]) -> Sha256Digest:
    if image in known:
        return Sha256Digest(known[image])
    if not image.startswith("sha256:"):
        raise NotFound(
            f"Image '{image}' does not exist",
            hint="kubectl get images; or name the digest of one that is gone: sha256:…",
        )
    return parse_digest(image)
