"""A web page to explore a run: a map of its items, their neighbours, its curves. `likewise explore RUN` serves it."""
