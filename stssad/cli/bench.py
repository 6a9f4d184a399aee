"""`stssad bench`: words to cells, tables, figures and the document of results."""

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..bench.cell import Cell, Line, Store
from .console import check_device, make_console

if TYPE_CHECKING:
    from ..testbeds.testbed import Testbed

app = typer.Typer(
    no_args_is_help=True, help="Run the paper's testbeds; make its tables and figures."
)
Results = Annotated[Path, typer.Option(help="Folder of the result lines.")]
Data = Annotated[
    Path | None,
    typer.Option(envvar="STSSAD_DATA", help="Folder that holds MVTec AD's categories and SVHN."),
]
RESULTS = Path("runs/bench")  # one's own: `results/` of a clone holds those of the documents


@app.command()
def run(
    testbed: Annotated[
        str, typer.Argument(help="svhn, demonstrative, or a category of MVTec AD such as tile.")
    ],
    methods: Annotated[
        str | None, typer.Option(help="Separated by commas; FILE.py:NAME for your own.")
    ] = None,
    augmentation: Annotated[
        str | None, typer.Option(help="Tune your own, given as FILE.py:NAME, with ST-SSAD.")
    ] = None,
    tasks: Annotated[str | None, typer.Option(help="Separated by commas; all if left out.")] = None,
    seeds: Annotated[int, typer.Option(help="How many: 0, 1, ...")] = 1,
    protocol: Annotated[
        Literal["transductive", "inductive", "both"], typer.Option()
    ] = "transductive",
    contamination: Annotated[
        float | None, typer.Option(help="Of the pool; else as it comes.")
    ] = None,
    preset: Annotated[Literal["cpu", "paper", "imagenet"], typer.Option()] = "cpu",
    change: Annotated[
        list[str] | None, typer.Option(help="A setting, as NAME=VALUE; may be repeated.")
    ] = None,
    data: Data = None,
    normal: Annotated[
        Path | None,
        typer.Option(help="Normal images for the demonstrative tasks; else textures."),
    ] = None,
    results: Results = RESULTS,
    jobs: Annotated[int, typer.Option(help="Processes; 0: one for each core.")] = 0,
    ray: Annotated[str | None, typer.Option(help="Address of a Ray cluster to run on.")] = None,
    device: Annotated[str, typer.Option(help="cpu, or cuda.")] = "cpu",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would run.")] = False,
) -> None:
    """Run methods x tasks x seeds that have no result yet; stop and start again as you like."""
    check_device(device)
    bed = chosen_testbed(testbed, data, normal)
    ways = chosen_methods(bed, methods, augmentation, preset)
    changes = changes_of(change or [])
    bed.settings(preset, **changes)
    protocols = ["inductive", "transductive"] if protocol == "both" else [protocol]
    every = itertools.product(range(seeds), ways, chosen_tasks(bed, tasks), protocols)
    cells = [
        Cell(bed.name, task, name, seed, each, preset, contamination, changes)
        for seed, name, task, each in every
    ]
    store = Store(results)
    done = {line.cell.key: line for line in store.lines(bed.name)}
    todo = [cell for cell in cells if cell.key not in done]
    n_done = len(cells) - len(todo)
    make_console().print(f"{len(cells)} cells, {n_done} of them done: {len(todo)} to run")
    check_same([done[c.key] for c in cells if c.key in done], bed.data, ways, store)
    if todo and not dry_run:
        run_cells(todo, bed, ways, store, jobs or os.cpu_count() or 1, ray, device)


def run_cells(
    todo: list[Cell], bed: "Testbed", ways: dict[str, str], store: Store, jobs: int,
    ray: str | None, device: str,
) -> None:  # fmt: skip
    """Each result is on the disk as soon as it is there; a cell that fails is named."""
    from ..bench.cluster import run_on_ray
    from ..bench.runner import run_here, units
    from .bench_progress import BenchProgress

    console, failed = make_console(), []
    # On a cluster each node would have its own; a cell then makes its own warm starts.
    warm_starts = None if ray else store.folder.absolute() / ".warm-starts"
    work = units(todo, bed.data and bed.data.absolute(), warm_starts, ways, device)
    found = run_on_ray(work, ray) if ray else run_here(work, jobs)
    with BenchProgress(console, todo) as progress:
        for outcome in found:
            store.append(outcome.lines)
            progress(outcome.lines)
            if outcome.failed is not None:
                c = outcome.failed
                failed.append(f"{c.testbed} {c.task} {c.method} seed {c.seed}: {outcome.error}")
                console.print(f"failed: {failed[-1]}")
    console.print(f"results: {store.path(bed.name)}")
    if failed:
        raise ValueError(f"{len(failed)} cell(s) failed, the first: {failed[0]}")


def chosen_methods(
    bed: "Testbed", methods: str | None, augmentation: str | None, preset: str
) -> dict[str, str]:
    """By the names that results give them."""
    from ..bench.methods import WITH_AUGMENTATION, methods_of, named

    words = methods.split(",") if methods else [] if augmentation else methods_of(bed.name, preset)
    words += [f"{WITH_AUGMENTATION}{augmentation}"] if augmentation else []
    return named([absolute(each) for each in words])


def chosen_tasks(bed: "Testbed", tasks: str | None) -> list[str]:
    known = bed.tasks()
    chosen = tasks.split(",") if tasks else known
    for task in chosen:
        if task not in known:
            raise ValueError(f"{bed.name} has no task {task!r}; it has {', '.join(known)}")
    return chosen


def chosen_testbed(name: str, data: Path | None, normal: Path | None) -> "Testbed":
    """The demonstrative tasks take a folder only if it is named: STSSAD_DATA is no such folder."""
    from ..testbeds.testbed import find_testbed

    if name.startswith("demonstrative-"):
        raise ValueError("give the folder: stssad bench run demonstrative --normal DIR")
    if name == "demonstrative":
        if normal is None:
            return find_testbed(name)
        folder = normal.absolute()
        return find_testbed(f"{name}-{folder.parent.name}-{folder.name}", folder)
    if normal is not None:
        raise ValueError("--normal is for the demonstrative tasks; the others have their own")
    return find_testbed(name, data)


def absolute(words: str) -> str:
    """FILE.py:NAME with the file's whole path, which another process can find."""
    from ..bench.methods import WITH_AUGMENTATION

    if ".py:" not in words:
        return words
    before = WITH_AUGMENTATION if words.startswith(WITH_AUGMENTATION) else ""
    return f"{before}{Path(words.removeprefix(before)).absolute()}"


def check_same(lines: list[Line], data: Path | None, ways: dict[str, str], store: Store) -> None:
    """Results that are there must come from the same images, settings and code."""
    from ..bench.runner import load_task, made_of

    for line in lines:
        words = ways[line.cell.method]
        found = made_of(line.cell, load_task(line.cell, data), data, words)
        if line.made_of != found:
            c = line.cell
            raise ValueError(
                f"{str(store.path(c.testbed))!r} has {c.task} {c.method} seed {c.seed} from other "
                "images, settings or code than yours; give another folder with --results"
            )


def changes_of(words: list[str]) -> dict[str, Any]:
    """Settings as NAME=VALUE, of the right type."""
    from ..settings import Aspect, EndState, Mode
    from .fit import all_fields

    texts = (Aspect, EndState, Mode)
    kinds = {name: f.type for name, f in all_fields().items()}
    changes: dict[str, Any] = {}
    for word in words:
        name, _, value = word.partition("=")
        if name not in kinds or not value:
            raise ValueError(f"--change takes NAME=VALUE with a setting's name, got {word!r}")
        kind = kinds[name]
        try:
            changes[name] = (
                float(value) if kind is float else value if kind in texts else int(value)
            )
        except ValueError:
            raise ValueError(f"--change {word}: the value is no number") from None
    return changes


@app.command()
def table(
    which: Annotated[
        str, typer.Argument(help="1: MVTec AD; 2: SVHN; or a testbed such as bottle.")
    ],
    paper: Annotated[
        bool, typer.Option("--paper", help="The paper's numbers beside ours.")
    ] = False,
    format: Annotated[Literal["text", "markdown", "latex", "csv"], typer.Option()] = "text",
    protocol: Annotated[Literal["transductive", "inductive"], typer.Option()] = "transductive",
    contamination: Annotated[float | None, typer.Option(help="Of the pool.")] = None,
    preset: Annotated[Literal["cpu", "paper", "imagenet"], typer.Option()] = "cpu",
    results: Results = RESULTS,
) -> None:
    """The paper's Table 1 or 2, or one of any testbed, from the results that are there."""
    from ..bench import tables

    selection = tables.Selection(protocol, preset, contamination)
    made = tables.table(which, all_lines(results), selection, paper)
    if not made.body:
        example = {"1": "tile", "2": "svhn"}.get(which, which)
        raise ValueError(
            f"no results for table {which} with preset {preset}, protocol {protocol} in "
            f"{str(results)!r}; make some with: stssad bench run {example}"
        )
    typer.echo(tables.rendered(made, format))


def all_lines(results: Path) -> list[Line]:
    store = Store(results)
    return [line for name in store.testbeds() for line in store.lines(name)]


@app.command()
def figure(
    name: Annotated[
        str,
        typer.Argument(
            help="demonstrative, trajectories, tsne, gallery, augmentations, types, limitation, "
            "landscape, times, or all."
        ),
    ],
    data: Data = None,
    results: Results = RESULTS,
    preset: Annotated[Literal["cpu", "paper", "imagenet"], typer.Option()] = "cpu",
    category: Annotated[str, typer.Option(help="Of MVTec AD, for the gallery.")] = "tile",
    out: Annotated[Path, typer.Option(help="Folder for the PNG files.")] = Path("docs/figures"),
) -> None:
    """Draw a figure from the results that are there."""
    from ..bench.figures import FIGURES, Sources, write_figure

    sources = Sources(results, data, preset, category)
    if name != "all":
        typer.echo(f"figure: {write_figure(name, sources, out)}")
        return
    missing = 0
    for each in FIGURES:
        try:
            typer.echo(f"figure: {write_figure(each, sources, out)}")
        except (ValueError, OSError) as error:
            missing += 1
            typer.echo(f"left out: {each}: {error}", err=True)
    if missing:
        raise ValueError(f"{missing} figure(s) could not be drawn")


@app.command()
def embed(
    task: Annotated[str, typer.Argument(help="A demonstrative task.")] = "0.04/1",
    seed: Annotated[int, typer.Option()] = 0,
    results: Results = RESULTS,
) -> None:
    """Tune on a demonstrative task and keep its embeddings, for the figure tsne."""
    from ..bench.embeddings import keep_embeddings

    typer.echo(f"tuning on {task} from four initial values (a minute or two)")
    typer.echo(f"embeddings: {keep_embeddings(task, seed, results)}")


@app.command()
def pixels(
    category: Annotated[str, typer.Argument(help="Of MVTec AD, with its masks.")],
    seeds: Annotated[int, typer.Option(help="How many: 0, 1, ...")] = 1,
    data: Data = None,
    results: Results = RESULTS,
) -> None:
    """Pixel AUROC of the anomaly maps, ours and PatchCore's, against MVTec AD's masks."""
    from ..bench.pixels import run_pixels
    from ..testbeds.testbed import find_testbed

    find_testbed(category, data).tasks()  # names what is missing
    assert data is not None
    typer.echo(f"two maps of {category} for each seed, a minute or two each")
    for line in run_pixels(category, data, seeds, Store(results)):
        c = line.cell
        words = f"{c.task}  {c.method}  seed {c.seed}  pixel AUROC {line.auc:.4f}"
        typer.echo(f"{words}  {line.seconds:.0f} s")
    typer.echo(f"results: {Store(results).path('pixels')}")


@app.command()
def robustness(
    category: Annotated[str, typer.Argument(help="Of MVTec AD, or laid out like it.")],
    ask: Annotated[
        str, typer.Option(help="With commas: light, mixed, contamination, constants.")
    ] = "light,mixed,contamination",
    seeds: Annotated[int, typer.Option(help="How many: 0, 1, ...")] = 3,
    encoder: Annotated[str | None, typer.Option(help="EfficientNetLite1 or 2; Lite0 if not given.")]
    = None,
    data: Data = None,
    results: Results = RESULTS,
) -> None:  # fmt: skip
    """Does the default's score hold in other light, where kinds mix, where the pool is clean?"""
    from ..bench.robustness import QUESTIONS, TESTBED, run_robustness
    from ..testbeds.testbed import find_testbed

    which = ask.split(",")
    if unknown := set(which) - set(QUESTIONS):
        raise ValueError(f"unknown question {sorted(unknown)[0]!r}; use {', '.join(QUESTIONS)}")
    find_testbed(category, data).tasks()  # names what is missing
    assert data is not None
    typer.echo(f"encoding {category} (a minute or two), then some seconds for each task and seed")
    for line in run_robustness(category, data, which, seeds, Store(results), encoder):
        c, changes = line.cell, " ".join(f"{k} {v}" for k, v in line.cell.changes.items())
        typer.echo(f"{c.task}  seed {c.seed}  {c.contamination:g}  {changes}  {line.auc:.4f}")
    typer.echo(f"results: {Store(results).path(TESTBED)}")


@app.command()
def clean(
    category: Annotated[str, typer.Argument(help="Of MVTec AD, or laid out like it.")],
    pools: Annotated[int, typer.Option(help="How many, of several sizes and lights.")] = 60,
    data: Data = None,
    results: Results = RESULTS,
) -> None:
    """How often does a pool of normal images alone seem to show an anomaly? (p-values)"""
    from ..bench.clean_pools import TESTBED, run_clean
    from ..testbeds.testbed import find_testbed

    find_testbed(category, data).tasks()  # names what is missing
    assert data is not None
    typer.echo(f"{pools} pools of normal images of {category}, some ten seconds each")
    for line in run_clean(category, data, pools, Store(results)):
        c, light = line.cell, line.cell.changes.get("light", "")
        typer.echo(f"{c.task}  {light}  p {line.details['p']:.4f}")
    typer.echo(f"results: {Store(results).path(TESTBED)}")


@app.command()
def review(
    category: Annotated[str, typer.Argument(help="Of MVTec AD, or laid out like it.")],
    seeds: Annotated[int, typer.Option(help="How many: 0, 1, ...")] = 5,
    data: Data = None,
    results: Results = RESULTS,
) -> None:
    """What are twenty marks worth, and do the kinds that are found agree with the true ones?"""
    from ..bench.review import TESTBED, run_review
    from ..testbeds.testbed import find_testbed

    find_testbed(category, data).tasks()  # names what is missing
    assert data is not None
    typer.echo(f"encoding {category} (a minute or two), then some seconds for each seed")
    for line in run_review(category, data, seeds, Store(results)):
        d = line.details
        typer.echo(
            f"{line.cell.task}  seed {line.cell.seed}  found: {d['found before']:.3f} before, "
            f"{d['found proposed']:.3f} after 20 marks, {d['found random']:.3f} at random; "
            f"{d['kinds found']:.0f} kinds, Rand index {d['rand index']:.2f}"
        )
    typer.echo(f"results: {Store(results).path(TESTBED)}")


@app.command("document")
def write(
    results: Results = RESULTS,
    preset: Annotated[Literal["cpu", "paper"], typer.Option()] = "cpu",
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("docs/results.md"),
    fill: Annotated[
        list[Path], typer.Option(help="Files whose tables of the pretrained method are filled in.")
    ] = [Path("docs/beyond-the-paper.md"), Path("docs/studio.md"), Path("README.md")],  # noqa: B006
) -> None:
    """Write the document of results again, and the tables of the pretrained method."""
    from ..bench.beyond import fill_tables
    from ..bench.document import write_document

    lines = all_lines(results)
    write_document(lines, results / "NOTES.md", out, preset)
    typer.echo(f"document: {out}")
    for path in fill:
        if path.is_file():
            fill_tables(path, lines)
            typer.echo(f"tables in: {path}")
