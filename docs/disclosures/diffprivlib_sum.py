"""diffprivlib: one record in 1000 decides every tools.sum, although epsilon = 1 is claimed."""

import numpy as np
from diffprivlib.tools import sum as private_sum

lower, upper = 1.0, 1.0 + 2.0**-50
# k records at the upper bound
data = [np.where(np.arange(1000) < k, upper, lower) for k in range(1001)]
sums = [np.sum(x) for x in data]
# here the sum's last bit turns over: by 2**-43, 128 times upper - lower
k = int(np.argmax(np.diff(sums)))
print(f"exact sums differ by {upper - lower:.3g}, numpy's by {sums[k + 1] - sums[k]:.3g}")
for records in (k, k + 1):
    released = [private_sum(data[records], epsilon=1, bounds=(lower, upper)) for _ in range(1000)]
    print(
        f"{records} records at the upper bound: "
        f"{sum(y > np.mean([sums[k], sums[k + 1]]) for y in released)} of 1000 high"
    )
