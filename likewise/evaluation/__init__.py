"""Measure embeddings: accuracy, retrieval, clustering, geometry. Nothing here depends on training."""
