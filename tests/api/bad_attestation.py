"""Bad objects of attestation, each with the words that its author reads, and a good twin."""

from __future__ import annotations

from typing import Any

from tests.api.bad_row import Row
from tests.api.objects import API, DIGEST, image

HEX = "9f" * 32


def profile(name: str = "{}", /, **spec: Any) -> dict[str, Any]:
    event = {"pcr": 0, "digest": HEX, "what": "firmware volume"}
    return {
        "apiVersion": API,
        "kind": "FirmwareProfile",
        "metadata": {"name": name},
        "spec": {"judged": [0, 7], "events": [event], **spec},
    }


def learned(**spec: Any) -> dict[str, Any]:
    return profile("learned-{}", **spec)


_NAMED_BY_CONTENT = ("the digest of its content", "copy it under a name of your own")
_MEASURED = {"kernelAuthenticodeSHA256": DIGEST}

ATTESTATION = (
    Row(
        "a profile that judges no firmware is approved",
        profile(judged=[7], approved=True),
        profile(judged=[0, 7], approved=True),
        ("spec.judged", "would let any firmware in"),
    ),
    Row(
        "a profile that judges the register of what is started",
        profile(judged=[0, 4]),
        profile(judged=[0, 1]),
        ("spec.judged", "the programs of 4 are always judged"),
    ),
    Row(
        "a digest with its algorithm where a register is extended",
        profile(events=[{"pcr": 0, "digest": DIGEST}]),
        profile(events=[{"pcr": 0, "digest": HEX}]),
        ("spec.events[0].digest",),
    ),
    Row(
        "a learned profile that judges another register now",
        learned(judged=[0, 2, 7]),
        learned(approved=True),
        _NAMED_BY_CONTENT,
        before=learned(),
    ),
    Row(
        "a learned and approved profile with another event now",
        learned(approved=True, events=[{"pcr": 0, "digest": "00" * 32}]),
        learned(approved=False),
        _NAMED_BY_CONTENT,
        before=learned(approved=True),
    ),
    Row(
        "a learned profile with another locality now",
        learned(startupLocality=3),
        learned(),
        _NAMED_BY_CONTENT,
        before=learned(),
    ),
    Row(
        "a learned profile whose registers are edited in place of a copy's",
        learned(judged=[0]),
        profile("model-{}", judged=[0]),
        _NAMED_BY_CONTENT,
        before=learned(),
    ),
    Row(
        "an Image whose kernel measures otherwise now",
        image("{}", measurements={"kernelAuthenticodeSHA256": "sha256:" + "00" * 32}),
        image("{}", measurements=_MEASURED),
        ("an Image never changes",),
        before=image("{}", measurements=_MEASURED),
    ),
    Row(
        "an Image that gets a measurement and another kernel",
        image("{}", measurements=_MEASURED, recipe="other"),
        image("{}", measurements=_MEASURED),
        ("an Image never changes",),
        before=image("{}"),
    ),
)
