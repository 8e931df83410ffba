"""The Job of a check: what the template may say, and what its ending means."""

from __future__ import annotations

import json
from typing import Any

import pytest

from provisioner.health.jobs.manifest import job_name, render_job
from provisioner.health.jobs.outcome import JobState, is_finished, read_job
from tests.health.objects import BOOT, OTHER_BOOT, job_check

COMPLETE = {"type": "Complete", "status": "True"}
BACKOFF = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "Job has reached it"}
DEADLINE = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "Job was active too long"}


def job(*conditions: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": "j", "uid": "u"}, "status": {"conditions": list(conditions)}}


def pod(message: str | None = None, code: int = 0, **status: Any) -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "message": message}}
    containers = [{"name": "check", "state": state}]
    return {"metadata": {"name": "p"}, "status": {"phase": "Failed", "containerStatuses": containers, **status}}


def waiting(reason: str, message: str) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"metadata": {"name": "p"}, "status": {"phase": "Pending", "containerStatuses": [{"state": state}]}}


def says(result: str | None, message: str = "12 GB/s", reason: str | None = "SlowCopy") -> str:
    return json.dumps({"result": result, "reason": reason, "message": message})


@pytest.mark.parametrize(
    ("ending", "pods", "expected"),
    [
        (COMPLETE, [pod()], JobState(phase="Passed", reason="Completed", message="completed")),
        (COMPLETE, [pod("all well\n")], JobState(phase="Passed", reason="Completed", message="all well")),
        (COMPLETE, [], JobState(phase="Passed", reason="Completed", message="completed")),
        (COMPLETE, [pod(says("Failed"))], JobState(phase="Failed", reason="SlowCopy", message="12 GB/s")),
        (BACKOFF, [pod(says("Passed"), 1)], JobState(phase="Passed", reason="SlowCopy", message="12 GB/s")),
        (BACKOFF, [pod(says("Failed", reason="two words"), 1)],
         JobState(phase="Failed", reason="CheckFailed", message="12 GB/s")),
        (BACKOFF, [pod(says("Perhaps"), 1)],
         JobState(phase="Failed", reason="CheckFailed", message=says("Perhaps"))),
        (BACKOFF, [pod("plain words", 1)], JobState(phase="Failed", reason="CheckFailed", message="plain words")),
        (BACKOFF, [pod(None, 3)],
         JobState(phase="Failed", reason="CheckFailed", message="container check ended with exit code 3 (Error)")),
        (BACKOFF, [], JobState(phase="Failed", reason="CheckFailed", message="Job has reached it")),
        (BACKOFF, [pod("[1]", 1)], JobState(phase="Failed", reason="CheckFailed", message="[1]")),
        (DEADLINE, [], JobState(phase="Failed", reason="TimedOut", message="")),
    ],
)  # fmt: skip
def test_a_result_in_the_termination_message_decides_and_else_the_ending(
    ending: dict[str, str], pods: list[dict[str, Any]], expected: JobState
) -> None:
    assert is_finished(job(ending))
    assert read_job(job(ending), pods) == expected


def test_one_container_that_says_failed_is_enough() -> None:
    both = pod(says("Passed"))
    both["status"]["initContainerStatuses"] = pod(says("Failed", "no driver"))["status"]["containerStatuses"]
    assert read_job(job(COMPLETE), [both]).phase == "Failed"


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        ([], "waits for the Job controller"),
        ([waiting("ImagePullBackOff", "no such image")], "pod p waits: ImagePullBackOff: no such image"),
        ([waiting("ContainerCreating", "")], "pod p is pending"),
        ([{"metadata": {"name": "p"}, "status": {"phase": "Running"}}], "pod p is running"),
        (
            [{"metadata": {"name": "p"}, "status": {"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "message": "1 node(s) had too little memory"}]}}],
            "pod p is not scheduled: 1 node(s) had too little memory",
        ),
    ],
)  # fmt: skip
def test_what_an_unfinished_job_waits_for_is_told(pods: list[dict[str, Any]], words: str) -> None:
    state = read_job(job({"type": "Complete", "status": "False"}), pods)
    assert state.phase == "Running"
    assert words in state.message


def test_what_a_pod_says_is_bounded_and_printable() -> None:
    state = read_job(job(BACKOFF), [pod("\x1b[31m" + "A" * 100_000, 1)])
    assert len(state.message) <= 480
    assert state.message.isprintable()


def test_the_template_is_pinned_to_its_node_and_runs_once_whatever_it_says() -> None:
    template = {
        "metadata": {"labels": {"team": "fabric", "provisioner.dev/server": "another"}, "name": "mine"},
        "spec": {
            "suspend": True, "parallelism": 5, "completions": 5, "backoffLimit": 9, "completionMode": "Indexed",
            "template": {
                "metadata": {"annotations": {"kept": "yes"}},
                "spec": {
                    "nodeName": "another", "nodeSelector": {"a": "b"}, "restartPolicy": "OnFailure",
                    "tolerations": [], "hostNetwork": True, "containers": [{"name": "c", "image": "i"}],
                    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}},
                },
            },
        },
    }  # fmt: skip
    before = json.dumps(template)
    body = render_job(job_check(template=template), "r01-u01", BOOT, 2)
    assert json.dumps(template) == before, "the pool's template is shared with a cache"
    assert body["metadata"]["labels"] == {
        "team": "fabric", "provisioner.dev/check": "gpu-burn", "provisioner.dev/server": "r01-u01"
    }  # fmt: skip
    assert body["metadata"]["annotations"] == {"provisioner.dev/boot-id": BOOT, "provisioner.dev/attempt": "2"}
    spec = body["spec"]
    assert {"suspend", "completionMode"}.isdisjoint(spec)
    assert (spec["parallelism"], spec["completions"], spec["backoffLimit"]) == (1, 1, 0)
    assert spec["activeDeadlineSeconds"] == 100
    pod_spec = spec["template"]["spec"]
    assert {"nodeName", "nodeSelector"}.isdisjoint(pod_spec)
    assert pod_spec["restartPolicy"] == "Never"
    assert pod_spec["tolerations"] == [{"operator": "Exists"}]
    assert pod_spec["hostNetwork"] is True
    (term,) = pod_spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["r01-u01"]}]}
    assert spec["template"]["metadata"]["annotations"] == {"kept": "yes"}
    assert spec["template"]["metadata"]["labels"]["provisioner.dev/check"] == "gpu-burn"


def test_a_jobs_name_is_that_of_its_round_and_of_no_other() -> None:
    name = job_name("gpu-burn", "r01-u01", BOOT, 1)
    assert name == job_name("gpu-burn", "r01-u01", BOOT, 1)
    others = {
        job_name("gpu-burn", "r01-u01", BOOT, 2),
        job_name("gpu-burn", "r01-u01", OTHER_BOOT, 1),
        job_name("gpu-burn", "r01-u02", BOOT, 1),
        job_name("gpu", "burn-r01-u01", BOOT, 1),
    }
    assert name not in others
    assert len(others) == 4
    assert len(job_name("c" * 40, "s" * 63, BOOT, 10)) <= 63


def test_a_template_that_is_no_template_is_left_to_the_api_server() -> None:
    body = render_job(job_check(template={"spec": []}), "r01-u01", BOOT, 1)
    assert "containers" not in body["spec"]["template"]["spec"]
