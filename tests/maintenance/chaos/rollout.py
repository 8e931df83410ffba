"""A neighbour that takes servers in turns, as a rollout does: one entry in a Maintenance, whose turn it moves.

It files where `rules/requests.place` says, asks anew when its Maintenance ended without its Image, and has enough of a
server that failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from provisioner.api import Maintenance
from provisioner.api.machinery.codec import decode, to_json
from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.contract import MAINTENANCE_TAINT
from provisioner.api.nodes.maintenance import Requestor
from provisioner.rules.requests import entry_of, has_begun, is_active, place
from tests.maintenance.chaos.accounts import PERSON
from tests.maintenance.chaos.history import has_ended, phase_of
from tests.maintenance.chaos.invariants import observe
from tests.maintenance.chaos.world import World

NAME: Final = "fleet-upgrade"
LOOK_SECONDS: Final = 300
PATIENCE_SECONDS: Final = 4 * 3600

EFFECT_OF: Final = {"Waits": None, "Steered": "PreferNoSchedule", "Closed": "NoSchedule"}


class Rollout:
    """Of one server to one image. `turns`: when it moves to which one, in seconds from now; `Closed@1800`: until then
    jobs may start that end by then."""

    def __init__(
        self, world: World, server: str, image: str, turns: Sequence[tuple[float, str]] = (), **more: Any
    ) -> None:
        self._world, self._server, self._image = world, server, image
        self._more, self._turn, self._granted = more, "", False
        self._began = world.clock.now
        self._closes_at: datetime | None = None
        self.has_given_up = False
        self._until = world.clock.in_seconds(PATIENCE_SECONDS)
        world.uses_turns = True
        for seconds, turn in turns:
            world.later(seconds, lambda turn=turn: self.move(turn))  # type: ignore[misc]
        world.later(LOOK_SECONDS, self._look)

    def move(self, turn: str) -> None:
        """Its turn is that one now, from the first one on until the server has the image."""
        observe(self._world)
        self._check_closed()
        if not self._granted:
            wanted_anyway = any(image == self._image for _, image in self._world.history.pool_images)
            early = [boot for boot in self._world.machines[self._server].log if boot.image == self._image]
            self._world.story.must(wanted_anyway or not early, f"{self._server} booted {self._image} before its turn")
        self._turn, _, seconds = turn.partition("@")
        self._closes_at = self._began + timedelta(seconds=float(seconds)) if seconds else None
        self._granted = self._granted or turn == "Granted"
        self._file()

    def _look(self) -> None:
        observe(self._world)
        if self.is_done():
            return
        if self._world.clock.now >= self._until:
            self._give_up()
            return
        if self._turn:
            self._file()
        self._world.later(LOOK_SECONDS, self._look)

    def _file(self) -> None:
        """Write the turn where the entry is, or file it where there is none."""
        if self.is_done() or self.has_given_up:
            return
        known = self._maintenances()
        mine = [m for m in known if is_active(m) and entry_of(m, NAME) is not None]
        if any(has_begun(m) for m in mine):
            return  # it is carried to its end whatever is written there
        before = entry_of(mine[0], NAME) if mine else None
        entry = Requestor(
            name=NAME,
            action="Reimage",
            user=PERSON,
            image_ref=self._image,
            requested_time=before.requested_time if before is not None else rfc3339(self._world.clock.now),
            turn=self._turn,  # type: ignore[arg-type]
            closing_time=rfc3339(self._closes_at) if self._closes_at is not None else None,
            **self._more,
        )
        if before == entry:
            return
        if before is None:
            self._world.history.withdraw(self._server, NAME)  # what came to its end without the image is asked anew
            self._world.history.ask(self._server, NAME, "Reimage", self._image)
        name = mine[0].name if mine else place(known, self._server, entry).name
        self._apply(name, [to_json(entry)])
        self._world.story.tell(
            NAME, f"writes into {name}: turn {self._turn}" + f" at {self._closes_at}" * bool(self._closes_at)
        )

    def is_done(self) -> bool:
        """Whether the entry has come to an end that it leaves at that."""
        history = self._world.history
        asked = [a for a in history.asked if (a.server, a.requestor) == (self._server, NAME)]
        bodies = [b for a in asked for b in history.carriers(a)]
        last = bodies[-1] if bodies else None
        if last is None or not has_ended(last):
            return False
        boot = last["status"].get("reboot") or {}
        brought = phase_of(last) == "Completed" and boot.get("imageRef") == self._image
        runs = self._world.machines[self._server].running_image == self._image
        return phase_of(last) == "Failed" or brought or runs

    def _give_up(self) -> None:
        self.has_given_up = True
        self._world.history.withdraw(self._server, NAME)
        for m in self._maintenances():
            if is_active(m) and entry_of(m, NAME) is not None:
                self._world.story.tell(NAME, f"gives up, and leaves {m.name}")
                self._apply(m.name, [])

    def _maintenances(self) -> list[Maintenance]:
        found = [decode(Maintenance, body) for body in self._world.maintenances()]
        return [m for m in found if m.spec.server_ref == self._server]

    def _apply(self, name: str, entries: list[Any]) -> None:
        spec: dict[str, Any] = {"serverRef": self._server} | ({"requestors": entries} if entries else {})
        body = {"apiVersion": "provisioner.dev/v1alpha1", "kind": "Maintenance", "metadata": {"name": name}}
        self._world.accounts.person.apply({**body, "spec": spec}, manager=f"provisioner-requestor-{NAME}")

    def _check_closed(self) -> None:
        """Before it moves on, where at most a crash came between: the server is closed as its turn says, unclaimed."""
        world, name = self._world, self._server
        if world.is_troubled or self._turn not in EFFECT_OF:
            return
        for m in self._maintenances():
            if is_active(m) and not any(r.has_turn for r in m.spec.requestors):
                world.story.must(m.status.phase == "Waiting", f"it is {self._turn}, and {m.name} is {m.status.phase}")
        taints = (world.nodes()[name].get("spec") or {}).get("taints") or ()
        effects = [taint["effect"] for taint in taints if taint["key"] == MAINTENANCE_TAINT]
        wanted = EFFECT_OF[self._turn]
        words = f"it is {self._turn}, and {name}"
        world.story.must(effects == ([wanted] if wanted else []), f"{words} has the taint {effects}")
        moment = self._closes_at if world.workloads.reserves else None
        reserves = wanted == "NoSchedule" and moment is not None and world.clock.now < moment
        drained, reserved = name in world.workloads.drains, (name, moment) in world.workloads.reservations.values()
        world.story.must(
            drained is (wanted == "NoSchedule" and not reserves), f"{words} is drained in Slurm: {drained}"
        )
        world.story.must(reserved or not reserves, f"{words} is not reserved in Slurm from {moment} on")
        if wanted != "NoSchedule":
            world.story.must(not world.workloads.reservations, f"{words} is reserved in Slurm")
