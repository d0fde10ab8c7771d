"""Every embedded policy by the name of its recipe."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spnb.core.params import unknown, validate
from spnb.lab.pretrain import build, learner, player, reader, reasoner, searcher
from spnb.lab.pretrain.ladder_lessons import LearnerRecipe, Lessons
from spnb.lab.pretrain.reasoner_lessons import ReasonerRecipe, Reasoning

RECIPES = ("games", *learner.RECIPES, "searcher", "player", *reader.RECIPES, *reasoner.RECIPES)


def make(name: str, folder: Path, values: Mapping[str, Any]) -> None:
    """Trains the policies of a recipe, with changed values, and writes them to a folder.

    Raises ValueError for an unknown recipe, or a value that it does not take.
    """
    if name == "games":
        build.build(validate(build.Recipe, values), folder)
    elif name in learner.RECIPES:
        recipe = validate(LearnerRecipe, learner.RECIPES[name] | values)
        learner.build(Lessons(recipe), folder / name)
    elif name == "searcher":
        lessons = searcher.Searching(validate(searcher.SearcherRecipe, values))
        learner.build(lessons, folder / name)
    elif name == "player":
        playing = player.Playing(validate(player.PlayerRecipe, values))
        learner.build(playing, folder / name, tokens=player.build_tokenizer)
    elif name in reader.RECIPES:
        made = validate(reader.ReaderRecipe, reader.RECIPES[name] | values)
        learner.build(reader.Reading(made), folder / name, start=made.start)
    elif name in reasoner.RECIPES:
        shown = Reasoning(validate(ReasonerRecipe, reasoner.RECIPES[name] | values))
        learner.build(shown, folder / name, tokens=reasoner.build_tokenizer)
    else:
        raise ValueError(unknown("recipe", name, RECIPES))
