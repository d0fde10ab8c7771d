"""Stand-ins that several tests share."""

from spnb.core.episodes import run


class CharTokenizer:
    """One token per character; the last message is the prompt."""

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        return messages[-1]["content"]

    def __call__(self, text, add_special_tokens):
        return {"input_ids": [ord(char) for char in text]}

    def decode(self, ids):
        return "".join(map(chr, ids))


def step_of(method, engine, step=0):
    """All rows of a method's step, estimated and selected, as the trainer has them."""
    rows = run(method.rollout(step), {"policy": engine})
    method.estimate(rows)
    method.select(rows)
    return rows
