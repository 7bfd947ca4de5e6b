"""The settings of --mode=score."""

from __future__ import annotations

import dataclasses

from .settings import Section, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreSettings(Section):
    """The examples that are scored, and the search for the nearest sample."""

    score_data: str | None = setting(
        None,
        "Examples that --mode=score scores: a folder of images, a .npy file of examples, or a "
        ".npz file of examples and labels (docs/scoring.md). Default: the run's own dataset.",
        changeable_on_resume=True,
        path=True,
    )
    score_examples: int = setting(
        1000,
        "Maximum number of examples of the run's own dataset that --mode=score scores.",
        minimum=1,
        changeable_on_resume=True,
        maximum=1_000_000,
    )
    score_starts: int = setting(
        4,
        "Number of latent vectors from which --mode=score searches the sample nearest to an "
        "example. 0: no search, and no distances.",
        minimum=0,
        changeable_on_resume=True,
        maximum=256,
    )
    score_steps: int = setting(
        200,
        "Number of steps of Adam in the search of --mode=score.",
        minimum=0,
        changeable_on_resume=True,
        maximum=100_000,
    )
