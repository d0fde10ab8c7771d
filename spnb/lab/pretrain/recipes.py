"""What decides the weights of a shipped policy; its values by name are in `recipes.yaml`."""

from typing import Literal

from pydantic import Field

from spnb.core.params import StrictData
from spnb.core.paths import packaged_yaml
from spnb.lab.ladder import HIGHEST, Family

TABLES = packaged_yaml("lab/pretrain/recipes.yaml")


class ModelRecipe(StrictData):
    """What every recipe has: the seed, the model's size, the learning rates."""

    seed: int = Field(0, ge=0)
    hidden: int = Field(128, gt=0)
    layers: int = Field(3, gt=0)
    heads: int = Field(4, gt=0)
    feed_forward: int = Field(384, gt=0)
    learning_rate: float = Field(3e-3, gt=0)
    matrix_learning_rate: float = Field(0.02, gt=0)


class Recipe(ModelRecipe):
    """Everything that decides the weights of the games policy."""

    vocabulary: int = Field(448, gt=256)
    phrase_count: int = Field(20, gt=0)
    steps: int = Field(2000, gt=0)
    batch: int = Field(96, gt=0)
    warmup: int = Field(100, gt=0)
    prompt_weight: float = Field(0.02, ge=0)


class LearnerRecipe(ModelRecipe):
    """Everything that decides the weights of a policy that reads; amounts in tokens."""

    hidden: int = Field(96, gt=0)
    feed_forward: int = Field(256, gt=0)
    vocabulary: int = Field(1200, gt=256)
    batch_tokens: int = Field(4096, gt=0)
    outside_share: float = Field(0.15, ge=0, le=1)
    outside_weight: float = Field(0.3, ge=0, lt=1)
    warmup_tokens: int = Field(200_000, gt=0)
    matrix_std: float = Field(0.04, gt=0)
    offset_heads: bool = True
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="of the saved weights")
    tokens: int = Field(14_000_000, gt=0)
    highest: int = Field(12, ge=1, le=HIGHEST)
    asks: Literal["easy", "even", "hard"] = "easy"
    families: list[Family] = ["journey", "ledger", "choice", "report"]
    leaves_out: list[str] = Field([], description="lessons that are not drawn, drills apart")
    start: str = Field("", description="the embedded policy that it goes on from")
