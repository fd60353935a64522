# The examples of the documentation (examples/mechanisms), one release each, as pipelines. Claimed:
# ε = 1. Planted: bounds_from_data, average (its scale is that of a sum), copies, as_returned.
import importlib.util
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[4] / "examples" / "mechanisms"


def example(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


opendp, sqlite, synthetic = map(example, ("opendp_sum", "sqlite_query", "synthetic_data"))


def fixed_bounds(people: list):
    return opendp.fixed_bounds(people, 1)[0]


def bounds_from_data(people: list):
    return opendp.bounds_from_data(people, 1)[0]


def total(people: list):
    query = "SELECT TOTAL(MIN(age, 100)) FROM people"
    return sqlite.released(people, 1, query=query, scale=100)[0]


def average(people: list):
    query = "SELECT AVG(MIN(age, 100)) FROM people"
    return sqlite.released(people, 1, query=query, scale=5)[0]


def marginals(people: list):
    return synthetic.marginals(people)


def copies(people: list):
    return synthetic.copies(people)


def by_city(people: list):
    return example("pipeline_dp_sum").by_city(people)


def as_returned(people: list):
    return example("pipeline_dp_sum").as_returned(people)
