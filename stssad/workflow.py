"""From two folders to a finished run: what `stssad fit` does, for whoever calls it."""

from .model import STSSAD
from .report.material import gather
from .report.page import write_report
from .review.refitting import save_kept
from .run import Inputs, Request, Run
from .tuning.restarts import Notify


def fit_run(run: Run, request: Request, inputs: Inputs, notify: Notify | None = None) -> STSSAD:
    """Fit, and write everything that the run holds, the page included."""
    with run.locked():
        model = run.fit(request, inputs, notify)
        files = (inputs.train_paths, inputs.pool_paths, request.unlabeled)
        gather(model, inputs.train, inputs.pool, *files).save(run.folder)
        save_kept(model, run.folder)
        run.finish(model)
        write_report(run)
    return model
