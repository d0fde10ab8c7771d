"""Names: disjoint pools, the kind of a name."""

import pytest

from spnb.lab.world import PEOPLE, SUFFIXES, names


def test_names_of_kinds_and_pools_are_disjoint():
    pools = ("train", "heldout")
    every = [name for kind in SUFFIXES for pool in pools for name in names(kind, pool)]
    assert len(every) == len(set(every)) == 2 * (96 + 48) + 256 + 128
    assert all(name in PEOPLE for pool in pools for name in names("person", pool))
    assert not PEOPLE & {*names("town", "train"), *names("town", "heldout"), "Paris"}


@pytest.mark.parametrize("call", [lambda: names("planet", "train"), lambda: names("town", "test")])
def test_an_unknown_type_or_pool_is_named(call):
    with pytest.raises(ValueError, match="'(planet|test)'; allowed: "):
        call()
