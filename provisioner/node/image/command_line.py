"""The command line of the next kernel: the server's own words of the running one, and those of the image. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

MAX_BYTES = 2047
"""COMMAND_LINE_SIZE of x86 and arm64, less the zero byte."""
_SERVER_WORDS = ("systemd.machine_id", "net.ifnames", "console")
"""Beside `provisioner.*`, what the boot service's script gives for the server's sake, once each; see
provisioner.boot.script.kernel_arguments. What an Image or NodePool adds stands behind these, anew with the intent."""
_PLAIN = re.compile(r"[\x21-\x7e]+")
_IMAGE = re.compile(r"sha256:[0-9a-f]{64}")


class CommandLineError(Exception):
    """No command line can be made of these words; the message says which and why."""


def next_command_line(running: str, image_digest: str, kernel_arguments: Sequence[str]) -> str:
    """`running` is /proc/cmdline. Raises: CommandLineError."""
    if not _IMAGE.fullmatch(image_digest):
        raise CommandLineError(f"image digest is {image_digest[:80]!r}, not sha256: and 64 hexadecimal digits")
    words: list[str] = []
    seen: set[str] = set()
    for word in running.split():
        key = word.partition("=")[0]
        if key == "provisioner.image":
            word = f"provisioner.image={image_digest.replace(':', '-')}"
        if key in seen or not (key.startswith("provisioner.") or key in _SERVER_WORDS):
            continue
        seen.add(key)
        words.append(word)
    if "provisioner.image" not in seen or "provisioner.server" not in seen:
        raise CommandLineError("the running kernel's command line has no provisioner.image or no provisioner.server")
    for word in kernel_arguments:
        if not _PLAIN.fullmatch(word):
            raise CommandLineError(
                f"kernel argument {word[:80]!r} is not one plain word; correct the Image or NodePool"
            )
        if word.startswith(("provisioner.", "initrd=")):
            raise CommandLineError(
                f"kernel argument {word[:80]!r} belongs to the provisioner; remove it from kernelArguments"
            )
        words.append(word)
    line = " ".join(words)
    if len(line) > MAX_BYTES:
        raise CommandLineError(f"the command line would have {len(line)} bytes, and the kernel takes {MAX_BYTES}")
    return line


LEAST_RATE = 262144
"""In bytes/s, where the boot service says nothing; as in stage-1 (fetch.sh)."""


def image_sources(running: str) -> list[str]:
    """Where the running boot had its image from: as the boot service ordered them, the boot host behind all, as in
    stage-1. The boot host itself is asked by TLS, which stage-1 does not speak, if the boot says where it does."""
    values = _values(running)
    sources = [values.get("provisioner.images", ""), values.get("provisioner.nextimages", "")]
    own = f"{boot_url(running)}/images"
    if boot_url(running):
        sources.append(own)
    join = values.get("provisioner.join", "")
    if join.startswith("https://"):
        sources = [f"{join}/images" if source == own else source for source in sources]
    return list(dict.fromkeys(source for source in sources if source.startswith(("http://", "https://"))))


def boot_url(running: str) -> str:
    """Of the boot host, as stage-1 asked it, in the clear; empty if the boot named none."""
    return _values(running).get("provisioner.url", "")


def least_rate(running: str) -> int:
    """What a source must give, in bytes/s."""
    value = _values(running).get("provisioner.leastrate", "")
    return int(value) if re.fullmatch("[1-9][0-9]{0,9}", value) else LEAST_RATE


def _values(running: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for word in running.split():
        key, _, value = word.partition("=")
        values.setdefault(key, value.rstrip("/"))
    return values
