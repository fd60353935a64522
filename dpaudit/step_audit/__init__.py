"""A real training step of any private loop, on one process or many, against what is claimed of it.

``ranks`` lets processes audit together, ``restore`` puts back what a step changes, ``observe``
takes the steps, ``oracle`` computes what they should release, ``checks`` tests, ``run`` is the way
through, ``result`` describes.
"""
