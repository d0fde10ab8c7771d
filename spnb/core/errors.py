"""Errors whose message is all that a user needs; a notebook shows them without a traceback."""


class OneLine:
    """Mixin of an exception that IPython prints as its message alone."""

    def _render_traceback_(self) -> list[str]:
        """What IPython prints instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]


class Stopped(OneLine, KeyboardInterrupt):
    """A person stopped the runs of a plan."""

    SENTENCE = "stopped; finished runs are kept, start again to go on"

    def __str__(self) -> str:
        return self.SENTENCE

    def _render_traceback_(self) -> list[str]:
        return [self.SENTENCE]
