"""Bad parameters and commands, from the list of the tests: each is refused in one sentence."""

from tools.campaign import Part


def parameters(part: Part) -> None:
    """Every case of tests/abuse/parameters.py."""
    part.leave_out("bad parameters: tests/abuse/parameters.py is not there yet")
