"""Programs that the studies compare with, and the turns in which they train."""
