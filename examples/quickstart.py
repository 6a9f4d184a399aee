"""The eight lines of README: fit to normal and unlabeled images, then score."""

from stssad import STSSAD
from stssad.augment.learned import format_learned
from stssad.experiments.testbeds.synthetic import planted_patch

task = planted_patch(size=0.04, texture="grass", contamination=0.2)
model = STSSAD(seed=0, jobs=2)
model.fit(task.train, task.pool)  # normal and unlabeled images, or folders: fit("good/", "pool/")
scores = model.decision_function(task.test)  # larger = more anomalous
print("learned:", format_learned(model.learned_))
print("AUROC:", round(task.auc(scores), 3), " flagged:", model.predict(task.test).sum(), "of 128")
