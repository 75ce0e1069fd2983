"""From data to an encoder: recipe, plan, step, loop, checkpoints, and what is said on the way."""
