"""In which parameters two variants of a paper differ."""

from spnb import make_plan


def differences(paper, variant, other, scale="cpu"):
    """Names of the parameters, such as grpo.beta, that a variant and another one do not share."""
    own, others = (_flat(_settings(paper, scale, name)) for name in (variant, other))
    return {key for key in {*own, *others} if own.get(key) != others.get(key)}


def _settings(paper, scale, variant):
    plan = make_plan(paper, scale, variants=[variant], seeds=[0])
    return plan.params(variant).model_dump() | {"variant": "", "keep_checkpoints": []}


def _flat(values, prefix=""):
    """A nested mapping as {"a.b": value}, without what is empty."""
    pairs = [
        _flat(value, f"{prefix}{key}.").items()
        if isinstance(value, dict)
        else [(prefix + key, value)]
        for key, value in values.items()
    ]
    return {key: value for inner in pairs for key, value in inner if value not in (None, [], "")}
