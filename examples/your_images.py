"""Fit and score folders of your own images from Python.

    python examples/your_images.py good/ pool/ new/

good/: normal images; pool/: unlabeled ones, in which some may be anomalous; new/: to be scored.
"""

import sys
from pathlib import Path

from stssad import STSSAD, PretrainedSettings
from stssad.images.source import find_images


def main(good: str, pool: str, new: str) -> None:
    settings = PretrainedSettings(aspect="pad")  # docs/guide.md says what to change when
    model = STSSAD(settings=settings, seed=0, jobs=2, false_alarms=0.01)
    model.fit(good, pool)
    print("learned:", model.learned_, model.evidence_)
    print(model.contamination_.summarise())
    for warning in model.warnings_:
        print("warning:", warning)

    paths = find_images(Path(new))
    scores = model.decision_function(paths)
    rows = zip(paths, scores, model.p_values(scores), strict=True)
    for path, score, p in sorted(rows, key=lambda row: -row[1]):
        label = "ANOMALY" if score > model.threshold_ else ""
        print(f"{score:8.2f}  {100 * p:5.1f} % of normal images score as high  {path}  {label}")
    model.save("my_model")  # STSSAD.load("my_model") gives the same scores


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
