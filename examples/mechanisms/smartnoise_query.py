"""SQL through SmartNoise: any query of one table, ``epsilon`` for each column with noise.

SmartNoise SQL 1.0 needs OpenDP below 0.15 and pandas below 3: install both into an environment of
their own, python3 -m venv sql && sql/bin/pip install . smartnoise-sql, and there

sql/bin/dpaudit mechanism python:examples/mechanisms/smartnoise_query.py:released \
  --call 'f(dataset, n, query="SELECT AVG(age) AS age FROM t.people", epsilon=1.0)' \
  --dataset examples/mechanisms/people.csv --neighbours search --bounds 'age=0:100' \
  --claim-epsilon 2 --samples 5e3

An average costs ε twice, for its sum and its count: reader.get_privacy_cost(query) says 2.
"""

import pandas as pd
import snsql

TABLE = {
    "row_privacy": True,
    "censor_dims": False,  # answers with few people are released too: wrong with GROUP BY
    "age": {"type": "int", "lower": 0, "upper": 100},
    "city": {"type": "string"},
}


def released(people, n, *, query, epsilon):
    """``n`` answers to ``query``; what does not depend on the data is done once."""
    frame = pd.DataFrame(people, columns=["age", "city"])
    privacy = snsql.Privacy(epsilon=epsilon, delta=1e-6)
    reader = snsql.from_df(frame, privacy=privacy, metadata={"": {"t": {"people": TABLE}}})
    parsed = reader.parse_query_string(query)
    rewritten = reader._rewrite_ast(parsed)
    reader._rewrite_ast = lambda _: rewritten
    exact = reader._get_reader(rewritten[0])._execute_ast(rewritten[0])
    return [reader._execute_ast(parsed, pre_aggregated=exact)[1:] for _ in range(n)]
