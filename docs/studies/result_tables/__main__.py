"""Write every marked table of the documents anew from `docs/studies/results/`."""

from result_tables import PAGES, written

for path in PAGES:
    page = path.read_text(encoding="utf-8")
    if (anew := written(page)) != page:
        path.write_text(anew, encoding="utf-8")
        print(path)
