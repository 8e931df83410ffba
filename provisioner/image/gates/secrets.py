"""No secret is in an image: everybody on the boot network can read it. The one place that knows what one looks like.

Looked for: private keys, tokens, credentials of clusters and registries, passwords, what must be each server's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from provisioner.image.gates.allowed import reason_for
from provisioner.image.gates.failure import GateFailure

if TYPE_CHECKING:
    from provisioner.image.gates.read.tree import Tree

GATE: Final = "secrets"


@dataclass(frozen=True)
class _Pattern:
    """`anchor` is in all that `expression` matches: most files lack it, and are not searched by the expression."""

    name: str
    anchor: bytes
    expression: re.Pattern[bytes]


# In programs and libraries too: each is long enough that chance and code do not write it.
_ANYWHERE: Final = (
    _Pattern(
        "private key",
        b"PRIVATE KEY",
        # With its content: programs name the first line alone. `\n` may be written out, as in JSON.
        re.compile(
            rb"-----BEGIN [A-Z ]{0,32}PRIVATE KEY(?: BLOCK)?-----(?:\s|\\r|\\n){1,8}"
            rb"(?:[A-Za-z0-9+/=]{16}|[A-Z][A-Za-z-]{2,20}: )"
        ),
    ),
    _Pattern(
        "signify secret key",
        b"secret key\n",
        re.compile(rb"untrusted comment: [^\n]{0,200}secret key\n[A-Za-z0-9+/=]{4}"),
    ),
    _Pattern("age secret key", b"AGE-SECRET-KEY-1", re.compile(rb"AGE-SECRET-KEY-1[0-9A-Z]{40}")),
    _Pattern("GitHub token", b"ghp_", re.compile(rb"\bghp_[A-Za-z0-9]{36}")),
    _Pattern("GitHub token", b"ghs_", re.compile(rb"\bghs_[A-Za-z0-9]{36}")),
    _Pattern("GitHub token", b"github_pat_", re.compile(rb"\bgithub_pat_[A-Za-z0-9_]{60}")),
    _Pattern("NGC API key", b"nvapi-", re.compile(rb"\bnvapi-[A-Za-z0-9_-]{60}")),
    _Pattern(
        "JSON web token",
        b"eyJ",
        re.compile(rb"\beyJ[A-Za-z0-9_-]{16,4096}\.eyJ[A-Za-z0-9_-]{16,8192}\.[A-Za-z0-9_-]{32}"),
    ),
)
_IN_TEXT: Final = (
    _Pattern(
        "bootstrap token",
        b".",
        # At the end of a line, with a digit in it: two words that are joined by a dot look alike otherwise. It begins
        # with the dot, for which a file is searched faster than for a letter or digit.
        re.compile(
            rb"\.(?:(?<=[^\w./-][a-z0-9]{6}\.)|(?<=\A[a-z0-9]{6}\.))"
            rb"(?=[a-z]*[0-9])[a-z0-9]{16}(?![\w./-])(?=[\"'\s,;}\]]*$)",
            re.MULTILINE,
        ),
    ),
    _Pattern("AWS access key", b"AKIA", re.compile(rb"\bAKIA[0-9A-Z]{16}\b")),
    _Pattern(
        "kubeconfig with a key", b"client-key-data", re.compile(rb"client-key-data[\"']?:\s*[\"']?[A-Za-z0-9+/=]{16}")
    ),
    _Pattern(
        "kubeconfig with a token or password",
        b"current-context",
        re.compile(rb"^[ \t{,\"'-]*(?:token|password)[\"']?:\s*[\"']?[^\s\"']{8}", re.M),
    ),
    _Pattern("registry credential", b'"auth"', re.compile(rb'"auth"\s*:\s*"[A-Za-z0-9+/=]{8,4096}"')),
    _Pattern(
        "password in an address",
        b"://",
        re.compile(rb"^[^#\n]*=\s*\"?[a-z]{3,8}://[^\s/:@]{1,64}:[^\s/:@]{3,128}@", re.M),
    ),
)
_TEXT_BYTES: Final = 4 << 20
"""Larger files of text are data, and are searched for what needs no line of its own."""
_PROGRAM: Final = (b"\x7fELF", b"hsqs")

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


def find_secrets(content: bytes) -> tuple[str, ...]:
    """What in a file's content looks like a secret, by name; programs are searched for what is unmistakable."""
    patterns: tuple[_Pattern, ...] = _ANYWHERE
    if not content.startswith(_PROGRAM) and len(content) <= _TEXT_BYTES and b"\0" not in content[:1024]:
        patterns += _IN_TEXT
    return tuple(
        pattern.name for pattern in patterns if pattern.anchor in content and pattern.expression.search(content)
    )


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
