"""Claims: verdicts on frames small enough to compute by hand, and the files of claims."""

from types import SimpleNamespace

import pandas as pd
import pytest
import yaml
from report.test_frame import RIGHT, answered

from spnb.core.params import ParamError, variants, variants_at
from spnb.report import claims, frame
from spnb.report.claims import (
    CONTRADICTED,
    LEVELS,
    MET,
    NOT_COMPARABLE,
    NOT_DECIDED,
    NOT_MEASURED,
    NOT_MET,
    SUPPORTED,
    Claim,
    Claims,
    Measure,
    Part,
    claims_of,
    decide,
    load_claims,
    together,
    verdict_table,
    verdicts,
)
from spnb.report.exhibits import exhibit_info
from spnb.report.frame import Frames, gather

SCORE = Measure(suite="*", opponent="random", weights={"win": 100, "draw": 50})


def part(**changes):
    values = {"text": "a", "measure": SCORE, "of": "full", "against": "no-rae"}
    return Part(**values | {"direction": "greater"} | changes)


def ends(step=9, **wins):
    """The evaluation of each variant's seeds 0, 1, ... at a step with these wins, no draws."""
    rows = []
    for variant, values in wins.items():
        for seed, win in enumerate(values):
            for metric, value in (("win", win), ("draw", 0.0)):
                run = {"variant": variant.replace("_", "-"), "seed": seed, "step": step}
                rows.append(run | {"suite": "a", "opponent": "random", "metric": metric})
                rows[-1] |= {"value": value, "role": "", "decoding": "", "difficulty": ""}
    return pd.DataFrame(rows).reindex(columns=frame.RESULTS)


def file_of(*parts, **changes):
    """A file of one claim."""
    claim = Claim(id="c", text="the claim", source="s", parts=list(parts))
    texts = {"exhibit": "x", "caption": "c", "protocol": "p"}
    return Claims(claims=[claim], **texts | changes)


def only(*tables, **changes):
    """The one line of a claim with one part."""
    frames = Frames(results=pd.concat(tables)) if tables else Frames()
    return verdicts(file_of(part(**changes)), frames).iloc[0]


@pytest.mark.parametrize(
    ("changes", "low", "high", "verdict"),
    [
        ({}, 0.1, 2, SUPPORTED),
        ({}, 0, 2, NOT_DECIDED),
        ({}, -1, 2, NOT_DECIDED),
        ({}, -2, -0.1, CONTRADICTED),
        ({}, -2, 0, NOT_DECIDED),
        ({"direction": "less"}, -2, -0.1, SUPPORTED),
        ({"direction": "less"}, 0.1, 2, CONTRADICTED),
        ({"margin": 5}, -4, 4, "equal within 5"),
        ({"margin": 5}, 1, 4, SUPPORTED),  # small, but there
        ({"margin": 5}, 1, 6, SUPPORTED),
        ({"margin": 5, "direction": "less"}, -4, 4, "equal within 5"),
        ({"minimal_effect": 5}, 6, 9, SUPPORTED),
        ({"minimal_effect": 5}, 1, 9, NOT_DECIDED),
        ({"minimal_effect": 5}, 1, 4, CONTRADICTED),  # there, but smaller than claimed
        ({"minimal_effect": 5}, -3, -1, CONTRADICTED),
        ({"direction": "less", "minimal_effect": 5}, -9, -6, SUPPORTED),
        ({"direction": "near", "margin": 5}, -5, 5, SUPPORTED),
        ({"direction": "near", "margin": 5}, 1, 2, SUPPORTED),  # off 0, but by little
        ({"direction": "near", "margin": 5}, -6, 2, NOT_DECIDED),
        ({"direction": "near", "margin": 5}, 5.1, 9, CONTRADICTED),
        ({"direction": "near", "margin": 5}, -9, -5.1, CONTRADICTED),
        ({"direction": "near", "margin": 5}, 5, 9, NOT_DECIDED),
        ({"direction": "near", "margin": 5}, -9, -5, NOT_DECIDED),
        ({"direction": "reaches", "bar": 5}, 4, 6, MET),  # the mean, 5, decides
        ({"direction": "reaches", "bar": 5.1}, 4, 6, NOT_MET),
        ({"direction": "rises"}, 0.1, 2, MET),
        ({"direction": "rises"}, -0.1, 2, NOT_MET),
        ({"direction": "rises"}, 0, 2, NOT_MET),
        ({"direction": "no gain", "margin": 5}, -2, 5, MET),
        ({"direction": "no gain", "margin": 5}, 1, 3, MET),  # a gain, but small
        ({"direction": "no gain", "margin": 5}, -34.3, 25.1, NOT_DECIDED),  # too wide to say
        ({"direction": "no gain", "margin": 5}, 4, 9, NOT_DECIDED),
        ({"direction": "no gain", "margin": 5}, 5, 9, NOT_DECIDED),
        ({"direction": "no gain", "margin": 5}, 5.1, 9, NOT_MET),
        ({"direction": "compare"}, 0.1, 2, "higher"),
        ({"direction": "compare"}, -2, -0.1, "lower"),
        ({"direction": "compare"}, -2, 0.1, NOT_DECIDED),
        ({"direction": "compare"}, 0, 2, NOT_DECIDED),
        ({"direction": "compare"}, -2, 0, NOT_DECIDED),
        ({"direction": "compare", "margin": 2}, -2, 0.1, "equal within 2"),
        ({"direction": "compare", "margin": 2}, 0.1, 2, "equal within 2"),
        ({"direction": "compare", "margin": 2}, 0.1, 3, "higher"),
        ({"direction": "compare", "margin": 2}, -3, 0.1, NOT_DECIDED),
    ],
)
def test_decide(changes, low, high, verdict):
    assert decide(part(**changes), ((low + high) / 2, low, high, 3)) == verdict


@pytest.mark.parametrize("direction", ["near", "no gain"])
def test_an_absence_needs_a_margin(direction):
    with pytest.raises(ValueError, match=f"margin is 0 with direction {direction}; allowed: above"):
        part(direction=direction)


def test_together_all_parts_must_hold():
    assert together([SUPPORTED, SUPPORTED]) == SUPPORTED
    assert together([SUPPORTED, NOT_DECIDED]) == NOT_DECIDED
    assert together([NOT_DECIDED, NOT_MEASURED]) == NOT_MEASURED
    assert together([NOT_MEASURED, CONTRADICTED, SUPPORTED]) == CONTRADICTED
    assert together([SUPPORTED, "equal within 5", NOT_DECIDED]) == "not supported"
    assert together(["equal within 5", CONTRADICTED]) == CONTRADICTED
    assert together([NOT_MEASURED, "equal within 5"]) == "not supported"
    assert together([SUPPORTED, NOT_COMPARABLE]) == SUPPORTED
    assert together([NOT_COMPARABLE, NOT_COMPARABLE]) == NOT_COMPARABLE


def test_levels_are_taken_only_where_a_file_shows_them(monkeypatch):
    frames = Frames(results=ends(full=(0.60, 0.30), no_rae=(0.40, 0.08)))
    claims = file_of(part())
    whole, without = verdicts(claims, frames), verdicts(claims, frames, levels=False)
    assert "-" not in whole.loc[0, [*LEVELS]].tolist()
    assert without.loc[0, [*LEVELS]].tolist() == ["-"] * 3
    assert whole.drop(columns=[*LEVELS]).equals(without.drop(columns=[*LEVELS]))
    asked = []
    judge = lambda part, frames, digits, levels: asked.append(levels) or dict(LINE)  # noqa: E731
    monkeypatch.setattr("spnb.report.claims.judge", judge)
    for columns in ({"claim": "claim", "n": "n"}, {"claim": "claim", "at first": "start"}):
        verdict_table(file_of(part(), columns=columns), frames)
    assert asked == [False, True]


LINE = {"p (Holm)": 0.5, "n": 2, "verdict": SUPPORTED, "start": "-", "part": "p"}


def test_holm_is_taken_over_the_parts_of_a_claim_that_can_be_compared():
    table = ends(full=(0.60, 0.30), no_rae=(0.40, 0.08))
    parts = [part(), part(direction="less"), part(of="weak", not_comparable="no such policy here")]
    lines = verdicts(file_of(*parts), Frames(results=table))
    assert lines["p (Holm)"].tolist() == ["0.061", "0.061", "-", "-"]  # 0.0303 x 2
    assert lines["verdict"].tolist() == [SUPPORTED, CONTRADICTED, NOT_COMPARABLE, CONTRADICTED]
    assert lines["note"][2] == "no such policy here" and lines["n"].tolist() == [2, 2, 0, 2]
    assert verdicts(file_of(*parts[1:]), Frames())["n"].tolist() == [0, 0, 0]


def test_a_part_without_runs_says_why_and_one_with_runs_is_judged():
    """Where a claim's parts are judged one by one, too: there others without runs are left out."""
    why = "no such policy here"
    parts = [part(direction="compare"), part(of="weak", not_comparable=why), part(of="other")]
    table = ends(full=(0.60, 0.30), no_rae=(0.40, 0.08))
    shown = verdict_table(file_of(*parts), Frames(results=table))
    assert shown["verdict"].tolist() == ["higher", NOT_COMPARABLE]
    assert shown["note"].tolist() == ["", why]
    assert verdict_table(file_of(*parts), Frames()).empty, "nothing is measured"
    both = ends(full=(0.60, 0.30), no_rae=(0.40, 0.08), weak=(0.20, 0.02))
    shown = verdict_table(file_of(*parts), Frames(results=both))
    assert shown["verdict"].tolist() == ["higher", NOT_DECIDED] and shown["n"].tolist() == [2, 2]
    (judges,) = (one for one in load_claims("scope").claims if one.id == "judges")
    unrun = {one.of for one in judges.parts if one.not_comparable}
    assert unrun == {"grader-strong"}
    assert not unrun & {*variants_at("scope", "cpu")}


def test_variants_are_compared_in_pairs_of_a_seed():
    table = ends(full=(0.60, 0.30), no_rae=(0.40, 0.08))
    row = only(table)  # differences 20 and 22: mean 21, standard error 1, t(0.975, 1) = 12.706
    assert (row["claim"], row["part"], row["paper"]) == ("the claim", "a", "-")
    assert (row["here"], row["n"]) == ("21.0 [8.3, 33.7]", 2)
    assert (row["verdict"], row["note"]) == (SUPPORTED, "")
    assert row["other end"] == "24.0 [8.0, 40.0]" and row["bar"] == "-"
    assert row["P(better)"] == "1.00 [0.34, 1.00]"  # in both pairs
    assert (row["smallest visible"], row["p (Holm)"]) == ("12.7", "0.03")  # 2 atan(1 / 21) / pi
    less = only(table, direction="less")
    assert (less["verdict"], less["P(better)"]) == (CONTRADICTED, "0.00 [0.00, 0.66]")
    assert only(table, of="no-rae", against="full")["verdict"] == CONTRADICTED
    row = only(table, minimal_effect=10)
    assert (row["verdict"], row["note"]) == (NOT_DECIDED, "perhaps smaller than 10")
    row = only(table, of="no-rae", against="full", direction="less", minimal_effect=10)
    assert (row["verdict"], row["note"]) == (NOT_DECIDED, "perhaps smaller than 10")


def test_what_is_shown_stays_within_what_is_possible_and_the_verdict_with_it():
    """Differences 0, 100: 50 +- 12.706 x 50; the width and the p are of the whole interval."""
    line = only(ends(full=(0.9, 1.0), no_rae=(0.9, 0.0)))
    assert line["here"] == "50.0 [-100.0, 100.0]" and line["smallest visible"] == "635.3"
    assert line["verdict"] == NOT_DECIDED and line["p (Holm)"] == "0.5"
    line = only(ends(full=(0.0, 1.0)), against=50.0)
    assert line["here"] == "50.0 [0.0, 100.0]" and line["smallest visible"] == "635.3"


def test_beside_a_constant_the_measure_itself_is_shown():
    paper = {"step 16": 52.3, "late": 51.0}
    near = {"against": 50, "direction": "near", "margin": 14, "paper": paper}
    unit = SCORE.model_copy(update={"unit": "%"})
    row = only(ends(full=(0.50, 0.52)), measure=unit, **near)
    assert (row["paper"], row["here"]) == ("step 16: 52.3; late: 51", "51.0 [38.3, 63.7] %")
    assert row["end"] == "51.0 [50.0, 52.0]" and row["P(better)"] == "-"
    assert row["verdict"] == SUPPORTED  # 1 +- 12.7 lies within 14
    assert row["p (Holm)"] == "0.5"  # 2 atan(1 / 1) / pi
    assert only(ends(full=(0.50, 0.52)), **near | {"margin": 13})["verdict"] == NOT_DECIDED
    more = {"against": 40, "minimal_effect": 20}
    assert only(ends(full=(0.50, 0.52)), **more)["note"] == "", "38.3 is not above 40"
    less = {"against": 70, "minimal_effect": 20, "direction": "less"}
    assert only(ends(full=(0.50, 0.52)), **less)["note"] == "perhaps smaller than 20"
    same = ends(full=(0.70, 0.70))
    assert only(same, against=70)["verdict"] == NOT_DECIDED  # no spread, no difference
    assert only(same, against=71, direction="less")["verdict"] == SUPPORTED


def test_beside_a_constant_seeds_that_agree_leave_the_doubt_of_the_items(tmp_path):
    """Three seeds of 60 of the same 100 answers: 1.96 standard errors, of 60 * 40 / 100 each way;
    Student's t over the seeds alone would have no width."""
    runs = gather([answered(tmp_path, "full", seed, 50, 60) for seed in range(3)])
    (row,) = verdicts(file_of(part(measure=RIGHT, against=50)), runs).to_dict("records")
    assert row["here"] == row["end"] and row["here"].startswith("60.0 [")
    assert float(row["smallest visible"]) == pytest.approx(1.96 * 24**0.5, rel=0.1)


def test_a_small_unit_has_more_decimals():
    unit = SCORE.model_copy(update={"unit": "nats"})
    row = only(ends(full=(0.50, 0.52)), measure=unit, against=50)
    assert row["here"] == "51.000 [38.294, 63.706] nats" and row["smallest visible"] == "12.706"
    steps = SCORE.model_copy(update={"unit": "steps"})
    assert only(ends(full=(0.5, 0.5)), measure=steps, against=50)["end"] == "50.00 [50.00, 50.00]"


def test_a_bar_has_start_and_end_and_is_not_decided_by_one_seed():
    gain = SCORE.model_copy(update={"change": "difference"})
    bar = {"measure": gain, "against": 0, "direction": "reaches", "bar": 20}
    row = only(ends(0, full=(0.2, 0.2)), ends(full=(0.40, 0.42)), **bar)
    assert (row["start"], row["end"]) == ("20.0 (n = 1)", "41.0 [40.0, 42.0]")
    assert (row["here"], row["bar"], row["verdict"]) == ("21.0 [8.3, 33.7]", "20 or more", MET)
    one = only(ends(0, full=(0.2,)), ends(full=(0.40,)), **bar)
    assert (one["here"], one["n"], one["verdict"]) == ("20.0 (n = 1)", 1, NOT_DECIDED)
    none = only(ends(full=(0.40, 0.42)), **bar)
    assert (none["n"], none["verdict"]) == (0, NOT_MEASURED), "without a start"


@pytest.mark.parametrize(
    ("changes", "bar"),
    [
        ({"direction": "rises"}, "above 0"),
        ({"direction": "no gain", "margin": 7, "bar": 3}, "whole interval at most 7"),
        ({"direction": "compare", "margin": 7, "bar": 3}, "equal within 7"),
        ({"direction": "compare"}, "-"),
    ],
)
def test_a_bar_is_said_in_words(changes, bar):
    assert only(**changes)["bar"] == bar


def test_not_measured_says_what_is_missing():
    both = ends(full=(0.6, 0.3), no_rae=(0.4,))
    change = SCORE.model_copy(update={"change": "difference"})
    lacking = Measure(suite=["a", "b*"], opponent="random", weights={"win": 1})
    cases = [
        (only(), "no runs of full, no-rae"),
        (only(ends(full=(0.6, 0.3))), "no runs of no-rae"),
        (only(both, measure=lacking), "no evals with suite 'b*'"),
        (only(both), "1 seed(s) with the whole measure; needed: 2"),
        (only(both, measure=change), "0 seed(s) with the whole measure; needed: 2"),
    ]
    assert [(row["verdict"], row["note"]) for row, _ in cases] == [
        (NOT_MEASURED, note) for _, note in cases
    ]


def test_a_claim_of_several_parts_ends_with_all_parts():
    whole = file_of(part(against=40), part(against=80, direction="less"), part(against="sft"))
    frames = Frames(results=ends(full=(0.60, 0.60)))
    table = verdict_table(whole, frames)
    assert table["verdict"].tolist() == [SUPPORTED, SUPPORTED, NOT_MEASURED, NOT_MEASURED]
    assert table["part"].tolist() == ["a", "a", "a", "all parts"]
    assert table["n"].tolist() == [2, 2, 0, 0] and list(table.columns) == list(claims.COLUMNS)
    shown = whole.model_copy(update={"columns": {"task": "claim", "seeds": "n"}})
    assert verdict_table(shown, frames).to_dict("list") == {
        "task": ["the claim"] * 4,
        "seeds": [2, 2, 0, 0],
    }
    assert verdict_table(whole, Frames()).empty, "nothing is measured"


def test_an_exhibit_of_claims_is_of_the_runs_that_they_compare():
    table = ends(full=(0.6, 0.3), no_rae=(0.4, 0.08), sft=(0.5, 0.5))
    names = ("sft", "full", "no-rae")
    runs = [SimpleNamespace(variant=name, seed=9, commit=None) for name in names]
    file = file_of(part(), exhibit="spiral/claims")
    made = file.content(Frames(runs, table))
    assert [run.variant for run in made.runs] == ["full", "no-rae"] and made.protocol == "p"
    assert file.content(Frames(runs)) is None, "nothing is measured"


def test_parts_that_stand_alone_are_left_out_where_there_are_no_runs():
    rises = {"direction": "rises", "measure": SCORE}
    whole = file_of(part(against=0, **rises), part(of="sft", against=0, **rises))
    table = verdict_table(whole, Frames(results=ends(full=(0.60, 0.62))))
    assert (table["verdict"].tolist(), table["here"].tolist()) == ([MET], ["61.0 [48.3, 73.7]"])


def test_spirals_claims():
    known = {claim.id: claim for claim in load_claims("spiral").claims}
    assert [len(claim.parts) for claim in known.values()] == [6, 3, 3, 3, 3, 3, 1]
    longer = known["rae-keeps-length"].parts[3:]
    assert [each.variants for each in longer] == [
        ["full-long"],
        ["no-rae-long"],
        ["full-long", "no-rae-long"],
    ]
    assert [each.direction for each in longer] == ["near", "less", "greater"]
    past, rises, _ = known["past-self-stays-near-half"].parts
    assert past.paper == {"step 16": 52.3, "step 128": 51.7, "step 384": 50.9} and past.margin == 5
    assert rises.measure.weights == {"win": 100, "draw": 50}
    assert rises.measure.change == "difference"
    assert known["larger-variants"].parts[0].paper == {"SPIRAL": 36.1, "SFT": 18.4}


@pytest.mark.parametrize("paper", ["spiral", "spell", "spice", "rlvr", "proposer"])
def test_every_claim_is_of_known_variants_and_said_once(paper):
    file = load_claims(paper)
    assert exhibit_info(file.exhibit).kind == "table"
    used = {name for claim in file.claims for each in claim.parts for name in each.variants}
    assert used <= set(variants(paper))
    ids = [claim.id for claim in file.claims]
    assert len(set(ids)) == len(ids)
    for each in (each for claim in file.claims for each in claim.parts):
        assert not each.bar or each.direction == "reaches"
        assert each.margin <= (5 if each.measure.unit == "points" else 25)
        assert not each.minimal_effect or each.direction in ("greater", "less")


@pytest.mark.parametrize("paper", ["spell", "spice", "scope", "spiral", "ssp"])
def test_every_papers_claims_show_the_smallest_visible_difference_and_holms_p(paper):
    columns = load_claims(paper).columns
    assert columns["smallest visible"] == "smallest visible" and columns["p (Holm)"] == "p (Holm)"


def test_the_bars_of_the_studies():
    think, search, ladder = load_claims("rlvr").claims
    assert [each.margin for each in ladder.parts if each.direction == "no gain"] == [5]
    assert [each.bar for each in think.parts if each.direction == "reaches"] == [25]
    assert [len(claim.parts) for claim in (think, search)] == [4, 4]
    measured = [each.measure.decoding for claim in (think, search) for each in claim.parts]
    assert all(decoding == ["sampled"] for decoding in measured)
    controls = [each for each in think.parts + search.parts if each.direction == "no gain"]
    assert [each.margin for each in controls] == [5, 5]
    file = load_claims("proposer")
    bars = [each.bar for each in file.claims[0].parts if each.direction == "reaches"]
    assert bars == [10.7, 18.3, 9.8] and file.exhibit == "proposer/summary" and file.digits == 2


GOOD = {
    "measures": {"score": {"suite": "*", "opponent": "random", "weights": {"win": 100}}},
    "claims": [{"id": "one", "text": "t", "source": "s"}],
    **{"exhibit": "x", "caption": "c", "protocol": "p"},
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"measure": "scores"}, "claim 'one': measure is 'scores', .* did you mean 'score'"),
        ({"direction": "more"}, "claim 'one': direction is 'more'; allowed: 'greater', 'less'"),
        ({"paper": {"a": ["spiral/table-3", "Step 17", "x"]}}, "no row 'Step 17'; nearest"),
        ({"paper": {"a": ["spiral/table-3"]}}, r"paper has \['spiral/table-3'\]; allowed: \[exh"),
        ({"mesure": "score"}, "claim .*one.*mesure.* is unknown; .*allowed: .*measure"),
    ],
)
def test_faults_name_place_key_value_and_what_is_allowed(changes, message):
    good = {"text": "p", "measure": "score", "of": "full", "against": 50, "direction": "greater"}

    def file(values):
        return {**GOOD, "claims": [{**GOOD["claims"][0], "parts": [values]}]}

    assert claims_of(file(good), "spiral").claims[0].parts[0].against == 50
    with pytest.raises(ParamError, match=message):
        claims_of(file(good | changes), "spiral")


def test_the_files_margin_is_of_claimed_sides_in_points_without_one_of_their_own():
    points = GOOD["measures"]["score"] | {"unit": "points"}
    measures = {"points": points, "share": points | {"unit": "%"}}
    part = {"text": "p", "of": "full", "against": "no-rae"}
    kinds = [("points", "greater", {}), ("points", "less", {"margin": 2})]
    kinds += [("points", "compare", {}), ("share", "greater", {})]
    parts = [part | {"measure": m, "direction": side} | own for m, side, own in kinds]
    claims = [{**GOOD["claims"][0], "parts": parts}]
    read = claims_of({**GOOD, "measures": measures, "margin": 5, "claims": claims}, "spiral")
    assert [each.margin for each in read.claims[0].parts] == [5, 2, 0, 0]


def test_claims_of_an_unknown_paper():
    with pytest.raises(ParamError, match="paper is 'spirall', .*did you mean 'spiral'"):
        load_claims("spirall")


@pytest.mark.slow
def test_an_exhibit_says_whether_its_claims_were_fixed_before_the_runs(monkeypatch):
    """By the file at the runs' commits: texts and the paper's numbers may change later, what
    decides a verdict may not: a part that came or changed later is named, and one that is gone."""
    path = claims.reference.sources("claims.yaml")["spice"]
    now = path.read_text()
    fewer = yaml.safe_load(now)
    added = fewer["claims"][0]["parts"].pop()["text"]
    first_part = dict(fewer["claims"][0]["parts"][0])
    fewer["claims"][0]["parts"][0] |= {"text": "another", "paper": {"of": 1}}
    changed = yaml.safe_load(now)
    changed["measures"][fewer["claims"][0]["parts"][0]["measure"]]["window"] = 0.77
    more = yaml.safe_load(now)
    more["claims"][0]["parts"].append(first_part | {"text": "of then", "of": "gone"})
    files = {
        "8" * 40: yaml.safe_dump(more),
        "a" * 40: now,
        "b" * 40: now.replace("caption:", "# another text\ncaption:"),
        "c" * 40: now.replace("direction: less", "direction: greater", 1),
        "d" * 40: now.replace("margin: 5", "margin: 50", 1),
        "f" * 40: yaml.safe_dump(changed),
        "9" * 40: yaml.safe_dump(fewer),
    }
    monkeypatch.setattr(claims, "file_at", lambda commit, _: files.get(commit))

    def said(*commits, arm="full"):
        commits = [each if isinstance(each, tuple) else (each, arm) for each in commits]
        runs = [SimpleNamespace(commit=commit, variant=arm) for commit, arm in commits]
        return claims.fixed("spice", runs)

    assert said("b" * 40, "a" * 40, "a" * 40) == (
        "Claims, measures and margins were committed before the runs, which are of aaaaaaaaa, "
        "bbbbbbbbb."
    )
    assert said("a" * 40, "9" * 40).endswith(
        f"aaaaaaaaa, but for what was added or changed later: {added}."
    )
    assert said(("a" * 40, "full"), ("9" * 40, "kl")) == said("a" * 40, "9" * 40, arm="kl")
    assert said("a" * 40, "9" * 40, arm="kl").endswith("999999999, aaaaaaaaa.")  # compares no kl
    known = yaml.safe_load(now)
    parts = [part for claim in known["claims"] for part in claim["parts"]]
    own = [part for part in parts if "full" in (part["of"], part["against"])]
    first = known["claims"][0]["parts"][0]
    for odd, changed in {
        "c": [next(part for part in parts if part["direction"] == "less")],
        "d": own,
        "f": [part for part in own if part["measure"] == first["measure"]],
    }.items():
        texts = "; ".join(part["text"] for part in changed)
        assert said(odd * 40).endswith(
            f"{odd * 9}, but for what was added or changed later: {texts}."
        )
    assert said("8" * 40).endswith("888888888; gone: of then.")
    assert said("a" * 40, "e" * 40) == said("a" * 40, None) == said() == ""


def test_the_other_side_may_have_a_measure_of_its_own():
    """Gains of 10, 20 and 18 points in the first third, of 6, 4 and 14 in the last: +4, +16, +4."""
    at = {0: (0.1, 0.1, 0.1), 3: (0.2, 0.3, 0.28), 6: (0.4, 0.4, 0.4), 9: (0.46, 0.44, 0.54)}
    table = pd.concat([ends(step, full=wins) for step, wins in at.items()])
    early, late = ({"change": "difference", "until": 0.34}, {"change": "difference", "since": 0.66})
    first, third = (SCORE.model_copy(update=one) for one in (early, late))
    line = only(table, measure=first, against="full", other=third)
    assert line["here"].startswith("8.0 [-9.2, 25.2]") and line["P(better)"].startswith("1.00")
    half = SCORE.model_copy(update={"weights": {"win": 50.0}})
    two = only(ends(full=(0.6, 0.3), no_rae=(0.4, 0.08)), other=half)
    assert (two["end"][:4], two["other end"][:4]) == ("45.0", "12.0"), "each by its own measure"
    wide = only(ends(full=(0.9, 1.0), no_rae=(0.9, 0.0)), other=half)  # 45 and 100
    assert wide["here"] == "72.5 [-276.9, 421.9]", "half a win is no per cent: no ends"
    assert (
        only(table, measure=first, against="full", other=third, direction="less")["here"][:3]
        == "8.0"
    )
    assert only(table, measure=first, against="full")["here"].startswith("0.0")
    named = {"first": first.model_dump(), "third": third.model_dump()}
    entry = {"text": "a", "measure": "first", "other": "third", "of": "full", "against": "full"}
    claim = {"id": "c", "text": "t", "source": "s", "parts": [{**entry, "direction": "greater"}]}
    texts = {"exhibit": "x", "caption": "c", "protocol": "p"}
    (read,) = claims_of({"measures": named, "claims": [claim], **texts}, "scope").claims[0].parts
    assert (read.measure, read.other) == (first, third)
