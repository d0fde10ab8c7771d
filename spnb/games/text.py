"""From a match to a prompt and from an answer to an action: the only text around a game's own
observation.

The rule for invalid answers, stated here once: an answer without a legal action ends the match;
that seat gets -INVALID_PENALTY and the other +INVALID_PENALTY. This is zero-sum, worse than the
worst legal loss (-1), and the match stays in the data, so that breaking the format never pays and
never hides. (SPIRAL's code gives -1.5 and +0.5, which is not zero-sum.)
"""

from collections.abc import Sequence

from spnb.core.grading import extract_boxed
from spnb.games import Match

INVALID_PENALTY = 1.5

OPENING = "You are playing a two-player zero-sum game; play to win."
CLOSING = "Reason step by step, then give your move inside \\boxed{}."


def messages(match: Match) -> list[dict[str, str]]:
    """The seat to move's prompt as one user message: opening, observation, what to answer."""
    return [{"role": "user", "content": f"{OPENING}\n\n{match.observation()}\n\n{CLOSING}"}]


def parse_action(text: str, legal: Sequence[str] | None) -> str | None:
    """The action in the last box of an answer, in its legal spelling; None if there is none or it
    is not legal.

    Case, outer square brackets and extra spaces do not matter. In a free-text game (`legal` None)
    the boxed text itself is the action, None if empty.
    """
    boxed = extract_boxed(text)
    if not boxed or legal is None:
        return boxed or None
    return {_plain(action): action for action in legal}.get(_plain(boxed))


def _plain(action: str) -> str:
    """Lower case, one space between words, no outer brackets."""
    stripped = action.strip()
    if stripped.startswith("[") and stripped.endswith("]"):
        stripped = stripped[1:-1]
    return " ".join(stripped.split()).casefold()
