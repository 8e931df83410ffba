"""`provisioner image`: build, verify and publish images, and make the key that signs them."""

from __future__ import annotations

import datetime
import time
from pathlib import Path
from typing import get_args

import click

import provisioner
from provisioner.api import Image, Maintenance, NodePool, Server
from provisioner.api.servers.server import Architecture
from provisioner.cli import printer
from provisioner.cli.options import FILE, FOLDER, kubeconfig_option, signers_option
from provisioner.cli.progress import Progress
from provisioner.cli.service.image_diff import diff
from provisioner.cli.service.image_gc import gc
from provisioner.cli.service.image_registry import pull, push
from provisioner.cli.service.image_trust import revoke, sign
from provisioner.cli.service.image_uki import uki
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import of
from provisioner.image.assembly.build import PHASES, BuildRequest, build_image
from provisioner.image.containerd.archive import parse_pinned
from provisioner.image.driver.plan import plan_driver
from provisioner.image.finished.check import check_image
from provisioner.image.finished.manifest import SIGNATURE
from provisioner.image.finished.publish import publish_image
from provisioner.image.finished.sign import SecretKey, read_public_key, read_public_keys, read_secret_key, write_keys
from provisioner.image.mirror import choose_archives, read_sources
from provisioner.image.module_signing import generate_module_key, read_module_key, write_module_key
from provisioner.image.plan import Choices, bootstrap_command, describe
from provisioner.image.recipe import read_recipe
from provisioner.image.retention.signers import SignedBy, find_signers
from provisioner.image.root import Ingredients

# `provisioner image keys`: which key signed what, and who still needs it. See docs/rotation.md.

_KINDS = (Server, NodePool, Maintenance)


@click.command("keys")
@click.option(
    "--signed-by",
    "key_file",
    type=FILE,
    help="Public key, or file of several: those alone, with the names of what boots, has booted or is to boot them.",
)
@kubeconfig_option
def keys(key_file: Path | None, kubeconfig: Path | None) -> None:
    """List Images by the key that signed them, and how many servers and pools name each.

    With --signed-by it exits with 1 while anything names an Image of that key: it must not be taken away yet.
    """
    cluster = Cluster.connect(kubeconfig, user_agent="provisioner-image")
    others = [item for kind in _KINDS for item in cluster.list(of(kind)).items]
    found = find_signers(cluster.list(of(Image)).items, others)
    if key_file is None:
        _show(found)
        return
    wanted = {key.number.hex() for key in read_public_keys(key_file).keys}
    found = [entry for entry in found if entry.key in wanted]
    _show(found)
    for entry in found:
        for kind, names in sorted(entry.named_by.items()):
            printer.say(f"{entry.image}: {kind} {', '.join(sorted(names))}")
    if any(entry.named_by for entry in found):
        raise click.exceptions.Exit(1)


def _show(found: list[SignedBy]) -> None:
    printer.say(f"{'KEY':<18}{'SERVERS':>8}{'POOLS':>7}{'MAINTENANCES':>14}  IMAGE")
    for entry in found:
        counts = [entry.count(kind.KIND.kind) for kind in _KINDS]
        printer.say(f"{entry.key:<18}{counts[0]:>8}{counts[1]:>7}{counts[2]:>14}  {entry.image}")


@click.group()
def image() -> None:
    """Images: kernel, stage-1 and a signed system in layers that lives in RAM."""


image.add_command(diff)
image.add_command(keys)


@image.command()
@click.argument("recipe_folder", metavar="RECIPE", type=FOLDER)
@click.option("--distribution", help="Distribution to build with; the recipe says which it knows and its default.")
@click.option("--architecture", type=click.Choice(get_args(Architecture)), default="x86_64", show_default=True)
@click.option("--mirror", help="URI of the package archive; without it, the one that this machine's apt uses.")
@click.option("--kubelet", type=FILE, required=True, help="The kubelet to put into the image.")
@click.option(
    "--join-ca",
    type=FILE,
    required=True,
    help="CA certificate (PEM) that the join service's certificate is checked with.",
)
@click.option("--key", "key_file", type=FILE, help="Secret key that signs the image (provisioner image keygen).")
@click.option(
    "--sign-elsewhere",
    "public_file",
    type=FILE,
    help="In place of --key: public key by which the image is checked; it is signed where the secret one is "
    "(provisioner image sign).",
)
@click.option(
    "--also-trust",
    "trusted_files",
    multiple=True,
    type=FILE,
    help="Public key, or file of several, whose images the nodes of this one may be brought to as well, while keys are "
    "exchanged; may be repeated.",
)
@click.option(
    "--module-key",
    "module_key_file",
    type=FILE,
    help="Secret key that signs the GPU driver's modules for Secure Boot, its certificate beside it "
    "(provisioner image keygen). Without it they are unsigned.",
)
@click.option("--output", type=FOLDER, required=True, help="Image store; the image is a folder sha256-… in it.")
@click.option(
    "--cache",
    type=FOLDER,
    default=Path("~/.cache/provisioner/image-build"),
    show_default=True,
    help="What is kept between builds.",
)
@click.option("--vulnerabilities", type=FILE, help="List of known vulnerabilities; one that counts fails the build.")
@click.option(
    "--pause-archive",
    metavar="FILE@sha256:DIGEST",
    help="OCI archive of the pause image, pinned; without it, the small one that is compiled here.",
)
@click.option("--force", is_flag=True, help="Build all of it again, with the packages of today.")
@click.option("--plan", is_flag=True, help="Show what installs packages and compiles the driver, and build nothing.")
def build(
    recipe_folder: Path,
    distribution: str | None,
    architecture: Architecture,
    mirror: str | None,
    kubelet: Path,
    join_ca: Path,
    key_file: Path | None,
    public_file: Path | None,
    trusted_files: tuple[Path, ...],
    module_key_file: Path | None,
    output: Path,
    cache: Path,
    vulnerabilities: Path | None,
    pause_archive: str | None,
    force: bool,
    plan: bool,
) -> None:
    """Build the image of RECIPE, such as images/gpu-node, into a store. What was built before is not built again."""
    if (key_file is None) == (public_file is None):
        raise click.UsageError("give --key, or --sign-elsewhere with the public key, and not both")
    recipe = read_recipe(recipe_folder)
    chosen = recipe.distribution(distribution, architecture)
    choices = Choices(
        architecture=architecture,
        distribution=chosen,
        archives=choose_archives(chosen, read_sources(), mirror, architecture),
    )
    if plan:
        driver = plan_driver(recipe.driver, choices) if recipe.driver else []
        printer.show(describe([bootstrap_command(recipe, choices, Path("root")), *driver]))
        return
    request = BuildRequest(
        recipe=recipe,
        choices=choices,
        ingredients=Ingredients(
            architecture=architecture,
            kubelet=kubelet,
            join_ca=join_ca,
            agent=Path(provisioner.__file__).parent,
            pause_archive=parse_pinned(pause_archive) if pause_archive is not None else None,
        ),
        key=read_secret_key(key_file) if key_file is not None else read_public_key(_given(public_file)),
        module_key=read_module_key(module_key_file) if module_key_file else None,
        output=output,
        cache=cache.expanduser(),
        force=force,
        vulnerabilities=vulnerabilities,
        also_trusted=tuple(key for file in trusted_files for key in read_public_keys(file).keys),
    )
    _ = request.trusted  # what is wrong with the keys is said at the start
    started = time.monotonic()
    with Progress() as progress:
        progress.begin(f"building: {PHASES[0]}")

        def report(phase: str, outcome: str, seconds: float) -> None:
            progress.line(f"{phase:<10}{outcome:<60}{seconds:6.1f} s")
            following = PHASES[PHASES.index(phase) + 1 :]
            progress.begin(f"building: {following[0]}" if following else "")

        built = build_image(request, report)
    sizes = " · ".join(f"{name} {file.size_bytes / 1e6:.1f} MB" for name, file in built.manifest.files().items())
    state = "reused (same inputs)" if built.reused else f"built in {time.monotonic() - started:.0f} s"
    for line in built.lines:
        printer.say(line)
    printer.say(f"image {recipe.name} ({chosen.identifier}) {state}: {sizes}")
    printer.say(str(built.folder))
    if public_file is not None and not (built.folder / SIGNATURE).exists():
        printer.say(
            "next: sign its manifest where the key is, and copy manifest.sig back: "
            f"provisioner image sign MANIFEST --key image.sec --digest {built.digest}"
        )


def _given(file: Path | None) -> Path:
    assert file is not None  # noqa: S101 (one of two options was given)
    return file


@image.command()
@click.argument("folder", type=FOLDER)
@signers_option
def verify(folder: Path, key_file: Path) -> None:
    """Check signature, sizes and digests of the image in FOLDER."""
    checked = check_image(folder, read_public_keys(key_file))
    printer.say(f"{checked.digest} is whole and signed: {checked.manifest.recipe}, {checked.manifest.distribution}")


@image.command()
@click.argument("folder", type=FOLDER)
def keygen(folder: Path) -> None:
    """Make two keys in FOLDER: image.sec and image.pub sign images, module-signing.pem and .der kernel modules."""
    secret, public = write_keys(folder, SecretKey.generate())
    printer.say(f"secret key {secret} (mode 0600), public key {public}")
    module_key, certificate = write_module_key(folder, generate_module_key(datetime.datetime.now(datetime.UTC)))
    printer.say(f"module signing key {module_key} (mode 0600), certificate {certificate}")
    printer.say(f"next: for Secure Boot, enrol {certificate.name} on servers: in db by the BMC, or mokutil --import")


@image.command()
@click.argument("folder", type=FOLDER)
@click.option(
    "--store", type=FOLDER, required=True, help="Image store of the boot host, as `provisioner boot` serves it."
)
@signers_option
@kubeconfig_option
def publish(folder: Path, store: Path, key_file: Path, kubeconfig: Path | None) -> None:
    """Copy the image in FOLDER into the store and create its Image object. Doing it again changes nothing."""
    published = publish_image(folder, store, read_public_keys(key_file), Cluster.connect(kubeconfig))
    printer.say(f"image {published.name} published: {published.folder}")
    printer.say(f"next: name it in a NodePool's spec.imageRef: {published.name}")


for command in (push, pull, gc, sign, revoke, uki):
    image.add_command(command)
