"""What the player must do before it is shipped; prints a line a gate, exit code 1 where one fails.

python -m spnb.lab.pretrain.player_gates embedded/player
"""

import random
import sys
from functools import partial
from types import SimpleNamespace
from typing import Any

import pandas as pd

from spnb.core.documents import open_source
from spnb.core.types import Chat, Sampling, derive_seed
from spnb.evaluate import matches
from spnb.evaluate.items import ask_suite, play_suite
from spnb.games import make_game
from spnb.games.negotiation import NEGOTIATION
from spnb.games.players import PolicyPlayer, make_player
from spnb.lab.pretrain.demos import KUHN, TICTACTOE
from spnb.methods.rlvr import behaviour
from spnb.train.engines.torch import TorchEngine
from spnb.train.policies import load_policy

SAMPLING = Sampling(max_new_tokens=64)
HIGHEST = 6
DECIDED = {
    "legal": (0.95, 1.0),
    "level 1": (0.8, 1.0),
    "thinks": (0.2, 0.8),
    "searches": (0.2, 0.8),
}
"""Between which values a share must be."""


def questions(engine: TorchEngine, family: str, count: int) -> list[dict[str, Any]]:
    """`count` answers at each level of a family, sampled, in held-out names and wordings."""
    params = SimpleNamespace(family=family, highest=HIGHEST, max_searches=HIGHEST, max_length=1024)
    source: Any = open_source("lab:ladder", params, engine.tokenizer)
    rng = random.Random(derive_seed("gates", family))
    levels = [level for level in range(1, HIGHEST + 1) for _ in range(count)]
    tasks = [source.exercise(level, rng, "heldout") for level in levels]
    answer = partial(source.answer, pool="heldout")
    seed_of = partial(derive_seed, "gates")
    chat = Chat(engine.tokenizer)
    acts = lambda _, trajectory: behaviour(trajectory)  # noqa: E731
    suite = ask_suite(family, tasks, chat, SAMPLING, seed_of, answer=answer, behaviour=acts)
    return play_suite(suite, {"policy": engine})[0]


def shares(records: list[dict[str, Any]]) -> pd.DataFrame:
    """Answers by family and level: right in all, right directly, right with thoughts or searches;
    the shares of both."""
    table = pd.DataFrame(records)
    acted = table["searches"] | table["thinks"]
    table["direct"] = table["score"].where(~acted)
    table["worked out"] = table["score"].where(acted)
    columns = ["score", "direct", "worked out", "parsed", "thinks", "searches"]
    return table.groupby(["suite", "difficulty"])[columns].mean()


def gates(engine: TorchEngine, count: int) -> bool:
    """Prints all figures; whether each is where it must be."""
    values = {}
    player = PolicyPlayer(Chat(engine.tokenizer), SAMPLING)
    for game in map(make_game, (KUHN, TICTACTOE, NEGOTIATION)):
        suite = matches.match_suite(game, player, make_player("random"), count, 0, "random")
        table = pd.DataFrame(play_suite(suite, {"policy": engine})[0])
        invalid = (table["invalid_by"] == "player").sum()
        values[suite.name, "legal"] = 1 - invalid / table["player_turns"].sum()
        print(f"{suite.name}: {table['outcome'].value_counts(normalize=True).to_dict()}")
    families = ("journey", "ledger", "report", "chain")
    table = shares([record for one in families for record in questions(engine, one, count)])
    print(table.round(3).to_string())
    for family in families[:-1]:
        values[family, "level 1"] = table.loc[(family, "level 1"), "score"]
    values["ledger", "thinks"] = table.loc["ledger", "thinks"].mean()
    values["chain", "searches"] = table.loc["chain", "searches"].mean()
    failed = []
    for (name, gate), value in values.items():
        low, high = DECIDED[gate]
        print(f"{name}, {gate}: {value:.3f}, {low} to {high}")
        failed += [] if low <= value <= high else [f"{name}, {gate}"]
    print(f"failed: {failed}")
    return not failed


if __name__ == "__main__":
    policy = load_policy(sys.argv[1])
    passed = gates(TorchEngine(policy.model.eval(), policy.tokenizer, max_batch=256), count=100)
    sys.exit(0 if passed else 1)
