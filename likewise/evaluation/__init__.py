"""Figures about embeddings; nothing here knows of training."""
