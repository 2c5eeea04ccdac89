"""Tries ATen's operators with arguments that are wrong somewhere, as a hostile model would call them.

A model's ATen nodes may name the operators of `src/translate/aten_operators.cpp`. ``python -m tools.aten`` tries each
of their overloads in a process of its own, and tells which end it, hang, or touch memory that is not theirs.
"""
