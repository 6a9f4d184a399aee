"""STSSAD: the estimator. Several starts of Algorithm 1, the best chosen, pictures scored."""

import inspect
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from . import augment, encoders, val_loss
from .advice import advice
from .augment import Augmentation, CutDiff
from .candidate import Candidate, choose
from .detector import EMBEDDING_CHUNK, Detector, Tensors
from .encoders import ResNet18
from .images import Pictures, as_images
from .scoring import GaussianDensity
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
from .threads import in_order, workers
from .threshold import (
    contamination,
    cross_fitted_scores,
    held_out_split,
    normal_share_above,
    threshold_for,
)
from .val_loss import ValLoss, mean_distance_loss
from .version import __version__

MIN_TRAIN, MIN_POOL = 4, 2


class STSSAD:
    """Self-tuning self-supervised anomaly detection, from normal and unlabeled pictures.

    Arguments are stored as they are; what is learned ends in `_`. Larger scores are more anomalous.

    augmentation: what is tuned; CutDiff() if None. encoder: any module from pictures to embeddings;
    a ResNet-18 of `settings.width` if None. settings: Settings.quick() if None. seed: fixes
    everything. val_loss: what the tuning minimises. jobs: starts that run at once, each with
    `settings.threads` threads. false_alarms: share of normal pictures that `predict` may flag.
    """

    def __init__(
        self,
        augmentation: Augmentation | None = None,
        encoder: nn.Module | None = None,
        settings: Settings | None = None,
        seed: int = 0,
        val_loss: ValLoss = mean_distance_loss,
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
        folders = (None if f is None else Path(f) for f in (checkpoints, warm_starts))
        jobs = self._jobs(images[kept], pool, *folders)
        finished = run_starts(jobs, self.jobs, progress)
        self.candidates_ = [Candidate.of(f, self.augmentation_, self.settings_) for f in finished]
        self.chosen_ = choose(self.candidates_)
        self.learned_ = self.candidates_[self.chosen_].learned
        self._keep(finished[self.chosen_])
        self.train_index_, self.held_out_index_ = kept.numpy(), held.numpy()
        self.decision_scores_ = self.decision_function(pool)
        self._calibrate(images[held], finished[self.chosen_].Z_trn)
        return self

    def _calibrate(self, held_out: Tensor, Z_trn: Tensor) -> None:
        """The threshold and all else that rests on the scores of normal pictures."""
        if len(held_out):
            self.normal_scores_ = self.decision_function(held_out)
        else:
            self.normal_scores_ = cross_fitted_scores(Z_trn, seed=self.seed)
        self._decide()
        self.warnings_ = advice(
            self.candidates_, self.chosen_, len(self.decision_scores_), len(self.normal_scores_)
        )

    def _decide(self) -> None:
        floor = self.density_.least
        self.threshold_ = threshold_for(self.normal_scores_, self.false_alarms, floor)
        self.labels_ = (self.decision_scores_ > self.threshold_).astype(int)
        self.contamination_ = contamination(self.decision_scores_, self.normal_scores_)

    def _resolve(self) -> None:
        """Fill in what was left to us. Here, not in the constructor, which only stores."""
        self.settings_ = self.settings if self.settings is not None else Settings.quick()
        self.augmentation_ = self.augmentation if self.augmentation is not None else CutDiff()
        default = self.encoder is None
        self.encoder_ = ResNet18(self.settings_.width) if default else self.encoder

    def _jobs(
        self, train: Tensor, pool: Tensor, checkpoints: Path | None, warm_starts: Path | None
    ) -> list[Job]:
        assert self.encoder_ is not None
        return [
            Job(
                start=k,
                initial_a=a,
                augmentation=self.augmentation_,
                encoder=self.encoder_,
                train=train,
                pool=pool,
                settings=self.settings_,
                val_loss=self.val_loss,
                seed=self.seed,
                device=self.device,
                checkpoints=checkpoints,
                warm_starts=warm_starts,
            )
            for k, a in enumerate(self.augmentation_.initial_values())
        ]

    def _keep(self, chosen: Finished) -> None:
        self.theta_, self.buffers_ = chosen.best.theta, chosen.best.buffers
        self.density_ = chosen.density
        self._build()

    @property
    def reading_(self) -> Reading:
        """How files are read for this model: as they were read for the fit."""
        return replace(self.settings_.reading, image_size=self.image_size_)

    def _build(self) -> None:
        assert self.encoder_ is not None
        detector = Detector(self.encoder_, self.image_size_, self.device)
        self.frozen_ = detector.frozen(self.theta_, self.buffers_)

    def _read(self, images: Pictures) -> Tensor:
        if not hasattr(self, "density_"):
            raise ValueError("this STSSAD has not been fitted; call fit(train, unlabeled) first")
        pictures = as_images(images, self.reading_, "images")
        check_size(pictures, self.image_size_)
        return pictures

    def embed(self, images: Pictures) -> Tensor:
        """The chosen detector's embeddings (n, d)."""
        return self.frozen_.embed_all(self._read(images))

    def decision_function(self, images: Pictures) -> npt.NDArray[np.float64]:
        """Anomaly scores (n,), larger = more anomalous."""
        chunks = torch.split(self._read(images), EMBEDDING_CHUNK)
        with workers() as pool:
            return np.concatenate(list(in_order(pool, self.score_chunk, chunks, len(chunks))))

    def score_chunk(self, images: Tensor) -> npt.NDArray[np.float64]:
        """Scores of a few pictures, checked and of the right size, in this thread."""
        Z = self.frozen_.embed_chunk(images)
        scores: npt.NDArray[np.float64] = self.density_.score(Z).numpy()
        return scores

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
        if not hasattr(self, "density_"):
            raise ValueError("there is nothing to save; call fit(train, unlabeled) first")
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_tensors(folder / "model.safetensors", self._tensors())
        write_json(folder / "model.json", self._facts())

    def _tensors(self) -> Tensors:
        assert self.density_.mean is not None and self.density_.cholesky is not None
        return {
            **with_prefix("theta", self.theta_),
            **with_prefix("buffers", self.buffers_),
            "density.mean": self.density_.mean,
            "density.cholesky": self.density_.cholesky,
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
            "augmentation": described(self.augmentation_, augment, vars),
            "encoder": described(self.encoder_, encoders, lambda encoder: encoder.config()),
            "val_loss": getattr(self.val_loss, "__name__", repr(self.val_loss)),
            "false_alarms": self.false_alarms,
            "image_size": self.image_size_,
            "threshold": self.threshold_,
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
        augmentation: Augmentation | None = None,
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
        model = cls(
            augmentation or rebuilt(facts["augmentation"], augment, "augmentation"),
            encoder or rebuilt(facts["encoder"], encoders, "encoder"),
            Settings(**facts["settings"]),
            facts["seed"],
            getattr(val_loss, facts["val_loss"], mean_distance_loss),
            device=device,
            false_alarms=facts["false_alarms"],
        )
        model._restore(facts, tensors)
        return model

    def _restore(self, facts: dict[str, Any], tensors: Tensors) -> None:
        self._resolve()
        self.image_size_ = facts["image_size"]
        self.warnings_ = facts["warnings"]
        self.chosen_, self.learned_ = facts["chosen"], facts["learned"]
        self.candidates_ = [Candidate.from_json(c) for c in facts["candidates"]]
        self.theta_ = on_device(without_prefix("theta", tensors), self.device)
        self.buffers_ = on_device(without_prefix("buffers", tensors), self.device)
        self.density_ = GaussianDensity(tensors["density.mean"], tensors["density.cholesky"])
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
