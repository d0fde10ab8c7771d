"""Rewards as functions of right answers: sums by hand, closed forms, what SPELL and SPICE print."""

import math

import numpy as np
import pandas as pd
import pytest

from spnb import reference
from spnb.core import rewards
from spnb.report import shapes, show
from spnb.report.exhibits import exhibit_info, read_index
from spnb.report.shapes import (
    REWARDS,
    advantages,
    chances,
    distribution,
    paid_more,
    pay,
    shares,
    signal,
    target,
    wrong_share,
)

INSIDE = [0.0, 0.1, 0.3, 0.5, 0.9, 1.0]


def test_the_chances_of_a_share_are_binomial():
    assert chances([0.5], 2).tolist() == [[0.25, 0.5, 0.25]]
    assert chances([0.25], 2)[0].tolist() == pytest.approx([9 / 16, 6 / 16, 1 / 16])
    assert chances([0, 1], 3).tolist() == [[1, 0, 0, 0], [0, 0, 0, 1]]
    assert chances(INSIDE, 16).sum(axis=1) == pytest.approx(np.ones(6))


def test_mean_and_spread_have_their_closed_forms():
    p = np.array(INSIDE)
    hard, solved, mixed = (
        pay(REWARDS[name], p, 8) for name in ("SSP", "Absolute Zero", "threshold")
    )
    assert hard["mean"].to_numpy() == pytest.approx(1 - p)
    assert hard["std"].to_numpy() == pytest.approx(np.sqrt(p * (1 - p) / 8), abs=1e-9)
    assert solved["mean"].to_numpy() == pytest.approx((1 - p) - (1 - p) ** 8)
    assert mixed["mean"].to_numpy() == pytest.approx(1 - p**8 - (1 - p) ** 8)
    # Of two answers a Gaussian pays 1 for one right: mean 2 p (1 - p).
    two = pay(REWARDS["SPELL"], [0.25], 2).iloc[0]
    assert two.tolist() == pytest.approx([3 / 8, math.sqrt(3 / 8 - 9 / 64)])


def test_the_distribution_puts_equal_pay_together():
    """Of eight answers at p = 1/2: 2, 16, 56, 112 and 70 of 256 ways."""
    chance = distribution(REWARDS["SPELL"], 0.5, 8)
    assert chance.to_numpy() == pytest.approx(np.array([2, 16, 56, 112, 70]) / 256)
    assert chance.index.to_numpy() == pytest.approx([0, 0.0796, 0.3247, 0.7548, 1], abs=1e-4)


@pytest.mark.parametrize("answers", [4, 8, 16])
def test_what_is_paid_most(answers):
    """Absolute Zero: the mean (1 - p) - (1 - p)^G is highest at 1 - G^(-1 / (G - 1))."""
    best = 1 - answers ** (-1 / (answers - 1))
    assert target(REWARDS["Absolute Zero"], answers)[0] == pytest.approx(best, abs=1e-3)
    assert target(REWARDS["SSP"], answers) == (0, 0, 0.5)
    low, high = target(REWARDS["SPELL"], answers)[1:]
    assert target(REWARDS["SPELL"], answers)[0] == 0.5 and low + high == pytest.approx(1)
    edge = pay(REWARDS["SPELL"], [low - 1e-3, low, 0.5], answers)["mean"].to_numpy()
    assert edge[0] < edge[2] / 2 <= edge[1]


def test_two_or_three_answers_cannot_tell_the_middle_rewards_apart():
    names = ["SPELL", "SPELL, sigma 1/12", "R-Zero, SCOPE", "threshold"]
    for answers in (2, 3):
        paid = np.array([REWARDS[name](shares(answers)) for name in names])
        assert (paid / paid[:, [1]]) == pytest.approx(paid[[3] * 4])
    four = np.array([REWARDS[name](shares(4)) for name in names])
    assert len({*(four[:, 1] / four[:, 2]).round(6)}) == 4


@pytest.mark.parametrize("answers", [4, 8, 16])
def test_the_signal_of_one_minus_p(answers):
    """1/12 between questions, p (1 - p) / G within: 1/6 of 1/G on average."""
    assert signal(REWARDS["SSP"], answers) == pytest.approx(answers / (answers + 2), abs=2e-3)


def test_advantages_of_a_batch():
    sure = advantages(REWARDS["SSP"], [0.0, 1.0], 8, divide=False)
    assert sure.tolist() == [0.5, -0.5]
    assert advantages(REWARDS["SSP"], [0.0, 1.0], 8, divide=True).tolist() == [1, -1]
    # p = 0 and 1/2 of two answers: means 1 and 1/2, variances 0 and 1/8; 1/16 between them.
    noisy = advantages(REWARDS["SSP"], [0.0, 0.5], 2, divide=True)
    assert noisy.tolist() == pytest.approx([0.25 / math.sqrt(1 / 8), -0.25 / math.sqrt(1 / 8)])
    half = lambda p: np.minimum(p, 1 - p)  # noqa: E731  the scale of R-Zero's released code
    scaled = [advantages(each, INSIDE, 8, divide=True) for each in (half, rewards.r_zero)]
    assert scaled[0].to_numpy() == pytest.approx(scaled[1].to_numpy())


def test_which_of_two_questions_is_paid_more():
    """Two answers, p = 1/2 against 1: paid more where one of two is right, a tie where none is."""
    assert paid_more(REWARDS["R-Zero, SCOPE"], 0.5, 1.0, 2) == 0.5 + 0.5 * 0.5
    assert paid_more(REWARDS["SSP"], 0.0, 0.5, 2) == 0.75 + 0.5 * 0.25
    assert paid_more(REWARDS["SSP"], 0.5, 0.0, 2) == 0.5 * 0.25
    humps = ["SPELL", "SPELL, sigma 1/12", "SPELL, sigma 1/4", "SPICE", "R-Zero, SCOPE"]
    ahead = [paid_more(REWARDS[name], 0.4, 0.8, 8) for name in humps]
    assert ahead == pytest.approx(ahead[:1] * 5), "all rank by the distance from one half"


def test_the_share_of_pay_for_wrong_references():
    assert wrong_share(REWARDS["SSP"], 0.0, 8) == pytest.approx(0.2 / (0.2 + 0.8 / 2))
    assert wrong_share(REWARDS["SSP"], 0.0, 8, share=0.5) == pytest.approx(2 / 3)
    assert wrong_share(REWARDS["Absolute Zero"], 0.0, 8) == 0


def test_the_table_of_pay_has_the_papers_numbers():
    table = shapes.paid_table().set_index("of 16")
    eighths = table[table["of 8"] != ""].set_index("of 8")
    assert eighths["SPELL"].tolist()[:5] == [0, 0.0796, 0.3247, 0.7548, 1]
    assert eighths["SPELL, sigma 1/12"].tolist()[1:4] == [0, 0.0111, 0.3247]
    assert eighths["SPICE"].round(3).tolist()[:5] == [0.044, 0.372, 0.823, 0.988, 1]
    assert eighths["Absolute Zero"].tolist()[:2] == [0, 0.875] and len(eighths) == 9
    assert table.loc[[0, 4, 8, 12, 16], "of 4"].tolist() == list("01234")
    assert set(table.loc[[1, 2, 3], "of 4"]) == {""}


def test_figure_7_has_the_numbers_that_spice_prints():
    figure, data = shapes.MAKERS["spice/figure-7"]()
    paid = data.pivot(index="p", columns="reward", values="paid")
    printed = reference.table("spice", "spice/figure-7")
    known = printed.loc["Threshold"]
    assert len(paid) - 1 == known["Rollout size"]
    assert paid["threshold"].tolist() == [known["Reward at 0/8"]] + 7 * [
        known["Reward otherwise"]
    ] + [known["Reward at 8/8"]]
    column = "Pass rate with the highest reward"
    assert paid["SPICE"].idxmax() == printed.loc["Variance (SPICE)", column]
    assert paid["R-Zero, SCOPE"].idxmax() == printed.loc["R-Zero", column]
    best, tau = printed.loc["Variance (SPICE)", ["Optimal variance", "tau"]]
    formula = [math.exp(-((p * (1 - p) - best) ** 2) / (2 * tau)) for p in paid.index]
    assert paid["SPICE"].tolist() == pytest.approx(formula)
    differ = paid["Absolute Zero"] != paid["Absolute Zero, as drawn"]
    assert differ[differ].index.tolist() == [0], "the drawn line is 1 - p everywhere"
    assert len(figure.axes) == 1


@pytest.mark.slow
def test_formulas_become_exhibits_without_a_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(show, "default_folder", lambda: tmp_path)
    for name in shapes.MAKERS:
        files = show.regenerate(name, "smoke")
        assert files and all(file.is_file() for file in files)
        assert exhibit_info(name).source == "formula"
    said = capsys.readouterr().out
    assert said.startswith("spice/figure-7 is made from formulas: no run is needed.\n")
    records = {record["id"]: record for record in read_index(tmp_path)}
    assert set(records) == {*shapes.MAKERS} and records["shapes/paid"]["runs"] == {}
    assert "0.044 at both ends" in records["spice/figure-7"]["protocol"]
    data = pd.read_csv(tmp_path / "shapes/noise.csv")
    assert set(data["answers"]) == {4, 8, 16} and set(data["reward"]) == {*REWARDS}
    targets = pd.read_csv(tmp_path / "shapes/targets.csv").set_index("reward")
    assert targets.loc["Absolute Zero", "best p, 8 answers"] == 0.26
    assert targets.loc["SSP", "signal, 8"] == 0.8
