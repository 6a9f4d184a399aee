"""Processes that die leave nobody waiting, and nothing running."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stssad.parallel.processes import WorkerDiedError, event_queue, in_processes, unordered

Notify = Callable[[object], None]


def squared(x: int, notify: Notify) -> int:
    notify(x)
    return x * x


def killed_at_two(x: int, notify: Notify) -> int:
    if x == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.2)
    return x


def test_results_come_in_order_and_all_events_arrive() -> None:
    heard: list[object] = []
    assert in_processes(squared, list(range(8)), 2, heard.append) == [x * x for x in range(8)]
    assert sorted(heard) == list(range(8))  # type: ignore[type-var]
    assert sorted(unordered(abs, [-3, 1, 2], 2)) == [1, 2, 3]


def test_a_killed_worker_is_an_error_and_no_endless_wait() -> None:
    heard: list[object] = []
    with pytest.raises(WorkerDiedError, match="it was killed, or there was too little memory"):
        in_processes(killed_at_two, [1, 2, 3, 4], 2, heard.append)


def test_the_queue_closes_even_if_its_manager_is_gone() -> None:
    heard: list[object] = []
    with event_queue(heard.append) as events:
        assert events is not None
        events.put(1)
        time.sleep(0.2)
        for pid in children(os.getpid()):
            if b"resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
    assert heard[:1] == [1]


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children")
    if not found.exists():
        pytest.skip("there is no /proc here")
    return [int(child) for child in found.read_text().split()]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import sys, time\n"
        "from stssad.parallel.processes import in_processes\n"
        "def work(x, notify):\n"
        "    notify(x)\n"
        "    time.sleep(600)\n"
        "def heard(x):\n"
        "    print('started', flush=True)\n"
        "in_processes(work, [1, 2], 2, heard)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert parent.stdout is not None
    assert [parent.stdout.readline().strip() for _ in range(2)] == ["started"] * 2
    workers = children(parent.pid)
    assert len(workers) >= 3  # two of them, and the queue's
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 30
    while any(map(alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in workers if alive(pid)]
