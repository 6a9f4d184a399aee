"""The eight lines of README: tune on normal and unlabeled images, then score."""

from stssad import STSSAD
from stssad.testbeds.synthetic import planted_patch
from stssad.words import in_words

task = planted_patch(size=0.04, texture="grass", contamination=0.2)
model = STSSAD(seed=0, jobs=2)
model.fit(task.train, task.pool)  # normal and unlabeled images, or folders: fit("good/", "pool/")
scores = model.decision_function(task.test)  # larger = more anomalous
print("learned:", in_words(model.learned_))
print("AUROC:", round(task.auc(scores), 3), " flagged:", model.predict(task.test).sum(), "of 128")
