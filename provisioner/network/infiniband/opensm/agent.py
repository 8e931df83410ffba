"""The process on a subnet manager's host: follows its fabric's one InfiniBandNetwork, as a DPU's agent does its own.

It keeps OpenSM's partitions file as that object says, has OpenSM read it, and reads the ports back before it
acknowledges the generation. The last configuration stays in force while the API server is away. On the host of a
subnet manager that stands by it keeps the file, and says nothing: the one in charge is read by its own process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

import structlog

from provisioner.api import InfiniBandNetwork
from provisioner.api.machinery.codec import decode, to_json
from provisioner.api.machinery.errors import Conflict, NeedsHuman, NotFound, ProvisionerError, Retryable
from provisioner.api.network.infiniband_network import InfiniBandNetworkStatus
from provisioner.cluster.client import Cluster
from provisioner.cluster.source import Source
from provisioner.network.infiniband.model import report
from provisioner.network.infiniband.model.verify import FabricView, Findings, compare
from provisioner.network.infiniband.opensm.partitions_file import FileState, file_state, render
from provisioner.network.infiniband.opensm.read_back import Diagnostics, ReadBackFailed
from provisioner.network.infiniband.opensm.subnet_manager import NotRunning, read_file, replace_file, tell_to_read

log = structlog.get_logger(__name__)

MANAGER: Final = "provisioner-infiniband-host"
SWEEP_SECONDS: Final = 20.0
"""Within this OpenSM has swept a fabric and written its tables; what differs then is told, and it is told again."""
LOOK_SECONDS: Final = 60.0
"""The file and the ports are read so often, though nothing changed."""
RETRY_SECONDS: Final = 5.0
UNSYNCED_SECONDS: Final = 0.5

FileStep = Literal["Keep", "Write", "Mend", "Refuse"]


def decide_file(state: FileState, text: str | None, wanted: str, *, adopt: bool) -> FileStep:
    """What becomes of the partitions file. Somebody else's holds partitions that would be lost: a person must say
    that it may go (`adopt`)."""
    if state == "Foreign" and not adopt:
        return "Refuse"
    if text == wanted:
        return "Keep"
    return "Mend" if state == "Changed" else "Write"


@dataclass(frozen=True, kw_only=True)
class SubnetManagerHost:
    """The files and programs of this host."""

    fabric: str
    partitions_file: Path
    pid_file: Path | None
    diagnostics: Diagnostics
    adopt: bool = False
    sweep_seconds: float = SWEEP_SECONDS

    def enforce(self, network: InfiniBandNetwork, clock: Callable[[], datetime]) -> InfiniBandNetworkStatus | None:
        """Do what is wanted and say what was read back; None where another subnet manager is in charge."""
        try:
            mended, told = self._write(network)
            master = self.diagnostics.master()
            if master not in self.diagnostics.local_ports():
                return None
            view, findings = self._read(network, master, told=told)
        except ForeignFile as error:
            return self._failed(network, "ForeignFile", str(error), clock())
        except NeedsHuman as error:
            return self._failed(network, "HostNotReady", str(error), clock())
        except NotRunning as error:
            return self._failed(network, "SubnetManagerNotRunning", f"{error}: start OpenSM", clock())
        except ReadBackFailed as error:
            return self._failed(network, "NotReadBack", str(error), clock())
        return report.after_reading(network, findings, clock(), read_from="Ports", ports=len(view.ports), mended=mended)

    def _failed(
        self, network: InfiniBandNetwork, reason: str, message: str, now: datetime
    ) -> InfiniBandNetworkStatus | None:
        """What is in the way here is told in the log alone where another host's subnet manager is in charge."""
        try:
            stands_by = self.diagnostics.master() not in self.diagnostics.local_ports()
        except (ReadBackFailed, NeedsHuman):
            stands_by = False
        if stands_by:
            log.warning("subnet manager that stands by is not ready", fabric=self.fabric, reason=reason, error=message)
            return None
        return report.after_failing(network, reason, message, now)

    def _write(self, network: InfiniBandNetwork) -> tuple[bool, bool]:
        """Whether somebody's change was undone, and whether OpenSM was told of a new file."""
        text = read_file(self.partitions_file)
        wanted = render(self.fabric, network.spec)
        step = decide_file(file_state(self.fabric, text), text, wanted, adopt=self.adopt)
        if step == "Refuse":
            raise ForeignFile(
                f"{self.partitions_file} was not written for fabric {self.fabric} by `provisioner infiniband`, and "
                "would be lost",
                hint="make VPCs and spec.sharedGuids of what is in it, then move it away or run with --adopt",
            )
        if step == "Keep":
            return False, False
        replace_file(self.partitions_file, wanted)
        pid = tell_to_read(self.pid_file)
        log.info("partitions file was written", fabric=self.fabric, step=step, partitions=len(network.spec.partitions))
        log.debug("opensm was told", pid=pid)
        return step == "Mend", True

    def _read(self, network: InfiniBandNetwork, master: str, *, told: bool) -> tuple[FabricView, Findings]:
        """Until the fabric agrees, for `sweep_seconds` at most."""
        view = self.diagnostics.read(master)
        findings = compare(network.spec, view)
        if not told and _differs(findings):
            tell_to_read(self.pid_file)  # who died between file and signal left this; so does a port that came up
        ends, pause = time.monotonic() + self.sweep_seconds, 0.02
        while _differs(findings) and time.monotonic() < ends:
            time.sleep(pause)
            pause = min(pause * 2, 1.0)
            guids = {guid for guid, _ in (*findings.surplus, *findings.lacking)} | {*findings.full_by_default}
            view = self.diagnostics.reread(view, guids, master)
            findings = compare(network.spec, view)
        return view, findings


class ForeignFile(NeedsHuman):
    """The partitions file is not ours to write."""


def _differs(findings: Findings) -> bool:
    return not findings.agrees or bool(findings.full_by_default)


def run(
    cluster: Cluster,
    networks: Source,
    host: SubnetManagerHost,
    stop: threading.Event,
    *,
    clock: Callable[[], datetime],
    look_seconds: float = LOOK_SECONDS,
    retry_seconds: float = RETRY_SECONDS,
) -> None:
    """Follow the network until `stop` is set. A network that is deleted changes nothing: its last state stays."""
    changed = threading.Event()
    networks.subscribe(lambda name, old, new: changed.set() if _generation(old) != _generation(new) else None)
    while not stop.is_set():
        changed.clear()
        body = networks.get(host.fabric) if networks.has_synced else None
        waited = (
            _once(cluster, body, host, clock, look_seconds, retry_seconds) if body is not None else UNSYNCED_SECONDS
        )
        ends = time.monotonic() + waited
        while not stop.is_set() and not changed.wait(min(0.5, max(0.0, ends - time.monotonic()))):
            if time.monotonic() >= ends:
                break


def _once(
    cluster: Cluster,
    body: dict[str, object],
    host: SubnetManagerHost,
    clock: Callable[[], datetime],
    look_seconds: float,
    retry_seconds: float,
) -> float:
    """Seconds until it is to be looked at again, if nothing changes before."""
    try:
        network = _newest(cluster, decode(InfiniBandNetwork, body))
        status = host.enforce(network, clock)
        if status is None:
            return look_seconds
        if report.says_something_new(network.status, status, clock()):
            cluster.apply_status(
                InfiniBandNetwork,
                host.fabric,
                to_json(status),
                manager=MANAGER,
                resource_version=network.metadata.resource_version,
            )
    except Conflict:
        return 0.0
    except ProvisionerError as error:
        log.warning("network was not acknowledged", fabric=host.fabric, error=str(error))
        return retry_seconds
    except Exception:
        log.exception("network was not enforced", fabric=host.fabric)
        return retry_seconds
    is_applied = any(each.type == report.APPLIED and each.status == "True" for each in status.conditions)
    return look_seconds if is_applied else retry_seconds


def _newest(cluster: Cluster, known: InfiniBandNetwork) -> InfiniBandNetwork:
    """As it is now, or, while the API server is away, as it was last seen: that stays in force."""
    try:
        return cluster.read(InfiniBandNetwork, known.name)
    except Retryable as error:
        log.info("network is kept as it was last seen", fabric=known.name, error=str(error))
        return known
    except NotFound:
        return known


def _generation(body: dict[str, object] | None) -> object:
    metadata = (body or {}).get("metadata")
    return metadata.get("generation") if isinstance(metadata, dict) else None
