"""What the embedded policy can do before any self-play: legal moves, chance-level skill, true
remarks, questions."""

import random
import re
from typing import Any

import pandas as pd

from spnb.core.stats import mean_interval, share_interval
from spnb.core.types import Chat, Sampling, derive_seed
from spnb.evaluate import matches
from spnb.games import InvalidAction, Match, make_game
from spnb.games.negotiation import ACCEPT, CHAT, DENY, Position, position
from spnb.games.play import TICTACTOE_GAMES, PolicyPlayer, make_player, random_action
from spnb.games.questions import questions
from spnb.games.text import messages, parse_action
from spnb.recipe.demos import GAME_SHARES, KUHN, REMARKS
from spnb.train.engines.torch import TorchEngine

SAMPLING = Sampling(max_new_tokens=48)
CHANCE_OPTIMAL = 0.402
"""Share of optimal moves of uniformly random play on the 431 tic-tac-toe positions."""


def is_legal(match: Match, text: str) -> bool:
    """Whether an answer holds a move that the game takes; the match goes on with it if so.

    In negotiation any words are taken; there it must be an offer, a reply to one that is open, or a
    known line of chat.
    """
    action = parse_action(text, match.legal_actions())
    if match.legal_actions() is None and not is_trade(action or "", position(match)):
        return False
    try:
        if action:
            match.play(action)
    except InvalidAction:
        return False
    return bool(action)


def is_trade(action: str, here: Position) -> bool:
    """Whether a negotiation's action is an offer, a reply to the one just made, or a line of random
    play's chat."""
    asked = any(re.fullmatch(re.escape(line).replace(r"\{\}", r"\w+"), action) for line in CHAT)
    return (
        asked
        or action.startswith("[Offer:")
        or (action in (ACCEPT, DENY) and here.offer is not None)
    )


def positions(name: str, count: int, seed: int) -> list[Match]:
    """Matches stopped somewhere in the middle of random play, a seat to move in each."""
    rng, game, found = random.Random(derive_seed(seed, name)), make_game(name), []
    while len(found) < count:
        match = game.match(rng.getrandbits(32))
        for _ in range(rng.randrange(8)):
            if match.player is not None:
                match.play(random_action(match, rng))
        if match.player is not None:
            found.append(match)
    return found


def answers(engine: TorchEngine, name: str, count: int, seed: int) -> list[tuple[Match, str]]:
    """One sampled answer (temperature 1) at each of `count` positions of random play."""
    chat, matches = Chat(engine.tokenizer), positions(name, count, seed)
    asked = [
        chat.request(messages(m), SAMPLING, derive_seed(seed, i)) for i, m in enumerate(matches)
    ]
    return [(match, done.text) for match, done in zip(matches, engine.generate(asked), strict=True)]


def remark_of(text: str) -> str:
    """What stands before the box."""
    return text.split("\\boxed")[0].strip()


def remark_detail(match: Match, text: str) -> tuple[int, bool]:
    """How full a remark is (0 none, 1 short, 2 full) and whether it is word for word the true
    one."""
    said = remark_of(text)
    if not said:
        return 0, True
    full = re.match(r"Mine:", said) or re.search(r"risks|worth|would|do not have", said)
    detail = 2 if full else 1
    return detail, said == REMARKS[match.name](match, detail)


def report(model: Any, tokenizer: Any, count: int = 1000, seed: int = 0) -> pd.DataFrame:
    """Measures a policy; a row a measure: game, measure, value, low, high (95 %), n, and what to
    compare it with."""
    engine = TorchEngine(model, tokenizer)
    rows: list[dict[str, Any]] = []
    for name in GAME_SHARES:
        given = answers(engine, name, count, seed)
        remarks = [remark_detail(match, text) for match, text in given] if name in REMARKS else []
        rows.append(
            _share(
                name, "legal moves", [is_legal(match, text) for match, text in given], "bar 0.98"
            )
        )
        for detail, label in ((1, "short remark true"), (2, "full remark true")) if remarks else ():
            rows.append(
                _share(name, label, [true for found, true in remarks if found == detail], "")
            )
        rows += _skill(engine, name, count, seed)
    chat = Chat(tokenizer)
    asked = questions(max(count, 8), derive_seed("transfer suite"))
    for row in matches.question_rows({"policy": engine}, chat, SAMPLING, asked, seed):
        rows.append(
            {
                "game": "questions",
                "measure": row["metric"],
                **{k: row[k] for k in ("value", "low", "high", "n")},
            }
        )
    return pd.DataFrame(rows).fillna({"compare": ""})


def _share(game: str, measure: str, hits: list[bool], compare: str) -> dict[str, Any]:
    low, high = share_interval(sum(hits), len(hits)) if hits else (float("nan"), float("nan"))
    value = sum(hits) / len(hits) if hits else float("nan")
    return {
        "game": game,
        "measure": measure,
        "value": value,
        "low": low,
        "high": high,
        "n": len(hits),
        "compare": compare,
    }


def _skill(engine: TorchEngine, name: str, count: int, seed: int) -> list[dict[str, Any]]:
    """Utility against random play, which chance makes 0 over both seats, and the game's exact
    measure if it has one."""
    engines, chat = {"policy": engine}, Chat(engine.tokenizer)
    player, game = PolicyPlayer(chat, SAMPLING), make_game(name)
    results = matches.match_results(engines, game, player, make_player("random"), count, seed)
    mean, low, high, n = mean_interval(results["utility"].tolist())
    common = {"game": name, "low": low, "high": high, "n": n}
    rows = [
        {**common, "measure": "utility against random play", "value": mean, "compare": "chance 0"}
    ]
    if name == KUHN:
        found = matches.kuhn_policy(engines, chat, SAMPLING, game, max(2, count // 12), seed)
        metric, compare = "exploitability", "random play 0.458"
    elif name in TICTACTOE_GAMES:
        found = matches.tictactoe_policy(engines, chat, SAMPLING, game, 1, seed)
        metric, compare = "optimal", f"random play {CHANCE_OPTIMAL}"
    else:
        return rows
    bounds = {bound: found[f"{metric}_{bound}"] for bound in ("low", "high")}
    rows.append(
        {
            "game": name,
            "measure": metric,
            "value": found[metric],
            **bounds,
            "n": found["k"],
            "compare": compare,
        }
    )
    return rows
