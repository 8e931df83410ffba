"""`python3 -I -m provisioner.node run`: tells the cluster what this machine is, and does what its boot intent says.

One thread follows the Node; this one compares, decides (intent.py) and acts. Fetching an image is a process of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from provisioner.node import ending
from provisioner.node import intent as intents
from provisioner.node.api_server import NotJoinedError
from provisioner.node.image import stage
from provisioner.node.intent import Intent, IntentError, LoadedSuccessor, StagedImage
from provisioner.node.machine import facts as node_facts
from provisioner.node.machine.boot_facts import BootFacts, write_file
from provisioner.node.machine.faults import MachineFaults
from provisioner.node.machine.gpus import exposition
from provisioner.node.machine.gpus.facts import gpu_facts
from provisioner.node.machine.gpus.watch import GpuWatch
from provisioner.node.machine.kernel_log.records import KernelRecords

LOOK_SECONDS = 10.0
BUSY_SECONDS = 0.5
MISSING_SECONDS = 2.0
"""How long it may take until what was written is seen."""


class DaemonMachine(ending.Machine, Protocol):
    """What the daemon does to the machine it runs on, beside ending its system."""

    def begin_staging(self, image_digest: str, arguments: Sequence[str]) -> None:
        """Start fetching; ends what was fetched before for another image."""

    def staging_result(self) -> tuple[bool, str] | None:
        """None while it fetches; then whether the image is loaded, and words."""

    def drop_staged(self) -> None:
        """End fetching, forget the loaded kernel, give the memory back."""

    def memory_is_short(self) -> str | None:
        """Why what is staged should be given up, or None."""


class Node(Protocol):
    """The Node, as `watch.NodeWatch` gives it."""

    @property
    def annotations(self) -> dict[str, str] | None: ...

    def annotate(self, annotations: dict[str, str | None]) -> None: ...

    def tell_not_ready(self, message: str) -> None: ...


class Daemon:
    """State of one run. `look` may be called at any time and returns how long to wait for the next."""

    def __init__(
        self,
        boot: BootFacts,
        root: str,
        node: Node,
        machine: DaemonMachine,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.time,
        gpus: GpuWatch | None = None,
    ) -> None:
        self._boot = boot
        self._root = root
        self._node = node
        self._machine = machine
        self._say = say
        self._clock = clock
        self._held: StagedImage | None = None
        self._reported: tuple[str, str, str] | None = None
        self._written_facts: dict[str, Any] | None = None
        self._facts_time = self._looked_time = 0.0
        self._has_news = False
        records = KernelRecords(f"{root}/dev/kmsg")
        self._gpus = gpus or GpuWatch(root, time.monotonic, records=records)
        self._faults = MachineFaults(root, records)
        self._ending = ending.Ending(root, machine, self._report_on, node.tell_not_ready, say, clock)
        if record := stage.read_record(root):
            self._held = StagedImage(
                **_named(record), state=intents.STAGED, intent_id="", message="staged before", since=0.0
            )

    def look(self) -> float:
        """Compare and act once. Faults of the API server are said and tried again at the next look."""
        if self._gpus.look():
            self._write_metrics()
        annotations = self._node.annotations
        if annotations is None:
            return BUSY_SECONDS
        try:
            self._obey(annotations.get(intents.INTENT_ANNOTATION))
            self._write_facts(is_missing=intents.FACTS_ANNOTATION not in annotations)
        except (OSError, NotJoinedError) as error:
            self._say(f"the Node could not be written ({type(error).__name__}: {error}); trying again")
            return LOOK_SECONDS / 2
        is_staging = self._held is not None and self._held.state == intents.STAGING
        return BUSY_SECONDS if is_staging or self._gpus.is_looking else LOOK_SECONDS

    def _obey(self, annotation: str | None) -> None:
        intent = None
        if annotation:
            try:
                intent = intents.parse_intent(annotation)
            except IntentError as error:
                if error.id:
                    self._report(error.id, "", intents.FAILED, str(error))
        self._ending.look(intent, self._successor)
        if self._ending.is_under_way:
            return
        self._follow_staging(intent)
        step = intents.next_step(intent, self._boot.boot_id, self._held, self._ending.finished, self._clock())
        if step == intents.DROP or (intent is None and self._is_leftover()):
            self._drop()
        elif step == intents.FETCH and intent is not None:
            self._fetch(intent)
        elif step == intents.ACT_KEXEC and intent is not None:
            self._ending.begin(intent, self._successor)
        elif step == intents.ACT_REBOOT and intent is not None:
            self._ending.begin(intent)
            self._held = None
        elif intent is not None and intent.boot_id_before == self._boot.boot_id:
            self._tell_held(intent)

    def _follow_staging(self, intent: Intent | None) -> None:
        held = self._held
        if held is None:
            return
        if held.state == intents.STAGING and (result := self._machine.staging_result()) is not None:
            loaded, words = result
            record = stage.read_record(self._root) if loaded else None
            if loaded and record is None:
                loaded, words = False, f"what was staged has no readable record in {stage.FOLDER}"
            self._say(words)
            held.state, held.message, held.since = (
                (intents.STAGED if loaded else intents.FAILED),
                words,
                self._clock(),
            )
            if record is not None:
                held.successor = _named(record)["successor"]
            else:
                self._machine.drop_staged()
        elif held.state == intents.STAGED and (why := self._machine.memory_is_short()):
            self._say(why)
            self._machine.drop_staged()
            held.state, held.message, held.since = intents.FAILED, why, self._clock()
        if held.state == intents.FAILED and intent is not None and held.intent_id == intent.id:
            self._report(intent.id, intent.image_digest, intents.FAILED, held.message)
            if intent.action == intents.KEXEC:
                self._ending.finish(intent)

    def _fetch(self, intent: Intent) -> None:
        if self._held is not None and not self._held.is_for(intent):
            self._drop()
        self._report(intent.id, intent.image_digest, intents.STAGING, f"fetching image {intent.image}")
        self._machine.begin_staging(intent.image_digest, intent.arguments)
        self._held = StagedImage(
            image_digest=intent.image_digest,
            arguments=intent.arguments,
            state=intents.STAGING,
            intent_id=intent.id,
            message="",
            since=self._clock(),
        )

    def _tell_held(self, intent: Intent) -> None:
        """An intent that finds its image staged, or being staged, for an earlier one is answered, too."""
        held = self._held
        if held is not None and held.is_for(intent) and intent.id != self._ending.finished:
            if held.state == intents.STAGED:
                self._report(intent.id, intent.image_digest, intents.STAGED, held.message)
            elif held.state == intents.STAGING:
                held.intent_id = intent.id
                self._report(intent.id, intent.image_digest, intents.STAGING, f"fetching image {intent.image}")

    def _drop(self) -> None:
        self._machine.drop_staged()
        self._held = None
        self._say("what was staged is not wanted any more and was dropped")

    def _is_leftover(self) -> bool:
        """Whether an earlier run of the daemon ended while it fetched what nobody wants any more."""
        return self._held is None and Path(self._root + stage.FOLDER).exists()

    @property
    def _successor(self) -> LoadedSuccessor:
        """What the loaded kernel becomes."""
        return self._held.successor if self._held is not None else intents.NOBODY

    def _report_on(self, intent: Intent, state: str, words: str, successor: LoadedSuccessor) -> None:
        self._report(intent.id, intent.image_digest, state, words, successor)

    def _report(
        self,
        intent_id: str,
        image_digest: str,
        state: str,
        message: str,
        successor: LoadedSuccessor = intents.NOBODY,
    ) -> None:
        if self._reported == (intent_id, state, message):
            return
        report = intents.render_report(
            intent_id=intent_id,
            state=state,
            image_digest=image_digest,
            boot_id=self._boot.boot_id,
            message=message,
            time=node_facts.rfc3339(self._clock()),
            successor=successor,
        )
        self._node.annotate({intents.REPORT_ANNOTATION: report})
        self._reported = (intent_id, state, message)

    def _write_metrics(self) -> None:
        reading = self._gpus.reading
        if reading is None:
            return
        path = Path(self._root + exposition.FILE)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(str(path), exposition.render(reading, self._gpus.log, self._clock()), mode=0o644)
        except OSError as error:
            self._say(f"{path} could not be written: {error}")

    def _write_facts(self, *, is_missing: bool) -> None:
        now = self._clock()
        if is_missing:  # the Node was made anew
            self._written_facts = None
        self._has_news = self._faults.look(now) or self._has_news
        pause = 0.0 if self._has_news else node_facts.pause_seconds(self._written_facts)
        if self._ending.is_under_way or 0 <= now - self._looked_time < max(pause, MISSING_SECONDS):
            return
        self._looked_time, self._has_news = now, False
        gpus = gpu_facts(self._gpus.reading, self._gpus.log)
        found = node_facts.node_facts(self._boot, self._root, now, gpus, self._faults.facts)
        if node_facts.is_news(found, self._written_facts, now - self._facts_time):
            self._node.annotate({intents.FACTS_ANNOTATION: node_facts.render(found)})
            self._written_facts, self._facts_time = found, now


def _named(record: dict[str, Any]) -> dict[str, Any]:
    return {
        "image_digest": record["imageDigest"],
        "arguments": record["arguments"],
        "successor": LoadedSuccessor(record["requestKeySHA256"], record["handOverSHA256"]),
    }
