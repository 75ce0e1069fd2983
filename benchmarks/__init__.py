"""Time, memory and accuracy measured against other libraries."""
