"""What looks like a secret in a file: private keys, tokens, credentials of clusters and registries, passwords."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


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


def find_secrets(content: bytes) -> tuple[str, ...]:
    """What in a file's content looks like a secret, by name; programs are searched for what is unmistakable."""
    patterns: tuple[_Pattern, ...] = _ANYWHERE
    if not content.startswith(_PROGRAM) and len(content) <= _TEXT_BYTES and b"\0" not in content[:1024]:
        patterns += _IN_TEXT
    return tuple(
        pattern.name for pattern in patterns if pattern.anchor in content and pattern.expression.search(content)
    )
