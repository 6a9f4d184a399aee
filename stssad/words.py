"""Numbers in words, for the terminal and the page."""

from collections.abc import Mapping

SHARES = ("area", "length", "width", "shift")  # of the picture, or of its side


def in_words(learned: Mapping[str, float | str]) -> str:
    """{"area": 0.04, "aspect": 1.0} as "area 4 %, aspect 1.00"."""
    words = []
    for name, value in learned.items():
        if isinstance(value, str):
            words.append(value)
        elif name in SHARES:
            words.append(f"{name} {100 * value:.3g} %")
        elif name.endswith("_deg"):
            words.append(f"{name.removesuffix('_deg')} {value:.0f}°")
        else:
            words.append(f"{name} {value:.2f}")
    return ", ".join(words)
