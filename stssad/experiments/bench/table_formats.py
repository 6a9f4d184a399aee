"""A table of results as text, Markdown, LaTeX or CSV."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from .tables import Entry, Table

Format = Literal["text", "markdown", "latex", "csv"]


def format_table(table: Table, form: Format) -> str:
    """The table as text, Markdown, LaTeX or CSV."""
    return {
        "text": format_text,
        "markdown": format_markdown,
        "latex": format_latex,
        "csv": format_csv,
    }[form](table)


def format_text(table: Table) -> str:
    rows = [[f"{e.text}*" if e.bold else e.text for e in r] for r in table.body + table.foot]
    widths = [max(map(len, column)) for column in zip(table.header, *rows, strict=True)]

    def aligned(cells: Sequence[str]) -> str:
        both = zip(cells, widths, strict=True)
        return "  ".join(c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(both))

    line = "-" * (sum(widths) + 2 * len(widths) - 2)
    n = len(table.body)
    parts = [aligned(table.header), line, *map(aligned, rows[:n]), line, *map(aligned, rows[n:])]
    notes = ["* the best of the main methods.", *table.notes]
    return "\n".join([*(part.rstrip() for part in parts), "", *notes])


def format_markdown(table: Table) -> str:
    rows = [[f"**{e.text}**" if e.bold else e.text for e in r] for r in table.body + table.foot]
    lines = [table.header, ["---"] * len(table.header), *rows]
    return "\n".join("| " + " | ".join(r) + " |" for r in lines) + "\n\n" + " ".join(table.notes)


def format_latex(table: Table) -> str:
    def escaped(entry: Entry) -> str:
        text = entry.text.replace("_", r"\_")
        return rf"\textbf{{{text}}}" if entry.bold else text

    def row(entries: Iterable[Entry]) -> str:
        return " & ".join(map(escaped, entries)) + r" \\"

    n = len(table.header) - 2
    return "\n".join(
        [
            *(f"% {note}" for note in table.notes),
            rf"\begin{{tabular}}{{ll{'c' * n}}}",
            r"\toprule",
            row(map(Entry, table.header)),
            r"\midrule",
            *map(row, table.body),
            r"\midrule",
            *map(row, table.foot),
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )


def format_csv(table: Table) -> str:
    out = io.StringIO()
    out.writelines(f"# {note}\n" for note in table.notes)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.header)
    writer.writerows([e.text for e in r] for r in table.body + table.foot)
    return out.getvalue().rstrip("\n")


FORMATS: dict[Format, Callable[[Table], str]] = {
    "text": format_text,
    "markdown": format_markdown,
    "latex": format_latex,
    "csv": format_csv,
}
