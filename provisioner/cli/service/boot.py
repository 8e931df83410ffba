"""`provisioner boot`: what a boot host runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from provisioner.api.machinery.errors import Refused
from provisioner.cli.options import EXISTING_FILE, FOLDER, kubeconfig_option
from provisioner.cli.service.registry_options import access_of, registry_options
from provisioner.node.stop_signals import stop_on_signals

if TYPE_CHECKING:
    from provisioner.boot.host.service import BootCaches
    from provisioner.boot.metrics.store import PullMeter
    from provisioner.image.registry.wanted import Policy
    from provisioner.image.retention.fill import StoreFiller


@click.command("boot")
@kubeconfig_option
@click.option(
    "--address", required=True, help="IPv4 address under which servers reach this boot host, or its virtual one."
)
@click.option(
    "--interface", "interfaces", multiple=True, help="Interface with servers attached directly; relays need none."
)
@click.option("--state", type=FOLDER, required=True, help="Folder for rendered files. It may be empty and may be lost.")
@click.option(
    "--image-store", type=FOLDER, required=True, help="Folder with the images that `image publish` put there."
)
@click.option(
    "--image-registry",
    metavar="oci://HOST/REPOSITORY",
    help="Pull images that servers need, and the store lacks, from there; its folder may be empty then.",
)
@click.option("--image-key", type=EXISTING_FILE, help="With it: public keys, of which one must have signed an image.")
@click.option(
    "--image-pull",
    type=click.Choice(["needed", "all"]),
    default="needed",
    show_default=True,
    help="With it: what a Server or NodePool names, and the newest of each kind; or all Images.",
)
@click.option("--image-pulls", default=2, show_default=True, type=click.IntRange(1, 16), help="With it: at a time.")
@registry_options
@click.option(
    "--tls-certificate",
    type=EXISTING_FILE,
    required=True,
    help="Certificate of the join service (PEM); the image pins its CA.",
)
@click.option("--tls-key", type=EXISTING_FILE, required=True, help="Its key.")
@click.option(
    "--endorsement-authorities",
    type=EXISTING_FILE,
    help="Certificates of TPM vendors' authorities (PEM): a machine whose endorsement key has one of theirs needs no "
    "approval [none].",
)
@click.option(
    "--api-server", required=True, help="URL of the API server as nodes reach it, such as https://10.80.0.1:6443."
)
@click.option("--api-server-ca", type=EXISTING_FILE, help="CA of the API server (PEM) [the kubeconfig's].")
@click.option("--cluster-dns", multiple=True, help="DNS server that kubelets give their pods.")
@click.option("--firmware", multiple=True, type=FOLDER, help="Folder with iPXE's files [/usr/lib/ipxe].")
@click.option("--http-port", default=80, show_default=True, help="Port of scripts and images.")
@click.option("--join-port", default=8443, show_default=True, help="Port of the join service (TLS).")
@click.option(
    "--dpu-join-port", type=int, help="Port for joins that DPUs pass on for their hosts, 8444; none if absent."
)
@click.option(
    "--ipxe-https/--no-ipxe-https",
    default=False,
    show_default=True,
    help="Have iPXE fetch kernel and stage-1 by HTTPS: one that was built with TRUST= of the authority; RSA alone.",
)
@click.option("--dhcp/--no-dhcp", default=True, show_default=True, help="Whether this host answers DHCP.")
@click.option("--dhcp-workers", default=2, show_default=True, help="Processes that answer DHCP.")
@click.option("--trusted-proxy", multiple=True, help="Network of proxies in front whose X-Forwarded-For is believed.")
@click.option(
    "--image-slots", type=click.IntRange(1, 100_000), help="Files of images sent at once; more must wait [by its link]."
)
@click.option("--cache", "caches", multiple=True, help="Network of racks' caches, which need no slot; may be repeated.")
@click.option(
    "--metrics-address",
    metavar="ADDRESS:PORT",
    help="Where Prometheus reads metrics and /readyz gives reasons: in the management network, port 9465 [nowhere].",
)
@click.option("--tools-root", type=FOLDER, hidden=True, help="Chroot with nginx, dnsmasq and iPXE (the lab's).")
def boot(
    kubeconfig: Path | None,
    address: str,
    interfaces: tuple[str, ...],
    state: Path,
    image_store: Path,
    image_registry: str | None,
    image_key: Path | None,
    image_pull: Policy,
    image_pulls: int,
    tls_certificate: Path,
    tls_key: Path,
    endorsement_authorities: Path | None,
    api_server: str,
    api_server_ca: Path | None,
    cluster_dns: tuple[str, ...],
    firmware: tuple[Path, ...],
    http_port: int,
    join_port: int,
    dpu_join_port: int | None,
    ipxe_https: bool,
    dhcp: bool,
    dhcp_workers: int,
    trusted_proxy: tuple[str, ...],
    image_slots: int | None,
    caches: tuple[str, ...],
    metrics_address: str | None,
    tools_root: Path | None,
    **registry: Any,
) -> None:
    """Serve booting machines: DHCP, TFTP, scripts, images, progress, and the join. Any number of replicas."""
    from provisioner.boot.dhcp import DhcpConfig
    from provisioner.boot.host.service import DEBIAN_IPXE, BootCaches, BootService, BootSettings
    from provisioner.boot.metrics.meters import BootMeters
    from provisioner.boot.script.kernel_arguments import BootUrls
    from provisioner.cli.service.join_service import build_join_blueprint
    from provisioner.cli.service.listening import serve_telemetry
    from provisioner.cli.service.served_kinds import warn_of_kinds
    from provisioner.cluster.client import Cluster
    from provisioner.cluster.events import EventRecorder
    from provisioner.join.admission.meter import JoinMeter

    if ipxe_https:
        from provisioner.boot.tls.files import read_text
        from provisioner.boot.tls.issue import read_certificates, require_chain_for_ipxe

        require_chain_for_ipxe(read_certificates(read_text(tls_certificate), "boot host"))
    state, image_store = state.absolute(), image_store.absolute()
    state.mkdir(parents=True, exist_ok=True)
    meters = BootMeters(state / "tftp")
    cluster = Cluster.connect(kubeconfig, user_agent="provisioner-boot", patient=True, meter=meters.api)
    recorder = EventRecorder(cluster, "provisioner-boot")
    web = BootUrls.at(address, http_port, join_port, ipxe_https=ipxe_https).boot
    settings = BootSettings(
        address=address,
        state=state,
        images=image_store,
        certificate=tls_certificate.absolute(),
        key=tls_key.absolute(),
        firmware=firmware or ((tools_root / "usr/lib/ipxe",) if tools_root else DEBIAN_IPXE),
        dhcp=DhcpConfig(server_address=address, interfaces=interfaces, workers=dhcp_workers, web_url=web)
        if dhcp
        else None,
        http_port=http_port,
        join_port=join_port,
        dpu_join_port=dpu_join_port,
        ipxe_https=ipxe_https,
        trusted_proxies=trusted_proxy,
        image_slots=image_slots,
        caches=caches,
    )
    stop = stop_on_signals()
    warn_of_kinds(cluster)
    informers = BootCaches.over(cluster)
    join = build_join_blueprint(
        cluster,
        recorder,
        informers,
        api_server_url=api_server,
        api_server_ca=api_server_ca,
        cluster_dns=cluster_dns,
        meter=JoinMeter(meters.registry),
        urls=settings.urls,
        firmware=settings.firmware,
        endorsement_authorities=endorsement_authorities,
    )
    filler = (
        _filler(informers, image_store, image_registry, image_key, image_pull, image_pulls, meters.pulls, registry)
        if image_registry is not None
        else None
    )
    binds = (state, image_store, settings.certificate.parent) if settings.certificate else (state, image_store)
    enter = enter_tools(tools_root, binds)
    service = BootService(
        settings,
        cluster,
        recorder,
        caches=informers,
        blueprints=[join],
        filler=filler,
        meters=meters,
        enter=enter,
    )
    if metrics_address is not None:
        serve_telemetry(meters.registry, service.health.liveness, service.health.readiness, metrics_address)
    service.run(stop)
    recorder.close()


def _filler(
    caches: BootCaches,
    store: Path,
    address: str,
    key_file: Path | None,
    policy: Policy,
    pulls: int,
    meter: PullMeter,
    options: Mapping[str, Any],
) -> StoreFiller:
    from provisioner.image.finished.sign import read_public_keys
    from provisioner.image.registry.reference import parse_repository
    from provisioner.image.retention.fill import StoreFiller

    if key_file is None:
        raise Refused("--image-registry is given without --image-key", hint="name image.pub: nothing else is believed")
    repository = parse_repository(address)
    access_of(repository, **options)  # what is wrong with it is said at the start
    return StoreFiller(
        images=caches.images,
        servers=caches.servers,
        pools=caches.pools,
        store=store,
        key=read_public_keys(key_file),
        access=lambda: access_of(repository, **options),
        registry=str(repository),
        parallel=pulls,
        policy=policy,
        meter=meter,
    )


def enter_tools(tools_root: Path | None, binds: Sequence[Path]) -> Callable[[Sequence[str]], list[str]]:
    if tools_root is None:
        return list
    from provisioner.boot.host.chroot import Chroot

    chroot = Chroot(tools_root)
    return lambda command: chroot.command(command, binds=binds)
