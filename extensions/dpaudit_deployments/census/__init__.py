"""The 2020 census of the United States, audited from its noisy measurement files.

==============  ====================================================================================
``model``       the rows of the files; ``reading`` and ``writing`` are their Parquet form
``zeros``       cells and totals that are known; ``sums`` subtracts children from their parents
``law``         the discrete Gaussian of a stated variance, with its tails
``tally``       sums over the noise of a query at a level; ``repeats`` finds noise that occurs twice
``checks``      p-values from a tally; ``audit`` puts all together into a ``result``
``simulation``  small files in this layout, with the noise that a test asks for
==============  ====================================================================================
"""
