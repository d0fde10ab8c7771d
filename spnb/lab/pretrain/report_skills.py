"""What a reporter can do before reinforcement learning, as suites; see `skills`."""

import random
from collections.abc import Callable
from functools import partial
from statistics import fmean
from types import SimpleNamespace

from spnb.core import prompts
from spnb.core.documents import Proposal
from spnb.core.episodes import Episode
from spnb.core.grading import read_answer
from spnb.core.method import Suite
from spnb.core.search import Tool, search_rollout
from spnb.core.types import Chat, Messages, Request, Sampling, Task, Trajectory, derive_seed
from spnb.lab import groups
from spnb.lab.pretrain.skill_suites import MAX_LENGTH, POOL, answers, proposed, skill

LONG = Sampling(max_new_tokens=256)
"""How rubrics are sampled."""
GATES = ("identifiable", "relevant")


def report_skills(chat: Chat, count: int = 200) -> list[Suite]:
    """A reporter's: reports by type and level, short questions, tasks, and the judge's work."""
    suites = [reports(chat, kind, count) for kind in groups.TYPES]
    suites += [short_answers(chat, number, count) for number in groups.SHORT]
    suites += [tasks_proposed(chat, count), rubrics_written(chat, count)]
    return [*suites, points_graded(chat, count), *(gates(chat, one, count) for one in GATES)]


def by_group_search(chat: Chat) -> Callable[[Request], Episode[Trajectory]]:
    """Answers a request with searches in the held-out library of groups."""
    tool = Tool(chat.tokenizer, groups.library(POOL), k=1, max_searches=5, max_length=MAX_LENGTH)
    return partial(search_rollout, tool=tool)


def leveled(kind: str, rng: random.Random, count: int) -> list[Task]:
    """`count` tasks of a type for every level."""
    levels = range(1, groups.HIGHEST + 1)
    return [groups.draw_task(kind, level, rng, POOL) for level in levels for _ in range(count)]


def reports(chat: Chat, kind: str, count: int) -> Suite:
    """Points of a report by level, told anywhere; sections in any order that take each stop once,
    and sections told again, in all. Well-formed: all sections take each stop once."""
    tasks = leveled(kind, random.Random(derive_seed("report skills", kind)), max(1, count // 4))

    def grade(place: int, text: str) -> tuple[dict[str, float], bool]:
        task = tasks[place]
        said = groups.oracle(task, text)
        level = task.difficulty
        parts = {level: said["points"], f"consistent {level}": said["consistent"]}
        searched = prompts.fields(text, "search")
        found = fmean(groups.query(who.subject) in searched for who in task.info["people"])
        parts |= {"repeated": said["repeated"], "searched for": found}
        return parts, said["consistent"] == 1

    asked = [task.messages for task in tasks]
    return skill(f"report {kind}", chat, asked, grade, "report skills", by_group_search(chat))


def short_answers(chat: Chat, number: int, count: int) -> Suite:
    """Short questions by search."""
    rng = random.Random(derive_seed("report skills", "short", number))
    tasks = [groups.short_task(number, rng, POOL) for _ in range(count)]
    read = lambda _, text: read_answer(text)  # noqa: E731
    how = {"key": "report skills", "answer": by_group_search(chat)}
    return answers(f"short {number}", chat, tasks, read, **how)


def tasks_proposed(chat: Chat, count: int) -> Suite:
    """Whether tasks are on people of the document, of the type asked for, which level they ask for;
    well-formed where after as many searches as they were to make."""
    params = SimpleNamespace(kinds=list(groups.TYPES), style="plain", highest=groups.HIGHEST)
    source = groups.Groups(params, chat.tokenizer)
    rng = random.Random(derive_seed("report skills", "ask"))
    contexts = [source.draw(rng, place, POOL) for place in range(count)]

    def grade(place: int, text: str) -> tuple[dict[str, float], bool]:
        context = contexts[place]
        proposal = source.read(text, context)
        judged = source.judge(proposal, context) if isinstance(proposal, Proposal) else None
        well = len(prompts.fields(text, "search")) == context.searches
        if judged is None:
            return {"valid": 0.0}, False
        parts = {"identifiable": float(judged.answerable)}
        parts["about its document"] = float(bool(judged.faithful))
        level = judged.level if judged.right else None
        return parts | proposed(level, groups.HIGHEST)[0], well

    asked = [source.ask(context) for context in contexts]
    return skill("task", chat, asked, grade, "report skills", by_group_search(chat))


def rubrics_written(chat: Chat, count: int) -> Suite:
    """Points of rubrics that the oracle would write, by level, and its points that are there."""
    rng = random.Random(derive_seed("report skills", "rubric"))
    few = max(1, count // (4 * groups.HIGHEST))
    tasks = [task for kind in groups.TYPES for task in leveled(kind, rng, few)]

    def grade(place: int, text: str) -> tuple[dict[str, float], bool]:
        gold = {*tasks[place].gold}
        points = {*prompts.fields(text, "rubric")}
        right = len(points & gold)
        parts = {f"right {tasks[place].difficulty}": right / max(1, len(points))}
        return parts | {"listed": right / len(gold)}, len(points) >= groups.FEWEST

    asked = []
    for task in tasks:
        people = [source.subject for source in task.info["people"]]
        told = [" ".join([groups.roster(people), *task.info["documents"][: groups.READ]])]
        asked.append(prompts.rubric(task.question, [*told, *task.info["documents"][groups.READ :]]))
    return skill("rubric", chat, asked, grade, "report skills", sampling=LONG)


def points_graded(chat: Chat, count: int) -> Suite:
    """Grades of points in reports: stated, in another order, of nobody, stated beside another
    order."""
    rng = random.Random(derive_seed("report skills", "grade"))
    shown: list[tuple[Messages, str, bool]] = []
    for place in range(count):
        kind = rng.choice(list(groups.TYPES))
        task = groups.draw_task(kind, rng.randint(2, groups.HIGHEST), rng, POOL)
        level = task.info["level"]
        source = rng.choice(task.info["people"])
        (point,) = groups.points(kind, [source], level)
        other = point
        while other == point:
            other = groups.section(kind, source, rng.sample(range(level), level))
        rest = [one for one in task.gold if one != point]
        case = ("stated", "another order", "nobody", "stated beside another order")[place % 4]
        own = {"stated": [point], "another order": [other], "nobody": []}
        sections = [*rest, *own.get(case, [point, other])]
        told = rng.sample(sections, len(sections))
        shown.append((prompts.grade(groups.report(told), point), case, point in told))

    def grade(place: int, text: str) -> tuple[dict[str, float], bool]:
        _, case, stated = shown[place]
        verdict = prompts.verdict(text)
        return {case: float(verdict == stated)}, verdict is not None

    return skill("grade", chat, [one[0] for one in shown], grade, "report skills")


def gates(chat: Chat, name: str, count: int) -> Suite:
    """Verdicts of a gate on tasks that pass it, and on ones that do not."""
    rng = random.Random(derive_seed("report skills", name))
    shown: list[tuple[Messages, bool]] = []
    for place in range(count):
        kind = rng.choice(list(groups.TYPES))
        group = rng.choice(groups.groups(POOL))
        people = [source.subject for source in group]
        passes = place % 2 == 0
        others = [who for who in groups.everybody(POOL) if who not in people]
        wrong = [groups.WORDS["unnamed"]] if name == "identifiable" else rng.sample(others, 3)
        frame = rng.choice(groups.TYPES[kind]["questions"]["train"])
        level = rng.randint(1, groups.HIGHEST)
        text = groups.question(kind, people[:3] if passes else wrong, level, frame)
        told = " ".join([groups.roster(people), *map(groups.passage_of, people[: groups.READ])])
        asked = (
            prompts.identifiable(text) if name == "identifiable" else prompts.relevant(told, text)
        )
        shown.append((asked, passes))

    def grade(place: int, text: str) -> tuple[dict[str, float], bool]:
        passes = shown[place][1]
        verdict = prompts.verdict(text)
        return {"passes" if passes else "stopped": float(verdict == passes)}, verdict is not None

    return skill(f"gate {name}", chat, [one[0] for one in shown], grade, "report skills")
