"""Look at each card, tell it what is missing, look again, and say how it stands."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

from provisioner.api.network.card import (
    CardConfiguration,
    CardDifference,
    CardState,
    CardStatus,
    HostAccess,
    find_refusal,
)
from provisioner.network.agent.card.decide import (
    ACCESS_SETTINGS,
    CardDecision,
    decide_access,
    decide_settings,
    privileges_query,
    settings_query,
)
from provisioner.network.agent.card.parse import UnreadableOutput, read_host_privileges, read_settings
from provisioner.network.agent.card.tools import Ran, ToolFailed, Tools, command

# Which PCI devices of this machine are BlueField cards.

PCI_DEVICES: Final = Path("/sys/bus/pci/devices")
VENDOR: Final = "0x15b3"
MODELS: Final = {"0xa2d6": "BlueField-2", "0xa2dc": "BlueField-3"}
"""By device id, of the network controller in them. Source: Linux, mlx5_core_pci_table in
drivers/net/ethernet/mellanox/mlx5/core/main.c; the same in pci.ids."""
MOST_CARDS: Final = 8
_MOST_DEVICES: Final = 4096
_ADDRESS: Final = re.compile(r"([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})\.[0-7]\Z")
_LONGEST_ID_BYTES: Final = 16


@dataclass(frozen=True)
class BlueField:
    """A card. address: of its first function, by which the tools know it: 0000:03:00.0."""

    address: str
    model: str


def find_bluefields(devices: Path = PCI_DEVICES) -> tuple[BlueField, ...]:
    """Each card once, by the first of its functions; at most `MOST_CARDS`.

    A machine without a PCI bus has none. Raises: OSError if the bus cannot be read.
    """
    found: dict[str, BlueField] = {}
    try:
        names = sorted(each.name for each in devices.iterdir())[:_MOST_DEVICES]
    except FileNotFoundError:
        return ()
    for name in names:
        address = _ADDRESS.match(name)
        if address is None or _read_id(devices / name / "vendor") != VENDOR:
            continue
        model = MODELS.get(_read_id(devices / name / "device"))
        if model is not None:
            found.setdefault(address[1], BlueField(name, model))
    return tuple(found.values())[:MOST_CARDS]


def _read_id(path: Path) -> str:
    """Nothing of a device that has just gone. Raises: OSError."""
    try:
        with path.open("rb") as stream:
            return stream.read(_LONGEST_ID_BYTES).decode("ascii", "replace").strip().lower()
    except FileNotFoundError:
        return ""


MOST_DIFFERENCES: Final = 32
_MOST_TOLD: Final = 6
_MESSAGE: Final = 4096


class UnknownSetting(Exception):
    """Something was declared that is not to be given to a card; the message says what, and what to do."""


@dataclass(frozen=True)
class CardReport:
    """How the cards of this machine stand. has_acted: whether one was told something, or was to be."""

    status: CardStatus
    message: str
    has_acted: bool = False


@dataclass(frozen=True)
class _Part:
    """Of one card, what its host may do with it, or its settings. trouble: why it was not brought to what it shall."""

    differences: tuple[CardDifference, ...] = ()
    trouble: str | None = None
    has_acted: bool = False


def configure(wanted: CardConfiguration, programs: Tools, devices: Path = PCI_DEVICES) -> CardReport:
    """Bring every BlueField of this machine to `wanted`. What fails of one card, or of one part, keeps no other."""
    try:
        cards = find_bluefields(devices)
    except OSError as error:
        words = f"the PCI devices of this machine cannot be read ({error}): run the agent as root, with /sys"
        return CardReport(CardStatus(state="Failed"), words[:_MESSAGE])
    if not cards:
        ids = ", ".join(f"{VENDOR}:{device}" for device in MODELS)
        words = f"no PCI device of this machine is a BlueField ({ids}): nothing was done, and nothing is to be"
        return CardReport(CardStatus(state="NotApplicable"), words)
    return _report(wanted, cards, [part for card in cards for part in _bring(card.address, wanted, programs)])


def _bring(device: str, wanted: CardConfiguration, programs: Tools) -> list[_Part]:
    parts = []
    access = wanted.host_access
    if access is not None:
        parts.append(_bring_part(lambda: _look_at_access(device, access, programs), programs, "hostAccess"))
    if wanted.settings:
        parts.append(_bring_part(lambda: _look_at_settings(device, wanted, programs), programs, "settings"))
    return parts


def _bring_part(look: Callable[[], CardDecision], programs: Tools, field: str) -> _Part:
    differences: tuple[CardDifference, ...] = ()
    has_acted = False
    try:
        decision = look()
        differences = decision.differences
        if decision.command is None:
            return _Part(differences)
        has_acted = True
        ran = programs.run(decision.command)
        if ran.status != 0:
            raise ToolFailed(f"{_ended(ran)}; correct spec.dpu.{field} of the DPU, or update the card's firmware")
        decision = look()
        differences = decision.differences
        if decision.command is not None:
            words = ", ".join(f"{each.name} is {each.stored}" for each in differences[:_MOST_TOLD])
            raise ToolFailed(
                f"{command(ran.argv)} ended well, and the card has not kept it ({words}): see what it says by hand, "
                "and whether somebody else changes it"
            )
    except (ToolFailed, UnreadableOutput, UnknownSetting) as error:
        return _Part(differences, str(error), has_acted)
    return _Part(differences, None, has_acted)


def _look_at_access(device: str, wanted: HostAccess, programs: Tools) -> CardDecision:
    """Raises: ToolFailed, UnreadableOutput, UnknownSetting."""
    if wanted not in get_args(HostAccess):
        raise UnknownSetting(f"hostAccess is {wanted!r}, which this agent does not know: update the DPU's image")
    stored = read_host_privileges(_asked(privileges_query(device), programs).output)
    ran = programs.run(settings_query(device, ACCESS_SETTINGS))
    try:
        told = read_settings(ran.output, ACCESS_SETTINGS) if ran.status == 0 else None
    except UnreadableOutput:
        told = None  # mstprivhost has said what is stored: what is in force is not known then
    return decide_access(device, wanted, stored, told)


def _look_at_settings(device: str, wanted: CardConfiguration, programs: Tools) -> CardDecision:
    """Raises: ToolFailed, UnreadableOutput, UnknownSetting."""
    refused = next((words for each in wanted.settings if (words := find_refusal(each)) is not None), None)
    if refused is not None:
        raise UnknownSetting(f"{refused}: take it out of spec.dpu.settings of the DPU, or update the DPU's image")
    names = [each.name for each in wanted.settings]
    seen = read_settings(_asked(settings_query(device, names), programs).output, names)
    return decide_settings(device, wanted.settings, seen)


def _asked(argv: tuple[str, ...], programs: Tools) -> Ran:
    """Raises: ToolFailed."""
    ran = programs.run(argv)
    if ran.status != 0:
        raise ToolFailed(f"{_ended(ran)}; run it by hand on the DPU, and see whether the card knows the names")
    return ran


def _ended(ran: Ran) -> str:
    return f"{command(ran.argv)} ended with status {ran.status} and printed: {ran.words()}"


def _report(wanted: CardConfiguration, cards: Sequence[BlueField], parts: Sequence[_Part]) -> CardReport:
    differences = tuple(each for part in parts for each in part.differences)
    troubles = [part.trouble for part in parts if part.trouble is not None]
    state: CardState = "Failed" if troubles else "NeedsPowerCycle" if differences else "Applied"
    has_acted = any(part.has_acted for part in parts)
    status = CardStatus(state=state, differences=differences[:MOST_DIFFERENCES])
    if troubles:
        return CardReport(status, "; ".join(troubles)[:_MESSAGE], has_acted)
    if differences:
        return CardReport(status, _waiting_words(wanted.server, differences)[:_MESSAGE], has_acted)
    named = ", ".join(f"{each.model} {each.address}" for each in cards)
    declared = [f"hostAccess {wanted.host_access}"] if wanted.host_access is not None else []
    declared += [f"{each.name}={each.value}" for each in wanted.settings]
    return CardReport(status, f"in force on {named}: {', '.join(declared)}"[:_MESSAGE], has_acted)


def _waiting_words(server: str, differences: Sequence[CardDifference]) -> str:
    told = [
        f"{each.name} of {each.device} shall be {each.wanted}, "
        + (f"is {each.in_force}" if each.in_force is not None else "is not said to be anything")
        + f", and {each.stored} is stored"
        for each in differences[:_MOST_TOLD]
    ]
    more = [f"{len(differences) - _MOST_TOLD} more"] if len(differences) > _MOST_TOLD else []
    asked = settings_query(differences[0].device, [each.name for each in differences[:_MOST_TOLD]])
    return (
        f"{'; '.join([*told, *more])}. What is stored is in force once the power of Server {server} was off, with the "
        f"card's: kubectl provision power-cycle {server}. {command(asked)} shows it on the DPU"
    )
