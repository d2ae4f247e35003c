"""Student's quantile against the printed tables."""

from __future__ import annotations

from statistics import NormalDist

import pytest

from tidegauge.streaming_metrics.contrast import student_quantile

TABLE = {  # degrees of freedom: quantiles at 0.9, 0.975, 0.995
    1: (3.078, 12.706, 63.657),
    2: (1.886, 4.303, 9.925),
    3: (1.638, 3.182, 5.841),
    5: (1.476, 2.571, 4.032),
    10: (1.372, 2.228, 3.169),
    30: (1.310, 2.042, 2.750),
    60: (1.296, 2.000, 2.660),
    120: (1.289, 1.980, 2.617),
}


@pytest.mark.parametrize("degrees", TABLE)
def test_printed_table(degrees):
    found = [student_quantile(probability, degrees) for probability in (0.9, 0.975, 0.995)]
    assert [round(quantile, 3) for quantile in found] == list(TABLE[degrees])


def test_closed_forms():
    # one degree is Cauchy's distribution; two have t = (2p - 1) / sqrt(2 p (1 - p))
    assert student_quantile(0.75, 1) == pytest.approx(1, rel=1e-12)
    for p in (0.6, 0.9, 0.999):
        expected = (2 * p - 1) / (2 * p * (1 - p)) ** 0.5
        assert student_quantile(p, 2) == pytest.approx(expected, rel=1e-9)


def test_many_degrees_are_the_normal_distribution():
    normal = NormalDist().inv_cdf(0.975)
    assert student_quantile(0.975, 1e12) == normal
    assert student_quantile(0.975, 9e6) == pytest.approx(normal, rel=1e-6)


def test_degrees_between_whole_ones():
    quantiles = [student_quantile(0.975, degrees) for degrees in (1, 1.3, 2, 2.9, 3)]
    assert quantiles == sorted(quantiles, reverse=True)
    assert len(set(quantiles)) == 5


def test_the_median_is_zero():
    assert student_quantile(0.5, 4) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("probability", "degrees"), [(0.4, 5), (1.0, 5), (0.9, 0.5), (float("nan"), 5), (0.9, -1)]
)
def test_out_of_range(probability, degrees):
    with pytest.raises(ValueError, match="probability"):
        student_quantile(probability, degrees)
