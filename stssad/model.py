"""STSSAD: the estimator. It fills in defaults, calls a method, scores, saves and loads."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from .augment import Augmentation
from .images.reading import Reading
from .images.source import FitImages, Images, as_images, of_size
from .methods.defaults import pose_problem
from .methods.description import describe_estimator, describe_tags
from .methods.engine import score_images
from .methods.problem import Choices, Explanation, Fitted, Workings
from .registry import METHODS
from .runs.saved_model import Own, SavedModel, read_model
from .scoring.anomaly_map import scaled_maps
from .scoring.decision import FALSE_ALARMS, FALSE_DISCOVERIES, Decision, Thresholds
from .scoring.false_discovery import q_values
from .scoring.score import Scores
from .scoring.tail import NormalTail, ScoreArray
from .scoring.threshold import LabelArray, labels_above, shares_of_two
from .settings import AnySettings
from .tuning.progress import Notify
from .tuning.val_loss import ValLoss


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
    false_alarms: the share of new normal images that `predict` may flag.
    false_discoveries: of the pool's flagged images, the share that may be normal; None: as above.
    explain: whether `fit` also says what kind of anomaly the pool holds; no score depends on it.

    What is learned:

    decision_scores_, labels_: of the unlabeled pool (of the normal images, if there is none).
    normal_scores_: of normal images that the model wasn't fitted to (held out or cross-fitted).
    threshold_, false_alarms_: scores of new images above it are anomalies; the rate that it keeps.
    pool_threshold_: the same of the pool, by the false discovery rate; decision_: what was asked.
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
        false_alarms: float = FALSE_ALARMS,
        false_discoveries: float | None = FALSE_DISCOVERIES,
        engine: str = "auto",
        explain: bool = True,
    ) -> None:
        self.method, self.augmentation, self.encoder = method, augmentation, encoder
        self.settings, self.seed, self.val_loss, self.explain = settings, seed, val_loss, explain
        self.jobs, self.device, self.engine = jobs, device, engine
        self.false_alarms, self.false_discoveries = false_alarms, false_discoveries

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

        `progress` is called as stages and restarts advance, `on_scored` once scores are there.
        Restarts keep their state in `checkpoints`, from which a stopped fit resumes to the same
        bits, and their warm starts, for other fits of the same images, in `warm_starts`.
        """
        problem, remarks = pose_problem(self, train, unlabeled, progress, checkpoints, warm_starts)
        fitted, workings = METHODS[self.method].fit(problem)
        self.workings_: Workings = workings  # until the model is saved and loaded
        fitted.warnings.extend(remarks)
        self._take(problem.choices, fitted, self._requested())
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

    def _requested(self) -> Decision:
        return Decision(self.false_alarms, self.false_discoveries)

    def _take(self, choices: Choices, fitted: Fitted, decision: Decision) -> None:
        """Everything that scores, under the names that users know."""
        self.choices_, self.fitted_, pool = choices, fitted, fitted.pool
        self.model_, self.image_size_ = fitted.model, fitted.model.image_size
        self.map_scale_, self.warnings_ = fitted.map_scale, fitted.warnings
        self.train_index_ = fitted.train_index.numpy()
        self.held_out_index_ = fitted.held_out_index.numpy()
        self.normal_scores_: ScoreArray = fitted.normal_scores.numpy()
        self.tail_ = NormalTail.of(self.normal_scores_)
        self.decision_scores_ = self.normal_scores_ if pool is None else pool.scores.numpy()
        self.contamination_ = None if pool is None else pool.contamination
        self.lesson_ = None if pool is None else pool.lesson
        self._take_explanation(fitted.explanation)
        self._decide(decision)

    def _take_explanation(self, explanation: Explanation | None) -> None:
        """Everything that explains."""
        self.fitted_ = replace(self.fitted_, explanation=explanation)
        self.candidates_ = [] if explanation is None else explanation.candidates
        self.chosen_ = None if explanation is None else explanation.chosen
        self.augmentation_ = None if explanation is None else explanation.augmentation
        self.evidence_ = None if explanation is None else explanation.evidence
        self.learned_: dict[str, Any] = {}
        if explanation is not None:
            chosen, n_types = explanation.chosen_candidate, len(self.choices_.augmentations)
            self.learned_ = METHODS[self.method].learned(chosen, n_types)

    def set_threshold(
        self,
        false_alarms: float | None = None,
        score: float | None = None,
        false_discoveries: float | None = None,
    ) -> "STSSAD":
        """Flag from now on, of new images and the pool: this share of normal images; all above a
        score; or so many of the pool that this share is normal; or as the fit was asked to."""
        check_is_fitted(self)
        decision = Decision.of(false_alarms, score, false_discoveries)
        return self._decide(decision or self._requested())

    def _decide(self, decision: Decision) -> "STSSAD":
        pool = None if self.fitted_.pool is None else self.decision_scores_
        thresholds = Thresholds.of(decision, self.tail_, pool)
        self.decision_, self.false_alarms_ = decision, thresholds.false_alarms
        self.threshold_, self.pool_threshold_ = thresholds.new, thresholds.pool
        self.labels_ = labels_above(self.decision_scores_, self.pool_threshold_)
        return self

    @property
    def q_values_(self) -> ScoreArray:
        """Of each image of the pool: the false discovery rate at which it is flagged."""
        return q_values(self.p_values(self.decision_scores_))

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
        checked = self._checked(images)
        return score_images(self.model_, checked, self.engine).scores.numpy()

    score_samples = decision_function  # scikit-learn's name; here too, larger = more anomalous

    def predict(self, images: Images) -> LabelArray:
        """(n,) of 0 and 1, 1 = anomaly."""
        return labels_above(self.decision_function(images), self.threshold_)

    def predict_proba(self, images: Images) -> ScoreArray:
        """(n, 2), normal and anomaly: a logistic of the score, ½ at the threshold; no posterior."""
        scores, width = self.decision_function(images), float(self.normal_scores_.std())
        return shares_of_two(scores, self.threshold_, width)

    def fit_predict(self, train: Images, unlabeled: Images | None = None) -> LabelArray:
        """Labels of the pool that it is fitted to, or of the normal images if there is none."""
        return self.fit(train, unlabeled).labels_

    def p_values(self, scores: ScoreArray) -> ScoreArray:
        """For each score the share of normal images that score as high or higher (n,)."""
        check_is_fitted(self)
        return self.tail_.p_values(scores)

    def anomaly_maps(self, images: Images) -> ScoreArray:
        """Where it is anomalous: (n, m, m) in [0, 1], on one scale for all images of this model."""
        checked = self._checked(images)
        maps = score_images(self.model_, checked, self.engine).maps
        return scaled_maps(maps, self.map_scale_, self.image_size_).double().numpy()

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
        saved = read_model(Path(folder), Own(encoder, augmentation, val_loss), device)
        model = cls(**saved.parameters, device=device)
        model._take(saved.choices, saved.fitted, saved.decision)
        return model

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "fitted_")

    def __sklearn_tags__(self) -> Any:
        return describe_tags(super().__sklearn_tags__())

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        return describe_estimator(self)
