"""The prompt of each role with every control string of three tokenizers in its content."""

import itertools

from roles import HOSTILE, ROLES, controls_in, ids_of, other_tokenizer
from transformers import AutoTokenizer

from spnb.core.paths import embedded_path
from spnb.core.types import control_strings
from tools.campaign import Part


def prompts(part: Part) -> None:
    """No content adds a control token to a prompt, or takes one away."""
    shipped = [AutoTokenizer.from_pretrained(embedded_path(name)) for name in ("games", "searcher")]
    for tokenizer in (*shipped, other_tokenizer()):
        controls = control_strings(tokenizer)
        pairs = [*itertools.product(controls, controls)]
        texts = [*HOSTILE, *controls, *(f"\ud83d{one}\x00" for one in controls)]
        texts += [first + other for first, other in pairs]
        texts += [one[: len(one) // 2] + other + one[len(one) // 2 :] for one, other in pairs]
        asked = [*itertools.product(ROLES, texts)]
        for role, text in part.some(asked):
            harmless = controls_in(tokenizer, ids_of(tokenizer, ROLES[role]("a")))
            found = controls_in(tokenizer, ids_of(tokenizer, ROLES[role](text)))
            for counts in (harmless, found):  # a word that a tokenizer does not know is no control
                counts.pop(tokenizer.unk_token, None)
            same = found == harmless
            part.about[f"{len(ROLES)} roles"] += 1
            part.end("survived" if same else "wrong", f"{role}: {text!r} gives {dict(found)}")
