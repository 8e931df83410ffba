"""The image that the real recipe gives, looked at from inside."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from provisioner.cli.kubectl.shell_pod import shell_pod
from provisioner.image.assembly.build import BuildRequest, Built, build_image
from provisioner.image.base import Base
from provisioner.image.containerd.pause import REFERENCE
from provisioner.image.finished.check import check_image
from provisioner.image.gates.read.tree import read_tree
from provisioner.image.gates.secrets import check_secrets
from provisioner.image.inputs import base_fingerprint
from provisioner.join.admission.kubelet_configuration import kubelet_configuration
from provisioner.node.alignment import align
from provisioner.node.machine.numa import numa_nodes
from tests.image.made_images import layer_files
from tests.tools import IN_CI, missing


@pytest.fixture(scope="module")
def root(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The layers, mounted over one another as a server does."""
    work, lowest_last = tmp_path_factory.mktemp("root"), []
    with ExitStack() as stack:
        for number, file in enumerate(layer_files(built.folder)):
            layer = work / str(number)
            layer.mkdir()
            subprocess.run(["mount", "-o", "loop,ro", file, layer], check=True)
            stack.callback(subprocess.run, ["umount", layer], check=True)
            lowest_last.insert(0, str(layer))
        target = work / "root"
        target.mkdir()
        options = f"lowerdir={':'.join(lowest_last)}"
        subprocess.run(["mount", "-t", "overlay", "-o", options, "overlay", target], check=True)
        stack.callback(subprocess.run, ["umount", target], check=True)
        yield target


@pytest.fixture(scope="module")
def base(request_of_tests: BuildRequest, built: Built) -> Base:
    return Base(request_of_tests.cache / "base" / base_fingerprint(request_of_tests.recipe, request_of_tests.choices))


def test_the_image_is_whole_signed_and_small(built: Built, request_of_tests: BuildRequest) -> None:
    manifest = check_image(built.folder, request_of_tests.key.public).manifest
    assert [layer.name for layer in manifest.layers] == ["base", "kubelet", "site"]
    assert sum(layer.file.size_bytes for layer in manifest.layers) <= 130_000_000
    assert manifest.stage1.size_bytes <= 20_000_000
    assert {"kernel", "kubelet", "containerd", "runc", "systemd"} <= set(manifest.versions)


def test_the_same_inputs_are_not_built_again(built: Built, request_of_tests: BuildRequest) -> None:
    said: list[str] = []
    again = build_image(request_of_tests, lambda phase, outcome, seconds: said.append(phase))
    assert (again.folder, again.reused, said) == (built.folder, True, [])


@pytest.mark.timeout(2400)
def test_an_image_that_is_lost_is_built_again_with_the_same_digest(
    built: Built, request_of_tests: BuildRequest, tmp_path: Path
) -> None:
    """In CI from nothing: the cache with its packages is lost, too (3 minutes).

    Once more (3 minutes) if the distribution has newer packages than the cache: then the two newest are compared.
    """
    lost = dataclasses.replace(request_of_tests, output=tmp_path / "store")
    if IN_CI:
        lost = dataclasses.replace(lost, cache=tmp_path / "cache")
    said: list[str] = []
    again = build_image(lost, lambda phase, outcome, seconds: said.append(phase))
    assert said[0] == "base"
    assert not again.reused
    if packages(lost) != packages(request_of_tests):
        lost = dataclasses.replace(lost, output=tmp_path / "store-2", cache=tmp_path / "cache-2")
        built = build_image(lost, lambda phase, outcome, seconds: None)
    assert again.digest == built.digest, "two builds, one digest"


def made_kubelet(folder: Path) -> Path:
    """A fake kubelet: all that a build asks of one is its version."""
    kubelet = folder / "kubelet"
    kubelet.write_text("#!/bin/sh\necho Kubernetes v1.99.0\n")
    kubelet.chmod(0o755)
    return kubelet


def changed_parts(built: Built, changed: Built) -> set[str]:
    """Of what a server fetches; documents tell of every part."""
    before = built.manifest.files()
    changed_files = {name for name, file in changed.manifest.files().items() if file != before[name]}
    return {name for name in changed_files if not name.startswith("document.")}


def test_another_kubelet_is_another_layer_and_nothing_else(
    built: Built, request_of_tests: BuildRequest, tmp_path: Path
) -> None:
    ingredients = dataclasses.replace(request_of_tests.ingredients, kubelet=made_kubelet(tmp_path))
    said: dict[str, str] = {}
    changed = build_image(
        dataclasses.replace(request_of_tests, ingredients=ingredients, output=tmp_path / "store"),
        lambda phase, outcome, seconds: said.update({phase: outcome}),
    )
    assert changed_parts(built, changed) == {"layer.kubelet"}
    assert changed.manifest.versions["kubelet"] == "v1.99.0"
    base, _, site = said["layers"].split(", ")  # that kubelet's own layer may be kept from another run
    assert base.endswith("(kept)")
    assert site.endswith("(kept)")


def test_another_ca_and_agent_are_another_site(
    built: Built, request_of_tests: BuildRequest, join_ca: Path, tmp_path: Path
) -> None:
    another = tmp_path / "join-ca.pem"
    another.write_bytes(join_ca.read_bytes() * 2)
    agent = shutil.copytree(request_of_tests.ingredients.agent, tmp_path / "provisioner")
    (agent / "node/marker.py").write_text("MARKER = 1\n")
    ingredients = dataclasses.replace(request_of_tests.ingredients, join_ca=another, agent=agent)
    changed = build_image(
        dataclasses.replace(request_of_tests, ingredients=ingredients, output=tmp_path / "store"),
        lambda phase, outcome, seconds: None,
    )
    assert changed_parts(built, changed) == {"layer.site"}
    listed = subprocess.run(
        ["unsquashfs", "-l", layer_files(changed.folder)[-1]], capture_output=True, text=True, check=True
    ).stdout
    assert "provisioner/node/__pycache__/marker.cpython-" in listed


def test_a_recipe_may_have_all_layers_packed_into_one(
    built: Built, request_of_tests: BuildRequest, root: Path, tmp_path: Path
) -> None:
    # Packed in a hurry, it is over the budget.
    gates = dataclasses.replace(request_of_tests.recipe.gates, root_budget_bytes=150_000_000)
    recipe = dataclasses.replace(request_of_tests.recipe, squashfs_merge=True, squashfs_level=1, gates=gates)
    merged = build_image(
        dataclasses.replace(request_of_tests, recipe=recipe, output=tmp_path / "store"),
        lambda phase, outcome, seconds: None,
    )
    assert [layer.name for layer in merged.manifest.layers] == ["system"]
    (file,) = layer_files(merged.folder)
    listed = subprocess.run(["unsquashfs", "-lln", file], capture_output=True, text=True, check=True).stdout
    names = {line.partition("squashfs-root")[2].partition(" -> ")[0] for line in listed.splitlines()[1:]}
    assert names - {""} == {f"/{path.relative_to(root)}" for path in root.rglob("*")}


def packages(request: BuildRequest) -> list[bytes]:
    """What tells the versions of the packages in the base of this request."""
    base = Base(request.cache / "base" / base_fingerprint(request.recipe, request.choices))
    changelogs = sorted(base.stage1_packages.glob("usr/share/doc/*/changelog.Debian*.gz"))
    return [(base.root / "var/lib/dpkg/status").read_bytes(), *(path.read_bytes() for path in changelogs)]


def test_no_secret_is_in_the_root(root: Path) -> None:
    tree = read_tree(root)
    assert list(check_secrets(tree, {})) == []
    assert len(list(tree.files())) > 500


def test_the_root_knows_neither_the_machine_that_built_it_nor_one_that_boots_it(root: Path) -> None:
    assert (root / "etc/machine-id").read_bytes() == b""
    for absent in (
        "etc/resolv.conf",
        "etc/hostname",
        "etc/apt",
        "boot",
        "var/lib/systemd/random-seed",
        "etc/nvme/hostid",
    ):
        assert not (root / absent).exists(), absent
    assert not list(root.glob("etc/ssh/*key*"))
    assert len({file.lstat().st_mtime for file in root.rglob("*")}) == 1


def test_what_boots_is_enabled_and_what_only_takes_time_is_masked(root: Path) -> None:
    units = root / "etc/systemd/system"
    for unit in ("sysinit.target.wants/provisioner-join.service", "multi-user.target.wants/kubelet.service"):
        assert (units / unit).is_symlink(), unit
    for unit in ("ldconfig.service", "systemd-hwdb-update.service", "systemd-machine-id-commit.service"):
        assert (units / unit).readlink() == Path("/dev/null"), unit
    for link in units.rglob("*"):
        if link.is_symlink() and link.readlink() != Path("/dev/null"):
            assert (root / str(link.readlink()).lstrip("/")).exists(), f"{link} leads nowhere"
    kubelet = (units / "kubelet.service").read_text()
    assert "Requires=provisioner-join.service" in kubelet
    assert "Requires=containerd" not in kubelet


def test_every_program_finds_its_libraries(root: Path) -> None:
    """What the recipe removes must not be what something else needs."""
    broken = []
    for folder in ("usr/bin", "usr/sbin", "usr/lib/systemd"):
        programs = [
            f"/{folder}/{file.name}" for file in (root / folder).iterdir() if file.is_file() and not file.is_symlink()
        ]
        done = subprocess.run(["chroot", root, "ldd", *programs], capture_output=True, text=True, check=False)
        broken += [line.strip() for line in done.stdout.splitlines() if "not found" in line]
    assert sorted(set(broken)) == []


def test_modules_find_what_they_ask_for_by_name(root: Path) -> None:
    """A soft dependency that is absent makes a module that loads and does nothing, or fails much later."""
    (release,) = [folder.name for folder in (root / "usr/lib/modules").iterdir()]
    soft = (root / "usr/lib/modules" / release / "modules.softdep").read_text()
    wanted = {word for line in re.findall(r"pre: (.*?)(?: post:|$)", soft, flags=re.MULTILINE) for word in line.split()}
    assert "crc32c" in wanted
    for name in sorted(wanted):
        command = ["chroot", root, "modprobe", "--set-version", release, "--show-depends", name]
        assert subprocess.run(command, capture_output=True, check=False).returncode == 0, name


def test_the_agent_starts_from_compiled_files(root: Path) -> None:
    command = ["chroot", root, "python3", "-I", "-v", "-c", "import provisioner.node, ssl, json, http.client"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    modules = re.findall(r"^# code object from '([^']+)'", done.stderr, flags=re.MULTILINE)
    assert modules
    assert all(name.endswith(".pyc") for name in modules), "a module is compiled at every boot"


IN_OVERLAY = """
    set -e
    root=$1 work=$2 programs=$3; shift 3
    mount -t tmpfs tmpfs "$work"; mkdir "$work/upper" "$work/work" "$work/root"
    mount -t overlay -o "lowerdir=$root,upperdir=$work/upper,workdir=$work/work" overlay "$work/root"
    cd "$work/root"
    mount --rbind /dev dev; mount --rbind /sys sys; mount -t proc proc proc; mount -t tmpfs tmpfs run
    mount --bind proc/sys proc/sys; mount -o remount,bind,ro proc/sys
    mkdir run/programs; mount --bind "$programs" run/programs
    exec chroot . "$@"
"""
"""A command in the image as it runs: its root under an overlay, with nothing mounted that is left behind."""


def in_overlay(root: Path, work: Path, *command: str, programs: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`programs`: a folder that is /run/programs there."""
    enter = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", IN_OVERLAY, "sh"]
    return subprocess.run(
        [*enter, root, work, programs or root, *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )


def test_containerd_takes_its_configuration(root: Path, tmp_path: Path) -> None:
    """As it understands it: a field that it does not know would be left out in silence."""
    done = in_overlay(root, tmp_path, "containerd", "--config", "/etc/containerd/config.toml", "config", "dump")
    assert done.returncode == 0, done.stderr
    cri = tomllib.loads(done.stdout)["plugins"]["io.containerd.grpc.v1.cri"]
    assert (cri["enable_cdi"], cri["cdi_spec_dirs"]) == (True, ["/etc/cdi", "/run/cdi"])
    assert cri["sandbox_image"] == REFERENCE
    assert cri["containerd"]["discard_unpacked_layers"] is True
    assert cri["containerd"]["runtimes"]["runc"]["options"]["SystemdCgroup"] is True
    assert set(cri["containerd"]["runtimes"]) == {"runc"}, "no runtime of a vendor: devices come by CDI"


START_KUBELET = """
    mount -t tmpfs tmpfs /var/lib/containerd; mount -t tmpfs tmpfs /var/lib/kubelet
    cp --archive --update=none /usr/share/provisioner/containerd/. /var/lib/containerd
    printf '%s' "$1" >/run/kubelet.yaml
    touch /etc/resolv.conf
    containerd >/run/containerd.log 2>&1 &
    until [ -S /run/containerd/containerd.sock ]; do kill -0 $! || { cat /run/containerd.log; exit 9; }; sleep 0.1; done
    kubelet --config=/run/kubelet.yaml --hostname-override=r01-u01 >/run/kubelet.log 2>&1 & kubelet=$!
    until grep -q '"Starting memorymanager" policy="Static"' /run/kubelet.log; do
        kill -0 $kubelet || { cat /run/kubelet.log; exit 1; }; sleep 0.1
    done
    grep -o '"Starting" policy="static"' /run/kubelet.log
    grep -o 'topologyPolicyName="[a-z-]*"' /run/kubelet.log
"""
"""The image's containerd and kubelet, until its managers have started. /proc/sys, the machine's, stays as it is."""


def start_kubelet(root: Path, work: Path, configuration: dict[str, object]) -> subprocess.CompletedProcess[str]:
    return in_overlay(root, work, "sh", "-c", f"set -e\n{START_KUBELET}", "sh", json.dumps(configuration))


def aligned_configuration() -> dict[str, object]:
    """What the agent makes of a pool's wish on this machine; put over it what this machine needs, and no API server."""
    pool = {"failSwapOn": False, "failCgroupV1": False, "cgroupsPerQOS": False, "enforceNodeAllocatable": []}
    alone = kubelet_configuration(pool) | {
        "authentication": {"webhook": {"enabled": False}, "anonymous": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "serverTLSBootstrap": False,
        "rotateCertificates": False,
    }
    asked = {"reservedCores": 1, "reservedMemoryBytes": 256 << 20, "evictionMemoryBytes": 100 << 20}
    configuration, words = align(alone, asked, numa_nodes(""))
    if words is None or not words.startswith("aligned"):
        missing("a machine with two cores a NUMA node", f"run it on another one ({words})")
    return configuration


def test_the_kubelet_starts_with_what_the_agent_computes_for_numa_nodes(root: Path, tmp_path: Path) -> None:
    done = start_kubelet(root, tmp_path, aligned_configuration())
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    assert done.stdout.splitlines() == ['"Starting" policy="static"', 'topologyPolicyName="single-numa-node"']


def test_a_kubelet_whose_sums_do_not_agree_does_not_start(root: Path, tmp_path: Path) -> None:
    """The twin, and why the agent leaves the policies out where it cannot be right."""
    configuration = aligned_configuration()
    done = start_kubelet(root, tmp_path, configuration | {"systemReserved": {"memory": "1Gi"}})
    assert done.returncode == 1
    assert "is not equal to the value" in done.stdout


def test_systemd_understands_every_unit_of_ours(root: Path, tmp_path: Path) -> None:
    units = [
        f"/etc/systemd/system/{file.name}"
        for file in sorted((root / "etc/systemd/system").iterdir())
        if file.is_file() and not file.is_symlink()
    ]
    assert len(units) >= 10
    done = in_overlay(root, tmp_path, "systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *units)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_containers_may_pin_memory_and_dump_no_core_unless_they_ask(root: Path) -> None:
    containerd = (root / "etc/systemd/system/containerd.service").read_text()
    assert "LimitMEMLOCK=infinity\n" in containerd
    assert "LimitCORE=0:infinity\n" in containerd


def test_nobody_can_log_in_over_the_network_or_at_a_console(root: Path) -> None:
    for absent in ("usr/sbin/sshd", "usr/lib/systemd/system/ssh.service", "usr/sbin/in.telnetd", "usr/sbin/dropbear"):
        assert not (root / absent).exists(), absent
    assert {file.name for file in (root / "etc/systemd/system").rglob("*getty*")} >= {"getty.target", "getty@.service"}
    listening = [
        file.name
        for folder in ("etc/systemd/system", "usr/lib/systemd/system")
        for file in (root / folder).glob("*.socket")
        if re.search(r"^ListenStream=(\d|\[)", file.read_text(), flags=re.MULTILINE)
        and (root / "etc/systemd/system/sockets.target.wants" / file.name).is_symlink()
    ]
    assert listening == []


START_SHELL = """
    mount -t tmpfs tmpfs /var/lib/containerd
    cp --archive --update=none /usr/share/provisioner/containerd/. /var/lib/containerd
    touch /etc/resolv.conf /etc/hosts
    containerd >/run/containerd.log 2>&1 &
    until [ -S /run/containerd/containerd.sock ]; do kill -0 $! || { cat /run/containerd.log; exit 9; }; sleep 0.1; done
    ctr=$1 ended=0; shift
    "$ctr" --namespace k8s.io run --rm --privileged --net-host --user 0 --with-ns pid:/proc/1/ns/pid "$@" || ended=$?
    find /sys/fs/cgroup -maxdepth 2 -depth -type d -name k8s.io -exec rmdir {} +  # runc's, above the container's own
    exit $ended
"""


def test_the_shell_of_break_glass_runs_with_nothing_but_what_the_node_has(
    root: Path, base: Base, tmp_path: Path
) -> None:
    """Its pod as the image's containerd and runc start it: its image, volumes and command, which then run something."""
    spec = shell_pod("r01-u01", user="ann", reason="looking at it", minutes=5, suffix="x")["spec"]
    (container,) = spec["containers"]
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"]}
    mounts = [
        f"--mount=type=bind,src={paths[mount['name']]},dst={mount['mountPath']},options=rbind:ro"
        for mount in container["volumeMounts"]
    ]
    assert spec["hostPID"], "process 1 is the node's"
    said = [*container["command"], "-c", 'echo "user $(id -u)"; exit 7']
    command = ["sh", "-ec", START_SHELL, "sh", "/run/programs/ctr", *mounts, container["image"], "shell", *said]
    done = in_overlay(root, tmp_path, *command, programs=base.root / "usr/bin")
    assert (done.returncode, done.stdout) == (7, "user 0\n"), done.stdout + done.stderr


def test_what_one_looks_with_is_in_the_image(root: Path) -> None:
    for program in ("bash", "systemctl", "journalctl", "lspci", "ip", "ethtool", "nsenter"):
        assert (root / "usr/bin" / program).exists() or (root / "usr/sbin" / program).exists(), program


def test_containerd_finds_the_pause_image_imported_and_unpacked(root: Path, base: Base, tmp_path: Path) -> None:
    """The image's own containerd reads the state that the builder wrote, and goes on from it."""
    script = """
        set -e
        root=$1 ctr=$2 work=$3
        mount -t tmpfs tmpfs "$work"; mkdir "$work/upper" "$work/work" "$work/root"
        mount -t overlay -o "lowerdir=$root,upperdir=$work/upper,workdir=$work/work" overlay "$work/root"
        cd "$work/root"
        mount --rbind /dev dev; mount --rbind /sys sys; mount -t proc proc proc
        mount -t tmpfs tmpfs run; mount -t tmpfs tmpfs var/lib/containerd
        cp "$ctr" run/ctr
        chroot . cp --archive --update=none /usr/share/provisioner/containerd/. /var/lib/containerd
        chroot . containerd >run/log 2>&1 & daemon=$!
        until chroot . /run/ctr version >/dev/null 2>&1; do kill -0 $daemon || { cat run/log; exit 1; }; sleep 0.1; done
        chroot . /run/ctr --namespace k8s.io images check
        chroot . /run/ctr --namespace k8s.io snapshots prepare next \
            "$(chroot . /run/ctr --namespace k8s.io snapshots ls | awk 'NR == 2 { print $1 }')"
        ls var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots
        kill $daemon; wait $daemon || true
    """
    program = base.root / "usr/bin/ctr"
    command = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", script, "sh"]
    done = subprocess.run([*command, root, program, tmp_path], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith(REFERENCE))
    assert "complete (2/2)" in line
    assert line.split()[-1] == "true", "unpacked"
    assert done.stdout.split()[-2:] == ["1", "2"], "the next snapshot gets a number of its own"
