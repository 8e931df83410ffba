"""The effects of `judge`: reads whom the cluster believes, and writes the condition Verified of each Image."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

import structlog

from provisioner.api import Image
from provisioner.api.machinery.codec import decode, to_json
from provisioner.api.machinery.errors import Refused
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller
from provisioner.cluster.events import Events, Happened
from provisioner.cluster.reconciler import Said, StatusReconciler
from provisioner.cluster.remembered import Remembered
from provisioner.cluster.resources import CONFIG_MAPS, SYSTEM
from provisioner.cluster.source import Object, Source, conditions_of, spec_of, when_changed
from provisioner.image.trust.document import NAME, Trust, parse_trust
from provisioner.image.trust.judge import VERIFIED, judge
from provisioner.rules.ownership import owned_by

log = structlog.get_logger(__name__)

MANAGER: Final = "provisioner-image-trust"
READ_SECONDS: Final = 15.0
"""The ConfigMap is read no more often, and each Image looked at so often: what somebody changes in whom the cluster
believes counts after this time."""


def trust_of(cluster: Cluster) -> Remembered[Trust | Refused]:
    """Whom the cluster believes, read every 15 s by whoever asks: the document, or why it cannot be understood. Nothing
    that is there is an empty one. Raises: what `Cluster.find` raises."""
    return Remembered(lambda: read_trust(cluster.find(CONFIG_MAPS, NAME, namespace=SYSTEM)), READ_SECONDS)


def read_trust(config_map: Mapping[str, Any] | None) -> Trust | Refused:
    """Of the ConfigMap's JSON; None if there is none. Refused, as a value, with what is wrong in it."""
    try:
        if (config_map or {}).get("binaryData"):
            raise Refused(f"ConfigMap '{NAME}' has binary data", hint="make it from text files")
        return parse_trust((config_map or {}).get("data") or {})
    except Refused as error:
        return error


class ImageTrustController(StatusReconciler[Said]):
    """Reconciles one Image at a time, by name."""

    owned = owned_by(MANAGER, Image)

    def __init__(
        self,
        cluster: Cluster,
        images: Source,
        trust: Callable[[], Trust | Refused],
        events: Events,
        *,
        now: Callable[[], datetime],
    ) -> None:
        super().__init__(cluster, images, events, caches=(images,), now=now)
        self._trust = trust

    def decide(self, key: str, body: Object) -> Said:
        said = judge(decode(Image, body), self._trust(), self._now())
        if said is None:
            return Said(requeue_after_seconds=READ_SECONDS)
        events: tuple[Happened, ...] = ()
        if said.status == "False":
            words = f"not booted: {said.message}"
            events = (Happened(type="Warning", reason=f"Image{said.reason}", message=words),)
        status = {"conditions": [to_json(said)]}
        return Said(status=status, events=events, requeue_after_seconds=READ_SECONDS)

    def tell(self, body: Object, said: Said) -> None:
        condition = (said.status or {})["conditions"][0]
        log.info(
            "image was judged", image=body["metadata"]["name"], status=condition["status"], reason=condition["reason"]
        )
        super().tell(body, said)


def build_image_trust_controllers(
    cluster: Cluster, images: Source, events: Events, clock: Callable[[], datetime]
) -> list[Controller]:
    """Build it anew for each leadership, run it while leading."""
    judging = ImageTrustController(cluster, images, trust_of(cluster), events, now=clock)
    controller = Controller("image-trust", judging.reconcile)
    images.subscribe(when_changed(_judged, controller.queue.add))
    return [controller]


def _judged(image: Mapping[str, Any] | None) -> tuple[Any, Any]:
    """What of an Image's JSON the verdict depends on, and the verdict: somebody else may have written it."""
    return spec_of(image), conditions_of(image, VERIFIED)
