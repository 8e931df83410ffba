"""A subnet of InfiniBand: ibsim plays one switch and the cards, OpenSM manages it, infiniband-diags read it. All but
the wires and the cards is the real thing."""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from provisioner.network.infiniband.opensm.agent import SubnetManagerHost
from provisioner.network.infiniband.opensm.read_back import Diagnostics
from tests.tools import installed, missing

BOUND_SECONDS: Final = 180.0


def umad2sim() -> str:
    """The library that leads a program's management datagrams to ibsim."""
    found = sorted(Path("/usr/lib").glob("*/umad2sim/libumad2sim.so"))
    return str(found[0]) if found else missing("libumad2sim.so", "`bin/setup --tests` installs it")


def wait_for(what: str, check: Callable[[], Any]) -> Any:
    """Until `check` returns something; the bound is generous, events decide."""
    deadline = time.monotonic() + BOUND_SECONDS
    while time.monotonic() < deadline:
        if found := check():
            return found
        time.sleep(0.02)
    pytest.fail(f"{what}: not within {BOUND_SECONDS} s")


class SimulatedFabric:
    """`hosts` cards at one switch. The first one is the subnet manager's; the others are servers'."""

    def __init__(self, folder: Path, hosts: int = 4) -> None:
        self.folder = folder
        self.partitions_file = folder / "partitions.conf"
        self.pid_file = folder / "opensm.pid"
        # ibsim numbers nodes as they come, and a card's one port after the card.
        self.guids = tuple(f"0x{0x100001 + 2 * number:016x}" for number in range(hosts))
        self._environment = {
            "IBSIM_SOCKNAME": f"t{uuid.uuid4().hex[:8]}",
            "SIM_HOST": "H0",
            "LD_PRELOAD": umad2sim(),
            "OSM_TMP_DIR": str(folder),
            "OSM_CACHE_DIR": str(folder),
        }
        self._programs = {name: installed(name) for name in ("ibsim", "opensm", "smpquery")}
        links = "".join(f'[{number + 1}]\t"H{number}"[1]\n' for number in range(hosts))
        cards = "".join(f'\nHca\t1 "H{number}"\n[1]\t"S1"[{number + 1}]\n' for number in range(hosts))
        (folder / "net").write_text(f'Switch\t{hosts + 1} "S1"\n{links}{cards}')
        self._log = (folder / "programs.log").open("wb")
        # It ends when its input does.
        self._sim = self._start([self._programs["ibsim"], "-s", "net"], preload=False, stdin=subprocess.PIPE)
        wait_for("ibsim", lambda: b"simulator ready" in (folder / "programs.log").read_bytes())
        self._opensm: subprocess.Popen[bytes] | None = None

    def start_opensm(self, *arguments: str) -> None:
        """With our partitions file, unless `arguments` name another. Returns once it is in charge."""
        given = arguments or ("-P", str(self.partitions_file))
        log = self.folder / "opensm.log"
        log.unlink(missing_ok=True)
        settings = self.folder / "opensm.conf"
        settings.write_text("force_log_flush TRUE\n")
        self._opensm = self._start([self._programs["opensm"], "-F", str(settings), "-f", str(log), *given])
        self.pid_file.write_text(f"{self._opensm.pid}\n")
        wait_for("OpenSM", lambda: log.exists() and "SUBNET UP" in log.read_text(errors="replace"))

    def stop_opensm(self) -> None:
        if self._opensm is not None:
            self._opensm.terminate()
            self._opensm.wait(BOUND_SECONDS)
            self._opensm = None

    @property
    def diagnostics(self) -> Diagnostics:
        """As the subnet manager's host asks. umad2sim leaves a folder wherever a program runs: here."""
        return Diagnostics(
            prefix=("/usr/bin/env", "-C", str(self.folder)),
            environment=self._environment,
        )

    def host(self, fabric: str, **changes: Any) -> SubnetManagerHost:
        return SubnetManagerHost(
            **{
                "fabric": fabric,
                "partitions_file": self.partitions_file,
                "pid_file": self.pid_file,
                "diagnostics": self.diagnostics,
                **changes,
            }
        )

    def keys(self, number: int) -> set[int]:
        """The P_Key table of a card, by this file's own look at it, which shares no code with what is tested."""
        done = subprocess.run(
            [self._programs["smpquery"], "-D", "pkeys", f"0,1,{number + 1}" if number else "0"],
            env={**os.environ, **self._environment},
            cwd=self.folder,
            capture_output=True,
            check=True,
            timeout=BOUND_SECONDS,
        )
        words = done.stdout.decode().split()
        return {int(word, 16) for word in words if word.startswith("0x")} - {0}

    def close(self) -> None:
        self.stop_opensm()
        assert self._sim.stdin is not None
        self._sim.stdin.close()
        self._sim.terminate()
        self._sim.wait(BOUND_SECONDS)
        self._log.close()

    def _start(self, command: list[str], *, preload: bool = True, stdin: int = subprocess.DEVNULL) -> Any:
        environment = {**os.environ, **self._environment}
        if not preload:
            del environment["LD_PRELOAD"]
        return subprocess.Popen(
            command, cwd=self.folder, env=environment, stdin=stdin, stdout=self._log, stderr=subprocess.STDOUT
        )
