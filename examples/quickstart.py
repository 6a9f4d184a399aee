"""The eight lines of README: tune on normal and unlabeled pictures, then score."""

from stssad import STSSAD
from stssad.testbeds.synthetic import planted_patch

task = planted_patch(area=0.04, texture="grass")  # or folders of your own: fit("good/", "pile/")
model = STSSAD(seed=0, jobs=2)
model.fit(task.train, task.pool)  # normal pictures, and unlabeled ones; no labels
scores = model.decision_function(task.test)  # larger = more anomalous
print("learned patch:", {name: round(value, 3) for name, value in model.learned_.items()})
print("AUC:", round(task.auc(scores), 3), " flagged:", model.predict(task.test).sum(), "of 128")
