"""The 2020 census of the United States, audited from its noisy measurement files.

==============  ====================================================================================
``files``       the rows of the files, read and written as Parquet
``noise``       cells and totals that are known, parents less their children, repeated noise
``law``         the discrete Gaussian of a stated variance, with its tails
``checks``      sums over the noise of a query at a level, and p-values from them
``audit``       puts all together into a ``result``, which has the report
``simulation``  small files in this layout with honest or flawed noise, and how often it is found
==============  ====================================================================================
"""
