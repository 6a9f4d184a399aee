"""Which reviewer has which images on the screen, so that two don't get the same."""

import threading
import time

LEASE = 90  # seconds that an image is shown to one reviewer alone
AT_ONCE = 24  # images that a reviewer gets


class Leases:
    """Of the images of all runs, by reviewer."""

    def __init__(self) -> None:
        self._lock, self._held = threading.Lock(), dict[tuple[str, int], tuple[str, float]]()

    def take(self, run: str, order: list[int], reviewer: str) -> list[int]:
        """The first images in that order which nobody else has."""
        now, taken = time.monotonic(), []
        with self._lock:
            for i in order:
                holder, until = self._held.get((run, i), ("", 0.0))
                if holder in ("", reviewer) or until < now:
                    self._held[run, i] = (reviewer, now + LEASE)
                    taken.append(i)
                if len(taken) == AT_ONCE:
                    break
        return taken
