"""What this machine knows of its boot: what stage-1 left, what the kernel says, and the key of its join request."""

from __future__ import annotations

import json
import os
from collections.abc import Callable


class BootFactsError(Exception):
    """Something that a provisioned boot always has is not there; the message says what and why."""


class BootFacts:
    """Facts of one boot. `boot_url`: by which stage-1 asked the boot host, in the clear; what runs now asks the two
    others, by TLS."""

    def __init__(
        self,
        *,
        server: str,
        mac_address: str,
        progress_url: str,
        join_url: str,
        image_digest: str,
        address: str | None,
        boot_id: str,
        system_uuid: str,
        boot_url: str = "",
    ) -> None:
        self.server = server
        self.mac_address = mac_address
        self.progress_url = progress_url
        self.join_url = join_url
        self.image_digest = image_digest
        self.address = address
        self.boot_id = boot_id
        self.system_uuid = system_uuid
        self.boot_url = boot_url


def read_boot_facts(root: str) -> BootFacts:
    """Read boot.json of stage-1 and the kernel's own files below `root` ("" on a real machine).

    Raises: BootFactsError.
    """
    path = f"{root}/run/provisioner/boot.json"
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 (pathlib costs start-up time)
            told = json.load(file)
        boot_id = _first_line(f"{root}/proc/sys/kernel/random/boot_id")
        mac_address, url, join = str(told["mac"]), str(told["url"]), str(told["join"])
        image_digest, server = str(told["imageDigest"]), str(told["server"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BootFactsError(
            f"{path} is not what stage-1 writes ({type(error).__name__}: {error}); "
            "was this system booted by the provisioner?"
        ) from error
    try:
        system_uuid = _first_line(f"{root}/sys/class/dmi/id/product_uuid").lower()
    except OSError:
        system_uuid = ""  # arm64 boards without SMBIOS have none
    address = str(told.get("address") or "").partition("/")[0]
    return BootFacts(
        server=server,
        mac_address=mac_address,
        progress_url=join.rstrip("/") + "/v1/progress",
        join_url=join.rstrip("/") + "/v1/join",
        image_digest=image_digest.replace("sha256-", "sha256:", 1),
        address=address or None,
        boot_id=boot_id,
        system_uuid=system_uuid,
        boot_url=url.rstrip("/"),
    )


def request_key(root: str, random_bytes: Callable[[int], bytes]) -> str:
    """64 hexadecimal digits, made once a boot and kept in RAM (mode 0600).

    With it the same machine may repeat its request when the answer was lost or the agent was restarted; nobody else
    can.
    """
    path = f"{root}/run/provisioner/request-key"
    try:
        kept = _first_line(path)
        if len(kept) == 64:
            return kept
    except FileNotFoundError:
        pass
    key = random_bytes(32).hex()
    write_file(path, key + "\n", mode=0o600)
    return key


def write_file(path: str, content: str, *, mode: int) -> None:
    """Write atomically: a reader sees the old content or the whole new one, never with a wider mode."""
    temporary = f"{path}.new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, mode)
        file.write(content)
    os.replace(temporary, path)  # noqa: PTH105


def _first_line(path: str) -> str:
    with open(path, encoding="utf-8") as file:  # noqa: PTH123
        return file.readline().strip()
