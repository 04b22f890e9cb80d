"""Gaussian noise in blocks of rounds."""

_ROUNDS_PER_BLOCK = 256


class NormalRows:
    """Rows of independent standard normal noise, one row a round.

    They are drawn in blocks, so that a round costs no call of the generator.

    Parameters
    ----------
    rng : RandomState
        Where the noise comes from.
    width : int
        Length of a row.
    """

    def __init__(self, rng, width):
        self._rng = rng
        self._width = width
        self._row = _ROUNDS_PER_BLOCK

    def next(self):
        """The next row; it is valid until the call after it."""
        if self._row == _ROUNDS_PER_BLOCK:
            self._block = self._rng.standard_normal((_ROUNDS_PER_BLOCK, self._width))
            self._row = 0
        row = self._block[self._row]
        self._row += 1
        return row
