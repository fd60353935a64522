"""SQL with noise: the answer of any query of one table, with Laplace noise on every number.

dpaudit mechanism python:examples/mechanisms/sqlite_query.py:released --claim-epsilon 1 \
  --call 'f(dataset, n, query="SELECT TOTAL(MIN(age, 100)) FROM people", scale=100)' \
  --dataset examples/mechanisms/people.csv --neighbours search --bounds 'age=0:100'
"""

import sqlite3

import numpy as np

COLUMNS = ("age", "city")
rng = np.random.default_rng()


def released(people, n, *, query, scale):
    """``n`` noisy answers to ``query``."""
    table = sqlite3.connect(":memory:")
    table.execute(f"CREATE TABLE people ({', '.join(COLUMNS)})")
    rows = [[person[name] for name in COLUMNS] for person in people]
    table.executemany(f"INSERT INTO people VALUES ({', '.join('?' * len(COLUMNS))})", rows)
    answer = table.execute(query).fetchall()
    return [[[noisy(cell, scale) for cell in row] for row in answer] for _ in range(n)]


def noisy(cell, scale):
    return round(cell + rng.laplace(scale=scale), 3) if isinstance(cell, (int, float)) else cell
