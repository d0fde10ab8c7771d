"""SFT on experts' games, what SPIRAL is compared with (its table 1) and may start from.

Imitation put as a policy gradient: on an expert's turns, with advantage 1 and one update a rollout,
the clipped loss has the gradient of the log-likelihood. The paper's SFT takes 25,000 won matches of
a stronger model; here experts play against random play and the matches that they win count.
"""

from collections.abc import Sequence
from itertools import islice

from spnb.core.grading import extract_boxed
from spnb.core.types import Chat, Sample, Sampling
from spnb.games import Game
from spnb.games.demonstrations import winning_turns
from spnb.games.players import fixed_player


def imitate(
    games: Sequence[Game], chat: Chat, count: int, seed: int, first: int = 0
) -> list[Sample]:
    """`count` turns of each game's expert with advantage 1; sampled by nobody, so no log-probs.
    `first`: its seat in the first match, even or odd; other processes begin with the other."""
    samples = []
    for game in games:
        turns = winning_turns(game, fixed_player("expert", game), seed, first)
        for match, seat, (prompt, answer) in islice(turns, count):
            ids = chat.tokenizer(answer, add_special_tokens=False)["input_ids"]
            completion_ids = (*ids, chat.tokenizer.eos_token_id)
            sample = Sample(
                prompt_ids=chat.request(prompt, Sampling(1), seed).prompt_ids,
                completion_ids=completion_ids,
                mask=(1,) * len(completion_ids),
                logps=None,
                reward=1.0,
                role=(game.name, seat),
                group=match,
                advantage=1.0,
                info={"text": answer, "action": extract_boxed(answer)},
            )
            samples.append(sample)
    return samples
