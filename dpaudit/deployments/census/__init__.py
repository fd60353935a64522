"""The 2020 census of the United States, audited from its noisy measurement files.

==============  ====================================================================================
``model``       the rows of the files; ``reading`` and ``writing`` are their Parquet form
==============  ====================================================================================
"""
