"""Numbers in words, for the terminal and the page."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

SHARES = ("area", "length", "width", "shift")  # of the image, or of its side


def in_words(learned: Mapping[str, float | str]) -> str:
    """{"area": 0.04, "aspect": 1.0} as "area 4 %, aspect 1.00"."""
    words = []
    for name, value in learned.items():
        if isinstance(value, str):
            words.append(value)
        elif name == "size":
            words.append(f"size {value:.3g}")
        elif name in SHARES:
            words.append(f"{name} {100 * value:.3g} %")
        elif name.endswith("_deg"):
            words.append(f"{name.removesuffix('_deg')} {value:.0f}°")
        else:
            words.append(f"{name} {value:.2f}")
    return ", ".join(words)


def changed_params(estimator: object) -> str:
    """An estimator's parameters that aren't the constructor's defaults, objects by their class."""
    defaults = signature(type(estimator)).parameters
    values = {name: getattr(estimator, name) for name in defaults}
    changed = (k for k, v in values.items() if v is not defaults[k].default)
    return ", ".join(f"{name}={short(values[name])}" for name in changed)


def told(model: Any) -> str:
    """An estimator in a line: what was asked for and, once it is fitted, what came of it."""
    params = f"{type(model).__name__}({changed_params(model)})"
    if not hasattr(model, "fitted_"):
        return params
    flagged = f"{int(model.labels_.sum())} of {len(model.decision_scores_)} flagged"
    return f"{params}  # fitted to {len(model.train_index_)} images; {flagged}"


def short(value: object) -> str:
    if isinstance(value, str | int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(short(item) for item in value)}]"
    return str(getattr(value, "__name__", f"{type(value).__name__}()"))
