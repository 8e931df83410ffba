"""What a server's iPXE shall do now: boot an image, or wait and say for what. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from provisioner.api import Image, NodePool, Rack, Server
from provisioner.api.machinery.errors import Refused
from provisioner.boot.script.kernel_arguments import BootUrls, check_word, find_subnet, kernel_arguments
from provisioner.rules import bootability
from provisioner.rules.bootability import Obstacle
from provisioner.rules.dpus import find_awaited_dpu

_ANY_URLS: Final = BootUrls(boot="http://boot-host", join="https://boot-host")
"""What an argument may be does not depend on which boot host renders it."""


@dataclass(frozen=True, kw_only=True)
class Boot:
    """Boot this kernel with this initramfs and these arguments."""

    server: str
    image: str
    kernel_url: str
    stage1_url: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class KeepWaiting:
    """Wait, say why on the console, and ask again. `server` is None for a machine nobody knows."""

    reason: str
    message: str
    remedy: str
    server: str | None = None
    retry_seconds: int = 15


BootTarget = Boot | KeepWaiting


def choose_boot_target(
    server: Server,
    pool: NodePool | None,
    image: Image | None,
    rack: Rack | None,
    urls: BootUrls,
    awaited: Sequence[str] = (),
) -> BootTarget:
    """Decide whether `server` boots `image` now, or waits, and for what. Which Image that is: `rules.assigned_image`
    (current_image). `awaited`: the DPUs in it that its boot waits for.

    Never raises for what is written in objects: an unusable value becomes a KeepWaiting that names it.
    """
    obstacle = bootability.find_obstacle(server, pool, image, rack) or find_awaited_dpu(server.name, awaited)
    if obstacle is not None:
        return _wait(server, obstacle)
    if pool is None or image is None or rack is None:
        raise AssertionError("find_obstacle lets nothing pass without a pool, an image and a rack")
    try:
        arguments = kernel_arguments(server, pool, image, rack, urls)
        kernel_url, stage1_url = (
            f"{urls.files_of_ipxe}/" + check_word(artifact.path, f"Image '{image.name}'")
            for artifact in (image.spec.kernel, image.spec.stage1)
        )
    except Refused as refused:
        # What find_obstacle does not know of is an address of this boot host.
        return _wait(server, _without_arguments(server, pool, image, rack) or _invalid_arguments(refused))
    return Boot(server=server.name, image=image.name, kernel_url=kernel_url, stage1_url=stage1_url, arguments=arguments)


def _wait(server: Server, obstacle: Obstacle) -> KeepWaiting:
    return KeepWaiting(server=server.name, reason=obstacle.reason, message=obstacle.message, remedy=obstacle.remedy)


def find_obstacle(server: Server, pool: NodePool | None, image: Image | None, rack: Rack | None) -> Obstacle | None:
    """What bootability.find_obstacle says, or that no script can be written for the server; None if it may boot."""
    return bootability.find_obstacle(server, pool, image, rack) or _without_arguments(server, pool, image, rack)


def _without_arguments(
    server: Server, pool: NodePool | None, image: Image | None, rack: Rack | None
) -> Obstacle | None:
    if pool is None or image is None or rack is None:
        return None  # said before
    try:
        find_subnet(server, rack)
    except Refused as refused:
        return Obstacle("SubnetMissing", refused.args[0], refused.hint)
    try:
        kernel_arguments(server, pool, image, rack, _ANY_URLS)
        for artifact in (image.spec.kernel, image.spec.stage1):
            check_word(artifact.path, f"Image '{image.name}'")
    except Refused as refused:
        return _invalid_arguments(refused)
    return None


def _invalid_arguments(refused: Refused) -> Obstacle:
    return Obstacle("InvalidKernelArguments", refused.args[0], refused.hint)
