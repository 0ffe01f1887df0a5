"""Side-by-side benchmarks. They measure and report; they are never timed tests."""
