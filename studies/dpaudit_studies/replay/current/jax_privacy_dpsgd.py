"""jax_privacy 2.0.0: DP-SGD of its parts, noise for the stated sensitivity; one more or less.

Noise of 3 per unit, 4 Poisson batches of rate 1/2: (4, 1e-5)-DP without amplification.
"""

import dp_accounting
import jax
import jax.numpy as jnp
import jax_privacy
import numpy as np
from jax_privacy import batch_selection, noise_addition

ONE = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE


def _loss(params, features, labels):
    logits = features @ params["weights"] + params["bias"]
    return jnp.mean(jnp.logaddexp(0, logits) - labels * logits)


def run(data):
    """A logistic regression; the trained weights are released."""
    x = np.array([[p["age"] / 100, p["income"] / 100] for p in data] or [[0.0, 0.0]])
    y = np.array([float(p["city"] == "Wien") for p in data] or [0.0])
    gradient = jax_privacy.clipped_grad(
        _loss, l2_clip_norm=1.0, batch_argnums=(1, 2), normalize_by=20.0
    )
    noise = noise_addition.gaussian_privatizer(stddev=3.0 * gradient.sensitivity(ONE))
    params = {"weights": jnp.zeros(2), "bias": jnp.array(0.0)}
    state = noise.init(params)
    batches = batch_selection.CyclicPoissonSampling(sampling_prob=0.5, iterations=4)
    for drawn in batches.batch_iterator(len(data), rng=np.random.default_rng()):
        batch = np.full(64, -1)
        batch[: len(drawn)] = drawn
        padded = batch < 0
        total = gradient(params, x[batch], y[batch], is_padding_example=padded)
        noisy, state = noise.update(total, state)
        params = jax.tree.map(lambda p, g: p - 0.5 * g, params, noisy)
    return {name: np.asarray(value) for name, value in params.items()}
