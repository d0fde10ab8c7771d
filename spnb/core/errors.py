"""Errors whose message is all that a user needs; a notebook shows them without a traceback."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class OneLine:
    """Mixin of an exception that IPython prints as its message alone."""

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


class Stopped(OneLine, KeyboardInterrupt):
    """A person stopped the runs of a plan."""

    SENTENCE = "stopped; finished runs are kept, start again to go on"

    def __str__(self) -> str:
        return self.SENTENCE

    def _render_traceback_(self) -> list[str]:
        return [self.SENTENCE]


@contextmanager
def signals_stop() -> Iterator[None]:
    """SIGTERM and SIGHUP stop what is inside as Ctrl-C does, except where they are ignored (nohup)
    or in a thread, which hears of no signal."""
    kinds = []
    if threading.current_thread() is threading.main_thread():
        both = (signal.SIGTERM, signal.SIGHUP)
        kinds = [kind for kind in both if signal.getsignal(kind) == signal.SIG_DFL]
    for kind in kinds:
        signal.signal(kind, signal.default_int_handler)
    try:
        yield
    finally:
        for kind in kinds:
            signal.signal(kind, signal.SIG_DFL)
