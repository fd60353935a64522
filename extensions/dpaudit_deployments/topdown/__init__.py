"""A small TopDown, as in the 2020 census: geographies × a histogram, measured and estimated."""
