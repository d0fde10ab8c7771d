"""What a policy can do in games before self-play: legal moves, true remarks, chance-level skill."""

import random
import re
from typing import Any

import pandas as pd

from spnb.core.types import Chat, Sampling, derive_seed
from spnb.evaluate import matches
from spnb.evaluate.items import play_suite, share_row
from spnb.games import InvalidAction, Match, make_game
from spnb.games.base import messages, parse_action
from spnb.games.demonstrations import REMARKS
from spnb.games.negotiation import ACCEPT, CHAT, DENY, position
from spnb.games.players import TICTACTOE_GAMES, make_player, random_action
from spnb.games.questions import questions
from spnb.lab.pretrain.demos import GAME_SHARES
from spnb.train.engines.torch import TorchEngine

GAME_SAMPLING = Sampling(max_new_tokens=48)
CHANCE_OPTIMAL = 0.402
"""Share of optimal moves of uniformly random play on the 431 tic-tac-toe positions."""
COMPARE = {
    **{"legal moves": "bar 0.98", "short remark true": "", "full remark true": ""},
    **{"utility": "random play 0", "exploitability": "random play 0.458"},
    **{"optimal": f"random play {CHANCE_OPTIMAL}", "accuracy": ""},
}
"""The metrics of the games policy, and what to compare them with."""


def positions(name: str, count: int, seed: int) -> list[Match]:
    """Matches stopped somewhere in the middle of random play, a seat to move in each."""
    rng, game = random.Random(derive_seed(seed, name)), make_game(name)
    stopped: list[Match] = []
    while len(stopped) < count:
        match = game.match(rng.getrandbits(32))
        for _ in range(rng.randrange(8)):
            if match.player is not None:
                match.play(random_action(match, rng))
        if match.player is not None:
            stopped.append(match)
    return stopped


def answers(engine: TorchEngine, name: str, count: int, seed: int) -> list[tuple[Match, str]]:
    """One sampled answer (temperature 1) at each of `count` positions of random play."""
    chat, stopped = Chat(engine.tokenizer), positions(name, count, seed)
    requests = [
        chat.request(messages(match), GAME_SAMPLING, derive_seed(seed, place))
        for place, match in enumerate(stopped)
    ]
    texts = [completion.text for completion in engine.generate(requests)]
    return list(zip(stopped, texts, strict=True))


def is_legal(match: Match, text: str) -> bool:
    """Whether an answer holds a move that the game takes; the match goes on with it if so.

    In negotiation any words are taken; there it must be an offer, a reply to one that is open, or a
    known line of chat.
    """
    action = parse_action(text, match.legal_actions())
    if action is None or (match.legal_actions() is None and not is_trade(action, match)):
        return False
    try:
        match.play(action)
    except InvalidAction:
        return False
    return True


def is_trade(action: str, match: Match) -> bool:
    """Whether a negotiation's action is an offer, a reply to an open one, or random play's chat."""
    if action in (ACCEPT, DENY):
        return position(match).offer is not None
    lines = [re.escape(line).replace(r"\{\}", r"\w+") for line in CHAT]
    return action.startswith("[Offer:") or any(re.fullmatch(line, action) for line in lines)


def remark_of(match: Match, text: str) -> tuple[str, bool]:
    """How full an answer's remark is (none, short, full), and if it is the true one by the word."""
    remark = text.split("\\boxed")[0].strip()
    if not remark:
        return "none", True
    full = re.match(r"Mine:", remark) or re.search(r"risks|worth|would|do not have", remark)
    return ("full" if full else "short"), remark == REMARKS[match.name](match, 2 if full else 1)


def report(model: Any, tokenizer: Any, count: int = 1000, seed: int = 0) -> pd.DataFrame:
    """Measures the games policy: legal moves, true remarks, skill, questions near the games.

    Columns: suite (a game, or transfer), metric, difficulty, value, low, high (95 %), n, compare.
    """
    engine, chat = TorchEngine(model, tokenizer), Chat(tokenizer)
    players = make_player("policy", chat, GAME_SAMPLING), make_player("random")
    rows, measures = [], []
    for name in GAME_SHARES:
        replies, game = answers(engine, name, count, seed), make_game(name)
        for detail in ("short", "full") if name in REMARKS else ():
            remarks = [remark_of(*answer) for answer in replies]
            hits = [true for other, true in remarks if other == detail]
            rows.append(share_row(name, f"{detail} remark true", hits))
        rows.append(share_row(name, "legal moves", [is_legal(*answer) for answer in replies]))
        measures.append(matches.match_suite(game, *players, count, seed, "random"))
        if name in TICTACTOE_GAMES:
            measures.append(matches.tictactoe_suite(game, chat, GAME_SAMPLING, 1, seed))
    measures.append(matches.kuhn_suite(chat, GAME_SAMPLING, max(2, count // 12), seed))
    items = questions(max(count, 8), derive_seed("transfer suite"))
    measures.append(matches.question_suite(chat, GAME_SAMPLING, items, seed))
    for suite in measures:
        rows += play_suite(suite, {"policy": engine})[1]
    table = pd.DataFrame(rows).sort_values("suite", kind="stable", ignore_index=True)
    table["compare"] = table.metric.map(COMPARE)
    columns = ["suite", "metric", "difficulty", "value", "low", "high", "n", "compare"]
    return table.loc[table["compare"].notna(), columns]
