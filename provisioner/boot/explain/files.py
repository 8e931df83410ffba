"""What a machine fetches to boot an Image: path, size, digest and sources of each file, and whether a store has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from provisioner.api import Image, Rack, Server
from provisioner.boot.explain.facts import BootHost
from provisioner.boot.host.image_store import file_problem, files_of
from provisioner.boot.script.kernel_arguments import image_sources


@dataclass(frozen=True, kw_only=True)
class FetchedFile:
    """name: what it is (`kernel`, `layer base`). sources: URLs, in the order in which they are tried. size_bytes and
    digest are None of what an Image does not name them for. problem: what is wrong with it in the image store; stored:
    whether it is there as it should be; both None where no store was looked at."""

    name: str
    path: str
    sources: tuple[str, ...]
    size_bytes: int | None
    digest: str | None
    stored: bool | None
    problem: str | None


def fetched_files(
    server: Server, image: Image, rack: Rack, host: BootHost, sizes: Mapping[str, int | None] | None
) -> tuple[FetchedFile, ...]:
    """In the order in which they are fetched. iPXE asks the boot host, stage-1 the sources of its kernel arguments."""
    own = f"{host.urls.boot}/images"
    sources = image_sources(server, rack, host.urls)
    by_stage1 = tuple(sources if own in sources else (*sources, own))
    spec = image.spec
    names = {spec.kernel.path: "kernel", spec.stage1.path: "stage-1", spec.manifest.path: "manifest"}
    names |= {layer.path: f"layer {layer.name}" for layer in spec.layers}
    if spec.root is not None:
        names[spec.root.path] = "root"
    digests = {artifact.path: artifact.sha256 for artifact in spec.served}
    by_ipxe = (spec.kernel.path, spec.stage1.path)
    needed = {file.path: file for file in files_of(image)}
    signature = f"{spec.manifest.path}.sig"
    order = (*by_ipxe, spec.manifest.path, signature, *(part.path for part in spec.file_systems))
    found = []
    for path in order:
        file = needed[path]
        problem = file_problem(file, sizes.get(path)) if sizes is not None else None
        found.append(
            FetchedFile(
                name=names.get(path, "signature"),
                path=path,
                sources=tuple(
                    f"{source}/{path}" for source in ((host.urls.files_of_ipxe,) if path in by_ipxe else by_stage1)
                ),
                size_bytes=file.size_bytes,
                digest=digests.get(path),
                stored=problem is None if sizes is not None else None,
                problem=problem,
            )
        )
    return tuple(found)
