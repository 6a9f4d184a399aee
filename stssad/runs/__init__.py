"""A run's folder: what was asked for, the fit, predictions, the saved model."""
