"""What goes wrong in a soak, and when: all of it follows from one seed, which is printed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal[
    "KillService",
    "KillControlPlane",
    "Freeze",
    "PowerCut",
    "ResetButton",
    "SlowBmc",
    "ResetsUnavailable",
    "SlowLink",
    "DrippingCache",
    "Reboot",
    "PowerCycle",
    "Drain",
]

SERVICES: Final = ("boot", "controller", "nginx: worker", "nginx: master", "dnsmasq", "dhcp.workers.worker")
"""What comes back by itself: the lab's two services; by words of their command lines, the boot service's children."""
CONTROL_PLANE: Final = ("kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler")


@dataclass(frozen=True)
class Trouble:
    """Something that goes wrong `at` seconds after the start and is over `lasts` seconds later; 0: at once."""

    at: float
    kind: Kind
    target: str
    lasts: float = 0.0

    def __str__(self) -> str:
        return f"{self.at:5.0f} s  {self.kind} {self.target}" + (f" for {self.lasts:.0f} s" if self.lasts else "")


@dataclass(frozen=True)
class _Stream:
    """Troubles of one sort: one begins `gap` seconds after the one before it has ended."""

    kinds: tuple[Kind, ...]
    targets: tuple[str, ...]
    gap: tuple[float, float]
    lasts: tuple[float, float] = (0.0, 0.0)


def plan(seed: int, seconds: float, servers: Sequence[str]) -> list[Trouble]:
    """The troubles of a soak in the order in which they begin; none begins, or is still there, after `seconds`."""
    machines = tuple(servers)
    streams = (
        _Stream(("KillService",), SERVICES, (6.0, 18.0)),
        _Stream(("KillControlPlane",), CONTROL_PLANE, (60.0, 120.0)),
        _Stream(("Freeze",), ("boot", "controller", "kube-apiserver"), (45.0, 90.0), (5.0, 25.0)),
        _Stream(("PowerCut", "ResetButton"), machines, (150.0, 240.0)),
        _Stream(("SlowBmc", "ResetsUnavailable"), machines, (45.0, 90.0), (20.0, 60.0)),
        _Stream(("SlowLink", "DrippingCache"), machines, (45.0, 90.0), (20.0, 60.0)),
        _Stream(("Reboot", "PowerCycle", "Drain"), machines, (75.0, 150.0), (10.0, 30.0)),
    )
    troubles: list[Trouble] = []
    for number, stream in enumerate(streams):
        dice = random.Random(f"{seed}/{number}")
        kinds, at = list(stream.kinds), dice.uniform(0, stream.gap[1])
        dice.shuffle(kinds)
        for turn in range(int(seconds)):
            lasts = dice.uniform(*stream.lasts)
            if at + lasts >= seconds:
                break
            # In turn, so that a short soak has each of them.
            troubles.append(Trouble(at, kinds[turn % len(kinds)], dice.choice(stream.targets), lasts))
            at += lasts + dice.uniform(*stream.gap)
    return sorted(troubles, key=lambda trouble: (trouble.at, trouble.kind))
