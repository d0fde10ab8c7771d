"""SPELL's parameters, checked together."""

from typing import Literal

from pydantic import Field, model_validator

from spnb.core.method import MethodParams, Preference
from spnb.core.params import require
from spnb.corpus import clusters as testbed
from spnb.lab.world import HELDOUT_NAMES
from spnb.methods.spell_questions import Mapping, Rules


class Params(MethodParams):
    """SPELL's own parameters; quantities a step are for all processes together."""

    role_names = ("questioner", "responder", "verifier", "external")

    corpus: str = Field("", description="JSONL of clusters; empty: generated documents")
    document_tokens: int | None = Field(
        None, ge=1, description="of a corpus: documents are cut after so many"
    )
    tasks: list[Literal[tuple(testbed.TYPES)]] = Field(  # type: ignore[valid-type]
        list(testbed.TYPES), min_length=1, description="task types, drawn evenly"
    )
    clusters: int = Field(24, ge=1, description="generated clusters, of all types together")
    documents: int = Field(4, ge=1, description="n, of a cluster; a responder reads all")
    read: int = Field(2, ge=1, description="m, new ones that a questioner reads")
    memory: int = Field(3, ge=0, description="L, solvable questions that a questioner sees")
    memory_rule: Literal["paper", "code"] = "paper"
    questions: Literal["self", "static"] = "self"
    static: int = Field(96, ge=1, description="questions of the static set")
    context: list[int] = Field([], description="static: documents in equal parts of the training")
    asked: int = Field(12, ge=1, description="questions a round, until there are enough groups")
    rounds: int = Field(10, ge=1, description="most rounds of questions in a step")
    groups: int = Field(8, ge=1, description="N, questions with mixed answers that are trained on")
    group_size: int = Field(8, ge=2, description="G, answers to a question")
    judgments: int | None = Field(None, ge=0, description="of an answer; default G, 0: no verifier")
    judge: Literal["rule", "oracle"] = Field("rule", description="beside the verifier")
    format_penalty: bool = True
    grounding: bool = Field(True, description="whether one answer without documents filters")
    consistency: bool = Field(True, description="verifiers learn where their majority is the rule")
    verified: int | None = Field(
        None, ge=1, description="groups of judgments that are trained; default N/G (released code)"
    )
    mapping: Mapping = "gaussian"
    sigma: float = Field(1 / 6, gt=0, description="of the Gaussian (eq. 7)")
    rewards: Literal["earned", "random"] = "earned"
    tie: Literal["no", "first"] = "no"
    malformed: Literal["ignored", "penalised"] = "ignored"
    normalise: Literal["batch", "task"] = Field("batch", description="questioners (eq. 9)")
    alignment: Literal["longpo", "solopo"] | None = Field(
        None, description="learn from preference pairs (table 9), `groups` pairs a step"
    )
    alignment_beta: float | None = Field(
        None, gt=0, description="of the implicit reward; default 0.1 (LongPO 4.1)"
    )
    alignment_lambda: float | None = Field(
        None, gt=0, description="LongPO eq. 14, of its preference term; default 0.01"
    )
    alignment_alpha: float | None = Field(
        None, ge=0, description="SoLoPO, of rewards; default 3 (DPO, Qwen2.5-7B)"
    )
    alignment_spans: Literal["sequence", "answer"] | None = Field(
        None, description="LongPO eq. 14, what the likelihood is of; default the sequence"
    )
    eval_items: int = Field(4, ge=1, description="questions of each type and level")
    eval_samples: int = Field(8, ge=1, description="answers to each")
    eval_documents: list[int] = Field([4, 16], min_length=1, description="the first every time")
    eval_proposals: int = Field(36, ge=1, description="questions that the external policy answers")

    @model_validator(mode="after")
    def _together(self) -> "Params":
        message = f"read is {self.read} with documents {self.documents}; allowed: 1 to documents"
        require(self.read <= self.documents, message)
        shown = [*self.eval_documents, *([] if self.corpus else [self.documents, *self.context])]
        message = f"documents, context or eval_documents are {max(shown)}; allowed: 1 to "
        require(all(1 <= n <= HELDOUT_NAMES for n in shown), f"{message}{HELDOUT_NAMES}, the names")
        static = self.questions == "static"
        message = f"context is {self.context} with questions {self.questions}; allowed: with static"
        require(static or not self.context, message)
        message = f"corpus is {self.corpus!r} with %s; allowed: nothing, the oracle knows no corpus"
        require(not (self.corpus and static), message % "questions static")
        require(not (self.corpus and self.judge == "oracle"), message % "judge oracle")
        if self.alignment:
            with_pairs = f"with alignment {self.alignment}; allowed"
            message = f"questions is {self.questions!r} {with_pairs}: static"
            require(static, message)
            message = f"judgments is {self.judged} {with_pairs}: 0, the judge compares alone"
            require(not self.judged, message)
            require(not self.context, f"context is {self.context} {with_pairs}: nothing")
            require(self.rewards == "earned", f"rewards is {self.rewards} {with_pairs}: earned")
        loss = self.grpo.get("loss_type", "grpo")
        message = f"grpo.loss_type is {loss!r}; allowed: grpo, of whose row means eq. 12 is made"
        require(loss == "grpo", message)
        return self

    @property
    def preference(self) -> Preference | None:
        """The loss of the baselines that learn from pairs."""
        if self.alignment is None:
            return None
        own = {"longpo": (self.alignment_lambda, 0.01), "solopo": (self.alignment_alpha, 3.0)}
        weight, default = own[self.alignment]
        weight = default if weight is None else weight
        beta, spans = self.alignment_beta or 0.1, self.alignment_spans or "sequence"
        return Preference(self.alignment, self.groups, beta, weight, spans)

    @property
    def rules(self) -> Rules:
        """How questions are settled."""
        return Rules(self.judge, self.tie, self.malformed, self.mapping, self.sigma)

    @property
    def verifier_groups(self) -> int:
        """Groups of judgments that a step trains; N/G: as many judgments as questions."""
        return self.verified or max(1, self.groups // max(1, self.judged))

    @property
    def judged(self) -> int:
        """Judgments of an answer."""
        return self.group_size if self.judgments is None else self.judgments
