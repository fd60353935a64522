"""What both mean sketches share: when two are the same sketch."""

import pytest

from dpaudit.local.count_mean_sketch import CountMeanSketch
from dpaudit.local.count_median_sketch import CountMedianSketch
from dpaudit.local.mean_sketch import MeanSketch


class TwoBits(MeanSketch):
    """Somebody's own sketch, whose reports also differ in two bits."""

    differing = 2

    def _check_m(self):
        pass


def test_the_same_coin_and_hashes_in_another_kind_of_sketch_are_another_sketch():
    one = CountMeanSketch(4.0, m=64, functions=8, seed=1)
    assert one == CountMeanSketch(4.0, m=64, functions=8, seed=1)
    assert one != CountMeanSketch(2.0, m=64, functions=8, seed=1)
    other = TwoBits(4.0, m=64, functions=8, seed=1)
    assert (other.flip_words, other.hashes) == (one.flip_words, one.hashes)
    assert one != other
    assert other != one
    assert one != 4.0


def test_a_median_sketch_is_a_count_mean_sketch_to_its_server():
    median = CountMedianSketch(2.0, m=64, functions=8, seed=1)
    mean = CountMeanSketch(4.0, hashes=median.hashes)
    assert median == mean
    assert mean == median
    assert hash(mean) == hash(median)


def test_no_sketch_is_made_without_a_rule_for_its_positions():
    with pytest.raises(TypeError, match="_check_m"):
        MeanSketch(4.0)
