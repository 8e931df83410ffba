"""From a boot target to the text of an iPXE script."""

from __future__ import annotations

import re
import textwrap
from typing import Final

from provisioner.boot.script.choose import Boot, BootTarget, KeepWaiting
from provisioner.boot.script.kernel_arguments import INITRD_NAME, KERNEL_NAME, BootUrls
from provisioner.boot.template import load_template

CONSOLE_COLUMNS: Final = 78
CONSOLE_LINES: Final = 8

_NOT_FOR_THE_CONSOLE = re.compile(r"[^A-Za-z0-9 .,:_/=@'\"()+%<>!?*{}\[\]-]")


def render_first_script(urls: BootUrls) -> str:
    """The script every iPXE gets first (`boot.ipxe` over HTTP, `autoexec.ipxe` over TFTP). It never ends."""
    return load_template("first.ipxe.j2").render(urls=urls)


def render_script(target: BootTarget) -> str:
    """The script of one server."""
    match target:
        case Boot():
            return load_template("boot.ipxe.j2").render(target=target, kernel_name=KERNEL_NAME, initrd=INITRD_NAME)
        case KeepWaiting():
            return load_template("wait.ipxe.j2").render(target=target, console=console_lines)


def console_lines(text: str) -> list[str]:
    """`text` as iPXE's `echo` prints it and nothing else happens: no expansion, no second command, no comment."""
    plain = _NOT_FOR_THE_CONSOLE.sub("?", " ".join(text.replace(";", ",").replace("${", "{").split()))
    return textwrap.wrap(plain, CONSOLE_COLUMNS, break_on_hyphens=False)[:CONSOLE_LINES]
