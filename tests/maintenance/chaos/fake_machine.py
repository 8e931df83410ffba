"""A fake server: its power, its kernel, its kubelet, the agent in its image, and its BMC.

Simulated: how long things take, what is booted, what it reports. It breaks in the ways that `habits` say.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from provisioner.power.bmc.power_controller import BmcUnreachable, ObservedPower
from tests.maintenance.chaos.fake_time import FakeClock
from tests.maintenance.chaos.story import Story

Habit = Literal[
    "never returns",
    "wrong image",
    "too fast",
    "agent is deaf",
    "checks fail",
    "BMC is dead",
    "kubelet flaps",
    "kubelet dies",
]
State = Literal["Running", "Booting", "Asking", "Off", "Dead"]

BOOT_SECONDS, KEXEC_SECONDS, FAST_SECONDS = 300, 90, 2
BMC_AGAIN_SECONDS: Final = 30.0
SILENT_SECONDS: Final = 40
"""After so long without a word of its kubelet the control plane calls a Node Unknown."""
FLAP_SECONDS, FLAP_SILENT_SECONDS = 600, 120
"""A kubelet that flaps falls silent so long at the end of each such time."""
KUBELET_LIVES_SECONDS: Final = 3600


@dataclass(kw_only=True)
class Boot:
    """One boot as it really was. `cold`: from power off.

    attempt: id of the executor's attempt at a reboot in whose name it was begun. again: because a boot in that name
    went wrong or was lost, which is the boot controller's to repeat.
    """

    boot_id: str
    image: str
    at: datetime
    attempt: str | None = None
    again: bool = False
    cold: bool = False
    joined_at: datetime | None = None
    passed_at: datetime | None = None
    failed_at: datetime | None = None
    down_at: datetime | None = None


@dataclass
class FakeMachine:
    """One server. `on_down` is told why it goes down, before its jobs are lost."""

    name: str
    clock: FakeClock
    story: Story
    on_down: Callable[[str, str | None], None]
    running_image: str
    stale_image: str
    state: State = "Running"
    boot_id: str = ""
    boots: int = 0
    habits: list[Habit] = field(default_factory=list)
    """Consumed one by one, each by one boot; the last one stays if it is in `lasting`."""
    lasting: set[Habit] = field(default_factory=set)
    down_since: datetime | None = None
    due: datetime | None = None
    obeyed: set[str] = field(default_factory=set)
    verified_boot_id: str | None = None
    """The boot whose checks have passed last, unless they failed since."""
    log: list[Boot] = field(default_factory=list)
    """Every boot, the one before the history begins first."""
    since: dict[Habit, datetime] = field(default_factory=dict)
    """When it took to a lasting habit."""
    died_at: datetime | None = None
    spoiled: dict[str, set[Habit]] = field(default_factory=dict)
    """What goes wrong with every boot of an image, by its name."""
    on_boot: Callable[[FakeMachine, Boot], None] = lambda machine, boot: None
    """Is told of each boot when it begins."""

    def __post_init__(self) -> None:
        self.boot_id = self.verified_boot_id = self._new_boot_id()
        self.log.append(
            Boot(boot_id=self.boot_id, image=self.running_image, at=self.clock.now, joined_at=self.clock.now)
        )

    def keep(self, habit: Habit) -> None:
        """From now on it always goes wrong that way."""
        self.lasting.add(habit)
        self.since.setdefault(habit, self.clock.now)

    def was(self, habit: Habit, moment: datetime) -> bool:
        return habit in self.since and self.since[habit] <= moment

    def boot_at(self, moment: datetime) -> Boot | None:
        """The boot that had joined and was up at that moment."""
        ups = [b for b in self.log if b.joined_at is not None and b.joined_at <= moment]
        return ups[-1] if ups and (ups[-1].down_at is None or ups[-1].down_at > moment) else None

    def ran(self, moment: datetime) -> bool:
        return self.boot_at(moment) is not None

    def has(self, habit: Habit) -> bool:
        return habit in self.lasting or habit in self.habits or habit in self.spoiled.get(self.running_image, ())

    def take(self, habit: Habit) -> bool:
        """Whether this boot goes that way."""
        if habit in self.habits:
            self.habits.remove(habit)
            return True
        return self.has(habit)

    def boot(self, image: str, seconds: float, why: str, attempt: str | None = None, *, again: bool = False) -> None:
        """Begin to boot `image`, whatever ran before, in the name of an attempt."""
        cold = self.state == "Off"
        self.go_down(why)
        self.boots += 1
        self.state, self.boot_id = "Booting", self._new_boot_id()
        self.running_image = self.stale_image if self.take("wrong image") else image
        made = Boot(boot_id=self.boot_id, image=self.running_image, at=self.clock.now, attempt=attempt)
        made.again, made.cold = again, cold
        self.log.append(made)
        self.due = None if self.take("never returns") else self.clock.in_seconds(seconds)
        if self.due is not None and self.take("too fast"):
            self.due = self.clock.in_seconds(FAST_SECONDS)
        self.story.tell(self.name, f"boots ({why}): {self.running_image}, boot {self.boot_id[:8]}")
        self.on_boot(self, made)

    def go_down(self, why: str | None) -> None:
        if self.state == "Running":
            self.on_down(self.name, why)
            self.down_since = self.log[-1].down_at = self.clock.now
        self.state, self.due = "Off", None

    def die(self) -> None:
        """It breaks, through nobody's doing, and is not repaired."""
        self.go_down(None)
        self.state, self.died_at = "Dead", self.clock.now
        self.story.tell(self.name, "dies")

    def is_unreachable(self) -> bool:
        """Whether its kubelet has been silent for so long that the control plane says so."""
        silent = self.down_since is not None and self.clock.now - self.down_since >= timedelta(seconds=SILENT_SECONDS)
        return self.state != "Running" and silent

    def silent_since(self) -> datetime | None:
        """Since when its kubelet says nothing although its kernel runs; None if it speaks."""
        joined = self.log[-1].joined_at
        if self.state != "Running" or joined is None:
            return None
        age = (self.clock.now - joined).total_seconds()
        if self.has("kubelet dies") and age >= KUBELET_LIVES_SECONDS:
            return joined + timedelta(seconds=KUBELET_LIVES_SECONDS)
        silent = age % FLAP_SECONDS - (FLAP_SECONDS - FLAP_SILENT_SECONDS)
        return self.clock.now - timedelta(seconds=silent) if self.has("kubelet flaps") and silent >= 0 else None

    def is_missed(self) -> bool:
        """Whether its kernel runs, and its kubelet was silent for so long that the control plane says so."""
        since = self.silent_since()
        return since is not None and self.clock.now - since >= timedelta(seconds=SILENT_SECONDS)

    def is_fit(self) -> bool:
        """Whether jobs may come: it runs, its checks have passed, and its kubelet is heard."""
        return self.state == "Running" and self.verified_boot_id == self.boot_id and not self.is_missed()

    def _next_silence(self) -> list[datetime]:
        """When its kubelet may next fall silent, be missed, or speak again."""
        joined = self.log[-1].joined_at
        if self.state != "Running" or joined is None:
            return []
        moments = []
        if self.has("kubelet dies"):
            dead = joined + timedelta(seconds=KUBELET_LIVES_SECONDS)
            moments += [dead, dead + timedelta(seconds=SILENT_SECONDS)]
        if self.has("kubelet flaps"):
            begin = self.clock.now - timedelta(seconds=(self.clock.now - joined).total_seconds() % FLAP_SECONDS)
            silent = FLAP_SECONDS - FLAP_SILENT_SECONDS
            moments += [begin + timedelta(seconds=s) for s in (silent, silent + SILENT_SECONDS, FLAP_SECONDS)]
        return [moment for moment in moments if moment > self.clock.now]

    def next_moment(self) -> datetime | None:
        moments = [self.due] if self.due is not None else []
        if self.state != "Running" and self.down_since is not None:
            unreachable = self.down_since + timedelta(seconds=SILENT_SECONDS)
            moments += [unreachable] if unreachable > self.clock.now else []
        return min((*moments, *self._next_silence()), default=None)

    def _new_boot_id(self) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{self.name}-{self.boots}"))


class FakeBmc:
    """The BMC of a machine, as `provisioner.power` speaks to it.

    ordered: what its firmware would fetch now, the attempt in whose name the boot is ordered, and whether once more.
    """

    def __init__(self, machine: FakeMachine, ordered: Callable[[], tuple[str, str | None, bool]]) -> None:
        self._machine, self._ordered = machine, ordered

    def get_power_state(self) -> ObservedPower:
        if self._machine.has("BMC is dead"):
            raise BmcUnreachable(f"BMC of {self._machine.name} does not answer", after_seconds=BMC_AGAIN_SECONDS)
        return "Off" if self._machine.state == "Off" else "On"

    def set_boot_override(self, *args: Any) -> None:
        pass

    def power_on(self) -> None:
        if self._machine.state == "Off":
            image, attempt, again = self._ordered()
            self._machine.boot(image, BOOT_SECONDS, "powered on by its BMC", attempt, again=again)

    def power_off(self, *, force: bool) -> None:
        if self._machine.state != "Dead":
            self._machine.go_down("its BMC cut the power")

    def reset(self) -> None:
        if self._machine.state not in ("Dead", "Off"):
            image, attempt, again = self._ordered()
            self._machine.boot(image, BOOT_SECONDS, "reset by its BMC", attempt, again=again)

    def close(self) -> None:
        pass


class FakeBmcPool:
    """Finds the BMC of a server at once."""

    def __init__(self, bmcs: dict[str, FakeBmc]) -> None:
        self._bmcs = bmcs

    def get(self, server: str, bmc: Any) -> FakeBmc:
        return self._bmcs[server]

    def drop(self, server: str) -> None:
        pass

    def refuse(self, server: str, error: Exception) -> None:
        pass

    def close(self) -> None:
        pass
