"""diffprivlib 0.6.6: naive Bayes, logistic regression and k-means; (1, 0)-DP each, one changed."""

import diffprivlib.models as models
import numpy as np

BOUNDS = (np.array([0.0, 0.0]), np.array([100.0, 100.0]))


def _table(data):
    x = np.array([[p["age"], p["income"]] for p in data], dtype=float).reshape(-1, 2)
    return np.clip(x, 0, 100), np.array([p["city"] == "Wien" for p in data], dtype=int)


def naive_bayes(data):
    """The library's example: a Gaussian naive Bayes classifier."""
    x, y = _table(data)
    fitted = models.GaussianNB(epsilon=1.0, bounds=BOUNDS, priors=[0.5, 0.5]).fit(x, y)
    return {"means": fitted.theta_, "variances": fitted.var_}


def birth_years(data):
    """The same classifier, from the year of birth."""
    x, y = _table(data)
    years = 2026 - x[:, :1]
    fitted = models.GaussianNB(epsilon=1.0, bounds=(1926, 2026), priors=[0.5, 0.5]).fit(years, y)
    return {"means": fitted.theta_, "variances": fitted.var_}


def logistic(data):
    """Logistic regression with rows of length 150 at most."""
    x, y = _table(data)
    fitted = models.LogisticRegression(epsilon=1.0, data_norm=150.0).fit(x, y)
    return {"coefficients": fitted.coef_, "intercept": fitted.intercept_}


def k_means(data):
    """Three centres."""
    x, _ = _table(data)
    return models.KMeans(n_clusters=3, epsilon=1.0, bounds=BOUNDS).fit(x).cluster_centers_


def trees(data):
    """A random forest of five trees."""
    x, y = _table(data)
    forest = models.RandomForestClassifier(
        n_estimators=5, epsilon=1.0, bounds=BOUNDS, classes=[0, 1], max_depth=3
    )
    return forest.fit(x, y).predict([[20.0, 30.0], [60.0, 70.0], [80.0, 10.0]])
