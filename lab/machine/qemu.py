"""A running QEMU: started with a boot plan, watched, powered off."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

import structlog

from lab.child_process import LabProcess
from lab.machine.lost_timer import ConsoleWatch
from lab.machine.machine import (
    BOARDS,
    Accelerator,
    BootPlan,
    MachineFiles,
    MachineSpec,
    efi_variables,
    qemu_command,
)
from lab.machine.qmp import MonitorGone, QmpClient
from lab.machine.swtpm import SoftwareTpm
from lab.tools import Tools
from provisioner.api.machinery.errors import Retryable

log = structlog.get_logger()

CONSOLE_LOG_LIMIT_BYTES: Final = 4 << 20
LOST_TIMER: Final = "emulated machine lost its timer and was reset"
_START_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.25


class Machine(Protocol):
    """What a BMC can do to its machine. Callers take care that calls do not overlap."""

    @property
    def running(self) -> bool: ...

    def power_on(self, plan: BootPlan) -> None:
        """Start it with this boot plan. Does nothing if it runs."""

    def power_off(self) -> None:
        """Cut the power. Does nothing if it is off."""

    def press_power_button(self) -> None:
        """Ask the operating system to shut down."""

    def press_reset_button(self) -> None:
        """Start anew at once. Does nothing if it is off."""


class QemuMachine:
    """A `Machine` made of QEMU, which dies with this process.

    `on_guest_reset` is called, in a thread of its own, when the system inside reset itself. Its console is appended to
    files.console_log, the last 4 to 8 MiB of it kept (console.log and console.log.1). `tpm_tools`: where swtpm is, if
    not where QEMU is.
    """

    def __init__(
        self,
        spec: MachineSpec,
        files: MachineFiles,
        *,
        tools: Tools,
        tap: str,
        accelerator: Accelerator,
        launcher: ThreadPoolExecutor,
        host_port_tap: str | None = None,
        tpm_tools: Tools | None = None,
    ) -> None:
        self.on_guest_reset: Callable[[], None] = lambda: None
        self._spec = spec
        self._files = files
        self._tools = tools
        self._tap = tap
        self._host_port_tap = host_port_tap
        self._accelerator = accelerator
        self._launcher = launcher
        self._tpm = SoftwareTpm(spec.name, files, tools=tpm_tools or tools, launcher=launcher) if spec.has_tpm else None
        self._process: LabProcess | None = None
        self._monitor: QmpClient | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    @property
    def pid(self) -> int | None:
        return self._process.pid if self.running and self._process else None

    def power_on(self, plan: BootPlan) -> None:
        """See Machine. Raises: Retryable with QEMU's own words, or swtpm's, if it does not start."""
        if self.running:
            return
        self._files.directory.mkdir(parents=True, exist_ok=True)
        for socket_path in (self._files.qmp_socket, self._files.console_socket):
            socket_path.unlink(missing_ok=True)
        if self._spec.firmware == "UEFI":
            template = self._tools.path(BOARDS[self._spec.architecture].variables).read_bytes()
            self._files.variables.write_bytes(efi_variables(self._spec, plan, template))
        command = qemu_command(
            self._spec,
            plan,
            self._files,
            tap=self._tap,
            accelerator=self._accelerator,
            host_port_tap=self._host_port_tap,
        )
        process = LabProcess(
            self._spec.name, self._tools.command(command, [self._files.directory]), self._files.qemu_log
        )
        if self._tpm is not None:
            self._tpm.start()
        # The kernel ends a child when the thread that made it ends, so it is made by a thread that stays.
        self._launcher.submit(process.start).result()
        self._process = process
        self._monitor = self._connect(process)
        threading.Thread(
            target=self._follow_console, args=(process,), name=f"console {self._spec.name}", daemon=True
        ).start()
        log.info(
            "machine was powered on", server=self._spec.name, pid=process.pid, boot=plan.source, uri=plan.http_boot_uri
        )

    def power_off(self) -> None:
        if self._process is not None and self._process.running:
            self._process.kill()
            log.info("machine was powered off", server=self._spec.name)
        if self._tpm is not None:
            self._tpm.stop()
        if self._monitor is not None:
            self._monitor.close()

    def press_power_button(self) -> None:
        """See Machine. Raises: Retryable if QEMU does not take it."""
        if self.running and self._monitor is not None:
            self._monitor.execute("system_powerdown")

    def press_reset_button(self) -> None:
        """See Machine. Raises: Retryable if QEMU does not take it."""
        if self.running and self._monitor is not None:
            self._monitor.execute("system_reset")

    def _connect(self, process: LabProcess) -> QmpClient:
        monitor = QmpClient(self._files.qmp_socket, self._on_event)
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                monitor.connect()
                return monitor
            except MonitorGone as error:
                if process.running and time.monotonic() < deadline:
                    time.sleep(0.02)
                    continue
                process.kill()
                if self._tpm is not None:
                    self._tpm.stop()
                raise Retryable(
                    f"machine {self._spec.name} did not start: {error}; QEMU said: {process.log_tail()}"
                ) from error

    def _on_event(self, event: str, data: Mapping[str, Any]) -> None:
        if event == "RESET" and data.get("guest"):
            log.info("machine reset itself", server=self._spec.name, reason=data.get("reason"))
            threading.Thread(target=self.on_guest_reset, name=f"reset {self._spec.name}", daemon=True).start()

    def _follow_console(self, process: LabProcess) -> None:
        watch, was_reset = ConsoleWatch(self._files.console_log), False
        while process.running:
            if watch.has_lost_timer() and not was_reset and self._accelerator == "tcg":
                was_reset = True
                log.warning(LOST_TIMER, server=self._spec.name)
                with suppress(Retryable):
                    self.press_reset_button()
            trim_log(self._files.console_log, CONSOLE_LOG_LIMIT_BYTES)
            time.sleep(_LOOK_SECONDS)


def trim_log(path: Path, limit_bytes: int) -> None:
    """Copy a log that has grown over the limit to `<name>.1` and empty it; its writer must append (O_APPEND)."""
    if path.exists() and path.stat().st_size > limit_bytes:
        path.with_name(path.name + ".1").write_bytes(path.read_bytes())
        with path.open("r+b") as log_file:
            log_file.truncate(0)
