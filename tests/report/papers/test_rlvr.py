"""What the study of RLVR shows: kinds of gain, read from the graded answers."""

import pandas as pd
import pytest

from spnb.report.frame import KEYS, gather
from spnb.report.papers import rlvr as studies
from spnb.train.runs import open_run


def answers(cells):
    """A table from {did: (answers, right ones)}."""
    rows = [(did, place < good) for did, (count, good) in cells.items() for place in range(count)]
    return pd.DataFrame(rows, columns=["did", "right"])


HALF = {True: (50, 45), False: (50, 15)}  # 90 % right when thinking, 30 % when not
MORE = {True: (90, 81), False: (10, 3)}  # the same, but thinking in 90 % of answers
BETTER = {True: (50, 50), False: (50, 25)}  # as often as before, but better


def test_a_gain_is_split_into_selected_and_within():
    assert studies.split(answers(HALF), answers(MORE)) == pytest.approx((0.24, 0.24, 0))
    assert studies.split(answers(HALF), answers(BETTER)) == pytest.approx((0.15, 0, 0.15))
    never = answers({False: (10, 3)})
    assert studies.split(never, answers({True: (10, 9)})) == pytest.approx((0.6, 0.6, 0))


@pytest.mark.parametrize(
    ("end", "greedy", "kind", "gained"),
    [
        (MORE, 0.9, "selecting a behaviour", ("24.0", "24.0")),
        (BETTER, 0.9, "improving a skill", ("15.0", "0.0")),
        (BETTER, 0.6, "improving a skill", ("15.0", "0.0")),  # 10 of 15 points
        (BETTER, 0.52, "sharpening", ("15.0", "0.0")),
        (HALF, 0.9, "no gain", ("0.0", "0.0")),
    ],
)
def test_the_kind_of_a_gain_is_read_from_the_graded_answers(tmp_path, end, greedy, kind, gained):
    run = open_run(tmp_path, {"paper": "rlvr", "scale": "cpu", "variant": "think", "seed": 0})
    for step, cells, value in ((0, HALF, 0.5), (9, end, greedy)):
        for place, line in enumerate(answers(cells).itertuples()):
            record = dict.fromkeys(KEYS, "") | {"suite": "held-out", "decoding": "sampled"}
            record |= {"item": str(place), "sample": 0, "kind": "exact", "thinks": line.did}
            run.append("items", {"step": step, **record, "score": float(line.right)})
        run.append("items", {"step": step, **record, "decoding": "greedy", "score": 0.0})
        row = dict.fromkeys(KEYS, "") | {"suite": "held-out", "decoding": "greedy", "step": step}
        numbers = {"metric": "accuracy", "value": value, "low": 0.0, "high": 1.0, "n": 8}
        run.append("evals", {**row, **numbers})
    table = studies.kinds_of_gain(gather([run]))["think"]
    assert (table["kind"], table["behaviour"]) == (kind, "thinks")
    assert table["rate, start"] == "50.0 [40.4, 59.6]"  # over 100 answers
    assert table[["gain", "selected"]].tolist() == [f"{points} (n = 1)" for points in gained]
    assert table["right if done, start"].startswith("90.0 [")
    assert table["right if not, start"].startswith("30.0 [")
    assert table["rate, end"].startswith(f"{end[True][0]}.0 [")


def test_gains_stand_beside_those_of_the_control(tmp_path):
    """From 20 % to 70 and 60 %, the control to 10 and 40 %: more by 60 and 20 points."""
    runs = []
    for variant, ends in {"think": (0.7, 0.6), "think-random": (0.1, 0.4)}.items():
        for seed, end in enumerate(ends):
            identity = {"paper": "rlvr", "scale": "cpu", "variant": variant, "seed": seed}
            run = open_run(tmp_path, identity)
            for step, value in ((0, 0.2), (9, end)):
                row = dict.fromkeys(KEYS, "") | {"suite": "held-out", "decoding": "greedy"}
                row |= {"step": step, "value": value, "low": 0.0, "high": 1.0, "n": 8 + step}
                names = ("accuracy", "thinks", "searches")
                run.append("evals", *({**row, "metric": name} for name in names))
            runs.append(run)
    table = studies.gains(None, gather(runs)).item.set_index("measure (%)")
    assert list(table.index) == ["right, held-out, greedy", "thinks, held-out, greedy"]
    assert table.loc["right, held-out, greedy"].to_dict() == {
        "task": "think",
        "start": "20.0 (n = 1)",
        "end": "65.0 [60.0, 70.0]",
        "gain": "45.0 [-18.5, 100.0]",  # 45 +- 12.706 x 5
        "gain of control": "5.0 [-100.0, 100.0]",
        "more than control": "40.0 [-100.0, 100.0]",
        "seeds": 2,
        "items": 17,
    }
