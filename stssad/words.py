"""Numbers in words, for the terminal and the page."""


def in_words(learned: dict[str, float]) -> str:
    """{"area": 0.04, "aspect": 1.0} as "area 4 %, aspect 1.00"."""
    words = []
    for name, value in learned.items():
        if name == "area":
            words.append(f"area {100 * value:.3g} %")
        elif name.endswith("_deg"):
            words.append(f"{name.removesuffix('_deg')} {value:.0f}°")
        else:
            words.append(f"{name} {value:.2f}")
    return ", ".join(words)
