"""The same units on a Ray cluster. Ray does the scheduling, retries and the loss of a node."""

from collections.abc import Iterator

from .runner import Outcome, Unit, run_unit

RETRIES = 3  # of a unit whose node is lost; an error of its own is an outcome


def run_on_ray(todo: list[Unit], address: str) -> Iterator[Outcome]:
    """Each result as soon as it is there; every node needs the package and the data's folder."""
    try:
        import ray
    except ImportError as error:
        raise ImportError("--ray needs Ray; install it with: pip install 'stssad[ray]'") from error
    ray.init(address=address, log_to_driver=False, ignore_reinit_error=True)
    remote = ray.remote(num_cpus=1, max_retries=RETRIES)(run_unit)
    waiting = [remote.remote(unit) for unit in todo]
    while waiting:
        done, waiting = ray.wait(waiting, num_returns=1)
        yield from ray.get(done)
