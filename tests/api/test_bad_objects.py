"""What the API server says to bad objects, and that it takes their good twins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from provisioner.api import KINDS, NetworkPool
from provisioner.api.machinery.errors import Refused
from provisioner.api.network.network_pool import THE_POOL
from provisioner.cluster.resources import of
from tests.api.bad_objects import ROWS
from tests.api.bad_row import Row

if TYPE_CHECKING:
    from provisioner.cluster.client import Cluster

MANAGER = "tests"
TYPES = {kind.KIND.kind: of(kind) for kind in KINDS}


def _named(body: dict[str, Any], unique: str) -> dict[str, Any]:
    metadata = body["metadata"]
    return body | {"metadata": metadata | {"name": metadata["name"].replace("{}", unique)}}


def _offer(cluster: Cluster, body: dict[str, Any], *, new: bool) -> None:
    if new:
        cluster.create(TYPES[body["kind"]], body)
    else:
        cluster.apply(body, manager=MANAGER, dry_run=True)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.mistake)
def test_a_bad_object_is_refused_in_helpful_words_and_its_good_twin_is_not(
    row: Row, cluster: Cluster, unique: str
) -> None:
    if row.good["kind"] == "NetworkPool":
        cluster.delete(of(NetworkPool), THE_POOL)  # another test's
    if row.before is not None:
        cluster.apply(_named(row.before, unique), manager=MANAGER)

    with pytest.raises(Refused) as refusal:
        _offer(cluster, _named(row.bad, unique), new=row.before is None)
    assert [words for words in row.words if words not in str(refusal.value)] == [], str(refusal.value)
    assert [words for words in row.unsaid if words in str(refusal.value)] == [], str(refusal.value)

    accepted = cluster.apply(_named(row.good, unique), manager=MANAGER, dry_run=True)
    assert accepted["kind"] == row.good["kind"]


def test_each_kind_has_bad_objects() -> None:
    assert {row.bad["kind"] for row in ROWS} == {kind.KIND.kind for kind in KINDS}
