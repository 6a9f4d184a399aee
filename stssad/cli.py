"""The command line: words to objects, one call, and the result in words."""

import inspect
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .bench.cli import app as bench_app
from .settings import OF_TRAINING, Settings

if TYPE_CHECKING:
    from rich.console import Console
    from torch import nn

    from .augment import Augmentation
    from .heatmaps import HeatmapWriter
    from .images import UnreadableError
    from .model import STSSAD

PRESETS = {
    "quick": Settings.quick,
    "paper_mvtec": Settings.paper_mvtec,
    "paper_svhn": Settings.paper_svhn,
    "imagenet": Settings.imagenet,
}

TUNABLE = ("Patch", "Scar", "Stain", "Blur", "Warp", "CutDiff", "Rotation")

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Finds anomalous pictures without any labels, and tunes itself to the kind of anomaly.",
    epilog="Three commands: fit --normal good/ --unlabeled pile/ --out runs/bolt; "
    "score runs/bolt new/ --out scores.csv; report runs/bolt.",
)

app.add_typer(bench_app, name="bench")


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from .version import __version__

        typer.echo(f"stssad {__version__}")
        raise typer.Exit


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """The command with a flag for each of the settings, handed to it as `changes`."""
    own = inspect.signature(command)
    flags = [
        inspect.Parameter(
            f.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                flag_type(f.type),
                typer.Option(help=f.metadata["words"], rich_help_panel="Settings"),
            ],
        )
        for f in fields(Settings)
    ]

    def called(**words: Any) -> None:
        changes = {f.name: words.pop(f.name) for f in fields(Settings)}
        given = {name: value for name, value in changes.items() if value is not None}
        command(**words, changes=given)

    kept = [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for p in own.parameters.values()
        if p.name != "changes"
    ]
    called.__signature__ = own.replace(parameters=[*kept, *flags])  # type: ignore[attr-defined]
    called.__doc__, called.__name__ = command.__doc__, command.__name__
    return called


def flag_type(kind: Any) -> Any:
    """A setting's type as a flag's, which may be left out."""
    return {int: int | None, float: float | None, int | None: int | None}.get(kind, str | None)


@app.command()
@with_settings
def fit(
    normal: Annotated[Path, typer.Option(help="Folder of normal pictures.")],
    unlabeled: Annotated[Path, typer.Option(help="Folder of unlabeled pictures, the pool.")],
    out: Annotated[Path, typer.Option(help="Folder for the run, made if need be.")],
    preset: Annotated[
        str | None,
        typer.Option(
            help="imagenet, or the paper's way: quick, paper_mvtec, paper_svhn. If not given: "
            "imagenet, or quick where a setting of training is given."
        ),
    ] = None,
    settings: Annotated[
        Path | None, typer.Option(help="TOML file of settings; flags win over it.")
    ] = None,
    augmentation: Annotated[
        str | None,
        typer.Option(
            help="What is tuned, names with commas: patch, scar, stain, blur, warp, cutdiff, "
            "rotation. The first five if not given; cutdiff in the paper's way."
        ),
    ] = None,
    encoder: Annotated[
        Literal["efficientnet_lite0", "resnet18"] | None,
        typer.Option(help="What embeds the pictures; resnet18 is the paper's, from scratch."),
    ] = None,
    false_alarms: Annotated[
        float, typer.Option(help="Share of normal pictures that may be called anomalies.")
    ] = 0.01,
    seed: Annotated[int, typer.Option(help="Fixes everything.")] = 0,
    jobs: Annotated[int, typer.Option(help="Starts at once; 0: one for each core.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, or cuda.")] = "cpu",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at a file that can't be read.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    changes: Any = None,
) -> None:
    """Tune a detector on normal and unlabeled pictures."""
    from . import runs
    from .progress import FitProgress

    console = make_console(quiet)
    check_device(device)
    if not 0 < false_alarms < 1:
        raise ValueError(f"--false-alarms must lie between 0 and 1, got {false_alarms}")
    chosen = chosen_settings(preset, settings, changes, encoder)
    request = runs.Request(
        normal=normal,
        unlabeled=unlabeled,
        out=out,
        augmentation=chosen_families(augmentation, chosen),
        encoder=chosen_encoder(encoder, chosen),
        settings=chosen,
        seed=seed,
        jobs=jobs or os.cpu_count() or 1,
        device=device,
        false_alarms=false_alarms,
        strict=strict,
    )
    if resume and runs.is_finished(out):
        console.print(f"the run in {out} is finished; nothing to do")
        return
    console.print(f"reading pictures of {normal} and {unlabeled}")
    inputs = runs.read_inputs(request, warn)
    say_unreadable(len(inputs.unreadable))
    runs.prepare(request, resume, command_line())
    with going_on_later(out), FitProgress(console) as progress:
        n, n_pool = len(inputs.train), len(inputs.pool)
        console.print(f"{n} normal and {n_pool} unlabeled pictures; tuning")
        model = runs.fit(request, inputs, progress)
    say_result(console, model, out)


def make_console(quiet: bool) -> "Console":
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True, quiet=quiet, markup=False)


def chosen_settings(
    preset: str | None, file: Path | None, changes: dict[str, Any], encoder: str | None
) -> Settings:
    """A preset, changed by a file, changed by flags.

    Without one it is `imagenet`, or `quick` where something is asked for that only training feels.
    """
    wanted = {**(read_toml(file) if file else {}), **changes}
    if preset is None:
        trains = encoder == "resnet18" or any(name in OF_TRAINING for name in wanted)
        preset = "quick" if trains else "imagenet"
    if preset not in PRESETS:
        raise ValueError(f"unknown preset {preset!r}; use {', '.join(PRESETS)}")
    return PRESETS[preset](**wanted)


def chosen_families(names: str | None, settings: Settings) -> "list[Augmentation]":
    """Augmentations by their names in lower case."""
    from . import augment

    usual = [f.__name__.lower() for f in augment.FAMILIES] if settings.is_frozen else ["cutdiff"]
    known = {name.lower(): getattr(augment, name) for name in TUNABLE}
    wanted = usual if names is None else [name.strip().lower() for name in names.split(",")]
    for name in wanted:
        if name not in known:
            raise ValueError(f"unknown augmentation {name!r}; use {', '.join(known)}")
    return [known[name]() for name in wanted]


def chosen_encoder(name: str | None, settings: Settings) -> "nn.Module":
    from .encoders import EfficientNetLite0, ResNet18

    name = name or ("efficientnet_lite0" if settings.is_frozen else "resnet18")
    if name == "efficientnet_lite0":
        return EfficientNetLite0()
    if settings.is_frozen:
        raise ValueError(
            "--encoder resnet18 is trained from scratch, and these settings train nothing; use "
            "--preset quick, paper_mvtec or paper_svhn"
        )
    return ResNet18(settings.width)


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
    known = {f.name for f in fields(Settings)}
    for name in content:
        if name not in known:
            raise ValueError(
                f"{str(path)!r} sets {name!r}, which is no setting; there are "
                f"{', '.join(sorted(known))}"
            )
    return content


def check_device(device: str) -> None:
    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        short = str(error).splitlines()[0]
        raise ValueError(f"--device {device} can't be used here: {short}; use cpu") from None


def command_line() -> str:
    return shlex.join(["stssad", *sys.argv[1:]])


def warn(error: "UnreadableError") -> None:
    typer.echo(f"stssad: warning: {error}", err=True)


def say_unreadable(n: int) -> None:
    if n:
        typer.echo(f"stssad: warning: {n} file(s) could not be read and were left out", err=True)


@contextmanager
def going_on_later(out: Path) -> Iterator[None]:
    """Ctrl-C leaves a run that can go on, and says so."""
    try:
        yield
    except KeyboardInterrupt:
        again = command_line() if "--resume" in sys.argv else f"{command_line()} --resume"
        typer.echo(f"\nstopped; {out} keeps what was done. To go on:\n  {again}", err=True)
        raise typer.Exit(130) from None


def say_result(console: "Console", model: "STSSAD", out: Path) -> None:
    from .report.page import finding

    for warning in model.warnings_:
        typer.echo(f"stssad: warning: {warning}", err=True)
    console.print(finding(model))
    console.print(f"report: {out / 'report.html'}\nscores of the pool: {out / 'scores.csv'}")


@app.command()
def score(
    run: Annotated[Path, typer.Argument(help="Folder that `stssad fit` wrote.")],
    pictures: Annotated[str, typer.Argument(help="Folder, list file (a path a line), or -.")],
    out: Annotated[Path | None, typer.Option(help="File to write; else standard output.")] = None,
    format: Annotated[Literal["csv", "json"], typer.Option(help="Of the output.")] = "csv",
    heatmaps: Annotated[
        Path | None, typer.Option(help="Folder for PNG files that show where each is strange.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, or cuda.")] = "cpu",
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at a file that can't be read.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Score pictures with a fitted model: file, score, label, share of normal ones above."""
    from .model import STSSAD
    from .progress import CountProgress
    from .scores import listed_paths, score_files, write_rows
    from .storage import replacing

    check_device(device)
    model = STSSAD.load(run, device=device)
    unreadable = 0

    def on_unreadable(error: "UnreadableError") -> None:
        nonlocal unreadable
        unreadable += 1
        warn(error)

    paths = listed_paths(pictures)
    writer = None if heatmaps is None else heatmap_writer(heatmaps, Path(pictures), model)
    results = score_files(model, paths, None if strict else on_unreadable, writer)
    if out is None:
        n = write_rows(results, sys.stdout, format)
    else:
        total = len(paths) if isinstance(paths, list) else None
        with replacing(out) as file, CountProgress(make_console(quiet), total) as progress:
            n = write_rows(progress.counting(results), file, format)
    say_unreadable(unreadable)
    if n == 0:
        raise ValueError(f"no picture of {pictures!r} could be read; look at the warnings")
    if out is not None:
        make_console(quiet).print(f"{n} pictures scored: {out}")
    if heatmaps is not None and out is not None:
        make_console(quiet).print(f"heatmaps: {heatmaps}")


def heatmap_writer(folder: Path, pictures: Path, model: "STSSAD") -> "HeatmapWriter":
    from .heatmaps import HeatmapWriter

    if model.heat_ is None:
        raise ValueError(
            "this model has no heatmaps: they need an encoder with feature maps, which the default "
            "one has; fit again without --encoder resnet18 and the paper's presets"
        )
    return HeatmapWriter(folder, pictures, model.heat_, model.reading_.aspect)


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="Folder that `stssad fit` wrote.")],
) -> None:
    """Build the page of a run again."""
    from .model import STSSAD
    from .report import Material, write_report
    from .storage import read_json

    model = STSSAD.load(run)
    material = Material.load(run)
    path = write_report(run, model, material, read_json(run / "environment.json"))
    typer.echo(f"report: {path}")


@app.command()
def demo(
    paper: Annotated[
        bool, typer.Option("--paper", help="The paper's way: from scratch, dark patches only.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Fixes everything, what is planted included.")] = 0,
    texture: Annotated[
        str | None, typer.Option(help="brick, grass or gravel; gravel, or grass with --paper.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Starts that run at once.")] = 2,
    out: Annotated[Path, typer.Option(help="Folder for the pages.")] = Path("runs/demo"),
) -> None:
    """Plant defects in texture pictures, and find out which ones without labels."""
    show = show_paper_demo if paper else show_demo
    show(make_console(False), seed, texture or ("grass" if paper else "gravel"), jobs, out)


def show_demo(console: "Console", seed: int, texture: str, jobs: int, out: Path) -> None:
    from .demo import run_kinds
    from .progress import FitProgress
    from .report.page import evidence
    from .words import in_words

    console.print(
        "Three times 200 normal crops of a texture, and 100 unlabeled ones, some with a defect.\n"
        "Of which kind, how many and how large, the program isn't told. It tries all families:"
    )
    with FitProgress(console) as progress:
        found = list(run_kinds(out, command_line(), seed, texture, jobs, progress))
    for result in found:
        model, name = result.model, result.kind.name
        console.print(
            f"\n{name}\n"
            f"  planted: {in_words(result.kind.planted)} (20 % of the pool)\n"
            f"  learned: {in_words(model.learned_)}\n"
            f"  {evidence(model)}\n"
            f"  {model.contamination_.in_words()}\n"
            f"  AUC on the pool: {result.auc:.3f}; {result.seconds:.0f} s; {result.report}"
        )


def show_paper_demo(console: "Console", seed: int, texture: str, jobs: int, out: Path) -> None:
    from .demo import run_demo
    from .progress import FitProgress
    from .words import in_words

    console.print(
        "240 normal crops of a texture, and 128 unlabeled ones, some with a dark patch.\n"
        "How many and how large, the program isn't told. It tunes from four starts:"
    )
    with FitProgress(console) as progress:
        result = run_demo(out / "paper", command_line(), seed, texture, jobs, progress)
    model = result.model
    for c in model.candidates_:
        mark = "chosen" if c.start == model.chosen_ else "collapsed" if c.collapsed else ""
        console.print(
            f"  start {c.start + 1}: {in_words({'area': c.initial['area']})} -> "
            f"{in_words(c.learned)}; score variance {c.score_variance:.3g}  {mark}"
        )
    share = f"{100 * result.contamination:.0f} % of the pool"
    console.print(
        f"planted patch: area {100 * result.planted_area:.3g} %, aspect 1.00 ({share})\n"
        f"learned patch: {in_words(model.learned_)}\n"
        f"estimate of the share: {model.contamination_.in_words()}\n"
        f"AUC on the pool: {result.auc:.3f}\n"
        f"time: {result.seconds:.0f} s\n"
        f"report: {result.report}"
    )


def main() -> None:
    """The console script: errors that a user can mend are one sentence, not a traceback."""
    try:
        app()
    except (ValueError, OSError, ImportError) as error:
        typer.echo(f"stssad: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
