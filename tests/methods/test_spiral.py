"""SPIRAL against values worked out by hand: loss rows, the four baselines, the draw of turns,
opponents, evaluation."""

import itertools
import random
import re
from collections import Counter, defaultdict

import pytest

from spnb.core.episodes import run
from spnb.core.params import ParamError, validate
from spnb.core.types import Completion, Request, Sample, Sampling, derive_seed
from spnb.games import make_game
from spnb.games.play import Transcript, Turn
from spnb.methods import method_module
from spnb.methods.spiral import Method, Params, fixed_player
from spnb.train.runs import EVAL_KEYS, METRICS

IDENTITY = {"paper": "spiral", "scale": "smoke", "variant": "test", "seed": 0}
DRAWN_MATCH = "012435768"  # x takes 0, 2, 3, 7, 8 and o takes 1, 4, 5, 6: no line


class CharTokenizer:
    """One token per character."""

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        return messages[-1]["content"]

    def __call__(self, text, add_special_tokens):
        return {"input_ids": [ord(char) for char in text]}


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


def method(**values):
    return Method(
        Params(**{**IDENTITY, "games": ["kuhn_poker", "tic_tac_toe"], **values}), CharTokenizer()
    )


def collect(choose, steps=1, rank=0, **values):
    """The rows of some steps of a new method."""
    fresh = method(**values)
    return [fresh.collect({"policy": MoveEngine(choose)}, step, rank) for step in range(steps)]


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
    assert spiral.advantages([sample(*row) for row in MATCHES]) == pytest.approx(
        expected, abs=1e-12
    )
    assert spiral.advantages([sample(*row) for row in THE_NEXT]) == pytest.approx(
        afterwards, abs=1e-12
    )


def test_defaults_are_the_papers_and_others_are_refused():
    params = Params(**IDENTITY)
    assert (params.baseline, params.ema_decay, params.turns_per_step, params.inner_epochs) == (
        "role_ema",
        0.95,
        128,
        2,
    )
    assert (params.opponent, params.reward) == ("self", "outcome")
    with pytest.raises(
        ParamError, match="baseline is 'mean'; allowed: 'role_ema', 'global_ema', 'batch_mean' or"
    ):
        validate(Params, IDENTITY | {"baseline": "mean"})
    with pytest.raises(
        ParamError, match="turns_per_step is 0; allowed: greater than or equal to 1"
    ):
        validate(Params, IDENTITY | {"turns_per_step": 0})
    with pytest.raises(
        ParamError, match="paper is 'spirals', which is unknown; did you mean 'spiral'"
    ):
        method_module("spirals")


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


def test_the_draw_is_fixed_by_run_seed_step_and_rank():
    settings = dict(turns_per_step=16)
    (first, second), again = collect(at_random, 2, **settings), collect(at_random, 2, **settings)
    assert [first, second] == again
    (other_rank,), (other_seed,) = (
        collect(at_random, rank=1, **settings),
        collect(at_random, seed=1, **settings),
    )
    matches = [{row.group for row in rows} for rows in (first, second, other_rank, other_seed)]
    assert all(not a & b for a, b in itertools.combinations(matches, 2))


def test_matches_shorter_than_expected_are_topped_up_in_waves():
    """A forfeit is a match of one turn where two were expected: 4 matches, then 2, 1 and 1 make 8
    turns.

    Seat 0 gets -1.5 in every match, so the advantage of match k is -1.5 * 0.95^k. The next step
    starts 8 at once.
    """
    spiral, engine = method(games=["kuhn_poker"], turns_per_step=8), MoveEngine(never_legal)
    rows = spiral.collect({"policy": engine}, 0)
    assert engine.batches == [4, 2, 1, 1]
    assert len({row.group for row in rows}) == 8 and all(
        row.invalid and row.role == K0 for row in rows
    )
    assert sorted(row.advantage for row in rows) == pytest.approx(
        [-1.5 * 0.95**k for k in range(8)]
    )
    rows = spiral.collect({"policy": engine}, 1)
    assert engine.batches == [4, 2, 1, 1, 8]
    assert sorted(row.advantage for row in rows) == pytest.approx(
        [-1.5 * 0.95**k for k in range(8, 16)]
    )


def test_after_four_waves_a_step_goes_on_with_what_there_is():
    spiral, engine = method(games=["kuhn_poker"], turns_per_step=32), MoveEngine(never_legal)
    assert len(spiral.collect({"policy": engine}, 0)) == 30
    assert engine.batches == [16, 8, 4, 2]
    assert len(spiral.collect({"policy": engine}, 1)) == 32


def test_turns_without_an_advantage_are_never_rows():
    assert collect(drawing, games=["tic_tac_toe"], turns_per_step=8) == [[]]
    rows = collect(at_random, games=["tic_tac_toe"], baseline="none", turns_per_step=64)[0]
    assert len(rows) == 64 and {row.reward for row in rows} == {row.advantage for row in rows} == {
        1,
        -1,
    }


def test_a_restored_method_goes_on_as_if_it_had_never_stopped():
    policy = {"policy": MoveEngine(at_random)}
    straight, resumed = method(turns_per_step=16), method(turns_per_step=16)
    for step in range(2):
        straight.collect(policy, step)
    state = straight.state_dict()
    expected, fresh = straight.collect(policy, 2), method(turns_per_step=16).collect(policy, 2)
    resumed.load_state_dict(state)
    assert resumed.collect(policy, 2) == expected != fresh
    assert resumed.state_dict() == straight.state_dict() != state


def test_numbers_of_a_rollout():
    spiral = method(games=["kuhn_poker", "tic_tac_toe"], turns_per_step=16)
    spiral.collect(
        {
            "policy": MoveEngine(
                lambda p, legal, r: drawing(p, legal, r) if len(legal) > 2 else "none"
            )
        },
        0,
    )
    found = spiral.metrics()
    # Poker ends at the first answer; tic-tac-toe at the eighth, which seat 1 gives with two cells
    # free.
    assert {key: found[f"method/{key}/kuhn_poker"] for key in ("moves", "forfeits", "seat0_wins")} == {
        "moves": 1, "forfeits": 1, "seat0_wins": 0,
    }  # fmt: skip
    assert (found["method/moves/tic_tac_toe"], found["method/forfeits/tic_tac_toe"]) == (8, 1)
    # 8 turns of poker take 4 + 2 + 1 + 1 matches; 8 of tic-tac-toe are there with the first wave's
    # 4.
    assert (found["method/matches/kuhn_poker"], found["method/matches/tic_tac_toe"]) == (8, 4)
    assert found["method/baseline/kuhn_poker/0"] == pytest.approx(-1.5 * (1 - 0.95**8))
    assert found["method/baseline/tic_tac_toe/0"] == pytest.approx(1.5 * (1 - 0.95**4))
    assert found["method/baseline/tic_tac_toe/1"] == pytest.approx(-1.5 * (1 - 0.95**4))
    assert "method/<name>" in METRICS and all(key.startswith("method/") for key in found)


def test_draws_and_wins_are_counted_among_matches_that_were_played_out():
    spiral = method(games=["tic_tac_toe"], turns_per_step=8)
    spiral.collect({"policy": MoveEngine(drawing)}, 0)
    found = spiral.metrics()
    assert (found["method/draws/tic_tac_toe"], found["method/seat0_wins/tic_tac_toe"]) == (1, 0)
    spiral.collect(
        {"policy": MoveEngine(last_move)}, 1
    )  # 8 7 6 5 4 3 2: seat 0 has 8, 6, 4 and with 2 a diagonal
    found = spiral.metrics()
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
        transcript = run(spiral.episode(game, 3, learner), {"policy": MoveEngine(at_random)})
        assert {turn.seat for turn in transcript.turns if turn.request is not None} == {learner}
        assert {turn.seat for turn in transcript.turns if turn.request is None} == {1 - learner}


def test_a_game_without_an_expert_is_refused_by_name():
    message = "opponent is 'expert', which game 'KuhnPoker-v0' has not; games with one: kuhn_poker, .*, tic_tac_toe, TicTac"
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


def evaluated(choose, step=0, past=False, **values):
    """Rows and engines of one evaluation."""
    engines = {"policy": MoveEngine(choose)} | ({"past": MoveEngine(at_random)} if past else {})
    return method(**{**SMALL, **values}).evaluate(engines, step), engines


@pytest.fixture(scope="module")
def first():
    """An evaluation at step 0, without a past self."""
    return evaluated(last_move)


@pytest.fixture(scope="module")
def later():
    """An evaluation at step 7, with a past self."""
    return evaluated(last_move, step=7, past=True)


def test_evaluation_rows_have_the_runs_keys_and_step(first, later):
    for (rows, _), step in ((first, 0), (later, 7)):
        assert all(set(row) == set(EVAL_KEYS) and row["step"] == step for row in rows)
        keys = [(row["evaluation"], row["metric"]) for row in rows]
        assert len(set(keys)) == len(keys)


def test_a_past_self_is_met_only_where_there_is_one(first, later):
    games, seats = ("kuhn_poker", "tic_tac_toe"), ("", ", seat 0", ", seat 1")
    fixed = {
        f"{game} vs {name}{seat}"
        for game in games
        for name in ("random", "expert")
        for seat in seats
    }
    fixed |= {*games, "transfer"}
    past = {f"{game} vs past{seat}" for game in games for seat in seats}
    assert {row["evaluation"] for row in first[0]} == fixed
    assert {row["evaluation"] for row in later[0]} == fixed | past
    asked = later[1]["past"].requests
    assert asked and {request.engine for request in asked} == {"past"}


def test_deals_and_seeds_are_the_same_at_every_step(first, later):
    kept = [{**row, "step": 0} for row in later[0] if " vs past" not in row["evaluation"]]
    assert kept == first[0]


def test_matches_are_sampled_as_in_the_paper_and_exact_measures_from_the_policy_itself(first):
    samplings = Counter(request.sampling for request in first[1]["policy"].requests)
    assert set(samplings) == {Sampling(64, 0.6, 0.95), Sampling(64)}
    assert samplings[Sampling(64)] == 12 * SMALL["eval_samples"] + 431


def test_always_betting_and_calling_is_exploited_for_a_third_of_a_chip(first):
    """The best response folds the jack (-1), and wins 2 with the king and nothing on average with
    the queen.

    That is (2 + 0 - 1) / 3 a hand in either seat.
    """
    rows = {row["metric"]: row for row in first[0] if row["evaluation"] == "kuhn_poker"}
    assert set(rows) == {"legality", "exploitability", "best_response_seat0", "best_response_seat1"}
    for metric in ("exploitability", "best_response_seat0", "best_response_seat1"):
        assert rows[metric]["value"] == pytest.approx(1 / 3, abs=1e-12) and rows[metric]["n"] == 2
    assert rows["exploitability"]["low"] == rows["exploitability"]["high"] == pytest.approx(1 / 3)
    assert rows["legality"]["value"] == 1


def test_results_and_questions_of_an_evaluation(first):
    value = {(row["evaluation"], row["metric"]): (row["value"], row["n"]) for row in first[0]}
    assert value["kuhn_poker vs random", "invalid"] == (0, 6)
    assert value["kuhn_poker vs random, seat 1", "win"][1] == 3
    assert value["tic_tac_toe vs expert", "win"] == (0, 6)
    assert value["tic_tac_toe", "legality"] == (1, 1)
    assert {metric for name, metric in value if name == "transfer"} == {
        "all",
        "line",
        "card",
        "chips",
        "count",
    }


def test_games_without_expert_or_exact_measure_and_no_questions():
    rows, _ = evaluated(at_random, games=["KuhnPoker-v0-short"], eval_questions=0, eval_matches=2)
    assert {row["evaluation"].split(",")[0] for row in rows} == {"KuhnPoker-v0-short vs random"}


def test_games_outside_of_training_are_measured_at_the_start_and_the_end():
    values = dict(
        games=["tic_tac_toe"],
        eval_games=["kuhn_poker", "tic_tac_toe", "Snake-v0"],
        eval_questions=0,
        steps=4,
    )
    found = {}
    for step in (0, 2, 4):
        rows, engines = evaluated(at_random, step=step, past=step > 0, eval_matches=2, **values)
        found[step] = {row["evaluation"] for row in rows if "seat" not in row["evaluation"]}
    trained = {"tic_tac_toe", "tic_tac_toe vs random", "tic_tac_toe vs expert"}
    others = {"kuhn_poker", "kuhn_poker vs random", "kuhn_poker vs expert", "Snake-v0 vs random"}
    assert found[0] == trained | others and found[2] == trained | {"tic_tac_toe vs past"}
    assert found[4] == trained | others | {"tic_tac_toe vs past"}


def test_benchmarks_of_the_document_world_are_measured_at_the_ends():
    rows, _ = evaluated(at_random, games=["kuhn_poker"], eval_matches=2, eval_benchmarks=["choice"])
    assert {row["metric"]: row["n"] for row in rows if row["evaluation"] == "benchmarks"} == {
        "choice": 8
    }
