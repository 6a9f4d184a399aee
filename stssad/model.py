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
from .engine import scored
from .images import Images, as_images, images_for_fit, of_size
from .methods.advice import about_size, about_unreadable
from .methods.defaults import resolve
from .methods.problem import Choices, Fitted, Problem, check_counts
from .registry import METHODS
from .saved_model import Own, SavedModel, read_model, summary_of
from .scoring.anomaly_map import upsampled
from .scoring.calibration import Scores
from .scoring.part import Part
from .scoring.threshold import p_values, rate_above, shares_of_two, threshold_for
from .settings import AnySettings, Reading
from .tuning.restarts import Event
from .tuning.val_loss import ValLoss
from .words import told

ScoreArray = npt.NDArray[np.float64]
LabelArray = npt.NDArray[np.int64]


class STSSAD(BaseEstimator):  # type: ignore[misc]
    """Self-tuning self-supervised anomaly detection, from normal and unlabeled images.

    Larger scores are more anomalous; labels are 0 and 1 (anomaly), as in PyOD. Images are tensors
    (n, 3, m, m) in [0, 1], uint8 arrays (n, m, m, 3) or (n, m, m), a folder, or a list of paths.

    method: "pretrained" keeps an ImageNet encoder and tunes only the augmentation; "paper" is
        ST-SSAD (KDD 2025), which trains its detector from scratch.
    augmentation: what is tuned, one or several; None: five types, or CutDiff in the paper's method.
    encoder: EfficientNetLite0 if None, or a ResNet18 of `settings.width` in the paper's method.
    settings: PretrainedSettings, or Settings for the paper's method (Settings.quick() if None).
    seed: random seed.
    val_loss: what tuning minimises; shift_alignment, or mean_distance_loss in the paper's method.
    parts: of the score, in the pretrained method; ImageGaussian and MemoryBank if None.
    jobs: parallel processes. device: "cpu" or "cuda".
    engine: of a network whose weights stay: "torch", "onnx" (ONNX Runtime), or "auto", the faster.
    false_alarms: the share of normal images that `predict` may flag.

    What is learned:

    decision_scores_, labels_: of the unlabeled pool (of the normal images, if there is none).
    normal_scores_: of normal images that the model wasn't fitted to (held out or cross-fitted).
    threshold_, false_alarms_: scores above it are anomalies; the rate that it was set for.
    contamination_: the estimated share of anomalies in the pool, with an interval; None without.
    learned_: the tuned augmentation in words; candidates_: every restart, with its trajectory,
        losses and score variance; chosen_: the number of the best; augmentation_: its type.
    evidence_: whether the pool bears it out; lesson_: what its outliers taught (pretrained).
    warnings_: what to know before one trusts it. image_size_: in pixels.
    model_: one `nn.Module` from images to scores and anomaly maps; map_scale_: the range of those.
    train_index_, held_out_index_: which normal images were fitted to, and which held out.
    choices_: what was left open, filled in. fitted_: all that the method returned.
    """

    def __init__(
        self,
        method: str = "pretrained",
        augmentation: Augmentation | Sequence[Augmentation] | None = None,
        encoder: nn.Module | None = None,
        settings: AnySettings | None = None,
        seed: int = 0,
        val_loss: ValLoss | None = None,
        parts: Sequence[Part] | None = None,
        jobs: int = 1,
        device: str = "cpu",
        false_alarms: float = 0.01,
        engine: str = "auto",
    ) -> None:
        self.method, self.augmentation, self.encoder = method, augmentation, encoder
        self.settings, self.seed, self.val_loss, self.parts = settings, seed, val_loss, parts
        self.jobs, self.device, self.false_alarms, self.engine = jobs, device, false_alarms, engine

    def fit(
        self,
        train: Images,
        unlabeled: Images | None = None,
        progress: Callable[[Event], None] | None = None,
        checkpoints: str | Path | None = None,
        warm_starts: str | Path | None = None,
    ) -> "STSSAD":
        """Fit to normal images, tuned to an unlabeled pool; without one nothing is tuned.

        `progress` is called as restarts advance. In the folder `checkpoints` each restart keeps its
        state: a fit that was stopped at any moment resumes from there, bit-identically. In the
        folder `warm_starts` it leaves its warm starts for other fits of the same images.
        """
        method, choices = resolve(
            self.method, self.augmentation, self.encoder, self.settings, self.val_loss, self.parts
        )
        given = images_for_fit(train, unlabeled, choices.settings.reading)
        choices = choices.with_reading(given.reading)
        check_counts(given.train, given.pool)
        problem = Problem(
            given.train, given.pool, choices, self.seed, self.jobs, self.device, self.engine,
            progress, Path(checkpoints) if checkpoints else None,
            Path(warm_starts) if warm_starts else None,
        )  # fmt: skip
        fitted = method.fit(problem)
        fitted.warnings.extend(about_unreadable(given.unreadable))
        fitted.warnings.extend(about_size(given.file_side, problem.image_size))
        self._take(choices, fitted, self.false_alarms)
        return self

    def _take(
        self, choices: Choices, fitted: Fitted, false_alarms: float, score: float | None = None
    ) -> None:
        """Everything that is learned, under the names that users know."""
        self.choices_, self.fitted_ = choices, fitted
        self.model_, self.image_size_ = fitted.model, fitted.model.image_size
        self.candidates_, self.chosen_ = fitted.candidates, fitted.chosen
        self.augmentation_, self.map_scale_ = fitted.augmentation, fitted.map_scale
        self.evidence_, self.lesson_ = fitted.evidence, fitted.lesson
        self.warnings_, self.contamination_ = fitted.warnings, fitted.contamination
        self.train_index_ = fitted.train_index.numpy()
        self.held_out_index_ = fitted.held_out_index.numpy()
        self.learned_: dict[str, Any] = {}
        if fitted.chosen is not None:
            self.learned_ = METHODS[self.method].learned(
                fitted.candidates[fitted.chosen], len(choices.augmentations)
            )
        self.normal_scores_: ScoreArray = fitted.normal_scores.numpy()
        self.decision_scores_ = self.normal_scores_
        if fitted.pool_scores is not None:
            self.decision_scores_ = fitted.pool_scores.numpy()
        self.set_threshold(false_alarms, score)

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
        return self.model_.score_all(self._checked(images))

    def _checked(self, images: Images) -> Tensor:
        check_is_fitted(self)
        return of_size(self.image_size_, as_images(images, self.reading_, "images"))

    def decision_function(self, images: Images) -> ScoreArray:
        """Anomaly scores (n,), larger = more anomalous."""
        return scored(self, self._checked(images)).scores.numpy()

    def score_samples(self, images: Images) -> ScoreArray:
        """The same under scikit-learn's name; here too, larger = more anomalous."""
        return self.decision_function(images)

    def predict(self, images: Images) -> LabelArray:
        """(n,) of 0 and 1, 1 = anomaly."""
        return (self.decision_function(images) > self.threshold_).astype(np.int64)

    def predict_proba(self, images: Images) -> ScoreArray:
        """(n, 2), normal and anomaly: a logistic of the score, ½ at the threshold.

        Its width is the deviation of normal scores. It ranks as the score does; it is no posterior.
        """
        scores = self.decision_function(images)
        return shares_of_two(scores, self.threshold_, float(self.normal_scores_.std()))

    def fit_predict(self, train: Images, unlabeled: Images | None = None) -> LabelArray:
        """Fit, and the labels of the pool, or of the normal images if there is none."""
        return self.fit(train, unlabeled).labels_

    def p_values(self, scores: ScoreArray) -> ScoreArray:
        """For each score the share of normal images that score as high or higher (n,)."""
        check_is_fitted(self)
        return p_values(scores, self.normal_scores_)

    def anomaly_maps(self, images: Images) -> ScoreArray:
        """Where it is anomalous: (n, m, m) in [0, 1], on one scale for all images of this model."""
        found = scored(self, self._checked(images)).maps
        if self.map_scale_ is None or found is None:
            raise ValueError(
                "this model has no anomaly maps: they come from the pretrained method, with an "
                "encoder that has feature maps (docs/beyond-the-paper.md)"
            )
        scaled = upsampled(self.map_scale_(found), self.image_size_)
        return scaled.double().numpy()

    def save(self, folder: str | Path) -> None:
        """Write model.safetensors and model.json into the folder, which is made if need be."""
        check_is_fitted(self)
        summary = summary_of(self.fitted_, self.learned_, self.threshold_)
        saved = SavedModel(
            self.method, self.seed, self.false_alarms, self.false_alarms_, self.set_score_,
            self.choices_, self.fitted_, summary,
        )  # fmt: skip
        saved.write(Path(folder))

    @classmethod
    def load(
        cls,
        folder: str | Path,
        encoder: nn.Module | None = None,
        augmentation: Augmentation | Sequence[Augmentation] | None = None,
        val_loss: ValLoss | None = None,
        parts: Sequence[Part] | None = None,
        device: str = "cpu",
    ) -> "STSSAD":
        """Read a saved model; what is your own (encoder, augmentation, ...) is passed again."""
        own = Own(encoder, augmentation, val_loss, parts)
        saved = read_model(Path(folder), own, device)
        choices, several = saved.choices, saved.choices.augmentations
        model = cls(
            saved.method, several[0] if len(several) == 1 else several, choices.encoder,
            choices.settings, saved.seed, choices.val_loss, choices.parts, device=device,
            false_alarms=saved.false_alarms,
        )  # fmt: skip
        model._take(choices, saved.fitted, saved.set_false_alarms, saved.set_score)
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
        return told(self)
