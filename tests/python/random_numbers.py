"""Random numbers for tests. Each test begins with the same ones (conftest.py), whichever tests have run before it."""

import numpy as np

RNG = np.random.default_rng(0)
_START = RNG.bit_generator.state


def begin_again() -> None:
    RNG.bit_generator.state = _START
