"""Apple's differential privacy as macOS and iOS ran it, audited from its own files (Tang et al. 2017, arXiv 1709.02753).

====================  ===========================================================================================
``model``             the words of Apple's files, as types; ``rules`` is what the framework has
hard-coded ``configuration/``    what is claimed: property lists → four tables → every key with its
algorithm, ε and budget ``ledger``            the ε that a configuration permits; ``differences``
compares two configurations ``database/``         what a device kept: balances and stored records
``reports/``          what a device sent: files, and their records decoded into bits
``observed``          what the reports spent, and (``report_limits``) whether they keep the daemon's
own limits ``bits/``             the ε that the bits of reports show, whatever is claimed
``simulation/``       a made-up device: the daemon, and a scenario that writes its database and
reports
====================  ===========================================================================================

Files of an audit are read; nothing is ever written beside them.
"""
