"""`--mode=sweep`: a file of candidates, their trials, and the table of results."""
