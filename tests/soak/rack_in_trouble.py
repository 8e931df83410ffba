"""The troubles of a plan, done to a running lab, and taken back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from lab.demo.state import ADDRESS
from lab.demo.up import POOL, RACK
from lab.network import BRIDGE, LabNetwork, tap_name
from lab.rack import inject_fault
from provisioner.cluster.resources import BMC_SECRETS, SLURM_SECRETS
from tests.journey.virtual_rack import VirtualRack
from tests.soak.plan import Trouble
from tests.soak.remains import Remains

NEIGHBOUR_ADDRESS: Final = "10.80.0.250/24"
CACHE_PORT: Final = 8099
BMC_NETWORK: Final = "127.0.66"
SLURM_NETWORK: Final = "127.0.67"
MANNERS: Final = ("mute", "drip", "endless", "nested", "closed")
SLURM_MANNERS: Final = ("drip", "costly", "shapeless")
BAD_RACK: Final = "bad"
BAD_SLURM: Final = len(SLURM_MANNERS)
SLOW_LINK: Final = ("tbf", "rate", "400kbit", "burst", "16kbit", "latency", "400ms")
SLOW_BMC_SECONDS: Final = 8.0
KUBECTL_SECONDS: Final = 120.0

TakeBack = Callable[[], object]


def ended() -> None:
    """Takes back a trouble that is over at once."""


class RackInTrouble:
    """A lab that has booted. `did` counts what was really done to it, by kind and target."""

    def __init__(self, rack: VirtualRack, servers: list[str], seed: int) -> None:
        self._rack = rack
        self.servers = servers
        self._seed = seed
        self._network = LabNetwork(rack.state.name)
        self._neighbour = f"{self._network.namespace}-n"
        self.did: Counter[str] = Counter()
        self._programs: list[subprocess.Popen[str]] = []

    def begin(self, trouble: Trouble) -> TakeBack:
        """Do it; what is returned takes it back."""
        take_back = self._begin(trouble)
        if take_back is None:
            return ended
        self.did[f"{trouble.kind} {trouble.target}"] += 1
        return take_back

    def _begin(self, trouble: Trouble) -> TakeBack | None:
        name = trouble.target
        match trouble.kind:
            case "KillService" | "KillControlPlane":
                return ended if self._signal(name, signal.SIGKILL) else None
            case "Freeze":
                frozen = self._signal(name, signal.SIGSTOP)
                return (lambda: _signal_all(frozen, signal.SIGCONT)) if frozen else None
            case "PowerCut" | "ResetButton":
                inject_fault(self._rack.state.directory / "rack", name, trouble.kind)
                return ended
            case "SlowBmc":
                inject_fault(self._rack.state.directory / "rack", name, "Slow", seconds=SLOW_BMC_SECONDS)
                return lambda: self._rack.inject(name, "None")
            case "ResetsUnavailable":
                self._rack.inject(name, "ResetsUnavailable")
                return lambda: self._rack.inject(name, "None")
            case "SlowLink":
                self._in_lab("tc", "qdisc", "replace", "dev", tap_name(name), "root", *SLOW_LINK)
                return lambda: self._in_lab("tc", "qdisc", "delete", "dev", tap_name(name), "root")
            case "DrippingCache":
                self._set_cache(f"http://{ADDRESS}:{CACHE_PORT}")
                return lambda: self._set_cache(None)
            case "Reboot":
                return ended if self._provision("reboot", name, "--now", "-m", "soak") else None
            case "PowerCycle":
                return ended if self._provision("power-cycle", name, "--now", "-m", "soak") else None
            case "Drain":
                if not self._provision("drain", name, "--now", "-m", "soak"):
                    return None
                return lambda: self._until_done("provision", "release", name)

    def start_hostile(self, seconds: float) -> None:
        """The neighbour, and what answers badly, with servers and pools that make the controller ask there."""
        places = {f"{BMC_NETWORK}.{number}:8443": each for number, each in enumerate(MANNERS * 2, start=1)}
        places |= {f"{SLURM_NETWORK}.{number}:6820": SLURM_MANNERS[number - 1] for number in range(1, BAD_SLURM + 1)}
        places |= {f"{ADDRESS}:{CACHE_PORT}": "drip"}
        words = [f"{place}={manner}" for place, manner in places.items()]
        self._start(self._network.command([sys.executable, "-m", "tests.soak.hostile_servers", *words]))
        for document in self._bad_objects():
            self._until_done("apply", "--server-side", "-f", "-", stdin=json.dumps(document))
        for number in range(1, BAD_SLURM + 1):
            self._until_done("get", "node", f"bad-slurm-{number}")
            self._until_done("provision", "drain", f"bad-slurm-{number}", "--now", "-m", "soak")
        self._connect_neighbour()
        victims = []
        for name in self.servers:
            server = self._rack.server(name)
            victims.append(f"--victim={server.spec.boot_mac_address}={server.status.address}")
        command = [sys.executable, "-m", "tests.soak.neighbour", "out0", f"--boot-host={ADDRESS}", *victims]
        command += [f"--seconds={seconds}", f"--seed={self._seed}"]
        self._start(["ip", "netns", "exec", self._neighbour, *command])

    def stop_hostile(self) -> dict[str, int]:
        """Ends what `start_hostile` began, and deletes its objects; returns what the neighbour has sent."""
        sent: dict[str, int] = {}
        for program in reversed(self._programs):
            if "tests.soak.neighbour" in program.args:  # type: ignore[operator]
                said, _ = program.communicate(timeout=120)
                sent = json.loads(said or "{}")
            else:
                program.terminate()
                program.wait(30)
        self._programs.clear()
        subprocess.run(["ip", "netns", "delete", self._neighbour], check=False)
        for number in range(1, BAD_SLURM + 1):
            self._until_done("provision", "release", f"bad-slurm-{number}")
        bad = ("-l", "soak.test/bad")
        self._until_done("delete", "servers", *bad, "--wait=false")
        nodes = [each["metadata"]["name"] for each in self._bad_objects() if each["kind"] == "Server"]
        self._until_done("delete", "nodes", *nodes, "--ignore-not-found", "--wait=false")
        self._until_done("delete", "nodepools", *bad, "--wait=false")
        self._until_done("delete", "racks", *bad, "--wait=false")
        return sent

    def remains(self) -> Remains:
        """Everything that the API server has. The neighbour's unknown machines are not counted: they expire."""

        def items(*arguments: str) -> list[dict[str, Any]]:
            return list(self._rack.get(*arguments)["items"])

        tokens = items("secrets", "-n", "kube-system", "--field-selector=type=bootstrap.kubernetes.io/token")
        return Remains(
            servers=[each for each in items("servers") if not each["metadata"]["name"].startswith("unknown-")],
            nodes=items("nodes"),
            maintenances=items("maintenances"),
            tokens=tokens,
            requests=items("csr"),
            others=[each for kind in ("nodepools", "racks", "images", "addressblocks") for each in items(kind)],
        )

    def cleanup(self) -> None:
        """Whatever happened before: no program and no namespace of ours is left."""
        for program in self._programs:
            with suppress(ProcessLookupError):
                program.kill()
            program.wait(30)
        subprocess.run(["ip", "netns", "delete", self._neighbour], check=False, capture_output=True)

    def _bad_objects(self) -> list[dict[str, Any]]:
        labels = {"soak.test/bad": ""}
        kind = {"apiVersion": "provisioner.dev/v1alpha1"}
        image = self._rack.get("nodepool", POOL)["spec"]["imageRef"]
        bad: list[dict[str, Any]] = [
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "bad-bmc", "namespace": BMC_SECRETS, "labels": labels},
                "stringData": {"username": "nobody", "password": "nothing"},
            },
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "bad-slurm", "namespace": SLURM_SECRETS, "labels": labels},
                "stringData": {"username": "nobody", "token": "nothing"},
            },
            kind | {"kind": "Rack", "metadata": {"name": BAD_RACK, "labels": labels}, "spec": _bad_rack()},
            kind
            | {
                "kind": "NodePool",
                "metadata": {"name": BAD_RACK, "labels": labels},
                "spec": {"imageRef": image, "attestation": "Optional"},
            },
        ]
        for number in range(1, 2 * len(MANNERS) + 1):
            bmc = {
                "address": f"http://{BMC_NETWORK}.{number}:8443",
                "allowPlainHTTP": True,
                "credentialsName": "bad-bmc",
            }
            bad.append(kind | _bad_server(f"bad-bmc-{number}", number, BAD_RACK, labels, {"bmc": bmc}))
        for number in range(1, BAD_SLURM + 1):
            pool = f"bad-slurm-{number}"
            slurm = {"url": f"http://{SLURM_NETWORK}.{number}:6820", "credentialsName": "bad-slurm"}
            spec = {"imageRef": image, "attestation": "Optional", "jobs": {"slurm": slurm}}
            bad.append(kind | {"kind": "NodePool", "metadata": {"name": pool, "labels": labels}, "spec": spec})
            bad.append(kind | _bad_server(pool, 100 + number, pool, labels, {}))
        return bad

    def _connect_neighbour(self) -> None:
        lab, neighbour = self._network.namespace, self._neighbour
        for words in (
            f"netns add {neighbour}",
            f"-n {lab} link add in0 type veth peer out0 netns {neighbour}",
            f"-n {lab} link set in0 master {BRIDGE} up",
            f"-n {neighbour} link set out0 up",
            f"-n {neighbour} addr add {NEIGHBOUR_ADDRESS} dev out0",
        ):
            subprocess.run(["ip", *words.split()], check=True)

    def _set_cache(self, url: str | None) -> None:
        patch = json.dumps({"spec": {"cacheURL": url}})
        self._until_done("patch", "rack", RACK, "--type=merge", "-p", patch)

    def _provision(self, *arguments: str) -> bool:
        """Ask once, as an administrator who goes away if the API server does."""
        return self._rack.try_kubectl("provision", *arguments).returncode == 0

    def _until_done(self, *arguments: str, stdin: str | None = None) -> None:
        self._rack.wait(
            f"kubectl {' '.join(arguments)}",
            lambda: self._rack.try_kubectl(*arguments, stdin=stdin).returncode == 0,
            seconds=KUBECTL_SECONDS,
            every_seconds=2.0,
        )

    def _signal(self, part: str, number: signal.Signals) -> list[int]:
        """To one process of the lab, or to all that a part consists of; which were there."""
        known = self._rack.state.read().get("pids") or {}
        found = [known[part]] if part in known else self._rack.processes(part)
        return _signal_all(found, number)

    def _in_lab(self, *argv: str) -> None:
        subprocess.run(self._network.command(argv), check=True)

    def _start(self, command: list[str]) -> None:
        self._programs.append(subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True))


def _signal_all(pids: list[int], number: signal.Signals) -> list[int]:
    reached = []
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            reached.append(pid)
    return reached


def _bad_rack() -> dict[str, Any]:
    subnet = {"name": "bad", "cidr": "10.99.0.0/24", "rangeStart": "10.99.0.20", "rangeEnd": "10.99.0.199"}
    return {"site": "lab", "failureDomain": BAD_RACK, "subnets": [subnet]}


def _bad_server(name: str, number: int, pool: str, labels: dict[str, str], more: dict[str, Any]) -> dict[str, Any]:
    spec = {
        "rackRef": BAD_RACK,
        "nodePoolRef": pool,
        "acceptance": "Accepted",
        "bootMACAddress": f"52:54:99:00:00:{number:02x}",
        **more,
    }
    return {"kind": "Server", "metadata": {"name": name, "labels": labels}, "spec": spec}
