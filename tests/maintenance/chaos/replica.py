"""One process of `provisioner controller` with the executor in it, driven by hand: one thread, one clock."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from provisioner.api import Image, Maintenance, NodePool, Server
from provisioner.api.machinery.errors import NeedsHuman, Retryable
from provisioner.cli.service.groups import account_of
from provisioner.cluster.controller import NEEDS_HUMAN_RETRY_SECONDS, Controller
from provisioner.cluster.resources import NODES, PODS, of
from provisioner.maintenance.controller import build_maintenance_controllers
from provisioner.maintenance.follow import MaintenanceInformers
from provisioner.rollout.controller import build_rollout_controllers
from provisioner.rollout.informers import RolloutInformers
from tests.maintenance.chaos.client import ACTS, WRITES, ChaosClient, InLanes, Meter
from tests.maintenance.chaos.fake_informer import FakeInformer
from tests.maintenance.chaos.fake_time import FakeClock
from tests.maintenance.chaos.story import InvariantBroken, Story

MOST_RECONCILES_AT_ONCE: Final = 300
"""More at one moment of the clock is a loop that would burn a processor and flood the API server."""


class StoryEvents:
    """Events, told in the story."""

    def __init__(self, story: Story, who: str) -> None:
        self._story, self._who = story, who
        self.reasons: list[str] = []

    def record(self, regarding: Mapping[str, Any], type: Any, reason: str, message: str) -> None:  # noqa: A002
        self.reasons.append(reason)
        self._story.tell(self._who, f"event {reason} on {regarding['kind']}: {message[:200]}")


class Replica:
    """One controller process from its start to its end. A crash is simply that nobody calls it any more."""

    def __init__(
        self,
        who: str,
        cluster: Any,
        look: Callable[[Any], Callable[[], dict[str, Any]]],
        workloads: Any,
        meter: Meter,
        clock: FakeClock,
        story: Story,
        seed: int,
        rollout: Any = None,
    ) -> None:
        """rollout: by what the rollout writes, if there is one in this process."""
        self.who, self._clock, self._story = who, clock, story
        types = {name: of(kind) for name, kind in _KINDS.items()}
        self._informers = {name: FakeInformer(type_, look(type_)) for name, type_ in types.items()}
        self._informers["nodes"] = FakeInformer(NODES, look(NODES))
        self.frozen_until: datetime | None = None
        self._frozen: tuple[str, ...] = ()
        self.skew = timedelta()
        """How far its host's clock is ahead."""
        self.events = StoryEvents(story, who)
        self._workloads = InLanes(ChaosClient(workloads, who, meter, ACTS))
        self.controllers: list[Controller] = build_maintenance_controllers(
            ChaosClient(cluster, who, meter, WRITES),
            MaintenanceInformers(**self._informers),  # type: ignore[arg-type]
            self._workloads,  # type: ignore[arg-type]
            self.events,
            self._wall,
            rng=random.Random(seed),
        )
        if rollout is not None:
            self._informers["pods"] = FakeInformer(PODS, workloads.pods)
            self.controllers += build_rollout_controllers(
                ChaosClient(rollout, f"{who} (rollout)", meter, WRITES),  # type: ignore[arg-type]
                RolloutInformers(**self._informers),  # type: ignore[arg-type]
                self._workloads,  # type: ignore[arg-type]
                self.events,
                self._wall,
                user=account_of("rollout"),
                monotonic=clock.monotonic,
            )
        for controller in self.controllers:
            controller.queue._clock = clock.monotonic
            controller.queue._jitter = lambda: 0.5
        story.tell(who, "starts")
        self._at_this_moment = (clock.now, 0)
        self.catch_up()

    def _wall(self) -> datetime:
        return self._clock.now + self.skew

    def freeze(self, seconds: float, *kinds: str) -> None:
        """Its watches are lost, all or those of some kinds, and nobody notices for so long."""
        self.frozen_until, self._frozen = self._clock.in_seconds(seconds), kinds or tuple(self._informers)
        self._story.tell(self.who, f"its caches of {', '.join(kinds) or 'all'} stand still for {seconds:.0f} s")

    def catch_up(self) -> None:
        if self.frozen_until is not None and self._clock.now >= self.frozen_until:
            self.frozen_until, self._frozen = None, ()
        for kind, informer in self._informers.items():
            if kind not in self._frozen:
                informer.catch_up()

    def work(self) -> bool:
        """Reconcile everything that is due; whether there was anything. SimulatedCrash goes through."""
        worked = False
        self.catch_up()
        for controller in self.controllers:
            while (key := controller.queue.get(timeout=0)) is not None:
                worked = True
                self._count()
                self._reconcile(controller, key)
                self.catch_up()
        return worked

    def next_moment(self) -> datetime | None:
        moments = [self.frozen_until] if self.frozen_until is not None else []
        for controller in self.controllers:
            waiting = controller.queue._waiting
            if waiting:
                # Rounded up: a moment before it is due nothing would happen, and the next one be taken for the first.
                moments.append(self._clock.start + timedelta(seconds=waiting[0][0], microseconds=1))
        return min(moments, default=None)

    def _reconcile(self, controller: Controller, key: str) -> None:
        queue = controller.queue
        try:
            again = self._workloads.begin(lambda: controller._reconcile(key), self.catch_up)
        except Retryable as error:
            queue.retry(key, error.after_seconds)
        except NeedsHuman as error:
            self._story.tell(self.who, f"reconcile needs a person: {error}")
            queue.retry(key, NEEDS_HUMAN_RETRY_SECONDS)
        except InvariantBroken:
            raise
        except Exception as error:
            self._story.must(False, f"reconcile failed: {error!r}\n{traceback.format_exc()}")
            queue.retry(key)
        else:
            queue.forget(key)
            if again is not None:
                queue.add_after(key, again)
        finally:
            queue.done(key)

    def _count(self) -> None:
        moment, count = self._at_this_moment
        count = count + 1 if moment == self._clock.now else 1
        self._at_this_moment = (self._clock.now, count)
        self._story.must(count <= MOST_RECONCILES_AT_ONCE, f"{self.who} reconciled {count} times without time passing")


_KINDS: Final = {"servers": Server, "pools": NodePool, "images": Image, "maintenances": Maintenance}
