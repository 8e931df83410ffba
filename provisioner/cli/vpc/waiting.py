"""`--wait`: tells what attachments wait for until their DPUs have confirmed what was asked, or have let go of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from provisioner.api import NetworkClaim, VPCAttachment
from provisioner.api.machinery.errors import Retryable
from provisioner.api.machinery.wording import plain
from provisioner.cli import printer
from provisioner.cli.kubectl.connection import find_named
from provisioner.cli.kubectl.failing import DONE, FAILED, TIMED_OUT
from provisioner.cli.vpc.standing import addresses_of, standing_of, waits_for
from provisioner.cluster.client import Cluster

INTERVAL_SECONDS: Final = 1.0
STUCK_SECONDS: Final = 5.0
"""What waits for a person is given up after so long: right after a change the controllers may not know all of it."""


@dataclass
class WatchedObject:
    """Something that is waited for, and what was told of it already."""

    name: str
    end: int | None = field(default=None, init=False)

    def look(self, cluster: Cluster, now: float) -> str | None:
        """News, as one line. Sets `end` to the exit code once it has ended. Raises: Retryable."""
        raise NotImplementedError


@dataclass
class Enforcing(WatchedObject):
    """An attachment until its DPU has confirmed it. now: seconds of any clock."""

    namespace: str
    uid: str | None
    told: str = field(default="", init=False)
    stuck_since: float | None = field(default=None, init=False)

    @classmethod
    def of(cls, attachment: VPCAttachment) -> Enforcing:
        metadata = attachment.metadata
        return cls(name=attachment.name, namespace=str(metadata.namespace), uid=metadata.uid)

    def look(self, cluster: Cluster, now: float) -> str | None:
        attachment = find_named(cluster, VPCAttachment, self.name, namespace=self.namespace)
        if attachment is None or attachment.metadata.uid != self.uid:
            self.end = FAILED
            return "is gone: somebody deleted it"
        return self.judge(attachment, now)

    def judge(self, attachment: VPCAttachment, now: float) -> str | None:
        """The same of an attachment that was read. Pure, beside its memory."""
        standing, words = standing_of(attachment), waits_for(attachment)
        if standing == "Enforced":
            self.end = DONE
            dpu, addresses = attachment.status.dpu_ref, addresses_of(attachment)
            if attachment.spec.quarantined:
                return f"is quarantined: DPU {dpu} has confirmed that nothing passes"
            return f"is enforced: DPU {dpu} has confirmed it, address {addresses}"
        if standing == "Waits":
            self.stuck_since = None
        elif self.stuck_since is None:
            self.stuck_since = now
        elif now - self.stuck_since >= STUCK_SECONDS:
            self.end = FAILED
        if words == self.told:
            return f"is not enforced: {words}" if self.end is not None else None
        self.told = words
        return f"is not enforced: {words}" if self.end is not None else f"waits: {words}"


@dataclass
class Releasing(WatchedObject):
    """A function that was detached, until its DPU has confirmed that it has nothing of the attachment any more. claim:
    name of the NetworkClaim of the function."""

    claim: str
    holder_uid: str | None
    told: tuple[str, ...] = field(default=(), init=False)

    def look(self, cluster: Cluster, now: float) -> str | None:
        found = find_named(cluster, NetworkClaim, self.claim)
        if found is None or found.spec.holder.uid != self.holder_uid:
            self.end = DONE
            return "is gone from its DPU, which has confirmed that"
        if found.status.waits_for == self.told:
            return None
        self.told = found.status.waits_for
        return f"waits until DPU {', '.join(self.told)} has confirmed that nothing of it is left"


def wait_for(cluster: Cluster, watched: Sequence[WatchedObject], *, timeout_seconds: float | None) -> int:
    """Tell what happens until all have ended; returns the exit code.

    An API server that is away is waited for. Who presses Control-C leaves things as they are, and is told so.
    """
    deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    try:
        while True:
            for each in [w for w in watched if w.end is None]:
                try:
                    news = each.look(cluster, time.monotonic())
                except Retryable:
                    continue
                if news is not None:
                    printer.say(plain(f"vpcattachment/{each.name} {news}"))
            left = [w for w in watched if w.end is None]
            if not left:
                return DONE if all(w.end == DONE for w in watched) else FAILED
            if deadline is not None and time.monotonic() >= deadline:
                names = " ".join(w.name for w in left)
                printer.say(f"error: not done within the time: {names}; what was asked for stands", err=True)
                return TIMED_OUT
            time.sleep(INTERVAL_SECONDS if len(left) <= 20 else len(left) / 20)
    except KeyboardInterrupt:
        printer.say("", "not waited for any longer; what was asked for stands", err=True)
        return 130
