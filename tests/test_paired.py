"""Paired differences from the values by seed."""

import math

import pytest

from spnb.core.params import ParamError
from tools import paired as module
from tools.paired import paired

ROWS = """measure,variant,seed,start,end
right,a,1,10,20
right,a,2,10,30
right,a,3,10,35
right,b,1,5,18
right,b,2,5,22
right,b,4,5,90
other,a,1,0,1
"""


@pytest.fixture(autouse=True)
def values(tmp_path, monkeypatch):
    (tmp_path / "figures/spell").mkdir(parents=True)
    (tmp_path / "figures/spell/seeds.csv").write_text(ROWS)
    monkeypatch.setattr(module, "ROOT", tmp_path)


def test_a_difference_by_hand():
    """2 and 8 in the seeds that both have; t of one degree of freedom is 12.706."""
    half = 12.7062 * math.sqrt(18) / math.sqrt(2)
    ends = f"[{5 - half:.1f}, {5 + half:.1f}]"
    assert paired("spell", "right", "a", "b") == (
        f"spell, right: a minus b 5.0 {ends}, above 0 in 2 of 2 seeds"
    )
    assert "b minus a -5.0 [" in paired("spell", "right", "b", "a")


def test_a_rise_is_over_the_arms_own_start():
    said = paired("spell", "right", "a", "start")
    assert said.startswith("spell, right: a minus start 18.3 [") and said.endswith("3 of 3 seeds")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("spel", "right", "a", "b"), "paper is 'spel', .*did you mean 'spell'"),
        (("spell", "rigth", "a", "b"), "measure is 'rigth', .*did you mean 'right'"),
        (("spell", "right", "c", "b"), "arm is 'c', which is unknown; allowed: a, b"),
        (("spell", "right", "a", "c"), "other arm is 'c', which is unknown; allowed: a, b, start"),
    ],
)
def test_a_name_that_is_not_there_is_named(asked, message):
    with pytest.raises(ParamError, match=message):
        paired(*asked)
