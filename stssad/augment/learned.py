"""Learned parameters as text, for the terminal and the page."""

from collections.abc import Mapping

SHARES = ("area", "length", "width", "shift")  # of the image, or of its side


def format_learned(learned: Mapping[str, float | str]) -> str:
    """{"area": 0.04, "aspect": 1.0} as "area 4 %, aspect 1.00"."""
    return ", ".join(format_value(name, value) for name, value in learned.items())


def format_value(name: str, value: float | str) -> str:
    if isinstance(value, str):
        return value
    if name == "size":
        return f"size {value:.3g}"
    if name in SHARES:
        return f"{name} {100 * value:.3g} %"
    if name.endswith("_deg"):
        return f"{name.removesuffix('_deg')} {value:.0f}°"
    return f"{name} {value:.2f}"
