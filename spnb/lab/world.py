"""The names that every world uses: one word each, of people and towns, in two disjoint pools.

`train` names are used in training questions, `heldout` names in evaluation; the embedded policies
know both as words. Their parts are in `world.yaml`.
"""

import itertools
import random
from functools import cache
from typing import Literal

from spnb.core.paths import packaged_yaml

Pool = Literal["train", "heldout"]
PARTS = packaged_yaml("lab/world.yaml")
SUFFIXES: dict[str, list[str]] = PARTS["suffixes"]
"""Endings of the names of a kind; its keys are the kinds."""
HELD_OUT = 3
"""One name of so many of each kind is kept for evaluation: 48 of 144 people."""


@cache
def names(kind: str, pool: Pool) -> tuple[str, ...]:
    """The names of a kind in a pool: two thirds for training, a third held out, disjoint.

    Raises:
        ValueError: no such kind or pool.
    """
    if kind not in SUFFIXES:
        raise ValueError(f"kind of name is {kind!r}; allowed: {', '.join(SUFFIXES)}")
    if pool not in ("train", "heldout"):
        raise ValueError(f"pool of names is {pool!r}; allowed: train, heldout")
    parts = itertools.product(PARTS["prefixes"], SUFFIXES[kind])
    every = [prefix + suffix for prefix, suffix in parts]
    random.Random(kind).shuffle(every)
    held_out = len(every) // HELD_OUT
    return tuple(every[:held_out] if pool == "heldout" else every[held_out:])


PEOPLE = frozenset(names("person", "train") + names("person", "heldout"))
