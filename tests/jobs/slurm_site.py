"""A real Slurm on one machine: munge, slurmctld, four slurmd and slurmrestd of Debian trixie (24.11), without systemd.

They run in a process namespace of their own, so that nothing of them, no job either, outlives the test; on loopback,
with ports of their own. While the file `hold-prolog` or `hold-epilog` exists, prologs and epilogs do not end.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lab.child_process import LabProcess
from lab.control_plane.ports import free_port
from lab.tools import Tools

PACKAGES: Final = ("munge", "slurm-wlm", "slurm-wlm-jwt-plugin", "slurmrestd")
NODES: Final = ("s-r01-u01", "s-r01-u02", "s-r01-u03", "s-r01-u04")
PREFIX: Final = "s-"
"""What stands before a server's name in Slurm."""

_CONFIGURATION: Final = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={folder}/jwt.key
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0,sched_min_interval=0
SlurmdParameters=config_overrides
KillWait=2
MessageTimeout=30
PrologFlags=Alloc
Prolog={folder}/prolog
Epilog={folder}/epilog
NodeName=s-r01-u0[1-4] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{slurmd_ports}] CPUs=4 RealMemory=1000
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=10 State=UP
"""

_START: Final = """\
mount -t proc proc /proc
munged -F --force --socket={folder}/munge.sock --key-file={folder}/munge.key --pid-file={folder}/munged.pid \
  --seed-file={folder}/munge.seed --log-file={folder}/munged.log &
while [ ! -S {folder}/munge.sock ]; do sleep 0.05; done
slurmctld -D &
for node in {nodes}; do slurmd -D -N $node & done
export SLURM_JWT=daemon SLURMRESTD_SECURITY=disable_user_check,disable_unshare_files,disable_unshare_sysv
# Without slurmdbd its part of the API does not load, and slurmrestd would not start.
slurmrestd -s slurmctld -a rest_auth/jwt 127.0.0.1:{ports[1]} &
wait
"""


@dataclass(frozen=True)
class Login:
    username: str
    token: str


class SlurmSite:
    """The cluster. Nodes are `s-r01-u01` to `s-r01-u04`, of four processors each."""

    def __init__(self, tools: Tools, folder: Path) -> None:
        self._tools = tools
        self.folder = folder
        self._ports = [free_port("127.0.0.1") for _ in range(6)]
        self._process = LabProcess(
            "slurm", self._enter(["unshare", "--pid", "--fork", "--kill-child", "sh", "start"]), folder / "out"
        )
        self.login: Login | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._ports[1]}"

    def start(self) -> None:
        """Returns when all nodes are idle and slurmrestd answers."""
        folder = self.folder
        names = {"folder": folder, "ports": self._ports, "host": socket.gethostname(), "nodes": " ".join(NODES)}
        ports = ",".join(str(port) for port in self._ports[2:])
        (folder / "slurm.conf").write_text(_CONFIGURATION.format(**names, slurmd_ports=ports))
        (folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        for name, size in (("munge.key", 128), ("jwt.key", 32)):
            (folder / name).write_bytes(os.urandom(size))
            (folder / name).chmod(0o600)
        for name in ("prolog", "epilog"):
            waits = f"while [ -e {folder}/hold-{name} ]; do sleep 0.1; done"
            (folder / name).write_text(f"#!/bin/sh\necho $SLURM_JOB_ID >{folder}/in-{name}\n{waits}\n")
            (folder / name).chmod(0o755)
        for name in ("state", "spool"):
            (folder / name).mkdir()
        (folder / "start").write_text(_START.format(**names))
        self._process.start()
        self.wait_for(self._is_idle, "four idle nodes")
        token = self.command("scontrol", "token", "username=root", "lifespan=3600").strip().removeprefix("SLURM_JWT=")
        self.login = Login("root", token)
        self.wait_for(self._rest_answers, "slurmrestd")

    def stop(self) -> None:
        self._process.kill()

    def command(self, *words: str, check: bool = True) -> str:
        """What one of Slurm's own commands says."""
        done = subprocess.run(self._enter(words), capture_output=True, errors="replace", timeout=180, check=False)
        if check and done.returncode != 0:
            raise AssertionError(f"{words} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def submit(self, script: str, *options: str) -> str:
        """Submit a batch job; returns its id."""
        said = self.command("sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap", script)
        return said.strip()

    def job(self, job: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.command("scontrol", "show", "job", job, "--json"))["jobs"][0]
        return found

    def node(self, name: str) -> tuple[str, str]:
        """State and reason, by scontrol."""
        found = json.loads(self.command("scontrol", "show", "node", name, "--json"))["nodes"][0]
        return "+".join(found["state"]), found["reason"]

    def wait_for_job(self, job: str, state: str) -> None:
        self.wait_for(lambda: state in self.job(job)["job_state"], f"job {job} to be {state}")

    def clear(self) -> None:
        """No job, no drain: as after `start`."""
        for name in ("hold-prolog", "hold-epilog"):
            (self.folder / name).unlink(missing_ok=True)
        self.command("scancel", "--me", "--hurry", check=False)
        self.command("scontrol", "update", f"nodename={','.join(NODES)}", "state=resume", check=False)
        self.wait_for(self._is_idle, "four idle nodes")

    def wait_for(self, happened: Callable[[], bool], what: str, seconds: float = 180) -> None:
        deadline = time.monotonic() + seconds
        while not happened():
            if time.monotonic() > deadline or not self._process.running:
                log = (
                    (self.folder / "slurmctld.log").read_text()[-2000:]
                    if (self.folder / "slurmctld.log").exists()
                    else ""
                )
                raise AssertionError(f"waited in vain for {what}: {self._process.log_tail()}\n{log}")
            time.sleep(0.1)

    def _is_idle(self) -> bool:
        return self.command("sinfo", "-h", "-o", "%T %D", check=False).strip() == "idle 4"

    def _rest_answers(self) -> bool:
        # By a program of the chroot: it may be in another network namespace than the test.
        probe = self._enter(["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{self._ports[1]}"])
        return subprocess.run(probe, capture_output=True, timeout=180, check=False).returncode == 0

    def _enter(self, words: tuple[str, ...] | list[str]) -> list[str]:
        inside = ["env", "-C", str(self.folder), f"SLURM_CONF={self.folder}/slurm.conf", *words]
        return self._tools.command(inside, [self.folder])
