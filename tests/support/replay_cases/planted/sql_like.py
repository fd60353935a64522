"""Wrong, one mistake each: queries as a database answers them."""

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


def query(data, text):
    """Rows of a query on the table of orders."""
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE orders (shop TEXT, amount REAL)")
    rows = [(None if r["shop"] is None else str(r["shop"]), number(r["amount"])) for r in data]
    db.executemany("INSERT INTO orders VALUES (?, ?)", rows)
    return db.execute(text).fetchall()


def laplace(scale):
    """Laplace noise."""
    return random.expovariate(1 / scale) - random.expovariate(1 / scale)


def group_by_the_data(data):
    """GROUP BY a private column: a shop is there if an order has it."""
    rows = query(data, "SELECT shop, COUNT(*) FROM orders GROUP BY shop ORDER BY shop")
    return {str(shop): n + laplace(1 / EPSILON) for shop, n in rows}


def having_true_counts(data):
    """HAVING on true counts, then noise."""
    text = "SELECT shop, COUNT(*) FROM orders GROUP BY shop HAVING COUNT(*) >= 12 ORDER BY shop"
    return {str(shop): n + laplace(1 / EPSILON) for shop, n in query(data, text) if shop in SHOPS}


def average_with_noise(data):
    """AVG with noise for the true count."""
    text = "SELECT TOTAL(MIN(MAX(amount, 0), 50)) / MAX(COUNT(*), 1), COUNT(*) FROM orders"
    ((average, n),) = query(data, text)
    return average + laplace(50 / max(n, 1) / EPSILON)


def distinct_users(data):
    """Orders are noised, users are counted as they are."""
    ((n,),) = query(data, "SELECT COUNT(*) FROM orders")
    return {"orders": n + laplace(1 / EPSILON), "users": len({r["user"] for r in data})}


def order_by_true_counts(data):
    """The first two shops by true counts, with noisy counts."""
    rows = query(data, "SELECT shop, COUNT(*) AS n FROM orders GROUP BY shop ORDER BY n DESC, shop")
    known = [(shop, n) for shop, n in rows if shop in SHOPS]
    known += [(shop, 0) for shop in SHOPS if shop not in dict(known)]
    return [(shop, n + laplace(1 / EPSILON)) for shop, n in known[:2]]


def sum_without_cap(data):
    """SUM of amounts of any size."""
    ((total,),) = query(data, "SELECT TOTAL(amount) FROM orders")
    return total + laplace(50 / EPSILON)


def keys_above_a_true_threshold(data):
    """Unknown keys are shown if their true count is 5 or more."""
    counts = defaultdict(int)
    for record in data:
        counts[str(record["shop"])] += 1
    return {key: n + laplace(1 / EPSILON) for key, n in sorted(counts.items()) if n >= 5}


def threshold_too_low(data):
    """Unknown keys above a noisy threshold of 2: one record shows its key often."""
    counts = defaultdict(int)
    for record in data:
        counts[str(record["shop"])] += 1
    noisy = {key: n + laplace(1 / EPSILON) for key, n in sorted(counts.items())}
    return {key: n for key, n in noisy.items() if n >= 2}


def largest_order(data):
    """MAX with noise for an average order."""
    ((largest,),) = query(data, "SELECT MAX(MIN(amount, 1000)) FROM orders")
    return number(largest) + np.random.default_rng().laplace(scale=50 / EPSILON)


MORE = [*ORDERS, {"user": 77, "shop": "north", "amount": 20.0}]
NEW = [*ORDERS, {"user": 77, "shop": "moon", "amount": 900.0}]
ADD = {"data": ORDERS, "adjacency": "add-remove", "claim": {"epsilon": EPSILON}, "neighbour": MORE}
CASES = {
    "group_by_the_data": {**ADD, "neighbour": NEW, "expect": "control flow", "or": ["domain"]},
    "having_true_counts": {
        **ADD,
        "data": ORDERS[1:],
        "neighbour": ORDERS,
        "expect": "control flow",
        "or": ["domain"],
    },
    "average_with_noise": {**ADD, "expect": "scale"},
    "distinct_users": {**ADD, "expect": "release"},
    "order_by_true_counts": {
        **ADD,
        "data": ORDERS[:4],
        "neighbour": ORDERS[1:4],
        "expect": "release",
        "or": ["control flow", "domain"],
    },
    "sum_without_cap": {**ADD, "neighbour": NEW, "expect": "budget"},
    "keys_above_a_true_threshold": {
        **ADD,
        "data": [{"user": i, "shop": "web", "amount": 1.0} for i in range(4)],
        "neighbour": [{"user": i, "shop": "web", "amount": 1.0} for i in range(5)],
        "expect": "control flow",
        "or": ["domain"],
    },
    "threshold_too_low": {
        **ADD,
        "claim": {"epsilon": EPSILON, "delta": DELTA},
        "neighbour": NEW,
        "expect": "control flow",
        "or": ["domain", "budget"],
    },
    "largest_order": {**ADD, "neighbour": NEW, "expect": "budget"},
}
