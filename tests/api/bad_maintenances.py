"""Bad Maintenances, and NodePools with bad settings for jobs, maintenance and verification."""

from __future__ import annotations

from typing import Any

from tests.api.bad_row import Row
from tests.api.objects import maintenance, node_pool, requestor


def _setting(mistake: str, part: str, bad: dict[str, Any], good: dict[str, Any], *words: str) -> Row:
    return Row(mistake, node_pool(**{part: bad}), node_pool(**{part: good}), words)


def _unavailable(bad: int | str, good: int | str) -> Row:
    return _setting(
        f"maxUnavailable {bad!r}",
        "maintenance",
        {"maxUnavailable": bad},
        {"maxUnavailable": good},
        "maxUnavailable is a count, such as 2, or a share up to 100%, such as 10%; 0 pauses",
    )


def _request(mistake: str, bad: dict[str, Any], good: dict[str, Any], *words: str) -> Row:
    return Row(mistake, maintenance(requestors=[requestor(**bad)]), maintenance(requestors=[requestor(**good)]), words)


_LATER = "2030-01-02T03:04:05Z"

MAINTENANCES = (
    Row("no server", maintenance(serverRef=None), maintenance(), ("spec.serverRef", "Required value")),
    Row(
        "another server than before",
        maintenance("m-{}", serverRef="r01-u02"),
        maintenance("m-{}"),
        ("spec.serverRef", "a Maintenance keeps its server: make another one"),
        before=maintenance("m-{}"),
    ),
    _request("an unknown action", {"action": "Explode"}, {"action": "PowerCycle"}, "Drain", "Reboot", "PowerCycle"),
    _request("an unknown policy", {"policy": "Soon"}, {"policy": "Now"}, "WhenIdle", "Deadline", "Now"),
    _request(
        "a deadline without its time",
        {"policy": "Deadline"},
        {"policy": "Deadline", "deadlineTime": _LATER},
        "policy Deadline needs deadlineTime",
    ),
    _request(
        "a time without the policy",
        {"policy": "WhenIdle", "deadlineTime": _LATER},
        {"policy": "Deadline", "deadlineTime": _LATER},
        "deadlineTime is only for policy Deadline",
    ),
    _request(
        "a deadline that is no time",
        {"policy": "Deadline", "deadlineTime": "tomorrow"},
        {"policy": "Deadline", "deadlineTime": _LATER},
        "date-time",
    ),
    _request(
        "a drain that boots an image",
        {"action": "Drain", "imageRef": "gpu-2"},
        {"action": "Reimage", "imageRef": "gpu-2"},
        "action Drain boots nothing",
    ),
    _request(
        "a person who moves a server by a request",
        {"action": "Reimage", "imageRef": "gpu-2", "nodePoolRef": "slurm"},
        {"action": "Reimage", "imageRef": "gpu-2"},
        "nodePoolRef is for rollouts",
        "kubectl provision move",
    ),
    _request(
        "a closing time of a turn that closes nothing",
        {"turn": "Steered", "closingTime": _LATER},
        {"turn": "Closed", "closingTime": _LATER},
        "closingTime is only for turn Closed",
    ),
    _request(
        "a closing time without a turn",
        {"closingTime": _LATER},
        {"turn": "Closed", "closingTime": _LATER},
        "closingTime is only for turn Closed",
    ),
    Row(
        "two requestors of one name",
        maintenance(requestors=[requestor(), requestor()]),
        maintenance(requestors=[requestor(), requestor(name="rollout")]),
        ("spec.requestors[1]", "Duplicate value"),
    ),
)

_GPUS = {"expected": {"gpus": {"count": 8}}}


def _gpus(mistake: str, bad: dict[str, Any], good: dict[str, Any], *words: str) -> Row:
    return _setting(mistake, "verification", {**_GPUS, "gpus": bad}, {**_GPUS, "gpus": good}, *words)


POOL_SETTINGS = (
    _setting(
        "how GPUs must be without how many there are",
        "verification",
        {"gpus": {"fabric": "Required"}},
        {**_GPUS, "gpus": {"fabric": "Required"}},
        "spec.verification.gpus",
        "set expected.gpus.count",
    ),
    _setting(
        "how another vendor's GPUs must be",
        "verification",
        {"expected": {"gpus": {"count": 8, "vendorID": "1002"}}, "gpus": {}},
        {"expected": {"gpus": {"count": 8, "vendorID": "10de"}}, "gpus": {}},
        "with vendorID 10de",
    ),
    _gpus(
        "an XID that fails and does not",
        {"ignoredXids": [63, 94], "failingXids": [94]},
        {"ignoredXids": [63], "failingXids": [94]},
        "spec.verification.gpus.failingXids",
        "leave it in one of them",
    ),
    _gpus(
        "NVLinks of a fabric that is ignored",
        {"fabric": "Ignored", "nvlinks": 18},
        {"nvlinks": 18},
        "spec.verification.gpus.nvlinks",
        "remove one of them",
    ),
    _gpus("a link of 10 lanes", {"pcieWidth": 10}, {"pcieWidth": 8}, "set one of these"),
    _gpus(
        "a driver's version with a word in it",
        {"driverVersion": "550-server"},
        {"driverVersion": "550.163.01"},
        "spec.verification.gpus.driverVersion",
    ),
    _unavailable(-1, 0),
    _unavailable("-1%", "0%"),
    _unavailable("101%", "100%"),
    _unavailable("some", "10%"),
    _setting(
        "an unknown reboot method",
        "maintenance",
        {"rebootMethods": ["Kick"]},
        {"rebootMethods": ["PowerCycle"]},
        "Kexec",
        "PowerCycle",
    ),
    _setting(
        "a reboot method twice",
        "maintenance",
        {"rebootMethods": ["Reset", "Reset"]},
        {"rebootMethods": ["Reset", "PowerCycle"]},
        "a reboot method occurs twice",
    ),
    _setting(
        "a Slurm cluster without credentials",
        "jobs",
        {"slurm": {"url": "http://slurm:6820"}},
        {"slurm": {"url": "http://slurm:6820", "credentialsName": "slurm"}},
        "spec.jobs.slurm.credentialsName",
        "Required value",
    ),
    _setting(
        "a GPU vendor by its name",
        "verification",
        {"expected": {"gpus": {"count": 8, "vendorID": "nvidia"}}},
        {"expected": {"gpus": {"count": 8, "vendorID": "10de"}}},
        "vendorID",
    ),
    _setting(
        "a check without a pod",
        "verification",
        {"checks": [{"name": "nccl", "template": {}}]},
        {"checks": [{"name": "nccl", "template": {"spec": {"template": {"spec": {"containers": []}}}}}]},
        "a check's template needs spec",
    ),
    _setting(
        "a check's name in upper case",
        "verification",
        {"checks": [{"name": "NCCL", "template": {"spec": {}}}]},
        {"checks": [{"name": "nccl", "template": {"spec": {}}}]},
        "is not an object's name",
    ),
)
