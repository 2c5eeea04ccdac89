"""The engines that models are compared and timed with: other engines in their own processes, and ours node by node."""
