"""A challenger's text that ends with the token limit is no task, whatever stands in it."""

import dataclasses

import pytest
from spice_world import World, method, rows_of

from spnb.core.episodes import run

R_ZERO = {"algorithm": "r_zero", "pay": "r_zero", "corpus": [], "task_types": ["string"]}


class Cut(World):
    """Writes a whole task each time; every second of its texts is said to end with the limit."""

    def generate(self, requests):
        done = []
        for request in requests:
            before = len(self.asked)
            (one,) = super().generate([request])
            cut = len(self.asked) > before and before % 2
            done.append(dataclasses.replace(one, finish="length") if cut else one)
        return done


@pytest.mark.parametrize("values", [{}, R_ZERO], ids=["spice", "r_zero"])
def test_a_task_that_was_cut_is_not_valid(values):
    made, world = method(**values, invalid_reward=-0.5), Cut(lambda index: 2)
    samples = run(made.rollout(0), {"policy": world})
    asked = rows_of(samples, "challenger")
    assert len(asked) == len(world.asked) == 12
    assert [one.invalid for one in asked] == [False, True] * 6
    assert [one.reward for one in asked if one.invalid] == [-0.5] * 6
    assert not any("question" in one.info for one in asked if one.invalid)
    assert len(world.answered) == 6 * made.params.answers, "only whole tasks are answered"
    assert made.metrics["method/valid"] == 0.5
