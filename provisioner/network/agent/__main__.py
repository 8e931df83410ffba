"""`python -m provisioner.network.agent run --port pf0=IFNAME`: the agent; `once --spec FILE` does what it does by hand.

Exit status 0: the kernel agrees; 1: it does not, the JSON on stdout says why; 2: the command line or the file is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import re
import sys
from collections.abc import Sequence
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from typing import Any, Final

from provisioner.api.machinery.codec import from_json
from provisioner.api.machinery.errors import Refused
from provisioner.api.network.dpu_network import DPUNetworkSpec
from provisioner.api.network.ip_rules import FUNCTION_PATTERN
from provisioner.network.agent.boot.image_cache import ImageCache
from provisioner.network.agent.boot.own_boot import NotKnown, services_of_own_boot
from provisioner.network.agent.boot.plane import HTTP_PORT, BootServices, is_unicast
from provisioner.network.agent.boot.proxy import Proxy
from provisioner.network.agent.boot.server import BootServer
from provisioner.network.agent.card.configure import configure
from provisioner.network.agent.card.tools import Tools
from provisioner.network.agent.card.worker import CardWorker
from provisioner.network.agent.enforce import Enforcer
from provisioner.network.agent.exchanging import ExchangingKernel
from provisioner.network.agent.follow import follow
from provisioner.network.agent.nft import NftRefused
from provisioner.network.agent.observe import Observed
from provisioner.node.stop_signals import stop_on_signals

_LONGEST_INTERFACE: Final = 15
_LARGEST_PORT: Final = 65535
_CACHE_BYTES: Final = 4 << 30
_LONGEST_NUMBER: Final = 15
_LARGEST_SPEC_BYTES: Final = 64 << 20
_LOOKS: Final = 10
"""An agent removes the namespaces of a DPU's VPCs one after the other."""


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
        verb.add_argument(
            "--domains",
            choices=("vrf", "netns", "auto"),
            default="auto",
            help="what keeps VPCs apart: VRFs or network namespaces; auto: VRFs where the kernel has them",
        )
        verb.add_argument("--underlay", help="interface that carries VXLAN, if not the one with the DPU's address")
        verb.add_argument(
            "--boot-host",
            type=_address,
            help="address of the boot host, for a host that boots by the DPU; `run` takes that of the DPU's own boot",
        )
        verb.add_argument(
            "--api-server",
            type=_api_server,
            metavar="ADDRESS[:PORT]",
            help="as the host's kubelet has it; `run` takes the one that the DPU joined",
        )
    for verb in (run, once, release):
        verb.add_argument(
            "--bgpd",
            type=Path,
            default=Path("/run/provisioner/bgpd"),
            metavar="FOLDER",
            help="where FRR's bgpd has its socket, for a DPUNetwork whose routes go by EVPN",
        )
    run.add_argument(
        "--cache",
        type=Path,
        default=Path("/run/provisioner/boot-images"),
        metavar="FOLDER",
        help="of its own, for images' files that a host boots by",
    )
    run.add_argument(
        "--cache-bytes",
        type=_cache_bytes,
        default=_CACHE_BYTES,
        help="of images' files for the host, at most, and never more than half of what is free there at the start",
    )
    arguments = parser.parse_args(argv)
    services = _services(parser, arguments)
    if services is None and arguments.verb == "run":
        services = _services_of_own_boot(arguments.root)
    enforcer = Enforcer(dict(arguments.port), domains=arguments.domains, underlay=arguments.underlay, boot=services)
    try:
        if arguments.verb == "run":
            boot = (
                BootServer(services, Proxy(services, _cache(arguments), _say), _say) if services is not None else None
            )
            return _run(ExchangingKernel(enforcer, arguments.bgpd), arguments.root, boot)
        if arguments.verb == "show":
            _print(_shown(_observe(enforcer)))
            return 0
        kernel = ExchangingKernel(enforcer, arguments.bgpd)
        done = kernel.release() if arguments.verb == "release" else kernel.enforce(_spec(arguments.spec))
    except (OSError, NftRefused, Refused, ValueError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    _print(done.as_json())
    return 0 if done.agrees else 1


def _observe(enforcer: Enforcer) -> Observed:
    """What the kernel has. An agent may work beside this one: where it has removed a namespace meanwhile, once more."""
    for _ in range(_LOOKS - 1):
        with contextlib.suppress(FileNotFoundError):
            return enforcer.observe()
    return enforcer.observe()


def _cache(arguments: argparse.Namespace) -> ImageCache:
    """Empty; one that keeps nothing where its folder cannot be made: networks are enforced all the same."""
    cache = ImageCache(arguments.cache, arguments.cache_bytes)
    try:
        cache.empty()
    except OSError as error:
        _say(
            f"no image is kept for the host, for {arguments.cache} cannot be used ({error}): make room, or name another"
        )
        return ImageCache(arguments.cache, 0)
    return cache


def _run(kernel: ExchangingKernel, root: str, boot: BootServer | None) -> int:
    stop = stop_on_signals()
    tools = Tools()
    card = CardWorker(lambda wanted: configure(wanted, tools), _say)
    follow(kernel, root, _say, stop, boot, card, watch_routes=kernel.watch)
    return 0


def _say(words: str) -> None:
    print(words, flush=True)


def _services(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> BootServices | None:
    if (arguments.boot_host is None) != (arguments.api_server is None):
        parser.error("give --boot-host and --api-server together: a host that boots by the DPU needs both")
    if arguments.boot_host is None:
        return None
    address, port = arguments.api_server
    services = BootServices(arguments.boot_host, address, port)
    if port == HTTP_PORT:
        parser.error(f"--api-server is {address}:{port}, where the boot plane answers HTTP: name the port of its TLS")
    if (address, port) == (services.boot_host, services.join_port):
        parser.error(f"--api-server is {address}:{port}, where the boot host takes joins: name the API server's own")
    return services


def _services_of_own_boot(root: str) -> BootServices | None:
    try:
        return services_of_own_boot(root)
    except NotKnown as error:
        _say(f"a host could not boot through this DPU: {error}")
        return None


def _address(text: str) -> IPv4Address:
    try:
        address = IPv4Address(text)
    except AddressValueError:
        raise argparse.ArgumentTypeError(f"{text} is no IPv4 address such as 10.80.0.1") from None
    if not is_unicast(address):
        raise argparse.ArgumentTypeError(f"{text} is an address that no server can have; give one such as 10.80.0.1")
    return address


def _cache_bytes(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER):
        raise argparse.ArgumentTypeError(f"{text} is no number of bytes such as {_CACHE_BYTES}; 0 keeps no file")
    return int(text)


def _api_server(text: str) -> tuple[IPv4Address, int]:
    address, _, port = text.partition(":")
    if port and not (port.isdecimal() and 1 <= int(port) <= _LARGEST_PORT):
        raise argparse.ArgumentTypeError(f"{text} has no port such as 6443")
    return _address(address), int(port or 6443)


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
