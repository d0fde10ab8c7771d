"""SPELL's votes, rewards, dynamic sampling and loss weights, by hand."""

import random
from collections import Counter
from statistics import fmean
from types import SimpleNamespace

import pytest
from fakes import CharTokenizer

from spnb.core.advantages import assign, make_estimator, permute_rewards, token_mean
from spnb.core.documents import Context, Document, Proposal
from spnb.core.method import Share
from spnb.core.types import Sample, Trajectory
from spnb.corpus.clusters import Clusters
from spnb.evaluate.proposals import spell_numbers, verifier_numbers
from spnb.lab import ladder
from spnb.lab.clusters import GeneratedClusters
from spnb.lab.ladder import Source
from spnb.methods.spell import Method, Params, Question, majority

ALANA = Source("journey", "Alana", ("Arnford", "Belford", "Calford"))
FULL = "Alana first Arnford Alana second Belford"
TWO = ladder.question("journey", "Alana", 2, ladder.frames("journey", "train")[0])
STATED = {"journey": (FULL, "Alana first Calford"), "ledger": ("12", "13"), "choice": ("A", "B")}
Y, N = True, False
PAPER = Params()
SOURCE = GeneratedClusters(Params(clusters=3), CharTokenizer())
CORPUS = Clusters([], [])


def said(text):
    return Trajectory((1,), [2], [1], [-1.0], text, text)


def answers(*texts):
    return [said("no answer" if text is None else f"<answer> {text}</answer>") for text in texts]


def verdicts(*votes):
    words = {True: "yes", False: "no", None: "perhaps"}
    return answers(*(words[vote] for vote in votes))


def settled(right, size=8, votes=None, family="journey", rules=None, source=None, **values):
    """A question of `size` answers of which the first `right` are the stated one; `votes` lists
    the judgments of each answer."""
    stated, other = STATED[family]
    texts = [stated] * right + [other] * (size - right)
    values = {"proposal": Proposal(TWO, stated, kind=family), "trajectory": said("asked")} | values
    documents = tuple(Document("", truth=source) for source in values.pop("sources", ()))
    question = Question(Context(family, documents), **values)
    if question.proposal and question.grounded:
        question.answers = answers(*texts)
        question.judgments = [verdicts(*of) for of in votes or []]
    question.settle(rules or PAPER, source or SOURCE)
    return question


def bad_form(family="journey"):
    return settled(0, proposal=None, family=family)


def ungrounded(family="journey"):
    return settled(0, grounded=False, family=family)


# --- eq. 4: votes


@pytest.mark.parametrize(
    ("votes", "paper", "first"),
    [
        ([Y] * 5 + [N] * 3, Y, Y),
        ([N] * 3 + [Y] * 5, Y, Y),
        ([Y] * 4 + [N] * 4, N, Y),  # a tie is no; in the code the label seen first
        ([N] * 4 + [Y] * 4, N, N),
        ([N, Y, Y, Y, N, N, N, Y], N, N),
        ([N] * 8, N, N),
        ([Y] * 8, Y, Y),
        ([Y], Y, Y),
        ([], None, None),
    ],
)
def test_a_majority_is_more_than_half(votes, paper, first):
    assert majority(votes, PAPER) is paper
    assert majority(votes, Params(tie="first")) is first


@pytest.mark.parametrize(
    ("votes", "ignored", "penalised", "code"),
    [
        ([Y, Y, Y, N, N, None, None, None], Y, N, Y),  # 3 of 5, but not of 8
        ([Y, Y, N, N, None, None, None, None], N, N, None),
        ([None, None, None, Y, Y, Y, N, N], Y, N, None),  # three each: seen first
        ([Y, Y, Y, None, None, None, N, N], Y, N, Y),
        ([N, None], N, N, N),
        ([None] * 8, None, N, None),  # nobody voted: the rule decides alone
    ],
)
def test_malformed_votes(votes, ignored, penalised, code):
    assert majority(votes, PAPER) is ignored
    assert majority(votes, Params(malformed="penalised")) is penalised
    assert majority(votes, Params(malformed="penalised", tie="first")) is code


# --- eq. 5 to 7: rewards


def test_judgments_are_paid_for_agreeing_with_their_majority():
    """One answer a row: a majority of yes, of no, a tie (no), one with malformed judgments."""
    votes = [[Y, Y, N, Y], [N, N, Y, N], [Y, N, Y, N], [Y, None, Y, N]]
    question = settled(1, 4, votes)
    assert question.majorities == [Y, N, N, Y]
    assert question.verifier_rewards(PAPER) == [
        [1, 1, 0, 1],
        [1, 1, 0, 1],
        [0, 1, 0, 1],
        [1, 0, 1, 0],
    ]
    code = Params(malformed="penalised", tie="first")
    question = settled(1, 4, votes, rules=code)
    assert question.majorities == [Y, N, Y, Y]
    assert question.verifier_rewards(code) == [
        [1, 1, 0, 1],
        [1, 1, 0, 1],
        [1, 0, 1, 0],
        [1, -1, 1, 0],
    ]


def test_an_answer_is_right_by_the_rule_or_by_the_majority():
    votes = [[N] * 4, [Y, Y, Y, N], [Y, Y, N, N], [N, None, None, None]]
    question = settled(1, 4, votes)
    assert question.rule == [Y, N, N, N] and question.majorities == [N, Y, N, N]
    assert question.rewards == [1.0, 1.0, 0.0, 0.0]  # the larger one, eq. 6
    assert question.success == 0.5 and question.pay == 1.0 and question.mixed
    alone = settled(1, 4)
    assert alone.rewards == [1.0, 0.0, 0.0, 0.0] and alone.majorities == [None] * 4
    assert alone.verifier_rewards(PAPER) == []


def test_an_answer_that_was_not_judged_has_the_rule_alone():
    question = settled(1, 3, [[N, N], [], [Y, Y]])
    assert question.majorities == [N, None, Y] and question.rewards == [1.0, 0.0, 1.0]
    assert question.verifier_rewards(PAPER) == [[1, 1], [], [1, 1]]


def test_with_an_oracle_it_is_what_an_answer_means_that_counts():
    """The stated answer has the steps alone: a responder's full answer means the same."""
    proposal = Proposal(TWO, "Arnford Belford", kind="journey")
    for judge, rewards in (("rule", [0.0, 0.0]), ("oracle", [1.0, 0.0])):
        question = settled(1, 2, proposal=proposal, rules=Params(judge=judge))
        assert question.rewards == rewards


PAYS = {  # at 1/8, 2/8, 3/8, 4/8, 5/8, 6/8, 7/8 of the answers: the notes' table
    ("gaussian", 1 / 6): [0.0796, 0.3247, 0.7548, 1, 0.7548, 0.3247, 0.0796],
    ("gaussian", 1 / 12): [0.00004, 0.0111, 0.3247, 1, 0.3247, 0.0111, 0.00004],
    ("gaussian", 1 / 4): [0.3247, 0.6065, 0.8825, 1, 0.8825, 0.6065, 0.3247],
    ("r_zero", 1 / 6): [0.25, 0.5, 0.75, 1, 0.75, 0.5, 0.25],
    ("absolute_zero", 1 / 6): [0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125],
}


@pytest.mark.parametrize(("mapping", "sigma"), list(PAYS))
def test_what_a_question_pays_at_every_success(mapping, sigma):
    rules = Params(mapping=mapping, sigma=sigma)
    pays = [settled(right, rules=rules).pay for right in range(9)]
    assert pays[0] == pays[8] == 0  # nobody or everybody is right
    assert pays[1:8] == pytest.approx(PAYS[mapping, sigma], abs=6e-5)
    assert [settled(right, rules=rules).mixed for right in (0, 1, 7, 8)] == [0, 1, 1, 0]


@pytest.mark.parametrize("mapping", ["gaussian", "r_zero", "absolute_zero"])
def test_a_wrong_form_and_an_answer_without_documents_cost(mapping):
    rules = Params(mapping=mapping)
    wrong, known = (settled(0, proposal=None, rules=rules), settled(0, grounded=False, rules=rules))
    assert (wrong.pay, known.pay) == (-1.0, -0.5)
    assert wrong.rewards == known.rewards == [] and not wrong.mixed and not known.mixed
    both = settled(0, proposal=None, grounded=False, rules=rules)
    assert both.pay == -1.0


# --- role-specific dynamic sampling


@pytest.mark.parametrize(
    ("votes", "right", "consistent", "anyway"),
    [
        ([Y] * 5 + [N] * 3, 1, Y, Y),
        ([Y] * 7 + [N], 1, Y, Y),
        ([Y] * 8, 1, N, N),  # unanimous
        ([Y] * 4 + [N] * 4, 1, N, N),  # tied, and no by eq. 4
        ([Y] * 4 + [N] * 4, 0, N, N),
        ([N] * 6 + [Y] * 2, 0, Y, Y),
        ([Y] * 6 + [N] * 2, 0, N, Y),  # the rule says no
        ([N] * 6 + [Y] * 2, 1, N, Y),
        ([Y, Y, N] + [None] * 5, 1, Y, Y),  # of those that are yes or no
        ([Y, N] + [None] * 6, 0, N, N),
        ([None] * 8, 0, N, N),
        ([], 0, N, N),
    ],
)
def test_judgments_teach_where_they_differ_and_the_rule_agrees(votes, right, consistent, anyway):
    question = settled(right, 1, [votes])
    assert question.disputed(0, True) is consistent
    assert question.disputed(0, False) is anyway


def sampled(questions, kept, groups=1, consistent=True, penalised=True, seed=0, draw=""):
    """Places of the questioners and of the verifier's groups that are trained."""
    kept = [questions[place] for place in kept]
    rng = random.Random(seed)
    options = {"format_penalty": penalised, "judgments_per_answer": 1, "verifier_draw": draw}
    params = Params(consistency=consistent, groups=groups, **options)
    method = SimpleNamespace(params=params, share=Share())
    paid, judged = Method.dynamic_sampling(method, questions, kept, rng)
    place = {question: number for number, question in enumerate(questions)}
    return {place[one] for one in paid}, {(place[one], number) for one, number in judged}


def test_as_many_negatives_as_positives_of_each_type():
    types = ("journey", "ledger", "choice")
    mixed = [settled(4, family=family) for family in types for _ in range(2)]
    others = [made(family) for family in types for made in (bad_form, ungrounded) * 2]
    others += [settled(right, family=family) for family in types for right in (0, 8)]
    questions = mixed + others
    drawn = Counter()
    for seed in range(200):
        paid, _ = sampled(questions, [0, 2, 3], seed=seed)
        assert {0, 2, 3} <= paid and len(paid) == 6
        assert not paid & {1, 4, 5}  # mixed, but not of the batch: neither one nor the other
        families = Counter(questions[place].context.kind for place in paid - {0, 2, 3})
        assert families == {"journey": 1, "ledger": 2}
        drawn.update(paid - {0, 2, 3})
    # A journey is one of six, each as likely: 33 of 200 with a deviation of 5.3.
    journeys = [place for place, one in enumerate(questions) if one.context.kind == "journey"][2:]
    assert len(journeys) == 6 and all(15 < drawn[place] < 55 for place in journeys)


def test_where_a_type_has_too_few_others_fill_up():
    questions = (
        [settled(4) for _ in range(3)] + [bad_form()] + [bad_form("ledger") for _ in range(4)]
    )
    for seed in range(20):
        paid, _ = sampled(questions, [0, 1, 2], seed=seed)
        assert {0, 1, 2, 3} <= paid and len(paid) == 6
    paid, _ = sampled(questions[:5], [0, 1, 2])  # there are no more than two
    assert paid == {0, 1, 2, 3, 4}
    assert sampled(questions, []) == (set(), set())


def test_without_the_format_penalty_a_wrong_form_is_no_negative():
    questions = [settled(4), settled(3), bad_form(), bad_form(), ungrounded()]
    assert sampled(questions, [0, 1], penalised=False)[0] == {0, 1, 4}
    assert len(sampled(questions, [0, 1])[0]) == 4


SPLIT, WHOLE = [Y, Y, Y, N], [Y] * 4


def test_any_disputed_answers_of_the_batch_are_drawn():
    questions = [settled(2, 2, [SPLIT, SPLIT]) for _ in range(8)]
    drawn = Counter()
    for seed in range(200):
        _, judged = sampled(questions, range(5), groups=3, seed=seed)
        assert len(judged) == 3
        drawn.update(judged)
    # Each of ten with 3/10: 60 of 200, deviation 6.5.
    assert set(drawn) == {(place, number) for place in range(5) for number in range(2)}
    assert all(34 < count < 86 for count in drawn.values())
    assert len(sampled(questions, range(5), groups=20)[1]) == 10


@pytest.mark.parametrize(("groups", "yes"), [(1, 0.5), (2, 1), (3, 1.5), (4, 2), (6, 2)])
def test_verdicts_of_yes_and_of_no_are_drawn_in_turn(groups, yes):
    """Of two that say yes and eight that say no; at last only no is left."""
    questions = [
        settled(2, 2, [SPLIT, SPLIT]),
        *(settled(0, 2, [[N, N, N, Y]] * 2) for _ in "four"),
    ]
    drawn = Counter()
    for seed in range(400):
        _, judged = sampled(questions, range(5), groups, seed=seed, draw="even")
        assert len(judged) == groups
        assert abs(sum(place == 0 for place, _ in judged) - yes) <= 0.5
        drawn.update(judged)
    assert len(drawn) == 10  # whoever is drawn, by chance: 400 x .25 of either yes, 5 deviations
    assert all(abs(drawn[0, n] - 200 * yes) <= 50 for n in range(2))


def test_only_disputed_answers_of_the_batch_teach_the_verifier():
    questions = [
        settled(1, 2, [SPLIT, SPLIT]),  # of the second answer the rule says no
        settled(2, 2, [WHOLE, SPLIT]),
        settled(2, 2, [SPLIT, SPLIT]),  # not of the batch
        settled(0, 2, [[N, N, Y, Y], [N, N, N, Y]]),
    ]
    assert sampled(questions, [0, 1, 3], 9)[1] == {(0, 0), (1, 1), (3, 1)}
    _, anyway = sampled(questions, [0, 1, 3], 9, consistent=False)
    assert anyway == {(0, 0), (0, 1), (1, 1), (3, 1)}
    assert sampled([settled(1, 2, [WHOLE, WHOLE])], [0])[1] == set()
    assert sampled([settled(1, 2)], [0])[1] == set()  # no verifier


def test_permuted_rewards_stay_within_a_role():
    def rows():
        of = [("questioner", reward) for reward in (-1.0, -0.5, 0.3, 0.7)]
        of += [("responder", float(n % 2)) for n in range(16)]
        return [Sample((1,), (2,), (1,), None, reward, role, 0) for role, reward in of]

    samples = rows()
    permute_rewards(samples, random.Random(0))
    for role in ("questioner", "responder"):
        before, after = ([s.reward for s in of if s.role == role] for of in (rows(), samples))
        assert sorted(before) == sorted(after) and before != after


# --- eq. 8, 9, 12


def row(role, group, length, reward, outside=0):
    """A row of `length` sampled tokens, and some from outside."""
    size = length + outside
    return Sample((1,), (2,) * size, (1,) * length + (0,) * outside, None, reward, role, group)


def test_token_mean_by_hand():
    """Groups of 2 + 6 and of 4 tokens among 5 rows: a group's shares are 1/4 and 3/4, and 1; times
    5 rows by 2 groups."""
    first, second = [row("r", 0, 2, 0), row("r", 0, 6, 0, outside=3)], [row("r", 1, 4, 0)]
    token_mean([first, second], 5, 2)
    weights = [one.weight for one in first + second]
    assert weights == pytest.approx([0.625, 1.875, 2.5])
    token_mean([], 5, 0)  # no group, nothing to do
    nothing = row("r", 0, 0, 0, outside=1)
    token_mean([[nothing]], 5, 1)  # no token of the policy
    assert nothing.weight == 0


def test_the_weighted_mean_of_row_means_is_equation_12():
    """Per-token terms x: (sum of A x over a group) / (its tokens), mean over groups, sum of roles.

    Two groups of responders, of 1 + 3 and 2 + 2 tokens, and questioners of 5 and 1 tokens, each a
    group of its own; rewards are as far apart in each, so that A = +-0.7071. In units of it the
    first group is (1 - (1 + 2 + 3)) / 4 = -1.25, the second (1 + 2 - 3) / 4 = 0, their mean -0.625;
    questioners (15 / 5 - 1) / 2 = 1. Together 0.375.
    """
    rows = [row("res", 0, 1, 1.0), row("res", 0, 3, 0.0)]
    rows += [row("res", 1, 2, 1.0), row("res", 1, 2, 0.0)]
    asked = [row("que", "batch", 5, 1.0), row("que", "batch", 1, -1.0)]
    estimator = make_estimator("group_zscore")
    assign(rows + asked, {"res": estimator, "que": estimator})
    token_mean([rows[:2], rows[2:]], 6, 2)
    token_mean([[one] for one in asked], 6, 2)
    terms = [[1], [1, 2, 3], [1, 2], [3, 0], [1, 2, 3, 4, 5], [1]]
    loss = fmean(
        one.weight * one.advantage * fmean(x) for one, x in zip(rows + asked, terms, strict=True)
    )
    assert loss == pytest.approx(0.375 * 0.7071068, abs=1e-6)


# --- what is logged


def test_numbers_of_a_step_by_hand():
    """Of five questions one has a wrong form and one is known; two of three are mixed.

    Answers of the first: right, and a full answer where the steps alone are stated, which the rule
    does not see and the verifier does; a wrong one that it takes too.
    """
    short = Proposal(TWO, "Arnford Belford", kind="journey")
    questions = [
        settled(1, 2, [[Y, Y, None], [Y, Y, N]], proposal=short, sources=(ALANA,)),
        settled(1, 2, [[Y, N, Y], [N, N, N]], sources=(ALANA,)),
        settled(2, 2, [[N, N, Y], []], family="journey", sources=(ALANA,)),
        bad_form("ledger"),
        ungrounded("choice"),
    ]
    assert [question.rewards for question in questions[:3]] == [[1, 1], [1, 0], [1, 1]]
    found = spell_numbers(questions)
    expected = {
        "questions": 5,
        "bad format": 0.2,
        "ungrounded": 0.2,
        "mixed": 0.2,
        "answered": 0.6,
        "valid/general QA": 1,
        "valid/financial": 0,
        "valid/multiple choice": 0,
        "success": (1 + 0.5 + 1) / 3,
        "pay": 1 / 3,
        "level": 2,
        "right": 1,
        "answerable": 1,
        "malformed": 1 / 15,
        "disagreement": 3 / 5,  # both of the first, the first of the third
        "disagreement/general QA": 3 / 5,
        "rule false yes": 0,  # of two wrong answers
        "rule false no": 1 / 4,
        "verifier false yes": 1 / 2,
        "verifier false no": 1 / 3,  # of three that were judged
    }
    assert found == pytest.approx(expected)


def test_numbers_without_answers_and_without_an_oracle():
    found = spell_numbers([bad_form(), ungrounded()])
    shares = {"questions": 2, "bad format": 0.5, "ungrounded": 0.5, "mixed": 0, "answered": 0}
    assert found == shares
    of_a_corpus = settled(1, 2, [[Y, Y], [N, N]], source=CORPUS)
    found = spell_numbers([of_a_corpus])
    assert found["disagreement"] == 0 and found["answerable"] == 0
    assert not any("false" in key or "level" in key or "right" in key for key in found)
    static = settled(1, 2, trajectory=None, sources=(ALANA,))
    assert "bad format" not in spell_numbers([static])
    assert verifier_numbers([static]) == {"rule false yes": 0, "rule false no": 0}


def test_facts_of_a_question():
    wrong = Proposal(TWO, "Belford Arnford", kind="journey")
    facts = settled(1, 4, sources=(ALANA,)).facts()
    assert facts == {"success": 0.25, "pay": pytest.approx(0.32465, abs=1e-5)} | {
        "level": 2,
        "right": 1,
    }
    assert settled(1, 4, proposal=wrong, sources=(ALANA,)).facts()["right"] == 0
    assert settled(1, 4).facts().keys() == {"success", "pay"}
    assert bad_form().facts() == {"success": 0, "pay": -1}
