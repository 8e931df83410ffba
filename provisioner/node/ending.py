"""The end of this system by kexec or reboot: said, done once, and said again if it did not come.

What was begun is on record in RAM before it is begun, so that an agent that is started anew does not do it twice, and
gives back what it took: the kubelet, which ends before a kexec.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from provisioner.node import intent as intents
from provisioner.node.api_server import NotJoinedError
from provisioner.node.image.manifest import ImageError
from provisioner.node.intent import NOBODY, Intent, LoadedSuccessor
from provisioner.node.machine.boot_facts import write_file
from provisioner.node.machine.sysfs.files import read_text

FINISHED = "/run/provisioner/finished-intent"
GOING_DOWN_SECONDS = 120.0
"""A system that still runs so long after it was told to end will not."""

Report = Callable[[Intent, str, str, LoadedSuccessor], None]
"""Writes the boot report: intent, state, words, what of the next system.

Raises: OSError, NotJoinedError.
"""


class Machine(Protocol):
    """What ends the system."""

    def drop_staged(self) -> None:
        """Forget the loaded kernel."""

    def stop_kubelet(self) -> None:
        """End the kubelet; its pods run on."""

    def start_kubelet(self) -> None:
        """Start the kubelet, if it does not run."""

    def kexec(self) -> None:
        """Measure what is loaded, and start it. Raises: ImageError."""

    def reboot(self) -> None:
        """Reboot by the firmware. Raises: ImageError."""


class Ending:
    """`report` writes to the Node; `tell_not_ready` sets its condition Ready to False."""

    def __init__(
        self,
        root: str,
        machine: Machine,
        report: Report,
        tell_not_ready: Callable[[str], None],
        say: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._path = root + FINISHED
        self._machine = machine
        self._report = report
        self._tell_not_ready = tell_not_ready
        self._say = say
        self._clock = clock
        self._begun: tuple[Intent, LoadedSuccessor, float] | None = None
        self._failed: tuple[Intent, str, LoadedSuccessor] | None = None
        self._before = self.finished = read_text(self._path)
        if self._before:
            machine.start_kubelet()  # the agent before this one may have died after it had ended the kubelet

    @property
    def is_under_way(self) -> bool:
        """Whether the system is about to end."""
        return self._begun is not None

    def finish(self, intent: Intent) -> None:
        """Nothing more is done for this intent in this boot."""
        self.finished = intent.id
        write_file(self._path, intent.id + "\n", mode=0o600)

    def begin(self, intent: Intent, successor: LoadedSuccessor = NOBODY) -> None:
        """Do it. Raises: OSError, NotJoinedError if it could not be said; then nothing was done."""
        by_kexec = intent.action == intents.KEXEC
        words = "starting the staged image" if by_kexec else "rebooting by the firmware"
        # Both before the act, which is not done twice in one boot, and not without a word.
        self._report(intent, intents.REBOOTING, words, successor)
        self.finish(intent)
        self._say(f"{words}, as intent {intent.id} says")
        self._begun = (intent, successor, self._clock())
        try:
            if by_kexec:
                self._kexec()
            else:
                self._machine.drop_staged()
                self._machine.reboot()
        except ImageError as error:
            self._fail(str(error))
            self._tell_failure()

    def look(self, intent: Intent | None, successor: LoadedSuccessor) -> None:
        """Says what did not come, at each look until it is written. Raises: OSError, NotJoinedError."""
        if self._begun is not None and self._clock() - self._begun[2] > GOING_DOWN_SECONDS:
            self._fail(f"the system did not go down in {GOING_DOWN_SECONDS:.0f} s")
        elif self._before and intent is not None and (intent.id, intent.action) == (self._before, intents.KEXEC):
            words = "it was begun before the agent was started anew, and has not led to another boot"
            self._failed, self._before = (intent, words, successor), ""
        self._tell_failure()

    def _tell_failure(self) -> None:
        if self._failed is not None:
            failed, words, successor = self._failed
            # The key stays: until the kubelet is heard of again, nobody else shall take the old boot for a new one.
            self._report(failed, intents.FAILED, words, successor)
            self._failed = None

    def _kexec(self) -> None:
        """The next system may be there before anybody misses this one: the kubelet ends first, and the Node says it.

        Services soon send nothing to pods that are about to go, and the next kubelet says Ready as soon as it is: one
        that finds the Node still Ready may wait for its next turn, 10 s later.
        """
        self._machine.stop_kubelet()
        try:
            self._tell_not_ready("the agent starts the staged image by kexec")
        except (OSError, NotJoinedError) as error:
            self._say(f"the Node could not be told NotReady ({type(error).__name__}: {error}); going on")
        self._machine.kexec()

    def _fail(self, words: str) -> None:
        if self._begun is None:
            return
        intent, successor, _ = self._begun
        self._say(words)
        self._machine.start_kubelet()
        self._begun, self._failed = None, (intent, words, successor)
