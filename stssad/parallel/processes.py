"""Work in several processes, none of which outlives or waits for a dead one. Imports no torch.

joblib's processes, which don't run the user's script again as plain spawning does; what happens in
them is sent through a queue of multiprocessing's manager: a process that is killed just hangs up.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing.managers import SyncManager
from queue import Queue
from typing import Any, TypeVar

In = TypeVar("In")
Out = TypeVar("Out")
LOST = (EOFError, OSError)  # what the other end's death looks like


class WorkerDiedError(RuntimeError):
    """A process was killed, or ran out of memory."""

    def __init__(self) -> None:
        super().__init__(
            "a worker process ended before its work was done: it was killed, or there was too "
            "little memory for so many (--jobs)"
        )


def exit_with(parent: int) -> None:
    """End this process as soon as its parent is gone; the parent may have no time to say so."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="exit-with-parent").start()


_watching: list[int] = []  # parents that this process watches


def _worker(parent: int, work: Callable[..., Out], item: Any, events: "Queue[Any] | None") -> Out:
    if parent not in _watching and os.getppid() == parent:
        _watching.append(parent)
        exit_with(parent)

    def notify(event: Any) -> None:
        with suppress(*LOST):  # progress that nobody hears doesn't stop the work
            if events is not None:
                events.put(event)

    return work(item, notify)


def in_processes(
    work: Callable[[In, Callable[[Any], None]], Out],
    items: Sequence[In],
    n_processes: int,
    notify: Callable[[Any], None] | None = None,
) -> list[Out]:
    """work(item, notify) for each item, in their order; results don't depend on n_processes."""
    from joblib import Parallel, delayed

    parent = os.getpid()
    with event_queue(notify) as events:
        parallel = Parallel(n_jobs=min(n_processes, len(items)), max_nbytes=None)
        try:
            return list(parallel(delayed(_worker)(parent, work, i, events) for i in items))
        except BrokenProcessPool:
            raise WorkerDiedError from None


def unordered(work: Callable[[In], Out], items: Iterable[In], n_processes: int) -> Iterator[Out]:
    """work(item) for each item, each result as soon as it is there."""
    from joblib import Parallel, delayed

    parent = os.getpid()
    parallel = Parallel(n_jobs=n_processes, return_as="generator_unordered", batch_size=1)
    alone = _Quiet(work)
    try:
        yield from parallel(delayed(_worker)(parent, alone, item, None) for item in items)
    except BrokenProcessPool:
        raise WorkerDiedError from None


class _Quiet:
    """Work that has nothing to tell on its way."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self.work = work

    def __call__(self, item: Any, notify: Callable[[Any], None]) -> Any:
        return self.work(item)


@contextmanager
def event_queue(notify: Callable[[Any], None] | None) -> "Iterator[Queue[Any] | None]":
    """A queue for other processes, whose events are handed to `notify` in a thread of this one."""
    if notify is None:
        yield None
        return
    from joblib.externals.loky.backend import get_context

    manager = SyncManager(ctx=get_context("loky"))
    manager.start(exit_with, (os.getpid(),))
    events: Queue[Any] = manager.Queue()

    def hear() -> None:
        with suppress(*LOST):
            while (event := events.get()) is not None:
                notify(event)

    hearing = threading.Thread(target=hear, daemon=True, name="progress")
    hearing.start()
    try:
        yield events
    finally:
        with suppress(*LOST):
            events.put(None)  # after all that was sent before
        hearing.join(timeout=10)
        manager.shutdown()
