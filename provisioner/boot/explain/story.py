"""All that one machine would be told of its boot, in the order in which it would ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from provisioner.api import Server
from provisioner.boot.explain.facts import BootHost, MachineObjects
from provisioner.boot.explain.files import FetchedFile, fetched_files
from provisioner.boot.explain.firmware import Firmware, firmware_options, ipxe_options
from provisioner.boot.explain.lease import ExplainedResponder, Lease, PacketPath
from provisioner.boot.explain.script import ScriptStory, tell_script
from provisioner.boot.script.choose import Boot
from provisioner.rules.dpus import carries_boot_of

MOST_SUBNETS: Final = 12
"""With a discovery range, that are named where it is not known from where a machine asks."""


@dataclass(frozen=True, kw_only=True)
class FirstStage:
    """The program that firmware is told to fetch. protocol: TFTP, or HTTP (UEFI HTTP boot)."""

    protocol: str
    url: str


@dataclass(frozen=True, kw_only=True)
class BootStory:
    """firmware: who asks first. way: None where it is not known from where. firmware_lease, ipxe_lease: what the two
    are answered; None without a way. carrier: the DPU that answers in the boot host's place. problem: what of the
    inventory keeps DHCP from serving the machine as it is written. files: of a target that boots."""

    facts: MachineObjects
    firmware: Firmware
    way: PacketPath | None
    firmware_lease: Lease | None
    ipxe_lease: Lease | None
    first_stage: FirstStage | None
    discovery: tuple[tuple[str, str], ...]
    carrier: Server | None
    problem: str | None
    script: ScriptStory
    files: tuple[FetchedFile, ...]


def tell_boot(facts: MachineObjects, host: BootHost, firmware: Firmware, via: str | None = None) -> BootStory:
    """Raises: Refused if `via` is no address."""
    responder, mac = ExplainedResponder(facts.racks, facts.claimants, host), facts.mac
    way = responder.way(mac, via)
    by_firmware = responder.lease(mac, way, firmware_options(firmware)) if way is not None else None
    by_ipxe = responder.lease(mac, way, ipxe_options(firmware)) if way is not None else None
    reply = by_ipxe.reply if by_ipxe is not None else None
    server = facts.server
    source = reply.your_address if reply is not None else via
    script = tell_script(facts, host, source)
    files: tuple[FetchedFile, ...] = ()
    if isinstance(script.target, Boot) and server and facts.image and facts.rack:
        files = fetched_files(server, facts.image, facts.rack, host, facts.sizes)
    carriers = [dpu for dpu in facts.dpus if server is not None and carries_boot_of(dpu, server)]
    problems = responder.problems
    names = [f"Server/{server.name}", f"Rack/{server.spec.rack_ref}"] if server is not None else []
    return BootStory(
        facts=facts,
        firmware=firmware,
        way=way,
        firmware_lease=by_firmware,
        ipxe_lease=by_ipxe,
        first_stage=_first_stage(by_firmware, firmware),
        discovery=tuple(subnet.key for subnet in responder.discovery_subnets),
        carrier=min(carriers, key=lambda dpu: dpu.name, default=None),
        problem=next((problems[name] for name in names if name in problems), None),
        script=script,
        files=files,
    )


def _first_stage(lease: Lease | None, firmware: Firmware) -> FirstStage | None:
    reply = lease.reply if lease is not None else None
    file = (reply.option(67) or reply.boot_file) if reply is not None else None
    if reply is None or file is None:
        return None
    if firmware.endswith("-http"):
        return FirstStage(protocol="HTTP", url=file)
    return FirstStage(protocol="TFTP", url=f"tftp://{reply.next_server}/{file}")
