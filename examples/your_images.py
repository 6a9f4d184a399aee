"""Fit and score folders of your own pictures from Python.

    python examples/your_images.py good/ pile/ new/

good/: normal pictures; pile/: unlabeled ones, in which some may be anomalous; new/: to be scored.
"""

import sys
from pathlib import Path

from stssad import STSSAD, Settings
from stssad.images import find_pictures


def main(good: str, pile: str, new: str) -> None:
    settings = Settings.imagenet(aspect="pad")  # see docs/guide.md for what to change
    model = STSSAD(settings=settings, seed=0, jobs=2, false_alarms=0.01)
    model.fit(good, pile)
    print("learned:", model.learned_, model.evidence_)
    print(model.contamination_.in_words())
    for warning in model.warnings_:
        print("warning:", warning)

    paths = find_pictures(Path(new))
    scores = model.decision_function(paths)
    shares = model.normal_share_above(scores)
    for path, score, share in sorted(zip(paths, scores, shares, strict=True), key=lambda r: -r[1]):
        label = "ANOMALY" if score > model.threshold_ else ""
        print(f"{score:8.2f}  {100 * share:5.1f} % of normal ones above  {path}  {label}")
    model.save("my_model")  # STSSAD.load("my_model") gives the same scores


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
