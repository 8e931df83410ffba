"""Jobs that run on the rack's servers until they are told to end well."""

from __future__ import annotations

from lab.demo.job import demo_job
from provisioner.cluster.resources import JOBS, PODS
from tests.journey.virtual_rack import VirtualRack

SHELL = "/host/usr/bin/dash"


def start_job(rack: VirtualRack, name: str, server: str) -> str:
    """A shell of the node's that runs until it is told to end well; an interrupted one does not."""
    job = demo_job(name, server, 1)
    container = job["spec"]["template"]["spec"]["containers"][0]
    nap = " ".join(container["command"])
    container["command"] = [*container["command"][:-2], SHELL, "-c", f"trap 'exit 0' USR1; while :; do {nap}; done"]
    rack.create(job)

    def runs() -> bool:
        pods = rack.ask(
            lambda cluster: cluster.list(PODS, namespace="default", label_selector=f"job-name={name}")
        ).items
        return bool(pods) and pods[0]["status"]["phase"] == "Running"

    rack.wait(f"job {name} runs", runs)
    return name


def end_job(rack: VirtualRack, name: str) -> None:
    loader = demo_job(name, "", 1)["spec"]["template"]["spec"]["containers"][0]["command"][:-2]

    def has_ended() -> bool:
        if has_succeeded(rack, name):
            return True
        rack.try_kubectl("exec", f"job/{name}", "--", *loader, SHELL, "-c", "kill -USR1 1")  # may end with the job
        return False

    rack.wait(f"job {name} has ended well", has_ended, every_seconds=3)


def has_succeeded(rack: VirtualRack, job: str) -> bool:
    status = rack.look(JOBS, job, namespace="default")["status"]
    assert not status.get("failed"), f"the job was interrupted: {status}"
    return status.get("succeeded") == 1
