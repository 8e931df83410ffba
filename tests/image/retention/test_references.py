"""What names an Image: every field that the API has for it, and those that it will have."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Iterator
from typing import Any

import pytest

from provisioner.api import KINDS, Maintenance, NodePool, Server
from provisioner.api.machinery.schema import json_name
from provisioner.api.nodes.maintenance import FINAL_PHASES
from provisioner.image.retention.references import images_named, images_of_node


def fields_of(cls: Any, path: str, seen: tuple[Any, ...] = ()) -> Iterator[str]:
    """Paths of all fields of a kind that name an image, by the types themselves."""
    for name, hint in typing.get_type_hints(cls).items():
        if typing.get_origin(hint) is typing.ClassVar:
            continue
        below = f"{path}.{json_name(name)}".lstrip(".")
        if "image" in name and (name.endswith(("_ref", "_digest"))):
            yield below
        for option in (hint, *typing.get_args(hint)):
            if dataclasses.is_dataclass(option) and option not in seen:
                yield from fields_of(option, below, (*seen, option))


def body_with(path: str, value: str) -> dict[str, Any]:
    body: Any = value
    for key in reversed(path.split(".")):
        body = {key: body}
    return {"metadata": {"name": "x"}, **body}


NAMING = sorted(
    {(kind, path) for kind in KINDS for path in fields_of(kind, "") if not path.startswith("status.history")},
    key=lambda pair: (pair[0].KIND.kind, pair[1]),
)


def test_images_are_named_by_these_kinds_alone() -> None:
    """If another kind names an Image, `read_fleet` has to read it, too."""
    assert {kind for kind, _ in NAMING} == {Server, NodePool, Maintenance}
    assert len(NAMING) > 10


@pytest.mark.parametrize(
    ("kind", "path"), NAMING, ids=lambda value: value if isinstance(value, str) else value.KIND.kind
)
def test_every_field_that_names_an_image_is_found(kind: Any, path: str) -> None:
    assert ("this-one", path) in set(images_named(kind.KIND.kind, body_with(path, "this-one")))


def test_in_lists_and_in_fields_that_nobody_knows_yet() -> None:
    body = {
        "spec": {"requestors": [{"imageRef": "a"}, {"imageRef": "b"}]},
        "status": {"new": {"fallbackImageRef": "c"}},
    }
    assert {image for image, _ in images_named("Maintenance", body)} == {"a", "b", "c"}


def test_records_of_what_is_over_name_nothing() -> None:
    for phase in FINAL_PHASES:
        ended = {"spec": {"requestors": [{"imageRef": "a"}]}, "status": {"phase": phase, "imageRef": "a"}}
        assert list(images_named("Maintenance", ended)) == []
        assert list(images_named("Server", ended)), "a phase ends a Maintenance alone"
    history = {"status": {"history": [{"imageRef": "old"}], "rollout": {"previousImageRef": "before"}}}
    assert [image for image, _ in images_named("NodePool", history)] == ["before"]


def test_a_phase_of_a_later_release_does_not_let_an_image_go() -> None:
    body = {"status": {"phase": "Pondering", "imageRef": "a"}}
    assert [image for image, _ in images_named("Maintenance", body)] == ["a"]


def test_what_a_node_runs_and_is_told_to_stage_is_named_by_its_annotations() -> None:
    annotations = {
        "provisioner.dev/node-facts": json.dumps({"imageDigest": "sha256:runs"}),
        "provisioner.dev/boot-intent": json.dumps({"imageDigest": "sha256:next"}),
        "somebody/else": json.dumps({"imageDigest": "sha256:no"}),
    }
    found = {image for image, _ in images_of_node({"metadata": {"annotations": annotations}})}
    assert found == {"sha256:runs", "sha256:next"}


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "x" * 70_000, "1", '{"imageDigest": 7}'])
def test_an_annotation_that_cannot_be_read_ends_nothing(text: str) -> None:
    annotations = {"provisioner.dev/node-facts": text}
    assert list(images_of_node({"metadata": {"annotations": annotations}})) == []
