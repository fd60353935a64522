"""jax_privacy: the noise of examples/jax_api_example.py and keras_api_example.py, from source."""

import os
import secrets

os.environ["KERAS_BACKEND"] = "jax"
import jax
import jax.numpy as jnp
import keras
import numpy as np
import optax
from jax_privacy import keras_api, noise_addition


def iid(key, shapes, stddev):  # the noise of step 1, from a key and shapes alone
    _, key = jax.random.split(key)
    return optax.tree.scale(stddev, optax.tree.random_like(key, shapes, jax.random.normal))


gradient = {"b": jnp.float32(0.25), "w": jax.random.normal(jax.random.key(5), (4096,))}
own = iid(jax.random.key(42), gradient, 2.0)
for name, key in (("jax_api_example", 42), ("with a key from secrets", secrets.randbits(32))):
    # jax_api_example.py lines 128 and 139
    privatizer = noise_addition.gaussian_privatizer(stddev=2.0, prng_key=jax.random.key(key))
    noisy, _ = privatizer.update(gradient, privatizer.init(gradient))
    read = int(jnp.isclose(noisy["w"] - own["w"], gradient["w"], rtol=0, atol=1e-5).sum())
    print(f"{name}: {read} of 4096 values of the gradient are read from the noisy one")

for name, seed in (("keras_api_example", 0), ("seed=None after set_random_seed(0)", None)):
    keras.utils.set_random_seed(0)  # keras_api_example.py line 80
    start = np.random.get_state()  # noqa: NPY002
    layer = keras.layers.Dense(10, use_bias=False, kernel_initializer="zeros")
    model = keras.Sequential([keras.Input((784,)), layer])
    config = keras_api.DPKerasConfig(
        epsilon=1.1, delta=1e-5, clipping_norm=1.0, batch_size=64, train_steps=1, train_size=64,
        noise_multiplier=8.0, gradient_accumulation_steps=1, seed=seed)  # fmt: skip
    model = keras_api.make_private(model, config)
    model.compile(loss="mse", optimizer=keras.optimizers.SGD(1.0))
    model.fit(np.zeros((64, 784)), np.zeros((64, 10)), batch_size=64, verbose=0)
    released = -np.asarray(layer.kernel)  # of records whose gradients are 0: the noise itself
    np.random.set_state(start)  # noqa: NPY002
    key = jax.random.PRNGKey(keras_api._get_random_int64() if seed is None else seed)
    own = np.asarray(iid(key, [jnp.zeros((784, 10))], 8.0 / 64)[0])
    equal = int(np.isclose(released, own, rtol=0, atol=1e-7).sum())
    print(f"{name}: {equal} of {own.size} values of the noise of step 1 are the predicted ones")
bits = jax.random.key_data(jax.random.PRNGKey(np.int64(2**40 + 1)))
print(f"PRNGKey(2**40 + 1) is {bits.tolist()}")
