"""`provisioner image uki`: kernel and stage-1 of an image as one program that firmware checks (docs/secure-boot.md)."""

from __future__ import annotations

from pathlib import Path

import click

from provisioner.api.machinery.errors import NotFound
from provisioner.attestation.authenticode import authenticode_sha256
from provisioner.cli import printer
from provisioner.cli.options import FILE, FOLDER, signers_option
from provisioner.image.finished import store
from provisioner.image.finished.check import check_image
from provisioner.image.finished.sign import read_public_keys
from provisioner.image.uki.build import STUBS, build_uki
from provisioner.image.uki.sign import sign_program


@click.command("uki")
@click.argument("folder", type=FOLDER)
@signers_option
@click.option("--output", type=FILE, required=True, help="The program to write, such as gpu-node.efi.")
@click.option(
    "--argument", "words", multiple=True, metavar="WORD", help="Kernel argument beside the image's; may be repeated."
)
@click.option("--stub", type=FILE, help="systemd's stub; without it, the one of the package systemd-boot-efi.")
@click.option(
    "--secure-boot-key", "secret", type=FILE, help="Key (PEM, RSA) that signs it; without it, it is not signed."
)
@click.option("--secure-boot-certificate", "certificate", type=FILE, help="Certificate (PEM) of that key, as in db.")
def uki(
    folder: Path,
    key_file: Path,
    output: Path,
    words: tuple[str, ...],
    stub: Path | None,
    secret: Path | None,
    certificate: Path | None,
) -> None:
    """Make a unified kernel image of the image in FOLDER: kernel, stage-1 and command line in one EFI program.

    The image is checked first, as before it is published.
    """
    if (secret is None) != (certificate is None):
        raise click.UsageError("--secure-boot-key and --secure-boot-certificate go together")
    checked = check_image(folder, read_public_keys(key_file))
    file = stub or Path(STUBS[checked.manifest.architecture])
    if not file.is_file():
        raise NotFound(f"stub {file} does not exist", hint="apt-get install systemd-boot-efi, or name it with --stub")
    parts = store.part_files(folder)
    program = build_uki(
        file.read_bytes(), checked.manifest, parts["kernel"].read_bytes(), parts["stage1"].read_bytes(), words
    )
    if secret is not None and certificate is not None:
        program = sign_program(program, secret, certificate)
    output.write_bytes(program)
    state = f"signed by {certificate}" if certificate is not None else "not signed: sbsign does that where the key is"
    printer.say(f"{output}: {len(program) / 1e6:.1f} MB, {state}")
    printer.say(f"image {checked.digest}")
    digest = authenticode_sha256(program).removeprefix("sha256:")
    printer.say(f"authenticode sha256 {digest} (in dbx it ends this one program)")
