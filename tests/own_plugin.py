"""A plugin as a person writes one: a reward, a game, documents for SPELL and for SPICE."""

import spnb as sp
from spnb.core.documents import Context, Document
from spnb.corpus.clusters import Clusters
from spnb.corpus.segments import SegmentSource


class Match:
    name = "stones"

    def __init__(self):
        self.history, self.stones, self.player = [], 10, 0

    def observation(self):
        return f"Stones: {self.stones} are left. Legal moves: {', '.join(self.legal_actions())}"

    def legal_actions(self):
        return [str(n) for n in (1, 2, 3) if n <= self.stones]

    def play(self, action):
        if action not in self.legal_actions():
            raise sp.games.InvalidAction(f"stones: {action!r} is no legal move")
        self.history.append(action)
        self.stones -= int(action)
        self.player = 1 - self.player if self.stones else None

    def returns(self):
        return (1.0, -1.0) if len(self.history) % 2 else (-1.0, 1.0)


class Stones:
    name, deterministic = "stones", True

    def match(self, seed):
        return Match()


class Letters(Clusters):
    def __init__(self, params, tokenizer):
        documents = tuple(
            Document(f"Letter {n} is from Ada in Bern.") for n in range(max(params.documents))
        )
        super().__init__([Context(kind, documents, kind) for kind in params.tasks], params.tasks)


class Notes(SegmentSource):
    def rows(self, name, pool, count):
        return [{"id": str(n), "title": "", "text": f"Note {n}: Ada paid {n}."} for n in range(9)]


sp.register_reward("hump", lambda p: 4 * p * (1 - p))
sp.register_game("stones", Stones)
sp.register_source("letters", Letters)
sp.register_source("notes", Notes)
