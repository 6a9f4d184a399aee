"""An estimator in one line, as an interactive session prints it, and in scikit-learn's tags."""

from inspect import signature
from typing import Any


def describe_estimator(model: Any) -> str:
    """Its changed parameters and, once it is fitted, how many images it flagged."""
    params = f"{type(model).__name__}({format_changed_params(model)})"
    if not hasattr(model, "fitted_"):
        return params
    flagged = f"{int(model.labels_.sum())} of {len(model.decision_scores_)} flagged"
    return f"{params}  # fitted to {len(model.train_index_)} images; {flagged}"


def format_changed_params(estimator: object) -> str:
    """An estimator's parameters that aren't the constructor's defaults, objects by their class."""
    defaults = signature(type(estimator)).parameters
    values = {name: getattr(estimator, name) for name in defaults}
    changed = (k for k, v in values.items() if v is not defaults[k].default)
    return ", ".join(f"{name}={format_param(values[name])}" for name in changed)


def format_param(value: object) -> str:
    if isinstance(value, str | int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(format_param(item) for item in value)}]"
    return str(getattr(value, "__name__", f"{type(value).__name__}()"))


def describe_tags(tags: Any) -> Any:
    """For scikit-learn: an outlier detector of images, not of a table of features."""
    tags.estimator_type = "outlier_detector"
    tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
    tags.no_validation = True
    return tags
