"""The report page: one HTML file with curves, tables, tests and embeddings of runs.

`html.write_page` is the entry. `data` computes what the page shows, `samples` encodes embedding
samples, `encoding` turns arrays into text, `assets/` holds the HTML, the style sheet and a script
for each section of the page.
"""
