"""What `provisioner image revoke` writes, and what it leaves as it was."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from provisioner.api.machinery.errors import Conflict, Refused
from provisioner.api.machinery.values import Sha256Digest
from provisioner.image.trust.revoke import revoke_digest

DIGEST, OTHER = Sha256Digest("sha256:" + "ab" * 32), Sha256Digest("sha256:" + "cd" * 32)


class FakeConfigMap:
    """One ConfigMap with a version. `before_write` is what somebody else does before the next writes."""

    def __init__(self, data: dict[str, str] | None = None) -> None:
        self.body = self._body(data) if data is not None else None
        self.before_write: list[dict[str, str]] = []

    def _body(self, data: dict[str, str], version: int = 1) -> dict[str, Any]:
        return {"metadata": {"name": "provisioner-image-trust", "resourceVersion": str(version)}, "data": dict(data)}

    def find(self, type: object, name: str, *, namespace: str | None = None) -> Any:  # noqa: A002
        assert (name, namespace) == ("provisioner-image-trust", "provisioner-system")
        return deepcopy(self.body)

    def create(self, type: object, body: Any, *, namespace: str | None = None) -> None:  # noqa: A002
        self._write(body, None)

    def replace(self, type: object, body: Any) -> None:  # noqa: A002
        self._write(body, body["metadata"]["resourceVersion"])

    def _write(self, body: Any, version: str | None) -> None:
        if self.before_write:
            self.body = self._body(
                self.before_write.pop(0), 1 + int((self.body or self._body({}, 0))["metadata"]["resourceVersion"])
            )
        if version != (self.body or {}).get("metadata", {}).get("resourceVersion"):
            raise Conflict("ConfigMap was written")
        self.body = self._body(body["data"], int(version or 0) + 1)

    @property
    def data(self) -> dict[str, str]:
        assert self.body is not None
        found: dict[str, str] = self.body["data"]
        return found


def test_the_first_revocation_makes_the_document() -> None:
    cluster = FakeConfigMap()
    assert revoke_digest(cluster, DIGEST, "a hole")
    assert cluster.data == {"revoked": f"{DIGEST} a hole\n"}
    assert not revoke_digest(cluster, DIGEST, "another reason")


def test_keys_and_other_lines_stay() -> None:
    cluster = FakeConfigMap({"revoked": f"{OTHER} old"})
    assert revoke_digest(cluster, DIGEST, "a hole")
    assert cluster.data == {"revoked": f"{OTHER} old\n{DIGEST} a hole\n"}


@pytest.mark.parametrize("begun", [None, {}])
def test_what_somebody_else_wrote_meanwhile_is_not_lost(begun: dict[str, str] | None) -> None:
    cluster = FakeConfigMap(begun)
    cluster.before_write = [{"revoked": f"{OTHER} theirs\n"}]
    assert revoke_digest(cluster, DIGEST, "ours")
    assert cluster.data["revoked"].splitlines() == [f"{OTHER} theirs", f"{DIGEST} ours"]


def test_who_meets_others_without_end_is_told() -> None:
    cluster = FakeConfigMap({})
    cluster.before_write = [{}] * 9
    with pytest.raises(Conflict):
        revoke_digest(cluster, DIGEST, "ours")


def test_a_document_that_cannot_be_read_is_not_written_to() -> None:
    cluster = FakeConfigMap({"revoked": "nonsense\n"})
    with pytest.raises(Refused, match="is not a digest"):
        revoke_digest(cluster, DIGEST, "a hole")
    assert cluster.data == {"revoked": "nonsense\n"}
