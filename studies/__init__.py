"""Claims of the field, measured again in small."""
