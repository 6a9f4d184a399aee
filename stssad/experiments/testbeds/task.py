"""A task: normal images, an unlabeled pool, and labeled test images."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from torch import Tensor


@dataclass(frozen=True)
class Task:
    """`pool` and `test` are separate even where a protocol fills both with the same images.

    Labels (1 = anomaly) are read by the methods of this class and nowhere else.
    """

    name: str
    train: Tensor  # normal images (n, 3, m, m)
    pool: Tensor  # unlabeled
    test: Tensor
    test_labels: npt.NDArray[np.int64] = field(repr=False)

    def auc(self, scores: npt.NDArray[np.float64]) -> float:
        """Area under the ROC curve of the scores of `test`."""
        from sklearn.metrics import roc_auc_score  # slow to import

        return float(roc_auc_score(self.test_labels, scores))

    def shares_above(
        self, threshold: float, scores: npt.NDArray[np.float64]
    ) -> tuple[float, float]:
        """Of the normal and of the anomalous images of `test`."""
        above = scores > threshold
        return float(above[self.test_labels == 0].mean()), float(
            above[self.test_labels == 1].mean()
        )
