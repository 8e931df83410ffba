"""A UKI of an image: systemd's stub with kernel, stage-1 and command line as sections, checked as one. Pure.

The command line is a part of it on purpose. Under Secure Boot the stub takes no other then; without one it would take
what the boot script says, which came over the network: `rdinit=` alone makes of a signed kernel anybody's.
Source: UAPI Group, Unified Kernel Image specification.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.values import Sha256Digest
from provisioner.api.servers.server import Architecture
from provisioner.image.finished.manifest import Manifest, digest_of
from provisioner.image.uki.portable_executable import add_sections, read_layout

STUBS: Final[dict[Architecture, str]] = {
    "x86_64": "/usr/lib/systemd/boot/efi/linuxx64.efi.stub",
    "arm64": "/usr/lib/systemd/boot/efi/linuxaa64.efi.stub",
}
"""Where Debian's and Ubuntu's package systemd-boot-efi of each architecture has the stub."""
_WORD: Final = re.compile(r"[\x21-\x7e]{1,255}")
_MOST_BYTES: Final = 2047
"""Of a kernel's command line, on every architecture."""


def build_uki(stub: bytes, manifest: Manifest, kernel: bytes, stage1: bytes, words: Sequence[str] = ()) -> bytes:
    """The program, not signed; the same bytes of the same arguments, always.

    words: kernel arguments of the site, behind those of the image. Raises: Refused for a word that cannot be one, or
    that names another image, or for a stub of another architecture.
    """
    layout = read_layout(stub)
    if layout.architecture != manifest.architecture:
        raise Refused(
            f"the stub is for {layout.architecture}, the image for {manifest.architecture}",
            hint="give that of the other architecture's systemd-boot-efi with --stub",
        )
    release, line = manifest.versions.get("kernel", ""), _command_line(manifest, words)
    return add_sections(
        stub,
        [
            (".osrel", _os_release(manifest).encode()),
            *([(".uname", release.encode())] if release else []),
            (".cmdline", line.encode()),
            (".initrd", stage1),
            (".linux", kernel),
        ],
    )


def _command_line(manifest: Manifest, words: Sequence[str]) -> str:
    digest = digest_of(manifest.encode())
    bad = [word for word in words if not _WORD.fullmatch(word) or word.startswith("provisioner.image=")]
    if bad:
        raise Refused(
            f"kernel argument {bad[0][:80]!r} is not one word, or names an image: this one names {digest}",
            hint="give each word by an --argument of its own, without blanks, and leave provisioner.image out",
        )
    line = " ".join([*manifest.kernel_arguments, f"provisioner.image={digest.replace(':', '-')}", *words])
    if len(line) > _MOST_BYTES:
        raise Refused(
            f"the kernel's command line has {len(line)} bytes, more than {_MOST_BYTES}", hint="leave words out"
        )
    return line


def _os_release(manifest: Manifest) -> str:
    digest: Sha256Digest = digest_of(manifest.encode())
    return f'ID=provisioner\nNAME="{manifest.recipe}"\nVERSION_ID="{manifest.distribution}"\nIMAGE_VERSION="{digest}"\n'
