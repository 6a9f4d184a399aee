"""One run to one self-contained HTML page."""

from .material import Material, gather
from .page import write_report

__all__ = ["Material", "gather", "write_report"]
