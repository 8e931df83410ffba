"""`python -m provisioner.network.agent run --port pf0=IFNAME`: the agent; `once --spec FILE` does what it does by hand.

Exit status 0: the kernel agrees; 1: it does not, the JSON on stdout says why; 2: the command line or the file is wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from provisioner.api.codec import from_json
from provisioner.api.dpu_network import DPUNetworkSpec
from provisioner.api.errors import Refused
from provisioner.api.ip_rules import FUNCTION_PATTERN
from provisioner.network.agent.enforce import Enforcer
from provisioner.network.agent.follow import follow
from provisioner.network.agent.nft import NftRefused
from provisioner.network.agent.observe import Observed

_LONGEST_INTERFACE: Final = 15
_LARGEST_SPEC_BYTES: Final = 64 << 20


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m provisioner.network.agent", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", help="follow this DPU's DPUNetwork until told to end; what is enforced stays")
    run.add_argument("--root", default="", help="below it lie the kubelet's files")
    once = verbs.add_parser("once", help="bring the kernel to a spec")
    once.add_argument("--spec", type=Path, required=True, help="JSON of a DPUNetwork, or of its spec")
    release = verbs.add_parser("release", help="take away everything of ours, and leave the ports down")
    show = verbs.add_parser("show", help="print what the kernel has of ours")
    for verb in (run, once, release, show):
        verb.add_argument(
            "--port", type=_port, action="append", default=[], metavar="FUNCTION=IFNAME", help="such as pf0=pf0hpf"
        )
        verb.add_argument("--domains", choices=("vrf", "netns", "auto"), default="auto")
        verb.add_argument("--underlay", help="interface that carries VXLAN, if not the one with the DPU's address")
    arguments = parser.parse_args(argv)
    enforcer = Enforcer(dict(arguments.port), domains=arguments.domains, underlay=arguments.underlay)
    try:
        if arguments.verb == "run":
            return _run(enforcer, arguments.root)
        if arguments.verb == "show":
            _print(_shown(enforcer.observe()))
            return 0
        done = enforcer.release() if arguments.verb == "release" else enforcer.enforce(_spec(arguments.spec))
    except (OSError, NftRefused, Refused, ValueError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    _print(done.as_json())
    return 0 if done.agrees else 1


def _run(enforcer: Enforcer, root: str) -> int:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    follow(enforcer, root, lambda words: print(words, flush=True), stop)
    return 0


def _port(text: str) -> tuple[str, str]:
    function, _, interface = text.partition("=")
    if not re.fullmatch(FUNCTION_PATTERN, function) or not 1 <= len(interface) <= _LONGEST_INTERFACE:
        raise argparse.ArgumentTypeError(f"{text} is not FUNCTION=IFNAME, such as pf0=pf0hpf")
    return function, interface


def _spec(path: Path) -> DPUNetworkSpec:
    """Raises: OSError, ValueError, Refused."""
    if path.stat().st_size > _LARGEST_SPEC_BYTES:
        raise ValueError(f"{path} is larger than {_LARGEST_SPEC_BYTES} bytes, which no DPUNetwork is")
    said = json.loads(path.read_text())
    if not isinstance(said, dict):
        raise ValueError(f"{path} holds no JSON object: write a DPUNetwork, or its spec, into it")
    return from_json(DPUNetworkSpec, said.get("spec", said))


def _shown(observed: Observed) -> dict[str, Any]:
    """Places by name, HOME as "."; each list in order."""
    return {
        place or ".": {
            field.name: [_plain(each) for each in sorted(getattr(state, field.name), key=repr)]
            for field in dataclasses.fields(state)
        }
        for place, state in observed.places.items()
    }


def _plain(value: Any) -> Any:
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value


def _print(said: dict[str, Any]) -> None:
    print(json.dumps(said, indent=2, sort_keys=True))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
