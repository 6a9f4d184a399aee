"""STSSAD: the estimator. It fills in defaults, calls a method, scores, saves and loads."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from .augment import Augmentation
from .images.reading import Reading
from .images.source import FitImages, Images, as_images, of_size
from .methods.defaults import pose_problem
from .methods.description import describe_estimator
from .methods.engine import score_images
from .methods.problem import Choices, Explanation, Fitted, Workings
from .registry import METHODS
from .runs.saved_model import Own, SavedModel, read_model
from .scoring.anomaly_map import upsampled
from .scoring.contamination import Contamination
from .scoring.evidence import Evidence
from .scoring.lesson import Lesson
from .scoring.score import Scores
from .scoring.threshold import p_values, rate_above, shares_of_two, threshold_for
from .settings import AnySettings
from .tuning.progress import Notify
from .tuning.val_loss import ValLoss

ScoreArray = npt.NDArray[np.float64]
LabelArray = npt.NDArray[np.int64]


class STSSAD(BaseEstimator):  # type: ignore[misc]
    """Self-tuning self-supervised anomaly detection, from normal and unlabeled images.

    Larger scores are more anomalous; labels are 0 and 1 (anomaly), as in PyOD. Images are tensors
    (n, 3, m, m) in [0, 1], uint8 arrays (n, m, m, 3) or (n, m, m), a folder, or a list of paths.

    method: "pretrained" keeps an ImageNet encoder; "paper" is ST-SSAD, trained from scratch.
    augmentation: what is tuned, one or several; None: five types, or CutDiff in the paper's method.
    encoder: EfficientNetLite0 if None, or a ResNet18 of `settings.width` in the paper's method.
    settings: PretrainedSettings, or Settings for the paper's method (Settings.quick() if None).
    seed: random seed. jobs: parallel processes. device: "cpu" or "cuda".
    val_loss: what tuning minimises: shift_alignment, or the paper's mean_distance_loss.
    engine: of a network whose weights stay: "torch", "onnx" (ONNX Runtime), or "auto", the faster.
    false_alarms: the share of normal images that `predict` may flag.
    explain: whether `fit` also says what kind of anomaly the pool holds; no score depends on it.

    What is learned:

    decision_scores_, labels_: of the unlabeled pool (of the normal images, if there is none).
    normal_scores_: of normal images that the model wasn't fitted to (held out or cross-fitted).
    threshold_, false_alarms_: scores above it are anomalies; the rate that it was set for.
    contamination_: the estimated share of anomalies in the pool, with an interval; None without.
    learned_: the tuned augmentation in words; candidates_: every restart, with its trajectory,
        losses and score variance; chosen_: the number of the best; augmentation_: its type.
    evidence_: whether the pool bears it out; lesson_: what its outliers taught (pretrained).
    warnings_, image_size_ in pixels, map_scale_; model_: one `nn.Module` from images to scores.
    train_index_, held_out_index_: which normal images were fitted to, and which held out.
    choices_, fitted_, workings_: defaults filled in; what the method returned, and computed.
    """

    def __init__(
        self,
        method: str = "pretrained",
        augmentation: Augmentation | Sequence[Augmentation] | None = None,
        encoder: nn.Module | None = None,
        settings: AnySettings | None = None,
        seed: int = 0,
        val_loss: ValLoss | None = None,
        jobs: int = 1,
        device: str = "cpu",
        false_alarms: float = 0.01,
        engine: str = "auto",
        explain: bool = True,
    ) -> None:
        self.method, self.augmentation, self.encoder = method, augmentation, encoder
        self.settings, self.seed, self.val_loss, self.explain = settings, seed, val_loss, explain
        self.jobs, self.device, self.false_alarms, self.engine = jobs, device, false_alarms, engine

    def fit(
        self,
        train: Images | FitImages,
        unlabeled: Images | None = None,
        progress: Notify | None = None,
        checkpoints: str | Path | None = None,
        warm_starts: str | Path | None = None,
        on_scored: "Callable[[STSSAD], None] | None" = None,
    ) -> "STSSAD":
        """Fit to normal images, and learn from an unlabeled pool; `FitImages` are both, read.

        `progress` is called as stages and restarts advance. In `checkpoints` each restart keeps
        its state, from which a stopped fit resumes bit-identically; in `warm_starts` its warm
        start, for other fits of the same images. `on_scored` is called before scores are explained.
        """
        folders = checkpoints, warm_starts
        problem, about_files = pose_problem(self, train, unlabeled, progress, *folders)
        fitted, workings = METHODS[self.method].fit(problem)
        self.workings_: Workings = workings  # until the model is saved and loaded
        fitted.warnings.extend(about_files)
        self._take(problem.choices, fitted, self.false_alarms)
        if on_scored is not None:
            on_scored(self)
        if self.explain:
            self._take_explanation(METHODS[self.method].explain(problem, fitted, workings))
        return self

    def explain_pool(
        self,
        train: Images | FitImages,
        unlabeled: Images | None = None,
        progress: Notify | None = None,
        checkpoints: str | Path | None = None,
    ) -> "STSSAD":
        """Explain a model that was fitted to the same images; scores stay as they are."""
        check_is_fitted(self)
        problem, _ = pose_problem(self, train, unlabeled, progress, checkpoints, None)
        self._take_explanation(METHODS[self.method].explain(problem, self.fitted_, None))
        return self

    def _take(
        self, choices: Choices, fitted: Fitted, false_alarms: float, score: float | None = None
    ) -> None:
        """Everything that scores, under the names that users know."""
        self.choices_, self.fitted_ = choices, fitted
        self.model_, self.image_size_ = fitted.model, fitted.model.image_size
        self.map_scale_, self.warnings_ = fitted.map_scale, fitted.warnings
        self.train_index_ = fitted.train_index.numpy()
        self.held_out_index_ = fitted.held_out_index.numpy()
        self.normal_scores_: ScoreArray = fitted.normal_scores.numpy()
        pool = fitted.pool
        self.decision_scores_ = self.normal_scores_ if pool is None else pool.scores.numpy()
        self.contamination_: Contamination | None = getattr(pool, "contamination", None)
        self.lesson_: Lesson | None = getattr(pool, "lesson", None)
        self._take_explanation(fitted.explanation)
        self.set_threshold(false_alarms, score)

    def _take_explanation(self, explanation: Explanation | None) -> None:
        """Everything that explains."""
        self.fitted_ = replace(self.fitted_, explanation=explanation)
        self.candidates_ = [] if explanation is None else explanation.candidates
        self.chosen_: int | None = getattr(explanation, "chosen", None)
        self.augmentation_: Augmentation | None = getattr(explanation, "augmentation", None)
        self.evidence_: Evidence | None = getattr(explanation, "evidence", None)
        self.learned_: dict[str, Any] = {}
        if explanation is not None:
            chosen, types = explanation.candidates[explanation.chosen], self.choices_.augmentations
            self.learned_ = METHODS[self.method].learned(chosen, len(types))

    def set_threshold(self, false_alarms: float = 0.01, score: float | None = None) -> "STSSAD":
        """Flag about this share of normal images from now on, or all above a score; `save` keeps
        it."""
        check_is_fitted(self)
        floor: float = self.model_.scorer.floor  # type: ignore[assignment]
        self.threshold_ = threshold_for(self.normal_scores_, false_alarms, floor)
        self.false_alarms_, self.set_score_ = false_alarms, score
        if score is not None:
            self.threshold_, self.false_alarms_ = score, rate_above(self.normal_scores_, score)
        self.labels_: LabelArray = (self.decision_scores_ > self.threshold_).astype(np.int64)
        return self

    @property
    def reading_(self) -> Reading:
        """How files are read for this model: as they were read for the fit."""
        return replace(self.choices_.settings.reading, image_size=self.image_size_)

    def score_images(self, images: Images) -> Scores:
        """Scores, those of each part, and anomaly maps as distances (n, h, w), if there are."""
        checked = self._checked(images)
        return self.model_.score_all(checked)

    def _checked(self, images: Images) -> Tensor:
        check_is_fitted(self)
        return of_size(self.image_size_, as_images(images, self.reading_, "images"))

    def decision_function(self, images: Images) -> ScoreArray:
        """Anomaly scores (n,), larger = more anomalous."""
        images = self._checked(images)
        return score_images(self.model_, images, self.engine).scores.numpy()

    score_samples = decision_function  # scikit-learn's name; here too, larger = more anomalous

    def predict(self, images: Images) -> LabelArray:
        """(n,) of 0 and 1, 1 = anomaly."""
        return (self.decision_function(images) > self.threshold_).astype(np.int64)

    def predict_proba(self, images: Images) -> ScoreArray:
        """(n, 2), normal and anomaly: a logistic of the score, ½ at the threshold, as wide as
        normal scores. It ranks as the score does; it is no posterior."""
        scores, width = self.decision_function(images), float(self.normal_scores_.std())
        return shares_of_two(scores, self.threshold_, width)

    def fit_predict(self, train: Images, unlabeled: Images | None = None) -> LabelArray:
        """Fit, and the labels of the pool, or of the normal images if there is none."""
        return self.fit(train, unlabeled).labels_

    def p_values(self, scores: ScoreArray) -> ScoreArray:
        """For each score the share of normal images that score as high or higher (n,)."""
        check_is_fitted(self)
        return p_values(scores, self.normal_scores_)

    def anomaly_maps(self, images: Images) -> ScoreArray:
        """Where it is anomalous: (n, m, m) in [0, 1], on one scale for all images of this model."""
        checked = self._checked(images)
        maps = score_images(self.model_, checked, self.engine).maps
        if self.map_scale_ is None or maps is None:
            raise ValueError(
                "this model has no anomaly maps: they come from the pretrained method, with an "
                "encoder that has feature maps (docs/beyond-the-paper.md)"
            )
        return upsampled(self.map_scale_(maps), self.image_size_).double().numpy()

    def save(self, folder: str | Path) -> None:
        """Write model.safetensors and model.json into the folder, which is made if need be."""
        check_is_fitted(self)
        SavedModel.of(self).write(Path(folder))

    @classmethod
    def load(
        cls,
        folder: str | Path,
        encoder: nn.Module | None = None,
        augmentation: Augmentation | Sequence[Augmentation] | None = None,
        val_loss: ValLoss | None = None,
        device: str = "cpu",
    ) -> "STSSAD":
        """Read a saved model; what is your own (encoder, augmentation, ...) is passed again."""
        own = Own(encoder, augmentation, val_loss)
        saved = read_model(Path(folder), own, device)
        model = cls(**saved.parameters, device=device)
        model._take(saved.choices, saved.fitted, saved.set_false_alarms, saved.set_score)
        return model

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "fitted_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "outlier_detector"
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        tags.no_validation = True  # images, not a table of features
        return tags

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        return describe_estimator(self)
