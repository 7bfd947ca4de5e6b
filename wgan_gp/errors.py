"""The one exception that is the user's to mend."""


class UserError(Exception):
    """A mistake in a flag or a file, shown as `error: <what> — <what to do>`, exit status 2.

    Args:
      what: the flag or file and what is wrong with it.
      remedy: what to do about it.
    """

    def __init__(self, what: str, remedy: str):
        # A library's message inside may have lines of its own; the user gets one.
        super().__init__(" ".join(f"{what} — {remedy}".split()))
