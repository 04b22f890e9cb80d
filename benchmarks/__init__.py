"""Evidence and speed of every method: ``python -m benchmarks.<method>``."""
