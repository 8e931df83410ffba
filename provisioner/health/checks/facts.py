"""Reads what the agent wrote on its Node. Whatever stands there, the answer is facts or words, never an exception."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from provisioner.api.machinery.codec import from_json, read_foreign_json
from provisioner.api.machinery.errors import Refused
from provisioner.api.nodes.contract import NODE_FACTS_ANNOTATION
from provisioner.api.nodes.facts import NodeFacts
from provisioner.health.checks.finding import Finding, fine, not_yet, printable, wrong
from provisioner.rules.nodes import NodeView

FACTS_FORMAT: Final = 1
MAX_BYTES: Final = 64 * 1024
FACTS_SECONDS: Final = 300.0
"""How long the agent may take from the Node's first report to its facts."""

NAME: Final = "Facts"
_REMEDY: Final = "on the node: journalctl -u provisioner-node; then reboot it, or publish an image whose agent works"


def read_facts(node: NodeView) -> tuple[NodeFacts | None, Finding]:
    """The facts of the Node's current boot, and what to say of them; None unless they are of that boot and whole."""
    text = node.annotations.get(NODE_FACTS_ANNOTATION)
    if text is None:
        return None, _waits(node, "it has none")
    if len(text) > MAX_BYTES:
        return None, _malformed(f"it has {len(text)} characters", f"at most {MAX_BYTES}")
    try:
        data = read_foreign_json(text)
    except (ValueError, RecursionError) as error:
        return None, _malformed(f"it is no JSON: {printable(str(error), 200)}", "an object")
    if not isinstance(data, Mapping):
        return None, _malformed(f"it is {printable(repr(data), 80)}", "an object")
    if data.get("format") != FACTS_FORMAT:
        return None, _malformed(f"its format is {printable(repr(data.get('format')), 80)}", f"format {FACTS_FORMAT}")
    try:
        facts = from_json(NodeFacts, data)
    except Refused as error:
        return None, _malformed(printable(str(error), 300), "what provisioner.api.nodes.facts describes")
    if node.boot_id is None or facts.boot_id.lower() != node.boot_id:
        return None, _waits(node, f"it is of boot {printable(facts.boot_id, 63)}")
    return facts, fine(NAME, f"written by the agent at {facts.time}")


def _waits(node: NodeView, observed: str) -> Finding:
    message = (
        f"waits for the agent's annotation {NODE_FACTS_ANNOTATION} of boot {node.boot_id} on Node {node.name}: "
        f"{observed}; remedy, should it not come: {_REMEDY}"
    )
    return not_yet(NAME, "WaitsForFacts", message, patience_seconds=FACTS_SECONDS)


def _malformed(observed: str, expected: str) -> Finding:
    said = f"annotation {NODE_FACTS_ANNOTATION} cannot be used: {observed}"
    return wrong(NAME, "Malformed", observed=said, expected=expected, remedy=_REMEDY)
