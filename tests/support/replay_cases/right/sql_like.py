"""Right: queries as a database answers them, with public keys and bounded contributions."""

import random
import sqlite3
from collections import defaultdict

import numpy as np

EPSILON, DELTA = 1.0, 1e-6
SHOPS = ("north", "south", "web")
ORDERS = [
    {"user": i % 12, "shop": SHOPS[(i * i) % 3], "amount": float(3 + (8 * i) % 40)}
    for i in range(36)
]


def number(value):
    """A finite number, or 0."""
    value = 0.0 if value is None else float(value)
    return min(max(value, -1e9), 1e9) if value == value else 0.0


def database(data):
    """The orders as a table, and the public shops as another."""
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE orders (shop TEXT, amount REAL)")
    db.execute("CREATE TABLE shops (shop TEXT)")
    rows = [(None if r["shop"] is None else str(r["shop"]), number(r["amount"])) for r in data]
    db.executemany("INSERT INTO orders VALUES (?, ?)", rows)
    db.executemany("INSERT INTO shops VALUES (?)", [(s,) for s in SHOPS])
    return db


def laplace(scale):
    """Laplace noise."""
    return random.expovariate(1 / scale) - random.expovariate(1 / scale)


BY_SHOP = """
SELECT shops.shop, COUNT(orders.amount), TOTAL(MIN(MAX(orders.amount, 0), 50))
FROM shops LEFT JOIN orders USING (shop) GROUP BY shops.shop ORDER BY shops.shop
"""


def count_star(data):
    """SELECT COUNT(*), then noise."""
    (n,) = database(data).execute("SELECT COUNT(*) FROM orders").fetchone()
    return n + laplace(1 / EPSILON)


def count_by_shop(data):
    """Groups are joined from the public table."""
    return {
        shop: n + laplace(1 / EPSILON) for shop, n, _ in database(data).execute(BY_SHOP).fetchall()
    }


def noise_inside_sql(data):
    """The noise is a function of the database."""
    db = database(data)
    db.create_function("laplace", 1, lambda b: float(np.random.laplace(0, b)))
    query = "SELECT COUNT(*) + laplace(?) FROM orders WHERE amount >= 20"
    return db.execute(query, (1 / EPSILON,)).fetchone()[0]


def total_by_user_cap(data):
    """A user counts up to 100, an order up to 50: a record moves the sum by 50 at most."""
    spent = defaultdict(float)
    for record in data:
        spent[record["user"]] += min(max(number(record["amount"]), 0.0), 50.0)
    return sum(min(s, 100.0) for s in spent.values()) + laplace(50 / EPSILON)


def users_counted_once(data):
    """COUNT(DISTINCT user): a record moves it by 1 at most."""
    return len({r["user"] for r in data}) + np.random.default_rng().laplace(0, 1 / EPSILON)


def having_noisy(data):
    """HAVING on noisy counts: post-processing."""
    noisy = count_by_shop(data)
    return sorted(shop for shop, n in noisy.items() if n >= 10)


def unknown_keys_by_threshold(data):
    """Keys from the data, shown only above a noisy threshold: (ε, δ), whatever the keys are.

    A key of one record passes with probability exp(-ε (T - 1)) / 2 = δ.
    """
    limit = 1 + np.log(1 / (2 * DELTA)) / EPSILON
    counts = defaultdict(int)
    for record in data:
        counts[str(record["shop"])] += 1
    noisy = {key: n + laplace(1 / EPSILON) for key, n in sorted(counts.items())}
    return {key: n for key, n in noisy.items() if n >= limit}


ADD = {"data": ORDERS, "adjacency": "add-remove", "claim": {"epsilon": EPSILON, "delta": 0.0}}
CASES = {
    "count_star": ADD,
    "count_by_shop": ADD,
    "noise_inside_sql": ADD,
    "total_by_user_cap": ADD,
    "users_counted_once": ADD,
    "having_noisy": ADD,
    "unknown_keys_by_threshold": ADD
    | {
        "data": [{**r, "shop": "web"} for r in ORDERS],
        "claim": {"epsilon": EPSILON, "delta": DELTA},
    },
}
