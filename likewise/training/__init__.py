"""Training: plan, step, loop, checkpoints, progress and health notes."""
