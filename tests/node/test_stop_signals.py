"""A service that is told to end ends, whatever its main thread is doing."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.programs

SERVICE = """
import signal, threading
from provisioner.node.stop_signals import stop_on_signals

stop = stop_on_signals()
working = threading.Thread(target=stop.wait)
working.start()
{tell}
working.join()
print("ended")
"""

TOLD_TO_ANOTHER_THREAD = """
def told():
    signal.pthread_kill(threading.get_ident(), signal.{name})

threading.Timer(0.2, told).start()
"""

TOLD_WHILE_THE_EVENT_IS_HELD = """
with stop._cond:
    signal.raise_signal(signal.{name})
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("tell", [TOLD_TO_ANOTHER_THREAD, TOLD_WHILE_THE_EVENT_IS_HELD], ids=["another thread", "held"])
def test_a_service_whose_main_thread_cannot_run_a_handler_ends(tell: str, name: str) -> None:
    program = SERVICE.format(tell=tell.format(name=name))
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (ended.stdout, ended.returncode) == ("ended\n", 0), ended.stderr


def test_another_signal_ends_nothing() -> None:
    tell = "signal.signal(signal.SIGUSR1, lambda *_: print('heard'))\nsignal.raise_signal(signal.SIGUSR1)\n"
    with subprocess.Popen([sys.executable, "-u", "-c", SERVICE.format(tell=tell)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"heard\n"
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
