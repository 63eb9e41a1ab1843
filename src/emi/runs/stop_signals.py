"""Stop signals: the first one asks the run to stop, a second one ends the process at once."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)


class StopRequest:
    """True once a signal was received; `signal` is that signal."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    def __bool__(self) -> bool:
        return self.signal is not None


@contextlib.contextmanager
def stop_signals(on_stop: Callable[[], None]) -> Iterator[StopRequest]:
    """Catch the first signal and call `on_stop`; the next one has its usual effect.

    Ignored signals stay ignored (`nohup`). Outside the main thread, where Python handles no
    signals, nothing is caught.
    """
    request = StopRequest()
    before: dict[signal.Signals, object] = {}

    def handle(number: int, frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_DFL)
        request.signal = signal.Signals(number)
        with contextlib.suppress(OSError):  # SIGHUP: the terminal is gone
            on_stop()

    if threading.current_thread() is threading.main_thread():
        for each in SIGNALS:
            if signal.getsignal(each) is not signal.SIG_IGN:
                before[each] = signal.signal(each, handle)
    try:
        yield request
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)  # type: ignore[arg-type]
