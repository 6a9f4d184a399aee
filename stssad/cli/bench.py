"""`stssad bench`: cells of the benchmark, its tables, figures and document."""

import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..experiments.bench.cell import Cell, Line, Store
from .console import check_device, make_console

if TYPE_CHECKING:
    from ..experiments.testbeds.testbed import Testbed

app = typer.Typer(
    no_args_is_help=True, help="Run the paper's testbeds; make its tables and figures."
)
Results = Annotated[Path, typer.Option(help="Folder of the result lines.")]
Data = Annotated[
    Path | None,
    typer.Option(envvar="STSSAD_DATA", help="Folder that holds MVTec AD's categories and SVHN."),
]
Category = Annotated[str, typer.Argument(help="Of MVTec AD, or a folder laid out like one.")]
RESULTS = Path("runs/bench")  # one's own: `results/` of a clone holds those of the documents


@app.command()
def run(
    testbed: Annotated[
        str, typer.Argument(help="svhn, demonstrative, or a category of MVTec AD such as tile.")
    ],
    methods: Annotated[
        str | None, typer.Option(help="Separated by commas; FILE.py:NAME for your own method.")
    ] = None,
    augmentation: Annotated[
        str | None, typer.Option(help="Tune your own augmentation, FILE.py:NAME, with ST-SSAD.")
    ] = None,
    tasks: Annotated[str | None, typer.Option(help="Separated by commas; all by default.")] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds: 0, 1, ...")] = 1,
    protocol: Annotated[
        Literal["transductive", "inductive", "both"], typer.Option()
    ] = "transductive",
    contamination: Annotated[
        float | None, typer.Option(help="Share of anomalies in the pool; unchanged by default.")
    ] = None,
    preset: Annotated[Literal["cpu", "paper", "imagenet"], typer.Option()] = "cpu",
    change: Annotated[
        list[str] | None, typer.Option(help="A setting, as NAME=VALUE; may be repeated.")
    ] = None,
    data: Data = None,
    normal: Annotated[
        Path | None,
        typer.Option(help="Normal images for the demonstrative tasks; textures by default."),
    ] = None,
    results: Results = RESULTS,
    jobs: Annotated[int, typer.Option(help="Processes; 0: one for each core.")] = 0,
    ray: Annotated[str | None, typer.Option(help="Address of a Ray cluster to run on.")] = None,
    device: Annotated[str, typer.Option(help="cpu, or cuda.")] = "cpu",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the cells.")] = False,
) -> None:
    """Run methods x tasks x seeds that have no result yet; it can be stopped and started again."""
    check_device(device)
    bed = choose_testbed(testbed, data, normal)
    references = choose_methods(bed, methods, augmentation, preset)
    changes = parse_changes(change or [])
    bed.settings(preset, **changes)
    protocols = ["inductive", "transductive"] if protocol == "both" else [protocol]
    cells = [
        Cell(bed.name, task, name, seed, each_protocol, preset, contamination, changes)
        for seed, name, task, each_protocol in itertools.product(
            range(seeds), references, choose_tasks(bed, tasks), protocols
        )
    ]
    store = Store(results)
    todo = find_missing(cells, bed, references, store)
    if todo and not dry_run:
        run_cells(todo, bed, references, store, Machine(jobs or os.cpu_count() or 1, ray, device))


def find_missing(
    cells: list[Cell], bed: "Testbed", references: dict[str, str], store: Store
) -> list[Cell]:
    """Cells without a result; results that exist must come from the same images and settings."""
    done = {line.cell.key: line for line in store.lines(bed.name)}
    todo = [cell for cell in cells if cell.key not in done]
    n_done = len(cells) - len(todo)
    make_console().print(f"{len(cells)} cells, {n_done} of them done: {len(todo)} to run")
    check_same([done[c.key] for c in cells if c.key in done], bed.data, references, store)
    return todo


@dataclass(frozen=True)
class Machine:
    """Where cells are run."""

    jobs: int
    ray: str | None  # the address of a cluster
    device: str


def run_cells(
    todo: list[Cell], bed: "Testbed", references: dict[str, str], store: Store, machine: Machine
) -> None:
    """Each result is on the disk as soon as it is known; a cell that fails is named."""
    from ..experiments.bench.cluster import run_on_ray
    from ..experiments.bench.runner import make_units, run_here
    from .bench_progress import BenchProgress

    console, failed = make_console(), []
    # On a cluster each node would have its own; a cell then makes its own warm starts.
    warm_starts = None if machine.ray else store.folder.absolute() / ".warm-starts"
    data = bed.data and bed.data.absolute()
    units = make_units(todo, data, warm_starts, references, machine.device)
    outcomes = run_on_ray(units, machine.ray) if machine.ray else run_here(units, machine.jobs)
    with BenchProgress(console, todo) as progress:
        for outcome in outcomes:
            store.append(outcome.lines)
            progress(outcome.lines)
            if outcome.failed is not None:
                c = outcome.failed
                failed.append(f"{c.testbed} {c.task} {c.method} seed {c.seed}: {outcome.error}")
                console.print(f"failed: {failed[-1]}")
    console.print(f"results: {store.path(bed.name)}")
    if failed:
        raise ValueError(f"{len(failed)} cell(s) failed, the first: {failed[0]}")


def choose_methods(
    bed: "Testbed", methods: str | None, augmentation: str | None, preset: str
) -> dict[str, str]:
    """Names of methods in results, each with how the method is found."""
    from ..experiments.bench.methods import WITH_AUGMENTATION, default_methods, name_methods

    references = methods.split(",") if methods else []
    if augmentation:
        references.append(f"{WITH_AUGMENTATION}{augmentation}")
    references = references or default_methods(bed.name, preset)
    return name_methods([make_absolute(reference) for reference in references])


def choose_tasks(bed: "Testbed", tasks: str | None) -> list[str]:
    known = bed.tasks()
    chosen = tasks.split(",") if tasks else known
    for task in chosen:
        if task not in known:
            raise ValueError(f"{bed.name} has no task {task!r}; it has {', '.join(known)}")
    return chosen


def choose_testbed(name: str, data: Path | None, normal: Path | None) -> "Testbed":
    """The demonstrative tasks take a folder only if it is named: STSSAD_DATA is no such folder."""
    from ..experiments.testbeds.testbed import find_testbed

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


def make_absolute(reference: str) -> str:
    """FILE.py:NAME with the file's absolute path, which another process can find."""
    from ..experiments.bench.methods import WITH_AUGMENTATION

    if ".py:" not in reference:
        return reference
    prefix = WITH_AUGMENTATION if reference.startswith(WITH_AUGMENTATION) else ""
    return f"{prefix}{Path(reference.removeprefix(prefix)).absolute()}"


def check_same(
    lines: list[Line], data: Path | None, references: dict[str, str], store: Store
) -> None:
    """Existing results must come from the same images, settings and code."""
    from ..experiments.bench.runner import digest_inputs, load_task

    for line in lines:
        reference = references[line.cell.method]
        if line.made_of != digest_inputs(line.cell, load_task(line.cell, data), data, reference):
            c = line.cell
            raise ValueError(
                f"{str(store.path(c.testbed))!r} has {c.task} {c.method} seed {c.seed} from other "
                "images, settings or code than yours; give another folder with --results"
            )


def parse_changes(assignments: list[str]) -> dict[str, Any]:
    """Settings as NAME=VALUE, of the right type."""
    from ..images.reading import Aspect
    from ..settings import EndState, Mode
    from .fit import all_fields

    texts = (Aspect, EndState, Mode)
    types = {name: f.type for name, f in all_fields().items()}
    changes: dict[str, Any] = {}
    for assignment in assignments:
        name, _, value = assignment.partition("=")
        if name not in types or not value:
            raise ValueError(f"--change takes NAME=VALUE with a setting's name, got {assignment!r}")
        type_ = types[name]
        try:
            changes[name] = (
                float(value) if type_ is float else value if type_ in texts else int(value)
            )
        except ValueError:
            raise ValueError(f"--change {assignment}: the value is no number") from None
    return changes


@app.command()
def table(
    which: Annotated[
        str, typer.Argument(help="1: MVTec AD; 2: SVHN; or a testbed such as bottle.")
    ],
    paper: Annotated[bool, typer.Option("--paper", help="Add the paper's numbers.")] = False,
    format: Annotated[Literal["text", "markdown", "latex", "csv"], typer.Option()] = "text",
    protocol: Annotated[Literal["transductive", "inductive"], typer.Option()] = "transductive",
    contamination: Annotated[float | None, typer.Option(help="Of the pool.")] = None,
    preset: Annotated[Literal["cpu", "paper", "imagenet"], typer.Option()] = "cpu",
    results: Results = RESULTS,
) -> None:
    """The paper's Table 1 or 2, or one of any testbed, from the results so far."""
    from ..experiments.bench.table_formats import format_table
    from ..experiments.bench.tables import Selection, make_table

    selection = Selection(protocol, preset, contamination)
    results_table = make_table(which, Store(results).all_lines(), selection, paper)
    if not results_table.body:
        example = {"1": "tile", "2": "svhn"}.get(which, which)
        raise ValueError(
            f"no results for table {which} with preset {preset}, protocol {protocol} in "
            f"{str(results)!r}; make some with: stssad bench run {example}"
        )
    typer.echo(format_table(results_table, format))


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
    """Draw a figure from the results so far."""
    from ..experiments.bench.figures import FIGURES, Sources, write_figure

    sources = Sources(results, data, preset, category)
    if name != "all":
        typer.echo(f"figure: {write_figure(name, sources, out)}")
        return
    missing = 0
    for figure_name in FIGURES:
        try:
            typer.echo(f"figure: {write_figure(figure_name, sources, out)}")
        except (ValueError, OSError) as error:
            missing += 1
            typer.echo(f"left out: {figure_name}: {error}", err=True)
    if missing:
        raise ValueError(f"{missing} figure(s) could not be drawn")


@app.command()
def embed(
    task: Annotated[str, typer.Argument(help="A demonstrative task.")] = "0.04/1",
    seed: Annotated[int, typer.Option()] = 0,
    results: Results = RESULTS,
) -> None:
    """Tune on a demonstrative task and save its embeddings, for the figure tsne."""
    from ..experiments.bench.embeddings import save_embeddings

    typer.echo(f"tuning on {task} from four initial values (a minute or two)")
    typer.echo(f"embeddings: {save_embeddings(task, seed, results)}")


@app.command()
def pixels(
    category: Annotated[str, typer.Argument(help="Category of MVTec AD, with its masks.")],
    seeds: Annotated[int, typer.Option(help="Number of seeds: 0, 1, ...")] = 1,
    data: Data = None,
    results: Results = RESULTS,
) -> None:
    """Pixel AUROC of the anomaly maps, ours and PatchCore's, against MVTec AD's masks."""
    from ..experiments.bench.pixels import run_pixels
    from ..experiments.testbeds.testbed import find_testbed

    find_testbed(category, data).tasks()  # names what is missing
    assert data is not None
    typer.echo(f"two maps of {category} for each seed, a minute or two each")
    for line in run_pixels(category, data, seeds, Store(results)):
        c = line.cell
        result = f"{c.task}  {c.method}  seed {c.seed}  pixel AUROC {line.auc:.4f}"
        typer.echo(f"{result}  {line.seconds:.0f} s")
    typer.echo(f"results: {Store(results).path('pixels')}")


@app.command()
def robustness(
    category: Category,
    ask: Annotated[
        str, typer.Option(help="Separated by commas: light, mixed, contamination, constants.")
    ] = "light,mixed,contamination",
    seeds: Annotated[int, typer.Option(help="Number of seeds: 0, 1, ...")] = 3,
    encoder: Annotated[
        str | None, typer.Option(help="EfficientNetLite1 or 2; Lite0 if not given.")
    ] = None,
    data: Data = None,
    results: Results = RESULTS,
) -> None:
    """How robust is the default's score to light, mixed kinds of defects, and clean pools?"""
    from ..experiments.bench.robustness import QUESTIONS, TESTBED, run_robustness
    from ..experiments.testbeds.testbed import find_testbed

    questions = ask.split(",")
    if unknown := set(questions) - set(QUESTIONS):
        raise ValueError(f"unknown question {sorted(unknown)[0]!r}; use {', '.join(QUESTIONS)}")
    find_testbed(category, data).tasks()  # names what is missing
    assert data is not None
    typer.echo(f"encoding {category} (a minute or two), then some seconds for each task and seed")
    for line in run_robustness(category, data, questions, seeds, Store(results), encoder):
        c, changes = line.cell, " ".join(f"{k} {v}" for k, v in line.cell.changes.items())
        typer.echo(f"{c.task}  seed {c.seed}  {c.contamination:g}  {changes}  {line.auc:.4f}")
    typer.echo(f"results: {Store(results).path(TESTBED)}")


@app.command()
def clean(
    category: Category,
    pools: Annotated[int, typer.Option(help="Number of pools, of several sizes and lights.")] = 60,
    data: Data = None,
    results: Results = RESULTS,
) -> None:
    """How often does a pool of normal images alone seem to show an anomaly? (p-values)"""
    from ..experiments.bench.clean_pools import TESTBED, run_clean
    from ..experiments.testbeds.testbed import find_testbed

    find_testbed(category, data).tasks()  # names what is missing
    assert data is not None
    typer.echo(f"{pools} pools of normal images of {category}, some ten seconds each")
    for line in run_clean(category, data, pools, Store(results)):
        c, light = line.cell, line.cell.changes.get("light", "")
        typer.echo(f"{c.task}  {light}  p {line.details['p']:.4f}")
    typer.echo(f"results: {Store(results).path(TESTBED)}")


@app.command()
def decisions(
    category: Category,
    seeds: Annotated[int, typer.Option(help="Number of seeds: 0, 1, ...")] = 5,
    data: Data = None,
    results: Results = RESULTS,
) -> None:
    """Are false alarm and false discovery rates kept, and does the estimated share cover?"""
    from ..experiments.bench.decisions import TESTBED, run_decisions
    from ..experiments.testbeds.testbed import find_testbed

    find_testbed(category, data).tasks()  # names what is missing
    assert data is not None
    typer.echo(f"encoding {category} (a minute or two), then half a minute for each fit")
    for line in run_decisions(category, data, seeds, Store(results)):
        c, d = line.cell, line.details
        typer.echo(
            f"{c.task}  seed {c.seed}  {c.contamination:g}  flagged {d['flagged 1 %']:.3f}, "
            f"false discoveries: {d['false discoveries']:.3f}"
        )
    typer.echo(f"results: {Store(results).path(TESTBED)}")


@app.command()
def pool(
    category: Category,
    seeds: Annotated[int, typer.Option(help="Number of seeds: 0, 1, ...")] = 3,
    normal: Annotated[str, typer.Option(help="Numbers of normal images.")] = "200",
    images: Annotated[str, typer.Option(help="Sizes of the pool.")] = "150",
    data: Data = None,
    results: Results = RESULTS,
) -> None:
    """What does the pool teach the default, by its size and contamination?"""
    from ..experiments.bench.pool import TESTBED, run_pools
    from ..experiments.testbeds.testbed import find_testbed

    find_testbed(category, data).tasks()  # names what is missing
    assert data is not None
    sizes = [(int(n), int(m)) for n in normal.split(",") for m in images.split(",")]
    typer.echo(f"encoding {category} (a minute or two), then two minutes for each fit")
    for line in run_pools(category, data, seeds, sizes, Store(results)):
        c, d = line.cell, line.details
        typer.echo(
            f"{c.task}  seed {c.seed}  {c.contamination:g}  AUROC {d['auc untuned']:.3f} → "
            f"{line.auc:.3f}, p {d['p of what is taught']:.2g}"
        )
    typer.echo(f"results: {Store(results).path(TESTBED)}")


@app.command()
def review(
    category: Category,
    seeds: Annotated[int, typer.Option(help="Number of seeds: 0, 1, ...")] = 5,
    data: Data = None,
    results: Results = RESULTS,
) -> None:
    """What are twenty labels worth, and do the groups agree with the true kinds of defects?"""
    from ..experiments.bench.review import TESTBED, run_review
    from ..experiments.testbeds.testbed import find_testbed

    find_testbed(category, data).tasks()  # names what is missing
    assert data is not None
    typer.echo(f"encoding {category} (a minute or two), then some seconds for each seed")
    for line in run_review(category, data, seeds, Store(results)):
        d = line.details
        typer.echo(
            f"{line.cell.task}  seed {line.cell.seed}  found: {d['found before']:.3f} before, "
            f"{d['found proposed']:.3f} after 20 labels, {d['found random']:.3f} at random; "
            f"{d['kinds found']:.0f} groups, Rand index {d['rand index']:.2f}"
        )
    typer.echo(f"results: {Store(results).path(TESTBED)}")


@app.command("document")
def write(
    out: Annotated[Path, typer.Option(help="File to write.")],
    results: Results = RESULTS,
    preset: Annotated[Literal["cpu", "paper"], typer.Option()] = "cpu",
) -> None:
    """Write a document of your results, with a short interpretation."""
    from ..experiments.bench.document import write_document

    write_document(results, out, preset)
    typer.echo(f"document: {out}")
