"""Images that the API server refuses, each beside one that it takes."""

from __future__ import annotations

from typing import Any, Final

from tests.api.bad_row import Row
from tests.api.objects import artifact, image, image_of_format_1, layer, part

_EITHER: Final = "an Image has either layers or, of the older format, a root: publish it with provisioner image publish"
_TWO: Final = [layer("base", "55"), layer("site", "66")]


def _layers(mistake: str, bad: list[dict[str, Any]], *words: str) -> Row:
    return Row(mistake, image(layers=bad), image(layers=_TWO), words)


IMAGES = (
    Row(
        "an Image that changes",
        image("{}", recipe="other"),
        image("{}"),
        ("an Image never changes: publish another one",),
        before=image("{}"),
    ),
    Row(
        "another layer in an Image that is there",
        image("{}", layers=[*_TWO, layer("driver", "77")]),
        image("{}"),
        ("an Image never changes: publish another one",),
        before=image("{}"),
    ),
    Row("neither layers nor a root", image(layers=None), image(), (_EITHER,)),
    Row("both layers and a root", image(root=artifact("root.squashfs")), image_of_format_1(), (_EITHER,)),
    _layers("no layers", [], "spec.layers", "should have at least 1 items"),
    _layers(
        "too many layers", [layer(f"n{number}", f"{number:02}") for number in range(17)], "spec.layers", "at most 16"
    ),
    _layers("two layers of one name", [layer("base", "55"), layer("base", "66")], "no two layers have one name"),
    _layers("a layer without a name", [part("55")], "spec.layers[0].name", "Required value"),
    _layers("a layer's name that is a path", [layer("../base", "55")], "spec.layers[0].name"),
    _layers("a layer's name that is too long", [layer("n" * 33, "55")], "spec.layers[0].name"),
    _layers(
        "a layer that climbs", [layer("base", "55") | {"path": "a/../../etc/shadow"}], "a path may not contain '..'"
    ),
    _layers("an empty layer", [layer("base", "55") | {"sizeBytes": 0}], "spec.layers[0].sizeBytes"),
    _layers(
        "a layer without a digest", [layer("base", "55") | {"sha256": "latest"}], "copy it from the image's manifest"
    ),
    Row(
        "two documents of one name",
        image(documents=[layer("sbom", "55"), layer("sbom", "66")]),
        image(documents=[layer("sbom", "55"), layer("sizes", "66")]),
        ("no two documents have one name",),
    ),
    Row(
        "too many documents",
        image(documents=[layer(f"n{number}", f"{number:02}") for number in range(17)]),
        image(documents=[]),
        ("spec.documents", "at most 16"),
    ),
    Row(
        "a path that climbs",
        image_of_format_1(root=artifact("root.squashfs") | {"path": "a/../../etc/shadow"}),
        image_of_format_1(root=artifact("root.squashfs") | {"path": "a/root.squashfs"}),
        ("a path may not contain '..'",),
    ),
    Row("an image without a digest", image(digest="latest"), image(), ("copy it from the image's manifest",)),
    Row("an empty kernel", image(kernel=part("33") | {"sizeBytes": 0}), image(), ("spec.kernel.sizeBytes",)),
    Row("another architecture", image(architecture="riscv64"), image(architecture="arm64"), ('"x86_64", "arm64"',)),
    Row(
        "a script in an image's kernel argument",
        image(kernelArguments=["a ${b}"]),
        image(kernelArguments=["console=ttyS0,115200"]),
        ("a kernel argument is one word",),
    ),
)
