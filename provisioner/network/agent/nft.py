"""nft, with JSON in and out, in the namespace in which the thread is."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any, Final

from provisioner.network.agent.model.naming import TABLE
from provisioner.network.agent.netlink.tables import families_with

_PATIENCE_SECONDS: Final = 60
_PROBE: Final = "provisioner_probe"


class NftRefused(Exception):
    """nft, or the kernel, did not take a transaction: nothing of it is in force. In nft's words."""


def load(commands: Mapping[str, Any], *, check: bool = False) -> None:
    """One transaction. Raises: NftRefused."""
    if commands["nftables"]:
        _run(["nft", *(["-c"] if check else []), "-j", "-f", "-"], json.dumps(commands))


def dump() -> list[dict[str, Any]]:
    """Our tables, those that there are. Raises: NftRefused; OSError."""
    try:
        return [json.loads(_run(["nft", "-j", "list", "table", family, TABLE])) for family in families_with(TABLE)]
    except ValueError as error:
        raise NftRefused(f"nft printed what is no JSON: {error}") from error


def has_conntrack() -> bool:
    """Whether the kernel takes a rule that asks for a connection. Asked only: nothing stays."""
    at = {"family": "inet", "table": _PROBE}
    asks = {"match": {"op": "==", "left": {"ct": {"key": "direction"}}, "right": "reply"}}
    commands = [
        {"add": {"table": {"family": "inet", "name": _PROBE}}},
        {"add": {"chain": {**at, "name": "probe"}}},
        {"add": {"rule": {**at, "chain": "probe", "expr": [asks]}}},
    ]
    try:
        load({"nftables": commands}, check=True)
    except NftRefused:
        return False
    return True


def _run(argv: list[str], stdin: str = "") -> str:
    try:
        ran = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False)
    except FileNotFoundError:
        raise NftRefused("the program nft is not installed") from None
    except subprocess.TimeoutExpired:
        raise NftRefused(f"nft did not end within {_PATIENCE_SECONDS} s") from None
    if ran.returncode != 0:
        raise NftRefused(" ".join(ran.stderr.split())[:500] or f"nft ended with {ran.returncode}")
    return ran.stdout
