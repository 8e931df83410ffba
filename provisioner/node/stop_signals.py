"""What a service does when it is told to end.

Python runs the handler of a signal in the main thread, between two steps of its own. If the main thread has just begun
to wait for other threads, or the kernel gave the signal to another one, that is when the wait ends: a controller that
was told to end would go on leading. And a handler that sets the event for which the main thread waits may find its
lock held by that very thread. So nothing is left to the handler: the interpreter writes the number of each signal into
a pipe as it arrives (`signal.set_wakeup_fd`), and a thread of its own reads there.

A child that is forked and goes on in Python would write its signals into the same pipe; programs that are started by
exec do not have it.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Final

STOP_SIGNALS: Final = frozenset({signal.SIGTERM, signal.SIGINT})


def stop_on_signals() -> threading.Event:
    """An event that SIGTERM and SIGINT set, whatever the main thread is doing.

    For the main thread to call, once: after a second call the event of the first one is set no more.
    """
    stop = threading.Event()
    arrived, written = os.pipe()
    os.set_blocking(written, False)
    signal.set_wakeup_fd(written, warn_on_full_buffer=False)
    threading.Thread(target=_await_signal, args=(arrived, stop), name="stop-signals", daemon=True).start()
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: None)
    return stop


def _await_signal(arrived: int, stop: threading.Event) -> None:
    while STOP_SIGNALS.isdisjoint(os.read(arrived, 64)):
        pass
    stop.set()
