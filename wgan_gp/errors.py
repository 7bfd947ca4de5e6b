"""The one exception that is the user's to mend."""


class UserError(Exception):
    """A mistake in a flag or a file, shown as `error: <what> — <what to do>`, exit status 2.

    Args:
      what: the flag or file and what is wrong with it.
      remedy: what to do about it.
    """

    def __init__(self, what: str, remedy: str):
        super().__init__(f"{what} — {remedy}")
