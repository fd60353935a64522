import numpy as np
import pytest

from dpaudit.errors import UsageError
from dpaudit.hosts.histogram import Histogram
from dpaudit.testing import check_host


def test_conforms():
    check_host(Histogram())


def test_the_built_in_table_is_the_census():
    host = Histogram()
    assert host.dim == 3143
    assert int(host.counts.sum()) == 282_165_844  # US resident population, 2000
    assert int(host.counts[0]) == 43_952  # Autauga County, Alabama


def test_a_record_leaves_a_bin_in_proportion_to_its_count(tmp_path, stream):
    (tmp_path / "t.csv").write_text("name,count\na,1\nb,0\nc,3\n")
    host = Histogram(table=str(tmp_path / "t.csv"))
    pairs = host.neighbours(4000, stream=stream)
    removed = (pairs[:, 0] - pairs[:, 1]).sum(0)
    assert removed.sum() == 4000
    assert removed[1] == 0
    assert np.isclose(removed[0] / 4000, 0.25, atol=0.03)
    assert (pairs[:, 1] >= 0).all()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,1\nb,x\n", "line 2"),
        ("a,1\nb,-1\n", "-1"),
        ("a,1\nb,1.5\n", "1.5"),
        ("a,1\n", "two bins"),
        ("a,0\nb,0\n", "record"),
    ],
)
def test_bad_tables(tmp_path, text, says):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(UsageError, match=says):
        Histogram(table=str(tmp_path / "t.csv"))


def test_missing_table():
    with pytest.raises(UsageError, match="us-counties"):
        Histogram(table="us-county")
