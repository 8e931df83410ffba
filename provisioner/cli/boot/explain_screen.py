"""An explained boot as a person reads it, in the order in which the machine asks. Pure: the same facts, the same words.

52:54:00:12:34:56 is Server r01-u07: it would boot Image gpu-node-2

dhcp        the firmware (x86_64-uefi) asks by relay 10.80.0.1 (boot of Rack r01): offered, its own address
            …
"""

from __future__ import annotations

from collections.abc import Iterator

from provisioner.api.machinery.conditions import find_condition, is_true
from provisioner.api.machinery.wording import plain
from provisioner.boot.dhcp.wire.describe import DescribedMessage
from provisioner.boot.explain.files import FetchedFile
from provisioner.boot.explain.lease import Lease
from provisioner.boot.explain.story import MOST_SUBNETS, BootStory
from provisioner.boot.script.choose import Boot
from provisioner.cli.boot.explain_words import (
    Explained,
    attestation_words,
    following_reason,
    image_reason,
    join_words,
    pool_reason,
    progress_words,
    way_words,
)
from provisioner.cli.kubectl.printing import screen
from provisioner.rules.identity import macs_of


def render_story(explained: Explained) -> str:
    """The screen; ends with a newline."""
    story = explained.story
    sections = (
        ("who", _who(story)),
        ("now", filter(None, [progress_words(story)])),
        ("boot host", _boot_host(explained)),
        ("dhcp", _dhcp(story)),
        ("first stage", _first_stage(story)),
        ("dhcp, iPXE", _ipxe(story)),
        ("scripts", [f"first {story.script.first_url}, then {story.script.url}"]),
        ("decision", _decision(story)),
        ("pool", _pool(story)),
        ("image", _image(story)),
        ("files", _files(story.files)),
        ("arguments", [" ".join(story.script.target.arguments)] if isinstance(story.script.target, Boot) else []),
        ("join", _join(explained)),
        ("attestation", filter(None, [attestation_words(explained)])),
    )
    text = [f"    {plain(line)}".rstrip() for line in story.script.text.splitlines()]
    return screen(_headline(story), sections) + "\n".join(("", f"{story.script.url}:", *text)) + "\n"


def _headline(story: BootStory) -> str:
    server, target = story.facts.server, story.script.target
    who = f"{story.facts.mac} is Server {server.name}" if server is not None else f"{story.facts.mac} is no Server's"
    lease = story.firmware_lease
    if lease is not None and lease.reply is None and story.carrier is None:
        return f"{who}: DHCP would not answer it ({lease.verdict})"
    if isinstance(target, Boot):
        return f"{who}: it would boot Image {target.image}"
    return f"{who}: it would wait ({target.reason})"


def _who(story: BootStory) -> Iterator[str]:
    facts, server = story.facts, story.facts.server
    if server is None:
        yield "no Server boots from this MAC address, nor lists it among its interfaces"
        return
    place = f"Rack {server.spec.rack_ref}" if server.spec.rack_ref else "no Rack"
    address = f"address {server.status.address}" if server.status.address else "no address"
    if macs_of(server)[0] == facts.mac:
        yield f"Server {server.name} boots from it: {server.spec.acceptance}, in {place}, {address}"
    else:
        yield (
            f"a further interface of Server {server.name} (spec.interfaces), which boots from "
            f"{server.spec.boot_mac_address}"
        )
    others = sorted(each.name for each in facts.claimants if each.name != server.name)
    if others:
        yield (
            f"also named by {', '.join(others[:8])}: the accepted one has it, then the oldest, then by name; "
            "correct spec.bootMACAddress of the others"
        )
    if server.spec.dpu is not None:
        yield f"it is a DPU in Server {server.spec.dpu.host_ref}"
    if story.carrier is not None:
        ready = "Ready" if is_true(story.carrier.status.conditions, "Ready") else "not Ready"
        yield (
            f"its boot goes through DPU {story.carrier.name} ({ready}; spec.dpu.hostBoot is Proxied): that one answers "
            f"its DHCP and TFTP, and fetches for it what is told here; provisioner boot explain {story.carrier.name}"
        )


def _boot_host(explained: Explained) -> Iterator[str]:
    if not explained.address_known:
        yield "192.0.2.1 stands for its address: give --address to see what it would say itself"


def _dhcp(story: BootStory) -> Iterator[str]:
    if story.carrier is not None:
        yield f"DPU {story.carrier.name} answers in the boot host's place, which itself would say:"
    if story.problem is not None:
        yield f"not served as it is written: {story.problem}"
    if story.way is None or story.firmware_lease is None:
        yield "from where it asks is not known: give --via ADDRESS (the relay, or an address of the network)"
    else:
        yield f"the firmware ({story.firmware}) asks {way_words(story.way)}"
        yield from _lease(story.firmware_lease)
    server = story.facts.server
    if server is not None:
        if server.status.address is None and story.firmware_lease is not None:
            accepted = find_condition(server.status.conditions, "Accepted")
            why = f": {accepted.reason}: {accepted.message}" if accepted is not None else ""
            yield f"it is treated as an unknown machine, as it has no address of its own yet{why}"
        return
    names = [f"{subnet} of Rack {rack}" for rack, subnet in story.discovery[:MOST_SUBNETS]]
    more = f" and {len(story.discovery) - MOST_SUBNETS} more" if len(story.discovery) > MOST_SUBNETS else ""
    where = f"in {', '.join(names)}{more} alone" if names else "nowhere: no subnet of any Rack has a discovery range"
    yield f"unknown machines are lent addresses {where}"


def _ipxe(story: BootStory) -> Iterator[str]:
    lease = story.ipxe_lease
    if lease is None or lease.reply is None:
        return
    yield f"{lease.verdict}, address {lease.reply.your_address}: boot file (67) {lease.reply.option(67)}"


def _lease(lease: Lease) -> Iterator[str]:
    yield f"{lease.verdict}: {lease.words}" + (f"; remedy: {lease.remedy}" if lease.remedy else "")
    if lease.reply is None:
        return
    subnet = f" in {lease.subnet[1]} of Rack {lease.subnet[0]}" if lease.subnet is not None else ""
    certain = "" if not lease.lent else " (that one, unless another machine has it)"
    yield f"address {lease.reply.your_address}{subnet}{certain}"
    yield from message_lines(lease.reply)


def message_lines(message: DescribedMessage) -> Iterator[str]:
    """What a DHCP message says beside its addresses."""
    boot = (("next server", message.next_server), ("server name", message.server_name), ("file", message.boot_file))
    told = [f"{name} {value}" for name, value in boot if value is not None]
    told += [f"{name} {value}" for name, value in message.options]
    if told:
        yield "; ".join(told)


def _first_stage(story: BootStory) -> Iterator[str]:
    if story.first_stage is not None:
        yield f"by {story.first_stage.protocol}: {story.first_stage.url}"
    elif story.firmware_lease is not None:
        yield "none is named: its firmware does not go on from here"


def _decision(story: BootStory) -> Iterator[str]:
    target = story.script.target
    if isinstance(target, Boot):
        yield f"boot Image {target.image}"
    else:
        yield f"wait: {target.reason}: {target.message}"
        yield f"remedy: {target.remedy}"
        yield f"asks again every {target.retry_seconds} s"


def _pool(story: BootStory) -> Iterator[str]:
    chosen = story.script.pool
    if chosen is not None:
        yield f"{chosen.name or 'none'}: {pool_reason(story)}"


def _image(story: BootStory) -> Iterator[str]:
    chosen, held = story.script.image, story.facts.maintenance
    if chosen is not None:
        yield f"{chosen.name or 'none'}: {image_reason(story)}"
    following = following_reason(story)
    if following is not None:
        yield f"a boot that is ordered now gets {following}"
    if held is not None:
        yield f"Maintenance {held.name} is {held.status.phase or 'new'}: kubectl provision why {held.spec.server_ref}"


def _files(files: tuple[FetchedFile, ...]) -> Iterator[str]:
    sources = dict.fromkeys(", else ".join(each.removesuffix(f"/{f.path}") for each in f.sources) for f in files)
    for source in sources:
        found = [f.name for f in files if source == ", else ".join(e.removesuffix(f"/{f.path}") for e in f.sources)]
        yield f"from {source}: {', '.join(found)}"
    for file in files:
        size = f"{file.size_bytes} bytes" if file.size_bytes is not None else "any size"
        stored = {None: "", True: ", in the store", False: f", NOT in the store: {file.problem}"}[file.stored]
        yield f"{file.name}: {file.path}, {size}{stored}"


def _join(explained: Explained) -> Iterator[str]:
    decision, reason, message = join_words(explained)
    by = " by its DPU" if explained.join.by_dpu else ""
    if decision == "Admitted":
        yield f"would be answered{by}: {message}"
    else:
        words = {"NotYet": "put off", "Challenged": "challenged"}.get(decision, "refused")
        yield f"{words}{by}, {reason}: {message}"
    if not explained.lease_known:
        yield "whether the boot before still lives is not known here (Leases of kube-node-lease): if so, it is put off"
