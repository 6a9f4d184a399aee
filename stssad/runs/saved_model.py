"""A fitted model as two files, model.safetensors and model.json: never pickle."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn

from ..augment import Augmentation
from ..encoders.encoder import PlainEncoder, as_encoder
from ..methods.anomaly_model import AnomalyModel
from ..methods.problem import Choices, Explanation, Fitted, Method, PoolResult
from ..registry import AUGMENTATIONS, ENCODERS, METHODS, VAL_LOSSES, Registry
from ..scoring.anomaly_map import MapScale
from ..scoring.conditions import CONDITIONS
from ..scoring.contamination import Contamination
from ..scoring.decision import Decision, Source
from ..scoring.evidence import Evidence
from ..scoring.lesson import Lesson
from ..scoring.pool_auc import Gain
from ..scoring.pool_part import CANDIDATES, MOST_BODY, WEIGHTS, Trial
from ..scoring.score import PretrainedScore
from ..storage.files import (
    DamagedError,
    WrongContentError,
    intact,
    json_digest,
    read_json,
    read_tensors,
    require,
    with_prefix,
    without_prefix,
    write_json,
    write_tensors,
)
from ..storage.layout import hold
from ..tuning.val_loss import ValLoss
from ..version import __version__
from .folder import RunFolder

FORMAT = 8
ADVICE = "fit it again (a run's command is in its environment.json)"
MOST_PIXELS = 4096  # the side of an image that a model may ask for
Content = dict[str, Any]


@dataclass(frozen=True)
class SavedModel:
    """All that an estimator needs to be as it was."""

    method: str
    seed: int
    false_alarms: float  # asked for when it was made
    false_discoveries: float | None
    decision: Decision  # what the thresholds stand for now
    choices: Choices
    fitted: Fitted
    summary: Content  # what the report and the terminal tell of it

    @staticmethod
    def of(model: Any) -> "SavedModel":
        """Of a fitted estimator."""
        return SavedModel(
            method=model.method,
            seed=model.seed,
            false_alarms=model.false_alarms,
            false_discoveries=model.false_discoveries,
            decision=model.decision_,
            choices=model.choices_,
            fitted=model.fitted_,
            summary=summary_of(model),
        )

    @property
    def parameters(self) -> Content:
        """What the estimator was made with."""
        choices, several = self.choices, self.choices.augmentations
        return {
            "method": self.method,
            "augmentation": several[0] if len(several) == 1 else several,
            "encoder": choices.encoder,
            "settings": choices.settings,
            "seed": self.seed,
            "val_loss": choices.val_loss,
            "false_alarms": self.false_alarms,
            "false_discoveries": self.false_discoveries,
        }

    def write(self, folder: Path) -> None:
        """The JSON last: its presence says that the model is complete."""
        folder.mkdir(parents=True, exist_ok=True)
        files = RunFolder(folder)
        write_tensors(files.weights, tensors_of(self.fitted))
        content = content_of(self)
        write_json(files.model, {**content, "sha256": json_digest(content)})


@dataclass(frozen=True)
class Own:
    """What has to be passed again where it isn't one of ours."""

    encoder: nn.Module | None = None
    augmentation: Augmentation | Sequence[Augmentation] | None = None
    val_loss: ValLoss | None = None


def tensors_of(fitted: Fitted) -> dict[str, Tensor]:
    tensors = {
        **with_prefix("encoder", fitted.model.encoder.state_dict()),
        **with_prefix("scorer", fitted.model.scorer.state_dict()),
        "normal_scores": fitted.normal_scores,
        "train_index": fitted.train_index,
        "held_out_index": fitted.held_out_index,
        "normal_conditions": fitted.normal_conditions,
    }
    if fitted.pool is not None:
        tensors["pool_scores"] = fitted.pool.scores
    return tensors


def content_of(saved: SavedModel) -> Content:
    choices, fitted = saved.choices, saved.fitted
    return {
        "format": FORMAT,
        "version": __version__,
        "method": saved.method,
        "seed": saved.seed,
        "false_alarms": saved.false_alarms,
        "false_discoveries": saved.false_discoveries,
        "decision": asdict(saved.decision),
        "settings": asdict(choices.settings),
        "augmentation": [described(a, AUGMENTATIONS, vars) for a in choices.augmentations],
        "encoder": described(choices.encoder, ENCODERS, lambda encoder: encoder.config()),
        "score": fitted.model.scorer.config(),  # type: ignore[operator]
        "val_loss": {
            "name": getattr(choices.val_loss, "__name__", repr(choices.val_loss)),
            "ours": VAL_LOSSES.holds(choices.val_loss),
        },
        "image_size": fitted.model.image_size,
        "small_size": fitted.model.small_size,
        "map_scale": fitted.map_scale and asdict(fitted.map_scale),
        "warnings": fitted.warnings,
        "pool": fitted.pool and pool_content(fitted.pool),
        "explanation": fitted.explanation and explanation_content(fitted.explanation),
        "summary": saved.summary,
    }


def pool_content(pool: PoolResult) -> Content:
    lesson = pool.lesson and asdict(pool.lesson)
    trial = pool.trial and asdict(pool.trial)
    return {"lesson": lesson, "trial": trial, "contamination": asdict(pool.contamination)}


def explanation_content(explanation: Explanation) -> Content:
    return {
        "candidates": [asdict(c) for c in explanation.candidates],
        "chosen": explanation.chosen,
        "evidence": explanation.evidence and asdict(explanation.evidence),
    }


def summary_of(model: Any) -> Content:
    """What the report and the terminal say of a model, without building it."""
    fitted: Fitted = model.fitted_
    floor = float(fitted.model.scorer.floor)  # type: ignore[arg-type]
    augmentation = fitted.explanation and fitted.explanation.augmentation
    noun = getattr(augmentation, "noun", type(augmentation).__name__)
    return {
        "learned": model.learned_,
        "noun": "" if augmentation is None else noun,
        "threshold": model.threshold_,
        "pool_threshold": model.pool_threshold_,
        "false_alarms": model.false_alarms_,
        "floor": floor if math.isfinite(floor) else None,
    }


def described(part: object, registry: Registry, config: Callable[[Any], Content]) -> Content:
    """A part of the model by its class and, if it is one of ours, the arguments that build it."""
    if isinstance(part, PlainEncoder):
        part = part.module
    is_ours = registry.holds(type(part))
    name = type(part).__name__
    return {"class": name, "ours": is_ours, "config": config(part) if is_ours else {}}


def read_model(folder: Path, own: Own, device: str) -> SavedModel:
    """What `write` wrote; a class of the user's own has to be passed again.

    Nothing in the files is trusted: what doesn't fit together is one sentence.
    """
    content = read_content(folder)
    files = RunFolder(folder)
    tensors = read_tensors(files.weights, ADVICE)
    with intact(files.model, ADVICE):
        saved = rebuilt_model(folder, tensors, content, own, device)
        check_works(saved.fitted, device)
    return saved


def check_works(fitted: Fitted, device: str) -> None:
    """A model from a file scores a blank image, finitely, and has normal scores to compare with."""
    blank = torch.zeros(1, 3, fitted.model.image_size, fitted.model.image_size)
    try:
        scores = [fitted.model(blank.to(device)).scores, fitted.normal_scores]
    except ValueError as error:  # of a part that lacks what a fit gives it
        raise WrongContentError(error) from None
    scores += [] if fitted.pool is None else [fitted.pool.scores]
    finite = all(x.ndim == 1 and bool(torch.isfinite(x).all()) for x in scores)
    require(finite, "its scores aren't finite")
    require(len(fitted.normal_scores) > 0, "there are no scores of normal images")


def check_encoder_size(description: Content, weights: Mapping[str, Tensor]) -> None:
    """Before it is built: an encoder as large as the file says, and not as its config may claim."""
    if not description["ours"] or not description["config"]:
        return
    with torch.device("meta"):  # shapes without memory
        encoder: nn.Module = ENCODERS[description["class"]](**description["config"])
    shapes = {name: tensor.shape for name, tensor in encoder.state_dict().items()}
    same = shapes == {name: w.shape for name, w in weights.items()}
    require(same, f"its weights aren't those of {description['class']}")


def rebuilt_model(
    folder: Path, tensors: dict[str, Tensor], content: Content, own: Own, device: str
) -> SavedModel:
    size = content["image_size"]
    require(type(size) is int and 0 < size <= MOST_PIXELS, f"image_size {size!r}")
    small = content["small_size"]
    require(small is None or (type(small) is int and 0 < small <= size), f"small_size {small!r}")
    decision = decision_in(content)
    method: Method = METHODS[content["method"]]
    if own.encoder is None:
        check_encoder_size(content["encoder"], without_prefix("encoder", tensors))
    choices = rebuilt_choices(method, content, own)
    scorer = method.empty_score(content["score"])
    hold(scorer, without_prefix("scorer", tensors))
    load_weights(choices.encoder, without_prefix("encoder", tensors), folder)
    pool = content["pool"] and pool_in(content["pool"], tensors)
    check_pool_part(scorer, pool)
    model = AnomalyModel(choices.encoder, scorer, size, small).to(device)
    fitted = Fitted(
        model=model,
        normal_scores=tensors["normal_scores"],
        train_index=tensors["train_index"],
        held_out_index=tensors["held_out_index"],
        normal_conditions=conditions_in(tensors),
        warnings=content["warnings"],
        map_scale=content["map_scale"] and MapScale(**content["map_scale"]),
        pool=pool,
        explanation=content["explanation"]
        and explanation_in(content["explanation"], method, choices),
    )
    plain = {
        name: content[name] for name in ("method", "seed", "false_alarms", "false_discoveries")
    }
    return SavedModel(
        **plain, decision=decision, choices=choices, fitted=fitted, summary=content["summary"]
    )


def check_pool_part(scorer: nn.Module, pool: PoolResult | None) -> None:
    """A direction where one was taught, and none where not."""
    if not isinstance(scorer, PretrainedScore):
        return
    part, mean = scorer.pool_part, scorer.gaussian.density.whitening.mean
    is_taught = pool is not None and pool.trial is not None and pool.trial.is_taught
    tensors = [x for x in (part.direction, part.scale) if x is not None]
    sound = len(tensors) == 2 * is_taught
    if sound and is_taught and mean is not None:
        shapes = [x.shape for x in tensors] == [mean.shape, (5,)]
        sound = shapes and all(bool(torch.isfinite(x).all()) for x in tensors)
    require(sound, "the pool's direction doesn't fit")


def decision_in(content: Content) -> Decision:
    """With rates that are rates, and a threshold that is a number."""
    decision = Decision(**content["decision"])
    for owner in (content, vars(decision)):
        rates = (owner["false_alarms"], owner["false_discoveries"])
        sound = all(rate is None or (type(rate) is float and 0 < rate < 1) for rate in rates)
        require(sound, f"the rates {rates!r}")
    score = decision.score
    sound = score is None or (type(score) is float and math.isfinite(score))
    require(sound, f"the threshold {score!r}")
    require(decision.source in get_args(Source), f"a threshold from {decision.source!r}")
    require(score is not None or any(rate is not None for rate in rates), "nothing to decide by")
    return decision


def pool_in(content: Content, tensors: Mapping[str, Tensor]) -> PoolResult:
    lesson = content["lesson"] and Lesson(**content["lesson"])
    share, trial = Contamination(**content["contamination"]), trial_in(content["trial"])
    return PoolResult(tensors["pool_scores"], lesson, share, trial)


def trial_in(content: Content | None) -> Trial | None:
    """With a candidate that there is, and numbers that are shares."""
    if content is None:
        return None
    trial = Trial(**{**content, "gain": Gain(**content["gain"])})
    require(trial.candidate in CANDIDATES, f"it learned from {trial.candidate!r}")
    require(trial.weight in (0.0, *WEIGHTS), f"the weight {trial.weight!r}")
    shares = (*vars(trial.gain).values(), trial.body / MOST_BODY)
    sound = all(type(x) in (int, float) and 0 <= x <= 1 for x in shares)
    flags = {type(trial.differs), type(trial.by_labels)}
    require(sound and flags == {bool}, f"the shares {shares!r}")
    return trial


def explanation_in(content: Content, method: Method, choices: Choices) -> Explanation:
    """With the augmentation that the chosen restart tuned."""
    candidates = [method.candidate(c) for c in content["candidates"]]
    chosen, evidence = content["chosen"], content["evidence"]
    known = type(chosen) is int and 0 <= chosen < len(candidates)
    require(known, f"it chose restart {chosen!r} of {len(candidates)}")
    learned = method.learned(candidates[chosen], len(choices.augmentations))
    require(all(isinstance(name, str) for name in learned), "what was learned has no names")
    per_restart = [a for a in choices.augmentations for _ in a.initial_values()]
    if evidence is not None:
        evidence = Evidence(**{**evidence, "tested": tuple(evidence["tested"])})
    return Explanation(candidates, chosen, per_restart[chosen], evidence)


def conditions_in(tensors: Mapping[str, Tensor]) -> Tensor:
    """What light the normal images were taken in, a row for each that has a score."""
    found = tensors["normal_conditions"]
    shape = (len(tensors["normal_scores"]), len(CONDITIONS))
    sound = found.shape == shape and bool(torch.isfinite(found).all())
    require(sound, "the conditions of its normal images don't fit")
    return found


def read_content(folder: Path) -> Content:
    """All of a model but its tensors, checked."""
    files = RunFolder(folder)
    for path in (files.model, files.weights):
        if not path.is_file():
            raise FileNotFoundError(
                f"no {path.name} in {str(folder)!r}; give a folder that `stssad fit` or "
                "STSSAD.save has written"
            )
    content = read_json(files.model, ADVICE)
    if content.get("format") != FORMAT:
        raise ValueError(
            f"the model in {str(folder)!r} was saved by stssad {content.get('version', '?')}, in a "
            "format that this version doesn't read; fit it again (a run's command is in its "
            "environment.json), or score with that version"
        )
    if content.pop("sha256", None) != json_digest(content):
        raise DamagedError(files.model, "its checksum differs", ADVICE)
    return content


def rebuilt_choices(method: Method, content: Content, own: Own) -> Choices:
    settings = method.settings_type(**content["settings"])
    encoder = rebuilt(content["encoder"], ENCODERS, "encoder", own.encoder)
    return Choices(
        augmentations=rebuilt_list(
            content["augmentation"], AUGMENTATIONS, "augmentation", own.augmentation
        ),
        encoder=as_encoder(encoder, method.trains),
        settings=settings,
        val_loss=rebuilt_loss(content["val_loss"], own.val_loss),
    )


def rebuilt_list(descriptions: list[Content], registry: Registry, kind: str, own: Any) -> list[Any]:
    """Several parts, as given (one, or a list of as many) or built again."""
    given = list(own) if isinstance(own, Sequence) else [own] * len(descriptions)
    if len(given) != len(descriptions):
        raise ValueError(
            f"this model was fitted with {len(descriptions)} of {kind}, got {len(given)}"
        )
    both = zip(descriptions, given, strict=True)
    return [rebuilt(description, registry, kind, each) for description, each in both]


def rebuilt(description: Content, registry: Registry, kind: str, given: Any) -> Any:
    """The part again: as given, or built from its description if its class is one of ours."""
    name = description["class"]
    if given is not None:
        if type(given).__name__ != name:
            raise ValueError(
                f"this model was fitted with the {kind} {name!r}, got {type(given).__name__!r}; "
                "pass the one that it was fitted with"
            )
        return given
    if not description["ours"]:
        raise ValueError(
            f"this model was fitted with the {kind} {name!r}, which is not one of stssad's; "
            f"pass it: STSSAD.load(folder, {kind}=...)"
        )
    config = description["config"].items()  # JSON has no tuples, which arguments are
    return registry[name](**{key: tuple(x) if isinstance(x, list) else x for key, x in config})


def rebuilt_loss(description: Content, given: ValLoss | None) -> ValLoss:
    """The validation loss; scores don't need it, so one's own is missed only when fitting again."""
    name = description["name"]
    if given is not None or description["ours"]:
        return given or VAL_LOSSES[name]

    def missing(Z_trn: Tensor, Z_aug: Tensor, Z_val: Tensor) -> Tensor:
        raise ValueError(
            f"this model was tuned by the validation loss {name!r}, which is not one of stssad's; "
            "pass it to fit again: STSSAD.load(folder, val_loss=...)"
        )

    return missing


def load_weights(encoder: nn.Module, state: Mapping[str, Tensor], folder: Path) -> None:
    """The saved weights into the encoder, in place."""
    try:
        encoder.load_state_dict(state)
    except RuntimeError as error:
        raise ValueError(
            f"the weights in {str(folder)!r} don't belong to {type(encoder).__name__} "
            f"({str(error).splitlines()[-1].strip()})"
        ) from None
