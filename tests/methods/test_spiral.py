"""SPIRAL against values worked out by hand: loss rows, the four baselines, the draw of turns,
opponents, evaluation."""

import itertools
import json
import random
import re
import subprocess
import sys
from collections import Counter, defaultdict

import pytest
from fakes import CharTokenizer

from spnb.core.episodes import run
from spnb.core.method import Share
from spnb.core.params import SCALES, ParamError, scale_values, validate, variants
from spnb.core.types import Completion, Request, Sample, Sampling, derive_seed
from spnb.evaluate.items import play_suite
from spnb.games import make_game
from spnb.games.players import Transcript, Turn, fixed_player
from spnb.lab import ladder
from spnb.methods import method_module
from spnb.methods import spiral as spiral_module
from spnb.methods.spiral import Method, Params, benchmark_tasks
from spnb.train.config import merge, params_class, variant_layers

DRAWN_MATCH = "012435768"  # x takes 0, 2, 3, 7, 8 and o takes 1, 4, 5, 6: no line


class MoveEngine:
    """Answers with the move that `choose(prompt, legal moves, rng)` names, boxed; keeps what it was
    asked."""

    def __init__(self, choose):
        self.choose, self.requests, self.batches = choose, [], []

    def generate(self, requests):
        self.requests += requests
        self.batches.append(len(requests))
        return [self.answer(request) for request in requests]

    def answer(self, request):
        prompt = "".join(map(chr, request.prompt_ids))
        listed = re.search(r"(?:Legal moves|Available Moves): (.*)", prompt)
        legal = re.findall(r"\w+", listed.group(1)) if listed else ["0"]  # a question has no moves
        text = rf"\boxed{{{self.choose(prompt, legal, random.Random(request.seed))}}}"
        return Completion(tuple(map(ord, text)), (-1.0,) * len(text), text, "stop")


def at_random(prompt, legal, rng):
    return rng.choice(legal)


def last_move(prompt, legal, rng):
    """Bet or call in Kuhn poker, the highest free cell in tic-tac-toe."""
    return legal[-1]


def never_legal(prompt, legal, rng):
    return "none"


def drawing(prompt, legal, rng):
    return DRAWN_MATCH[9 - len(legal)]


def method(share=None, **values):
    fresh = Method(Params(**{"games": ["kuhn_poker", "tic_tac_toe"], **values}), CharTokenizer())
    fresh.share = share or Share()
    return fresh


def step_of(spiral, engine, step=0):
    """All rows of one step of a method, as the trainer has them."""
    rows = run(spiral.rollout(step), engine if isinstance(engine, dict) else {"policy": engine})
    spiral.estimate(rows)
    spiral.select(rows)
    return rows


def trained(rows):
    return [row for row in rows if row.weight]


def collect(choose, steps=1, share=None, **values):
    """The trained rows of some steps of a new method."""
    fresh = method(share, **values)
    return [trained(step_of(fresh, MoveEngine(choose), step)) for step in range(steps)]


# Rows of a match


def turn(seat, action, ids=(1, 2, 3), finish="stop"):
    text = rf"\boxed{{{action}}}" if action else "well"
    request = Request((7, 8, seat), Sampling(8), seed=1)
    return Turn(seat, request, Completion(ids, tuple(-0.1 * i for i in ids), text, finish), action)


def test_a_match_becomes_one_row_a_turn_of_the_policy():
    turns = [
        turn(0, "4"),
        turn(1, "0", ids=(9,)),
        Turn(0, None, None, "8"),
        turn(1, None, (5, 6), "length"),
    ]
    rows = method().samples(Transcript("tic_tac_toe", 42, turns, (1.5, -1.5), invalid_seat=1))
    assert [row.reward for row in rows] == [1.5, -1.5, -1.5]
    assert [row.role for row in rows] == [
        ("tic_tac_toe", 0),
        ("tic_tac_toe", 1),
        ("tic_tac_toe", 1),
    ]
    assert [row.group for row in rows] == [42, 42, 42]
    assert [row.invalid for row in rows] == [False, False, True]
    assert [row.truncated for row in rows] == [False, False, True]
    assert [row.prompt_ids for row in rows] == [(7, 8, 0), (7, 8, 1), (7, 8, 1)]
    assert [row.completion_ids for row in rows] == [(1, 2, 3), (9,), (5, 6)]
    assert [row.mask for row in rows] == [(1, 1, 1), (1,), (1, 1)]
    assert rows[2].logps == (-0.5, -0.6000000000000001)
    assert [row.info["action"] for row in rows] == ["4", "0", None]
    assert [row.info["text"] for row in rows] == [r"\boxed{4}", r"\boxed{0}", "well"]


# Baselines


def sample(match, role, reward):
    return Sample((1,), (2,), (1,), None, reward=reward, role=role, group=match)


K0, K1, T0, T1 = ("kuhn_poker", 0), ("kuhn_poker", 1), ("tic_tac_toe", 0), ("tic_tac_toe", 1)
MATCHES = [
    (1, K0, 1.0),
    (1, K1, -1.0),
    (1, K0, 1.0),
    (2, K0, -0.5),
    (2, K1, 0.5),
    (3, T0, 0.0),
    (3, T1, 0.0),
]
THE_NEXT = [(4, K0, 1.0), (4, K1, -1.0)]


@pytest.mark.parametrize(
    ("baseline", "expected", "afterwards"),
    [
        # After match 1 the baselines are 0.1 and -0.1 (two turns of a seat count once): -0.5 - 0.1
        # and 0.5 + 0.1. After match 2 they are 0.9 * 0.1 - 0.1 * 0.5 = 0.04 and -0.04, so the next
        # match gives 0.96 and -0.96.
        ("role_ema", [1, -1, 1, -0.6, 0.6, 0, 0], [0.96, -0.96]),
        # One baseline, moved by each seat of each match: 0, 0.1, -0.01, -0.059, -0.0031, -0.00279,
        # then -0.002511.
        ("global_ema", [1, -1.1, 1, -0.49, 0.559, 0.0031, 0.00279], [1.002511, -1.0 - 0.0977401]),
        # Means over turns: seat 0 of poker (1 + 1 - 0.5) / 3 = 0.5, seat 1 (-1 + 0.5) / 2 = -0.25;
        # no memory.
        ("batch_mean", [0.5, -0.75, 0.5, -1, 0.75, 0, 0], [0, 0]),
        ("none", [1, -1, 1, -0.5, 0.5, 0, 0], [1, -1]),
    ],
)
def test_the_baselines_give_the_values_worked_out_by_hand(baseline, expected, afterwards):
    spiral = method(baseline=baseline, ema_decay=0.9)
    for matches, values in ((MATCHES, expected), (THE_NEXT, afterwards)):
        rows = [sample(*row) for row in matches]
        spiral.compare(rows)
        assert [row.advantage for row in rows] == pytest.approx(values, abs=1e-12)


def test_defaults_are_the_papers_and_others_are_refused():
    params = Params()
    assert (params.baseline, params.ema_decay, params.turns_per_step) == ("role_ema", 0.95, 128)
    assert (params.opponent, params.reward) == ("self", "outcome")
    with pytest.raises(
        ParamError, match="baseline is 'mean'; allowed: 'role_ema', 'global_ema', 'batch_mean' or"
    ):
        validate(Params, {"baseline": "mean"})
    with pytest.raises(
        ParamError, match="turns_per_step is 0; allowed: greater than or equal to 1"
    ):
        validate(Params, {"turns_per_step": 0})
    with pytest.raises(
        ParamError, match="paper is 'spirals', which is unknown; did you mean 'spiral'"
    ):
        method_module("spirals")


def test_the_batchs_mean_is_that_of_all_rounds():
    """A round alone has another mean: seat 0 forfeits in some rounds and wins in others."""
    spiral = method(games=["kuhn_poker"], turns_per_step=24, baseline="batch_mean")
    engine = MoveEngine(lambda prompt, legal, rng: rng.choice([*legal, "none"]))
    rows = step_of(spiral, engine)
    assert len(engine.batches) > 3
    for role in {row.role for row in rows}:
        own = [row for row in rows if row.role == role]
        mean = sum(row.reward for row in own) / len(own)
        assert [row.advantage for row in own] == pytest.approx([row.reward - mean for row in own])
    assert len(trained(rows)) == 24


def test_the_players_estimator_is_a_role_like_any_other():
    spiral = method(roles={"player": {"estimator": "group_mean", "temperature": 0.5}})
    rows = [sample(1, K0, 1.0), sample(1, K0, 0.0)]
    spiral.compare(rows)
    assert [row.advantage for row in rows] == [0.5, -0.5]
    engine = MoveEngine(at_random)
    step_of(spiral, engine)
    assert {request.sampling.temperature for request in engine.requests} == {0.5}
    named = method(ema_decay=0.5, roles={"player": {"estimator": "role_ema"}})
    assert named.roles["player"].estimator.decay == 0.5


# The draw of a step's turns


@pytest.mark.parametrize(("turns", "each"), [(64, 32), (7, 3), (1, 1)])
def test_every_game_gets_exactly_its_share_and_no_turn_twice(turns, each):
    for rows in collect(at_random, steps=3, turns_per_step=turns):
        assert Counter(row.role[0] for row in rows) == {"kuhn_poker": each, "tic_tac_toe": each}
        assert all(row.advantage != 0 for row in rows)
        assert len({(row.group, row.prompt_ids) for row in rows}) == len(rows)


def test_textarenas_tictactoe_gets_its_share_too():
    (rows,) = collect(at_random, games=["kuhn_poker", "TicTacToe-v0"], turns_per_step=32)
    assert Counter(row.role[0] for row in rows) == {"kuhn_poker": 16, "TicTacToe-v0": 16}


def test_in_self_play_both_seats_of_a_match_are_trained_on():
    (rows,) = collect(at_random, turns_per_step=64)
    rewards = defaultdict(dict)
    for row in rows:
        rewards[row.group][row.role[1]] = row.reward
    both = [seats for seats in rewards.values() if len(seats) == 2]
    assert len(both) > 10 and all(seats[0] == -seats[1] for seats in both)


def test_every_turn_is_a_row_and_those_that_are_drawn_come_first():
    rows = step_of(method(turns_per_step=16), MoveEngine(at_random))
    weights = [row.weight for row in rows]
    assert weights == [1.0] * 16 + [0.0] * (len(rows) - 16) and len(rows) > 20
    assert [row.role[0] for row in rows[:16]] == ["kuhn_poker"] * 8 + ["tic_tac_toe"] * 8
    assert all(row.advantage is not None and row.policy == "policy" for row in rows)


def test_a_steps_turns_are_shared_by_the_processes():
    shares = [Share(rank, 3) for rank in range(3)]
    steps = [collect(at_random, share=share, turns_per_step=32)[0] for share in shares]
    assert [len(rows) for rows in steps] == [12, 10, 10]
    groups = [{row.group for row in rows} for rows in steps]
    assert all(not a & b for a, b in itertools.combinations(groups, 2))


def test_the_draw_is_fixed_by_run_seed_step_and_rank():
    settings = dict(turns_per_step=16)
    (first, second), again = collect(at_random, 2, **settings), collect(at_random, 2, **settings)
    assert [first, second] == again
    (other_rank,), (other_seed,) = (
        collect(at_random, share=Share(1, 1), **settings),
        collect(at_random, seed=1, **settings),
    )
    matches = [{row.group for row in rows} for rows in (first, second, other_rank, other_seed)]
    assert all(not a & b for a, b in itertools.combinations(matches, 2))


def test_matches_shorter_than_expected_are_topped_up_in_rounds():
    """A forfeit is a match of one turn where two were expected: 4 matches, then 2, 1 and 1 make 8
    turns.

    Seat 0 gets -1.5 in every match, so the advantage of match k is -1.5 * 0.95^k. The next step
    starts 8 at once.
    """
    spiral, engine = method(games=["kuhn_poker"], turns_per_step=8), MoveEngine(never_legal)
    rows = trained(step_of(spiral, engine))
    assert engine.batches == [4, 2, 1, 1]
    assert len({row.group for row in rows}) == 8 and all(
        row.invalid and row.role == K0 for row in rows
    )
    assert sorted(row.advantage for row in rows) == pytest.approx(
        [-1.5 * 0.95**k for k in range(8)]
    )
    rows = trained(step_of(spiral, engine, 1))
    assert engine.batches == [4, 2, 1, 1, 8]
    assert sorted(row.advantage for row in rows) == pytest.approx(
        [-1.5 * 0.95**k for k in range(8, 16)]
    )


def test_after_four_rounds_a_step_goes_on_with_what_there_is():
    spiral, engine = method(games=["kuhn_poker"], turns_per_step=32), MoveEngine(never_legal)
    assert len(trained(step_of(spiral, engine))) == 30
    assert engine.batches == [16, 8, 4, 2]
    assert len(trained(step_of(spiral, engine, 1))) == 32


def test_turns_without_an_advantage_are_never_trained():
    assert collect(drawing, games=["tic_tac_toe"], turns_per_step=8) == [[]]
    rows = collect(at_random, games=["tic_tac_toe"], baseline="none", turns_per_step=64)[0]
    assert len(rows) == 64 and {row.reward for row in rows} == {row.advantage for row in rows} == {
        1,
        -1,
    }


def test_a_restored_method_goes_on_as_if_it_had_never_stopped():
    engine = MoveEngine(at_random)
    straight, resumed = method(turns_per_step=16), method(turns_per_step=16)
    for step in range(2):
        step_of(straight, engine, step)
    state = json.loads(json.dumps(straight.state_dict()))
    expected = step_of(straight, engine, 2)
    assert expected != step_of(method(turns_per_step=16), engine, 2)
    resumed.load_state_dict(state)
    assert step_of(resumed, engine, 2) == expected
    assert resumed.state_dict() == straight.state_dict() != state


def test_numbers_of_a_rollout():
    spiral = method(games=["kuhn_poker", "tic_tac_toe"], turns_per_step=16)
    engine = MoveEngine(
        lambda prompt, legal, rng: drawing(prompt, legal, rng) if len(legal) > 2 else "none"
    )
    step_of(spiral, engine)
    found = spiral.metrics
    # Poker ends at the first answer; tic-tac-toe at the eighth, which seat 1 gives with two cells
    # free.
    shares = [found[f"method/{key}/kuhn_poker"] for key in ("moves", "forfeits", "seat0_wins")]
    assert shares == [1, 1, 0]
    assert (found["method/moves/tic_tac_toe"], found["method/forfeits/tic_tac_toe"]) == (8, 1)
    # 8 turns of poker take 4 + 2 + 1 + 1 matches; 8 of tic-tac-toe are there with the first wave's
    # 4.
    assert (found["method/matches/kuhn_poker"], found["method/matches/tic_tac_toe"]) == (8, 4)
    assert found["method/baseline/kuhn_poker/0"] == pytest.approx(-1.5 * (1 - 0.95**8))
    assert found["method/baseline/tic_tac_toe/0"] == pytest.approx(1.5 * (1 - 0.95**4))
    assert found["method/baseline/tic_tac_toe/1"] == pytest.approx(-1.5 * (1 - 0.95**4))
    assert all(key.startswith("method/") for key in found)


def test_draws_and_wins_are_counted_among_matches_that_were_played_out():
    spiral = method(games=["tic_tac_toe"], turns_per_step=8)
    step_of(spiral, MoveEngine(drawing))
    found = spiral.metrics
    assert (found["method/draws/tic_tac_toe"], found["method/seat0_wins/tic_tac_toe"]) == (1, 0)
    # 8 7 6 5 4 3 2: seat 0 has 8, 6, 4 and with 2 a diagonal.
    step_of(spiral, MoveEngine(last_move), 1)
    found = spiral.metrics
    assert (found["method/draws/tic_tac_toe"], found["method/seat0_wins/tic_tac_toe"]) == (0, 1)
    assert (found["method/moves/tic_tac_toe"], found["method/forfeits/tic_tac_toe"]) == (7, 0)


# Fixed opponents


@pytest.mark.parametrize("opponent", ["random", "expert"])
def test_against_a_fixed_opponent_only_the_learners_turns_are_rows(opponent):
    steps = collect(at_random, steps=4, opponent=opponent, turns_per_step=32)
    for rows in steps:
        games = Counter(row.role[0] for row in rows)
        assert set(games) == {"kuhn_poker", "tic_tac_toe"} and max(games.values()) <= 16
        seats = defaultdict(set)
        for row in rows:
            seats[row.group].add(row.role[1])
        assert all(len(own) == 1 for own in seats.values())
        assert {row.role for row in rows} == {K0, K1, T0, T1}
    tictactoe = {row.reward for rows in steps for row in rows if row.role[0] == "tic_tac_toe"}
    assert max(tictactoe) == (1 if opponent == "random" else 0)  # nobody wins against minimax


@pytest.mark.parametrize(
    ("opponent", "learner"), [("random", 0), ("random", 1), ("expert", 0), ("expert", 1)]
)
def test_the_learner_sits_where_it_is_put(opponent, learner):
    spiral = method(opponent=opponent)
    for game in spiral.games:
        transcript = run(spiral.match(game, 3, learner), {"policy": MoveEngine(at_random)})
        assert {turn.seat for turn in transcript.turns if turn.request is not None} == {learner}
        assert {turn.seat for turn in transcript.turns if turn.request is None} == {1 - learner}


def test_another_policy_in_the_other_seat_is_asked_and_not_trained():
    roles = {"opponent": {"policy": "rival", "temperature": 0.25}}
    spiral = method(opponent="policy", roles=roles, turns_per_step=32)
    engines = {"policy": MoveEngine(at_random), "rival": MoveEngine(last_move)}
    rows = step_of(spiral, engines)
    assert {request.sampling.temperature for request in engines["rival"].requests} == {0.25}
    assert {row.policy for row in rows} == {"policy"}
    seats = defaultdict(set)
    for row in rows:
        seats[row.group].add(row.role[1])
    assert all(len(own) == 1 for own in seats.values())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (dict(opponent="policy"), "opponent is 'policy' with roles.opponent.policy None"),
        (
            dict(roles={"opponent": {"policy": "rival"}}),
            "opponent is 'self' with roles.opponent.policy 'rival'; allowed: policy and a name",
        ),
        (dict(roles={"judge": {}}), "role is 'judge', which is unknown.*opponent, player, quest"),
        (dict(games=["tic_tac_toe", "tic_tac_toe"]), "games is .*; allowed: each game once"),
        (dict(eval_games=["pong"]), "game is 'pong'"),
        (dict(eval_benchmarks=["raeding-1"]), "eval_benchmarks.0 is 'raeding-1'"),
        (
            dict(eval_benchmarks=["choice"], eval_questions=0),
            "eval_questions is 0 with eval_benchmarks .*; allowed: 1 or more",
        ),
        (
            dict(phases=["play"] * 3, steps=2),
            "phases is .* with steps 2; allowed: at most one a step",
        ),
        (
            dict(phases=["imitate"], grpo={"num_iterations": 2}),
            "grpo.num_iterations 2, engine .*; allowed: imitate with 1 and torch",
        ),
        (
            dict(phases=["play", "answer"], reward="random"),
            "reward is 'random' with phases .*; allowed: random with phases of play alone",
        ),
        (
            dict(games=["ConnectFour-v0"], opponent="random"),
            "opponent is 'random' with games .*; allowed: random in games with listed moves",
        ),
        (dict(phases=["dream"]), "phases"),
        (dict(roles={"player": {"trainable": False}}), "allowed: a role that learns in each"),
        (
            dict(phases=["answer"], roles={"questions": {"policy": "start"}}),
            "with phases .'answer'.; allowed: a role that learns in each phase",
        ),
        (
            dict(phases=["imitate"], games=["connect_four"]),
            "'expert', which game 'connect_four' has not",
        ),
    ],
)
def test_what_does_not_fit_is_refused(values, message):
    with pytest.raises(ParamError, match=message):
        validate(Params, values)


def test_imitation_with_vllm_is_refused():
    values = dict(phases=["imitate"], engine="vllm", dtype="bfloat16", policy="embedded/games")
    values |= dict(paper="spiral", scale="gpu", variant="sft")
    with pytest.raises(
        ParamError, match="grpo.num_iterations .*, engine 'vllm'; allowed: imitate with 1"
    ):
        validate(params_class(Method), values)


def test_a_game_without_an_expert_is_refused_by_name():
    message = (
        "opponent is 'expert', which game 'KuhnPoker-v0' has not; "
        "games with one: kuhn_poker, .*, tic_tac_toe, TicTac"
    )
    with pytest.raises(ValueError, match=message):
        fixed_player("expert", make_game("KuhnPoker-v0"))
    with pytest.raises(ValueError, match=message):
        collect(at_random, games=["KuhnPoker-v0"], opponent="expert")


# The control of random rewards


def coins(count=4000, **values):
    """Rewards (seat 0, seat 1) of matches with two turns a seat; seat 0 wins the even ones, seat 1
    the odd ones."""
    spiral = method(reward="random", **values)
    turns = [turn(0, "4"), turn(1, "0"), turn(0, "3"), turn(1, "5")]
    for index in range(count):
        won = 1.0 if index % 2 == 0 else -1.0
        rows = spiral.samples(Transcript("tic_tac_toe", derive_seed(9, index), turns, (won, -won)))
        rewards = [row.reward for row in rows]
        assert rewards[0] == rewards[2] == -rewards[1] == -rewards[3]
        yield won, rewards[0]


def test_random_rewards_are_zero_sum_coins_that_do_not_know_who_won():
    drawn = list(coins())
    assert {reward for _, reward in drawn} == {1, -1}
    assert drawn == list(coins())
    for won in (
        1,
        -1,
    ):  # 2,000 matches each: 4 standard errors of a mean of +-1 are 4 / sqrt(2000) = 0.089
        rewards = [reward for winner, reward in drawn if winner == won]
        assert abs(sum(rewards) / len(rewards)) < 0.089


def test_random_rewards_keep_draws_and_sizes():
    spiral = method(reward="random")
    turns = [turn(0, "4"), turn(1, None)]
    for returns in ((0.0, 0.0), (1.5, -1.5), (-0.5, 0.5)):
        found = [
            spiral.samples(Transcript("tic_tac_toe", seed, turns, returns)) for seed in range(40)
        ]
        assert {row.reward for rows in found for row in rows} == {returns[0], returns[1]}


def test_random_rewards_in_training_are_the_coins_of_the_matches():
    (plain,), (control,) = (
        collect(at_random, reward=kind, turns_per_step=32) for kind in ("outcome", "random")
    )
    assert plain != control
    by_turn = {(row.group, row.prompt_ids): row.reward for row in plain}
    shared = [
        (by_turn[key], row.reward)
        for row in control
        if (key := (row.group, row.prompt_ids)) in by_turn
    ]
    assert {played == rewarded for played, rewarded in shared} == {True, False}
    assert all(abs(played) == abs(rewarded) for played, rewarded in shared)


# Evaluation

SMALL = dict(eval_matches=6, eval_samples=2, eval_questions=8)


def evaluated(choose, step=0, **values):
    """Rows and engines of one evaluation."""
    engines = {"policy": MoveEngine(choose), "past": MoveEngine(at_random)}
    spiral = method(**{**SMALL, **values})
    rows = [row for suite in spiral.suites(step) for row in play_suite(suite, engines)[1]]
    return rows, engines


def pairs(rows):
    """What was measured: suites, with the opponents met in them."""
    return {(row["suite"], row["opponent"]) for row in rows}


@pytest.fixture(scope="module")
def first():
    """An evaluation at step 0, without a past self."""
    return evaluated(last_move)


@pytest.fixture(scope="module")
def later():
    """An evaluation at step 7, with a past self."""
    return evaluated(last_move, step=7)


def test_no_two_rows_of_an_evaluation_measure_the_same(first, later):
    for rows, _ in (first, later):
        keys = [tuple(value for value in row.values() if isinstance(value, str)) for row in rows]
        assert len(set(keys)) == len(keys)


def test_a_past_self_is_met_only_where_there_is_one(first, later):
    games = ("kuhn_poker", "tic_tac_toe")
    fixed = {(game, name) for game in games for name in ("", "random", "expert")}
    fixed |= {("transfer", "")}
    assert pairs(first[0]) == fixed
    assert pairs(later[0]) == fixed | {(game, "past") for game in games}
    requests = later[1]["past"].requests
    assert requests and {request.policy for request in requests} == {"past"}
    assert not first[1]["past"].requests


def test_deals_and_seeds_are_the_same_at_every_step(first, later):
    assert [row for row in later[0] if row["opponent"] != "past"] == first[0]


def test_matches_are_sampled_as_in_the_paper_and_exact_measures_from_the_policy_itself(first):
    samplings = Counter(request.sampling for request in first[1]["policy"].requests)
    assert set(samplings) == {Sampling(64, 0.6, 0.95), Sampling(64)}
    assert samplings[Sampling(64)] == 12 * SMALL["eval_samples"] + 431


def test_always_betting_and_calling_is_exploited_for_a_third_of_a_chip(first):
    """The best response folds the jack (-1), and wins 2 with the king and nothing on average with
    the queen.

    That is (2 + 0 - 1) / 3 a hand in either seat.
    """
    rows = {
        (row["metric"], row["role"]): row
        for row in first[0]
        if (row["suite"], row["opponent"]) == ("kuhn_poker", "")
    }
    for key in (("exploitability", ""), ("best_response", "seat 0"), ("best_response", "seat 1")):
        assert rows[key]["value"] == pytest.approx(1 / 3, abs=1e-12)
    found = rows["exploitability", ""]
    assert found["low"] == found["high"] == pytest.approx(1 / 3)
    assert rows["legality", ""]["value"] == 1


def test_results_and_questions_of_an_evaluation(first):
    labels = ("suite", "opponent", "role", "difficulty", "metric")
    value = {tuple(row[key] for key in labels): (row["value"], row["n"]) for row in first[0]}
    assert value["kuhn_poker", "random", "", "", "invalid"] == (0, 6)
    assert value["kuhn_poker", "random", "seat 1", "", "win"][1] == 3
    assert value["tic_tac_toe", "expert", "", "", "win"] == (0, 6)
    assert value["tic_tac_toe", "", "", "", "legality"][0] == 1
    kinds = {key[3] for key in value if key[0] == "transfer" and key[4] == "accuracy"}
    assert kinds == {"", "line", "count"}


def test_games_without_expert_or_exact_measure_and_no_questions():
    rows, _ = evaluated(at_random, games=["KuhnPoker-v0-short"], eval_questions=0, eval_matches=2)
    assert pairs(rows) == {("KuhnPoker-v0-short", "random")}


def test_games_outside_of_training_are_measured_at_the_start_and_the_end():
    further = ["kuhn_poker", "tic_tac_toe", "Snake-v0"]
    spiral = method(games=["tic_tac_toe"], eval_games=further, eval_questions=0, steps=4)
    names = {step: Counter(suite.name for suite in spiral.suites(step)) for step in (0, 2, 4)}
    assert names[0] == {"tic_tac_toe": 3, "kuhn_poker": 3, "Snake-v0": 1}
    assert names[2] == {"tic_tac_toe": 4}
    assert names[4] == {"tic_tac_toe": 4, "kuhn_poker": 3, "Snake-v0": 1}


def test_more_matches_are_played_against_random_play_at_the_last_step_only():
    further = dict(games=["tic_tac_toe"], eval_games=["kuhn_poker"], eval_questions=0)
    spiral = method(**further, steps=4, eval_matches=6, final_matches=20)
    for step, played in ((0, {6}), (2, {6}), (4, {6, 20})):
        sizes = [(suite.name, len(suite.parts)) for suite in spiral.suites(step)]
        assert {n for name, n in sizes if name == "tic_tac_toe" and n < 400} == played
        assert {n for name, n in sizes if name == "kuhn_poker" and n < 300} <= {6}
    suites = spiral.suites(4)
    at_end = [
        play_suite(suite, {"policy": MoveEngine(last_move), "past": MoveEngine(last_move)})
        for suite in suites
        if suite.name == "tic_tac_toe"
    ]
    counts = {
        row["opponent"]: row["n"]
        for _, rows in at_end
        for row in rows
        if row["metric"] == "win" and not row["role"]
    }
    assert counts == {"past": 6, "expert": 6, "random": 20}


def test_benchmarks_of_the_ladder_are_measured_at_the_ends():
    values = dict(games=["kuhn_poker"], eval_matches=2, eval_benchmarks=["choice"], steps=4)
    rows, _ = evaluated(at_random, **values)
    labels = ("suite", "difficulty", "metric")
    counts = {tuple(row[key] for key in labels): row["n"] for row in rows}
    assert counts["choice", "", "grade"] == 8
    assert "choice" not in {suite.name for suite in method(**values).suites(2)}


# Parameter files


@pytest.mark.parametrize("paper", ["spiral", "rlvr", "proposer"])
@pytest.mark.parametrize("scale", SCALES)
def test_every_variant_is_valid_at_every_scale(paper, scale):
    """Two updates a rollout as in the paper, one at cpu; SFT has one and the torch engine."""
    model = params_class(method_module(paper).Method)
    for name, entry in variants(paper).items():
        values = merge(scale_values(paper, scale), variant_layers(entry, scale))
        for key in ("variants", "seeds", "jobs", "figures"):
            values.pop(key, None)
        values |= {"paper": paper, "scale": scale, "variant": name}
        params = validate(model, values)
        once = paper != "spiral" or "imitate" in params.phases or scale == "cpu"
        expected = 2 if name == "two-epochs" or not once else 1
        assert params.grpo["num_iterations"] == expected


@pytest.mark.slow
def test_a_plan_of_tested_games_does_without_the_slow_import_of_textarena():
    code = "import sys, spnb; spnb.make_plan('spiral'); sys.exit('textarena' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def prompts_of(name, **values):
    engine = MoveEngine(last_move)
    values |= dict(games=["kuhn_poker"], eval_questions=8, eval_benchmarks=["choice"])
    spiral = method(eval_matches=20, eval_samples=1, **values)
    for suite in spiral.suites(0):
        if suite.name == name:
            play_suite(suite, {"policy": engine})
    return ["".join(map(chr, r.prompt_ids)) for r in engine.requests]


@pytest.mark.parametrize("name", ["transfer", "choice"])
def test_another_draw_asks_other_questions(name):
    asked = prompts_of(name)
    assert len(asked) >= 8 and asked == prompts_of(name)
    assert not {*asked} & {*prompts_of(name, eval_draw="search")}


@pytest.mark.parametrize("estimator", ["group_mean", "group_zscore"])
def test_a_players_group_is_the_batch(estimator):
    rows = step_of(
        method(turns_per_step=16, roles={"player": {"estimator": estimator}}), MoveEngine(at_random)
    )
    assert trained(rows)


def test_the_turns_of_a_step_are_drawn_from_all_of_its_matches():
    """Four matches of tic-tac-toe have five to nine turns each: the first eight are of two."""
    (rows,) = collect(at_random, games=["tic_tac_toe"], baseline="none", turns_per_step=8)
    assert len(rows) == 8 and len({row.group for row in rows}) > 2


def test_the_learner_changes_seats_in_further_rounds_too():
    """Forfeits: rounds of four matches, two, one and one, each seat in turn."""
    spiral, seats = method(games=["kuhn_poker"], turns_per_step=8, opponent="random"), []
    play = spiral.match
    spiral.match = lambda game, seed, learner: seats.append(learner) or play(game, seed, learner)
    step_of(spiral, MoveEngine(never_legal))
    assert seats == [0, 1, 0, 1, 1, 0, 0, 1]


def test_processes_begin_with_either_seat_in_turn():
    """Against an opponent, where one match fills the quota."""
    for rank in range(4):
        values = {"opponent": "random", "games": ["tic_tac_toe"], "turns_per_step": 4}
        (row,) = collect(never_legal, share=Share(rank, 4), **values)[0]
        assert row.role[1] == rank % 2


def test_the_first_question_of_a_process_is_of_another_kind():
    kinds = []
    for rank in range(2):
        spiral = method(Share(rank, 2), phases=["answer"], turns_per_step=16)
        engine = MoveEngine(at_random)
        step_of(spiral, engine)
        kinds.append("complete a line" in "".join(map(chr, engine.requests[0].prompt_ids)))
    assert kinds[0] != kinds[1]


def test_the_draw_of_turns_has_a_seed_of_its_own_in_each_step_run_and_process(monkeypatch):
    drawn = []
    derive = spiral_module.derive_seed

    def noted(*labels):
        drawn.extend([derive(*labels)] if "draw" in labels else [])
        return derive(*labels)

    monkeypatch.setattr(spiral_module, "derive_seed", noted)
    for share, values in ((Share(), {}), (Share(1, 2), {}), (Share(), {"seed": 1})):
        collect(at_random, 2, share, turns_per_step=8, **values)
    assert len(drawn) == 6 == len({*drawn})


@pytest.mark.parametrize("baseline", ["none", "batch_mean", "global_ema"])
def test_a_baseline_and_an_estimator_contradict_each_other(baseline):
    values = {"baseline": baseline, "roles": {"player": {"estimator": "role_ema"}}}
    allowed = "allowed: role_ema where the role has an estimator"
    with pytest.raises(ParamError, match=f"baseline is '{baseline}' with roles.player.* {allowed}"):
        validate(Params, values)


@pytest.mark.parametrize("other", [{"seed": 1}, {"eval_draw": "search"}])
def test_matches_of_an_evaluation_are_dealt_anew_in_each_run_and_draw(other):
    """A bootstrap over seeds takes them for other matches."""
    deals = []
    for values in ({}, other):
        _, engines = evaluated(at_random, games=["kuhn_poker"], eval_questions=0, **values)
        deals.append({request.seed for request in engines["policy"].requests})
    assert deals[0] and not deals[0] & deals[1]


def test_a_benchmark_has_held_out_names_and_four_levels_in_turn():
    tasks, others = (benchmark_tasks("journey", 12, CharTokenizer(), draw) for draw in ("", "x"))
    assert [task.info["level"] for task in tasks] == [1, 2, 3, 4] * 3
    known = {*ladder.names("person", "train"), *ladder.names("town", "train")}
    for task in tasks:
        assert not known & set(re.findall(r"\w+", task.messages[0]["content"]))
    assert [task.question for task in tasks] != [task.question for task in others]


def test_the_second_seat_wins():
    spiral = method(games=["tic_tac_toe"])
    transcript = Transcript("tic_tac_toe", 1, [turn(0, "0"), turn(1, "4")], (-1.0, 1.0))
    rows = spiral.samples(transcript)
    spiral.note([transcript], rows)
    keys = ("seat0_wins", "seat1_wins", "draws")
    found = [spiral.metrics[f"method/{key}/tic_tac_toe"] for key in keys]
    assert found == [0, 1, 0]
