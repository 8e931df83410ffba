"""Keys of a machine's labs: the authority of the join service, its certificate, and the BMCs' password.

They are kept between demos, readable by their owner alone, because the authority's certificate is part of the image:
new keys would mean a new image.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from lab.control_plane.pki import Authority, KeyPair
from lab.demo.state import ADDRESS
from provisioner.api.machinery.values import Secret


@dataclass(frozen=True)
class DemoKeys:
    """`join` is the join service's certificate and key, `join_ca` what the image pins."""

    join_ca: Path
    join: KeyPair
    bmc_password: Secret


def obtain_keys(directory: Path) -> DemoKeys:
    """The keys in `directory`, made first if they are not there."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = Authority.create(directory, "join-ca")
    password_file = directory / "bmc-password"
    if not password_file.exists():
        password_file.touch(mode=0o600)
        password_file.write_text(secrets.token_urlsafe(12))
    return DemoKeys(
        join_ca=authority.files.certificate,
        join=authority.issue("join", "provisioner-boot", server_names=(ADDRESS,)),
        bmc_password=Secret(password_file.read_text()),
    )
