"""How often the BMCs of a fleet are looked at while a thousand others say nothing, or forty are slow.

`python -m tests.benchmarks.bmc_bench`. The power controllers as they are built for a leadership, with their own numbers
of workers; each measurement is a new leadership over the same Servers, counted from its first moment. The honest BMCs
are the lab's own over TLS, in a process of their own. A mute one takes the connection and says nothing; a slow one is
the lab's, each of whose answers takes 2.5 s of the 3 s that a look has.

Those that are registered in that moment are behind the honest ones in line: what is measured is what they cost who is
known, not how long a server waits behind them for its first look (5 s for each 32 of them).

Simulated: the API server is memory behind a lock, and Events are not written (what 1,000 failures cost it is not in the
figures), the network is loopback, and BMCs and controllers share the processors. Contenders take turns; only ratios
within a run say something.
"""

from __future__ import annotations

import argparse
import base64
import multiprocessing
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from provisioner.api.machinery.meta import rfc3339
from provisioner.api.servers.server import Server
from provisioner.cluster.resources import BMC_SECRETS, NAMESPACES, of
from provisioner.power.bmc.pool import BmcPool
from provisioner.power.bmc.power_controller import BmcAccess, ObservedPower
from provisioner.power.bmc.redfish import RedfishPower
from provisioner.power.controller import PowerSettings, build_power_controllers
from tests.benchmarks.record import Goal, begin, ratios, spread
from tests.boot.fake_source import FakeSource
from tests.cluster.fake_cluster import FakeCluster
from tests.lab.fake_machine import PASSWORD, USERNAME, fake_server
from tests.power.hostile_bmc import mute_port

HONEST: Final = 10
SLOW: Final = 40
MUTE: Final = 1000
POLL_SECONDS: Final = 2.0
GOALS: Final[dict[str, Goal]] = {}
CONTENDERS: Final = {
    "alone": f"{HONEST} alone",
    "known": f"beside {MUTE:,} mute ones that are on record as unreachable",
    "new": f"beside {MUTE:,} mute ones that are registered in that moment, behind them",
    "slow": f"beside {SLOW} that take 2.5 s for each answer",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    options, _ = parser.parse_known_args(arguments)
    run = begin("bmc")
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve_bmcs, args=(theirs,), daemon=True)
    process.start()
    places: list[tuple[str, str, str]] = ours.recv()
    looks: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    try:
        with mute_port() as port:
            for repetition in range(options.repetitions):
                for name in sorted(CONTENDERS, reverse=repetition % 2 == 1):
                    looks[name].append(measure(name, places, port, options.seconds))
                    print(f"{repetition + 1} {name}: {looks[name][-1]:.2f} looks/s", file=sys.stderr, flush=True)
    finally:
        ours.send("end")
        process.join(20)
    return run.finish(table(looks, options.seconds), [], options.repetitions)


def serve_bmcs(pipe: Connection) -> None:
    """In a process of their own: names, addresses and certificates go through the pipe, which then says when to end."""
    with tempfile.TemporaryDirectory(prefix="bmc-bench-") as folder, ExitStack() as stack:
        places = []
        for kind, count, delay in (("honest", HONEST, 0.0), ("slow", SLOW, 2.5)):
            for number in range(count):
                name = f"{kind}-{number}"
                fake = stack.enter_context(fake_server(Path(folder) / name, name=name))
                fake.endpoint.faults.delay_seconds = delay
                places.append((name, fake.url, fake.certificate))
        pipe.send(places)
        pipe.recv()


class FakeMemoryCluster(FakeCluster):
    """Used from many threads; what is written of Servers is in the cache at once, as a fast informer would have it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        super().__init__()
        self.servers = FakeSource()

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name in ("read", "find", "get", "create", "apply"):
            return self._locked(found)
        return found

    def apply_status(self, kind: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        with self.lock:
            written = super().apply_status(kind, name, *args, **kwargs)
            if name in self.servers.objects:
                self.show(name)
            return written

    def _locked(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def locked(*args: Any, **kwargs: Any) -> Any:
            with self.lock:
                return call(*args, **kwargs)

        return locked

    def show(self, name: str) -> None:
        """Let the cache have the Server as it is stored."""
        with self.lock:
            self.servers.put(self.read(Server, name))


class FakeEvents:
    """Takes Events and writes none."""

    def record(self, *_: Any, **__: Any) -> None:
        return


def measure(contender: str, places: Sequence[tuple[str, str, str]], port: int, seconds: float) -> float:
    """Looks a second at each honest BMC, times their number, from the first moment of a leadership on."""
    cluster = FakeMemoryCluster()
    cluster.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": BMC_SECRETS}})
    data = {"username": USERNAME, "password": PASSWORD}
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "bmc", "namespace": BMC_SECRETS},
            "data": encoded(data),
        },
        manager="bench",
    )
    mute = [(f"mute-{number}", f"https://127.0.0.1:{port}", places[0][2]) for number in range(MUTE)]
    others = {"alone": [], "known": mute, "new": mute, "slow": [p for p in places if p[0].startswith("slow")]}[
        contender
    ]
    for number, (name, url, certificate) in enumerate([*others, *(p for p in places if p[0].startswith("honest"))]):
        write_server(cluster, number, name, url, certificate)
        if contender == "known" and name.startswith("mute"):
            write_unreachable(cluster, name)
    looks: Counter[str] = Counter()
    names = {url: name for name, url, _ in places}

    class Counted(RedfishPower):
        def __init__(self, access: BmcAccess) -> None:
            super().__init__(access)
            self._name = names.get(access.address, "mute")

        def get_power_state(self) -> ObservedPower:
            power = super().get_power_state()
            looks[self._name] += 1
            return power

    pool = BmcPool(cluster, clock=time.monotonic, connect=Counted)  # type: ignore[arg-type]
    stop = threading.Event()
    settings = PowerSettings(poll_seconds=POLL_SECONDS)
    controllers = build_power_controllers(
        cluster,  # type: ignore[arg-type]
        cluster.servers,  # type: ignore[arg-type]
        FakeEvents(),  # type: ignore[arg-type]
        settings,
        pool=pool,
        stop=stop,
    )
    for body in cluster.list(of(Server)).items:
        cluster.show(body["metadata"]["name"])
    threads = [threading.Thread(target=controller.run, args=(stop,)) for controller in controllers]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    counted = sum(count for name, count in looks.items() if name.startswith("honest"))
    stop.set()
    for thread in threads:
        thread.join()
    return counted / seconds


def encoded(data: dict[str, str]) -> dict[str, str]:
    return {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}


def write_server(cluster: FakeMemoryCluster, number: int, name: str, url: str, certificate: str) -> None:
    """An accepted Server that is off and shall be: nothing to do but to look."""
    body = {
        "apiVersion": "provisioner.dev/v1alpha1",
        "kind": "Server",
        "metadata": {"name": name},
        "spec": {
            "rackRef": "r01",
            "bootMACAddress": f"52:54:00:00:{number >> 8:02x}:{number & 255:02x}",
            "acceptance": "Accepted",
            "powerState": "Off",
            "bmc": {"address": url, "certificate": certificate, "credentialsName": "bmc"},
        },
    }
    cluster.apply(body, manager="bench")


def write_unreachable(cluster: FakeMemoryCluster, name: str) -> None:
    """As the leader before has said."""
    condition = {
        "type": "PoweredOn",
        "status": "Unknown",
        "reason": "BMCUnreachable",
        "message": "BMC does not answer",
        "lastTransitionTime": rfc3339(datetime.now(UTC)),
    }
    cluster.apply_status(Server, name, {"conditions": [condition]}, manager="provisioner-power")


def table(looks: dict[str, list[float]], seconds: float) -> str:
    rows = [
        "## Looks at BMCs, beside some that say nothing",
        "",
        f"{HONEST} honest BMCs, looked at each {POLL_SECONDS:g} s (±20 %) by the power controllers of a new "
        f"leadership, counted from its first moment for {seconds:g} s; repetitions take turns. Median (least to most). "
        "The API server is simulated (memory; no Events are written), the BMCs are fakes, the network is loopback, and "
        "all share the processors.",
        "",
        "| the honest ones | looks/s | ratio to alone |",
        "|---|---|---|",
    ]
    rows += [
        f"| {words} | {spread(looks[name])} | {spread(ratios(looks[name], looks['alone']), '.2f')} |"
        for name, words in CONTENDERS.items()
    ]
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
