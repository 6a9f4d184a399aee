"""STSSAD: the estimator. Several starts of Algorithm 1, the best chosen, pictures scored."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from . import augment, encoders, val_loss
from .advice import advice
from .alignment import cross_fitted, effective_dimension
from .augment import FAMILIES, Augmentation, CutDiff
from .candidate import Candidate, choose
from .detector import Detector, FrozenEncoder, Tensors
from .encoders import EfficientNetLite0, ResNet18
from .evidence import Evidence, weigh
from .images import Pictures, as_images
from .local import each_chunk, upsampled
from .scorer import DensityScorer, HeatRange, Scored, Scorer, calibrate, rebuilt_scorer
from .settings import Reading, Settings
from .starts import Event, Finished, Job, run_starts
from .storage import (
    on_device,
    read_json,
    read_tensors,
    with_prefix,
    without_prefix,
    write_json,
    write_tensors,
)
from .threshold import (
    contamination,
    cross_fitted_scores,
    held_out_split,
    normal_share_above,
    threshold_for,
)
from .val_loss import ValLoss, mean_distance_loss, shift_alignment
from .version import __version__

MIN_TRAIN, MIN_POOL = 4, 2


class STSSAD:
    """Self-tuning self-supervised anomaly detection, from normal and unlabeled pictures.

    Arguments are stored as they are; what is learned ends in `_`. Larger scores are more anomalous.

    Without arguments, an encoder that knows ImageNet stays as it is, and all families of
    augmentations are tuned to the pool. The paper's way is any preset of Settings but `imagenet`.

    augmentation: what is tuned, one or several; if None, all families, or CutDiff() in the paper's
    way. encoder: any module from pictures to embeddings; EfficientNet-Lite0 if None, or a ResNet-18
    of `settings.width` in the paper's way. settings: Settings.imagenet() if None, or
    Settings.quick() for an encoder that trains from scratch. seed: fixes everything. val_loss:
    what the tuning minimises; shift_alignment if None, or mean_distance_loss in the paper's way.
    jobs: starts that run at once, each with `settings.threads` threads. false_alarms: share of
    normal pictures that `predict` may flag.
    """

    def __init__(
        self,
        augmentation: Augmentation | Sequence[Augmentation] | None = None,
        encoder: nn.Module | None = None,
        settings: Settings | None = None,
        seed: int = 0,
        val_loss: ValLoss | None = None,
        jobs: int = 1,
        device: str = "cpu",
        false_alarms: float = 0.01,
    ) -> None:
        self.augmentation = augmentation
        self.encoder = encoder
        self.settings = settings
        self.seed = seed
        self.val_loss = val_loss
        self.jobs = jobs
        self.device = device
        self.false_alarms = false_alarms

    def fit(
        self,
        train: Pictures,
        unlabeled: Pictures,
        progress: Callable[[Event], None] | None = None,
        checkpoints: str | Path | None = None,
        warm_starts: str | Path | None = None,
    ) -> "STSSAD":
        """Tune on normal pictures and an unlabeled pool.

        `progress` is called as starts advance. In the folder `checkpoints` each start keeps its
        state: a fit that was stopped at any moment goes on from there, to the bit. In the folder
        `warm_starts` it leaves its warm starts for other fits of the same pictures and settings.
        """
        self._resolve()
        images = as_images(train, self.settings_.reading, "train", strict=False)
        pool = as_images(unlabeled, self.settings_.reading, "unlabeled", strict=False)
        check_counts(images, pool)
        self.image_size_ = images.shape[-1]
        kept, held = held_out_split(len(images), self.settings_.holdout_share, self.seed)
        check_counts(images[kept], pool)
        folders = (None if f is None else Path(f) for f in (checkpoints, warm_starts))
        jobs = self._jobs(images[kept], pool, *folders)
        finished = run_starts(jobs, self.jobs, progress)
        self.candidates_ = [
            Candidate.of(f, job.augmentation, self.settings_)
            for f, job in zip(finished, jobs, strict=True)
        ]
        self.imitations_ = [f.imitation for f in finished]  # for comparisons; not saved
        self.chosen_ = choose(self.candidates_)
        best = finished[self.chosen_]
        self.augmentation_ = jobs[self.chosen_].augmentation
        self.learned_ = self._learned()
        self.theta_, self.buffers_ = best.best.theta, best.best.buffers
        self._build()
        self.train_index_, self.held_out_index_ = kept.numpy(), held.numpy()
        self.evidence_ = None
        if self.settings_.is_frozen:
            self.evidence_ = weigh(jobs, finished, self.chosen_, self.jobs, progress)
        self._calibrate(best, images[kept], images[held], pool)
        return self

    def _learned(self) -> dict[str, Any]:
        """In words; with the family where there are several to choose from by default."""
        chosen = self.candidates_[self.chosen_]
        is_choice = self.settings_.is_frozen or len(self.families_) > 1
        return {"family": chosen.family, **chosen.learned} if is_choice else chosen.learned

    def _calibrate(self, best: Finished, train: Tensor, held_out: Tensor, pool: Tensor) -> None:
        """The scorer, the threshold, and all else that rests on the scores of normal pictures."""
        self.heat_: HeatRange | None = None
        if self.evidence_ is None:
            self.scorer_: Scorer = DensityScorer(best.density)
            found = self._score(pool)
            normal = torch.empty(0)
            if not len(held_out):
                normal = torch.from_numpy(cross_fitted_scores(best.Z_trn, seed=self.seed))
        else:
            stretch = best.density.stretch if self.evidence_.fits else 0.0
            density = replace(best.density, stretch=stretch)
            calibrated = calibrate(density, self.frozen_, train, best.Z_trn, self.seed)
            self.scorer_, normal = calibrated.scorer, calibrated.normal_scores
            found = self._score(pool)
            if calibrated.normal_places is not None and found.places is not None:
                self.heat_ = HeatRange.of(calibrated.normal_places, found.places)
        self.decision_scores_: npt.NDArray[np.float64] = found.scores.numpy()
        normal = self._score(held_out).scores if len(held_out) else normal
        self.normal_scores_: npt.NDArray[np.float64] = normal.numpy()
        self._decide()
        self.warnings_ = advice(
            self.candidates_, self.chosen_, len(self.decision_scores_), len(self.normal_scores_)
        )

    def _decide(self) -> None:
        self.threshold_ = threshold_for(self.normal_scores_, self.false_alarms, self.scorer_.floor)
        self.labels_ = (self.decision_scores_ > self.threshold_).astype(int)
        self.contamination_ = contamination(self.decision_scores_, self.normal_scores_)

    def _resolve(self) -> None:
        """Fill in what was left to us. Here, not in the constructor, which only stores."""
        from_scratch = hasattr(self.encoder, "reset_parameters")
        default = Settings.quick() if from_scratch else Settings.imagenet()
        self.settings_ = default if self.settings is None else self.settings
        frozen = self.settings_.is_frozen
        if frozen and from_scratch:
            raise ValueError(
                f"{type(self.encoder).__name__} is to be trained from scratch (it has "
                "reset_parameters), and these settings train nothing; use Settings.quick() or the "
                "paper's presets"
            )
        self.encoder_ = self.encoder
        if self.encoder_ is None:
            self.encoder_ = EfficientNetLite0() if frozen else ResNet18(self.settings_.width)
        self.families_: list[Augmentation]
        if self.augmentation is None:
            self.families_ = [family() for family in FAMILIES] if frozen else [CutDiff()]
        elif isinstance(self.augmentation, Sequence):
            self.families_ = list(self.augmentation)
        else:
            self.families_ = [self.augmentation]
        if not self.families_:
            raise ValueError("augmentation is an empty list; name at least one, or None for all")
        usual = shift_alignment if frozen else mean_distance_loss
        self.val_loss_ = usual if self.val_loss is None else self.val_loss

    def _jobs(
        self, train: Tensor, pool: Tensor, checkpoints: Path | None, warm_starts: Path | None
    ) -> list[Job]:
        """A job for each start of each family; an encoder that stays embeds all pictures once."""
        assert self.encoder_ is not None
        embedded, self.dimension_ = None, 0.0
        if self.settings_.is_frozen:
            detector = Detector(self.encoder_, self.image_size_, self.device)
            frozen = detector.frozen(*detector.initial_state(self.seed))
            check_maps(frozen, train[:2])
            embedded = frozen.embed_all(train), frozen.embed_all(pool)
            self.dimension_ = effective_dimension(cross_fitted(embedded[0], self.seed))
        starts = [(family, a) for family in self.families_ for a in family.initial_values()]
        return [
            Job(
                start=k,
                initial_a=a,
                augmentation=family,
                encoder=self.encoder_,
                train=train,
                pool=pool,
                settings=self.settings_,
                val_loss=self.val_loss_,
                seed=self.seed,
                device=self.device,
                embedded=embedded,
                dimension=self.dimension_,
                checkpoints=checkpoints,
                warm_starts=warm_starts,
            )
            for k, (family, a) in enumerate(starts)
        ]

    @property
    def reading_(self) -> Reading:
        """How files are read for this model: as they were read for the fit."""
        return replace(self.settings_.reading, image_size=self.image_size_)

    def _build(self) -> None:
        assert self.encoder_ is not None
        detector = Detector(self.encoder_, self.image_size_, self.device)
        self.frozen_ = detector.frozen(self.theta_, self.buffers_)

    def _read(self, images: Pictures) -> Tensor:
        if not hasattr(self, "scorer_"):
            raise ValueError("this STSSAD has not been fitted; call fit(train, unlabeled) first")
        pictures = as_images(images, self.reading_, "images")
        check_size(pictures, self.image_size_)
        return pictures

    def embed(self, images: Pictures) -> Tensor:
        """The chosen detector's embeddings (n, d)."""
        return self.frozen_.embed_all(self._read(images))

    def decision_function(self, images: Pictures) -> npt.NDArray[np.float64]:
        """Anomaly scores (n,), larger = more anomalous."""
        scores: npt.NDArray[np.float64] = self._score(self._read(images)).scores.numpy()
        return scores

    def heatmaps(self, images: Pictures) -> npt.NDArray[np.float64]:
        """Where it is: (n, m, m) in [0, 1], on one scale for all pictures of this model."""
        places = self.place_distances(images)
        if self.heat_ is None or places is None:
            raise ValueError(
                "this model has no heatmaps: they need an encoder that stays as it is and has "
                "feature maps, as by default (docs/beyond-the-paper.md)"
            )
        heat: npt.NDArray[np.float64] = upsampled(self.heat_(places), self.image_size_).numpy()
        return heat

    def place_distances(self, images: Pictures) -> Tensor | None:
        """(n, h, w): how far each place is from the nearest normal one; None without maps."""
        return self._score(self._read(images)).places

    def _score(self, images: Tensor) -> Scored:
        """Pictures that were checked, a chunk at a time."""
        parts = list(each_chunk(images, self.scored_chunk))
        place = [part.place for part in parts if part.place is not None]
        places = [part.places for part in parts if part.places is not None]
        return Scored(
            torch.cat([part.scores for part in parts]),
            torch.cat(place) if place else None,
            torch.cat(places) if places else None,
        )

    def place_scores(self, images: Pictures) -> Tensor | None:
        """(n,): what a picture's strangest places alone say; None without maps."""
        return self._score(self._read(images)).place

    def scored_chunk(self, images: Tensor) -> Scored:
        """A few pictures, checked and of the right size, in this thread."""
        return self.scorer_(self.frozen_, images)

    def predict(self, images: Pictures) -> npt.NDArray[np.int64]:
        """(n,) of 0 and 1, 1 = anomaly."""
        return (self.decision_function(images) > self.threshold_).astype(np.int64)

    def normal_share_above(self, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """For each score the share of normal pictures that score as high or higher (n,)."""
        return normal_share_above(scores, self.normal_scores_)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments, as scikit-learn expects them."""
        return {name: getattr(self, name) for name in parameter_names()}

    def set_params(self, **params: Any) -> "STSSAD":
        for name, value in params.items():
            if name not in parameter_names():
                raise ValueError(
                    f"STSSAD has no parameter {name!r}; it has {', '.join(parameter_names())}"
                )
            setattr(self, name, value)
        return self

    def save(self, folder: str | Path) -> None:
        """Write model.safetensors and model.json into the folder, which is made if need be."""
        if not hasattr(self, "scorer_"):
            raise ValueError("there is nothing to save; call fit(train, unlabeled) first")
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_tensors(folder / "model.safetensors", self._tensors())
        write_json(folder / "model.json", self._facts())

    def _tensors(self) -> Tensors:
        return {
            **with_prefix("theta", self.theta_),
            **with_prefix("buffers", self.buffers_),
            **with_prefix("scorer", self.scorer_.tensors()),
            "decision_scores": torch.from_numpy(self.decision_scores_),
            "normal_scores": torch.from_numpy(self.normal_scores_),
            "train_index": torch.from_numpy(self.train_index_),
            "held_out_index": torch.from_numpy(self.held_out_index_),
        }

    def _facts(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "settings": asdict(self.settings_),
            "seed": self.seed,
            "augmentation": [described(f, augment, vars) for f in self.families_],
            "encoder": described(self.encoder_, encoders, lambda encoder: encoder.config()),
            "val_loss": getattr(self.val_loss_, "__name__", repr(self.val_loss_)),
            "false_alarms": self.false_alarms,
            "image_size": self.image_size_,
            "threshold": self.threshold_,
            "scorer": self.scorer_.facts(),
            "evidence": self.evidence_ and asdict(self.evidence_),
            "heat": self.heat_ and asdict(self.heat_),
            "contamination": asdict(self.contamination_),
            "warnings": self.warnings_,
            "chosen": self.chosen_,
            "learned": self.learned_,
            "candidates": [asdict(c) for c in self.candidates_],
        }

    @classmethod
    def load(
        cls,
        folder: str | Path,
        encoder: nn.Module | None = None,
        augmentation: Augmentation | Sequence[Augmentation] | None = None,
        device: str = "cpu",
    ) -> "STSSAD":
        """Read a saved model; an encoder or augmentation of your own has to be passed again."""
        folder = Path(folder)
        for name in ("model.json", "model.safetensors"):
            if not (folder / name).is_file():
                raise FileNotFoundError(
                    f"no {name} in {str(folder)!r}; give a folder that STSSAD.save has written"
                )
        facts, tensors = (
            read_json(folder / "model.json"),
            read_tensors(folder / "model.safetensors"),
        )
        families = augmentation
        if families is None:
            families = [rebuilt(f, augment, "augmentation") for f in facts["augmentation"]]
            families = families[0] if len(families) == 1 else families
        model = cls(
            families,
            encoder or rebuilt(facts["encoder"], encoders, "encoder"),
            Settings(**facts["settings"]),
            facts["seed"],
            getattr(val_loss, facts["val_loss"], None),
            device=device,
            false_alarms=facts["false_alarms"],
        )
        model._restore(facts, tensors)
        return model

    def _restore(self, facts: dict[str, Any], tensors: Tensors) -> None:
        self._resolve()
        self.image_size_ = facts["image_size"]
        self.warnings_ = facts["warnings"]
        self.chosen_ = facts["chosen"]
        self.candidates_ = [Candidate.from_json(c) for c in facts["candidates"]]
        self.learned_ = self._learned()
        families = [f for f in self.families_ for _ in f.initial_values()]
        self.augmentation_ = families[self.chosen_]
        self.theta_ = on_device(without_prefix("theta", tensors), self.device)
        self.buffers_ = on_device(without_prefix("buffers", tensors), self.device)
        self.scorer_ = rebuilt_scorer(facts["scorer"], without_prefix("scorer", tensors))
        self.evidence_ = None
        if facts["evidence"]:
            tested = tuple(facts["evidence"]["tested"])
            self.evidence_ = Evidence(**{**facts["evidence"], "tested": tested})
        self.heat_ = HeatRange(**facts["heat"]) if facts["heat"] else None
        self.decision_scores_ = tensors["decision_scores"].numpy()
        self.normal_scores_ = tensors["normal_scores"].numpy()
        self.train_index_ = tensors["train_index"].numpy()
        self.held_out_index_ = tensors["held_out_index"].numpy()
        self._decide()
        self._build()


def parameter_names() -> list[str]:
    return [name for name in inspect.signature(STSSAD.__init__).parameters if name != "self"]


def check_counts(train: Tensor, pool: Tensor) -> None:
    """Enough pictures, of one size."""
    if len(train) < MIN_TRAIN:
        raise ValueError(
            f"train holds {len(train)} picture(s), but at least {MIN_TRAIN} are needed to learn "
            "what normal pictures have in common (a hundred to learn it well); add normal pictures"
        )
    if len(pool) < MIN_POOL:
        raise ValueError(
            f"unlabeled holds {len(pool)} picture(s), but at least {MIN_POOL} are needed to "
            "compare their scores (some dozen to tune by); add unlabeled pictures"
        )
    if train.shape[-1] != pool.shape[-1]:
        raise ValueError(
            f"train and unlabeled must have one picture size, got {train.shape[-1]} and "
            f"{pool.shape[-1]} pixels; resize one of them"
        )


def check_maps(frozen: FrozenEncoder, images: Tensor) -> None:
    """Maps and embeddings of an encoder must belong together, or scores would mean nothing."""
    if not frozen.has_maps:
        return
    embedded, pooled = frozen.embed_chunk(images), frozen.pooled(frozen.maps_chunk(images))
    if embedded.shape != pooled.shape or not torch.allclose(embedded, pooled, rtol=1e-3, atol=1e-4):
        raise ValueError(
            "the encoder's pooled(feature_maps(x)) differs from what it returns for x; make "
            "forward return that, or leave feature_maps out"
        )


def check_size(images: Tensor, image_size: int) -> None:
    if images.shape[-1] != image_size:
        raise ValueError(
            f"this model was fitted to pictures of {image_size} pixels, got {images.shape[-1]}; "
            "resize them"
        )


def described(part: object, module: Any, config: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """A part of the model by its class and, if it is one of ours, the arguments that build it."""
    name = type(part).__name__
    return {"class": name, "config": config(part) if name in module.__all__ else {}}


def rebuilt(description: dict[str, Any], module: Any, kind: str) -> Any:
    """The part again, if its class is one of ours."""
    name = description["class"]
    if name not in module.__all__:
        raise ValueError(
            f"this model was fitted with the {kind} {name!r}, which is not one of stssad's; "
            f"pass it: STSSAD.load(folder, {kind}=...)"
        )
    return getattr(module, name)(**description["config"])
