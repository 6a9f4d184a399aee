"""`stssad fit`: two folders to a run."""

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..registry import AUGMENTATIONS, ENCODERS, TUNABLE
from ..settings import PRESETS, AnySettings, PretrainedSettings, Settings
from .console import (
    Engine,
    check_device,
    check_rate,
    command_line,
    make_console,
    resumable,
    say_unreadable,
    warn,
)

if TYPE_CHECKING:
    from ..augment import Augmentation
    from ..model import STSSAD
    from ..run import Inputs, Request, Run

SETTINGS: Mapping[str, type] = {"pretrained": PretrainedSettings, "paper": Settings}
MAIN = ("image_size",)  # settings among the flags that matter most
TUNING, PAPER = "Tuning, both methods", "The paper's method (--method paper)"
PRESET = "Settings to begin from: quick, paper_mvtec or paper_svhn."
TYPES = f"Augmentation types to tune, with commas: {', '.join(TUNABLE).lower()}."


def all_fields() -> dict[str, Any]:
    """The settings of both methods, by name."""
    return {f.name: f for kind in SETTINGS.values() for f in fields(kind)}


def methods_knowing(name: str) -> list[str]:
    return [m for m, kind in SETTINGS.items() if name in {f.name for f in fields(kind)}]


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """The command with a flag for each of the settings, handed to it as `changes`."""
    own = inspect.signature(command)
    known = all_fields()
    flags = [
        inspect.Parameter(
            f.name, inspect.Parameter.KEYWORD_ONLY, default=None,
            annotation=Annotated[
                flag_type(f.type),
                typer.Option(help=f.metadata["words"], rich_help_panel=panel(f.name)),
            ],
        )
        for f in known.values()
    ]  # fmt: skip

    def called(**words: Any) -> None:
        changes = {name: words.pop(name) for name in known}
        command(**words, changes={k: v for k, v in changes.items() if v is not None})

    kept = [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for p in own.parameters.values()
        if p.name != "changes"
    ]
    ordered = sorted([*kept, *flags], key=lambda p: p.name not in MAIN and p in flags)
    called.__signature__ = own.replace(parameters=ordered)  # type: ignore[attr-defined]
    called.__doc__, called.__name__ = command.__doc__, command.__name__
    return called


def panel(name: str) -> str | None:
    if name in MAIN:
        return None
    return TUNING if len(methods_knowing(name)) > 1 else PAPER


def flag_type(kind: Any) -> Any:
    """A setting's type as a flag's, which may be left out."""
    return {int: int | None, float: float | None, int | None: int | None}.get(kind, str | None)


@with_settings
def command(
    normal: Annotated[Path, typer.Option(help="Folder of normal images.")],
    unlabeled: Annotated[Path, typer.Option(help="Folder of unlabeled images, the pool.")],
    out: Annotated[Path, typer.Option(help="Folder for the run, made if need be.")],
    method: Annotated[
        Literal["pretrained", "paper"],
        typer.Option(help="pretrained: tunes only the augmentation; paper: trains from scratch."),
    ] = "pretrained",
    encoder: Annotated[
        str | None,
        typer.Option(help="efficientnet_lite0, 1 or 2 (pretrained), or resnet18 (paper)."),
    ] = None,
    augmentation: Annotated[
        str | None, typer.Option(help=TYPES + " The first five if not given; paper: cutdiff.")
    ] = None,
    false_alarms: Annotated[float, typer.Option(help="False alarm rate: normal images flagged.")]
    = 0.01,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    jobs: Annotated[int, typer.Option(help="Parallel processes; 0: one for each core.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, or cuda.")] = "cpu",
    engine: Engine = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in --out.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at a file that can't be read.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    settings: Annotated[
        Path | None,
        typer.Option(help="TOML file of settings; flags win over it.", rich_help_panel=TUNING),
    ] = None,
    preset: Annotated[str | None, typer.Option(help=PRESET, rich_help_panel=PAPER)] = None,
    changes: Any = None,
) -> None:  # fmt: skip
    """Tune a detector on normal and unlabeled images."""
    from ..model import STSSAD
    from ..run import Request, Run, read_inputs
    from ..workflow import fit_run
    from .progress import FitProgress

    console = make_console(quiet)
    check(device, false_alarms)
    chosen = chosen_settings(method, preset, settings, changes)
    estimator = STSSAD(
        method, chosen_types(augmentation), chosen_encoder(encoder, chosen), chosen, seed,
        jobs=jobs or os.cpu_count() or 1, device=device, false_alarms=false_alarms, engine=engine,
    )  # fmt: skip
    request = Request(normal, unlabeled, estimator, strict)
    request.content()  # choices that don't go together are named before anything is read
    if resume and Run(out).is_finished:
        Run.create(out, request, command_line(), resume)  # names what was begun otherwise
        finish_report(Run(out))
        console.print(f"the run in {out} is finished; nothing to do")
        return
    console.print(f"reading images of {normal} and {unlabeled}")
    inputs = read_inputs(request, warn)
    say_unreadable(len(inputs.unreadable))
    run = Run.create(out, request, command_line(), resume)
    with resumable(out), FitProgress(console) as progress:
        console.print(read_words(request, inputs))
        say_result(run, fit_run(run, request, inputs, progress), quiet)


def read_words(request: "Request", inputs: "Inputs") -> str:
    """What was read."""
    size = inputs.train.shape[-1]
    words = f"{len(inputs.train)} normal and {len(inputs.pool)} unlabeled images"
    if inputs.file_side is not None and inputs.file_side != size:
        words += f" of about {inputs.file_side} pixels, looked at with {size} (--image-size)"
    else:
        words += f" of {size} pixels"
    if (white := request.choices.settings.white_level) is not None:
        words += f"\ngrey images of more than 8 bits: {white} is white (--white-level)"
    return words


def check(device: str, false_alarms: float) -> None:
    check_device(device)
    check_rate(false_alarms)


def finish_report(run: "Run") -> None:
    """A run that was killed between its model and its page still gets one."""
    from ..report.page import write_report

    if not run.report.is_file():
        write_report(run)


def chosen_settings(
    method: str, preset: str | None, file: Path | None, changes: dict[str, Any]
) -> AnySettings:
    """The method's own, or a preset, changed by a file, changed by flags."""
    wanted = {**(read_toml(file) if file else {}), **changes}
    for name in wanted:
        if method not in (knowing := methods_knowing(name)):
            flag = f"--{name.replace('_', '-')}"
            raise ValueError(
                f"{flag} belongs to the method {knowing[0]!r}; add --method {knowing[0]}, or "
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


def plain(name: str) -> str:
    """A name without case and underscores."""
    return name.strip().replace("_", "").lower()


def chosen_types(names: str | None) -> "list[Augmentation] | None":
    """Augmentations by their names in lower case."""
    if names is None:
        return None
    known = {plain(name): name for name in TUNABLE}
    for name in names.split(","):
        if plain(name) not in known:
            raise ValueError(f"unknown augmentation {name.strip()!r}; use {', '.join(known)}")
    return [AUGMENTATIONS[known[plain(name)]]() for name in names.split(",")]


def chosen_encoder(name: str | None, settings: AnySettings) -> Any:
    """An encoder by its name; arguments that settings have too are taken from there."""
    if name is None:
        return None
    known = {plain(each): each for each in ENCODERS}
    if plain(name) not in known:
        raise ValueError(f"unknown encoder {name!r}; use {', '.join(known)}")
    kind = ENCODERS[known[plain(name)]]
    shared = [p for p in inspect.signature(kind).parameters if hasattr(settings, p)]
    return kind(**{p: getattr(settings, p) for p in shared})


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


def say_result(run: "Run", model: "STSSAD", quiet: bool) -> None:
    from ..report.presentation import finding

    for warning in model.warnings_:
        warn(warning)
    console = make_console(quiet)
    console.print(finding(run.summary()))
    console.print(f"report: {run.report}\nscores of the pool: {run.folder / 'scores.csv'}")
