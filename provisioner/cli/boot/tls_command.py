"""`provisioner boot tls …`: a site's own authority for its boot hosts, their certificates, and another in its place."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import click

from provisioner.api.machinery.wording import quantity
from provisioner.boot.tls.announcement import NAME, render_announcement
from provisioner.boot.tls.files import (
    ServerFiles,
    read_authority_of,
    read_text,
    write_authority,
    write_whole,
)
from provisioner.boot.tls.issue import (
    KeyType,
    cross_sign,
    generate_key,
    is_issued_by,
    is_rsa,
    issue_server_certificate,
    make_authority,
    read_certificates,
    to_pem,
)
from provisioner.cli import printer
from provisioner.cli.options import EXISTING_FILE, FILE, FOLDER
from provisioner.image.finished.sign import read_secret_key

_AUTHORITY: Final = "Folder of the authority (join-ca.pem, join-ca.key)."


@click.group("tls", short_help="Make certificates of boot hosts, and exchange their authority.")
def tls() -> None:
    """Make certificates of boot hosts, and exchange the authority that nodes believe.

    A site with an authority of its own needs none of this: it gives --tls-certificate and --tls-key of `provisioner
    boot` what that one issued, and images its certificate (image build --join-ca).
    """


@tls.command("authority")
@click.argument("folder", type=FOLDER)
@click.option("--name", required=True, help='Its name, each time another: "provisioner join CA 2027".')
@click.option(
    "--key-type",
    type=click.Choice(["ec", "rsa"]),
    default="ec",
    show_default=True,
    help="rsa where iPXE is to fetch by HTTPS.",
)
@click.option("--days", default=3650, show_default=True, help="How long it lasts.")
def authority_(folder: Path, name: str, key_type: KeyType, days: int) -> None:
    """Make an authority in FOLDER. join-ca.pem goes into images, join-ca.key to a safe place and to no boot host."""
    made = make_authority(name, generate_key(key_type), days, datetime.now(UTC))
    certificate, key = write_authority(folder, made)
    printer.say(f"authority {certificate}, until {made.certificate.not_valid_after_utc:%Y-%m-%d}; its key {key} (0600)")


@tls.command("certificate")
@click.option("--authority", "folder", type=FOLDER, required=True, help=_AUTHORITY)
@click.option("--address", "addresses", multiple=True, required=True, help="Of the boot host; may be repeated.")
@click.option("--days", default=90, show_default=True, help="How long it lasts.")
@click.option(
    "--cross",
    type=EXISTING_FILE,
    help="What `cross-sign` made of that authority: nodes that know the former one believe it.",
)
@click.option(
    "--renew-within",
    type=click.IntRange(1, 397),
    metavar="DAYS",
    help="Do nothing if the one in --output is that authority's and lasts longer than this: for a timer.",
)
@click.option("--output", type=FOLDER, required=True, help="Folder for join.crt and join.key, with a new key.")
def certificate_(
    folder: Path, addresses: tuple[str, ...], days: int, cross: Path | None, renew_within: int | None, output: Path
) -> None:
    """Issue a boot host's certificate. nginx takes it up within 30 s; nothing is restarted."""
    signer, now, files = read_authority_of(folder), datetime.now(UTC), ServerFiles(output)
    behind = read_certificates(read_text(cross), "cross-signed authority") if cross is not None else []
    if renew_within is not None and files.certificate.exists():
        kept = read_certificates(read_text(files.certificate), "certificate")[0]
        left = kept.not_valid_after_utc - now
        if is_issued_by(kept, signer.certificate) and left > timedelta(days=renew_within):
            printer.say(f"{files.certificate} lasts {quantity(left.days, 'day')} more; nothing was done")
            return
    key = generate_key("rsa" if is_rsa(signer.certificate) else "ec")
    issued = issue_server_certificate(signer, key, addresses, days, now)
    files.write(to_pem(issued, *behind), key)
    printer.say(
        f"certificate {files.certificate}, until {issued.not_valid_after_utc:%Y-%m-%d}; its key {files.key} (0600)"
    )


@tls.command("cross-sign")
@click.option("--old", type=FOLDER, required=True, help="Folder of the authority that images have.")
@click.option("--new", type=EXISTING_FILE, required=True, help="Certificate of the one that takes its place.")
@click.option("--output", type=FILE, required=True, help="File to write.")
def cross_sign_(old: Path, new: Path, output: Path) -> None:
    """Have the old authority vouch for the new one: who knows the old one alone then believes the new one's
    certificates, sent with this behind them (certificate --cross)."""
    found = read_certificates(read_text(new), "new authority")
    made = cross_sign(read_authority_of(old), found[0], datetime.now(UTC))
    write_whole(output, to_pem(made), mode=0o644)
    printer.say(f"{output}: {made.subject.rfc4514_string()} by {made.issuer.rfc4514_string()}, "
               f"until {made.not_valid_after_utc:%Y-%m-%d}")  # fmt: skip


@tls.command("announce")
@click.argument("authorities", type=EXISTING_FILE, nargs=-1, required=True)
@click.option("--key", "key_file", type=EXISTING_FILE, required=True, help="Secret key of images (image keygen).")
@click.option("--store", type=FOLDER, required=True, help="Image store of a boot host.")
@click.option("--days", default=90, show_default=True, help="How long nodes believe it.")
def announce_(authorities: tuple[Path, ...], key_file: Path, store: Path, days: int) -> None:
    """Have nodes, whose image does not know AUTHORITIES, believe them beside the image's own.

    Signed by the image key, in the image store: an agent that does not believe a boot host looks there.
    """
    found = [each for file in authorities for each in read_certificates(read_text(file), "authority")]
    text = render_announcement(found, days, datetime.now(UTC))
    signature = read_secret_key(key_file).sign(text.encode())
    store.mkdir(parents=True, exist_ok=True)
    # Between the two an agent that asks refuses both, and asks again.
    write_whole(store / NAME, text, mode=0o644)
    write_whole(store / f"{NAME}.sig", signature, mode=0o644)
    announced = f"{quantity(len(found), 'authority', 'authorities')}, for {quantity(days, 'day')}"
    printer.say(f"{store / NAME}: {announced}; copy both files to every boot host")
