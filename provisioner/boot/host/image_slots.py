"""How many images a host sends at once: its link, shared so that each still gets a good rate. Pure, but for one look.

All bytes take as long either way. With few at once the first servers are done early, none falls below the least rate
and gives up with half of an image, and those who wait are told to ask again.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Final

from provisioner.api.servers.rack import LEAST_RATE_BYTES_PER_SECOND

MARGIN: Final = 4
"""A slot is worth so many times the least rate: TCP does not share a link evenly."""
UNKNOWN_LINK_MEGABITS: Final = 10_000
LEAST_SLOTS: Final = 16


def slots_of_link(megabits: int, least_rate: int = LEAST_RATE_BYTES_PER_SECOND) -> int:
    """How many share a link of so many Mbit/s; LEAST_SLOTS where that would be fewer. least_rate: in bytes/s."""
    return max(megabits * 125_000 // (MARGIN * least_rate), LEAST_SLOTS)


def link_megabits(address: str, network: Path = Path("/sys/class/net")) -> int:
    """The speed of the link that has this address; UNKNOWN_LINK_MEGABITS where nobody says it, as of a virtual one."""
    try:
        listed = subprocess.run(
            ["ip", "-json", "-4", "address"], capture_output=True, text=True, check=True, timeout=10
        ).stdout
        names = [
            str(link["ifname"])
            for link in json.loads(listed)
            if any(each.get("local") == address for each in link.get("addr_info", ()))
        ]
        speed = int((network / names[0] / "speed").read_text())
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError):
        return UNKNOWN_LINK_MEGABITS
    return speed if speed > 0 else UNKNOWN_LINK_MEGABITS
