"""Every embedded policy by the name of its recipe (`recipes.yaml`)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spnb.core.params import unknown, validate
from spnb.core.paths import embedded_path, embedded_policies
from spnb.lab.pretrain import build, training
from spnb.lab.pretrain.ladder_lessons import Lessons
from spnb.lab.pretrain.player import Playing
from spnb.lab.pretrain.reader import Reading
from spnb.lab.pretrain.reasoner_lessons import Reasoning
from spnb.lab.pretrain.recipes import TABLES, LearnerRecipe, Recipe
from spnb.lab.pretrain.reporter import Reporting
from spnb.lab.pretrain.searcher import Searching
from spnb.lab.pretrain.seeker import Faltering, Seeking

GAMES = "games"
RECIPES: dict[str, dict[str, Any]] = TABLES["recipes"]
"""What each recipe sets; that of the games policy is `Recipe` as it is."""
ALL_LESSONS = (Lessons, Searching, Seeking, Faltering, Playing, Reading, Reasoning, Reporting)
LESSONS = {one.__name__: one for one in ALL_LESSONS}


def lessons_of(name: str, **changes: Any) -> Lessons:
    """What a policy is shown, from the first row on, with changed values of its recipe.

    Raises ValueError for an unknown recipe, or a value that it does not take.
    """
    if name not in RECIPES:
        raise ValueError(unknown("recipe", name, [GAMES, *RECIPES]))
    values = dict(RECIPES[name])
    lessons = LESSONS[values.pop("lessons")]
    return lessons(validate(LearnerRecipe, values | changes))


def check_shape(recipe: LearnerRecipe, start: LearnerRecipe) -> None:
    """ValueError where a recipe asks for another shape than that of the one it goes on from."""
    for key in ("hidden", "layers", "heads", "feed_forward"):
        own, its = getattr(recipe, key), getattr(start, key)
        fewer = key == "feed_forward"
        if own > its or (own < its and not fewer):
            raise ValueError(f"{key} is {own}; allowed: {its}{' or fewer' * fewer}, as its start")


def make(name: str, folder: Path, values: Mapping[str, Any]) -> None:
    """Trains the policy of a recipe, with changed values, and writes it to a folder, or, of any
    but the games policy, to one of its name in it; before it its start, where this is not shipped.
    See `lessons_of`."""
    if name == GAMES:
        build.build(validate(Recipe, values), folder)
    else:
        lessons = lessons_of(name, **values)
        path = None
        if start := lessons.recipe.start:
            check_shape(lessons.recipe, lessons_of(start).recipe)
            shipped = start in embedded_policies()
            path = embedded_path(start) if shipped else folder / start
            if not shipped:
                make(start, folder, {key: values[key] for key in values if key == "seed"})
        training.build(lessons, folder / name, path)
