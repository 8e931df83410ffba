"""`provisioner image push` and `pull`: an OCI registry as a second store of images."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.values import Sha256Digest
from provisioner.cli import printer
from provisioner.cli.options import FOLDER, kubeconfig_option, signers_option
from provisioner.cli.progress import Progress
from provisioner.cli.service.registry_options import access_of, opened, registry_options


def _line(progress: Progress, name: str, size_bytes: int, was_there: bool) -> None:
    progress.line(f"{name:<20}{size_bytes / 1e6:>9.1f} MB{'  was there' if was_there else ''}")


@click.command()
@click.argument("folder", type=FOLDER)
@click.argument("registry", metavar="oci://HOST/REPOSITORY")
@signers_option
@registry_options
def push(folder: Path, registry: str, key_file: Path, **options: Any) -> None:
    """Push the image in FOLDER, a folder sha256-… of a store, into an OCI registry. What is there is not sent again."""
    from provisioner.image.finished.sign import read_public_keys
    from provisioner.image.registry.push import push_image
    from provisioner.image.registry.reference import parse_repository

    repository, started = parse_repository(registry), time.monotonic()
    with Progress() as progress, opened(access_of(repository, **options)) as client:
        progress.begin(f"pushing to {repository}")
        pushed = push_image(folder, client, read_public_keys(key_file), lambda *part: _line(progress, *part))
    said = "was there" if pushed.was_there else f"pushed, {pushed.sent_bytes / 1e6:.1f} MB sent"
    printer.say(f"image {pushed.digest} {said} in {time.monotonic() - started:.1f} s")
    printer.say(f"{repository}@{pushed.digest}")


@click.command()
@click.argument("image", metavar="oci://HOST/REPOSITORY@sha256:…|IMAGE")
@click.option("--store", type=FOLDER, required=True, help="Image store to pull into.")
@signers_option
@click.option("--registry", metavar="oci://HOST/REPOSITORY", help="Where to pull from the Image object that is named.")
@registry_options
@kubeconfig_option
def pull(
    image: str, store: Path, key_file: Path, registry: str | None, kubeconfig: Path | None, **options: Any
) -> None:
    """Pull an image into a store: by its digest, or the one of an Image object. All of it is checked first."""
    from provisioner.image.finished.sign import read_public_keys
    from provisioner.image.registry.pull import pull_image
    from provisioner.image.registry.reference import SCHEME, parse_reference, parse_repository

    key = read_public_keys(key_file)
    if image.startswith(SCHEME):
        reference = parse_reference(image)
        repository, digest = reference.repository, reference.digest
        if digest is None:
            raise Refused(f"{image} names no image", hint=f"put its digest behind it: {image}@sha256:…")
        if registry is not None:
            raise Refused("the registry is named twice", hint="leave --registry out")
    elif registry is None:
        raise Refused(f"no registry is named for Image {image!r}", hint="name it: --registry oci://HOST/REPOSITORY")
    else:
        repository, digest = parse_repository(registry), _digest_of(image, kubeconfig)
    started = time.monotonic()
    with Progress() as progress, opened(access_of(repository, **options)) as client:
        progress.begin(f"pulling from {repository}")
        pulled = pull_image(digest, client, store, key, report=lambda *part: _line(progress, *part))
    printer.say(f"image {digest}: {pulled.fetched_bytes / 1e6:.1f} MB fetched in {time.monotonic() - started:.1f} s")
    printer.say(str(pulled.folder))


def _digest_of(name: str, kubeconfig: Path | None) -> Sha256Digest:
    from provisioner.api import Image
    from provisioner.api.machinery.values import parse_digest
    from provisioner.cluster.client import Cluster

    return parse_digest(Cluster.connect(kubeconfig).read(Image, name).spec.digest)
