"""What people asked for and what really happened, apart from anything that the executor says about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from provisioner.api.machinery.meta import parse_time, rfc3339
from provisioner.api.nodes.maintenance import FINAL_PHASES
from provisioner.rollout.standing import REQUESTOR as ROLLOUT
from tests.maintenance.chaos.fake_time import FakeClock

Object = dict[str, Any]


@dataclass(eq=False)
class Asked:
    """One request: a condition of a Node, or a requestor of a Maintenance. `image`: the one that was named.

    carriers: uids of the Maintenances that took it over, in that order. lost_at: when its Node was deleted, and the
    condition with it. drained_at: when the server was first out of use and empty for its sake. again_at: when it was
    set once more before it was decided.
    """

    server: str
    requestor: str
    action: str
    image: str | None
    at: datetime
    withdrawn_at: datetime | None = None
    lost_at: datetime | None = None
    drained_at: datetime | None = None
    carriers: list[str] = field(default_factory=list)
    again_at: list[datetime] = field(default_factory=list)

    @property
    def is_condition(self) -> bool:
        return self.requestor.startswith("condition-")

    @property
    def stands(self) -> bool:
        """Whether whoever asked still wants it."""
        return self.withdrawn_at is None and self.lost_at is None

    def __str__(self) -> str:
        image = f" into {self.image}" if self.image else ""
        return f"{self.action}{image} of {self.server}, asked for by {self.requestor} at {self.at:%H:%M:%S}"


class History:
    """Filled by people, machines and jobs while time passes; read when everything is over."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.asked: list[Asked] = []
        self.last: dict[str, Object] = {}
        """Each Maintenance as it was seen last, by uid, also of those that are gone."""
        self.pool_images: list[tuple[datetime, str]] = []
        self.nodes_deleted: list[tuple[datetime, str]] = []
        self.maintenances_deleted: set[str] = set()
        """uids."""
        self.servers_gone: set[str] = set()
        self.images_gone: list[tuple[datetime, str, bool]] = []
        """When an image went, and when it came back."""

    # What people do

    def ask(self, server: str, requestor: str, action: str, image: str | None = None, *, again: bool = False) -> None:
        """`again`: the same condition was True already; that asks for nothing new unless it was decided before.

        A condition carries whole seconds: one that was taken in, decided and set again in one second is answered.
        """
        open_ = next((a for a in reversed(self.asked) if (a.server, a.requestor) == (server, requestor)), None)
        if open_ is not None and open_.stands:
            decided = [uid for uid in open_.carriers if is_decided(self.last[uid])]
            if any(self._was_all_in_this_second(uid, requestor) for uid in decided):
                return
            if again and not decided:
                open_.image = image
                open_.again_at.append(self._clock.now)
                return
        self.asked.append(Asked(server, requestor, action, image, self._clock.now, carriers=self._keep_it(open_)))

    def _keep_it(self, withdrawn: Asked | None) -> list[str]:
        """The Maintenances from which nobody took out yet what was withdrawn: asked for again, it is in them."""
        if withdrawn is None or withdrawn.stands:
            return []
        return [b["metadata"]["uid"] for b in self.carriers(withdrawn) if not is_decided(b)]

    def _was_all_in_this_second(self, uid: str, requestor: str) -> bool:
        now = rfc3339(self._clock.now)
        taken_in = {r["name"]: r.get("requestedTime") for r in self.last[uid]["spec"].get("requestors") or ()}
        return verdict_of(self.last[uid])["lastTransitionTime"] == taken_in.get(requestor, now) == now

    def withdraw(self, server: str, requestor: str) -> None:
        for asked in self.asked:
            if (asked.server, asked.requestor) == (server, requestor) and asked.stands:
                asked.withdrawn_at = self._clock.now

    def delete_node(self, server: str) -> None:
        self.nodes_deleted.append((self._clock.now, server))
        for asked in self.asked:
            if asked.server == server and asked.is_condition and asked.stands:
                asked.lost_at = self._clock.now

    def may_be_two(self, asked: Asked, done: Object) -> bool:
        """Whether it was set again in the second in which that was decided: nobody can tell which came first. Or while
        its boot was under way, which answers who asks for an Image alone."""
        boot = (done.get("status") or {}).get("reboot") or {}
        began = parse_time(boot["startedTime"]) if boot.get("startedTime") and asked.action != "Reimage" else None
        return any(
            rfc3339(at) == verdict_of(done)["lastTransitionTime"] or (began is not None and at >= began)
            for at in asked.again_at
        )

    # What the API server shows

    def observe(self, maintenance: Object) -> str | None:
        """Take in a Maintenance that has changed. Returns: what is wrong with it, if anything."""
        uid, spec = maintenance["metadata"]["uid"], maintenance["spec"]
        before, self.last[uid] = self.last.get(uid), maintenance
        known = {r["name"] for r in before["spec"].get("requestors") or ()} if before is not None else set()
        for requestor in spec.get("requestors") or ():
            if requestor["name"] in known or requestor["name"] == ROLLOUT:
                continue  # no person asks for what a rollout does
            mine = [a for a in self.asked if (a.server, a.requestor) == (spec["serverRef"], requestor["name"])]
            if not mine:
                return f"{maintenance['metadata']['name']} names {requestor['name']}, who asked for nothing"
            if uid not in mine[-1].carriers:
                mine[-1].carriers.append(uid)
        return None

    def carriers(self, asked: Asked) -> list[Object]:
        """The Maintenances that have or had the request when they were seen last."""
        bodies = [self.last[uid] for uid in asked.carriers]
        return [b for b in bodies if any(r["name"] == asked.requestor for r in b["spec"].get("requestors") or ())]

    def was_image_gone(self, image: str, began: datetime, ended: datetime) -> bool:
        """Whether no boot host had the image at any moment of that time."""
        said = [(at, gone) for at, name, gone in self.images_gone if name == image and at <= ended]
        return any(gone and at >= began for at, gone in said) or any(gone for at, gone in said[-1:])

    def images_since(self, moment: datetime) -> set[str]:
        """What the pool wanted at that moment and afterwards."""
        before = [image for at, image in self.pool_images if at <= moment]
        return {*before[-1:], *(image for at, image in self.pool_images if at > moment)}


def phase_of(maintenance: Object) -> str | None:
    phase: str | None = (maintenance.get("status") or {}).get("phase")
    return phase


def has_ended(maintenance: Object) -> bool:
    return phase_of(maintenance) in FINAL_PHASES


def is_decided(maintenance: Object) -> bool:
    """Whether its end is written down, which may still be to be carried out."""
    return has_ended(maintenance) or verdict_of(maintenance)["status"] in ("True", "False")


def verdict_of(maintenance: Object) -> dict[str, str]:
    """Its condition Succeeded."""
    conditions = (maintenance.get("status") or {}).get("conditions") or ()
    none = {"status": "Unknown", "reason": "", "message": "", "lastTransitionTime": ""}
    return next((c for c in conditions if c["type"] == "Succeeded"), none)
