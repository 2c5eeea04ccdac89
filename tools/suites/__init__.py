"""Runs other projects' own tests twice, on onnxruntime and with this package in its place, and compares.

`./dev suites` is the command, `suites.toml` the list, and `only_here.toml` says why what fails only here does.
"""
