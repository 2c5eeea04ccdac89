"""What models are run with to be compared and timed: other engines in their own processes, and ours node by node."""
