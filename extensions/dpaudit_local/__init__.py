"""Local differential privacy: mechanisms of devices, attacks on what they submit, a deployment.

===================  ===========================================================================
``mechanisms/``      what devices do to an object, and what a server estimates from it
``submissions``      what a device submits about its owner: every object, few, memoised, shuffled
``pool_inference/``  an attack: which group of objects does a person prefer?
``seed_in_reports/`` a device whose coins carry their own seed, and its reader
``apple/``           Apple's deployment, audited from its own files
===================  ===========================================================================
"""
