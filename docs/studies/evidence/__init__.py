"""The evidence: every study behind a number in the documents, run, recorded and checked for age.

`make evidence` runs what is stale, cheapest first; `make evidence-status` says what is, and why.
`plan.toml` lists the studies. What a study's processes run and open of this checkout is noted while
it runs (`trace/sitecustomize.py`), and kept as hashes in `docs/studies/results/NAME/evidence.json`
with commit, day, machine and CPU minutes. A result is stale when one of these files has another
meaning now: comments, docstrings and layout of Python do not count, nor does how options are read
and reports are shown (`code.UNCOUNTED`).

Not noted: libraries that no line of `constraints.txt` pins, data outside the checkout, what
processes read that may not write (a sandbox) or that start without `PYTHONPATH`. CPU seconds lack
those of processes that nobody waited for, such as sandboxed samplers that were ended.
"""
