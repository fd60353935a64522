"""Wrong, one mistake each: queries as a database answers them."""

import random
import sqlite3
from collections import Counter

EPSILON = 1.0
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
    rows = [(str(r["shop"]), number(r["amount"])) for r in data]
    db.executemany("INSERT INTO orders VALUES (?, ?)", rows)
    return db.execute(text).fetchall()


def laplace(scale):
    """Laplace noise."""
    return random.expovariate(1 / scale) - random.expovariate(1 / scale)


def group_by_the_data(data):
    """GROUP BY a private column: a shop is there if an order has it."""
    rows = query(data, "SELECT shop, COUNT(*) FROM orders GROUP BY shop ORDER BY shop")
    return {shop: n + laplace(1 / EPSILON) for shop, n in rows}  # mistake


def having_true_counts(data):
    """HAVING on true counts, then noise."""
    text = "SELECT shop, COUNT(*) FROM orders GROUP BY shop HAVING COUNT(*) >= 12 ORDER BY shop"
    return {s: n + laplace(1 / EPSILON) for s, n in query(data, text) if s in SHOPS}  # mistake


def average_with_noise(data):
    """AVG with noise for the true count."""
    text = "SELECT TOTAL(MIN(MAX(amount, 0), 50)) / MAX(COUNT(*), 1), COUNT(*) FROM orders"
    ((average, n),) = query(data, text)
    return average + laplace(50 / max(n, 1) / EPSILON)  # mistake


def sum_without_cap(data):
    """SUM of amounts of any size."""
    ((total,),) = query(data, "SELECT TOTAL(amount) FROM orders")
    return total + laplace(50 / EPSILON)  # mistake


def keys_above_a_true_threshold(data):
    """Unknown keys are shown if their true count is 5 or more."""
    counts = Counter(str(r["shop"]) for r in data)
    return {k: n + laplace(1 / EPSILON) for k, n in sorted(counts.items()) if n >= 5}  # mistake


def threshold_too_low(data):
    """Unknown keys above a noisy threshold of 2: one record shows its key often."""
    counts = Counter(str(r["shop"]) for r in data)
    noisy = {key: n + laplace(1 / EPSILON) for key, n in sorted(counts.items())}
    return {key: n for key, n in noisy.items() if n >= 2}  # mistake


def largest_order(data):
    """MAX with noise for an average order."""
    ((largest,),) = query(data, "SELECT MAX(MIN(amount, 1000)) FROM orders")
    return number(largest) + laplace(50 / EPSILON)  # mistake


ADD = {"data": ORDERS, "adjacency": "add-remove", "claim": {"epsilon": EPSILON, "delta": 0.0}}
WEB = [{"user": i, "shop": "web", "amount": 1.0} for i in range(5)]
CASES = {
    "group_by_the_data": ADD | {"expect": "control flow, domain"},
    "having_true_counts": ADD | {"expect": "control flow, domain"},
    "average_with_noise": ADD | {"expect": "scale"},
    "sum_without_cap": ADD | {"expect": "budget"},
    "keys_above_a_true_threshold": ADD | {"data": WEB, "expect": "control flow, domain"},
    "threshold_too_low": ADD
    | {"claim": {"epsilon": EPSILON, "delta": 1e-6}, "expect": "control flow, domain, budget"},
    "largest_order": ADD | {"expect": "budget"},
}
