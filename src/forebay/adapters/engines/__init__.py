"""What Forebay knows about each kind of server: its metrics, its answers, its limits.

A `Scraper` reads one endpoint's metrics periodically and finds out what engine it is. Each engine
is one module and one class, a pure `base.Engine`: replies in, a `Signal` or an `Outcome` out.
"""
