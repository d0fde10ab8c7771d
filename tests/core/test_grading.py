"""Boxed answers: what counts as the content of the last box."""

import pytest

from spnb.core.grading import extract_boxed


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"so \boxed{bet}", "bet"),
        (r"\boxed{ bet }.", "bet"),
        (r"\boxed {4}", "4"),
        (r"first \boxed{check}, no: \boxed{bet}", "bet"),
        (r"\boxed{\text{bet}}", "bet"),
        (r"\boxed{\texttt{ bet }}", "bet"),
        (r"\boxed{\mathrm{Bet}}", "Bet"),
        (r"\boxed{\text{a} and \text{b}}", r"\text{a} and \text{b}"),
        (r"\boxed{\text{\text{a}}}", r"\text{a}"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{x\right.}", r"\left\{x\right."),
        (r"\boxed{[Offer: 3 Wood -> 2 Ore]}", "[Offer: 3 Wood -> 2 Ore]"),
        ("\\boxed{two\nlines}", "two\nlines"),
        (r"\boxed{}", ""),
        (r"\boxed{\boxed{4}}", "4"),
        ("bet", None),
        ("", None),
        (r"\boxed bet", None),
        (r"\boxed{bet", None),
        (r"\boxed{check} but then \boxed{be", None),
        (r"\boxed{\text{bet}", None),
    ],
)
def test_extract_boxed(text, content):
    assert extract_boxed(text) == content
