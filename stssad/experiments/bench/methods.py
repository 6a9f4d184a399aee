"""The methods by the paper's names, each built from a testbed's settings and a seed."""

import importlib
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...augment import Augmentation
from ...encoders.encoding import encode
from ...model import STSSAD
from ...registry import AUGMENTATIONS
from ...settings import AnySettings, Mode, PretrainedSettings, Settings
from ...tuning.val_loss import ValLoss, mean_distance_loss, mmd_loss
from ..baselines.random_augmentation import RandomAugmentation
from ..baselines.random_search import RandomSearch
from .tables import ABLATIONS, OURS

WITH_AUGMENTATION = f"{OURS}@"
PRETRAINED = f"{OURS}+"
RATES = (0.01, 0.05)  # of false alarms that results are judged at


class Estimator(Protocol):
    """What a method builds: it sees images, and no labels or names."""

    def fit(self, train: Tensor, unlabeled: Tensor) -> object: ...

    def decision_function(self, images: Tensor) -> npt.NDArray[np.float64]: ...

    # It may also have `other_scores(images)`, by name, `details`, numbers to store, and
    # `thresholds` for false alarm rates.


@dataclass(frozen=True)
class Surroundings:
    """What a method may be built from."""

    settings: AnySettings
    augmentation: Callable[[], Augmentation]  # what is tuned on this testbed
    seed: int
    warm_starts: Path | None  # a folder that tuned methods share
    device: str = "cpu"
    defects: bool = True  # anomalies are defects, which an augmentation type may resemble


@dataclass(frozen=True)
class Method:
    """`uses_pool`: a method that doesn't train on it is fitted once for all tasks of the same
    images; if it has `choose(unlabeled)`, that is called for each."""

    build: Callable[[Surroundings], Estimator]
    uses_pool: bool


def paper_settings(settings: AnySettings) -> Settings:
    """The paper's methods, under the paper's names, only where something is trained."""
    if not isinstance(settings, Settings):
        raise ValueError(f"these settings train nothing; use {PRETRAINED}, Frozen or PatchCore")
    return settings


class Tuned:
    """ST-SSAD that shares its warm starts with other cells."""

    def __init__(self, model: STSSAD, warm_starts: Path | None) -> None:
        self.model, self.warm_starts = model, warm_starts

    def fit(self, train: Tensor, unlabeled: Tensor) -> "Tuned":
        self.model.fit(train, unlabeled, warm_starts=self.warm_starts)
        self.learned_, self.candidates_ = self.model.learned_, self.model.candidates_
        return self

    def decision_function(self, images: Tensor) -> npt.NDArray[np.float64]:
        return self.model.decision_function(images)


class Ours:
    """The default of `stssad fit`, and the scores that it is made of."""

    def __init__(self, model: STSSAD) -> None:
        if not isinstance(model.settings, PretrainedSettings):
            raise ValueError(f"{PRETRAINED} keeps its encoder as it is; use --preset imagenet")
        self.model = model

    def fit(self, train: Tensor, unlabeled: Tensor) -> "Ours":
        self.model.fit(train, unlabeled)
        self.learned_, self.candidates_ = self.model.learned_, self.model.candidates_
        self.pool = unlabeled
        return self

    def decision_function(self, images: Tensor) -> npt.NDArray[np.float64]:
        """Of the pool, what a fit says: no image of it has taught the score that it gets."""
        if images.shape == self.pool.shape and torch.equal(images, self.pool):
            return self.model.decision_scores_
        return self.model.decision_function(images)

    @property
    def details(self) -> dict[str, float]:
        evidence, lesson, share = (
            self.model.evidence_,
            self.model.lesson_,
            self.model.contamination_,
        )
        pool = self.model.fitted_.pool
        assert lesson is not None and share is not None and pool is not None
        assert pool.trial is not None
        explained = {} if evidence is None else {"J": evidence.alignment, "p": evidence.p_value}
        return {
            **explained,
            "taught": pool.trial.weight,
            "p of what is taught": pool.trial.gain.p_value,
            "outliers": lesson.n_outliers,
            "agreement": lesson.agreement,
            "contamination low": share.low,
            "contamination high": share.high,
            "warnings": len(self.model.warnings_),
        }

    @property
    def thresholds(self) -> dict[float, float]:
        """For each false alarm rate that results are judged at."""
        return {rate: self.model.tail_.threshold(rate) for rate in RATES}

    def other_scores(self, images: Tensor) -> dict[str, npt.NDArray[np.float64]]:
        """Of the score that has learned nothing from the pool, and of each part."""
        model = self.model.model_
        features = encode(model.encoder, images, model.small_size)
        untaught = self.model.workings_.untaught
        assert untaught is not None
        parts = model.score_features(features).parts
        by_name = {"untuned": untaught(features).scores, "image": parts[0]}
        by_name |= dict(zip(("patches", "small patches"), parts[1:], strict=False))
        return {name: scores.double().cpu().numpy() for name, scores in by_name.items()}


def build_tuned(
    s: Surroundings, val_loss: ValLoss = mean_distance_loss, mode: Mode | None = None
) -> Tuned:
    settings = paper_settings(s.settings)
    settings = replace(settings, hypergradient=mode) if mode else settings
    model = STSSAD(
        "paper",
        s.augmentation(),
        settings=settings,
        seed=s.seed,
        val_loss=val_loss,
        device=s.device,
    )
    return Tuned(model, s.warm_starts)


def mmd_unnormalized(Z_trn: Tensor, Z_aug: Tensor, Z_val: Tensor) -> Tensor:
    return mmd_loss(Z_trn, Z_aug, Z_val, normalize=False)


def choose_augmentation(name: str, s: Surroundings) -> Augmentation:
    """The testbed's, if it is of that type, so that both have the same range; else the default."""
    own = s.augmentation()
    default: Augmentation = AUGMENTATIONS[name]()
    return own if type(own) is type(default) else default


def build_random(name: str, dynamic: bool, s: Surroundings) -> Estimator:
    return RandomAugmentation(
        choose_augmentation(name, s), dynamic, paper_settings(s.settings), s.seed, s.device
    )


def build_random_search(name: str, dynamic: bool, s: Surroundings) -> Estimator:
    return RandomSearch(
        choose_augmentation(name, s), dynamic, paper_settings(s.settings), s.seed, s.device
    )


def load_baseline(home: str) -> Method:
    """One that ignores the pool, by its file and class, imported when it is first used.

    Its constructor takes what it needs of `settings`, `seed` and `device`.
    """

    def build(s: Surroundings) -> Estimator:
        module, _, name = home.partition(":")
        type_ = getattr(importlib.import_module(f"stssad.experiments.baselines.{module}"), name)
        wanted = set(inspect.signature(type_).parameters) & {"settings", "seed", "device"}
        given = {param: getattr(s, param) for param in wanted}
        if "settings" in given:
            given["settings"] = paper_settings(s.settings)
        estimator: Estimator = type_(**given)
        return estimator

    return Method(build, uses_pool=False)


RANDOM = {"CO": "CutOut", "CP": "CutPaste", "CD": "CutDiff", "RO": "Rotation"}
METHODS: Mapping[str, Method] = {
    "AE": load_baseline("autoencoder:AutoEncoder"),
    "D-SVDD": load_baseline("deep_svdd:DeepSVDD"),
    **{
        f"{way}-{short}": Method(partial(build_random, name, way == "RD"), uses_pool=False)
        for short, name in RANDOM.items()
        for way in ("RS", "RD")
    },
    **{
        f"{way}4-{short}": Method(
            partial(build_random_search, RANDOM[short], way == "RD"), uses_pool=False
        )
        for short in ("CD", "RO")
        for way in ("RS", "RD")
    },
    "Frozen": load_baseline("frozen:Frozen"),
    "PatchCore": load_baseline("patchcore:PatchCore"),
    PRETRAINED: Method(
        lambda s: Ours(
            STSSAD(settings=s.settings, seed=s.seed, device=s.device, explain=s.defects)
        ),
        uses_pool=True,
    ),
    OURS: Method(build_tuned, uses_pool=True),
    "MMD1": Method(lambda s: build_tuned(s, mmd_loss), uses_pool=True),
    "MMD2": Method(lambda s: build_tuned(s, mmd_unnormalized), uses_pool=True),
    "FO": Method(lambda s: build_tuned(s, mode="first_order"), uses_pool=True),
}


def default_methods(testbed: str, preset: str = "cpu") -> list[str]:
    """Those of the paper's table for it, and one with equal computation; or those that train
    nothing."""
    if preset == "imagenet":
        return ["Frozen", "PatchCore", PRETRAINED]
    if testbed.startswith("demonstrative"):
        return ["ST-SSAD"]
    shorts = ("RO",) if testbed == "svhn" else ("CO", "CP", "CD")
    random_ones = [f"{way}-{short}" for short in shorts for way in ("RS", "RD")]
    return ["AE", "D-SVDD", *random_ones, "ST-SSAD", *ABLATIONS, f"RS4-{shorts[-1]}"]


def find_method(reference: str) -> Method:
    """By the paper's name, or your own as FILE.py:NAME, a function of (settings, seed).

    ST-SSAD@FILE.py:NAME is ST-SSAD with an augmentation of your own.
    """
    if reference in METHODS:
        return METHODS[reference]
    if ".py:" not in reference:
        raise ValueError(
            f"unknown method {reference!r}; use {', '.join(METHODS)}, or FILE.py:NAME for your own"
        )
    if reference.startswith(WITH_AUGMENTATION):
        own = import_object(reference.removeprefix(WITH_AUGMENTATION))
        return Method(lambda s: build_tuned(replace(s, augmentation=own)), uses_pool=True)
    make = import_object(reference)
    return Method(lambda s: make(s.settings, s.seed), uses_pool=True)


def make_name(reference: str) -> str:
    """A method's name in results: without the file, whose path differs between machines."""
    if ".py:" not in reference:
        return reference
    name = reference.rpartition(":")[2]
    return f"{OURS}[{name}]" if reference.startswith(WITH_AUGMENTATION) else name


def read_source(reference: str) -> str:
    """The code of a method or augmentation of one's own; nothing for ours."""
    if ".py:" not in reference:
        return ""
    return Path(reference.removeprefix(WITH_AUGMENTATION).rpartition(":")[0]).read_text("utf-8")


def name_methods(references: list[str]) -> dict[str, str]:
    """Methods by the names that results give them, which must differ."""
    named: dict[str, str] = {}
    for reference in references:
        find_method(reference)
        name = make_name(reference)
        if name in named or (name in METHODS and ".py:" in reference):
            raise ValueError(f"two methods are called {name!r}; give yours another name")
        named[name] = reference
    return named


def import_object(reference: str) -> Any:
    """NAME of the Python file FILE.py, given as FILE.py:NAME."""
    path, _, name = reference.rpartition(":")
    if not Path(path).is_file():
        raise FileNotFoundError(f"no such file: {path!r}; give FILE.py:NAME")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, name):
        raise ValueError(f"{path!r} has no {name!r}; give FILE.py:NAME")
    return getattr(module, name)
