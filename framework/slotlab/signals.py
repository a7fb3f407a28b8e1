"""Signals: the first ends a run in good order, the second at once. Ctrl-C, SIGTERM and SIGHUP differ in their exit codes only.

A handler that raises is lost wherever a library catches everything, and leaves files and databases half written wherever it
does not. These raise nothing. Where nothing is to be kept yet, the process ends there and then. In good order the first signal is
noted, and the run looks at it between two steps (`check`). Nothing here imports more than the standard library, so that the
handlers stand before the second or two that the other imports take.
"""

from __future__ import annotations

import math
import os
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

ENDS = {  # how each is told, and its exit code: 128 and its number, as a shell has it
    signal.SIGINT: ("interrupted", 130),
    signal.SIGTERM: ("terminated", 143),
    signal.SIGHUP: ("hung up", 129),
}

_noted: list[int] = []  # since the handlers were installed; the first one says how it ends
_patience: list[float] = [0]  # signals that may be noted before one ends the process; the innermost block's is last
_last_words: list[Callable[[], None]] = []
_successor: list[str] = []  # arguments of the Python program that this process becomes when it ends at once, if any


class Stopped(BaseException):
    """A signal was noted. No `except Exception` stops it on its way out."""

    def __init__(self, number: int) -> None:
        self.word, self.code = ENDS[signal.Signals(number)]
        super().__init__(self.word)


def install() -> None:
    """Answer the signals from now on, but for those that the caller has ignored, as nohup does."""
    _noted.clear()
    for number in ENDS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _note)


def ignore() -> None:
    """Nothing is left to be ended but the interpreter, which takes its time and would die of them without a word."""
    for number in ENDS:
        signal.signal(number, signal.SIG_IGN)


def check() -> None:
    """Raise Stopped if a signal came. Called where nothing is half done."""
    if _noted:
        raise Stopped(_noted[0])


@contextmanager
def in_good_order() -> Iterator[None]:
    """There is something to keep: the first signal is noted, for `check`; the second ends the process at once."""
    with _patient(1):
        yield


@contextmanager
def undisturbed() -> Iterator[None]:
    """All signals are noted until the block has ended: what it writes is written whole."""
    with _patient(math.inf):
        yield
    if len(_noted) > max(1, _patience[-1]):
        _end()


@contextmanager
def last_words(say: Callable[[], None]) -> Iterator[None]:
    """Have `say` called if the process ends at once within the block."""
    _last_words.append(say)
    try:
        yield
    finally:
        _last_words.remove(say)


def become(*arguments: str) -> None:
    """Have this process become a Python program if it ends at once: its number stays, and whatever it had locked is free."""
    _successor[:] = arguments


@contextmanager
def _patient(signals: float) -> Iterator[None]:
    _patience.append(signals)
    try:
        yield
    finally:
        _patience.pop()


def _note(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGHUP:
        _forget_terminal()
    _noted.append(number)
    if len(_noted) > _patience[-1]:
        _end()


def _end() -> None:
    """End the process, from wherever it is: nothing can catch it."""
    ignore()
    word, code = ENDS[signal.Signals(_noted[0])]
    for say in reversed(_last_words):
        with suppress(Exception):
            say()
    with suppress(Exception):  # a write to the same stream may have been interrupted
        sys.stdout.write("\x1b[?25h" if sys.stdout.isatty() else "")  # a progress bar hides the cursor
        sys.stdout.flush()
    with suppress(OSError):
        os.write(2, f"slotlab: {word}{'; what was measured is kept' if _last_words else ''}\n".encode())
    if _successor:
        with suppress(OSError):
            os.execv(sys.executable, [sys.executable, *_successor, str(code)])
    os._exit(code)


def _forget_terminal() -> None:
    """It is gone: to write to it would fail, and fail what is being kept."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for file in (0, 1, 2):
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(file).st_mode):
                os.dup2(nowhere, file)
