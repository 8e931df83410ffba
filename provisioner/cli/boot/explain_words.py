"""An explained boot as data: for programs as JSON, and the words that JSON and the screen share. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.api.machinery.schema import API_VERSION
from provisioner.api.servers.boot_stage import WAITS_FOR
from provisioner.boot.dhcp.wire.describe import DescribedMessage
from provisioner.boot.explain.lease import Lease, PacketPath
from provisioner.boot.explain.script import POOL_RULES, image_words
from provisioner.boot.explain.story import BootStory
from provisioner.boot.script.choose import Boot
from provisioner.join.admission.admit import Admitted, Challenged, JoinFacts
from provisioner.join.admission.foresee import Foreseen
from provisioner.rules.assigned_image import ChosenImage


@dataclass(frozen=True, kw_only=True)
class Explained:
    """lease_known: whether the caller may see if an old boot lives, where that matters. address_known: whether the
    boot host's address was said."""

    story: BootStory
    join: Foreseen
    join_facts: JoinFacts
    lease_known: bool
    address_known: bool


def join_words(explained: Explained) -> tuple[str, str, str]:
    """Whether the join would be answered (Admitted, NotYet, Denied), the reason, and a sentence."""
    decision = explained.join.decision
    if isinstance(decision, Admitted):
        return (
            "Admitted",
            "Armed",
            f"boot order {decision.order.id} is armed: one join configuration would be handed out",
        )
    if isinstance(decision, Challenged):
        return "Challenged", "Challenge", "it would have to prove who it is first"
    return type(decision).__name__, decision.reason, decision.message


def attestation_words(explained: Explained) -> str | None:
    """What the pool asks for as a proof."""
    pool = explained.join_facts.pool
    if pool is None:
        return None
    if pool.spec.attestation == "Optional":
        return f"NodePool {pool.name} says Optional: MAC address, source address and the ordered boot are enough"
    words = f"NodePool {pool.name} says Required: it must prove who it is by TPM"
    if pool.spec.without_tpm == "VouchedByDPU":
        words += ", or, if it has none, boot through a DPU that has proved its own boot"
    return words


def way_words(way: PacketPath) -> str:
    """From where the machine asks."""
    of = ", ".join(f"{subnet} of Rack {rack}" for rack, subnet in way.subnets) or "no subnet of any Rack"
    by = f"by relay {way.relay}" if way.relay is not None else f"without a relay, by the network of {way.address}"
    return f"{by} ({of}{'; assumed, --via says otherwise' if way.assumed else ''})"


def pool_reason(story: BootStory) -> str | None:
    return POOL_RULES[story.script.pool.rule] if story.script.pool is not None else None


def image_reason(story: BootStory) -> str | None:
    return _image_words(story, story.script.image)


def following_reason(story: BootStory) -> str | None:
    """Which Image a boot that is ordered now would get, where that is another one."""
    chosen = story.script.following
    words = _image_words(story, chosen)
    return f"{chosen.name}: {words}" if chosen is not None and words is not None else None


def _image_words(story: BootStory, chosen: ChosenImage | None) -> str | None:
    server, held = story.facts.server, story.facts.maintenance
    if server is None or chosen is None:
        return None
    return image_words(chosen, server, story.facts.pool, held.name if held is not None else None)


def progress_words(story: BootStory) -> str | None:
    """Where its boot is now, by what was heard of it."""
    server = story.facts.server
    stage = server.status.boot_stage if server is not None else None
    if server is None or stage is None:
        return None
    lifecycle = f"lifecycle {server.status.lifecycle}, " if server.status.lifecycle else ""
    return f"{lifecycle}stage {stage}: waits for {WAITS_FOR[stage]}"


def story_json(explained: Explained) -> dict[str, Any]:
    """All of it, for programs."""
    story = explained.story
    facts, script, target = story.facts, story.script, story.script.target
    decision, reason, message = join_words(explained)
    boots = isinstance(target, Boot)
    chosen = {"decision": "Boot" if boots else "Wait"}
    if isinstance(target, Boot):
        chosen |= {"kernelURL": target.kernel_url, "stage1URL": target.stage1_url}
    else:
        chosen |= {"reason": target.reason, "message": target.message, "remedy": target.remedy}
    return {
        "apiVersion": API_VERSION,
        "kind": "BootExplanation",
        "metadata": {"name": facts.server.name if facts.server is not None else facts.mac},
        "macAddress": facts.mac,
        "server": facts.server.name if facts.server is not None else None,
        "claimants": [each.name for each in facts.claimants],
        "bootHostAddressKnown": explained.address_known,
        "firmware": story.firmware,
        "answeredByDPU": story.carrier.name if story.carrier is not None else None,
        "inventoryProblem": story.problem,
        "way": _json(story.way) if story.way is not None else None,
        "discoverySubnets": [{"rack": rack, "subnet": subnet} for rack, subnet in story.discovery],
        "dhcp": {"firmware": lease_json(story.firmware_lease), "ipxe": lease_json(story.ipxe_lease)},
        "firstStage": _json(story.first_stage) if story.first_stage is not None else None,
        "firstScript": {"url": script.first_url, "text": script.first},
        "script": {"url": script.url, **chosen, "text": script.text},
        "nodePool": {**_json(script.pool), "because": pool_reason(story)} if script.pool is not None else None,
        "image": {**_json(script.image), "because": image_reason(story)} if script.image is not None else None,
        "nextImage": {**_json(script.following), "because": following_reason(story)} if script.following else None,
        "kernelArguments": list(target.arguments) if isinstance(target, Boot) else [],
        "files": [_json(file) for file in story.files],
        "join": {
            "decision": decision,
            "reason": reason,
            "message": message,
            "byDPU": explained.join.by_dpu,
            "attestation": attestation_words(explained),
            "heartbeatKnown": explained.lease_known,
        },
    }


def lease_json(lease: Lease | None) -> dict[str, Any] | None:
    if lease is None:
        return None
    return {
        "verdict": lease.verdict,
        "words": lease.words,
        "remedy": lease.remedy,
        "subnet": {"rack": lease.subnet[0], "subnet": lease.subnet[1]} if lease.subnet is not None else None,
        "request": message_json(lease.asked) if lease.asked is not None else None,
        "reply": message_json(lease.reply) if lease.reply is not None else None,
    }


def message_json(message: DescribedMessage) -> dict[str, Any]:
    """A DHCP message, decoded."""
    return {**_json(message), "options": dict(message.options)}


def _json(value: Any) -> dict[str, Any]:
    """A flat dataclass or named tuple, its fields in camelCase."""
    fields: Mapping[str, Any] = (
        {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        if dataclasses.is_dataclass(value)
        else value._asdict()
    )
    return {_camel(name): list(each) if isinstance(each, tuple) else each for name, each in fields.items()}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
