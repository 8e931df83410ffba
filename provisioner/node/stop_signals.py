"""How a service learns that it must stop.

Python runs a signal handler in the main thread, between two bytecode steps. If the main thread has just begun to wait
for other threads, or the kernel delivered the signal to another thread, the handler runs only when that wait ends: a
controller told to stop would go on leading. And a handler that sets the event for which the main thread waits can
deadlock on the event's own lock. So the handlers do nothing. The interpreter writes the number of each signal into a
pipe as it arrives (`signal.set_wakeup_fd`), and a separate thread reads it.

A child that is forked and keeps running Python would write its signals into the same pipe; programs started by exec do
not inherit it.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Final

STOP_SIGNALS: Final = frozenset({signal.SIGTERM, signal.SIGINT})


def stop_on_signals() -> threading.Event:
    """An event that SIGTERM and SIGINT set, whatever the main thread is doing.

    Call it once, from the main thread: a second call leaves the first event without signals.
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
