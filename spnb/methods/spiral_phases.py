"""What SPIRAL is compared and combined with: imitation of expert games (SFT) and RLVR on questions.

Both give loss rows like self-play, so a run may have any of them as its phases, one after the
other, with one optimiser. Imitation is supervised fine-tuning put as a policy gradient: on turns
that an expert wrote, with advantage 1 and one update a rollout, the gradient of the clipped loss is
that of the log-likelihood. The paper's SFT takes 25,000 winning trajectories of a stronger model;
here experts play against random play and their won matches count.
"""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence

from spnb.core.episodes import answer_all, run
from spnb.core.grading import extract_boxed
from spnb.core.types import Chat, Engine, Sample, Sampling, derive_seed, sample_of
from spnb.games import Game
from spnb.games.play import Player, make_player
from spnb.games.questions import Question, questions
from spnb.games.text import messages
from spnb.recipe.demos import answer_text

Turn = tuple[list[dict[str, str]], str]
"""A prompt and an expert's answer to it: a true remark or none, then the boxed move."""


def expert_turns(game: Game, expert: Player, seat: int, seed: int) -> list[Turn]:
    """The expert's turns in one match against random play; none if it does not win."""
    match, found = game.match(seed), []
    rng, other = random.Random(derive_seed(seed, "remarks")), make_player("random")
    while match.player is not None:
        mine = match.player == seat
        _, _, action = run(
            (expert if mine else other).move(match, derive_seed(seed, len(match.history))), {}
        )
        if mine:
            found.append((messages(match), answer_text(match, rng.randrange(3), action or "")))
        match.play(action or "")
    return found if match.returns()[seat] > 0 else []


def winning_turns(game: Game, expert: Player, seed: int) -> Iterator[tuple[int, int, Turn]]:
    """Turns of won matches without end, with match and seat; the expert sits on both sides in
    turn."""
    for index in itertools.count():
        for turn in expert_turns(game, expert, index % 2, derive_seed(seed, game.name, index)):
            yield index, index % 2, turn


def expert_rows(game: Game, expert: Player, chat: Chat, count: int, seed: int) -> list[Sample]:
    """`count` turns of a game's expert as loss rows with advantage 1; what it did not sample has no
    log-probs."""
    rows = []
    for index, seat, (prompt, answer) in itertools.islice(winning_turns(game, expert, seed), count):
        asked = chat.request(prompt, Sampling(1), seed).prompt_ids
        said = (
            *chat.tokenizer(answer, add_special_tokens=False)["input_ids"],
            chat.tokenizer.eos_token_id,
        )
        row = Sample(
            asked, said, (1,) * len(said), None, 1.0, (game.name, seat), index, advantage=1.0
        )
        row.info = {"text": answer, "action": extract_boxed(answer)}
        rows.append(row)
    return rows


def training_questions(count: int, seed: int, heldout: Sequence[Question]) -> list[Question]:
    """Questions of the transfer suite's kinds, none of them in it; so none about cards where it has
    all twelve."""
    kept = {question.text for question in heldout}
    drawn = (
        q
        for batch in itertools.count()
        for q in questions(4 * count, derive_seed(seed, "questions", batch))
    )
    return list(itertools.islice((q for q in drawn if q.text not in kept), count))


def question_rows(
    engines: Mapping[str, Engine],
    chat: Chat,
    sampling: Sampling,
    asked: Sequence[Question],
    group_size: int,
    seed: int,
) -> list[Sample]:
    """RLVR: `group_size` answers to each question, 1 for a right one, compared within the group
    (GRPO)."""
    pairs = [
        (place, question, copy)
        for place, question in enumerate(asked)
        for copy in range(group_size)
    ]
    requests = [
        chat.request(
            [{"role": "user", "content": question.text}], sampling, derive_seed(seed, place, copy)
        )
        for place, question, copy in pairs
    ]
    rows = []
    for (place, question, _), request, done in zip(
        pairs, requests, answer_all(requests, engines), strict=True
    ):
        given = extract_boxed(done.text)
        row = sample_of(
            request, done, reward=float(given == question.answer), role="questions", group=place
        )
        row.invalid, row.info = given is None, {"text": done.text, "gold": question.answer}
        rows.append(row)
    return rows
