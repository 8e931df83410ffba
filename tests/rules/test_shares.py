"""How tenants share what there is a bounded number of."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from provisioner.rules.shares import fitting, may_take

SIZES = st.dictionaries(
    st.integers(0, 99), st.tuples(st.sampled_from("abc"), st.integers(0, 1), st.integers(1, 60)), max_size=12
)


@given(SIZES, st.integers(0, 120))
def test_each_tenant_has_its_share_whatever_the_others_ask_for(
    sizes: dict[int, tuple[str, int, int]], most: int
) -> None:
    found = fitting(sizes, most)
    assert sum(sizes[each][2] for each in found) <= most
    tenants = {tenant for tenant, _, _ in sizes.values()}
    for tenant in tenants:
        mine = {key: size for key, (whose, _, size) in sizes.items() if whose == tenant}
        if sum(mine.values()) <= most // len(tenants):
            assert mine.keys() <= found


def test_what_one_tenant_leaves_is_the_others() -> None:
    sizes = {1: ("a", 0, 10), 2: ("b", 0, 50), 3: ("b", 0, 40), 4: ("c", 0, 200)}
    assert fitting(sizes, 100) == {1, 2, 3}
    assert fitting(sizes, 99) == {1, 3}, "each of the two has 44, and nothing else fits"


def test_of_one_tenant_what_has_a_lower_rank_goes_first() -> None:
    assert fitting({1: ("a", 1, 10), 2: ("a", 0, 50)}, 55) == {2}


def test_one_tenant_takes_half_and_one_that_has_none_always_gets_one() -> None:
    free, held = 100, {"greedy": 0, "greedier": 0}
    for tenant in held:
        while may_take(held[tenant], free):
            held[tenant], free = held[tenant] + 1, free - 1
    assert held == {"greedy": 51, "greedier": 25}
    assert free == 24
    assert may_take(0, free)
