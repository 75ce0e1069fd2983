"""A page to look into a run: its map, its neighbours, its curves. `likewise explore RUN` serves it."""
