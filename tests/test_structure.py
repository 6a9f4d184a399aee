"""The house: short functions, a thin facade, imports that point one way."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "stssad"
FILES = sorted(ROOT.rglob("*.py"))
LONGEST_FUNCTION, LONGEST_FACADE = 60, 250
LONG_FUNCTION, MOST_LONG = 40, 5
MOST_PARAMETERS = 9  # `self` is one

# A room may import from those before it, and from itself; one that isn't named is before all.
ROOMS = [
    "images.reading",
    "settings",
    "images",
    "augment",
    "encoders",
    "scoring",
    "tuning",
    "methods",
    "runs.folder",
    "runs.saved_model",
    "model",
    "runs",
    "deploy",
    "review.labels",
    "report",
    "review",
    "runs.fit",
    "runs.refit",
    "experiments",
    "scale",
    "studio",
    "cli",
]
RUN_FILES = {
    "environment.json",
    "model.json",
    "model.safetensors",
    "scores.csv",
    "history.csv",
    "report.safetensors",
    "report.html",
    "refit.safetensors",
    "groups.json",
    "labels.sqlite",
    "labels.csv",
    "progress.json",
    "watch.csv",
    ".lock",
    ".lock.pid",
}
FREE = {"registry", "version", "storage", "parallel"}  # may be imported from anywhere


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in FILES}


def is_typing_only(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All of it, functions included, but for what only a type checker reads."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt) and is_typing_only(child):
            continue
        yield child
        yield from statements(child)


def imports_of(name: str) -> set[str]:
    """Modules of ours that a module imports, at its top or inside a function."""
    path, found = MODULES[name], set()
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in statements(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")
                above = above[: len(above) - node.level + 1]
                base = ".".join([*above, *([node.module] if node.module else [])])
            found.add(base)
            found |= {f"{base}.{alias.name}" for alias in node.names}
    return {each for each in found if each in MODULES} - {name}


GRAPH = {name: imports_of(name) for name in MODULES}


def functions_of(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def n_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_function_is_longer_than_a_screen(path: Path) -> None:
    for function in functions_of(path):
        assert n_lines(function) <= LONGEST_FUNCTION, function.name


def test_few_functions_are_long() -> None:
    long = [
        f"{name}.{function.name}"
        for name, path in MODULES.items()
        for function in functions_of(path)
        if n_lines(function) > LONG_FUNCTION
    ]
    assert len(long) <= MOST_LONG, long


@pytest.mark.parametrize("name", MODULES)
def test_functions_have_few_parameters(name: str) -> None:
    """But for the estimator, whose parameters are scikit-learn's, and commands, which are flags."""
    if name == "stssad.model" or name.startswith("stssad.cli"):
        return
    for function in functions_of(MODULES[name]):
        a = function.args
        assert len([*a.posonlyargs, *a.args, *a.kwonlyargs]) <= MOST_PARAMETERS, function.name


def test_the_facade_is_thin() -> None:
    assert len((ROOT / "model.py").read_text("utf-8").splitlines()) < LONGEST_FACADE


def test_no_module_is_imported_in_a_circle() -> None:
    """Not even by an import inside a function."""
    done: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, " -> ".join([*way[way.index(name) :], name])
        if name not in done:
            for other in GRAPH[name]:
                visit(other, (*way, name))
            done.add(name)

    for name in GRAPH:
        visit(name, ())


def room_of(name: str) -> int:
    """The most exact of its rooms: `runs.folder` before `runs`."""
    inside = name.removeprefix("stssad").removeprefix(".")
    found = [room for room in ROOMS if inside == room or inside.startswith(f"{room}.")]
    return ROOMS.index(max(found, key=len)) if found else -1


def test_imports_point_one_way() -> None:
    for name, others in GRAPH.items():
        for other in others:
            assert room_of(other) <= room_of(name), f"{name} imports {other}"


def test_every_module_has_a_room() -> None:
    for name in MODULES:
        first = [*name.split("."), ""][1]
        assert not first or first in FREE or room_of(name) >= 0, name


def test_few_modules_lie_loose() -> None:
    assert len([path for path in FILES if path.parent == ROOT]) <= 8


def reachable(start: str) -> set[str]:
    """All modules that one imports, and that those import."""
    done: set[str] = set()
    todo = [start]
    while todo:
        name = todo.pop()
        if name not in done:
            done.add(name)
            todo.extend(GRAPH[name])
    return done


def test_the_two_methods_dont_reach_each_other() -> None:
    """Not by way of a third module, either; only the registry knows both, by name."""
    of_paper, of_pretrained = (
        {name.removeprefix("stssad.") for name in reachable(f"stssad.methods.{method}")}
        for method in ("paper", "pretrained")
    )
    only_paper = {"methods.paper", "methods.paper_candidate", "tuning.tuner", "tuning.problem"}
    only_pretrained = {"methods.pretrained", "methods.explain", "tuning.frozen_tuner"}
    assert only_paper <= of_paper and not only_paper & of_pretrained
    assert only_pretrained <= of_pretrained and not only_pretrained & of_paper
    assert "tuning.hypergradient" not in of_pretrained
    assert "tuning.shift_alignment" not in of_paper


def test_few_modules_import_by_name() -> None:
    """Imports that this file can't follow."""
    by_name = {
        name
        for name, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] in ("import_module", "__import__")
    }
    assert by_name == {"stssad", "stssad.registry", "stssad.experiments.bench.methods"}


def name_files(tree: ast.AST) -> Iterator[str]:
    """String constants that spell a file of a run; an address of the studio is none of those."""
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    endings = {id(part) for text in texts for part in text.values[1:]}  # of a name that is made
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            if id(node) in endings and "/" not in text:
                continue
            if not text.startswith("/run/") and text.endswith(tuple(RUN_FILES)):
                before = text.removesuffix(next(x for x in RUN_FILES if text.endswith(x)))
                if not before or before.endswith("/"):
                    yield text


def test_one_module_names_the_files_of_a_run() -> None:
    trees = {name: ast.parse(path.read_text("utf-8")) for name, path in MODULES.items()}
    spelled = {name: set(name_files(tree)) for name, tree in trees.items()}
    assert spelled.pop("stssad.runs.folder") >= RUN_FILES
    assert {name: texts for name, texts in spelled.items() if texts} == {}


def test_the_registry_names_what_is_there() -> None:
    from stssad import registry

    for each in vars(registry).values():
        if isinstance(each, registry.Registry):
            for name in each:
                assert each[name] is not None


def test_only_one_module_opens_images() -> None:
    opening = {
        name
        for name, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Image.open"
    }
    assert opening == {"stssad.images.decode"}
