"""Demonstrations: legal, unskilled, and with remarks that an independent reading of the prompt
finds true."""

import itertools
import math
import random
import re
from collections import Counter

import pyspiel
import pytest

from spnb.games import make_game
from spnb.games.negotiation import NEGOTIATION
from spnb.lab.pretrain.demos import (
    GAME_SHARES,
    KUHN,
    LARGE_BOARD,
    OTHER_POKER,
    QUESTION_SHARE,
    TICTACTOE,
    TICTACTOE_PLAIN,
    demos,
    game_demos,
)

pytestmark = pytest.mark.slow
COUNT = 4500  # more than one pool
LAST_BOX = re.compile(r"(.*?) ?\\boxed\{(\w+)\}", re.DOTALL)
MAGIC = (2, 7, 6, 9, 5, 1, 4, 3, 8)
RANKS = {"J": "lowest", "Q": "middle", "K": "highest"}


@pytest.fixture(scope="module")
def stream():
    """The first demonstrations of seed 7."""
    return list(itertools.islice(demos(7), COUNT))


@pytest.fixture(scope="module")
def turns(stream):
    """The stream's turns of poker and of both tic-tac-toes."""
    return [demo for demo in stream if demo.source in (KUHN, TICTACTOE, TICTACTOE_PLAIN)]


@pytest.fixture(scope="module")
def tictactoe():
    """The turns of 3,500 matches of tic-tac-toe."""
    game, rng = make_game(TICTACTOE_PLAIN), random.Random(3)
    return [demo for _ in range(3500) for demo in game_demos(game, rng)]


def prompt(demo):
    (message,) = demo.messages
    assert message["role"] == "user"
    return message["content"]


def legal(demo):
    """The moves that the prompt lists."""
    listed = re.search(r"(?:Legal moves|Available Moves): (.*)", prompt(demo)).group(1)
    return re.findall(r"\w+", listed)


def parts(demo):
    """Remark and action of an answer."""
    return LAST_BOX.fullmatch(demo.answer).groups()


def board(demo):
    """Cells as printed (a free one shows its number), one's own mark and the other's."""
    text = prompt(demo)
    shown = re.search(
        r"(?:Board \(a free cell shows its number\)|Current Board):\n(.*?)(?:Legal|Available)",
        text,
        re.S,
    )
    cells = re.findall(r"\w", shown.group(1))
    mine = re.search(r"(?:and play ([xo])\.|you will be '([XO])')", text)
    mine = mine.group(1) or mine.group(2)
    assert len(cells) == 9
    return cells, mine, {"x": "o", "o": "x", "X": "O", "O": "X"}[mine]


def completing(cells, mark):
    """Free cells where the mark stands in three that sum to 15 in a magic square, which are the
    eight lines."""
    held = [MAGIC[place] for place in range(9) if cells[place] == mark]
    return {
        cell
        for cell in range(9)
        if cells[cell] == str(cell)
        and any(a + b + MAGIC[cell] == 15 for a, b in itertools.combinations(held, 2))
    }


def assert_tictactoe_remark(demo):
    cells, mine, theirs = board(demo)
    remark = re.fullmatch(r"(?:Mine: (.*?)\. Theirs: (.*?)\. )?(.*)", parts(demo)[0])
    for said, mark in zip(remark.groups(), (mine, theirs), strict=False):
        if said is not None:
            assert said == (
                " ".join(str(place) for place in range(9) if cells[place] == mark) or "none"
            )
    claim = re.fullmatch(r"(?:(I|They) can win at (\d)|No line is open)\.", remark.group(3))
    if claim.group(1) == "I":
        assert int(claim.group(2)) in completing(cells, mine)
    elif claim.group(1) == "They":
        assert int(claim.group(2)) in completing(cells, theirs) and not completing(cells, mine)
    else:
        assert not completing(cells, mine) and not completing(cells, theirs)


def assert_kuhn_remark(demo):
    card = re.search(r"Your card: ([JQK])", prompt(demo)).group(1)
    short = f"My card is {card}, the {RANKS[card]}."
    costs = {
        "fold": " A fold loses 1, a call risks 2.",
        "check": " A check risks 1, a bet risks 2.",
    }
    assert parts(demo)[0] in (short, short + costs[legal(demo)[0]])


def detail(demo):
    """0 without a remark, 1 with a short one, 2 with a full one."""
    remark = parts(demo)[0]
    return 0 if not remark else 2 if "Mine:" in remark or "risks" in remark else 1


def within(share, expected, n, deviations=4):
    """Whether a share of n trials is within some standard errors of its expectation."""
    return abs(share - expected) <= deviations * math.sqrt(expected * (1 - expected) / n)


def test_every_demonstrated_action_is_legal(turns):
    for demo in turns:
        assert parts(demo)[1] in legal(demo), demo


def test_remarks_are_true(turns, tictactoe):
    remarked = [demo for demo in turns + tictactoe[:4000] if detail(demo)]
    for demo in remarked:
        if demo.source == KUHN:
            assert_kuhn_remark(demo)
        else:
            assert_tictactoe_remark(demo)
    assert {demo.source for demo in remarked} == {KUHN, TICTACTOE, TICTACTOE_PLAIN}


def test_the_stakes_in_kuhn_remarks_are_the_games():
    """A fold loses 1 and a call 2; checked round it is 1, and a bet that is called 2."""
    passes, bets = 0, 1
    for line, chips in {
        (bets, passes): 1,
        (bets, bets): 2,
        (passes, passes): 1,
        (passes, bets, bets): 2,
    }.items():
        state = pyspiel.load_game("kuhn_poker").new_initial_state()
        for action in (2, 0, *line):  # king against jack
            state.apply_action(action)
        assert state.is_terminal() and state.returns() == [chips, -chips]


@pytest.mark.parametrize(("who", "at_least"), [("I", 3000), ("They", 2500)])
def test_actions_do_not_follow_what_was_remarked(tictactoe, who, at_least):
    """After "I can win at 4" the move is 4 as often as any other: the sum over turns of 1 / number
    of legal moves."""
    named = [(re.search(rf"{who} can win at (\d)", demo.answer), demo) for demo in tictactoe]
    chances = [1 / len(legal(demo)) for found, demo in named if found]
    followed = [found.group(1) == parts(demo)[1] for found, demo in named if found]
    error = math.sqrt(sum(chance * (1 - chance) for chance in chances))
    assert len(chances) >= at_least
    assert abs(sum(followed) - sum(chances)) <= 4 * error


def test_what_could_be_won_is_no_likelier_without_a_remark(tictactoe):
    """The same for all turns with a winning cell, whatever was said: a share of winning cells among
    the legal ones."""
    chances, won = [], 0
    for demo in tictactoe[:8000]:
        cells, mine, _ = board(demo)
        if wins := completing(cells, mine):
            chances.append(len(wins) / len(legal(demo)))
            won += int(parts(demo)[1]) in wins
    assert len(chances) > 1000
    assert abs(won - sum(chances)) <= 4 * math.sqrt(
        sum(chance * (1 - chance) for chance in chances)
    )


def test_moves_lean_to_no_end_of_the_board(tictactoe):
    """Place among n legal moves as 0 to 1: a uniform draw has mean 1/2 and variance (n + 1) / (12
    (n - 1))."""
    choices = [(legal(demo), parts(demo)[1]) for demo in tictactoe]
    places = [
        (moves.index(action) / (len(moves) - 1), len(moves))
        for moves, action in choices
        if len(moves) > 1
    ]
    error = math.sqrt(sum((n + 1) / (12 * (n - 1)) for _, n in places)) / len(places)
    assert abs(sum(place for place, _ in places) / len(places) - 0.5) <= 4 * error


def test_poker_is_played_without_regard_to_the_card():
    game, rng = make_game(KUHN), random.Random(5)
    played = [demo for _ in range(2000) for demo in game_demos(game, rng)]
    for card in "JQK":
        actions = Counter(parts(demo)[1] for demo in played if f"Your card: {card}" in prompt(demo))
        for passing, betting in (("check", "bet"), ("fold", "call")):
            n = actions[passing] + actions[betting]
            assert n > 300 and within(actions[betting] / n, 0.5, n)


@pytest.mark.parametrize("source", [KUHN, TICTACTOE, TICTACTOE_PLAIN])
def test_a_third_each_has_no_a_short_and_a_full_remark(turns, source):
    details = Counter(detail(demo) for demo in turns if demo.source == source)
    assert all(
        within(details[kind] / details.total(), 1 / 3, details.total()) for kind in (0, 1, 2)
    )


def test_matches_and_questions_have_their_shares(stream):
    """A match is counted by its opening turn, which each match has once; a question is a draw of
    its own."""
    opening = {
        KUHN: lambda text: "Betting so far: none" in text,
        TICTACTOE: lambda text: (
            " 0 | 1 | 2 \n---+---+---\n 3 | 4 | 5 \n---+---+---\n 6 | 7 | 8 " in text
        ),
        TICTACTOE_PLAIN: lambda text: "0 1 2\n3 4 5\n6 7 8" in text,
        NEGOTIATION: lambda text: "says:" not in text,
        OTHER_POKER: lambda text: "submitted move" not in text,
        LARGE_BOARD: lambda text: len(re.findall(r"'\[\d+\]'", text)) == 25,
    }
    pool = stream[:4096]
    draws = Counter(
        d.source for d in pool if d.source == "question" or opening[d.source](prompt(d))
    )
    n, matches = draws.total(), draws.total() - draws["question"]
    assert within(draws["question"] / n, QUESTION_SHARE, n)
    assert all(within(draws[name] / matches, share, matches) for name, share in GAME_SHARES.items())


def test_both_seats_are_demonstrated(turns):
    seats = {
        (demo.source, re.search(r"You are (?:seat|Player) ([01])", prompt(demo)).group(1))
        for demo in turns
    }
    assert seats == set(itertools.product((KUHN, TICTACTOE, TICTACTOE_PLAIN), "01"))


def test_two_games_are_shown_without_remarks(stream):
    shown = [demo for demo in stream if demo.source in (OTHER_POKER, LARGE_BOARD)]
    assert {demo.source for demo in shown} == {OTHER_POKER, LARGE_BOARD}
    assert all(re.fullmatch(r"\\boxed\{\w+\}", demo.answer) for demo in shown)


def test_questions_are_answered_in_a_box_without_a_remark(stream):
    asked = [demo for demo in stream if demo.source == "question"]
    assert all(re.fullmatch(r"\\boxed\{\d\}", demo.answer) for demo in asked)
    chips = [demo for demo in asked if "chips in the pot" in prompt(demo)]
    assert chips and all(
        parts(d)[1] == str(sum(map(int, re.findall(r"\d", prompt(d))))) for d in chips
    )


def test_the_same_seed_gives_the_same_stream(stream):
    assert list(itertools.islice(demos(7), COUNT)) == stream
    assert list(itertools.islice(demos(8), 50)) != stream[:50]
