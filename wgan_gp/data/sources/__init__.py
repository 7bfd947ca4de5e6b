"""The kinds of data: what their files contain, and their examples."""
