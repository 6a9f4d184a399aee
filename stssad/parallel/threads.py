"""Threads: how many torch uses, and work that several of them share, in order."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

import torch

In = TypeVar("In")
Out = TypeVar("Out")


@contextmanager
def torch_threads(n: int) -> Iterator[None]:
    """Run with n threads, then as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def workers() -> Iterator[ThreadPoolExecutor]:
    """As many workers as torch has threads, each with one thread of torch's own.

    Whole chunks side by side: threads that share the work inside each operation have to wait for
    one another, which costs most when decoders use the same cores. And a chunk's result is the same
    whatever the number of threads.
    """
    n = torch.get_num_threads()
    with (
        torch_threads(n),
        ThreadPoolExecutor(n, initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        yield pool


def in_order(
    pool: ThreadPoolExecutor, work: Callable[[In], Out], items: Iterable[In], ahead: int
) -> Iterator[Out]:
    """Results of `work` in the order of the items, at most `ahead` of them under way or waiting."""
    todo = iter(items)
    under_way: deque[Future[Out]] = deque(pool.submit(work, item) for item in islice(todo, ahead))
    try:
        while under_way:
            result = under_way.popleft().result()
            under_way.extend(pool.submit(work, item) for item in islice(todo, 1))
            yield result
    finally:
        for future in under_way:
            future.cancel()


def each(items: Iterable[In], work: Callable[[In], Out]) -> Iterator[Out]:
    """Results of `work` in the order of the items, several under way at once."""
    with workers() as pool:
        yield from in_order(pool, work, items, 2 * torch.get_num_threads())
