"""A thread that brings the card to what was declared, and keeps looking whether it still is."""

from __future__ import annotations

import threading
from collections.abc import Callable

from provisioner.api.network.card import CardConfiguration, CardStatus
from provisioner.network.agent.card.configure import CardReport
from provisioner.network.agent.card.decide import pause_seconds


class CardWorker:
    """Follows the last `want`, from `start` until `stop`. Nothing but `configure` waits for a card.

    configure: brings the cards to a configuration and says how they stand. say: what a person should know. pause: in
    seconds until the next look, of how many times in a row the card was told something, or failed.
    """

    def __init__(
        self,
        configure: Callable[[CardConfiguration], CardReport],
        say: Callable[[str], None],
        pause: Callable[[int], float] = pause_seconds,
    ) -> None:
        self._configure = configure
        self._say = say
        self._pause = pause
        self._lock = threading.Lock()
        self._wanted: CardConfiguration | None = None
        self._report: CardReport | None = None
        self._told: Callable[[], object] = lambda: None
        self._wake = threading.Event()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="card", daemon=True)

    def start(self, told: Callable[[], object]) -> None:
        """Begin to work. told: called, from the thread, when `report` says something new."""
        self._told = told
        self._thread.start()

    def stop(self) -> None:
        """End at the next occasion: a command that runs is not waited for, and the thread does not keep the process."""
        self._is_stopped = True
        self._wake.set()

    def want(self, wanted: CardConfiguration | None) -> None:
        """From now on this; None: the card stays as it is. Returns at once."""
        with self._lock:
            if wanted == self._wanted:
                return
            self._wanted, self._report = wanted, None
        self._wake.set()

    def report(self) -> CardReport | None:
        """How the card stands to the last `want`; None while that is not known."""
        with self._lock:
            return self._report

    def _run(self) -> None:
        attempts = 0
        before: CardConfiguration | None = None
        while True:
            self._wake.clear()
            if self._is_stopped:
                return
            with self._lock:
                wanted = self._wanted
            if wanted is None:
                self._wake.wait()
                continue
            attempts = 0 if wanted != before else attempts
            before = wanted
            report = self._look(wanted)
            attempts = attempts + 1 if report.has_acted or report.status.state == "Failed" else 0
            self._tell(wanted, report)
            self._wake.wait(self._pause(attempts))

    def _look(self, wanted: CardConfiguration) -> CardReport:
        try:
            return self._configure(wanted)
        except Exception as error:  # a fault of ours must not end the thread: nobody would look at the card any more
            words = f"the agent could not look at the card ({type(error).__name__}: {error}): report this as its fault"
            return CardReport(CardStatus(state="Failed"), words)

    def _tell(self, wanted: CardConfiguration, report: CardReport) -> None:
        with self._lock:
            if wanted != self._wanted:
                return
            before, self._report = self._report, report
        if before is None or (before.status, before.message) != (report.status, report.message):
            self._say(f"card: {report.status.state}: {report.message}")
            self._told()
