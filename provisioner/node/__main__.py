"""`python3 -I -m provisioner.node join|run|stage|facts|gpus [--root FOLDER] …`

join: before the kubelet. Reports stage Token, asks for the join configuration until it is there, writes the kubelet's
files below /run/provisioner/kubelet. A machine whose kubelet has its certificate has nothing to ask for. What is then
left of the join, the image's unit provisioner-join-cleanup removes.

run: beside the kubelet. Writes what this machine is on its Node, stages images and reboots as its boot intent says.

stage DIGEST [KERNEL-ARGUMENT…]: fetches, verifies and loads an image; `run` starts it.

facts: prints what `run` would write.

gpus: prints what the kernel says of the GPUs' driver, then what NVML says of the GPUs. `run` starts it as a process of
its own, for it may hang. Beside it: which pods have them, as the kubelet says.

`--root` puts every path below another folder, for tests. Exit status: 0 done, 1 cannot work here, 2 usage.
"""

from __future__ import annotations

import os
import sys
import time

from provisioner.node.machine.boot_facts import BootFactsError

USAGE = "usage: python3 -I -m provisioner.node join|run|facts|gpus|stage [--root FOLDER] [DIGEST [KERNEL-ARGUMENT…]]"


def main(arguments: list[str]) -> int:
    root = ""
    if len(arguments) >= 3 and arguments[1] == "--root":
        root = arguments[2].rstrip("/")
        arguments = arguments[:1] + arguments[3:]
    act = {"join": _join, "run": _run, "facts": _facts, "gpus": _gpus}.get(arguments[0]) if arguments else None
    try:
        if act is not None and len(arguments) == 1:
            return act(root)
        if len(arguments) >= 2 and arguments[0] == "stage":
            return _stage(root, arguments[1], arguments[2:])
    except BootFactsError as error:
        _say(str(error))
        return 1
    print(USAGE, file=sys.stderr)
    return 2


def _join(root: str) -> int:
    from provisioner.node import join
    from provisioner.node.image.authorities import JOIN_CA, Authorities
    from provisioner.node.join_files import (
        ALIGNMENT_FILE,
        JoinConfigurationError,
        is_joined,
        remove_secrets,
        render_files,
        write_files,
    )
    from provisioner.node.machine.boot_facts import read_boot_facts, request_key
    from provisioner.node.machine.numa import numa_nodes
    from provisioner.node.prover import choose_prover

    if is_joined(root):
        remove_secrets(root)
        _say("this machine has joined already; nothing to do")
        return 0
    facts = read_boot_facts(root)
    try:
        authorities = Authorities(root, facts.boot_url)
    except OSError as error:
        _say(f"{root}{JOIN_CA} is not a PEM certificate ({error}); build the image with the join service's CA")
        return 1
    key = request_key(root, os.urandom)
    context = authorities.context
    join.report_progress(facts, "Token", context=context)
    prover = choose_prover(root, _say)
    while True:
        configuration = join.fetch_configuration(
            facts,
            key,
            context,
            say=_say,
            tell=lambda message: join.report_progress(facts, "Token", message, context=context),
            sleep=time.sleep,
            chance=lambda: os.urandom(1)[0] / 256,
            prover=prover,
            learn=authorities.learn,
        )
        try:
            files = render_files(configuration, numa_nodes(root))
            write_files(root, files)
        except JoinConfigurationError as error:
            _say(f"{error}; asking again in 30 s")
            time.sleep(30.0)
            continue
        _say(f"{facts.server} has its join configuration")
        if ALIGNMENT_FILE in files:
            _say(f"{facts.server} is {files[ALIGNMENT_FILE][1].strip()}")
        return 0


def _run(root: str) -> int:
    from provisioner.node.daemon import Daemon
    from provisioner.node.machine.boot_facts import read_boot_facts
    from provisioner.node.real_machine import RealMachine
    from provisioner.node.watch import NodeWatch

    boot = read_boot_facts(root)
    watch = NodeWatch(root, _say)
    daemon = Daemon(boot, root, watch, RealMachine(root), _say)
    watch.start()
    while True:
        watch.changed.clear()
        watch.changed.wait(daemon.look())


def _stage(root: str, image_digest: str, arguments: list[str]) -> int:
    import subprocess

    from provisioner.node.image import kexec, stage
    from provisioner.node.image.manifest import ImageError

    stage.lower_priority()
    try:
        print(stage.stage(root, image_digest, arguments, stage.load_nothing if root else kexec.load))
    except (ImageError, OSError, subprocess.SubprocessError) as error:
        print(str(error))
        return 1
    return 0


def _facts(root: str) -> int:
    from provisioner.node.machine.boot_facts import read_boot_facts
    from provisioner.node.machine.facts import node_facts, render
    from provisioner.node.machine.faults import MachineFaults
    from provisioner.node.machine.gpus.facts import gpu_facts
    from provisioner.node.machine.gpus.watch import GpuWatch
    from provisioner.node.machine.kernel_log.records import KernelRecords

    records = KernelRecords(f"{root}/dev/kmsg")
    gpus, faults = GpuWatch(root, time.monotonic, records=records), MachineFaults(root, records)
    faults.look(time.time())
    gpus.look()
    while gpus.is_looking:
        time.sleep(0.1)
        gpus.look()
    found = gpu_facts(gpus.reading, gpus.log)
    print(render(node_facts(read_boot_facts(root), root, time.time(), found, faults.facts)))
    return 0


def _gpus(root: str) -> int:
    import json

    from provisioner.node.machine.gpus import pod_resources
    from provisioner.node.machine.gpus.kernel import driver_facts
    from provisioner.node.machine.gpus.nvml import LIBRARY
    from provisioner.node.machine.gpus.survey import survey

    print(json.dumps(driver_facts(root)), flush=True)  # what is known even if nothing comes after it
    found = survey(f"{root}/usr/lib/{LIBRARY}" if root else LIBRARY)
    try:
        found["pods"] = pod_resources.list_gpus(root + pod_resources.SOCKET)
    except pod_resources.PodResourcesError as error:
        found["podsError"] = str(error)
    print(json.dumps(found))
    return 0


def _say(message: str) -> None:
    print(f"provisioner: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
