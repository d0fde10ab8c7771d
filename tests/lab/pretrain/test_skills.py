"""Marks as rows: every interval holds its value."""

import pytest

from spnb.lab.pretrain import skills


def numbers(row, *keys):
    return pytest.approx([row[key] for key in keys or ("value", "low", "high")], abs=1e-4)


def whole(grades, well_formed=True):
    """The row of all, from grades alone."""
    (row,) = skills.part_rows("x", [({"all": grade}, well_formed) for grade in grades])
    return row


def test_right_and_wrong_have_wilsons_interval_and_shares_a_t_interval():
    marks = [({"all": grade}, grade > 0) for grade in [1.0] * 8 + [0.0] * 2]
    (row,) = skills.part_rows("x", marks)
    expected = [0.8, 0.4902, 0.9433, 10, 0.8]
    assert expected == numbers(row, "value", "low", "high", "n", "parsed")
    # sd 0.2582, t(15) 2.1314: half 2.1314 * 0.2582 / 4
    assert numbers(whole([0.25, 0.75] * 8)) == [0.5, 0.3624, 0.6376]
    assert numbers(whole([0.5, 1.0])) == [0.75, 0.0, 1.0]


def test_parts_of_a_kind_stand_together():
    marks = [
        ({"all": 1.0, "gold: no": 1.0, "1 hop": 1.0}, True),
        ({"all": 0.0, "answer: town": 0.0, "2 hops": 0.0, "gold: yes": 0.0}, True),
    ]
    order = ["all", "1 hop", "2 hops", "answer: town", "gold: no", "gold: yes"]
    assert [row["part"] for row in skills.part_rows("x", marks)] == order
