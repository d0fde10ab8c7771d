"""What shipped policies can do before reinforcement learning, as suites: each text is sampled once
at temperature 1, names and wordings are held out.

Answers by level, proposals, judging, rubrics and grading on the ladder; answers and questions by
search over the chain; SPICE's answers and tasks; Absolute Zero's tasks; moves and remarks in games.
The demonstrations are right as often as `spnb.lab.pretrain.ladder_lessons` says.
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from spnb.core import prompts
from spnb.core.documents import Proposal
from spnb.core.episodes import Episode
from spnb.core.grading import read_answer
from spnb.core.method import Suite
from spnb.core.search import Tool, search_rollout
from spnb.core.types import Chat, Engine, Request, Sampling, Task, Trajectory, derive_seed
from spnb.evaluate import matches
from spnb.evaluate.items import Records, Rows, ask_suite, play_suite, share_row
from spnb.evaluate.proposals import JUDGED
from spnb.games import InvalidAction, Match, make_game, programs
from spnb.games.base import messages, parse_action
from spnb.games.demonstrations import REMARKS
from spnb.games.negotiation import ACCEPT, CHAT, DENY, position
from spnb.games.players import TICTACTOE_GAMES, PolicyPlayer, make_player, random_action
from spnb.games.questions import questions
from spnb.lab import ladder, segments
from spnb.lab.chain import CHAIN, QUEST, RESULTS, Chains, follow
from spnb.lab.ladder import ORDINALS
from spnb.lab.ladder_suites import library
from spnb.lab.pretrain.demos import GAME_SHARES
from spnb.lab.pretrain.make import GAMES, lessons_of
from spnb.lab.pretrain.reasoner_lessons import READ
from spnb.lab.pretrain.recipes import LearnerRecipe
from spnb.lab.pretrain.report_skills import report_skills
from spnb.lab.pretrain.searcher import OTHERS
from spnb.lab.pretrain.skill_suites import MAX_LENGTH, POOL, TURN, answers, proposed, skill
from spnb.lab.segments import SUITES, judge, suite_tasks
from spnb.methods import absolute_zero, spice_prompts

SOURCES = 2
"""That a proposal is written about."""
GAME_SAMPLING = Sampling(max_new_tokens=48)
NOISES = (0, 1, 4, 7)
"""Sentences on others among those that a question is checked by."""
CHECKED = QUEST.words["questions"]["train"][0]
"""The wording of checked questions: a questioner's are of training."""
CHANCE_OPTIMAL = 0.402
"""Share of optimal moves of uniformly random play on the 431 tic-tac-toe positions."""
COMPARE = {
    **{"legal moves": "bar 0.98", "short remark true": "", "full remark true": ""},
    **{"utility": "random play 0", "exploitability": "random play 0.458"},
    **{"optimal": f"random play {CHANCE_OPTIMAL}", "accuracy": ""},
}
"""The metrics of the games policy, and what to compare them with."""


def skills_of(name: str, chat: Chat, count: int) -> list[Suite]:
    """Those of a shipped policy, by the name of its recipe."""
    if name == GAMES:
        return game_skills(chat, count)
    if name == "player":
        return player_skills(chat, lessons_of(name).recipe, count)
    if name == "searcher":
        return search_skills(chat, count)
    if name.startswith("seeker"):
        return seeker_skills(chat, count)
    if name.startswith("reasoner"):
        return reasoner_skills(chat, count)
    if name.startswith("reporter"):
        return report_skills(chat, count)
    return ladder_skills(chat, lessons_of(name).recipe.highest, count)


# --- the ladder


def ladder_skills(chat: Chat, highest: int, count: int = 200) -> list[Suite]:
    """A learner's: `count` answers a level, and outputs of every other role."""
    suites = []
    for family in ladder.WORLDS:
        suites.append(ladder_answers(chat, family, highest, count))
        suites.append(ladder_proposals(chat, family, highest, count))
    verdicts = [ladder_verdicts(chat, role, highest, count) for role in ("judge", "grade")]
    return [*suites, *verdicts, ladder_rubrics(chat, highest, count)]


def ladder_answers(chat: Chat, family: str, highest: int, count: int) -> Suite:
    """Answers of a family by level."""
    rng = random.Random(derive_seed("ladder skills", family))
    levels = [level for level in range(1, highest + 1) for _ in range(count)]
    tasks = [ladder.draw_task(family, level, rng, POOL) for level in levels]
    return answers(f"answer {family}", chat, tasks)


def ladder_proposals(chat: Chat, family: str, highest: int, count: int) -> Suite:
    """Whether proposals ask for each level; well-formed where they are valid."""
    rng = random.Random(derive_seed("ladder skills", "ask", family))
    read = [ladder.draw_sources(rng, family, SOURCES, highest, POOL) for _ in range(count)]

    def grade(place: int, text: str) -> tuple[dict[str, float], bool]:
        _, level, _ = ladder.read_proposal(text, read[place]) or (None, None, ())
        return proposed(level, highest)

    prompted = [ladder.ask(sources) for sources in read]
    return skill(f"ask {family}", chat, prompted, grade, "ladder skills")


def ladder_verdicts(chat: Chat, role: str, highest: int, count: int) -> Suite:
    """Verdicts of a judge (two answers to one question) or a grader (a point of a report)."""
    rng = random.Random(derive_seed("ladder skills", role))
    prompted = []
    golds = []
    for _ in range(count):
        family = "report" if role == "grade" else "journey"
        task = ladder.draw_task(family, rng.randint(2, highest), rng, POOL)
        steps = range(task.info["level"])
        replies = [ladder.reply(task, rng.sample(steps, len(steps))) for _ in range(2)]
        first, second = (prompts.field(text, "answer") or "" for text in replies)
        same = rng.random() < 1 / 2
        if role == "judge":
            second = first if same else second
            prompted.append(prompts.judge(task.question, first, second))
            golds.append(first == second)
        else:
            point = rng.choice(task.gold)
            other = ladder.draw_task(family, 1, rng, POOL).gold[0].split()[-1]
            wrong = " ".join([*point.split()[:-1], other])
            prompted.append(prompts.grade(first, point if same else wrong))
            golds.append(same or wrong == point)

    def grade(place: int, text: str) -> tuple[dict[str, float], bool]:
        verdict = prompts.verdict(text)
        return {"right": float(verdict == golds[place])}, verdict is not None

    return skill(role, chat, prompted, grade, "ladder skills")


def ladder_rubrics(chat: Chat, highest: int, count: int) -> Suite:
    """Points of rubrics that the documents state, and the share of all points that are listed."""
    rng = random.Random(derive_seed("ladder skills", "rubric"))
    tasks = [ladder.draw_task("report", rng.randint(2, highest), rng, POOL) for _ in range(count)]

    def grade(place: int, text: str) -> tuple[dict[str, float], bool]:
        points = set(prompts.fields(text, "rubric"))
        right = len(points & set(tasks[place].gold))
        parts = {"points right": right / len(points)} if points else {}
        return parts | {"points listed": right / len(tasks[place].gold)}, bool(points)

    prompted = [prompts.rubric(task.question, task.info["documents"]) for task in tasks]
    return skill("rubric", chat, prompted, grade, "ladder skills")


# --- chains, by search


def player_skills(chat: Chat, recipe: LearnerRecipe, count: int = 200) -> list[Suite]:
    """The player's, games apart: the families that it was shown, and chains by search."""
    families = dict.fromkeys(recipe.families)
    told = [ladder_answers(chat, family, recipe.highest, count) for family in families]
    return [*told, chain_answers(chat, count, CHAIN)]


def search_skills(chat: Chat, count: int = 200) -> list[Suite]:
    """A searcher's: by search over the library of `CHAIN`, and from what a chain takes."""
    both = [chain_answers(chat, count, CHAIN, told) for told in (False, True)]
    return [*both, chain_proposals(chat, count, CHAIN)]


def seeker_skills(chat: Chat, count: int = 200) -> list[Suite]:
    """A seeker's: by search over the library of `QUEST`, and checks among noise."""
    checks = [chain_checks(chat, count, noise, town) for town in (False, True) for noise in NOISES]
    return [chain_answers(chat, count, QUEST), chain_proposals(chat, count, QUEST), *checks]


def by_search(chat: Chat, chains: Chains) -> Callable[[Request], Episode[Trajectory]]:
    """Answers a request with searches in the held-out library of a world of chains."""
    tool = Tool(chat.tokenizer, library(POOL, chains.name), RESULTS, chains.highest, MAX_LENGTH)
    return partial(search_rollout, tool=tool)


def chain_answers(chat: Chat, count: int, chains: Chains, told: bool = False) -> Suite:
    """Answers of a world of chains by level: by search, or `told` its sentences, shuffled."""
    rng = random.Random(derive_seed("search skills", "answer"))
    numbers = [number for number in range(1, chains.highest + 1) for _ in range(count)]
    tasks = [chains.draw_task(number, rng, POOL) for number in numbers]
    asked = partial(answers, chat=chat, key="search skills", sampling=TURN)
    name = f"answer {chains.name}"
    if not told:
        answer = by_search(chat, chains)
        return asked(name, tasks=tasks, order_of=chains.order_of, answer=answer)
    documented = []
    for task in tasks:  # among as many others as the lesson has
        keys = rng.sample(list(task.info["links"]), OTHERS)
        others = [chains.fact(task.info["links"], *key) for key in keys]
        documents = [*task.info["documents"], *others]
        rng.shuffle(documents)
        prompt = prompts.answer(task.question, documents, "plain")
        documented.append(replace(task, messages=prompt))
    return asked(f"{name}, told", tasks=documented, order_of=lambda *_: True)


def chain_checks(chat: Chat, count: int, noise: int, town: bool) -> Suite:
    """Questions told in order, from what their proposer found, both sentences of each search, and
    `noise` sentences on others; by level. `town`: they start at somebody of a town, and right is
    who answers as their proposer means it: who should not."""
    rng = random.Random(derive_seed("search skills", "check"))
    links = QUEST.links_of(POOL)
    tasks = []
    for level in (level for level in range(1, QUEST.highest + 1) for _ in range(count)):
        start = rng.choice(QUEST.people(POOL))
        relations = rng.sample(QUEST.relations, level)
        subject = QUEST.somebody(links.homes[start]) if town else start
        text = QUEST.question(subject, list(zip(ORDINALS, relations, strict=False)), CHECKED)
        task = QUEST.make_task(text, start, relations, links)
        reached = follow(links, start, relations)
        others = [QUEST.fact(links, *pair) for pair in zip(relations, reached, strict=True)]
        others += [QUEST.fact(links, *key) for key in rng.sample(list(links), noise)]
        documents = list(dict.fromkeys([*task.info["documents"], *others]))
        rng.shuffle(documents)
        tasks.append(replace(task, messages=prompts.answer(text, documents, "plain")))
    name = f"check {'towns' if town else QUEST.name}, {noise} noisy"
    return answers(name, chat, tasks, lambda *_: True, "search skills", sampling=TURN)


def chain_proposals(chat: Chat, count: int, chains: Chains) -> Suite:
    """Whether questions have each level, and are right after so many searches; well-formed where
    they lead to the answer they are for."""
    rng = random.Random(derive_seed("search skills", "ask"))
    targets = [rng.choice(chains.people(POOL)) for _ in range(count)]

    def grade(place: int, text: str) -> tuple[dict[str, float], bool]:
        task = chains.read_proposal(text, targets[place], POOL)
        parts, well = proposed(task.info["level"] if task else None, chains.highest)
        searches = len(prompts.fields(text, "search"))
        return parts | {f"valid after {searches} searches": float(well)}, well

    prompted = [prompts.ask_search(target) for target in targets]
    name = f"ask {chains.name}"
    return skill(name, chat, prompted, grade, "search skills", by_search(chat, chains), TURN)


# --- SPICE's roles, Absolute Zero's tasks


def reasoner_skills(chat: Chat, count: int = 200) -> list[Suite]:
    """A reasoner's: `count` answers a level, and tasks of every type."""
    suites = [answers(f"answer {suite}", chat, suite_tasks(suite, count)) for suite in SUITES]
    for answer_type in segments.GRADES:
        suites += [challenges(chat, answer_type, count, grounded) for grounded in (True, False)]
    for kind in programs.TASK_KINDS:
        suites += [programs_proposed(chat, kind, count), programs_solved(chat, kind, count)]
    return suites


def challenges(chat: Chat, answer_type: str, count: int, grounded: bool) -> Suite:
    """What the oracle says of tasks from held-out segments, or from nothing; well-formed: valid."""
    rng = random.Random(derive_seed("reasoner skills", answer_type))
    kinds = [kind for kind, one in segments.KINDS.items() if answer_type in one.types]
    read = []
    for place in range(count):
        kind = kinds[place % len(kinds)]
        length = rng.randint(segments.SHORTEST, segments.HIGHEST)
        number = rng.choice(READ[kind])
        read.append(segments.draw_entries(rng, kind, number, length, POOL))
    told = ["\n".join(entry.text for entry in entries) if grounded else None for entries in read]

    def grade(place: int, text: str) -> tuple[dict[str, float], bool]:
        task = spice_prompts.read_task("plain", text, answer_type)
        if not isinstance(task, Proposal):
            return proposed(None, segments.HIGHEST)
        judged = judge(task, read[place] if grounded else None)
        said = {name: getattr(judged, name) for name in JUDGED}
        parts = {name: float(value) for name, value in said.items() if value is not None}
        asks, valid = proposed(judged.level, segments.HIGHEST)
        return {"valid": 1.0} | parts | asks, valid

    prompted = [spice_prompts.challenge("plain", answer_type, text) for text in told]
    name = "challenge" if grounded else "alone"
    return skill(f"{name} {answer_type}", chat, prompted, grade, "ladder skills")


def programs_proposed(chat: Chat, kind: programs.TaskKind, count: int) -> Suite:
    """Whether proposals of Absolute Zero's tasks are valid; well-formed: they can be read."""
    rng = random.Random(derive_seed("reasoner skills", "propose", kind))
    drawn = [programs.draw_chain(rng, 1 + n % segments.HIGHEST) for n in range(count)]
    subjects = list(map(programs.chain, drawn)) if kind == "induction" else [""] * count

    def grade(place: int, text: str) -> tuple[dict[str, float], bool]:
        found = absolute_zero.read(kind, Trajectory((), policy_text=text), subjects[place])
        return {"valid": float(found.task is not None)}, found.readable

    prompted = [spice_prompts.propose(kind, (), one) for one in subjects]
    return skill(f"propose {kind}", chat, prompted, grade, "ladder skills")


def programs_solved(chat: Chat, kind: programs.TaskKind, count: int) -> Suite:
    """Solutions of tasks on chains of each number of steps; well-formed: an answer."""
    rng = random.Random(derive_seed("reasoner skills", kind))
    tasks = []
    for number in range(count * segments.HIGHEST):
        level = 1 + number // count
        program = programs.chain(programs.draw_chain(rng, level))
        inputs = rng.sample(range(10), 4)
        pairs = list(zip(inputs, programs.runs(program, inputs) or [], strict=True))
        task = absolute_zero.make_task(kind, program, pairs)
        tasks.append(replace(task, difficulty=f"level {level}"))
    return answers(f"solve {kind}", chat, tasks, lambda _, text: read_answer(text))


# --- games


def game_skills(chat: Chat, count: int = 1000, seed: int = 0) -> list[Suite]:
    """Moves, remarks, play against random players, questions near the games."""
    player = PolicyPlayer(chat, GAME_SAMPLING)
    rival = make_player("random")
    suites = []
    for name in GAME_SHARES:
        game = make_game(name)
        suites.append(moves(name, chat, count, seed))
        suites.append(matches.match_suite(game, player, rival, count, seed, "random"))
        if name in TICTACTOE_GAMES:
            suites.append(matches.tictactoe_suite(game, chat, GAME_SAMPLING, 1, seed))
    suites.append(matches.kuhn_suite(chat, GAME_SAMPLING, max(2, count // 12), seed))
    items = questions(max(count, 8), derive_seed("transfer suite"))
    return [*suites, matches.question_suite(chat, GAME_SAMPLING, items, seed)]


def measure_games(engine: Engine, suites: Sequence[Suite]) -> pd.DataFrame:
    """Plays the suites of a policy of games.

    Columns: suite (a game, or transfer), metric, difficulty, value, low, high (95 %), n, compare.
    """
    rows = [row for suite in suites for row in play_suite(suite, {"policy": engine})[1]]
    table = pd.DataFrame(rows).sort_values("suite", kind="stable", ignore_index=True)
    table["compare"] = table["metric"].map(COMPARE)
    columns = ["suite", "metric", "difficulty", "value", "low", "high", "n", "compare"]
    return table.loc[table["compare"].notna(), columns]


def moves(name: str, chat: Chat, count: int, seed: int) -> Suite:
    """One move at each of `count` positions of random play: its remark's detail and truth (where
    the game has remarks), and whether the game takes it."""
    stopped = positions(name, count, seed)
    tasks = [Task(messages(match), "", info={"match": match}) for match in stopped]

    def grade(task: Task, text: str) -> dict[str, Any]:
        match = task.info["match"]
        detail, true = remark_of(match, text) if name in REMARKS else ("none", True)
        return {"kind": detail, "true": true, "score": float(is_legal(match, text))}

    def rows_of(records: Records) -> Rows:
        rows = []
        for detail in ("short", "full") if name in REMARKS else ():
            hits = [one["true"] for one in records if one["kind"] == detail]
            rows.append(share_row(name, f"{detail} remark true", hits))
        return [*rows, share_row(name, "legal moves", [one["score"] for one in records])]

    seed_of = lambda place, _: derive_seed(seed, place)  # noqa: E731
    return ask_suite(name, tasks, chat, GAME_SAMPLING, seed_of, grade=grade, summarise=rows_of)


def positions(name: str, count: int, seed: int) -> list[Match]:
    """Matches stopped somewhere in the middle of random play, a seat to move in each."""
    rng = random.Random(derive_seed(seed, name))
    game = make_game(name)
    stopped: list[Match] = []
    while len(stopped) < count:
        match = game.match(rng.getrandbits(32))
        for _ in range(rng.randrange(8)):
            if match.player is not None:
                match.play(random_action(match, rng))
        if match.player is not None:
            stopped.append(match)
    return stopped


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
