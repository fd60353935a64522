"""SmartNoise SQL 1.0.10: counts and a sum per city; one record more or less.

ε = 1 for each noisy column: the count and the sum are noised, and a count decides which cities are
shown. reader.get_privacy_cost says (3, 3e-6) at most.
"""

import pandas as pd
import snsql

TABLE = {
    "row_privacy": True,
    "age": {"type": "int", "lower": 0, "upper": 100},
    "city": {"type": "string"},
}


def by_city(data):
    """A query with GROUP BY; cities with few people are left out."""
    frame = pd.DataFrame(data, columns=["age", "city"])
    privacy = snsql.Privacy(epsilon=1.0, delta=1e-6)
    reader = snsql.from_df(frame, privacy=privacy, metadata={"": {"t": {"people": TABLE}}})
    query = "SELECT city, COUNT(*) AS n, SUM(age) AS total FROM t.people GROUP BY city"
    return reader.execute(query)


def average(data):
    """An average of all, which needs no threshold."""
    frame = pd.DataFrame(data, columns=["age", "city"])
    table = {**TABLE, "censor_dims": False}
    privacy = snsql.Privacy(epsilon=1.0, delta=1e-6)
    reader = snsql.from_df(frame, privacy=privacy, metadata={"": {"t": {"people": table}}})
    return reader.execute("SELECT AVG(age) AS age FROM t.people")
