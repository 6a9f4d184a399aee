"""What ST-SSAD is compared with: `fit(train, unlabeled)`, `decision_function(images)`.

None of these looks at the unlabeled pool; it is an argument so that all methods are called alike.
"""
