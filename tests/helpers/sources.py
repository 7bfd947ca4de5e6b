"""A source of pictures that are computed from their numbers."""

from wgan_gp.data.sources.encoded import Encoded, Item, Unreadable


class NumberedSource(Encoded):
    """Pictures in two classes by their numbers; those in `bad` cannot be read.

    Attributes:
      read_indices: The numbers of the pictures that were read, in the order of the calls.
    """

    class_names: tuple[str, ...] | None = ("even", "odd")

    def __init__(self, bad=()):
        self.bad = bad
        self.read_indices = []

    def picture(self, number):
        """Returns the levels of a picture."""
        raise NotImplementedError

    def fingerprint(self):
        return {"files": self.size}

    def resized(self, settings):
        return self

    def items(self, first=0):
        return (Item(f"{number}.png", number % 2, number) for number in range(first, self.size))

    def decode(self, number):
        self.read_indices.append(number)
        if number in self.bad:
            raise Unreadable("it has no pixels")
        return self.picture(number)
