"""Apple's differential privacy in macOS and iOS, audited from its own files.

Source: Tang et al. 2017, arXiv 1709.02753.

==================  ================================================================================
``model``           the types of Apple's files; ``rules`` is what the framework has hard-coded
``configuration``   the claims: property lists (``plists``) → four tables → each key's ε and budget
``ledger``          the ε that a configuration permits; ``differences`` compares two configurations
``database``        what a device kept: balances and stored records (``sqlite_file`` opens it)
``reports``         what a device sent; ``records`` decodes the records into bits
``observed``        what the reports spent, and whether they keep the limits
``bits/``           the ε that the bits of reports show, whatever is claimed
``audit``           all of these, for ``command``; ``describe`` and ``charts`` report it
==================  ================================================================================

The audited files are only read; nothing is written next to them.
"""
