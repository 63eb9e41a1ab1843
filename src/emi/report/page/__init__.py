"""The report page: one HTML file with curves, tables, tests, embeddings and videos of runs.

`html.write_page` is the entry. `data` computes what the page shows, `curves`, `samples`,
`coverage` and `videos` encode columns of metrics.csv, embedding samples, maps of visited states and
videos, `encoding` turns arrays into text, `limits` bounds the size. `assets/` holds the HTML, the
style sheet and a script for each section of the page.
"""
