"""Reading the final answer out of a model's text."""

import re

BOX = re.compile(r"\\boxed\s*\{")
WRAPPER = re.compile(r"\\(?:text|texttt|mathrm)\s*\{")
BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # an escaped character is no brace


def extract_boxed(text: str) -> str | None:
    r"""The content of the last `\boxed{...}`, without outer spaces and one enclosing \text, \texttt
    or \mathrm.

    Braces are matched, escaped ones skipped. None if there is no box or the last one is not closed:
    then the answer was cut off, and an earlier box is not taken for it.
    """
    boxes = list(BOX.finditer(text))
    if not boxes:
        return None
    start = boxes[-1].end()
    end = _closing_brace(text, start)
    if end is None:
        return None
    content = text[start:end].strip()
    wrapper = WRAPPER.match(content)
    if wrapper and _closing_brace(content, wrapper.end()) == len(content) - 1:
        content = content[wrapper.end() : -1].strip()
    return content


def _closing_brace(text: str, start: int) -> int | None:
    """Index of the brace that closes the one just before `start`, None if nothing does."""
    depth = 1
    for brace in BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(brace.group(), 0)
        if depth == 0:
            return brace.start()
    return None
