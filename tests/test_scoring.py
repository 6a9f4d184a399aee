"""The Gaussian density against scikit-learn and scipy, and thresholds from normal scores."""

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.covariance import LedoitWolf

from stssad.scoring.gaussian import GaussianDensity, cross_fitted_scores, score_variance
from stssad.scoring.tail import NormalTail


def embeddings(n: int, d: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(d, d, generator=generator, dtype=torch.float64)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) @ mixing + 3


def test_score_is_the_negative_log_likelihood() -> None:
    Z, new = embeddings(80, 6), embeddings(9, 6, seed=1)
    fitted = LedoitWolf().fit(Z.numpy())
    gaussian = multivariate_normal(fitted.location_, fitted.covariance_)
    scores = GaussianDensity().fit(Z).score(new)
    np.testing.assert_allclose(scores.numpy(), -gaussian.logpdf(new.numpy()), rtol=1e-7)


def test_larger_score_means_more_anomalous() -> None:
    Z = embeddings(100, 5)
    density = GaussianDensity().fit(Z)
    far = Z.mean(0) + torch.linspace(0, 10, 11, dtype=torch.float64)[:, None] * (Z[0] - Z.mean(0))
    assert (density.score(far).diff() > 0).all()


def test_fewer_images_than_dimensions_are_no_obstacle() -> None:
    Z = embeddings(20, 128)
    assert torch.isfinite(GaussianDensity().fit(Z).score(embeddings(5, 128, seed=1))).all()


def test_constant_dimensions_are_no_obstacle() -> None:
    Z = embeddings(50, 8)
    Z[:, 3:] = 0
    assert torch.isfinite(GaussianDensity().fit(Z).score(Z)).all()
    assert torch.isfinite(GaussianDensity().fit(torch.zeros(50, 8)).score(Z)).all()


def test_scores_dont_depend_on_the_scale_of_embeddings_but_for_a_constant() -> None:
    Z = embeddings(60, 4)
    scores, scaled = (
        GaussianDensity().fit(Z).score(Z),
        GaussianDensity().fit(100 * Z).score(100 * Z),
    )
    difference = scaled - scores
    assert difference.std() < 1e-6 * scores.std()
    assert score_variance(scores) == pytest.approx(score_variance(scaled))


def test_score_variance_is_the_population_variance() -> None:
    assert score_variance(torch.tensor([1.0, 3.0])) == 1.0


def test_unfitted_and_unfittable_densities_say_so() -> None:
    with pytest.raises(ValueError, match="has not been fitted; call fit"):
        GaussianDensity().score(embeddings(3, 2))
    with pytest.raises(ValueError, match="at least 2 embeddings, got 1"):
        GaussianDensity().fit(embeddings(1, 2))


def test_cross_fitted_scores_are_those_of_fresh_images() -> None:
    """In-sample scores are too small; cross-fitted ones have the mean of fresh ones."""
    Z, fresh = embeddings(150, 60), embeddings(2150, 60)[150:]
    density = GaussianDensity().fit(Z)
    in_sample, out_of_sample = density.score(Z).mean(), density.score(fresh).mean()
    crossed = cross_fitted_scores(Z).mean()
    assert in_sample < out_of_sample - 3
    assert abs(crossed - out_of_sample) < (out_of_sample - in_sample) / 3


@pytest.mark.parametrize("rate", [0, 1, -0.1, 7])
def test_impossible_rates_are_refused(rate: float) -> None:
    with pytest.raises(ValueError, match=r"must lie in \(0, 1\), got"):
        NormalTail.of(np.arange(10.0)).threshold(rate)
