"""No secret is in an image: everybody on the boot network can read it.

Looked for: what looks like one (`read.secrets`), files and accounts by name, what must be each server's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final

from provisioner.image.gates.allowed import reason_for
from provisioner.image.gates.failure import GateFailure
from provisioner.image.gates.read.secrets import find_secrets
from provisioner.image.gates.read.tree import Tree

GATE: Final = "secrets"


_NAMES: Final = (
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "ssh_host_*_key",
    "*_key",
    "*.key",
    "*.sec",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keytab",
    ".netrc",
    ".git-credentials",
    ".bash_history",
    ".python_history",
    "kubeconfig",
    "*.kubeconfig",
    "admin.conf",
    "auth.conf",
    "credential.secret",
)
_OWN: Final[Mapping[str, str]] = {
    "var/lib/dbus/machine-id": "no file: the machine id comes with the kernel arguments",
    "etc/hostname": "no file: stage-1 writes it",
    "etc/resolv.conf": "no file: stage-1 writes it",
    "etc/nvme/hostid": "no file: it is random, and each server's own",
    "etc/nvme/hostnqn": "no file: it is random, and each server's own",
    "etc/iscsi/initiatorname.iscsi": "no file: it is random, and each server's own",
    "var/lib/systemd/random-seed": "no file: random numbers that are known are none",
    "var/lib/systemd/credential.secret": "no file: a key is made on each server",
    "run/provisioner/request-key": "no file: a boot's key to ask to join with",
}
_LOCKED: Final = frozenset({"*", "!", "!*", "!!"})


def check_secrets(tree: Tree, public: Mapping[str, str]) -> Iterator[GateFailure]:
    """`public`: paths whose content looks like a secret and is known to all, with the reason."""
    remedy = "take it out of the tree or the package; if everybody knows it, list it in gates.allow-public-keys"
    for entry in tree.entries.values():
        name = PurePosixPath(entry.path).name
        named = entry.kind == "file" and entry.size_bytes and reason_for(name, dict.fromkeys(_NAMES, "secret"))
        found = [*entry.secrets, *([f"a name such as secrets have: {name}"] if named else [])]
        if found and reason_for(entry.path, public) is None:
            yield GateFailure(GATE, f"/{entry.path}", ", ".join(found), "nothing that is to be kept secret", remedy)
        if entry.path in _OWN and (entry.kind != "file" or entry.size_bytes):
            observed = f"a {entry.kind} of {entry.size_bytes} bytes"
            yield GateFailure(GATE, f"/{entry.path}", observed, _OWN[entry.path], "add it to root.remove of the recipe")
    machine_id = tree.entries.get("etc/machine-id")
    if machine_id is not None and (machine_id.kind != "file" or machine_id.size_bytes):
        observed = f"a {machine_id.kind} of {machine_id.size_bytes} bytes"
        yield GateFailure(
            GATE, "/etc/machine-id", observed, "an empty file", "write it empty when the root is assembled"
        )
    yield from _accounts(tree)


def check_stage1(content: bytes) -> Iterator[GateFailure]:
    """`content`: the initramfs, unpacked. All of it at once: what is looked for in programs is looked for in it."""
    if found := find_secrets(content):
        yield GateFailure(
            GATE,
            "stage-1",
            ", ".join(found),
            "nothing that is to be kept secret",
            "take it out of the recipe's stage1 folder",
        )


def _accounts(tree: Tree) -> Iterator[GateFailure]:
    for file in ("etc/shadow", "etc/gshadow"):
        for name, password in _fields(tree.text(file)):
            if password not in _LOCKED and not (file == "etc/gshadow" and password == ""):
                observed = f"account {name!r} has {'a password' if password else 'an empty password'}"
                yield GateFailure(
                    GATE,
                    f"/{file}",
                    observed,
                    "'*' or '!': nobody logs in by a password",
                    "lock it in the recipe's tree",
                )
    for name, password in _fields(tree.text("etc/passwd")):
        if password not in ("x", "*", "!"):
            observed = f"account {name!r} has its password here" if password else f"account {name!r} needs no password"
            yield GateFailure(GATE, "/etc/passwd", observed, "'x'", "lock it in the recipe's tree")


def _fields(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name:
            yield name, rest.partition(":")[0]
