"""Private training as a host: gradients of a real model, released by Opacus' own optimizer.

The only room that imports opacus.
"""
