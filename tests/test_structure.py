"""The house: short functions, a thin facade, imports that point one way."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "stssad"
FILES = sorted(ROOT.rglob("*.py"))
LONGEST_FUNCTION, LONGEST_FACADE = 60, 250

# A room may import from those before it, and from itself. What stands alone (settings, layout, ...)
# is before all of them.
ROOMS = [
    {"augment", "encoders", "scoring"}, {"tuning"}, {"methods"}, {"exported"}, {"engine"},
    {"saved_model"}, {"model"}, {"summary", "predictions", "heatmaps"}, {"copies", "drift"},
    {"run"}, {"watch"}, {"report", "baselines", "testbeds"}, {"review"},
    {"workflow", "demo", "bench", "scale"}, {"studio"}, {"cli"},
]  # fmt: skip


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


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_function_is_longer_than_a_screen(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno + 1 <= LONGEST_FUNCTION, node.name


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
    first = [*name.split("."), ""][1]
    return next((k for k, rooms in enumerate(ROOMS) if first in rooms), -1)


def test_imports_point_one_way() -> None:
    for name, others in GRAPH.items():
        for other in others:
            assert room_of(other) <= room_of(name), f"{name} imports {other}"


def test_the_two_methods_dont_know_each_other() -> None:
    assert "stssad.methods.pretrained" not in GRAPH["stssad.methods.paper"]
    assert "stssad.methods.paper" not in GRAPH["stssad.methods.pretrained"]
    for name in ("tuner", "hypergradient", "problem"):
        others = GRAPH[f"stssad.tuning.{name}"]
        assert not any("frozen" in other or "alignment" in other for other in others)


def test_the_registry_names_what_is_there() -> None:
    from stssad import registry

    for each in vars(registry).values():
        if isinstance(each, registry.Registry):
            for name in each:
                assert each[name] is not None
