"""The console: pages that show what an application does, read from the open logs. Nothing runs before it is confirmed.

`server` listens, `access` lets in who has the token, and `pages` has the routes. `overview`, `operator_page` and `rows`
read what the pages show; `texts` makes harmless text of any bytes. `sql` has queries, and `act` what may be done.
"""
