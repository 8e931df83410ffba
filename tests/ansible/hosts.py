"""Hosts for roles: a chroot of Debian in a network namespace, as it was installed and no more."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from lab.tools import Tools
from tests.ansible.runs import Installed, Run
from tests.boot.dhcp.wire import Namespace

PACKAGES: Final = (
    *("ca-certificates", "curl", "dnsmasq-base", "iproute2", "ipxe", "isc-dhcp-relay", "keepalived"),
    *(
        "nginx-light",
        "procps",
        "python3",
        "python3-apt",
        "python3-packaging",
        "python3-venv",
        "systemd",
        "systemd-sysv",
    ),
)
"""What roles install, as no archive of packages is reached in a test, and what Ansible needs on every host."""

# The chroot stays as it is: what is written goes into memory. systemd does not run; it writes links, as in a chroot.
_ENTER: Final = """
set -eu
mount -t tmpfs -o size=1g,mode=755 host /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay -o "lowerdir=$1,upperdir=/mnt/upper,workdir=/mnt/work" overlay /mnt/root
for each in proc sys dev; do mount --rbind "/$each" "/mnt/root/$each"; done
mount -t tmpfs -o mode=755 run /mnt/root/run
mount -t tmpfs -o mode=1777 tmp /mnt/root/tmp
mkdir /mnt/root/srv/wheels
mount --bind -o ro "$2" /mnt/root/srv/wheels
echo entered
exec sleep infinity
"""


class Host:
    """One host. What its unit would start is started by hand, with the unit's own words."""

    def __init__(self, pid: int, folder: Path, collection: Installed) -> None:
        self.enter = ["nsenter", f"--target={pid}", "--mount", "--net", "chroot", "/mnt/root"]
        self.folder, self.collection = folder, collection

    def run(self, *words: str) -> str:
        ran = subprocess.run([*self.enter, *words], capture_output=True, text=True, check=False, timeout=300)
        assert ran.returncode == 0, f"{words}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    def read(self, path: str) -> str:
        return self.run("cat", path)

    def play(self, role: str, variables: dict[str, Any], *words: str) -> Run:
        """The role on this host."""
        play = {"hosts": "host", "gather_facts": False, "vars": variables, "roles": [f"provisioner.provisioner.{role}"]}
        (self.folder / "play.yml").write_text(yaml.safe_dump([play]))
        found = {"ansible_connection": "chroot_of", "chroot_of_enter": shlex.join(self.enter)}
        found |= {"ansible_python_interpreter": "/usr/bin/python3"}
        inventory = {"all": {"hosts": {"host": found}}}
        (self.folder / "inventory.yml").write_text(yaml.safe_dump(inventory))
        plugins = str(Path(__file__).parent / "connection")
        return self.collection.play(
            self.folder / "play.yml",
            *("-i", self.folder / "inventory.yml", *words),
            ANSIBLE_CONNECTION_PLUGINS=plugins,
            ANSIBLE_PIPELINING="1",
        )

    @contextmanager
    def started(self, unit: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
        """What the unit starts, with its environment, until the block ends."""
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*self.enter, "/bin/sh", "-c", self.shell_of(unit)], stdout=file, stderr=subprocess.STDOUT
            )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(120)

    def shell_of(self, unit: str) -> str:
        """The unit's ExecStart, after its Environment and its EnvironmentFile, which comes before it."""
        lines = self.read(f"/etc/systemd/system/{unit}").splitlines()
        said = [tuple(line.partition("=")[::2]) for line in lines if "=" in line and not line.startswith("#")]
        files = [value.removeprefix("-") for key, value in said if key == "EnvironmentFile"]
        words = [f"export {value}" for key, value in said if key == "Environment"]
        words += [f"set -a; [ ! -e {file} ] || . {file}; set +a" for file in files]
        [start] = [value for key, value in said if key == "ExecStart"]
        return "; ".join([*words, f"exec {start}"])


@contextmanager
def host_in(
    namespace: Namespace, debian: Tools, folder: Path, collection: Installed, wheels: Path | None = None
) -> Iterator[Host]:
    """A host in `namespace`, with `wheels` in /srv/wheels; nothing of it is left when the block ends."""
    command = ["unshare", "--mount", "--propagation", "private", "--", "/bin/sh", "-c", _ENTER, "host"]
    command += [str(debian.root), str(wheels or folder)]
    with subprocess.Popen(namespace.command(*command), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "entered\n"
            yield Host(process.pid, folder, collection)
        finally:
            process.kill()
