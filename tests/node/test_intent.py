"""What the agent does about an intent: pure decisions, one sentence each."""

from __future__ import annotations

import json

import pytest

from provisioner.api.machinery.codec import from_json, to_json
from provisioner.api.nodes.facts import BootIntent, BootReport
from provisioner.node.intent import (
    RETRY_SECONDS,
    Intent,
    IntentError,
    StagedImage,
    next_step,
    parse_intent,
    render_report,
)

BOOT, OTHER_BOOT = "boot-1", "boot-2"
DIGEST, OTHER_DIGEST = "sha256:" + "0a" * 32, "sha256:" + "1b" * 32
NOW = 1000.0


def intent(action: str = "Stage", *, name: str = "i1", digest: str = DIGEST, arguments: tuple[str, ...] = ()) -> Intent:
    written = BootIntent(
        id=name,
        action=action,  # type: ignore[arg-type]
        boot_id_before=BOOT,
        image="gpu-2",
        image_digest=digest,
        kernel_arguments=arguments,
    )
    return parse_intent(json.dumps(to_json(written)))


def held(state: str, *, name: str = "i1", digest: str = DIGEST, since: float = NOW) -> StagedImage:
    return StagedImage(image_digest=digest, arguments=(), state=state, intent_id=name, message="", since=since)


def step(
    wanted: Intent | None, has: StagedImage | None = None, *, boot: str = BOOT, finished: str = "", now: float = NOW
) -> str:
    return next_step(wanted, boot, has, finished, now)


def test_an_intent_is_read_as_the_executor_writes_it() -> None:
    read = intent("Kexec", arguments=("panic=30", "quiet"))
    assert (read.id, read.action, read.boot_id_before, read.image) == ("i1", "Kexec", BOOT, "gpu-2")
    assert (read.image_digest, read.arguments) == (DIGEST, ("panic=30", "quiet"))


def test_a_report_is_written_as_the_executor_reads_it() -> None:
    text = render_report(
        intent_id="i1",
        state="Staged",
        image_digest=DIGEST,
        boot_id=BOOT,
        message="x" * 5000,
        time="2026-01-01T00:00:00Z",
    )
    report = from_json(BootReport, json.loads(text))
    assert (report.id, report.state, report.boot_id, len(report.message)) == ("i1", "Staged", BOOT, 1024)
    assert to_json(report) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "said", "answered"),
    [
        ("", "not a boot intent", ""),
        ("[]", "not a boot intent", ""),
        ('{"id": "i1"}', "'action'", "i1"),
        ("[" * 100000, "longer than", ""),
        ('{"id":"i1","action":"Erase","bootIDBefore":"b","image":"x","imageDigest":"y"}', "action 'Erase'", "i1"),
        ('{"id":"i1","action":"Stage","bootIDBefore":"b","image":"x","imageDigest":"y"}', "digest is 'y'", "i1"),
        (
            '{"id":"i1","action":"Stage","bootIDBefore":"b","image":"x","imageDigest":"y","kernelArguments":3}',
            "int",
            "i1",
        ),
    ],
)
def test_what_is_no_intent_is_said_and_answered_if_it_has_an_id(text: str, said: str, answered: str) -> None:
    with pytest.raises(IntentError) as caught:
        parse_intent(text)
    assert said in str(caught.value)
    assert caught.value.id == answered


def test_an_image_is_fetched_once_and_dropped_when_nobody_wants_it() -> None:
    assert step(None) == "Nothing"
    assert step(intent()) == "Fetch"
    assert step(intent(), held("Staging")) == "Nothing"
    assert step(intent(), held("Staged")) == "Nothing"
    assert step(None, held("Staged")) == "Drop"
    assert step(intent(digest=OTHER_DIGEST), held("Staging")) == "Fetch"
    assert step(intent(arguments=("quiet",)), held("Staged")) == "Fetch", "the command line is loaded with the kernel"


def test_a_kexec_happens_once_staged_and_only_once() -> None:
    assert step(intent("Kexec")) == "Fetch"
    assert step(intent("Kexec", name="i2"), held("Staging")) == "Nothing"
    assert step(intent("Kexec", name="i2"), held("Staged")) == "ActKexec"
    assert step(intent("Kexec", name="i2"), held("Staged"), finished="i2") == "Nothing"


def test_an_intent_of_an_earlier_boot_is_never_obeyed() -> None:
    for action in ("Stage", "Kexec", "Reboot"):
        assert step(intent(action), boot=OTHER_BOOT) == "Nothing"
        assert step(intent(action), held("Staged"), boot=OTHER_BOOT) == "Drop"


def test_a_reboot_needs_nothing_staged() -> None:
    assert step(intent("Reboot")) == "ActReboot"
    assert step(intent("Reboot"), finished="i1") == "Nothing"


def test_a_staging_that_failed_is_tried_again_after_a_while_or_for_a_new_intent() -> None:
    assert step(intent(), held("Failed")) == "Nothing"
    assert step(intent(), held("Failed"), now=NOW + RETRY_SECONDS) == "Fetch"
    assert step(intent("Kexec", name="i2"), held("Failed")) == "Fetch"


@pytest.mark.parametrize("word", ["a\0b", "\ud800", "a b", "a\nprovisioner.url=http://example.com", "", "\x1b[2J"])
def test_a_kernel_argument_that_no_process_could_be_given_is_refused_and_not_died_of(word: str) -> None:
    with pytest.raises(IntentError, match="is not one plain word") as refused:
        intent("Kexec", arguments=("quiet", word))
    assert refused.value.id == "i1"


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "i1\n", " i1", ""])
def test_an_id_that_would_not_come_back_from_a_file_as_it_is_is_refused(name: str) -> None:
    """Whoever forgets that it has obeyed would obey twice in one boot."""
    with pytest.raises(IntentError, match="is not one plain word"):
        intent("Kexec", name=name)
