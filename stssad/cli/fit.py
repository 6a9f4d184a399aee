"""`stssad fit`: a run from a folder of normal and one of unlabeled images."""

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..registry import ENCODERS, TUNABLE
from ..settings import PRESETS, SETTINGS, AnySettings, PretrainedSettings
from .console import (
    Engine,
    FalseAlarms,
    FalseDiscoveries,
    HowSensitive,
    check_device,
    choose_decision,
    format_command,
    make_console,
    resumable,
    warn,
    warn_unreadable,
)

if TYPE_CHECKING:
    from ..model import STSSAD
    from ..runs.fit import Inputs
    from ..runs.folder import RunFolder
    from ..runs.request import FitRequest
    from ..scoring.decision import Decision, Sensitivity

MAIN = ("image_size",)  # settings among the flags that matter most
TUNING = "Tuning, both methods"
OF_METHOD: Mapping[str, str] = {
    "pretrained": "The pretrained method (--method pretrained, the default)",
    "paper": "The paper's method (--method paper)",
}
OTHER = "To flag fewer or more: --sensitivity low or high."
WARNED_ALREADY = ("unreadable", "few")  # remarks that a fit warns of itself
TYPES = f"Augmentation types to tune, separated by commas: {', '.join(TUNABLE).lower()}."


Preset = Annotated[
    str | None,
    typer.Option(
        help="Settings to start from: quick, paper_mvtec or paper_svhn.",
        rich_help_panel=OF_METHOD["paper"],
    ),
]


def all_fields() -> dict[str, Any]:
    """The settings of both methods, by name; of one that both have, the first method's."""
    by_name: dict[str, Any] = {}
    for type_ in SETTINGS.values():
        for f in fields(type_):
            by_name.setdefault(f.name, f)
    return by_name


def find_methods(name: str) -> list[str]:
    """Those that have a setting."""
    return [m for m, type_ in SETTINGS.items() if name in {f.name for f in fields(type_)}]


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """The command with a flag for each of the settings, passed to it as `changes`."""
    own = inspect.signature(command)
    settings_ = all_fields()
    flags = [
        inspect.Parameter(
            f.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                make_flag_type(f.type),
                typer.Option(help=f.metadata["help"], rich_help_panel=choose_panel(f.name)),
            ],
        )
        for f in settings_.values()
    ]

    def wrapper(**arguments: Any) -> None:
        changes = {name: arguments.pop(name) for name in settings_}
        command(**arguments, changes={k: v for k, v in changes.items() if v is not None})

    unchanged = [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for p in own.parameters.values()
        if p.name != "changes"
    ]
    ordered = sorted([*unchanged, *flags], key=lambda p: p.name not in MAIN and p in flags)
    wrapper.__signature__ = own.replace(parameters=ordered)  # type: ignore[attr-defined]
    wrapper.__doc__, wrapper.__name__ = command.__doc__, command.__name__
    return wrapper


def choose_panel(name: str) -> str | None:
    if name in MAIN:
        return None
    methods = find_methods(name)
    return TUNING if len(methods) > 1 else OF_METHOD[methods[0]]


def make_flag_type(type_: Any) -> Any:
    """The type of a setting's flag, which may be left out."""
    return {int: int | None, float: float | None, int | None: int | None}.get(type_, str | None)


@with_settings
def command(
    normal: Annotated[Path, typer.Option(help="Folder of normal images.")],
    unlabeled: Annotated[Path, typer.Option(help="Folder of unlabeled images, the pool.")],
    out: Annotated[Path, typer.Option(help="Folder for the run; created if it doesn't exist.")],
    method: Annotated[
        Literal["pretrained", "paper"],
        typer.Option(help="pretrained: keeps an ImageNet encoder; paper: trains from scratch."),
    ] = "pretrained",
    encoder: Annotated[
        str | None,
        typer.Option(help="efficientnet_lite0, 1 or 2 (pretrained), or resnet18 (paper)."),
    ] = None,
    augmentation: Annotated[
        str | None, typer.Option(help=TYPES + " Default: the first five; paper: cutdiff.")
    ] = None,
    sensitivity: HowSensitive = None,
    false_alarms: FalseAlarms = None,
    false_discoveries: FalseDiscoveries = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    jobs: Annotated[int, typer.Option(help="Parallel processes; 0: one for each core.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, or cuda.")] = "cpu",
    engine: Engine = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in --out.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at a file that can't be read.")
    ] = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain/--no-explain",
            help="Tune augmentations that explain the pool's anomalies: takes more than half "
            "of the time and changes no score.",
        ),
    ] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    settings: Annotated[
        Path | None,
        typer.Option(help="TOML file of settings; flags take precedence.", rich_help_panel=TUNING),
    ] = None,
    preset: Preset = None,
    changes: Any = None,
) -> None:
    """Tune a detector on normal and unlabeled images."""
    from ..runs.folder import RunFolder
    from ..runs.request import FitRequest

    check_device(device)
    decision = choose_fit_decision(sensitivity, false_alarms, false_discoveries)
    chosen = choose_settings(method, preset, settings, changes)
    parts = choose_types(augmentation), choose_encoder(encoder), chosen
    rates = dict(false_alarms=decision.false_alarms, false_discoveries=decision.false_discoveries)
    rest: dict[str, Any] = dict(
        seed=seed, engine=engine, strict=strict, jobs=jobs, device=device, explain=explain, **rates
    )
    request = FitRequest.of(normal, unlabeled, method, *parts, **rest)
    fit_as(request, RunFolder(out), resume, quiet)


def fit_as(request: "FitRequest", run: "RunFolder", resume: bool, quiet: bool) -> None:
    """Read, fit, and print the result."""
    from ..runs.fit import begun, complete, fit_or_explain, read_inputs
    from .progress import FitProgress

    console = make_console(quiet)
    if resume and run.has_model and (run.is_complete or not request.explain):
        with begun(run, request, format_command(), resume):  # refuses a run of another request
            complete(run)
        console.print(f"the run in {run.path} is finished; nothing to do")
        return
    console.print(f"reading images of {request.normal} and {request.unlabeled}")
    request, inputs = read_inputs(request, warn)
    warn_unreadable(len(inputs.unreadable))
    with resumable(run.path), FitProgress(console) as progress:
        with begun(run, request, format_command(), resume):
            console.print(format_inputs(request, inputs))
            for remark in inputs.remarks:
                if remark.code not in WARNED_ALREADY:
                    warn(str(remark))
            model = fit_or_explain(run, request, inputs, progress)
        print_result(run, model, quiet)


def format_inputs(request: "FitRequest", inputs: "Inputs") -> str:
    """How many images were read, and in what form."""
    images = inputs.images
    size, n_pool = images.train.shape[-1], 0 if images.pool is None else len(images.pool)
    text = f"{len(images.train)} normal and {n_pool} unlabeled images"
    if images.file_side is not None and images.file_side != size:
        text += f" of about {images.file_side} pixels, resized to {size} (--image-size)"
    else:
        text += f" of {size} pixels"
    if (white := request.settings.white_level) is not None:
        text += f"\ngrey images of more than 8 bits: {white} is white (--white-level)"
    return text


def choose_fit_decision(
    sensitivity: "Sensitivity | None", false_alarms: float | None, false_discoveries: float | None
) -> "Decision":
    """A false alarm rate alone is for the pool, too; a false discovery rate is for it alone."""
    from ..scoring.decision import FALSE_ALARMS, Decision

    chosen = choose_decision(sensitivity, false_alarms, false_discoveries) or Decision()
    return replace(chosen, false_alarms=chosen.false_alarms or FALSE_ALARMS)


def choose_settings(
    method: str, preset: str | None, file: Path | None, changes: dict[str, Any]
) -> AnySettings:
    """The method's defaults or a preset, changed by a file, then by flags."""
    wanted = {**(read_toml(file) if file else {}), **changes}
    for name in wanted:
        if method not in (methods := find_methods(name)):
            flag = f"--{name.replace('_', '-')}"
            raise ValueError(
                f"{flag} belongs to the method {methods[0]!r}; add --method {methods[0]}, or "
                "leave it out"
            )
    if method != "paper":
        if preset is not None:
            raise ValueError("--preset belongs to the method 'paper'; add --method paper")
        return PretrainedSettings(**wanted)
    preset = preset or "quick"
    if preset not in PRESETS:
        raise ValueError(f"unknown preset {preset!r}; use {', '.join(PRESETS)}")
    return PRESETS[preset](**wanted)


def normalise_name(name: str) -> str:
    """A name without case and underscores."""
    return name.strip().replace("_", "").lower()


def choose_types(names: str | None) -> tuple[str, ...] | None:
    """Augmentation types by their names in lower case."""
    if names is None:
        return None
    known = {normalise_name(name): name for name in TUNABLE}
    for name in names.split(","):
        if normalise_name(name) not in known:
            raise ValueError(f"unknown augmentation {name.strip()!r}; use {', '.join(known)}")
    return tuple(known[normalise_name(name)] for name in names.split(","))


def choose_encoder(name: str | None) -> str | None:
    """An encoder by its name in lower case."""
    if name is None:
        return None
    known = {normalise_name(each): each for each in ENCODERS}
    if normalise_name(name) not in known:
        raise ValueError(f"unknown encoder {name!r}; use {', '.join(known)}")
    return known[normalise_name(name)]


def read_toml(path: Path) -> dict[str, Any]:
    """Settings from a TOML file, their names checked."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"no such file: {str(path)!r}; check the path") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{str(path)!r} is not TOML: {error}") from None
    known = sorted(all_fields())
    for name in content:
        if name not in known:
            raise ValueError(
                f"{str(path)!r} sets {name!r}, which is no setting; there are {', '.join(known)}"
            )
    return content


def print_result(run: "RunFolder", model: "STSSAD", quiet: bool) -> None:
    from ..report.presentation import format_decision, format_finding, format_lesson
    from ..runs.summary import read_summary

    for warning in model.warnings_:
        warn(warning)
    console = make_console(quiet)
    summary = read_summary(run.path)
    console.print(f"{format_finding(summary)}\n{format_decision(summary)} {OTHER}")
    if summary.lesson is not None:
        console.print(format_lesson(summary))
    console.print(f"report: {run.report}\nscores of the pool: {run.scores}")
